//! One value, and where it comes from.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::args::argv::Item;

/// Source of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    CommandLine,
    /// Name of the variable.
    Environment(String),
    File {
        group: String,
        file: PathBuf,
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("command line"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::File { group, file, line } => {
                write!(f, "{} line {line} [{group}]", file.display())
            }
        }
    }
}

/// An item of the arguments, and its source. Not `Debug`, because it may hold a secret.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct SourcedArg {
    pub(crate) item: Item,
    pub(crate) origin: Origin,
}

impl SourcedArg {
    /// Key of the option, if the item is one.
    pub(crate) fn key(&self) -> Option<&str> {
        match &self.item {
            Item::On(key) | Item::Off(key) | Item::Value(key, _) => Some(key),
            _ => None,
        }
    }

    /// Value of the option `key`, if the item sets it.
    pub(crate) fn value_of(&self, key: &str) -> Option<&OsString> {
        match &self.item {
            Item::Value(own, value) if own == key => Some(value),
            _ => None,
        }
    }
}
