//! Loop over a stream on its way up, the same for every layout.

use bytes::Bytes;
use xb_reader::{ChunkHead, PieceCheck};

use crate::flow::ordered_pool::{Closed, Results};
use crate::pack::encode::{Encoded, SlabContent, StreamEnd};
use crate::pack::error::PackError;
use crate::pack::file_shares::FileShares;
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

    /// End of a complete stream.
    fn finish(self) -> Result<PackOutput, PackError>;

    /// Returns why a call failed with [`PackError::Closed`]: a later stage may have the cause.
    fn cause(self) -> PackError;
}

/// Passes all slabs to `sink` and compares the checksum of each chunk, in stream order.
pub(crate) fn drive(
    encoded: Results<Encoded>,
    mut shares: FileShares,
    mut sink: impl ChunkSink,
) -> Result<PackResult, PackError> {
    match take_all(encoded, &mut shares, &mut sink) {
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
    shares: &mut FileShares,
    sink: &mut impl ChunkSink,
) -> Result<StreamEnd, PackError> {
    let mut check = ChunkCheck::default();
    sink.begin()?;
    while let Some(slab) = encoded.recv() {
        let slab = slab??;
        let mut sums = slab.sums.iter();
        for step in slab.notes.steps {
            match &step {
                Step::Head(head) => {
                    shares.head(head);
                    sink.head(head)?;
                }
                Step::Piece(range) => {
                    shares.piece(range.len());
                    // There is one checksum for each piece.
                    if let Some(sum) = sums.as_slice().first() {
                        sink.piece(slab.content.piece(range), *sum)?;
                    }
                }
                Step::End => sink.chunk_end()?,
            }
            check.step(step, &mut sums).map_err(StreamError::from)?;
        }
        shares.slab_end(&slab.content);
        sink.slab_end(slab.content, &slab.notes.entries)?;
        if let Some(end) = slab.end {
            return Ok(*end);
        }
    }
    // The reader stopped before the end and has the cause.
    Err(PackError::Closed(Closed))
}
