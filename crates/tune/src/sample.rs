//! A sample of the data of a backup, of limited size: from a stream, a file or a data directory.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xb_files::or_none;

use crate::error::TuneError;

/// Size of a block: that of the frames that a backup compresses.
pub(crate) const BLOCK: usize = xb_pipeline::SLAB;

/// Files and directories that a backup program does not copy from a data directory.
const NOT_COPIED: [&str; 5] =
    ["ib_logfile", "ibtmp", "#innodb_redo", "#innodb_temp", "#ib_archive"];

/// A sample, and facts about the data that it was taken from.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Blocks of 1 MiB, the size of frames; some may be shorter.
    pub blocks: Vec<Vec<u8>>,
    /// Size of all data in bytes, as far as it is known; for a stream, the bytes that were read.
    pub total: u64,
    /// Number of files; `None` for a stream.
    pub files: Option<u64>,
    /// Rate at which the sample was read, in bytes per second. The page cache may have helped.
    pub read: f64,
}

impl Sample {
    /// Reads the first `limit` bytes of a stream.
    ///
    /// # Errors
    /// [`TuneError::Read`], [`TuneError::Empty`].
    pub fn of_stream(mut stream: impl Read, name: &Path, limit: u64) -> Result<Self, TuneError> {
        let begin = Instant::now();
        let mut blocks = Vec::new();
        let mut left = limit;
        while left > 0 {
            let mut block = Vec::with_capacity(BLOCK);
            let len = (&mut stream).take(left.min(BLOCK as u64)).read_to_end(&mut block);
            match len.map_err(|source| cannot_read(name, source))? as u64 {
                0 => break,
                len => left -= len,
            }
            blocks.push(block);
        }
        let total = limit - left;
        Self { blocks, total, files: None, read: rate(total, begin.elapsed()) }.filled(name)
    }

    /// Reads at most `limit` bytes of a file, in blocks from all over it.
    ///
    /// # Errors
    /// [`TuneError::Read`], [`TuneError::Empty`].
    pub fn of_file(path: &Path, limit: u64) -> Result<Self, TuneError> {
        let file = File::open(path).map_err(|source| cannot_read(path, source))?;
        Self::of_input(file, path, limit)
    }

    /// Like [`Sample::of_file`], from an open file, or from the beginning of a pipe. `path` names it
    /// in errors.
    ///
    /// # Errors
    /// [`TuneError::Read`], [`TuneError::Empty`].
    pub fn of_input(file: File, path: &Path, limit: u64) -> Result<Self, TuneError> {
        let meta = file.metadata().map_err(|source| cannot_read(path, source))?;
        if !meta.is_file() {
            return Self::of_stream(file, path, limit);
        }
        let mut windows = Windows::new(meta.len(), limit);
        windows.take(&file, 0, meta.len()).map_err(|source| cannot_read(path, source))?;
        windows.sample(meta.len(), None).filled(path)
    }

    /// Reads at most `limit` bytes of a data directory, in blocks from all over its files. Symbolic
    /// links are not followed. Lists the directory twice instead of keeping its names in memory.
    ///
    /// # Errors
    /// [`TuneError::Read`], [`TuneError::Empty`].
    pub fn of_folder(folder: &Path, limit: u64) -> Result<Self, TuneError> {
        let (mut total, mut files) = (0_u64, 0_u64);
        walk(folder, &mut |_, len| {
            total = total.saturating_add(len);
            files += 1;
            Ok(())
        })?;
        let mut windows = Windows::new(total, limit);
        let mut at = 0_u64;
        walk(folder, &mut |path, len| {
            // A file that has grown since must not push the windows beyond the end.
            if windows.reaches(at.saturating_add(len)) {
                let opened =
                    or_none(File::open(path)).map_err(|source| cannot_read(path, source))?;
                // A server removes tables while we read.
                let Some(file) = opened else { return Ok(()) };
                windows.take(&file, at, len).map_err(|source| cannot_read(path, source))?;
            }
            at = at.saturating_add(len);
            Ok(())
        })?;
        windows.sample(total, Some(files)).filled(folder)
    }

    /// Size of the sample in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks.iter().map(|block| block.len() as u64).sum()
    }

    /// Returns whether the sample has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn filled(self, path: &Path) -> Result<Self, TuneError> {
        match self.is_empty() {
            true => Err(TuneError::Empty { path: path.to_owned() }),
            false => Ok(self),
        }
    }
}

/// Blocks at equal distances in the data, which are the files one after the other.
struct Windows {
    stride: u64,
    most: usize,
    blocks: Vec<Vec<u8>>,
    open: Vec<u8>,
    reading: Duration,
}

impl Windows {
    fn new(total: u64, limit: u64) -> Self {
        let most = (limit / BLOCK as u64).max(1);
        let stride = (total / most).max(BLOCK as u64);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { stride, most, blocks: Vec::new(), open: Vec::new(), reading: Duration::ZERO }
    }

    /// Position of the next byte of the sample.
    fn next(&self) -> u64 {
        (self.blocks.len() as u64 * self.stride).saturating_add(self.open.len() as u64)
    }

    fn reaches(&self, end: u64) -> bool {
        self.blocks.len() < self.most && self.next() < end
    }

    /// Adds to the sample what it needs from a file of `len` bytes that begins at `at`.
    fn take(&mut self, file: &File, at: u64, len: u64) -> io::Result<()> {
        let begin = Instant::now();
        while self.reaches(at.saturating_add(len)) {
            let offset = self.next().saturating_sub(at);
            let filled = self.open.len();
            let room = (BLOCK - filled) as u64;
            let wanted = room.min(len - offset);
            self.open.resize(filled + usize::try_from(wanted).unwrap_or(0), 0);
            let got = file.read_at(self.open.get_mut(filled..).unwrap_or_default(), offset)?;
            self.open.truncate(filled + got);
            if got == 0 {
                break;
            }
            if self.open.len() == BLOCK {
                self.blocks.push(std::mem::take(&mut self.open));
            }
        }
        self.reading += begin.elapsed();
        Ok(())
    }

    fn sample(mut self, total: u64, files: Option<u64>) -> Sample {
        if !self.open.is_empty() {
            self.blocks.push(self.open);
        }
        let len = self.blocks.iter().map(|block| block.len() as u64).sum();
        Sample { blocks: self.blocks, total, files, read: rate(len, self.reading) }
    }
}

/// Calls `file` with path and size of each regular file below `folder` that a backup would copy.
fn walk(
    folder: &Path,
    file: &mut impl FnMut(&Path, u64) -> Result<(), TuneError>,
) -> Result<(), TuneError> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let listed = std::fs::read_dir(&folder).map_err(|source| cannot_read(&folder, source))?;
        for entry in listed {
            let entry = entry.map_err(|source| cannot_read(&folder, source))?;
            let name = entry.file_name();
            if NOT_COPIED.iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes()))
            {
                continue;
            }
            let path = entry.path();
            match entry.file_type().map_err(|source| cannot_read(&path, source))? {
                kind if kind.is_dir() => folders.push(path),
                kind if FileType::is_file(&kind) => {
                    let meta = or_none(entry.metadata());
                    if let Some(meta) = meta.map_err(|source| cannot_read(&path, source))? {
                        file(&path, meta.len())?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn cannot_read(path: &Path, source: io::Error) -> TuneError {
    TuneError::Read { path: PathBuf::from(path), source }
}

/// Bytes per second; at least 1.
fn rate(bytes: u64, span: Duration) -> f64 {
    (bytes as f64 / span.as_secs_f64().max(1e-6)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> &'static Path {
        Path::new("stdin")
    }

    #[test]
    fn a_stream_is_read_up_to_the_limit() {
        let data = vec![7_u8; 3 * BLOCK + 5];
        let whole = Sample::of_stream(&data[..], name(), 1 << 30).unwrap();
        assert_eq!((whole.total, whole.blocks.len()), (data.len() as u64, 4));
        let part = Sample::of_stream(&data[..], name(), BLOCK as u64 + 9).unwrap();
        assert_eq!((part.total, part.len()), (BLOCK as u64 + 9, BLOCK as u64 + 9));
        assert!(matches!(Sample::of_stream(&[][..], name(), 9), Err(TuneError::Empty { .. })));
        // An endless one, too.
        let endless = Sample::of_stream(io::repeat(1), name(), 2 * BLOCK as u64).unwrap();
        assert_eq!(endless.len(), 2 * BLOCK as u64);
    }

    #[test]
    fn a_large_file_is_sampled_from_begin_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(&[9], (3 << 40) / 4).unwrap();
        let sample = Sample::of_file(&path, 8 * BLOCK as u64).unwrap();
        assert_eq!((sample.total, sample.len()), (1 << 40, 8 * BLOCK as u64));
        assert_eq!(sample.blocks[6][0], 9, "the block at three quarters");
    }

    #[test]
    fn files_outside_a_backup_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, len: usize| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; len]).unwrap();
        };
        write("ibdata1", 1000);
        write("shop/orders.ibd", 500);
        write("ib_logfile0", 9999);
        write("#innodb_temp/temp_1.ibt", 9999);
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let sample = Sample::of_folder(folder.path(), 1 << 20).unwrap();
        assert_eq!((sample.total, sample.len(), sample.files), (1500, 1500, Some(2)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_sample_keeps_its_limit(
            sizes in proptest::collection::vec(0_u64..(3 * BLOCK as u64), 1..12), blocks in 1_u64..6,
        ) {
            let folder = tempfile::tempdir().unwrap();
            for (n, size) in sizes.iter().enumerate() {
                File::create(folder.path().join(n.to_string())).unwrap().set_len(*size).unwrap();
            }
            let (total, limit) = (sizes.iter().sum::<u64>(), blocks * BLOCK as u64);
            match Sample::of_folder(folder.path(), limit) {
                Ok(sample) => {
                    prop_assert!(sample.len() <= limit && sample.total == total);
                    prop_assert_eq!(sample.files, Some(sizes.len() as u64));
                    // All of it, or so much that one block may be missing at the end.
                    prop_assert!(sample.len() + BLOCK as u64 > limit.min(total));
                }
                Err(TuneError::Empty { .. }) => prop_assert_eq!(total, 0),
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
