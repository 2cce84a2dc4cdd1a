//! Facts about a backup on which pruning decides.

use std::collections::BTreeMap;

use jiff::Timestamp;
use xb_repo::lineage::Lineage;
use xb_repo::list::{BackupKind, Listing, State};
use xb_repo::manifest::Base;
use xb_repo::unread::is_later;
use xb_repo::verification::Level;

/// A complete backup, with the facts that pruning needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the backup.
    pub name: String,
    /// Run of the backup.
    pub run: String,
    /// The backed-up server.
    pub server: Option<String>,
    /// When its run ended, UTC.
    pub finished: Timestamp,
    /// The base that its manifest names.
    pub base: Option<Base>,
    /// Run of the backup whose data it has, if it was consolidated from a chain: the last one of that.
    pub stands_for: Option<String>,
    /// Whether it is incremental.
    pub is_incremental: bool,
    /// Whether it has only some of the databases or tables. Such backups count only among themselves.
    pub is_partial: bool,
    /// Whether it is unknown when it was made. Such backups count only among themselves.
    pub is_undated: bool,
    /// Whether it is a clone, on which nothing can be based.
    pub is_clone: bool,
    /// Log sequence number from which the backup holds changes.
    pub from_lsn: Option<u64>,
    /// Log sequence number up to which the backup holds changes.
    pub to_lsn: Option<u64>,
    /// The highest level it is verified to, at [`Level::Checksum`] or above.
    pub proven: Option<Level>,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Whether a verification found a problem. The backup then counts for no rule, and is left for
    /// a person to decide.
    pub damaged: bool,
    /// Why the chain of this incremental backup cannot be restored. The backup is then treated as a
    /// damaged one.
    pub broken: Option<String>,
    /// Whether its chain begins elsewhere, as the operator has accepted. It then counts for the rules.
    pub accepted_without_base: bool,
    /// Whether its content was not inspected. Such backups count only among themselves.
    pub raw: bool,
    /// Comparison with earlier backups, if it is much smaller than they are and was not accepted.
    pub shrunk: Option<String>,
    /// Whether it is the newest of its kind and server, and much smaller than those before it.
    pub in_doubt: bool,
    /// Whether the run that prunes has just made it.
    pub just_made: bool,
    /// When its manifest was written, by the store's clock, in seconds since 1970.
    pub written: i64,
    /// Whether a verification record cannot be read. The backup is then treated as a damaged one.
    pub unread_record: bool,
    /// Name of a later backup that may depend on it: its manifest cannot be read.
    pub possible_dependent: Option<String>,
}

impl Candidate {
    /// Converts listings of one ROOT, without those that are not complete backups.
    #[must_use]
    pub fn all(listings: &[Listing]) -> Vec<Self> {
        let mut all: Vec<Self> = listings.iter().filter_map(Self::of).collect();
        // The store's clock tells which data is the newest only of backups that were taken then.
        let taken: BTreeMap<String, i64> =
            all.iter().map(|candidate| (candidate.run.clone(), candidate.written)).collect();
        for candidate in &mut all {
            if let Some(last) = &candidate.stands_for {
                let finished = candidate.finished.as_second();
                candidate.written = taken.get(last).copied().unwrap_or(finished);
            }
        }
        let unknown: Vec<&Listing> =
            listings.iter().filter(|listing| listing.may_depend_since.is_some()).collect();
        for candidate in &mut all {
            let later = |listing: &&&Listing| {
                let since = listing.may_depend_since;
                since.is_some_and(|written| is_later(written, candidate.finished))
            };
            candidate.possible_dependent =
                unknown.iter().find(later).map(|listing| listing.name.clone());
        }
        all
    }

    /// Converts a listing; `None` if it is not a complete backup.
    fn of(listing: &Listing) -> Option<Self> {
        if listing.state != State::Complete {
            return None;
        }
        Some(Self {
            name: listing.name.clone(),
            run: listing.run.clone()?,
            server: listing.server.clone(),
            finished: listing.finished?,
            base: listing.base.clone(),
            stands_for: listing.consolidated_from.last().map(|last| last.run.clone()),
            is_incremental: listing.kind == Some(BackupKind::Incremental),
            is_partial: listing.is_partial,
            is_undated: listing.undated.is_some(),
            is_clone: listing.mysql_clone.is_some(),
            from_lsn: listing.from_lsn,
            to_lsn: listing.to_lsn,
            proven: listing
                .verified
                .and_then(|proof| proof.level)
                .filter(|level| *level >= Level::Checksum),
            pinned: listing.pinned.is_some(),
            damaged: listing.verified.is_some_and(|proof| proof.failed.is_some()),
            broken: listing.broken.clone(),
            accepted_without_base: listing.is_accepted_without_base(),
            raw: listing.raw,
            shrunk: listing.unaccepted().cloned(),
            in_doubt: listing.in_doubt,
            just_made: false,
            written: listing.written,
            unread_record: listing.unread_record,
            possible_dependent: None,
        })
    }

    /// Returns whether it can be restored now, as far as the catalogue shows.
    pub(super) fn is_restorable(&self) -> bool {
        !self.damaged && !self.unread_record && self.broken.is_none()
    }

    /// Returns whether it counts for a rule: it can be restored now, or with a base that is elsewhere.
    pub(super) fn is_eligible(&self) -> bool {
        self.is_restorable() || self.accepted_without_base && !self.damaged && !self.unread_record
    }

    /// Returns whether nothing of its server is removed before it is accepted.
    pub(super) fn is_doubtful(&self) -> bool {
        self.in_doubt || (self.just_made && self.shrunk.is_some())
    }

    /// Returns whether a trial restore has proven it, and nothing is wrong with it since.
    pub(super) fn is_proven_by_trial(&self) -> bool {
        self.is_eligible() && self.proven >= Some(Level::Restore)
    }

    /// Returns its connection to its base.
    pub(super) fn lineage(&self) -> Lineage<'_> {
        Lineage {
            name: &self.name,
            run: &self.run,
            server: self.server.as_deref(),
            base: self.base.as_ref(),
            is_incremental: self.is_incremental,
            can_be_base: !self.is_clone,
            from_lsn: self.from_lsn,
            to_lsn: self.to_lsn,
        }
    }
}
