//! The command line. Stock options have their stock names and meaning.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use xb_backup::Accept;
use xb_cli::{Secret, Size};
use xb_keyring::{IdentityOptions, KeyOptions, NewKeyOptions, RecipientOptions};
use xb_uploader::Provider;

use crate::catalogue_args::{
    CopyArgs, PinArgs, PruneArgs, RetainOptions, ShowArgs, UnpinArgs, VerifyArgs,
};

const EXAMPLES: &str = "\
Examples:
  mariadb-backup --backup --stream=xbstream | xbcloud-rs put s3://bucket/shop/monday
  xbcloud-rs backup file:///backup/shop/monday -- mariadb-backup --backup --stream=xbstream
  xbcloud-rs list s3://bucket/shop
  xbcloud-rs verify s3://bucket/shop/monday --level=pages
  xbcloud-rs restore s3://bucket/shop/monday --target-dir=/var/lib/mysql-new
  xbcloud-rs get s3://bucket/shop/monday | mbstream -x -C /restore

Exit codes: 0 done and proven, 1 failed, 2 usage, 128+N ended by signal N.
Options also come from [xbcloud] in the usual my.cnf files; keys best come from there or from
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.";

const RESTORE_EXAMPLES: &str = "\
Examples:
  xbcloud-rs restore s3://bucket/shop/latest --target-dir=/var/lib/mysql-new --prepare
  xbcloud-rs restore s3://bucket/shop/@2026-11-20 --files 'shop/orders.*' --export --target-dir=/tmp/orders
  xbcloud-rs restore s3://bucket/shop/node --prepare --galera --check-donor=db1 --target-dir=/var/lib/mysql
The same command again goes on with a restore that was interrupted.";

const BACKUP_EXAMPLES: &str = "\
Examples:
  xbcloud-rs backup s3://bucket/shop/sunday --compress=zstd -- mariadb-backup --backup --stream=xbstream
  xbcloud-rs backup s3://bucket/shop/monday --incremental-from=latest -- mariadb-backup --backup --stream=xbstream";

/// Streams MySQL and MariaDB backups into an object store, and back.
#[derive(Debug, Parser)]
#[command(name = "xbcloud-rs", version, after_help = EXAMPLES)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Store the xbstream on stdin as backup NAME
    Put(PutArgs),
    /// Run a producer and store what it writes; its exit status counts
    #[command(after_long_help = BACKUP_EXAMPLES)]
    Backup(BackupArgs),
    /// Write the stream of backup NAME to stdout
    Get(GetArgs),
    /// Make the files of backup NAME in a folder
    #[command(after_long_help = RESTORE_EXAMPLES)]
    Restore(RestoreArgs),
    /// Show what is in a store
    List(ListArgs),
    /// Show backup NAME, with its files
    Show(ShowArgs),
    /// Find out how much backup NAME is worth, without restoring it or by that
    Verify(VerifyArgs),
    /// Copy backup NAME to another place, if it is verified
    #[command(visible_alias = "promote")]
    Copy(CopyArgs),
    /// Keep backup NAME whatever prune is told
    Pin(PinArgs),
    /// Let prune have backup NAME again
    Unpin(UnpinArgs),
    /// Show which backups go by rules of age and number, and remove them with --yes
    Prune(PruneArgs),
    /// Remove backup NAME
    Delete(DeleteArgs),
    /// Change who can open backup NAME; no data moves
    Rewrap(RewrapArgs),
    /// Say what a backup of some size will cost in objects, requests and memory
    Plan(PlanArgs),
    /// Show what failed runs have left in a store, and remove it with --yes
    Gc(GcArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or NAME with --storage
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) put: PutOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or NAME with --storage
    pub(crate) name: String,
    /// Only what has changed since this backup below the same ROOT, or since the latest
    #[arg(long, value_name = "NAME")]
    pub(crate) incremental_from: Option<String>,
    /// With --incremental-from and a key: go on also from a backup that is not sealed
    #[arg(long, help_heading = "Keys")]
    pub(crate) accept_unsealed: bool,
    /// Folder in which this host notes its own backups [default: /var/lib/xbcloud-rs, or
    /// ~/.local/state/xbcloud-rs]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Folder for what the store does not take while the producer holds locks, or none [default:
    /// /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) spool_dir: Option<PathBuf>,
    /// Most bytes in the spool
    #[arg(hide_short_help = true, long, value_name = "SIZE", default_value = "1G")]
    pub(crate) spool_size: Size,
    /// Seconds for which a locked server may be held up when the spool is full; 0: for ever
    #[arg(hide_short_help = true, long, value_name = "S", default_value_t = 30)]
    pub(crate) lock_stall: u64,
    /// The producer and its arguments, started without a shell
    #[arg(last = true, required = true, value_name = "PRODUCER")]
    pub(crate) producer: Vec<OsString>,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) put: PutOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Exact names of single files, suffixes included
    pub(crate) files: Vec<String>,
    /// Only files whose names without suffixes match, as `shop/*`; repeatable
    #[arg(long = "files", value_name = "GLOB", conflicts_with = "files")]
    pub(crate) globs: Vec<String>,
    /// The native stream as it is stored, still compressed and sealed; `xbcrypt-rs -d` opens it
    #[arg(long, conflicts_with_all = ["files", "globs"])]
    pub(crate) as_stored: bool,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Folder for the files: empty, or an interrupted restore's
    #[arg(long, value_name = "DIR")]
    pub(crate) target_dir: PathBuf,
    /// Only files that match, suffixes aside, as `shop/*`; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    pub(crate) ready: ReadyOptions,
    /// Keep .qp, .lz4 and .zst files as they are
    #[arg(long, conflicts_with_all = ["prepare", "export"])]
    pub(crate) no_decompress: bool,
    /// Begin even if the disk has less room than the stream has bytes
    #[arg(long)]
    pub(crate) no_space_check: bool,
    /// When files are made durable: each before it gets its name, all at the end, or not at all
    #[arg(long, value_enum, default_value = "end", value_name = "WHEN")]
    pub(crate) sync: Sync,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ReadyOptions {
    /// Prepare it, with the program that took it; increments in order
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Prepare it for the import of single tables elsewhere
    #[arg(long)]
    pub(crate) export: bool,
    /// The program to prepare with, where it is not found by its name
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    pub(crate) prepare_program: Option<PathBuf>,
    /// Memory of --prepare [default: the program's own]
    #[arg(long, value_name = "SIZE")]
    pub(crate) use_memory: Option<Size>,
    /// Only what an incremental backup itself holds
    #[arg(hide_short_help = true, long, conflicts_with_all = ["prepare", "export"])]
    pub(crate) alone: bool,
    /// Who shall own the files [default: who owns the folder above]
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<String>,
    /// Write grastate.dat, so that a Galera node catches up by itself
    #[arg(long, requires = "prepare", conflicts_with_all = ["files", "alone"])]
    pub(crate) galera: bool,
    /// Refuse when this node no longer has what came after
    #[arg(long, value_name = "HOST|SOCKET")]
    pub(crate) check_donor: Option<String>,
}

// A backup that is read.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or NAME with --storage; NAME may
    /// be latest, or @2026-11-20 for the newest by that day
    pub(crate) name: String,
    /// With latest or @DAY: only backups of this server
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
}

// What opens a sealed backup.
#[derive(Debug, Args)]
pub(crate) struct OpeningOptions {
    /// Read also a sealed backup that was put as a native stream: no key vouches for its manifest, and
    /// its data may be that of another backup
    #[arg(long, help_heading = "Keys")]
    pub(crate) accept_unvouched: bool,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
}

// For a backup that is read and may not be sealed.
#[derive(Debug, Args)]
pub(crate) struct UnsealedOption {
    /// With a key: read also a backup that is not sealed. Nothing shows who wrote it; the key decrypts
    /// its .xbcrypt files
    #[arg(long, help_heading = "Keys")]
    pub(crate) accept_unsealed: bool,
}

impl UnsealedOption {
    /// What is read although a key is given that does not vouch for it.
    pub(crate) fn accept(&self, opening: &OpeningOptions) -> Accept {
        Accept { unsealed: self.accept_unsealed, unvouched: opening.accept_unvouched }
    }
}

// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct CommonOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// file:///DIR, s3:// gs:// or azure://BUCKET/PREFIX, or nothing with --storage
    pub(crate) root: Option<String>,
    /// Also kind and base, positions, who can open it, how far it is verified, pins
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Read all from the store, nothing of what earlier listings keep in ~/.cache/xbcloud-rs
    #[arg(long, hide_short_help = true)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or NAME with --storage
    pub(crate) name: String,
    /// Remove it without asking; needed where no terminal can answer
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also when incremental backups depend on it, which are lost then, or its manifest is damaged
    #[arg(long)]
    pub(crate) force: bool,
    /// Only show what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take the name from a run that looks alive, if you know that it is dead (classic)
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RewrapArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Take away only the way in of this number, as the last rewrap showed them; repeatable
    #[arg(long, value_name = "N", conflicts_with = "keep")]
    pub(crate) remove: Vec<usize>,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) new: NewKeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Bytes that will lie in the store, such as 8T
    #[arg(long, value_name = "SIZE", required_unless_present = "like")]
    pub(crate) size: Option<Size>,
    /// Take size, files, layout and seal from this backup
    #[arg(long, value_name = "NAME", conflicts_with_all = ["size", "files", "layout", "sealed"])]
    pub(crate) like: Option<String>,
    /// Files in the backup: a classic one has objects for each
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) files: u64,
    /// Size of the objects [default: 64M; classic: as the stock tool cuts]
    #[arg(long, value_name = "SIZE")]
    pub(crate) chunk_size: Option<Size>,
    /// packed or classic [default: packed]
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub(crate) layout: Option<LayoutArg>,
    /// It will be sealed
    #[arg(long)]
    pub(crate) sealed: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// file:///DIR, s3://BUCKET/PREFIX, or nothing with --storage
    pub(crate) root: Option<String>,
    /// Remove it; without this it is only shown
    #[arg(long)]
    pub(crate) yes: bool,
    /// Hours without a sign of life after which a run counts as dead
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=87_600))]
    pub(crate) older_than: u64,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PutOptions {
    /// Size of the objects, every byte counted [default: 64M; classic: as the stock tool cuts]
    #[arg(long, value_name = "SIZE")]
    pub(crate) chunk_size: Option<Size>,
    /// packed: equal objects; classic: file by file, as xbcloud reads it [default: packed]
    #[arg(long, value_enum, value_name = "LAYOUT", hide_possible_values = true)]
    pub(crate) layout: Option<LayoutArg>,
    /// lz4, zstd[:LEVEL]; packed also snappy, gzip[:LEVEL]
    #[arg(long, value_name = "CODEC")]
    pub(crate) compress: Option<String>,
    /// packed: aes-256-gcm; classic: AES128, AES192, AES256
    #[arg(long, value_name = "CIPHER")]
    pub(crate) encrypt: Option<String>,
    /// Plain bytes in an encrypted chunk (classic) [default: 64K]
    #[arg(hide_short_help = true, long, value_name = "N")]
    pub(crate) encrypt_chunk_size: Option<Size>,
    /// As --threads, where that is not given; the larger of the two counts
    #[arg(hide_short_help = true, long, value_name = "N")]
    pub(crate) compress_threads: Option<usize>,
    /// As --compress-threads
    #[arg(hide_short_help = true, long, value_name = "N")]
    pub(crate) encrypt_threads: Option<usize>,
    /// The stream is whole when a file that matches this is in it
    #[arg(long, value_name = "GLOB", conflicts_with = "unsafe_any_end")]
    pub(crate) last_file: Option<String>,
    /// Do not ask whether the last file is there
    #[arg(long)]
    pub(crate) unsafe_any_end: bool,
    /// Store any bytes; their end is taken on trust (packed)
    #[arg(long, conflicts_with_all = ["last_file", "unsafe_any_end", "md5"])]
    pub(crate) raw: bool,
    /// What the server is called; of use where ROOT holds several [default: with `backup` this host's name]
    #[arg(hide_short_help = true, long, value_name = "ID")]
    pub(crate) server: Option<String>,
    /// Meaning of type S: auto, percona or mariadb
    #[arg(long, value_enum, default_value = "auto", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) dialect: DialectArg,
    /// Also store the list of MD5 sums as NAME.md5 (classic)
    #[arg(hide_short_help = true, long)]
    pub(crate) md5: bool,
    /// Take the name from a run that looks alive, if you know that it is dead (classic)
    #[arg(long)]
    pub(crate) take_over: bool,
    // Last, since its heading holds for what follows.
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub(crate) struct RunOptions {
    /// Requests at a time; the memory may allow fewer [default: 8]
    #[arg(short, long, value_name = "N")]
    pub(crate) parallel: Option<usize>,
    /// Ceiling for buffers [default: 512M, at most a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Worker threads [default: one a core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Most bytes a second, both directions together
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_rate: Option<Size>,
    /// Tries after the first, for each object or part [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) max_retries: Option<u32>,
    /// Seconds an outage may last at the least [default: 1800]
    #[arg(long, value_name = "S")]
    pub(crate) retry_timeout: Option<u64>,
    /// Longest pause between two tries, in milliseconds
    #[arg(long, default_value_t = 300_000, value_name = "MS", hide_short_help = true)]
    pub(crate) max_backoff: u64,
    /// Further HTTP statuses to try again, as 403,404
    #[arg(long, value_delimiter = ',', value_name = "LIST", hide_short_help = true)]
    pub(crate) http_retriable_errors: Vec<u16>,
    /// Further transport errors to try again, by libcurl's numbers; all but 60 are built in
    #[arg(long, value_delimiter = ',', value_name = "LIST", hide_short_help = true)]
    pub(crate) curl_retriable_errors: Vec<u32>,
    /// Seconds without progress until another try; 0: for ever
    #[arg(long, default_value_t = 120, value_name = "S")]
    pub(crate) timeout: u64,
    /// Talk in JSON: events on stderr, listings on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// More talk
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// No progress bar or lines
    #[arg(long)]
    pub(crate) no_progress: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Store (all of its options: --help)")]
pub(crate) struct StoreOptions {
    /// Kind of store for a plain NAME: s3, google or azure
    #[arg(long, value_name = "KIND")]
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
pub(crate) enum LayoutArg {
    Packed,
    Classic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectArg {
    Auto,
    Percona,
    Mariadb,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sync {
    // Without doc comments: one on a value makes clap write its help the long way.
    File,
    End,
    None,
}

impl Command {
    pub(crate) fn run_options(&self) -> &RunOptions {
        match self {
            Self::Put(a) => &a.common.run,
            Self::Backup(a) => &a.common.run,
            Self::Get(a) => &a.common.run,
            Self::Restore(a) => &a.common.run,
            Self::List(a) => &a.common.run,
            Self::Show(a) => &a.common.run,
            Self::Verify(a) => &a.common.run,
            Self::Copy(a) => &a.common.run,
            Self::Pin(a) => &a.common.run,
            Self::Unpin(a) => &a.common.run,
            Self::Prune(a) => &a.common.run,
            Self::Delete(a) => &a.common.run,
            Self::Gc(a) => &a.common.run,
            Self::Rewrap(a) => &a.common.run,
            Self::Plan(a) => &a.common.run,
        }
    }
}
