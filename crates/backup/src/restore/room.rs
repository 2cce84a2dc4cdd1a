//! Space that the files of a backup need, and whether it is free.

use std::path::Path;

use xb_repo::chain::Link;
use xb_repo::error::RepoError;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::records;
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::full_disk::free_bytes;
use crate::read::find::Objects;

/// Refuses early a command that would end with a full disk.
///
/// # Errors
/// [`BackupError::FullDisk`] with `next`, the next step.
pub(crate) fn check_room(
    target: &Path,
    needed: u64,
    next: &'static str,
) -> Result<(), BackupError> {
    if let Some(free) = free_for(target).filter(|free| *free < needed) {
        let what = format!("the files need about {needed} bytes, but only {free} are free");
        return Err(BackupError::FullDisk { dir: target.display().to_string(), what, next });
    }
    Ok(())
}

/// Returns a warning if a chain has room, but maybe not for what its increments add to the files of the full backup, where
/// both are for a while. How much that is only its pages tell: at least nothing, at most all of the increments. So it is
/// no reason to refuse a restore. `streams`: bytes of each backup, the full one first; `beside`: bytes that are
/// written beside them.
pub(crate) fn doubtful_room(target: &Path, streams: &[u64], beside: u64) -> Option<String> {
    let [full, increments @ ..] = streams else { return None };
    let added = increments.iter().copied().fold(0, u64::saturating_add);
    let sure = full.saturating_add(added).saturating_add(beside);
    let most = sure.saturating_add(added);
    let free = free_for(target).filter(|free| (sure..most).contains(free))?;
    Some(format!(
        "the disk of {} may run full: the chain needs {sure} bytes, and up to {added} more while its increments are applied; {free} are free",
        target.display()
    ))
}

/// Bytes that are free where `target` is or will be, if the file system tells.
fn free_for(target: &Path) -> Option<u64> {
    free_bytes(target.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/")))
}

/// Room for the files of a restore. Sizes are in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) target: &'a Path,
    /// What is written beside the files.
    pub(super) beside: u64,
    /// What an earlier run has written.
    pub(super) there: u64,
    /// Whether all files are wanted.
    pub(super) all: bool,
    /// Whether files are decompressed.
    pub(super) decompress: bool,
}

impl Room<'_> {
    /// Refuses a restore that would end with a full disk, as far as it is known what it still has to write.
    ///
    /// # Errors
    /// [`BackupError::FullDisk`]; [`RepoError::Store`].
    pub(super) async fn check(
        self,
        root: &Root,
        name: &BackupName,
        objects: &Objects,
    ) -> Result<(), BackupError> {
        let whole = match objects.manifest().filter(|_| self.all) {
            Some(manifest) if self.decompress && manifest.compressed_files.is_some() => {
                Some(unpacked(root, name, manifest).await?)
            }
            // The objects that are left to read may be compressed or encrypted.
            Some(manifest) if matches!(objects, Objects::Classic(..)) => {
                Some(manifest.stream_bytes)
            }
            _ => None,
        };
        let needed = match whole {
            Some(whole) => Some(whole.saturating_sub(self.there)),
            None => objects.stream_bytes(),
        };
        let needed = needed.map(|bytes| bytes.saturating_add(self.beside));
        needed.map_or(Ok(()), |bytes| check_room(self.target, bytes, MAKE_ROOM))
    }
}

const MAKE_ROOM: &str =
    "make room there, or add --no-space-check if holes in the files will save enough";

/// Bytes of the files of all these backups once they are decompressed.
///
/// # Errors
/// [`RepoError::Store`].
pub(crate) async fn all_unpacked(root: &Root, links: &[Link]) -> Result<u64, RepoError> {
    let mut needed: u64 = 0;
    for link in links {
        let more = unpacked(root, &link.name, &link.stored.manifest).await?;
        needed = needed.saturating_add(more);
    }
    Ok(needed)
}

/// Bytes of the files of a backup once they are decompressed. If files in it are compressed and it was
/// not verified, only the bytes of its stream are known.
///
/// # Errors
/// [`RepoError::Store`].
pub(crate) async fn unpacked(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
) -> Result<u64, RepoError> {
    let stream = manifest.stream_bytes;
    if manifest.compressed_files.is_none() {
        return Ok(stream);
    }
    let Some(stored) = root.stored_manifest(name).await? else { return Ok(stream) };
    let verified = match records::results(root, name, &stored.digest(), None).await {
        Err(error) if error.is_of_one_object() => return Ok(stream),
        verified => verified?,
    };
    let known = verified.results.iter().filter_map(|result| result.unpacked_bytes).max();
    Ok(known.unwrap_or_default().max(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_may_fit_is_not_refused() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("not/yet/there");
        let free = free_for(&target).unwrap();
        let half = free / 2;
        let refused = |needed| check_room(&target, needed, "").is_err();
        // Other programs write to this disk, too.
        assert!(!refused(half) && refused(free * 2));
        let warns = |streams: &[u64], beside| doubtful_room(&target, streams, beside).is_some();
        assert!(!warns(&[], 0) && !warns(&[half], 0) && !warns(&[half, free / 8], 0));
        assert!(warns(&[free / 4, free / 4, free / 4], 0) && warns(&[free / 4, half], 0));
        assert!(warns(&[free / 8, free * 3 / 8], free * 3 / 8));
        // A restore that is refused anyway gives no warning.
        assert!(!warns(&[free * 2, 1], 0));
    }
}
