//! Which history of an archive is the present one: that which reaches furthest. Positions and GTIDs tell it of one history
//! that several receivers store; clocks tell only which of several histories is the newest.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use xb_binlog::GtidState;

use crate::archive::segment::SegmentHead;
use crate::archive::stream::{StreamHead, StreamOrigin};

/// Hexadecimal digits of the time at the beginning of a format description event: when the log was made.
const TIME_DIGITS: usize = 8;

/// A stream as the last one of a history.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineEnd<'a> {
    /// Head of the stream.
    pub(super) head: &'a StreamHead,
    /// Its last segment up to which it has no hole, if it has any.
    pub(super) last: Option<&'a SegmentHead>,
    /// Its newest sign of life.
    pub(super) life: Option<Timestamp>,
}

/// Number of the stream at whose end the archive ends; `None` if there is none. A history whose end lies in another one
/// is not the newest, whatever the clocks of the receivers say; the newest sign of life decides among those that differ.
#[must_use]
pub(super) fn present(ends: &[LineEnd<'_>]) -> Option<usize> {
    let heads = by_id(ends);
    let is_passed = |end: &LineEnd<'_>| {
        ends.iter().any(|other| passes(&heads, other, end) && !passes(&heads, end, other))
    };
    // Of many streams, few are followed by none: only those are compared with all.
    let mut followed: HashMap<&str, u64> = HashMap::new();
    for link in ends.iter().filter_map(|end| end.head.begins.after()) {
        let number = followed.entry(&link.stream).or_default();
        *number = link.number.max(*number);
    }
    let is_followed = |end: &LineEnd<'_>| {
        let number = followed.get(end.head.stream.as_str());
        number.is_some_and(|number| end.last.is_none_or(|last| last.number <= *number))
    };
    let left = ends.iter().enumerate().filter(|(_, end)| !is_followed(end) && !is_passed(end));
    let left = left.map(|(n, _)| n).collect();
    let newest = |of: Vec<usize>| of.into_iter().max_by_key(|n| ends.get(*n)?.life);
    newest(left).or_else(|| newest((0..ends.len()).collect()))
}

/// Whether two ends are of one history of one server, and the first one reaches at least as far as the second.
pub(super) fn reaches(ends: &[LineEnd<'_>], one: usize, other: usize) -> bool {
    let heads = by_id(ends);
    let (Some(one), Some(other)) = (ends.get(one), ends.get(other)) else { return false };
    passes(&heads, one, other) || (are_one(&heads, one, other) && is_at(one, other))
}

/// Whether two ends are of one history of one server, as far as the records show.
pub(super) fn are_of_one_server(ends: &[LineEnd<'_>], one: usize, other: usize) -> bool {
    let heads = by_id(ends);
    let (Some(one), Some(other)) = (ends.get(one), ends.get(other)) else { return false };
    are_one(&heads, one, other) && !one.is_of_another_server(other)
}

/// Whether a history ends before a stored segment, and does not branch from that one's.
pub(super) fn lacks_end(ends: &[LineEnd<'_>], one: usize, segment: &SegmentHead) -> bool {
    let heads = by_id(ends);
    let Some((one, &head)) = ends.get(one).zip(heads.get(&*segment.stream)) else { return false };
    let other = LineEnd { head, last: Some(segment), life: None };
    let has_gtids = || {
        // Another server has other positions.
        one.is_of_another_server(&other)
            && other.gtids().zip(one.gtids()).is_some_and(|(other, one)| other.is_within(&one))
    };
    let is_there = passes(&heads, one, &other) || is_at(one, &other) || has_gtids();
    !is_there && branches(&heads, one.head, head) == 0
}

type Heads<'a> = HashMap<&'a str, &'a StreamHead>;

fn by_id<'a>(ends: &[LineEnd<'a>]) -> Heads<'a> {
    ends.iter().map(|end| (end.head.stream.as_str(), end.head)).collect()
}

/// The streams of a history, the last one first.
fn line<'a>(heads: &Heads<'a>, last: &'a StreamHead) -> Vec<&'a StreamHead> {
    let (mut line, mut seen) = (vec![last], HashSet::from([last.stream.as_str()]));
    let mut next = last;
    while let Some(&before) = next.begins.after().and_then(|link| heads.get(&*link.stream)) {
        // A circle is no history.
        if !seen.insert(&before.stream) {
            break;
        }
        line.push(before);
        next = before;
    }
    line
}

/// How often a history branched that the other one does not have.
fn branches<'a>(heads: &Heads<'a>, one: &'a StreamHead, other: &'a StreamHead) -> usize {
    let shared: HashSet<&str> =
        line(heads, other).into_iter().map(|head| head.stream.as_str()).collect();
    let own = line(heads, one).into_iter().filter(|head| !shared.contains(head.stream.as_str()));
    own.filter(|head| matches!(head.begins, StreamOrigin::Branch { .. })).count()
}

/// Two receivers may both have stored where their server's history branches.
fn are_one<'a>(heads: &Heads<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>) -> bool {
    branches(heads, one.head, other.head) == branches(heads, other.head, one.head)
        && is_of_same_log(one, other)
}

/// Whether the history that ends with `one` begins to differ behind the end of `other`, or goes on behind it.
fn passes<'a>(heads: &Heads<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>) -> bool {
    let line = line(heads, one.head);
    let follower = line.windows(2).find_map(|pair| match pair {
        [next, before] if before.stream == other.head.stream => next.begins.after(),
        _ => None,
    });
    match (follower, other.last) {
        // It began when the other one had ended, or goes on from there.
        (Some(link), Some(last)) if last.number <= link.number => true,
        (Some(_), None) => true,
        _ => are_one(heads, one, other) && is_beyond(one, other),
    }
}

/// Whether the end of the first one lies behind that of the second.
fn is_beyond(one: &LineEnd<'_>, other: &LineEnd<'_>) -> bool {
    match (one.gtids(), other.gtids()) {
        // Logs of two servers differ; sets of MySQL name their transactions.
        (Some(GtidState::MySql(now)), Some(GtidState::MySql(before)))
            if one.is_of_another_server(other) =>
        {
            before.is_subset(&now) && now != before
        }
        _ if one.is_of_another_server(other) => false,
        (now, before) => {
            let (end, of_other) = (one.position(), other.position());
            end.zip(of_other).is_some_and(|(now, before)| before < now)
                && before.zip(now).is_none_or(|(before, now)| before.is_within(&now))
        }
    }
}

/// Whether they end at the same place.
fn is_at(one: &LineEnd<'_>, other: &LineEnd<'_>) -> bool {
    let gtids = one.gtids() == other.gtids();
    match one.is_of_another_server(other) {
        true => gtids && matches!(one.gtids(), Some(GtidState::MySql(_))),
        false => gtids && one.position() == other.position(),
    }
}

/// Whether logs of one name may be the same log: not if they were made at different times, as after RESET MASTER.
fn is_of_same_log(one: &LineEnd<'_>, other: &LineEnd<'_>) -> bool {
    let (Some(one), Some(other)) = (one.last, other.last) else { return true };
    let made = |head: &SegmentHead| head.description.get(..TIME_DIGITS).map(str::to_owned);
    match (made(one), made(other)) {
        (Some(of_one), Some(of_other)) if one.to.log == other.to.log => of_one == of_other,
        _ => true,
    }
}

impl<'a> LineEnd<'a> {
    /// The end of a stream of which everything is stored up to the time `covered`, if it says so.
    pub(super) fn new(
        head: &'a StreamHead,
        last: Option<&'a SegmentHead>,
        covered: Option<Timestamp>,
    ) -> Self {
        let stored = last.map(|last| last.received[1]);
        Self { head, last, life: covered.max(stored).max(Some(head.started)) }
    }

    fn is_of_another_server(&self, other: &Self) -> bool {
        self.head.origin().differs_from(other.head.origin()).is_some()
    }

    fn position(&self) -> Option<xb_binlog::LogPosition> {
        self.last.map_or_else(|| self.head.start.position(), SegmentHead::end)
    }

    fn gtids(&self) -> Option<GtidState> {
        match self.last {
            Some(last) => last.after(),
            None => self.head.gtids.as_ref()?.parse().ok(),
        }
    }
}
