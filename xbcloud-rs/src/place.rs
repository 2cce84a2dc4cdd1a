//! From a NAME or URL and the store options to ROOT and the name of a backup.

use std::time::Duration;

use xb_backup::{BackupName, Root};
use xb_cli::{Failure, OrFail as _, Secret, env_first};
use xb_uploader::{BucketLookup, Location, Place, Policy, S3Settings};

use crate::args::{Lookup, RunOptions, StoreOptions};

/// ROOT and NAME of a backup.
pub(crate) fn backup_place(
    name: &str,
    store: &StoreOptions,
    run: &RunOptions,
    create: bool,
) -> Result<(Root, BackupName), Failure> {
    let mut location = locate(name, store)?;
    let (root, last) = match location.path.rsplit_once('/') {
        Some((root, last)) => (root.to_owned(), last.to_owned()),
        None => (String::new(), location.path.clone()),
    };
    if location.place == Place::Local && root.is_empty() {
        return Err(Failure::usage(format!("`{name}` would put backups into the root folder"))
            .hint("write file:///DIR/NAME"));
    }
    location.path = root;
    let name = BackupName::new(&last).map_err(|error| {
        Failure::usage(error.to_string()).hint("the last component of the URL is the backup's name")
    })?;
    Ok((open(&location, store, run, create)?, name))
}

/// ROOT on its own, for listings.
pub(crate) fn root_place(
    root: Option<&str>,
    store: &StoreOptions,
    run: &RunOptions,
) -> Result<Root, Failure> {
    open(&locate(root.unwrap_or_default(), store)?, store, run, false)
}

fn locate(text: &str, store: &StoreOptions) -> Result<Location, Failure> {
    if let Some(parsed) = Location::parse(text) {
        return parsed.map_err(|error| Failure::usage(error.to_string()));
    }
    let kind = store.storage.as_deref().unwrap_or_default().to_ascii_lowercase();
    match kind.as_str() {
        "s3" => {
            let bucket = store.s3_bucket.clone().ok_or_else(|| {
                Failure::usage("--storage=s3 needs --s3-bucket").hint("or write the backup's place as s3://BUCKET/NAME")
            })?;
            Ok(Location { place: Place::S3 { bucket }, path: text.trim_matches('/').to_owned() })
        }
        "" => Err(Failure::usage("no store is named")
            .hint("write the place as file:///DIR/NAME or s3://BUCKET/NAME, or give --storage=s3 --s3-bucket=BUCKET (the stock tool would now try Swift, which is not supported)")),
        "swift" => Err(Failure::usage("Swift is not supported").hint("many Swift clusters also speak S3: try --storage=s3 with --s3-endpoint")),
        other => Err(Failure::usage(format!("storage `{other}` is not supported in this version")).hint("s3 and local folders are")),
    }
}

fn open(
    location: &Location,
    store: &StoreOptions,
    run: &RunOptions,
    create: bool,
) -> Result<Root, Failure> {
    if !matches!(store.s3_api_version.to_ascii_lowercase().as_str(), "auto" | "4") {
        return Err(Failure::usage("signature version 2 is not supported")
            .hint("leave --s3-api-version away"));
    }
    let policy = Policy {
        max_retries: run.max_retries,
        max_backoff: Duration::from_millis(run.max_backoff),
        stall: Duration::from_secs(run.timeout),
    };
    Root::open(location, &s3_settings(store)?, policy, create).map_err(crate::report::failure)
}

fn s3_settings(store: &StoreOptions) -> Result<S3Settings, Failure> {
    let secret = |option: &Option<Secret>, names: &[&str]| {
        option.as_ref().map(|s| s.expose().to_owned()).or_else(|| env_first(names))
    };
    let bundle = store
        .cacert
        .clone()
        .or_else(|| env_first(&["OS_CACERT", "S3_CA_BUNDLE", "AWS_CA_BUNDLE"]).map(Into::into));
    let ca_bundle = match bundle {
        None => None,
        Some(path) => Some(
            std::fs::read(&path)
                .stage("settings")
                .hint(&format!("cannot read the certificates in {}", path.display()))?,
        ),
    };
    Ok(S3Settings {
        endpoint: store
            .s3_endpoint
            .clone()
            .or_else(|| env_first(&["S3_ENDPOINT", "AWS_ENDPOINT", "ENDPOINT"])),
        region: store
            .s3_region
            .clone()
            .or_else(|| env_first(&["S3_DEFAULT_REGION", "AWS_DEFAULT_REGION", "DEFAULT_REGION"])),
        access_key: secret(
            &store.s3_access_key,
            &["S3_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "ACCESS_KEY_ID"],
        ),
        secret_key: secret(
            &store.s3_secret_key,
            &["S3_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "SECRET_ACCESS_KEY"],
        ),
        session_token: secret(&store.s3_session_token, &["S3_SESSION_TOKEN", "AWS_SESSION_TOKEN"]),
        lookup: match store.s3_bucket_lookup {
            Lookup::Auto => BucketLookup::Auto,
            Lookup::Dns => BucketLookup::Dns,
            Lookup::Path => BucketLookup::Path,
        },
        insecure: store.insecure,
        ca_bundle,
    })
}
