//! A plain xbstream on its way down: every chunk is checked as it passes.

use bytes::Bytes;
use xb_reader::{ChunkHead, Dialect, RelPath};

use crate::flow::observer::{Observer, Wait};
use crate::scan::end_rule::EndRule;
use crate::scan::scanner::{ChunkCheck, Scanned, Scanner, StreamError, sum_pieces};

/// Why a stream was not passed on to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError<E> {
    /// The stream is damaged, or a file in it has no end.
    #[error(transparent)]
    Stream(StreamError),
    /// The caller does not want this chunk.
    #[error("{0}")]
    Refused(String),
    /// The bytes were not taken.
    #[error(transparent)]
    Sink(E),
    /// The bytes stopped coming; whoever brings them has the cause.
    #[error("the stream stopped coming")]
    Stopped,
}

/// Passes a stream on to `sink` and checks it meanwhile; `allow` sees the head of each chunk.
///
/// `begun` are files that have come up to an offset in an earlier part of the stream, where there was
/// one.
///
/// An item that is `None` says that the source has failed. Bytes are given on before the checksum
/// of their chunk is known, so only `Ok` says that they were right.
///
/// # Errors
/// [`RelayError`], the first cause.
pub fn relay<E>(
    pieces: impl Iterator<Item = Option<Bytes>>,
    begun: Option<&[(RelPath, u64)]>,
    observer: &Observer,
    mut allow: impl FnMut(&ChunkHead) -> Result<(), String>,
    mut sink: impl FnMut(Bytes) -> Result<(), E>,
) -> Result<Scanned, RelayError<E>> {
    let mut scanner = Scanner::new(Dialect::Auto, EndRule::AnyEnd).with_any_names();
    if let Some(begun) = begun {
        scanner.go_on(begun);
    }
    let mut check = ChunkCheck::default();
    let mut pieces = pieces;
    while let Some(piece) = observer.waiting(Wait::Source, || pieces.next()) {
        let piece = piece.ok_or(RelayError::Stopped)?;
        observer.add_stored(piece.len() as u64);
        let notes = scanner.scan(&piece).map_err(RelayError::Stream)?;
        let sums = sum_pieces(&piece, &notes.steps);
        let mut refused = Ok(());
        let checked = check.steps(notes.steps, &sums, |head| {
            if refused.is_ok() {
                refused = allow(head);
            }
        });
        checked.map_err(|error| RelayError::Stream(error.into()))?;
        refused.map_err(RelayError::Refused)?;
        observer.add_bytes(piece.len() as u64);
        observer.waiting(Wait::Sink, || sink(piece)).map_err(RelayError::Sink)?;
    }
    let (_, scanned) = scanner.finish().map_err(RelayError::Stream)?;
    Ok(scanned)
}
