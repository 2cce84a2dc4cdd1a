//! The joiner's old data: what a backup's file is called there, and its bytes. It is only read, and nothing depends on it:
//! what cannot be read is not equal, and the donor sends it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, open, openat2, statat};
use xb_reader::RelPath;

use super::group::HeldBlocks;
use super::held::HeldGroup;
use super::question::{Key, Question};
use crate::contract::datadir::{Kind, Layout};
use crate::contract::error_log::ErrorLog;

/// Maximum number of files that are open at once: a backup program reads a few in parallel.
const MAX_OPEN: usize = 16;
/// Maximum number of files whose errors are logged.
const MAX_WARNINGS: u32 = 10;

/// Suffixes of files that hold tables. Nothing else is compared, such as keys and option files: the replies would tell a donor
/// what is in them.
const TABLES: [&str; 7] = ["ibd", "ibu", "MYD", "MYI", "MAD", "MAI", "ARZ"];

/// Directories of the old data, and open files.
#[derive(Debug)]
pub(crate) struct OldFiles {
    datadir: OwnedFd,
    /// Kinds of files with a directory of their own.
    places: Vec<(Kind, OwnedFd)>,
    /// The files used last, the newest at the end; `None` if there is no such file, or if it cannot be read.
    files: Vec<(RelPath, Option<File>)>,
    /// The buffer of a group of which nothing was equal: the first use of memory is slow.
    spare: Vec<u8>,
    error_log: ErrorLog,
    warnings: u32,
}

impl OldFiles {
    /// Opens the directories. `None` if there is no data that could be equal.
    pub(crate) fn open(layout: &Layout, error_log: &ErrorLog) -> Option<Self> {
        let directory = |path: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            open(path, flags, Mode::empty()).ok()
        };
        let datadir = directory(&layout.datadir)?;
        let dirs = layout.inside.iter().chain(&layout.outside);
        let places = dirs
            .filter_map(|place| {
                Some((place.kind.clone(), directory(&layout.datadir.join(&place.dir))?))
            })
            .collect();
        let (files, spare, error_log) = (Vec::new(), Vec::new(), error_log.clone());
        // Every server has it, whatever its other files are called.
        let has_data = statat(&datadir, "mysql", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        has_data.then_some(Self { datadir, places, files, spare, error_log, warnings: 0 })
    }

    /// Returns the blocks of a question that are equal here, as copies.
    pub(crate) fn look(&mut self, question: &Question, key: &Key) -> HeldGroup {
        let group = question.group.clone();
        let mut data = std::mem::take(&mut self.spare);
        data.resize(group.len, 0);
        let read = match self.file(&group.path).map(|file| read(file, group.offset, &mut data)) {
            Some(Ok(len)) => len,
            Some(Err(error)) => {
                self.give_up(&group.path, &error);
                0
            }
            None => 0,
        };
        let have = question.compare(data.get(..read).unwrap_or_default(), key);
        if have == HeldBlocks::default() {
            self.spare = std::mem::take(&mut data);
        }
        HeldGroup { group, have, data }
    }

    fn file(&mut self, path: &RelPath) -> Option<&File> {
        match self.files.iter().position(|(known, _)| known == path) {
            Some(at) => {
                let known = self.files.remove(at);
                self.files.push(known);
            }
            None => {
                if self.files.len() >= MAX_OPEN {
                    self.files.remove(0);
                }
                self.files.push((path.clone(), self.open_file(path)));
            }
        }
        self.files.last().and_then(|(_, file)| file.as_ref())
    }

    /// Opens a regular file below its directory, through no symbolic link.
    fn open_file(&self, path: &RelPath) -> Option<File> {
        let name = OsStr::from_bytes(path.as_bytes());
        let place = self.places.iter().find(|(kind, _)| kind.has(name));
        let holds_tables = match place {
            Some((kind, _)) => matches!(kind, Kind::Data(_) | Kind::Undo),
            None => {
                let is_table = |suffix| Path::new(name).extension() == Some(OsStr::new(suffix));
                TABLES.into_iter().any(is_table)
                    || [Kind::Data(Vec::new()), Kind::Undo].iter().any(|kind| kind.has(name))
            }
        };
        if !holds_tables {
            return None;
        }
        let placed = place.map(|(_, dir)| dir);
        let dir = placed.unwrap_or(&self.datadir);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let file = File::from(openat2(dir, name, flags, Mode::empty(), resolve).ok()?);
        file.metadata().is_ok_and(|facts| facts.is_file()).then_some(file)
    }

    /// Reads no more of a file that cannot be read.
    fn give_up(&mut self, path: &RelPath, error: &std::io::Error) {
        if let Some((_, file)) = self.files.iter_mut().find(|(known, _)| known == path) {
            *file = None;
        }
        self.warnings += 1;
        if self.warnings <= MAX_WARNINGS {
            self.error_log.warn(format_args!(
                "cannot read the old {path}: {error}; the donor sends all of it"
            ));
        }
    }
}

/// Reads what the file has from `offset` on. Returns its length.
fn read(file: &File, offset: u64, data: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while let Some(room) = data.get_mut(len..).filter(|room| !room.is_empty()) {
        match file.read_at(room, offset.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
