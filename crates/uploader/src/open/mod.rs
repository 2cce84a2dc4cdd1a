//! Builds a [`Store`] from a place and settings.

pub(crate) mod bucket;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey, Checksum as S3Checksum, S3ConditionalPut,
};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector as _;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::{Attribute, AttributeValue, Attributes, ClientOptions, RetryConfig};

use crate::error::{StoreError, StoreErrorKind, root_message};
use crate::request::answer::origin;
use crate::request::http::{Connector, Traffic};
use crate::request::rate::RateLimit;
use crate::request::raw_request::Direct;
use crate::request::watch::Limits;
use crate::retry::policy::Policy;
use crate::settings::aws_profile::{self, ProfileKeys};
use crate::settings::location::{Location, Place};
use crate::settings::provider::{Provider, StoreLimits};
use crate::settings::{
    AzureSettings, BucketLookup, Checksum, ContainerCredentials, Encryption, GoogleSettings,
    HttpSettings, S3Settings, StoreSettings,
};
use crate::store::{Store, StoreTraits};

/// Reason why settings are invalid.
type Refused = Box<dyn std::error::Error + Send + Sync>;

/// Opens the store that contains `root`. Returns the store and the prefix of every key below `root`
/// (empty for a folder, `a/b/` in a bucket).
///
/// If `create` is set, a missing folder is created.
///
/// # Errors
/// [`StoreError`] if the settings are invalid. No request is sent to a bucket yet.
pub fn open(
    root: &Location,
    settings: &StoreSettings,
    policy: Policy,
    create: bool,
) -> Result<(Store, String), StoreError> {
    let (kind, bucket) = match &root.place {
        Place::Local => return local(root, settings, policy, create),
        Place::S3 { bucket } => ("s3", bucket),
        Place::Google { bucket } => ("gs", bucket),
        Place::Azure { container } => ("azure", container),
    };
    let traffic = Traffic::default();
    let opened = connector(&settings.http, &policy, &traffic).and_then(|connector| {
        let opening = Opening { connector, policy, traffic };
        match (kind, &settings.google) {
            ("s3", _) => opening.s3(bucket, settings.s3.clone()),
            ("gs", google) if google.access_key.is_some() => {
                opening.s3(bucket, google_as_s3(google))
            }
            ("gs", google) => opening.google(bucket, google),
            _ => opening.azure(bucket, &settings.azure),
        }
    });
    let store = opened.map_err(|error| {
        let place = format!("{kind}://{bucket}");
        StoreError::new("open", place, StoreErrorKind::Settings, root_message(&*error))
    })?;
    let prefix = if root.path.is_empty() { String::new() } else { format!("{}/", root.path) };
    Ok((store, prefix))
}

fn local(
    root: &Location,
    settings: &StoreSettings,
    policy: Policy,
    create: bool,
) -> Result<(Store, String), StoreError> {
    let folder = format!("/{}", root.path);
    let refused =
        |message: String| StoreError::new("open", &folder, StoreErrorKind::NotFound, message);
    if create {
        std::fs::create_dir_all(&folder).map_err(|error| refused(error.to_string()))?;
    }
    let store = LocalFileSystem::new_with_prefix(&folder)
        .map_err(|error| refused(root_message(&error)))?
        // Content and names are on disk when a put returns, as in any remote store.
        .with_fsync(true)
        // Remote stores have no empty folders.
        .with_automatic_cleanup(true);
    let nature = StoreTraits {
        limits: StoreLimits::S3,
        protection: "the file system; synced before a file gets its name",
        conditions: true,
        refreshable: false,
        attributes: Attributes::default(),
        attributes_of_parts: false,
        direct: Direct::Folder(folder.clone().into()),
        rate: settings.http.limit_rate.map(|rate| Arc::new(RateLimit::new(rate))),
        // A hard link is not a copy: both names would share one file.
        copies: false,
        empty_folders: false,
    };
    let store = Store::new(Arc::new(store), None, nature, policy, Traffic::default());
    Ok((store, String::new()))
}

fn connector(
    http: &HttpSettings,
    policy: &Policy,
    traffic: &Traffic,
) -> Result<Connector, Refused> {
    let certificates = match &http.ca_bundle {
        None => Vec::new(),
        Some(bundle) => reqwest::Certificate::from_pem_bundle(bundle)?,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &http.headers {
        let mut value = HeaderValue::from_str(value)?;
        // The value may be a secret.
        value.set_sensitive(true);
        headers.append(HeaderName::from_bytes(name.as_bytes())?, value);
    }
    Ok(Connector {
        traffic: traffic.clone(),
        limits: Limits::of(policy),
        rate: http.limit_rate.map(|rate| Arc::new(RateLimit::new(rate))),
        certificates,
        insecure: http.insecure,
        headers,
        home: String::new(),
        goog_hash: false,
    })
}

/// Switches off the client's retries: [`Store`] has the only retry loop.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

const CRC64: &str = "CRC-64/NVME, checked by the store";
const SHA256: &str = "SHA-256, checked by the store";
const SIGNED: &str = "SHA-256 in the signature";
const CRC32C: &str = "CRC-32C, checked by the store";
const TRANSPORT: &str = "TLS only: the store checks nothing";
const NOTHING: &str = "nothing: plain HTTP, and the store checks nothing";

struct Opening {
    connector: Connector,
    policy: Policy,
    traffic: Traffic,
}

impl Opening {
    /// Client settings that must be made here because the client signs the default headers.
    fn options(&self, plain: bool) -> ClientOptions {
        ClientOptions::new()
            .with_allow_http(plain)
            .with_timeout_disabled()
            .with_default_headers(self.connector.headers.clone())
    }

    fn s3(mut self, bucket: &str, mut s3: S3Settings) -> Result<Store, Refused> {
        let mut builder = AmazonS3Builder::new();
        let refreshable = s3.access_key.is_none() && s3.secret_key.is_none();
        if refreshable {
            builder = renewed_keys(builder, &mut s3)?;
        }
        let endpoint = s3.endpoint.as_deref().map(with_scheme).transpose()?;
        let plain = is_plain(endpoint.as_deref());
        let by_host = match s3.lookup {
            BucketLookup::Dns => true,
            BucketLookup::Path => false,
            // A bucket name with dots would not match a wildcard certificate.
            BucketLookup::Auto => endpoint.is_none() && !bucket.contains('.'),
        };
        let provider = s3.provider.unwrap_or_else(|| Provider::of_endpoint(endpoint.as_deref()));
        let region = s3.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        // TLS protects the body; over plain HTTP the signature must.
        let signed = plain || s3.sign_bodies;
        builder = builder
            .with_bucket_name(bucket)
            .with_region(&region)
            .with_virtual_hosted_style_request(by_host)
            .with_allow_http(plain)
            .with_client_options(self.options(plain))
            .with_retry(no_retries())
            .with_unsigned_payload(!signed)
            .with_disable_bulk_delete(!provider.deletes_in_bulk());
        if !provider.has_conditions() {
            builder = builder.with_conditional_put(S3ConditionalPut::Disabled);
        }
        let checksum = s3.checksum.unwrap_or(match provider.checks_crc64() {
            true => Checksum::Crc64Nvme,
            false => Checksum::None,
        });
        builder = match checksum {
            Checksum::Crc64Nvme => builder.with_checksum_algorithm(S3Checksum::CRC64NVME),
            Checksum::Sha256 => builder.with_checksum_algorithm(S3Checksum::SHA256),
            Checksum::None => builder,
        };
        builder = match &s3.encryption {
            None => builder,
            Some(Encryption::Store) => sse(builder, "AES256")?,
            Some(Encryption::Kms { key_id: None }) => sse(builder, "aws:kms")?,
            Some(Encryption::Kms { key_id: Some(id) }) => builder.with_sse_kms_encryption(id),
            Some(Encryption::Customer { key }) => builder.with_ssec_encryption(key),
        };
        let address = bucket_address(endpoint.as_deref(), bucket, &region, by_host);
        if let Some(endpoint) = &endpoint {
            // For host-style requests, the client requires the bucket in the endpoint.
            builder = builder.with_endpoint(if by_host { &address } else { endpoint });
        }
        if let Some(key) = &s3.access_key {
            builder = builder.with_access_key_id(key);
        }
        if let Some(secret) = &s3.secret_key {
            builder = builder.with_secret_access_key(secret);
        }
        if let Some(token) = &s3.session_token {
            builder = builder.with_token(token);
        }
        self.connector.home = home(&address)?;
        let builder = builder.with_http_connector(self.connector.clone());
        let store = Arc::new(builder.build()?);
        let direct = Direct::S3 {
            client: self.connector.connect(&self.options(plain))?,
            credentials: Arc::clone(store.credentials()),
            region,
            bucket: address,
        };
        // A copy needs the headers of a put, and the client does not send them with a copy.
        let copies = s3.storage_class.is_none() && s3.encryption.is_none();
        let nature = StoreTraits {
            limits: provider.limits(),
            protection: match checksum {
                Checksum::Crc64Nvme => CRC64,
                Checksum::Sha256 => SHA256,
                Checksum::None if signed => SIGNED,
                Checksum::None => TRANSPORT,
            },
            conditions: provider.has_conditions(),
            refreshable,
            attributes: storage_class(s3.storage_class),
            attributes_of_parts: true,
            direct,
            rate: None,
            copies,
            empty_folders: provider.may_list_empty_folders(),
        };
        Ok(Store::new(store.clone(), Some(store), nature, self.policy, self.traffic))
    }

    fn google(mut self, bucket: &str, google: &GoogleSettings) -> Result<Store, Refused> {
        self.connector.goog_hash = true;
        let mut builder =
            GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_retry(no_retries());
        let mut base = google.endpoint.as_deref().map(with_scheme).transpose()?;
        if let Some(file) = &google.credentials_file {
            let text = std::fs::read_to_string(file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            let says: serde_json::Value = serde_json::from_str(&text)
                .map_err(|error| format!("{} is not JSON: {error}", file.display()))?;
            if says.get("private_key").is_some() {
                // An emulator's key file contains the emulator's address.
                let named = says.get("gcs_base_url").and_then(|url| url.as_str());
                base = base.or(named.map(str::to_owned));
                builder = builder.with_service_account_key(text);
            } else {
                builder = builder.with_application_credentials(file.display().to_string());
            }
        }
        let base = with_scheme(base.as_deref().unwrap_or("https://storage.googleapis.com"))?;
        let plain = is_plain(Some(&base));
        self.connector.home = home(&base)?;
        let store = builder
            .with_base_url(&base)
            .with_client_options(self.options(plain))
            .with_http_connector(self.connector.clone())
            .build()?;
        let store = Arc::new(store);
        let direct = Direct::Google {
            client: self.connector.connect(&self.options(plain))?,
            credentials: Arc::clone(store.credentials()),
            bucket: format!("{base}/{bucket}"),
        };
        let nature = StoreTraits {
            limits: StoreLimits::S3,
            protection: CRC32C,
            conditions: true,
            refreshable: true,
            attributes: storage_class(google.storage_class.clone()),
            attributes_of_parts: true,
            direct,
            rate: None,
            copies: google.storage_class.is_none(),
            empty_folders: false,
        };
        Ok(Store::new(store.clone(), Some(store), nature, self.policy, self.traffic))
    }

    fn azure(mut self, container: &str, azure: &AzureSettings) -> Result<Store, Refused> {
        let endpoint = azure.endpoint.as_deref().map(with_scheme).transpose()?;
        let endpoint = match (endpoint, azure.development) {
            // The emulator has the account in its path.
            (None, true) => Some(format!("{EMULATOR}/{EMULATOR_ACCOUNT}")),
            (given, _) => given,
        };
        let plain = is_plain(endpoint.as_deref());
        let account = match (&azure.account, azure.development) {
            (None, true) => EMULATOR_ACCOUNT,
            (None, false) => {
                return Err("the storage account is missing; give --azure-storage-account".into());
            }
            (Some(account), _) => account,
        };
        let default = || format!("https://{account}.blob.core.windows.net");
        self.connector.home = home(&endpoint.clone().unwrap_or_else(default))?;
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(account)
            .with_container_name(container)
            .with_allow_http(plain)
            .with_client_options(self.options(plain))
            .with_http_connector(self.connector.clone())
            .with_retry(no_retries());
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        let development_key =
            (azure.development && azure.access_key.is_none()).then(|| EMULATOR_KEY.to_owned());
        let key = azure.access_key.clone().or(development_key);
        let refreshable = key.is_none() && azure.sas.is_none();
        for (setting, value) in [
            (AzureConfigKey::AccessKey, &key),
            (AzureConfigKey::AuthorityId, &azure.tenant_id),
            (AzureConfigKey::ClientId, &azure.client_id),
            (AzureConfigKey::ClientSecret, &azure.client_secret),
            (AzureConfigKey::SasKey, &azure.sas),
        ] {
            if let Some(value) = value {
                builder = builder.with_config(setting, value);
            }
        }
        if let Some(file) = &azure.federated_token_file {
            builder = builder.with_federated_token_file(file.display().to_string());
        }
        let store = Arc::new(builder.build()?);
        let nature = StoreTraits {
            limits: StoreLimits::AZURE,
            protection: if plain { NOTHING } else { TRANSPORT },
            conditions: true,
            refreshable,
            attributes: storage_class(azure.tier.clone()),
            // The client sends no tier when it commits a list of blocks: such a blob gets the
            // account's default tier.
            attributes_of_parts: false,
            direct: Direct::Nothing,
            rate: None,
            // A copy in Azure may still be running when the response arrives.
            copies: false,
            empty_folders: false,
        };
        Ok(Store::new(store.clone(), Some(store), nature, self.policy, self.traffic))
    }
}

/// Address, account and key of Azure's emulator, the same everywhere ("Use the Azurite emulator").
const EMULATOR: &str = "http://127.0.0.1:10000";
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn sse(builder: AmazonS3Builder, value: &str) -> Result<AmazonS3Builder, Refused> {
    // The key's own type is not public.
    let key: AmazonS3ConfigKey = "aws_server_side_encryption".parse()?;
    Ok(builder.with_config(key, value))
}

fn storage_class(class: Option<String>) -> Attributes {
    class.into_iter().map(|class| (Attribute::StorageClass, AttributeValue::from(class))).collect()
}

/// Converts settings for Google's XML interface, which accepts S3 signatures.
fn google_as_s3(google: &GoogleSettings) -> S3Settings {
    let endpoint =
        google.endpoint.clone().unwrap_or_else(|| "https://storage.googleapis.com".into());
    S3Settings {
        endpoint: Some(endpoint),
        region: Some(google.region.clone().unwrap_or_else(|| "us-central-1".into())),
        access_key: google.access_key.clone(),
        secret_key: google.secret_key.clone(),
        session_token: google.session_token.clone(),
        provider: Some(Provider::Google),
        storage_class: google.storage_class.clone(),
        ..S3Settings::default()
    }
}

/// Adds the sources of renewable keys in their order of precedence.
fn renewed_keys(
    mut builder: AmazonS3Builder,
    s3: &mut S3Settings,
) -> Result<AmazonS3Builder, Refused> {
    use object_store::aws::AmazonS3ConfigKey as Key;

    let mut web_identity = s3.web_identity.clone();
    if let Some(profile) = &s3.profile {
        let found = aws_profile::read(profile)?;
        s3.region = s3.region.take().or(found.region);
        s3.endpoint = s3.endpoint.take().or(found.endpoint);
        // A profile that was named explicitly takes precedence.
        if web_identity.is_none() || profile.required {
            if let Some(keys) = found.keys {
                let keys = ProfileKeys::new(profile.clone(), keys);
                return Ok(builder.with_credentials(Arc::new(keys)));
            }
            web_identity = found.web_identity.or(web_identity);
        }
    }
    if let Some(identity) = web_identity {
        builder = builder
            .with_config(Key::WebIdentityTokenFile, identity.token_file.display().to_string())
            .with_config(Key::RoleArn, identity.role_arn);
        if let Some(name) = identity.session_name {
            builder = builder.with_config(Key::RoleSessionName, name);
        }
        return Ok(builder);
    }
    match &s3.container {
        Some(ContainerCredentials::Relative(path)) => {
            builder = builder.with_config(Key::ContainerCredentialsRelativeUri, path);
        }
        Some(ContainerCredentials::Full { url, token_file }) => {
            builder = builder.with_config(Key::ContainerCredentialsFullUri, url).with_config(
                Key::ContainerAuthorizationTokenFile,
                token_file.display().to_string(),
            );
        }
        None => {
            if let Some(endpoint) = &s3.metadata_endpoint {
                builder = builder.with_metadata_endpoint(endpoint);
            }
        }
    }
    Ok(builder)
}

/// Returns an endpoint with its scheme. The error does not repeat the endpoint: it may hold a
/// password.
fn with_scheme(endpoint: &str) -> Result<String, Refused> {
    let endpoint = endpoint.trim_end_matches('/');
    let endpoint = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("https://{endpoint}"),
    };
    let url = reqwest::Url::parse(&endpoint).map_err(|error| format!("the endpoint: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the endpoint holds a user name or a password, which would be visible in process lists and logs: leave them out, and give keys in options, option files or the environment".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "the endpoint has a `?` or a `#`: only scheme, host, port and path are used".into()
        );
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the endpoint must begin with http:// or https://".into());
    }
    Ok(endpoint)
}

/// Origin of the store at this address.
fn home(address: &str) -> Result<String, Refused> {
    Ok(origin(&address.parse()?))
}

fn is_plain(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Returns the address of a bucket.
fn bucket_address(endpoint: Option<&str>, bucket: &str, region: &str, by_host: bool) -> String {
    let default = format!("https://s3.{region}.amazonaws.com");
    let endpoint = endpoint.unwrap_or(&default);
    match endpoint.split_once("://") {
        Some((_, host)) if by_host && host.starts_with(&format!("{bucket}.")) => {
            endpoint.to_owned()
        }
        Some((scheme, host)) if by_host => format!("{scheme}://{bucket}.{host}"),
        _ => format!("{endpoint}/{bucket}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_become_addresses() {
        let address = |endpoint, by_host| bucket_address(endpoint, "b", "r", by_host);
        assert_eq!(address(None, true), "https://b.s3.r.amazonaws.com");
        assert_eq!(address(None, false), "https://s3.r.amazonaws.com/b");
        assert_eq!(address(Some("http://h:1"), false), "http://h:1/b");
        assert_eq!(address(Some("http://h:1"), true), "http://b.h:1");
        assert_eq!(address(Some("http://b.h:1"), true), "http://b.h:1");
    }

    fn opened(url: &str, settings: &StoreSettings) -> Result<Store, StoreError> {
        let location = Location::parse(url).unwrap().unwrap();
        open(&location, settings, Policy::default(), false).map(|(store, _)| store)
    }

    fn with_keys(endpoint: Option<&str>) -> StoreSettings {
        let s3 = S3Settings {
            endpoint: endpoint.map(str::to_owned),
            access_key: Some("id".into()),
            secret_key: Some("secret".into()),
            ..S3Settings::default()
        };
        StoreSettings { s3, ..StoreSettings::default() }
    }

    #[tokio::test]
    async fn what_protects_a_body_is_said_for_each_store() {
        let protection =
            |settings: &StoreSettings| opened("s3://b/n", settings).unwrap().protection();
        assert_eq!(protection(&with_keys(None)), CRC64);
        assert_eq!(protection(&with_keys(Some("http://127.0.0.1:1"))), SIGNED);
        assert_eq!(protection(&with_keys(Some("https://127.0.0.1:1"))), TRANSPORT);
        let mut asked = with_keys(Some("https://127.0.0.1:1"));
        asked.s3.sign_bodies = true;
        assert_eq!(protection(&asked), SIGNED);
        asked.s3.checksum = Some(Checksum::Sha256);
        assert_eq!(protection(&asked), SHA256);
    }

    #[tokio::test]
    async fn the_provider_sets_the_limits() {
        let store = opened("s3://b/n", &with_keys(Some("https://s3.nl-ams.scw.cloud"))).unwrap();
        assert_eq!(store.limits().max_parts, 1000);
        assert!(!store.nature.conditions);
        let mut other = with_keys(Some("https://s3.nl-ams.scw.cloud"));
        other.s3.provider = Some(Provider::Minio);
        assert_eq!(opened("s3://b/n", &other).unwrap().limits(), StoreLimits::S3);
    }

    #[tokio::test]
    async fn settings_that_cannot_work_are_refused_with_their_cause() {
        let message =
            |url: &str, settings: &StoreSettings| opened(url, settings).unwrap_err().to_string();
        assert!(
            message("azure://c/n", &StoreSettings::default()).contains("--azure-storage-account")
        );
        let mut half = with_keys(None);
        half.s3.secret_key = None;
        assert!(message("s3://b/n", &half).to_lowercase().contains("secret"));
        let mut headers = with_keys(None);
        headers.http.headers = vec![("bad name".into(), "x".into())];
        assert!(message("s3://b/n", &headers).contains("header name"));
        for secret in [
            "https://user:topsecret@h",
            "h:1/?topsecret",
            "https://topsecret@h/#x",
            "ftp://topsecret",
        ] {
            let said = message("s3://b/n", &with_keys(Some(secret)));
            assert!(said.contains("endpoint") && !said.contains("topsecret"), "{said}");
        }
        let mut google = StoreSettings::default();
        google.google.credentials_file = Some("/nonexistent/key.json".into());
        assert!(message("gs://b/n", &google).contains("/nonexistent/key.json"));
    }
}
