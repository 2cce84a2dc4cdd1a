//! Asks for a transfer: listens, has the server announce this to a donor, and reads the offer of the donor that connects.

use std::path::{Path, PathBuf};

use crate::cancel::CancelHook;
use crate::context::Context;
use crate::error::SstError;
use crate::offer::Offer;
use crate::server::backup_version;
use crate::session::endpoint;
use xb_wire::Offered;

/// File in the data directory by which old init scripts know that a transfer is running, so that they wait longer.
const MARK: &str = "sst_in_progress";

/// A request that a donor has answered with an offer that this node can accept.
pub(super) struct Request {
    /// The connection to the donor.
    pub(super) offered: Offered,
    pub(super) offer: Offer,
    /// Version of this node's server, if known.
    pub(super) server_version: Option<String>,
    /// Held as long as the transfer runs.
    pub(super) open: OpenRequest,
}

/// The marker file of a running transfer, removed when dropped, and the hook that cancels its connection.
pub(super) struct OpenRequest {
    mark: PathBuf,
    _hook: CancelHook,
}

/// Asks for a transfer, and waits for a donor's offer. An offer that this node cannot accept is refused.
///
/// # Errors
/// If there is no backup program; if this node cannot listen, or the server no longer reads; if no donor connects in time;
/// [`SstError::Offer`].
pub(super) fn ask(context: &Context) -> Result<Request, SstError> {
    // Without the backup program this node could not use what it receives.
    let program = backup_version::of_backup_program(&context.settings.program, context.cancel())?;
    let server_version = context.args.server_version.clone().or(program);
    let (listener, hook) = endpoint::listen(context)?;
    let open = OpenRequest::begin(&context.layout.datadir, hook);
    context.server.ready(&listener.announcement().text()).map_err(SstError::Server)?;
    let offered = listener.accept(context.settings.initial_timeout)?;
    match Offer::read(offered.offer(), context.args.family, server_version.as_deref()) {
        Ok(offer) => Ok(Request { offered, offer, server_version, open }),
        Err(error) => {
            offered.refuse(&error.to_string());
            Err(error.into())
        }
    }
}

impl OpenRequest {
    fn begin(datadir: &Path, hook: CancelHook) -> Self {
        let mark = datadir.join(MARK);
        // Without it, old init scripts only wait a shorter time.
        let _ = std::fs::File::create(&mark);
        Self { mark, _hook: hook }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.mark);
    }
}
