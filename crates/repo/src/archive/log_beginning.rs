//! The beginning of a log, by which it is told from others of its name: two servers, and one that went back to an earlier state,
//! have logs of the same names.

use xb_binlog::GtidState;

use crate::archive::listed_segment::ListedSegment;

/// What is known of the beginning of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogBeginning {
    /// When the log was made, by the server's clock, in seconds since 1970.
    pub made: Option<u32>,
    /// The server made it when it was started.
    pub is_of_start: bool,
    /// An offset in the log, and the transactions before it.
    pub before: Option<(u64, GtidState)>,
}

impl LogBeginning {
    /// That of the log of a segment, as far as the segment shows it.
    #[must_use]
    pub fn of(segment: &ListedSegment) -> Self {
        let before = segment.before().map(|gtids| (segment.from.offset, gtids));
        Self { made: segment.log_made, is_of_start: segment.is_of_start, before }
    }

    /// Whether two logs of one name are the same: made at the same time, behind the same transactions. Before a server makes a
    /// log, it has one history.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let both = self.before.as_ref().zip(other.before.as_ref());
        let comparable = both.filter(|((own, _), (its, _))| own == its);
        self.made == other.made && comparable.is_none_or(|((_, own), (_, its))| own == its)
    }
}
