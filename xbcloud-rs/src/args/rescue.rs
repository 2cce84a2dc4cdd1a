//! Command line of `rescue`.

use std::path::PathBuf;

use clap::Args;

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

/// Options of the private server on the restored files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Private server")]
pub(crate) struct PrivateServerOptions {
    /// Parent of the scratch directory, which is removed at the end [default: the directory for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch_dir: Option<PathBuf>,
    /// Extra server option, such as --plugin-load-add=file_key_management; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) mysqld_opts: Vec<String>,
    /// File that the server needs in its data directory; repeatable
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) datadir_file: Vec<PathBuf>,
    /// File or directory that the server may write to besides the scratch directory; repeatable
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub(crate) mysqld_writes: Vec<PathBuf>,
    /// Extra option of the program that prepares; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) prepare_opts: Vec<String>,
    /// Program to prepare with [default: the one that took the backup, found on PATH]
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    pub(crate) prepare_program: Option<PathBuf>,
    /// Server program [default: mariadbd or mysqld on PATH]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) mysqld: Option<PathBuf>,
}
