//! Journal of a restore: records what is written and proven, so that the next run need not fetch it
//! again.
//!
//! The journal is `.xb-partial/restore/journal` in the target, beside the unfinished files. Its
//! first line is JSON and names the backup and the way it is restored; then comes one line for each
//! proven fact. A line is written after the data that it describes.
//!
//! After a kill or a network failure, the kernel still has every byte that was written, so on the
//! same boot and mount the whole journal may count. After a reboot or a remount, only what had
//! reached the medium may count: every half minute, or after every gigabyte, the file system is
//! synced, and a line records how long the journal was before that sync. With `--sync=none` there
//! are no such lines, and nothing counts.
//!
//! Whatever may count is then read back and compared (`trust`): a line holds the length and CRC-32
//! of the data that it describes. The only remaining assumption is that a CRC-32 does not match by
//! chance.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fstatfs, openat, renameat, statx, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xb_pipeline::ExtractLog;
use xb_reader::{RelPath, TargetDir};

mod left;
mod trust;

use crate::catalog::manifest::Manifest;
use crate::hex::hex;
pub(crate) use left::Left;
use left::{Begun, Whole, as_path};

/// Name of the journal beside the unfinished files.
const JOURNAL: &str = "journal";
/// Name of a journal that is being created.
const NEW_JOURNAL: &str = "journal.new";
/// Maximum length of a journal in bytes: enough for millions of files.
const MAX_LEN: u64 = 1 << 30;
/// Minimum progress of a file, in bytes, between two of its lines in the journal.
const STEP: u64 = 1 << 20;
/// Bytes after which the file system is synced.
const SYNC_BYTES: u64 = 1 << 30;
/// Time after which the file system is synced.
const SYNC_TIME: Duration = Duration::from_secs(30);

/// Version of the journal format: version 1 had no checksums.
const FORMAT: u32 = 2;

/// What a journal describes. A journal that describes something else is not resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    format: u32,
    /// Name of the backup.
    pub(crate) name: String,
    run: String,
    /// SHA-256 of its manifest.
    manifest: String,
    /// Whether files are decompressed.
    decompress: bool,
    /// Canonical text of the file selection.
    files: String,
}

impl About {
    pub(crate) fn new(manifest: &Manifest, decompress: bool, files: &str) -> Self {
        // The stored manifest may carry another key's authentication below the same content, so
        // only the content is hashed.
        let text = serde_json::to_vec(manifest).unwrap_or_default();
        Self {
            format: FORMAT,
            name: manifest.name.clone(),
            run: manifest.run.clone(),
            manifest: hex(&Sha256::digest(&text)),
            decompress,
            files: files.to_owned(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    about: About,
    boot: String,
    /// Mount that holds the target.
    #[serde(default)]
    mount: String,
}

/// Path of the journal of a restore into `target`.
fn path(target: &Path) -> PathBuf {
    TargetDir::kept_folder(target).join(JOURNAL)
}

/// Whether `target` holds an unfinished restore.
#[must_use]
pub fn is_unfinished(target: &Path) -> bool {
    path(target).exists()
}

/// Reads what an unfinished restore has left in `target`, and compares it with the files on disk.
/// Returns `None` if there is no journal.
///
/// # Errors
/// A text that explains why the restore cannot be resumed.
pub(crate) fn load(
    folder: &TargetDir,
    target: &Path,
    about: &About,
    cancelled: &AtomicBool,
) -> Result<Option<Left>, String> {
    let failed = |error: std::io::Error| {
        format!("cannot read the journal of an unfinished restore: {error}")
    };
    let mut text = Vec::new();
    // Non-blocking, because opening a pipe without a writer would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(folder.unfinished(), JOURNAL, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error.into())),
        Ok(file) => File::from(file).take(MAX_LEN).read_to_end(&mut text).map_err(failed)?,
    };
    let first = text.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let head: Option<Head> =
        first.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
    let Some(head) = head else {
        return Err(
            "it holds an unfinished restore with an unreadable journal; empty the directory".into(),
        );
    };
    if head.about != *about {
        let theirs = &head.about;
        if theirs.format != about.format {
            return Err(
                "it holds an unfinished restore by another release of this program; empty the directory"
                    .into(),
            );
        }
        let what = match theirs.run == about.run {
            true => format!("{} with other options", theirs.name),
            false => theirs.name.clone(),
        };
        return Err(format!(
            "it holds an unfinished restore of {what}; finish that restore, or empty the directory"
        ));
    }
    let same_boot = boot_id().is_some_and(|boot| boot == head.boot);
    let same_mount = mount_id(folder.unfinished()).is_some_and(|mount| mount == head.mount);
    let lines = text.get(first.len()..).unwrap_or_default();
    let still_held = same_boot && same_mount;
    let mut read = parse(lines, first.len() as u64, still_held);
    drop(text);
    settle(target, &mut read, still_held)?;
    check_foreign(target, &read)?;
    trust::compare(folder, target, &mut read, cancelled)?;
    Ok(Some(read))
}

/// Parses the lines. What was not synced before its memory was lost is doubtful.
fn parse(text: &[u8], start: u64, still_held: bool) -> Left {
    let mut left = Left::default();
    let trusted = if still_held { u64::MAX } else { synced(text) };
    let mut at = start;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        at += line.len() as u64;
        let Some(line) = line.strip_suffix(b"\n").and_then(Line::parse) else { break };
        let certain = at <= trusted;
        match line {
            Line::Checkpoint { number, path, upto, taken, crc } if certain => {
                left.begun.insert(number, Begun { path, upto, taken, crc });
            }
            Line::Overwritten { number } => drop(left.begun.remove(&number)),
            Line::Whole { number, path, name, size, crc } => match crc.filter(|_| certain) {
                Some(crc) => drop(left.whole.insert(path, Whole { number, name, size, crc })),
                None => left.doubtful.push(name),
            },
            Line::TakenBack => left.rolled_back = true,
            Line::Checkpoint { .. } | Line::Synced { .. } => {}
        }
    }
    left
}

/// Length of the journal that is on the medium together with the data it describes.
fn synced(text: &[u8]) -> u64 {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let parsed = lines.map_while(|line| Line::parse(line.strip_suffix(b"\n")?));
    parsed
        .filter_map(|line| if let Line::Synced { upto } = line { Some(upto) } else { None })
        .last()
        .unwrap_or(0)
}

/// Checks which complete files have their final names: a line is written before the rename.
fn settle(target: &Path, left: &mut Left, still_held: bool) -> Result<(), String> {
    if left.rolled_back {
        return Err("it holds an unfinished restore of a stream that renames files, which cannot be resumed; empty the directory".into());
    }
    let kept = TargetDir::kept_folder(target);
    let mut gone = Vec::new();
    for (path, file) in &left.whole {
        let there = std::fs::symlink_metadata(target.join(as_path(&file.name)));
        match there {
            Ok(meta) if meta.is_file() && (meta.len() == file.size || !still_held) => {}
            Ok(_) => {
                let name = as_path(&file.name).display();
                return Err(format!(
                    "{name} was changed after it was restored; empty the directory"
                ));
            }
            // The file was about to be renamed. If it is still incomplete, it is resumed.
            Err(_) => gone.push(path.clone()),
        }
    }
    for path in gone {
        left.whole.remove(&path);
    }
    // A file with its final name is complete.
    let whole: HashSet<u64> = left.whole.values().map(|file| file.number).collect();
    left.begun
        .retain(|number, _| !whole.contains(number) && kept.join(number.to_string()).exists());
    Ok(())
}

/// Refuses files that do not belong to the restore.
fn check_foreign(target: &Path, left: &Left) -> Result<(), String> {
    let ours: HashSet<&[u8]> = left
        .whole
        .values()
        .map(|file| file.name.as_slice())
        .chain(left.doubtful.iter().map(Vec::as_slice))
        .collect();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(target.join(&folder)).map_err(|error| error.to_string())?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = folder.join(entry.file_name());
            let first = folder.as_os_str().is_empty();
            if first
                && [".xb-partial", ".xb-incremental"].iter().any(|own| entry.file_name() == *own)
            {
                continue;
            }
            if entry.file_type().map_err(|error| error.to_string())?.is_dir() {
                folders.push(name);
            } else if !ours.contains(name.as_os_str().as_bytes()) {
                return Err(format!(
                    "it holds an unfinished restore, but {} does not belong to it",
                    name.display()
                ));
            }
        }
    }
    Ok(())
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Checkpoint {
        number: u64,
        path: Vec<u8>,
        upto: u64,
        taken: u64,
        crc: u32,
    },
    Overwritten {
        number: u64,
    },
    /// A file that was written out of order has no checksum.
    Whole {
        number: u64,
        path: Vec<u8>,
        name: Vec<u8>,
        size: u64,
        crc: Option<u32>,
    },
    TakenBack,
    Synced {
        upto: u64,
    },
}

impl Line {
    fn text(&self) -> String {
        match self {
            Self::Checkpoint { number, path, upto, taken, crc } => {
                format!("proven {number} {upto} {taken} {crc:08x} {}\n", hex(path))
            }
            Self::Overwritten { number } => format!("overwritten {number}\n"),
            Self::Whole { number, path, name, size, crc } => {
                let crc = crc.map_or("-".to_owned(), |crc| format!("{crc:08x}"));
                format!("whole {number} {size} {crc} {} {}\n", hex(path), hex(name))
            }
            Self::TakenBack => "taken-back\n".to_owned(),
            Self::Synced { upto } => format!("synced {upto}\n"),
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let mut words = text.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let line = match kind {
            "proven" => {
                let (number, upto, taken) = (number()?, number()?, number()?);
                let crc = sum(words.next()?)?;
                Self::Checkpoint { number, upto, taken, crc, path: name(words.next()?)? }
            }
            "overwritten" => Self::Overwritten { number: number()? },
            "whole" => {
                let (number, size) = (number()?, number()?);
                let crc = match words.next()? {
                    "-" => None,
                    digits => Some(sum(digits)?),
                };
                let (path, name) = (name(words.next()?)?, name(words.next()?)?);
                Self::Whole { number, size, path, name, crc }
            }
            "taken-back" => Self::TakenBack,
            "synced" => Self::Synced { upto: number()? },
            _ => return None,
        };
        words.next().is_none().then_some(line)
    }
}

/// Decodes a name from hex digits; the result is never empty.
fn name(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks_exact(2).map(pair).collect();
    bytes.filter(|bytes| RelPath::new(bytes).is_ok())
}

fn sum(digits: &str) -> Option<u32> {
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Identifies the mount that holds the directory. The ID is unique since boot if the kernel
/// supports that (Linux 6.8); older kernels may reuse a mount's number.
fn mount_id(folder: BorrowedFd<'_>) -> Option<String> {
    let unique = StatxFlags::from_bits_retain(0x4000);
    let wanted = StatxFlags::MNT_ID | unique;
    let there = statx(folder, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let system = fstatfs(folder).ok()?;
    Some(format!(
        "{:x}-{}-{}:{}-{:x}",
        there.stx_mask & wanted.bits(),
        there.stx_mnt_id,
        there.stx_dev_major,
        there.stx_dev_minor,
        system.f_type,
    ))
}

/// The directory itself, its mount and the boot of the system: writes to it were not lost since.
pub(crate) fn place_of(target: &Path) -> Option<String> {
    let folder = File::open(target).ok()?;
    let inode = rustix::fs::fstat(&folder).ok()?.st_ino;
    Some(format!("{} {} {inode}", boot_id()?, mount_id(folder.as_fd())?))
}

fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

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
    files: HashMap<u64, Progress>,
    /// Bytes proven since the last sync.
    unsynced: u64,
    /// Nothing more is written after a failure: a journal with a gap would be worse than a short
    /// one.
    failed: bool,
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
        about: &About,
        left: Option<&Left>,
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
        for (path, file) in left.iter().flat_map(|left| &left.whole) {
            let Whole { number, name, size, crc } = file.clone();
            let (path, crc) = (path.clone(), Some(crc));
            text.extend(Line::Whole { number, path, name, size, crc }.text().bytes());
        }
        for (number, file) in left.iter().flat_map(|left| &left.begun) {
            let Begun { path, upto, taken, crc } = file.clone();
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
        file.sync_data()?;
        renameat(folder, NEW_JOURNAL, folder, JOURNAL)?;
        let state =
            State { file, len: text.len() as u64, files, unsynced: 0, failed: false, over: false };
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

    /// Removes what the finished restore has left in the directory of unfinished files.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub(crate) fn remove(target: &Path) -> std::io::Result<()> {
        let failed = |error: xb_reader::TargetError| std::io::Error::other(error.to_string());
        if !TargetDir::kept_folder(target).exists() {
            return Ok(());
        }
        let folder = TargetDir::open_kept(target).map_err(failed)?;
        folder.clear(|_| false).map_err(failed)?;
        for name in [NEW_JOURNAL, JOURNAL] {
            unlink(folder.unfinished(), name)?;
        }
        Ok(())
    }
}

/// Removes a name if it exists.
fn unlink(folder: BorrowedFd<'_>, name: &str) -> std::io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
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
            if rustix::fs::syncfs(root).is_err() {
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
        // One write per line: after a kill, all lines except perhaps the last are complete.
        if !self.failed {
            match self.file.write_all(text.as_bytes()) {
                Ok(()) => self.len += text.len() as u64,
                Err(_) => self.failed = true,
            }
        }
        // Without this line, earlier lines would claim what is no longer true.
        if self.failed && matches!(line, Line::Overwritten { .. } | Line::TakenBack) {
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

    fn rolled_back(&self) {
        self.state().write(&Line::TakenBack);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines() -> Vec<Line> {
        let path = |name: &str| name.as_bytes().to_vec();
        vec![
            Line::Checkpoint { number: 0, path: path("a/b.ibd"), upto: 10, taken: 40, crc: 1 },
            Line::Whole { number: 1, path: path("c.lz4"), name: path("c"), size: 3, crc: Some(2) },
            Line::Synced { upto: 100 },
            Line::Checkpoint { number: 0, path: path("a/b.ibd"), upto: 20, taken: 80, crc: 3 },
            Line::Overwritten { number: 2 },
        ]
    }

    #[test]
    fn a_torn_end_is_left_out_and_a_reboot_leaves_what_was_synced() {
        let text: String = lines().iter().map(Line::text).collect();
        for cut in 0..=text.len() {
            let left = parse(&text.as_bytes()[..cut], 0, true);
            let whole_lines = text[..cut].matches('\n').count();
            let upto = left.begun.get(&0).map(|file| file.upto);
            assert_eq!(upto, [None, Some(10), Some(10), Some(10), Some(20), Some(20)][whole_lines]);
            assert_eq!(left.whole.len(), usize::from(whole_lines > 1));
        }
        let first = lines()[0].text().len() as u64;
        let mut all = lines();
        all[2] = Line::Synced { upto: first };
        let text: String = all.iter().map(Line::text).collect();
        let left = parse(text.as_bytes(), 0, false);
        assert_eq!(left.begun[&0].upto, 10);
        assert_eq!((left.whole.len(), &left.doubtful[..]), (0, &[b"c".to_vec()][..]));
    }

    fn about() -> About {
        let text = |text: &str| text.to_owned();
        About {
            format: FORMAT,
            name: text("n"),
            run: text("r"),
            manifest: text("m"),
            decompress: true,
            files: text(""),
        }
    }

    #[test]
    fn a_journal_goes_into_a_file_of_its_own_whatever_lies_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("data");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "keep me").unwrap();
        let kept = TargetDir::kept_folder(&target);
        std::fs::create_dir_all(&kept).unwrap();
        for name in [JOURNAL, NEW_JOURNAL] {
            std::os::unix::fs::symlink(&precious, kept.join(name)).unwrap();
        }
        let folder = TargetDir::open_kept(&target).unwrap();
        let loaded = load(&folder, &target, &about(), &AtomicBool::new(false));
        assert!(loaded.is_err(), "a link was followed");
        let journal = Journal::begin(&folder, &about(), None, false).unwrap();
        journal.log().rolled_back();
        assert_eq!(std::fs::read(&precious).unwrap(), b"keep me");
        assert!(std::fs::symlink_metadata(path(&target)).unwrap().is_file());
        drop((journal, folder));
        Journal::remove(&target).unwrap();
        assert!(!kept.exists());
    }

    #[test]
    fn a_journal_that_cannot_take_back_what_it_said_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = TargetDir::open_kept(dir.path()).unwrap();
        let journal = Journal::begin(&folder, &about(), None, false).unwrap();
        let name = RelPath::new(b"a").unwrap();
        let log = journal.log();
        log.proven(&name, 0, STEP, STEP, 1);
        journal.shared.state().failed = true;
        let len = || std::fs::metadata(path(dir.path())).unwrap().len();
        log.proven(&name, 0, 2 * STEP, STEP, 2);
        assert!(len() > 0, "what was proven stays so");
        log.overwritten(0);
        assert_eq!(len(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes, 0, true);
        }

        #[test]
        fn lines_come_back(number: u64, upto: u64, taken: u64, crc: u32, path in "[a-z]{1,8}(/[a-z.]{1,8}x)?") {
            let path = path.into_bytes();
            for line in [
                Line::Checkpoint { number, path: path.clone(), upto, taken, crc },
                Line::Whole { number, path: path.clone(), name: path.clone(), size: upto, crc: Some(crc) },
                Line::Whole { number, path: path.clone(), name: path.clone(), size: upto, crc: None },
                Line::Overwritten { number },
                Line::Synced { upto },
                Line::TakenBack,
            ] {
                let text = line.text();
                prop_assert_eq!(Line::parse(text.trim_end_matches('\n').as_bytes()), Some(line));
            }
        }
    }
}
