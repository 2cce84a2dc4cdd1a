//! Sources of option values other than the command line.

pub(crate) mod effective;
pub(crate) mod environment;
mod given;
pub(crate) mod repository;
pub(crate) mod variables;

use crate::help::HelpTopic;

pub(crate) use self::given::{Origin, SourcedArg};
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
    /// Use of groups such as `[GROUP.shop]` as `@shop`, if the program supports it.
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
