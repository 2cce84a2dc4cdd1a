//! Partial backups are a kind of their own beside whole ones.

use crate::manifest::Manifest;

/// Which backups are chosen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those with all tables.
    Whole {
        /// Whether the user hears of a partial one that is newer.
        tells: bool,
    },
    /// Those of only some databases or tables.
    Partial,
    /// Either, by their time alone.
    Any,
}

impl Kind {
    /// Returns whether a backup is of this kind.
    pub(crate) fn is_of(self, manifest: &Manifest) -> bool {
        self == Self::Any || manifest.source.is_partial == (self == Self::Partial)
    }
}
