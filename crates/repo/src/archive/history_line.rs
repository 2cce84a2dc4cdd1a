//! One history of an archive, and the way through it from a backup to a stop.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use xb_binlog::{AnyGtid, Gtid, GtidSet, GtidState, LogPosition};

use crate::archive::all_lines::{AllLines, LineSearch};
use crate::archive::base::Base;
use crate::archive::chain::{Piece, Stream};
use crate::archive::clock_step::is_one_place;
use crate::archive::line_pieces::{LinePieces, has_barrier};
use crate::archive::line_reader::LineReader;
use crate::archive::plan_error::PlanError;
use crate::archive::stop::{RestoreStop, TimesBefore};
use crate::archive::stranded::{Passage, is_behind_gap};
use crate::archive::stream::{StoredPosition, StreamHead, StreamOrigin};
use crate::archive::unlogged::{UnloggedStart, add_breaks};

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
    /// As the heads show, a server of MariaDB has numbered transactions anew, so that one before the backup or behind the
    /// pieces may have the GTID of the stop, too. In the pieces, it is found when they are read.
    pub numbers_recur: bool,
    /// Of servers of MySQL: transactions that the data has, and no log.
    pub outside: GtidSet,
}

impl Plan<'_> {
    /// Where the last transaction of the pieces ends, unless the stop is a position, or `start` if none ends behind that; and the
    /// number of the server whose log this is in, from that of the first piece on. The stream of an idle server may have no
    /// transaction: then those of the streams before it are the last ones.
    ///
    /// # Errors
    /// [`PlanError::Segment`] of a head that states transactions, but not where they end.
    pub fn end(&self, start: &LogPosition) -> Result<(LogPosition, usize), PlanError> {
        let first = self.pieces.first().map_or(0, |first| first.server);
        if let RestoreStop::Position(at) = &self.stop {
            let last = self.pieces.last().map_or(first, |last| last.server);
            return Ok((at.clone(), last - first));
        }
        for piece in self.pieces.iter().rev() {
            let head = piece.segment;
            let Some(end) = head.last.as_ref().map(|last| &last[1]) else {
                if head.transactions == 0 {
                    continue;
                }
                let (stream, number) = (piece.stream.to_owned(), head.number);
                let what = "its head does not say where its last transaction ends".to_owned();
                return Err(PlanError::Segment { stream, number, what });
            };
            // Another stream has what lies behind the end of the piece.
            if end.log == head.from.log && piece.until < end.offset {
                continue;
            }
            let server = piece.server - first;
            // Positions of two servers do not compare.
            let is_behind = |end: &LogPosition| server > 0 || end > start;
            let end = end.position().filter(is_behind);
            return Ok(end.map_or_else(|| (start.clone(), 0), |end| (end, server)));
        }
        Ok((start.clone(), 0))
    }

    pub(super) fn left(self, left_by: Option<PlanError>) -> Self {
        Self { is_left: true, left_by, ..self }
    }
}

/// Pieces from the beginning of a line on.
#[derive(Debug)]
pub(super) struct LinePath<'p, 'a> {
    pub(super) pieces: Cow<'p, [Piece<'a>]>,
    /// Number of the one that has the position of a backup.
    pub(super) start: usize,
    /// What ends them.
    broken: Option<PlanError>,
    /// The first one from there on that has a barrier.
    barred: Option<usize>,
    /// [`LinePieces::may_renumber`].
    may_renumber: bool,
    /// The pieces of the line behind them.
    behind: &'p [Piece<'a>],
}

/// One history: streams, each of which follows the one before it.
#[derive(Debug)]
pub(super) struct HistoryLine<'a> {
    /// The streams, from the first on, each with what ends its part: the beginning of the next one.
    pub(super) parts: Vec<(&'a Stream, Option<&'a Stream>)>,
    /// Number of the last one in the archive.
    pub(super) last: usize,
    /// Of the whole archive.
    unlogged: Arc<[UnloggedStart<'a>]>,
}

impl<'a> HistoryLine<'a> {
    pub(super) fn ending_with(
        streams: &HashMap<&str, &'a Stream>,
        number: usize,
        last: &'a Stream,
        unlogged: &Arc<[UnloggedStart<'a>]>,
    ) -> Self {
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
        Self { parts, last: number, unlogged: Arc::clone(unlogged) }
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
            let is_later = base.taken < head.started && !base.is_shown_by_bytes;
            if let Some(reason) = reason.filter(|_| is_later) {
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

    /// All pieces of the line.
    pub(super) fn read(&self) -> LinePieces<'a> {
        let mut reader = LineReader::default();
        for (stream, next) in &self.parts {
            reader.add(stream, *next);
        }
        let LineReader { pieces, mut breaks, .. } = reader;
        let origin = |piece: &Piece<'a>| {
            let part = self.parts.iter().find(|(stream, _)| stream.id() == piece.stream);
            part.map(|(stream, _)| stream.head.content.origin())
        };
        add_breaks(&self.unlogged, &pieces, &mut breaks, origin);
        LinePieces::new(pieces, breaks)
    }

    /// Where the domain of a transaction passes its number.
    pub(super) fn passage(&self, pieces: &[Piece<'a>], gtid: Gtid) -> Option<Passage<'a>> {
        let gap = self.parts.windows(2).rposition(|pair| {
            let [(before, _), (next, _)] = pair else { return false };
            is_behind_gap(&next.head.content, &before.head.content)
        });
        let behind = self.parts.iter().skip(gap.map_or(0, |gap| gap + 1));
        let own: HashSet<&str> = behind.map(|(stream, _)| stream.id()).collect();
        let last_of = |state: Option<GtidState>| match state? {
            GtidState::MariaDb(gtids) => gtids.get(gtid.domain),
            GtidState::MySql(_) => None,
        };
        let behind_gap = |(_, piece): &(usize, &Piece<'a>)| own.contains(piece.stream);
        pieces.iter().enumerate().filter(behind_gap).find_map(|(number, piece)| {
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
        })
    }

    /// Returns why no piece has the position of a backup.
    fn without_start(&self, base: &Base) -> PlanError {
        let position = base.position.clone();
        let removed = self.parts.iter().rev().find_map(|(stream, _)| removed(stream, &position));
        match removed {
            Some(left) => PlanError::Removed { position, left },
            None => PlanError::NoStart { position },
        }
    }

    /// The way from the position of a backup on, among the pieces of this line.
    pub(super) fn way<'p>(
        &self,
        line: &'p LinePieces<'a>,
        base: &Base,
    ) -> Result<LinePath<'p, 'a>, PlanError> {
        let start = line.start(base).ok_or_else(|| self.without_start(base))?;
        // Segments behind a break cannot be reached.
        let broken = line.break_behind(start);
        let end = broken.map_or(line.pieces.len(), |(behind, _)| *behind);
        let (pieces, behind) = line.pieces.split_at_checked(end).unwrap_or_default();
        if let Some(first) = pieces.get(start) {
            self.belongs(base, first)?;
        }
        Ok(LinePath {
            pieces: Cow::Borrowed(pieces),
            start,
            broken: broken.map(|(_, error)| error.clone()),
            barred: line.barrier_from(start),
            may_renumber: line.may_renumber(),
            behind,
        })
    }

    /// The pieces behind the last break of this line, if its receiver missed what is before them.
    pub(super) fn received_behind_gap(&self, line: &LinePieces<'a>) -> Option<Vec<Piece<'a>>> {
        let behind = line.pieces.get(line.breaks.last()?.0..)?.to_vec();
        let first = behind.first().filter(|first| first.segment.number == 0)?;
        let (stream, _) = self.parts.iter().find(|(stream, _)| stream.id() == first.stream)?;
        matches!(stream.head.content.begins, StreamOrigin::Gap { .. }).then_some(behind)
    }

    /// The way from a backup in another line to `behind`, the pieces of this line behind its last break, and then on there. None,
    /// unless these follow in the other line: what was never logged does not.
    pub(super) fn joined<'p>(
        &self,
        behind: &[Piece<'a>],
        other: &Self,
        line: &'p LinePieces<'a>,
        base: &Base,
    ) -> Option<LinePath<'p, 'a>> {
        let next = behind.first()?;
        let (stream, _) = self.parts.iter().find(|(stream, _)| stream.id() == next.stream)?;
        if stream.head.content.begins.is_behind_unlogged() {
            return None;
        }
        let way = other.way(line, base).ok()?;
        let is_joint =
            |piece: &Piece<'a>| self.server(next) == other.server(piece) && joins(piece, next);
        let at = way.pieces.iter().rposition(is_joint)?;
        let moved = way.pieces.get(at)?.server;
        let mut pieces = way.pieces.get(..=at)?.to_vec();
        let renumbered =
            |piece: &Piece<'a>| Piece { server: moved + piece.server - next.server, ..*piece };
        pieces.extend(behind.iter().map(renumbered));
        let barred = pieces.iter().skip(way.start).position(has_barrier);
        let barred = barred.map(|number| way.start + number);
        let start = way.start;
        let (pieces, broken, may_renumber) = (Cow::Owned(pieces), None, true);
        (start <= at).then_some(LinePath {
            pieces,
            start,
            broken,
            barred,
            may_renumber,
            behind: &[],
        })
    }

    /// Identity of the server of a piece, as far as its stream states it.
    fn server(&self, piece: &Piece<'_>) -> Option<(u32, Option<&'a str>, Option<&'a str>)> {
        let (stream, _) = self.parts.iter().find(|(stream, _)| stream.id() == piece.stream)?;
        let origin = stream.head.content.origin();
        Some((origin.id, origin.uuid, origin.node))
    }

    /// The streams of these pieces whose servers have transactions that no log of theirs ever had, with these.
    fn outside<'s>(
        &'s self,
        pieces: &'s [Piece<'a>],
    ) -> impl Iterator<Item = (&'s StreamHead, GtidSet)> {
        let heads = self.parts.iter().map(|(stream, _)| &stream.head.content);
        let with = heads.map(|head| (head, head.outside())).filter(|(_, set)| !set.is_empty());
        with.filter(|(head, _)| pieces.iter().any(|piece| piece.stream == head.stream))
    }

    /// All transactions outside the logs of these pieces.
    ///
    /// # Errors
    /// [`PlanError::Barrier`] if neither the backup nor the log has all of them: a server was given them behind the backup.
    fn outside_of(&self, pieces: &[Piece<'a>], base: &Base) -> Result<GtidSet, PlanError> {
        let (mut all, mut known) = (GtidSet::default(), base.at_most.clone());
        if let (Some(known), Some(GtidState::MySql(logged))) =
            (&mut known, pieces.last().and_then(|piece| piece.segment.after()))
        {
            known.unite(&logged);
        }
        for (head, outside) in self.outside(pieces) {
            if let Some(known) = &known
                && !GtidState::MySql(outside.clone()).is_within(known)
            {
                let kind = format!(
                    "the server was given transactions that neither the backup nor a log has ({outside}), by SET GLOBAL gtid_purged; take a backup"
                );
                return Err(PlanError::Barrier { kind, at: head.start.clone() });
            }
            all.unite(&outside);
        }
        Ok(all)
    }

    pub(super) fn plan_way(
        &self,
        LinePath { pieces, start, broken, barred, may_renumber, behind }: LinePath<'_, 'a>,
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
            if let Some(first) = pieces.iter().position(|piece| piece.is_beyond(time.as_second())) {
                is_one_place(pieces.iter().skip(first).chain(behind), *time)?;
            }
        }
        let mut reached = pieces.last().and_then(|piece| piece.segment.after());
        if let Some(reached) = &mut reached {
            self.outside(pieces).for_each(|(_, outside)| reached.unite(&outside));
        }
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
        let numbers_recur = match stop {
            RestoreStop::Gtid(AnyGtid::MariaDb(gtid))
            | RestoreStop::BeforeGtid(AnyGtid::MariaDb(gtid)) => {
                let mut before = before.iter().chain(pieces.first());
                let mut behind = pieces.iter().skip(last + 1);
                before.any(|piece| is_past(piece, *gtid))
                    || behind.any(|piece| may_have_again(piece, *gtid))
            }
            _ => false,
        };
        let pieces = pieces.get(..=last).unwrap_or_default().to_vec();
        // Which of those in the first and the last piece are on the way shows when these are read.
        let clear = barred.map_or(pieces.len(), |number| number.saturating_sub(start));
        for (number, piece) in pieces.iter().enumerate().skip(clear) {
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
        let is_latest = matches!(stop, RestoreStop::Latest);
        let inner = if is_latest { pieces.len() } else { last };
        if may_renumber
            && let Some(error) = renumbered(pieces.get(..inner).unwrap_or_default(), base)
        {
            return Err(error);
        }
        let outside = self.outside_of(&pieces, base)?;
        let (is_left, left_by, stop) = (false, None, stop.clone());
        Ok(Plan { pieces, stop, must_be_found, is_left, left_by, numbers_recur, outside })
    }
}

/// Tells which lines have a backup. What it finds in one line holds for all that share it.
pub(super) struct LinesWith<'l, 'a> {
    base: &'l Base,
    /// `None` if streams follow each other in a circle.
    starts: Option<LineSearch<'l, 'a>>,
    /// By stream: whether a backup with its position in it belongs to the line up to there.
    belongs: HashMap<&'a str, Result<(), PlanError>>,
    /// By stream: whether it had the position, which was removed.
    removed: HashMap<&'a str, bool>,
}

impl<'l, 'a> LinesWith<'l, 'a> {
    pub(super) fn new(all: Option<&'l AllLines<'a>>, base: &'l Base) -> Self {
        let log = Some(base.position.log());
        let starts = all.map(|all| all.search(log, |piece| piece.has(base)));
        Self { base, starts, belongs: HashMap::new(), removed: HashMap::new() }
    }

    /// The piece of a line from which a replay onto the backup begins.
    pub(super) fn start(&mut self, line: &HistoryLine<'a>) -> Option<Piece<'a>> {
        self.starts.as_mut()?.last(line.last)
    }

    fn belongs(&mut self, line: &HistoryLine<'a>, start: &Piece<'a>) -> &Result<(), PlanError> {
        let base = self.base;
        self.belongs.entry(start.stream).or_insert_with(|| line.belongs(base, start))
    }

    /// Whether a way leads on from the backup in a line, unless that is not known.
    pub(super) fn may_lead(&mut self, line: &HistoryLine<'a>) -> bool {
        let start = self.start(line);
        match (&self.starts, start) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(start)) => self.belongs(line, &start).is_ok(),
        }
    }

    /// Whether a line has the backup, or had it before something was removed.
    pub(super) fn has_known(&mut self, line: &HistoryLine<'a>) -> bool {
        let base = self.base;
        let start = self.start(line);
        match (&self.starts, start) {
            (None, _) => !matches!(
                line.way(&line.read(), base),
                Err(PlanError::NoStart { .. } | PlanError::Branch { .. })
            ),
            (Some(_), Some(start)) => {
                !matches!(self.belongs(line, &start), Err(PlanError::Branch { .. }))
            }
            (Some(_), None) => line.parts.iter().any(|(stream, _)| {
                let known = self.removed.entry(stream.id());
                *known.or_insert_with(|| removed(stream, &base.position).is_some())
            }),
        }
    }
}

/// Where the rest of a stream begins that had this position, if that was removed.
fn removed(stream: &Stream, position: &LogPosition) -> Option<StoredPosition> {
    let begin = stream.head.content.start.position()?;
    let at = stream.left_after(position)?;
    (begin <= *position).then_some(at)
}

/// Tells a piece from all others.
pub(super) fn id<'a>(piece: &Piece<'a>) -> (&'a str, u64, u64) {
    (piece.stream, piece.segment.number, piece.until)
}

/// Whether the next piece follows this one, as far as their heads show.
pub(super) fn joins(piece: &Piece<'_>, next: &Piece<'_>) -> bool {
    let head = piece.segment;
    piece.until == head.to.offset
        && head.is_followed_by(&next.segment.from)
        && head.gtids_after.is_some()
        && head.after() == next.segment.before()
}

/// Returns whether everything up to the time of a stop is known.
pub(super) fn covers(covered: Option<Timestamp>, stop: &RestoreStop) -> bool {
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

/// Whether a number of a domain was given before this piece.
fn is_past(piece: &Piece<'_>, gtid: Gtid) -> bool {
    matches!(piece.segment.before(), Some(GtidState::MariaDb(before)) if before.is_past(gtid))
}

/// The first of these pieces behind that of the backup whose last transaction of a domain has a number that the backup has passed:
/// a replay refuses it. Those of another server are no repeats.
fn renumbered(pieces: &[Piece<'_>], base: &Base) -> Option<PlanError> {
    let Some(GtidState::MariaDb(noted)) = &base.gtids else { return None };
    let (first, behind) = pieces.split_first()?;
    let is_whole = |piece: &&Piece<'_>| piece.until == piece.segment.to.offset;
    let mut own = behind.iter().filter(|piece| piece.server == first.server).filter(is_whole);
    own.find_map(|piece| {
        let head = piece.segment;
        let Some(GtidState::MariaDb(after)) = head.after() else { return None };
        let before = match head.before() {
            Some(GtidState::MariaDb(before)) => before,
            _ => return None,
        };
        let is_again = |noted: &&Gtid| {
            let now = after.get(noted.domain).filter(|now| before.get(now.domain) != Some(*now));
            now.is_some_and(|now| now.server == noted.server && now.sequence <= noted.sequence)
        };
        let noted = noted.iter().find(is_again)?;
        Some(PlanError::Renumbered {
            domain: noted.domain,
            at: head.from.clone(),
            found: after.get(noted.domain)?.to_string(),
            noted: noted.to_string(),
        })
    })
}

/// Whether the numbers of a domain go back in this piece, and may then pass this one again.
fn may_have_again(piece: &Piece<'_>, gtid: Gtid) -> bool {
    let head = piece.segment;
    let (Some(GtidState::MariaDb(before)), Some(GtidState::MariaDb(after))) =
        (head.before(), head.after())
    else {
        return false;
    };
    let (Some(before), Some(after)) = (before.get(gtid.domain), after.get(gtid.domain)) else {
        return false;
    };
    // From there on, each transaction has the next number.
    let from_there = after.sequence.checked_sub(gtid.sequence);
    after.sequence < before.sequence && from_there.is_some_and(|number| number < head.transactions)
}
