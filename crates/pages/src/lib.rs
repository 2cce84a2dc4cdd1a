//! Checks the checksums of InnoDB's and Aria's pages, in a stream and without a server.
//!
//! No I/O: the bytes of a tablespace go in, in order and in pieces of any size, and the faults of
//! its pages come out. The first page of the tablespace states page size and kind of checksum. If
//! it is damaged, the format is used that most of the other pages match.
//!
//! | kind | written by | position of the checksum |
//! |---|---|---|
//! | crc32 | MySQL 5.6 and later, MariaDB 10.0 to 10.4 | both ends of the page, CRC-32C |
//! | innodb | earlier versions | both ends, two older checksums |
//! | none | servers configured for it | both ends, a constant |
//! | full_crc32 | MariaDB 10.4 and later | the end, CRC-32C over the rest of the page |
//! | of `ROW_FORMAT=COMPRESSED` | all | the beginning, CRC-32C or Adler-32 |
//!
//! MariaDB's encrypted pages have a checksum of the encrypted bytes, and page-compressed ones of
//! the full_crc32 kind a checksum of the compressed bytes; both are checked. MySQL's page-compressed pages have
//! their checksum inside: they are decompressed. So do MySQL's encrypted pages, and MariaDB's older page-compressed
//! ones: they are counted as [`PageCounts::unchecked`].
//!
//! Beyond the checksum, a page must have the number of its place and of its tablespace, the file
//! must be as long as its first page states, and a page that the tablespace counts as used must not
//! be empty. In a backup of a running server, recovery may still write a page that is missing:
//! [`BadPage::missing_since`] and [`RedoStart`] tell the two apart.
//!
//! Of a file with the changed pages of a tablespace, as increments have them, [`DeltaPageChecker`] checks each page by
//! itself.
//!
//! Of a MyISAM or Aria table, [`TableFileChecker`] takes one file at a time, and [`TableHead`] says
//! how long both must be; Aria's pages have checksums, too.
//!
//! ```
//! use xb_pages::PageChecker;
//!
//! let mut checker = PageChecker::of_name(b"shop/orders.ibd").expect("a tablespace");
//! let mut bad = Vec::new();
//! checker.feed(&[0xff; 16384], &mut |page| bad.push(page));
//! let found = checker.finish(&mut |page| bad.push(page));
//! assert_eq!((found.counts.damaged, bad.len()), (1, 1));
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod checksums;
mod delta_file;
mod doublewrite;
mod first_page;
mod format;
mod mysql_compressed;
mod page;
mod recognise;
mod redo;
mod redo_records;
mod space;
mod table_file;
mod table_head;
mod tablespace;

pub use delta_file::DeltaPageChecker;
pub use first_page::{FirstPage, is_intact_page};
pub use format::{Format, Kind, MAX_PAGE};
pub use page::{BadPage, Fault};
pub use redo::{REDO_HEAD, RedoHeader, RedoStart};
pub use redo_records::RedoRecords;
pub use space::SpaceHead;
pub use table_file::{TableFileChecked, TableFileChecker, TableFileName, TablePart};
pub use table_head::{AriaPages, HeadFault, TABLE_HEAD, TableEngine, TableHead};
pub use tablespace::{FileChecked, PageChecker, PageCounts, SystemFile};
