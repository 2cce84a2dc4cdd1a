//! Parts of the archive that a restore to a stop needs: a pure function of the heads.
//!
//! The stop is a boundary between two transactions in the order of their commits. The heads show in which
//! segment it lies; [`Cutter`](crate::archive::stop::Cutter) finds it among that segment's transactions.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;

use jiff::Timestamp;
use xb_binlog::{AnyGtid, Gtid, GtidState};

use crate::archive::base::{Base, BasePosition};
pub use crate::archive::chain::{MISSING, Piece, Stream};
pub use crate::archive::fit::{are_apart, misplaced};
use crate::archive::line_reader::{LineEnding, LineReader, by_id, line_ends};
use crate::archive::listed_segment::ListedSegment;
pub use crate::archive::plan_error::PlanError;
use crate::archive::present::{
    self, Left, LineEnd, are_of_one_server, lacks_end, present, reaches,
};
use crate::archive::stop::{RestoreStop, TimesBefore};
use crate::archive::stranded::{Lack, Passage, Stranded, is_behind_gap, lacks, only, together};
use crate::archive::stream::{StreamHead, StreamOrigin};

/// Segments that a replay needs, in order.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The pieces. The replay begins within the first one, at the position of the backup; the stop lies within
    /// the last one. None: the backup is at the stop already.
    pub pieces: Vec<Piece<'a>>,
    /// Cut of the last piece.
    pub stop: RestoreStop,
    /// The heads do not prove that the stop lies in the pieces: unless [`Cutter::has_stopped`](crate::archive::stop::Cutter::has_stopped) says so at their
    /// end, the archive does not reach it.
    pub must_be_found: bool,
    /// The pieces are not of the present history: of one that it left, or of a server whose end it may lack.
    pub is_left: bool,
    /// Of one that it left: [`PlanError::Branch`], which says where it did, and why.
    pub left_by: Option<PlanError>,
}

impl Plan<'_> {
    fn left(self, left_by: Option<PlanError>) -> Self {
        Self { is_left: true, left_by, ..self }
    }
}

/// All histories of an archive. To look at several backups, make it once.
#[derive(Debug)]
pub struct Histories<'a> {
    streams: &'a [Stream],
    ends: Vec<LineEnd<'a>>,
    /// The present one first, then by their signs of life; of two that are as new, that of the later stream.
    lines: Vec<HistoryLine<'a>>,
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
        let lines =
            last.into_iter().map(|(n, last)| HistoryLine::ending_with(&by_id, n, last)).collect();
        Self { streams, ends, lines }
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
        let error = match newest.plan(base, stop) {
            Err(error) => error,
            planned => return planned,
        };
        let is_latest = *stop == RestoreStop::Latest;
        let reaches = |other: &HistoryLine<'_>| reaches(&self.ends, other.last, newest.last);
        match &error {
            PlanError::Gap { .. } if newest.received_behind_gap().is_some() => {
                let of_one =
                    |line: &&HistoryLine<'_>| are_of_one_server(&self.ends, line.last, newest.last);
                let mended = others.iter().filter(of_one).find_map(|other| {
                    let is_enough = !is_latest || reaches(other);
                    let whole = || is_enough.then(|| other.plan(base, stop).ok()).flatten();
                    let joined = || newest.plan_way(newest.joined(other, base)?, base, stop).ok();
                    whole().or_else(joined)
                });
                mended.ok_or(error)
            }
            // A segment that is missing or changed is no reason to look elsewhere, because another stream may hide that: only in one
            // that reaches a known end.
            PlanError::Segment { .. } => {
                let mut whole = others.iter().filter(|other| reaches(other));
                whole.find_map(|other| other.plan(base, stop).ok()).ok_or(error)
            }
            PlanError::NotReached { .. } if !is_latest => {
                let further = present::unproven(&self.ends, newest.last);
                let mut further = others.iter().filter(|other| further.contains(&other.last));
                let found = further.find_map(|other| other.plan(base, stop).ok());
                found.map(|plan| plan.left(None)).ok_or(error)
            }
            PlanError::NoStart { .. } => match left(&self.lines, base) {
                None => Err(error),
                Some((_, error)) if is_latest => Err(error),
                Some((line, by)) => line.plan(base, stop).map(|plan| plan.left(Some(by))),
            },
            PlanError::Branch { .. } if !is_latest => match left(&self.lines, base) {
                None => Err(error),
                Some((line, by)) => line.plan(base, stop).map(|plan| plan.left(Some(by))),
            },
            _ => Err(error),
        }
    }

    /// The stream at whose end the archive ends, and the newest sign of life of all.
    #[must_use]
    pub fn newest(&self) -> Option<(&'a Stream, Option<Timestamp>)> {
        let last = self.streams.get(self.lines.first()?.last)?;
        Some((last, self.ends.iter().filter_map(|end| end.life).max()))
    }

    /// A stream that may go on behind the end of the archive, though its receiver has ended: it is that of another server of
    /// MariaDB, and whether the present one will have all its transactions is not known.
    #[must_use]
    pub fn unproven(&self) -> Option<&'a Stream> {
        let further = present::unproven(&self.ends, self.lines.first()?.last);
        self.streams.get(*further.first()?)
    }

    /// Finds the transactions that streams of other servers have and this history lacks.
    #[must_use]
    pub fn stranded(&self) -> Vec<Stranded> {
        let Some(newest) = self.lines.first() else { return Vec::new() };
        let found = lacks(&self.ends, newest.last).into_iter().filter_map(|(end, lack)| {
            let gtids = match lack {
                Lack::Certain(gtids) => gtids,
                Lack::ToFind(gtid) => {
                    let passage = newest.passage(gtid)?;
                    (passage.has(gtid) == Some(false)).then(|| only(gtid))?
                }
            };
            Some((end, gtids))
        });
        together(found)
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
        !newest.pieces().0.iter().any(is_it) && lacks_end(&self.ends, newest.last, segment)
    }

    /// The last piece that a replay from a backup can reach in its history; `None` if the archive does not have its
    /// position, or it is not known which history it belongs to.
    #[must_use]
    pub fn furthest(&self, base: &Base) -> Option<Piece<'a>> {
        let way = match self.lines.first()?.way(base) {
            Err(PlanError::NoStart { .. }) => left(&self.lines, base)?.0.way(base),
            way => way,
        };
        let is_clear = |piece: &Piece<'_>| {
            let head = piece.segment;
            head.barriers.is_empty() && head.more_barriers == 0
        };
        let (pieces, start, _) = way.ok()?;
        pieces.into_iter().skip(start).take_while(is_clear).last()
    }

    /// The place of a backup in an archive; `None` of a clone whose transactions the archive does not have from the first on.
    /// Of several histories it takes the newest that has it.
    #[must_use]
    pub fn locate(&self, noted: &BasePosition) -> Option<Base> {
        match noted {
            BasePosition::Position(base) => Some(self.placed(base)),
            BasePosition::Between { .. } => self
                .lines
                .iter()
                .find_map(|line| place(last_beginning(noted, &line.pieces().0)?, noted)),
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
    let BasePosition::Between { from, .. } = noted else { return None };
    let begins = |head: &&'a ListedSegment| {
        !head.starts_inside && head.before().is_some_and(|before| before.is_within(from))
    };
    pieces.iter().map(|piece| &**piece.segment).rfind(begins)
}

/// The place of a clone at the beginning of a segment.
fn place(head: &ListedSegment, noted: &BasePosition) -> Option<Base> {
    let BasePosition::Between { to, taken, .. } = noted else { return None };
    let (position, gtids) = (head.begin()?, head.before());
    Some(Base { position, gtids, at_most: Some(to.clone()), taken: *taken })
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
            Some(Left { at, segment })
        });
        let (life, lost) = (stream.newest(), stream.lost_end());
        LineEnd { head, last, lost, life, segments: Some(&stream.segments), left }
    };
    streams.iter().map(end).collect()
}

/// The history of a backup that the newest one left, and how. It was still received when the backup had ended: one that was
/// taken later may be of another history with the same positions and GTIDs, of which too little is stored.
fn left<'l, 'a>(
    lines: &'l [HistoryLine<'a>],
    base: &Base,
) -> Option<(&'l HistoryLine<'a>, PlanError)> {
    let (newest, others) = lines.split_first()?;
    let line = others.iter().find(|line| {
        line.parts.last().is_some_and(|(last, _)| last.received_until() >= base.taken)
            && !matches!(line.way(base), Err(PlanError::NoStart { .. } | PlanError::Branch { .. }))
    })?;
    let is_other = |stream: &Stream| line.parts.iter().all(|(part, _)| part.id() != stream.id());
    newest.parts.iter().find_map(|(stream, _)| match &stream.head.content.begins {
        StreamOrigin::Branch { reason, .. } if is_other(stream) => {
            let (stream, reason) = (stream.id().to_owned(), reason.clone());
            Some((line, PlanError::Branch { stream, reason }))
        }
        _ => None,
    })
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

/// Pieces, the number of the one that has the position of a backup, and what ends them.
type Way<'a> = (Vec<Piece<'a>>, usize, Option<PlanError>);

/// One history: streams, each of which follows the one before it.
#[derive(Debug)]
struct HistoryLine<'a> {
    /// The streams, from the first on, each with what ends its part: the beginning of the next one.
    parts: Vec<(&'a Stream, Option<&'a Stream>)>,
    /// Number of the last one in the archive.
    last: usize,
    /// Kept from the first call of [`Self::read`].
    pieces: OnceLock<Pieces<'a>>,
}

/// Pieces, and where they do not follow each other: the number of the piece behind the break, and why.
type Pieces<'a> = (Vec<Piece<'a>>, Vec<(usize, PlanError)>);

impl<'a> HistoryLine<'a> {
    fn ending_with(streams: &HashMap<&str, &'a Stream>, number: usize, last: &'a Stream) -> Self {
        let mut parts = vec![(last, None)];
        let mut seen = HashSet::from([last.id()]);
        let mut first = last;
        while let Some(link) = first.head.content.begins.after() {
            let Some(&before) = streams.get(&*link.stream) else { break };
            // A circle is no history.
            if !seen.insert(before.id()) {
                break;
            }
            parts.push((before, Some(first)));
            first = before;
        }
        parts.reverse();
        Self { parts, last: number, pieces: OnceLock::new() }
    }

    /// Checks that the backup belongs to this history: a branch has the same positions as the history that it
    /// leaves, and may have the same GTIDs. So may the logs of another server.
    fn belongs(&self, base: &Base, first: &Piece<'_>) -> Result<(), PlanError> {
        let is_at = |(stream, _): &(&Stream, Option<&Stream>)| stream.id() == first.stream;
        let at = self.parts.iter().position(is_at).unwrap_or_default();
        let branches = self.parts.get(..=at).unwrap_or_default().iter();
        let mut before: Option<&StreamHead> = None;
        for (stream, _) in branches {
            let head = &stream.head.content;
            let is_other = before.is_some_and(|before| head.is_of_another_server(before));
            let reason = match &head.begins {
                StreamOrigin::Branch { reason, .. } => Some(reason),
                StreamOrigin::Gap { reason, .. } => is_other.then_some(reason),
                StreamOrigin::First | StreamOrigin::Continues { .. } => None,
            };
            if let Some(reason) = reason.filter(|_| base.taken < head.started) {
                let (stream, reason) = (head.stream.clone(), reason.clone());
                return Err(PlanError::Branch { stream, reason });
            }
            before = Some(head);
        }
        let Some((stream, _)) = self.parts.get(at).filter(|_| base.at_most.is_some()) else {
            return Ok(());
        };
        let head = &stream.head.content;
        let continues =
            matches!(head.begins, StreamOrigin::Continues { .. } | StreamOrigin::Branch { .. });
        // If a transaction of the clone comes first, so does its beginning: a log that was pushed later.
        let begins = stream.segments.values().next().and_then(|first| first.before());
        match continues || head.started <= base.taken || begins != base.gtids {
            true => Ok(()),
            false => Err(PlanError::BeforeArchive { stream: head.stream.clone() }),
        }
    }

    /// All pieces of the line, computed once.
    fn pieces(&self) -> &Pieces<'a> {
        self.pieces.get_or_init(|| self.read())
    }

    /// All pieces of the line.
    fn read(&self) -> Pieces<'a> {
        let mut reader = LineReader::default();
        for (stream, next) in &self.parts {
            reader.add(stream, *next);
        }
        (reader.pieces, reader.breaks)
    }

    /// Where the domain of a transaction passes its number.
    fn passage(&self, gtid: Gtid) -> Option<Passage<'a>> {
        let (pieces, _) = self.pieces();
        let last_of = |state: Option<GtidState>| match state? {
            GtidState::MariaDb(gtids) => gtids.get(gtid.domain),
            GtidState::MySql(_) => None,
        };
        let gap = self.parts.windows(2).rposition(|pair| {
            let [(before, _), (next, _)] = pair else { return false };
            is_behind_gap(&next.head.content, &before.head.content)
        });
        let behind = gap.map_or(0, |gap| gap + 1);
        let own: HashSet<&str> =
            self.parts.iter().skip(behind).map(|(stream, _)| stream.id()).collect();
        pieces.iter().enumerate().filter(|(_, piece)| own.contains(piece.stream)).find_map(
            |(number, piece)| {
                let segment = piece.segment;
                // What lies behind the place where another stream takes over does not count.
                let next = pieces.get(number + 1).map(|next| next.segment);
                let after = match next.filter(|_| piece.until < segment.to.offset) {
                    Some(next) => next.before(),
                    None => segment.after(),
                };
                let after = last_of(after).filter(|after| after.sequence >= gtid.sequence)?;
                let (before, is_of_gap) = (last_of(segment.before()), gap.is_some());
                Some(Passage { before, after, segment, is_of_gap })
            },
        )
    }

    /// Returns why no piece has the position of a backup.
    fn without_start(&self, base: &Base) -> PlanError {
        let position = base.position.clone();
        let removed = self.parts.iter().rev().find_map(|(stream, _)| {
            let begin = stream.head.content.start.position()?;
            let at = stream.left_after(&position)?;
            (begin <= position).then_some(at)
        });
        match removed {
            Some(left) => PlanError::Removed { position, left },
            None => PlanError::NoStart { position },
        }
    }

    /// The way from the position of a backup on.
    fn way(&self, base: &Base) -> Result<Way<'a>, PlanError> {
        let (mut pieces, breaks) = self.pieces().clone();
        let start = pieces.iter().rposition(|piece| piece.has(base));
        let start = start.ok_or_else(|| self.without_start(base))?;
        // Segments behind a break cannot be reached.
        let broken =
            breaks.into_iter().find(|(behind, _)| *behind > start).map(|(behind, error)| {
                pieces.truncate(behind);
                error
            });
        if let Some(first) = pieces.get(start) {
            self.belongs(base, first)?;
        }
        Ok((pieces, start, broken))
    }

    /// The pieces behind the last break of this line, if its receiver missed what is before them.
    fn received_behind_gap(&self) -> Option<Vec<Piece<'a>>> {
        let (pieces, breaks) = self.pieces();
        let behind = pieces.get(breaks.last()?.0..)?.to_vec();
        let first = behind.first().filter(|first| first.segment.number == 0)?;
        let (stream, _) = self.parts.iter().find(|(stream, _)| stream.id() == first.stream)?;
        matches!(stream.head.content.begins, StreamOrigin::Gap { .. }).then_some(behind)
    }

    /// The way from a backup to the last break of this line in another line, and then on in this one. None, unless the pieces
    /// behind the break follow there.
    fn joined(&self, other: &Self, base: &Base) -> Option<Way<'a>> {
        let behind = self.received_behind_gap()?;
        let next = behind.first()?;
        let (mut way, start, _) = other.way(base).ok()?;
        let at = way.iter().rposition(|piece| {
            let head = piece.segment;
            let is_one = piece.until == head.to.offset && self.server(next) == other.server(piece);
            is_one
                && head.is_followed_by(&next.segment.from)
                && head.gtids_after.is_some()
                && head.after() == next.segment.before()
        })?;
        let moved = way.get(at)?.server;
        way.truncate(at + 1);
        let renumbered =
            |piece: &Piece<'a>| Piece { server: moved + piece.server - next.server, ..*piece };
        way.extend(behind.iter().map(renumbered));
        (start <= at).then_some((way, start, None))
    }

    /// Identity of the server of a piece, as far as its stream states it.
    fn server(&self, piece: &Piece<'_>) -> Option<(u32, Option<&'a str>, Option<&'a str>)> {
        let (stream, _) = self.parts.iter().find(|(stream, _)| stream.id() == piece.stream)?;
        let origin = stream.head.content.origin();
        Some((origin.id, origin.uuid, origin.node))
    }

    fn plan(&self, base: &Base, stop: &RestoreStop) -> Result<Plan<'a>, PlanError> {
        self.plan_way(self.way(base)?, base, stop)
    }

    fn plan_way(
        &self,
        (pieces, start, broken): Way<'a>,
        base: &Base,
        stop: &RestoreStop,
    ) -> Result<Plan<'a>, PlanError> {
        // Also before the backup: the position of another server is another moment.
        if let RestoreStop::Position(at) = stop {
            let mut having = pieces.iter().filter(|piece| piece.has_position(at));
            let first = having.next().map(|piece| piece.server);
            if having.any(|piece| Some(piece.server) != first) {
                return Err(PlanError::Ambiguous { stop: stop.to_string() });
            }
        }
        let (before, pieces) = pieces.split_at_checked(start).unwrap_or_default();
        let is_one_server =
            pieces.first().map(|piece| piece.server) == pieces.last().map(|piece| piece.server);
        before_backup(base, stop, is_one_server)?;
        if let RestoreStop::Time(time) = stop {
            before_log(before, base, *time)?;
        }
        let reached = pieces.last().and_then(|piece| piece.segment.after());
        if let Some(at_most) = &base.at_most
            && broken.is_none()
            && !reached.is_some_and(|reached| at_most.is_within(&reached))
        {
            let (stop, known) = (format!("{at_most}, the end of the backup"), String::new());
            let end = pieces.last().map(Piece::end).unwrap_or_default();
            return Err(PlanError::NotReached { stop, end, known });
        }
        let last = match stop {
            RestoreStop::Latest => None,
            // A later transaction may lie before the backup, or where another stream takes over.
            RestoreStop::Time(time) => pieces.iter().enumerate().position(|(number, piece)| {
                let is_whole = piece.until == piece.segment.to.offset
                    && (number > 0 || piece.segment.begin() == Some(base.position.clone()));
                is_whole && piece.is_beyond(time.as_second())
            }),
            // Of two, the first one ends where the other takes over.
            RestoreStop::Gtid(gtid) | RestoreStop::BeforeGtid(gtid) => {
                pieces.iter().rposition(|piece| piece.has_gtid(gtid))
            }
            RestoreStop::Position(at) => pieces.iter().position(|piece| piece.has_position(at)),
        };
        if let (RestoreStop::Position(at), Some(0)) = (stop, last)
            && *at < base.position
        {
            let (stop, backup) = (stop.to_string(), base.position.to_string());
            return Err(PlanError::BeforeBackup { stop, backup });
        }
        let covered = self.parts.last().and_then(|(stream, _)| stream.covered_until);
        let may_be_found = match stop {
            RestoreStop::Time(time) => pieces.iter().any(|piece| piece.is_beyond(time.as_second())),
            _ => false,
        };
        let mut must_be_found = false;
        let last = match (last, broken) {
            (Some(last), _) => last,
            (None, Some(error)) => return Err(error),
            (None, None) if may_be_found && !covers(covered, stop) => {
                must_be_found = true;
                pieces.len().saturating_sub(1)
            }
            (None, None) => match stop {
                RestoreStop::Latest => pieces.len().saturating_sub(1),
                // Nothing later was committed until then.
                RestoreStop::Time(_) if covers(covered, stop) => pieces.len().saturating_sub(1),
                _ => {
                    let end = pieces.last().map(Piece::end).unwrap_or_default();
                    let known = covered.map(|time| format!(", complete until {time}"));
                    let known = known.unwrap_or_default();
                    return Err(PlanError::NotReached { stop: stop.to_string(), end, known });
                }
            },
        };
        let pieces = pieces.get(..=last).unwrap_or_default().to_vec();
        // Which of those in the first and the last piece are on the way shows when these are read.
        for (number, piece) in pieces.iter().enumerate() {
            let head = piece.segment;
            let is_inner = number > 0 && number < last;
            for barrier in head.barriers.iter().filter(|barrier| barrier.at.offset < piece.until) {
                let is_after_start = number > 0 || barrier.at.offset >= base.position.offset();
                if is_inner || (is_after_start && matches!(stop, RestoreStop::Latest)) {
                    let (kind, at) = (barrier.kind.clone(), barrier.at.clone());
                    return Err(PlanError::Barrier { kind, at });
                }
            }
            if is_inner && head.more_barriers > 0 {
                let kind = format!("{} more", head.more_barriers);
                return Err(PlanError::Barrier { kind, at: head.to.clone() });
            }
        }
        Ok(Plan { pieces, stop: stop.clone(), must_be_found, is_left: false, left_by: None })
    }
}

/// Returns whether everything up to the time of a stop is known.
fn covers(covered: Option<Timestamp>, stop: &RestoreStop) -> bool {
    match stop {
        RestoreStop::Time(time) => covered.is_some_and(|covered| covered >= *time),
        _ => false,
    }
}

fn before_backup(base: &Base, stop: &RestoreStop, is_one_server: bool) -> Result<(), PlanError> {
    let backup = match stop {
        RestoreStop::Time(time) if *time < base.taken => base.taken.to_string(),
        RestoreStop::Position(at) if is_one_server && *at < base.position => {
            base.position.to_string()
        }
        RestoreStop::Gtid(gtid) | RestoreStop::BeforeGtid(gtid)
            if base.at_most.as_ref().is_some_and(|at_most| at_most.contains(gtid)) =>
        {
            base.at_most.as_ref().map(ToString::to_string).unwrap_or_default()
        }
        RestoreStop::Gtid(gtid) if base.gtids.as_ref().is_some_and(|gtids| beyond(gtids, gtid)) => {
            base.gtids.as_ref().map(ToString::to_string).unwrap_or_default()
        }
        RestoreStop::BeforeGtid(gtid)
            if base.gtids.as_ref().is_some_and(|gtids| gtids.contains(gtid)) =>
        {
            base.gtids.as_ref().map(ToString::to_string).unwrap_or_default()
        }
        _ => return Ok(()),
    };
    Err(PlanError::BeforeBackup { stop: stop.to_string(), backup })
}

/// Checks that the pieces before that of the backup do not go beyond a time, whatever the clock of its host said. What
/// lies before the backup in its own piece shows when that is read.
fn before_log(before: &[Piece<'_>], base: &Base, time: Timestamp) -> Result<(), PlanError> {
    let mut times = TimesBefore::new(time);
    for head in before.iter().map(|piece| piece.segment) {
        if let Some(commits) = head.commits {
            let greatest = u64::from(commits.greatest).saturating_mul(1_000_000);
            times.take(head.transactions, greatest, head.clock());
        }
    }
    times.check(&base.position)
}

/// Returns whether the data surely has a later transaction than this one: of MariaDB, one of the same domain. A set of MySQL
/// has no order, so the stop must not be in it.
fn beyond(gtids: &GtidState, gtid: &AnyGtid) -> bool {
    match (gtids, gtid) {
        (GtidState::MariaDb(gtids), AnyGtid::MariaDb(gtid)) => {
            gtids.get(gtid.domain).is_some_and(|last| last.sequence > gtid.sequence)
        }
        _ => gtids.contains(gtid),
    }
}
