//! Puts a stored clone together, in the directory with its files.
//!
//! ```text
//! xb_clone.json, xb_clone.patches      read, and every number in them checked
//! xb_clone.heads                       what has keys, with these wrapped
//! xb_clone.outside/INDEX               files to which DDL gave other names, and late ones, come here; removed ones go
//! xb_clone.moved                       from here on, a name is the last one of its file
//! xb_clone.outside/INDEX               moved to where a server finds them
//! pages, sizes, folders                written in place
//! xb_clone.redo/                       the redo log, where no server looks for it
//! sync, then xb_clone.redo/ becomes #innodb_redo/: from here on a server can start
//! ```
//!
//! Each step can be done again, so that a run that was killed is repeated from its begin.

use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

use xb_reader::{IfMissing, RelPath, TargetDir};

use crate::error::Error;
use crate::heads::{self, FileHeads, REDO_HEAD};
use crate::keys;
use crate::layout::Layout;
use crate::moved::{MOVED, own};
use crate::patches::{Patch, PatchReader, PatchTarget};
use crate::stored::{CloneInfo, INFO, OUTSIDE, PATCHES, README};

/// Directories in which the redo log grows, and in which a server looks for it.
const NEW_REDO: &str = "xb_clone.redo";
pub(crate) const REDO: &str = "#innodb_redo";
/// Ending of the files in which a server will continue its redo log. A former file of the clone may still have its head.
const SPARE: &[u8] = b"_tmp";
/// The server's own settings that describe its files, as backup programs write them.
const SETTINGS: &str = "backup-my.cnf";
/// Files that tell a server to make the tables of other engines again, empty.
const STATUS: [&str; 2] = ["#clone/#status_fix", "#clone/#replace_files"];
/// Error for a file that was written before.
const NO_HEADS: &str = "the file with its keys is gone";
/// The folder without which no server starts.
const SYSTEM_SCHEMA: &str = "mysql";

/// Reads and checks what the clone in `target` says about itself.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Refused`], [`Error::Target`].
pub(crate) fn read_info(target: &TargetDir) -> Result<CloneInfo, Error> {
    CloneInfo::read(target.open_in_place(&own(INFO)?, IfMissing::Fail)?)
}

/// Puts the clone together whose files are in `target`. If it already is, nothing is changed. With `durable`,
/// everything is on disk before a server can start on it, and when this returns. The files of the clone itself stay
/// until [`remove_parts`].
///
/// A run that was killed, or that `is_cancelled` has ended, is continued by calling this again. Until then, no server
/// starts on the directory.
///
/// # Errors
/// [`Error::Damaged`] and [`Error::Refused`] before anything is changed; [`Error::Cancelled`]; [`Error::Target`] and
/// [`Error::Output`].
pub fn assemble(
    target: &TargetDir,
    durable: bool,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<CloneInfo, Error> {
    let info = read_info(target)?;
    let layout = Layout::new(&info)?;
    if !target.has(&own(REDO)?)? {
        let job = Job { target, layout: &layout, is_cancelled };
        job.run(info.patches, durable)?;
    }
    Ok(info)
}

/// Removes the files of the clone itself from a directory in which it was put together.
///
/// # Errors
/// [`Error::Target`].
pub fn remove_parts(target: &TargetDir) -> Result<(), Error> {
    // The one that says what the others are comes last.
    for name in [PATCHES, README, MOVED].into_iter().chain(heads::names()).chain([INFO]) {
        let name = own(name)?;
        if target.has(&name)? {
            target.remove(&name)?;
        }
    }
    Ok(target.remove_dir(&own(OUTSIDE)?)?)
}

/// Checks that a directory to which a stream was extracted has nothing that only putting it together makes: with a
/// redo log from elsewhere, a server could start on torn files.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Target`].
/// `paths` are those of the files of the directory, from there: a server believes what lies beside its data, at the top and in
/// the folder of a schema.
pub fn check_extracted(target: &TargetDir, paths: &[Vec<u8>]) -> Result<(), Error> {
    let layout = Layout::new(&read_info(target)?)?;
    for name in [REDO, NEW_REDO, MOVED, "#clone"].into_iter().chain(heads::names()) {
        if target.has(&own(name)?)? {
            return Err(Error::Damaged(format!("it has {name}, which is in no clone")));
        }
    }
    layout.refuse_unlisted(paths)
}

/// Names of the files in `target` whose keys are protected only by a public constant. No tablespace is
/// left once a server with a keyring has started on the files; the redo log is, until that server rotates its master key.
/// The key of the redo log counts only if there are encrypted files: it protects nothing else.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Target`], [`Error::Output`].
pub fn exposed_keys(target: &TargetDir, info: &CloneInfo) -> Result<Vec<String>, Error> {
    let mut exposed = Vec::new();
    for file in Layout::new(info)?.files.iter().filter(|file| !file.is_removed) {
        // A server that has started may have removed it.
        if file.page_size > 0
            && target.has(&file.target)?
            && heads::is_exposed(&target.open_in_place(&file.target, IfMissing::Fail)?, file)?
        {
            exposed.push(file.target.to_string());
        }
    }
    if info.is_encrypted() {
        exposed.extend(exposed_redo(target)?);
    }
    Ok(exposed)
}

/// Names of the files of the redo log in `target` that have a key which only a public constant protects, or nothing. A
/// server continues in the last one of the clone, where the donor's records stay, and keeps the key as it is there. Spare
/// files do not count.
///
/// # Errors
/// [`Error::Target`], [`Error::Output`].
pub fn exposed_redo(target: &TargetDir) -> Result<Vec<String>, Error> {
    let mut exposed = Vec::new();
    let names = target.names_in(&own(REDO)?)?;
    for name in names.into_iter().filter(|name| !name.as_bytes().ends_with(SPARE)) {
        let mut head = Vec::new();
        let file = target.open_in_place(&name, IfMissing::Fail)?;
        file.take(REDO_HEAD as u64).read_to_end(&mut head)?;
        if keys::is_exposed_in_redo(&head) {
            exposed.push(name.to_string());
        }
    }
    exposed.sort_unstable();
    Ok(exposed)
}

/// Returns whether the redo log is in its place: the clone in `target` was put together.
///
/// # Errors
/// [`Error::Target`].
pub fn is_assembled(target: &TargetDir) -> Result<bool, Error> {
    Ok(target.has(&own(REDO)?)?)
}

struct Job<'a> {
    target: &'a TargetDir,
    layout: &'a Layout,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl Job<'_> {
    fn run(&self, patches: u64, durable: bool) -> Result<(), Error> {
        let beginnings = self.check(patches)?;
        if heads::open(self.target)?.is_none() {
            self.go_on()?;
            beginnings.write(self.layout, self.target, &self.patch_file()?)?;
            if durable {
                self.target.sync()?;
            }
        }
        if self.layout.has_changes() && !self.target.has(&own(MOVED)?)? {
            self.park(durable)?;
        }
        for file in self.layout.files.iter().filter(|file| file.is_moved()) {
            if self.target.has(&file.parked)? {
                self.go_on()?;
                self.target.rename(&file.parked, &file.target)?;
            }
        }
        self.patch()?;
        self.resize()?;
        self.make_rest()?;
        if durable {
            self.target.sync()?;
        }
        self.go_on()?;
        // From here on a server can start.
        self.target.rename_dir(&own(NEW_REDO)?, &own(REDO)?)?;
        if durable {
            self.target.sync()?;
        }
        Ok(())
    }

    /// Does what DDL did: takes all names away that are not the last ones of their files. Two files may have swapped
    /// theirs, so none gets its last name before.
    fn park(&self, durable: bool) -> Result<(), Error> {
        for file in &self.layout.files {
            self.go_on()?;
            if file.is_removed {
                if self.target.has(&file.stored)? {
                    self.target.remove(&file.stored)?;
                }
            } else if file.is_late {
                drop(self.target.open_in_place(&file.parked, IfMissing::Create)?);
            } else if file.is_parked() && self.target.has(&file.stored)? {
                self.target.rename(&file.stored, &file.parked)?;
            }
        }
        if durable {
            self.target.sync()?;
        }
        self.go_on()?;
        drop(self.target.open_in_place(&own(MOVED)?, IfMissing::Create)?);
        if durable {
            self.target.sync()?;
        }
        Ok(())
    }

    /// Before each change: nothing is changed any more once the run is cancelled.
    fn go_on(&self) -> Result<(), Error> {
        if (self.is_cancelled)() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Checks every file and every patch, before the first is changed.
    fn check(&self, patches: u64) -> Result<FileHeads, Error> {
        for file in self.layout.files.iter().filter(|file| !file.is_removed) {
            if file.is_late && !self.target.has(file.now(self.target)?)? {
                continue;
            }
            let there = self.target.open_in_place(file.now(self.target)?, IfMissing::Fail)?;
            let len = there.metadata()?.len();
            if len > file.size {
                return Err(Error::Damaged(format!(
                    "{} has {len} bytes, more than {}",
                    file.stored, file.size
                )));
            }
        }
        let (mut reader, mut count) = (self.patches()?, 0);
        let mut beginnings = FileHeads::default();
        while let Some(patch) = reader.read()? {
            self.layout.check(&patch)?;
            beginnings.add(&patch, reader.last_at());
            count += 1;
            if (self.is_cancelled)() {
                return Err(Error::Cancelled);
            }
        }
        match count == patches {
            true => Ok(beginnings),
            false => Err(Error::Damaged(format!("found only {count} of {patches} patches"))),
        }
    }

    fn patches(&self) -> Result<PatchReader<BufReader<File>>, Error> {
        PatchReader::new(BufReader::with_capacity(1 << 20, self.patch_file()?))
    }

    fn patch_file(&self) -> Result<File, Error> {
        Ok(self.target.open_in_place(&own(PATCHES)?, IfMissing::Fail)?)
    }

    /// Applies all patches in their order, and after them those with wrapped keys.
    fn patch(&self) -> Result<(), Error> {
        let mut writer = Writer { job: self, open: None };
        for reader in [Some(self.patches()?), heads::open(self.target)?] {
            let Some(mut reader) = reader else { return Err(Error::Damaged(NO_HEADS.to_owned())) };
            while let Some(patch) = reader.read()? {
                // Read anew since it was checked.
                self.layout.check(&patch)?;
                writer.write(&patch)?;
            }
        }
        Ok(())
    }

    fn resize(&self) -> Result<(), Error> {
        for file in self.layout.files.iter().filter(|file| !file.is_removed) {
            let handle = self.target.open_in_place(&file.target, IfMissing::Fail)?;
            if handle.metadata()?.len() < file.size {
                self.go_on()?;
                handle.set_len(file.size)?;
            }
        }
        for (size, index) in self.layout.redo.iter().zip(0..) {
            self.go_on()?;
            let handle = self.target.open_in_place(&redo_path(index)?, IfMissing::Create)?;
            handle.set_len(*size)?;
        }
        Ok(())
    }

    /// Makes the files that a clone does not have.
    fn make_rest(&self) -> Result<(), Error> {
        self.go_on()?;
        self.target.make_dir(&own(SYSTEM_SCHEMA)?)?;
        for name in STATUS {
            self.go_on()?;
            drop(self.target.open_in_place(&own(name)?, IfMissing::Create)?);
        }
        self.go_on()?;
        let mut file = self.target.open_in_place(&own(SETTINGS)?, IfMissing::Create)?;
        file.set_len(0)?;
        file.write_all(settings(self.layout).as_bytes())?;
        Ok(())
    }
}

/// Writes patches; keeps the last file open, because most patches of a file follow one another.
struct Writer<'a> {
    job: &'a Job<'a>,
    open: Option<(PatchTarget, File)>,
}

impl Writer<'_> {
    fn write(&mut self, patch: &Patch) -> Result<(), Error> {
        self.job.go_on()?;
        if self.is_of_removed(patch.to) {
            return Ok(());
        }
        let file = match self.open.take() {
            Some((to, file)) if to == patch.to => file,
            _ => self.open(patch.to)?,
        };
        file.write_all_at(&patch.bytes, patch.offset)?;
        self.open = Some((patch.to, file));
        Ok(())
    }

    fn is_of_removed(&self, to: PatchTarget) -> bool {
        let PatchTarget::File(index) = to else { return false };
        self.job.layout.file(index).is_some_and(|file| file.is_removed)
    }

    fn open(&self, to: PatchTarget) -> Result<File, Error> {
        let Job { target, layout, .. } = self.job;
        match to {
            PatchTarget::Redo(index) => {
                Ok(target.open_in_place(&redo_path(index)?, IfMissing::Create)?)
            }
            PatchTarget::File(index) => {
                let file = layout.file(index);
                let file =
                    file.ok_or_else(|| Error::Damaged(format!("a patch of file {index}")))?;
                Ok(target.open_in_place(&file.target, IfMissing::Fail)?)
            }
        }
    }
}

fn redo_path(index: u32) -> Result<RelPath, Error> {
    own(&format!("{NEW_REDO}/#ib_redo{index}"))
}

/// The settings without which a server does not find or read its files.
fn settings(layout: &Layout) -> String {
    let mut text = format!("[mysqld]\ninnodb_page_size={}\n", layout.page_size);
    let system = layout.system().map(|(name, size)| format!("{name}:{}M", size >> 20));
    let system: Vec<String> = system.collect();
    if !system.is_empty() {
        text = format!("{text}innodb_data_file_path={}:autoextend\n", system.join(";"));
    }
    text
}
