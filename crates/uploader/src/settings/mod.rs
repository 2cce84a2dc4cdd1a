//! Addresses, credentials and options of a store.

pub(crate) mod aws_profile;
pub(crate) mod checked;
pub(crate) mod credential_process;
pub(crate) mod location;
pub(crate) mod provider;
pub(crate) mod tags;

use std::num::NonZeroU64;
use std::path::PathBuf;

use crate::settings::provider::Provider;
use crate::settings::tags::Tags;

/// Everything [`crate::open`] may need besides the place. Unset values mean defaults.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct StoreSettings {
    /// For S3 and compatible stores.
    pub s3: S3Settings,
    /// For Google Cloud Storage.
    pub google: GoogleSettings,
    /// For Azure Blob Storage.
    pub azure: AzureSettings,
    /// For all stores. Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`, ...).
    pub http: HttpSettings,
    /// Tags of every new object (S3 and compatible stores).
    pub tags: Tags,
}

/// Connection settings, the same for every store.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Content of a PEM bundle with additional certificate authorities.
    pub ca_bundle: Option<Vec<u8>>,
    /// Accept any certificate.
    pub insecure: bool,
    /// Additional headers of every request, name and value; signed if the store signs headers.
    pub headers: Vec<(String, String)>,
    /// Maximum bytes per second, for both directions and all requests together.
    pub limit_rate: Option<NonZeroU64>,
}

/// Way in which a bucket name becomes part of the address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum BucketLookup {
    /// By path for a custom endpoint or a name with dots, otherwise as a host name.
    #[default]
    Auto,
    /// `https://BUCKET.HOST/KEY`.
    Dns,
    /// `https://HOST/BUCKET/KEY`.
    Path,
}

/// Checksum that a store uses to check bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-256.
    Sha256,
    /// No checksum.
    None,
}

/// Encryption at rest by the store. It is not needed for sealed data.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encryption {
    /// With keys of the store (SSE-S3).
    Store,
    /// With a key of the store's key service (SSE-KMS).
    Kms {
        /// ID of the key; without it, the bucket's default key.
        key_id: Option<String>,
    },
    /// With a key that is sent with each request (SSE-C): 32 bytes in base64.
    Customer {
        /// The key.
        key: String,
    },
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Store => "Store",
            Self::Kms { .. } => "Kms",
            Self::Customer { .. } => "Customer",
        })
    }
}

/// Settings of an S3 store.
///
/// Credentials are taken from the first of these that is set: `access_key`, `web_identity`,
/// `profile`, `container`; otherwise from the role of the machine (instance metadata). All but
/// `access_key` are renewed during a run.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct S3Settings {
    /// `http://` or `https://` and a host. The default scheme is https.
    pub endpoint: Option<String>,
    /// Region. Default: that of the profile, or us-east-1.
    pub region: Option<String>,
    /// Access key ID.
    pub access_key: Option<String>,
    /// Secret access key.
    pub secret_key: Option<String>,
    /// Session token of temporary credentials.
    pub session_token: Option<String>,
    /// Token file that is exchanged for credentials.
    pub web_identity: Option<WebIdentity>,
    /// Profile in the shared files of the AWS tools.
    pub profile: Option<AwsProfile>,
    /// A container's own credentials service.
    pub container: Option<ContainerCredentials>,
    /// Address of the instance metadata service, if it is not the default.
    pub metadata_endpoint: Option<String>,
    /// Address style.
    pub lookup: BucketLookup,
    /// Provider of the store. Default: derived from the endpoint.
    pub provider: Option<Provider>,
    /// Storage class of the objects.
    pub storage_class: Option<String>,
    /// Encryption by the store.
    pub encryption: Option<Encryption>,
    /// Checksum of bodies. Default: what the provider is known to support.
    pub checksum: Option<Checksum>,
    /// Whether to sign bodies over TLS, too. Without TLS, they are always signed.
    pub sign_bodies: bool,
}

impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No secret may reach a log.
        f.debug_struct("S3Settings")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

/// Web identity: a token from a file is exchanged for credentials of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebIdentity {
    /// File with the token; read again for each exchange.
    pub token_file: PathBuf,
    /// ARN of the role.
    pub role_arn: String,
    /// Name of the session.
    pub session_name: Option<String>,
}

/// Profile of the AWS tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsProfile {
    /// Name of the profile. Default: `default`.
    pub name: String,
    /// Whether the profile was named explicitly and therefore must exist.
    pub required: bool,
    /// Credentials file, `~/.aws/credentials`.
    pub credentials: PathBuf,
    /// Config file, `~/.aws/config`.
    pub config: PathBuf,
}

/// Source of a container's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContainerCredentials {
    /// ECS: a path on the task's own address.
    Relative(String),
    /// EKS pod identity: an address, and the file with the token for it.
    Full {
        /// The address.
        url: String,
        /// Path of the token file.
        token_file: PathBuf,
    },
}

/// Settings of Google Cloud Storage. With an access key, it is reached through the XML interface as
/// an S3 store; otherwise natively, with the service account or the default credentials (the file
/// of `gcloud`, or the machine's account).
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct GoogleSettings {
    /// Address other than Google's.
    pub endpoint: Option<String>,
    /// Region for signatures (HMAC only).
    pub region: Option<String>,
    /// HMAC access id.
    pub access_key: Option<String>,
    /// HMAC secret.
    pub secret_key: Option<String>,
    /// Token of temporary HMAC credentials.
    pub session_token: Option<String>,
    /// JSON file with application credentials: a service account or an authorized user.
    pub credentials_file: Option<PathBuf>,
    /// Storage class of the objects.
    pub storage_class: Option<String>,
}

impl std::fmt::Debug for GoogleSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GoogleSettings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Settings of Azure Blob Storage. Credentials are taken from the first of these that is set:
/// account key, workload identity, client secret, SAS; otherwise from the machine's identity.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct AzureSettings {
    /// Storage account.
    pub account: Option<String>,
    /// Account key, base64.
    pub access_key: Option<String>,
    /// Shared access signature, the query part.
    pub sas: Option<String>,
    /// Tenant of an application, which also needs a client ID and a secret or token file.
    pub tenant_id: Option<String>,
    /// Client ID of an application, or of a managed identity.
    pub client_id: Option<String>,
    /// Secret of the application.
    pub client_secret: Option<String>,
    /// File with a federated token (workload identity).
    pub federated_token_file: Option<PathBuf>,
    /// Address other than `https://ACCOUNT.blob.core.windows.net`.
    pub endpoint: Option<String>,
    /// Access tier of the blobs.
    pub tier: Option<String>,
    /// Whether to use the emulator: its account and key, at its address unless an endpoint is set.
    pub development: bool,
}

impl std::fmt::Debug for AzureSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AzureSettings")
            .field("account", &self.account)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_debug() {
        let secret = || Some("topsecret".to_owned());
        let settings = StoreSettings {
            s3: S3Settings {
                access_key: secret(),
                secret_key: secret(),
                session_token: secret(),
                encryption: Some(Encryption::Customer { key: "topsecret".into() }),
                ..S3Settings::default()
            },
            google: GoogleSettings { secret_key: secret(), ..GoogleSettings::default() },
            azure: AzureSettings {
                access_key: secret(),
                sas: secret(),
                client_secret: secret(),
                ..AzureSettings::default()
            },
            ..StoreSettings::default()
        };
        assert!(!format!("{settings:?} {:?}", settings.s3.encryption).contains("topsecret"));
    }
}
