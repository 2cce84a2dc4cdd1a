//! The donor: connects to the joiner, sends it a backup of its server, and reports its position to the server.

mod backup;

use std::time::Duration;

use xb_wire::{Announcement, Outgoing};

use self::backup::{random, send};
use crate::cancel::{CancelHook, CancelReason};
use crate::context::Context;
use crate::contract::args::Args;
use crate::contract::settings::DeltaWish;
use crate::delta::question::Key;
use crate::error::SstError;
use crate::offer::{FORMAT, Offer, Places, TransferKind, product_name};
use crate::server::backup_version;
use crate::server::data_size::estimate;
use crate::server::keep_replicating::ReplicationGuard;
use crate::server::redo_log;
use crate::session::endpoint;

/// Time for the joiner's server to leave the cluster after its own script failed. If the donor's
/// server reports the failure at that moment, too, both of the joiner's threads that end it may wait
/// for each other: MariaDB (10.11, 11.8) with Galera 26.4 then stays up forever, without a cluster.
const JOINER_LEAVES: Duration = Duration::from_secs(2);

/// Tells the joiner why this donor cannot even begin. An attempt, without a result.
pub fn decline(args: &Args, why: &str) {
    if let Ok(announcement) = Announcement::parse(&args.address, None) {
        xb_wire::decline(&announcement, why);
    }
}

/// Sends a backup or a bypass, according to the server's arguments.
///
/// # Errors
/// The first cause. In that case no final line was written to the server, which treats that as a
/// failure.
pub fn donate(context: &Context) -> Result<(), SstError> {
    let outcome = if context.args.bypass { bypass(context) } else { full(context) };
    outcome.map_err(|error| {
        // Whichever side failed, both know it by now.
        let _ = context.cancel.wait_for(JOINER_LEAVES, CancelReason::is_outside);
        error.or_why(&context.cancel)
    })
}

/// Tells the joiner that it gets write sets instead of a snapshot, and at which position.
fn bypass(context: &Context) -> Result<(), SstError> {
    context.server.proceed().map_err(SstError::Server)?;
    context.error_log.info("IST: this node still has all write sets that the joiner lacks");
    let (outgoing, _hooked) = connect(context, TransferKind::Ist, None)?;
    outgoing.finish()?;
    ReplicationGuard::restore(context);
    done(context)
}

/// Sends a backup of this node's server.
fn full(context: &Context) -> Result<(), SstError> {
    let Context { settings, error_log, .. } = context;
    let size = estimate(&context.layout, context.args.product);
    error_log.info(format_args!(
        "SST: full backup of about {} MiB to {}",
        size.bytes >> 20,
        context.args.peer()
    ));
    let compress = settings.compress.to_string();
    let places = Places { since_checkpoint: redo_log::since_checkpoint(context), ..size.places };
    let what = TransferKind::Full { bytes: size.bytes, disk: size.disk, compress, places };
    // The key of the hashes by which the joiner is asked.
    let key = match settings.delta {
        DeltaWish::No => None,
        DeltaWish::Auto | DeltaWish::Yes => Some(random()?),
    };
    let (outgoing, _hooked) = connect(context, what, key)?;
    context.server.total(size.bytes).map_err(SstError::Server)?;
    send(context, outgoing, key, size.bytes)?;
    done(context)
}

/// Connects to the joiner, and offers it the transfer.
fn connect(
    context: &Context,
    what: TransferKind,
    delta: Option<Key>,
) -> Result<(Outgoing, CancelHook), SstError> {
    let args = &context.args;
    let offer = Offer {
        format: FORMAT,
        what,
        state: args.gtid.as_ref().map(ToString::to_string).unwrap_or_default(),
        domain: args.gtid_domain,
        product: product_name(args.product).to_owned(),
        server: backup_version::of_server(context)?,
        lower_case_names: Some(context.settings.lower_case_names),
        delta,
        program: context.program.clone(),
    };
    endpoint::connect(context, &offer.encode())
}

/// Reports to the server that the joiner has everything up to the requested position.
fn done(context: &Context) -> Result<(), SstError> {
    let Some(state) = &context.args.gtid else { return Ok(()) };
    context.server.done(state, context.args.gtid_domain).map_err(SstError::Server)
}
