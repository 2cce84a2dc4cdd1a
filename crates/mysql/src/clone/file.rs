//! The files of a clone, and their names.

use std::fmt;

use zeroize::Zeroizing;

use super::descriptor::{FileHead, flag};
use super::error::{CloneError, broken};

/// Flags of a tablespace, for a file that is none.
const NO_SPACE: u32 = u32::MAX;
const SPACE_ENCRYPTED: u32 = 1 << 13;
/// Longest name, as a path that Linux accepts.
const MAX_NAME: usize = 4096;

/// A file of the donor's data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloneFile {
    /// Its number, by which blocks refer to it.
    pub index: u32,
    /// Its path on the donor.
    pub name: FileName,
    /// Its size in bytes, at the end of what was received so far: changed pages can make it longer.
    pub size: u64,
    /// Number of its tablespace; `None` for a file that is none.
    pub space: Option<u32>,
    /// Flags of its tablespace, as in its first page.
    pub space_flags: u32,
    /// Bytes of one page in the file; 0 for a file that is no tablespace.
    pub page_size: u32,
    /// Whether its pages are encrypted. Its first page then comes with the key of the tablespace, in the clear.
    pub is_encrypted: bool,
    /// Whether its pages are compressed, each by itself, with holes behind them.
    pub has_compressed_pages: bool,
    /// Whether DDL created it after the file stage had begun: its bytes come in later stages alone, as far as they come.
    pub is_late: bool,
    /// Whether DDL removed it: its later content is of no use.
    pub is_removed: bool,
    /// Key and IV of its tablespace, if it is late and encrypted: its first page may not come.
    pub key: Option<TableKey>,
    /// Whether DDL encrypted it: its key is in a first page that comes later.
    pub(super) is_encrypted_late: bool,
    /// Whether its first page came in the page stage.
    pub(super) has_first_page: bool,
    /// Bytes that came in the file stage.
    pub(super) received: u64,
    pub(super) first_chunk: u32,
    pub(super) last_chunk: u32,
    /// Size at the beginning of the file stage.
    pub(super) first_size: u64,
}

impl CloneFile {
    pub(super) fn new(head: &FileHead<'_>, page_size: u32) -> Result<Self, CloneError> {
        let name = FileName::parse(head.name)?;
        let known =
            flag::ZLIB | flag::LZ4 | flag::ENCRYPTED | flag::KEY | flag::RENAMED | flag::REMOVED;
        if head.flags & !known != 0 {
            return broken(format!("{name} has the unexpected flags {:#x}", head.flags));
        }
        let is_space = head.space_flags != NO_SPACE;
        Ok(Self {
            index: head.index,
            size: head.size,
            space: is_space.then_some(head.space),
            space_flags: head.space_flags,
            page_size: if is_space { physical(head.space_flags, page_size, &name)? } else { 0 },
            is_encrypted: head.flags & (flag::ENCRYPTED | flag::KEY) != 0
                || (is_space && head.space_flags & SPACE_ENCRYPTED != 0),
            has_compressed_pages: head.flags & (flag::ZLIB | flag::LZ4) != 0,
            is_late: false,
            is_removed: head.flags & flag::REMOVED != 0,
            key: head.key.map(|key| TableKey(key.to_vec().into())),
            is_encrypted_late: false,
            has_first_page: false,
            received: 0,
            first_chunk: head.first_chunk,
            last_chunk: head.last_chunk,
            first_size: head.size,
            name,
        })
    }
}

/// Key and IV of a tablespace, in clear: 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct TableKey(Zeroizing<Vec<u8>>);

impl TableKey {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableKey")
    }
}

/// Bytes of a page in the file: that of a table with ROW_FORMAT=COMPRESSED is smaller than the server's.
fn physical(space_flags: u32, page_size: u32, name: &FileName) -> Result<u32, CloneError> {
    match space_flags >> 1 & 15 {
        0 => Ok(page_size),
        zip @ 1..=5 if 512 << zip <= page_size => Ok(512 << zip),
        zip => broken(format!("{name} has pages of unknown size {zip}")),
    }
}

/// Path of a file on the donor. Never empty, without NUL, `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// Path from the data directory.
    Inside(Vec<u8>),
    /// Absolute path: a table with DATA DIRECTORY, or another file outside the data directory.
    Outside(Vec<u8>),
}

impl FileName {
    /// Checks a name that the donor sends.
    pub(super) fn parse(name: &[u8]) -> Result<Self, CloneError> {
        let refused = || broken(format!("a file is named {:?}", String::from_utf8_lossy(name)));
        let (path, is_outside) = match name {
            [b'/', path @ ..] => (path, true),
            [b'.', b'/', path @ ..] => (path, false),
            path => (path, false),
        };
        let is_bad = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
        if name.len() > MAX_NAME || path.split(|&byte| byte == b'/').any(is_bad) {
            return refused();
        }
        // The server's own folders, such as `#clone` and `#innodb_redo`.
        if !is_outside && path.starts_with(b"#") {
            return refused();
        }
        Ok(if is_outside { Self::Outside(name.to_vec()) } else { Self::Inside(path.to_vec()) })
    }
}

impl FileName {
    /// Bytes of the path.
    pub(super) fn len(&self) -> usize {
        let (Self::Inside(path) | Self::Outside(path)) = self;
        path.len()
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Inside(path) | Self::Outside(path)) = self;
        write!(f, "{}", path.escape_ascii())
    }
}
