//! Exchanging the data of a server that does not run, by renames alone, so that a crash at any
//! moment leaves something that the next start can finish, and that no server takes for data.
//!
//! The new data lies whole, prepared and durable in `FOLDER/.xb/new/`, the old in FOLDER. A journal
//! in the data directory's `.xb` says which entries go; then every old one is moved to
//! `FOLDER/.xb/old/`, and every new one in. Where an entry stands says how far it has come, so the
//! journal need not be written again. `mysql/` goes first and comes last: without it no server starts.
//! But one that tries makes new, empty files of its storage engines before it finds out, and units
//! start one (`--wsrep_recover`) before they ask for a transfer: what such a server has made is put
//! aside into `FOLDER/.xb/old/.stray/`.

mod entry_state;
mod journal;
mod plan;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use entry_state::{Listed, Stands, is_fleeting};
pub use journal::{Entry, Journal, JournalError};
pub use plan::plan;

/// Our folder in a data directory. Servers and backup programs pass over names with a dot, and what
/// would be taken for the files of a schema never lies directly in it.
pub const OURS: &str = ".xb";
/// In [`OURS`]: what is about to become the data.
pub const NEW: &str = "new";
/// In [`OURS`]: what was the data.
pub const OLD: &str = "old";

/// In [`OLD`]: what a server has made that was started in the middle of an exchange.
const STRAY: &str = ".stray";

/// Why the data could not be exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// The system refused something.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The journal cannot be read.
    #[error("{}: {source}", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        source: JournalError,
    },
    /// An entry is in none of its places, or in two that exclude each other.
    #[error(
        "{} was changed while the data was being exchanged: {name} is not where it should be", folder.display()
    )]
    Lost {
        /// The folder.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// An entry is to stay, and to be replaced.
    #[error(
        "{name} is to stay in {}, and has come from the donor, too: nothing was exchanged", folder.display()
    )]
    Kept {
        /// The folder.
        folder: PathBuf,
        /// The entry.
        name: String,
    },
    /// The journal is of another data directory, and names folders of that one's.
    #[error(
        "the journal in {} was written for {}: the data directory was moved or copied in the middle of an exchange", datadir.display(), home.display()
    )]
    Elsewhere {
        /// The data directory.
        datadir: PathBuf,
        /// The one it was written for.
        home: PathBuf,
    },
}

pub(crate) fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SwapError + 'a {
    move |source| SwapError::Io { what, path: path.to_owned(), source }
}

/// The journal's path.
#[must_use]
pub fn journal_path(datadir: &Path) -> PathBuf {
    datadir.join(OURS).join("journal")
}

/// Where the journal goes when all is done: it tells in which folders old data lies.
#[must_use]
pub fn kept_journal_path(datadir: &Path) -> PathBuf {
    datadir.join(OURS).join(OLD).join(".journal")
}

/// Makes `FOLDER/.xb` with an empty `new` in it.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_folders(folder: &Path) -> Result<(), SwapError> {
    let new = folder.join(OURS).join(NEW);
    // What is left of another transfer must not come in with this one.
    remove_tree(&new)?;
    make_dir(&new).map_err(failed("make", &new))
}

/// Makes an empty `FOLDER/.xb/old`, which an exchange needs.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_old(folder: &Path) -> Result<(), SwapError> {
    let old = folder.join(OURS).join(OLD);
    remove_tree(&old)?;
    make_dir(&old).map_err(failed("make", &old))
}

fn remembered_path(datadir: &Path) -> PathBuf {
    datadir.join(OURS).join("folders")
}

/// Notes, durably, in which folders of nobody's a transfer is about to write.
///
/// # Errors
/// [`SwapError::Io`].
pub(crate) fn remember(datadir: &Path, folders: &[PathBuf]) -> Result<(), SwapError> {
    let folders = std::iter::once(datadir.to_owned()).chain(folders.iter().cloned()).collect();
    write(datadir, &Journal { folders, ..Journal::default() }, &remembered_path(datadir))
}

/// The folders that were noted; none where the note is not of this data directory.
pub(crate) fn remembered(datadir: &Path) -> Vec<PathBuf> {
    let noted = read(datadir, &remembered_path(datadir)).ok().flatten();
    noted.map(|noted| noted.folders.into_iter().skip(1).collect()).unwrap_or_default()
}

/// Forgets them.
pub(crate) fn forget(datadir: &Path) {
    let _ = std::fs::remove_file(remembered_path(datadir));
}

/// Makes a folder that nobody else may look into, and those on the way to it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes what is empty of `FOLDER/.xb`: a server shows it as a schema as long as it is there.
pub fn tidy(folder: &Path) {
    let ours = folder.join(OURS);
    for growing in [journal_path(folder), remembered_path(folder)] {
        let _ = std::fs::remove_file(growing.with_extension("tmp"));
    }
    let nothing_old = |journal: Journal| {
        let stray = |folder: &PathBuf| folder.join(OURS).join(OLD).join(STRAY).exists();
        journal.old.is_empty() && !journal.folders.iter().any(stray)
    };
    if last(folder).is_ok_and(|last| last.is_some_and(nothing_old)) {
        // There was nothing to keep, anywhere.
        let _ = std::fs::remove_file(kept_journal_path(folder));
    }
    for path in [ours.join(NEW), ours.join(OLD), ours] {
        // What is not empty stays.
        let _ = std::fs::remove_dir(path);
    }
}

/// Removes a folder with all that is in it; good if there is none.
///
/// # Errors
/// [`SwapError::Io`].
pub fn remove_tree(path: &Path) -> Result<(), SwapError> {
    match std::fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Writes the journal, after which there is no way but forward; what it names must be durable, and
/// nothing may lie in the folders' `.xb/old`.
///
/// # Errors
/// [`SwapError::Io`]; then nothing has begun.
pub fn begin(datadir: &Path, journal: &Journal) -> Result<(), SwapError> {
    write(datadir, journal, &journal_path(datadir))
}

fn write(datadir: &Path, journal: &Journal, path: &Path) -> Result<(), SwapError> {
    let mut journal = journal.clone();
    let home = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    match journal.folders.first_mut() {
        Some(first) => *first = home,
        None => journal.folders.push(home),
    }
    let growing = path.with_extension("tmp");
    let write = || {
        let mut file = std::fs::File::create(&growing)?;
        io::Write::write_all(&mut file, journal.encode().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&growing, path)
    };
    write().map_err(failed("write", path))?;
    sync_dir(&datadir.join(OURS))
}

/// Does what is left of the journal's work, and then removes it. `before` is called before each
/// rename and may break it off, as a crash would.
///
/// # Errors
/// [`SwapError`]; the journal stays, and this can be called again.
pub fn finish(
    datadir: &Path,
    journal: &Journal,
    mut before: impl FnMut() -> io::Result<()>,
) -> Result<(), SwapError> {
    set_aside(journal, &mut before)?;
    let mut journal = journal.clone();
    let gone = look_forward(&journal)?;
    if !gone.is_empty() {
        // Once the new ones have come, nothing else would tell them from the old.
        journal.gone.extend(gone);
        begin(datadir, &journal)?;
    }
    let listed = Listed::of(&journal);
    let mut step = stepping(&mut before);
    for entry in &journal.old {
        if listed.stands(entry)? == Stands::Old {
            let place = Place::of(&journal, entry);
            step(&place.here, &place.old)?;
        }
    }
    sync_all(&journal)?;
    for entry in &journal.new {
        let place = Place::of(&journal, entry);
        if exists(&place.new)? {
            step(&place.new, &place.here)?;
        }
    }
    sync_all(&journal)?;
    let path = journal_path(datadir);
    std::fs::rename(&path, kept_journal_path(datadir)).map_err(failed("rename", &path))?;
    sync_dir(&datadir.join(OURS))
}

/// Takes back what was done of the journal's work, and then removes it.
///
/// # Errors
/// [`SwapError`]; the journal stays, and this can be called again.
pub fn roll_back(
    datadir: &Path,
    journal: &Journal,
    mut before: impl FnMut() -> io::Result<()>,
) -> Result<(), SwapError> {
    set_aside(journal, &mut before)?;
    let listed = Listed::of(journal);
    // Half of the old data is none.
    for entry in journal.old.iter().filter(|entry| !is_fleeting(&entry.name)) {
        if !listed.has_old(entry)? {
            return Err(lost(journal, entry));
        }
    }
    let mut step = stepping(&mut before);
    for entry in journal.new.iter().rev() {
        if listed.stands(entry)? == Stands::New {
            let place = Place::of(journal, entry);
            step(&place.here, &place.new)?;
        }
    }
    sync_all(journal)?;
    for entry in journal.old.iter().rev() {
        let place = Place::of(journal, entry);
        if exists(&place.old)? {
            step(&place.old, &place.here)?;
        }
    }
    sync_all(journal)?;
    let path = journal_path(datadir);
    std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    sync_dir(&datadir.join(OURS))
}

fn stepping(
    before: &mut impl FnMut() -> io::Result<()>,
) -> impl FnMut(&Path, &Path) -> Result<(), SwapError> {
    |from, to| before().and_then(|()| rename(from, to)).map_err(failed("rename", from))
}

/// Looks before the first rename whether there is a way forward: all that is new must be there. Gives
/// what of the old has vanished: nobody needs that any more.
fn look_forward(journal: &Journal) -> Result<Vec<Entry>, SwapError> {
    let listed = Listed::of(journal);
    for entry in &journal.new {
        if !listed.has_new(entry)? {
            return Err(lost(journal, entry));
        }
    }
    let mut gone = Vec::new();
    for entry in &journal.old {
        if !journal.gone.contains(entry) && !listed.has_old(entry)? {
            gone.push(entry.clone());
        }
    }
    Ok(gone)
}

/// Puts aside what a server has made that was started in the middle.
fn set_aside(
    journal: &Journal,
    before: &mut impl FnMut() -> io::Result<()>,
) -> Result<(), SwapError> {
    for folder in &journal.folders {
        let ours = folder.join(OURS);
        if !exists(&ours)? {
            // Its file system is not mounted, perhaps.
            return Err(SwapError::Lost { folder: folder.clone(), name: OURS.to_owned() });
        }
        for path in [ours.join(OLD), ours.join(NEW)] {
            make_dir(&path).map_err(failed("make", &path))?;
        }
    }
    let mut step = stepping(before);
    for entry in Listed::of(journal).foreign()? {
        let place = Place::of(journal, &entry);
        let stray = journal.folder(&entry).join(OURS).join(OLD).join(STRAY);
        make_dir(&stray).map_err(failed("make", &stray))?;
        let mut to = stray.join(&entry.name);
        for number in 2.. {
            if !exists(&to)? {
                break;
            }
            let mut name = entry.name.clone();
            name.push(format!("~{number}"));
            to = stray.join(name);
        }
        step(&place.here, &to)?;
    }
    Ok(())
}

/// The journal that an interrupted exchange has left, if there is one.
///
/// # Errors
/// When it cannot be read, or is none of ours; [`SwapError::Elsewhere`].
pub fn interrupted(datadir: &Path) -> Result<Option<Journal>, SwapError> {
    read(datadir, &journal_path(datadir))
}

/// The journal of the last exchange, as long as its old data is there.
///
/// # Errors
/// When it cannot be read, or is none of ours; [`SwapError::Elsewhere`].
pub fn last(datadir: &Path) -> Result<Option<Journal>, SwapError> {
    read(datadir, &kept_journal_path(datadir))
}

fn read(datadir: &Path, path: &Path) -> Result<Option<Journal>, SwapError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let mut journal = Journal::parse(&text)
        .map_err(|source| SwapError::Journal { path: path.to_owned(), source })?;
    // A snapshot or a copy has its data directory elsewhere, and the other folders are not its own.
    let here = std::fs::canonicalize(datadir).map_err(failed("find", datadir))?;
    let several = journal.folders.len() > 1;
    match journal.folders.first_mut() {
        Some(home) if several && *home != here => {
            Err(SwapError::Elsewhere { datadir: here, home: home.clone() })
        }
        Some(home) => {
            *home = here;
            Ok(Some(journal))
        }
        None => Ok(Some(journal)),
    }
}

fn lost(journal: &Journal, entry: &Entry) -> SwapError {
    SwapError::Lost {
        folder: journal.folder(entry).to_owned(),
        name: entry.name.to_string_lossy().into_owned(),
    }
}

/// Where an entry may stand.
struct Place {
    here: PathBuf,
    old: PathBuf,
    new: PathBuf,
}

impl Place {
    fn of(journal: &Journal, entry: &Entry) -> Self {
        let folder = journal.folder(entry);
        let ours = folder.join(OURS);
        Self {
            here: folder.join(&entry.name),
            old: ours.join(OLD).join(&entry.name),
            new: ours.join(NEW).join(&entry.name),
        }
    }
}

/// A rename that overwrites nothing.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not know the flag.
        Err(Errno::INVAL) if std::fs::symlink_metadata(to).is_ok() => Err(Errno::EXIST.into()),
        Err(Errno::INVAL) => std::fs::rename(from, to),
        done => Ok(done?),
    }
}

fn exists(path: &Path) -> Result<bool, SwapError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

fn sync_all(journal: &Journal) -> Result<(), SwapError> {
    for folder in &journal.folders {
        let ours = folder.join(OURS);
        for dir in [folder.clone(), ours.join(OLD), ours.join(NEW)] {
            sync_dir(&dir)?;
        }
    }
    Ok(())
}

pub(crate) fn sync_dir(path: &Path) -> Result<(), SwapError> {
    std::fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("sync", path))
}
