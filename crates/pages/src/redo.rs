//! Reads from the head of a redo log where recovery starts.

use crate::checksums::crc32c;
use crate::format::{be32, be64};

/// Bytes at the beginning of a redo log that are needed.
pub const REDO_HEAD: usize = 12 << 10;

/// Size of a block of the log, which ends with its checksum.
const BLOCK: usize = 512;
/// Numbers of the formats of MariaDB from 10.5 on, without the mark of encryption.
const MARIADB: [u32; 2] = [0x5048_5953, 0x5068_7973];
/// Since MariaDB 10.8 (the second of its formats) the checkpoints are further back.
const NEWEST: u32 = MARIADB[1];
const ENCRYPTED: u32 = 1 << 31;

/// Position at which recovery starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedoStart {
    /// Log position of the newest checkpoint in the head: all earlier changes are in the files.
    pub checkpoint: u64,
    /// Written by MariaDB 10.5 or later, which leaves out pages that were freed before they were
    /// written.
    pub skips_freed: bool,
}

impl RedoStart {
    /// Reads the first [`REDO_HEAD`] bytes of a file of the log. `None` if no checkpoint is in
    /// them, or none that is intact.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        let format = be32(head, 0)? & !ENCRYPTED;
        // A checkpoint, and where its checksum is.
        let places = match format == NEWEST {
            true => [(4096, 0, 60), (8192, 0, 60)],
            false => [(BLOCK, 8, BLOCK - 4), (3 * BLOCK, 8, BLOCK - 4)],
        };
        let checkpoint = places.into_iter().filter_map(|(block, at, end)| {
            let bytes = head.get(block..block + end)?;
            let intact = crc32c(bytes) == be32(head, block + end)?;
            be64(bytes, at).filter(|lsn| intact && *lsn > 0)
        });
        let skips_freed = MARIADB.contains(&format);
        checkpoint.max().map(|checkpoint| Self { checkpoint, skips_freed })
    }
}
