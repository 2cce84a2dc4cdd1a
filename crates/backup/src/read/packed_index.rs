//! Index of a packed backup, read from the end of the stream without reading the data before it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use xb_encryptor::DataKey;
use xb_frame::index::{MAX_INDEX_PLAIN, Records, parse};
use xb_frame::{FRAME_HEADER_LEN, FrameError, FrameHeader, Kind};
use xb_pipeline::{Body, BodyError, FRONT_LEN};
use xb_repo::keys::RunKeys;
use xb_repo::manifest::{Manifest, PackedFacts};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::objects::checksums::OTHER_STREAM;
use crate::objects::range::Range as ObjectRange;
use crate::read::unlock::{not_found_as_damage, once_more};

/// Index bytes kept in memory: enough for an 8 TiB backup. The front of a longer index is fetched
/// again for each pass over it.
const KEPT: usize = 64 << 20;
/// Maximum length of an index frame in bytes, header included.
const MAX_FRAME: u64 = (FRAME_HEADER_LEN + MAX_INDEX_PLAIN) as u64;

/// Packed backup with random access to its stream.
pub(crate) struct PackedBody {
    root: Root,
    name: BackupName,
    keys: RunKeys,
    chunk: u64,
    total: u64,
    body: Body,
    last_index: Range<u64>,
}

impl PackedBody {
    /// Reads the front of the stream. If there is a key, the manifest has already been
    /// authenticated.
    pub(crate) async fn open(
        root: &Root,
        name: &BackupName,
        manifest: &Manifest,
        packed: &PackedFacts,
        run: RunId,
        key: Option<&DataKey>,
    ) -> Result<Self, BackupError> {
        let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
        let (chunk, total) = (packed.chunk_size, manifest.stored_bytes);
        let keys = root.run_keys(name, run);
        let places = ObjectMap { keys: &keys, chunk, total };
        let open = async || {
            let front = places.read(root, name, 0..total.min(FRONT_LEN as u64)).await?;
            let body =
                Body::open(&front, total, key).map_err(|error| damaged(error.to_string()))?;
            if Some(body.header().id().0) != manifest.stream_id() {
                return Err(damaged(OTHER_STREAM.to_owned()));
            }
            Ok(body)
        };
        let body = once_more(open).await?;
        let end = packed.index_position.checked_add(packed.index_len);
        let last_index = match end.filter(|end| *end <= body.len()) {
            Some(end) => packed.index_position..end,
            None => return Err(damaged("its index lies outside the stream".into())),
        };
        let (root, name) = (root.clone(), name.clone());
        Ok(Self { root, name, keys, chunk, total, body, last_index })
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Ranges of objects that cover these parts of the stored stream, each of at most `most` bytes.
    pub(crate) fn ranges(
        &self,
        stored: Vec<Range<u64>>,
        most: u64,
    ) -> impl Iterator<Item = ObjectRange> + use<> {
        let (keys, chunk, total) = (self.keys.clone(), self.chunk, self.total);
        stored
            .into_iter()
            .flat_map(move |range| ObjectMap { keys: &keys, chunk, total }.cut(range, most))
    }

    /// Reads one range of the body.
    async fn read(&self, run: Range<u64>) -> Result<Bytes, BackupError> {
        let places = ObjectMap { keys: &self.keys, chunk: self.chunk, total: self.total };
        let mut bytes = BytesMut::new();
        for stored in self.body.stored(std::slice::from_ref(&run)) {
            bytes.extend_from_slice(&places.read(&self.root, &self.name, stored).await?);
        }
        let plain = self.body.plain(&run, &bytes);
        plain.map_err(|error| self.damaged(error))
    }

    /// Reads and checks the index frame at `place`.
    async fn index_frame(&self, place: &Range<u64>) -> Result<(FrameHeader, Bytes), BackupError> {
        once_more(async || self.index_frame_once(place).await).await
    }

    async fn index_frame_once(
        &self,
        place: &Range<u64>,
    ) -> Result<(FrameHeader, Bytes), BackupError> {
        // The position may be unauthenticated, so at most one frame's bytes are fetched and held
        // for it.
        if place.end - place.start > MAX_FRAME {
            return Err(self.damaged_index("a frame is longer than the limit"));
        }
        let mut bytes = self.read(place.clone()).await?;
        let bad = |error: FrameError| self.damaged(error.into());
        let wrong = || self.damaged_index("a frame is not where it should be");
        let head: [u8; FRAME_HEADER_LEN] = bytes.first_chunk().copied().ok_or_else(wrong)?;
        let header = FrameHeader::parse(&head, self.body.header(), place.start).map_err(bad)?;
        if header.kind != Kind::Index || header.frame_len() != place.end - place.start {
            return Err(wrong());
        }
        let payload = bytes.split_off(FRAME_HEADER_LEN);
        header.check_payload(&payload).map_err(bad)?;
        Ok((header, payload))
    }

    pub(crate) fn damaged(&self, error: BodyError) -> BackupError {
        BackupError::Damaged { name: self.name.to_string(), what: error.to_string() }
    }

    pub(crate) fn damaged_index(&self, what: &str) -> BackupError {
        BackupError::Damaged { name: self.name.to_string(), what: format!("its index: {what}") }
    }
}

/// Maps the stored stream to its objects.
struct ObjectMap<'a> {
    keys: &'a RunKeys,
    chunk: u64,
    total: u64,
}

impl ObjectMap<'_> {
    /// Splits a range at object boundaries and into pieces of at most `most` bytes, one after the other: a forged manifest
    /// may state any number of tiny objects.
    fn cut(&self, range: Range<u64>, most: u64) -> impl Iterator<Item = ObjectRange> + use<> {
        let (keys, chunk, total) = (self.keys.clone(), self.chunk, self.total);
        let (mut at, end) = (range.start, range.end.min(total));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (number, start) = (at / chunk, at % chunk);
            let len = (end - at).min(chunk - start).min(most.max(1));
            at += len;
            Some(ObjectRange {
                key: keys.data(number),
                start,
                len,
                of: chunk.min(total - number * chunk),
                end: at.is_multiple_of(chunk) || at == total,
                sum: None,
                blocks: false,
            })
        })
    }

    async fn read(
        &self,
        root: &Root,
        name: &BackupName,
        range: Range<u64>,
    ) -> Result<BytesMut, BackupError> {
        let mut bytes = BytesMut::new();
        for piece in self.cut(range, u64::MAX) {
            let wanted = piece.start..piece.start + piece.len;
            let part = root.store().get_range(&piece.key, wanted, piece.of);
            let part = part.await.map_err(|error| not_found_as_damage(error, name))?;
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }
}

/// Chain of index frames, in stream order.
pub(crate) struct Index<'a> {
    packed: &'a PackedBody,
    /// Positions of the frames, and the payloads kept in memory.
    frames: Vec<(Range<u64>, Option<Bytes>)>,
}

impl<'a> Index<'a> {
    /// Follows the chain from its end.
    pub(crate) async fn load(packed: &'a PackedBody) -> Result<Self, BackupError> {
        let mut frames = Vec::new();
        let mut kept = 0;
        let mut next = packed.last_index.clone();
        while !next.is_empty() {
            let (header, payload) = packed.index_frame(&next).await?;
            let records = parse(&payload).map_err(|error| packed.damaged(error.into()))?;
            let before = match header.previous_index() {
                None => 0..0,
                // Only backwards; otherwise the loop might not end.
                Some(at) => match at.checked_add(records.previous_len().into()) {
                    Some(end) if at < end && end <= next.start => at..end,
                    _ => return Err(packed.damaged_index("its frames do not form a chain")),
                },
            };
            kept += payload.len();
            frames.push((next, (kept <= KEPT).then_some(payload)));
            next = before;
        }
        frames.reverse();
        Ok(Self { packed, frames })
    }

    /// Number of index frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Payload of index frame `number`.
    pub(crate) async fn payload(&self, number: usize) -> Result<Bytes, BackupError> {
        match self.frames.get(number) {
            Some((_, Some(payload))) => Ok(payload.clone()),
            Some((place, None)) => Ok(self.packed.index_frame(place).await?.1),
            None => Err(BackupError::Bug("a missing index frame was requested")),
        }
    }

    /// The records of a payload.
    pub(crate) fn records<'p>(&self, payload: &'p [u8]) -> Result<Records<'p>, BackupError> {
        parse(payload).map_err(|error| self.packed.damaged(error.into()))
    }

    pub(crate) fn damaged(&self, what: &str) -> BackupError {
        self.packed.damaged_index(what)
    }

    pub(crate) fn bad_record(&self, error: FrameError) -> BackupError {
        self.packed.damaged(error.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_cut_at_the_borders_of_objects(
            chunk in 1_u64..50, total in 1_u64..500, from in 0_u64..500, len in 0_u64..500, most in 1_u64..60,
        ) {
            let keys = RunKeys::new("", "f");
            let places = ObjectMap { keys: &keys, chunk, total };
            let (from, to) = (from.min(total), (from + len).min(total));
            let mut at = from;
            for piece in places.cut(from..to, most) {
                let number: u64 = piece.key.rsplit('/').next().unwrap().parse().unwrap();
                prop_assert_eq!(number * chunk + piece.start, at);
                prop_assert!(piece.len > 0 && piece.len <= most && piece.start + piece.len <= chunk);
                at += piece.len;
                prop_assert_eq!(piece.end, at.is_multiple_of(chunk) || at == total);
            }
            prop_assert_eq!(at, from.max(to));
        }
    }

    #[test]
    fn a_forged_number_of_objects_takes_no_memory() {
        let keys = RunKeys::new("", "f");
        let total = 1 << 50;
        let places = ObjectMap { keys: &keys, chunk: 1, total };
        let of = |piece: ObjectRange| (piece.start, piece.len, piece.of);
        let first: Vec<_> = places.cut(0..total, u64::MAX).take(2).map(of).collect();
        assert_eq!(first, [(0, 1, 1); 2]);
    }
}
