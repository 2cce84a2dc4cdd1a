//! What ties an incremental backup to its base.

use crate::catalog::manifest::{Base, Manifest};

/// The facts about a backup that tell whether another one is its base.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lineage<'a> {
    pub(crate) name: &'a str,
    pub(crate) run: &'a str,
    pub(crate) server: Option<&'a str>,
    /// The base that the manifest names.
    pub(crate) base: Option<&'a Base>,
    pub(crate) is_incremental: bool,
    /// Log sequence numbers between which the backup holds changes.
    pub(crate) from_lsn: Option<u64>,
    pub(crate) to_lsn: Option<u64>,
}

impl<'a> Lineage<'a> {
    pub(crate) fn of(name: &'a str, manifest: &'a Manifest) -> Self {
        Self {
            name,
            run: &manifest.run,
            server: manifest.server.as_deref(),
            base: manifest.base.as_ref(),
            is_incremental: manifest.is_incremental(),
            from_lsn: manifest.source.from_lsn,
            to_lsn: manifest.source.to_lsn,
        }
    }

    /// Whether `other` is or may be its base. The manifest decides; if it names no base, the log
    /// positions do.
    pub(crate) fn is_based_on(&self, other: &Lineage<'_>) -> bool {
        match self.base {
            Some(base) => base.name == other.name && base.run == other.run,
            None => {
                self.is_incremental
                    && self.run != other.run
                    && self.from_lsn == other.to_lsn
                    && same_server(self.server, other.server)
            }
        }
    }
}

/// Whether two backups can be of one server, as far as known.
pub(crate) fn same_server(one: Option<&str>, other: Option<&str>) -> bool {
    one.is_none() || other.is_none() || one == other
}
