//! Complete restore: a backup with its chain, prepared, with the right owner, and as a cluster
//! node.

use std::path::Path;

use xb_pipeline::Durability;

use crate::cancel::OrInterrupted as _;
use crate::child::OnLine;
use crate::error::BackupError;
use crate::read::request::GetRequest;
use crate::restore::chain::{Chain, remove_increments};
use crate::restore::choose::{ChosenBackup, links, may_merge};
use crate::restore::clone::RestoredClone;
use crate::restore::fetch::{FetchedChain, done_before, fetch_usable};
use crate::restore::finished::FinishedMark;
use crate::restore::galera::{NodePosition, read_position, write_position};
use crate::restore::journal::head::{RestoreIdentity, forget};
use crate::restore::new_master_key;
use crate::restore::owner::Owner;
use crate::restore::prepare::{EXPORT_LOG, PrepareOptions, PrepareSync, lost_pages, prepare};
use crate::restore::remarks::{in_use, outside};
use crate::restore::request::{AfterRestore, RestoreChainReport, RestoreOptions};
use crate::restore::target_lock::TargetLock;
use crate::restore::write_back::WriteBack;
use crate::session::Session;

/// Restores a backup with its chain into `target`, and makes it ready for use.
///
/// # Errors
/// The first cause. Fetched files stay.
pub async fn restore_chain(
    session: &Session,
    request: GetRequest,
    target: &Path,
    how: RestoreOptions,
    ready: &AfterRestore,
    on_line: &OnLine,
) -> Result<RestoreChainReport, BackupError> {
    let ready =
        AfterRestore { owner: ready.owner.or_else(|| Owner::to_keep(target)), ..ready.clone() };
    let mut report = restore_locked(session, request, target, how, &ready, on_line, None).await?;
    // Increments that are not applied yet have their own copies of these files.
    if ready.prepare().is_some() || report.restored.len() == 1 {
        report.remarks.extend(in_use(target));
    }
    Ok(report)
}

/// Like [`restore_chain`], for a caller that may have the lock of the target already, and gives the files to no owner
/// but `ready`'s.
pub(crate) async fn restore_locked(
    session: &Session,
    mut request: GetRequest,
    target: &Path,
    how: RestoreOptions,
    ready: &AfterRestore,
    on_line: &OnLine,
    lock: Option<&TargetLock>,
) -> Result<RestoreChainReport, BackupError> {
    let Session { observer, cancel, .. } = session;
    let name = request.name.clone();
    let links = cancel.or(links(session, &request, ready)).await?;
    let mut clone = match links.iter().any(ChosenBackup::is_clone) {
        true => Some(RestoredClone::of(session, &mut request, ready.of_clone()).await?),
        false => None,
    };
    if target.to_str().is_none() && may_merge(ready, &links) {
        let what = "the path is not UTF-8, and increments cannot be applied there in one pass; restore to another directory, or add --prepare-chain=stock";
        return Err(BackupError::of_target(target, what.to_owned()));
    }
    let mut node = NodePosition::stated(ready, &name, &links, cancel).await?;
    // To the end: what another run has left is believed, and changed in place.
    let _lock = if lock.is_none() { Some(TargetLock::take(target)?) } else { None };
    let finished = FinishedMark::of_restore(&links, &request, how, ready);
    if let Some(totals) = finished.as_ref().and_then(|finished| finished.found(target)) {
        forget(target)?;
        give(ready.owner, target)?;
        return Ok(RestoreChainReport {
            restored: done_before(&links, totals),
            position: node.position.or_else(|| read_position(target)),
            behind: node.behind,
            clone: clone.map(|clone| clone.made_before(target)),
            remarks: ready.prepare().map_or_else(Vec::new, |_| outside(target)),
        });
    }

    match (&mut clone, ready.prepare()) {
        (Some(clone), _) => clone.get_ready(target, cancel).await?,
        // Before hours of reading.
        (None, Some(options)) => options.by.look(links.iter().find_map(ChosenBackup::tool))?,
        (None, None) => {}
    }
    let phases = if ready.prepare().is_some() { 2 } else { 1 };
    observer.expect_phases(phases + u32::from(clone.is_some()));
    // Of one sync at the end, most pages are written once: those that prepare changes, and not those of increments.
    let is_synced_later = |options: &PrepareOptions| {
        clone.is_none() && how.sync == Durability::End && options.sync == PrepareSync::End
    };
    let unsynced = ready.prepare().filter(|options| is_synced_later(options));
    let unsynced = unsynced.and_then(|_| WriteBack::watch(target));
    let how = RestoreOptions {
        room_beside: room_beside(how, ready, clone.as_ref()),
        is_synced_later: unsynced.is_some(),
        ..how
    };

    let FetchedChain { restored, mut folders, is_merging } =
        fetch_usable(session, &mut request, &links, target, how, ready, finished.as_ref(), on_line)
            .await?;

    let durable = how.sync != Durability::None;
    let manifest = links.first().and_then(ChosenBackup::manifest);
    let clone = match (clone, manifest, restored.first()) {
        (Some(clone), Some(manifest), Some((_, report))) => {
            let about = RestoreIdentity::new(manifest, !how.no_decompress, &request.files.text());
            let (files, bytes) = (report.files, report.get.stream_bytes);
            Some(clone.make_usable(session, target, about, files, bytes, durable).await?)
        }
        _ => None,
    };
    node.take_fetched(&folders, is_merging.then_some(target)).await?;
    let is_done = !ready.galera && (ready.prepare().is_none() || clone.is_some());
    if let Some(finished) = finished.as_ref().filter(|_| is_done) {
        // Before the journal goes: at any moment, one of the two is there.
        finished.mark(target);
    }

    let mut remarks = Vec::new();
    match ready.prepare().filter(|_| clone.is_none()) {
        None => folders.iter().try_for_each(|folder| forget(folder))?,
        Some(options) => {
            observer.begin_phase("prepare");
            let increments = folders.split_off(1);
            let id = finished.as_ref().and_then(|finished| finished.id(target));
            let chain = Chain { dir: target, increments: &increments, of: id.as_deref() };
            let lost = prepare(session, chain, options, durable, on_line).await?;
            let last = links.last().and_then(ChosenBackup::manifest);
            let is_partial = last.is_some_and(|last| last.source.is_partial);
            remarks.extend(lost.as_deref().map(|lost| lost_pages(lost, is_partial)));
            remarks.extend(last.and_then(|last| last.without_tablespace.as_ref()).map(|lone| {
                format!(
                    "InnoDB has no .ibd file in the backup for {lone}, or not for each partition: what has none has no rows, unless it is in the system tablespace; it was discarded, or lost by the producer"
                )
            }));
            remarks.extend(last.and_then(|last| last.without_files.as_ref()).map(|lost| {
                format!("files are missing in the backup of {lost}: these tables cannot be opened")
            }));
            remarks.extend(outside(target));
            new_master_key::make_if_wanted(target, &options.by, on_line, cancel).await?;
            if let Some(files) = unsynced {
                tokio::task::block_in_place(|| files.sync())?;
            }
        }
    }
    node.take_prepared(target).await?;
    remarks.extend(ready.prepare().and_then(|_| node.remark_of_prepared(target)));

    // Also removes increments of a chain that was started here before only this backup was
    // requested.
    remove_increments(target)?;
    if let Some(position) = node.position.as_ref().filter(|_| ready.galera) {
        write_position(target, position)?;
    }
    give(ready.owner, target)?;
    if let Some(finished) = &finished {
        finished.mark(target);
    }
    let (position, behind) = (node.position, node.behind);
    Ok(RestoreChainReport { restored, position, behind, clone, remarks })
}

/// Bytes that later steps write beside the files of the stream.
fn room_beside(how: RestoreOptions, ready: &AfterRestore, clone: Option<&RestoredClone>) -> u64 {
    let redo = clone.map_or(0, RestoredClone::redo_bytes);
    let export = if ready.preparing.export { EXPORT_LOG } else { 0 };
    how.room_beside.saturating_add(redo) + export
}

/// Gives the files to their owner, if there is one to give them to.
fn give(owner: Option<Owner>, target: &Path) -> Result<(), BackupError> {
    owner.map_or(Ok(()), |owner| tokio::task::block_in_place(|| owner.give(target)))
}
