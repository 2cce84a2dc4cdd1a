//! Keys of the objects of a backup, as the store sees them.

use std::fmt::Display;

use xb_pipeline::object_key;

use crate::names::{BackupName, CLAIM, KEYS, SUMS, manifest_key, sums_folder};
use crate::root::Root;

/// Keys of the objects in one folder: `NAME/RUN` of a packed run, `NAME` of a classic backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunKeys {
    /// Full key of the folder, without a slash at its end.
    folder: String,
    /// Length of the prefix of ROOT in it.
    root: usize,
}

impl RunKeys {
    /// Keys in `folder`, which is below the prefix of a ROOT.
    #[must_use]
    pub fn new(prefix: &str, folder: impl Display) -> Self {
        Self { folder: format!("{prefix}{folder}"), root: prefix.len() }
    }

    /// The folder below ROOT, as listings and messages name it.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.folder.get(self.root..).unwrap_or_default()
    }

    /// Key of `object`, given below the folder.
    #[must_use]
    pub fn at(&self, object: impl Display) -> String {
        format!("{}/{object}", self.folder)
    }

    /// The key below the folder of an object's full key.
    #[must_use]
    pub fn below<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.folder)?.strip_prefix('/')
    }

    /// Key of data object `number` of a packed run.
    #[must_use]
    pub fn data(&self, number: u64) -> String {
        self.at(object_key(number))
    }

    /// Name of data object `number` of a packed run below ROOT, as messages show it.
    #[must_use]
    pub fn shown(&self, number: u64) -> String {
        format!("{}/{}", self.folder(), object_key(number))
    }

    /// Key of the claim of a packed run.
    #[must_use]
    pub fn claim(&self) -> String {
        self.at(CLAIM)
    }

    /// Key of the keys object of a packed run.
    #[must_use]
    pub fn keys(&self) -> String {
        self.at(KEYS)
    }

    /// Key of the checksum list of a packed run.
    #[must_use]
    pub fn sums(&self) -> String {
        self.at(SUMS)
    }
}

impl Root {
    /// Keys of a packed run.
    #[must_use]
    pub fn run_keys(&self, name: &BackupName, run: impl Display) -> RunKeys {
        self.keys_below(format_args!("{name}/{run}"))
    }

    /// Keys of a classic backup, whose objects have no run in their names.
    #[must_use]
    pub fn classic_keys(&self, name: &BackupName) -> RunKeys {
        self.keys_below(name)
    }

    /// Keys of the checksum lists of the classic backups of `name`, one for each run.
    #[must_use]
    pub fn classic_sums(&self, name: &BackupName) -> RunKeys {
        self.keys_below(sums_folder(name))
    }

    /// Key of the manifest of `name`.
    #[must_use]
    pub fn manifest_key(&self, name: &BackupName) -> String {
        self.key(&manifest_key(name))
    }

    /// Key of the list of MD5 sums beside a classic backup, as the stock tool names it.
    #[must_use]
    pub fn md5_key(&self, name: &BackupName) -> String {
        self.key(&format!("{name}.md5"))
    }

    fn keys_below(&self, folder: impl Display) -> RunKeys {
        RunKeys::new(&self.key(""), folder)
    }
}
