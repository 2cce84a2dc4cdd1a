//! Whether a server has accepted the data of the last swap. Until one has, the old data is the only data that is known
//! to work: it is not removed, and the next transfer puts it back first.
//!
//! A server accepts the data when it starts on it once before the swap ([`super::second_start`]). Without such a start,
//! a mark beside the old data keeps length and time of the redo log and of the system tablespace as they are swapped in:
//! a server whose storage engine starts on the data writes there. So does one that only looks for its position, with
//! `--wsrep-recover`, and that is no proof: where it can be told, a server must have made what it makes last.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::mem::discriminant;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use xb_files::or_none;

use super::datadir_lock::DatadirLock;
use crate::contract::datadir::{Kind, KindDir, Layout, is_mounted};
use crate::contract::error_log::ErrorLog;
use crate::error::SstError;
use crate::swap::{self, Journal, NEW, OLD, SwapError, WORK_DIR};

/// The mark, in [`OLD`].
const MARK: &str = ".unaccepted";
/// A list of replica channels that MariaDB's servers make in the data directory when all else has started, also without
/// channels.
pub(super) const MADE_LAST: &str = "multi-master.info";
/// Length and time, in the mark, of a file that is not there yet.
const NONE: &[u8] = b"-";

fn mark(layout: &Layout) -> PathBuf {
    layout.datadir.join(WORK_DIR).join(OLD).join(MARK)
}

/// Notes, before the swap, that no server has started on the data that is to be swapped in. The old data's directory is
/// there. `made_last`: a server that starts on it makes [`MADE_LAST`].
///
/// # Errors
/// If the mark cannot be written: then nothing may be swapped.
pub(super) fn note_untried(layout: &Layout, made_last: bool) -> Result<(), SstError> {
    let mark = mark(layout);
    let new = mark.with_extension("new");
    let written = lines(layout).and_then(|mut lines| {
        if made_last {
            let path = layout.datadir.join(MADE_LAST);
            lines.extend([NONE, b" ", NONE, b" ", path.as_os_str().as_bytes(), b"\n"].concat());
        }
        let mut file = File::create(&new)?;
        file.write_all(&lines)?;
        file.sync_all()?;
        std::fs::rename(&new, &mark)?;
        File::open(layout.datadir.join(WORK_DIR).join(OLD))?.sync_all()
    });
    written.map_err(SstError::io("write", &mark))
}

/// Removes the note: the swap is rolled back.
///
/// # Errors
/// If it is there and cannot be removed.
pub(super) fn forget_note(layout: &Layout) -> io::Result<()> {
    or_none(std::fs::remove_file(mark(layout))).map(drop)
}

/// A line for each file that a storage engine writes when it starts: length, time in nanoseconds, path once it is swapped.
fn lines(layout: &Layout) -> io::Result<Vec<u8>> {
    let at_home = layout.datadir.join(WORK_DIR).join(NEW);
    let mut lines = Vec::new();
    for kind in [Kind::Redo, Kind::Data(Vec::new())] {
        let of_kind = |place: &&KindDir| discriminant(&place.kind) == discriminant(&kind);
        let outside = layout.outside.iter().filter(of_kind);
        let outside = outside
            .map(|place| (place.dir.join(WORK_DIR).join(NEW), place.dir.clone(), &place.kind));
        let inside = layout.inside.iter().filter(of_kind);
        let inside = inside
            .map(|place| (at_home.join(&place.dir), layout.datadir.join(&place.dir), &place.kind));
        let usual = [(at_home.clone(), layout.datadir.clone(), &kind)];
        for (new, dir, kind) in outside.chain(inside).chain(usual) {
            for part in ["", "#innodb_redo"] {
                for entry in or_none(std::fs::read_dir(new.join(part)))?.into_iter().flatten() {
                    let name = entry?.file_name();
                    let (from, to) = (new.join(part).join(&name), dir.join(part).join(&name));
                    let is_of_kind = kind.has(&name) || *kind == Kind::Redo && !part.is_empty();
                    if is_of_kind && or_none(from.metadata())?.is_some_and(|facts| facts.is_file())
                    {
                        lines.extend(state(&from)?.into_bytes());
                        lines.extend(to.as_os_str().as_bytes());
                        lines.push(b'\n');
                    }
                }
            }
        }
    }
    Ok(lines)
}

fn state(path: &Path) -> io::Result<String> {
    let facts = path.metadata()?;
    let since = facts.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} {} ", facts.len(), since.as_nanos()))
}

/// Returns whether the present data was swapped in untried, and no server has started on it since: its storage engine alone,
/// if that is all that can be told.
///
/// # Errors
/// If that cannot be found out.
pub fn is_untried(layout: &Layout) -> Result<bool, SstError> {
    let mark = mark(layout);
    let read = or_none(std::fs::read(&mark)).map_err(SstError::io("read", &mark))?;
    let Some(text) = read else { return Ok(false) };
    // Old data is only removed when it is not needed any more, and is of no use once that has begun.
    if swap::is_being_removed(&layout.datadir)? {
        return Ok(false);
    }
    // Without old data, there is nothing to keep. A journal that cannot be read is for others to report.
    let last = swap::last(&layout.datadir);
    if last.as_ref().is_ok_and(|last| last.as_ref().is_none_or(|last| last.old.is_empty())) {
        return Ok(false);
    }
    let last = last.ok().flatten().unwrap_or_default();
    // Where the swap has left old data, but there is none, another file system is meant.
    let is_there = |path: &Path| {
        let numbers = last.folders.iter().enumerate().filter(|(_, dir)| path.starts_with(dir));
        numbers.into_iter().all(|(number, dir)| {
            let has_old = last.old.iter().any(|entry| entry.folder == number);
            !has_old || dir.join(WORK_DIR).join(OLD).is_dir()
        })
    };
    // A file that no line names, and that a server has made beside one that is gone.
    let noted = |path: &Path| {
        let end = [b" ", path.as_os_str().as_bytes()].concat();
        text.split(|byte| *byte == b'\n').any(|line| line.ends_with(&end))
    };
    let is_replaced = |path: &Path| {
        let Some(dir) = path.parent() else { return false };
        let is_redo = |name: &OsStr| Kind::Redo.has(name) || dir.ends_with("#innodb_redo");
        let mut others = std::fs::read_dir(dir).into_iter().flatten().flatten();
        others.any(|other| is_redo(&other.file_name()) && !noted(&other.path()))
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let mut part = || parts.next().unwrap_or_default();
        (part(), part(), Path::new(OsStr::from_bytes(part())))
    });
    let (lasts, files): (Vec<_>, Vec<_>) = lines.partition(|(len, ..)| *len == NONE);
    // A storage engine has written; the server may have ended then.
    let mut is_unfinished = false;
    for (.., path) in lasts {
        let unclear = |source| SstError::Unclear { path: path.to_owned(), source };
        is_unfinished |= !path.try_exists().map_err(unclear)?;
    }
    let (mut is_untried, mut failure) = (false, None);
    for (len, time, path) in files {
        match state(path) {
            Ok(now) if now.as_bytes() == [len, b" ", time, b" "].concat() => is_untried = true,
            _ if !is_there(path) => {
                let missing = io::Error::from(io::ErrorKind::NotFound);
                failure = Some(SstError::Unclear { path: path.to_owned(), source: missing });
            }
            Ok(_) => return Ok(is_unfinished),
            // Servers remove files of their redo log. That alone shows nothing: a file system may not be mounted.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_replaced(path) => {
                return Ok(is_unfinished);
            }
            Err(source) => failure = Some(SstError::Unclear { path: path.to_owned(), source }),
        }
    }
    failure.map_or(Ok(is_untried), Err)
}

/// Puts the old data back, if no server has accepted the present data.
///
/// # Errors
/// [`SstError::Swap`]; or if it cannot be found out whether a server has.
pub(super) fn take_back_untried(
    layout: &Layout,
    lock: &DatadirLock,
    is_data: impl Fn(&OsStr, &Metadata) -> bool,
    error_log: &ErrorLog,
) -> Result<(), SstError> {
    if !is_untried(layout)? {
        return Ok(());
    }
    match take_back(layout, lock, is_data) {
        Ok(true) => error_log.warn("no server has accepted the data of the last transfer: the data from before it is in place again"),
        Ok(false) => {}
        // A file system that is not mounted may have the rest.
        Err(SstError::Swap(SwapError::OldIsNotWhole { folder, name })) if name == WORK_DIR => {
            return Err(SwapError::OldIsNotWhole { folder, name }.into());
        }
        // It was removed by hand, or the data directory was copied. The present data is all there is.
        Err(SstError::Swap(
            error @ (SwapError::OldIsNotWhole { .. }
            | SwapError::Journal { .. }
            | SwapError::Elsewhere { .. }),
        )) => error_log.warn(format_args!("no server has accepted the data of the last transfer, but {error}")),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Puts the old data of the last swap back. The data that was swapped in is then in `#sql-xb/.new`, where it stays
/// until a donor's backup takes its place. `is_data` returns whether an entry of the data directory belongs to the data. A position that Galera
/// has noted of the present data is not that of the old data, and is forgotten. Returns whether there was old data.
///
/// # Errors
/// [`SstError::Swap`].
pub fn take_back(
    layout: &Layout,
    lock: &DatadirLock,
    is_data: impl Fn(&OsStr, &Metadata) -> bool,
) -> Result<bool, SstError> {
    let mut mounted = HashSet::new();
    for (name, _) in swap::list(&layout.datadir)? {
        let path = layout.datadir.join(&name);
        if is_mounted(&path).map_err(SstError::io("look at", &path))? {
            mounted.insert(name);
        }
    }
    let is_data = |name: &OsStr, facts: &Metadata| is_data(name, facts) && !mounted.contains(name);
    let is_done = swap::take_back(layout, &lock.folders, is_data, forget_present_data(layout))?;
    forget_note(layout).map_err(SstError::io("remove", mark(layout)))?;
    Ok(is_done)
}

/// Continues a [`take_back`] that was interrupted.
///
/// # Errors
/// [`SstError::Swap`].
pub(super) fn continue_to_take_back(layout: &Layout, journal: &Journal) -> Result<(), SstError> {
    swap::roll_back(&layout.datadir, journal, forget_present_data(layout))?;
    forget_note(layout).map_err(SstError::io("remove", mark(layout)))
}

/// Returns what is to be called before each rename, when it is certain that the old data is whole: the first call removes
/// the position that Galera has noted of the present data. The mark stays until all is done: if nothing can be moved, it is true.
pub(super) fn forget_present_data(layout: &Layout) -> impl FnMut() -> io::Result<()> + use<> {
    let (mut is_forgotten, datadir) = (false, layout.datadir.clone());
    move || match std::mem::replace(&mut is_forgotten, true) {
        true => Ok(()),
        false => forget_position(&datadir),
    }
}

/// Makes Galera ask the data for its position.
fn forget_position(datadir: &Path) -> io::Result<()> {
    let path = datadir.join("grastate.dat");
    let Some(text) = or_none(std::fs::read_to_string(&path))? else { return Ok(()) };
    let forgotten = text.lines().map(|line| match line.split_once(':') {
        Some(("seqno", _)) => "seqno:   -1\n".to_owned(),
        Some(("safe_to_bootstrap", _)) => "safe_to_bootstrap: 0\n".to_owned(),
        _ => format!("{line}\n"),
    });
    let text: String = forgotten.collect();
    // Written in place, as Galera does: the file keeps its owner. Never empty: Galera may begin a new cluster without it.
    let mut file = File::options().write(true).truncate(false).open(&path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// Locks on the files of the storage engines: a server that runs on the data has them, and none starts while these are
/// held. They belong to the open files, not to the process: a read of the old data that ends late and closes its file would
/// release those of the process.
#[derive(Debug)]
pub struct EngineLocks {
    files: Vec<File>,
    /// Device and inode of each file: under another name, the file would be in use by this process.
    known: HashSet<(u64, u64)>,
    /// Files that the file system cannot lock.
    unlockable: Vec<SstError>,
    /// Files and directories that could not be looked at.
    unseen: Vec<SstError>,
    /// Whether a server on the data would have files of its storage engines.
    must_be_some: bool,
}

impl EngineLocks {
    /// Takes the locks on the files of the last swap, of an interrupted one, and of all directories of the layout. What
    /// cannot be locked is remembered; the rest is locked nevertheless.
    ///
    /// # Errors
    /// [`SstError::InUse`] if a server has one.
    pub fn take(layout: &Layout) -> Result<Self, SstError> {
        Self::take_by(layout, lock_whole)
    }

    fn take_by(
        layout: &Layout,
        lock: impl Fn(&File) -> Result<(), Errno>,
    ) -> Result<Self, SstError> {
        let mut unseen = Vec::new();
        // Where a journal cannot be read, the directories of the layout still show a server.
        let mut journal = |read: Result<Option<Journal>, SwapError>| match read {
            Ok(journal) => journal.unwrap_or_default(),
            Err(error) => {
                unseen.push(error.into());
                Journal::default()
            }
        };
        let last = journal(swap::last(&layout.datadir));
        let interrupted = journal(swap::interrupted(&layout.datadir));
        let swapped = last.new.iter().map(|entry| last.folder(entry).join(&entry.name));
        let moving = interrupted.old.iter().chain(&interrupted.new).flat_map(|entry| {
            let folder = interrupted.folder(entry);
            let ours = folder.join(WORK_DIR);
            [folder.to_owned(), ours.join(OLD), ours.join(NEW)].map(|dir| dir.join(&entry.name))
        });
        let mut paths = Vec::new();
        for entry in swapped.chain(moving) {
            match engine_files(&entry) {
                Ok(files) => paths.extend(files),
                Err(error) => unseen.push(error),
            }
            paths.extend(Some(entry).filter(|path| is_of_engine(path)));
        }
        let inside =
            layout.inside.iter().map(|place| (layout.datadir.join(&place.dir), &place.kind));
        let outside = layout.outside.iter().map(|place| (place.dir.clone(), &place.kind));
        let home = (layout.datadir.clone(), &Kind::Redo);
        // A system tablespace may have any name.
        for (dir, kind) in inside.chain(outside).chain([home]) {
            let has_named = |name: &OsStr| matches!(kind, Kind::Data(_)) && kind.has(name);
            let entries = swap::list(&dir).unwrap_or_else(|error| {
                unseen.push(error.into());
                Vec::new()
            });
            let paths_here = entries.into_iter().map(|(name, _)| dir.join(name));
            paths.extend(
                paths_here
                    .filter(|path| is_of_engine(path) || path.file_name().is_some_and(has_named)),
            );
        }
        paths.sort();
        let must_be_some = !last.new.is_empty();
        let (files, known, unlockable) = (Vec::new(), HashSet::new(), Vec::new());
        let mut locks = Self { files, known, unlockable, unseen, must_be_some };
        for path in paths {
            locks.add(&path, &lock)?;
        }
        Ok(locks)
    }

    fn add(
        &mut self,
        path: &Path,
        lock: impl Fn(&File) -> Result<(), Errno>,
    ) -> Result<(), SstError> {
        match or_none(path.symlink_metadata()) {
            Ok(Some(facts)) if facts.is_file() => {}
            Ok(_) => return Ok(()),
            Err(error) => {
                self.unseen.push(SstError::io("look at", path)(error));
                return Ok(());
            }
        }
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) => {
                self.unseen.push(SstError::io("open", path)(error));
                return Ok(());
            }
        };
        let facts = file.metadata().map_err(SstError::io("look at", path))?;
        if !self.known.insert((facts.dev(), facts.ino())) {
            return Ok(());
        }
        let failed = |error: Errno| SstError::io("lock", path)(error.into());
        match lock(&file) {
            Ok(()) => self.files.push(file),
            Err(Errno::EAGAIN | Errno::EACCES) => {
                return Err(SstError::InUse { path: path.to_owned() });
            }
            Err(error @ (Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS)) => {
                self.unlockable.push(failed(error));
            }
            Err(error) => self.unseen.push(failed(error)),
        }
        Ok(())
    }

    /// Returns whether no server can be running on the data: all files are locked.
    pub(super) fn are_whole(&self) -> bool {
        let is_sure = !self.files.is_empty() || !self.must_be_some;
        is_sure && self.unlockable.is_empty() && self.unseen.is_empty()
    }

    /// Returns the locks if they lack no files but those that the file system cannot lock at all, and logs the first of
    /// those.
    ///
    /// # Errors
    /// [`SstError::InUse`] if no file shows whether a server has the data; or the first file or directory that could not be
    /// looked at.
    pub fn as_far_as_possible(
        mut self,
        layout: &Layout,
        error_log: &ErrorLog,
    ) -> Result<Self, SstError> {
        if !self.unseen.is_empty() {
            return Err(self.unseen.swap_remove(0));
        }
        if self.must_be_some && self.files.is_empty() && self.unlockable.is_empty() {
            return Err(SstError::InUse { path: layout.datadir.clone() });
        }
        self.warn(error_log);
        Ok(self)
    }

    /// Logs the first file that is not locked.
    fn warn(&self, error_log: &ErrorLog) {
        let mut gaps = self.unseen.iter().chain(&self.unlockable);
        if let Some(first) = gaps.next() {
            let others = match gaps.count() {
                0 => String::new(),
                count => format!(" (and {count} more)"),
            };
            error_log.warn(format_args!(
                "{first}{others}: so it is not certain that no server runs on the data"
            ));
        }
    }
}

/// Returns whether a server has a tablespace in use. One that cannot be opened is not known to be.
pub(super) fn is_in_use(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path);
    file.is_ok_and(|file| matches!(lock_whole(&file), Err(Errno::EAGAIN | Errno::EACCES)))
}

/// Takes the lock that a server's storage engine would take on a file.
#[allow(clippy::cast_possible_truncation)] // small constants of the system
fn lock_whole(file: &File) -> Result<(), Errno> {
    let (l_type, l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
    let whole = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).map(drop)
}

/// Returns what a storage engine locks below an entry of a data directory: some have a directory of their own. Not the
/// tables of a schema: a server locks them, too, but they may be more than a process can open.
fn engine_files(entry: &Path) -> Result<Vec<PathBuf>, SstError> {
    let facts = or_none(entry.metadata()).map_err(SstError::io("look at", entry))?;
    if !facts.is_some_and(|facts| facts.is_dir()) {
        return Ok(Vec::new());
    }
    let below = swap::list(entry)?.into_iter().map(|(name, _)| entry.join(name));
    Ok(below.filter(|path| is_of_engine(path) && !is_table(path)).collect())
}

fn is_of_engine(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let kinds = [Kind::Data(Vec::new()), Kind::Redo, Kind::Undo, Kind::Aria];
    kinds.iter().any(|kind| kind.has(name)) || name == "aria_log_control" || is_table(path)
}

fn is_table(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("ibd"))
}

/// Refuses data on which a server runs, and names in the log what does not show that. While the result lives, no server
/// starts on the data, as far as its files can be locked.
///
/// # Errors
/// [`SstError::InUse`].
pub(super) fn refuse_data_in_use(
    layout: &Layout,
    error_log: &ErrorLog,
) -> Result<EngineLocks, SstError> {
    let locks = EngineLocks::take(layout)?;
    locks.warn(error_log);
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn tables_of_a_schema_are_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let [schema, undo] = ["shop", "undo"].map(|name| dir.path().join(name));
        for folder in [&schema, &undo] {
            std::fs::create_dir(folder).unwrap();
        }
        let [table, log, system] =
            [schema.join("a.ibd"), undo.join("undo001"), dir.path().join("mysql.ibd")];
        for file in [&table, &log, &system] {
            std::fs::write(file, "").unwrap();
        }
        assert_eq!(engine_files(&schema).unwrap(), [] as [PathBuf; 0]);
        assert_eq!(engine_files(&undo).unwrap(), [log]);
        assert_eq!(engine_files(&system).unwrap(), [] as [PathBuf; 0]);
    }

    /// A directory that cannot be listed may have the files of a server that runs.
    #[test]
    fn a_swapped_directory_that_cannot_be_listed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::of(dir.path()).unwrap();
        std::fs::create_dir_all(layout.datadir.join(WORK_DIR).join(OLD)).unwrap();
        let [system, undo] = ["ibdata1", "undo"].map(|name| layout.datadir.join(name));
        std::fs::write(&system, "").unwrap();
        let new = ["ibdata1", "undo"].map(|name| swap::Entry { folder: 0, name: name.into() });
        let journal = Journal { new: new.to_vec(), ..Journal::default() };
        swap::begin(&layout.datadir, &journal).unwrap();
        let kept = swap::kept_journal_path(&layout.datadir);
        std::fs::rename(swap::journal_path(&layout.datadir), kept).unwrap();
        // It is gone: its file system may not be mounted, but a server would not run then.
        assert!(EngineLocks::take(&layout).unwrap().are_whole());
        std::os::unix::fs::symlink("undo", &undo).unwrap();
        let (error_log, messages) = log();
        let locks = refuse_data_in_use(&layout, &error_log).unwrap();
        assert!(!locks.are_whole());
        let message = format!("cannot look at {}", undo.display());
        assert!(messages.lock().unwrap()[0].starts_with(&message));
    }

    /// The file that a server makes last may be missing, present, or in a directory that cannot be read.
    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::of(dir.path()).unwrap();
        let old = layout.datadir.join(WORK_DIR).join(OLD);
        std::fs::create_dir_all(&old).unwrap();
        let system = layout.datadir.join("ibdata1");
        std::fs::write(&system, "written since").unwrap();
        let entry = crate::swap::Entry { folder: 0, name: "ibdata1".into() };
        let journal = Journal { old: vec![entry], ..Journal::default() };
        swap::begin(&layout.datadir, &journal).unwrap();
        std::fs::rename(
            swap::journal_path(&layout.datadir),
            swap::kept_journal_path(&layout.datadir),
        )
        .unwrap();
        let last = layout.datadir.join(MADE_LAST);
        let lines = format!("- - {}\n0 0 {}\n", last.display(), system.display());
        std::fs::write(mark(&layout), lines).unwrap();
        assert!(is_untried(&layout).unwrap());
        std::os::unix::fs::symlink(MADE_LAST, &last).unwrap();
        assert!(matches!(is_untried(&layout), Err(SstError::Unclear { path, .. }) if path == last));
        std::fs::remove_file(&last).unwrap();
        std::fs::write(&last, "").unwrap();
        assert!(!is_untried(&layout).unwrap());
    }

    /// A log, and the messages in it.
    fn log() -> (ErrorLog, Arc<Mutex<Vec<String>>>) {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&messages);
        (ErrorLog::new(move |_, text| theirs.lock().unwrap().push(text.to_string())), messages)
    }

    /// Whether a server could not lock a file.
    fn is_locked(path: &Path) -> bool {
        let file = File::options().read(true).write(true).open(path).unwrap();
        lock_whole(&file).is_err()
    }

    #[test]
    fn a_file_that_this_process_closes_stays_locked() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("ibdata1");
        std::fs::write(&system, "").unwrap();
        std::fs::hard_link(&system, dir.path().join("ibdata2")).unwrap();
        let layout = Layout::of(dir.path()).unwrap();
        let locks = EngineLocks::take(&layout).unwrap();
        assert!(locks.are_whole());
        // As a read of the old data does that ends late.
        drop(File::open(&system).unwrap());
        assert!(is_locked(&system));
        drop(locks);
        assert!(!is_locked(&system));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named_and_the_others_are_locked() {
        let dir = tempfile::tempdir().unwrap();
        let [system, undo] = ["ibdata1", "undo001"].map(|name| dir.path().join(name));
        std::fs::write(&system, "").unwrap();
        // No process can write to a program that runs.
        std::fs::copy("/bin/sleep", &undo).unwrap();
        let mut program = std::process::Command::new(&undo).arg("1000").spawn().unwrap();
        let layout = Layout::of(dir.path()).unwrap();
        let (error_log, messages) = log();
        let locks = refuse_data_in_use(&layout, &error_log);
        let held = is_locked(&system);
        let are_whole = locks.map(|locks| locks.are_whole());
        let rolling = EngineLocks::take(&layout).unwrap().as_far_as_possible(&layout, &error_log);
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(held && !are_whole.unwrap());
        let message = format!("cannot open {}", undo.display());
        assert!(messages.lock().unwrap()[0].starts_with(&message));
        assert!(rolling.unwrap_err().to_string().starts_with(&message));
    }

    #[test]
    fn files_that_nobody_can_lock_are_named_and_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("ibdata1");
        std::fs::write(&system, "").unwrap();
        let layout = Layout::of(dir.path()).unwrap();
        let with = |errno| EngineLocks::take_by(&layout, move |_| Err(errno));
        for errno in [Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS] {
            let (error_log, messages) = log();
            let locks = with(errno).unwrap();
            assert!(!locks.are_whole());
            let _ = locks.as_far_as_possible(&layout, &error_log).unwrap();
            let message = format!("cannot lock {}", system.display());
            assert!(messages.lock().unwrap()[0].starts_with(&message));
        }
        let (error_log, _) = log();
        let unknown = with(Errno::EIO).unwrap().as_far_as_possible(&layout, &error_log);
        assert!(unknown.unwrap_err().to_string().starts_with("cannot lock"));
        assert!(matches!(with(Errno::EAGAIN), Err(SstError::InUse { path }) if path == system));
    }
}
