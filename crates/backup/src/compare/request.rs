//! Server with which restored data is compared.

use std::path::PathBuf;

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct CompareOptions {
    /// With --until: compare every row with this MariaDB, a replica or the stopped source, at the same
    /// GTIDs: its socket, HOST[:PORT] or mysql://[USER@]HOST[:PORT]
    #[cfg_attr(
        feature = "clap",
        arg(id = "compare-with", long, value_name = "SERVER", requires = "until")
    )]
    pub server: Option<String>,
    /// Stop the replica's applier at those GTIDs while its rows are read, then put it back
    #[cfg_attr(feature = "clap", arg(id = "hold-replica", long, requires = "compare-with"))]
    pub hold: bool,
    /// Option file with the login there, in its group [client] or [xbcloud-compare]
    // Needs no other option: an option file may have it for other commands.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", hide_short_help = true))]
    pub login_file: Option<PathBuf>,
}
