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
    pub(super) stored: RelPath,
    pub(super) layers: Vec<Layer>,
    pub(super) queue: Mutex<Queue>,
    pub(super) work: Mutex<Option<Work>>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) items: VecDeque<Item>,
    /// Whether a thread works on the file or will take it.
    pub(super) scheduled: bool,
}

pub(super) enum Item {
    Piece { bytes: Bytes, position: u64, _flight: Option<Arc<Permit>> },
    End { name: RelPath, position: u64 },
    Discard,
}

/// Decoding state of a file.
pub(super) struct Work {
    pub(super) chain: CodecChain,
    /// Permit for the memory that the chain holds.
    pub(super) permit: Permit,
    /// Number of plain bytes so far.
    pub(super) plain: u64,
    /// Checksum of the plain bytes, if it is logged.
    pub(super) sum: PieceCheck,
    pub(super) parked: Option<SpilledFile>,
    pub(super) may_have_holes: bool,
}

/// Stored bytes that wait on disk.
pub(super) struct SpilledFile {
    pub(super) spool: PartialFile,
    pub(super) len: u64,
}

impl Member {
    pub(crate) fn new(stored: RelPath, plan: &Plan) -> Self {
        let (queue, work) = (Mutex::default(), Mutex::new(None));
        Self { stored, layers: plan.layers.clone(), queue, work }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.layers.contains(&Layer::Xbcrypt)
    }
}
