//! Options shared by many commands.

use clap::Args;
use xb_backup::Accept;
use xb_cli::Size;
use xb_keyring::{IdentityOptions, KeyOptions};

use crate::args::store::StoreOptions;

// A backup to read.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or @REPOSITORY/NAME; NAME may
    /// be latest, or @2026-11-20 for the newest by that day
    pub(crate) name: String,
    /// With latest or @DAY: only backups of this server
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
}

// Options to open a sealed backup.
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

// Option of commands that may also read an unsealed backup.
#[derive(Debug, Args)]
pub(crate) struct UnsealedOption {
    /// With a key: read also a backup that is not sealed. Nothing shows who wrote it; the key decrypts
    /// its .xbcrypt files
    #[arg(long, help_heading = "Keys")]
    pub(crate) accept_unsealed: bool,
}

impl UnsealedOption {
    /// Backups that are read although the given key does not authenticate them.
    pub(crate) fn accept(&self, opening: &OpeningOptions) -> Accept {
        Accept { unsealed: self.accept_unsealed, unvouched: opening.accept_unvouched }
    }
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
    /// Seconds to try while the store has not responded in this run yet; 0: as long as later
    #[arg(long, default_value_t = 60, value_name = "S", hide_short_help = true)]
    pub(crate) reach_timeout: u64,
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
    /// JSON output: events on stderr, listings on stdout
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
    /// Print the value of each option and where it comes from, and exit
    // Handled while the arguments are expanded.
    #[arg(long = "print-defaults", hide_short_help = true)]
    pub(crate) _print_defaults: bool,
}
