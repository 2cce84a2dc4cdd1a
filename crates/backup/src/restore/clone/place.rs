//! Puts a fetched clone together, under the restore's own state.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use xb_clone::{assemble, check_extracted, remove_parts};
use xb_files::is_lost_and_found;
use xb_reader::TargetDir;

use crate::error::BackupError;
use crate::restore::clone::state::State;
use crate::restore::journal::head::RestoreIdentity;
use crate::session::Session;

/// How the names of a restore's own folders begin.
const OWN: &[u8] = b".xb-";

/// Notes whether a server may be at work on the clone in `target`: what it leaves if it is killed is not used, because
/// it is not proven that another one can recover it (`corrupt log record` was seen once).
///
/// # Errors
/// [`BackupError::Restore`].
pub(crate) fn note_start(
    target: &Path,
    about: &RestoreIdentity,
    is_started: bool,
) -> Result<(), BackupError> {
    let failed = |what: String| BackupError::of_target(target, what);
    let folder = TargetDir::open_kept(target).map_err(|error| failed(error.to_string()))?;
    match State::read(&folder, target, about).map_err(failed)? {
        None => Err(BackupError::Bug("the state file of a restore disappeared")),
        Some(mut state) => {
            state.is_started = is_started;
            state.write(&folder).map_err(|error| failed(error.to_string()))
        }
    }
}

/// Puts the clone together whose files are in `target`: `files` of `bytes` in all were fetched. Run again after an
/// end at any point, it continues there. Until it is done, no server starts on the directory.
///
/// # Errors
/// [`BackupError::Damaged`] before anything is changed; [`BackupError::Interrupted`]; [`BackupError::Restore`].
pub(crate) async fn put_together(
    session: &Session,
    target: &Path,
    about: RestoreIdentity,
    files: u64,
    bytes: u64,
    durable: bool,
) -> Result<(), BackupError> {
    let (cancel, target) = (session.cancel.clone(), target.to_owned());
    let name = about.name.clone();
    let work = move || {
        let failed = |what: &dyn std::fmt::Display| BackupError::Restore {
            target: target.display().to_string(),
            what: what.to_string(),
        };
        let of_clone = |error: xb_clone::Error| match (&error, cancel.reason()) {
            (xb_clone::Error::Cancelled, Some(signal)) => BackupError::Interrupted(signal),
            (xb_clone::Error::Damaged(_) | xb_clone::Error::Refused(_), _) => {
                BackupError::Damaged { name: name.clone(), what: error.to_string() }
            }
            _ => failed(&error),
        };
        let folder = TargetDir::open_kept(&target).map_err(|error| failed(&error))?;
        let left = State::read(&folder, &target, &about).map_err(|what| failed(&what))?;
        let mut state = match left {
            Some(state) => state,
            None => {
                let paths = files_in(&target).map_err(|error| failed(&error))?;
                check_extracted(&folder, &paths).map_err(of_clone)?;
                if durable {
                    folder.sync().map_err(|error| failed(&error))?;
                }
                let state = State::fetched(about, &target, durable, files, bytes);
                state.write(&folder).map_err(|error| failed(&error))?;
                state
            }
        };
        if !state.is_assembled {
            let is_cancelled = || cancel.reason().is_some();
            assemble(&folder, durable, &is_cancelled).map_err(of_clone)?;
            state.is_assembled = true;
            state.write(&folder).map_err(|error| failed(&error))?;
        }
        remove_parts(&folder).map_err(of_clone)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| BackupError::Bug("the thread that puts a clone together panicked"))?
}

/// Paths of what is no folder in a directory, from there, without what the restore itself has at its top.
fn files_in(directory: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let (mut paths, mut folders) = (Vec::new(), vec![Vec::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(directory.join(OsStr::from_bytes(&folder)))? {
            let entry = entry?;
            let name = entry.file_name().into_vec();
            let is_own = folder.is_empty() && (name.starts_with(OWN) || is_lost_and_found(&entry));
            match entry.file_type()?.is_dir() {
                true if is_own => {}
                true => folders.push([&folder[..], &name, b"/"].concat()),
                false => paths.push([&folder[..], &name].concat()),
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_below_every_folder_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        for path in
            ["ibdata1", "shop/a.ibd", "shop/b/c", ".xb-partial/x", "shop/.xb-x/y", "lost+found/z"]
        {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("/", dir.path().join("shop/link")).unwrap();
        let mut paths = files_in(dir.path()).unwrap();
        paths.sort();
        let expected = ["ibdata1", "shop/.xb-x/y", "shop/a.ibd", "shop/b/c", "shop/link"];
        assert_eq!(paths, expected.map(|path| path.as_bytes().to_vec()));
    }
}
