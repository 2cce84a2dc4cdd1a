//! The journal of a restore: what is proven and written, so that the next run need not fetch it.
//!
//! It lies in the target, beside the unfinished files, in `.xb-partial/restore/journal`: a line of
//! JSON that says which backup is restored and how, then a line for each thing that is certain. It is
//! written after what it tells of.
//!
//! After a kill, or when the network is gone, the kernel still has every byte that was written, so on
//! the same boot and mount all of it may count. After a reboot, or when the file system was mounted
//! again, only that may count what was on the medium by then: every half minute, or gigabyte, the file
//! system is synced, and a line says how far the journal had come before that. With `--sync=none`
//! there are no such lines, and nothing counts.
//!
//! What may count is then read back and compared (`trust`): a line holds the length and the CRC-32 of
//! what it tells of. What is believed without that is only that a CRC-32 does not fit by chance.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::BorrowedFd;
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
use xb_pipeline::{BegunFile, ExtractLog};
use xb_reader::{RelPath, TargetDir};

mod trust;

use crate::catalog::manifest::Manifest;
use crate::hex::hex;
use crate::read::partial::{Come, Proven};

/// Name of the journal beside the unfinished files.
const JOURNAL: &str = "journal";
/// One that is being made.
const NEW_JOURNAL: &str = "journal.new";
/// Longest journal that is read, in bytes: that of some million files.
const MAX_LEN: u64 = 1 << 30;
/// A chunk is noted when its file has come so much further, in bytes.
const STEP: u64 = 1 << 20;
/// The file system is synced after so many bytes,
const SYNC_BYTES: u64 = 1 << 30;
/// or after this time.
const SYNC_TIME: Duration = Duration::from_secs(30);

/// Version of what stands in it: 1 had no sums.
const FORMAT: u32 = 2;

/// What a journal is about. One of something else is not gone on with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    format: u32,
    /// The backup.
    pub(crate) name: String,
    run: String,
    /// SHA-256 of its manifest.
    manifest: String,
    /// Whether files are decompressed.
    decompress: bool,
    /// The files that are wanted.
    files: String,
}

impl About {
    pub(crate) fn new(manifest: &Manifest, decompress: bool, files: &str) -> Self {
        // As it is stored it may have another key's word beneath it; what it says is the same.
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
    /// Which mount the target is on.
    #[serde(default)]
    mount: String,
}

/// What is known of a file that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Whole {
    number: u64,
    name: Vec<u8>,
    size: u64,
    crc: u32,
}

/// What is known of a file that is not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Begun {
    path: Vec<u8>,
    upto: u64,
    /// Bytes of its part of the stream.
    taken: u64,
    /// The sum of what comes before `upto`.
    crc: u32,
}

/// What an unfinished restore has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// By their names in the stream.
    whole: HashMap<Vec<u8>, Whole>,
    /// By their numbers.
    begun: HashMap<u64, Begun>,
    /// Names of files that are ours and not certain: they are made again.
    pub(crate) doubtful: Vec<Vec<u8>>,
    /// The stream has taken back files or names: what is what can no longer be told.
    taken_back: bool,
    /// Number of files that were not what was written.
    pub(crate) distrusted: u64,
}

impl Left {
    /// What need not be fetched again.
    pub(crate) fn proven(&self) -> Proven {
        Proven {
            whole: self.whole.keys().cloned().collect(),
            begun: self
                .begun
                .values()
                .map(|file| (file.path.clone(), Come { upto: file.upto, taken: file.taken }))
                .collect(),
        }
    }

    /// The files to go on with.
    pub(crate) fn begun(&self) -> Vec<BegunFile> {
        let file = |(number, file): (&u64, &Begun)| {
            let path = RelPath::new(&file.path).ok()?;
            Some(BegunFile { path, number: *number, upto: file.upto, crc: file.crc })
        };
        self.begun.iter().filter_map(file).collect()
    }

    pub(crate) fn keeps(&self, number: u64) -> bool {
        self.begun.contains_key(&number)
    }

    /// Number of files that are whole.
    pub(crate) fn files(&self) -> u64 {
        self.whole.len() as u64
    }

    /// Bytes of files that need not be written again.
    pub(crate) fn bytes(&self) -> u64 {
        self.whole
            .values()
            .map(|file| file.size)
            .chain(self.begun.values().map(|file| file.upto))
            .sum()
    }
}

/// Where the journal of a restore into `target` is.
fn path(target: &Path) -> PathBuf {
    TargetDir::kept_folder(target).join(JOURNAL)
}

/// Whether a restore into `target` was begun and has not ended.
#[must_use]
pub fn is_unfinished(target: &Path) -> bool {
    path(target).exists()
}

/// Reads what an unfinished restore has left in `target`, and compares it with what is there.
/// `None`: there is no journal.
///
/// # Errors
/// Why it cannot be gone on with, in words.
pub(crate) fn load(
    folder: &TargetDir,
    target: &Path,
    about: &About,
    cancelled: &AtomicBool,
) -> Result<Option<Left>, String> {
    let failed = |error: std::io::Error| format!("the journal of an unfinished restore: {error}");
    let mut text = Vec::new();
    // Were it a pipe, nobody would write into it.
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
        return Err("it holds an unfinished restore whose journal cannot be read: empty it".into());
    };
    if head.about != *about {
        let theirs = &head.about;
        if theirs.format != about.format {
            return Err(
                "it holds an unfinished restore of another release of this program: empty it"
                    .into(),
            );
        }
        let what = match theirs.run == about.run {
            true => format!("{}, with other options", theirs.name),
            false => theirs.name.clone(),
        };
        return Err(format!("it holds an unfinished restore of {what}: end that one, or empty it"));
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

/// Reads the lines. What was not certain before the memory that held it was lost is doubtful.
fn parse(text: &[u8], start: u64, still_held: bool) -> Left {
    let mut left = Left::default();
    let trusted = if still_held { u64::MAX } else { synced(text) };
    let mut at = start;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        at += line.len() as u64;
        let Some(line) = line.strip_suffix(b"\n").and_then(Line::parse) else { break };
        let certain = at <= trusted;
        match line {
            Line::Proven { number, path, upto, taken, crc } if certain => {
                left.begun.insert(number, Begun { path, upto, taken, crc });
            }
            Line::Overwritten { number } => drop(left.begun.remove(&number)),
            Line::Whole { number, path, name, size, crc } => match crc.filter(|_| certain) {
                Some(crc) => drop(left.whole.insert(path, Whole { number, name, size, crc })),
                None => left.doubtful.push(name),
            },
            Line::TakenBack => left.taken_back = true,
            Line::Proven { .. } | Line::Synced { .. } => {}
        }
    }
    left
}

/// How far the journal is on the medium together with what it tells of.
fn synced(text: &[u8]) -> u64 {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let parsed = lines.map_while(|line| Line::parse(line.strip_suffix(b"\n")?));
    parsed
        .filter_map(|line| if let Line::Synced { upto } = line { Some(upto) } else { None })
        .last()
        .unwrap_or(0)
}

/// Looks which of the whole files have their names: a line comes before the name is given.
fn settle(target: &Path, left: &mut Left, still_held: bool) -> Result<(), String> {
    if left.taken_back {
        return Err("it holds an unfinished restore of a stream that renames files, which cannot be gone on with: empty it".into());
    }
    let kept = TargetDir::kept_folder(target);
    let mut gone = Vec::new();
    for (path, file) in &left.whole {
        let there = std::fs::symlink_metadata(target.join(as_path(&file.name)));
        match there {
            Ok(meta) if meta.is_file() && (meta.len() == file.size || !still_held) => {}
            Ok(_) => {
                let name = as_path(&file.name).display();
                return Err(format!("{name} was changed since it was restored: empty the folder"));
            }
            // It was about to get its name. If it still grows it is gone on with.
            Err(_) => gone.push(path.clone()),
        }
    }
    for path in gone {
        left.whole.remove(&path);
    }
    // A file that has its name no longer grows.
    let whole: HashSet<u64> = left.whole.values().map(|file| file.number).collect();
    left.begun
        .retain(|number, _| !whole.contains(number) && kept.join(number.to_string()).exists());
    Ok(())
}

/// Refuses files that are not of the restore.
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
                    "it holds an unfinished restore, and {}, which is not of it",
                    name.display()
                ));
            }
        }
    }
    Ok(())
}

fn as_path(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Proven {
        number: u64,
        path: Vec<u8>,
        upto: u64,
        taken: u64,
        crc: u32,
    },
    Overwritten {
        number: u64,
    },
    /// Of a file that was written out of order there is no sum.
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
            Self::Proven { number, path, upto, taken, crc } => {
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
                Self::Proven { number, upto, taken, crc, path: name(words.next()?)? }
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

/// A name out of its digits; never empty.
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

/// Which mount the folder is on, unlike any other since the boot where the kernel tells that (Linux
/// 6.8); before, a mount's number may come again.
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

fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// A journal that is being written.
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
    /// Why nothing is written any more: a journal with a gap would be worse than its end.
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
    /// Begins a journal in the folder of unfinished files, which is there, with what is left from
    /// before. `sync`: what is proven is made durable now and then.
    ///
    /// # Errors
    /// When it cannot be written.
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
            text.extend(Line::Proven { number: *number, path, upto, taken, crc }.text().bytes());
        }
        // Beside the old one, which counts until then. Whoever holds the folder is alone in it.
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

    /// Who is told while files are extracted.
    pub(crate) fn log(&self) -> Arc<dyn ExtractLog> {
        Arc::clone(&self.shared) as _
    }

    /// All is restored: what is left of the run in the folder of unfinished files goes.
    ///
    /// # Errors
    /// When something cannot be removed.
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

/// Takes a name away, if it is there.
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
            // Not under the lock: it may take long.
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
        // One call a line: a kill leaves whole lines, but for the last.
        if !self.failed {
            match self.file.write_all(text.as_bytes()) {
                Ok(()) => self.len += text.len() as u64,
                Err(_) => self.failed = true,
            }
        }
        // Without this line those before it say what is no longer so.
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
            state.write(&Line::Proven { number, path, upto, taken, crc });
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

    fn taken_back(&self) {
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
            Line::Proven { number: 0, path: path("a/b.ibd"), upto: 10, taken: 40, crc: 1 },
            Line::Whole { number: 1, path: path("c.lz4"), name: path("c"), size: 3, crc: Some(2) },
            Line::Synced { upto: 100 },
            Line::Proven { number: 0, path: path("a/b.ibd"), upto: 20, taken: 80, crc: 3 },
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
        journal.log().taken_back();
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
                Line::Proven { number, path: path.clone(), upto, taken, crc },
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
