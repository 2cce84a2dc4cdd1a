//! Turns a NAME or URL and the store options into ROOT and the name of a backup.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use xb_backup::{fill_in, is_name_template};
use xb_cli::{Failure, host_name};
use xb_encryptor::SigningKey;
use xb_repo::names::BackupName;
use xb_repo::resolve::BackupSelector;
use xb_repo::root::{Root, Signing, identity};
use xb_uploader::{Location, Policy, StorePlace, is_unfinished_file};

use crate::args::copy_destination::Destination;
use crate::args::{CommonOptions, RunOptions, SigningOptions, StoreOptions};
use crate::settings::{from_variables, settings};

/// ROOT and NAME of a backup.
pub(crate) fn backup_place(
    name: &str,
    CommonOptions { run, store }: &CommonOptions,
    create: bool,
) -> Result<(Root, BackupName), Failure> {
    let (location, name) = parse_backup_place(name, store, create)?;
    if create {
        refuse_untrusted(&store.signing)?;
    }
    Ok((open(&location, store, run, create)?, name))
}

/// Name of a backup whose place will be opened later. Finds what is wrong in the options, but
/// leaves local directories alone: a hook may still have to mount their file system.
pub(crate) fn check_backup_place(
    name: &str,
    CommonOptions { run, store }: &CommonOptions,
) -> Result<BackupName, Failure> {
    let (location, name) = parse_backup_place(name, store, true)?;
    refuse_untrusted(&store.signing)?;
    check_settings(&location, store, run)?;
    Ok(name)
}

/// Location of ROOT, and NAME; `is_new`: of a backup to be made.
fn parse_backup_place(
    name: &str,
    store: &StoreOptions,
    is_new: bool,
) -> Result<(Location, BackupName), Failure> {
    let (location, last) = split(name, store)?;
    match BackupName::new(&last) {
        Ok(name) => Ok((location, name)),
        // What is newest may be another one by the time that it is changed or removed.
        Err(_) if !is_new && BackupSelector::parse(&last).is_ok() => {
            Err(Failure::usage(format!("this command needs the name of a backup, not `{last}`"))
                .hint("`xbcloud-rs show` of the same place shows which one it is"))
        }
        Err(error) => Err(Failure::usage(error.to_string())
            .hint("the last component of the URL must be a backup name")),
    }
}

/// Place of a new backup.
pub(crate) struct NewPlace {
    pub(crate) root: Root,
    pub(crate) name: BackupName,
    /// Whether the name is generated, so that the run may take another one.
    pub(crate) generated: bool,
}

/// ROOT and NAME of a new backup. The program makes the name if none is given, or if it has fields
/// to fill in.
pub(crate) fn new_backup_place(
    place: Option<&str>,
    template: &str,
    common: &CommonOptions,
) -> Result<NewPlace, Failure> {
    let (place, generated) = new_name(place, template, common)?;
    let (root, name) = backup_place(&place, common, true)?;
    Ok(NewPlace { root, name, generated })
}

/// Place of a new backup, NAME included, and whether the name is generated.
pub(crate) fn new_name(
    place: Option<&str>,
    template: &str,
    common: &CommonOptions,
) -> Result<(String, bool), Failure> {
    let place = place.unwrap_or_default();
    let named = match place.is_empty() && common.store.root.is_some() {
        true => template.to_owned(),
        false => place.to_owned(),
    };
    let (folder, last) = match named.rsplit_once('/') {
        Some((folder, last)) => (format!("{folder}/"), last),
        None => (String::new(), named.as_str()),
    };
    if !is_name_template(last) {
        return Ok((named, false));
    }
    let host = host_name().unwrap_or_else(|| "host".to_owned());
    let name = fill_in(last, &host, Timestamp::now())
        .map_err(|error| Failure::usage(error.to_string()))?;
    Ok((format!("{folder}{name}"), true))
}

/// ROOT, and the backup to find in it.
pub(crate) fn wanted_place(
    name: &str,
    CommonOptions { run, store }: &CommonOptions,
) -> Result<(Root, BackupSelector), Failure> {
    let (location, last) = split(name, store)?;
    let wanted = BackupSelector::parse(&last).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("the last component of the URL must be a backup name, `latest`, or @ and a day")
    })?;
    Ok((open(&location, store, run, false)?, wanted))
}

/// Location of ROOT, and the last component of a place.
pub(crate) fn split(name: &str, store: &StoreOptions) -> Result<(Location, String), Failure> {
    if name.is_empty() {
        return Err(Failure::usage("no backup is named").hint(
            "add its name, `latest`, or @ and a day, as in @shop/latest or s3://BUCKET/shop/latest",
        ));
    }
    let mut location = locate(name, store)?;
    let (root, last) = match location.path.rsplit_once('/') {
        Some((root, last)) => (root.to_owned(), last.to_owned()),
        None => (String::new(), location.path.clone()),
    };
    location.path = root;
    refuse_local(&location, &last, name)?;
    Ok((location, last))
}

/// Refuses places that a local directory cannot hold: `last` below ROOT, as in the place `name`.
fn refuse_local(root: &Location, last: &str, name: &str) -> Result<(), Failure> {
    if root.place == StorePlace::Local && is_unfinished_file(last) {
        return Err(Failure::usage(format!("`{last}` cannot be a name in a local directory")).hint(
            "names that end in # and digits are reserved for unfinished files; choose another name",
        ));
    }
    if root.place == StorePlace::Local && root.path.is_empty() {
        return Err(Failure::usage(format!("`{name}` would put backups into the root directory"))
            .hint("write file:///DIR/NAME"));
    }
    Ok(())
}

/// Destination of a copy.
pub(crate) struct CopyPlace {
    at: Location,
    pub(crate) name: BackupName,
    /// Whether the destination is the place of the backup itself.
    pub(crate) same: bool,
    /// Whether the destination is in the same bucket.
    pub(crate) within_store: bool,
}

impl CopyPlace {
    /// Opens the ROOT of the copy.
    pub(crate) fn open(&self, to: &Destination, run: &RunOptions) -> Result<Root, Failure> {
        open(&self.at, &to.store, run, true)
    }

    /// Checks a destination that will be opened later, as [`check_backup_place`] does.
    pub(crate) fn check(&self, to: &Destination, run: &RunOptions) -> Result<(), Failure> {
        check_settings(&self.at, &to.store, run)
    }
}

/// Destination of a copy of the backup `name`.
pub(crate) fn copy_place(
    from: &str,
    to: &str,
    name: &BackupName,
    source: &StoreOptions,
    destination: &Destination,
) -> Result<CopyPlace, Failure> {
    let keeps_name = to.is_empty() || to.ends_with('/');
    let (source, _) = split(from, source)?;
    let (at, last) = match keeps_name {
        true => {
            // As it is: in a URL, `%` and `#` would be read as escapes.
            let (root, last) = (locate(to, &destination.store)?, name.to_string());
            refuse_local(&root, &last, to)?;
            (root, last)
        }
        false => split(to, &destination.store)?,
    };
    let to_name = BackupName::new(&last).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("the last component of the URL is the name of the copy; end the URL with a slash to keep the name")
    })?;
    let same = !destination.elsewhere && is_one_place(&source, &at) && to_name == *name;
    // With another store or other keys, the same bucket name may mean another bucket.
    let within_store = !destination.differs && source.place == at.place;
    Ok(CopyPlace { at, name: to_name, same, within_store })
}

/// Whether both are one place, also if links lead to it.
fn is_one_place(one: &Location, other: &Location) -> bool {
    let folder = |location: &Location| match location.place {
        StorePlace::Local => std::fs::canonicalize(format!("/{}", location.path)).ok(),
        _ => None,
    };
    one == other || folder(one).is_some_and(|one| folder(other) == Some(one))
}

/// ROOT without a name, for listings.
pub(crate) fn root_place(
    root: Option<&str>,
    CommonOptions { run, store }: &CommonOptions,
) -> Result<Root, Failure> {
    open(&locate(root.unwrap_or_default(), store)?, store, run, false)
}

/// The place above ROOT, and the name of ROOT in it; `None` if there is none.
pub(crate) fn place_above(
    root: Option<&str>,
    CommonOptions { run, store }: &CommonOptions,
) -> Option<(Root, String)> {
    let Location { place, path } = locate(root.unwrap_or_default(), store).ok()?;
    let (above, name) = path.rsplit_once('/').unwrap_or(("", &path));
    if name.is_empty() || place == StorePlace::Local && above.is_empty() {
        return None;
    }
    let above = Location { place, path: above.to_owned() };
    Some((open(&above, store, run, false).ok()?, name.to_owned()))
}

/// Identity of this ROOT, by which it differs from all others; see [`Root::identity`]. It need not exist.
pub(crate) fn root_identity(
    root: Option<&str>,
    CommonOptions { run, store }: &CommonOptions,
) -> Result<String, Failure> {
    let location = locate(root.unwrap_or_default(), store)?;
    Ok(identity(&location, &settings(&location.place, store, run)?))
}

pub(crate) fn locate(text: &str, store: &StoreOptions) -> Result<Location, Failure> {
    let below_root;
    let text = match &store.root {
        Some(root) if !root.is_empty() && !text.contains("://") => {
            let (root, text) = (root.trim_end_matches('/'), text.trim_matches('/'));
            below_root = if text.is_empty() { root.to_owned() } else { format!("{root}/{text}") };
            &below_root
        }
        _ => text,
    };
    if let Some(parsed) = Location::parse(text) {
        return parsed.map_err(|error| Failure::usage(error.to_string()));
    }
    let kind = store.storage.as_deref().unwrap_or_default().to_ascii_lowercase();
    let path = text.trim_matches('/').to_owned();
    let named = |option: &Option<String>, missing: &str, scheme: &str| {
        option.clone().or_else(|| from_variables(missing)).ok_or_else(|| {
            Failure::usage(format!("--storage={kind} needs --{missing}"))
                .hint(format!("give it, or write the backup as {scheme}://BUCKET/NAME"))
        })
    };
    let place = match kind.as_str() {
        "s3" => StorePlace::S3 { bucket: named(&store.s3.s3_bucket, "s3-bucket", "s3")? },
        "google" => StorePlace::Google {
            bucket: named(&store.google.google_bucket, "google-bucket", "gs")?,
        },
        "azure" => {
            let option = &store.azure.azure_container_name;
            let default = store.azure.azure_development_storage.then(|| "testcontainer".to_owned());
            let named = named(option, "azure-container-name", "azure");
            StorePlace::Azure { container: named.or_else(|missing| default.ok_or(missing))? }
        }
        "" => return Err(Failure::usage("no store is given").hint(with_a_store(text))),
        "swift" => {
            return Err(Failure::usage("Swift is not supported")
                .hint("try --storage=s3 with --s3-endpoint; many Swift clusters also support S3"));
        }
        other => {
            return Err(Failure::usage(format!("unknown storage `{other}`"))
                .hint("use s3, google or azure; write a local directory as file:///DIR/NAME"));
        }
    };
    Ok(Location { place, path })
}

/// A hint: the form of a place with its store.
fn with_a_store(text: &str) -> String {
    const ALL: &str = "write the backup as file:///DIR/NAME, s3://BUCKET/NAME, gs://BUCKET/NAME or azure://CONTAINER/NAME, or as @REPOSITORY with `root` in its group, or give --storage=s3 --s3-bucket=BUCKET (the stock tool would now try Swift, which is not supported)";
    let path = text.strip_prefix("file:").unwrap_or(text);
    if path.starts_with('/') {
        return format!("write a local directory as file://{path}");
    }
    // As people write the name of a repository who forget the @.
    let is_word = |word: &str| !word.is_empty() && !word.contains([':', '.', '@', '%', '{']);
    match text.split('/').next().filter(|word| is_word(word)) {
        Some(word) => {
            format!("if {word} is a repository of an option file, write @{text}; else {ALL}")
        }
        None => ALL.to_owned(),
    }
}

fn check_settings(
    location: &Location,
    store: &StoreOptions,
    run: &RunOptions,
) -> Result<(), Failure> {
    match location.place {
        StorePlace::Local => settings(&location.place, store, run).map(drop),
        _ => open(location, store, run, false).map(drop),
    }
}

fn open(
    location: &Location,
    store: &StoreOptions,
    run: &RunOptions,
    create: bool,
) -> Result<Root, Failure> {
    if !matches!(store.s3.s3_api_version.to_ascii_lowercase().as_str(), "auto" | "4") {
        return Err(
            Failure::usage("signature version 2 is not supported").hint("remove --s3-api-version")
        );
    }
    let signing = signing(&store.signing)?;
    Root::open(location, &settings(&location.place, store, run)?, policy(run), create)
        .map(|root| root.with_signing(signing))
        .map_err(|error| crate::report::failure(error.into()))
}

fn signing(options: &SigningOptions) -> Result<Signing, Failure> {
    let own = own_key(options)?.map(Arc::new);
    Ok(Signing { own, trusted: options.signer.clone().into() })
}

/// The key with which this host signs.
pub(crate) fn own_key(options: &SigningOptions) -> Result<Option<SigningKey>, Failure> {
    let own = options.signing_key_file.as_deref().map(SigningKey::read).transpose();
    own.map_err(|error| {
        Failure::usage(format!("--signing-key-file: {error}"))
            .hint("make a key with `xbcrypt-rs keygen --signing -o FILE`")
    })
}

/// The URL of a place.
pub(crate) fn url(location: &Location) -> String {
    let (scheme, bucket) = match &location.place {
        StorePlace::S3 { bucket } => ("s3", bucket.as_str()),
        StorePlace::Google { bucket } => ("gs", bucket.as_str()),
        StorePlace::Azure { container } => ("azure", container.as_str()),
        _ => ("file", ""),
    };
    format!("{scheme}://{bucket}/{}", location.path)
}

/// Refuses to make a backup that this host itself would not trust.
pub(crate) fn refuse_untrusted(options: &SigningOptions) -> Result<(), Failure> {
    let Signing { own, trusted } = signing(options)?;
    let own = own.map(|own| own.verifying_key());
    if trusted.is_empty() || own.is_some_and(|own| trusted.contains(&own)) {
        return Ok(());
    }
    Err(match own {
        None => Failure::usage("--signer trusts only signed backups, but this one would not be signed")
            .hint("give this host's private key with --signing-key-file"),
        Some(own) => Failure::usage(format!(
            "--signer does not name the key of --signing-key-file, {own}, so the backup would not be trusted here"
        ))
        .hint(format!("add --signer={own}")),
    })
}

/// Retry policy. Each of the two limits is a minimum; if only one is given, the other is off.
fn policy(run: &RunOptions) -> Policy {
    let default = Policy::default();
    let (max_retries, retry_timeout) = match (run.max_retries, run.retry_timeout) {
        (None, None) => (default.max_retries, default.retry_timeout),
        (tries, seconds) => (tries.unwrap_or(0), Duration::from_secs(seconds.unwrap_or(0))),
    };
    let mut policy = default
        .with_max_retries(max_retries)
        .with_retry_timeout(retry_timeout)
        .with_max_backoff(Duration::from_millis(run.max_backoff))
        .with_stall(Duration::from_secs(run.timeout));
    policy.reach = Duration::from_secs(run.reach_timeout);
    policy.also_statuses.clone_from(&run.http_retriable_errors);
    policy.also_transport.clone_from(&run.curl_retriable_errors);
    policy
}
