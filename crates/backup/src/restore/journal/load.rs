//! Reads the journal of an unfinished restore, and decides what of it counts.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use xb_files::is_lost_and_found;
use xb_reader::TargetDir;

use crate::cancel::CancelToken;
use crate::restore::journal::head::{Head, JOURNAL, RestoreIdentity, boot_id, mount_id};
use crate::restore::journal::line::Line;
use crate::restore::journal::resume_state::{CompleteFile, IncompleteFile, ResumeState, as_path};
use crate::restore::journal::trust;

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
    trust::compare(folder, target, &mut read, cancel)?;
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
