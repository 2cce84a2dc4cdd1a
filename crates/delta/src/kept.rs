//! State that a merge keeps beside the data, so that another run can finish it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Folder of the base in which the merge keeps its plan, and tablespaces until they get their new names.
const FOLDER: &str = ".xb-merge";
const PLAN: &str = "plan";
/// The plan while it is written.
const NEW: &str = "new";
/// Mark that no file of the base has its old name any more.
const ASIDE: &str = "aside";
/// Most bytes of a plan that are read: enough for millions of tablespaces.
const MAX_PLAN: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct PendingMerge<P> {
    of: String,
    plan: P,
}

/// Keeps a plan in the directory of its base until the merge is done, and `of`, which says whose it is. A merge that
/// is interrupted behind this can be finished: see [`interrupted`].
///
/// # Errors
/// If it cannot be written, or the folder for it is another user's.
pub fn keep(plan: &Plan, of: &str) -> io::Result<()> {
    let text = serde_json::to_vec(&PendingMerge { of: of.to_owned(), plan })?;
    let folder = folder(&plan.base);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => drop(open_folder(&folder)?),
        made => made?,
    }
    let new = folder.join(NEW);
    std::fs::write(&new, text)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(new, folder.join(PLAN))
}

/// The plan of a merge in `base` that was kept for `of`, and interrupted. [`merge`](crate::merge) finishes it, as long
/// as the system was not started again. A plan that another user may have written is none, and so is one that leads
/// out of `base`.
#[must_use]
pub fn interrupted(base: &Path, of: &str) -> Option<Plan> {
    let kept = read(base).ok()?;
    (kept.of == of && kept.plan.is_within(base)).then_some(kept.plan)
}

fn read(base: &Path) -> io::Result<PendingMerge<Plan>> {
    let folder = open_folder(&folder(base))?;
    // Non-blocking: opening a pipe without a writer would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let plan = openat(&folder, PLAN, flags, Mode::empty())?;
    refuse_foreign(&plan)?;
    let mut text = Vec::new();
    if File::from(plan).take(MAX_PLAN + 1).read_to_end(&mut text)? as u64 > MAX_PLAN {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(serde_json::from_slice(&text)?)
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    refuse_foreign(&folder)?;
    Ok(folder)
}

fn refuse_foreign(file: impl AsFd) -> io::Result<()> {
    match fstat(file)?.st_uid == geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{FOLDER} belongs to another user; remove it"))),
    }
}

/// Returns whether `base` holds a merge that was kept and interrupted, of whichever restore.
///
/// # Errors
/// If that cannot be found out.
pub fn is_interrupted(base: &Path) -> io::Result<bool> {
    folder(base).join(PLAN).try_exists()
}

/// Returns the path at which the tablespace of this number waits for its new name.
pub(crate) fn waiting(base: &Path, number: usize) -> PathBuf {
    folder(base).join(number.to_string())
}

pub(crate) fn are_aside(base: &Path) -> io::Result<bool> {
    folder(base).join(ASIDE).try_exists()
}

pub(crate) fn mark_aside(base: &Path) -> io::Result<()> {
    std::fs::write(folder(base).join(ASIDE), "")
}

/// Removes what a run has left that was ended before it had kept its plan.
///
/// # Errors
/// If it cannot be removed.
pub fn discard(base: &Path) -> io::Result<()> {
    if is_interrupted(base)? {
        return Ok(());
    }
    match xb_files::exists(&folder(base))? {
        true => remove(base),
        false => Ok(()),
    }
}

/// Removes the folder, which has no tablespace any more.
pub(crate) fn remove(base: &Path) -> io::Result<()> {
    // Not through a link, which would lead to files of something else.
    let opened = open_folder(&folder(base))?;
    // Without the plan, no run continues.
    for name in [PLAN, NEW, ASIDE] {
        match unlinkat(&opened, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    std::fs::remove_dir(folder(base))
}

pub(crate) fn folder(base: &Path) -> PathBuf {
    base.join(FOLDER)
}
