//! Mark of a finished restore: the same command, run again because its end was not seen, finds that
//! everything is done.
//!
//! The mark is an extended attribute of the target directory, which no server sees. It holds a
//! digest of the restored backup, its options and the place, and one of the names, lengths and
//! modification times of all files. So a directory that was changed, copied or moved to another
//! file system, or that may have lost writes in a crash, does not count.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use sha2::{Digest, Sha256};
use xb_files::is_lost_and_found;
use xb_repo::hex::hex;

use crate::read::request::GetRequest;
use crate::restore::choose::ChosenBackup;
use crate::restore::journal::head::{RestoreIdentity, place_of};
use crate::restore::request::{AfterRestore, RestoreOptions};

/// Name of the extended attribute.
const MARK: &str = "user.xbcloud-rs.restored";
/// Length of the mark in bytes: two digests, hexadecimal.
const LEN: usize = 128;
/// Names that a restore uses while it runs.
const WORK: [&str; 4] = [".xb-partial", ".xb-incremental", ".xb-merge", "#sql-xb-replay"];

/// Number and total size of the files below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Mark for one restore into one directory.
#[derive(Debug)]
pub(crate) struct FinishedMark {
    /// Description of the restored backup and its options.
    what: String,
}

impl FinishedMark {
    /// The mark by which a later run of the same command knows the finished restore of a chain; `None` if it has a
    /// backup without a manifest.
    pub(super) fn of_restore(
        links: &[ChosenBackup],
        request: &GetRequest,
        how: RestoreOptions,
        ready: &AfterRestore,
    ) -> Option<Self> {
        let files = request.files.text();
        let about = |link: &ChosenBackup| {
            Some(RestoreIdentity::new(link.manifest()?, !how.no_decompress, &files))
        };
        let chain: Option<Vec<RestoreIdentity>> = links.iter().map(about).collect();
        // A run that syncs does not sync pages again that one without has merged.
        let steps = format!(
            "{:?} alone {} galera {} sync {:?}",
            ready.prepare(),
            ready.alone,
            ready.galera,
            how.sync
        );
        Self::new(&chain?, &steps)
    }

    /// The mark for the backups of a chain; `how` describes what is done to their files.
    pub(crate) fn new(chain: &[RestoreIdentity], how: &str) -> Option<Self> {
        Some(Self { what: format!("{how}\n{}", serde_json::to_string(chain).ok()?) })
    }

    /// Marks `target` as finished. Best effort: without a mark, the next restore refuses the
    /// directory.
    pub(crate) fn mark(&self, target: &Path) {
        if let Some((mark, _)) = self.text(target) {
            let _ = setxattr(target, MARK, mark.as_bytes(), XattrFlags::empty());
        }
    }

    /// Number and size of the files in `target`, if it is as this restore left it.
    pub(crate) fn found(&self, target: &Path) -> Option<Totals> {
        let mut there = [0; LEN];
        let len = getxattr(target, MARK, &mut there[..]).ok()?;
        let (mark, totals) = self.text(target)?;
        (there.get(..len)? == mark.as_bytes()).then_some(totals)
    }

    /// Digest of the restore and the place: the same for each run of the same command, until the system
    /// is started again.
    pub(crate) fn id(&self, target: &Path) -> Option<String> {
        let place = format!("{}\n{}", place_of(target)?, self.what);
        Some(hex(&Sha256::digest(place)))
    }

    fn text(&self, target: &Path) -> Option<(String, Totals)> {
        let (content, totals) = content(target).ok()?;
        Some((format!("{}{content}", self.id(target)?), totals))
    }
}

/// Number and size of the files below `target`.
pub(crate) fn totals(target: &Path) -> Totals {
    content(target).map_or(Totals { files: 0, bytes: 0 }, |(_, totals)| totals)
}

/// Digest of the names, kinds, lengths and modification times of everything below `target`.
fn content(target: &Path) -> std::io::Result<(String, Totals)> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(target.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let is_work = || WORK.iter().any(|own| entry.file_name() == *own);
            if folder.as_os_str().is_empty() && (is_work() || is_lost_and_found(&entry)) {
                continue;
            }
            let meta = entry.metadata()?;
            if meta.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, meta));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let (mut digest, mut totals) = (Sha256::new(), Totals { files: 0, bytes: 0 });
    for (path, meta) in found {
        let name = path.as_os_str().as_bytes();
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update((meta.mode() & 0o170_000).to_le_bytes());
        if meta.is_file() {
            totals.files += 1;
            totals.bytes += meta.len();
            digest.update(meta.len().to_le_bytes());
            digest.update(meta.mtime().to_le_bytes());
            digest.update(meta.mtime_nsec().to_le_bytes());
        }
    }
    Ok((hex(&digest.finalize()), totals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_restore_of_an_unchanged_directory_counts() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        std::fs::create_dir_all(target.join("db")).unwrap();
        std::fs::write(target.join("db/t"), "content").unwrap();
        let (this, other) =
            (FinishedMark::new(&[], "a").unwrap(), FinishedMark::new(&[], "b").unwrap());
        assert_eq!(this.found(&target), None);
        this.mark(&target);
        if getxattr(&target, MARK, &mut [0; LEN][..]).is_err() {
            xb_testkit::skipped("this file system has no extended attributes");
            return;
        }
        let totals = Some(Totals { files: 1, bytes: 7 });
        assert_eq!((this.found(&target), other.found(&target)), (totals, None));
        // Remains of the run itself do not count.
        std::fs::create_dir(target.join(".xb-partial")).unwrap();
        std::fs::create_dir(target.join("lost+found")).unwrap();
        assert_eq!(this.found(&target), totals);
        let changes: [fn(&Path); 4] = [
            |target| std::fs::write(target.join("foreign"), "").unwrap(),
            |target| std::fs::write(target.join("db/t"), "CONTENT").unwrap(),
            |target| std::fs::remove_file(target.join("db/t")).unwrap(),
            |target| std::fs::create_dir(target.join("db2")).unwrap(),
        ];
        for change in changes {
            this.mark(&target);
            change(&target);
            assert_eq!(this.found(&target), None);
            std::fs::write(target.join("db/t"), "content").unwrap();
        }
        // The mark of another directory does not count, as after a copy.
        let copy = folder.path().join("copy");
        std::fs::rename(&target, &copy).unwrap();
        std::fs::create_dir(&target).unwrap();
        this.mark(&copy);
        let mut mark = [0; LEN];
        getxattr(&copy, MARK, &mut mark[..]).unwrap();
        setxattr(&target, MARK, &mark, XattrFlags::empty()).unwrap();
        assert_eq!(this.found(&target), None);
    }
}
