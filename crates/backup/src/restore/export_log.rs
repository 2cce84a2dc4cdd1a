//! The redo log of an export.
//!
//! For `--export`, mariadb-backup starts a server on the files, with the settings that the backup
//! brought in `backup-my.cnf`. Its redo log stays when it has ended, and would be as large as that of
//! the origin: gigabytes for one table.

use std::path::{Path, PathBuf};

use crate::error::BackupError;

/// Size in bytes of the redo log that an export leaves, at the most.
pub(super) const EXPORT_LOG: u64 = 32 << 20;
const SETTINGS: &str = "backup-my.cnf";
const SIZE: &str = "innodb_log_file_size";

/// Settings with a smaller log, and what they were.
#[derive(Debug)]
pub(super) struct SmallLog {
    path: PathBuf,
    original: String,
}

impl SmallLog {
    /// Lowers the size of the log in the settings of the backup in `dir`. `None` if they state none
    /// that is larger.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if the file cannot be written.
    pub(super) fn set(dir: &Path) -> Result<Option<Self>, BackupError> {
        let path = dir.join(SETTINGS);
        let Ok(original) = std::fs::read_to_string(&path) else { return Ok(None) };
        let Some(lowered) = lowered(&original) else { return Ok(None) };
        write(&path, &lowered)?;
        Ok(Some(Self { path, original }))
    }

    /// Restores the settings of the origin.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if the file cannot be written.
    pub(super) fn undo(self) -> Result<(), BackupError> {
        write(&self.path, &self.original)
    }
}

fn write(path: &Path, text: &str) -> Result<(), BackupError> {
    std::fs::write(path, text).map_err(|error| BackupError::Restore {
        target: path.display().to_string(),
        what: format!("the size of the redo log cannot be set: {error}"),
    })
}

/// The settings with a smaller log, if theirs is larger.
fn lowered(settings: &str) -> Option<String> {
    let size = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim().replace('-', "_") == SIZE).then(|| value.trim().parse::<u64>().ok())?
    };
    let is_large = |line: &str| size(line).is_some_and(|size| size > EXPORT_LOG);
    if !settings.lines().any(is_large) {
        return None;
    }
    let lines = settings.lines().map(|line| match is_large(line) {
        true => format!("{SIZE}={EXPORT_LOG}\n"),
        false => format!("{line}\n"),
    });
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_log_is_lowered_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(SmallLog::set(dir.path()).unwrap().is_none());
        let path = dir.path().join(SETTINGS);
        let origin = "# x\n[mysqld]\ninnodb_log_file_size=4294967296\ninnodb_page_size=16384\n";
        std::fs::write(&path, origin).unwrap();
        let small = SmallLog::set(dir.path()).unwrap().unwrap();
        let now = std::fs::read_to_string(&path).unwrap();
        assert_eq!(now, origin.replace("4294967296", "33554432"));
        // Another run after this one was killed.
        assert!(SmallLog::set(dir.path()).unwrap().is_none());
        small.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), origin);
    }
}
