//! Compression levels.

/// A compression level from 1, the fastest, to `MAX`, the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level<const MAX: u8, const DEFAULT: u8>(u8);

/// A level of [`Algorithm::Gzip`](crate::Algorithm::Gzip): 1 to 9.
///
/// The default is 3, not 6 as in gzip: on table pages 6 takes twice the time of 3 and saves a few
/// percent (`benches/codec.rs`), and the codec limits the speed of a backup.
pub type GzipLevel = Level<9, 3>;

/// A level of [`Algorithm::Zstd`](crate::Algorithm::Zstd): 1 to 19, by default 1.
///
/// Range and default are those of the stock tools. Levels above 19 need much more memory, also when
/// reading.
pub type ZstdLevel = Level<19, 1>;

impl<const MAX: u8, const DEFAULT: u8> Level<MAX, DEFAULT> {
    /// The fastest level.
    pub const MIN: Self = Self(1);
    /// The strongest level.
    pub const MAX: Self = Self(MAX);
    /// The level used when none is given.
    pub const DEFAULT: Self = Self(DEFAULT);

    /// Returns the level with this number, or `None` if there is none.
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
