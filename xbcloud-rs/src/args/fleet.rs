//! Command line of fleet.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::binlog::span;
use crate::args::run::LimitOptions;
use crate::args::shared::CommonOptions;

const EXAMPLES: &str = "\
Exit status, as of monitor: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (something could not be read, or the page, the metrics or the table not be written). Of several, the first of 2, 3, 1, 0. A usage error exits with 2, too.

Examples:
  xbcloud-rs fleet s3://bucket --max-age=26h --max-proof-age=8d
  xbcloud-rs fleet s3://bucket --quiet --html=/srv/www/backups.html";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FleetArgs {
    /// s3:// gs:// or azure://BUCKET[/PREFIX], or file:///DIR: each repository in it and below is shown
    #[arg(value_name = "PLACE")]
    pub(crate) place: Option<String>,
    /// Also show who can open the newest backups, and until when they are locked
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Look for repositories this many folders below PLACE
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=32))]
    pub(crate) depth: u32,
    /// Search at most this many folders, those with the fewest siblings first, and name the parents of the others
    #[arg(long, value_name = "N", default_value_t = 20_000, hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_folders: u64,
    /// Report CRITICAL unless there is a repository at this path below PLACE; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) expect: Vec<String>,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Report UNKNOWN for a repository or folder that could not be read within this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span)]
    pub(crate) answer_within: Duration,
    /// Write a self-contained page to this file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// Write metrics to FILE, which no other command writes, for the textfile collector of Prometheus
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Read everything from the store; ignore the cache in ~/.cache/xbcloud-rs
    #[arg(long, hide_short_help = true)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}
