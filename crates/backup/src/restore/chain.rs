//! Makes the restored backups of a chain ready to be prepared.

use std::path::{Path, PathBuf};

use xb_delta::{
    Checkpoints, Error, NotMergeable, discard, interrupted, keep, merge, plan, restate_from,
};
use xb_files::or_none;

use crate::child::{OWN_NOTE, OnLine};
use crate::error::BackupError;
use crate::full_disk::{AGAIN, ANEW};
use crate::restore::journal::head::forget;
use crate::session::Session;

/// Directory below the target that holds the increments until they are applied. They are two levels
/// down, where the preparing programs do not look for tables.
pub(super) const INCREMENTS: &str = ".xb-incremental";

/// A restored chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain<'a> {
    /// Directory of the full backup.
    pub(crate) dir: &'a Path,
    /// Directories of the increments, in order.
    pub(crate) increments: &'a [PathBuf],
    /// Whose restore it is: a merge that is interrupted is finished by one of the same. Not empty; `None` if there
    /// will be no other run.
    pub(crate) of: Option<&'a str>,
}

impl Chain<'_> {
    /// Removes the journals: from here on, files are changed.
    ///
    /// # Errors
    /// [`BackupError::Restore`].
    pub(crate) fn forget(&self) -> Result<(), BackupError> {
        self.increments.iter().map(PathBuf::as_path).chain([self.dir]).try_for_each(forget)
    }
}

/// How the increments of a chain are applied.
pub(crate) enum ApplyMethod {
    /// They were, in one pass.
    Merged,
    /// One by one, by the program: a merge is not known to be right.
    OneByOne(NotMergeable),
}

/// Merges the increments into the full backup, if that is known to be right, and tells what it did. With
/// `is_durable`, the files are on their disks then.
///
/// # Errors
/// [`BackupError::Restore`]: the directory is of no use then. [`BackupError::Interrupted`].
pub(crate) fn merge_chain(
    session: &Session,
    chain: Chain<'_>,
    is_durable: bool,
    on_line: &OnLine,
) -> Result<ApplyMethod, BackupError> {
    let (cancel, Chain { dir, increments, of }) = (&session.cancel, chain);
    tokio::task::block_in_place(|| {
        let begun = of.and_then(|of| interrupted(dir, of));
        let planned = match begun.map_or_else(|| plan(dir, increments), Ok) {
            Ok(planned) => planned,
            Err(unfit) => return Ok(ApplyMethod::OneByOne(unfit)),
        };
        // The plan is there before the journals go.
        let kept = of.map_or(Ok(()), |of| keep(&planned, of));
        kept.map_err(|error| failed(dir, &error, AGAIN))?;
        chain.forget()?;
        let threads = session.resources.threads;
        match merge(&planned, threads, is_durable, || cancel.reason().is_some()) {
            Ok(merged) => {
                let text = format!(
                    "{OWN_NOTE}increments applied in one pass: {}; {} pages of {} written, {} tablespaces",
                    increments.len(),
                    merged.written,
                    merged.pages,
                    merged.spaces
                );
                on_line(text.as_bytes());
                Ok(ApplyMethod::Merged)
            }
            Err(Error::Cancelled) => {
                Err(BackupError::Interrupted(cancel.reason().unwrap_or_default()))
            }
            Err(error) => Err(failed(dir, &error, AGAIN)),
        }
    })
}

/// Lets the program apply an increment that begins before the end of what is prepared in `dir`. The program compares
/// the two positions; the pages that the increment has in addition are those of `dir`, or newer.
///
/// # Errors
/// [`BackupError::Restore`].
pub(super) fn apply_from_end(dir: &Path, increment: &Path) -> Result<(), BackupError> {
    let (Some(base), Some(next)) = (Checkpoints::of(dir), Checkpoints::of(increment)) else {
        return Ok(());
    };
    match next.from > 0 && next.from < base.to {
        // Partly prepared files cannot be used again.
        true => restate_from(increment, base.to).map_err(|error| failed(increment, &error, ANEW)),
        false => Ok(()),
    }
}

fn failed(dir: &Path, error: &dyn std::fmt::Display, next: &'static str) -> BackupError {
    let error = BackupError::of_target(dir, error.to_string());
    error.or_full(dir, next)
}

/// Empties the directories of increments whose pages are in their places: what is removed before a sync need not be
/// written to the disk. The directories stay: they show that the target is half prepared, and the program, which is at
/// work, removes folders that are empty.
///
/// # Errors
/// [`BackupError::Restore`].
pub(super) fn empty(increments: &[PathBuf]) -> Result<(), BackupError> {
    let remove = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path()),
            false => std::fs::remove_file(entry.path()),
        }
    };
    increments.iter().try_for_each(|folder| {
        let emptied = std::fs::read_dir(folder).and_then(|mut all| all.try_for_each(remove));
        emptied.map_err(|error| {
            let (target, what) = (folder.display().to_string(), error.to_string());
            BackupError::Restore { target, what }
        })
    })
}

/// Removes the increments of a chain, which are applied, and what is left of a merge that never began.
pub(crate) fn remove_increments(target: &Path) -> Result<(), BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    discard(target).map_err(|error| failed(format!("cannot remove .xb-merge: {error}")))?;
    let removed = or_none(std::fs::remove_dir_all(target.join(INCREMENTS)));
    removed.map(drop).map_err(|error| failed(format!("{INCREMENTS}: {error}")))
}
