//! Position of a backup in the server's logs: a replay begins there.

use jiff::Timestamp;
use xb_binlog::{GtidSet, GtidState, LogPosition};

use crate::manifest::Manifest;

/// A backup as the beginning of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Position in the server's logs: of the data, or, of a clone, one before it.
    pub position: LogPosition,
    /// GTIDs up to there, if it notes them.
    pub gtids: Option<GtidState>,
    /// Of a clone: all transactions that the data may have. Its server passes over those that it has.
    pub at_most: Option<GtidState>,
    /// Time of its data.
    pub taken: Timestamp,
    /// The log up to the position is compared with that of the backup, byte by byte: clocks need not tell which history of
    /// several it belongs to.
    pub is_shown_by_bytes: bool,
}

/// Position in the manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BasePosition {
    /// A position.
    Position(Base),
    /// A clone of MySQL records no position, but which transactions it has.
    Between {
        /// These are surely in the data.
        from: GtidState,
        /// No other one is.
        to: GtidState,
        /// Time of its data.
        taken: Timestamp,
    },
}

impl BasePosition {
    /// Reads the position in a manifest; `None` if it has none.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Option<Self> {
        let taken = manifest.finished;
        if let Some(clone) = &manifest.mysql_clone {
            // Of a bound that is missing, nothing is known.
            let set = |text: &Option<String>| {
                let set = text.as_deref().unwrap_or_default().parse::<GtidSet>();
                set.ok().map(GtidState::MySql)
            };
            let (from, to) = (set(&clone.gtids_from)?, set(&clone.gtids_to)?);
            return (!to.is_empty()).then_some(Self::Between { from, to, taken });
        }
        let noted = manifest.source.binlog_pos.as_ref()?;
        let (position, gtids) = (noted.position()?.clone(), noted.gtids().cloned());
        Some(Self::Position(Base {
            position,
            gtids,
            at_most: None,
            taken,
            is_shown_by_bytes: false,
        }))
    }

    /// Reads the position in a manifest, if a replay can begin there: not onto a backup of MySQL that is no clone, which was never
    /// tried.
    #[must_use]
    pub fn replayed(manifest: &Manifest) -> Option<Self> {
        let tool = manifest.source.tool_name.as_deref().unwrap_or_default();
        let tool = tool.rsplit('/').next().unwrap_or(tool);
        let is_of_mysql = |base: &Base| {
            matches!(base.gtids, Some(GtidState::MySql(_)))
                || ["xtrabackup", "innobackupex"].iter().any(|name| tool.starts_with(name))
        };
        Self::of(manifest)
            .filter(|noted| !matches!(noted, Self::Position(base) if is_of_mysql(base)))
    }
}
