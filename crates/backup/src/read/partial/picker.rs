//! Assembles the stream of the selected files from the plain bytes of frames.

use bytes::Bytes;

use super::plan::{Parts, SelectedPiece};
use crate::error::BackupError;
use crate::read::stream_sink::StreamSink;

/// Assembles the stream of the selected files from the plain bytes of their frames.
pub(crate) struct Picker<S> {
    picks: std::iter::Peekable<std::vec::IntoIter<SelectedPiece>>,
    text: Bytes,
    sink: S,
    given: u64,
}

impl<S: StreamSink> Picker<S> {
    pub(crate) fn new(parts: Parts, sink: S) -> Self {
        Self { picks: parts.picks.into_iter().peekable(), text: parts.text, sink, given: 0 }
    }

    /// Takes the bytes at `offset` of the source; offsets must ascend.
    pub(crate) fn take(&mut self, offset: u64, bytes: &Bytes) -> Result<(), BackupError> {
        let end = offset + bytes.len() as u64;
        self.say()?;
        while let Some(SelectedPiece::Source(wanted)) = self.picks.peek_mut() {
            let from = wanted.start.max(offset);
            let to = wanted.end.min(end);
            if from >= to {
                break;
            }
            // Both offsets are within `bytes`.
            let within = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
            let piece = bytes.slice(within(from)..within(to));
            wanted.start = to;
            let done = wanted.start == wanted.end;
            self.given += piece.len() as u64;
            self.sink.take(piece)?;
            if done {
                self.picks.next();
                self.say()?;
            }
        }
        Ok(())
    }

    /// Passes on the generated text that comes next, if any.
    fn say(&mut self) -> Result<(), BackupError> {
        while let Some(SelectedPiece::Text(range)) = self.picks.peek() {
            let piece = self.text.slice(range.clone());
            self.picks.next();
            self.given += piece.len() as u64;
            self.sink.take(piece)?;
        }
        Ok(())
    }

    /// Ends the stream after the last frame. Returns the number of bytes passed to the sink.
    pub(crate) fn finish(mut self) -> Result<(u64, S), BackupError> {
        self.say()?;
        match self.picks.next() {
            None => Ok((self.given, self.sink)),
            Some(_) => Err(BackupError::Bug("parts of the stream were not fetched")),
        }
    }
}
