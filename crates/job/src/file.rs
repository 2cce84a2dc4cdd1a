//! Files that a reader never sees half written.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of the files: the reader is often another user, such as the exporter of the metrics.
const MODE: u32 = 0o644;

/// Replaces the file by `text` in one step. Durable when it returns.
///
/// # Errors
/// Those of the file system. Then the old file, if there was one, is unchanged.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".xb-").tempfile_in(folder(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Checks, before any work, that [`write_whole`] can create the file.
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
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_readable_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.prom");
        check_writable(&path).unwrap();
        write_whole(&path, "long text\n").unwrap();
        write_whole(&path, "new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn what_cannot_be_written_is_found_before_any_work() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_writable(&folder.path().join("missing/x")).is_err());
        assert!(check_writable(folder.path()).is_err());
    }
}
