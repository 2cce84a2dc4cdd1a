//! Transactions that a failover stranded: another server's stream has them, and the present history does not. No time ends
//! that, so it is told as long as the archive has them. GTIDs tell: a history has a transaction of MariaDB if, where its
//! domain passes that number, the server is the same.

use xb_binlog::{Gtid, GtidPosition, GtidSet, GtidState};

use crate::archive::listed_segment::ListedSegment;
use crate::archive::present::{LineEnd, by_id, line, lives_as_long};
use crate::archive::segment::MAX_TURNS;
use crate::archive::stream::{StreamHead, StreamOrigin};

/// The end of a stream of another server that the present history lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrandedTransactions {
    /// ID of the stream.
    pub stream: String,
    /// Its server, such as `server_id 2`.
    pub server: String,
    /// Of MariaDB, the last transaction of each domain in which some are lacking; of MySQL, all that are.
    pub gtids: GtidState,
}

/// `stream 0a… of server_id 1 has transactions that the present history lacks, up to 0-1-10`
impl std::fmt::Display for StrandedTransactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stream, server, gtids } = self;
        let which = match gtids {
            GtidState::MariaDb(_) => "up to ",
            GtidState::MySql(_) => "",
        };
        write!(
            f,
            "stream {stream} of {server} has transactions that the present history lacks: {which}{gtids}"
        )
    }
}

/// Where the domain of a transaction passes its number.
pub(super) struct Passage<'a> {
    /// Last transaction of the domain before.
    pub(super) before: Option<Gtid>,
    /// And after.
    pub(super) after: Gtid,
    /// The segment between the two.
    pub(super) segment: &'a ListedSegment,
    /// The history begins anew with the log of another server, which may have more than it has logged.
    pub(super) is_of_gap: bool,
}

impl Passage<'_> {
    /// Whether the transaction is there; `None` if the head does not tell.
    pub(super) fn has(&self, gtid: Gtid) -> Option<bool> {
        let is_of = |other: Gtid| other.server == gtid.server;
        let reaches = |other: &Gtid| other.sequence >= gtid.sequence;
        if let Some(before) = self.before.filter(reaches) {
            return (before.sequence == gtid.sequence).then(|| is_of(before));
        }
        if self.after.sequence == gtid.sequence {
            return Some(is_of(self.after));
        }
        if self.is_of_gap && self.jumps_over(gtid) {
            return None;
        }
        let Some(turns) = &self.segment.turns else {
            return (is_of(self.after) && self.before.is_some_and(is_of)).then_some(true);
        };
        let turns_here = turns.iter().filter_map(|turn| turn.parse::<Gtid>().ok());
        let mut turns_here = turns_here.filter(|turn| turn.domain == gtid.domain);
        match turns_here.find(reaches) {
            Some(turn) => Some(is_of(turn)),
            None => (turns.len() < MAX_TURNS).then(|| is_of(self.after)),
        }
    }

    /// Whether the numbers of the segment begin behind this one, or may: a replica has it, and did not log it. The head counts
    /// the transactions of all domains together.
    fn jumps_over(&self, gtid: Gtid) -> bool {
        if self.before.is_none() && self.has_several_domains() {
            return true;
        }
        let others = self.segment.transactions.saturating_sub(1);
        self.after.sequence.saturating_sub(others) > gtid.sequence
    }
}

impl Passage<'_> {
    fn has_several_domains(&self) -> bool {
        let of = |state: Option<GtidState>| match state {
            Some(GtidState::MariaDb(gtids)) => gtids,
            _ => GtidPosition::default(),
        };
        let (before, after) = (of(self.segment.before()), of(self.segment.after()));
        after.iter().filter(|gtid| before.get(gtid.domain) != Some(**gtid)).count() > 1
    }
}

/// Whether a stream follows a gap behind which the log of another server begins: what the streams before it have is in this
/// history only as far as it shows that.
pub(super) fn is_behind_gap(next: &StreamHead, before: &StreamHead) -> bool {
    matches!(next.begins, StreamOrigin::Gap { .. }) && next.is_of_another_server(before)
}

/// Transactions at the end of a stream that the present history may lack.
pub(super) enum MissingTransactions {
    /// It lacks these.
    Certain(GtidState),
    /// Only the segment shows in which the domain passes the number.
    ToFind(Gtid),
}

/// The ends of the streams of other servers than those of the history that ends with `present`, and what that may lack of
/// them. Not of one that is received as long as this one: it may be ahead of a replica.
pub(super) fn lacks<'a>(
    ends: &[LineEnd<'a>],
    present: usize,
) -> Vec<(LineEnd<'a>, MissingTransactions)> {
    let Some(now) = ends.get(present) else { return Vec::new() };
    let line = line(&by_id(ends), now);
    let is_other = |end: &LineEnd<'a>| {
        end.last.is_some()
            && line.iter().any(|part| part.is_of_another_server(end))
            && !is_left_by_its_own(ends, end)
    };
    let of_mariadb = |end: &LineEnd<'a>| match end.gtids()? {
        GtidState::MariaDb(gtids) => Some(gtids),
        GtidState::MySql(_) => None,
    };
    let all: Vec<Option<GtidPosition>> = ends.iter().map(of_mariadb).collect();
    let others = ends.iter().enumerate().filter(|(n, _)| *n != present);
    let found = others.flat_map(|(n, end)| match (end.gtids(), now.gtids()) {
        (Some(GtidState::MariaDb(its)), Some(GtidState::MariaDb(own))) if is_other(end) => {
            let last = its.iter().copied().filter(|gtid| is_furthest(&all, n, *gtid));
            let last = last.filter_map(|gtid| {
                let has_passed =
                    own.get(gtid.domain).is_some_and(|own| own.sequence >= gtid.sequence);
                match has_passed {
                    true => Some(MissingTransactions::ToFind(gtid)),
                    false if lives_as_long(end, now) => None,
                    false => Some(MissingTransactions::Certain(only(gtid))),
                }
            });
            last.map(|lack| (*end, lack)).collect()
        }
        (Some(GtidState::MySql(its)), Some(GtidState::MySql(own)))
            if is_other(end) && !lives_as_long(end, now) =>
        {
            // What the server has outside of its logs, it has.
            let mut own = own;
            own.unite(&now.head.outside());
            let lacking = its.without(&own);
            let is_all = !lacking.is_empty() && !is_in_another(ends, n, &lacking, &own);
            Vec::from_iter(is_all.then(|| (*end, MissingTransactions::Certain(lacking.into()))))
        }
        _ => Vec::new(),
    });
    found.collect()
}

/// Up to this transaction of its domain.
pub(super) fn only(gtid: Gtid) -> GtidState {
    let mut gtids = GtidPosition::default();
    gtids.advance(gtid);
    gtids.into()
}

/// Puts together what is lacking of each stream, in the order of the streams.
pub(super) fn together<'a>(
    found: impl IntoIterator<Item = (LineEnd<'a>, GtidState)>,
) -> Vec<StrandedTransactions> {
    let mut all: Vec<StrandedTransactions> = Vec::new();
    for (end, gtids) in found {
        let (stream, server) = (end.head.stream.clone(), end.head.origin().to_string());
        match (all.last_mut().filter(|last| last.stream == stream), &gtids) {
            (
                Some(StrandedTransactions { gtids: GtidState::MariaDb(all), .. }),
                GtidState::MariaDb(more),
            ) => {
                more.iter().for_each(|gtid| all.advance(*gtid));
            }
            _ => all.push(StrandedTransactions { stream, server, gtids }),
        }
    }
    all
}

/// Whether the server itself left this end: a restore or a crash, which the branch tells.
fn is_left_by_its_own(ends: &[LineEnd<'_>], end: &LineEnd<'_>) -> bool {
    ends.iter().any(|next| {
        matches!(&next.head.begins, StreamOrigin::Branch { after, .. } if after.stream == end.head.stream)
            && !next.is_of_another_server(end)
    })
}

/// Whether no other stream ends with a later transaction of the same server in this domain.
fn is_furthest(ends: &[Option<GtidPosition>], one: usize, gtid: Gtid) -> bool {
    ends.iter().enumerate().all(|(n, gtids)| {
        let Some(gtids) = gtids.as_ref().filter(|_| n != one) else { return true };
        gtids.get(gtid.domain).is_none_or(|other| {
            other.server != gtid.server || (other.sequence, one) < (gtid.sequence, n)
        })
    })
}

/// Whether another stream has all of this, too, and more or as much.
fn is_in_another(ends: &[LineEnd<'_>], one: usize, lacking: &GtidSet, own: &GtidSet) -> bool {
    ends.iter().enumerate().any(|(n, end)| match end.gtids().filter(|_| n != one) {
        Some(GtidState::MySql(other)) => {
            let other = other.without(own);
            lacking.is_subset(&other) && (n > one || !other.is_subset(lacking))
        }
        _ => false,
    })
}
