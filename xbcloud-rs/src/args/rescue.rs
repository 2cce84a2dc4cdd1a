//! Command line of `rescue`.

use clap::Args;
use xb_backup::RescueOptions;

use crate::args::shared::{CommonOptions, OpeningOptions, Source};

#[derive(Debug, Args)]
pub(crate) struct RescueArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) tables: RescueOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}
