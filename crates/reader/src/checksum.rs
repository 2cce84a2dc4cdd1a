//! Checksums of payloads.

use crc_fast::{CrcAlgorithm, Digest};

use crate::DecodeError;
use crate::chunk::{ChunkHead, ChunkKind, MAP_ENTRY_LEN, MapEntry};

pub(crate) const CRC: CrcAlgorithm = CrcAlgorithm::Crc32IsoHdlc;

/// The CRC-32 of zlib over `bytes`.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CRC);
    digest.update(bytes);
    value(&digest)
}

/// The result as the 32 bits it is; crc_fast hands out 64 for every width.
pub(crate) fn value(digest: &Digest) -> u32 {
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The checksum of one piece of a payload, made on its own, in any thread.
#[derive(Debug, Clone, Copy)]
pub struct PieceCheck(Digest);

impl PieceCheck {
    /// Sums up one piece.
    #[must_use]
    pub fn of(piece: &[u8]) -> Self {
        let mut digest = Digest::new(CRC);
        digest.update(piece);
        Self(digest)
    }

    /// Makes the piece longer.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Puts the next piece behind this one.
    pub fn append(&mut self, next: &PieceCheck) {
        self.0.combine(&next.0);
    }

    /// The CRC-32 of the piece, as it stands in the head of a chunk that holds nothing else.
    #[must_use]
    pub fn crc32(&self) -> u32 {
        value(&self.0)
    }
}

/// The checksum of one chunk, from its payload in pieces and in order.
///
/// ```
/// use xb_reader::{ChunkReader, Decoder, Dialect, Event, Limits, PayloadCheck, PieceCheck};
///
/// let mut stream = xb_reader::ChunkWriter::new(Vec::new());
/// stream.payload("f", 0, b"0123456789")?;
/// stream.end("f")?;
/// let stream = stream.finish()?;
///
/// let mut input = &stream[..];
/// let mut decoder = Decoder::new(Dialect::Auto, Limits::default());
/// let Some(Event::Head(head)) = decoder.next(&mut input)? else { panic!() };
/// let Some(Event::Data(payload)) = decoder.next(&mut input)? else { panic!() };
///
/// let mut check = PayloadCheck::new(&head);
/// check.update(&payload[..4]);
/// check.append(&PieceCheck::of(&payload[4..])); // may come from another thread
/// check.finish(&head)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PayloadCheck {
    digest: Digest,
    /// Whether nothing has been summed up yet, not even a map.
    fresh: bool,
}

impl PayloadCheck {
    /// Begins the check of `head`'s payload.
    #[must_use]
    pub fn new(head: &ChunkHead) -> Self {
        match &head.kind {
            // The sum goes on from the map. Its length never matters: only what is appended
            // counts.
            ChunkKind::Sparse { map_crc, .. } => {
                let digest = Digest::new_with_init_state(CRC, u64::from(!*map_crc));
                Self { digest, fresh: false }
            }
            _ => Self { digest: Digest::new(CRC), fresh: true },
        }
    }

    /// Takes the next piece of the payload.
    pub fn update(&mut self, piece: &[u8]) {
        self.digest.update(piece);
        self.fresh = false;
    }

    /// Takes the next piece of the payload, already summed up.
    pub fn append(&mut self, piece: &PieceCheck) {
        if self.fresh {
            // Most chunks of small files come in one piece, and combining costs as much as summing
            // up several hundred KiB.
            self.digest = piece.0;
            self.fresh = false;
        } else {
            self.digest.combine(&piece.0);
        }
    }

    /// Compares with what `head` says. Chunks without a checksum always pass: also ignored ones,
    /// of which nobody knows what their checksum covers.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Checksum`], with file and offset.
    pub fn finish(&self, head: &ChunkHead) -> Result<(), DecodeError> {
        let (offset, expected) = match head.kind {
            ChunkKind::Payload { offset, crc, .. } | ChunkKind::Sparse { offset, crc, .. } => {
                (offset, crc)
            }
            _ => return Ok(()),
        };
        let got = value(&self.digest);
        if got == expected {
            return Ok(());
        }
        let (position, path) = (head.position, head.path.clone());
        Err(DecodeError::Checksum { position, path, offset, expected, got })
    }
}

/// The checksum that a sparse chunk with this map and payload carries.
pub(crate) fn sparse_crc(map: &[MapEntry], payload: &[u8]) -> u32 {
    let mut digest = Digest::new(CRC);
    for entry in map {
        let mut raw = [0; MAP_ENTRY_LEN];
        raw[..4].copy_from_slice(&entry.skip.to_le_bytes());
        raw[4..].copy_from_slice(&entry.len.to_le_bytes());
        digest.update(&raw);
    }
    digest.update(payload);
    value(&digest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::RelPath;

    fn head(kind: ChunkKind) -> ChunkHead {
        let path = RelPath::new(b"f").unwrap();
        ChunkHead { position: 7, head_len: 35, flags: 0, path, kind }
    }

    #[test]
    fn known_value() {
        let mut piece = PieceCheck::of(b"1234");
        piece.update(b"56789");
        assert_eq!(piece.crc32(), 0xcbf4_3926);
        let mut pieces = PieceCheck::of(b"");
        ["12", "345", "", "6789"].iter().for_each(|p| pieces.append(&PieceCheck::of(p.as_bytes())));
        assert_eq!(pieces.crc32(), 0xcbf4_3926);
        // The check value that every table of CRC-32 variants gives for zlib's.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn pieces_add_up_in_every_way() {
        let payload: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let head = head(ChunkKind::Payload { offset: 3, len: 5000, crc: crc32(&payload) });
        for cut in [0, 1, 63, 4096, 4999, 5000] {
            let mut check = PayloadCheck::new(&head);
            check.update(&payload[..cut]);
            check.append(&PieceCheck::of(&payload[cut..]));
            check.finish(&head).unwrap();
            let mut check = PayloadCheck::new(&head);
            check.append(&PieceCheck::of(&payload[..cut]));
            check.append(&PieceCheck::of(&payload[cut..]));
            check.finish(&head).unwrap();
        }
    }

    #[test]
    fn sparse_sum_goes_on_from_the_map() {
        let map = [MapEntry { skip: 5, len: 3 }, MapEntry { skip: 9, len: 0 }];
        let mut raw = Vec::new();
        for n in [5_u32, 3, 9, 0] {
            raw.extend_from_slice(&n.to_le_bytes());
        }
        let map_crc = crc32(&raw);
        raw.extend_from_slice(b"abc");
        let crc = crc32(&raw);
        assert_eq!(sparse_crc(&map, b"abc"), crc);
        let head = head(ChunkKind::Sparse { offset: 0, len: 3, crc, map: Arc::from(map), map_crc });
        let mut check = PayloadCheck::new(&head);
        check.update(b"a");
        check.append(&PieceCheck::of(b"bc"));
        check.finish(&head).unwrap();
        let mut check = PayloadCheck::new(&head);
        check.append(&PieceCheck::of(b"abc"));
        check.finish(&head).unwrap();
    }

    #[test]
    fn a_wrong_sum_names_file_and_offset() {
        let head = head(ChunkKind::Payload { offset: 4096, len: 3, crc: 1 });
        let mut check = PayloadCheck::new(&head);
        check.update(b"abc");
        let error = check.finish(&head).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f: checksum mismatch in the chunk for file offset 4096 (stream offset 7): expected 00000001, got 352441c2"
        );
    }
}
