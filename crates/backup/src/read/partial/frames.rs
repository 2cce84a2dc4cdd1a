//! Maps parts of the source to the frames that contain them.

use std::ops::Range;

use super::plan::{PlanFailure, SelectedPiece};

/// Gap between two required frames, in bytes, that is fetched too: that costs less than another
/// request.
const GAP: u64 = 128 << 10;

/// Finds the frames that contain the selected parts of the source.
pub(super) struct FrameFinder<'a> {
    wanted: std::iter::Peekable<Box<dyn Iterator<Item = Range<u64>> + Send + 'a>>,
    /// Offset in the source up to which the first pending part has been found.
    found: u64,
    runs: Vec<Range<u64>>,
}

impl<'a> FrameFinder<'a> {
    pub(super) fn new(picks: &'a [SelectedPiece]) -> Self {
        let sources = picks.iter().filter_map(|pick| match pick {
            SelectedPiece::Source(range) => Some(range.clone()),
            SelectedPiece::Text(_) => None,
        });
        let wanted: Box<dyn Iterator<Item = _> + Send> = Box::new(sources);
        Self { wanted: wanted.peekable(), found: 0, runs: Vec::new() }
    }

    /// Takes the frame runs of source 0 in order.
    pub(super) fn take(&mut self, run: &xb_frame::index::FrameRun<'_>) {
        let plain = run.plain_range();
        if run.source() != 0 || self.wanted.peek().is_none_or(|first| first.start >= plain.end) {
            return;
        }
        for frame in run.frames() {
            let (start, end) =
                (frame.plain_offset, frame.plain_offset + u64::from(frame.plain_len));
            let mut needed = false;
            while let Some(first) = self.wanted.peek() {
                let from = self.found.max(first.start);
                // A gap between the frames: the part stays unfound, and `finish` reports it.
                if end <= from || from < start {
                    break;
                }
                needed = true;
                self.found = end.min(first.end);
                if self.found < first.end {
                    break;
                }
                self.wanted.next();
            }
            if needed {
                let header = xb_frame::FRAME_HEADER_LEN as u64;
                let body_end = frame.position + header + u64::from(frame.stored_len);
                match self.runs.last_mut() {
                    Some(last)
                        if last.end <= frame.position && frame.position - last.end <= GAP =>
                    {
                        last.end = body_end;
                    }
                    _ => self.runs.push(frame.position..body_end),
                }
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<Vec<Range<u64>>, PlanFailure> {
        if self.wanted.next().is_some() {
            return Err(PlanFailure::Index("a part of a file is in no frame"));
        }
        match self.runs.is_sorted_by(|a, b| a.end <= b.start) {
            true => Ok(self.runs),
            false => Err(PlanFailure::Index("the frames are not in order")),
        }
    }
}
