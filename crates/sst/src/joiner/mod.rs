//! The joiner: receives into a directory beside the data, prepares there, and then swaps the data.

mod acceptance;
mod content;
pub(crate) mod datadir_lock;
mod destination;
mod donor_files;
mod free_space;
mod prepare;
mod present_data;
mod receive;
pub(crate) mod recover;
mod relocate;
mod request;
mod room;
mod second_start;

use std::path::PathBuf;
use std::time::Instant;

use xb_report::{Report, StageEnd};
use xb_wire::Offered;

pub use self::acceptance::{EngineLocks, is_untried, take_back};
use self::present_data::PresentData;
use self::request::{OfferedBackup, Request, Transfer};
use self::room::ReceiveFolders;
pub(crate) use self::second_start::check_tmpdir;
use crate::context::Context;
use crate::contract::error_log::ErrorLog;
use crate::contract::position::Position;
use crate::error::SstError;

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
    let position = outcome.map_err(|error| error.or_why(&context.cancel))?;
    context.server.position(&position).map_err(SstError::Server)
}

/// Runs the join from listening to swapping the data. Returns the position of the data.
fn replace(context: &Context, data: &PresentData<'_>) -> Result<Position, SstError> {
    let Request { offered, transfer, open: _open } = request::ask(context)?;
    match transfer {
        Transfer::Ist(_) if data.is_replaced => {
            let error = SstError::Replaced { datadir: context.layout.datadir.clone() };
            offered.refuse(&error.to_string());
            Err(error)
        }
        Transfer::Ist(position) => incremental(offered, position, &context.error_log),
        Transfer::Full(backup) => full(context, data, offered, &backup),
    }
}

/// Joins without a snapshot: the data is unchanged.
fn incremental(
    offered: Offered,
    position: Position,
    error_log: &ErrorLog,
) -> Result<Position, SstError> {
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
    backup: &OfferedBackup,
) -> Result<Position, SstError> {
    let error_log = &context.error_log;
    error_log
        .info(format_args!("SST: full backup of about {} MiB from the donor", backup.bytes >> 20));
    let (program, mut folders) = match get_ready(context, data, backup) {
        Ok(ready) => ready,
        Err(error) => {
            offered.refuse(&error.to_string());
            return Err(error);
        }
    };
    let mut clock = Clock::start(context);

    let stated = receive::receive(context, offered, &mut folders)?;
    clock.lap("receiving");

    let destination = &folders.destination;
    let position = prepare::prepare(context, destination, stated, backup.position.as_ref())?;
    clock.lap("preparing");

    let mut is_accepted = false;
    if let Some(program) = program {
        is_accepted = second_start::run(context, &program, destination)?;
        clock.lap("the second start");
    }

    // It works in the directories in which files are placed now.
    folders.wait_for_deletion();
    let remote = relocate::relocate(context, &data.lock, &folders.destination.new, is_accepted)?;
    context.cancel.check()?;
    data.swap(&remote, is_accepted)?;
    clock.lap("swapping");

    data.after_the_swap();
    error_log.info(format_args!("the received data is in place, at position {position}"));
    Ok(position)
}

/// Makes this node ready to receive the backup: checks whether the swap could be made and the second start, makes room and
/// directories, and tells the server how much will arrive.
fn get_ready<'a>(
    context: &Context,
    data: &'a PresentData<'a>,
    backup: &'a OfferedBackup,
) -> Result<(Option<PathBuf>, ReceiveFolders<'a>), SstError> {
    data.check_swap()?;
    content::refuse_rocksdb(&context.layout, context.args.product, |name| {
        Ok(backup.places.files.contains_key(name))
    })?;
    let program = second_start::get_ready(context)?;
    let folders = ReceiveFolders::make(data, backup)?;
    context.server.total(backup.bytes).map_err(SstError::Server)?;
    Ok((program, folders))
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
