//! The packer: the only place where a native stream is cut into objects.
//!
//! Earlier stages (frames, codecs, seal) do not influence the size of an object.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::flow::checksum;
use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::Closed;
use crate::flow::plan::ObjectSize;

/// A piece of an object, ready to be sent to a store. The parts of an object are in order.
#[derive(Debug)]
pub struct Part {
    /// Key of the object, relative to the prefix of the run.
    pub object: Arc<str>,
    /// Number of this part in its object, from 0.
    pub index: u32,
    /// The bytes.
    pub payload: Vec<Bytes>,
    /// Whether the object ends with this part.
    pub end: bool,
}

/// Takes finished parts. It blocks while the next stage is full.
pub trait PartSink {
    /// Takes one part.
    ///
    /// # Errors
    /// [`Closed`] if the next stage has stopped.
    fn part(&mut self, part: Part) -> Result<(), Closed>;
}

impl<F: FnMut(Part) -> Result<(), Closed>> PartSink for F {
    fn part(&mut self, part: Part) -> Result<(), Closed> {
        self(part)
    }
}

/// Counts the time for which `sink` blocks: whatever waits meanwhile is not slow itself.
pub(crate) fn watched<S: PartSink>(mut sink: S, observer: &Observer) -> impl PartSink + use<S> {
    let observer = observer.clone();
    move |part: Part| observer.waiting(Wait::Sink, || sink.part(part))
}

/// SHA-256 over the list of objects: the length and the CRC-64/NVME of each object, in order, both
/// as unsigned 64-bit little-endian numbers.
#[derive(Debug, Clone, Default)]
pub struct RootDigest(Sha256);

impl RootDigest {
    /// Adds the next object.
    pub fn object(&mut self, len: u64, crc64: u64) {
        self.0.update(len.to_le_bytes());
        self.0.update(crc64.to_le_bytes());
    }

    /// Returns the digest over all objects added.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Maximum number of objects whose checksums are kept one by one, at 8 bytes each.
pub const MAX_SUMS: usize = 1 << 20;

/// Totals of the objects written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedTotals {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// [`RootDigest`] over the objects.
    pub root: [u8; 32],
    /// CRC-64/NVME of each object, in order; empty if there are more than [`MAX_SUMS`].
    pub sums: Vec<u64>,
}

/// Key of the packed object `number`: nine digits.
#[must_use]
pub fn object_key(number: u64) -> String {
    format!("{number:09}")
}

/// Cuts a byte stream into objects of exactly `object_size` bytes (the last may be shorter), each
/// in equal parts of `part_size` bytes (an object's last part may be shorter).
#[derive(Debug)]
pub struct Packer {
    object_size: u64,
    part_size: u64,
    object: u64,
    key: Arc<str>,
    object_len: u64,
    object_crc: u64,
    part_index: u32,
    part_len: u64,
    payload: Vec<Bytes>,
    bytes: u64,
    root: RootDigest,
    sums: Vec<u64>,
}

impl Packer {
    /// Creates a packer for objects of `object_size` in parts of `part_size` bytes, at least 1. If
    /// a part is at least as large as the object, each object is a single part.
    #[must_use]
    pub fn new(object_size: ObjectSize, part_size: u64) -> Self {
        Self {
            object_size: object_size.get(),
            part_size: part_size.max(1),
            object: 0,
            key: object_key(0).into(),
            object_len: 0,
            object_crc: 0,
            part_index: 0,
            part_len: 0,
            payload: Vec::new(),
            bytes: 0,
            root: RootDigest::default(),
            sums: Vec::new(),
        }
    }

    /// Adds `bytes`, whose CRC-64/NVME the caller may already know.
    ///
    /// # Errors
    /// [`Closed`] if the sink has stopped.
    pub fn push(
        &mut self,
        mut bytes: Bytes,
        mut crc64: Option<u64>,
        sink: &mut impl PartSink,
    ) -> Result<(), Closed> {
        while !bytes.is_empty() {
            // A full part waits until it is known whether it is the last of its object.
            if self.part_len == self.part_size {
                self.emit(false, sink)?;
            }
            let room = (self.object_size - self.object_len).min(self.part_size - self.part_len);
            let take = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let piece = bytes.split_to(take);
            let crc = match crc64.take() {
                Some(known) if bytes.is_empty() => known,
                _ => checksum::crc64(&piece),
            };
            let len = take as u64;
            self.object_crc = checksum::crc64_combine(self.object_crc, crc, len);
            self.object_len += len;
            self.part_len += len;
            self.bytes += len;
            self.payload.push(piece);
            if self.object_len == self.object_size {
                self.emit(true, sink)?;
            }
        }
        Ok(())
    }

    /// Sends the bytes of the part that is being filled, as a short part of its object.
    ///
    /// # Errors
    /// [`Closed`] if the sink has stopped.
    pub fn pass_on(&mut self, sink: &mut impl PartSink) -> Result<(), Closed> {
        if self.part_len > 0 { self.emit(false, sink) } else { Ok(()) }
    }

    /// Sends the remaining bytes as the last object, which may be shorter.
    ///
    /// # Errors
    /// [`Closed`] if the sink has stopped.
    pub fn finish(mut self, sink: &mut impl PartSink) -> Result<PackedTotals, Closed> {
        if self.object_len > 0 {
            self.emit(true, sink)?;
        }
        let sums = if self.object > MAX_SUMS as u64 { Vec::new() } else { self.sums };
        Ok(PackedTotals { objects: self.object, bytes: self.bytes, root: self.root.finish(), sums })
    }

    fn emit(&mut self, end: bool, sink: &mut impl PartSink) -> Result<(), Closed> {
        sink.part(Part {
            object: Arc::clone(&self.key),
            index: self.part_index,
            payload: std::mem::take(&mut self.payload),
            end,
        })?;
        self.part_index += 1;
        self.part_len = 0;
        if end {
            self.root.object(self.object_len, self.object_crc);
            if self.sums.len() < MAX_SUMS {
                self.sums.push(self.object_crc);
            }
            self.object += 1;
            self.key = object_key(self.object).into();
            self.object_len = 0;
            self.object_crc = 0;
            self.part_index = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cuts `input`, fed in pieces of the given lengths, and returns the objects as lists of parts.
    fn pack(
        input: &[u8],
        pieces: &[usize],
        chunk: u64,
        part: u64,
    ) -> (Vec<Vec<Vec<u8>>>, PackedTotals) {
        let mut objects: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut ended = true;
        let mut sink = |p: Part| {
            if p.index == 0 {
                assert!(ended, "the object before was not ended");
                assert_eq!(*p.object, object_key(objects.len() as u64));
                objects.push(Vec::new());
            }
            let parts = objects.last_mut().unwrap();
            assert_eq!(parts.len(), p.index as usize);
            parts.push(p.payload.concat());
            ended = p.end;
            Ok(())
        };
        let mut packer = Packer::new(ObjectSize::new(chunk), part);
        let mut rest = Bytes::copy_from_slice(input);
        for &len in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let piece = rest.split_to(len.clamp(1, rest.len()));
            let crc = (len % 2 == 0).then(|| checksum::crc64(&piece));
            packer.push(piece, crc, &mut sink).unwrap();
        }
        let packed = packer.finish(&mut sink).unwrap();
        assert!(ended, "the last object was not ended");
        (objects, packed)
    }

    proptest! {
        /// The product's promise: all objects have the requested size, whatever the input.
        #[test]
        fn objects_have_exactly_the_size_asked_for(
            input in proptest::collection::vec(any::<u8>(), 0..5000),
            pieces in proptest::collection::vec(1_usize..700, 1..8),
            chunk in 1_u64..900,
            part in 1_u64..900,
        ) {
            let (objects, packed) = pack(&input, &pieces, chunk, part);
            let whole: Vec<Vec<u8>> = objects.iter().map(|parts| parts.concat()).collect();
            prop_assert_eq!(whole.concat(), input.clone());
            prop_assert_eq!(whole.len() as u64, (input.len() as u64).div_ceil(chunk));
            for (n, object) in whole.iter().enumerate() {
                let last = n + 1 == whole.len();
                let fits = if last { object.len() as u64 <= chunk } else { object.len() as u64 == chunk };
                prop_assert!(fits);
            }
            for parts in &objects {
                let (tail, equal) = parts.split_last().unwrap();
                prop_assert!(equal.iter().all(|p| p.len() as u64 == part));
                prop_assert!(!tail.is_empty() && tail.len() as u64 <= part);
            }
            let mut root = RootDigest::default();
            whole.iter().for_each(|o| root.object(o.len() as u64, checksum::crc64(o)));
            let sums = whole.iter().map(|o| checksum::crc64(o)).collect();
            prop_assert_eq!(packed, PackedTotals { objects: whole.len() as u64, bytes: input.len() as u64, root: root.finish(), sums });
        }
    }

    #[test]
    fn a_stopped_sink_stops_the_packer() {
        let mut packer = Packer::new(ObjectSize::new(4), 4);
        let mut sink = |_| Err(Closed);
        assert_eq!(packer.push(Bytes::from_static(b"abcde"), None, &mut sink), Err(Closed));
    }
}
