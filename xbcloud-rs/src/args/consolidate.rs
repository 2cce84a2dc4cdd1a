//! Command line of `consolidate`.

use clap::Args;
use xb_backup::Trial;
use xb_cli::{RecipientOptions, Size};
use xb_compressor::Compression;

use crate::args::catalogue::RetainOptions;
use crate::args::shared::{CommonOptions, OpeningOptions};

#[derive(Debug, Args)]
pub(crate) struct ConsolidateArgs {
    /// The last backup of a chain: file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or
    /// @REPOSITORY[/NAME]; `latest` if no NAME is given
    pub(crate) name: Option<String>,
    /// Name of the new backup [default: NAME-full]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    /// With `latest` or @DAY: consider only backups of this server
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) options: ConsolidateOptions,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) trial: Trial,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    // Last of the keys, because its help heading also applies to the options that follow.
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Storage of the new backup.
#[derive(Debug, Args)]
pub(crate) struct ConsolidateOptions {
    /// Object size [default: that of the last backup]
    #[arg(long, value_name = "SIZE")]
    pub(crate) chunk_size: Option<Size>,
    /// none, lz4, snappy, gzip[:LEVEL], zstd[:LEVEL] or auto [default: that of the last backup]
    #[arg(long, value_name = "CODEC", add = xb_cli::candidates(&Compression::NAMES))]
    pub(crate) compress: Option<String>,
    /// Also merge increments for which it is unknown whether a tablespace was imported before them
    #[arg(long)]
    pub(crate) accept_imports: bool,
}
