//! The command line. Stock options have their stock names and meaning.

pub(crate) mod catalogue;
pub(crate) mod copy_destination;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod store;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use xb_cli::Size;
use xb_keyring::{KeyOptions, NewKeyOptions, RecipientOptions};

pub(crate) use self::shared::{CommonOptions, OpeningOptions, RunOptions, Source, UnsealedOption};
pub(crate) use self::store::{
    AzureOptions, ChecksumArg, ConnectionOptions, GoogleOptions, Lookup, S3Options, StoreOptions,
};
use crate::args::catalogue::{
    CopyArgs, PinArgs, PruneArgs, RetainOptions, ShowArgs, UnpinArgs, VerifyArgs,
};
use crate::args::run::{MonitorArgs, RunArgs};

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
#[command(long_version = xb_keyring::long_version(env!("CARGO_PKG_VERSION")))]
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
    /// Back up, verify, copy and prune in one run, as the option file says
    Run(Box<RunArgs>),
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
    /// Judge the age of the newest backup and proof, as a Nagios plugin
    Monitor(MonitorArgs),
    /// Show what failed runs have left in a store, and remove it with --yes
    Gc(GcArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or @REPOSITORY[/NAME]; without
    /// NAME, or with {host}, {utc} or {date} in it, the program makes the name
    pub(crate) name: Option<String>,
    /// Name of a backup for which none is given
    #[arg(long, value_name = "TEMPLATE", default_value = xb_backup::DEFAULT_NAME_TEMPLATE)]
    #[arg(hide_short_help = true)]
    pub(crate) name_template: String,
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
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or @REPOSITORY[/NAME]; without
    /// NAME, or with {host}, {utc} or {date} in it, the program makes the name
    pub(crate) name: Option<String>,
    /// Name of a backup for which none is given
    #[arg(long, value_name = "TEMPLATE", default_value = xb_backup::DEFAULT_NAME_TEMPLATE)]
    #[arg(hide_short_help = true)]
    pub(crate) name_template: String,
    #[command(flatten)]
    pub(crate) backup: BackupOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// What a backup is made of, and how.
#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
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
    /// File for the producer's messages; `-` passes them on [default: NAME.log in producer-logs of
    /// --state-dir]
    #[arg(long, value_name = "FILE")]
    pub(crate) producer_log: Option<PathBuf>,
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
    #[arg(last = true, value_name = "PRODUCER")]
    pub(crate) producer: Vec<OsString>,
    /// The producer in an option file: program and arguments, quoted as in a shell
    #[arg(long = "producer", value_name = "COMMAND", hide_short_help = true)]
    pub(crate) producer_command: Option<String>,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) put: PutOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
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
    /// Further option of the program that prepares, as --keyring-file-data=FILE; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) prepare_opts: Vec<String>,
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

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// file:///DIR, s3:// gs:// or azure://BUCKET/PREFIX, or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
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
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or @REPOSITORY/NAME
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
    /// file:///DIR, s3://BUCKET/PREFIX, or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
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
    /// lz4, zstd[:LEVEL]; packed also auto, snappy, gzip[:LEVEL]
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
    // Last, because its help heading also applies to the options that follow.
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
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
pub(crate) enum Sync {
    // No doc comments: with one on a value, clap prints the long form of the help.
    File,
    End,
    None,
}

impl Command {
    pub(crate) fn run_options(&self) -> &RunOptions {
        match self {
            Self::Put(a) => &a.common.run,
            Self::Backup(a) => &a.common.run,
            Self::Run(a) => &a.common.run,
            Self::Monitor(a) => &a.common.run,
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
