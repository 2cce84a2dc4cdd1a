//! What packing gives: a handle while it runs, then what came in and what went out.

use std::thread::JoinHandle;

use xb_frame::{StreamHeader, Summary, Trailer};

use crate::classic::object::Cut;
use crate::flow::ordered_pool::WorkerDied;
use crate::pack::error::PackError;
use crate::pack::packer::Packed;
use crate::scan::scanner::Scanned;

/// Result of packing. Only a complete stream gives one.
#[derive(Debug, Clone)]
pub struct PackResult {
    /// What came in.
    pub scanned: Scanned,
    /// What went out.
    pub output: PackOutput,
}

/// What went out.
#[derive(Debug, Clone)]
pub enum PackOutput {
    /// A native stream in equal objects.
    Packed {
        /// The stream in numbers.
        summary: Summary,
        /// The objects in numbers.
        packed: Packed,
    },
    /// A native stream that came in as one, in equal objects ([`start_pack_native`](crate::start_pack_native)).
    Native {
        /// Its header.
        header: StreamHeader,
        /// Its trailer, which fits the header and the length.
        trailer: Trailer,
        /// The objects in numbers.
        packed: Packed,
    },
    /// Objects file by file.
    Classic(Cut),
}

/// A run up in progress.
#[derive(Debug)]
pub struct PackHandle {
    pub(crate) reader: Option<JoinHandle<Result<(), PackError>>>,
    pub(crate) packer: JoinHandle<Result<PackResult, PackError>>,
}

impl PackHandle {
    /// Waits for the end and gives the result, or the first cause.
    ///
    /// Waits for the source too, which may be stalled: after a failure of a later stage, end the
    /// source first or do not call this.
    ///
    /// # Errors
    /// [`PackError`]; [`PackError::Closed`] only when the sink of parts has stopped.
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
