//! A writer of streams.

use std::io::{self, Write};

use crate::chunk::checksum::{self, crc32};
use crate::chunk::{FIXED_LEN, MAGIC, MAP_ENTRY_LEN, MapEntry, kind};
use crate::{MAX_FILE_OFFSET, RelPath};

/// Writes chunks, with flags 0. The writer does not track files: the caller must end each file and
/// write its chunks in order.
///
/// Each chunk takes one or two writes; for small chunks put a [`std::io::BufWriter`] underneath.
/// Names can be anything that converts to bytes, a [`RelPath`] or a name as the user wrote it: 1 to
/// 511 bytes without NUL.
///
/// A stream ends with [`ChunkWriter::finish`], which flushes. Dropping the writer does not flush.
///
/// # Errors
///
/// All methods return the errors of the output, and
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for chunks that no reader could accept.
#[derive(Debug)]
pub struct ChunkWriter<W> {
    output: W,
    head: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    /// Starts a stream at the current position of `output`.
    pub fn new(output: W) -> Self {
        Self { output, head: Vec::new() }
    }

    /// Writes `bytes` of the file, beginning at file offset `offset`.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`].
    pub fn payload(&mut self, path: impl AsRef<[u8]>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.payload_fields(path.as_ref(), offset, bytes.len() as u64, crc32(bytes))?;
        self.put(bytes)
    }

    /// Writes only the head of a chunk with `len` bytes of the file from `offset` on, whose CRC-32
    /// is `crc`. The caller must write these bytes next.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`].
    pub fn payload_head(
        &mut self,
        path: impl AsRef<[u8]>,
        offset: u64,
        len: u64,
        crc: u32,
    ) -> io::Result<()> {
        self.payload_fields(path.as_ref(), offset, len, crc)?;
        self.put(&[])
    }

    fn payload_fields(&mut self, path: &[u8], offset: u64, len: u64, crc: u32) -> io::Result<()> {
        check_reach(offset, len)?;
        self.begin(kind::PAYLOAD, path)?;
        self.head.extend_from_slice(&len.to_le_bytes());
        self.head.extend_from_slice(&offset.to_le_bytes());
        self.head.extend_from_slice(&crc.to_le_bytes());
        Ok(())
    }

    /// Writes holes and bytes of the file from `offset` on; see [`MapEntry`]. Only Percona
    /// XtraBackup 8.0 and later read this.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`]. Also an error: an empty map, a map that does not add up to the length
    /// of `bytes`, or an empty entry before the last.
    pub fn sparse(
        &mut self,
        path: impl AsRef<[u8]>,
        offset: u64,
        map: &[MapEntry],
        bytes: &[u8],
    ) -> io::Result<()> {
        let len = bytes.len() as u64;
        let sum: u64 = map.iter().map(|entry| u64::from(entry.len)).sum();
        let holes: u64 = map.iter().map(|entry| u64::from(entry.skip)).sum();
        if map.is_empty() || sum != len || map.iter().rev().skip(1).any(|entry| entry.len == 0) {
            return Err(invalid("the map of a sparse chunk does not match its payload"));
        }
        let entries = u32::try_from(map.len()).map_err(|_| invalid("too many map entries"))?;
        check_reach(offset, len.saturating_add(holes))?;
        self.begin(kind::SPARSE_OR_SEEK, path.as_ref())?;
        self.head.extend_from_slice(&entries.to_le_bytes());
        self.head.extend_from_slice(&len.to_le_bytes());
        self.head.extend_from_slice(&offset.to_le_bytes());
        self.head.extend_from_slice(&checksum::sparse_crc(map, bytes).to_le_bytes());
        self.head.reserve(map.len() * MAP_ENTRY_LEN);
        for entry in map {
            self.head.extend_from_slice(&entry.skip.to_le_bytes());
            self.head.extend_from_slice(&entry.len.to_le_bytes());
        }
        self.put(bytes)
    }

    /// Writes the end chunk: the file is complete.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`].
    pub fn end(&mut self, path: impl AsRef<[u8]>) -> io::Result<()> {
        self.begin(kind::END, path.as_ref())?;
        self.put(&[])
    }

    /// Writes a seek: the file's next payload is for `offset`. Only MariaDB reads this.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`].
    pub fn seek(&mut self, path: impl AsRef<[u8]>, offset: u64) -> io::Result<()> {
        check_reach(offset, 0)?;
        self.begin(kind::SPARSE_OR_SEEK, path.as_ref())?;
        self.head.extend_from_slice(&offset.to_le_bytes());
        self.put(&[])
    }

    /// Writes a rename of the file. Only MariaDB reads this.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`].
    pub fn rename(&mut self, path: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> io::Result<()> {
        let to = to.as_ref();
        let len = name_len(to)?;
        self.begin(kind::RENAME, path.as_ref())?;
        self.head.extend_from_slice(&len.to_le_bytes());
        self.head.extend_from_slice(to);
        self.put(&[])
    }

    /// Writes a removal: the file is no longer needed. Only MariaDB reads this.
    ///
    /// # Errors
    ///
    /// See [`ChunkWriter`].
    pub fn remove(&mut self, path: impl AsRef<[u8]>) -> io::Result<()> {
        self.begin(kind::REMOVE, path.as_ref())?;
        self.put(&[])
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    ///
    /// The output could not be flushed: the stream is incomplete.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    fn begin(&mut self, type_byte: u8, path: &[u8]) -> io::Result<()> {
        let len = name_len(path)?;
        self.head.clear();
        self.head.reserve(FIXED_LEN + path.len());
        self.head.extend_from_slice(&MAGIC);
        self.head.extend_from_slice(&[0, type_byte]);
        self.head.extend_from_slice(&len.to_le_bytes());
        self.head.extend_from_slice(path);
        Ok(())
    }

    fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        self.output.write_all(&self.head)?;
        self.output.write_all(payload)
    }
}

fn name_len(name: &[u8]) -> io::Result<u32> {
    match u32::try_from(name.len()) {
        Ok(len) if (1..=RelPath::MAX_LEN).contains(&name.len()) && !name.contains(&0) => Ok(len),
        _ => {
            Err(invalid("the file name is empty, contains a NUL byte or is longer than 511 bytes"))
        }
    }
}

fn check_reach(offset: u64, span: u64) -> io::Result<()> {
    match offset.checked_add(span) {
        Some(end) if end <= MAX_FILE_OFFSET => Ok(()),
        _ => Err(invalid("past the largest possible file offset")),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
