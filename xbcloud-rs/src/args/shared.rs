//! Options shared by many commands.

use std::path::PathBuf;

use clap::Args;
use xb_backup::Accept;
use xb_cli::{Failure, IdentityOptions, KeyOptions, Size};
use xb_pipeline::Fifos;
use xb_reader::Dialect;

use crate::args::store::StoreOptions;

// A backup to read.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or @REPOSITORY/NAME. NAME may
    /// be `latest`, or @2026-11-20 for the newest by the end of that day
    pub(crate) name: String,
    /// With `latest` or @DAY: consider only backups of this server
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
}

// The ROOT that holds the backups.
#[derive(Debug, Args)]
pub(crate) struct RootArg {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
}

// Options to open a backup.
#[derive(Debug, Args)]
pub(crate) struct OpeningOptions {
    #[command(flatten)]
    pub(crate) accept: Accept,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
}

// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct CommonOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub(crate) struct RunOptions {
    /// Concurrent requests at most; --memory and a fast store need fewer [default: 8]
    #[arg(short, long, value_name = "N")]
    pub(crate) parallel: Option<usize>,
    /// Memory for buffers, and codecs of the packed layout [default: 512M, a put with 2 cores and
    /// objects of 32M: 164M; at most a quarter of RAM and half of what is free]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Worker threads [default: one per core, as far as --memory allows]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Limit for upload and download together, in bytes per second
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_rate: Option<Size>,
    /// Retries for each object or part [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) max_retries: Option<u32>,
    /// Keep retrying for at least this many seconds [default: 1800]
    #[arg(long, value_name = "S")]
    pub(crate) retry_timeout: Option<u64>,
    /// Seconds to retry until the store has responded once in this run; 0: no separate limit
    #[arg(long, default_value_t = 60, value_name = "S", hide_short_help = true)]
    pub(crate) reach_timeout: u64,
    /// Longest pause between retries, in milliseconds
    #[arg(long, default_value_t = 300_000, value_name = "MS", hide_short_help = true)]
    pub(crate) max_backoff: u64,
    /// Also retry these HTTP status codes, such as 403,404
    #[arg(long, value_delimiter = ',', value_name = "LIST", hide_short_help = true)]
    pub(crate) http_retriable_errors: Vec<u16>,
    /// Also retry these transport errors, by libcurl's numbers; all but 60 are retried anyway
    #[arg(long, value_delimiter = ',', value_name = "LIST", hide_short_help = true)]
    pub(crate) curl_retriable_errors: Vec<u32>,
    /// Retry after this many seconds without progress; 0: never
    #[arg(long, default_value_t = 120, value_name = "S")]
    pub(crate) timeout: u64,
    /// Directory for this host's records of its backups and receivers, and for logs and locks [default:
    /// /var/lib/xbcloud-rs, or ~/.local/state/xbcloud-rs]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Write JSON: events to stderr, listings to stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Verbose output
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Do not show progress
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Print the value of each option and where it comes from, and exit
    // Handled while the arguments are expanded.
    #[arg(long = "print-defaults", hide_short_help = true)]
    pub(crate) _print_defaults: bool,
    #[command(flatten)]
    pub(crate) fifo: FifoOptions,
}

// The option of commands that can report on their run.
#[derive(Debug, Args)]
pub(crate) struct ReportOption {
    /// Write a page about the run: rates, slowest stage, objects, tables; also after a failure
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

// Options for several streams at once.
#[derive(Debug, Args)]
pub(crate) struct FifoOptions {
    /// With put, backup and get: number of streams, each in a FIFO of its own [default: 1, standard
    /// input or output]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) fifo_streams: Option<u64>,
    /// Directory of the FIFOs, thread_0 to thread_N-1
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) fifo_dir: Option<PathBuf>,
    /// Seconds to wait for the program at the other end of the FIFOs [default: 60]
    #[arg(long, value_name = "S", hide_short_help = true)]
    pub(crate) fifo_timeout: Option<u64>,
}

impl FifoOptions {
    /// Returns whether several streams are requested.
    pub(crate) fn is_given(&self) -> bool {
        self.fifo_streams.is_some_and(|streams| streams != 1) || self.fifo_dir.is_some()
    }

    /// The FIFOs to use; `None`: standard input or output.
    pub(crate) fn fifos(&self, dialect: Dialect) -> Result<Option<Fifos>, Failure> {
        let Self { fifo_streams, fifo_dir, fifo_timeout } = self;
        let fifos = Fifos::new(*fifo_streams, fifo_dir.clone(), *fifo_timeout, dialect);
        fifos.map_err(|error| Failure::usage(error.to_string()))
    }
}
