//! The file of the page, which a reader never sees half written.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Replaces the file by `text` in one step, for this user only: the names of tables and places are
/// not everybody's business. Durable when it returns.
///
/// # Errors
/// Those of the file system. Then the old file, if there was one, is unchanged.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    // Temporary files have mode 0600.
    let mut file = tempfile::Builder::new().prefix(".xb-").tempfile_in(folder(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Checks, before any work, that the file can be created.
///
/// # Errors
/// Those of the file system.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    tempfile::Builder::new().prefix(".xb-").tempfile_in(folder(path)).map(drop)
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_page_is_replaced_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        check_writable(&path).unwrap();
        std::fs::write(&path, "old and longer").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left");
        assert!(check_writable(&folder.path().join("missing/x")).is_err());
        assert!(check_writable(folder.path()).is_err());
    }
}
