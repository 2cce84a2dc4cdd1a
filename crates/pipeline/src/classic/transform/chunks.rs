//! Chunks of the stored stream, put together file by file, and cut the classic way.

use std::collections::HashMap;

use bytes::Bytes;
use xb_reader::{ChunkHead, ChunkKind, ChunkWriter, PieceCheck, RelPath};

use super::worker::Made;
use crate::classic::one_object_per_chunk::{
    ChunkCutter, Cut, FileCutter, MAX_CHUNK, held, no_reader_takes,
};
use crate::flow::ordered_pool::Results;
use crate::pack::PutError;
use crate::pack::packer::PartSink;

/// What a file waits to send.
#[derive(Default)]
struct Waiting {
    blocks: Vec<Bytes>,
    len: u64,
    /// What they hold of the budget.
    held: u64,
    /// Stored bytes that went before.
    offset: u64,
}

/// Takes what the workers made, in order, until they end.
pub(super) fn assemble(
    mut results: Results<Made>,
    mut cutter: impl FileCutter,
) -> Result<Cut, PutError> {
    while let Some(made) = results.recv() {
        let made = made??;
        for block in made.blocks {
            cutter.add(&made.file.path, block)?;
        }
        if made.end {
            cutter.end(&made.file.path)?;
        }
    }
    results.join()?;
    Ok(cutter.finish())
}

/// Puts chunks together as the stock tools do, and cuts them to objects as they do.
pub(super) struct Assembler<S> {
    cutter: ChunkCutter,
    sink: S,
    /// In the stored stream.
    position: u64,
    files: HashMap<RelPath, Waiting>,
    /// Bytes that wait, and the most that may.
    waiting: u64,
    limit: u64,
}

impl<S: PartSink> Assembler<S> {
    pub(super) fn new(part: u64, limit: u64, sink: S) -> Self {
        let cutter = ChunkCutter::new(part);
        Self { cutter, sink, position: 0, files: HashMap::new(), waiting: 0, limit }
    }
}

impl<S: PartSink> FileCutter for Assembler<S> {
    fn add(&mut self, path: &RelPath, block: Bytes) -> Result<(), PutError> {
        let len = block.len() as u64;
        if self.files.get(path).is_some_and(|file| file.len + len > MAX_CHUNK) {
            self.flush(path)?;
        }
        // Not by `entry`: the name is copied once a file, not once a block.
        if !self.files.contains_key(path) {
            self.files.insert(path.clone(), Waiting::default());
        }
        if let Some(file) = self.files.get_mut(path) {
            file.blocks.push(block);
            file.len += len;
            file.held += held(len);
            self.waiting += held(len);
        }
        while self.waiting > self.limit && self.flush_fullest()? {}
        Ok(())
    }

    fn end(&mut self, path: &RelPath) -> Result<(), PutError> {
        self.flush(path)?;
        self.files.remove(path);
        let mut writer = ChunkWriter::new(Vec::new());
        writer.end(path).map_err(no_reader_takes)?;
        self.chunk(path, ChunkKind::End, writer, Vec::new())
    }

    fn finish(self) -> Cut {
        self.cutter.finish()
    }
}

impl<S: PartSink> Assembler<S> {
    /// False when nothing waits.
    fn flush_fullest(&mut self) -> Result<bool, PutError> {
        let fullest = self.files.iter().filter(|(_, file)| file.len > 0);
        let fullest = fullest.max_by_key(|(_, file)| file.len).map(|(path, _)| path.clone());
        match fullest {
            Some(path) => self.flush(&path).map(|()| true),
            None => Ok(false),
        }
    }

    /// Makes a chunk of what waits for the file.
    fn flush(&mut self, path: &RelPath) -> Result<(), PutError> {
        let Some(file) = self.files.get_mut(path).filter(|file| file.len > 0) else {
            return Ok(());
        };
        let (blocks, len, offset) = (std::mem::take(&mut file.blocks), file.len, file.offset);
        self.waiting -= file.held;
        *file = Waiting { offset: offset + len, ..Waiting::default() };
        let mut sum = PieceCheck::of(&[]);
        blocks.iter().for_each(|block| sum.update(block));
        let crc = sum.crc32();
        let mut writer = ChunkWriter::new(Vec::new());
        writer.payload_head(path, offset, len, crc).map_err(no_reader_takes)?;
        self.chunk(path, ChunkKind::Payload { offset, len, crc }, writer, blocks)
    }

    fn chunk(
        &mut self,
        path: &RelPath,
        kind: ChunkKind,
        writer: ChunkWriter<Vec<u8>>,
        blocks: Vec<Bytes>,
    ) -> Result<(), PutError> {
        let bytes = writer.finish().map_err(no_reader_takes)?;
        let (path, position, head_len) = (path.clone(), self.position, bytes.len() as u64);
        let head = ChunkHead { position, head_len, flags: 0, path, kind };
        self.position = head.end();
        self.cutter.head(&head)?;
        self.cutter.push(bytes.into(), &mut self.sink)?;
        for block in blocks {
            self.cutter.push(block, &mut self.sink)?;
        }
        Ok(())
    }
}
