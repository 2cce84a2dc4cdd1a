//! Notes that this host keeps in its state directory: small files, written whole, of which the newest stay.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use xb_files::or_none;

use crate::state_owner::{create_state_folder, give_to_owner_of};

/// Number of notes kept in a folder; enough for a year of nightly backups.
pub(crate) const MAX_NOTES: usize = 400;
/// Mode of a folder that a note creates, before the umask.
const FOLDER_MODE: u32 = 0o777;
/// Digits in the name of a note at least: a file of someone else has no such name.
const DIGITS: usize = 32;
/// Largest note that is read, in bytes.
const MAX_NOTE: u64 = 1 << 20;

/// A folder of notes, whose names are 32 hexadecimal digits or more. It may hold other files, too.
#[derive(Debug, Clone)]
pub(crate) struct NoteFolder(PathBuf);

impl NoteFolder {
    /// Keeps notes in this folder, which is created with the first one.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Writes or replaces a note, and removes the oldest ones. It belongs to the owner of the folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        create_state_folder(&self.0, FOLDER_MODE)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        file.write_all(content)?;
        give_to_owner_of(&self.0, file.as_file());
        file.as_file().sync_all()?;
        file.persist(self.path(name))?;
        // Best effort: old notes only take up space.
        let names = self.names().unwrap_or_default();
        names.iter().rev().skip(MAX_NOTES).for_each(|name| drop(self.remove(name)));
        Ok(())
    }

    /// Reads a note; `None` if there is none, or one that is too large to be one.
    ///
    /// # Errors
    /// If it cannot be read, such as one of another user.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let unread =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let Some(file) = or_none(File::open(&path)).map_err(unread)? else { return Ok(None) };
        let mut note = Vec::new();
        file.take(MAX_NOTE + 1).read_to_end(&mut note).map_err(unread)?;
        Ok(Some(note).filter(|note| note.len() as u64 <= MAX_NOTE))
    }

    /// Removes a note. Returns whether there was one.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(crate) fn remove(&self, name: &str) -> io::Result<bool> {
        Ok(or_none(std::fs::remove_file(self.path(name)))?.is_some())
    }

    /// The names of all notes, the oldest first.
    ///
    /// # Errors
    /// If the folder exists and cannot be read.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = or_none(std::fs::read_dir(&self.0))?;
        let mut notes: Vec<(SystemTime, String)> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = Self::name_of(&entry.path())?;
                Some((entry.metadata().ok()?.modified().ok()?, name))
            })
            .collect();
        notes.sort();
        Ok(notes.into_iter().map(|(_, name)| name).collect())
    }

    fn name_of(path: &Path) -> Option<String> {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        let is_note = name.len() >= DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_note.then(|| name.to_owned())
    }

    /// The file of a note.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }
}
