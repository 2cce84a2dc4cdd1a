//! How a backup is made.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use xb_cli::{KeyOptions, RecipientOptions, Size};
use xb_compressor::Compression;
use xb_reader::Dialect;
use xb_repo::manifest::Layout;

use crate::args::binlog::LoginFile;
use crate::args::catalogue::RetainOptions;

/// A backup that a program writes.
#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// Take an incremental backup on top of backup NAME in the same ROOT; `latest` is the newest
    #[arg(long, value_name = "NAME")]
    pub(crate) incremental_from: Option<String>,
    /// With --incremental-from: accept a base although it is unknown whether the server was restored
    /// since it was taken
    #[arg(long)]
    pub(crate) accept_history: bool,
    /// With --incremental-from: take a full backup if no base fits
    #[arg(long)]
    pub(crate) or_full: bool,
    /// With --incremental-from and a key: accept a base that is not sealed
    #[arg(long, help_heading = "Keys")]
    pub(crate) accept_unsealed: bool,
    /// Clone this MySQL server instead of running a PRODUCER: mysql://[USER@]HOST[:PORT], or
    /// mysql:///SOCKET
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// Backup program and its arguments, started without a shell
    #[arg(last = true, value_name = "PRODUCER")]
    pub(crate) producer: Vec<OsString>,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) put: PutOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) producer_options: ProducerOptions,
    #[command(flatten)]
    pub(crate) clone: CloneOptions,
}

/// A MySQL server that is cloned, instead of a program that reads it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clone of MySQL")]
pub(crate) struct CloneOptions {
    #[command(flatten)]
    pub(crate) login: LoginFile,
    /// PEM file of the authority that has signed the server's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) ssl_ca: Option<PathBuf>,
    /// Fingerprint of the server's certificate: 64 hexadecimal digits
    #[arg(long, value_name = "SHA256")]
    pub(crate) ssl_fp: Option<String>,
    /// Let CREATE, ALTER, DROP and the like run while the clone is taken
    #[arg(long)]
    pub(crate) allow_ddl: bool,
    /// Back up although tables of other engines than InnoDB come back empty
    #[arg(long)]
    pub(crate) allow_empty_tables: bool,
    /// End the clone if the server would have to keep more redo log than this for it
    #[arg(long, value_name = "SIZE", default_value = "32G")]
    pub(crate) max_donor_redo: Size,
}

/// The program that writes the backup.
#[derive(Debug, Args)]
#[command(next_help_heading = "Producer")]
pub(crate) struct ProducerOptions {
    /// The producer in an option file: program and arguments, quoted as in a shell
    #[arg(long = "producer", value_name = "COMMAND")]
    pub(crate) producer_command: Option<String>,
    /// File for the producer's messages; `-` passes them on [default: NAME.log in producer-logs of
    /// --state-dir]
    #[arg(long, value_name = "FILE")]
    pub(crate) producer_log: Option<PathBuf>,
    /// Directory for output that the store cannot accept while the producer holds locks or a clone
    /// sends changes; `none` for no spool [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) spool_dir: Option<PathBuf>,
    /// Maximum size of the spool
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) spool_size: Size,
    /// Seconds that a locked server may wait once the spool is full, or for overwritten redo log,
    /// before the producer is ended; 0: no limit
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub(crate) lock_stall: u64,
    /// Let a MariaDB server write a checkpoint first: auto (unless it would have to write more than
    /// 512 MiB) or no
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub(crate) checkpoint: CheckpointArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckpointArg {
    Auto,
    No,
}

#[derive(Debug, Args)]
pub(crate) struct PutOptions {
    /// Object size, exact to the byte [default: 32M; classic: one object per chunk, like the stock
    /// tool]
    #[arg(long, value_name = "SIZE")]
    pub(crate) chunk_size: Option<Size>,
    /// packed: objects of equal size; classic: objects per file, readable by stock xbcloud
    /// [default: packed]
    #[arg(long, value_enum, value_name = "LAYOUT", hide_possible_values = true)]
    pub(crate) layout: Option<Layout>,
    /// none, lz4 or zstd[:LEVEL]; packed layout also auto, snappy, gzip[:LEVEL] [default: auto;
    /// classic: none]
    #[arg(long, value_name = "CODEC", add = xb_cli::candidates(&Compression::NAMES))]
    pub(crate) compress: Option<String>,
    /// packed layout: aes-256-gcm; classic: AES128, AES192 or AES256
    #[arg(long, value_name = "CIPHER")]
    pub(crate) encrypt: Option<String>,
    /// Default for --threads; the larger of this and --encrypt-threads wins
    #[arg(hide_short_help = true, long, value_name = "N")]
    pub(crate) compress_threads: Option<usize>,
    /// Default for --threads; the larger of this and --compress-threads wins
    #[arg(hide_short_help = true, long, value_name = "N")]
    pub(crate) encrypt_threads: Option<usize>,
    /// Name of the server, if ROOT holds backups of several [default: with `backup`, this host's
    /// name]
    #[arg(hide_short_help = true, long, value_name = "ID")]
    pub(crate) server: Option<String>,
    /// Accept an incremental backup whose base is not in this ROOT. It counts for no rule of `prune`
    #[arg(hide_short_help = true, long)]
    pub(crate) base_elsewhere: bool,
    #[command(flatten)]
    pub(crate) stream: StreamOptions,
    #[command(flatten)]
    pub(crate) classic: ClassicOptions,
    // Last, because its help heading also applies to the options that follow.
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
}

/// Requirements of the input.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct StreamOptions {
    /// Treat the stream as complete if it contains a file that matches GLOB
    #[arg(long, value_name = "GLOB", conflicts_with = "unsafe_any_end")]
    pub(crate) last_file: Option<String>,
    /// Do not check that the producer's last file is in the stream
    #[arg(long)]
    pub(crate) unsafe_any_end: bool,
    /// Store any input unchecked, even if it was cut short (packed)
    #[arg(long, conflicts_with_all = ["last_file", "unsafe_any_end", "md5"])]
    pub(crate) raw: bool,
    /// Meaning of chunk type S: auto, percona or mariadb
    #[arg(long, value_enum, default_value = "auto", hide_possible_values = true)]
    pub(crate) dialect: Dialect,
}

/// Options of the classic layout alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "Classic layout")]
pub(crate) struct ClassicOptions {
    /// Plain bytes per xbcrypt chunk [default: 64K]
    #[arg(long, value_name = "N")]
    pub(crate) encrypt_chunk_size: Option<Size>,
    /// Also store a list of MD5 checksums as NAME.md5
    #[arg(long)]
    pub(crate) md5: bool,
    /// Take over the name from a run that still looks alive but that you know is dead
    #[arg(long)]
    pub(crate) take_over: bool,
}
