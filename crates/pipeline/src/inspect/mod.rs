//! Inspects a plain xbstream without storing it: checks every chunk against its checksum and every
//! file from its first byte to its end, decodes the layers of files, and checks the pages of
//! tablespaces.
//!
//! Only open files use memory: each as much as its decoders hold.

mod index_check;
mod layer_state;
pub(crate) mod options;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use xb_pages::{BadPage, PageCounts};
use xb_reader::{ChunkHead, ChunkKind, DecodeError, Dialect, OrderError, Placement, RelPath};

use index_check::Records;
pub use index_check::{Disagreement, IndexProof, IndexWatch};
use layer_state::{Content, Desk, Look};
pub use options::InspectOptions;

use crate::extract::decode::FileDecodeError;
use crate::scan::scanner::{
    ChunkCheck, Scanned, Scanner, Step, StreamError, chunk_record, sum_pieces,
};

/// Maximum number of bad pages that are listed individually.
pub const MAX_BAD_PAGES: usize = 1000;

/// A bad page and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPageOf {
    /// The file's name in the stream.
    pub path: RelPath,
    /// The page and its defect.
    pub page: BadPage,
}

/// Result for a complete stream.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// Findings about the stream itself.
    pub scanned: Scanned,
    /// Digest of the files and chunks, to compare with the index.
    pub records: [u8; 32],
    /// Number of files whose layers were decoded to their end.
    pub undone: u64,
    /// Number of encrypted files that were left alone because there is no key.
    pub unopened: u64,
    /// Findings about pages.
    pub pages: PagesFound,
}

/// Findings about the pages of a stream.
#[derive(Debug, Clone, Default)]
pub struct PagesFound {
    /// Number of tablespace files whose pages were checked.
    pub files: u64,
    /// Number of tablespace files that could not be checked: their bytes are out of order, they are
    /// compressed or encrypted and not decoded, or too many are open at a time.
    pub passed_over: u64,
    /// Counts of pages in files that have ended.
    pub counts: PageCounts,
    /// The first [`MAX_BAD_PAGES`] bad pages.
    pub bad: Vec<BadPageOf>,
    /// Number of further bad pages. The counts do not include all of them, because they only cover
    /// files that have ended.
    pub untold: u64,
}

/// Reason why a stream failed inspection.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The stream itself is damaged or incomplete.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A file cannot be decrypted or decompressed.
    #[error("{path}: {source} (stream offset {position})")]
    Undo {
        /// Name in the stream.
        path: RelPath,
        /// Stream offset of the chunk.
        position: u64,
        /// Cause.
        source: Arc<FileDecodeError>,
    },
}

impl InspectError {
    /// Stream offset and file of the chunk with the error, if they are known.
    #[must_use]
    pub fn place(&self) -> (Option<u64>, Option<&RelPath>) {
        match self {
            Self::Stream(StreamError::Decode(error)) => (Some(error.position()), error.path()),
            Self::Stream(StreamError::Order(error)) => (Some(error.position()), Some(error.path())),
            Self::Stream(StreamError::Name { path, position, .. }) => (Some(*position), Some(path)),
            Self::Stream(_) => (None, None),
            Self::Undo { path, position, .. } => (Some(*position), Some(path)),
        }
    }

    /// Offset of the error in that file, in bytes, if it is known.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        match self {
            Self::Stream(StreamError::Decode(DecodeError::Checksum { offset, .. })) => {
                Some(*offset)
            }
            Self::Stream(StreamError::Order(OrderError::Offset { expected, .. })) => {
                Some(*expected)
            }
            _ => None,
        }
    }
}

/// Inspects a stream that is fed to it piece by piece. Call [`Inspector::finish`] at the end.
#[derive(Debug)]
pub struct Inspector {
    options: InspectOptions,
    desk: Desk,
    scanner: Scanner,
    check: ChunkCheck,
    records: Records,
    open: HashMap<RelPath, Look>,
    current: Option<Current>,
    /// Bytes that page checkers of open files hold.
    held: u64,
    /// Error in the content of the current chunk, dropped if the chunk's checksum does not match.
    failure: Option<InspectError>,
    undone: u64,
    unopened: u64,
    pages: PagesFound,
}

#[derive(Debug)]
struct Current {
    path: RelPath,
    position: u64,
    place: Placement,
    /// File offset after the chunk, holes included.
    end: u64,
}

impl Inspector {
    /// Creates an inspector at the start of a stream.
    #[must_use]
    pub fn new(options: InspectOptions) -> Self {
        Self {
            desk: Desk::new(options.memory),
            scanner: Scanner::new(Dialect::Auto, options.rule.clone()),
            options,
            check: ChunkCheck::default(),
            records: Records::default(),
            open: HashMap::new(),
            current: None,
            held: 0,
            failure: None,
            undone: 0,
            unopened: 0,
            pages: PagesFound::default(),
        }
    }

    /// Takes the next piece of the stream, of any length.
    ///
    /// # Errors
    /// [`InspectError`]; further input is useless.
    pub fn feed(&mut self, bytes: &Bytes) -> Result<(), InspectError> {
        let notes = self.scanner.scan(bytes)?;
        let sums = sum_pieces(bytes, &notes.steps);
        notes.entries.iter().for_each(|entry| self.records.entry(entry));
        let mut sums = sums.iter();
        notes.steps.into_iter().try_for_each(|step| self.step(step, bytes, &mut sums))
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`InspectError`] if the stream is incomplete.
    pub fn finish(self) -> Result<Inspected, InspectError> {
        let Self { scanner, mut records, undone, unopened, pages, .. } = self;
        let (notes, scanned) = scanner.finish()?;
        notes.entries.iter().for_each(|entry| records.entry(entry));
        Ok(Inspected { scanned, records: records.finish(), undone, unopened, pages })
    }

    /// The bad pages so far.
    #[must_use]
    pub fn pages(&self) -> &PagesFound {
        &self.pages
    }

    /// The file of the current chunk, if the chunk is incomplete: the next bytes belong to it.
    #[must_use]
    pub fn inside(&self) -> Option<&RelPath> {
        self.current.as_ref().map(|current| &current.path)
    }

    fn step<'s>(
        &mut self,
        step: Step,
        bytes: &Bytes,
        sums: &mut impl Iterator<Item = &'s xb_reader::PieceCheck>,
    ) -> Result<(), InspectError> {
        let mut ended = false;
        match &step {
            Step::Head(head) => self.head(head)?,
            Step::Piece(range) => {
                if self.failure.is_none() {
                    let piece = bytes.get(range.clone()).unwrap_or_default();
                    self.failure = self.piece(piece).err();
                }
            }
            Step::End => ended = true,
        }
        self.check.step(step, sums).map_err(StreamError::from)?;
        if ended {
            // Only now: damage that the checksum detects must not be blamed on the key.
            self.failure.take().map_or(Ok(()), Err)?;
            self.chunk_end();
        }
        Ok(())
    }

    fn head(&mut self, head: &ChunkHead) -> Result<(), InspectError> {
        let path = &head.path;
        match &head.kind {
            ChunkKind::Payload { .. } | ChunkKind::Sparse { .. } => {
                self.look(path, head.position)?;
                let end = chunk_record(0, head).map_or(0, |chunk| chunk.offset + chunk.logical_len);
                let (path, position, place) = (path.clone(), head.position, head.placement());
                self.current = Some(Current { path, position, place, end });
            }
            ChunkKind::Seek { .. } => self.look(path, head.position)?.pass_over(),
            ChunkKind::End => {
                self.look(path, head.position)?;
                if let Some(look) = self.open.remove(path) {
                    self.end(path, look, head.position)?;
                }
            }
            ChunkKind::Rename { to } => {
                if let Some(look) = self.open.remove(path) {
                    self.open.insert(to.clone(), look);
                }
            }
            ChunkKind::Remove => {
                if let Some(look) = self.open.remove(path) {
                    self.held -= look.held();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the state of the file of this name, and creates it if the file is new.
    fn look(&mut self, path: &RelPath, position: u64) -> Result<&mut Look, InspectError> {
        if !self.open.contains_key(path) {
            let look = Look::new(path, &self.options).map_err(cannot_undo(path, position))?;
            self.open.insert(path.clone(), look);
        }
        // Inserted above if it was missing.
        Ok(self.open.entry(path.clone()).or_default())
    }

    fn piece(&mut self, mut bytes: &[u8]) -> Result<(), InspectError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(look) = self.open.get_mut(&current.path) else { return Ok(()) };
        let before = look.held();
        while let Some((offset, len)) = current.place.take(bytes.len() as u64) {
            // At most as long as requested, so the conversion cannot fail.
            let (now, later) = bytes.split_at(usize::try_from(len).unwrap_or(bytes.len()));
            let mut bad = note(&mut self.pages, &current.path);
            look.take(offset, now, &mut self.desk, &mut bad)
                .map_err(cannot_undo(&current.path, current.position))?;
            bytes = later;
        }
        self.held = self.held - before + look.held();
        if self.held > self.options.memory {
            self.held -= look.held();
            look.pass_over();
        }
        Ok(())
    }

    fn chunk_end(&mut self) {
        let Some(current) = self.current.take() else { return };
        if let Some(look) = self.open.get_mut(&current.path) {
            let before = look.held();
            look.hole_up_to(current.end, &mut note(&mut self.pages, &current.path));
            self.held = self.held - before + look.held();
        }
    }

    fn end(&mut self, path: &RelPath, look: Look, position: u64) -> Result<(), InspectError> {
        self.held -= look.held();
        self.unopened += u64::from(look.is_unopened());
        self.undone += u64::from(look.is_undone());
        let content = look
            .finish(&mut self.desk, &mut note(&mut self.pages, path))
            .map_err(cannot_undo(path, position))?;
        match content {
            Content::Other => {}
            Content::PassedOver => self.pages.passed_over += 1,
            Content::Pages(counts) => {
                self.pages.files += 1;
                self.pages.counts.add(&counts);
            }
        }
        Ok(())
    }
}

/// Records the bad pages of a file.
fn note<'p>(pages: &'p mut PagesFound, path: &'p RelPath) -> impl FnMut(BadPage) + 'p {
    |page| {
        if pages.bad.len() < MAX_BAD_PAGES {
            pages.bad.push(BadPageOf { path: path.clone(), page });
        } else {
            pages.untold += 1;
        }
    }
}

fn cannot_undo(path: &RelPath, position: u64) -> impl Fn(FileDecodeError) -> InspectError {
    let path = path.clone();
    move |source| InspectError::Undo { path: path.clone(), position, source: Arc::new(source) }
}
