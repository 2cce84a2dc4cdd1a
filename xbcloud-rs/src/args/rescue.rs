//! Command line of `rescue`.

use clap::Args;

use crate::args::private_server::PrivateServerOptions;
use crate::args::shared::{CommonOptions, OpeningOptions, Source, UnsealedOption};

#[derive(Debug, Args)]
pub(crate) struct RescueArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// SCHEMA.TABLE, by names in SQL; `*` and `?` stand for others, backquotes keep a dot or star
    #[arg(required = true, value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Write into this server instead of stdout: its socket, HOST[:PORT] or mysql://[USER@]HOST[:PORT];
    /// login from the option files, as `mariadb` does it
    #[arg(long, value_name = "SERVER")]
    pub(crate) into: Option<String>,
    /// Name of the rescued table, [SCHEMA.]NAME; {table}: old name, {date}: day of the backup [default:
    /// {table}, with --into {table}_rescued_{date}]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) new_name: Option<String>,
    /// Rescue only the rows that meet this condition, in SQL
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) filter: Option<String>,
    /// Replace a table that exists under the new name
    #[arg(long, requires = "into")]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) server: PrivateServerOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}
