//! Writes the files of one backup from the store below a directory, in one pass, or what an interrupted restore lacks.

use std::path::Path;

use xb_pipeline::{Decrypt, Durability, ExtractOptions, Extractor, FileDecoding, UnpackPlan};
use xb_reader::TargetDir;
use xb_repo::error::RepoError;
use xb_uploader::{StoreError, StoreErrorKind};

use super::clone::state::{is_fetched, is_left_by_a_server};
use super::file_sink::FileSink;
use super::finished::forget;
use super::interrupted::{Interrupted, OTHER_TARGET, fetched_clone, interrupted, unseen};
use super::journal::head::{RestoreIdentity, is_unfinished};
use super::journal::resume_state::ResumeState;
use super::journal::write::Journal;
use super::request::{RestoreOptions, RestoreReport, Resumed};
use super::room::{check_room, needed};
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::full_disk::AGAIN;
use crate::read::decoding::{file_cipher, plan_beside};
use crate::read::find::{Objects, find};
use crate::read::get::transfer;
use crate::read::request::GetRequest;
use crate::read::unlock::UnlockedBackup;
use crate::session::{Resources, Session};

const RAW: &str = "the backup was stored with --raw and has no files; read it with `get`";
const MAKE_ROOM: &str =
    "make room there, or add --no-space-check if holes in the files will save enough";

/// Writes the files of a backup below `target`, which is created if missing. `target` must be
/// empty, or hold only what an interrupted run of the same restore has left: then that restore is
/// resumed, and proven data is not fetched again.
///
/// Files that were encrypted one by one are decrypted with the key in `request.keys`, and files
/// that were compressed one by one are decompressed. Half of the memory is used for that.
///
/// A file gets its final name when it is complete. After a failure, complete files stay; incomplete
/// files stay in `.xb-partial/`, unless the backup has no manifest.
///
/// # Errors
/// The first cause.
pub async fn restore(
    session: &Session,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    session.observer.expect_phases(1);
    session.observer.begin_phase("fetch");
    let report = fetch_files(session, request, None, target, how).await?;
    forget(target)?;
    Ok(report)
}

/// Like [`restore`], but keeps the journal, so that another run finds everything done. `unlocked`
/// is the result of an earlier check of the backup.
pub(super) async fn fetch_files(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&UnlockedBackup>,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let outcome = match fetch_once(session, request, unlocked, target, how).await {
        // A single altered answer is no damage: what is proven stays, and the rest is fetched again.
        Err(BackupError::Repo(RepoError::Store(StoreError {
            kind: StoreErrorKind::Altered,
            ..
        }))) if matches!(is_unfinished(target), Ok(true)) => {
            fetch_once(session, request, unlocked, target, how).await
        }
        outcome => outcome,
    };
    outcome.map_err(|error| error.or_full(target, AGAIN))
}

/// Restores the files once: finds out what is there and what is missing, checks the room, fetches and extracts, and
/// compares the number of files.
async fn fetch_once(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&UnlockedBackup>,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let Session { root, resources, cancel, .. } = session;
    // Before the directory is created: a wrong name leaves nothing behind.
    let (plan, decoding) = plan(*resources, request, how)?;
    if is_fetched(target).map_err(unseen(target))? {
        return cancel.or(fetched_clone(root, request, target, how)).await;
    }
    let mut earlier = cancel.or(interrupted(root, request, target, how)).await?;
    let proven = earlier.as_ref().map(|earlier| earlier.state.proven());
    let objects = cancel.or(find(session, request, unlocked, proven.as_ref())).await?;
    if objects.is_raw() {
        return Err(BackupError::of_target(target, RAW.into()));
    }
    if let (Some(earlier), Some(resumable)) = (&mut earlier, objects.resumable()) {
        // Before the room is checked: what is written again has its room already.
        earlier.keep(resumable).map_err(|what| BackupError::of_target(target, what))?;
    }
    if !how.no_space_check {
        let there = earlier.as_ref().map_or(0, |earlier| earlier.state.bytes());
        let all = request.files.is_all();
        let needed = needed(root, &request.name, &objects, !how.no_decompress, all, there);
        if let Some(bytes) = cancel.or(needed).await? {
            check_room(target, bytes.saturating_add(how.room_beside), MAKE_ROOM)?;
        }
    }
    // Later files are synced together with the file system.
    let durability = match how.sync {
        Durability::End if how.is_synced_later => Durability::None,
        durability => durability,
    };
    let options = ExtractOptions::default()
        .with_threads(resources.threads)
        .with_durability(durability)
        .with_decoding(decoding);
    let about = about(&objects, request, how);
    let Extraction { sink, journal, earlier } =
        begin(target, about.as_ref(), earlier, options, how)
            .map_err(|error| BackupError::of_target(target, error))?;
    let (report, sink) = transfer(session, request, plan, objects, sink).await?;
    // Only now is the stream known to be complete.
    let extracted = tokio::task::spawn_blocking(move || sink.finish())
        .await
        .map_err(|_| BackupError::Bug("the extractor thread panicked"))??;
    // A run that continues behind this would not see it.
    if let Some(error) = journal.and_then(Journal::end).filter(|_| how.is_synced_later) {
        let what = format!(
            "the disk did not take everything that was written: {error}; check the disk and the system log, then run the same command again"
        );
        return Err(BackupError::of_target(target, what));
    }
    let before = earlier.as_ref().map_or(0, ResumeState::files);
    let files = extracted.files + before;
    let is_all = earlier.is_some() && request.files.is_all();
    let stated = report.manifest.as_ref().filter(|_| is_all).map(|manifest| manifest.files);
    if let Some(stated) = stated.filter(|stated| *stated != files) {
        let what = format!("the stream has {files} files, the manifest has {stated}");
        return Err(BackupError::Damaged { name: request.name.to_string(), what });
    }
    let resumed = earlier.map(|state| Resumed {
        files: before,
        bytes: state.bytes(),
        distrusted: state.distrusted,
    });
    Ok(RestoreReport { get: report, files, decrypted: extracted.decrypted, resumed })
}

/// Returns the identity of a restore, by which a later run resumes it; `None` if no run can. Without a manifest, the next run
/// might find another backup under this name. A native stream has not been inspected, so it may not contain files at all.
fn about(objects: &Objects, request: &GetRequest, how: RestoreOptions) -> Option<RestoreIdentity> {
    let manifest = objects.manifest().filter(|manifest| !manifest.is_carried())?;
    Some(RestoreIdentity::new(manifest, !how.no_decompress, &request.files.text()))
}

/// Returns whether a restore into `target` has not ended, and continues if it is run again.
#[must_use]
pub fn is_resumable(target: &Path) -> bool {
    matches!(is_unfinished(target), Ok(true)) && !is_left_by_a_server(target)
}

/// An extraction that has begun.
struct Extraction {
    sink: FileSink,
    journal: Option<Journal>,
    /// Files that an earlier run has proven.
    earlier: Option<ResumeState>,
}

/// Creates the target, unless an earlier run has, and starts the extraction and its journal.
fn begin(
    target: &Path,
    about: Option<&RestoreIdentity>,
    earlier: Option<Interrupted>,
    options: ExtractOptions,
    how: RestoreOptions,
) -> Result<Extraction, String> {
    let (folder, earlier) = match earlier {
        Some(Interrupted { folder, state }) => (folder, Some(state)),
        None => {
            std::fs::create_dir_all(target).map_err(|error| format!("{error}; {OTHER_TARGET}"))?;
            let open = if about.is_some() { TargetDir::open_kept } else { TargetDir::open };
            (open(target).map_err(|error| error.to_string())?, None)
        }
    };
    let Some(about) = about else {
        let extractor = Extractor::new(folder, options).map_err(|error| error.to_string())?;
        let sink = FileSink::new(extractor, target.to_owned());
        return Ok(Extraction { sink, journal: None, earlier });
    };
    if earlier.is_none() {
        folder.clear(|_| false).map_err(|error| error.to_string())?;
    }
    let is_synced = how.sync != Durability::None;
    let journal = Journal::begin(&folder, about, earlier.as_ref(), is_synced)
        .map_err(|error| format!("cannot write the journal: {error}"))?;
    let begun = earlier.as_ref().map(ResumeState::begun);
    let extractor = Extractor::resumable(folder, options, journal.log(), begun)
        .map_err(|error| error.to_string())?;
    let sink = FileSink::new(extractor, target.to_owned());
    Ok(Extraction { sink, journal: Some(journal), earlier })
}

/// Divides the memory between fetching and unpacking.
fn plan(
    resources: Resources,
    request: &GetRequest,
    how: RestoreOptions,
) -> Result<(UnpackPlan, FileDecoding), BackupError> {
    let fetch = |share| plan_beside(share, resources);
    let half = resources.memory / 2;
    let (memory, plan) = match fetch(half) {
        Ok(plan) => (half, plan),
        Err(_) => (FileDecoding::MIN_MEMORY, fetch(FileDecoding::MIN_MEMORY)?),
    };
    let cipher = file_cipher(request.keys.key.as_ref())?;
    let decrypt = cipher.map_or(Decrypt::Refuse, Decrypt::With);
    Ok((
        plan,
        FileDecoding {
            decompress: !how.no_decompress,
            decrypt,
            threads: resources.threads,
            memory,
        },
    ))
}
