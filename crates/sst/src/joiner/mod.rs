//! The joiner: receives into a directory beside the data, prepares there, and then swaps the data.

mod acceptance;
mod binlog_state;
mod content;
pub(crate) mod datadir_lock;
mod destination;
mod mariadb_start;
mod prepare;
mod present_data;
mod receive;
pub(crate) mod recover;
mod relocate;
mod removal_rights;
mod room;
mod second_start;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xb_pipeline::Observer;
use xb_report::{Direction, Report, StageEnd};

pub use self::acceptance::{EngineLocks, is_untried, take_back};
use self::datadir_lock::DatadirLock;
use self::destination::Destination;
use self::prepare::prepare;
use self::present_data::PresentData;
pub use self::present_data::has_old;
use self::receive::receive;
use self::recover::{drop_received, finish_interrupted, tidy};
use self::room::Amount;
use crate::context::Context;
use crate::contract::args::Family;
use crate::contract::error_log::ErrorLog;
use crate::contract::position::Position;
use crate::contract::settings::DeltaWish;
use crate::delta::agreement::{Answer, read_key};
use crate::delta::old_data::OldData;
use crate::delta::question::Key;
use crate::error::SstError;
use crate::offer::{Offer, TransferKind};
use crate::server::backup_version;
use crate::session::endpoint;
use crate::session::progress::Progress;
use crate::swap;
use xb_wire::{Offered, Receipt};

/// Tells old init scripts that a transfer is running, so that they wait longer.
const MARK: &str = "sst_in_progress";

/// Time to wait for the previous transfer to clean up: longer than it may take to end.
const LOCK_LIMIT: Duration = Duration::from_secs(35);

/// Receives a transfer. When it returns, the position has been reported to the server, which then
/// starts on the data: nothing else may touch the data any more.
///
/// # Errors
/// The first cause. The data is unchanged; or, if the swap has begun, the journal records the
/// remaining work, which the next join or [`finish_interrupted`] does.
pub fn join(context: &Context) -> Result<(), SstError> {
    let datadir = &context.layout.datadir;
    let lock = DatadirLock::wait(datadir, context.cancel(), LOCK_LIMIT)?;
    finish_interrupted(datadir, &lock, &context.error_log)?;
    let data = PresentData::of(context, &lock);
    removal_rights::check(&context.layout, |name, metadata| data.is_swapped(name, metadata))?;
    drop_received(&context.layout, &lock)?;
    let outcome = receive_all(context, data);
    // Best effort: the next join does this, too.
    if outcome.is_err() && !swap::journal_path(datadir).exists() {
        let _ = drop_received(&context.layout, &lock);
    }
    tidy(&context.layout, &lock);
    drop(lock);
    // From here on the data belongs to the server.
    let position = outcome.map_err(|error| error.or_why(context.cancel()))?;
    context.server.position(&position).map_err(SstError::Server)
}

/// Runs the join from listening to swapping the data. Returns the position of the data.
fn receive_all(context: &Context, data: PresentData<'_>) -> Result<Position, SstError> {
    // Without the backup program this node could not use what it receives.
    let program = backup_version::of_backup_program(&context.settings.program, context.cancel())?;
    let server = context.args.server_version.as_deref().or(program.as_deref());
    let (listener, _hooked) = endpoint::listen(context)?;
    let _mark = Mark::set(&context.layout.datadir);
    context.server.ready(&listener.announcement().text()).map_err(SstError::Server)?;
    let offered = listener.accept(context.settings.initial_timeout)?;
    let offer = match Offer::read(offered.offer(), context.args.family, server) {
        Ok(offer) => offer,
        Err(error) => {
            offered.refuse(&error.to_string());
            return Err(error.into());
        }
    };
    match &offer.what {
        TransferKind::Ist => incremental(offered, &offer, &context.error_log),
        TransferKind::Full { bytes, disk, places, .. } => {
            let redo = context.settings.redo_log.bytes(context.args.family, server);
            let amount = Amount { bytes: *bytes, disk: *disk, places, redo };
            let key = offer.delta.as_deref().and_then(read_key);
            full(context, data, offered, &amount, offer.position(), key)
        }
    }
}

/// Joins without a snapshot: the data is unchanged.
fn incremental(
    offered: Offered,
    offer: &Offer,
    error_log: &ErrorLog,
) -> Result<Position, SstError> {
    let position = offer.position().ok_or(crate::offer::OfferError::Damaged)?;
    let mut incoming = offered.accept(b"")?;
    while incoming.next_block()?.is_some() {}
    let _ = incoming.confirm()?;
    error_log.info(format_args!(
        "IST: the donor still has all write sets that this node lacks, up to {position}; the data is kept"
    ));
    Ok(position)
}

fn full(
    context: &Context,
    data: PresentData<'_>,
    offered: Offered,
    amount: &Amount<'_>,
    offered_at: Option<Position>,
    key: Option<Key>,
) -> Result<Position, SstError> {
    let Context { error_log, layout, settings, .. } = context;
    error_log
        .info(format_args!("SST: full backup of about {} MiB from the donor", amount.bytes >> 20));
    let destination = Destination::of(layout, context.args.family);
    let ready = second_start::find(context).and_then(|mysqld| {
        data.take_back_untried()?;
        let deleting = data.make_ready(&destination, amount, settings)?;
        context.server.total(amount.bytes).map_err(SstError::Server)?;
        Ok((mysqld, deleting))
    });
    let (mysqld, mut deleting) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            offered.refuse(&error.to_string());
            return Err(error);
        }
    };
    let new = &destination.new;
    let mut clock = Clock::start(context);

    let observer = Observer::default();
    observer.begin_phase("receiving");
    let progress = Progress::start(context, &observer, amount.bytes);
    let watch = context.watch(Direction::Receive, settings.write_threads, &observer);
    let old = key.and_then(|key| Some((old_data(context)?, key)));
    let wish = old.as_ref().map_or(DeltaWish::No, |_| settings.delta);
    let incoming = offered.accept(&Answer::write(wish))?;
    let (incoming, files) = receive(context, incoming, &destination, &observer, old, || {
        error_log.warn(
            "the donor's backup program failed and runs once more: discarding what was received",
        );
        // It may hold the room that is needed.
        if let Some(deleting) = deleting.take() {
            let _ = deleting.join();
        }
        deleting = data.begin_again(&destination, amount, settings)?;
        progress.begin_again();
        Ok(())
    })?;
    let stated = content::before_preparing(new, context.args.family, offered_at.as_ref());
    let stated = match stated {
        Ok(stated) => stated,
        Err(error) => {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
    };
    if incoming.confirm()? == Receipt::Unknown {
        error_log.warn("the connection was lost after the last byte: the donor may not know that the transfer is complete");
    }
    progress.finish(format_args!("received {files} files"));
    drop(watch);
    clock.lap("receiving");

    // Let the disk write while the backup is prepared.
    let syncing = std::thread::spawn({
        let new = new.clone();
        move || sync(&new)
    });
    destination.with_links(|| prepare(context, new))?;
    let position = content::position(new, stated, offered_at.as_ref())?;
    syncing.join().unwrap_or(Ok(()))?;
    clock.lap("preparing");

    relocate::clear(new, layout.binlog.as_deref())?;
    let mut is_accepted = false;
    if let Some(mysqld) = mysqld {
        is_accepted = second_start::run(context, &mysqld, &destination)?;
        clock.lap("the second start");
    }
    relocate::relocate_all(layout, new)?;
    // The dictionary of Percona's server has the files where that server found them.
    let is_fixed = is_accepted && context.args.family == Family::Percona;
    let is_searched = |path: &Path| !is_fixed || settings.second_start.is_searched(path);
    let remote = relocate::relocate_remote(layout, new, is_searched, error_log)?;
    sync(new)?;
    if let Some(deleting) = deleting {
        // What the thread could not delete is tried again.
        let _ = deleting.join();
    }
    context.cancel().check()?;
    data.swap(&remote, is_accepted)?;
    clock.lap("exchanging");
    data.after_the_swap(settings.old);
    error_log.info(format_args!("the received data is in place, at position {position}"));
    Ok(position)
}

/// Returns the old data, if the donor may leave out what is in it.
fn old_data(context: &Context) -> Option<OldData> {
    let Context { layout, settings, error_log, .. } = context;
    if settings.delta == DeltaWish::No {
        return None;
    }
    let old = OldData::open(layout, error_log)?;
    // The copies would be right, but a server does not like to be read.
    let is_free = matches!(EngineLocks::take(layout), Ok(Some(_)));
    if !is_free {
        error_log.warn("the old data may be in use: receiving all data from the donor");
    }
    is_free.then_some(old)
}

fn sync(folder: &Path) -> Result<(), SstError> {
    let failed = || SstError::io("sync", folder);
    let dir = std::fs::File::open(folder).map_err(failed())?;
    rustix::fs::syncfs(&dir).map_err(|error| failed()(error.into()))
}

/// Marker file of a running transfer, removed when dropped.
struct Mark(PathBuf);

impl Mark {
    fn set(datadir: &Path) -> Self {
        let path = datadir.join(MARK);
        // Without it, old init scripts only wait a shorter time.
        let _ = std::fs::File::create(&path);
        Self(path)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
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
