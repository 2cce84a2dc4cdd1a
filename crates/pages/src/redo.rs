//! Reads the head of a redo log: where recovery starts, and which log it is.

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
/// Number of that second format if the log is encrypted, as MariaDB 10.11.19 writes it. Head and checkpoints are in
/// clear. (Observed.)
const NEWEST_ENCRYPTED: u32 = 0xf09f_979d;
/// Format of MySQL from 8.0.30 on, whose head holds a random number for each log.
const MYSQL_NUMBERED: u32 = 6;
/// Creator of a file that mariadb-backup wrote, followed by a version.
const COPIED_BY: &str = "Backup ";
/// Length of the text that names the creator.
const CREATOR: std::ops::Range<usize> = 16..48;

/// Header of a file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedoHeader {
    /// Log position at which the log was created. Only MariaDB 10.8 and later keep it; earlier
    /// servers, and MySQL, write the position at which the file was last begun.
    pub created: Option<u64>,
    /// Random number of the log, the same in all its files. MySQL 8.0.30 and later.
    pub number: Option<u32>,
    /// The program that created the file, such as `MariaDB 10.11.19`; a backup program writes a
    /// header of its own.
    pub creator: String,
    /// The log behind the head is encrypted. Known of MariaDB only.
    pub is_encrypted: bool,
}

impl RedoHeader {
    /// Reads the first bytes of a file of the log, at least 512. `None` if the header is not intact,
    /// or of an unknown format.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        let end = BLOCK - 4;
        if crc32c(head.get(..end)?) != be32(head, end)? {
            return None;
        }
        let format = format(head)?;
        let created = (format == NEWEST).then(|| be64(head, 8)).flatten();
        let number = (format == MYSQL_NUMBERED).then(|| be32(head, 4)).flatten();
        let creator = head.get(CREATOR)?.split(|byte| *byte == 0).next()?;
        let creator = std::str::from_utf8(creator).ok()?.to_owned();
        let is_encrypted = be32(head, 0)? == NEWEST_ENCRYPTED || be32(head, 0)? & ENCRYPTED != 0;
        Some(Self { created, number, creator, is_encrypted })
    }

    /// Log position of the first byte behind the head ([`REDO_HEAD`]), in a file that mariadb-backup
    /// 10.8 or later wrote: it is as long as the head and the log that was copied.
    #[must_use]
    pub fn copied_from(&self) -> Option<u64> {
        self.created.filter(|_| self.creator.starts_with(COPIED_BY))
    }
}

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
    /// Returns whether the format of the log is one whose checkpoints [`RedoStart::of_head`] must find in an
    /// intact log: MariaDB from 10.5 on.
    #[must_use]
    pub fn is_expected(head: &[u8]) -> bool {
        format(head).is_some_and(|format| MARIADB.contains(&format))
    }

    /// Reads the first [`REDO_HEAD`] bytes of a file of the log. `None` if no checkpoint is in
    /// them, or none that is intact.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        let format = format(head)?;
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

/// Number of the log's format, without the mark of encryption.
fn format(head: &[u8]) -> Option<u32> {
    match be32(head, 0)? {
        NEWEST_ENCRYPTED => Some(NEWEST),
        format => Some(format & !ENCRYPTED),
    }
}
