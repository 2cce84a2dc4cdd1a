//! `.zst`: a sequence of Zstandard frames (RFC 8878), over libzstd's streaming decoder.
//!
//! Frame headers are parsed here before libzstd gets them: to check the window that it would
//! allocate, and because libzstd does not report its position in a member.

use ::zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::decoder_loop::DecoderLoop;
use super::input_buffer::{InputBuffer, take};
use super::limits::FileCodecLimits;
use super::progress::State;
use crate::error::{CodecError, ErrorLocation, Format};
use crate::zstd::{HEAD_START, MAX_HEAD, damaged, head_len, parse_head};

/// First of the 16 magics of skippable frames.
const SKIPPABLE: u32 = 0x184D_2A50;
/// Memory that libzstd uses besides the window and two blocks: its context.
const CONTEXT: u64 = 192 << 10;
/// Maximum number of plain bytes in a block of a frame.
const MAX_BLOCK: u64 = 128 << 10;
/// Range of the maximum window that libzstd can be configured with. Its lower end is
/// `ZSTD_WINDOWLOG_ABSOLUTEMIN`.
const WINDOW_LOG: std::ops::RangeInclusive<u32> = 10..=30;

pub(super) struct Decoder {
    context: DCtx<'static>,
    max_window: u64,
    part: Part,
    /// Offset of the frame in the member.
    at: u64,
    /// Bytes of the frame taken so far.
    taken: u64,
    field: InputBuffer,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Magic,
    SkipLen,
    Skip(u64),
    Header,
    /// The header is complete and stays in the input buffer until this much memory is granted.
    Begin {
        header_len: usize,
        memory: u64,
    },
    /// libzstd may hold plain bytes that did not fit into the output.
    Content {
        more: bool,
    },
}

impl Decoder {
    pub(super) fn new(limits: FileCodecLimits) -> Result<Self, CodecError> {
        let place = ErrorLocation::new(Format::Zstd, 0);
        let failed = |what| CodecError::Failed { place, what };
        let mut context =
            DCtx::try_create().ok_or(failed("not enough memory for a zstd context"))?;
        // Its own limit, 128 MiB, must be raised for larger windows; our limit is exact.
        let log = limits.max_window.max(1).ilog2() + 1;
        let log = log.clamp(*WINDOW_LOG.start(), *WINDOW_LOG.end());
        context
            .set_parameter(DParameter::WindowLogMax(log))
            .map_err(|code| failed(::zstd::zstd_safe::get_error_name(code)))?;
        let (part, field) = (Part::Magic, InputBuffer::default());
        Ok(Self { context, max_window: limits.max_window, part, at: 0, taken: 0, field })
    }

    /// Names the part that would be incomplete if the input ended here.
    pub(super) fn missing(&self) -> Option<&'static str> {
        match self.part {
            Part::Magic if self.field.is_empty() => None,
            Part::Magic | Part::Header => Some("a frame header"),
            Part::Begin { .. } => Some("a frame"),
            Part::SkipLen | Part::Skip(_) => Some("a skippable frame"),
            Part::Content { .. } => Some("a frame"),
        }
    }
}

impl DecoderLoop for Decoder {
    fn give(&mut self, _out: &mut [u8]) -> usize {
        // Bytes that wait are held by libzstd.
        0
    }

    fn pause(&self, _input: &[u8], granted: u64) -> Result<Option<State>, CodecError> {
        match self.part {
            Part::Begin { memory, .. } if memory > granted => Ok(Some(State::NeedsMemory(memory))),
            _ => Ok(None),
        }
    }

    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        let before = input.len();
        let step = self.part(input, out)?;
        self.taken += (before - input.len()) as u64;
        match step {
            Step::Needs => Ok(None),
            Step::Wrote(written) => Ok(Some(written)),
            Step::FrameEnd(written) => {
                self.part = Part::Magic;
                self.at += std::mem::take(&mut self.taken);
                Ok(Some(written))
            }
        }
    }
}

impl Decoder {
    fn part(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Step, CodecError> {
        match self.part {
            Part::Magic => {
                let Some(magic) = self.field.fill(input, 4).and_then(<[u8]>::first_chunk) else {
                    return Ok(Step::Needs);
                };
                let skippable = u32::from_le_bytes(*magic) & !15 == SKIPPABLE;
                self.part = if skippable { Part::SkipLen } else { Part::Header };
            }
            Part::SkipLen => {
                let Some(&[_, _, _, _, len @ ..]) =
                    self.field.fill(input, 8).and_then(<[u8]>::first_chunk::<8>)
                else {
                    return Ok(Step::Needs);
                };
                self.field.clear();
                self.part = Part::Skip(u32::from_le_bytes(len).into());
            }
            Part::Skip(0) => return Ok(Step::FrameEnd(0)),
            Part::Skip(left) => {
                let taken = take(input, usize::try_from(left).unwrap_or(usize::MAX)).len() as u64;
                if taken == 0 {
                    return Ok(Step::Needs);
                }
                self.part = Part::Skip(left.saturating_sub(taken));
            }
            Part::Header => return self.header(input),
            Part::Begin { header_len, .. } => return self.begin(header_len),
            Part::Content { more } => {
                if input.is_empty() && !more {
                    return Ok(Step::Needs);
                }
                return self.content(input, out);
            }
        }
        Ok(Step::Wrote(0))
    }

    fn header(&mut self, input: &mut &[u8]) -> Result<Step, CodecError> {
        let place = self.place();
        // A wrong magic is an error even before the byte after it arrives.
        let start = self.field.fill(input, HEAD_START).and_then(<[u8]>::first_chunk).copied();
        let Some(start) = start else { return self.check_magic() };
        let len = head_len(place, start)?;
        let Some(head) = self.field.fill(input, len) else { return Ok(Step::Needs) };
        let window = parse_head(place, head, self.max_window)?.window;
        let memory = CONTEXT.saturating_add(window).saturating_add(2 * window.min(MAX_BLOCK));
        self.part = Part::Begin { header_len: len, memory };
        Ok(Step::Wrote(0))
    }

    /// Passes the header to libzstd, which then allocates its memory.
    fn begin(&mut self, len: usize) -> Result<Step, CodecError> {
        let head = self.field.fill(&mut &[][..], len).unwrap_or_default();
        let mut copy = [0; MAX_HEAD];
        let copy = copy.get_mut(..head.len()).unwrap_or_default();
        copy.copy_from_slice(head);
        self.field.clear();
        self.part = Part::Content { more: false };
        let mut header = &*copy;
        // The header alone does not produce plain bytes.
        self.content(&mut header, &mut [])
    }

    fn check_magic(&mut self) -> Result<Step, CodecError> {
        let magic = self.field.fill(&mut &[][..], 4).and_then(<[u8]>::first_chunk);
        if let Some(&[a, b, c, d]) = magic {
            head_len(self.place(), [a, b, c, d, 0])?;
        }
        Ok(Step::Needs)
    }

    fn content(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Step, CodecError> {
        let place = self.place();
        let room = out.len();
        let mut source = InBuffer::around(input);
        let mut target = OutBuffer::around(out);
        let hint = self.context.decompress_stream(&mut target, &mut source);
        let (taken, written) = (source.pos(), target.pos());
        take(input, taken);
        let hint = hint.map_err(|code| damaged(place, code))?;
        if hint == 0 {
            return Ok(Step::FrameEnd(written));
        }
        self.part = Part::Content { more: room > 0 && written == room };
        Ok(Step::Wrote(written))
    }

    fn place(&self) -> ErrorLocation {
        ErrorLocation::new(Format::Zstd, self.at)
    }
}

enum Step {
    Needs,
    Wrote(usize),
    FrameEnd(usize),
}
