//! Sizes of the files that this node's server creates when it starts on received data.

use std::ffi::OsStr;

use super::reader::{Reader, parse_size};
use crate::contract::args::Product;

const MIB: u64 = 1 << 20;
/// Usual first size of the temporary tablespace, in bytes.
const TEMPORARY: u64 = 12 * MIB;
/// A temporary tablespace with fewer pages is extended when the server starts.
const TEMPORARY_PAGES: u64 = 256;
/// Usual step by which a server extends it, in MiB.
const STEP: u64 = 64;
/// The largest step that a server accepts, in MiB.
const LARGEST_STEP: u64 = 1000;
/// Size of the doublewrite files of MySQL's servers, in bytes: those of 9.7.
const DOUBLEWRITE: u64 = 16 * MIB;
/// First size of an undo tablespace of MariaDB, in pages. Where pages are small, it has more of them, but not more bytes than
/// with usual ones.
const UNDO_PAGES: u64 = 640;
/// Usual size of a page, in bytes.
const PAGE: u64 = 16 << 10;
/// The largest size of a page that a server accepts, in bytes.
const LARGEST_PAGE: u64 = 64 << 10;
/// The largest number of them that a server accepts.
const MOST_UNDO: u64 = 127;

/// Size of the redo log, from the options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedoLog {
    /// `innodb_log_file_size`, in bytes.
    pub file_size: Option<u64>,
    /// `innodb_log_files_in_group`.
    pub files: Option<u64>,
    /// `innodb_redo_log_capacity` of MySQL 8.0.30 and later, in bytes.
    pub capacity: Option<u64>,
}

impl RedoLog {
    /// Returns the size in bytes, with the defaults of the server's series. An unknown version
    /// counts as a recent one.
    #[must_use]
    pub fn bytes(&self, product: Product, version: Option<&str>) -> u64 {
        let group = |files: u64| {
            let file_size = self.file_size.unwrap_or(48 * MIB);
            file_size.saturating_mul(self.files.unwrap_or(files))
        };
        match product {
            // Since 10.5 there is one file.
            Product::MariaDb if version.is_some_and(|version| is_before(version, (10, 5))) => {
                group(2)
            }
            Product::MariaDb => self.file_size.unwrap_or(96 * MIB),
            Product::Percona => match self.capacity {
                Some(capacity) => capacity,
                None if self.file_size.is_none() && self.files.is_none() => 100 * MIB,
                None => group(2),
            },
        }
    }
}

/// Tablespaces that the server creates, from the options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreatedTablespaces {
    /// `innodb_undo_tablespaces`.
    pub undo: Option<u64>,
    /// First sizes in `innodb_temp_data_file_path`, in bytes.
    pub temporary: Option<u64>,
    /// `innodb_page_size`, in bytes.
    pub page: Option<u64>,
    /// `innodb_autoextend_increment`, in MiB.
    pub step: Option<u64>,
}

impl CreatedTablespaces {
    /// Returns the first size of all undo tablespaces, in bytes. MariaDB's server replaces those that it finds if their number
    /// is another one. Percona's keeps them.
    #[must_use]
    pub fn undo_bytes(&self, product: Product, version: Option<&str>) -> u64 {
        let usual = match version {
            Some(version) if is_before(version, (11, 0)) => 0,
            _ => 3,
        };
        let page = self.page();
        match (product, self.undo.unwrap_or(usual)) {
            // With one, the server has none.
            (Product::Percona, _) | (_, 1) => 0,
            (Product::MariaDb, number) => number.min(MOST_UNDO) * UNDO_PAGES * page,
        }
    }

    /// Returns the size of a page in bytes; smaller ones count as usual ones.
    fn page(&self) -> u64 {
        self.page.unwrap_or(PAGE).clamp(PAGE, LARGEST_PAGE)
    }

    /// Returns the size, after a start, of what the server creates beside the system tablespace, in bytes.
    #[must_use]
    pub fn beside_system_bytes(&self, product: Product) -> u64 {
        let first = self.temporary.unwrap_or(TEMPORARY);
        let lacks = (TEMPORARY_PAGES * self.page()).saturating_sub(first);
        let step = self.step.unwrap_or(STEP).min(LARGEST_STEP) * MIB;
        let temporary = first.saturating_add(if lacks == 0 { 0 } else { lacks.max(step) });
        match product {
            Product::MariaDb => temporary,
            Product::Percona => temporary.saturating_add(DOUBLEWRITE),
        }
    }
}

fn is_before(version: &str, series: (u32, u32)) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < series)
}

/// Adds up the sizes in `ibtmp1:12M:autoextend;/more/ibtmp2:1G`.
fn first_sizes(specs: &str) -> Option<u64> {
    let mut sizes = specs.split(';').map(|spec| parse_size(spec.split(':').nth(1)?));
    sizes.try_fold(0_u64, |sum, size| Some(sum.saturating_add(size?)))
}

impl Reader<'_> {
    pub(super) fn redo_log(&self) -> RedoLog {
        // Values that the server itself would refuse do not matter here.
        let size = |name| self.server(name).and_then(OsStr::to_str).and_then(parse_size);
        RedoLog {
            file_size: size("innodb-log-file-size"),
            files: size("innodb-log-files-in-group"),
            capacity: size("innodb-redo-log-capacity"),
        }
    }

    pub(super) fn created_tablespaces(&self) -> CreatedTablespaces {
        let text = |name| self.server(name).and_then(OsStr::to_str);
        CreatedTablespaces {
            undo: text("innodb-undo-tablespaces").and_then(|number| number.trim().parse().ok()),
            temporary: text("innodb-temp-data-file-path").and_then(first_sizes),
            page: text("innodb-page-size").and_then(parse_size),
            step: text("innodb-autoextend-increment").and_then(|step| step.trim().parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_series() {
        let log = |file_size, files, capacity| RedoLog { file_size, files, capacity };
        let (maria, percona) = (Product::MariaDb, Product::Percona);
        for (log, product, version, mib) in [
            (log(None, None, None), maria, Some("10.11.19-MariaDB"), 96),
            (log(None, None, None), maria, None, 96),
            (log(Some(16 * MIB), Some(4), None), maria, Some("11.8.6"), 16),
            (log(None, None, None), maria, Some("10.4.34-MariaDB"), 96),
            (log(Some(16 * MIB), Some(3), None), maria, Some("10.4.34"), 48),
            (log(None, None, None), percona, Some("8.0.36"), 100),
            (log(Some(16 * MIB), None, None), percona, Some("8.0.36"), 32),
            (log(Some(16 * MIB), Some(3), Some(8 * MIB)), percona, Some("8.4.2"), 8),
        ] {
            assert_eq!(log.bytes(product, version), mib * MIB, "{log:?} {version:?}");
        }
        let undo = |undo, product, version| {
            let created = CreatedTablespaces { undo, ..CreatedTablespaces::default() };
            created.undo_bytes(product, version) / MIB
        };
        assert_eq!(undo(None, maria, Some("10.11.19-MariaDB")), 0);
        assert_eq!(undo(None, maria, Some("11.8.6-MariaDB")), 30);
        assert_eq!(undo(None, maria, None), 30);
        // 10.11 was seen to have as many files as it is told, but none if that is one.
        for (number, mib) in [(0, 0), (1, 0), (2, 20), (127, 1270), (u64::MAX, 1270)] {
            assert_eq!(undo(Some(number), maria, Some("10.11.19")), mib);
        }
        assert_eq!(undo(Some(4), percona, Some("8.0.36")), 0);
        // 10.11 was seen to make 6.5, 10, 20 and 40 MiB with pages of 4, 16, 32 and 64 KiB.
        for (kib, mib) in [(4, 10), (16, 10), (32, 20), (64, 40), (u64::MAX >> 10, 40)] {
            let page = Some(kib << 10);
            let of = CreatedTablespaces { undo: Some(2), page, ..CreatedTablespaces::default() };
            assert_eq!(of.undo_bytes(maria, None), 2 * mib * MIB, "{kib}");
        }
        let beside = |temporary, product| {
            let created = CreatedTablespaces { temporary, ..CreatedTablespaces::default() };
            created.beside_system_bytes(product) / MIB
        };
        assert_eq!([beside(None, maria), beside(Some(50 * MIB), maria)], [12, 50]);
        assert_eq!([beside(None, percona), beside(Some(50 * MIB), percona)], [28, 66]);
        // As 10.11 was seen to extend it.
        for (kib, first, step, mib) in [
            (16, None, None, 12),
            (16, Some(1), None, 65),
            (32, None, None, 12),
            (64, None, None, 76),
            (64, Some(14), None, 78),
            (64, Some(24), None, 24),
            (64, None, Some(1), 16),
            (64, None, Some(u64::MAX), 1012),
        ] {
            let (page, temporary) = (Some(kib << 10), first.map(|mib| mib * MIB));
            let of = CreatedTablespaces { undo: None, temporary, page, step };
            assert_eq!(of.beside_system_bytes(maria), mib * MIB, "{of:?}");
        }
        let huge = log(Some(u64::MAX), Some(3), None);
        assert_eq!(huge.bytes(percona, None), u64::MAX);
    }
    #[test]
    fn temporary_tablespaces_have_their_first_sizes() {
        for (specs, size) in [
            ("ibtmp1:12M:autoextend", Some(12 * MIB)),
            ("ibtmp1:50M;/more/t2:1G:autoextend:max:5G", Some(1074 * MIB)),
            ("ibtmp1", None),
            ("ibtmp1:x", None),
            ("", None),
        ] {
            assert_eq!(first_sizes(specs), size, "{specs}");
        }
    }
}
