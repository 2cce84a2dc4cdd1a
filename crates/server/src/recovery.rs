//! Memory that InnoDB needs to apply a redo log, and the memory that this machine can spare.
//!
//! Recovery reads the log in batches as large as its memory. A batch that does not fit touches the
//! same pages again: with little memory, the data is read and written once per batch. Memory beyond
//! the log and the pages that it touches brings nothing, and memory that the machine does not have
//! brings the recovery to a stop.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use xb_process::Memory;

const MIB: u64 = 1 << 20;
/// Memory for a log that is almost empty. The programs' own default is a little less.
const LEAST: u64 = 128 * MIB;
/// Memory for a log that does not fit. Up to what would hold it, more is no faster.
const IN_BATCHES: u64 = 512 * MIB;
/// The most that a server needs to work on a backup.
const MAX_WORKING: u64 = 16 << 30;
/// Memory on a machine that has almost none left: the programs need about as much to start.
const BARE: u64 = 64 * MIB;
/// Directory of MySQL's redo log, from 8.0.30 on.
const REDO_FOLDER: &str = "#innodb_redo";
/// The redo log of a backup: of MariaDB, and of MySQL.
const REDO_LOGS: [&str; 2] = ["ib_logfile0", "xtrabackup_logfile"];
/// Magic numbers of file systems in memory, as `statfs` returns them: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Memory in bytes for applying the redo log in `redo` to the data files below `data`. The two may be
/// one directory; an increment has its own log.
///
/// At most half of the memory that is available now, except that less than 64 MiB is never returned.
/// Files that cannot be looked at count as empty.
#[must_use]
pub fn recovery_memory(data: &Path, redo: &Path) -> u64 {
    let log = REDO_LOGS.iter().find_map(|name| std::fs::metadata(redo.join(name)).ok());
    let log = log.map_or_else(|| Sizes::below(&redo.join(REDO_FOLDER)).bytes, |log| log.len());
    let is_in_memory = is_in_memory(data);
    // A small log needs the least, whatever the data: then the files, maybe many thousands, need not be looked at.
    let files = match is_in_memory || wanted(log, u64::MAX) > LEAST {
        true => Sizes::below(data),
        false => Sizes::default(),
    };
    let available = available().map(|available| {
        // Filling a hole takes memory from the recovery itself.
        available.saturating_sub(if is_in_memory { files.holes } else { 0 })
    });
    memory(log, files.bytes, available)
}

/// Returns a directory for a recovery's temporary files, if the usual one cannot be used, as on a read-only root: then it
/// is `data`. The files have no names there, and end with the program.
#[must_use]
pub fn recovery_tmpdir(data: &Path) -> Option<&Path> {
    tempfile::tempfile().is_err().then_some(data)
}

/// Returns the memory, in bytes, with which a private server should work on the files in `data`: what they
/// have, at most half of the memory that is available now, at most 16 GiB, and at least 64 MiB.
#[must_use]
pub fn working_memory(data: &Path) -> u64 {
    let available = available().map_or(LEAST, |available| available / 2);
    let files = Sizes::below(data).bytes.max(LEAST);
    files.min(available).clamp(BARE, MAX_WORKING)
}

/// Memory in bytes that can be taken now. `None` if the system does not say.
fn available() -> Option<u64> {
    Memory::now().map(|memory| memory.available)
}

/// The memory for a log of `redo` bytes and files of `data` bytes, if `available` bytes are free.
fn memory(redo: u64, data: u64, available: Option<u64>) -> u64 {
    let want = wanted(redo, data);
    let most = available.map_or(LEAST, |available| available / 2);
    let memory = if want <= most { want } else { most.min(IN_BATCHES) };
    // A whole number of MiB, which the programs would round to anyway.
    (memory / MIB * MIB).max(BARE)
}

/// The memory that holds a log of `redo` bytes, and what it touches of `data` bytes.
fn wanted(redo: u64, data: u64) -> u64 {
    let pages = data.min(redo.saturating_mul(2));
    redo.saturating_add(redo / 10 * 3).saturating_add(pages).max(LEAST)
}

/// Lengths of files, and what of that takes no space yet, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    bytes: u64,
    holes: u64,
}

impl Sizes {
    /// Of all files below `dir`. Symbolic links to directories are not followed, and folders whose names begin with a
    /// dot are passed over: no schema is there, but maybe all files of a chain's increments.
    fn below(dir: &Path) -> Self {
        let (mut sizes, mut dirs) = (Self::default(), vec![dir.to_owned()]);
        while let Some(dir) = dirs.pop() {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            for (path, meta) in entries.filter_map(|e| Some((e.path(), e.metadata().ok()?))) {
                let is_hidden =
                    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
                if meta.is_dir() && !is_hidden {
                    dirs.push(path);
                } else if meta.is_file() {
                    sizes.bytes = sizes.bytes.saturating_add(meta.len());
                    let hole = meta.len().saturating_sub(meta.blocks().saturating_mul(512));
                    sizes.holes = sizes.holes.saturating_add(hole);
                }
            }
        }
        sizes
    }
}

fn is_in_memory(dir: &Path) -> bool {
    let kind = rustix::fs::statfs(dir).map(|stat| stat.f_type);
    kind.is_ok_and(|kind| u64::try_from(kind).is_ok_and(|kind| IN_MEMORY.contains(&kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_the_log_and_is_capped_by_what_is_free() {
        let mib = |redo: u64, data: u64, free: u64| {
            memory(redo * MIB, data * MIB, Some(free * MIB)) / MIB
        };
        // Nothing to apply, a scattered log, one that touches every page of small data.
        assert_eq!(
            [mib(0, 9000, 9000), mib(330, 9000, 9000), mib(330, 200, 9000)],
            [128, 1089, 629]
        );
        // It just fits, and it does not: then more memory is no better.
        assert_eq!(
            [mib(330, 9000, 2180), mib(330, 9000, 2170), mib(9000, 99_000, 9000)],
            [1089, 512, 512]
        );
        assert_eq!([mib(330, 9000, 600), mib(330, 9000, 200), mib(330, 9000, 10)], [300, 100, 64]);
        // An empty log is no reason to take more than half.
        assert_eq!(mib(0, 9000, 200), 100);
        assert_eq!(memory(u64::MAX, u64::MAX, Some(u64::MAX)), IN_BATCHES);
        assert_eq!(memory(u64::MAX, u64::MAX, None), LEAST);
    }

    #[test]
    fn the_log_of_an_increment_counts_and_holes_do_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, length: u64| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::File::create(path).unwrap().set_len(length).unwrap();
        };
        file("shop/t.ibd", 300 * MIB);
        // It is not part of the data that is prepared.
        file("shop/.xb-incremental/1/shop/t.ibd.delta", 50 * MIB);
        file("i/ib_logfile0", 100 * MIB);
        file("m/xtrabackup_logfile", 100 * MIB);
        let below = |name: &str| dir.path().join(name);
        assert_eq!(Sizes::below(&below("shop")), Sizes { bytes: 300 * MIB, holes: 300 * MIB });
        let available = available();
        for redo in ["i", "m"] {
            let expected = memory(100 * MIB, 300 * MIB, available);
            assert_eq!(recovery_memory(&below("shop"), &below(redo)), expected, "{redo}");
        }
        assert_eq!(
            recovery_memory(&below("shop"), &below("shop")),
            memory(0, 300 * MIB, available)
        );
    }
}
