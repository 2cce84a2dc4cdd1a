//! Credentials and settings for the stores, from options and the environment, in the stock tool's
//! order.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use xb_cli::{Failure, Secret, env_first};
use xb_uploader::{
    AwsProfile, AzureSettings, Checksum, ContainerCredentials, Encryption, GoogleSettings,
    HttpSettings, S3Settings, StorePlace, StoreSettings, Tags, WebIdentity, normal_endpoint,
};

use crate::args::{
    AzureOptions, ChecksumArg, ConnectionOptions, GoogleOptions, RunOptions, S3Options,
    StoreOptions,
};

/// Settings for all kinds of store; the place decides which of them are used. For a local directory, the files that variables of
/// other tools name are not read.
pub(crate) fn settings(
    place: &StorePlace,
    store: &StoreOptions,
    run: &RunOptions,
) -> Result<StoreSettings, Failure> {
    let mut settings = StoreSettings::default();
    settings.s3 = s3(&store.s3)?;
    settings.google = google(&store.google);
    settings.azure = azure(&store.azure);
    settings.http = http(place, &store.connection, run)?;
    settings.tags =
        Tags::parse(&store.tag).map_err(|error| Failure::usage(format!("--tag: {error}")))?;
    Ok(settings)
}

/// The endpoint that is given. One that is spelled in another way would be another store for the locks, the cache and the
/// notes of this host.
fn endpoint(option: &Option<String>, name: &str) -> Option<String> {
    given(option, name).map(|endpoint| normal_endpoint(&endpoint))
}

/// Names of the variables from which an option takes its value if nothing else sets it.
type Fallback = (&'static str, &'static [&'static str]);

const FALLBACKS: [Fallback; 20] = [
    (
        "s3-endpoint",
        &["S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "ENDPOINT"],
    ),
    ("s3-region", &["S3_DEFAULT_REGION", "AWS_REGION", "AWS_DEFAULT_REGION", "DEFAULT_REGION"]),
    ("s3-access-key", &["S3_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "ACCESS_KEY_ID"]),
    ("s3-secret-key", &["S3_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "SECRET_ACCESS_KEY"]),
    ("s3-session-token", &["S3_SESSION_TOKEN", "AWS_SESSION_TOKEN"]),
    ("s3-storage-class", &["S3_STORAGE_CLASS", "AWS_STORAGE_CLASS"]),
    ("aws-profile", &["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]),
    ("google-access-key", &["ACCESS_KEY_ID"]),
    ("google-secret-key", &["SECRET_ACCESS_KEY"]),
    ("google-session-token", &["SESSION_TOKEN"]),
    ("google-credentials-file", &["GOOGLE_APPLICATION_CREDENTIALS"]),
    ("google-endpoint", &["ENDPOINT"]),
    ("google-region", &["DEFAULT_REGION"]),
    ("azure-storage-account", &["AZURE_STORAGE_ACCOUNT"]),
    ("azure-container-name", &["AZURE_CONTAINER_NAME"]),
    ("azure-access-key", &["AZURE_ACCESS_KEY"]),
    ("azure-sas-token", &["AZURE_STORAGE_SAS_TOKEN"]),
    ("azure-endpoint", &["AZURE_ENDPOINT"]),
    ("azure-tier-class", &["AZURE_STORAGE_CLASS"]),
    ("cacert", &["OS_CACERT", "S3_CA_BUNDLE", "AWS_CA_BUNDLE"]),
];

/// The fallbacks of all options, without the endpoints that the environment tells AWS programs to
/// ignore.
pub(crate) fn fallbacks() -> Vec<Fallback> {
    let ignore = env_first(&["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"]);
    let ignore = ignore.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let mut fallbacks = FALLBACKS.to_vec();
    for fallback in &mut fallbacks {
        if ignore && fallback.0 == "s3-endpoint" {
            fallback.1 = &["S3_ENDPOINT", "AWS_ENDPOINT", "ENDPOINT"];
        }
    }
    fallbacks
}

/// Value of the first variable that is set for this option.
pub(crate) fn from_variables(option: &str) -> Option<String> {
    let fallback = fallbacks().into_iter().find(|(name, _)| *name == option);
    fallback.and_then(|(_, names)| env_first(names))
}

/// Value of an option or of the environment; an empty option disables both.
fn given(value: &Option<String>, option: &str) -> Option<String> {
    value.clone().or_else(|| from_variables(option)).filter(|text| !text.is_empty())
}

fn secret(value: &Option<Secret>, option: &str) -> Option<String> {
    given(&value.as_ref().map(|secret| secret.expose().to_owned()), option)
}

fn env_path(name: &str) -> Option<PathBuf> {
    env_first(&[name]).map(Into::into)
}

fn http(
    place: &StorePlace,
    options: &ConnectionOptions,
    run: &RunOptions,
) -> Result<HttpSettings, Failure> {
    let of_variable = || {
        let is_remote = *place != StorePlace::Local;
        is_remote.then(|| from_variables("cacert").map(PathBuf::from)).flatten()
    };
    let bundle = options.cacert.clone().or_else(of_variable);
    let ca_bundle = match bundle {
        None => None,
        Some(path) => Some(std::fs::read(&path).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("cannot read the certificates in {path}: {error}"))
                .hint("correct --cacert, or the environment variable AWS_CA_BUNDLE")
        })?),
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
    let mut http = HttpSettings::default();
    http.ca_bundle = ca_bundle;
    http.insecure = options.insecure;
    http.headers = headers.collect::<Result<_, Failure>>()?;
    http.limit_rate = limit_rate;
    Ok(http)
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
    let from_environment = |value: &Option<Secret>, option: &str| {
        secret(value, if options.aws_profile.is_some() { "" } else { option })
    };
    let mut settings = S3Settings::default();
    settings.endpoint = endpoint(&options.s3_endpoint, "s3-endpoint");
    settings.region = given(&options.s3_region, "s3-region");
    settings.access_key = from_environment(&options.s3_access_key, "s3-access-key");
    settings.secret_key = from_environment(&options.s3_secret_key, "s3-secret-key");
    settings.session_token = from_environment(&options.s3_session_token, "s3-session-token");
    settings.web_identity = web_identity;
    settings.profile = Some(profile(options));
    settings.container = container();
    settings.metadata_endpoint = env_first(&["AWS_EC2_METADATA_SERVICE_ENDPOINT"]);
    settings.lookup = options.s3_bucket_lookup;
    settings.provider = options.s3_provider;
    settings.storage_class = given(&options.s3_storage_class, "s3-storage-class");
    settings.encryption = encryption(options)?;
    settings.checksum = match options.s3_checksum {
        ChecksumArg::Auto => None,
        ChecksumArg::Crc64nvme => Some(Checksum::Crc64Nvme),
        ChecksumArg::Sha256 => Some(Checksum::Sha256),
        ChecksumArg::None => Some(Checksum::None),
    };
    settings.sign_bodies = options.s3_sign_bodies;
    Ok(settings)
}

/// The profile, and the files in which it is looked for. A container may have no home, and name only
/// one of the files.
fn profile(options: &S3Options) -> AwsProfile {
    let named = given(&options.aws_profile, "aws-profile");
    let home = env_path("HOME").map(|home| home.join(".aws"));
    let file = |variable, name: &str| {
        env_path(variable)
            .or_else(|| home.as_ref().map(|home| home.join(name)))
            .unwrap_or_else(|| "/dev/null".into())
    };
    AwsProfile {
        required: named.is_some(),
        name: named.unwrap_or_else(|| "default".to_owned()),
        credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        config: file("AWS_CONFIG_FILE", "config"),
    }
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
    const HINT: &str = "name a readable file with the 32 bytes of the key for S3's own encryption";
    let key = std::fs::read(file).map_err(|error| {
        Failure::usage(format!("cannot read the key in {}: {error}", file.display())).hint(HINT)
    })?;
    if key.len() != 32 {
        let message =
            format!("the key in {} has {} bytes; it must have 32", file.display(), key.len());
        return Err(Failure::usage(message).hint(HINT));
    }
    Ok(xb_uploader::base64(&key))
}

fn google(options: &GoogleOptions) -> GoogleSettings {
    let credentials_file = options
        .google_credentials_file
        .clone()
        .or_else(|| from_variables("google-credentials-file").map(Into::into));
    // A credentials file given as an option takes precedence over HMAC keys.
    let keys = if options.google_credentials_file.is_some() {
        (None, None)
    } else {
        (
            secret(&options.google_access_key, "google-access-key"),
            secret(&options.google_secret_key, "google-secret-key"),
        )
    };
    let mut settings = GoogleSettings::default();
    settings.endpoint = endpoint(&options.google_endpoint, "google-endpoint");
    settings.region = given(&options.google_region, "google-region");
    settings.access_key = keys.0;
    settings.secret_key = keys.1;
    settings.session_token = secret(&options.google_session_token, "google-session-token");
    settings.credentials_file = credentials_file;
    settings.storage_class = given(&options.google_storage_class, "google-storage-class");
    settings
}

fn azure(options: &AzureOptions) -> AzureSettings {
    // A key or signature given as an option takes precedence over an application in the
    // environment.
    let named = |option: &Option<Secret>| option.as_ref().is_some_and(|s| !s.expose().is_empty());
    let named = named(&options.azure_access_key) || named(&options.azure_sas_token);
    let of_application = |name: &str| if named { None } else { env_first(&[name]) };
    let mut settings = AzureSettings::default();
    settings.account = given(&options.azure_storage_account, "azure-storage-account");
    settings.access_key = secret(&options.azure_access_key, "azure-access-key");
    settings.sas = secret(&options.azure_sas_token, "azure-sas-token");
    settings.tenant_id = of_application("AZURE_TENANT_ID");
    settings.client_id = of_application("AZURE_CLIENT_ID");
    settings.client_secret = of_application("AZURE_CLIENT_SECRET");
    settings.federated_token_file = of_application("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from);
    settings.endpoint = endpoint(&options.azure_endpoint, "azure-endpoint");
    settings.tier = given(&options.azure_tier_class, "azure-tier-class");
    settings.development = options.azure_development_storage;
    settings
}
