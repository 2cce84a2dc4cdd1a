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

/// Returns the checksum as 32 bits; crc_fast returns 64 bits for every width.
pub(crate) fn value(digest: &Digest) -> u32 {
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The checksum of one piece of a payload. Any thread can compute it, independently of the others.
#[derive(Debug, Clone, Copy)]
pub struct PieceCheck(Digest);

impl PieceCheck {
    /// Computes the checksum of one piece.
    #[must_use]
    pub fn of(piece: &[u8]) -> Self {
        let mut digest = Digest::new(CRC);
        digest.update(piece);
        Self(digest)
    }

    /// Appends `bytes` to the piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Appends the piece that follows this one.
    pub fn append(&mut self, next: &PieceCheck) {
        self.0.combine(&next.0);
    }

    /// Returns the CRC-32 of the piece. A chunk whose payload is just this piece stores this value.
    #[must_use]
    pub fn crc32(&self) -> u32 {
        value(&self.0)
    }
}

/// The checksum of one chunk, computed from the pieces of its payload in order.
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
    /// Whether nothing was added yet, not even a map.
    fresh: bool,
}

impl PayloadCheck {
    /// Starts the checksum of `head`'s payload.
    #[must_use]
    pub fn new(head: &ChunkHead) -> Self {
        match &head.kind {
            // The checksum continues that of the map. The map's length does not matter: combining
            // needs only the length of what is appended.
            ChunkKind::Sparse { map_crc, .. } => {
                let digest = Digest::new_with_init_state(CRC, u64::from(!*map_crc));
                Self { digest, fresh: false }
            }
            _ => Self { digest: Digest::new(CRC), fresh: true },
        }
    }

    /// Adds the next piece of the payload.
    pub fn update(&mut self, piece: &[u8]) {
        self.digest.update(piece);
        self.fresh = false;
    }

    /// Adds the next piece of the payload, whose checksum is already computed.
    pub fn append(&mut self, piece: &PieceCheck) {
        if self.fresh {
            // Most chunks of small files have one piece, and combining takes as long as computing
            // the checksum of several hundred KiB.
            self.digest = piece.0;
            self.fresh = false;
        } else {
            self.digest.combine(&piece.0);
        }
    }

    /// Compares the checksum with the one in `head`. Chunks without a checksum always pass, and so
    /// do ignored chunks, because it is unknown what their checksum covers.
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

/// Returns the checksum that a sparse chunk with this map and payload carries.
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
        // The check value of zlib's CRC-32 in every table of CRC-32 variants.
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
