//! Files that an interrupted run of the same restore has left in the target.

use std::path::Path;

use xb_files::{is_lost_and_found, or_none};
use xb_reader::{RelPath, TargetDir, TargetError};
use xb_repo::manifest::Layout;
use xb_repo::root::Root;

use super::chain::INCREMENTS;
use super::clone::state::State;
use super::journal::head::{RestoreIdentity, is_unfinished};
use super::journal::load::{foreign, load};
use super::journal::resume_state::{ResumeState, as_path};
use super::request::{RestoreOptions, RestoreReport, Resumed};
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::read::request::{GetReport, GetRequest};
use crate::selection::Resumable;

const NOT_EMPTY: &str = "the directory is not empty, and does not hold an interrupted restore: choose a new or empty one";
const HALF_MERGED: &str = "a restore of a chain was interrupted in it while its pages were merged: run the command of that restore again, or, if the system was started again since, empty the directory";
const HALF_PREPARED: &str = "a restore of a chain was interrupted in it while the files were prepared, and they are of no use now: empty the directory, and restore it again";
const HALF_RECOVERED: &str = "the server that was to prepare it did not stop cleanly, so it is not proven that another one can use its files; empty the directory, and restore it again";
const RENAMES: &str = "it holds an unfinished restore of a stream that renames or removes files in the classic layout, which cannot be resumed; empty the directory";
/// Hint for a target that cannot be used.
pub(super) const OTHER_TARGET: &str = "name a directory that this user can create or write to";

/// The error if it cannot be found out what is in a target: that is no empty one.
pub(super) fn unseen(target: &Path) -> impl Fn(std::io::Error) -> BackupError + Copy {
    move |error| BackupError::of_target(target, format!("{error}; {OTHER_TARGET}"))
}

/// Files that are kept, and the target that they are in, locked.
pub(super) struct Interrupted {
    pub(super) folder: TargetDir,
    pub(super) state: ResumeState,
}

impl Interrupted {
    /// Removes everything that does not count: it is written again.
    ///
    /// # Errors
    /// A text that explains why the restore cannot be resumed; nothing is removed if a file is not of this restore.
    pub(super) fn keep(&mut self, resumable: &Resumable) -> Result<(), String> {
        let gone = self.state.keep(resumable).map_err(|name| foreign(as_path(&name)))?;
        for name in gone {
            let name = RelPath::new(&name).map_err(|error| error.to_string())?;
            match self.folder.remove(&name) {
                Err(TargetError::Remove { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                done => done.map_err(|error| error.to_string())?,
            }
        }
        self.folder.clear(|number| self.state.keeps(number)).map_err(|error| error.to_string())?;
        self.folder.number_from(self.state.next_number());
        Ok(())
    }
}

/// Returns whether a directory holds nothing that this user can see.
fn shows_nothing(entry: &std::fs::DirEntry) -> bool {
    match std::fs::read_dir(entry.path()) {
        Ok(mut inside) => inside.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Reads what an earlier run of this restore has left in the target, and locks the target. Returns
/// `None` if the target is empty or missing.
pub(super) async fn interrupted(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<Option<Interrupted>, BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    if xb_delta::is_interrupted(target).map_err(unseen(target))? {
        return Err(failed(HALF_MERGED.into()));
    }
    if !is_unfinished(target).map_err(unseen(target))? {
        // A run may have been killed before it created a journal. A fresh file system is empty, too.
        let is_nothing = |entry: std::fs::DirEntry| {
            entry.file_name() == ".xb-partial" || is_lost_and_found(&entry) && shows_nothing(&entry)
        };
        let entries = or_none(std::fs::read_dir(target)).map_err(unseen(target))?;
        let entries = entries.into_iter().flatten().collect::<Result<Vec<_>, _>>();
        return match entries.map_err(unseen(target))?.into_iter().all(is_nothing) {
            true => Ok(None),
            false if target.join(INCREMENTS).try_exists().map_err(unseen(target))? => {
                Err(failed(HALF_PREPARED.into()))
            }
            false => Err(failed(NOT_EMPTY.into())),
        };
    }
    let manifest = xb_repo::list::describe(root, &request.name).await?.manifest;
    let about = RestoreIdentity::new(&manifest, !how.no_decompress, &request.files.text());
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    // The guard is dropped with this future if a signal ends it.
    let dropped = CancelToken::new();
    let _guard = dropped.cancel_on_drop();
    let path = target.to_owned();
    let loading = tokio::task::spawn_blocking(move || {
        let state = load(&folder, &path, &about, &dropped);
        state.map(|state| (folder, state))
    });
    let loaded = loading
        .await
        .map_err(|_| BackupError::Bug("the thread that reads the journal panicked"))?;
    let (folder, Some(state)) = loaded.map_err(failed)? else {
        return Err(failed(NOT_EMPTY.into()));
    };
    if state.changes_names && manifest.layout == Layout::Classic {
        return Err(failed(RENAMES.into()));
    }
    Ok(Some(Interrupted { folder, state }))
}

/// The result of a restore whose files an earlier run has fetched, and which are changed in place since.
pub(super) async fn fetched_clone(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    how: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    let manifest = xb_repo::list::describe(root, &request.name).await?.manifest;
    let about = RestoreIdentity::new(&manifest, !how.no_decompress, &request.files.text());
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    let state = State::read(&folder, target, &about).map_err(failed)?;
    let state = state.ok_or(BackupError::Bug("the state of a restore went away"))?;
    if state.is_started {
        return Err(failed(HALF_RECOVERED.into()));
    }
    Ok(RestoreReport {
        get: GetReport { manifest: Some(manifest), ..GetReport::default() },
        files: state.files,
        decrypted: 0,
        resumed: Some(Resumed { files: state.files, bytes: state.bytes, distrusted: 0 }),
    })
}
