//! `.lz4`: a sequence of frames of the LZ4 frame format. All numbers are little-endian.
//!
//! ```text
//! frame    u32 magic, FLG, BD, u64 content size if any, one byte of XXH32
//!          blocks: u32 length, bytes, u32 XXH32 of the bytes if any
//!          u32 0, u32 XXH32 of the content if any
//! ```
//!
//! The decoder reads everything that the `lz4` program writes except dictionaries and the legacy
//! format. xtrabackup writes frames with independent blocks, content size and content checksum.

use std::hash::Hasher;

use twox_hash::XxHash32;

use super::State;
use super::decoder_loop::DecoderLoop;
use super::input_buffer::{Block, InputBuffer, OutputWindow, take};
use super::lz4_frame::{
    BLOCK_CHECKSUM, CONTENT_CHECKSUM, CONTENT_SIZE, DICTIONARY, END_MARK, INDEPENDENT, MAGIC, RAW,
    RESERVED, SKIPPABLE, VERSION, VERSION_1, WINDOW, block_max, descriptor_sum,
};
use crate::error::{CodecError, ErrorLocation, Format, lz4_error};

pub(super) struct Decoder {
    part: Part,
    /// Offset of the part in the member.
    at: u64,
    frame: Frame,
    field: InputBuffer,
    block: Block,
    held: OutputWindow,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Magic,
    SkipLen,
    Skip(u64),
    /// FLG and BD, which determine the length of the descriptor.
    Descriptor,
    BlockLen,
    Block {
        len: usize,
        raw: bool,
    },
    ContentChecksum,
}

/// The fields of the current frame's descriptor, and the state of its content.
struct Frame {
    flags: u8,
    block_max: usize,
    /// Size of the content, if stated.
    size: Option<u64>,
    plain: u64,
    sum: XxHash32,
    /// The last bytes of the content so far, if blocks refer back to earlier ones.
    past: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            part: Part::Magic,
            at: 0,
            frame: Frame::new(0, 0, None, Vec::new()),
            field: InputBuffer::default(),
            block: Block::default(),
            held: OutputWindow::default(),
        }
    }
}

impl Decoder {
    /// Names the part that would be incomplete if the input ended here.
    pub(super) fn missing(&self) -> Option<&'static str> {
        if !self.held.is_empty() {
            return Some("a block was returned that was not handed out");
        }
        match self.part {
            Part::Magic if self.field.is_empty() => None,
            Part::Magic | Part::Descriptor => Some("a frame header"),
            Part::SkipLen | Part::Skip(_) => Some("a skippable frame"),
            Part::BlockLen => Some("the blocks of a frame"),
            Part::Block { .. } => Some("a block"),
            Part::ContentChecksum => Some("a content checksum"),
        }
    }
}

impl DecoderLoop for Decoder {
    fn give(&mut self, out: &mut [u8]) -> usize {
        self.held.give(out)
    }

    fn pause(&self, _input: &[u8], granted: u64) -> Result<Option<State>, CodecError> {
        let memory = self.frame.memory();
        let wanted = matches!(self.part, Part::Block { .. }) && memory > granted;
        Ok(wanted.then_some(State::NeedsMemory(memory)))
    }

    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        match self.part {
            Part::Magic => {
                let Some(magic) = self.field.field(input) else { return Ok(None) };
                match u32::from_le_bytes(magic) {
                    MAGIC => self.pass(4, Part::Descriptor),
                    number if number & !15 == SKIPPABLE => self.pass(4, Part::SkipLen),
                    _ => {
                        let (place, got) = (self.place(), magic.to_vec());
                        return Err(CodecError::Magic { place, part: "an lz4 frame", got });
                    }
                }
            }
            Part::SkipLen => {
                let Some(len) = self.field.field(input) else { return Ok(None) };
                self.pass(4, Part::Skip(u32::from_le_bytes(len).into()));
            }
            Part::Skip(0) => self.part = Part::Magic,
            Part::Skip(left) => {
                let taken = take(input, usize::try_from(left).unwrap_or(usize::MAX)).len() as u64;
                if taken == 0 {
                    return Ok(None);
                }
                self.pass(taken, Part::Skip(left.saturating_sub(taken)));
            }
            Part::Descriptor => {
                let Some(len) = self.descriptor(input)? else { return Ok(None) };
                self.field.clear();
                self.pass(len, Part::BlockLen);
            }
            Part::BlockLen => {
                let Some(len) = self.field.field(input) else { return Ok(None) };
                self.block_len(u32::from_le_bytes(len))?;
            }
            Part::Block { len, raw } => return self.block(input, out, len, raw),
            Part::ContentChecksum => {
                let Some(sum) = self.field.field(input) else { return Ok(None) };
                let (expected, got) = (u32::from_le_bytes(sum), self.frame.sum.finish_32());
                if expected != got {
                    let (place, part) = (self.place(), "the content");
                    return Err(CodecError::Checksum { place, part, expected, got });
                }
                self.pass(4, Part::Magic);
            }
        }
        Ok(Some(0))
    }
}

impl Decoder {
    /// Returns the descriptor's length once it is complete and valid.
    fn descriptor(&mut self, input: &mut &[u8]) -> Result<Option<u64>, CodecError> {
        let place = self.place();
        let Some(&[flags, _]) = self.field.fill(input, 2).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        if flags & VERSION != VERSION_1 {
            let got = u64::from(flags >> 6);
            return Err(CodecError::Unsupported { place, field: "frame version", got });
        }
        let sized = flags & CONTENT_SIZE != 0;
        let dictionary = flags & DICTIONARY != 0;
        let len = 2 + if sized { 8 } else { 0 } + if dictionary { 4 } else { 0 };
        let Some(whole) = self.field.fill(input, len + 1) else { return Ok(None) };
        let (descriptor, sum) = whole.split_at(len);
        let expected = sum.first().copied().unwrap_or_default().into();
        let got = descriptor_sum(descriptor).into();
        if expected != got {
            let part = "the frame header";
            return Err(CodecError::Checksum { place, part, expected, got });
        }

        // The header checksum matches, so the rest is what the writer meant.
        let (size, id) =
            descriptor.get(2..).unwrap_or_default().split_at(if sized { 8 } else { 0 });
        if let Ok(id) = id.try_into() {
            let got = u32::from_le_bytes(id).into();
            return Err(CodecError::Unsupported { place, field: "dictionary", got });
        }
        let sizes = descriptor.get(1).copied().unwrap_or_default();
        if flags & RESERVED != 0 || sizes & 0x8f != 0 {
            let (field, got) = ("reserved bits of the frame header", u64::from(sizes & 0x8f));
            return Err(CodecError::Unsupported { place, field, got });
        }
        let code = sizes >> 4;
        let block_max = block_max(code).ok_or(CodecError::Range {
            place,
            field: "block size code",
            min: 4,
            max: 7,
            got: code.into(),
        })?;
        let size = size.try_into().ok().map(u64::from_le_bytes);
        let past = std::mem::take(&mut self.frame.past);
        self.frame = Frame::new(flags, block_max, size, past);
        Ok(Some(whole.len() as u64))
    }

    fn block_len(&mut self, number: u32) -> Result<(), CodecError> {
        let place = self.place();
        if number == END_MARK {
            if let Some(expected) = self.frame.size.filter(|&size| size != self.frame.plain) {
                return Err(CodecError::TooShort { place, expected, got: self.frame.plain });
            }
            let summed = self.frame.has(CONTENT_CHECKSUM);
            self.pass(4, if summed { Part::ContentChecksum } else { Part::Magic });
            return Ok(());
        }
        let len = u64::from(number & !RAW);
        let max = self.frame.block_max as u64;
        if len == 0 || len > max {
            let (field, min) = ("block length", 1);
            return Err(CodecError::Range { place, field, min, max, got: len });
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.pass(4, Part::Block { len, raw: number & RAW != 0 });
        Ok(())
    }

    fn block(
        &mut self,
        input: &mut &[u8],
        out: &mut [u8],
        len: usize,
        raw: bool,
    ) -> Result<Option<usize>, CodecError> {
        let place = self.place();
        let frame = &mut self.frame;
        let sum_len = if frame.has(BLOCK_CHECKSUM) { 4 } else { 0 };
        let Some(whole) = self.block.fill(input, len + sum_len) else { return Ok(None) };
        let (block, sum) = whole.split_at(len);
        if let Ok(sum) = sum.try_into() {
            let (expected, got) = (u32::from_le_bytes(sum), XxHash32::oneshot(0, block));
            if expected != got {
                return Err(CodecError::Checksum { place, part: "the block", expected, got });
            }
        }

        let most = frame.room();
        let direct = out.len() >= most;
        let room = match direct {
            true => out.get_mut(..most).unwrap_or_default(),
            false => self.held.room(most),
        };
        let too_long = CodecError::TooLong { place, expected: most as u64 };
        let plain_len = if raw {
            room.get_mut(..len).ok_or(too_long)?.copy_from_slice(block);
            len
        } else {
            lz4_flex::block::decompress_into_with_dict(block, room, &frame.past)
                .map_err(|error| lz4_error(place, &error, most))?
        };
        frame.take(room.get(..plain_len).unwrap_or_default());
        if !direct {
            self.held.hold(plain_len);
        }
        self.block.clear();
        self.pass((len + sum_len) as u64, Part::BlockLen);
        Ok(Some(if direct { plain_len } else { 0 }))
    }

    fn pass(&mut self, len: u64, next: Part) {
        self.at += len;
        self.part = next;
    }

    fn place(&self) -> ErrorLocation {
        ErrorLocation::new(Format::Lz4, self.at)
    }
}

impl Frame {
    /// `past` is passed in only to reuse its allocation.
    fn new(flags: u8, block_max: usize, size: Option<u64>, mut past: Vec<u8>) -> Self {
        past.clear();
        Self { flags, block_max, size, plain: 0, sum: XxHash32::with_seed(0), past }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Maximum memory that the decoder may hold: a block, its plain bytes, the end of earlier
    /// blocks.
    fn memory(&self) -> u64 {
        2 * (self.block_max as u64 + WINDOW as u64)
    }

    /// Maximum number of plain bytes in the next block.
    fn room(&self) -> usize {
        let left = self.size.map_or(u64::MAX, |size| size.saturating_sub(self.plain));
        usize::try_from(left).unwrap_or(usize::MAX).min(self.block_max)
    }

    /// Accounts for the plain bytes of a block.
    fn take(&mut self, plain: &[u8]) {
        self.plain += plain.len() as u64;
        if self.has(CONTENT_CHECKSUM) {
            self.sum.write(plain);
        }
        if !self.has(INDEPENDENT) {
            let plain = plain.get(plain.len().saturating_sub(WINDOW)..).unwrap_or_default();
            let kept = (WINDOW - plain.len()).min(self.past.len());
            self.past.drain(..self.past.len() - kept);
            self.past.extend_from_slice(plain);
        }
    }
}
