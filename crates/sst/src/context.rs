//! State that both roles need.

use xb_report::{Delta, Report};

use crate::cancel::CancelToken;
use crate::contract::args::Args;
use crate::contract::datadir::Layout;
use crate::contract::error_log::ErrorLog;
use crate::contract::server_lines::Server;
use crate::contract::settings::Settings;

/// Everything known at the start of a transfer.
pub struct Context {
    /// The server's arguments.
    pub args: Args,
    /// The operator's settings.
    pub settings: Settings,
    /// Locations of the server's files.
    pub layout: Layout,
    /// Cancels the transfer.
    pub cancel: CancelToken,
    /// The error log.
    pub error_log: ErrorLog,
    /// The server's line protocol.
    pub server: Server,
    /// `NAME:secret` that the joiner sent through both servers.
    pub remote_auth: Option<String>,
    /// `$NOTIFY_SOCKET`.
    pub notify_socket: Option<std::ffi::OsString>,
    /// Name and version of this program.
    pub program: String,
    /// The report of this transfer, if one is wanted.
    pub report: Option<Report>,
}

impl std::fmt::Debug for Context {
    /// Omits secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("args", &self.args)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Reports about how many bytes the donor has asked, and how many of them the joiner has kept.
    pub(crate) fn report_delta(&self, asked_bytes: u64, kept_bytes: u64) {
        let sent_bytes = asked_bytes.saturating_sub(kept_bytes);
        if let Some(report) = &self.report {
            report.delta(Delta { asked_bytes, kept_bytes, sent_bytes });
        }
    }
}
