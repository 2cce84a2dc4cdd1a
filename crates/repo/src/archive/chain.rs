//! How the segments of streams follow each other.

use xb_binlog::{GtidState, LogPosition};

use crate::archive::plan::{MISSING, Piece, PlanError, Stream};
use crate::archive::segment::SegmentHead;
use crate::archive::stream::{StoredPosition, StreamHead};

impl Stream {
    /// Adds the segments of this stream up to where `next` takes over, and a break wherever one does not follow the
    /// one before it. Those behind a break can be replayed onto a backup that was taken there.
    pub(super) fn add_to<'a>(
        &'a self,
        pieces: &mut Vec<Piece<'a>>,
        breaks: &mut Vec<(usize, PlanError)>,
        (next, server): (Option<&'a Stream>, usize),
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
            Some(floor) => (floor.head.as_str(), &floor.at, None),
            None => (self.head.digest.as_str(), &self.head.content.start, None),
        });
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
            let head = &segment.content;
            if let Some(previous) = previous
                && let Err(what) = follows(head, previous)
            {
                let (stream, what) = (self.id().to_owned(), what.to_owned());
                breaks.push((pieces.len(), PlanError::Segment { stream, number, what }));
            }
            previous = Some((&segment.digest, &head.to, Some(head)));
            number += 1;
            let start = next.and_then(|next| next.head.content.takes_over_at(&self.head.content));
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
            && link.head != digest
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
        let left =
            floor.into_iter().chain(segments.map(|(number, of)| (*number, &of.content.from)));
        let (number, at) =
            left.into_iter().find(|(_, at)| at.position().is_some_and(|at| *position < at))?;
        let is_removed = number.checked_sub(1).is_some_and(|n| !self.segments.contains_key(&n));
        is_removed.then(|| at.clone())
    }

    /// The break at which the segments of this stream from `number` to before `until` are missing.
    pub(super) fn missing(&self, number: u64, until: u64, last: Option<&Piece<'_>>) -> PlanError {
        match last.filter(|_| until <= self.removed_below) {
            Some(last) => PlanError::Gap {
                at: last.segment.content.to.clone(),
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
    (at, end): (&StoredPosition, Option<&StoredPosition>),
    last: &Piece<'_>,
) -> Result<(), &'static str> {
    let before = &last.segment.content;
    if end != Some(at) {
        return Err("it begins at a place where the stream of the server before it does not end");
    }
    let gtids = head.gtids.as_ref().and_then(|gtids| gtids.parse::<GtidState>().ok());
    let repeats = head.repeats.as_ref().map(|of| of.gtids.parse::<GtidState>());
    match (repeats, &gtids) {
        (None, _) => {}
        (Some(Ok(of)), Some(now)) if of == *now => {}
        _ => return Err("it repeats other transactions than the stream before it ends with"),
    }
    match gtids.is_some() && gtids == before.after() {
        true => Ok(()),
        false => Err("its GTIDs are not those at which the stream of the server before it ends"),
    }
}

/// Whether a segment follows what is before it: a head with this digest, which ends there; and the head, if it is that of
/// a segment.
fn follows(
    head: &SegmentHead,
    (digest, end, before): (&str, &StoredPosition, Option<&SegmentHead>),
) -> Result<(), &'static str> {
    if head.previous != digest {
        return Err("it does not name the one before it");
    }
    let follows = match before {
        Some(before) => {
            before.is_followed_by(&head.from) && before.gtids_after == head.gtids_before
        }
        None => head.from == *end,
    };
    match follows {
        true => Ok(()),
        false => Err("the segment does not continue the previous one"),
    }
}
