//! Options of a restore to a stop.

use clap::Args;
use xb_backup::{AnyGtid, ReplayOptions};
use xb_repo::archive::stop::RestoreStop;

#[derive(Debug, Args)]
pub(crate) struct UntilOptions {
    /// Replay the archived binary log up to a time with its zone, a GTID, before:GTID,
    /// FILE:POSITION, or latest; implies --prepare
    #[arg(long, value_name = "STOP")]
    #[arg(conflicts_with_all = ["files", "export", "alone", "donor", "no_decompress"])]
    pub(crate) until: Option<RestoreStop>,
    /// Show what would be restored; with --until also check the log
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Leave out this transaction; repeatable
    #[arg(long, value_name = "GTID", requires = "until", help_heading = "Replay")]
    pub(crate) exclude_gtid: Vec<AnyGtid>,
    /// Also leave out transactions that change definitions, such as DROP TABLE
    #[arg(long, requires = "exclude_gtid", help_heading = "Replay")]
    pub(crate) exclude_ddl: bool,
    /// With --until=latest: restore what is left of an archive that may have lost its end
    #[arg(long, requires = "until", hide_short_help = true, help_heading = "Replay")]
    pub(crate) accept_lost_end: bool,
    #[command(flatten, next_help_heading = "Private server")]
    pub(crate) replay: ReplayOptions,
}
