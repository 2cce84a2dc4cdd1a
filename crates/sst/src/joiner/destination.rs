//! Destination of received files: `#sql-xb/.new` of the data directory, and for some kinds
//! `#sql-xb/.new` of their own directory outside. While the backup is prepared, links beside the other files lead there.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind::{InvalidInput, NotFound};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use xb_pipeline::ExtractCause;
use xb_reader::{RelPath, TargetDir, TargetError};

use crate::contract::args::Product;
use crate::contract::datadir::{Kind, KindDir, Layout};
use crate::error::SstError;
use crate::swap::{NEW, WORK_DIR};

/// Suffixes of files that the backup program has compressed.
const COMPRESSED: [&[u8]; 3] = [b".qp", b".lz4", b".zst"];

/// Directories of received files.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    /// The directory of all files that are not placed elsewhere.
    pub(super) new: PathBuf,
    placed: Vec<KindDir>,
}

impl Destination {
    /// The redo log is not placed: preparing consumes it. Nor is anything of Percona's server, which is started on the
    /// received data before the swap.
    pub(super) fn of(layout: &Layout, product: Product) -> Self {
        let is_placed = |place: &&KindDir| {
            matches!(place.kind, Kind::Data(_) | Kind::Undo | Kind::Aria)
                && product == Product::MariaDb
        };
        let placed = layout.outside.iter().filter(is_placed).cloned().collect();
        Self { new: staging(&layout.datadir), placed }
    }

    /// Returns whether files of this kind are received where they belong.
    pub(super) fn places(&self, kind: &Kind) -> bool {
        self.placed.iter().any(|place| place.kind == *kind)
    }

    /// Directories of the kinds that are received where they belong.
    pub(super) fn dirs_of(&self, wanted: impl Fn(&Kind) -> bool) -> impl Iterator<Item = PathBuf> {
        let places = self.placed.iter().filter(move |place| wanted(&place.kind));
        places.map(|place| staging(&place.dir))
    }

    /// Directories that receive files, each once.
    fn dirs(&self) -> BTreeSet<&Path> {
        self.placed.iter().map(|place| place.dir.as_path()).collect()
    }

    /// Opens the directories; `modes` sets the modes of new files.
    ///
    /// # Errors
    /// If a directory cannot be opened.
    pub(super) fn open(
        &self,
        modes: impl Fn(TargetDir) -> TargetDir,
    ) -> Result<TargetDir, TargetError> {
        let mut target = modes(TargetDir::open(&self.new)?);
        for dir in self.dirs() {
            let here = self.placed.iter().filter(|place| place.dir == dir);
            let kinds: Vec<Kind> = here.map(|place| place.kind.clone()).collect();
            let other = modes(TargetDir::open(&staging(dir))?);
            target = target.with_elsewhere(other, move |name| {
                let plain = COMPRESSED.iter().find_map(|suffix| name.strip_suffix(*suffix));
                let name = OsStr::from_bytes(plain.unwrap_or(name));
                kinds.iter().any(|kind| kind.has(name))
            });
        }
        Ok(target)
    }

    /// Returns the directory in which a file could not be written.
    pub(super) fn dir_of_failure(&self, cause: &ExtractCause) -> PathBuf {
        let file = match cause {
            ExtractCause::Target { source, .. } => source.path(),
            _ => None,
        };
        let name = file.map_or(&b""[..], RelPath::as_bytes);
        let placed = self.placed.iter().find(|place| place.kind.has(OsStr::from_bytes(name)));
        placed.map_or_else(|| self.new.clone(), |place| staging(&place.dir))
    }

    /// Runs `prepare` while `new` has links to the files that were received elsewhere, and while the system writes the
    /// received files to disk.
    ///
    /// # Errors
    /// The error of `prepare`; or if a link cannot be created, a file cannot be removed, or the files cannot be written.
    pub(super) fn prepare_with(
        &self,
        prepare: impl FnOnce() -> Result<(), SstError>,
    ) -> Result<(), SstError> {
        let syncing = std::thread::spawn({
            let new = self.new.clone();
            move || sync(&new)
        });
        self.link()?;
        prepare()?;
        self.unlink()?;
        syncing.join().unwrap_or(Ok(()))
    }

    fn link(&self) -> Result<(), SstError> {
        for (name, path) in self.received()? {
            let link = self.new.join(name);
            symlink(&path, &link).map_err(SstError::io("create the link", link))?;
        }
        Ok(())
    }

    /// Removes the links from `new`. A received file whose link is gone was removed or replaced by the backup program,
    /// and is removed.
    fn unlink(&self) -> Result<(), SstError> {
        for (name, path) in self.received()? {
            let link = self.new.join(name);
            let gone = match std::fs::read_link(&link) {
                Ok(target) if target == path => link,
                Ok(_) => path,
                // There is nothing, or no link.
                Err(error) if matches!(error.kind(), NotFound | InvalidInput) => path,
                Err(error) => return Err(SstError::io("read the link", link)(error)),
            };
            std::fs::remove_file(&gone).map_err(SstError::io("remove", gone))?;
        }
        Ok(())
    }

    /// Names and paths of the files that were received where they belong.
    fn received(&self) -> Result<Vec<(OsString, PathBuf)>, SstError> {
        let mut files = Vec::new();
        for dir in self.dirs().into_iter().map(staging) {
            for entry in std::fs::read_dir(&dir).map_err(SstError::io("list", &dir))? {
                let entry = entry.map_err(SstError::io("list", &dir))?;
                files.push((entry.file_name(), entry.path()));
            }
        }
        Ok(files)
    }
}

fn staging(dir: &Path) -> PathBuf {
    dir.join(WORK_DIR).join(NEW)
}

/// Writes to disk what is in the file system of a directory.
///
/// # Errors
/// If the directory cannot be opened or synced.
pub(super) fn sync(folder: &Path) -> Result<(), SstError> {
    let failed = || SstError::io("sync", folder);
    let dir = std::fs::File::open(folder).map_err(failed())?;
    rustix::fs::syncfs(&dir).map_err(|error| failed()(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was received is removed only where it is known that preparing has replaced it.
    #[test]
    fn a_link_that_cannot_be_read_costs_no_received_file() {
        let scratch = tempfile::tempdir().unwrap();
        let [new, home] = ["new", "home"].map(|name| scratch.path().join(name));
        let kind = Kind::Data(Vec::new());
        let placed = vec![KindDir { kind, dir: home.clone() }];
        let destination = Destination { new: new.clone(), placed };
        let received = staging(&home).join("ibdata1");
        std::fs::create_dir_all(staging(&home)).unwrap();
        std::fs::write(&received, "").unwrap();
        symlink("new", &new).unwrap();
        let error = destination.unlink().map_err(|error| error.to_string()).unwrap_err();
        assert!(error.contains("new/ibdata1"), "{error}");
        assert!(received.exists());
        // The link is there; gone; and a file is in its place.
        std::fs::remove_file(&new).unwrap();
        std::fs::create_dir(&new).unwrap();
        symlink(&received, new.join("ibdata1")).unwrap();
        destination.unlink().unwrap();
        assert!(received.exists() && !new.join("ibdata1").exists());
        destination.unlink().unwrap();
        assert!(!received.exists());
        std::fs::write(&received, "").unwrap();
        std::fs::write(new.join("ibdata1"), "").unwrap();
        destination.unlink().unwrap();
        assert!(!received.exists() && new.join("ibdata1").exists());
    }
}
