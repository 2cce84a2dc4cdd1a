//! Options that select a store and describe how to reach it.

use std::path::PathBuf;

use clap::error::{Error, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum, value_parser};
use xb_cli::Secret;
use xb_encryptor::VerifyingKey;
use xb_uploader::{BucketLookup, Provider};

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreOptions {
    /// ROOT for a plain NAME: file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX
    #[arg(long, value_name = "URL")]
    pub(crate) root: Option<String>,
    /// Store for a plain NAME: s3, google or azure
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    pub(crate) storage: Option<String>,
    /// Tag every new object with KEY=VALUE (S3 and compatible stores); repeatable, at most 10
    #[arg(long, value_name = "KEY=VALUE", hide_short_help = true)]
    pub(crate) tag: Vec<String>,
    #[command(flatten)]
    pub(crate) s3: S3Options,
    #[command(flatten)]
    pub(crate) google: GoogleOptions,
    #[command(flatten)]
    pub(crate) azure: AzureOptions,
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,
    #[command(flatten)]
    pub(crate) signing: SigningOptions,
    #[command(flatten)]
    swift: NoSwift,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct SigningOptions {
    /// Sign new backups with this private key; see xbcrypt-rs keygen --signing
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) signing_key_file: Option<PathBuf>,
    /// Trust only backups signed by the holder of this public key (ed25519:...); repeatable
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) signer: Vec<VerifyingKey>,
}

/// Refuses the options for OpenStack Swift, on the command line and in option files.
#[derive(Debug)]
struct NoSwift;

/// The options of the stock tool for Swift, without their prefix.
const SWIFT: [&str; 17] = [
    "auth-url",
    "auth-version",
    "container",
    "domain",
    "domain-id",
    "key",
    "password",
    "project",
    "project-domain",
    "project-domain-id",
    "project-id",
    "region",
    "storage-url",
    "tenant",
    "tenant-id",
    "user",
    "user-id",
];

impl Args for NoSwift {
    fn augment_args(command: Command) -> Command {
        command.args(SWIFT.map(|name| {
            let name = format!("swift-{name}");
            Arg::new(name.clone()).long(name).hide(true).value_parser(value_parser!(Secret))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NoSwift {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = SWIFT.iter().find(|name| matches.contains_id(&format!("swift-{name}")));
        match given {
            None => Ok(Self),
            Some(name) => Err(Error::raw(
                ErrorKind::UnknownArgument,
                format!(
                    "OpenStack Swift is not supported (--swift-{name}); many Swift clusters also speak S3: --storage=s3 with --s3-endpoint\n"
                ),
            )),
        }
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "S3")]
pub(crate) struct S3Options {
    /// Bucket for a plain NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) s3_bucket: Option<String>,
    /// Endpoint of an S3-compatible store, http:// or https://
    #[arg(long, value_name = "URL")]
    pub(crate) s3_endpoint: Option<String>,
    /// Region [default: from the AWS profile, or us-east-1]
    #[arg(long, value_name = "NAME")]
    pub(crate) s3_region: Option<String>,
    /// Access key; prefer an option file or the environment
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) s3_access_key: Option<Secret>,
    /// Secret key; prefer an option file or the environment
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) s3_secret_key: Option<Secret>,
    /// Session token of temporary credentials; prefer the environment
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    pub(crate) s3_session_token: Option<Secret>,
    /// Profile in the AWS credentials and config files
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) aws_profile: Option<String>,
    /// Position of the bucket in request URLs: dns (in the host name), path, or auto
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        ignore_case = true,
        value_name = "STYLE",
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(crate) s3_bucket_lookup: BucketLookup,
    /// Signature version; only 4 is supported
    #[arg(long, default_value = "auto", value_name = "VERSION", hide = true)]
    pub(crate) s3_api_version: String,
    /// Storage class of the objects
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub(crate) s3_storage_class: Option<String>,
    /// Store profile, if the endpoint does not reveal it: aws, google, r2, b2, wasabi, scaleway,
    /// ceph, minio, other, plain
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    pub(crate) s3_provider: Option<Provider>,
    /// Checksum by which the store checks uploads [default: crc64nvme where the store supports it]
    #[arg(long, value_enum, default_value = "auto", value_name = "SUM", hide_short_help = true)]
    pub(crate) s3_checksum: ChecksumArg,
    /// Sign request bodies over https, too; over http they always are
    #[arg(long, hide_short_help = true)]
    pub(crate) s3_sign_bodies: bool,
    /// Server-side encryption: AES256, aws:kms or aws:kms=KEY-ID
    #[arg(
        long,
        value_name = "HOW",
        conflicts_with = "s3_sse_customer_key_file",
        hide_short_help = true
    )]
    pub(crate) s3_sse: Option<String>,
    /// Server-side encryption with the 32-byte key in this file; every later read needs it, too
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) s3_sse_customer_key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Google Cloud Storage")]
pub(crate) struct GoogleOptions {
    /// Bucket for a plain NAME
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) google_bucket: Option<String>,
    /// JSON file of a service account or authorized user [default: GOOGLE_APPLICATION_CREDENTIALS,
    /// gcloud's login, or the machine's service account]
    #[arg(
        long,
        // The stock tool's name since it takes such a file.
        alias = "google-service-account-file",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub(crate) google_credentials_file: Option<PathBuf>,
    /// HMAC access ID; selects the store's XML API
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) google_access_key: Option<Secret>,
    /// HMAC secret; prefer an option file or the environment
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) google_secret_key: Option<Secret>,
    /// Session token of temporary HMAC credentials
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    pub(crate) google_session_token: Option<Secret>,
    /// Region [default: us-central-1]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) google_region: Option<String>,
    /// Endpoint [default: https://storage.googleapis.com]
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
    /// Account key [default: the identity of an application or of this machine]
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) azure_access_key: Option<Secret>,
    /// Shared access signature (SAS)
    #[arg(long, value_name = "QUERY", hide_short_help = true)]
    pub(crate) azure_sas_token: Option<Secret>,
    /// Endpoint [default: https://ACCOUNT.blob.core.windows.net]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) azure_endpoint: Option<String>,
    /// Access tier of the objects: Hot, Cool or Archive
    #[arg(long, value_name = "TIER", hide_short_help = true)]
    pub(crate) azure_tier_class: Option<String>,
    /// Use the storage emulator on this machine
    #[arg(long, hide_short_help = true)]
    pub(crate) azure_development_storage: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionOptions {
    /// Add this header to every request, as `Name: value`; repeatable
    #[arg(long, value_name = "HEADER", hide_short_help = true)]
    pub(crate) header: Vec<Secret>,
    /// PEM file with additional certificate authorities
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) cacert: Option<PathBuf>,
    /// Accept any TLS certificate
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
