//! The order of blocks: chunks count from 1 in a stage, and blocks from 1 in a chunk.

use super::descriptor::{DataHead, Stage};
use super::error::{CloneError, broken};

/// The last block that came.
#[derive(Debug, Default)]
pub(super) struct Order {
    chunk: u32,
    block: u32,
}

impl Order {
    /// The chunk and its block that came last; none before the first.
    pub(super) fn last(&self) -> Option<(u32, u32)> {
        (self.chunk > 0).then_some((self.chunk, self.block))
    }

    /// Accepts the block after the last one, or the first of the next chunk. The body of a redo log, its first
    /// chunk, is empty if the server wrote nothing but its last block.
    pub(super) fn accept(&mut self, data: &DataHead, chunks: u32) -> Result<(), CloneError> {
        let is_next_block = self.chunk > 0
            && data.chunk == self.chunk
            && self.block.checked_add(1) == Some(data.block);
        let is_next_chunk = self.chunk.checked_add(1) == Some(data.chunk) && data.block == 1;
        let is_without_body =
            data.stage == Stage::Redo && self.chunk == 0 && (data.chunk, data.block) == (2, 1);
        if data.chunk > chunks || !(is_next_block || is_next_chunk || is_without_body) {
            return broken(format!(
                "{} stage: block {} of chunk {} came after block {} of chunk {}, of {chunks} chunks",
                data.stage.name(),
                data.block,
                data.chunk,
                self.block,
                self.chunk,
            ));
        }
        (self.chunk, self.block) = (data.chunk, data.block);
        Ok(())
    }

    /// Checks that the last chunk was reached.
    pub(super) fn finish(&self, chunks: u32) -> Result<(), CloneError> {
        if self.chunk == chunks {
            return Ok(());
        }
        broken(format!("{} of {chunks} chunks came", self.chunk))
    }
}
