//! Parts of the archive that a restore to a stop needs: a pure function of the heads.
//!
//! The stop is a boundary between two transactions in the order of their commits. The heads show in which
//! segment it lies; [`Cutter`](crate::archive::stop::Cutter) finds it among that segment's transactions.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use xb_binlog::GtidState;

use crate::archive::all_lines::AllLines;
use crate::archive::base::{Base, BasePosition};
pub use crate::archive::chain::{MISSING, Piece, Stream};
use crate::archive::clock_step::{ClockStep, clock_steps};
pub use crate::archive::fit::{are_apart, misplaced};
pub use crate::archive::history_line::Plan;
use crate::archive::history_line::{HistoryLine, LinePath, LinesWith, covers, id, joins};
use crate::archive::line_pieces::LinePieces;
use crate::archive::line_reader::{LineEnding, by_id, line_ends};
use crate::archive::listed_segment::ListedSegment;
pub use crate::archive::plan_error::PlanError;
use crate::archive::present::{
    self, BranchPoint, LineEnd, lacks_end, of_one_server, present, reaching,
};
use crate::archive::stop::RestoreStop;
use crate::archive::stranded::{MissingTransactions, StrandedTransactions, lacks, only, together};
use crate::archive::stream::{StoredPosition, StreamOrigin};
use crate::archive::unlogged::unlogged_starts;

/// All histories of an archive. To look at several backups, make it once.
#[derive(Debug)]
pub struct Histories<'a> {
    streams: &'a [Stream],
    ends: Vec<LineEnd<'a>>,
    /// The present one first, then by their signs of life; of two that are as new, that of the later stream.
    lines: Vec<HistoryLine<'a>>,
    /// Of the present line.
    newest: OnceLock<Arc<LinePieces<'a>>>,
    /// The other line that was read last: all of them would take the memory of their number.
    other: Mutex<Option<(usize, Arc<LinePieces<'a>>)>>,
    /// Read if the present line does not have a backup; `None` if streams follow each other in a circle.
    all: OnceLock<Option<AllLines<'a>>>,
    /// Streams whose lines are of the present history of one server, and those of them that reach its end.
    of_one: OnceLock<HashSet<usize>>,
    reaching: OnceLock<HashSet<usize>>,
}

impl<'a> Histories<'a> {
    /// The histories of these streams.
    #[must_use]
    pub fn new(streams: &'a [Stream]) -> Self {
        let ends = ends(streams);
        let present = present(&ends);
        let life = |n: usize| ends.get(n).and_then(|end| end.life);
        let mut last: Vec<(usize, &Stream)> = streams.iter().enumerate().rev().collect();
        last.sort_by_key(|(n, _)| std::cmp::Reverse((Some(*n) == present, life(*n))));
        let by_id = by_id(streams);
        let unlogged = unlogged_starts(streams).into();
        let line = |(n, last)| HistoryLine::ending_with(&by_id, n, last, &unlogged);
        let lines = last.into_iter().map(line).collect();
        Self {
            streams,
            ends,
            lines,
            newest: OnceLock::new(),
            other: Mutex::new(None),
            all: OnceLock::new(),
            of_one: OnceLock::new(),
            reaching: OnceLock::new(),
        }
    }

    /// The pieces of a line.
    fn pieces(&self, line: &HistoryLine<'a>) -> Arc<LinePieces<'a>> {
        if self.lines.first().is_some_and(|newest| newest.last == line.last) {
            return Arc::clone(self.newest.get_or_init(|| Arc::new(line.read())));
        }
        let mut other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        match &*other {
            Some((last, pieces)) if *last == line.last => Arc::clone(pieces),
            _ => {
                let pieces = Arc::new(line.read());
                *other = Some((line.last, Arc::clone(&pieces)));
                pieces
            }
        }
    }

    fn all(&self) -> Option<&AllLines<'a>> {
        self.all.get_or_init(|| AllLines::read(self.streams)).as_ref()
    }

    /// Whether a line is of the history of the present one, reaches its end, and is received from its server.
    fn reaches(&self, line: &HistoryLine<'a>) -> bool {
        let newest = self.lines.first().map_or(0, |newest| newest.last);
        self.reaching.get_or_init(|| reaching(&self.ends, newest)).contains(&line.last)
    }

    fn is_of_one_server(&self, line: &HistoryLine<'a>) -> bool {
        let newest = self.lines.first().map_or(0, |newest| newest.last);
        self.of_one.get_or_init(|| of_one_server(&self.ends, newest)).contains(&line.last)
    }

    fn plan_line(
        &self,
        line: &HistoryLine<'a>,
        base: &Base,
        stop: &RestoreStop,
    ) -> Result<Plan<'a>, PlanError> {
        line.plan_way(line.way(&self.pieces(line), base)?, base, stop)
    }

    /// Plans a replay from `base` to `stop`. Of several histories it takes the [`present`] one. What that lacks behind a gap
    /// may be in another stream of the same history, and so may be what another server of MariaDB has behind its end, if the
    /// stop is not the latest. Only if the backup is of the history that the present one left, the stop is sought there: in
    /// that of a server that was restored, that lost the end of its log, or whose logs began anew. The latest is never sought
    /// there, because that is an older state.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn plan(&self, base: &Base, stop: &RestoreStop) -> Result<Plan<'a>, PlanError> {
        let Some((newest, others)) = self.lines.split_first() else {
            return Err(PlanError::NoStart { position: base.position.clone() });
        };
        let error = match self.plan_line(newest, base, stop) {
            Err(error) => error,
            planned => return planned,
        };
        let is_latest = *stop == RestoreStop::Latest;
        match &error {
            PlanError::Gap { .. } => self.mended(base, stop).ok_or(error),
            // A segment that is missing or changed is no reason to look elsewhere, because another stream may hide that: only in one
            // that reaches a known end.
            PlanError::Segment { .. } => {
                let mut whole = others.iter().filter(|other| self.reaches(other));
                whole.find_map(|other| self.plan_line(other, base, stop).ok()).ok_or(error)
            }
            PlanError::NotReached { .. } if !is_latest => {
                let further = present::unproven(&self.ends, newest.last);
                let mut further = others.iter().filter(|other| further.contains(&other.last));
                let found = further.find_map(|other| self.plan_line(other, base, stop).ok());
                found.map(|plan| plan.left(None)).ok_or(error)
            }
            PlanError::NoStart { .. } => match self.left(base) {
                None => Err(error),
                Some((_, error)) if is_latest => Err(error),
                Some((line, by)) => {
                    self.plan_line(line, base, stop).map(|plan| plan.left(Some(by)))
                }
            },
            PlanError::Branch { .. } if !is_latest => match self.left(base) {
                None => Err(error),
                Some((line, by)) => {
                    self.plan_line(line, base, stop).map(|plan| plan.left(Some(by)))
                }
            },
            _ => Err(error),
        }
    }

    /// The plan by what another receiver has stored of a gap of the present line: to the end of that one's line, or with what is
    /// behind the gap. Nothing, if nothing was received behind it.
    fn mended(&self, base: &Base, stop: &RestoreStop) -> Option<Plan<'a>> {
        let (newest, others) = self.lines.split_first()?;
        let pieces = self.pieces(newest);
        let behind = newest.received_behind_gap(&pieces)?;
        let next = behind.first()?;
        let mut lines = LinesWith::new(self.all(), base);
        // Of many lines, few have both, and those that have them have the same between.
        let mut joints = self.all().map(|all| all.search(None, |piece| joins(piece, next)));
        let mut stops = self.all().map(|all| {
            all.search(None, |piece| match stop {
                RestoreStop::Latest => true,
                RestoreStop::Time(time) => piece.is_beyond(time.as_second()),
                RestoreStop::Gtid(gtid) | RestoreStop::BeforeGtid(gtid) => piece.has_gtid(gtid),
                RestoreStop::Position(at) => piece.has_position(at),
            })
        });
        let mut tried = HashSet::new();
        others.iter().filter(|other| self.is_of_one_server(other)).find_map(|other| {
            if !lines.may_lead(other) {
                return None;
            }
            let covered = other.parts.last().and_then(|(stream, _)| stream.covered_until);
            let may_reach = match (stop, &mut stops) {
                (RestoreStop::Latest, _) => self.reaches(other),
                (_, Some(stops)) => covers(covered, stop) || stops.last(other.last).is_some(),
                (_, None) => true,
            };
            let whole = may_reach.then(|| self.plan_line(other, base, stop).ok()).flatten();
            whole.or_else(|| {
                if let Some(joints) = &mut joints {
                    let places = (id(&lines.start(other)?), id(&joints.last(other.last)?));
                    if !tried.insert(places) {
                        return None;
                    }
                }
                let pieces = self.pieces(other);
                let way = newest.joined(&behind, other, &pieces, base)?;
                newest.plan_way(way, base, stop).ok()
            })
        })
    }

    /// The history of a backup that the newest one left, and how. It was still received when the backup had ended: one that
    /// was taken later may be of another history with the same positions and GTIDs, of which too little is stored.
    fn left(&self, base: &Base) -> Option<(&HistoryLine<'a>, PlanError)> {
        let (_, others) = self.lines.split_first()?;
        let mut lines = LinesWith::new(self.all(), base);
        let line = others.iter().find(|line| {
            line.parts.last().is_some_and(|(last, _)| last.received_until() >= base.taken)
                && lines.has_known(line)
        })?;
        Some((line, self.left_by(line)?))
    }

    /// How the present history left that of this line.
    fn left_by(&self, line: &HistoryLine<'a>) -> Option<PlanError> {
        let is_other =
            |stream: &Stream| line.parts.iter().all(|(part, _)| part.id() != stream.id());
        self.lines.first()?.parts.iter().find_map(|(stream, _)| match &stream.head.content.begins {
            StreamOrigin::Branch { reason, .. } if is_other(stream) => {
                let (stream, reason) = (stream.id().to_owned(), reason.clone());
                Some(PlanError::Branch { stream, reason })
            }
            _ => None,
        })
    }

    /// Plans in the histories that the present one left, for a backup whose bytes tell which of them it is of: the newest first,
    /// and one for each piece that may have its position. There is none for the latest, which would be an older state.
    #[must_use]
    pub fn left_plans(&self, base: &Base, stop: &RestoreStop) -> Vec<Plan<'a>> {
        if *stop == RestoreStop::Latest {
            return Vec::new();
        }
        let base = &Base { is_shown_by_bytes: true, ..base.clone() };
        let mut lines = LinesWith::new(self.all(), base);
        let (mut plans, mut places) = (Vec::new(), HashSet::new());
        for line in self.lines.iter().skip(1) {
            let Some(start) = lines.start(line) else { continue };
            let place = (start.stream, start.segment.number);
            if places.contains(&place) {
                continue;
            }
            if let Ok(plan) = self.plan_line(line, base, stop) {
                places.insert(place);
                plans.push(plan.left(self.left_by(line)));
            }
        }
        plans
    }

    /// The stream at whose end the archive ends, and the newest sign of life of all.
    #[must_use]
    pub fn newest(&self) -> Option<(&'a Stream, Option<Timestamp>)> {
        let last = self.streams.get(self.lines.first()?.last)?;
        Some((last, self.ends.iter().filter_map(|end| end.life).max()))
    }

    /// A stream that may continue behind the end of the archive: that of another server of MariaDB whose receiver has ended, and
    /// whether the present one will have all its transactions is not known; or one that is received beside the present one, in
    /// another history.
    #[must_use]
    pub fn unproven(&self) -> Option<&'a Stream> {
        let further = present::unproven(&self.ends, self.lines.first()?.last);
        self.streams.get(*further.first()?)
    }

    /// A stream of another history that is received beside the present one, and since when: two servers are archived under one
    /// name.
    #[must_use]
    pub fn beside(&self) -> Option<(&'a Stream, Timestamp)> {
        let newest = self.lines.first()?.last;
        let (all, one) = (present::by_id(&self.ends), self.ends.get(newest)?);
        present::unproven(&self.ends, newest).into_iter().find_map(|n| {
            let since = present::beside_since(&all, one, self.ends.get(n)?)?;
            Some((self.streams.get(n)?, since))
        })
    }

    /// Finds the transactions that streams of other servers have and this history lacks.
    #[must_use]
    pub fn stranded(&self) -> Vec<StrandedTransactions> {
        let Some(newest) = self.lines.first() else { return Vec::new() };
        let found = lacks(&self.ends, newest.last).into_iter().filter_map(|(end, lack)| {
            let gtids = match lack {
                MissingTransactions::Certain(gtids) => gtids,
                MissingTransactions::ToFind(gtid) => {
                    let passage = newest.passage(&self.pieces(newest).pieces, gtid)?;
                    (passage.has(gtid) == Some(false)).then(|| only(gtid))?
                }
            };
            Some((end, gtids))
        });
        together(found)
    }

    /// Finds the places of the present history where the clock of the server and its receiver went back.
    #[must_use]
    pub fn clock_steps(&self) -> Vec<ClockStep> {
        let newest = self.lines.first();
        newest.map(|newest| clock_steps(&self.pieces(newest).pieces)).unwrap_or_default()
    }

    /// The stream that has received again what is missing of this one, and all that is behind it: a receiver that had stored it
    /// found that it is gone, and asked the server once more. Of several histories, one is enough; what comes behind the end of this
    /// stream does not matter.
    #[must_use]
    pub fn received_again(&self, stream: &Stream) -> Option<&'a Stream> {
        let (own, breaks) = stream.chain();
        let missing = breaks.iter().find_map(|(_, error)| match error {
            PlanError::Segment { number, what, .. } if what == MISSING => Some(*number),
            _ => None,
        })?;
        let end = stream.end.as_ref().and_then(StoredPosition::position);
        let end = Some(end.or_else(|| own.last()?.segment.end())?);
        self.lines.iter().find_map(|line| {
            let (_, next) = line.parts.iter().find(|(part, _)| part.id() == stream.id())?;
            let next = (*next)?;
            match &next.head.content.begins {
                StreamOrigin::Continues { after, at: None } if after.number < missing => {}
                _ => return None,
            }
            let line = self.pieces(line);
            let first = line.pieces.iter().position(|piece| piece.stream == next.id())?;
            let again = line.pieces.get(first..)?;
            // Positions of another server's logs tell nothing.
            let server = again.first()?.server;
            let of_server = again.iter().take_while(|piece| piece.server == server);
            let last = first + of_server.clone().position(|piece| piece.segment.end() >= end)?;
            let is_whole = line.breaks.iter().all(|(at, _)| *at <= first || *at > last);
            is_whole.then_some(next)
        })
    }

    /// Whether these streams have this segment, or had it before a floor.
    #[must_use]
    pub fn have(&self, segment: &ListedSegment) -> bool {
        let own = self.streams.iter().find(|stream| stream.id() == segment.stream);
        own.is_some_and(|own| {
            segment.number < own.removed_below || own.segments.contains_key(&segment.number)
        })
    }

    /// Whether the archive ends before this segment of it. Not if its history branches behind it: that is no loss of the
    /// archive.
    #[must_use]
    pub fn end_before(&self, segment: &ListedSegment) -> bool {
        let Some(newest) = self.lines.first() else { return false };
        let is_it = |piece: &Piece<'_>| {
            piece.stream == segment.stream && piece.segment.number == segment.number
        };
        !self.pieces(newest).pieces.iter().any(is_it) && lacks_end(&self.ends, newest.last, segment)
    }

    /// The pieces of the log with the position of a backup, from its beginning, if that is stored, up to `first`, in a history
    /// that has both.
    #[must_use]
    pub fn log_up_to(&self, first: &Piece<'a>) -> Vec<Piece<'a>> {
        let is_first = |piece: &Piece<'a>| {
            (piece.stream, piece.segment.number) == (first.stream, first.segment.number)
        };
        let has_it = |line: &&HistoryLine<'a>| {
            line.parts.iter().any(|(stream, _)| stream.id() == first.stream)
        };
        self.lines
            .iter()
            .filter(has_it)
            .find_map(|line| {
                let pieces = self.pieces(line);
                let end = pieces.pieces.iter().position(is_first)?;
                let up_to = pieces.pieces.get(..=end)?;
                let of_log = |piece: &&Piece<'a>| {
                    piece.segment.from.log == first.segment.from.log && piece.server == first.server
                };
                let count = up_to.iter().rev().take_while(of_log).count();
                Some(up_to.get(up_to.len() - count..)?.to_vec())
            })
            .unwrap_or_default()
    }

    /// The last piece that a replay from a backup can reach in its history; `None` if the archive does not have its
    /// position, or it is not known which history it belongs to.
    #[must_use]
    pub fn furthest(&self, base: &Base) -> Option<Piece<'a>> {
        let newest = self.lines.first()?;
        let furthest = |line: &HistoryLine<'a>| {
            let pieces = self.pieces(line);
            let LinePath { pieces: way, start, .. } = line.way(&pieces, base)?;
            // Up to the first barrier.
            let end = pieces.barrier_from(start).unwrap_or(way.len()).min(way.len());
            Ok(way.get(start..end).and_then(<[_]>::last).copied())
        };
        // A server that returns sends all of its log again, so that a new history has the position, too.
        match furthest(newest) {
            Err(PlanError::NoStart { .. } | PlanError::Branch { .. }) => {
                furthest(self.left(base)?.0).ok()?
            }
            found => found.ok()?,
        }
    }

    /// The place of a backup in an archive; `None` of a clone whose transactions the archive does not have from the first on.
    /// Of several histories it takes the newest that has it.
    #[must_use]
    pub fn locate(&self, noted: &BasePosition) -> Option<Base> {
        match noted {
            BasePosition::Position(base) => Some(self.placed(base)),
            BasePosition::Between { .. } => {
                let (newest, others) = self.lines.split_first()?;
                let of_newest = last_beginning(noted, &self.pieces(newest).pieces);
                if let Some(place) = of_newest.and_then(|head| place(head, noted)) {
                    return Some(place);
                }
                let mut search =
                    self.all().map(|all| all.search(None, |piece| begins(noted, piece.segment)));
                others.iter().find_map(|line| {
                    let head = match &mut search {
                        Some(search) => &**search.last(line.last)?.segment,
                        None => last_beginning(noted, &line.read().pieces)?,
                    };
                    place(head, noted)
                })
            }
        }
    }

    /// The places of a backup in all histories that have it.
    #[must_use]
    pub fn places(&self, noted: &BasePosition) -> Vec<Base> {
        if let BasePosition::Position(base) = noted {
            return vec![self.placed(base)];
        }
        let later = |before: &Option<&'a ListedSegment>, pieces: &[Piece<'a>]| {
            last_beginning(noted, pieces).or(*before)
        };
        let all = line_ends(self.streams, &later).unwrap_or_default().into_iter();
        let last = all.filter_map(|end| later(&end.before, &end.pieces));
        let mut seen = HashSet::new();
        let last = last.filter(|head| seen.insert((head.stream.clone(), head.number)));
        last.filter_map(|head| place(head, noted)).collect()
    }

    fn placed(&self, base: &Base) -> Base {
        moved(self.streams, base).map_or_else(|| base.clone(), |(base, _)| base)
    }
}

/// The last of these pieces at whose beginning the replay onto a clone may begin: before its data, but not behind any part of
/// it.
fn last_beginning<'a>(noted: &BasePosition, pieces: &[Piece<'a>]) -> Option<&'a ListedSegment> {
    pieces.iter().map(|piece| &**piece.segment).rfind(|head| begins(noted, head))
}

fn begins(noted: &BasePosition, head: &ListedSegment) -> bool {
    let BasePosition::Between { from, .. } = noted else { return false };
    !head.starts_inside && head.before().is_some_and(|before| before.is_within(from))
}

/// The place of a clone at the beginning of a segment.
fn place(head: &ListedSegment, noted: &BasePosition) -> Option<Base> {
    let BasePosition::Between { to, taken, .. } = noted else { return None };
    let (position, gtids) = (head.begin()?, head.before());
    let at_most = Some(to.clone());
    Some(Base { position, gtids, at_most, taken: *taken, is_shown_by_bytes: false })
}

/// Where each stream ends.
fn ends<'a>(streams: &'a [Stream]) -> Vec<LineEnd<'a>> {
    let by_id = by_id(streams);
    let end = |stream: &'a Stream| {
        let head = &stream.head.content;
        let last = stream.chain().0.last().map(|piece| &**piece.segment);
        let left = head.begins.after().and_then(|link| {
            let left = by_id.get(&*link.stream)?;
            let segment = left.segments.get(&link.number).map(|segment| &**segment);
            // Its segments may be removed, but not the record of its end.
            let stated =
                || left.end.as_ref().filter(|_| left.stated.checked_sub(1) == Some(link.number));
            let at = segment.map(|segment| &segment.to).or_else(stated)?;
            Some(BranchPoint { at, segment })
        });
        let (life, lost) = (stream.newest(), stream.lost_end());
        let received = Some(stream.received_until());
        LineEnd { head, last, lost, life, received, segments: Some(&stream.segments), left }
    };
    streams.iter().map(end).collect()
}

/// The place of a backup that was taken behind the last stored transaction of its server, if another server takes over
/// there: with exactly its GTIDs, so the other one's log follows it.
fn moved<'a>(streams: &'a [Stream], base: &Base) -> Option<(Base, &'a ListedSegment)> {
    streams.iter().rev().find_map(|stream| {
        let head = &stream.head.content;
        let StreamOrigin::Continues { after, at: Some(at) } = &head.begins else { return None };
        let before = streams.iter().find(|before| before.id() == after.stream)?;
        let gtids: GtidState = head.gtids.as_ref()?.parse().ok()?;
        // What the archive has of the old server there, without another transaction.
        let has = |head: &ListedSegment| {
            let is_there = head.from.log == base.position.log()
                && (head.from.offset..=head.to.offset).contains(&base.position.offset());
            is_there && head.after().as_ref() == Some(&gtids)
        };
        let is_here = base.gtids.as_ref() == Some(&gtids)
            && head.repeats.is_none()
            && at.position()? < base.position;
        let witness = before.segments.values().map(|segment| &**segment).find(|each| has(each))?;
        let position = head.start.position().filter(|_| is_here)?;
        Some((Base { position, ..base.clone() }, witness))
    })
}

/// The segment of the old server that shows that the log of another one follows a backup: without it, the place of the
/// backup is not found again.
#[must_use]
pub fn witness<'a>(streams: &'a [Stream], noted: &BasePosition) -> Option<&'a ListedSegment> {
    match noted {
        BasePosition::Position(base) => moved(streams, base).map(|(_, witness)| witness),
        BasePosition::Between { .. } => None,
    }
}

/// The segments that have the position of a backup, one in each stream that has it: with the same GTIDs, or in a
/// stream that had begun before the backup ended.
pub fn holders<'a>(streams: &'a [Stream], base: &Base) -> impl Iterator<Item = &'a ListedSegment> {
    streams.iter().filter_map(|stream| {
        let holder = stream.segments.values().rfind(|segment| {
            let until = segment.to.offset;
            let piece = Piece { stream: stream.id(), segment, until, server: 0 };
            let is_later = stream.head.content.started <= base.taken;
            piece.has(base) || (is_later && piece.has_position(&base.position))
        });
        holder.map(|segment| &**segment)
    })
}

/// Stream and number of all segments from the position of one of these backups on, in every history that has it: what a
/// restore from one of them to any stop may need.
#[must_use]
pub fn reach<'a>(streams: &'a [Stream], bases: &[Base]) -> BTreeSet<(&'a str, u64)> {
    let starts = |piece: &Piece<'_>| bases.iter().any(|base| piece.has(base));
    let is_reached = |before: &bool, pieces: &[Piece<'_>]| *before || pieces.iter().any(starts);
    let Some(ends) = line_ends(streams, &is_reached) else {
        // Nothing is known of their order.
        let all = |stream: &'a Stream| stream.segments.keys().map(|number| (stream.id(), *number));
        return streams.iter().flat_map(all).collect();
    };
    // The pieces of a stream in the line of a later one are among those at its own end, or lie behind a hole, where `prune`
    // ends anyway.
    let of_end = |end: LineEnding<'a, bool>| {
        let mut pieces = end.pieces;
        // Also the pieces behind a break, because the break may be mended.
        let start = match end.before {
            true => 0,
            false => pieces.iter().position(starts).unwrap_or(pieces.len()),
        };
        pieces.split_off(start)
    };
    let pieces = ends.into_iter().flat_map(of_end);
    pieces.map(|piece| (piece.stream, piece.segment.number)).collect()
}
