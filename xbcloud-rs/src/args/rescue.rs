//! Command line of `rescue`.

use clap::Args;
use xb_backup::RescueOptions;
use xb_repo::archive::stop::RestoreStop;

use crate::args::shared::{CommonOptions, OpeningOptions, Source};

#[derive(Debug, Args)]
pub(crate) struct RescueArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    // Before the heading of the private server.
    #[command(flatten)]
    pub(crate) until: RescueUntilOptions,
    #[command(flatten)]
    pub(crate) tables: RescueOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RescueUntilOptions {
    /// Rescue the rows as of this stop in the archived binary log, as for `restore --until`
    #[arg(long, value_name = "STOP")]
    pub(crate) until: Option<RestoreStop>,
    /// With --until=latest: use what is left of an archive that may have lost its end
    #[arg(long, requires = "until", hide_short_help = true)]
    pub(crate) accept_lost_end: bool,
    /// Replay with a server of a newer series than that of the origin
    #[arg(long, requires = "until", hide_short_help = true)]
    pub(crate) upgrade: bool,
}
