//! The joiner: receives into a directory beside the data, prepares there, and then swaps the data.

mod binlog_state;
mod content;
pub(crate) mod datadir_lock;
mod placed;
mod prepare;
mod receive;
pub(crate) mod recover;
mod relocate;
mod removable;
mod room;
mod second_start;

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xb_pipeline::Observer;
use xb_report::{Direction, StageEnd};

use self::datadir_lock::DatadirLock;
use self::prepare::prepare;
use self::receive::receive;
use self::recover::{drop_old, drop_received, finish_interrupted, remove_old, tidy};
use self::room::{Amount, Room};
use crate::context::Context;
use crate::contract::datadir::{Layout, is_mounted};
use crate::contract::position::Position;
use crate::contract::settings::Old;
use crate::error::SstError;
use crate::offer::{Offer, What};
use crate::server::{backup_version, data_size};
use crate::session::endpoint;
use crate::session::progress::Progress;
use crate::swap::{self, NEW, OLD, OURS, make_folders, make_old};
use xb_wire::{Offered, Receipt};

/// Tells old init scripts that a transfer is running, so that they wait longer.
const MARK: &str = "sst_in_progress";

/// Time to wait for the previous transfer to clean up: longer than it may take to end.
const PATIENCE: Duration = Duration::from_secs(35);

/// Receives a transfer. When it returns, the position has been reported to the server, which then
/// starts on the data: nothing else may touch the data any more.
///
/// # Errors
/// The first cause. The data is unchanged; or, if the swap has begun, the journal records the
/// remaining work, which the next join or [`finish_interrupted`] does.
pub fn join(context: &Context) -> Result<(), SstError> {
    let datadir = &context.layout.datadir;
    let lock = DatadirLock::wait(datadir, context.stop(), PATIENCE)?;
    finish_interrupted(datadir, &lock, &context.talk)?;
    removable::check(context, |name, metadata| goes(context, name, metadata))?;
    drop_received(&context.layout, &lock)?;
    let outcome = receive_all(context, &lock);
    // Best effort: the next join does this, too.
    if outcome.is_err() && !swap::journal_path(datadir).exists() {
        let _ = drop_received(&context.layout, &lock);
    }
    tidy(&context.layout, &lock);
    drop(lock);
    // From here on the data belongs to the server.
    let position = outcome.map_err(|error| error.or_why(context.stop()))?;
    context.server.position(&position).map_err(SstError::Server)
}

/// Runs the join from listening to swapping the data. Returns the position of the data.
fn receive_all(context: &Context, lock: &DatadirLock) -> Result<Position, SstError> {
    // Without the backup program this node could not use what it receives.
    let program = backup_version::of_backup_program(context)?;
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
        What::Ist => incremental(context, offered, &offer),
        What::Full { bytes, disk, places, .. } => {
            let redo = context.settings.redo_log.bytes(context.args.family, server);
            let amount = Amount { bytes: *bytes, disk: *disk, places, redo };
            full(context, lock, offered, &amount, offer.position())
        }
    }
}

/// Joins without a snapshot: the data is unchanged.
fn incremental(context: &Context, offered: Offered, offer: &Offer) -> Result<Position, SstError> {
    let position = offer.position().ok_or(crate::offer::OfferError::Damaged)?;
    let mut incoming = offered.accept(b"")?;
    while incoming.next_block()?.is_some() {}
    let _ = incoming.confirm()?;
    context.talk.info(format_args!(
        "IST: the donor still has all write sets that this node lacks, up to {position}; the data is kept"
    ));
    Ok(position)
}

fn full(
    context: &Context,
    lock: &DatadirLock,
    offered: Offered,
    amount: &Amount<'_>,
    offered_at: Option<Position>,
) -> Result<Position, SstError> {
    let Context { talk, layout, settings, .. } = context;
    talk.info(format_args!("SST: full backup of about {} MiB from the donor", amount.bytes >> 20));
    let ready = second_start::find(context).and_then(|mysqld| {
        let deleting = make_ready(context, lock, amount)?;
        context.server.total(amount.bytes).map_err(SstError::Server)?;
        Ok((mysqld, deleting))
    });
    let (mysqld, deleting) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            offered.refuse(&error.to_string());
            return Err(error);
        }
    };
    let new = layout.datadir.join(OURS).join(NEW);
    let mut clock = Clock::start();

    let observer = Observer::default();
    observer.begin_phase("receiving");
    let progress = Progress::start(context, &observer, amount.bytes);
    let watch = context.watch(Direction::Receive, settings.write_threads, &observer);
    let incoming = offered.accept(b"")?;
    let (incoming, files) = receive(context, incoming, &new, &observer)?;
    let stated = content::before_preparing(&new, context.args.family, offered_at.as_ref());
    let stated = match stated {
        Ok(stated) => stated,
        Err(error) => {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
    };
    if incoming.confirm()? == Receipt::Unheard {
        talk.warn("the connection was lost after the last byte: the donor may not know that the transfer is complete");
    }
    progress.finish(format_args!("received {files} files"));
    drop(watch);
    clock.lap(context, "receiving");

    // Let the disk write while the backup is prepared.
    let syncing = std::thread::spawn({
        let new = new.clone();
        move || sync(&new)
    });
    placed::with_links(context, &new, || prepare(context, &new))?;
    let position = content::position(&new, stated, offered_at.as_ref())?;
    syncing.join().unwrap_or(Ok(()))?;
    clock.lap(context, "preparing");

    relocate::clear(context, &new)?;
    if let Some(mysqld) = mysqld {
        second_start::run(context, &mysqld, &new)?;
        clock.lap(context, "the second start");
    }
    relocate::relocate_all(context, &new)?;
    let remote = relocate::relocate_remote(context, &new)?;
    sync(&new)?;
    if let Some(deleting) = deleting {
        // What the thread could not delete is tried again.
        let _ = deleting.join();
    }
    context.stop().check()?;
    exchange(context, lock, &remote)?;
    clock.lap(context, "exchanging");
    match settings.old {
        Old::Kept => report_old(context),
        // The new data is in place even if this fails.
        Old::Removed => drop_old(layout, lock).unwrap_or_else(|error| {
            talk.warn(format_args!("cannot remove the old data in #sql-xb/.old: {error}"));
        }),
    }
    talk.info(format_args!("the received data is in place, at position {position}"));
    Ok(position)
}

/// Logs where the old data is, its size, and when it will be removed.
fn report_old(context: &Context) {
    let Context { layout, talk, .. } = context;
    if !has_old(&layout.datadir) {
        return;
    }
    let old = layout.datadir.join(OURS).join(OLD);
    let disk = Layout::of(&old).map_or(0, |old| data_size::estimate(&old).disk);
    talk.info(format_args!(
        "the old data, about {} MiB, is in {}, where servers do not see it; it is removed by wsrep_sst_xbrs-rs clean-old {}, or by the next full transfer",
        disk >> 20,
        old.display(),
        layout.datadir.display()
    ));
}

/// Checks whether the donor's data can be received, and creates the directories for it.
fn make_ready(
    context: &Context,
    lock: &DatadirLock,
    amount: &Amount<'_>,
) -> Result<Option<Deleting>, SstError> {
    refuse_mounts(context)?;
    let deleting = make_room(context, lock, amount)?;
    make_all_folders(&context.layout)?;
    Ok(deleting)
}

fn make_all_folders(layout: &Layout) -> Result<(), SstError> {
    // Recorded first: after a crash, other settings may name other directories.
    make_folders(&layout.datadir)?;
    swap::remember(&layout.datadir, &layout.folders_outside())?;
    for folder in std::iter::once(layout.datadir.clone()).chain(layout.folders_outside()) {
        make_folders(&folder)?;
    }
    Ok(())
}

/// Returns whether an entry of the data directory is swapped.
fn goes(context: &Context, name: &OsStr, metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    let moves = kind.is_dir() || kind.is_file() || kind.is_symlink();
    let stays = context.settings.keep.keeps(name.as_bytes())
        && !second_start::is_renewed(&context.layout.datadir, name);
    moves && !stays && !context.layout.leads_outside(name)
}

/// Refuses mount points, which cannot be renamed, before any data is sent.
fn refuse_mounts(context: &Context) -> Result<(), SstError> {
    let datadir = &context.layout.datadir;
    for entry in std::fs::read_dir(datadir).map_err(SstError::io("list", datadir))?.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if is_mounted(&entry.path()) && goes(context, &entry.file_name(), &metadata) {
            return Err(SstError::Mounted { path: entry.path() });
        }
    }
    Ok(())
}

/// Thread that deletes old data of an earlier swap while the new data arrives.
type Deleting = std::thread::JoinHandle<Result<(), SstError>>;

/// Makes room for the donor's data. The donor waits for an answer, so slow work is done later.
fn make_room(
    context: &Context,
    lock: &DatadirLock,
    amount: &Amount<'_>,
) -> Result<Option<Deleting>, SstError> {
    let Context { layout, settings, talk, .. } = context;
    if !settings.space_check {
        return Ok(None);
    }
    let room = room::check(context, amount)?;
    if room == Room::WithoutOld {
        talk.warn("deleting the old data before the new data arrives, as keep-old=no allows: there is no room for both");
        make_all_folders(layout)?;
        exchange(context, lock, &[])?;
    }
    Ok((room != Room::Enough).then(|| {
        let layout = layout.clone();
        std::thread::spawn(move || remove_old(&layout))
    }))
}

/// Swaps the data; in the `remote` directories, only the files that are new there.
fn exchange(context: &Context, lock: &DatadirLock, remote: &[PathBuf]) -> Result<(), SstError> {
    let Context { layout, talk, .. } = context;
    let folders: Vec<_> = std::iter::once(layout.datadir.clone())
        .chain(layout.folders_outside())
        .chain(remote.iter().cloned())
        .collect();
    // The old data of an earlier swap is no longer needed.
    drop_old(layout, lock)?;
    for folder in &folders {
        make_old(folder)?;
    }
    let outside = layout.folders_outside();
    let journal = swap::plan(folders, |folder, name, metadata| match folder.checked_sub(1) {
        None => goes(context, name, metadata),
        Some(number) => {
            let of_kind = |here: &PathBuf| {
                layout.outside.iter().any(|place| place.dir == *here && place.kind.has(name))
            };
            let is_new = |here: &PathBuf| here.join(OURS).join(NEW).join(name).exists();
            match (outside.get(number), remote.get(number.wrapping_sub(outside.len()))) {
                (Some(here), _) => of_kind(here),
                (None, Some(here)) => is_new(here),
                (None, None) => false,
            }
        }
    })?;
    swap::begin(&layout.datadir, &journal)?;
    if let Err(error) = swap::finish(&layout.datadir, &journal, || Ok(())) {
        talk.warn(format_args!("{error}; rolling the swap back"));
        if swap::roll_back(&layout.datadir, &journal, || Ok(())).is_ok() {
            talk.info("the old data is in place again");
        }
        return Err(error.into());
    }
    Ok(())
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
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self, context: &Context, what: &str) {
        let took = self.0.elapsed();
        if context.settings.time {
            context.talk.info(format_args!("{what} took {:.2} s", took.as_secs_f64()));
        }
        if let Some(report) = &context.report {
            report.stage(what, StageEnd::Ok, took);
        }
        self.0 = Instant::now();
    }
}

/// Returns whether there is old data in `DATADIR/#sql-xb/.old`.
#[must_use]
pub fn has_old(datadir: &Path) -> bool {
    let old = datadir.join(OURS).join(OLD);
    std::fs::read_dir(old).is_ok_and(|mut entries| entries.next().is_some())
}
