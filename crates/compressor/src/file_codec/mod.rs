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

pub use encode::{MemberCodec, MemberEncoder, PIECE_PLAIN, PieceEncoder};
pub use limits::MemberLimits;
pub use progress::{Progress, State};

use crate::error::{CodecError, Format, Place};
use decoder_loop::DecoderLoop as _;

/// A format of compressed members, known by the last extension of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Member {
    /// A qpress archive of one file with QuickLZ packets; can only be read.
    Qpress,
    /// LZ4 frames, one behind the other.
    Lz4,
    /// Zstandard frames, one behind the other.
    Zstd,
}

impl Member {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Qpress, Self::Lz4, Self::Zstd];

    /// The extension of the name, dot included.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Member::Qpress => ".qp",
            Member::Lz4 => ".lz4",
            Member::Zstd => ".zst",
        }
    }

    /// Takes the extension from a member's name or path: what is left, and the format. `None` when
    /// the name has no such extension, or nothing before it.
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

/// The sizes of a member that was read or written to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberTotals {
    /// Compressed bytes.
    pub stored: u64,
    /// Plain bytes.
    pub plain: u64,
}

/// Reads one compressed member from pieces of any size.
///
/// The caller owns the output buffer, and so decides how much comes out before it looks again; the
/// decoder holds at most one block and its plain bytes (qpress: [`MemberLimits::max_qpress_block`]
/// twice; lz4: 8 MiB; zstd: the window and some 256 KiB), taken when first needed.
///
/// Checksums are compared, those of blocks before a byte of the block is given out; those of whole
/// frames can only be compared at the frame's end. So bytes that have come out are proven only when
/// [`MemberDecoder::finish`] says so.
pub struct MemberDecoder {
    inner: Inner,
    member: Member,
    totals: MemberTotals,
    failed: Option<CodecError>,
    /// Bytes of memory that it may hold.
    granted: u64,
}

enum Inner {
    Qpress(Box<qpress::Decoder>),
    Lz4(Box<lz4::Decoder>),
    Zstd(Box<zstd::Decoder>),
}

impl MemberDecoder {
    /// A decoder with the default limits.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when there is no memory.
    pub fn new(member: Member) -> Result<Self, CodecError> {
        Self::with_limits(member, MemberLimits::default())
    }

    /// A decoder with these limits.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when there is no memory.
    pub fn with_limits(member: Member, limits: MemberLimits) -> Result<Self, CodecError> {
        let inner = match member {
            Member::Qpress => Inner::Qpress(Box::new(qpress::Decoder::new(limits))),
            Member::Lz4 => Inner::Lz4(Box::default()),
            Member::Zstd => Inner::Zstd(Box::new(zstd::Decoder::new(limits)?)),
        };
        let totals = MemberTotals { stored: 0, plain: 0 };
        Ok(Self { inner, member, totals, failed: None, granted: u64::MAX })
    }

    /// A decoder with these limits that asks before it takes memory for blocks and windows, when it
    /// has read how much: [`State::NeedsMemory`]. Until then it holds no more than a zstd context,
    /// some 160 KiB.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when there is no memory.
    pub fn metered(member: Member, limits: MemberLimits) -> Result<Self, CodecError> {
        Ok(Self { granted: 0, ..Self::with_limits(member, limits)? })
    }

    /// Allows it to hold `bytes` of memory altogether. What was granted before is not taken back.
    pub fn grant(&mut self, bytes: u64) {
        self.granted = self.granted.max(bytes);
    }

    /// The format it reads.
    #[must_use]
    pub fn member(&self) -> Member {
        self.member
    }

    /// Takes bytes from the front of `input` and writes plain ones to the front of `out`, until
    /// one of the two is used up.
    ///
    /// `out` must not be empty. Empty input is in order: it gets what is still held.
    ///
    /// # Errors
    ///
    /// Any [`CodecError`] that says why the member is refused. What this call has written to `out`
    /// is then of no use, and every later call gives the same error.
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

    /// The input is over: says whether the member was whole. To be called when
    /// [`MemberDecoder::decode`] has given [`State::NeedsInput`] or [`State::Finished`].
    ///
    /// A member without a single byte is a whole `.lz4` or `.zst` member, as the stock tools write
    /// it for an empty file, but no `.qp` member. When a `.lz4` or `.zst` member is cut exactly
    /// between two frames, nothing in it tells.
    ///
    /// # Errors
    ///
    /// [`CodecError::Cut`] when the member is not whole or was not given out to its end, or the
    /// error that has come before.
    pub fn finish(self) -> Result<MemberTotals, CodecError> {
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
                let place = Place::new(self.member.format(), self.totals.stored);
                Err(CodecError::Cut { place, part })
            }
        }
    }
}

impl fmt::Debug for MemberDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberDecoder")
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
