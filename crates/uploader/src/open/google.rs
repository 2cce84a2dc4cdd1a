//! Google Cloud Storage, by its own interface or by the S3 one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::TagSet;
use object_store::client::HttpConnector as _;
use object_store::gcp::GoogleCloudStorageBuilder;

use crate::open::client::{
    CRC32C, ClientSettings, InvalidSettings, no_retries, no_tags, storage_class,
};
use crate::open::endpoint::{is_plain, origin_of, with_scheme};
use crate::request::raw_request::RawApi;
use crate::settings::checked::{self, CheckedKeys};
use crate::settings::provider::{Provider, StoreLimits};
use crate::settings::{GoogleSettings, S3Settings};
use crate::store::{Store, StoreTraits};

pub(crate) fn open(
    mut opening: ClientSettings,
    bucket: &str,
    google: &GoogleSettings,
) -> Result<Store, InvalidSettings> {
    if !opening.tags.is_empty() {
        return Err(no_tags("Google Cloud Storage"));
    }
    checked::name("bucket name", Some(bucket))?;
    checked::word("storage class", google.storage_class.as_deref())?;
    opening.connector.goog_hash = true;
    let mut builder =
        GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_retry(no_retries());
    let mut base = google.endpoint.as_deref().map(with_scheme).transpose()?;
    // Without a file that is named, the library looks for the one of `gcloud`.
    let of_gcloud = || gcloud_file().filter(|file| file.is_file());
    if let (None, Some(file)) = (&google.credentials_file, of_gcloud()) {
        let _ = read(&file)?;
    }
    if let Some(file) = &google.credentials_file {
        let (text, says) = read(file)?;
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
    opening.connector.home = origin_of("endpoint", &base)?;
    let builder = builder
        .with_base_url(&base)
        .with_client_options(opening.options(plain))
        .with_http_connector(opening.connector.clone());
    let keys = Arc::clone(builder.clone().build()?.credentials());
    let store = Arc::new(builder.with_credentials(Arc::new(CheckedKeys(keys))).build()?);
    let raw_api = RawApi::Google {
        client: opening.connector.connect(&opening.options(plain))?,
        credentials: Arc::clone(store.credentials()),
        bucket: format!("{base}/{bucket}"),
    };
    let traits = StoreTraits {
        limits: StoreLimits::S3,
        protection: CRC32C,
        conditions: true,
        refreshable: true,
        attributes: storage_class(google.storage_class.clone()),
        attributes_of_parts: true,
        tags: TagSet::default(),
        raw_api,
        rate: None,
        copies: google.storage_class.is_none(),
        empty_folders: false,
        opened: None,
    };
    Ok(Store::new(store.clone(), Some(store), traits, opening.policy, opening.traffic))
}

/// The file in which `gcloud auth application-default login` stores credentials.
fn gcloud_file() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".config/gcloud/application_default_credentials.json"))
}

/// Reads a file with credentials, and refuses kinds that would need a token service.
fn read(file: &Path) -> Result<(String, serde_json::Value), InvalidSettings> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let says: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| format!("{} is not JSON: {error}", file.display()))?;
    let kind = says.get("type").and_then(|kind| kind.as_str());
    let what = match kind {
        Some("external_account" | "external_account_authorized_user") => {
            "workload identity federation"
        }
        Some("impersonated_service_account") => "impersonation of a service account",
        _ => return Ok((text, says)),
    };
    Err(format!(
        "{}: {what} ({}) is not supported; use a service account, or HMAC keys (--google-access-key), which `gcloud storage hmac create` makes",
        file.display(),
        kind.unwrap_or_default()
    )
    .into())
}

/// Converts settings for Google's XML interface, which accepts S3 signatures.
pub(crate) fn as_s3(google: &GoogleSettings) -> S3Settings {
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
