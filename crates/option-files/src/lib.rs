//! MySQL option files, and the values of options.
//!
//! The rules were observed in `my_print_defaults` of MariaDB 10.11; the tests check them.

mod values;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use values::{AgeError, SIZE_UNITS, SizeError, parse_age, parse_size};

/// Maximum size of an option file, in bytes. Real files have a few thousand bytes.
const MAX_FILE: u64 = 1 << 20;
/// Maximum depth of `!include`, as in MySQL.
const MAX_DEPTH: u32 = 10;
/// Maximum number of files that one run reads. Without it, a folder whose files include the folder
/// would be read a number of times that grows exponentially with the depth.
const MAX_FILES: u32 = 1000;

/// What some editors write in front of UTF-8 text.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Their marks of UTF-16 text, in either order of bytes.
const UTF_16_LE: [u8; 2] = [0xff, 0xfe];
const UTF_16_BE: [u8; 2] = [0xfe, 0xff];

/// Errors in option files. They name paths and keys, never values, which may be secrets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OptionFileError {
    /// A file that was named explicitly cannot be read.
    #[error("cannot read option file {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The folder of an `!includedir` cannot be listed.
    #[error("cannot list the option file directory {}", path.display())]
    List {
        /// Path of the folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file is larger than the limit.
    #[error("option file {} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Limit in bytes.
        limit: u64,
    },
    /// A file is UTF-16, as some editors of Windows write it.
    #[error("option file {} is UTF-16 text", path.display())]
    Utf16 {
        /// Path of the file.
        path: PathBuf,
    },
    /// `!include` and `!includedir` lead to too many files.
    #[error("cannot read option file {}: the limit is {limit} option files", path.display())]
    TooMany {
        /// First file that was not read.
        path: PathBuf,
        /// Maximum number of files.
        limit: u32,
    },
    /// A file whose options would be left out, because every user may write it.
    #[error(
        "option file {} is world-writable, so its options do not count: run chmod o-w on it",
        path.display()
    )]
    Writable {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file of an `!include` does not exist.
    #[error(
        "cannot read option file {}, which {} includes in line {line}: it does not exist; create it, or remove the line",
        path.display(),
        by.display()
    )]
    NoInclude {
        /// Path of the missing file.
        path: PathBuf,
        /// Path of the file that includes it.
        by: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A line with `!` is neither `!include FILE` nor `!includedir DIR`.
    #[error("option file {} line {line}: unknown ! directive", path.display())]
    BadDirective {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// Files include each other too deep.
    #[error("option file {} line {line}: more than {MAX_DEPTH} levels of !include", path.display())]
    TooDeep {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A `[` without `]`.
    #[error("wrong group in option file {} line {line}", path.display())]
    BadGroup {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// An option before the first group.
    #[error("option without a group before it in option file {} line {line}", path.display())]
    NoGroup {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
}

/// Default locations of option files.
#[derive(Debug, Clone, Default)]
pub struct OptionFilePaths {
    /// System files, read first, in this order.
    system: Vec<PathBuf>,
    /// The user's home, for `~/.my.cnf`, which is read last, and for `~/` in file names.
    home: Option<PathBuf>,
    /// Group suffix from the environment; the one on the command line takes precedence.
    group_suffix: Option<String>,
}

impl OptionFilePaths {
    /// Returns MySQL's locations: `/etc/my.cnf`, `/etc/mysql/my.cnf`, `$MYSQL_HOME/my.cnf`, then
    /// the file of `--defaults-extra-file`, then `~/.my.cnf`. A later file takes precedence. The
    /// group suffix comes from `$MYSQL_GROUP_SUFFIX`.
    pub fn usual() -> Self {
        Self::with(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// Returns no locations: only files named on the command line are read.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns one location: `.my.cnf` in this home.
    #[must_use]
    pub fn of_home(home: &Path) -> Self {
        Self { home: Some(home.to_owned()), ..Self::default() }
    }

    fn with(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut system = vec![PathBuf::from("/etc/my.cnf"), PathBuf::from("/etc/mysql/my.cnf")];
        system.extend(lookup("MYSQL_HOME").map(|home| Path::new(&home).join("my.cnf")));
        Self {
            system,
            home: lookup("HOME").map(PathBuf::from),
            group_suffix: lookup("MYSQL_GROUP_SUFFIX").and_then(|s| s.into_string().ok()),
        }
    }

    fn expand_home(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }
}

/// Command-line options about option files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionFileArgs {
    /// `--no-defaults`: no file is read.
    pub none: bool,
    /// `--defaults-file`: no other file is read.
    pub only: Option<PathBuf>,
    /// `--defaults-extra-file`: read after the system's files.
    pub extra: Option<PathBuf>,
    /// `--defaults-group-suffix`: groups with this suffix count, too.
    pub group_suffix: Option<String>,
    /// Parts that cannot be read, or must not be, only cause warnings, as in the stock programs. Otherwise, they are errors if
    /// an option might be in them: a seal or a login that was set must not be left out.
    pub as_stock: bool,
}

/// Option from a file. `Debug` hides the value.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileOption {
    /// Group of the option, with its suffix.
    pub group: String,
    /// Name as written in the file.
    pub key: String,
    /// Value after the `=`, if there is one.
    pub value: Option<OsString>,
    /// Path of the file.
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: usize,
}

impl fmt::Debug for FileOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.key, self.file.display(), self.line)
    }
}

/// Options of the requested groups, in the order of reading, and warnings.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoadedOptions {
    /// The options; the last of a name wins.
    pub options: Vec<FileOption>,
    /// Options of the groups `[GROUP.NAME]`, by NAME.
    pub repositories: BTreeMap<String, Vec<FileOption>>,
    /// Skipped parts, each with its reason.
    pub warnings: Vec<String>,
}

/// Returns all options of the groups that `wants` accepts, in the order of reading, and warnings
/// about the files, as the stock programs and the server read them. `only` and `extra` are the files of `--defaults-file` and
/// `--defaults-extra-file`.
///
/// # Errors
/// [`OptionFileError`].
pub fn read_groups(
    places: &OptionFilePaths,
    only: Option<&Path>,
    extra: Option<&Path>,
    wants: impl Fn(&str) -> bool,
) -> Result<(Vec<FileOption>, Vec<String>), OptionFileError> {
    let wanted = OptionFileArgs {
        only: only.map(Path::to_owned),
        extra: extra.map(Path::to_owned),
        as_stock: true,
        ..OptionFileArgs::default()
    };
    let loaded = load_if(places, &wanted, &wants)?;
    Ok((loaded.options, loaded.warnings))
}

/// Reads all applicable option files: the options of `groups`, and those of the repositories
/// `[GROUP.NAME]`, by NAME.
///
/// # Errors
/// [`OptionFileError`].
pub fn load(
    places: &OptionFilePaths,
    wanted: &OptionFileArgs,
    groups: &[&str],
) -> Result<LoadedOptions, OptionFileError> {
    if wanted.none || groups.is_empty() {
        return Ok(LoadedOptions::default());
    }
    let suffix = wanted.group_suffix.as_ref().or(places.group_suffix.as_ref());
    let suffix = suffix.map_or("", String::as_str);
    let is_general = |name: &str| {
        let without = name.strip_suffix(suffix).unwrap_or(name);
        groups.contains(&name) || groups.contains(&without)
    };
    let repository = |name: &str| {
        let rests = groups.iter().filter_map(|group| name.strip_prefix(*group));
        rests.filter_map(|rest| rest.strip_prefix('.')).next().map(str::to_owned)
    };
    let wants = |name: &str| is_general(name) || repository(name).is_some();
    let mut loaded = load_if(places, wanted, &wants)?;
    for option in std::mem::take(&mut loaded.options) {
        if let Some(name) = repository(&option.group) {
            loaded.repositories.entry(name).or_default().push(option.clone());
        }
        if is_general(&option.group) {
            loaded.options.push(option);
        }
    }
    Ok(loaded)
}

fn load_if(
    places: &OptionFilePaths,
    wanted: &OptionFileArgs,
    wants: &dyn Fn(&str) -> bool,
) -> Result<LoadedOptions, OptionFileError> {
    let as_stock = wanted.as_stock;
    let mut loader = Loader { wants, places, as_stock, files: 0, loaded: LoadedOptions::default() };
    if let Some(only) = &wanted.only {
        loader.named(only)?;
        return Ok(loader.loaded);
    }
    for path in &places.system {
        loader.usual(path)?;
    }
    if let Some(extra) = &wanted.extra {
        loader.named(extra)?;
    }
    if let Some(home) = &places.home {
        loader.of_home(&home.join(".my.cnf"))?;
    }
    Ok(loader.loaded)
}

struct Loader<'a> {
    wants: &'a dyn Fn(&str) -> bool,
    places: &'a OptionFilePaths,
    as_stock: bool,
    files: u32,
    loaded: LoadedOptions,
}

impl Loader<'_> {
    /// Reads a file that the user named: it must exist.
    fn named(&mut self, path: &Path) -> Result<(), OptionFileError> {
        let path = self.places.expand_home(path);
        match self.read(&path)? {
            Content::Trusted(text) => self.lines(&path, &text, 0),
            Content::OfAnybody(_) => self.left_out(OptionFileError::Writable { path }),
        }
    }

    /// Reads a file that may be missing.
    fn usual(&mut self, path: &Path) -> Result<(), OptionFileError> {
        self.existing(path, 0).map(drop)
    }

    /// Reads the file of the home, which may be missing.
    fn of_home(&mut self, path: &Path) -> Result<(), OptionFileError> {
        // In the home of another user, which only its owner sees, there may be no such file. Other paths were given by the
        // user, or are the system's.
        match path.symlink_metadata() {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                self.warn(format!("skipped option file {}: {source}", path.display()));
                Ok(())
            }
            _ => self.usual(path),
        }
    }

    /// Reads a file, and returns whether it exists.
    fn existing(&mut self, path: &Path, depth: u32) -> Result<bool, OptionFileError> {
        match self.read(path) {
            Ok(Content::Trusted(text)) => self.lines(path, &text, depth)?,
            Ok(Content::OfAnybody(text)) => self.of_anybody(path, &text)?,
            Err(OptionFileError::Read { path, source }) => {
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                    return Ok(false);
                }
                if self.as_stock {
                    self.warn(format!("skipped option file {}: {source}", path.display()));
                } else {
                    return Err(OptionFileError::Read { path, source });
                }
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Leaves out a file that every user may write, if it has no option that counts.
    fn of_anybody(&mut self, path: &Path, text: &[u8]) -> Result<(), OptionFileError> {
        let loaded = &self.loaded;
        let (before, warnings) = (loaded.options.len(), loaded.warnings.len());
        // The files that it includes are not read.
        let read = self.lines(path, text, MAX_DEPTH);
        let has_options = read.is_err() || self.loaded.options.len() > before;
        self.loaded.options.truncate(before);
        // They are about that, or about what does not count.
        self.loaded.warnings.truncate(warnings);
        let error = OptionFileError::Writable { path: path.to_owned() };
        match has_options {
            true => self.left_out(error),
            false => {
                self.warn(error.to_string());
                Ok(())
            }
        }
    }

    /// Something that options may be in is left out.
    fn left_out(&mut self, error: OptionFileError) -> Result<(), OptionFileError> {
        if !self.as_stock {
            return Err(error);
        }
        self.warn(error.to_string());
        Ok(())
    }

    fn warn(&mut self, text: String) {
        self.loaded.warnings.push(text);
    }

    fn read(&mut self, path: &Path) -> Result<Content, OptionFileError> {
        if self.files == MAX_FILES {
            return Err(OptionFileError::TooMany { path: path.to_owned(), limit: MAX_FILES });
        }
        self.files += 1;
        let failed = |source| OptionFileError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        // Only for a regular file: /dev/fd/N of a shell's `<(...)` may have any mode.
        let is_of_anybody = about.is_file() && about.mode() & 0o002 != 0;
        let mut text = Vec::new();
        let read = file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(failed)?;
        if u64::try_from(read).is_ok_and(|read| read <= MAX_FILE) {
            Ok(if is_of_anybody { Content::OfAnybody(text) } else { Content::Trusted(text) })
        } else {
            Err(OptionFileError::TooLarge { path: path.to_owned(), limit: MAX_FILE })
        }
    }

    fn lines(&mut self, path: &Path, text: &[u8], depth: u32) -> Result<(), OptionFileError> {
        if text.starts_with(&UTF_16_LE) || text.starts_with(&UTF_16_BE) {
            return Err(OptionFileError::Utf16 { path: path.to_owned() });
        }
        // The servers refuse it. It changes no value.
        let text = text.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(text);
        // `None` before the first group, then the group's name if the group was requested.
        let mut group: Option<Option<String>> = None;
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let number = number + 1;
            match read_line(line) {
                Line::Blank => {}
                Line::Group(name) => {
                    let name = std::str::from_utf8(name).ok().filter(|name| (self.wants)(name));
                    group = Some(name.map(str::to_owned));
                }
                Line::BadGroup => {
                    return Err(OptionFileError::BadGroup { path: path.to_owned(), line: number });
                }
                Line::Include(_) | Line::IncludeFolder(_) if depth == MAX_DEPTH => {
                    let path = path.to_owned();
                    self.left_out(OptionFileError::TooDeep { path, line: number })?;
                }
                Line::Include(name) => {
                    let file = self.places.expand_home(Path::new(OsStr::from_bytes(name)));
                    if !self.existing(&file, depth + 1)? {
                        let by = path.to_owned();
                        self.left_out(OptionFileError::NoInclude { path: file, by, line: number })?;
                    }
                }
                Line::IncludeFolder(name) => {
                    let folder = self.places.expand_home(Path::new(OsStr::from_bytes(name)));
                    for file in option_files_in(&folder)? {
                        self.existing(&file, depth + 1)?;
                    }
                }
                Line::OtherDirective => {
                    let path = path.to_owned();
                    self.left_out(OptionFileError::BadDirective { path, line: number })?;
                }
                Line::Option(key, value) => match &group {
                    None => {
                        return Err(OptionFileError::NoGroup {
                            path: path.to_owned(),
                            line: number,
                        });
                    }
                    Some(None) => {}
                    Some(Some(group)) => self.loaded.options.push(FileOption {
                        group: group.clone(),
                        key: String::from_utf8_lossy(key).into_owned(),
                        value: value.map(OsString::from_vec),
                        file: path.to_owned(),
                        line: number,
                    }),
                },
            }
        }
        Ok(())
    }
}

/// Content of a file.
enum Content {
    Trusted(Vec<u8>),
    /// Every user may write the file, so its options do not count, as in MySQL.
    OfAnybody(Vec<u8>),
}

/// Returns the `*.cnf` files of a folder, sorted by name.
fn option_files_in(folder: &Path) -> Result<Vec<PathBuf>, OptionFileError> {
    let failed = |source| OptionFileError::List { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new("cnf")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Blank,
    Group(&'a [u8]),
    BadGroup,
    Include(&'a [u8]),
    IncludeFolder(&'a [u8]),
    OtherDirective,
    Option(&'a [u8], Option<Vec<u8>>),
}

fn read_line(line: &[u8]) -> Line<'_> {
    let line = line.trim_ascii();
    match line.first() {
        None | Some(b'#' | b';') => Line::Blank,
        Some(b'[') => match line.iter().position(|byte| *byte == b']') {
            Some(end) => Line::Group(line[1..end].trim_ascii_end()),
            None => Line::BadGroup,
        },
        Some(b'!') => read_directive(&line[1..]),
        Some(_) => read_option(without_comment(line)),
    }
}

fn read_directive(text: &[u8]) -> Line<'_> {
    // A comment cannot follow: `#` is part of the file name.
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    match (word, rest.trim_ascii()) {
        (_, b"") => Line::OtherDirective,
        (b"include", file) => Line::Include(file),
        (b"includedir", folder) => Line::IncludeFolder(folder),
        _ => Line::OtherDirective,
    }
}

/// Returns the line up to the first `#` outside quotes. A quote can begin anywhere, even after a
/// backslash, but a quote character after a backslash does not end it.
fn without_comment(line: &[u8]) -> &[u8] {
    let (mut quote, mut escaped) = (None, false);
    for (at, byte) in line.iter().enumerate() {
        match byte {
            b'#' if quote.is_none() => return &line[..at],
            b'"' | b'\'' if quote.is_none() => quote = Some(byte),
            b'"' | b'\'' if !escaped && quote == Some(byte) => quote = None,
            _ => {}
        }
        escaped = *byte == b'\\' && !escaped && quote.is_some();
    }
    line
}

fn read_option(text: &[u8]) -> Line<'_> {
    match text.iter().position(|byte| *byte == b'=') {
        None => Line::Option(text.trim_ascii_end(), None),
        Some(at) => {
            let value = unquoted(text[at + 1..].trim_ascii());
            Line::Option(text[..at].trim_ascii_end(), Some(unescaped(value)))
        }
    }
}

/// Removes quotes, but only if they enclose the whole value.
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        other => other,
    }
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(b'b') => out.push(8),
            Some(b's') => out.push(b' '),
            Some(same @ (b'\\' | b'"' | b'\'')) => out.push(same),
            // Not an escape: both stay.
            Some(other) => out.extend([b'\\', other]),
            None => out.push(b'\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests;
