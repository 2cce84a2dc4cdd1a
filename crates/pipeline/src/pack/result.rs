//! Result of packing: a handle while it runs, then the totals of input and output.

use std::thread::JoinHandle;

use xb_frame::{StreamHeader, Summary, Trailer};

use crate::flow::ordered_pool::WorkerDied;
use crate::pack::error::PackError;
use crate::pack::packer::PackedTotals;
use crate::scan::scanner::Scanned;

/// Result of packing. Only a complete stream returns one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PackResult {
    /// Totals of the input.
    pub scanned: Scanned,
    /// Totals of the output.
    pub output: PackOutput,
}

/// Totals of the output.
#[derive(Debug, Clone)]
pub enum PackOutput {
    /// A native stream in objects of equal size.
    Packed {
        /// Totals of the stream.
        summary: Summary,
        /// Totals of the objects.
        packed: PackedTotals,
    },
    /// A native stream that was already native as input, in objects of equal size
    /// ([`start_pack_native`](crate::start_pack_native)).
    Native {
        /// Header of the stream.
        header: StreamHeader,
        /// Trailer of the stream, checked against the header and the length.
        trailer: Trailer,
        /// Totals of the objects.
        packed: PackedTotals,
    },
    /// Objects of the classic layout.
    Classic(Cut),
}

/// Totals of the objects of the classic layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Number of short objects: less than the requested size, and not the last of their file,
    /// because memory was short.
    pub short: u64,
}

/// Handle of a running pack operation.
#[derive(Debug)]
pub struct PackHandle {
    pub(crate) reader: Option<JoinHandle<Result<(), PackError>>>,
    pub(crate) packer: JoinHandle<Result<PackResult, PackError>>,
}

impl PackHandle {
    /// Waits for the end and returns the result, or the first cause.
    ///
    /// This also waits for the source, which may be stalled: after a later stage has failed, end
    /// the source first or do not call this.
    ///
    /// # Errors
    /// [`PackError`]; [`PackError::Closed`] only if the sink of parts has stopped.
    pub fn join(self) -> Result<PackResult, PackError> {
        let packed = self.packer.join().unwrap_or(Err(PackError::Worker(WorkerDied)));
        let read = self.reader.map_or(Ok(Ok(())), JoinHandle::join);
        let read = read.unwrap_or(Err(PackError::Worker(WorkerDied)));
        match (read, packed) {
            // Closed is a consequence: the other side has the cause.
            (Ok(()) | Err(PackError::Closed(_)), packed) => packed,
            (Err(cause), _) => Err(cause),
        }
    }
}
