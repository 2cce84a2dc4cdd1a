//! Estimate of the amount of data to send.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::contract::datadir::Layout;
use crate::swap::OURS;

/// Approximate size of the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes in files.
    pub bytes: u64,
    /// Bytes on disk; fewer if files have holes.
    pub disk: u64,
}

impl Size {
    fn add(&mut self, metadata: &Metadata) {
        self.bytes = self.bytes.saturating_add(metadata.len());
        self.disk = self.disk.saturating_add(metadata.blocks().saturating_mul(512));
    }
}

/// Adds up the files that a backup of this server would contain. Unreadable files are not counted.
#[must_use]
pub(crate) fn estimate(layout: &Layout) -> Size {
    let mut size = Size::default();
    walk(&layout.datadir, 0, &mut |name, depth, metadata| {
        // The data directory itself also holds logs, caches and the like.
        if depth > 0 || is_data(name) {
            size.add(metadata);
        }
    });
    for folder in layout.folders_outside() {
        walk(&folder, 0, &mut |name, depth, metadata| {
            if depth == 0 && is_data(name) {
                size.add(metadata);
            }
        });
    }
    size
}

fn is_data(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let prefixes: [&[u8]; 3] = [b"ibdata", b"undo", b"aria_log"];
    prefixes.iter().any(|p| name.starts_with(p))
        || name.ends_with(b".ibd")
        || name.ends_with(b".ibu")
}

fn walk(folder: &Path, depth: u32, each: &mut impl FnMut(&OsStr, u32, &Metadata)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let name = entry.file_name();
        if metadata.is_file() {
            each(&name, depth, &metadata);
        } else if metadata.is_dir() && depth < 2 && name != OURS && name != "#innodb_redo" {
            walk(&entry.path(), depth + 1, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_counts_and_the_rest_does_not() {
        let folder = tempfile::tempdir().unwrap();
        for (name, len) in [
            ("ibdata1", 1000),
            ("galera.cache", 10_000),
            ("shop/t.ibd", 300),
            ("#sql-xb/.old/shop/t.ibd", 5000),
            ("ib_logfile0", 9000),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; len]).unwrap();
        }
        let datadir = folder.path().to_owned();
        let layout = Layout { datadir, inside: vec![], outside: vec![], binlog: None };
        assert_eq!(estimate(&layout).bytes, 1300);
        assert!(estimate(&layout).disk > 0);
    }
}
