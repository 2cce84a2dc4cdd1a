//! Options of a restore to a stop.

use clap::Args;
use xb_backup::{Gtid, ReplayOptions};
use xb_repo::archive::plan::Stop;

#[derive(Debug, Args)]
#[command(next_help_heading = "Point in time")]
pub(crate) struct UntilOptions {
    /// Replay the archived binary log, up to a time with its zone (2026-11-20T14:02:59Z), a GTID
    /// (0-1-26), before:GTID, FILE:POSITION, or latest; implies --prepare. With `latest` as NAME:
    /// the newest backup from which the stop can be reached
    #[arg(long, value_name = "STOP")]
    #[arg(conflicts_with_all = ["files", "export", "alone", "galera", "donor", "no_decompress"])]
    pub(crate) until: Option<Stop>,
    /// Read and check all logs, show the transactions beside the stop, and end
    #[arg(long, requires = "until")]
    pub(crate) dry_run: bool,
    /// Leave out this transaction; repeatable
    #[arg(long, value_name = "GTID", requires = "until")]
    pub(crate) exclude_gtid: Vec<Gtid>,
    /// Leave out also transactions that change definitions
    #[arg(long, requires = "exclude_gtid", hide_short_help = true)]
    pub(crate) exclude_ddl: bool,
    #[command(flatten)]
    pub(crate) replay: ReplayOptions,
}
