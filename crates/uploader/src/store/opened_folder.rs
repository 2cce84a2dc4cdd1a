//! Whether the folder of a store is still the one that was opened. A disk that is unmounted leaves an empty folder of the same
//! path, and what a long run writes there is missing once the disk is back.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder of a store, as it was opened.
#[derive(Debug)]
pub(crate) struct OpenedFolder {
    path: PathBuf,
    id: FolderId,
}

/// What tells a folder from another one of the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FolderId {
    inode: u64,
    device: u64,
    /// When it was made, if the file system knows that.
    made: Option<SystemTime>,
}

impl FolderId {
    fn of(path: &Path) -> io::Result<Self> {
        let facts = fs::metadata(path)?;
        Ok(Self { inode: facts.ino(), device: facts.dev(), made: facts.created().ok() })
    }

    fn is(&self, other: &Self) -> bool {
        let (is_inode, is_device) = (self.inode == other.inode, self.device == other.device);
        match self.made.zip(other.made) {
            // A disk that was mounted again may have another number; a folder that was made anew may have the same inode.
            Some((one, two)) => is_inode && one == two,
            // Of a file system over a network: it may number its folders anew while it is used, and have another number itself once
            // it is mounted again. An empty folder in its place differs in both.
            None => is_inode || is_device,
        }
    }
}

impl OpenedFolder {
    /// Notes which folder this is.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: FolderId::of(path)? })
    }

    /// Returns why it is not the one that was opened; `None` if it is.
    pub(crate) fn lost(&self) -> Option<String> {
        let path = self.path.display();
        match FolderId::of(&self.path) {
            Ok(now) if self.id.is(&now) => None,
            Ok(_) => Some(format!(
                "{path} is another directory than the one that was opened: is its disk unmounted?"
            )),
            Err(error) => {
                Some(format!("{path}, which was opened, is away: is its disk unmounted? ({error})"))
            }
        }
    }
}
