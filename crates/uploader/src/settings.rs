//! How to reach and enter a store.

use std::num::NonZeroU64;
use std::path::PathBuf;

use crate::provider::Provider;

/// Everything [`crate::open`] may need besides the place. Unset values are defaults.
#[derive(Debug, Clone, Default)]
pub struct StoreSettings {
    /// For S3 and what speaks like it.
    pub s3: S3Settings,
    /// For Google Cloud Storage.
    pub google: GoogleSettings,
    /// For Azure Blob Storage.
    pub azure: AzureSettings,
    /// For all of them. Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`, ...).
    pub http: HttpSettings,
}

/// The connection, whatever the store.
#[derive(Debug, Clone, Default)]
pub struct HttpSettings {
    /// PEM bundle of additional certificate authorities, its content.
    pub ca_bundle: Option<Vec<u8>>,
    /// Accept any certificate.
    pub insecure: bool,
    /// Further headers of every request, name and value; signed where the store signs headers.
    pub headers: Vec<(String, String)>,
    /// Most bytes a second in both directions and all requests together.
    pub limit_rate: Option<NonZeroU64>,
}

/// How a bucket name becomes part of the address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BucketLookup {
    /// By path for an own endpoint or a name with dots, else as a host name.
    #[default]
    Auto,
    /// `https://BUCKET.HOST/KEY`.
    Dns,
    /// `https://HOST/BUCKET/KEY`.
    Path,
}

/// What a store is asked to check bodies by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-256.
    Sha256,
    /// Nothing.
    None,
}

/// Encryption by the store, at rest. Our own seal needs none of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encryption {
    /// With keys of the store (SSE-S3).
    Store,
    /// With a key of the store's key service (SSE-KMS).
    Kms {
        /// Its id; the bucket's default key when there is none.
        key_id: Option<String>,
    },
    /// With a key that goes along in each request (SSE-C): 32 bytes in base64.
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

/// How to reach and enter an S3 store.
///
/// Credentials are taken from the first of these that is set: `access_key`, `web_identity`,
/// `profile`, `container`, and at last the role of the machine (instance metadata). All but the first
/// are renewed in mid-run.
#[derive(Clone, Default)]
pub struct S3Settings {
    /// `http://` or `https://` and a host; without a scheme it is https.
    pub endpoint: Option<String>,
    /// Default: that of the profile, or us-east-1.
    pub region: Option<String>,
    /// Access key id.
    pub access_key: Option<String>,
    /// Secret access key.
    pub secret_key: Option<String>,
    /// Session token of temporary credentials.
    pub session_token: Option<String>,
    /// A token file to be exchanged for credentials.
    pub web_identity: Option<WebIdentity>,
    /// A profile in the shared files of the AWS tools.
    pub profile: Option<AwsProfile>,
    /// A container's own source of credentials.
    pub container: Option<ContainerCredentials>,
    /// Address of the instance metadata service, for machines that have it elsewhere.
    pub metadata_endpoint: Option<String>,
    /// Address style.
    pub lookup: BucketLookup,
    /// How the store differs; unset: told by the endpoint.
    pub provider: Option<Provider>,
    /// Storage class of the objects.
    pub storage_class: Option<String>,
    /// Encryption by the store.
    pub encryption: Option<Encryption>,
    /// What bodies are checked by; unset: what the provider is known to take.
    pub checksum: Option<Checksum>,
    /// Sign bodies over TLS too. Without TLS they always are.
    pub sign_bodies: bool,
}

impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No secret reaches a log.
        f.debug_struct("S3Settings")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

/// Web identity: a token that a file holds is exchanged for credentials of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebIdentity {
    /// File with the token; read again for each exchange.
    pub token_file: PathBuf,
    /// The role.
    pub role_arn: String,
    /// Name of the session.
    pub session_name: Option<String>,
}

/// A profile of the AWS tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsProfile {
    /// Its name: `default` when nobody says.
    pub name: String,
    /// Whether somebody has said: then it must be there.
    pub required: bool,
    /// The file of keys, `~/.aws/credentials`.
    pub credentials: PathBuf,
    /// The file of settings, `~/.aws/config`.
    pub config: PathBuf,
}

/// Where a container gets its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContainerCredentials {
    /// ECS: a path at the task's own address.
    Relative(String),
    /// EKS pod identity: an address, and the file with the token to show there.
    Full {
        /// The address.
        url: String,
        /// The file.
        token_file: PathBuf,
    },
}

/// How to reach and enter Google Cloud Storage. With an access key it is reached through the XML
/// interface as an S3 store; else natively, with the service account or the default credentials
/// (the file of `gcloud`, or the machine's account).
#[derive(Clone, Default)]
pub struct GoogleSettings {
    /// Another address than Google's.
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

/// How to reach and enter Azure Blob Storage. Credentials are taken from the first of these that is
/// set: account key, workload identity, client secret, SAS, and at last the machine's identity.
#[derive(Clone, Default)]
pub struct AzureSettings {
    /// Storage account.
    pub account: Option<String>,
    /// Account key, base64.
    pub access_key: Option<String>,
    /// Shared access signature, the query part.
    pub sas: Option<String>,
    /// Tenant, client and secret or token file of an application.
    pub tenant_id: Option<String>,
    /// Client id of an application, or of the managed identity meant.
    pub client_id: Option<String>,
    /// Secret of the application.
    pub client_secret: Option<String>,
    /// File with a federated token (workload identity).
    pub federated_token_file: Option<PathBuf>,
    /// Another address than `https://ACCOUNT.blob.core.windows.net`.
    pub endpoint: Option<String>,
    /// Access tier of the blobs.
    pub tier: Option<String>,
    /// The emulator: its account and key, at its address unless an endpoint is given.
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
