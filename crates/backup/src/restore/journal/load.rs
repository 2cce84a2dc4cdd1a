//! What an unfinished restore has left: reads it from the journal, compares it with the files on disk, and decides what
//! of it counts.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, openat, syncfs};
use rustix::io::Errno;
use xb_files::is_lost_and_found;
use xb_pipeline::PartialFileState;
use xb_reader::{ContentSum, RelPath, TargetDir, sum_of};

use crate::cancel::CancelToken;
use crate::restore::journal::head::{Head, JOURNAL, RestoreIdentity, boot_id, mount_id};
use crate::restore::journal::line::Line;
use crate::selection::{Checkpoint, Resumable, ResumePoint};

/// Maximum length of a journal in bytes: enough for millions of files.
const MAX_LEN: u64 = 1 << 30;

/// Reads what an unfinished restore has left in `target`, and compares it with the files on disk.
/// Returns `None` if there is no journal.
///
/// # Errors
/// A text that explains why the restore cannot be resumed.
pub(crate) fn load(
    folder: &TargetDir,
    target: &Path,
    about: &RestoreIdentity,
    cancel: &CancelToken<()>,
) -> Result<Option<ResumeState>, String> {
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
    reconcile(target, &mut read, still_held)?;
    check_foreign(target, &mut read, still_held)?;
    compare(folder, target, &mut read, cancel)?;
    Ok(Some(read))
}

/// Parses the lines. Data that was not synced before a reboot or remount is doubtful.
pub(super) fn parse(text: &[u8], start: u64, still_held: bool) -> ResumeState {
    let mut left = ResumeState::default();
    let trusted = if still_held { u64::MAX } else { synced(text) };
    let mut at = start;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        at += line.len() as u64;
        let Some(line) = line.strip_suffix(b"\n").and_then(Line::parse) else { break };
        let certain = at <= trusted;
        match line {
            Line::Checkpoint { number, path, upto, taken, crc } if certain => {
                left.begun.insert(number, IncompleteFile { path, upto, taken, crc });
            }
            Line::Overwritten { number } => drop(left.begun.remove(&number)),
            Line::Whole { number, path, name, size, crc } => match crc.filter(|_| certain) {
                Some(crc) => {
                    left.doubtful.remove(&name);
                    left.whole.insert(name, CompleteFile { number, path, size, crc });
                }
                None => left.doubt(name),
            },
            Line::TakenBack { name } => {
                left.changes_names = true;
                left.doubt(name);
            }
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
fn reconcile(target: &Path, left: &mut ResumeState, still_held: bool) -> Result<(), String> {
    let kept = TargetDir::kept_folder(target);
    let mut gone = Vec::new();
    for (name, file) in &left.whole {
        let there = std::fs::symlink_metadata(target.join(as_path(name)));
        match there {
            Ok(meta) if meta.is_file() && (meta.len() == file.size || !still_held) => {}
            Ok(_) => {
                let name = as_path(name).display();
                return Err(format!(
                    "{name} was changed after it was restored; empty the directory"
                ));
            }
            // The file was about to be renamed. If it is still incomplete, it is resumed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => gone.push(name.clone()),
            Err(error) => {
                return Err(format!("cannot look at {}: {error}", as_path(name).display()));
            }
        }
    }
    for name in gone {
        left.whole.remove(&name);
    }
    // A file with its final name is complete.
    let whole: HashSet<u64> = left.whole.values().map(|file| file.number).collect();
    let mut begun = std::mem::take(&mut left.begun);
    let mut unseen = None;
    begun.retain(|number, _| {
        let is_there = kept.join(number.to_string()).try_exists();
        !whole.contains(number) && is_there.unwrap_or_else(|error| unseen.replace(error).is_none())
    });
    left.begun = begun;
    match unseen {
        None => Ok(()),
        Some(error) => Err(format!("cannot look at the unfinished files: {error}")),
    }
}

/// Says that a file keeps a restore from being resumed.
pub(crate) fn foreign(name: &Path) -> String {
    format!(
        "it holds an unfinished restore, but {} is not in the backup, or was not written by that restore: move the file elsewhere, or empty the directory",
        name.display()
    )
}

/// Refuses files that do not belong to the restore. After a power cut, the journal may lack lines of files that have
/// their names: these are noted as unlisted.
fn check_foreign(target: &Path, left: &mut ResumeState, still_held: bool) -> Result<(), String> {
    let ours: HashSet<&[u8]> = left.whole.keys().chain(&left.doubtful).map(Vec::as_slice).collect();
    let mut unlisted = HashSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(target.join(&folder)).map_err(|error| error.to_string())?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = folder.join(entry.file_name());
            let first = folder.as_os_str().is_empty();
            let is_own = |own: &&str| entry.file_name() == **own;
            let is_own = [".xb-partial", ".xb-incremental", ".xb-merge"].iter().any(is_own);
            if first && (is_own || is_lost_and_found(&entry)) {
                continue;
            }
            let kind = entry.file_type().map_err(|error| error.to_string())?;
            if kind.is_dir() {
                folders.push(name);
            } else if !ours.contains(name.as_os_str().as_bytes()) {
                if still_held || !kind.is_file() {
                    return Err(foreign(&name));
                }
                unlisted.insert(name.into_os_string().into_vec());
            }
        }
    }
    left.unlisted = unlisted;
    Ok(())
}

/// Reads back all files that the journal describes, and distrusts those that differ from it.
///
/// # Errors
/// Only on cancellation.
fn compare(
    folder: &TargetDir,
    target: &Path,
    left: &mut ResumeState,
    cancel: &CancelToken<()>,
) -> Result<(), String> {
    let go_on = || match cancel.is_cancelled() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    };
    // The files are read back from the medium. If the sync fails, the checksums show it.
    let _ = syncfs(folder.unfinished());
    let is = |at: BorrowedFd<'_>, name: &Path, wanted: ContentSum, whole: bool| {
        let found = sum(at, name, wanted.len(), go_on);
        found.is_ok_and(|(found, len)| found == wanted && (!whole || len == wanted.len()))
    };
    let whole = left.whole.iter().filter(|(name, file)| {
        let wanted = ContentSum::new(file.size, file.crc);
        !is(CWD, &target.join(as_path(name)), wanted, true)
    });
    let whole: Vec<_> = whole.map(|(name, _)| name.clone()).collect();
    let begun = left.begun.iter().filter(|(number, file)| {
        let wanted = ContentSum::new(file.upto, file.crc);
        !is(folder.unfinished(), Path::new(&number.to_string()), wanted, false)
    });
    let begun: Vec<_> = begun.map(|(number, _)| *number).collect();
    if go_on().is_err() {
        return Err("resuming it was interrupted".into());
    }
    for name in whole {
        left.doubt(name);
        left.distrusted += 1;
    }
    for number in begun {
        left.begun.remove(&number);
        left.distrusted += 1;
    }
    Ok(())
}

/// CRC-32 of the first `len` bytes of a file, and the length of the file.
fn sum(
    at: impl AsFd,
    name: &Path,
    len: u64,
    go_on: impl Fn() -> io::Result<()>,
) -> io::Result<(ContentSum, u64)> {
    // Non-blocking, because opening a pipe without a writer would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(at, name, flags, Mode::empty())?);
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The page cache may hold more than the medium: a failed write is reported only once.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok((sum_of(&file, len, go_on)?, there.len()))
}

/// Journal entry of a complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompleteFile {
    pub(super) number: u64,
    /// Name in the stream.
    pub(super) path: Vec<u8>,
    pub(super) size: u64,
    pub(super) crc: u32,
}

/// Journal entry of an incomplete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IncompleteFile {
    pub(super) path: Vec<u8>,
    pub(super) upto: u64,
    /// Bytes of the file's part of the stream that were consumed.
    pub(super) taken: u64,
    /// CRC-32 of the bytes before `upto`.
    pub(super) crc: u32,
}

/// Remains of an unfinished restore.
#[derive(Debug, Default)]
pub(crate) struct ResumeState {
    /// Complete files by their names in the target.
    pub(super) whole: HashMap<Vec<u8>, CompleteFile>,
    /// Incomplete files by their numbers.
    pub(super) begun: HashMap<u64, IncompleteFile>,
    /// Names of our own files that are not proven; they are restored again.
    pub(super) doubtful: HashSet<Vec<u8>>,
    /// Names of files that no line lists, after a power cut that may have taken their lines.
    unlisted: HashSet<Vec<u8>>,
    /// The stream has removed or renamed files.
    pub(crate) changes_names: bool,
    /// Number of files whose content differs from what was written.
    pub(crate) distrusted: u64,
}

impl ResumeState {
    /// Files and parts that need not be fetched again.
    pub(crate) fn proven(&self) -> Checkpoint {
        Checkpoint {
            whole: self.whole.values().map(|file| file.path.clone()).collect(),
            begun: self
                .begun
                .values()
                .map(|file| (file.path.clone(), ResumePoint { upto: file.upto, taken: file.taken }))
                .collect(),
            unlisted: self.unlisted.clone(),
        }
    }

    /// Forgets what does not count, and returns the names of the files in the target that are to be removed.
    ///
    /// # Errors
    /// The name of a file that this restore did not write.
    pub(crate) fn keep(&mut self, resumable: &Resumable) -> Result<HashSet<Vec<u8>>, Vec<u8>> {
        if let Some(foreign) = self.unlisted.difference(&resumable.known).min() {
            return Err(foreign.clone());
        }
        let mut gone = std::mem::take(&mut self.doubtful);
        gone.extend(std::mem::take(&mut self.unlisted));
        let left = self.whole.extract_if(|_, file| !resumable.kept.contains(&file.path));
        gone.extend(left.map(|(name, _)| name));
        self.begun.retain(|_, file| resumable.kept.contains(&file.path));
        Ok(gone)
    }

    /// The first number that no partial file of an earlier run has had, as far as the journal knows.
    pub(crate) fn next_number(&self) -> u64 {
        let numbers = self.whole.values().map(|file| file.number).chain(self.begun.keys().copied());
        numbers.max().map_or(0, |last| last.saturating_add(1))
    }

    /// Takes the file of this name for one that is not proven.
    fn doubt(&mut self, name: Vec<u8>) {
        self.whole.remove(&name);
        self.doubtful.insert(name);
    }

    /// Incomplete files to resume.
    pub(crate) fn begun(&self) -> Vec<PartialFileState> {
        let file = |(number, file): (&u64, &IncompleteFile)| {
            let path = RelPath::new(&file.path).ok()?;
            Some(PartialFileState { path, number: *number, upto: file.upto, crc: file.crc })
        };
        self.begun.iter().filter_map(file).collect()
    }

    pub(crate) fn keeps(&self, number: u64) -> bool {
        self.begun.contains_key(&number)
    }

    /// Number of complete files.
    pub(crate) fn files(&self) -> u64 {
        self.whole.len() as u64
    }

    /// Bytes that need not be written again.
    pub(crate) fn bytes(&self) -> u64 {
        self.whole
            .values()
            .map(|file| file.size)
            .chain(self.begun.values().map(|file| file.upto))
            .sum()
    }
}

/// A name in the stream as a path.
pub(crate) fn as_path(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}
