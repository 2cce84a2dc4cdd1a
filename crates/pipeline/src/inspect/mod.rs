//! A plain xbstream looked into and thrown away: every chunk against its checksum, every file from its
//! first byte to its end, what is in them undone layer by layer, and the pages of their tablespaces.
//!
//! Nothing is kept but what is open: a file costs what its decoders hold.

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

use crate::extract::decode::UndoError;
use crate::scan::scanner::{
    ChunkCheck, Scanned, Scanner, Step, StreamError, chunk_record, sum_pieces,
};

/// The most bad pages that are told one by one.
pub const MAX_BAD_PAGES: usize = 1000;

/// A page that does not fit, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPageOf {
    /// Its file, as the stream names it.
    pub path: RelPath,
    /// Which page, and what is wrong.
    pub page: BadPage,
}

/// What was found in a stream that is whole.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// The stream as such.
    pub scanned: Scanned,
    /// What its index has to say.
    pub records: [u8; 32],
    /// Files whose layers were undone to their end.
    pub undone: u64,
    /// Encrypted files that were left as they are, for want of a key.
    pub unopened: u64,
    /// What was found about pages.
    pub pages: PagesFound,
}

/// What was found about the pages of a stream.
#[derive(Debug, Clone, Default)]
pub struct PagesFound {
    /// Tablespace files whose pages were checked.
    pub files: u64,
    /// Tablespace files that could not be: their bytes come out of order, they are compressed or
    /// encrypted and not undone, or too many are open at a time.
    pub passed_over: u64,
    /// The pages.
    pub counts: PageCounts,
    /// The first [`MAX_BAD_PAGES`] bad ones.
    pub bad: Vec<BadPageOf>,
    /// How many more bad ones there are. The counts cannot tell: they are of files that have ended.
    pub untold: u64,
}

/// Why a stream is not in order.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// As a stream.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A file cannot be decrypted or decompressed.
    #[error("{path}: {source} (stream offset {position})")]
    Undo {
        /// Its name in the stream.
        path: RelPath,
        /// Where the chunk in question begins in the stream.
        position: u64,
        /// What went wrong.
        source: Arc<UndoError>,
    },
}

impl InspectError {
    /// Where in the stream it was found, and in which file's chunk, as far as these are known.
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

    /// Where in that file, in bytes, where it is known.
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

/// Looks into a stream that is fed to it piece by piece. It ends with [`Inspector::finish`].
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
    /// What is wrong with the content of the chunk at hand, unless its checksum is.
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
    /// Where the file stands behind it, holes counted.
    end: u64,
}

impl Inspector {
    /// An inspector at the start of a stream.
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
    /// [`InspectError`]; feeding on is of no use.
    pub fn feed(&mut self, bytes: &Bytes) -> Result<(), InspectError> {
        let notes = self.scanner.scan(bytes)?;
        let sums = sum_pieces(bytes, &notes.steps);
        notes.entries.iter().for_each(|entry| self.records.entry(entry));
        let mut sums = sums.iter();
        notes.steps.into_iter().try_for_each(|step| self.step(step, bytes, &mut sums))
    }

    /// The stream is over.
    ///
    /// # Errors
    /// [`InspectError`] when it is not whole.
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

    /// The file whose chunk is not at its end, if any: what comes next belongs to it.
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
            // Only now: what does not fit its checksum must not be blamed on the key.
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

    /// The file of this name; it is begun if it is not open.
    fn look(&mut self, path: &RelPath, position: u64) -> Result<&mut Look, InspectError> {
        if !self.open.contains_key(path) {
            let look = Look::new(path, &self.options).map_err(cannot_undo(path, position))?;
            self.open.insert(path.clone(), look);
        }
        // Put there if it was not.
        Ok(self.open.entry(path.clone()).or_default())
    }

    fn piece(&mut self, mut bytes: &[u8]) -> Result<(), InspectError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(look) = self.open.get_mut(&current.path) else { return Ok(()) };
        let before = look.held();
        while let Some((offset, len)) = current.place.take(bytes.len() as u64) {
            // No more than asked for, so it fits.
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

/// Writes down the bad pages of a file.
fn note<'p>(pages: &'p mut PagesFound, path: &'p RelPath) -> impl FnMut(BadPage) + 'p {
    |page| {
        if pages.bad.len() < MAX_BAD_PAGES {
            pages.bad.push(BadPageOf { path: path.clone(), page });
        } else {
            pages.untold += 1;
        }
    }
}

fn cannot_undo(path: &RelPath, position: u64) -> impl Fn(UndoError) -> InspectError {
    let path = path.clone();
    move |source| InspectError::Undo { path: path.clone(), position, source: Arc::new(source) }
}
