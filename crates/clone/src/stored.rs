//! Facts about a stored clone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xb_mysql::clone::{CloneFile, FileName, MAX_FILES, MAX_REDO_FILES};

use crate::error::Error;
use crate::text::{MAX_SETTINGS, list, map};

/// The file with the changed pages and the redo log. No database has a folder of such a name: the server writes
/// a dot as `@002e`.
pub const PATCHES: &str = "xb_clone.patches";
/// The file that says what the others are. The last file of a stream.
pub const INFO: &str = "xb_clone.json";
/// The folder with the files that lie outside the data directory, by their index.
pub const OUTSIDE: &str = "xb_clone.outside";
/// The file for people who extract a stream by hand.
pub const README: &str = "xb_clone.README";
pub(crate) const README_TEXT: &[u8] =
    b"These are the files of a MySQL clone, as they were while the server wrote to them.\n\
They are useless alone: the changed pages and the redo log are in xb_clone.patches.\n\
docs/spec/clone.md of xbcloud-rs says how to put them together.\n";
/// Text that this file adds if a table was encrypted when the clone began, so that the rest of the stream is not
/// stored in clear.
pub const KEYS_TEXT: &str =
    "They have keys of encrypted tables in clear: store them only under a seal.\n";

/// Facts about a stored clone. The manifest of a backup is made from the first MiB of them, so the long lists come
/// last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneInfo {
    /// Version of this form: 1.
    pub format: u32,
    /// Version of the server.
    pub version: String,
    /// Bytes of a page of most of its tables.
    pub page_size: u32,
    /// Version of the protocol of the clone.
    pub protocol: u32,
    /// Whether the files or the redo log may have a key in clear. Absent from clones of earlier versions, of which that is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_keys: Option<bool>,
    /// Number of records in the patches.
    pub patches: u64,
    /// Transactions that are surely in the data: `gtid_executed` before the redo stage.
    pub gtids_from: String,
    /// Transactions that may be in the data: `gtid_executed` after the clone.
    pub gtids_to: String,
    /// Whether the server wrote a binary log. If not, a position that its files state is that of an earlier time.
    #[serde(default)]
    pub has_binlog: bool,
    /// Whether DDL could create, rename and remove files while the clone ran.
    #[serde(default)]
    pub allows_ddl: bool,
    /// The server's other settings, as it names them.
    #[serde(deserialize_with = "map::<_, MAX_SETTINGS>")]
    pub settings: BTreeMap<String, String>,
    /// Plugins that it loads: name and library.
    #[serde(deserialize_with = "list::<_, _, MAX_SETTINGS>")]
    pub plugins: Vec<(String, String)>,
    /// Tables that come back empty.
    #[serde(deserialize_with = "list::<_, _, MAX_FILES>")]
    pub empty_tables: Vec<String>,
    /// All files, by index.
    #[serde(deserialize_with = "list::<_, _, MAX_FILES>")]
    pub files: Vec<StoredFile>,
    /// The files of the redo log, by index.
    #[serde(deserialize_with = "list::<_, _, MAX_REDO_FILES>")]
    pub redo: Vec<StoredRedo>,
}

/// A file of a stored clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its number, by which patches refer to it.
    pub index: u32,
    /// Its name in the stream.
    pub path: String,
    /// Its path on the server: from the data directory, or absolute.
    pub name: String,
    /// Its size in bytes after all patches.
    pub size: u64,
    /// Number of its tablespace; none if it is no tablespace.
    pub space: Option<u32>,
    /// Flags of its tablespace.
    pub space_flags: u32,
    /// Bytes of one of its pages.
    pub page_size: u32,
    /// Whether its first page has the key of the tablespace, in clear.
    pub is_encrypted: bool,
    /// Whether its pages are compressed, each by itself.
    pub has_compressed_pages: bool,
    /// Whether DDL created it after the first files were read: all of it is among the patches.
    #[serde(default)]
    pub is_late: bool,
    /// Whether DDL removed it: its content in the stream is of no use.
    #[serde(default)]
    pub is_removed: bool,
}

/// A file of the redo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRedo {
    /// Its number: `#innodb_redo/#ib_redo0`, and so on.
    pub index: u32,
    /// Its size in bytes; what no patch has is zeros.
    pub size: u64,
}

impl CloneInfo {
    /// Bytes of the redo log.
    #[must_use]
    pub fn redo_bytes(&self) -> u64 {
        self.redo.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// Returns whether any of its files is encrypted: then the keys in the files are protected by nothing but
    /// a constant until a server with a keyring has started on them.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.files.iter().any(|file| file.is_encrypted && !file.is_removed)
    }
}

impl StoredFile {
    pub(crate) fn new(file: &CloneFile) -> Result<Self, Error> {
        let (name, path) = match &file.name {
            FileName::Inside(name) if !file.is_late => (name, None),
            FileName::Inside(name) | FileName::Outside(name) => {
                (name, Some(format!("{OUTSIDE}/{}", file.index)))
            }
        };
        let Ok(name) = String::from_utf8(name.clone()) else {
            return Err(Error::Refused(format!("the name of the file {} is not UTF-8", file.name)));
        };
        Ok(Self {
            index: file.index,
            path: path.unwrap_or_else(|| name.clone()),
            name,
            size: file.size,
            space: file.space,
            space_flags: file.space_flags,
            page_size: file.page_size,
            is_encrypted: file.is_encrypted,
            has_compressed_pages: file.has_compressed_pages,
            is_late: file.is_late,
            is_removed: file.is_removed,
        })
    }
}
