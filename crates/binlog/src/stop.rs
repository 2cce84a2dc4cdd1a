//! Stop of a replay.

use std::fmt;

use crate::any_gtid::AnyGtid;
use crate::position::LogPosition;

/// The boundary between two transactions at which a replay ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayStop {
    /// After everything.
    End,
    /// After this transaction.
    After(AnyGtid),
    /// Before this transaction.
    Before(AnyGtid),
    /// At this position, which no transaction may straddle.
    At(LogPosition),
}

impl fmt::Display for ReplayStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("the end"),
            Self::After(gtid) => write!(f, "the end of transaction {gtid}"),
            Self::Before(gtid) => write!(f, "the beginning of transaction {gtid}"),
            Self::At(position) => write!(f, "position {position}"),
        }
    }
}
