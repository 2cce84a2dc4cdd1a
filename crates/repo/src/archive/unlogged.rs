//! Logs that a server made when it was started after a time without a log. What it committed then is nowhere, so no receiver can
//! have it, and one that was away meanwhile finds that the logs follow each other: the stream of the one that saw it tells.

use crate::archive::chain::{Piece, Stream};
use crate::archive::plan_error::PlanError;
use crate::archive::stream::{Origin, StreamOrigin};

/// A log with which a server began again.
#[derive(Debug)]
pub(super) struct UnloggedStart<'a> {
    log: &'a str,
    /// When it was made, if that is known.
    made: Option<u32>,
    server: Origin<'a>,
    reason: &'a str,
}

/// Those that the streams tell of. Not one whose segments were removed: nothing shows any more that a log of its name is the same.
pub(super) fn unlogged_starts(streams: &[Stream]) -> Vec<UnloggedStart<'_>> {
    let starts = streams.iter().filter_map(|stream| {
        let head = &stream.head.content;
        let StreamOrigin::Gap { reason, .. } = &head.begins else { return None };
        let first = stream.segments.get(&0).filter(|_| head.begins.is_behind_unlogged())?;
        let (log, made) = (head.start.log.as_str(), first.log_made);
        Some(UnloggedStart { log, made, server: head.origin(), reason })
    });
    starts.collect()
}

/// Adds a break wherever pieces of the server of `origin` lead from another log into one of these, unless there is one.
pub(super) fn add_breaks<'a>(
    starts: &[UnloggedStart<'a>],
    pieces: &[Piece<'a>],
    breaks: &mut Vec<(usize, PlanError)>,
    origin: impl Fn(&Piece<'a>) -> Option<Origin<'a>>,
) {
    if starts.is_empty() {
        return;
    }
    for (number, pair) in pieces.windows(2).enumerate() {
        let [before, next] = pair else { continue };
        let (from, behind) = (&next.segment.from, number + 1);
        if before.server != next.server || before.segment.from.log == from.log {
            continue;
        }
        let is_it = |start: &&UnloggedStart<'_>| {
            start.log == from.log.as_str()
                && start.made.zip(next.segment.log_made).is_none_or(|(one, two)| one == two)
                && origin(next).is_some_and(|origin| origin.differs_from(start.server).is_none())
        };
        if let Some(start) = starts.iter().find(is_it)
            && breaks.iter().all(|(place, _)| *place != behind)
        {
            let at = before.segment.to.clone();
            breaks.push((behind, PlanError::Gap { at, reason: start.reason.to_owned() }));
        }
    }
    breaks.sort_by_key(|(behind, _)| *behind);
}
