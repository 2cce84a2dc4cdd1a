//! Scratch directory of a private server.

use std::io::ErrorKind;
use std::path::Path;

use xb_process::Remover;

use crate::error::BackupError;
use crate::full_disk::ELSEWHERE;

/// A directory that is removed when it is dropped, and when this process is killed.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
    // After the directory.
    _remover: Option<Remover>,
}

impl Scratch {
    /// Creates a directory with a name that begins with `prefix` in `parent`, by default in that for
    /// temporary files.
    pub(crate) fn new(parent: Option<&Path>, prefix: &str) -> Result<Self, BackupError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let failed = |error: std::io::Error| {
            if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                let (dir, what) = (parent.display().to_string(), error.to_string());
                return BackupError::FullDisk { dir, what, next: ELSEWHERE };
            }
            let text = error.to_string();
            // `tempfile` adds the path, which the error names already.
            let cause = text.split(" at path ").next().unwrap_or(&text);
            let what = format!(
                "{cause}; name a directory that exists, and that this user can write to, with --scratch-dir"
            );
            BackupError::Restore { target: parent.display().to_string(), what }
        };
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(&parent).map_err(failed)?;
        let _remover = Remover::start(dir.path()).map_err(failed)?;
        Ok(Self { dir, _remover })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn close(self) -> std::io::Result<()> {
        self.dir.close()
    }
}
