//! Decisions about backups, and the reasons to keep them.

use jiff::Timestamp;
use serde::Serialize;

/// Reason to keep a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KeepReason {
    /// The newest of its server that can be restored, by its own clock or by the store's. No rule removes
    /// it.
    Newest,
    /// This run has just made it.
    JustMade,
    /// Among the newest.
    Last,
    /// The newest of its day.
    Daily,
    /// The newest of its week.
    Weekly,
    /// The newest of its month.
    Monthly,
    /// Within the maximum age.
    Within,
    /// The newest verified one.
    NewestVerified,
    /// The newest of those verified to the highest level.
    BestVerified,
    /// The newest that the server made: an increment of it may be running, although its consolidated backup counts.
    MayBeContinued,
    /// Consolidated from this backup, which counts in its place and is kept, until a trial restore proves it.
    UnprovenCopyOf(String),
    /// It is pinned.
    Pinned,
    /// Damaged: a person must decide.
    Damaged,
    /// Incremental, and its chain is broken: a person must decide.
    Broken(String),
    /// This backup is much smaller than those before it, and was not accepted: a person must decide. It is itself, a link of its
    /// chain, or the newest of its kind and server, before whose acceptance nothing of that server is removed.
    Doubt(String),
    /// A verification record cannot be read.
    UnreadRecord,
    /// A later backup, whose manifest cannot be read, may depend on it.
    MayBeBaseOf(String),
    /// Its end time lies in the future: some clock was wrong, and a person must decide.
    ClockAhead,
    /// Base of this backup, which is kept.
    BaseOf(String),
}

impl KeepReason {
    /// Returns whether a rule keeps the backup, so that others go, or another backup that a rule keeps needs it.
    pub(super) fn is_rule(&self) -> bool {
        match self {
            Self::Newest
            | Self::JustMade
            | Self::Last
            | Self::Daily
            | Self::Weekly
            | Self::Monthly
            | Self::Within
            | Self::NewestVerified
            | Self::BestVerified
            | Self::BaseOf(_) => true,
            Self::MayBeContinued
            | Self::UnprovenCopyOf(_)
            | Self::Pinned
            | Self::Damaged
            | Self::Broken(_)
            | Self::Doubt(_)
            | Self::UnreadRecord
            | Self::MayBeBaseOf(_)
            | Self::ClockAhead => false,
        }
    }
}

impl std::fmt::Display for KeepReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Newest => "newest",
            Self::JustMade => "just made",
            Self::Last => "last",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Within => "within",
            Self::MayBeContinued => "an increment of it may be running",
            Self::NewestVerified => "newest verified",
            Self::BestVerified => "verified furthest",
            Self::Pinned => "pinned",
            Self::Damaged => "damaged; never removed by prune",
            Self::ClockAhead => "finished in the future by its own clock; never removed by prune",
            Self::UnreadRecord => "its verification record cannot be read",
            Self::Broken(why) => {
                return write!(f, "cannot be restored, {why}; never removed by prune");
            }
            Self::Doubt(name) => {
                return write!(f, "{name} is much smaller than usual and not accepted");
            }
            Self::UnprovenCopyOf(name) => {
                return write!(f, "consolidated from {name}, not yet proven by a trial restore");
            }
            Self::BaseOf(name) => return write!(f, "base of {name}"),
            Self::MayBeBaseOf(name) => {
                return write!(f, "may be the base of {name}, whose manifest cannot be read");
            }
        })
    }
}

/// Decision about one backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Name of the backup.
    pub name: String,
    /// Run of the backup.
    pub run: String,
    /// When its run ended, UTC.
    pub finished: Timestamp,
    /// Reasons to keep it; empty if it will be removed.
    pub kept: Vec<KeepReason>,
}

impl Verdict {
    /// Returns whether the backup will be removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.kept.is_empty()
    }
}
