//! Where the values of options come from, besides the command line.

pub(crate) mod effective;
pub(crate) mod repository;
pub(crate) mod variables;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::argv::Item;
use crate::help::HelpTopic;

pub use self::repository::Repositories;

/// Option files and environment variables of a program.
///
/// In the order of precedence, highest first: the command line, the environment, the group of the
/// repository that the command line names, the other `groups`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sources<'a> {
    /// Groups of the option files; if empty, no option file is read.
    pub groups: &'a [&'a str],
    /// Prefix of the environment variables, with its final `_`: with `X_`, the option
    /// `--chunk-size` can be set by `X_CHUNK_SIZE`.
    pub environment: Option<&'a str>,
    /// Options that take their value from other environment variables if nothing else sets them,
    /// with the names of the variables, first one first. Only for `--print-defaults`.
    pub fallbacks: &'a [(&'a str, &'a [&'a str])],
    /// How groups such as `[GROUP.shop]` are used as `@shop`, if they are.
    pub repositories: Option<&'a Repositories>,
    /// Options that the help of a subcommand shows only on request.
    pub topics: &'a [HelpTopic],
}

impl<'a> Sources<'a> {
    /// Returns sources with only these groups of the option files.
    pub fn groups(groups: &'a [&'a str]) -> Self {
        Self { groups, ..Self::default() }
    }
}

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
pub(crate) struct Given {
    pub(crate) item: Item,
    pub(crate) origin: Origin,
}

impl Given {
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
