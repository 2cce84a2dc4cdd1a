//! The pieces of one line, with what is asked of them for each backup.

use std::sync::OnceLock;

use xb_binlog::{GtidPosition, GtidState};

use crate::archive::base::Base;
use crate::archive::chain::Piece;
use crate::archive::plan_error::PlanError;

/// The pieces of a line.
#[derive(Debug)]
pub(super) struct LinePieces<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    /// Where they do not follow each other: the number of the piece behind the break, and why.
    pub(super) breaks: Vec<(usize, PlanError)>,
    /// Numbers of those that have a barrier.
    barred: Vec<usize>,
    /// Each log, and the number of its first piece.
    logs: Vec<(&'a str, usize)>,
    /// Looked for once: the texts of a month take a while.
    may_renumber: OnceLock<bool>,
}

impl<'a> LinePieces<'a> {
    pub(super) fn new(pieces: Vec<Piece<'a>>, breaks: Vec<(usize, PlanError)>) -> Self {
        let (mut barred, mut logs) = (Vec::new(), Vec::<(&str, usize)>::new());
        for (number, piece) in pieces.iter().enumerate() {
            if has_barrier(piece) {
                barred.push(number);
            }
            let log = piece.segment.from.log.as_str();
            if logs.last().is_none_or(|(last, _)| *last != log) {
                logs.push((log, number));
            }
        }
        Self { pieces, breaks, barred, logs, may_renumber: OnceLock::new() }
    }

    /// Whether the numbers of a domain of MariaDB go back somewhere, or begin within the line.
    pub(super) fn may_renumber(&self) -> bool {
        *self.may_renumber.get_or_init(|| {
            let mut known: Option<GtidPosition> = None;
            self.pieces.iter().any(|piece| {
                let (Some(GtidState::MariaDb(before)), Some(GtidState::MariaDb(after))) =
                    (piece.segment.before(), piece.segment.after())
                else {
                    return true;
                };
                let earlier = known.replace(after.clone()).unwrap_or_else(|| before.clone());
                let goes_on = |one: &GtidPosition, next: &GtidPosition| {
                    one.iter().count() == next.iter().count()
                        && one.iter().all(|gtid| {
                            next.get(gtid.domain).is_some_and(|next| next.sequence >= gtid.sequence)
                        })
                };
                !goes_on(&earlier, &before) || !goes_on(&before, &after)
            })
        })
    }

    /// Number of the last piece that has the position of a backup.
    pub(super) fn start(&self, base: &Base) -> Option<usize> {
        let mut end = self.pieces.len();
        self.logs.iter().rev().find_map(|(log, first)| {
            let part = self.pieces.get(*first..end).filter(|_| *log == base.position.log());
            end = *first;
            Some(first + part?.iter().rposition(|piece| piece.has(base))?)
        })
    }

    /// The first break behind a piece.
    pub(super) fn break_behind(&self, start: usize) -> Option<&(usize, PlanError)> {
        self.breaks.iter().find(|(behind, _)| *behind > start)
    }

    /// The first piece from `start` on that has a barrier.
    pub(super) fn barrier_from(&self, start: usize) -> Option<usize> {
        let first = self.barred.partition_point(|number| *number < start);
        self.barred.get(first).copied()
    }
}

pub(super) fn has_barrier(piece: &Piece<'_>) -> bool {
    !piece.segment.barriers.is_empty() || piece.segment.more_barriers > 0
}
