//! The order of blocks: chunks count from 1 in a stage, and blocks from 1 in a chunk.

use super::descriptor::{DataHead, Stage};
use super::error::{CloneError, broken};

/// The last block that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    chunk: u32,
    /// `None` if no more of the chunk comes.
    block: Option<u32>,
    /// Blocks that were left out; `None` if that is unknown, because the length of a chunk is not announced.
    skipped: Option<u32>,
}

impl Default for Order {
    fn default() -> Self {
        Self { chunk: 0, block: None, skipped: Some(0) }
    }
}

impl Order {
    /// The chunk and its block that came last; none before the first.
    pub(super) fn last(&self) -> Option<(u32, Option<u32>)> {
        (self.chunk > 0).then_some((self.chunk, self.block))
    }

    /// Returns whether it is the block after the last one, or the first of the next chunk.
    fn is_next(&self, data: &DataHead) -> bool {
        let is_next_block = self.chunk > 0
            && data.chunk == self.chunk
            && self.block.and_then(|block| block.checked_add(1)) == Some(data.block);
        is_next_block || self.chunk.checked_add(1) == Some(data.chunk) && data.block == 1
    }

    /// Accepts the block after the last one, or the first of the next chunk. The body of a redo log, its first
    /// chunk, is empty if the server wrote nothing but its last block.
    pub(super) fn accept(&mut self, data: &DataHead, chunks: u32) -> Result<(), CloneError> {
        let is_without_body =
            data.stage == Stage::Redo && self.chunk == 0 && (data.chunk, data.block) == (2, 1);
        if data.chunk > chunks || !(self.is_next(data) || is_without_body) {
            return broken(format!(
                "{} stage: block {} of chunk {} came after block {} of chunk {}, of {chunks} chunks",
                data.stage.name(),
                data.block,
                data.chunk,
                self.block.unwrap_or(0),
                self.chunk,
            ));
        }
        (self.chunk, self.block) = (data.chunk, Some(data.block));
        Ok(())
    }

    /// Accepts that blocks before this one are left out.
    pub(super) fn skip_to(&mut self, data: &DataHead) {
        let last = self.block.unwrap_or(0);
        if data.chunk == self.chunk.max(1) {
            let Some(left_out) = data.block.checked_sub(last).and_then(|n| n.checked_sub(1)) else {
                return;
            };
            self.skipped = self.skipped.map(|skipped| skipped.saturating_add(left_out));
            (self.chunk, self.block) = (data.chunk, Some(last.saturating_add(left_out)));
        } else if data.chunk > self.chunk {
            // The end of the chunk before may be left out as well, and its length is not announced.
            self.skipped = None;
            (self.chunk, self.block) = (data.chunk, data.block.checked_sub(1));
        }
    }

    /// Accepts that blocks before the end of the stage are left out.
    pub(super) fn skip_to_end(&mut self) {
        self.skipped = None;
    }

    /// Blocks that were left out; `None` if their number is unknown.
    pub(super) fn skipped(&self) -> Option<u32> {
        self.skipped
    }

    /// Accepts that a chunk, or the rest of it, does not come.
    pub(super) fn pass_over(&mut self, chunk: u32, chunks: u32) -> Result<(), CloneError> {
        let is_next = self.chunk == chunk || self.chunk.checked_add(1) == Some(chunk);
        if !is_next || chunk == 0 || chunk > chunks {
            return broken(format!(
                "chunk {chunk} of {chunks} was left out after chunk {}",
                self.chunk
            ));
        }
        (self.chunk, self.block) = (chunk, None);
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
