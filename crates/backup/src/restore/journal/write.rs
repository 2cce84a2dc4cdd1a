//! Writes the journal of a restore in progress, and makes what it describes durable.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat, renameat};
use rustix::io::Errno;
use xb_pipeline::ExtractLog;
use xb_reader::{RelPath, TargetDir};

use crate::restore::journal::head::{
    Head, JOURNAL, NEW_JOURNAL, RestoreIdentity, boot_id, mount_id, unlink,
};
use crate::restore::journal::line::Line;
use crate::restore::journal::load::{CompleteFile, IncompleteFile, ResumeState};

/// Minimum progress of a file, in bytes, between two of its lines in the journal.
pub(super) const STEP: u64 = 1 << 20;
/// Bytes after which the file system is synced.
const SYNC_BYTES: u64 = 1 << 30;
/// Time after which the file system is synced.
const SYNC_TIME: Duration = Duration::from_secs(30);

/// Bytes that are reserved for the lines to come: a file whose line finds no room would be taken for a foreign one.
const AHEAD: u64 = 1 << 20;

/// Writer of a journal.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    syncer: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    file: File,
    len: u64,
    /// Length up to which there is room for it.
    reserved: u64,
    files: HashMap<u64, Progress>,
    /// Bytes proven since the last sync.
    unsynced: u64,
    /// Nothing more is written after a failure: a journal with a gap would be worse than a short
    /// one.
    failed: bool,
    /// Why the file system did not take all data.
    lost: Option<Errno>,
    over: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    upto: u64,
    noted: u64,
    taken: u64,
}

impl Journal {
    /// Starts a journal in the existing directory of unfinished files, with what an earlier run
    /// left. With `sync`, proven data is made durable from time to time.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub(crate) fn begin(
        folder: &TargetDir,
        about: &RestoreIdentity,
        left: Option<&ResumeState>,
        sync: bool,
    ) -> std::io::Result<Self> {
        let folder = folder.unfinished();
        let head = Head {
            about: about.clone(),
            boot: boot_id().unwrap_or_default(),
            mount: mount_id(folder).unwrap_or_default(),
        };
        let mut text = serde_json::to_vec(&head)?;
        text.push(b'\n');
        let mut files = HashMap::new();
        for (name, file) in left.iter().flat_map(|left| &left.whole) {
            let CompleteFile { number, path, size, crc } = file.clone();
            let (name, crc) = (name.clone(), Some(crc));
            text.extend(Line::Whole { number, path, name, size, crc }.text().bytes());
        }
        for (number, file) in left.iter().flat_map(|left| &left.begun) {
            let IncompleteFile { path, upto, taken, crc } = file.clone();
            files.insert(*number, Progress { upto, noted: upto, taken });
            text.extend(
                Line::Checkpoint { number: *number, path, upto, taken, crc }.text().bytes(),
            );
        }
        // Created beside the old journal, which counts until the rename. Whoever holds the
        // directory is its only user.
        unlink(folder, NEW_JOURNAL)?;
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let mut file = File::from(openat(folder, NEW_JOURNAL, flags, mode)?);
        file.write_all(&text)?;
        let reserved = reserve(&file, text.len() as u64)?;
        file.sync_data()?;
        renameat(folder, NEW_JOURNAL, folder, JOURNAL)?;
        let len = text.len() as u64;
        let (unsynced, failed, lost, over) = (0, false, None, false);
        let state = State { file, len, reserved, files, unsynced, failed, lost, over };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new() });
        let syncer = match sync {
            false => None,
            true => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = File::from(openat(folder, ".", flags, Mode::empty())?);
                let shared = Arc::clone(&shared);
                let work = move || shared.sync_now_and_then(&root);
                Some(std::thread::Builder::new().name("journal".into()).spawn(work)?)
            }
        };
        Ok(Self { shared, syncer })
    }

    /// Observer of the extraction.
    pub(crate) fn log(&self) -> Arc<dyn ExtractLog> {
        Arc::clone(&self.shared) as _
    }

    /// Ends the syncs. Returns why the file system did not take all data, if one of them has failed: the kernel reports that
    /// to no descriptor that is opened later.
    pub(crate) fn end(self) -> Option<std::io::Error> {
        let shared = Arc::clone(&self.shared);
        drop(self);
        let lost = shared.state().lost;
        lost.map(Into::into)
    }
}

#[cfg(test)]
impl Journal {
    /// Makes every later write fail.
    pub(super) fn fail(&self) {
        self.shared.state().failed = true;
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.wake.notify_all();
        if let Some(syncer) = self.syncer.take() {
            let _ = syncer.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_now_and_then(&self, root: &File) {
        loop {
            let mut state = self.state();
            if !state.over && state.unsynced < SYNC_BYTES {
                state = self
                    .wake
                    .wait_timeout(state, SYNC_TIME)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            if state.over {
                return;
            }
            if state.unsynced == 0 {
                continue;
            }
            let upto = state.len;
            state.unsynced = 0;
            drop(state);
            // Not under the lock, because a sync may take long.
            if let Err(error) = rustix::fs::syncfs(root) {
                self.state().lost = Some(error);
                return;
            }
            let mut state = self.state();
            state.write(&Line::Synced { upto });
            let _ = state.file.sync_data();
        }
    }
}

impl State {
    fn write(&mut self, line: &Line) {
        let text = line.text();
        if self.reserved < self.len + AHEAD / 2 {
            // If there is no room now, there may be some for the lines; else the next files fail, too.
            self.reserved = reserve(&self.file, self.len).unwrap_or(u64::MAX);
        }
        // One write per line: after a kill, all lines except perhaps the last are complete.
        if !self.failed {
            match self.file.write_all(text.as_bytes()) {
                Ok(()) => self.len += text.len() as u64,
                Err(_) => self.failed = true,
            }
        }
        // Without this line, earlier lines would claim what is no longer true.
        if self.failed && matches!(line, Line::Overwritten { .. } | Line::TakenBack { .. }) {
            let _ = self.file.set_len(0);
        }
    }
}

impl ExtractLog for Shared {
    fn proven(&self, path: &RelPath, number: u64, upto: u64, chunk: u64, crc: u32) {
        let mut state = self.state();
        let file = state.files.entry(number).or_default();
        let more = upto.saturating_sub(file.upto);
        file.taken = file.taken.saturating_add(chunk);
        file.upto = upto;
        let taken = file.taken;
        let note = upto - file.noted.min(upto) >= STEP;
        if note {
            file.noted = upto;
        }
        state.unsynced = state.unsynced.saturating_add(more);
        if note {
            let path = path.as_bytes().to_vec();
            state.write(&Line::Checkpoint { number, path, upto, taken, crc });
        }
        if state.unsynced >= SYNC_BYTES {
            self.wake.notify_all();
        }
    }

    fn overwritten(&self, number: u64) {
        let mut state = self.state();
        state.files.remove(&number);
        state.write(&Line::Overwritten { number });
    }

    fn whole(&self, path: &RelPath, number: u64, name: &RelPath, size: u64, crc: Option<u32>) {
        let (path, name) = (path.as_bytes().to_vec(), name.as_bytes().to_vec());
        let mut state = self.state();
        state.files.remove(&number);
        state.unsynced = state.unsynced.max(1);
        state.write(&Line::Whole { number, path, name, size, crc });
    }

    fn taken_back(&self, name: &RelPath) {
        self.state().write(&Line::TakenBack { name: name.as_bytes().to_vec() });
    }
}

/// Reserves room for lines behind `len`; returns the length up to which there is room, as far as the file system can do
/// that.
fn reserve(file: &File, len: u64) -> std::io::Result<u64> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, len + AHEAD) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
        Err(_) => Ok(u64::MAX),
        Ok(()) if keeps_len(file, len)? => Ok(len + AHEAD),
        Ok(()) => Ok(u64::MAX),
    }
}

/// Gives the file its length back if the file system has made it longer; returns whether that was not needed. Lines are
/// appended: zeros between them would be the end of the journal.
fn keeps_len(file: &File, len: u64) -> std::io::Result<bool> {
    let keeps = file.metadata()?.len() <= len;
    if !keeps {
        file.set_len(len)?;
    }
    Ok(keeps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_reservation_made_longer_gets_its_length_back() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a line\n").unwrap();
        assert!(keeps_len(&file, 7).unwrap());
        // As a file system does it that ignores KEEP_SIZE.
        fallocate(&file, FallocateFlags::empty(), 0, 7 + AHEAD).unwrap();
        assert!(!keeps_len(&file, 7).unwrap());
        assert_eq!(file.metadata().unwrap().len(), 7);
        reserve(&file, 7).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 7);
    }
}
