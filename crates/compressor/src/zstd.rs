//! Zstandard for both blocks and members: the frame header (RFC 8878, section 3.1.1.1), and single
//! frames over libzstd.

use ::zstd::zstd_safe::{CCtx, CParameter, DCtx, get_error_name};

use crate::ZstdLevel;
use crate::block_codec::MAX_BLOCK_PLAIN;
use crate::error::{CodecError, ErrorLocation, Format};

pub(crate) const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Magic and descriptor, which determine the length of the header.
pub(crate) const HEAD_START: usize = 5;
/// The longest header: magic 4, descriptor 1, window 1, dictionary 4, content size 8.
pub(crate) const MAX_HEAD: usize = 18;

// Numbers of libzstd's errors (zstd_errors.h), which are stable since 1.3.1.
const ERROR_CHECKSUM: usize = 22;
const ERROR_MEMORY: usize = 64;
const ERROR_OUTPUT_TOO_SMALL: usize = 70;
const ERROR_INPUT_TOO_SHORT: usize = 72;

/// Returns libzstd's message and the number of the error.
fn explain(code: usize) -> (usize, &'static str) {
    (code.wrapping_neg(), get_error_name(code))
}

/// Converts a decoder error of libzstd.
pub(crate) fn damaged(place: ErrorLocation, code: usize) -> CodecError {
    match explain(code) {
        (ERROR_MEMORY, what) => CodecError::Failed { place, what },
        (ERROR_CHECKSUM, _) => {
            CodecError::Damaged { place, what: "the content does not match its checksum" }
        }
        (_, what) => CodecError::Damaged { place, what },
    }
}

/// Returns the length of the frame header that begins with these bytes.
///
/// # Errors
///
/// [`CodecError::Magic`], or an error for reserved bits that are set.
pub(crate) fn head_len(place: ErrorLocation, start: [u8; HEAD_START]) -> Result<usize, CodecError> {
    let [magic @ .., descriptor] = start;
    if magic != MAGIC {
        return Err(CodecError::Magic { place, part: "a zstd frame", got: magic.to_vec() });
    }
    let bits = Descriptor(descriptor);
    if descriptor & 0x08 != 0 {
        let (field, expected, got) = ("reserved bit of the frame header", 0, 1);
        return Err(CodecError::Mismatch { place, field, expected, got });
    }
    Ok(HEAD_START + bits.window_len() + bits.dictionary_len() + bits.content_size_len())
}

/// The byte after the magic.
#[derive(Clone, Copy)]
struct Descriptor(u8);

impl Descriptor {
    /// Returns whether the content is a single segment: then the window is as large as the content.
    fn single_segment(self) -> bool {
        self.0 & 0x20 != 0
    }

    fn window_len(self) -> usize {
        usize::from(!self.single_segment())
    }

    fn dictionary_len(self) -> usize {
        match self.0 & 0x03 {
            3 => 4,
            len => len.into(),
        }
    }

    fn content_size_len(self) -> usize {
        match self.0 >> 6 {
            0 => usize::from(self.single_segment()),
            flag => 1 << flag,
        }
    }
}

/// The fields of a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Window size: bytes of past content that the decoder must keep.
    pub(crate) window: u64,
    /// Length of the plain content, if stated.
    pub(crate) content_size: Option<u64>,
}

/// Parses a complete header, whose length [`head_len`] has returned.
///
/// # Errors
///
/// [`CodecError::Unsupported`] when the frame needs a dictionary, [`CodecError::Range`] when its
/// window is larger than `max_window`, [`CodecError::Cut`] when bytes are missing.
pub(crate) fn parse_head(
    place: ErrorLocation,
    head: &[u8],
    max_window: u64,
) -> Result<Head, CodecError> {
    let cut = CodecError::Cut { place, part: "a frame header" };
    let mut rest = head.get(HEAD_START - 1..).unwrap_or_default();
    let mut number = |len: usize| {
        let (field, after) = rest.split_at_checked(len)?;
        rest = after;
        Some(field.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte)))
    };
    let mut fields = || {
        let bits = Descriptor(u8::try_from(number(1)?).ok()?);
        let window = number(bits.window_len())?;
        let dictionary = number(bits.dictionary_len())?;
        let content_size = number(bits.content_size_len())?;
        Some((bits, window, dictionary, content_size))
    };
    let Some((bits, window, dictionary, content_size)) = fields() else { return Err(cut) };
    if dictionary != 0 {
        return Err(CodecError::Unsupported { place, field: "dictionary", got: dictionary });
    }
    let content_size = match bits.content_size_len() {
        0 => None,
        2 => Some(content_size + 256),
        _ => Some(content_size),
    };
    let window = match content_size {
        Some(size) if bits.single_segment() => size,
        _ => {
            // The upper five bits are the exponent above 1 KiB, the lower three count eighths of
            // that.
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * (window & 7)
        }
    };
    if window > max_window {
        let (field, min, max, got) = ("window", 0, max_window, window);
        return Err(CodecError::Range { place, field, min, max, got });
    }
    Ok(Head { window, content_size })
}

/// Whether frames end with a checksum of their content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checksum {
    Yes,
    No,
}

/// Returns the memory in bytes that an encoder needs for slices of up to `len` bytes, beyond input
/// and output. libzstd decides by level and length, so this encodes one slice; strong levels take
/// some milliseconds.
pub(crate) fn working_memory(level: ZstdLevel, len: usize) -> u64 {
    let place = ErrorLocation::block(Format::ZstdFrame);
    let Ok(mut encoder) = Encoder::new(place, level, Checksum::No) else { return 0 };
    // Whether the result fits does not matter.
    let _ = encoder.encode(&vec![0; len], &mut [0; 1024]);
    encoder.context.sizeof() as u64
}

/// Encodes each slice as one frame.
pub(crate) struct Encoder {
    context: CCtx<'static>,
    place: ErrorLocation,
}

impl Encoder {
    pub(crate) fn new(
        place: ErrorLocation,
        level: ZstdLevel,
        checksum: Checksum,
    ) -> Result<Self, CodecError> {
        let mut context = CCtx::try_create()
            .ok_or(CodecError::Failed { place, what: "not enough memory for a zstd context" })?;
        for parameter in [
            CParameter::CompressionLevel(level.get().into()),
            CParameter::ChecksumFlag(checksum == Checksum::Yes),
            CParameter::ContentSizeFlag(true),
        ] {
            context.set_parameter(parameter).map_err(|code| failed(place, code))?;
        }
        Ok(Self { context, place })
    }

    /// Changes the level for the frames from now on.
    pub(crate) fn set_level(&mut self, level: ZstdLevel) -> Result<(), CodecError> {
        let parameter = CParameter::CompressionLevel(level.get().into());
        let set = self.context.set_parameter(parameter);
        set.map(drop).map_err(|code| failed(self.place, code))
    }

    /// Writes one frame to the front of `out`. Returns its length, or `None` when it does not fit.
    pub(crate) fn encode(
        &mut self,
        plain: &[u8],
        out: &mut [u8],
    ) -> Result<Option<usize>, CodecError> {
        match self.context.compress2(out, plain) {
            Ok(len) => Ok(Some(len)),
            Err(code) if explain(code).0 == ERROR_OUTPUT_TOO_SMALL => Ok(None),
            Err(code) => Err(failed(self.place, code)),
        }
    }
}

fn failed(place: ErrorLocation, code: usize) -> CodecError {
    CodecError::Failed { place, what: explain(code).1 }
}

/// Decodes single frames whose length is known.
pub(crate) struct BlockDecoder {
    context: DCtx<'static>,
}

impl BlockDecoder {
    pub(crate) fn new() -> Result<Self, CodecError> {
        let place = ErrorLocation::block(Format::ZstdFrame);
        let context = DCtx::try_create()
            .ok_or(CodecError::Failed { place, what: "not enough memory for a zstd context" })?;
        Ok(Self { context })
    }

    pub(crate) fn decode(&mut self, stored: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let place = ErrorLocation::block(Format::ZstdFrame);
        let cut = CodecError::Cut { place, part: "the frame" };
        let expected = out.len() as u64;

        // libzstd itself would accept several frames here, including skippable ones.
        let start = stored.first_chunk().ok_or(cut.clone())?;
        let head = stored.get(..head_len(place, *start)?).ok_or(cut.clone())?;
        let head = parse_head(place, head, MAX_BLOCK_PLAIN as u64)?;
        if let Some(got) = head.content_size.filter(|&size| size != expected) {
            return Err(CodecError::Mismatch { place, field: "content size", expected, got });
        }
        match ::zstd::zstd_safe::find_frame_compressed_size(stored) {
            Ok(len) if len == stored.len() => {}
            Ok(_) => return Err(CodecError::Trailing { place }),
            Err(code) if explain(code).0 == ERROR_INPUT_TOO_SHORT => return Err(cut),
            Err(code) => return Err(damaged(place, code)),
        }
        match self.context.decompress(out, stored) {
            Ok(len) if len as u64 == expected => Ok(()),
            Ok(len) => Err(CodecError::TooShort { place, expected, got: len as u64 }),
            Err(code) if explain(code).0 == ERROR_OUTPUT_TOO_SMALL => {
                Err(CodecError::TooLong { place, expected })
            }
            Err(code) => Err(damaged(place, code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: ErrorLocation = ErrorLocation { format: Format::ZstdFrame, position: 0 };

    fn head(bytes: &[u8]) -> Result<Head, CodecError> {
        let bytes = [&MAGIC[..], bytes].concat();
        let len = head_len(PLACE, *bytes.first_chunk().unwrap())?;
        assert_eq!(len, bytes.len());
        parse_head(PLACE, &bytes, 128 << 20)
    }

    #[test]
    fn strong_levels_need_memory_by_length() {
        let pages = xb_testkit::data::pages(1, 4 << 20);
        let mut out = vec![0; pages.len()];
        for (number, len, most) in [(1, 1, 1), (8, 1, 6), (9, 1, 11), (19, 1, 18), (19, 4, 50)] {
            let (level, len) = (ZstdLevel::new(number).unwrap(), len << 20);
            let planned = working_memory(level, len);
            let mut encoder = Encoder::new(PLACE, level, Checksum::No).unwrap();
            encoder.encode(&pages[..len], &mut out).unwrap();
            assert_eq!(planned, encoder.context.sizeof() as u64, "level {number}");
            assert!(planned <= most << 20, "level {number}: {planned}");
        }
    }

    #[test]
    fn heads() {
        let is = |window, content_size| Ok(Head { window, content_size });
        assert_eq!(head(&[0x20, 7]), is(7, Some(7)));
        assert_eq!(head(&[0x60, 1, 0]), is(257, Some(257)));
        assert_eq!(head(&[0xa0, 0, 0, 1, 0]), is(65536, Some(65536)));
        assert_eq!(head(&[0x04, 0x00]), is(1024, None));
        assert_eq!(head(&[0x04, 0x51]), is((1 << 20) + (1 << 17), None));
        assert_eq!(head(&[0xc0, 0x88, 9, 0, 0, 0, 0, 0, 0, 0]), is(128 << 20, Some(9)));
        // A dictionary number of 0 means none.
        assert_eq!(head(&[0x01, 0x00, 0]), is(1024, None));
    }

    #[test]
    fn heads_that_are_refused() {
        assert_eq!(
            head(&[0x03, 0x00, 1, 2, 0, 0]),
            Err(CodecError::Unsupported { place: PLACE, field: "dictionary", got: 513 })
        );
        let window = |got| {
            Err(CodecError::Range { place: PLACE, field: "window", min: 0, max: 128 << 20, got })
        };
        assert_eq!(head(&[0x00, 0x89]), window((128 << 20) + (16 << 20)));
        assert_eq!(head(&[0x00, 0xff]), window((1 << 41) + (7 << 38)));
        let huge = [0xe0, 255, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(head(&huge), window(u64::MAX));
        assert!(matches!(
            head_len(PLACE, [0x28, 0xb5, 0x2f, 0xfd, 8]),
            Err(CodecError::Mismatch { .. })
        ));
        assert!(matches!(head_len(PLACE, *b"zzzzz"), Err(CodecError::Magic { .. })));
    }
}
