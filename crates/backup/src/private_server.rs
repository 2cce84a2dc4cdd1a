//! Runs a private server on a restored backup, for `verify`, `rescue` and others.

use std::path::PathBuf;

use crate::restore::prepare::PrepareProgram;
use crate::server::private::ServerOptions;

/// Where and how a private server runs on restored files.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Private server"))]
pub struct PrivateServer {
    /// Parent of the scratch directory, which is removed at the end [default: the directory for
    /// temporary files]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub scratch_dir: Option<PathBuf>,
    /// How the server is started.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub server: ServerOptions,
    /// The program that prepares the files.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub prepare: PrepareProgram,
}

impl PrivateServer {
    /// The program that prepares the files. It can write where the server can.
    pub(crate) fn preparing(&self) -> PrepareProgram {
        let mut program = self.prepare.clone();
        program.writable.extend_from_slice(&self.server.writable);
        program
    }
}
