//! Asks for a transfer: listens, has the server announce this to a donor, and reads the offer of the donor that connects.

use std::path::{Path, PathBuf};

use super::second_start;
use crate::cancel::CancelHook;
use crate::context::Context;
use crate::contract::position::Position;
use crate::delta::question::Key;
use crate::error::SstError;
use crate::offer::{Offer, OfferError, Places, TransferKind};
use crate::server::backup_version;
use crate::session::endpoint::{self, LastRefusal};
use xb_wire::Offered;

/// File in the data directory by which old init scripts know that a transfer is running, so that they wait longer.
pub(super) const MARK: &str = "sst_in_progress";

/// A request that a donor has answered with an offer that this node can accept.
pub(super) struct Request {
    /// The connection to the donor, which waits for the answer to its offer.
    pub(super) offered: Offered,
    pub(super) transfer: Transfer,
    /// Held as long as the transfer runs.
    pub(super) open: OpenRequest,
}

/// The transfer that a donor offers.
pub(super) enum Transfer {
    /// Write sets follow, from this position on: the data is kept.
    Ist(Position),
    /// A full backup.
    Full(OfferedBackup),
}

/// The backup that a donor offers, and the files that this node's server adds when it starts. Sizes are in bytes.
pub(super) struct OfferedBackup {
    /// Length of the donor's files.
    pub(super) bytes: u64,
    /// Space that they take on its disk.
    pub(super) disk: u64,
    /// Files that may belong elsewhere.
    pub(super) places: Places,
    /// The redo log that this node's server creates.
    pub(super) redo: u64,
    /// That of the second start.
    pub(super) trial_redo: u64,
    /// Its undo tablespaces, if it makes new ones.
    pub(super) undo: u64,
    /// Its temporary tablespace, and what else it creates beside the system tablespace.
    pub(super) beside_system: u64,
    /// Position of the donor, if it states one.
    pub(super) position: Option<Position>,
    /// Key of the donor's hashes, if it can leave out blocks that this node has.
    pub(super) key: Option<Key>,
}

/// The marker file of a running transfer, removed when dropped, and the hook that cancels its connection.
pub(super) struct OpenRequest {
    mark: PathBuf,
    _hook: CancelHook,
}

/// Asks for a transfer, and waits for a donor's offer. An offer that this node cannot accept is refused.
///
/// # Errors
/// If there is no backup program; if this node cannot listen, or the server no longer reads; if no donor connects in time, or
/// only such that are refused ([`SstError::RefusedDonor`]); [`SstError::Offer`].
pub(super) fn ask(context: &Context) -> Result<Request, SstError> {
    // Without the backup program this node could not use what it receives.
    let program = backup_version::of_backup_program(&context.settings.program, &context.cancel)?;
    let server_version = context.args.server_version.clone().or(program);
    let refused = LastRefusal::default();
    let (listener, hook) = endpoint::listen(context, &refused)?;
    let open = OpenRequest::begin(&context.layout.datadir, hook);
    context.server.ready(&listener.announcement().text()).map_err(SstError::Server)?;
    let offered =
        listener.accept(context.settings.initial_timeout).map_err(|error| refused.cause(error))?;
    match read_offer(context, offered.offer(), server_version.as_deref()) {
        Ok(transfer) => Ok(Request { offered, transfer, open }),
        Err(error) => {
            offered.refuse(&error.to_string());
            Err(error.into())
        }
    }
}

/// Reads an offer, which must suit this node.
fn read_offer(
    context: &Context,
    offer: &[u8],
    server_version: Option<&str>,
) -> Result<Transfer, OfferError> {
    let product = context.args.product;
    let offer = Offer::read(offer, product, server_version)?;
    warn_of_names(context, offer.lower_case_names);
    let (position, key) = (offer.position(), offer.delta);
    match offer.what {
        TransferKind::Ist => position.map(Transfer::Ist).ok_or(OfferError::Damaged),
        TransferKind::Full { bytes, disk, places, .. } => {
            let created = &context.settings.created_tablespaces;
            let redo = context.settings.redo_log.bytes(product, server_version);
            Ok(Transfer::Full(OfferedBackup {
                bytes,
                disk,
                places,
                redo,
                trial_redo: second_start::redo_of(product, redo),
                undo: created.undo_bytes(product, server_version),
                beside_system: created.beside_system_bytes(product),
                position,
                key,
            }))
        }
    }
}

/// Warns if the servers distinguish names differently. The data is complete all the same.
fn warn_of_names(context: &Context, donors: Option<bool>) {
    let own = context.settings.lower_case_names;
    let Some(donors) = donors.filter(|donors| *donors != own) else { return };
    let number = u8::from;
    context.error_log.warn(format_args!(
        "lower_case_table_names is {} on the donor and {} on this node: statements that write a name with capital letters find or create different tables on each, and then replication stops; set one value on all nodes",
        number(donors),
        number(own)
    ));
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
