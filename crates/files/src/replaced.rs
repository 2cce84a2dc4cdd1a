//! Files that are written whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Permissions of a file that was not there: its owner and group may read it.
const NEW: u32 = 0o640;

/// Replaces a file, durably: a reader finds the old content or the new one, and so does who comes after an interruption. It gets the
/// permissions of the old one.
///
/// # Errors
/// If it cannot be written.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mode = path.metadata().map_or(NEW, |meta| meta.permissions().mode() & 0o777);
    let mut file = tempfile::Builder::new().prefix(".xb-").tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        replace_file(&path, b"new").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), mode()), (b"new".to_vec(), NEW));
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        replace_file(&path, b"newer").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), mode()), (b"newer".to_vec(), 0o600));
        assert!(replace_file(&path.join("below"), b"").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
