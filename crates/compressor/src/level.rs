//! Compression levels.

/// A compression level from 1, the fastest, to `MAX`, the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level<const MAX: u8, const DEFAULT: u8>(u8);

/// A level of [`Algorithm::Gzip`](crate::Algorithm::Gzip): 1 to 9.
///
/// The default is 3, not gzip's 6: on table pages 6 takes twice the time of 3 and saves a few
/// percent (`benches/codec.rs`), and a backup is paced by its codec.
pub type GzipLevel = Level<9, 3>;

/// A level of [`Algorithm::Zstd`](crate::Algorithm::Zstd): 1 to 19, by default 1.
///
/// Range and default are those of the stock tools. The levels above 19 need much more memory in the
/// reader, too.
pub type ZstdLevel = Level<19, 1>;

impl<const MAX: u8, const DEFAULT: u8> Level<MAX, DEFAULT> {
    /// The fastest.
    pub const MIN: Self = Self(1);
    /// The smallest.
    pub const MAX: Self = Self(MAX);
    /// What is meant when no level is named.
    pub const DEFAULT: Self = Self(DEFAULT);

    /// The level, or `None` when there is none with this number.
    #[must_use]
    pub fn new(level: u8) -> Option<Self> {
        (1..=MAX).contains(&level).then_some(Self(level))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}

impl<const MAX: u8, const DEFAULT: u8> Default for Level<MAX, DEFAULT> {
    fn default() -> Self {
        Self::DEFAULT
    }
}
