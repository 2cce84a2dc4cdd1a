//! Small xbstream writer and scanner, independent of the reader crate.
//!
//! The layout is that of the stock tools: magic, flags, type, path length, path, and fields that
//! depend on the type; all numbers are little-endian, CRC-32 is that of zlib.

use std::io::Write;

/// First bytes of every chunk.
pub const MAGIC: &[u8; 8] = b"XBSTCK01";

/// The facts that the clone of [`StreamWriter::clone_of_mysql`] states about itself.
pub const CLONE_INFO: &str = r#"{"format": 1, "version": "9.7.4-2", "page_size": 16384, "protocol": 259, "has_keys": false, "patches": 0,
"gtids_from": "11111111-2222-3333-4444-555555555555:1-5", "gtids_to": "11111111-2222-3333-4444-555555555555:1-7",
"settings": {}, "plugins": [], "empty_tables": ["shop.old (MyISAM)"],
"files": [{"index": 0, "path": "ibdata1", "name": "ibdata1", "size": 16384, "space": 0, "space_flags": 0,
"page_size": 16384, "is_encrypted": false, "has_compressed_pages": false}], "redo": []}"#;

/// Writer of chunks. It checks nothing, so it can write invalid ones.
#[derive(Debug)]
pub struct StreamWriter<W: Write> {
    out: W,
    flags: u8,
}

impl<W: Write> StreamWriter<W> {
    /// Creates a writer of chunks into `out`.
    pub fn new(out: W) -> Self {
        Self { out, flags: 0 }
    }

    /// Sets the flags of the following chunks (1 ignorable, 2 rewrite).
    pub fn flags(&mut self, flags: u8) -> &mut Self {
        self.flags = flags;
        self
    }

    /// Writes a payload chunk with the right checksum.
    pub fn payload(&mut self, path: &str, offset: u64, data: &[u8]) -> &mut Self {
        self.payload_with_crc(path, offset, data, crc32(0, data))
    }

    /// Writes a payload chunk with a given checksum.
    pub fn payload_with_crc(
        &mut self,
        path: &str,
        offset: u64,
        data: &[u8],
        crc: u32,
    ) -> &mut Self {
        self.head(b'P', path);
        self.raw(&(data.len() as u64).to_le_bytes()).raw(&offset.to_le_bytes());
        self.raw(&crc.to_le_bytes()).raw(data)
    }

    /// Writes Percona's sparse chunk; `map` contains pairs (bytes to skip, bytes to write).
    pub fn sparse(
        &mut self,
        path: &str,
        offset: u64,
        map: &[(u32, u32)],
        data: &[u8],
    ) -> &mut Self {
        let entries: Vec<u8> = map
            .iter()
            .flat_map(|(skip, len)| [skip.to_le_bytes(), len.to_le_bytes()].concat())
            .collect();
        let count = u32::try_from(map.len()).expect("entries");
        self.head(b'S', path);
        self.raw(&count.to_le_bytes()).raw(&(data.len() as u64).to_le_bytes());
        self.raw(&offset.to_le_bytes());
        self.raw(&crc32(crc32(0, &entries), data).to_le_bytes()).raw(&entries).raw(data)
    }

    /// Writes the end chunk of a file.
    pub fn end(&mut self, path: &str) -> &mut Self {
        self.head(b'E', path)
    }

    /// Writes MariaDB's seek chunk.
    pub fn seek(&mut self, path: &str, offset: u64) -> &mut Self {
        self.head(b'S', path).raw(&offset.to_le_bytes())
    }

    /// Writes MariaDB's rename chunk.
    pub fn rename(&mut self, path: &str, to: &str) -> &mut Self {
        let len = u32::try_from(to.len()).expect("path length");
        self.head(b'R', path).raw(&len.to_le_bytes()).raw(to.as_bytes())
    }

    /// Writes MariaDB's remove chunk.
    pub fn remove(&mut self, path: &str) -> &mut Self {
        self.head(b'D', path)
    }

    /// Writes a file in payload chunks of at most `chunk` bytes, then its end chunk.
    pub fn file(&mut self, path: &str, data: &[u8], chunk: usize) -> &mut Self {
        let mut offset = 0;
        for piece in data.chunks(chunk) {
            self.payload(path, offset, piece);
            offset += piece.len() as u64;
        }
        self.end(path)
    }

    /// Writes a file of `chunks` payload chunks with the same `block` in each, then its end chunk:
    /// gigabytes of valid stream at the cost of one checksum.
    pub fn repeated(&mut self, path: &str, block: &[u8], chunks: u64) -> &mut Self {
        let crc = crc32(0, block);
        for n in 0..chunks {
            self.payload_with_crc(path, n * block.len() as u64, block, crc);
        }
        self.end(path)
    }

    /// Writes the file that mariadb-backup writes last, which shows that a stream is complete.
    pub fn info(&mut self) -> &mut Self {
        self.file("xtrabackup_info", b"tool_name = mariadb-backup\n", 1 << 20)
    }

    /// Writes the files in which a backup states that it reaches from one LSN to another, and those
    /// that every backup has: a system tablespace, settings and a redo log. From 0, it is a full one.
    pub fn positions(&mut self, from: u64, to: u64) -> &mut Self {
        let (kind, system) = match from {
            0 => ("full-backuped", &["system"][..]),
            _ => ("incremental", &["system.meta", "system.delta"][..]),
        };
        // A name whose content level `pages` does not know.
        for name in system {
            self.file(name, b"pages", 1 << 20);
        }
        self.file("backup-my.cnf", b"[mysqld]\ninnodb_data_file_path=system:12M\n", 1 << 20);
        let positions =
            format!("backup_type = {kind}\nfrom_lsn = {from}\nto_lsn = {to}\nlast_lsn = {to}\n");
        self.file("ib_logfile0", b"redo", 1 << 20).file(
            "xtrabackup_checkpoints",
            positions.as_bytes(),
            1 << 20,
        )
    }

    /// Writes a small clone of a MySQL 9.7 server in its stored form, whose table `shop.old` comes back empty.
    pub fn clone_of_mysql(&mut self) -> &mut Self {
        let patches = [&b"XBCLPT01\x03"[..], &[0; 16]].concat();
        self.file("xb_clone.README", b"See docs/spec/clone.md.\n", 1 << 20)
            .file("ibdata1", &[0; 16384], 1 << 20)
            .file("xb_clone.patches", &patches, 1 << 20)
            .file("xb_clone.json", CLONE_INFO.as_bytes(), 100)
    }

    /// Writes bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        // Many tests are about a reader that stops early.
        match self.out.write_all(bytes) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(e) => panic!("writing a test stream: {e}"),
        }
        self
    }

    /// Returns the output.
    pub fn finish(self) -> W {
        self.out
    }

    fn head(&mut self, kind: u8, path: &str) -> &mut Self {
        let len = u32::try_from(path.len()).expect("path length");
        let flags = self.flags;
        self.raw(MAGIC).raw(&[flags, kind]).raw(&len.to_le_bytes()).raw(path.as_bytes())
    }
}

/// Returns a complete small backup stream: some files of mixed contents and the last file.
#[must_use]
pub fn small_backup(seed: u64, size: usize) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::with_capacity(size + 4096));
    let data = crate::contents::data::mixed(seed, size);
    let (first, rest) = data.split_at(size / 3);
    out.file("ibdata1", first, 1 << 20).file("db/empty.ibd", b"", 1);
    out.file("db/table.ibd", rest, 1 << 20).file("xtrabackup_checkpoints", b"to_lsn = 1\n", 99);
    out.info();
    out.finish()
}

/// One chunk of a scanned stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Type letter.
    pub kind: char,
    /// Path as written.
    pub path: String,
    /// Offset of the magic.
    pub start: usize,
    /// Offset of the next chunk.
    pub stop: usize,
}

/// Returns the chunks of a valid stream of payload and end chunks (and MariaDB's seek, rename and
/// remove chunks), in order.
///
/// # Panics
/// The stream is invalid.
#[must_use]
pub fn scan(bytes: &[u8]) -> Vec<Chunk> {
    let word =
        |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
    let mut chunks = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        assert_eq!(&bytes[at..at + 8], MAGIC, "no chunk at {at}");
        let kind = char::from(bytes[at + 9]);
        let after = at + 14 + word(at + 10);
        let path = String::from_utf8_lossy(&bytes[at + 14..after]).into_owned();
        let stop = match kind {
            'P' => after + 20 + (word(after) | word(after + 4) << 32),
            'S' => after + 8,
            'R' => after + 4 + word(after),
            'E' | 'D' => after,
            other => panic!("chunk type {other:?} at {at}"),
        };
        assert!(stop <= bytes.len(), "stream ends inside the chunk at {at}");
        chunks.push(Chunk { kind, path, start: at, stop });
        at = stop;
    }
    chunks
}

/// Computes zlib's CRC-32, continuing from `crc` (0 at the start), eight bytes at a time.
#[must_use]
pub fn crc32(crc: u32, data: &[u8]) -> u32 {
    const TABLES: [[u32; 256]; 8] = tables();
    let mut crc = !crc;
    let mut words = data.chunks_exact(8);
    for w in &mut words {
        let low = crc ^ u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
        let [a, b, c, d] = low.to_le_bytes().map(usize::from);
        crc = TABLES[7][a] ^ TABLES[6][b] ^ TABLES[5][c] ^ TABLES[4][d];
        crc ^= TABLES[3][usize::from(w[4])] ^ TABLES[2][usize::from(w[5])];
        crc ^= TABLES[1][usize::from(w[6])] ^ TABLES[0][usize::from(w[7])];
    }
    for byte in words.remainder() {
        crc = TABLES[0][usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    }
    !crc
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut n = 0_u32;
    while n < 256 {
        let mut value = n;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        tables[0][n as usize] = value;
        n += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut n = 0;
        while n < 256 {
            let before = tables[k - 1][n];
            tables[k][n] = tables[0][(before & 0xFF) as usize] ^ (before >> 8);
            n += 1;
        }
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_check_value_and_carrying_on() {
        // Published check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(0, b"123456789"), 0xCBF4_3926);
        let data = crate::contents::data::noise(9, 1000);
        for cut in [0, 1, 7, 8, 9, 500, 1000] {
            assert_eq!(crc32(crc32(0, &data[..cut]), &data[cut..]), crc32(0, &data));
        }
    }

    #[test]
    fn a_chunk_has_the_stock_layout() {
        let mut out = StreamWriter::new(Vec::new());
        out.payload("a/b", 5, b"xyz").end("a/b");
        let expected = [
            &b"XBSTCK01\0P\x03\0\0\0a/b"[..],
            b"\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x67\xba\x8e\xeb",
            b"xyzXBSTCK01\0E\x03\0\0\0a/b",
        ]
        .concat();
        assert_eq!(out.finish(), expected);
    }

    #[test]
    fn scan_finds_what_was_written() {
        let mut out = StreamWriter::new(Vec::new());
        out.file("f", b"hello world", 4).seek("g", 9).rename("f", "h").remove("h").info();
        let bytes = out.finish();
        let chunks = scan(&bytes);
        let kinds: String = chunks.iter().map(|c| c.kind).collect();
        assert_eq!(kinds, "PPPESRDPE");
        assert_eq!(chunks.last().map(|c| c.stop), Some(bytes.len()));
    }

    #[test]
    fn mbstream_takes_our_streams() {
        let scratch = crate::process::daemon::Scratch::new();
        let (dir, file) = (scratch.dir("out"), scratch.join("stream"));
        std::fs::write(&file, small_backup(1, 300_000)).unwrap();
        let out = crate::process::command::Cmd::new(crate::process::tools::find("mbstream"))
            .args(["-x", "-C"])
            .arg(&dir)
            .stdin_file(&file)
            .run()
            .expect(0);
        assert_eq!(out.stderr_text(), "");
        let table = std::fs::read(dir.join("db/table.ibd")).unwrap();
        assert_eq!(table, crate::contents::data::mixed(1, 300_000)[100_000..]);
    }
}
