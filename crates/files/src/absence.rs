//! Absence of a file, told from an error.
//!
//! A directory that cannot be looked into, or a disk that fails, must not count as an empty place: old data would be
//! overwritten, or a journal forgotten. Whoever asks whether something is there asks here.

use std::io;
use std::path::Path;

/// Returns what was found, or `None` if there was nothing of the name.
///
/// # Errors
/// Every other error stays one.
pub fn or_none<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether there is such an entry, of any kind. A link that leads nowhere is one.
///
/// # Errors
/// If that cannot be found out.
pub fn exists(path: &Path) -> io::Result<bool> {
    Ok(or_none(path.symlink_metadata())?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absent_entry_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        assert!(!exists(&file).unwrap());
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(exists(&file).unwrap() && exists(&link).unwrap());
        // ENOTDIR: a path through a file is a mistake, and no absence.
        assert!(exists(&file.join("below")).is_err());
        assert_eq!(or_none(std::fs::read(&file)).unwrap().unwrap(), b"text");
        assert!(or_none(std::fs::read(folder.path())).is_err());
        assert!(or_none(std::fs::read(folder.path().join("gone"))).unwrap().is_none());
    }
}
