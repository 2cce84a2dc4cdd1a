//! Assembles the chunks of the stored stream by file, and cuts them in the classic layout.

use std::collections::HashMap;

use bytes::Bytes;
use xb_reader::{ChunkHead, ChunkKind, ChunkWriter, PieceCheck, RelPath};

use super::worker::TransformOutput;
use crate::classic::object::{FileCutter, MAX_XBSTREAM_CHUNK, oversized_chunk, page_rounded};
use crate::classic::one_object_per_chunk::ChunkCutter;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::Results;
use crate::pack::error::PackError;
use crate::pack::packer::PartSink;
use crate::pack::result::Cut;

/// Bytes that a file has yet to send.
#[derive(Default)]
struct PendingBytes {
    blocks: Vec<Bytes>,
    len: u64,
    /// Bytes of the budget that they hold.
    held: u64,
    /// Number of stored bytes sent before.
    offset: u64,
}

/// Takes the workers' output in order until they end.
pub(super) fn assemble(
    mut results: Results<TransformOutput>,
    mut cutter: impl FileCutter,
    observer: &Observer,
) -> Result<Cut, PackError> {
    while let Some(transformed) = results.recv() {
        let transformed = transformed??;
        if let Some(watcher) = observer.watcher() {
            let stored = transformed.blocks.iter().map(|block| block.len() as u64).sum();
            watcher.transformed(transformed.file.path.as_bytes(), stored);
        }
        for block in transformed.blocks {
            cutter.add(&transformed.file.path, block)?;
        }
        if transformed.end {
            cutter.end(&transformed.file.path)?;
        }
    }
    results.join()?;
    Ok(cutter.finish())
}

/// Assembles chunks as the stock tools do, and cuts them into objects as they do.
pub(crate) struct ChunkAssembler<S> {
    cutter: ChunkCutter,
    sink: S,
    /// Position in the stored stream.
    position: u64,
    files: HashMap<RelPath, PendingBytes>,
    /// Waiting bytes, and their limit.
    waiting: u64,
    limit: u64,
}

impl<S: PartSink> ChunkAssembler<S> {
    pub(crate) fn new(part: u64, limit: u64, sink: S) -> Self {
        let cutter = ChunkCutter::new(part);
        Self { cutter, sink, position: 0, files: HashMap::new(), waiting: 0, limit }
    }
}

impl<S: PartSink> FileCutter for ChunkAssembler<S> {
    fn add(&mut self, path: &RelPath, block: Bytes) -> Result<(), PackError> {
        let len = block.len() as u64;
        if self.files.get(path).is_some_and(|file| file.len + len > MAX_XBSTREAM_CHUNK) {
            self.flush(path)?;
        }
        // Not by `entry`, so that the name is copied once per file instead of once per block.
        if !self.files.contains_key(path) {
            self.files.insert(path.clone(), PendingBytes::default());
        }
        if let Some(file) = self.files.get_mut(path) {
            file.blocks.push(block);
            file.len += len;
            file.held += page_rounded(len);
            self.waiting += page_rounded(len);
        }
        while self.waiting > self.limit && self.flush_fullest()? {}
        Ok(())
    }

    fn end(&mut self, path: &RelPath) -> Result<(), PackError> {
        self.flush(path)?;
        self.files.remove(path);
        let mut writer = ChunkWriter::new(Vec::new());
        writer.end(path).map_err(oversized_chunk)?;
        self.chunk(path, ChunkKind::End, writer, Vec::new())
    }

    fn finish(self) -> Cut {
        self.cutter.finish()
    }
}

impl<S: PartSink> ChunkAssembler<S> {
    /// Returns false if no bytes are waiting.
    fn flush_fullest(&mut self) -> Result<bool, PackError> {
        let fullest = self.files.iter().filter(|(_, file)| file.len > 0);
        let fullest = fullest.max_by_key(|(_, file)| file.len).map(|(path, _)| path.clone());
        match fullest {
            Some(path) => self.flush(&path).map(|()| true),
            None => Ok(false),
        }
    }

    /// Makes a chunk of the file's waiting bytes.
    fn flush(&mut self, path: &RelPath) -> Result<(), PackError> {
        let Some(file) = self.files.get_mut(path).filter(|file| file.len > 0) else {
            return Ok(());
        };
        let (blocks, len, offset) = (std::mem::take(&mut file.blocks), file.len, file.offset);
        self.waiting -= file.held;
        *file = PendingBytes { offset: offset + len, ..PendingBytes::default() };
        let mut sum = PieceCheck::of(&[]);
        blocks.iter().for_each(|block| sum.update(block));
        let crc = sum.crc32();
        let mut writer = ChunkWriter::new(Vec::new());
        writer.payload_head(path, offset, len, crc).map_err(oversized_chunk)?;
        self.chunk(path, ChunkKind::Payload { offset, len, crc }, writer, blocks)
    }

    fn chunk(
        &mut self,
        path: &RelPath,
        kind: ChunkKind,
        writer: ChunkWriter<Vec<u8>>,
        blocks: Vec<Bytes>,
    ) -> Result<(), PackError> {
        let bytes = writer.finish().map_err(oversized_chunk)?;
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
