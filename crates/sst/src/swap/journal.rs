//! The journal of a swap: which entries of which directories are moved out, and which are moved in.
//!
//! Text, a line each: `xb-sst-journal 1`, `home PATH` with the data directory it was written for,
//! `folder PATH` for each of the others, `way back` if the swap is rolled back, `out N NAME`,
//! `in N NAME`, `stay N NAME`, `gone N NAME` (N counts folders, 0 is the data directory), `was BYTES NANOSECONDS N NAME`,
//! `end COUNT` with the number of lines before it. In paths and names every byte except letters, digits and `-._/#@` is written as `%XX`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

const FIRST: &str = "xb-sst-journal 1";
/// First words of the lines for entries, in the order of the lists.
const WORDS: [&str; 4] = ["out", "in", "stay", "gone"];
/// Maximum number of lines in a journal.
const MAX_LINES: usize = 10_000_000;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Number of its directory.
    pub folder: usize,
    /// Its name in the directory.
    pub name: OsString,
}

/// A file of a storage engine in its directory, as it was before the first rename; of a directory, the files in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineState {
    /// The entry.
    pub entry: Entry,
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub nanos: u128,
}

/// The entries to swap, in the order of the renames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// The directories, the data directory first. In a journal read from disk, that is the data
    /// directory in which the journal was found.
    pub folders: Vec<PathBuf>,
    /// Entries that go to `old`.
    pub old: Vec<Entry>,
    /// Entries that come from `new`.
    pub new: Vec<Entry>,
    /// Entries that stay in the data directory, and elsewhere files of storage engines. Any other such file was created by a
    /// server that was started in the middle of the swap.
    pub stay: Vec<Entry>,
    /// Old entries that had vanished before they could be moved.
    pub gone: Vec<Entry>,
    /// Whether the swap is being taken back: after an interruption, it does not go forward.
    pub goes_back: bool,
    /// The files that show whether a server has started on the data since the journal was written.
    pub was: Vec<EngineState>,
}

/// Reason why a journal cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Its first line is not that of a journal.
    #[error("it is not a journal of this program, or has a later version")]
    NotOurs,
    /// A line is invalid.
    #[error("line {0} is damaged")]
    Line(usize),
    /// Its last line is missing.
    #[error("it is truncated")]
    Cut,
}

impl Journal {
    /// Returns the directory of an entry; the data directory if the entry's number is unknown.
    #[must_use]
    pub fn folder(&self, entry: &Entry) -> &Path {
        self.folders.get(entry.folder).or(self.folders.first()).map_or(Path::new(""), |f| f)
    }

    /// Encodes the journal as text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("{FIRST}\n");
        for (number, folder) in self.folders.iter().enumerate() {
            let word = if number == 0 { "home" } else { "folder" };
            let _ = writeln!(text, "{word} {}", escaped(folder.as_os_str().as_bytes()));
        }
        if self.goes_back {
            text.push_str("way back\n");
        }
        let lists = [&self.old, &self.new, &self.stay, &self.gone];
        for (word, entries) in WORDS.into_iter().zip(lists) {
            for Entry { folder, name } in entries {
                let _ = writeln!(text, "{word} {folder} {}", escaped(name.as_bytes()));
            }
        }
        for EngineState { entry: Entry { folder, name }, bytes, nanos } in &self.was {
            let _ = writeln!(text, "was {bytes} {nanos} {folder} {}", escaped(name.as_bytes()));
        }
        let entries: usize = lists.iter().map(|list| list.len()).sum();
        let before = 1 + self.folders.len() + usize::from(self.goes_back);
        let lines = before + entries + self.was.len();
        let _ = writeln!(text, "end {lines}");
        text
    }

    /// Parses the text of a journal.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn parse(text: &str) -> Result<Self, JournalError> {
        let mut lines = text.split_inclusive('\n').take(MAX_LINES).enumerate();
        if lines.next().map(|(_, line)| line) != Some("xb-sst-journal 1\n") {
            return Err(JournalError::NotOurs);
        }
        let mut journal = Self::default();
        for (number, line) in lines {
            let line = line.strip_suffix('\n').ok_or(JournalError::Cut)?;
            let damaged = || JournalError::Line(number + 1);
            let folders = journal.folders.len();
            match line.split_once(' ').ok_or_else(damaged)? {
                (word @ ("home" | "folder"), path) => {
                    // Exactly one `home` line, before all `folder` lines.
                    if (word == "home") != journal.folders.is_empty() {
                        return Err(damaged());
                    }
                    let path = unescaped(path).filter(|p| p.first() == Some(&b'/'));
                    journal.folders.push(OsString::from_vec(path.ok_or_else(damaged)?).into());
                }
                ("way", "back") => journal.goes_back = true,
                ("end", count) => {
                    let fits = count.parse() == Ok(number) && !journal.folders.is_empty();
                    return if fits { Ok(journal) } else { Err(JournalError::Cut) };
                }
                ("was", rest) => {
                    let mut parts = rest.splitn(3, ' ');
                    let mut part = || parts.next().ok_or_else(damaged);
                    let bytes = part()?.parse().map_err(|_| damaged())?;
                    let nanos = part()?.parse().map_err(|_| damaged())?;
                    let entry = read_entry(part()?, folders).ok_or_else(damaged)?;
                    journal.was.push(EngineState { entry, bytes, nanos });
                }
                (word, rest) => {
                    let lists =
                        [&mut journal.old, &mut journal.new, &mut journal.stay, &mut journal.gone];
                    let list = WORDS.into_iter().zip(lists).find(|(known, _)| *known == word);
                    let (_, list) = list.ok_or_else(damaged)?;
                    list.push(read_entry(rest, folders).ok_or_else(damaged)?);
                }
            }
        }
        Err(JournalError::Cut)
    }
}

/// Reads `N NAME`, of one of so many folders.
fn read_entry(text: &str, folders: usize) -> Option<Entry> {
    let (folder, name) = text.split_once(' ')?;
    let folder = folder.parse().ok().filter(|folder| *folder < folders)?;
    let name = unescaped(name).filter(|name| is_name(name))?;
    Some(Entry { folder, name: OsString::from_vec(name) })
}

/// Returns whether this is a single path component that does not lead elsewhere.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b".." | b"#sql-xb") && !name.contains(&b'/') && !name.contains(&0)
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' | b'#' | b'@' => {
                out.push(char::from(*byte));
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let high = bytes.next().and_then(digit)?;
        let low = bytes.next().and_then(digit)?;
        out.push(high << 4 | low);
    }
    Some(out)
}
