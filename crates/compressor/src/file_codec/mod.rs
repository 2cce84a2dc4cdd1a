//! Compressed members of stock backups: `.qp`, `.lz4`, `.zst`.

mod decoder_loop;
mod encode;
mod input_buffer;
mod limits;
mod lz4;
mod lz4_frame;
mod progress;
mod qpress;
mod quicklz;
mod zstd;

use std::fmt;

pub use encode::{FileCodec, FileEncoder, PIECE_PLAIN, PieceEncoder};
pub use limits::FileCodecLimits;
pub use progress::{Progress, State};

use crate::error::{CodecError, ErrorLocation, Format};
use decoder_loop::DecoderLoop as _;

/// The format of a compressed member, recognized by the last extension of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Member {
    /// A qpress archive of one file with QuickLZ packets; read only.
    Qpress,
    /// A sequence of LZ4 frames.
    Lz4,
    /// A sequence of Zstandard frames.
    Zstd,
}

impl Member {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Qpress, Self::Lz4, Self::Zstd];

    /// The extension of the name, including the dot.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Member::Qpress => ".qp",
            Member::Lz4 => ".lz4",
            Member::Zstd => ".zst",
        }
    }

    /// Splits a member's name or path into the part before the extension and the format. `None`
    /// when the name has no such extension, or nothing before it.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<(&[u8], Self)> {
        Self::ALL.into_iter().find_map(|member| {
            let rest = name.strip_suffix(member.suffix().as_bytes())?;
            rest.last().is_some_and(|&byte| byte != b'/').then_some((rest, member))
        })
    }

    pub(crate) fn format(self) -> Format {
        match self {
            Member::Qpress => Format::Qpress,
            Member::Lz4 => Format::Lz4,
            Member::Zstd => Format::Zstd,
        }
    }
}

/// The sizes of a member that was read or written completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileTotals {
    /// Compressed bytes.
    pub stored: u64,
    /// Plain bytes.
    pub plain: u64,
}

/// Decodes one compressed member from pieces of any size.
///
/// The caller provides the output buffer and so limits the output of each call. The decoder holds
/// at most one block and its plain bytes (qpress: [`FileCodecLimits::max_qpress_block`] twice;
/// lz4: 8 MiB; zstd: the window and some 256 KiB), allocated when first needed.
///
/// Checksums are verified: those of blocks before any byte of the block is output, those of whole
/// frames only at the frame's end. So output is proven only after [`FileDecoder::finish`] has
/// succeeded.
pub struct FileDecoder {
    inner: Inner,
    member: Member,
    totals: FileTotals,
    failed: Option<CodecError>,
    /// Bytes of memory that the decoder may hold.
    granted: u64,
}

enum Inner {
    Qpress(Box<qpress::Decoder>),
    Lz4(Box<lz4::Decoder>),
    Zstd(Box<zstd::Decoder>),
}

impl FileDecoder {
    /// Creates a decoder with the default limits.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when there is no memory.
    pub fn new(member: Member) -> Result<Self, CodecError> {
        Self::with_limits(member, FileCodecLimits::default())
    }

    /// Creates a decoder with these limits.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when there is no memory.
    pub fn with_limits(member: Member, limits: FileCodecLimits) -> Result<Self, CodecError> {
        let inner = match member {
            Member::Qpress => Inner::Qpress(Box::new(qpress::Decoder::new(limits))),
            Member::Lz4 => Inner::Lz4(Box::default()),
            Member::Zstd => Inner::Zstd(Box::new(zstd::Decoder::new(limits)?)),
        };
        let totals = FileTotals { stored: 0, plain: 0 };
        Ok(Self { inner, member, totals, failed: None, granted: u64::MAX })
    }

    /// Creates a decoder with these limits that asks before it allocates memory for blocks and
    /// windows, once it knows how much: [`State::NeedsMemory`]. Until then it holds no more than a
    /// zstd context, some 160 KiB.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when there is no memory.
    pub fn metered(member: Member, limits: FileCodecLimits) -> Result<Self, CodecError> {
        Ok(Self { granted: 0, ..Self::with_limits(member, limits)? })
    }

    /// Allows the decoder to hold `bytes` of memory in total. Earlier, larger grants stay valid.
    pub fn grant(&mut self, bytes: u64) {
        self.granted = self.granted.max(bytes);
    }

    /// The format that this decoder reads.
    #[must_use]
    pub fn member(&self) -> Member {
        self.member
    }

    /// Takes bytes from the front of `input` and writes plain ones to the front of `out`, until one
    /// of the two is used up.
    ///
    /// `out` must not be empty. `input` may be empty, to fetch output that is still held.
    ///
    /// # Errors
    ///
    /// Any [`CodecError`] for which the member is refused. The output of this call is then invalid,
    /// and every later call returns the same error.
    pub fn decode(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Progress, CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let before = input.len();
        let result = match &mut self.inner {
            Inner::Qpress(decoder) => decoder.decode(input, out, self.granted),
            Inner::Lz4(decoder) => decoder.decode(input, out, self.granted),
            Inner::Zstd(decoder) => decoder.decode(input, out, self.granted),
        };
        match &result {
            Ok(progress) => {
                self.totals.stored += (before - input.len()) as u64;
                self.totals.plain += progress.written as u64;
            }
            Err(error) => self.failed = Some(error.clone()),
        }
        result
    }

    /// Signals the end of the input, and checks that the member is complete. Call it when
    /// [`FileDecoder::decode`] has returned [`State::NeedsInput`] or [`State::Finished`].
    ///
    /// A member of zero bytes is a complete `.lz4` or `.zst` member, as the stock tools write it
    /// for an empty file, but not a complete `.qp` member. A `.lz4` or `.zst` member that was cut
    /// exactly between two frames cannot be recognized.
    ///
    /// # Errors
    ///
    /// [`CodecError::Cut`] when the member is incomplete or its output was not fetched completely,
    /// or the error of an earlier call.
    pub fn finish(self) -> Result<FileTotals, CodecError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let missing = match &self.inner {
            Inner::Qpress(decoder) => decoder.missing(),
            Inner::Lz4(decoder) => decoder.missing(),
            Inner::Zstd(decoder) => decoder.missing(),
        };
        match missing {
            None => Ok(self.totals),
            Some(part) => {
                let place = ErrorLocation::new(self.member.format(), self.totals.stored);
                Err(CodecError::Cut { place, part })
            }
        }
    }
}

impl fmt::Debug for FileDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDecoder")
            .field("member", &self.member)
            .field("totals", &self.totals)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let of = |name: &'static str| {
            Member::of_name(name.as_bytes())
                .map(|(rest, member)| (std::str::from_utf8(rest).unwrap(), member))
        };
        assert_eq!(of("db/t.ibd.qp"), Some(("db/t.ibd", Member::Qpress)));
        assert_eq!(of("t.ibd.lz4"), Some(("t.ibd", Member::Lz4)));
        assert_eq!(of("t.ibd.qp.zst"), Some(("t.ibd.qp", Member::Zstd)));
        for name in ["t.ibd", "t.ibd.zst.xbcrypt", "t.ibd.LZ4", "lz4", ".lz4", "db/.qp", ""] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
