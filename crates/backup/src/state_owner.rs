//! Owner of what is written into the state directory of a host.
//!
//! The administrator works as root, and the units as another user, in one directory. What root leaves in it must be of use to
//! them: a note that they cannot read is none, and in a folder that they cannot write to they keep no logs.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{FileType, OFlags};

/// Creates a folder with this mode, and those above it that are missing. Each belongs to the owner of the one above it if
/// root creates it.
///
/// # Errors
/// Any error of the system. A folder that exists is none.
pub fn create_state_folder(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = match folder.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    create_state_folder(above, mode)?;
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => return Ok(()),
        created => created?,
    }
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let opened = File::options().read(true).custom_flags(flags).open(folder)?;
    give_to_owner_of(above, &opened);
    Ok(())
}

/// Gives a file that this process has created in `folder` the folder's owner, if this process is root. It stays root's where
/// that is not allowed, as in a container without the right to, or in a directory of another host; and if it has another
/// name, because the owner of the folder may have made that: a file that existed must not be given away.
pub fn give_to_owner_of(folder: &Path, file: impl AsFd) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let is_plain = rustix::fs::fstat(&file).is_ok_and(|found| {
        let kind = FileType::from_raw_mode(found.st_mode);
        kind == FileType::Directory || kind == FileType::RegularFile && found.st_nlink == 1
    });
    if !is_plain {
        return;
    }
    if let Ok(of) = folder.metadata() {
        let _ = fchown(file, Some(of.uid()), Some(of.gid()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn what_root_creates_belongs_to_the_owner_of_the_folder() {
        if !rustix::process::geteuid().is_root() {
            return xb_testkit::skipped("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        chown(dir.path(), Some(65_533), Some(65_534)).unwrap();
        let deep = dir.path().join("one/two");
        create_state_folder(&deep, 0o700).unwrap();
        create_state_folder(&deep, 0o700).unwrap();
        give_to_owner_of(&deep, File::create(deep.join("file")).unwrap());
        for path in [&deep, &dir.path().join("one"), &deep.join("file")] {
            let there = path.metadata().unwrap();
            assert_eq!((there.uid(), there.gid()), (65_533, 65_534), "{}", path.display());
        }
        assert_eq!(deep.metadata().unwrap().mode() & 0o777, 0o700);
        // The owner of the folder has given a file of root's a second name there.
        std::fs::write(dir.path().join("of root"), "").unwrap();
        std::fs::hard_link(dir.path().join("of root"), deep.join("planted")).unwrap();
        give_to_owner_of(&deep, File::options().write(true).open(deep.join("planted")).unwrap());
        assert_eq!(dir.path().join("of root").metadata().unwrap().uid(), 0);
        std::fs::write(dir.path().join("plain"), "").unwrap();
        assert!(create_state_folder(&dir.path().join("plain"), 0o700).is_err());
        assert!(create_state_folder(&dir.path().join("plain/below"), 0o700).is_err());
    }
}
