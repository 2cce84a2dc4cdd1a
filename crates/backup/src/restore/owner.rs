//! Ownership of restored files.

use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchown, fstat, openat,
    statat,
};
use rustix::io::Errno;
use xb_files::LOST_AND_FOUND;
use xb_process::{Program, capture};

use crate::error::BackupError;

/// Flags for opening a directory.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Longest entry of a system table, in bytes. That of a group lists its members.
const MAX_ENTRY: usize = 1 << 20;
/// Time limit for a directory service to name a user or a group.
const LOOKUP_LIMIT: Duration = Duration::from_secs(60);

/// Owner of restored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User ID.
    pub user: u32,
    /// Group ID.
    pub group: u32,
}

/// A text that names no owner.
#[derive(Debug, thiserror::Error)]
#[error("there is no {what} `{name}`")]
pub struct UnknownOwner {
    what: &'static str,
    name: String,
}

impl FromStr for Owner {
    type Err = UnknownOwner;

    /// Parses `USER[:GROUP]`, as names or numbers; the default group is the user's own.
    fn from_str(text: &str) -> Result<Self, UnknownOwner> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let unknown = |what, name: &str| UnknownOwner { what, name: name.to_owned() };
        let entry = lookup("passwd", user);
        let number = |field: usize| entry.as_ref()?.split(':').nth(field)?.parse::<u32>().ok();
        let user_id =
            number(2).or_else(|| user.parse().ok()).ok_or_else(|| unknown("user", user))?;
        let group = match group {
            None => number(3).ok_or_else(|| unknown("group of the user", user))?,
            Some(group) => lookup("group", group)
                .and_then(|entry| entry.split(':').nth(2)?.parse().ok())
                .or_else(|| group.parse().ok())
                .ok_or_else(|| unknown("group", group))?,
        };
        Ok(Self { user: user_id, group })
    }
}

/// Looks up a name or number in a system table. `getent` also reads directory services.
fn lookup(table: &str, name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with('-') {
        return None;
    }
    let program = Program::new("getent").args([table, name]).unguarded();
    let mut answer = vec![0; MAX_ENTRY];
    if let Ok(len) = capture(program, None, &mut answer, LOOKUP_LIMIT) {
        answer.truncate(len);
        return String::from_utf8(answer).ok()?.lines().next().map(str::to_owned);
    }
    let text = std::fs::read_to_string(Path::new("/etc").join(table)).ok()?;
    text.lines().find(|line| line.split(':').next() == Some(name)).map(str::to_owned)
}

impl Owner {
    /// Owner of the files that root restores into `target`: that of the directory, or if root owns it or it does not exist, that of the
    /// directory above it.
    #[must_use]
    pub fn of_target(target: &Path) -> Option<Self> {
        Self::to_keep(target).or_else(|| Self::of_parent(target))
    }

    fn of_parent(target: &Path) -> Option<Self> {
        let target = std::path::absolute(target).ok()?;
        let meta = std::fs::metadata(target.parent()?).ok()?;
        Some(Self { user: meta.uid(), group: meta.gid() })
    }

    /// Owner of `target`, if root restores into a directory that belongs to another user: a server
    /// cannot use files that belong to root.
    pub(crate) fn to_keep(target: &Path) -> Option<Self> {
        let meta = std::fs::metadata(target).ok()?;
        let owner = Self { user: meta.uid(), group: meta.gid() };
        (rustix::process::geteuid().is_root() && owner.user != 0).then_some(owner)
    }

    /// Gives `dir` and everything in it to this owner. The path to `dir` may contain symbolic
    /// links; links below `dir` are not followed. The `lost+found` of a file system keeps its owner.
    ///
    /// # Errors
    /// [`BackupError::Restore`] with the first file whose owner cannot be changed.
    pub fn give(self, dir: &Path) -> Result<(), BackupError> {
        self.give_all(dir).map_err(|(path, error)| BackupError::Restore {
            target: dir.display().to_string(),
            what: format!(
                "cannot change the owner of {} to user {} and group {}: {error}",
                path.display(),
                self.user,
                self.group
            ),
        })
    }

    /// Changes the contents first and the directory last: the owner of a directory could replace an
    /// entry that is about to be entered.
    fn give_all(self, top: &Path) -> Result<(), (PathBuf, Errno)> {
        let failed = |error| (top.to_owned(), error);
        // The caller chose this path, so it may contain links.
        let dir = openat(CWD, top, FOLDER, Mode::empty()).map_err(failed)?;
        self.give_folder(&dir, top, true)
    }

    fn give_folder(self, dir: &OwnedFd, path: &Path, is_top: bool) -> Result<(), (PathBuf, Errno)> {
        let failed = |error| (path.to_owned(), error);
        for entry in Dir::read_from(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let is_foreign = is_top && name.to_bytes() == LOST_AND_FOUND.as_bytes();
            if [c".", c".."].contains(&name) || is_foreign {
                continue;
            }
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            self.give_entry(dir, name, &path)?;
        }
        let stat = fstat(dir).map_err(failed)?;
        if self.owns(&stat) {
            return Ok(());
        }
        let (user, group) = self.numbers();
        fchown(dir, user, group).map_err(failed)
    }

    fn give_entry(self, dir: &OwnedFd, name: &CStr, path: &Path) -> Result<(), (PathBuf, Errno)> {
        let failed = |error| (path.to_owned(), error);
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let flags = FOLDER.union(OFlags::NOFOLLOW);
            let folder = openat(dir, name, flags, Mode::empty()).map_err(failed)?;
            return self.give_folder(&folder, path, false);
        }
        if self.owns(&stat) {
            return Ok(());
        }
        let (user, group) = self.numbers();
        chownat(dir, name, user, group, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }

    fn owns(self, stat: &Stat) -> bool {
        (stat.st_uid, stat.st_gid) == (self.user, self.group)
    }

    fn numbers(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.user)), Some(Gid::from_raw(self.group)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_behind_a_link_is_given_with_all_in_it_and_links_in_it_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        let outside = dir.path().join("outside");
        std::fs::create_dir_all(real.join("shop")).unwrap();
        std::fs::write(real.join("shop/t.ibd"), "x").unwrap();
        std::fs::create_dir(real.join("lost+found")).unwrap();
        std::fs::write(&outside, "x").unwrap();
        symlink(&outside, real.join("shop/away")).unwrap();
        symlink(&real, &link).unwrap();
        let owner = Owner { user: 12345, group: 54321 };
        let of =
            |path: &Path| std::fs::metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
        let before = of(&outside);
        match owner.give(&link) {
            Ok(()) => {
                for path in [&real, &real.join("shop"), &real.join("shop/t.ibd")] {
                    assert_eq!(of(path), (12345, 54321), "{}", path.display());
                }
            }
            // Only root may change owners: without root, the deepest entry is the first to fail.
            Err(error) => {
                assert!(!rustix::process::geteuid().is_root(), "{error}");
                assert!(error.to_string().contains("link/shop/"), "{error}");
            }
        }
        assert_eq!(of(&outside), before);
        assert_eq!(of(&real.join("lost+found")), before);
    }

    #[test]
    fn names_and_numbers_are_owners() {
        for text in ["root", "root:root", "0:0", "0"] {
            let found = text.parse::<Owner>().unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(found, Owner { user: 0, group: 0 }, "{text}");
        }
        assert_eq!("12345:54321".parse::<Owner>().unwrap(), Owner { user: 12345, group: 54321 });
        for bad in ["", "no-such-user-here", "root:no-such-group", "--help", "54321"] {
            assert!(bad.parse::<Owner>().is_err(), "{bad}");
        }
    }
}
