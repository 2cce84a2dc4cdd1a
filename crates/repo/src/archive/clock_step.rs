//! Where the clock of a server and its receiver, which are often of one host, went back: a time is two places of the log there,
//! and nothing shows which of them is meant.
//!
//! A segment is received after all that the log has before it, so by one clock no transaction before it has a later time than that
//! at which it was received. A receiver's clock that went back by [`AHEAD`] or less did not; those of two receivers, each of which
//! may differ from the server's by as much, may lie twice that apart.

use jiff::Timestamp;
use xb_binlog::GtidState;

use crate::archive::chain::Piece;
use crate::archive::listed_segment::ListedSegment;
use crate::archive::plan_error::PlanError;
use crate::archive::segment::AHEAD;

/// A place where the clock went back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockStep {
    /// ID of the stream with the first segment behind it.
    pub stream: String,
    /// Number of that segment.
    pub segment: u64,
    /// The last transactions before it, and their time.
    pub before: String,
    /// The last transactions of that segment, and their time.
    pub after: String,
    /// From this time on, a time is two places.
    pub from: Timestamp,
    /// Up to this time.
    pub to: Timestamp,
}

/// `the clock of the server and its receiver went back before segment 4, between 0-1-7 of … and 0-1-8 of …: …`
impl std::fmt::Display for ClockStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { segment, before, after, from, to, .. } = self;
        write!(
            f,
            "the clock of the server and its receiver went back before segment {segment}, between {before} and {after}: no backup from before that can be restored to a time from {from} to {to}, only to a GTID or a position"
        )
    }
}

/// Finds the places in a line where the clock went back.
pub(super) fn clock_steps(pieces: &[Piece<'_>]) -> Vec<ClockStep> {
    let mut steps = Vec::new();
    // That which is read, the latest time of a transaction, and the latest receipt since that one.
    let (mut step, mut latest, mut newest) = (None::<ClockStep>, 0, None);
    let mut last: Option<&ListedSegment> = None;
    for piece in pieces {
        let head = &**piece.segment;
        let Some(commits) = head.commits else {
            newest = newest.max(Some(head.received[1]));
            continue;
        };
        let from = twice_from(head, newest).filter(|from| from.as_second() < latest);
        let greatest = i64::from(commits.greatest);
        match from.zip(last) {
            Some((from, before)) => {
                let step = step.get_or_insert_with(|| ClockStep {
                    stream: piece.stream.to_owned(),
                    segment: head.number,
                    before: named(before),
                    after: named(head),
                    from,
                    to: Timestamp::from_second(latest).unwrap_or(from),
                });
                step.from = step.from.min(from);
            }
            None if greatest > latest => steps.extend(step.take()),
            None => {}
        }
        newest = match greatest > latest {
            true => Some(head.received[1]),
            false => newest.max(Some(head.received[1])),
        };
        (latest, last) = (latest.max(greatest), Some(head));
    }
    steps.extend(step);
    steps
}

/// Checks that a time is one place in the log, where these pieces are in order and the first one has a transaction with a later
/// time.
pub(super) fn is_one_place<'p, 'a: 'p>(
    pieces: impl Iterator<Item = &'p Piece<'a>>,
    time: Timestamp,
) -> Result<(), PlanError> {
    let mut newest = None;
    let mut last: Option<&ListedSegment> = None;
    // The segments around the step, and the last one that counts.
    let mut found: Option<[&ListedSegment; 3]> = None;
    for piece in pieces {
        let head = &**piece.segment;
        let is_before = twice_from(head, newest).is_some_and(|from| from <= time);
        if let Some(before) = last.filter(|_| is_before) {
            let [_, _, until] = found.get_or_insert([before, head, head]);
            *until = head;
        }
        newest = newest.max(Some(head.received[1]));
        last = Some(head).filter(|head| head.commits.is_some()).or(last);
    }
    let Some([before, after, until]) = found else { return Ok(()) };
    Err(PlanError::TwoPlaces {
        stop: time.to_string(),
        before: named(before),
        after: named(after),
        until: last_gtids(until),
    })
}

/// The time from which on a stop lies behind this segment, too, whatever transactions before it say: if the clock went back before
/// it, since the `newest` receipt. Not if all of its transactions have times ahead of its receiver's clock, which was behind then.
fn twice_from(head: &ListedSegment, newest: Option<Timestamp>) -> Option<Timestamp> {
    let first = head.commits.map(|commits| commits.first.min(commits.last))?;
    let first = Timestamp::from_second(first.into()).ok()?;
    let back = newest?.as_second().saturating_sub(head.received[0].as_second());
    let tolerance = if back > 2 * AHEAD { 0 } else { AHEAD };
    // MariaDB has whole seconds.
    let from = head.received[0].as_second().saturating_add(tolerance);
    let from = Timestamp::from_second(from).ok()?;
    (back > AHEAD).then_some(from.max(first))
}

/// `0-1-7 of 2026-12-01T00:25:32Z`
fn named(head: &ListedSegment) -> String {
    let time = head.commits.and_then(|of| Timestamp::from_second(of.last.into()).ok());
    let time = time.map(|time| format!(" of {time}")).unwrap_or_default();
    format!("{}{time}", last_gtids(head))
}

/// The last transaction of a segment in each domain of MariaDB, or all of MySQL.
fn last_gtids(head: &ListedSegment) -> String {
    match (head.before(), head.after()) {
        (Some(GtidState::MariaDb(before)), Some(GtidState::MariaDb(after))) => {
            let new = after.iter().filter(|gtid| before.get(gtid.domain) != Some(**gtid));
            new.map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        (Some(GtidState::MySql(before)), Some(GtidState::MySql(after))) => {
            after.without(&before).to_string()
        }
        (_, Some(after)) => after.to_string(),
        (_, None) => head.to.to_string(),
    }
}
