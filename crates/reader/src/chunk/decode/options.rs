//! Options of the decoder.

/// The meaning of chunks of type `S`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum Dialect {
    /// Decide for each `S`: it is a seek if the next chunk (or the end of the input) follows its 8
    /// bytes, else it is sparse. A sparse chunk that looks like a seek would announce a payload of
    /// more than 2^62 bytes, so with any sensible [`Limits`] only one reading is possible.
    #[default]
    Auto,
    /// Percona XtraBackup 8.0 and later: `S` is sparse.
    Percona,
    /// MariaDB: `S` is seek.
    #[cfg_attr(feature = "clap", value(name = "mariadb"))]
    MariaDb,
}

/// Upper limits of the numbers in a chunk. A chunk beyond them is an error before anything is read
/// or allocated for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest payload of one chunk, in bytes. Default 16 GiB; the stock tools write 10 MiB, or one
    /// write of the producer.
    pub max_payload: u64,
    /// Maximum number of entries in one sparse map, 8 bytes each. Default 1 048 576; one read of 10
    /// MiB with 16 KiB pages results in 640.
    pub max_map_entries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_payload: 16 << 30, max_map_entries: 1 << 20 }
    }
}
