//! Whose the files are.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};

use crate::error::BackupError;

/// Who shall own restored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub user: u32,
    /// Number of the group.
    pub group: u32,
}

impl Owner {
    /// The owner of the folder in which `target` lies.
    #[must_use]
    pub fn of_parent(target: &Path) -> Option<Self> {
        let target = std::path::absolute(target).ok()?;
        let meta = std::fs::metadata(target.parent()?).ok()?;
        Some(Self { user: meta.uid(), group: meta.gid() })
    }

    /// Gives `dir` and all that is in it to this owner. No symbolic link is followed.
    ///
    /// # Errors
    /// [`BackupError::Restore`] with the first file that cannot be given away.
    pub fn give(self, dir: &Path) -> Result<(), BackupError> {
        self.give_one(dir).map_err(|(path, error)| BackupError::Restore {
            target: dir.display().to_string(),
            what: format!(
                "{path} cannot be given to user {} and group {}: {error}",
                self.user, self.group
            ),
        })
    }

    fn give_one(self, path: &Path) -> Result<(), (String, io::Error)> {
        let failed = |error: io::Error| (path.display().to_string(), error);
        let meta = std::fs::symlink_metadata(path).map_err(failed)?;
        if (meta.uid(), meta.gid()) != (self.user, self.group) {
            let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
            chownat(CWD, path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| failed(error.into()))?;
        }
        if meta.is_dir() {
            for entry in std::fs::read_dir(path).map_err(failed)? {
                self.give_one(&entry.map_err(failed)?.path())?;
            }
        }
        Ok(())
    }
}
