//! Streams, the parts of them that a replay needs, and how their segments follow each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use xb_binlog::{AnyGtid, Gtid, GtidPosition, GtidState, LogPosition};

use crate::archive::base::Base;
use crate::archive::fit::fits;
use crate::archive::listed_segment::ListedSegment;
use crate::archive::plan_error::PlanError;
use crate::archive::present::{LostEnd, lost_end};
use crate::archive::record::{Record, RecordDigest};
use crate::archive::stream::{Floor, StoredPosition, StreamHead, StreamOrigin};

/// Why a segment is a break if there is nothing to compare.
pub const MISSING: &str = "missing or unreadable";

/// A stream as far as its records show it.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Its head.
    pub head: Record<StreamHead>,
    /// Its segments, by number. One that cannot be read is missing.
    pub segments: BTreeMap<u64, Arc<ListedSegment>>,
    /// Number of segments that its records say are stored. Behind a later hole lies what a receiver had on its
    /// way when it was killed.
    pub stated: u64,
    /// Position behind the last of these, if a record states it.
    pub end: Option<StoredPosition>,
    /// A record of it shows how far it reaches. Without one, its last segments may have been removed together
    /// with it.
    pub shows_end: bool,
    /// Beginning of the rest of it, if `prune` has removed segments.
    pub floor: Option<Floor>,
    /// Segments before this number may be missing: `prune` has removed them, here or where they were copied from.
    /// Segments that are still there count.
    pub removed_below: u64,
    /// Everything up to this time is in it, if it says so.
    pub covered_until: Option<Timestamp>,
    /// When its newest object was written, by the store's clock, if that is known.
    pub written: Option<Timestamp>,
}

impl Stream {
    /// Its segments, and where one is missing or does not follow the one before it: the number of the piece behind
    /// the break, and why.
    #[must_use]
    pub fn chain(&self) -> (Vec<Piece<'_>>, Vec<(usize, PlanError)>) {
        let (mut pieces, mut breaks) = (Vec::new(), Vec::new());
        self.add_to(&mut pieces, &mut breaks, None, 0);
        (pieces, breaks)
    }

    /// The last segment that its records state, if it is not there.
    pub(super) fn lost_end(&self) -> Option<LostEnd<'_>> {
        let last = self.segments.keys().next_back().map_or(0, |last| last.saturating_add(1));
        lost_end(self.stated, last.max(self.removed_below), self.end.as_ref())
    }

    /// ID of the stream.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.head.content.stream
    }

    /// Its newest sign of life; `None` if there is none. The clock of a receiver may have been ahead: it is no later than its
    /// newest object by the store's clock.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        Some(self.life(self.written))
    }

    /// Its newest sign of life by its receiver's clock alone.
    pub(super) fn received_until(&self) -> Timestamp {
        self.life(None)
    }

    fn life(&self, written: Option<Timestamp>) -> Timestamp {
        let stored = self.segments.values().next_back().map(|each| &**each);
        life(&self.head.content, stored, self.covered_until, written)
    }
}

/// Newest sign of life of a stream with this last segment, of which everything is stored up to the time `covered`, and whose
/// newest object has the time `written` by the store's clock.
pub(super) fn life(
    head: &StreamHead,
    last: Option<&ListedSegment>,
    covered: Option<Timestamp>,
    written: Option<Timestamp>,
) -> Timestamp {
    let stored = last.map(|last| last.received[1]);
    let own = [covered, stored].into_iter().flatten().fold(head.started, Timestamp::max);
    written.map_or(own, |written| own.min(written))
}

/// A part of a segment that a replay needs.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// ID of the stream.
    pub stream: &'a str,
    /// The segment.
    pub segment: &'a Arc<ListedSegment>,
    /// Offset behind the last byte that counts: another stream continues from there.
    pub until: u64,
    /// Number of the server in this history, from 0: logs of two servers may have the same names.
    pub server: usize,
}

impl Stream {
    /// Adds the segments of this stream up to where `next` takes over, and a break wherever one does not follow the
    /// one before it. Those behind a break can be replayed onto a backup that was taken there.
    pub(super) fn add_to<'a>(
        &'a self,
        pieces: &mut Vec<Piece<'a>>,
        breaks: &mut Vec<(usize, PlanError)>,
        next: Option<&'a Stream>,
        server: usize,
    ) {
        let link = next.and_then(|next| next.head.content.begins.after());
        let first = self.floor.as_ref().map_or(0, |floor| floor.number);
        // Segments hidden by a floor lie between the streams before and this one.
        if first > 0 && !pieces.is_empty() {
            breaks.push((pieces.len(), self.missing(0, first, pieces.last())));
        }
        // Behind a later hole lies what a receiver had on its way when it was killed.
        let stated = self.stated.max(self.removed_below).max(first);
        let mut known = stated;
        for number in self.segments.range(stated..).map(|(number, _)| *number) {
            if number != known {
                break;
            }
            known = known.saturating_add(1);
        }
        let count = link.map_or(known, |link| link.number.saturating_add(1));
        // End of the segment before the next one; none behind a break.
        let mut previous = Some(match &self.floor {
            Some(floor) => (RecordDigest::parse(&floor.head), &floor.at, None),
            None => (Some(self.head.digest), &self.head.content.start, None),
        });
        let continues = next
            .is_some_and(|next| matches!(next.head.content.begins, StreamOrigin::Continues { .. }));
        let mut is_over = false;
        let mut number = first;
        while number < count {
            let found = self.segments.range(number..count).next();
            let Some((_, segment)) = found.filter(|(found, _)| **found == number) else {
                let until = found.map_or(count, |(found, _)| *found);
                breaks.push((pieces.len(), self.missing(number, until, pieces.last())));
                (previous, number) = (None, until);
                continue;
            };
            let head = segment;
            if let Some(previous) = previous
                && let Err(what) = follows(head, previous, self.head.content.gtids.as_deref())
            {
                let (stream, what) = (self.id().to_owned(), what.to_owned());
                breaks.push((pieces.len(), PlanError::Segment { stream, number, what }));
            }
            previous = Some((Some(segment.digest), &head.to, Some(head)));
            number += 1;
            let start = next.and_then(|next| next.head.content.takes_over_at(&self.head.content));
            // A stream that begins with a crash may have nothing of the log in which it begins: then all of it is received again.
            is_over |= continues && start.is_some_and(|start| is_behind_crash(start, &head.from));
            let start = start.filter(|start| start.log == head.from.log);
            let until = start.map_or(head.to.offset, |start| start.offset.min(head.to.offset));
            // Later segments belong to the other history, or are received again: but the chain up to the segment that the next
            // stream names has to hold.
            is_over |= until <= head.from.offset;
            if !is_over {
                pieces.push(Piece { stream: self.id(), segment, until, server });
            }
            is_over |= until < head.to.offset || start.is_some_and(|start| start.offset == until);
        }
        // The segment that it names may be removed already; the floor names the last one that is.
        let named = link.filter(|link| link.number.saturating_add(1) >= first);
        if let (Some(link), Some((digest, ..))) = (named, previous)
            && (digest.is_none() || RecordDigest::parse(&link.head) != digest)
        {
            breaks.push((
                pieces.len(),
                PlanError::Segment {
                    stream: self.id().to_owned(),
                    number: link.number,
                    what: "the stream that follows it names another one".to_owned(),
                },
            ));
        }
    }

    /// Returns the beginning of the first segment behind this position, if the segments before it were removed.
    pub(super) fn left_after(&self, position: &LogPosition) -> Option<StoredPosition> {
        let floor = self.floor.as_ref().map(|floor| (floor.number, &floor.at));
        let segments = self.segments.range(..=self.removed_below);
        let left = floor.into_iter().chain(segments.map(|(number, of)| (*number, &of.from)));
        let (number, at) =
            left.into_iter().find(|(_, at)| at.position().is_some_and(|at| *position < at))?;
        let is_removed = number.checked_sub(1).is_some_and(|n| !self.segments.contains_key(&n));
        is_removed.then(|| at.clone())
    }

    /// The break at which the segments of this stream from `number` to before `until` are missing.
    pub(super) fn missing(&self, number: u64, until: u64, last: Option<&Piece<'_>>) -> PlanError {
        match last.filter(|_| until <= self.removed_below) {
            Some(last) => PlanError::Gap {
                at: last.segment.to.clone(),
                reason: format!(
                    "segments {number} to {} of stream {} were removed before they could be copied here, or by a `prune` that did not finish",
                    until - 1,
                    self.id()
                ),
            },
            None => PlanError::Segment {
                stream: self.id().to_owned(),
                number,
                what: MISSING.to_owned(),
            },
        }
    }
}

/// Returns whether a stream of another server takes over where the stream before it ends, with the same transactions.
pub(super) fn takes_over(
    head: &StreamHead,
    at: &StoredPosition,
    end: Option<&StoredPosition>,
    last: &Piece<'_>,
) -> Result<(), &'static str> {
    let before = last.segment;
    if end != Some(at) {
        return Err("it does not begin where the stream of the previous server ends");
    }
    let gtids = head.gtids.as_ref().and_then(|gtids| gtids.parse::<GtidState>().ok());
    let repeats = head.repeats.as_ref().map(|of| of.gtids.parse::<GtidState>());
    match (repeats, &gtids) {
        (None, _) => {}
        (Some(Ok(of)), Some(now)) if of == *now => {}
        _ => return Err("it does not repeat the last transactions of the stream before it"),
    }
    match gtids.is_some() && gtids == before.after() {
        true => Ok(()),
        false => Err("its GTIDs are not those at the end of the previous server's stream"),
    }
}

/// Whether a segment follows what is before it: a head with this digest, which ends there; and the head, if it is that of
/// a segment. `gtids` are those at the beginning of the stream.
fn follows(
    head: &ListedSegment,
    (digest, end, before): (Option<RecordDigest>, &StoredPosition, Option<&ListedSegment>),
    gtids: Option<&str>,
) -> Result<(), &'static str> {
    if digest.is_none() || head.previous != digest {
        return Err("it does not name the one before it");
    }
    let is_same = |gtids: Option<&str>| head.gtids_before.as_deref() == gtids;
    let follows = match before {
        Some(before) => {
            let is_next = before.is_followed_by(&head.from)
                || (before.next_log.is_none() && is_behind_crash(end, &head.from));
            is_next && is_same(before.gtids_after.as_deref())
        }
        None => head.from == *end || (is_behind_crash(end, &head.from) && is_same(gtids)),
    };
    match follows {
        true => Ok(()),
        false => Err("the segment does not continue the previous one"),
    }
}

/// Returns whether a log begins at `next` that may follow a log with this end: a server that crashed has written no event that
/// names the next one, and nothing more into its log.
fn is_behind_crash(end: &StoredPosition, next: &StoredPosition) -> bool {
    let is_later = next.log != end.log && next.position() > end.position();
    is_later && next.offset == 4
}

impl Piece<'_> {
    /// Of the GTIDs that a backup notes here, those of domains of which the log has nothing before the segment: only the
    /// transactions behind the backup tell whether its data has them. A domain may begin in the segment itself, on either
    /// side of the backup.
    #[must_use]
    pub fn outside(&self, base: &Base) -> GtidPosition {
        match (&base.gtids, self.segment.before()) {
            (Some(GtidState::MariaDb(noted)), Some(GtidState::MariaDb(before))) => {
                let mut outside = GtidPosition::default();
                let has_none = |gtid: &&Gtid| before.get(gtid.domain).is_none();
                noted.iter().filter(has_none).for_each(|gtid| outside.advance(*gtid));
                outside
            }
            _ => GtidPosition::default(),
        }
    }

    pub(super) fn end(&self) -> String {
        format!("{}:{}", self.segment.from.log, self.until)
    }

    /// Returns whether the position of a backup lies in it, with the same history.
    pub(super) fn has(&self, base: &Base) -> bool {
        let head = self.segment;
        let at = &base.position;
        let lies = head.from.log == at.log()
            && head.from.offset <= at.offset()
            && (at.offset() < self.until
                // At its end, if nothing follows it here.
                || at.offset() == self.until);
        lies && fits(head, base)
    }

    /// Returns whether it has a transaction with a later time.
    pub(super) fn is_beyond(&self, time: i64) -> bool {
        let greatest = self.segment.commits.map(|commits| i64::from(commits.greatest));
        greatest.is_some_and(|greatest| greatest > time)
    }

    pub(super) fn has_gtid(&self, gtid: &AnyGtid) -> bool {
        let head = self.segment;
        let is_before = head.before().is_some_and(|before| before.contains(gtid));
        !is_before && head.after().is_some_and(|after| after.contains(gtid))
    }

    pub(super) fn has_position(&self, at: &LogPosition) -> bool {
        let head = self.segment;
        head.from.log == at.log() && head.from.offset <= at.offset() && at.offset() <= self.until
    }
}
