//! The packed layout: slabs become frames of a native stream with an index.

use xb_frame::{Record, StreamHeader, StreamWriter};

use crate::pack::body::Body;
use crate::pack::chunk_sink::ChunkSink;
use crate::pack::encode::SlabContent;
use crate::pack::error::PackError;
use crate::pack::packer::PartSink;
use crate::pack::result::PackOutput;
use crate::scan::scanner::Entry;

/// Writes a native stream.
pub(crate) struct FrameSink<S> {
    header: StreamHeader,
    writer: StreamWriter,
    body: Body<S>,
}

impl<S: PartSink + Send + 'static> FrameSink<S> {
    pub(crate) fn new(header: StreamHeader, body: Body<S>) -> Self {
        Self { writer: StreamWriter::new(&header), header, body }
    }

    fn flush_index(&mut self) -> Result<(), PackError> {
        if self.writer.index_due()
            && let Some(frame) = self.writer.index_frame()
        {
            self.body.index_frame(frame)?;
        }
        Ok(())
    }
}

impl<S: PartSink + Send + 'static> ChunkSink for FrameSink<S> {
    fn begin(&mut self) -> Result<(), PackError> {
        self.body.header(&self.header)
    }

    fn slab_end(&mut self, content: SlabContent, entries: &[Entry]) -> Result<(), PackError> {
        if let SlabContent::Frame(frame) = content {
            // All slabs have the same size, far below 4 GiB.
            let len = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let (plain, stored) = (len(frame.plain_len), len(frame.stored.len()));
            let header = self.writer.data_frame(0, frame.codec, plain, stored, frame.crc32c)?;
            self.body.data_frame(&header, frame.stored, frame.crc64)?;
        }
        for entry in entries {
            self.writer.record(&record(entry))?;
            self.flush_index()?;
        }
        self.flush_index()
    }

    fn pass_on(&mut self) -> Result<(), PackError> {
        self.body.pass_on()
    }

    fn finish(self) -> Result<PackOutput, PackError> {
        let tail = self.writer.finish();
        let summary = tail.summary.clone();
        Ok(PackOutput::Packed { summary, packed: self.body.finish(tail)? })
    }

    fn cause(self) -> PackError {
        self.body.cause()
    }
}

fn record(entry: &Entry) -> Record<'_> {
    match entry {
        Entry::File { file, path } => {
            Record::File { file: *file, source: 0, path: path.as_bytes() }
        }
        Entry::Chunk(chunk) => Record::Chunk(*chunk),
        Entry::End { file, size } => Record::End { file: *file, size: *size },
        Entry::Rename { file, path } => Record::Rename { file: *file, path: path.as_bytes() },
        Entry::Remove { file } => Record::Remove { file: *file },
    }
}
