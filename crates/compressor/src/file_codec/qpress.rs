//! `.qp`: a qpress archive of one file. All numbers are little-endian.
//!
//! ```text
//! archive head   "qpress10", u64 most plain bytes in a block
//! file head      "F", u32 length of the name, the name, one 0 byte
//! block          "NEWBNEWB", u64 offset of the plain bytes, u32 Adler-32 of the packet, packet
//! trailer        "ENDSENDS", u64 0
//! ```
//!
//! A packet has a head of 3 or 9 bytes and is compressed independently of the others.

use super::decoder_loop::DecoderLoop;
use super::input_buffer::{Block, InputBuffer, OutputWindow, take};
use super::limits::FileCodecLimits;
use super::progress::State;
use super::quicklz;
use crate::error::{CodecError, ErrorLocation, Format};

const ARCHIVE: [u8; 8] = *b"qpress10";
const BLOCK: [u8; 8] = *b"NEWBNEWB";
const TRAILER: [u8; 8] = *b"ENDSENDS";

/// Longest name allowed in a file head. File systems allow 255 bytes.
const MAX_NAME: u32 = 4096;
/// Maximum number of bytes by which a packet may exceed the plain bytes: writers store data that
/// grows.
const MAX_PACKET_EXCESS: u64 = 400;
/// Maximum number of plain bytes per byte of a packet: a match of 255 takes three bytes.
const MAX_RATIO: u64 = 85;

pub(super) struct Decoder {
    limits: FileCodecLimits,
    part: Part,
    /// Offset of the part in the member.
    at: u64,
    /// Plain bytes of all blocks so far.
    plain: u64,
    /// Maximum number of plain bytes in a block, from the archive head.
    block_size: u64,
    field: InputBuffer,
    packet: Block,
    table: quicklz::Table,
    held: OutputWindow,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    ArchiveHead,
    FileHead,
    /// Remaining bytes of the name, and then the 0 byte.
    Name(u32),
    BlockOrTrailer,
    BlockHead,
    /// The packet's head, with the expected Adler-32 of the packet.
    PacketHead(u32),
    PacketBody {
        adler: u32,
        head: PacketHead,
    },
    Trailer,
    End,
}

impl Decoder {
    pub(super) fn new(limits: FileCodecLimits) -> Self {
        Self {
            limits,
            part: Part::ArchiveHead,
            at: 0,
            plain: 0,
            block_size: 0,
            field: InputBuffer::default(),
            packet: Block::default(),
            table: quicklz::Table::default(),
            held: OutputWindow::default(),
        }
    }

    /// Names the part that would be incomplete if the input ended here.
    pub(super) fn missing(&self) -> Option<&'static str> {
        if !self.held.is_empty() {
            return Some("a block was returned that was not handed out");
        }
        match self.part {
            Part::ArchiveHead => Some("the archive header"),
            Part::FileHead | Part::Name(_) => Some("the file header"),
            Part::BlockOrTrailer if self.field.is_empty() => Some("the block sequence"),
            Part::BlockOrTrailer | Part::BlockHead => Some("a block header"),
            Part::PacketHead(_) | Part::PacketBody { .. } => Some("a packet"),
            Part::Trailer => Some("the trailer"),
            Part::End => None,
        }
    }
}

impl DecoderLoop for Decoder {
    fn give(&mut self, out: &mut [u8]) -> usize {
        self.held.give(out)
    }

    fn pause(&self, input: &[u8], granted: u64) -> Result<Option<State>, CodecError> {
        match self.part {
            Part::End if !input.is_empty() => Err(CodecError::Trailing { place: self.place() }),
            Part::End => Ok(Some(State::Finished)),
            _ => Ok((self.memory() > granted).then(|| State::NeedsMemory(self.memory()))),
        }
    }

    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        match self.part {
            Part::ArchiveHead => {
                let Some(head) = self.field.field::<16>(input) else { return Ok(None) };
                let (magic, size) = halves(head);
                self.expect_magic("a qpress archive", ARCHIVE, magic)?;
                self.block_size = u64::from_le_bytes(size);
                self.pass(16, Part::FileHead);
            }
            Part::FileHead => {
                let Some([kind, len @ ..]) = self.field.field::<5>(input) else { return Ok(None) };
                if kind != b'F' {
                    // A folder, or the end of one: these occur in other archives, but not in
                    // backups.
                    return Err(self.magic("a file header", &[kind]));
                }
                let len = u32::from_le_bytes(len);
                self.range("name length", 0, MAX_NAME.into(), len.into())?;
                self.pass(5, Part::Name(len));
            }
            Part::Name(0) => {
                let Some([end]) = self.field.field::<1>(input) else { return Ok(None) };
                self.expect("byte after the name", 0, end.into())?;
                self.pass(1, Part::BlockOrTrailer);
            }
            Part::Name(left) => {
                let taken = take(input, usize::try_from(left).unwrap_or(usize::MAX)).len() as u64;
                if taken == 0 {
                    return Ok(None);
                }
                let left = u64::from(left).saturating_sub(taken);
                self.pass(taken, Part::Name(u32::try_from(left).unwrap_or(0)));
            }
            Part::BlockOrTrailer => {
                let Some(magic) = self.field.field::<8>(input) else { return Ok(None) };
                match magic {
                    BLOCK => self.pass(8, Part::BlockHead),
                    TRAILER => self.pass(8, Part::Trailer),
                    _ if magic[0] == b'F' => {
                        let (place, field) = (self.place(), "file number");
                        return Err(CodecError::Unsupported { place, field, got: 2 });
                    }
                    _ => return Err(self.magic("a block or the trailer", &magic)),
                }
            }
            Part::BlockHead => {
                let Some(head) = self.field.field::<12>(input) else { return Ok(None) };
                let (offset, adler) = head.split_at(8);
                let offset = u64::from_le_bytes(offset.try_into().unwrap_or_default());
                self.expect("block offset", self.plain, offset)?;
                let adler = u32::from_le_bytes(adler.try_into().unwrap_or_default());
                self.pass(12, Part::PacketHead(adler));
            }
            Part::PacketHead(adler) => {
                let Some(head) = self.packet_head(input)? else { return Ok(None) };
                // Errors name the packet as a whole: its head and body share one position.
                self.part = Part::PacketBody { adler, head };
            }
            Part::PacketBody { adler, head } => return self.packet(input, out, adler, head),
            Part::Trailer => {
                let Some(zero) = self.field.field::<8>(input) else { return Ok(None) };
                self.expect("trailer number", 0, u64::from_le_bytes(zero))?;
                self.pass(8, Part::End);
            }
            Part::End => return Ok(None),
        }
        Ok(Some(0))
    }
}

impl Decoder {
    /// Reads the packet's head. It stays in the input buffer, because the Adler-32 covers it.
    fn packet_head(&mut self, input: &mut &[u8]) -> Result<Option<PacketHead>, CodecError> {
        let Some(&[flags]) = self.field.fill(input, 1).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let long = flags & LONG != 0;
        let Some(head) = self.field.fill(input, if long { 9 } else { 3 }) else { return Ok(None) };
        let numbers = head.get(1..).unwrap_or_default();
        let number = |bytes: &[u8]| {
            bytes.iter().rev().fold(0_u32, |number, &byte| number << 8 | u32::from(byte))
        };
        let (packet_len, plain_len) = numbers.split_at(numbers.len() / 2);
        let (packet_len, plain_len) = (number(packet_len), number(plain_len));

        if flags & LEVEL != LEVEL_1 {
            let (place, field) = (self.place(), "quicklz level");
            return Err(CodecError::Unsupported { place, field, got: (flags >> 2 & 3).into() });
        }
        self.expect("packet flags", FIXED.into(), (flags & !(COMPRESSED | LONG | LEVEL)).into())?;
        let most = self.block_size.min(self.limits.max_qpress_block.into());
        self.range("plain packet length", 1, most, plain_len.into())?;
        let head_len: u8 = if long { 9 } else { 3 };
        let compressed = flags & COMPRESSED != 0;
        if compressed {
            let least = u64::from(head_len) + u64::from(plain_len).div_ceil(MAX_RATIO);
            let most = u64::from(plain_len) + MAX_PACKET_EXCESS;
            self.range("packet length", least, most, packet_len.into())?;
        } else {
            let stored = u64::from(plain_len) + u64::from(head_len);
            self.expect("packet length", stored, packet_len.into())?;
        }
        Ok(Some(PacketHead { head_len, compressed, packet_len, plain_len }))
    }

    fn packet(
        &mut self,
        input: &mut &[u8],
        out: &mut [u8],
        adler: u32,
        head: PacketHead,
    ) -> Result<Option<usize>, CodecError> {
        let place = self.place();
        let size = |len: u32| usize::try_from(len).unwrap_or(usize::MAX);
        let body_len = size(head.packet_len).saturating_sub(head.head_len.into());
        let Some(body) = self.packet.fill(input, body_len) else { return Ok(None) };

        let mut sum = simd_adler32::Adler32::new();
        sum.write(self.field.fill(&mut &[][..], head.head_len.into()).unwrap_or_default());
        sum.write(body);
        if sum.finish() != adler {
            let (expected, got) = (adler, sum.finish());
            return Err(CodecError::Checksum { place, part: "the packet", expected, got });
        }

        let plain_len = size(head.plain_len);
        let direct = out.len() >= plain_len;
        let room = match direct {
            true => out.get_mut(..plain_len).unwrap_or_default(),
            false => self.held.room(plain_len),
        };
        if head.compressed {
            quicklz::decode(body, room, &mut self.table)
                .map_err(|what| CodecError::Damaged { place, what })?;
        } else if body.len() == room.len() {
            room.copy_from_slice(body);
        }
        if !direct {
            self.held.hold(plain_len);
        }
        self.field.clear();
        self.packet.clear();
        self.plain += u64::from(head.plain_len);
        self.pass(head.packet_len.into(), Part::BlockOrTrailer);
        Ok(Some(if direct { plain_len } else { 0 }))
    }

    /// Memory that the current packet needs: the packet, its plain bytes, the table.
    fn memory(&self) -> u64 {
        match self.part {
            Part::PacketBody { head, .. } => {
                let bytes = u64::from(head.packet_len) + u64::from(head.plain_len);
                bytes + quicklz::Table::BYTES
            }
            _ => 0,
        }
    }

    fn pass(&mut self, len: u64, next: Part) {
        self.at += len;
        self.part = next;
    }

    fn place(&self) -> ErrorLocation {
        ErrorLocation::new(Format::Qpress, self.at)
    }

    fn magic(&self, part: &'static str, got: &[u8]) -> CodecError {
        CodecError::Magic { place: self.place(), part, got: got.to_vec() }
    }

    fn expect_magic(
        &self,
        part: &'static str,
        expected: [u8; 8],
        got: [u8; 8],
    ) -> Result<(), CodecError> {
        if got == expected { Ok(()) } else { Err(self.magic(part, &got)) }
    }

    fn expect(&self, field: &'static str, expected: u64, got: u64) -> Result<(), CodecError> {
        if got == expected {
            return Ok(());
        }
        Err(CodecError::Mismatch { place: self.place(), field, expected, got })
    }

    fn range(&self, field: &'static str, min: u64, max: u64, got: u64) -> Result<(), CodecError> {
        if (min..=max).contains(&got) {
            return Ok(());
        }
        Err(CodecError::Range { place: self.place(), field, min, max, got })
    }
}

fn halves(bytes: [u8; 16]) -> ([u8; 8], [u8; 8]) {
    let (left, right) = bytes.split_at(8);
    (left.try_into().unwrap_or_default(), right.try_into().unwrap_or_default())
}

// The first byte of a packet. Bits 4 and 5 are the size of a streaming buffer, which is never used.
const COMPRESSED: u8 = 1;
const LONG: u8 = 1 << 1;
const LEVEL: u8 = 3 << 2;
const LEVEL_1: u8 = 1 << 2;
const FIXED: u8 = 1 << 6;

#[derive(Debug, Clone, Copy)]
struct PacketHead {
    /// 3 or 9 bytes.
    head_len: u8,
    /// Whether the body is compressed; otherwise it is the plain bytes.
    compressed: bool,
    /// Length of the packet, including its head.
    packet_len: u32,
    plain_len: u32,
}
