//! What the command line may ask for: the one place where a codec is chosen.

use std::fmt;
use std::str::FromStr;

use crate::{BlockCodec, MemberCodec};

/// A level of [`Algorithm::Gzip`]: 1 is fastest, 9 smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GzipLevel(u8);

/// A level of [`Algorithm::Zstd`]: 1 is fastest, 19 smallest.
///
/// 19 is the highest that the stock tools take; those above it need much more memory in the reader,
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZstdLevel(u8);

macro_rules! level {
    ($name:ident, $max:literal, $default:literal) => {
        impl $name {
            /// The lowest level.
            pub const MIN: u8 = 1;
            /// The highest level.
            pub const MAX: u8 = $max;
            /// The level that is meant when none is named.
            pub const DEFAULT: Self = Self($default);

            /// The level, or `None` when there is none with this number.
            #[must_use]
            pub fn new(level: u8) -> Option<Self> {
                (Self::MIN..=Self::MAX).contains(&level).then_some(Self(level))
            }

            /// The number.
            #[must_use]
            pub fn get(self) -> u8 {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::DEFAULT
            }
        }
    };
}
level!(GzipLevel, 9, 6);
level!(ZstdLevel, 19, 1);
