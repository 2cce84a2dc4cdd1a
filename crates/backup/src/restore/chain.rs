//! Makes the restored backups of a chain ready to be prepared.

use std::path::{Path, PathBuf};

use xb_delta::{Checkpoints, Error, Unfit, merge, plan, restate_from};

use crate::child::OnLine;
use crate::error::BackupError;
use crate::session::Session;

/// How the increments of a chain are applied.
pub(crate) enum Way {
    /// They were, in one pass.
    Merged,
    /// One by one, by the program: a merge is not known to be right.
    OneByOne(Unfit),
}

/// Merges the increments into the full backup in `dir`, if that is known to be right, and tells what it did.
/// With `is_durable`, the files are on their disks then.
///
/// # Errors
/// [`BackupError::Restore`]: the directory is of no use then. [`BackupError::Interrupted`].
pub(crate) fn merge_chain(
    session: &Session,
    (dir, increments): (&Path, &[PathBuf]),
    is_durable: bool,
    talk: &OnLine,
) -> Result<Way, BackupError> {
    let cancel = &session.cancel;
    let done = tokio::task::block_in_place(|| {
        let plan = plan(dir, increments);
        plan.map(|plan| merge(&plan, is_durable, || cancel.signal().is_some()))
    });
    match done {
        Err(unfit) => Ok(Way::OneByOne(unfit)),
        Ok(Ok(merged)) => {
            let count = increments.len();
            let text = format!(
                "increments applied in one pass: {count}; {} pages of {} written, {} tablespaces",
                merged.written, merged.pages, merged.spaces
            );
            talk(text.as_bytes());
            Ok(Way::Merged)
        }
        Ok(Err(Error::Cancelled)) => {
            Err(BackupError::Interrupted(cancel.signal().unwrap_or_default()))
        }
        Ok(Err(error)) => Err(failed(dir, &error)),
    }
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
        true => restate_from(increment, base.to).map_err(|error| failed(increment, &error)),
        false => Ok(()),
    }
}

fn failed(dir: &Path, error: &dyn std::fmt::Display) -> BackupError {
    BackupError::Restore { target: dir.display().to_string(), what: error.to_string() }
}
