//! Writes that no program syncs one by one: one sync at the end, which must see every error.
//!
//! The kernel reports a failed write of its cache only to descriptors that were open before. So a
//! descriptor of each file system is opened first and synced last: an error in between is not lost,
//! whichever program made the write, and even if it has ended since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::BackupError;
use crate::small_file::read_small;

/// The first Linux whose `syncfs` reports failed writes.
const REPORTS_ERRORS: (u32, u32) = (5, 8);
/// Magic numbers of file systems for which `syncfs` was found to write everything and to report
/// errors, as `statfs` returns them: ext2 to ext4, xfs, btrfs, and tmpfs, which writes nothing.
/// Overlays and network file systems do not report all of them.
const KNOWN: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// Descriptors of the file systems below a directory.
#[derive(Debug)]
pub(super) struct WriteBack(BTreeMap<u64, (PathBuf, File)>);

impl WriteBack {
    /// Opens a descriptor of each file system that holds files below `dir`, or to which a link there
    /// leads. `None` if not each of them is known to report errors: then a program must sync its
    /// files itself.
    pub(super) fn watch(dir: &Path) -> Option<Self> {
        if kernel() < Some(REPORTS_ERRORS) {
            return None;
        }
        let mut this = Self(BTreeMap::new());
        this.add(dir, &std::fs::metadata(dir).ok()?)?;
        let (mut seen, mut dirs) = (BTreeSet::new(), vec![dir.to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).ok()? {
                let entry = entry.ok()?;
                let (path, kind) = (entry.path(), entry.file_type().ok()?);
                let is_link_file = path.extension().is_some_and(|extension| extension == "isl");
                // A plain file is where its directory is, and there may be many.
                if kind.is_file() && !is_link_file {
                    continue;
                }
                // The target of a symbolic link; one that leads nowhere is not written to.
                let Ok(meta) = std::fs::metadata(&path) else { continue };
                this.add(&path, &meta)?;
                if meta.is_dir() && seen.insert((meta.dev(), meta.ino())) {
                    dirs.push(path);
                } else if is_link_file {
                    // The path of a tablespace elsewhere.
                    let place = PathBuf::from(read_small(&path)?.trim());
                    if let Ok(meta) = std::fs::metadata(&place) {
                        this.add(&place, &meta)?;
                    }
                }
            }
        }
        Some(this)
    }

    fn add(&mut self, path: &Path, meta: &Metadata) -> Option<()> {
        let is_openable = meta.is_dir() || meta.is_file();
        if is_openable && !self.0.contains_key(&meta.dev()) {
            let file = File::open(path).ok()?;
            let kind = u64::try_from(rustix::fs::fstatfs(&file).ok()?.f_type).ok()?;
            if !KNOWN.contains(&kind) {
                return None;
            }
            self.0.insert(meta.dev(), (path.to_owned(), file));
        }
        Some(())
    }

    /// Syncs the file systems.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if anything that was written to one of them since [`WriteBack::watch`]
    /// may not be on its disk.
    pub(super) fn sync(&self) -> Result<(), BackupError> {
        for (path, file) in self.0.values() {
            rustix::fs::syncfs(file).map_err(|error| BackupError::Restore {
                target: path.display().to_string(),
                what: format!(
                    "the disk did not store everything that was written: {}; check the disk and the system log, and restore again to another directory",
                    std::io::Error::from(error)
                ),
            })?;
        }
        Ok(())
    }
}

/// Version of the running kernel.
fn kernel() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use xb_testkit::short_disk::ShortDisk;

    use super::*;

    #[test]
    fn an_error_of_the_disk_is_seen_although_another_program_wrote_and_has_ended() {
        let Some(disk) = ShortDisk::mount(16) else {
            xb_testkit::skipped("this user cannot mount a file system on a loop device");
            return;
        };
        // The short disk is found below a directory of another file system.
        let above = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(disk.path(), above.path().join("undo")).unwrap();
        let Some(watch) = WriteBack::watch(above.path()) else {
            xb_testkit::skipped("the directory for temporary files is on another file system");
            return;
        };
        assert!(watch.0.len() > 1);
        std::fs::write(disk.path().join("fits"), vec![1; 1 << 20]).unwrap();
        watch.sync().unwrap();
        let big = disk.path().join("big");
        let of = format!("of={}", big.display());
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/urandom", &of, "bs=1M", "count=30", "status=none"]);
        assert!(dd.status().unwrap().success());
        // A sync in between, such as another program's, sees the error; whoever opens after that and
        // syncs does not.
        let mut sync = Command::new("sync");
        assert!(!sync.arg("-f").arg(&big).output().unwrap().status.success());
        rustix::fs::syncfs(File::open(disk.path()).unwrap()).unwrap();
        let error = watch.sync().unwrap_err().to_string();
        assert!(error.contains("did not store everything") && error.contains("undo"), "{error}");
    }

    #[test]
    fn only_file_systems_that_report_errors_are_trusted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "x").unwrap();
        if let Some(watch) = WriteBack::watch(dir.path()) {
            watch.sync().unwrap();
        }
        std::fs::write(dir.path().join("t.isl"), "/proc/version\n").unwrap();
        assert!(WriteBack::watch(dir.path()).is_none());
        assert!(WriteBack::watch(Path::new("/proc/sys")).is_none());
        assert!(kernel() > Some((2, 0)));
    }
}
