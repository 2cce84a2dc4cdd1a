//! How far the restore of a clone has come, once its files are fetched.
//!
//! From then on they are changed in place, and no longer what the journal says of them. So a file beside the journal
//! says that nothing is compared and fetched again. It is written when everything that was fetched is on disk, unless
//! the restore syncs nothing: then it counts only as long as the system and the mount are the same.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use xb_reader::TargetDir;

use crate::restore::journal::head::{NEW_STATE, RestoreIdentity, STATE, place_of};
use crate::small_file::read_small;

/// Longest one, in bytes.
const MAX: u64 = 1 << 20;

/// How far the restore of a clone has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    about: RestoreIdentity,
    /// The place where it counts; `None` if everything was synced.
    place: Option<String>,
    /// Number of files that were fetched, and their bytes.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Whether the clone was put together: a server may have started on it.
    pub(crate) is_assembled: bool,
    /// Whether a server has started on it, and was not seen to stop cleanly.
    pub(crate) is_started: bool,
}

/// Returns whether `target` holds a clone whose files were fetched.
///
/// # Errors
/// If that cannot be found out.
pub(crate) fn is_fetched(target: &Path) -> std::io::Result<bool> {
    path(target).try_exists()
}

/// Returns whether a server has started on the clone in `target` and was not seen to stop: then nothing of it is used.
pub(crate) fn is_left_by_a_server(target: &Path) -> bool {
    let text = read_small(&path(target));
    let state = text.and_then(|text| serde_json::from_str::<State>(&text).ok());
    state.is_some_and(|state| state.is_started)
}

fn path(target: &Path) -> PathBuf {
    TargetDir::kept_folder(target).join(STATE)
}

impl State {
    /// The files of a clone were fetched. With `durable`, they are on disk.
    pub(crate) fn fetched(
        about: RestoreIdentity,
        target: &Path,
        durable: bool,
        files: u64,
        bytes: u64,
    ) -> Self {
        let place = if durable { None } else { Some(place_of(target).unwrap_or_default()) };
        Self { about, place, files, bytes, is_assembled: false, is_started: false }
    }

    /// Reads the state of a restore of this backup.
    ///
    /// # Errors
    /// A text that explains why the restore cannot be resumed.
    pub(crate) fn read(
        folder: &TargetDir,
        target: &Path,
        about: &RestoreIdentity,
    ) -> Result<Option<Self>, String> {
        let failed = |error: std::io::Error| {
            format!("cannot read the state of an unfinished restore: {error}")
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(folder.unfinished(), STATE, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => File::from(file.map_err(|error| failed(error.into()))?),
        };
        let mut text = Vec::new();
        file.take(MAX).read_to_end(&mut text).map_err(failed)?;
        let state: Self = serde_json::from_slice(&text).map_err(|_| {
            "it holds an unfinished restore of another release of this program; empty the directory"
                .to_owned()
        })?;
        if state.about != *about {
            return Err(format!(
                "it holds an unfinished restore of {}; finish that restore, or empty the directory",
                state.about.name
            ));
        }
        let is_held = state.place.is_none() || (state.place == place_of(target));
        match is_held {
            true => Ok(Some(state)),
            false => Err(
                "it holds an unfinished restore that was not synced before the system was started again; empty the directory"
                    .to_owned(),
            ),
        }
    }

    /// Writes it beside the journal; it replaces an earlier one at once.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, folder: &TargetDir) -> std::io::Result<()> {
        let folder = folder.unfinished();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(openat(folder, NEW_STATE, flags, mode)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        renameat(folder, NEW_STATE, folder, STATE)?;
        Ok(rustix::fs::fsync(folder)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::journal::head::{forget, tests_about};

    #[test]
    fn only_the_state_of_the_same_restore_counts() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TargetDir::open_kept(dir.path()).unwrap();
        let (about, other) = (tests_about("one"), tests_about("other"));
        assert_eq!(State::read(&folder, dir.path(), &about), Ok(None));
        for durable in [true, false] {
            let mut state = State::fetched(about.clone(), dir.path(), durable, 3, 4);
            for is_started in [true, false] {
                state.is_started = is_started;
                state.write(&folder).unwrap();
                assert_eq!(is_left_by_a_server(dir.path()), is_started);
            }
            assert!(is_fetched(dir.path()).unwrap());
            assert_eq!(State::read(&folder, dir.path(), &about), Ok(Some(state.clone())));
            assert!(State::read(&folder, dir.path(), &other).unwrap_err().contains("one"));
            // As after another start of the system.
            state.place = state.place.map(|_| "elsewhere".to_owned());
            state.write(&folder).unwrap();
            assert_eq!(State::read(&folder, dir.path(), &about).is_ok(), durable);
        }
        std::fs::write(path(dir.path()), "{").unwrap();
        assert!(State::read(&folder, dir.path(), &about).unwrap_err().contains("empty"));
        drop(folder);
        forget(dir.path()).unwrap();
        forget(dir.path()).unwrap();
        assert!(!is_fetched(dir.path()).unwrap());
    }
}
