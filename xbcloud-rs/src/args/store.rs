//! Options that select a store and describe how to reach it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use xb_cli::Secret;
use xb_uploader::Provider;

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreOptions {
    /// ROOT for a plain NAME: file:///DIR, s3:// gs:// or azure://BUCKET/PREFIX
    #[arg(long, value_name = "URL")]
    pub(crate) root: Option<String>,
    /// Kind of store for a plain NAME: s3, google or azure
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    pub(crate) storage: Option<String>,
    #[command(flatten)]
    pub(crate) s3: S3Options,
    #[command(flatten)]
    pub(crate) google: GoogleOptions,
    #[command(flatten)]
    pub(crate) azure: AzureOptions,
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "S3")]
pub(crate) struct S3Options {
    /// Bucket for a plain NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) s3_bucket: Option<String>,
    /// http:// or https:// address of an S3-like store
    #[arg(long, value_name = "URL")]
    pub(crate) s3_endpoint: Option<String>,
    /// Region [default: that of the profile, or us-east-1]
    #[arg(long, value_name = "NAME")]
    pub(crate) s3_region: Option<String>,
    /// Access key; better in an option file or the environment
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) s3_access_key: Option<Secret>,
    /// Secret key; better in an option file or the environment
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) s3_secret_key: Option<Secret>,
    /// Token of temporary credentials; better in the environment
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    pub(crate) s3_session_token: Option<Secret>,
    /// Profile in the shared files of the AWS tools
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) aws_profile: Option<String>,
    /// How the bucket becomes part of the address
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        ignore_case = true,
        value_name = "STYLE",
        hide_short_help = true
    )]
    pub(crate) s3_bucket_lookup: Lookup,
    /// Signature version; 4 is the only one
    #[arg(long, default_value = "auto", value_name = "VERSION", hide = true)]
    pub(crate) s3_api_version: String,
    /// Storage class of the objects
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub(crate) s3_storage_class: Option<String>,
    /// What the store is like, where its address does not tell: aws, google, r2, b2, wasabi, scaleway, ceph, minio, other, plain
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    pub(crate) s3_provider: Option<Provider>,
    /// What the store checks bodies by [default: crc64nvme where it is known to]
    #[arg(long, value_enum, default_value = "auto", value_name = "SUM", hide_short_help = true)]
    pub(crate) s3_checksum: ChecksumArg,
    /// Sign bodies over https too; over http they always are
    #[arg(long, hide_short_help = true)]
    pub(crate) s3_sign_bodies: bool,
    /// Have the store encrypt: AES256, aws:kms or aws:kms=KEY-ID
    #[arg(
        long,
        value_name = "HOW",
        conflicts_with = "s3_sse_customer_key_file",
        hide_short_help = true
    )]
    pub(crate) s3_sse: Option<String>,
    /// Have the store encrypt with the 32 bytes in this file, which every later read needs too
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) s3_sse_customer_key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Google Cloud Storage")]
pub(crate) struct GoogleOptions {
    /// Bucket for a plain NAME
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) google_bucket: Option<String>,
    /// JSON file of a service account or an authorized user [default: GOOGLE_APPLICATION_CREDENTIALS, gcloud's own, the machine's account]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) google_credentials_file: Option<PathBuf>,
    /// HMAC access id: the store is then reached through its XML interface
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) google_access_key: Option<Secret>,
    /// HMAC secret
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) google_secret_key: Option<Secret>,
    /// Token of temporary HMAC credentials
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    pub(crate) google_session_token: Option<Secret>,
    /// Region [default: us-central-1]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) google_region: Option<String>,
    /// Another address than https://storage.googleapis.com
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) google_endpoint: Option<String>,
    /// Storage class of the objects
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub(crate) google_storage_class: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Azure Blob Storage")]
pub(crate) struct AzureOptions {
    /// Storage account
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) azure_storage_account: Option<String>,
    /// Container for a plain NAME
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) azure_container_name: Option<String>,
    /// Account key [without one: an application's or the machine's identity]
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) azure_access_key: Option<Secret>,
    /// Shared access signature
    #[arg(long, value_name = "QUERY", hide_short_help = true)]
    pub(crate) azure_sas_token: Option<Secret>,
    /// Another address than https://ACCOUNT.blob.core.windows.net
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) azure_endpoint: Option<String>,
    /// Access tier: Hot, Cool, Archive
    #[arg(long, value_name = "TIER", hide_short_help = true)]
    pub(crate) azure_tier_class: Option<String>,
    /// The emulator on this machine
    #[arg(long, hide_short_help = true)]
    pub(crate) azure_development_storage: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionOptions {
    /// Header of every request, `Name: value`; repeatable
    #[arg(long, value_name = "HEADER", hide_short_help = true)]
    pub(crate) header: Vec<Secret>,
    /// PEM file with further certificate authorities
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) cacert: Option<PathBuf>,
    /// Accept any certificate
    #[arg(long, hide_short_help = true)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumArg {
    Auto,
    Crc64nvme,
    Sha256,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lookup {
    Auto,
    Dns,
    Path,
}
