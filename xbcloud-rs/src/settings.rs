//! Credentials and settings for the stores, from options and the environment, in the stock tool's
//! order.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use xb_cli::{Failure, OrFail as _, Secret, env_first};
use xb_uploader::{
    AwsProfile, AzureSettings, BucketLookup, Checksum, ContainerCredentials, Encryption,
    GoogleSettings, HttpSettings, S3Settings, StoreSettings, WebIdentity,
};

use crate::args::{
    AzureOptions, ChecksumArg, ConnectionOptions, GoogleOptions, Lookup, RunOptions, S3Options,
    StoreOptions,
};

/// Settings for all kinds of store; the place decides which of them are used.
pub(crate) fn settings(store: &StoreOptions, run: &RunOptions) -> Result<StoreSettings, Failure> {
    Ok(StoreSettings {
        s3: s3(&store.s3)?,
        google: google(&store.google),
        azure: azure(&store.azure),
        http: http(&store.connection, run)?,
    })
}

/// Value of an option or of the environment; an empty option disables both.
fn given(option: &Option<String>, names: &[&str]) -> Option<String> {
    option.clone().or_else(|| env_first(names)).filter(|text| !text.is_empty())
}

fn secret(option: &Option<Secret>, names: &[&str]) -> Option<String> {
    given(&option.as_ref().map(|secret| secret.expose().to_owned()), names)
}

fn env_path(name: &str) -> Option<PathBuf> {
    env_first(&[name]).map(Into::into)
}

fn http(options: &ConnectionOptions, run: &RunOptions) -> Result<HttpSettings, Failure> {
    let bundle = options
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
    let headers = options.header.iter().map(|header| {
        let (name, value) = header
            .expose()
            .split_once(':')
            .ok_or_else(|| Failure::usage("--header must have the form `Name: value`"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    let limit_rate = match run.limit_rate {
        None => None,
        Some(rate) => Some(
            NonZeroU64::new(rate.bytes())
                .ok_or_else(|| Failure::usage("--limit-rate must be at least 1"))?,
        ),
    };
    Ok(HttpSettings {
        ca_bundle,
        insecure: options.insecure,
        headers: headers.collect::<Result<_, Failure>>()?,
        limit_rate,
    })
}

fn s3(options: &S3Options) -> Result<S3Settings, Failure> {
    let web_identity = match (env_path("AWS_WEB_IDENTITY_TOKEN_FILE"), env_first(&["AWS_ROLE_ARN"]))
    {
        (Some(token_file), Some(role_arn)) => {
            let session_name = env_first(&["AWS_ROLE_SESSION_NAME"]);
            Some(WebIdentity { token_file, role_arn, session_name })
        }
        _ => None,
    };
    // A profile on the command line takes precedence over keys in the environment.
    let from_environment = |option: &Option<Secret>, names: &[&str]| {
        secret(option, if options.aws_profile.is_some() { &[] } else { names })
    };
    Ok(S3Settings {
        endpoint: given(&options.s3_endpoint, &["S3_ENDPOINT", "AWS_ENDPOINT", "ENDPOINT"]),
        region: given(
            &options.s3_region,
            &["S3_DEFAULT_REGION", "AWS_DEFAULT_REGION", "DEFAULT_REGION", "AWS_REGION"],
        ),
        access_key: from_environment(
            &options.s3_access_key,
            &["S3_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "ACCESS_KEY_ID"],
        ),
        secret_key: from_environment(
            &options.s3_secret_key,
            &["S3_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "SECRET_ACCESS_KEY"],
        ),
        session_token: from_environment(
            &options.s3_session_token,
            &["S3_SESSION_TOKEN", "AWS_SESSION_TOKEN"],
        ),
        web_identity,
        profile: profile(options),
        container: container(),
        metadata_endpoint: env_first(&["AWS_EC2_METADATA_SERVICE_ENDPOINT"]),
        lookup: match options.s3_bucket_lookup {
            Lookup::Auto => BucketLookup::Auto,
            Lookup::Dns => BucketLookup::Dns,
            Lookup::Path => BucketLookup::Path,
        },
        provider: options.s3_provider,
        storage_class: given(&options.s3_storage_class, &["S3_STORAGE_CLASS", "AWS_STORAGE_CLASS"]),
        encryption: encryption(options)?,
        checksum: match options.s3_checksum {
            ChecksumArg::Auto => None,
            ChecksumArg::Crc64nvme => Some(Checksum::Crc64Nvme),
            ChecksumArg::Sha256 => Some(Checksum::Sha256),
            ChecksumArg::None => Some(Checksum::None),
        },
        sign_bodies: options.s3_sign_bodies,
    })
}

/// The profile in the shared AWS files.
fn profile(options: &S3Options) -> Option<AwsProfile> {
    let named = given(&options.aws_profile, &["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
    let home = env_path("HOME").map(|home| home.join(".aws"));
    let file = |variable, name: &str| {
        env_path(variable).or_else(|| home.as_ref().map(|home| home.join(name)))
    };
    Some(AwsProfile {
        required: named.is_some(),
        name: named.unwrap_or_else(|| "default".to_owned()),
        credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?,
        config: file("AWS_CONFIG_FILE", "config")?,
    })
}

fn container() -> Option<ContainerCredentials> {
    if let Some(path) = env_first(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]) {
        return Some(ContainerCredentials::Relative(path));
    }
    let url = env_first(&["AWS_CONTAINER_CREDENTIALS_FULL_URI"])?;
    let token_file = env_path("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")?;
    Some(ContainerCredentials::Full { url, token_file })
}

fn encryption(options: &S3Options) -> Result<Option<Encryption>, Failure> {
    if let Some(file) = &options.s3_sse_customer_key_file {
        return Ok(Some(Encryption::Customer { key: customer_key(file)? }));
    }
    let Some(how) = &options.s3_sse else { return Ok(None) };
    match how.split_once('=').unwrap_or((how, "")) {
        ("AES256", "") => Ok(Some(Encryption::Store)),
        ("aws:kms", "") => Ok(Some(Encryption::Kms { key_id: None })),
        ("aws:kms", id) => Ok(Some(Encryption::Kms { key_id: Some(id.to_owned()) })),
        _ => Err(Failure::usage(format!("unknown value --s3-sse={how}"))
            .hint("use AES256, aws:kms or aws:kms=KEY-ID")),
    }
}

fn customer_key(file: &Path) -> Result<String, Failure> {
    let key = std::fs::read(file)
        .stage("settings")
        .hint(&format!("cannot read the key in {}", file.display()))?;
    if key.len() != 32 {
        let message =
            format!("the key in {} has {} bytes; it must have 32", file.display(), key.len());
        return Err(Failure::usage(message));
    }
    Ok(xb_uploader::base64(&key))
}

fn google(options: &GoogleOptions) -> GoogleSettings {
    let credentials_file = options
        .google_credentials_file
        .clone()
        .or_else(|| env_path("GOOGLE_APPLICATION_CREDENTIALS"));
    // A credentials file given as an option takes precedence over HMAC keys.
    let keys = if options.google_credentials_file.is_some() {
        (None, None)
    } else {
        (
            secret(&options.google_access_key, &["ACCESS_KEY_ID"]),
            secret(&options.google_secret_key, &["SECRET_ACCESS_KEY"]),
        )
    };
    GoogleSettings {
        endpoint: given(&options.google_endpoint, &["ENDPOINT"]),
        region: given(&options.google_region, &["DEFAULT_REGION"]),
        access_key: keys.0,
        secret_key: keys.1,
        session_token: secret(&options.google_session_token, &["SESSION_TOKEN"]),
        credentials_file,
        storage_class: given(&options.google_storage_class, &[]),
    }
}

fn azure(options: &AzureOptions) -> AzureSettings {
    // A key or signature given as an option takes precedence over an application in the
    // environment.
    let named = |option: &Option<Secret>| option.as_ref().is_some_and(|s| !s.expose().is_empty());
    let named = named(&options.azure_access_key) || named(&options.azure_sas_token);
    let of_application = |name: &str| if named { None } else { env_first(&[name]) };
    AzureSettings {
        account: given(&options.azure_storage_account, &["AZURE_STORAGE_ACCOUNT"]),
        access_key: secret(&options.azure_access_key, &["AZURE_ACCESS_KEY"]),
        sas: secret(&options.azure_sas_token, &["AZURE_STORAGE_SAS_TOKEN"]),
        tenant_id: of_application("AZURE_TENANT_ID"),
        client_id: of_application("AZURE_CLIENT_ID"),
        client_secret: of_application("AZURE_CLIENT_SECRET"),
        federated_token_file: of_application("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from),
        endpoint: given(&options.azure_endpoint, &["AZURE_ENDPOINT"]),
        tier: given(&options.azure_tier_class, &["AZURE_STORAGE_CLASS"]),
        development: options.azure_development_storage,
    }
}
