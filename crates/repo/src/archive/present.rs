//! Which history of an archive is the present one: that which reaches furthest. Positions and GTIDs tell it of one history
//! that several receivers store; clocks tell only which of several histories is the newest. Two lines are of one history if
//! their logs were made in one order, and each needs as many branches as the other: a branch of one is needed by the other
//! only if that may have the end of what was left.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use xb_binlog::{GtidState, LogPosition};

use crate::archive::listed_segment::ListedSegment;
use crate::archive::stream::{StoredPosition, StreamHead, StreamOrigin};

/// Time between the signs of life of two receivers of which neither ended before the other.
const TOGETHER: SignedDuration = SignedDuration::from_mins(1);

/// A stream as the last one of a history.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineEnd<'a> {
    /// Head of the stream.
    pub(super) head: &'a StreamHead,
    /// Its last segment up to which it has no hole, if it has any.
    pub(super) last: Option<&'a ListedSegment>,
    /// Segments that its records state behind that one, if any.
    pub(super) lost: Option<LostEnd<'a>>,
    /// Its newest sign of life.
    pub(super) life: Option<Timestamp>,
    /// The same by its receiver's clock alone, if more than the last segment is known.
    pub(super) received: Option<Timestamp>,
    /// Its segments, if more than the last one is known.
    pub(super) segments: Option<&'a BTreeMap<u64, Arc<ListedSegment>>>,
    /// Of a branch: where what it left ended, if that is known.
    pub(super) left: Option<BranchPoint<'a>>,
}

/// The last segment that the records of a stream state, if it is not there.
#[derive(Debug, Clone, Copy)]
pub(super) struct LostEnd<'a> {
    /// Its number.
    pub(super) number: u64,
    /// Position behind it, if that is stated.
    pub(super) at: Option<&'a StoredPosition>,
}

/// That of a stream of which this many segments are stated, but only those up to this number stored or removed.
pub(super) fn lost_end(
    stated: u64,
    known: u64,
    at: Option<&StoredPosition>,
) -> Option<LostEnd<'_>> {
    let number = stated.checked_sub(1).filter(|number| *number >= known)?;
    Some(LostEnd { number, at })
}

/// End of the line that a branch left.
#[derive(Debug, Clone, Copy)]
pub(super) struct BranchPoint<'a> {
    /// Position behind it.
    pub(super) at: &'a StoredPosition,
    /// The last segment, if it can be read.
    pub(super) segment: Option<&'a ListedSegment>,
}

/// Number of the stream at whose end the archive ends; `None` if there is none. A history whose end lies in another one
/// is not the newest, whatever the clocks of the receivers say; the newest sign of life decides among those that differ.
#[must_use]
pub(super) fn present(ends: &[LineEnd<'_>]) -> Option<usize> {
    let newest = |of: Vec<usize>| of.into_iter().max_by_key(|n| ends.get(*n)?.life);
    newest(last(ends)).or_else(|| newest((0..ends.len()).collect()))
}

/// Of the histories that no other one passes, those that may continue behind the end of this one, as far as the records show:
/// those of another server of MariaDB, whose GTIDs do not tell whether it has lost transactions, and those that are received
/// beside it.
pub(super) fn unproven(ends: &[LineEnd<'_>], one: usize) -> Vec<usize> {
    let all = by_id(ends);
    let Some(one) = ends.get(one) else { return Vec::new() };
    let goes_on = |other: &LineEnd<'_>| {
        let may_go_on =
            || has_more(other, one) || (is_parted(&all, one, other) && lives_as_long(other, one));
        let is_further =
            one.is_of_another_server(other) && may_go_on() && are_one(&all, other, one, true);
        is_further || beside_since(&all, one, other).is_some()
    };
    last(ends).into_iter().filter(|n| ends.get(*n).is_some_and(goes_on)).collect()
}

/// The histories that no other one follows or passes.
pub(super) fn last(ends: &[LineEnd<'_>]) -> Vec<usize> {
    let all = by_id(ends);
    let is_passed = |end: &LineEnd<'_>| {
        ends.iter().any(|other| passes(&all, other, end) && !passes(&all, end, other))
    };
    // Of many streams, few are followed by none: only those are compared with all.
    let mut followed: HashMap<&str, u64> = HashMap::new();
    for link in ends.iter().filter_map(|end| end.head.begins.after()) {
        let number = followed.entry(&link.stream).or_default();
        *number = link.number.max(*number);
    }
    let is_followed = |end: &LineEnd<'_>| {
        let number = followed.get(end.head.stream.as_str());
        number.is_some_and(|number| end.number().is_none_or(|last| last <= *number))
    };
    let left = ends.iter().enumerate().filter(|(_, end)| !is_followed(end) && !is_passed(end));
    left.map(|(n, _)| n).collect()
}

/// Whether an end that no other one passes as far as the last segments show might be passed if all were known: logs that these
/// do not show tell whether it and one that lies behind it are of one history.
pub(super) fn may_be_passed(ends: &[LineEnd<'_>], one: usize) -> bool {
    let all = by_id(ends);
    let Some(one) = ends.get(one) else { return false };
    let own: HashSet<&str> =
        line(&all, one).into_iter().map(|end| end.head.stream.as_str()).collect();
    ends.iter().any(|other| {
        other.segments.is_none()
            && !own.contains(other.head.stream.as_str())
            && is_beyond(&all, other, one)
    })
}

/// The ends that are of one history of one server with this one, and reach at least as far, if its end is known.
pub(super) fn reaching(ends: &[LineEnd<'_>], other: usize) -> HashSet<usize> {
    let all = by_id(ends);
    let Some(other) = ends.get(other) else { return HashSet::new() };
    let reaches = |one: &LineEnd<'_>| {
        passes(&all, one, other) || (are_one(&all, one, other, false) && is_at(one, other))
    };
    ends.iter().enumerate().filter(|(_, one)| reaches(one)).map(|(n, _)| n).collect()
}

/// The ends that are of one history of one server with this one, as far as the records show.
pub(super) fn of_one_server(ends: &[LineEnd<'_>], other: usize) -> HashSet<usize> {
    let all = by_id(ends);
    let Some(other) = ends.get(other) else { return HashSet::new() };
    let is_of_it =
        |one: &LineEnd<'_>| !one.is_of_another_server(other) && are_one(&all, one, other, false);
    ends.iter().enumerate().filter(|(_, one)| is_of_it(one)).map(|(n, _)| n).collect()
}

/// Whether a history ends before a stored segment, and does not branch from that one's.
pub(super) fn lacks_end(ends: &[LineEnd<'_>], one: usize, segment: &ListedSegment) -> bool {
    let all = by_id(ends);
    let Some((one, &of)) = ends.get(one).zip(all.get(&*segment.stream)) else { return false };
    let other = LineEnd { last: Some(segment), lost: None, ..of };
    let has_gtids = || {
        // Another server has other positions.
        one.is_of_another_server(&other)
            && other.gtids().zip(one.gtids()).is_some_and(|(other, one)| other.is_within(&one))
    };
    let is_there = passes(&all, one, &other) || is_at(one, &other) || has_gtids();
    !is_there && branches(&all, one, &other, true) == 0
}

pub(super) type Ends<'a> = HashMap<&'a str, LineEnd<'a>>;

pub(super) fn by_id<'a>(ends: &[LineEnd<'a>]) -> Ends<'a> {
    ends.iter().map(|end| (end.head.stream.as_str(), *end)).collect()
}

/// The streams of a history, the last one first.
pub(super) fn line<'a>(ends: &Ends<'a>, last: &LineEnd<'a>) -> Vec<LineEnd<'a>> {
    let (mut line, mut seen) = (vec![*last], HashSet::from([last.head.stream.as_str()]));
    let mut next = last.head;
    while let Some(before) = next.begins.after().and_then(|link| ends.get(&*link.stream)) {
        // A circle is no history.
        if !seen.insert(&before.head.stream) {
            break;
        }
        line.push(*before);
        next = before.head;
    }
    line
}

/// How often a history branched where the other one needed a branch, too, and does not have it: it may have the end of what
/// was left. One that is asked whether it `lags` needs none either if it ends before that.
fn branches<'a>(ends: &Ends<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>, lags: bool) -> usize {
    let of_other = line(ends, other);
    let is_shared =
        |branch: &LineEnd<'_>| of_other.iter().any(|end| end.head.stream == branch.head.stream);
    let needs = |branch: &LineEnd<'a>| {
        if branch.segments.is_none() {
            return true;
        }
        let of_left = branch.head.begins.after().and_then(|link| ends.get(&*link.stream));
        let may_differ = match branch.left.zip(of_left) {
            Some((left, of_left)) if !of_left.is_of_another_server(other) => {
                let is_in_order = |last| {
                    left.segment.is_none_or(|left| is_in_order(ends, other, last, of_left, left))
                };
                let ends_before = || {
                    other.position().zip(left.at.position()).is_some_and(|(end, left)| end < left)
                        && other.last.is_some_and(is_in_order)
                };
                !(lags && ends_before()) && may_have_end(&of_other, left, of_left)
            }
            // It is not known where that ended, or it is of another server.
            _ => true,
        };
        let are_behind = || {
            !one.is_of_another_server(other)
                && has_one_of(&of_other, &logs_behind(ends, one, Some(branch)))
        };
        may_differ && !are_behind()
    };
    let own = line(ends, one).into_iter().filter(|end| !is_shared(end));
    own.filter(|end| matches!(end.head.begins, StreamOrigin::Branch { .. })).filter(needs).count()
}

/// Whether a history may have the end of what was left: unless its log of that name has other transactions there, or ends
/// before.
fn may_have_end(line: &[LineEnd<'_>], left: BranchPoint<'_>, of: &LineEnd<'_>) -> bool {
    let Some(at) = left.at.position() else { return true };
    let shows = |head: &ListedSegment| {
        if head.from.log != left.at.log || head.from.offset >= left.at.offset {
            return None;
        }
        let is_in = left.at.offset <= head.to.offset;
        let known =
            left.segment.and_then(ListedSegment::after).zip(head.before()).zip(head.after());
        match known {
            Some(((here, before), after)) if is_in => {
                Some(before.is_within(&here) && here.is_within(&after))
            }
            _ if is_in => Some(true),
            _ => head.next_log.is_some().then_some(false),
        }
    };
    let next = std::iter::once(None).chain(line.iter().map(|next| Some(next.head)));
    let shown = line.iter().zip(next).find_map(|(end, next)| {
        // What lies behind the beginning of the next stream is not of this history.
        let takes_over = next.and_then(|next| next.takes_over_at(end.head));
        let counts = !end.is_of_another_server(of)
            && takes_over.is_none_or(|over| over.position().is_some_and(|over| at <= over));
        counts.then(|| end.segments().find_map(shows)).flatten()
    });
    shown.unwrap_or(true)
}

/// Whether two ends are of one history, as far as the records show. If one `lags`, the other one may have branched behind it.
/// Only segments show which branches count.
fn are_one<'a>(ends: &Ends<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>, lags: bool) -> bool {
    let are_in_order = one.is_of_another_server(other)
        || one
            .last
            .zip(other.last)
            .is_none_or(|(last, of_other)| is_in_order(ends, one, last, other, of_other));
    let (own, of_other) = (branches(ends, one, other, lags), branches(ends, other, one, false));
    are_in_order && own == of_other && (own == 0 || one.segments.is_some())
}

/// Whether the history that ends with `one` begins to differ behind the end of `other`, or continues behind it.
fn passes<'a>(ends: &Ends<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>) -> bool {
    let line = line(ends, one);
    let follower = line.windows(2).find_map(|pair| match pair {
        [next, before] if before.head.stream == other.head.stream => next.head.begins.after(),
        _ => None,
    });
    match (follower, other.number()) {
        // It began when the other one had ended, or continues from there.
        (Some(link), Some(last)) if last <= link.number => true,
        (Some(_), None) => true,
        _ => is_beyond(ends, one, other) && are_one(ends, one, other, true),
    }
}

/// Whether the end of the first one lies behind that of the second.
fn is_beyond<'a>(ends: &Ends<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>) -> bool {
    match (one.gtids(), other.gtids()) {
        // Logs of two servers differ; sets of MySQL name their transactions.
        (Some(GtidState::MySql(now)), Some(GtidState::MySql(before)))
            if one.is_of_another_server(other) =>
        {
            before.is_subset(&now) && now != before
        }
        // Those of MariaDB do not, but both were received to the end.
        _ if one.is_of_another_server(other) => {
            lives_as_long(one, other) && has_more(one, other) && !is_parted(ends, one, other)
        }
        (now, before) => {
            let (end, of_other) = (one.position(), other.position());
            end.zip(of_other).is_some_and(|(now, before)| before < now)
                && (one.lost.is_some()
                    || before.zip(now).is_none_or(|(before, now)| before.is_within(&now)))
        }
    }
}

/// Since when two servers write two histories at the same time: both were received long after they had parted, by a branch, and
/// up to the same time. So does a copy of a server that was started beside it, or a primary that lives on after a failover.
pub(super) fn beside_since<'a>(
    ends: &Ends<'a>,
    one: &LineEnd<'a>,
    other: &LineEnd<'a>,
) -> Option<Timestamp> {
    let (now, then) = one.received.zip(other.received)?;
    let (own, its) = (line(ends, one), line(ends, other));
    let lone = |of: &[LineEnd<'a>], without: &[LineEnd<'a>]| {
        let is_in =
            |end: &LineEnd<'a>| without.iter().any(|one| one.head.stream == end.head.stream);
        let branches = of.iter().filter(|end| !is_in(end));
        let branches =
            branches.filter(|end| matches!(end.head.begins, StreamOrigin::Branch { .. }));
        branches.map(|end| end.head.started).min()
    };
    let parted = [lone(&own, &its), lone(&its, &own)].into_iter().flatten().min()?;
    let is_late = parted.checked_add(TOGETHER).is_ok_and(|late| late < now.min(then));
    let are_together = now.duration_since(then).abs() <= TOGETHER;
    let are_two = || !are_one(ends, one, other, true) && !are_one(ends, other, one, true);
    (is_late && are_together && are_two()).then_some(parted)
}

/// Whether the newest sign of life of the first one is hardly older than that of the second.
pub(super) fn lives_as_long(one: &LineEnd<'_>, other: &LineEnd<'_>) -> bool {
    one.life.and_then(|life| life.checked_add(TOGETHER).ok()) >= other.life
}

/// Whether the first one may lack the end of the second, whatever the numbers of their GTIDs: in a domain, they end with
/// transactions of two servers of MariaDB, as do those of a primary that failed and of one that took its place. Not if it went
/// on from the server of the second one itself.
fn is_parted<'a>(ends: &Ends<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>) -> bool {
    let (Some(GtidState::MariaDb(own)), Some(GtidState::MariaDb(its))) =
        (one.gtids(), other.gtids())
    else {
        return false;
    };
    let differs =
        its.iter().any(|gtid| own.get(gtid.domain).is_some_and(|own| own.server != gtid.server));
    differs && (!took_over(ends, one, other) || took_over(ends, other, one))
}

/// Whether a history continued from the server of another one on another server.
fn took_over<'a>(ends: &Ends<'a>, one: &LineEnd<'a>, other: &LineEnd<'a>) -> bool {
    line(ends, one).windows(2).any(|pair| match pair {
        [next, before] => {
            matches!(next.head.begins, StreamOrigin::Continues { at: Some(_), .. })
                && !before.is_of_another_server(other)
        }
        _ => false,
    })
}

/// Whether the first one has all GTIDs of the second, and others.
fn has_more(one: &LineEnd<'_>, other: &LineEnd<'_>) -> bool {
    one.gtids()
        .zip(other.gtids())
        .is_some_and(|(one, other)| other.is_within(&one) && !one.is_within(&other))
}

/// Whether they end at the same place.
fn is_at(one: &LineEnd<'_>, other: &LineEnd<'_>) -> bool {
    let gtids = one.gtids() == other.gtids();
    match one.is_of_another_server(other) {
        true => gtids && matches!(one.gtids(), Some(GtidState::MySql(_))),
        false => {
            let is_lost = one.lost.or(other.lost).is_some();
            (gtids || is_lost) && one.position() == other.position() && one.position().is_some()
        }
    }
}

/// Whether the logs of two segments of one server were made in the order of their names: they were not if these began anew
/// between them, as after RESET MASTER. The time of a log is that of the session that began it, which may have set another
/// one, so it says nothing of two histories that have one log.
fn is_in_order<'a>(
    ends: &Ends<'a>,
    one: &LineEnd<'a>,
    last: &ListedSegment,
    other: &LineEnd<'a>,
    of_other: &ListedSegment,
) -> bool {
    let log = |head: &ListedSegment| LogPosition::new(&head.to.log, 0);
    let (Some(made_last), Some(made_other)) = (last.log_made, of_other.log_made) else {
        return true;
    };
    let is_so = match log(last).zip(log(of_other)).and_then(|(one, other)| one.partial_cmp(&other))
    {
        Some(Ordering::Less) => made_last <= made_other,
        Some(Ordering::Equal) => return made_last == made_other,
        Some(Ordering::Greater) => made_last >= made_other,
        None => true,
    };
    is_so || {
        let of_one = logs_behind(ends, one, None);
        !of_one.is_disjoint(&logs_behind(ends, other, None))
    }
}

/// A log: its name, and when it was made.
type Log<'a> = (&'a str, u32);

/// The logs of a history, as far as they are stored, that were made behind a branch of it; behind the last one if none is given.
fn logs_behind<'a>(
    ends: &Ends<'a>,
    last: &LineEnd<'a>,
    branch: Option<&LineEnd<'a>>,
) -> HashSet<Log<'a>> {
    let mut logs = HashSet::new();
    for end in line(ends, last) {
        if end.is_of_another_server(last) {
            break;
        }
        logs.extend(end.logs());
        let is_last = match branch {
            Some(branch) => branch.head.stream == end.head.stream,
            None => matches!(end.head.begins, StreamOrigin::Branch { .. }),
        };
        if !is_last {
            continue;
        }
        // The last segment alone does not show which logs are behind the branch.
        if last.segments.is_none() && matches!(end.head.begins, StreamOrigin::Branch { .. }) {
            return HashSet::new();
        }
        // It has the log in which it branched, and may have those before.
        let of_left = end.head.begins.after().and_then(|link| ends.get(&*link.stream));
        if of_left.is_some_and(|of_left| of_left.is_of_another_server(&end)) {
            break;
        }
        for before in of_left.into_iter().flat_map(|of_left| line(ends, of_left)) {
            for log in before.logs() {
                logs.remove(&log);
            }
        }
        if end.left.is_none_or(|left| left.segment.is_none()) {
            logs.retain(|(name, _)| *name != end.head.start.log);
        }
        break;
    }
    logs
}

/// Whether a history has one of these logs.
fn has_one_of(line: &[LineEnd<'_>], logs: &HashSet<Log<'_>>) -> bool {
    let Some(last) = line.first().filter(|_| !logs.is_empty()) else { return false };
    let own = line.iter().filter(|end| !end.is_of_another_server(last));
    own.flat_map(LineEnd::logs).any(|log| logs.contains(&log))
}

impl<'a> LineEnd<'a> {
    /// Its segments, as far as they are known.
    fn segments(&self) -> impl Iterator<Item = &'a ListedSegment> {
        let stored = self.segments.into_iter().flat_map(BTreeMap::values);
        stored.map(|segment| &**segment).chain(self.last)
    }

    /// Its logs, as far as they are known.
    fn logs(&self) -> impl Iterator<Item = Log<'a>> {
        let mut before = "";
        let next = move |head: &&'a ListedSegment| {
            std::mem::replace(&mut before, head.to.log.as_str()) != head.to.log
        };
        self.segments().filter(next).filter_map(|head| Some((head.to.log.as_str(), head.log_made?)))
    }

    pub(super) fn is_of_another_server(&self, other: &Self) -> bool {
        self.head.origin().differs_from(other.head.origin()).is_some()
    }

    /// Number of its last segment.
    fn number(&self) -> Option<u64> {
        self.lost.map(|lost| lost.number).or_else(|| Some(self.last?.number))
    }

    fn position(&self) -> Option<LogPosition> {
        match self.lost {
            Some(lost) => lost.at?.position(),
            None => self.last.map_or_else(|| self.head.start.position(), ListedSegment::end),
        }
    }

    /// GTIDs up to there, or up to what is lost.
    pub(super) fn gtids(&self) -> Option<GtidState> {
        match self.last {
            Some(last) => last.after(),
            None => self.head.gtids.as_ref()?.parse().ok(),
        }
    }
}
