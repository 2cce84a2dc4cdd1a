//! Finds the files that have bytes in a damaged object, using the index.

use std::collections::BTreeMap;
use std::ops::Range;

use xb_frame::Record;
use xb_frame::index::ChunkRecord;

use crate::error::BackupError;
use crate::read::packed_index::{Index, PackedBody};

/// Maximum number of files named for one object.
const MAX_FILES: usize = 20;

/// A file, and the offset of its first byte that may be damaged.
pub(super) type Hit = (String, u64);

/// For each of these ranges of the stored stream, the files that have bytes in it.
///
/// # Errors
/// The errors of reading the index, which may be damaged itself.
pub(super) async fn files_in(
    body: &PackedBody,
    damaged: &[Range<u64>],
) -> Result<Vec<Vec<Hit>>, BackupError> {
    let index = Index::load(body).await?;
    let mut plain: Vec<Vec<Range<u64>>> = vec![Vec::new(); damaged.len()];
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            let Record::Frames(run) = record.map_err(|error| index.bad_record(error))? else {
                continue;
            };
            let stored = |range: Range<u64>| body.body().stored(&[range]);
            let whole = stored(run.body_range());
            if !damaged.iter().any(|damaged| whole.iter().any(|range| overlap(range, damaged))) {
                continue;
            }
            for frame in run.frames() {
                let end = frame.position + frame_len(frame.stored_len);
                let stored = stored(frame.position..end);
                let bytes = frame.plain_offset..frame.plain_offset + u64::from(frame.plain_len);
                for (damaged, plain) in damaged.iter().zip(&mut plain) {
                    if stored.iter().any(|range| overlap(range, damaged)) {
                        extend(plain, bytes.clone());
                    }
                }
            }
        }
    }
    let mut files = FileHits { names: BTreeMap::new(), hits: vec![Vec::new(); damaged.len()] };
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            files.record(&record.map_err(|error| index.bad_record(error))?, &plain);
        }
    }
    Ok(files.hits)
}

fn frame_len(stored: u32) -> u64 {
    xb_frame::FRAME_HEADER_LEN as u64 + u64::from(stored)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Appends a range; adjacent frames are merged.
fn extend(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

struct FileHits {
    names: BTreeMap<u64, Vec<u8>>,
    hits: Vec<Vec<Hit>>,
}

impl FileHits {
    fn record(&mut self, record: &Record<'_>, plain: &[Vec<Range<u64>>]) {
        match record {
            Record::File { file, path, .. } | Record::Rename { file, path } => {
                self.names.insert(*file, path.to_vec());
            }
            Record::Chunk(chunk) => self.chunk(chunk, plain),
            Record::End { file, .. } | Record::Remove { file } => drop(self.names.remove(file)),
            _ => {}
        }
    }

    fn chunk(&mut self, chunk: &ChunkRecord, plain: &[Vec<Range<u64>>]) {
        let payload = chunk.position.saturating_add(chunk.head_len);
        let bytes = chunk.position..payload.saturating_add(chunk.payload_len);
        for (ranges, hits) in plain.iter().zip(&mut self.hits) {
            let Some(range) = ranges.iter().find(|range| overlap(range, &bytes)) else { continue };
            let Some(path) = self.names.get(&chunk.file) else { continue };
            let path = path.escape_ascii().to_string();
            if hits.len() < MAX_FILES && hits.iter().all(|(known, _)| *known != path) {
                hits.push((path, chunk.offset + range.start.saturating_sub(payload)));
            }
        }
    }
}
