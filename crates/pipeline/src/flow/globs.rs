//! Shell patterns for file names.

use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Error for an invalid pattern.
pub use globset::Error as GlobError;

/// Several shell patterns; `*` also matches slashes.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    set: GlobSet,
}

impl Globs {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// A pattern that is not valid.
    pub fn new(patterns: &[String]) -> Result<Self, GlobError> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            set.add(Glob::new(pattern)?);
        }
        Ok(Self { set: set.build()? })
    }

    /// Returns whether there are no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Returns whether any pattern matches.
    #[must_use]
    pub fn is_match(&self, name: &Path) -> bool {
        self.set.is_match(name)
    }

    /// Indexes of the patterns that match, in the order given.
    #[must_use]
    pub fn matches(&self, name: &Path) -> Vec<usize> {
        self.set.matches(name)
    }
}
