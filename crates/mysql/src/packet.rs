//! Packets: a payload after its length, of 3 bytes, and a sequence number.
//!
//! A payload of 16 MiB - 1 or more is split: each piece that is full is followed by another one, which
//! may be empty. The sequence number counts the packets of both sides from the start of a command, and
//! wraps. (MySQL: "Protocol Basics", "MySQL Packets".)

use crate::error::Error;

/// Payload of a full piece, in bytes; another piece follows it.
const FULL: usize = 0xff_ffff;
const HEADER: usize = 4;

/// The largest packet that a server can send, in bytes: the maximum of `max_allowed_packet`.
pub const MAX_PACKET: usize = 1 << 30;
/// The largest packet of a server before it has accepted the account, in bytes. A greeting has some 100, an error at most
/// 512 and some, and the largest, the public key of `caching_sha2_password`, of 16,384 bits, has 3 KiB. Until then, anybody can
/// be at the other end.
pub(crate) const MAX_LOGIN_PACKET: usize = 16 << 10;

/// Turns bytes into packets and packets into bytes, for one connection.
#[derive(Debug)]
pub struct Packets {
    /// Sequence number of the next packet, of either side.
    sequence: u8,
    limit: usize,
    /// The header of the piece that is arriving, as far as it has arrived.
    header: [u8; HEADER],
    header_len: usize,
    /// Bytes of that piece that have not arrived.
    missing: usize,
    /// The packet that is arriving.
    payload: Vec<u8>,
}

/// Bytes of a packet, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part<'a> {
    /// The bytes; there may be none.
    pub bytes: &'a [u8],
    /// Whether the packet ends with them.
    pub is_last: bool,
}

impl<'a> Part<'a> {
    /// Bytes of a packet, which ends with them if `is_last`.
    #[must_use]
    pub fn new(bytes: &'a [u8], is_last: bool) -> Self {
        Self { bytes, is_last }
    }
}

impl Packets {
    /// Begins a connection on which no packet may have more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            sequence: 0,
            limit,
            header: [0; HEADER],
            header_len: 0,
            missing: 0,
            payload: Vec::new(),
        }
    }

    /// Limits the packets that have not begun to arrive to `limit` bytes each.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Begins a command: the next packet has number 0.
    pub fn begin_command(&mut self) {
        self.sequence = 0;
    }

    /// Begins an answer to a packet with number 0.
    pub(crate) fn begin_reply(&mut self) {
        self.sequence = 1;
    }

    /// Frames a payload, in as many pieces as it needs.
    #[must_use]
    pub fn frame(&mut self, payload: &[u8]) -> Vec<u8> {
        let pieces = payload.len() / FULL + 1;
        let mut out = Vec::with_capacity(payload.len() + pieces * HEADER);
        let mut rest = payload;
        for _ in 0..pieces {
            let (piece, others) = rest.split_at(rest.len().min(FULL));
            out.extend_from_slice(&piece.len().to_le_bytes()[..3]);
            out.push(self.next_sequence());
            out.extend_from_slice(piece);
            rest = others;
        }
        out
    }

    /// Takes bytes from the front of `input`, up to the end of one packet, and returns its payload;
    /// `None` if all bytes were taken and the packet is not complete.
    ///
    /// # Errors
    /// [`Error::TooLong`] before the bytes are kept, and [`Error::OutOfOrder`]. After an error the
    /// connection cannot be used.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, Error> {
        while let Some(part) = self.part(input)? {
            self.payload.extend_from_slice(part.bytes);
            if part.is_last {
                return Ok(Some(std::mem::take(&mut self.payload)));
            }
        }
        Ok(None)
    }

    /// Takes bytes from the front of `input`, up to the end of a piece of a packet, and returns them without
    /// keeping them; `None` if `input` has no more. A packet of any size passes in the memory of `input`.
    /// Between two packets, the caller may change between this and [`Packets::take`].
    ///
    /// # Errors
    /// As [`Packets::take`], but the limit holds for each piece of 16 MiB alone.
    pub fn part<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, Error> {
        if self.header_len < HEADER {
            let taken = split(input, HEADER - self.header_len);
            self.header[self.header_len..][..taken.len()].copy_from_slice(taken);
            self.header_len += taken.len();
            if self.header_len < HEADER {
                return Ok(None);
            }
            self.missing = self.begin_piece()?;
        }
        let bytes = split(input, self.missing);
        self.missing -= bytes.len();
        let is_whole = self.missing == 0;
        if is_whole {
            self.header_len = 0;
        }
        let is_last = is_whole && self.piece() < FULL;
        Ok((is_whole || !bytes.is_empty()).then_some(Part { bytes, is_last }))
    }

    /// Checks the header of a piece, and returns its length.
    fn begin_piece(&mut self) -> Result<usize, Error> {
        let (expected, found) = (self.next_sequence(), self.header[3]);
        if found != expected {
            return Err(Error::OutOfOrder { expected, found });
        }
        let piece = self.piece();
        if piece > self.limit.saturating_sub(self.payload.len()) {
            return Err(Error::TooLong { limit: self.limit });
        }
        Ok(piece)
    }

    /// Length of the piece that is arriving.
    fn piece(&self) -> usize {
        let [a, b, c, _] = self.header.map(usize::from);
        a | b << 8 | c << 16
    }

    fn next_sequence(&mut self) -> u8 {
        let next = self.sequence;
        self.sequence = next.wrapping_add(1);
        next
    }
}

/// Splits up to `count` bytes off the front.
fn split<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All packets of `bytes`, which arrive in pieces that end at `cuts`.
    fn packets(bytes: &[u8], cuts: &[usize], limit: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let (mut decoder, mut found, mut at) = (Packets::new(limit), Vec::new(), 0);
        for end in cuts.iter().copied().chain([bytes.len()]) {
            let end = end.clamp(at, bytes.len());
            let mut input = &bytes[at..end];
            at = end;
            loop {
                match decoder.take(&mut input) {
                    Ok(Some(packet)) => found.push(packet),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error.to_string())),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn a_payload_of_full_pieces_ends_with_an_empty_one() {
        for (size, pieces) in [(FULL - 1, 1), (FULL, 2), (FULL + 1, 2), (2 * FULL, 3)] {
            let payload = vec![7; size];
            let framed = Packets::new(0).frame(&payload);
            assert_eq!(framed.len(), size + pieces * HEADER);
            assert_eq!(packets(&framed, &[5, FULL, FULL + 6], MAX_PACKET), (vec![payload], None));
            let (mut decoder, mut input, mut parts) = (Packets::new(FULL), &framed[..], Vec::new());
            while let Some(part) = decoder.part(&mut input).unwrap() {
                parts.push((part.bytes.len(), part.is_last));
            }
            assert_eq!(parts.iter().map(|(len, _)| len).sum::<usize>(), size);
            let lasts: Vec<usize> =
                parts.iter().enumerate().filter(|(_, (_, last))| *last).map(|(n, _)| n).collect();
            assert_eq!(lasts, [pieces - 1]);
        }
    }

    #[test]
    fn a_packet_above_the_limit_is_refused_by_its_header() {
        let (mut decoder, mut header) = (Packets::new(100), &[101_u8, 0, 0, 0][..]);
        assert!(matches!(decoder.take(&mut header), Err(Error::TooLong { limit: 100 })));
        let framed = Packets::new(0).frame(&vec![0; FULL + 9]);
        assert!(packets(&framed, &[], FULL + 8).1.is_some());
        assert!(packets(&framed, &[], FULL + 9).1.is_none());
    }

    #[test]
    fn a_lost_or_repeated_packet_is_refused() {
        let mut encoder = Packets::new(0);
        let (first, _, third) = (encoder.frame(b"a"), encoder.frame(b"b"), encoder.frame(b"c"));
        for bytes in [[&first[..], &third].concat(), [&first[..], &first].concat()] {
            let (found, error) = packets(&bytes, &[], 100);
            assert_eq!(found, [b"a"]);
            assert!(error.is_some());
        }
    }

    #[test]
    fn the_sequence_wraps() {
        let mut encoder = Packets::new(0);
        let bytes: Vec<u8> = (0..600).flat_map(|_| encoder.frame(b"x")).collect();
        assert_eq!(packets(&bytes, &[], 1).0.len(), 600);
    }

    proptest! {
        #[test]
        fn every_split_of_the_bytes_gives_the_same_packets(
            payloads: Vec<Vec<u8>>,
            mut cuts in prop::collection::vec(0_usize..2000, 0..20),
        ) {
            let mut encoder = Packets::new(0);
            let bytes: Vec<u8> =
                payloads.iter().flat_map(|payload| encoder.frame(payload)).collect();
            cuts.sort_unstable();
            prop_assert_eq!(packets(&bytes, &cuts, MAX_PACKET), (payloads, None));
        }

        #[test]
        fn every_split_of_any_bytes_gives_the_same(
            bytes: Vec<u8>,
            mut cuts in prop::collection::vec(0_usize..200, 0..20),
        ) {
            cuts.sort_unstable();
            prop_assert_eq!(packets(&bytes, &cuts, 50), packets(&bytes, &[], 50));
        }

        #[test]
        fn parts_are_the_packets(
            payloads: Vec<Vec<u8>>,
            piece in 1_usize..40,
        ) {
            let mut encoder = Packets::new(0);
            let bytes: Vec<u8> =
                payloads.iter().flat_map(|payload| encoder.frame(payload)).collect();
            let (mut decoder, mut found, mut current) = (Packets::new(MAX_PACKET), Vec::new(), Vec::new());
            for mut input in bytes.chunks(piece) {
                while let Some(part) = decoder.part(&mut input).unwrap() {
                    current.extend_from_slice(part.bytes);
                    if part.is_last {
                        found.push(std::mem::take(&mut current));
                    }
                }
            }
            prop_assert_eq!(found, payloads);
            prop_assert_eq!(current, b"");
        }
    }
}
