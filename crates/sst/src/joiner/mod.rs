//! The joiner: receives into a directory beside the data, prepares there, and then swaps the data.

mod acceptance;
mod content;
pub(crate) mod datadir_lock;
mod destination;
mod donor_files;
mod prepare;
mod present_data;
mod receive;
pub(crate) mod recover;
mod relocate;
mod request;
mod reuse;
mod room;
mod second_start;

use std::time::Instant;

use xb_report::{Report, StageEnd};

pub use self::acceptance::{EngineLocks, is_untried, take_back};
use self::destination::Destination;
use self::present_data::PresentData;
pub use self::present_data::has_old;
use self::request::Request;
use self::room::{Amount, ReceiveFolders};
use crate::context::Context;
use crate::contract::error_log::ErrorLog;
use crate::contract::position::Position;
use crate::delta::agreement::read_key;
use crate::delta::question::Key;
use crate::error::SstError;
use crate::offer::{Offer, OfferError, TransferKind};
use xb_wire::Offered;

/// Receives a transfer. When it returns, the position has been reported to the server, which then
/// starts on the data: nothing else may touch the data any more.
///
/// # Errors
/// The first cause. The data is unchanged; or, if the swap has begun, the journal records the
/// remaining work, which the next join or [`finish_interrupted`](recover::finish_interrupted) does.
pub fn join(context: &Context) -> Result<(), SstError> {
    let data = PresentData::lock(context)?;
    let outcome = replace(context, &data);
    data.unlock(outcome.is_ok());
    // From here on the data belongs to the server.
    let position = outcome.map_err(|error| error.or_why(context.cancel()))?;
    context.server.position(&position).map_err(SstError::Server)
}

/// Runs the join from listening to swapping the data. Returns the position of the data.
fn replace(context: &Context, data: &PresentData<'_>) -> Result<Position, SstError> {
    let Request { offered, offer, server_version, open: _open } = request::ask(context)?;
    match &offer.what {
        TransferKind::Ist => incremental(offered, &offer, &context.error_log),
        TransferKind::Full { bytes, disk, places, .. } => {
            let redo = &context.settings.redo_log;
            let redo = redo.bytes(context.args.family, server_version.as_deref());
            let amount = Amount { bytes: *bytes, disk: *disk, places, redo };
            let key = offer.delta.as_deref().and_then(read_key);
            full(context, data, offered, &amount, offer.position().as_ref(), key)
        }
    }
}

/// Joins without a snapshot: the data is unchanged.
fn incremental(
    offered: Offered,
    offer: &Offer,
    error_log: &ErrorLog,
) -> Result<Position, SstError> {
    let position = offer.position().ok_or(OfferError::Damaged)?;
    let mut incoming = offered.accept(b"")?;
    while incoming.next_block()?.is_some() {}
    let _ = incoming.confirm()?;
    error_log.info(format_args!(
        "IST: the donor still has all write sets that this node lacks, up to {position}; the data is kept"
    ));
    Ok(position)
}

/// Joins with a full backup.
fn full(
    context: &Context,
    data: &PresentData<'_>,
    offered: Offered,
    amount: &Amount<'_>,
    offered_at: Option<&Position>,
    key: Option<Key>,
) -> Result<Position, SstError> {
    let Context { error_log, layout, .. } = context;
    error_log
        .info(format_args!("SST: full backup of about {} MiB from the donor", amount.bytes >> 20));
    let destination = Destination::of(layout, context.args.family);
    let ready = second_start::find(context).and_then(|mysqld| {
        let folders = ReceiveFolders::make(data, &destination, amount)?;
        context.server.total(amount.bytes).map_err(SstError::Server)?;
        Ok((mysqld, folders))
    });
    let (mysqld, mut folders) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            offered.refuse(&error.to_string());
            return Err(error);
        }
    };
    let mut clock = Clock::start(context);

    let stated = receive::receive(context, offered, &mut folders, offered_at, key)?;
    clock.lap("receiving");

    let position = prepare::prepare(context, &destination, stated, offered_at)?;
    clock.lap("preparing");

    let mut is_accepted = false;
    if let Some(mysqld) = mysqld {
        is_accepted = second_start::run(context, &mysqld, &destination)?;
        clock.lap("the second start");
    }

    let remote = relocate::relocate(context, &destination.new, is_accepted)?;
    folders.wait_for_deletion();
    context.cancel().check()?;
    data.swap(&remote, is_accepted)?;
    clock.lap("exchanging");

    data.after_the_swap();
    error_log.info(format_args!("the received data is in place, at position {position}"));
    Ok(position)
}

/// Measures how long each step took, for the log and the report.
struct Clock<'a> {
    begun: Instant,
    log: Option<&'a ErrorLog>,
    report: Option<&'a Report>,
}

impl<'a> Clock<'a> {
    fn start(context: &'a Context) -> Self {
        let log = context.settings.time.then_some(&context.error_log);
        Self { begun: Instant::now(), log, report: context.report.as_ref() }
    }

    fn lap(&mut self, what: &str) {
        let took = self.begun.elapsed();
        if let Some(log) = self.log {
            log.info(format_args!("{what} took {:.2} s", took.as_secs_f64()));
        }
        if let Some(report) = self.report {
            report.stage(what, StageEnd::Ok, took);
        }
        self.begun = Instant::now();
    }
}
