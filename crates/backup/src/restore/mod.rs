//! `restore`: writes a backup from the store directly into files, in one pass.

pub(crate) mod chain;
pub(crate) mod choose;
pub(crate) mod clone;
mod export_log;
pub(crate) mod fetch_chain;
pub(crate) mod finished;
pub(crate) mod galera;
pub(crate) mod journal;
mod lost_and_found;
mod new_master_key;
pub(crate) mod owner;
pub(crate) mod prepare;
pub(crate) mod request;
pub(crate) mod restore_and_prepare;
pub(crate) mod room;
pub(crate) mod same_space;
pub(crate) mod target_lock;
mod write_back;

pub use self::request::{RestoreOptions, RestoreReport, Resumed};

use std::path::{Path, PathBuf};

use bytes::Bytes;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_pipeline::{
    Decrypt, Durability, ExtractCause, ExtractError, ExtractOptions, ExtractReport, Extractor,
    FileDecodeError, FileDecoding, UnpackPlan,
};
use xb_reader::{RelPath, TargetDir, TargetError};
use xb_repo::error::RepoError;
use xb_repo::root::Root;
use xb_uploader::{StoreError, StoreErrorKind};

use self::chain::INCREMENTS;
use self::clone::state::{State, is_left_by_a_server};
use self::finished::forget;
use self::journal::head::{About, is_unfinished};
use self::journal::load::load;
use self::journal::resume_state::ResumeState;
use self::journal::write::Journal;
use self::lost_and_found::{is_lost_and_found, shows_nothing};
use self::room::{check_room, needed};
use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::error::BackupError;
use crate::full_disk::AGAIN;
use crate::read::decoding::{file_cipher, plan_beside};
use crate::read::find::find;
use crate::read::get::transfer;
use crate::read::request::{GetReport, GetRequest};
use crate::read::stream_sink::StreamSink;
use crate::read::unlock::Unlocked;
use crate::session::{Resources, Session};

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
    let report = restore_and_keep(session, request, None, target, how).await?;
    forget(target)?;
    Ok(report)
}

/// Like [`restore`], but keeps the journal, so that another run finds everything done. `unlocked`
/// is the result of an earlier check of the backup.
pub(crate) async fn restore_and_keep(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&Unlocked>,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let outcome = match attempt(session, request, unlocked, target, how).await {
        // A single altered answer is no damage: what is proven stays, and the rest is fetched again.
        Err(BackupError::Repo(RepoError::Store(StoreError {
            kind: StoreErrorKind::Altered,
            ..
        }))) if is_unfinished(target) => attempt(session, request, unlocked, target, how).await,
        outcome => outcome,
    };
    outcome.map_err(|error| error.or_full(target, AGAIN))
}

async fn attempt(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&Unlocked>,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let Session { root, resources, cancel, .. } = session;
    let failed = |what: String| BackupError::Restore { target: target.display().to_string(), what };
    // Before the directory is created: a wrong name leaves nothing behind.
    let (plan, decoding) = plan(*resources, request, how)?;
    if clone::state::is_fetched(target) {
        return cancel.or(fetched_clone(root, request, target, how)).await;
    }
    let found = cancel.or(resume_state(root, request, target, how)).await?;
    let proven = found.as_ref().map(|(_, left)| left.proven());
    let objects = cancel.or(find(session, request, unlocked, proven.as_ref())).await?;
    if objects.is_raw() {
        return Err(failed(RAW.into()));
    }
    if let Some((folder, left)) = &found {
        // What is not proven is written anew, so its room is free.
        folder.clear(|number| left.keeps(number)).map_err(|error| failed(error.to_string()))?;
    }
    if !how.no_space_check {
        let there = found.as_ref().map_or(0, |(_, left)| left.bytes());
        let all = request.files.is_all();
        let needed = cancel
            .or(needed(root, (&request.name, &objects), !how.no_decompress, all, there))
            .await?;
        needed.map_or(Ok(()), |bytes| {
            check_room(target, bytes.saturating_add(how.room_beside), MAKE_ROOM)
        })?;
    }
    // Without a manifest, the next run might find another backup under this name. A native stream
    // has not been inspected, so it may not contain files at all.
    let about = objects
        .manifest()
        .filter(|manifest| !manifest.is_carried())
        .map(|manifest| About::new(manifest, !how.no_decompress, &request.files.text()));
    let (folder, left) = match found {
        Some((folder, left)) => (folder, Some(left)),
        None => {
            std::fs::create_dir_all(target)
                .map_err(|error| failed(format!("{error}; {OTHER_TARGET}")))?;
            let open = if about.is_some() { TargetDir::open_kept } else { TargetDir::open };
            (open(target).map_err(|error| failed(error.to_string()))?, None)
        }
    };
    let durability = how.sync;
    let sync = durability != Durability::None;
    let journal = match &about {
        None => None,
        Some(about) => {
            let keeps = |number| left.as_ref().is_some_and(|left| left.keeps(number));
            folder.clear(keeps).map_err(|error| failed(error.to_string()))?;
            let journal = Journal::begin(&folder, about, left.as_ref(), sync);
            Some(journal.map_err(|error| failed(format!("cannot write the journal: {error}")))?)
        }
    };
    let options = ExtractOptions::default()
        .with_threads(resources.threads)
        .with_durability(durability)
        .with_decoding(decoding);
    let extractor = match &journal {
        None => Extractor::new(folder, options),
        Some(journal) => {
            let begun = left.as_ref().map(ResumeState::begun);
            Extractor::resumable(folder, options, journal.log(), begun)
        }
    };
    let extractor = extractor.map_err(|error| failed(error.to_string()))?;
    let sink = Files { extractor: Some(extractor), target: target.to_owned() };
    let (report, sink) = transfer(session, request, plan, objects, sink).await?;
    // Only now is the stream known to be complete.
    let extracted = tokio::task::spawn_blocking(move || sink.finish())
        .await
        .map_err(|_| BackupError::Bug("the extractor thread panicked"))??;
    drop(journal);
    let before = left.as_ref().map_or(0, ResumeState::files);
    let files = extracted.files + before;
    let stated = report.manifest.as_ref().filter(|_| left.is_some() && request.files.is_all());
    if let Some(stated) = stated.map(|manifest| manifest.files).filter(|stated| *stated != files) {
        let what = format!("the stream has {files} files, the manifest has {stated}");
        return Err(BackupError::Damaged { name: request.name.to_string(), what });
    }
    let resumed = left.map(|left| Resumed {
        files: before,
        bytes: left.bytes(),
        distrusted: left.distrusted,
    });
    Ok(RestoreReport { get: report, files, decrypted: extracted.decrypted, resumed })
}

const NOT_EMPTY: &str = "the directory is not empty, and does not hold an interrupted restore: choose a new or empty one";

const HALF_MERGED: &str = "a restore of a chain was interrupted in it while its pages were merged: run the command of that restore again, or, if the system was started again since, empty the directory";
const HALF_PREPARED: &str = "a restore of a chain was interrupted in it while the files were prepared, and they are of no use now: empty the directory, and restore it again";
const RAW: &str = "the backup was stored with --raw and has no files; read it with `get`";
const HALF_RECOVERED: &str = "the server that was to prepare it did not stop cleanly, so it is not proven that another one can use its files; empty the directory, and restore it again";
const MAKE_ROOM: &str =
    "make room there, or add --no-space-check if holes in the files will save enough";
const OTHER_TARGET: &str = "name a directory that this user can create or write to";

/// Reads what an earlier run of this restore has left in the target, and locks the target. Returns
/// `None` if the target is empty or missing.
async fn resume_state(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<Option<(TargetDir, ResumeState)>, BackupError> {
    let failed = |what: String| BackupError::Restore { target: target.display().to_string(), what };
    if xb_delta::is_interrupted(target) {
        return Err(failed(HALF_MERGED.into()));
    }
    if !is_unfinished(target) {
        // A run may have been killed before it created a journal. A fresh file system is empty, too.
        let is_nothing = |entry: std::fs::DirEntry| {
            entry.file_name() == ".xb-partial" || is_lost_and_found(&entry) && shows_nothing(&entry)
        };
        return match std::fs::read_dir(target) {
            Ok(entries) => match entries.flatten().all(is_nothing) {
                true => Ok(None),
                false if target.join(INCREMENTS).exists() => Err(failed(HALF_PREPARED.into())),
                false => Err(failed(NOT_EMPTY.into())),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(format!("{error}; {OTHER_TARGET}"))),
        };
    }
    let manifest = xb_repo::list::describe(root, &request.name).await?.manifest;
    let about = About::new(&manifest, !how.no_decompress, &request.files.text());
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    // The guard is dropped with this future if a signal ends it.
    let dropped = CancelToken::new();
    let _guard = dropped.cancel_on_drop();
    let path = target.to_owned();
    let loading = tokio::task::spawn_blocking(move || {
        let left = load(&folder, &path, &about, &dropped);
        left.map(|left| (folder, left))
    });
    let loaded = loading
        .await
        .map_err(|_| BackupError::Bug("the thread that reads the journal panicked"))?;
    let (folder, Some(left)) = loaded.map_err(failed)? else {
        return Err(failed(NOT_EMPTY.into()));
    };
    for name in &left.doubtful {
        let name = RelPath::new(name).map_err(|error| failed(error.to_string()))?;
        match folder.remove(&name) {
            Err(TargetError::Remove { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound => {}
            done => done.map_err(|error| failed(error.to_string()))?,
        }
    }
    Ok(Some((folder, left)))
}

/// Whether a restore into `target` has not ended, and continues if it is run again.
#[must_use]
pub fn is_resumable(target: &Path) -> bool {
    is_unfinished(target) && !is_left_by_a_server(target)
}

/// The result of a restore whose files an earlier run has fetched, and which are changed in place since.
async fn fetched_clone(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let failed = |what: String| BackupError::Restore { target: target.display().to_string(), what };
    let manifest = xb_repo::list::describe(root, &request.name).await?.manifest;
    let about = About::new(&manifest, !how.no_decompress, &request.files.text());
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    let state = State::read(&folder, target, &about).map_err(failed)?;
    let state = state.ok_or(BackupError::Bug("the state of a restore went away"))?;
    if state.is_started {
        return Err(failed(HALF_RECOVERED.into()));
    }
    Ok(RestoreReport {
        get: GetReport::nothing(Some(manifest)),
        files: state.files,
        decrypted: 0,
        resumed: Some(Resumed { files: state.files, bytes: state.bytes, distrusted: 0 }),
    })
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

/// Passes the stream to the extractor.
struct Files {
    extractor: Option<Extractor>,
    target: PathBuf,
}

impl Files {
    fn finish(mut self) -> Result<ExtractReport, BackupError> {
        match self.extractor.take() {
            Some(extractor) => extractor.finish().map_err(|error| self.failed(&error)),
            None => Err(BackupError::Bug("the extractor was used after it ended")),
        }
    }

    fn failed(&self, error: &ExtractError) -> BackupError {
        let kept = match error.report.files {
            0 => String::new(),
            files => format!(" (complete files kept: {files})"),
        };
        let what = format!("{error}{kept}");
        match &error.cause {
            ExtractCause::FileDecoding {
                source: FileDecodeError::NoKey | FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }),
                ..
            } => BackupError::FileKey { what },
            _ => BackupError::Restore { target: self.target.display().to_string(), what },
        }
    }
}

impl StreamSink for Files {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        let Some(extractor) = &mut self.extractor else {
            return Err(BackupError::Bug("the extractor was used after it ended"));
        };
        if extractor.feed(bytes).is_ok() {
            return Ok(());
        }
        // The extractor has stopped, and reports the reason when it is finished.
        match self.extractor.take().map(Extractor::finish) {
            Some(Err(error)) => Err(self.failed(&error)),
            _ => Err(BackupError::Bug("the extractor stopped without a cause")),
        }
    }
}
