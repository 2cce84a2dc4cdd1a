//! Size of the redo log that this node's server creates when it starts on received data.

use std::ffi::OsStr;

use super::reader::{Reader, parse_size};
use crate::contract::args::Product;

const MIB: u64 = 1 << 20;

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
            Product::MariaDb if version.is_some_and(is_before_10_5) => group(2),
            Product::MariaDb => self.file_size.unwrap_or(96 * MIB),
            Product::Percona => match self.capacity {
                Some(capacity) => capacity,
                None if self.file_size.is_none() && self.files.is_none() => 100 * MIB,
                None => group(2),
            },
        }
    }
}

fn is_before_10_5(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < (10, 5))
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
        let huge = log(Some(u64::MAX), Some(3), None);
        assert_eq!(huge.bytes(percona, None), u64::MAX);
    }
}
