//! The checksums of InnoDB pages, in a stream and without a server.
//!
//! Pure: bytes of a tablespace go in, in order and cut anyhow, and what is wrong with its pages comes
//! out. Page size and kind of checksum are told by the tablespace's own first page, and where that is
//! damaged, by which of them the other pages fit.
//!
//! | kind | who writes it | where the checksum is |
//! |---|---|---|
//! | crc32 | MySQL 5.6 and later, MariaDB 10.0 to 10.4 | both ends of the page, CRC-32C |
//! | innodb | before that | both ends, two older sums |
//! | none | whoever asks for it | both ends, a constant |
//! | full_crc32 | MariaDB 10.4 and later | the end, CRC-32C over all the rest |
//! | of `ROW_FORMAT=COMPRESSED` | all | the beginning, CRC-32C or Adler-32 |
//!
//! Encrypted pages of MariaDB carry a checksum of what is encrypted, and page-compressed ones of the
//! full_crc32 kind one of what is compressed; both are checked. MySQL's encrypted and page-compressed
//! pages, and MariaDB's older page-compressed ones, have their checksum inside: these are counted as
//! [`PageCounts::unchecked`].
//!
//! ```
//! use xb_pages::PageChecker;
//!
//! let mut checker = PageChecker::of_name(b"shop/orders.ibd").expect("a tablespace");
//! let mut bad = Vec::new();
//! checker.feed(&[0xff; 16384], &mut |page| bad.push(page));
//! let counts = checker.finish(&mut |page| bad.push(page));
//! assert_eq!((counts.damaged, bad.len()), (1, 1));
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod checksums;
mod format;
mod page;
mod tablespace;

pub use format::{Format, Kind, MAX_PAGE};
pub use page::Fault;
pub use tablespace::{BadPage, PageChecker, PageCounts};
