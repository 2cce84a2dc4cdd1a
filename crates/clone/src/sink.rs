//! Writes what arrives as a stream of files, in the order in which it arrives.

use std::collections::BTreeSet;
use std::io::Write;

use xb_mysql::clone::{Block, CloneFile, Stage};
use xb_reader::{ChunkWriter, RelPath};

use crate::error::Error;
use crate::late::first_page;
use crate::layout::places;
use crate::patches::{MAGIC, PatchTarget, end, head, removed};
use crate::stored::{CloneInfo, INFO, KEYS_TEXT, PATCHES, README, README_TEXT, StoredFile};

/// Bytes of patches that are written at once.
const BUFFER: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Sink<W> {
    output: ChunkWriter<W>,
    /// Names of the files in the stream, by index; known when the first one begins.
    paths: Vec<RelPath>,
    /// Index of the file that is being written.
    open: usize,
    patches: Vec<u8>,
    /// Bytes of patches that were written.
    written: u64,
    records: u64,
    /// Indexes of files that DDL created, and of those that it removed.
    late: BTreeSet<u32>,
    removed: BTreeSet<u32>,
}

impl<W: Write> Sink<W> {
    pub(crate) fn new(output: W) -> Self {
        Self {
            output: ChunkWriter::new(output),
            paths: Vec::new(),
            open: 0,
            patches: MAGIC.to_vec(),
            written: 0,
            records: 0,
            late: BTreeSet::new(),
            removed: BTreeSet::new(),
        }
    }

    /// Begins the stream. All files are known.
    pub(crate) fn begin(
        &mut self,
        files: &[CloneFile],
        page_size: u32,
        allows_ddl: bool,
    ) -> Result<(), Error> {
        let stored = files.iter().map(StoredFile::new).collect::<Result<Vec<_>, _>>()?;
        // What a restore would refuse is refused before hours of data.
        places(&stored, page_size, allows_ddl).map_err(|error| match error {
            Error::Damaged(what) => Error::Refused(format!(
                "a clone of the server could not be restored: {what}: give that file another name or place, and take another backup"
            )),
            error => error,
        })?;
        for (file, stored) in files.iter().zip(&stored) {
            let path = RelPath::new(stored.path.as_bytes())
                .map_err(|e| Error::Refused(format!("the file {}: {e}", file.name)))?;
            self.paths.push(path);
        }
        let keys = files.iter().any(|file| file.is_encrypted).then_some(KEYS_TEXT.as_bytes());
        self.output.payload(README, 0, &[README_TEXT, keys.unwrap_or_default()].concat())?;
        self.output.end(README)?;
        Ok(())
    }

    pub(crate) fn block(&mut self, block: &Block<'_>) -> Result<(), Error> {
        if block.stage == Stage::File {
            let index = usize::try_from(block.file).unwrap_or(usize::MAX);
            self.end_before(index)?;
            let path = self.paths.get(index);
            let path = path.ok_or_else(|| Error::Damaged(format!("file {index} has no name")))?;
            self.output.payload(path, block.offset, block.bytes)?;
            return Ok(());
        }
        let to = match block.stage {
            Stage::Redo => PatchTarget::Redo(block.file),
            _ => PatchTarget::File(block.file),
        };
        self.patch(to, block.offset, block.bytes)
    }

    fn patch(&mut self, to: PatchTarget, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.patches.extend(head(to, offset, bytes.len())?);
        self.patches.extend_from_slice(bytes);
        self.records = self.records.saturating_add(1);
        if self.patches.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    /// Takes a file that DDL created, renamed or removed since the stream began.
    pub(crate) fn changed(&mut self, file: &CloneFile) -> Result<(), Error> {
        if file.is_removed {
            self.removed.insert(file.index);
        } else if file.is_late && self.late.insert(file.index) {
            self.end_files()?;
            self.patch(PatchTarget::File(file.index), 0, &first_page(file)?)?;
        }
        Ok(())
    }

    /// Ends the files of the file stage, those without a byte as well.
    pub(crate) fn end_files(&mut self) -> Result<(), Error> {
        self.end_before(self.paths.len())
    }

    fn end_before(&mut self, index: usize) -> Result<(), Error> {
        while self.open < index.min(self.paths.len()) {
            if let Some(path) = self.paths.get(self.open) {
                self.output.end(path)?;
            }
            self.open += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.output.payload(PATCHES, self.written, &self.patches)?;
        self.written = self.written.saturating_add(self.patches.len() as u64);
        self.patches.clear();
        Ok(())
    }

    /// Ends the stream of a clone that came whole.
    pub(crate) fn finish(mut self, mut info: CloneInfo) -> Result<(CloneInfo, W), Error> {
        for index in &self.removed {
            self.patches.extend(removed(*index));
        }
        self.patches.extend(end(self.records));
        self.flush()?;
        self.output.end(PATCHES)?;
        info.patches = self.records;
        // Under the name that a file had when it began.
        for (file, path) in info.files.iter_mut().zip(&self.paths) {
            file.path = String::from_utf8_lossy(path.as_bytes()).into_owned();
        }
        let mut text = serde_json::to_vec_pretty(&info).map_err(std::io::Error::other)?;
        text.push(b'\n');
        // A stream that a restore would refuse is no backup.
        let _ = CloneInfo::parse(&text)?;
        self.output.payload(INFO, 0, &text)?;
        self.output.end(INFO)?;
        Ok((info, self.output.finish()?))
    }
}
