//! Loop over a stream on its way up, the same for every layout.

use bytes::Bytes;
use xb_reader::{ChunkHead, PieceCheck};

use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Closed, Results};
use crate::pack::encode::{Encoded, SlabContent, StreamEnd};
use crate::pack::error::PackError;
use crate::pack::result::{PackOutput, PackResult};
use crate::scan::scanner::{ChunkCheck, Entry, Step, StreamError};

/// A layout of objects, which receives the chunks of a stream, or its slabs, in order.
pub(crate) trait ChunkSink {
    /// Called before all other methods.
    fn begin(&mut self) -> Result<(), PackError> {
        Ok(())
    }

    /// Start of a chunk.
    fn head(&mut self, _head: &ChunkHead) -> Result<(), PackError> {
        Ok(())
    }

    /// Next piece of the chunk's payload, a slice of the slab, with its checksum.
    fn piece(&mut self, _bytes: Bytes, _sum: PieceCheck) -> Result<(), PackError> {
        Ok(())
    }

    /// End of the chunk. Its checksum is compared right after this call.
    fn chunk_end(&mut self) -> Result<(), PackError> {
        Ok(())
    }

    /// The slab that contained these chunks, and its entries for the index.
    fn slab_end(&mut self, _content: SlabContent, _entries: &[Entry]) -> Result<(), PackError> {
        Ok(())
    }

    /// Keeps none of the bytes up to here. A layout of files ignores this.
    fn pass_on(&mut self) -> Result<(), PackError> {
        Ok(())
    }

    /// End of a complete stream.
    fn finish(self) -> Result<PackOutput, PackError>;

    /// Returns why a call failed with [`PackError::Closed`]: a later stage may have the cause.
    fn cause(self) -> PackError;
}

/// Use of a slab that is not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainSlabs {
    /// Its bytes are stored as they are.
    Stored,
    /// A later stage transforms its files, and tells the watcher itself what it stores of them.
    Transformed,
}

/// Passes all slabs to `sink` and compares the checksum of each chunk, in stream order. The
/// observer's watcher learns the names of the files and the lengths of what passes.
pub(crate) fn drive(
    encoded: Results<Encoded>,
    plain: PlainSlabs,
    observer: &Observer,
    mut sink: impl ChunkSink,
) -> Result<PackResult, PackError> {
    match take_all(encoded, plain, observer, &mut sink) {
        Ok(StreamEnd { scanned, rest }) => {
            let output = sink.finish()?;
            drop(rest);
            Ok(PackResult { scanned, output })
        }
        // Closed is a consequence.
        Err(PackError::Closed(_)) => Err(sink.cause()),
        Err(cause) => Err(cause),
    }
}

fn take_all(
    mut encoded: Results<Encoded>,
    plain: PlainSlabs,
    observer: &Observer,
    sink: &mut impl ChunkSink,
) -> Result<StreamEnd, PackError> {
    let watcher = observer.watcher();
    let mut check = ChunkCheck::default();
    sink.begin()?;
    while let Some(slab) = encoded.recv() {
        let slab = slab??;
        let mut sums = slab.sums.iter();
        for step in slab.notes.steps {
            match &step {
                Step::Head(head) => sink.head(head)?,
                Step::Piece(range) => {
                    if let (Some(watcher), Some(path)) = (watcher, check.path()) {
                        watcher.file_bytes(path.as_bytes(), range.len() as u64);
                    }
                    // There is one checksum for each piece.
                    if let Some(sum) = sums.as_slice().first() {
                        sink.piece(slab.content.piece(range), *sum)?;
                    }
                }
                Step::End => sink.chunk_end()?,
            }
            check.step(step, &mut sums).map_err(StreamError::from)?;
        }
        if let Some(watcher) = watcher {
            watcher.packed(match (&slab.content, plain) {
                (SlabContent::Frame(frame), _) => Some(frame.stored.len() as u64),
                (SlabContent::Plain(_), PlainSlabs::Stored) => None,
                (SlabContent::Plain(_), PlainSlabs::Transformed) => Some(0),
            });
        }
        sink.slab_end(slab.content, &slab.notes.entries)?;
        if slab.pass_on {
            sink.pass_on()?;
        }
        if let Some(end) = slab.end {
            return Ok(*end);
        }
    }
    // The reader stopped before the end and has the cause.
    Err(PackError::Closed(Closed))
}
