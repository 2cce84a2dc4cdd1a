//! Builds streams, reads them back with all checks, and repairs the checksums of damaged streams so
//! that tests reach the checks after the checksums. Also used by the fuzz targets.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of small streams")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "every test uses another part")]

use std::collections::BTreeMap;

use xb_frame::index::{self, ChunkRecord, FramePlace};
use xb_frame::{
    Codec, Event, FRAME_HEADER_LEN, FrameError, Kind, Limits, Record, STREAM_HEADER_LEN,
    StreamHeader, StreamId, StreamReader, StreamWriter, Summary, TRAILER_LEN, crc32c,
};

pub(crate) const ID: StreamId = StreamId([0x5a; 16]);

/// One step of a writer.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// A data frame of a source, stored as it is.
    Data(u16, Vec<u8>),
    /// A file with one chunk and its end.
    File(u64, Vec<u8>),
    /// An index frame, whether or not it is due.
    Index,
}

/// Builds the stream that these steps create.
pub(crate) fn build(header: &StreamHeader, target: usize, ops: &[Op]) -> (Vec<u8>, Summary) {
    let mut stream = header.encode().to_vec();
    let mut writer = StreamWriter::new(header).with_index_target(target);
    for op in ops {
        match op {
            Op::Data(source, payload) => {
                let len = payload.len() as u32;
                let frame = writer.data_frame(*source, Codec::None, len, len, crc32c(payload));
                stream.extend(frame.unwrap());
                stream.extend(payload);
            }
            Op::File(file, path) => {
                for record in file_records(*file, path) {
                    writer.record(&record).unwrap();
                }
            }
            Op::Index => stream.extend(writer.index_frame().unwrap_or_default()),
        }
        if writer.index_due() {
            stream.extend(writer.index_frame().unwrap());
        }
    }
    let tail = writer.finish();
    stream.extend_from_slice(&tail.bytes);
    assert_eq!(tail.bytes, [tail.body(), tail.trailer()].concat());
    (stream, tail.summary)
}

fn file_records(file: u64, path: &[u8]) -> [Record<'_>; 3] {
    let chunk = ChunkRecord {
        file,
        kind: b'P',
        position: 100 * file,
        head_len: 34 + path.len() as u64,
        payload_len: 3,
        offset: 0,
        logical_len: 3,
    };
    [Record::File { file, source: 0, path }, Record::Chunk(chunk), Record::End { file, size: 3 }]
}

/// Everything that a reader finds in a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) summary: Summary,
    /// Plain bytes by source.
    pub(crate) plain: BTreeMap<u16, Vec<u8>>,
    /// Data frames as they were read, and as the index lists them.
    pub(crate) frames: Vec<FramePlace>,
    pub(crate) listed: Vec<FramePlace>,
    pub(crate) index_payloads: Vec<Vec<u8>>,
}

/// Reads a stream in pieces of these sizes (the last size repeats) and checks everything.
pub(crate) fn read(stream: &[u8], pieces: &[usize]) -> Result<Whole, FrameError> {
    let mut reader = StreamReader::new(Limits::default());
    let mut whole = Whole {
        summary: Summary {
            id: ID,
            end: Default::default(),
            end_position: 0,
            body_len: 0,
            stream_len: 0,
        },
        plain: BTreeMap::new(),
        frames: Vec::new(),
        listed: Vec::new(),
        index_payloads: Vec::new(),
    };
    let mut payload = Vec::new();
    let mut rest = stream;
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(*pieces.last().unwrap()));
    while !rest.is_empty() {
        let (mut piece, after) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
        rest = after;
        while let Some(event) = reader.next(&mut piece)? {
            whole.take(event, &mut payload)?;
        }
        assert!(piece.is_empty(), "without an event, all input has been taken");
    }
    whole.summary = reader.finish()?;
    Ok(whole)
}

impl Whole {
    fn take(&mut self, event: Event<'_>, payload: &mut Vec<u8>) -> Result<(), FrameError> {
        match event {
            Event::Frame(_) => payload.clear(),
            Event::Payload(piece) => payload.extend_from_slice(piece),
            Event::FrameEnd(frame) if frame.kind == Kind::Data => {
                frame.check_payload(payload)?;
                self.plain.entry(frame.source).or_default().extend_from_slice(payload);
                self.frames.push(FramePlace {
                    source: frame.source,
                    position: frame.position,
                    plain_offset: frame.plain_offset,
                    plain_len: frame.plain_len,
                    stored_len: frame.stored_len,
                });
                self.frames.last().unwrap().check(&frame)?;
            }
            Event::FrameEnd(frame) => {
                frame.check_payload(payload)?;
                for record in index::parse(payload)? {
                    if let Record::Frames(run) = record? {
                        let before = self.listed.len();
                        self.listed.extend(run.frames());
                        assert_eq!(self.listed.len() - before, run.count() as usize);
                    }
                }
                self.index_payloads.push(payload.clone());
            }
            _ => {}
        }
        Ok(())
    }
}

/// Locates the parts of an intact unsealed stream: `(start, end)` of the header, of each frame and
/// of the trailer.
pub(crate) fn parts(stream: &[u8]) -> Vec<(usize, usize)> {
    let mut parts = vec![(0, STREAM_HEADER_LEN)];
    let mut at = STREAM_HEADER_LEN;
    while at + TRAILER_LEN < stream.len() {
        let stored = u32::from_le_bytes(stream[at + 12..at + 16].try_into().unwrap()) as usize;
        parts.push((at, at + FRAME_HEADER_LEN + stored));
        at += FRAME_HEADER_LEN + stored;
    }
    parts.push((at, stream.len()));
    parts
}

/// Repairs all checksums, as far as the stated lengths lead through the stream.
pub(crate) fn mend(stream: &mut [u8]) {
    let len = stream.len();
    if len < STREAM_HEADER_LEN {
        return;
    }
    mend_sum(&mut stream[..STREAM_HEADER_LEN], &[]);
    let id = stream[16..32].to_vec();
    let mut at = STREAM_HEADER_LEN;
    while at + FRAME_HEADER_LEN <= len && stream[at..].starts_with(b"XBRF") {
        let stored = u32::from_le_bytes(stream[at + 12..at + 16].try_into().unwrap()) as usize;
        let payload = at + FRAME_HEADER_LEN;
        let end = payload.saturating_add(stored);
        if end <= len {
            let sum = crc32c(&stream[payload..end]).to_le_bytes();
            stream[at + 24..at + 28].copy_from_slice(&sum);
        }
        let position = (at - STREAM_HEADER_LEN) as u64;
        mend_sum(&mut stream[at..payload], &[&id[..], &position.to_le_bytes()].concat());
        at = end;
    }
    if at.checked_add(TRAILER_LEN).is_some_and(|end| end <= len) {
        mend_sum(&mut stream[at..at + TRAILER_LEN], &[]);
    }
}

/// Sets the checksum at the end of a header.
fn mend_sum(header: &mut [u8], before: &[u8]) {
    let at = header.len() - 4;
    let sum = crc32c(&[before, &header[..at]].concat());
    header[at..].copy_from_slice(&sum.to_le_bytes());
}
