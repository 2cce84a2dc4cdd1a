//! Checks every chunk of a plain xbstream as it passes on its way down.

use bytes::Bytes;
use xb_reader::{ChunkHead, Dialect, RelPath};

use crate::flow::hold_ups::Wait;

use crate::flow::observer::Observer;
use crate::scan::end_rule::EndRule;
use crate::scan::scanner::{ChunkCheck, Scanned, Scanner, StreamError, sum_pieces};

/// Reason why a stream was not passed on to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassthroughError<E> {
    /// The stream is damaged, or a file in it has no end.
    #[error(transparent)]
    Stream(StreamError),
    /// The caller rejected this chunk.
    #[error("{0}")]
    Refused(String),
    /// The sink failed.
    #[error(transparent)]
    Sink(E),
    /// The source failed; its owner has the cause.
    #[error("the stream stopped arriving")]
    Stopped,
}

/// Passes a stream on to `sink` and checks it; `allow` sees the head of each chunk.
///
/// `begun` lists the files that an earlier part of the stream left unfinished, each with the offset
/// reached.
///
/// A `None` item means that the source has failed. Bytes are passed on before the checksum of their
/// chunk is known, so only `Ok` proves that they were correct.
///
/// # Errors
/// [`PassthroughError`], the first cause.
pub fn relay<E>(
    pieces: impl Iterator<Item = Option<Bytes>>,
    begun: Option<&[(RelPath, u64)]>,
    observer: &Observer,
    mut allow: impl FnMut(&ChunkHead) -> Result<(), String>,
    mut sink: impl FnMut(Bytes) -> Result<(), E>,
) -> Result<Scanned, PassthroughError<E>> {
    let mut scanner = Scanner::new(Dialect::Auto, EndRule::AnyEnd).with_any_names();
    if let Some(begun) = begun {
        scanner.go_on(begun);
    }
    let mut check = ChunkCheck::default();
    let mut pieces = pieces;
    while let Some(piece) = observer.waiting(Wait::Source, || pieces.next()) {
        let piece = piece.ok_or(PassthroughError::Stopped)?;
        observer.add_stored(piece.len() as u64);
        let notes = scanner.scan(&piece).map_err(PassthroughError::Stream)?;
        let sums = sum_pieces(&piece, &notes.steps);
        let mut refused = Ok(());
        let checked = check.steps(notes.steps, &sums, |head| {
            if refused.is_ok() {
                refused = allow(head);
            }
        });
        checked.map_err(|error| PassthroughError::Stream(error.into()))?;
        refused.map_err(PassthroughError::Refused)?;
        observer.add_bytes(piece.len() as u64);
        observer.waiting(Wait::Sink, || sink(piece)).map_err(PassthroughError::Sink)?;
    }
    let (_, scanned) = scanner.finish().map_err(PassthroughError::Stream)?;
    Ok(scanned)
}
