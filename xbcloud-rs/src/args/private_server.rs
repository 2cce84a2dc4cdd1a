//! Options of a private server on restored files, of `verify`, `run` and `rescue`.

use std::path::PathBuf;

use clap::Args;
use xb_backup::{PrepareOptions, ServerOptions};

#[derive(Debug, Args)]
#[command(next_help_heading = "Private server")]
pub(crate) struct PrivateServerOptions {
    /// Parent of the scratch directory, which is removed at the end [default: the directory for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) start: ServerStartOptions,
    /// Extra option of the program that prepares, such as --keyring-file-data=FILE; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    prepare_opts: Vec<String>,
    /// Program to prepare with [default: the one that took the backup, found on PATH]
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    prepare_program: Option<PathBuf>,
}

/// How a private server is started.
#[derive(Debug, Args)]
#[command(next_help_heading = "Private server")]
pub(crate) struct ServerStartOptions {
    /// Extra server option, such as --plugin-load-add=file_key_management; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    mysqld_opts: Vec<String>,
    /// File that the server needs in its data directory, such as mysqld.my of a keyring; repeatable
    #[arg(long, value_name = "FILE")]
    datadir_file: Vec<PathBuf>,
    /// File or directory that the server may write to besides its own, such as that of a keyring;
    /// repeatable
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    mysqld_writes: Vec<PathBuf>,
    /// Server program [default: mariadbd or mysqld on PATH]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    mysqld: Option<PathBuf>,
}

impl PrivateServerOptions {
    /// How the files are prepared.
    pub(crate) fn prepare(&self) -> PrepareOptions {
        PrepareOptions {
            program: self.prepare_program.clone(),
            options: self.prepare_opts.clone(),
            ..PrepareOptions::default()
        }
    }
}

impl ServerStartOptions {
    /// How the server is started.
    pub(crate) fn options(&self) -> ServerOptions {
        ServerOptions {
            program: self.mysqld.clone(),
            options: self.mysqld_opts.clone(),
            files: self.datadir_file.clone(),
            writable: self.mysqld_writes.clone(),
        }
    }
}
