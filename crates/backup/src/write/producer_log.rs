//! File for the messages of a producer, and the last of them for an error report.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use xb_files::or_none;

use crate::state_owner::{create_state_folder, give_to_owner_of};

/// Number of the last lines that are kept in memory.
const TAIL: usize = 20;
/// Longest part of a line that is kept in memory, in characters.
const MAX_CHARS: usize = 400;
/// Number of logs that a folder keeps.
const MAX_LOGS: usize = 30;
/// Longest log in bytes: a program that repeats itself must not fill the disk.
const MAX_BYTES: u64 = 64 << 20;
/// Suffix of the logs in a folder.
const SUFFIX: &str = "log";

/// Log of a producer's messages. Clones write into the same log.
#[derive(Debug, Clone)]
pub struct ProducerLog(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// The file and its path; `None` if only the last messages are kept.
    file: Option<(PathBuf, File)>,
    /// Bytes that it may still take.
    room: u64,
    tail: VecDeque<String>,
    /// First error of a write, or that it is full; messages never end a backup.
    error: Option<io::Error>,
}

impl ProducerLog {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::of(Some((path.to_owned(), File::create(path)?))))
    }

    /// Keeps the last messages only, for an error report.
    #[must_use]
    pub fn without_file() -> Self {
        Self::of(None)
    }

    fn of(file: Option<(PathBuf, File)>) -> Self {
        let tail = VecDeque::new();
        Self(Arc::new(Mutex::new(Inner { file, room: MAX_BYTES, tail, error: None })))
    }

    /// Creates `NAME.log` in a folder, which is created if it is missing, and removes the oldest
    /// logs beyond 30. Follows no link: root may write into the folder of another user.
    ///
    /// # Errors
    /// If the folder or the file cannot be created, or is a symbolic link.
    pub fn create_in(folder: &Path, name: &str) -> io::Result<Self> {
        let none = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        create_state_folder(folder, 0o777)?;
        let opened =
            rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | none, Mode::empty())?;
        forget_oldest(folder)?;
        let name = format!("{name}.{SUFFIX}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | none;
        let file = rustix::fs::openat(&opened, &*name, flags, Mode::from_raw_mode(0o666))?;
        give_to_owner_of(folder, &file);
        Ok(Self::of(Some((folder.join(name), file.into()))))
    }

    /// Adds one message, without its line end.
    pub fn line(&self, line: &[u8]) {
        let mut inner = self.inner();
        let Inner { file, room, tail, error, .. } = &mut *inner;
        if let (Some((_, file)), None) = (file, &error) {
            let line = [line, b"\n"].concat();
            match room.checked_sub(line.len() as u64) {
                Some(rest) => {
                    *room = rest;
                    *error = file.write_all(&line).err();
                }
                None => {
                    let limit = MAX_BYTES >> 20;
                    *error = Some(io::Error::other(format!("it has reached {limit} MiB")));
                }
            }
        }
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(String::from_utf8_lossy(line).chars().take(MAX_CHARS).collect());
    }

    /// Returns the last messages, oldest first.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.inner().tail.iter().cloned().collect()
    }

    /// Path of the file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.inner().file.as_ref().map(|(path, _)| path.clone())
    }

    /// Returns why messages are missing in the file, if any are.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.inner().error.as_ref().map(ToString::to_string)
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A panic while a line was added leaves nothing inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more log.
fn forget_oldest(folder: &Path) -> io::Result<()> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // Another run may have removed it.
        let Some(metadata) = or_none(path.symlink_metadata())? else { continue };
        if metadata.is_file() && path.extension().is_some_and(|suffix| suffix == SUFFIX) {
            logs.push((metadata.modified()?, path));
        }
    }
    logs.sort();
    let surplus = (logs.len() + 1).saturating_sub(MAX_LOGS);
    for (_, path) in logs.into_iter().take(surplus) {
        // Another run may have removed it.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_in_the_file_and_the_last_ones_at_hand() {
        let folder = tempfile::tempdir().unwrap();
        let log = ProducerLog::create_in(&folder.path().join("deep"), "monday").unwrap();
        for number in 0..100 {
            log.line(format!("line {number}").as_bytes());
        }
        log.line(&[b'x'; 10_000]);
        let text = std::fs::read_to_string(log.path().unwrap()).unwrap();
        assert_eq!((text.lines().count(), text.lines().next()), (101, Some("line 0")));
        let tail = log.tail();
        assert_eq!((tail.len(), tail[0].as_str()), (TAIL, "line 81"));
        assert_eq!(tail[19].len(), MAX_CHARS);
        assert_eq!(log.error(), None);
    }

    #[test]
    fn no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (logs, other) = (folder.path().join("logs"), folder.path().join("other"));
        std::fs::create_dir(&logs).unwrap();
        std::fs::write(&other, "content").unwrap();
        std::os::unix::fs::symlink(&other, logs.join("monday.log")).unwrap();
        ProducerLog::create_in(&logs, "monday").unwrap_err();
        assert_eq!(std::fs::read(&other).unwrap(), b"content");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&logs, &link).unwrap();
        ProducerLog::create_in(&link, "tuesday").unwrap_err();
        assert!(!logs.join("tuesday.log").exists());
    }

    #[test]
    fn old_logs_go_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();
        for number in 0..MAX_LOGS + 5 {
            ProducerLog::create_in(folder.path(), &format!("n{number}")).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), MAX_LOGS + 1);
        assert!(folder.path().join("notes.txt").exists());
        assert!(folder.path().join(format!("n{}.log", MAX_LOGS + 4)).exists());
    }
}
