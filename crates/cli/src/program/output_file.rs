//! Files that a program writes for others, who never see them half written.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The users who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Everyone: metrics are often read by another user, such as that of their exporter.
    Everyone,
    /// The owner only: the file has names of tables and places.
    Owner,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Self::Everyone => 0o644,
            Self::Owner => 0o600,
        }
    }
}

/// Replaces the file by `text` in one step. Durable when it returns.
///
/// # Errors
/// Any error of the file system. Then the old file, if there was one, is unchanged.
pub fn write_whole(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
    refuse_others_than_files(path)?;
    prepared(path, text.as_bytes(), readers)?.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Like [`write_whole`], but replaces nothing.
///
/// # Errors
/// Any error of the file system, also if there is a file of this name.
pub fn write_new(path: &Path, content: &[u8], readers: Readers) -> io::Result<()> {
    prepared(path, content, readers)?.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(())
}

/// The content in a file without a name of its own.
fn prepared(path: &Path, content: &[u8], readers: Readers) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(".xb-").tempfile_in(folder(path))?;
    file.write_all(content)?;
    file.as_file().set_permissions(Permissions::from_mode(readers.mode()))?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Checks, before any work, that [`write_whole`] can create the file.
///
/// # Errors
/// Any error of the file system.
pub fn check_writable(path: &Path) -> io::Result<()> {
    refuse_others_than_files(path)?;
    tempfile::Builder::new().prefix(".xb-").tempfile_in(folder(path)).map(drop)
}

/// A device such as `/dev/null`, and what a link to one leads to, must not become a file.
fn refuse_others_than_files(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if !there.is_file() => {
            Err(io::Error::other("it is a device, a pipe or a socket, which no file replaces"))
        }
        _ => Ok(()),
    }
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_for_its_readers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.prom");
        check_writable(&path).unwrap();
        for (readers, mode) in [(Readers::Everyone, 0o644), (Readers::Owner, 0o600)] {
            write_whole(&path, "long text\n", readers).unwrap();
            write_whole(&path, "new\n", readers).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn an_unwritable_output_is_found_before_any_work() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_writable(&folder.path().join("missing/x")).is_err());
        assert!(check_writable(folder.path()).is_err());
    }

    #[test]
    fn only_a_file_is_replaced() {
        use std::os::unix::fs::FileTypeExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (socket, link) = (folder.path().join("socket"), folder.path().join("link"));
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&socket, &link] {
            assert!(check_writable(path).is_err());
            assert!(write_whole(path, "text", Readers::Owner).is_err());
            assert!(path.metadata().unwrap().file_type().is_socket());
        }
    }
}
