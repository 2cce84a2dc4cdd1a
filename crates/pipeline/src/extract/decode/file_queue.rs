//! A file with layers, between the stream and the threads that decode it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use xb_reader::{PartialFile, PieceCheck, RelPath};

use super::codec_chain::CodecChain;
use super::suffixes::{Layer, Plan};
use crate::flow::budget::Permit;

/// A file with layers: the bytes that arrived for it and are not yet decoded.
pub(crate) struct Member {
    /// Name in the stream.
    pub(crate) stored: RelPath,
    pub(crate) layers: Vec<Layer>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) work: Mutex<Option<FileWork>>,
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) items: VecDeque<Item>,
    /// Whether a thread works on the file or will take it.
    pub(crate) scheduled: bool,
}

pub(crate) enum Item {
    Piece { bytes: Bytes, position: u64, _flight: Option<Arc<Permit>> },
    End { name: RelPath, position: u64 },
    Discard,
}

/// Decoding state of a file.
pub(crate) struct FileWork {
    pub(crate) chain: CodecChain,
    /// Permit for the memory that the chain holds.
    pub(crate) permit: Permit,
    /// Number of plain bytes so far.
    pub(crate) plain: u64,
    /// Checksum of the plain bytes, if it is logged.
    pub(crate) sum: PieceCheck,
    pub(crate) parked: Option<SpilledFile>,
    pub(crate) may_have_holes: bool,
}

/// Stored bytes that wait on disk.
pub(crate) struct SpilledFile {
    pub(crate) spool: PartialFile,
    pub(crate) len: u64,
}

impl Member {
    pub(crate) fn new(stored: RelPath, plan: &Plan) -> Self {
        let (queue, work) = (Mutex::default(), Mutex::new(None));
        Self { stored, layers: plan.layers.clone(), queue, work }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.layers.contains(&Layer::Xbcrypt)
    }
}
