//! What a merge keeps beside the data, so that another run can finish it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Folder of the base in which the merge keeps its plan, and tablespaces until they get their new names.
const FOLDER: &str = ".xb-merge";
const PLAN: &str = "plan";
/// Mark that no file of the base has its old name any more.
const ASIDE: &str = "aside";

#[derive(Serialize, Deserialize)]
struct Kept<P> {
    of: String,
    plan: P,
}

/// Keeps a plan in the directory of its base until the merge is done, and `of`, which says whose it is. A merge that
/// is interrupted behind this can be finished: see [`interrupted`].
///
/// # Errors
/// If it cannot be written.
pub fn keep(plan: &Plan, of: &str) -> io::Result<()> {
    let text = serde_json::to_vec(&Kept { of: of.to_owned(), plan })?;
    let folder = folder(&plan.base);
    std::fs::create_dir_all(&folder)?;
    let new = folder.join("new");
    std::fs::write(&new, text)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(new, folder.join(PLAN))
}

/// The plan of a merge in `base` that was kept for `of`, and interrupted. [`merge`](crate::merge) finishes it, as long
/// as the system was not started again.
#[must_use]
pub fn interrupted(base: &Path, of: &str) -> Option<Plan> {
    let text = std::fs::read(folder(base).join(PLAN)).ok()?;
    let kept: Kept<Plan> = serde_json::from_slice(&text).ok()?;
    (kept.of == of && kept.plan.base == base).then_some(kept.plan)
}

/// Whether `base` holds a merge that was kept and interrupted, of whichever restore.
#[must_use]
pub fn is_interrupted(base: &Path) -> bool {
    folder(base).join(PLAN).exists()
}

/// Where the tablespace of this number waits for its new name.
pub(crate) fn waiting(base: &Path, number: usize) -> PathBuf {
    folder(base).join(number.to_string())
}

pub(crate) fn are_aside(base: &Path) -> bool {
    folder(base).join(ASIDE).exists()
}

pub(crate) fn mark_aside(base: &Path) -> io::Result<()> {
    std::fs::write(folder(base).join(ASIDE), "")
}

/// Removes the folder, which has no tablespace any more.
pub(crate) fn remove(base: &Path) -> io::Result<()> {
    let folder = folder(base);
    // Without the plan, no run continues.
    for name in [PLAN, ASIDE] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::remove_dir(folder)
}

pub(crate) fn folder(base: &Path) -> PathBuf {
    base.join(FOLDER)
}
