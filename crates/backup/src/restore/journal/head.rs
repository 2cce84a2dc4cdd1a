//! Location of a journal, and its first line.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xb_reader::TargetDir;
use xb_repo::hex::hex;
use xb_repo::manifest::Manifest;

use crate::error::BackupError;

/// Name of the journal beside the unfinished files.
pub(super) const JOURNAL: &str = "journal";
/// Name of a journal that is being created.
pub(super) const NEW_JOURNAL: &str = "journal.new";

/// Names of the state of a clone that is restored, and of one that is being written.
pub(crate) const STATE: &str = "clone";
pub(crate) const NEW_STATE: &str = "clone.new";

/// Version of the journal format: version 1 had no checksums, version 2 no names of files that were taken back.
pub(super) const FORMAT: u32 = 3;

/// Path of the journal of a restore into `target`.
pub(super) fn path(target: &Path) -> PathBuf {
    TargetDir::kept_folder(target).join(JOURNAL)
}

/// Returns whether `target` holds an unfinished restore.
///
/// # Errors
/// If that cannot be found out.
pub fn is_unfinished(target: &Path) -> std::io::Result<bool> {
    path(target).try_exists()
}

/// Removes the files that a finished restore keeps for another run, as far as they still exist.
///
/// # Errors
/// [`BackupError::Restore`].
pub(crate) fn forget(target: &Path) -> Result<(), BackupError> {
    let failed =
        |what: String| BackupError::of_target(target, format!("cannot remove the journal: {what}"));
    if !TargetDir::has_unfinished(target).map_err(|error| failed(error.to_string()))? {
        return Ok(());
    }
    // Its folder goes with it.
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    folder.clear(|_| false).map_err(|error| failed(error.to_string()))?;
    // The state last: a journal alone would take patched files for damaged ones.
    [NEW_JOURNAL, JOURNAL, NEW_STATE, STATE]
        .iter()
        .try_for_each(|name| unlink(folder.unfinished(), name))
        .map_err(|error| failed(error.to_string()))
}

/// Removes a name if it exists.
pub(super) fn unlink(folder: BorrowedFd<'_>, name: &str) -> std::io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// Restore that a journal describes. A journal that describes another restore is not resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreIdentity {
    pub(super) format: u32,
    /// Name of the backup.
    pub(crate) name: String,
    pub(super) run: String,
    /// SHA-256 of its manifest.
    pub(super) manifest: String,
    /// Whether files are decompressed.
    pub(super) decompress: bool,
    /// Canonical text of the file selection.
    pub(super) files: String,
}

impl RestoreIdentity {
    pub(crate) fn new(manifest: &Manifest, decompress: bool, files: &str) -> Self {
        // The stored manifest may carry another key's authentication below the same content, so
        // only the content is hashed.
        let text = serde_json::to_vec(manifest).unwrap_or_default();
        Self {
            format: FORMAT,
            name: manifest.name.clone(),
            run: manifest.run.clone(),
            manifest: hex(&Sha256::digest(&text)),
            decompress,
            files: files.to_owned(),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) about: RestoreIdentity,
    pub(super) boot: String,
    /// Mount that holds the target.
    #[serde(default)]
    pub(super) mount: String,
}

/// Identifies the mount that holds the directory. The ID is unique since boot if the kernel
/// supports that (Linux 6.8); older kernels may reuse a mount's number.
pub(super) fn mount_id(folder: BorrowedFd<'_>) -> Option<String> {
    let unique = StatxFlags::from_bits_retain(0x4000);
    let wanted = StatxFlags::MNT_ID | unique;
    let there = statx(folder, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let system = fstatfs(folder).ok()?;
    Some(format!(
        "{:x}-{}-{}:{}-{:x}",
        there.stx_mask & wanted.bits(),
        there.stx_mnt_id,
        there.stx_dev_major,
        there.stx_dev_minor,
        system.f_type,
    ))
}

/// The directory itself, its mount and the boot of the system: writes to it were not lost since.
pub(crate) fn place_of(target: &Path) -> Option<String> {
    let folder = File::open(target).ok()?;
    let inode = rustix::fs::fstat(&folder).ok()?.st_ino;
    Some(format!("{} {} {inode}", boot_id()?, mount_id(folder.as_fd())?))
}

pub(super) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// For tests of what lies beside a journal.
#[cfg(test)]
pub(crate) fn tests_about(name: &str) -> RestoreIdentity {
    let text = String::new;
    let (run, manifest, files) = (text(), text(), text());
    RestoreIdentity {
        format: FORMAT,
        name: name.to_owned(),
        run,
        manifest,
        decompress: true,
        files,
    }
}
