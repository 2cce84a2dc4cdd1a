//! The place of a chunk in its file: the bytes it has, and the holes between them.

use xb_reader::{ChunkHead, ChunkKind, Placement, RelPath};

use crate::pack::error::CutError;

/// The chunk at hand, while its payload comes in pieces.
#[derive(Debug)]
pub(crate) struct ChunkCursor {
    pub(crate) path: RelPath,
    place: Placement,
    /// File offset that was reached, holes counted.
    at: u64,
    /// File offset behind the chunk.
    end: u64,
}

impl ChunkCursor {
    /// A cursor at the start of a payload or sparse chunk; `None` for an end chunk.
    ///
    /// # Errors
    /// [`CutError::Dialect`] for a chunk of any other kind, and for one that replaces a file.
    pub(crate) fn new(head: &ChunkHead) -> Result<Option<Self>, CutError> {
        let (offset, len, holes) = match &head.kind {
            _ if head.is_rewrite() => return Err(not_classic(head)),
            ChunkKind::Payload { offset, len, .. } => (*offset, *len, 0),
            ChunkKind::Sparse { offset, len, map, .. } => {
                (*offset, *len, map.iter().map(|entry| u64::from(entry.skip)).sum())
            }
            ChunkKind::End => return Ok(None),
            _ => return Err(not_classic(head)),
        };
        let end = offset.saturating_add(len).saturating_add(holes);
        Ok(Some(Self { path: head.path.clone(), place: head.placement(), at: offset, end }))
    }

    /// Takes at most `max` bytes of payload that lie together: the length of the hole in front of
    /// them, and how many they are. `None` when `max` is 0 or the payload is used up.
    pub(crate) fn take(&mut self, max: u64) -> Option<(u64, u64)> {
        let (offset, len) = self.place.take(max)?;
        let hole = offset.saturating_sub(self.at);
        self.at = offset.saturating_add(len);
        Some((hole, len))
    }

    /// Length of the hole behind the last byte.
    pub(crate) fn rest(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }
}

fn not_classic(head: &ChunkHead) -> CutError {
    CutError::Dialect { path: head.path.clone(), position: head.position }
}
