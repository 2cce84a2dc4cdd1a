//! What both roles need.

use crate::cancel::CancelToken;
use crate::contract::args::Args;
use crate::contract::datadir::Layout;
use crate::contract::error_log::ErrorLog;
use crate::contract::server_lines::Server;
use crate::contract::settings::Settings;

/// Everything that is known when a transfer begins.
pub struct Context {
    /// What the server said.
    pub args: Args,
    /// What the operator set.
    pub settings: Settings,
    /// Where the server's files are.
    pub layout: Layout,
    /// Cancels the transfer.
    pub stop: CancelToken,
    /// The error log.
    pub talk: ErrorLog,
    /// The server's ear.
    pub server: Server,
    /// `NAME:secret` that the joiner sent by way of both servers.
    pub remote_auth: Option<String>,
    /// `$NOTIFY_SOCKET`.
    pub notify_socket: Option<std::ffi::OsString>,
    /// Name and version of this program.
    pub program: String,
}

impl std::fmt::Debug for Context {
    /// Without what others must not read.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("args", &self.args)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn stop(&self) -> &CancelToken {
        &self.stop
    }
}
