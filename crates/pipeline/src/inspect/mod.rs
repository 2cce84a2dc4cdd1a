//! Inspects a plain xbstream without storing it: checks every chunk against its checksum and every
//! file from its first byte to its end, decodes the layers of files, and checks the pages of
//! tablespaces.
//!
//! Only open files use memory, each as much as its decoders hold, and the bad pages of a clone until its patches come.

mod bad_page;
mod clone_patches;
mod evidence;
mod index_check;
mod layer_state;
pub(crate) mod options;
mod recovered;
mod redo;
mod tables;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use xb_reader::{ChunkHead, ChunkKind, DecodeError, Dialect, OrderError, Placement, RelPath};

pub use bad_page::BadPageOf;
use clone_patches::ClonePatches;
use evidence::Evidence;
pub use evidence::{MAX_BAD_PAGES, PagesFound};
use index_check::Records;
pub use index_check::{IndexMismatch, IndexProof, IndexWatch};
use layer_state::{FileState, InspectResources};
pub use options::InspectOptions;
pub use recovered::{RecoveredFile, RecoveredFiles};
pub use redo::{BadRedo, RedoFault};
pub use tables::{BadTable, TableFault};

use crate::extract::decode::FileDecodeError;
use crate::scan::producer_files::logical_name;
use crate::scan::required::has_content;
use crate::scan::scanner::{
    ChunkCheck, Scanned, Scanner, Step, StreamError, chunk_record, sum_pieces,
};

/// Result for a complete stream.
#[derive(Debug, Clone)]
pub struct InspectReport {
    /// Findings about the stream itself.
    pub scanned: Scanned,
    /// Digest of the files and chunks, to compare with the index.
    pub records: [u8; 32],
    /// Number of files whose layers were decoded to their end.
    pub undone: u64,
    /// Bytes of all files, with these layers undone and without their holes.
    pub unpacked: u64,
    /// Number of encrypted files that were left alone because there is no key.
    pub unopened: u64,
    /// Findings about pages.
    pub pages: PagesFound,
    /// Files for which memory did not suffice, because too many were open at a time. They were not
    /// inspected: [`Inspector::again`].
    pub postponed: BTreeSet<RelPath>,
    evidence: Evidence,
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
    FileDecoding {
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
            Self::FileDecoding { path, position, .. } => (Some(*position), Some(path)),
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
    desk: InspectResources,
    scanner: Scanner,
    check: ChunkCheck,
    records: Records,
    open: HashMap<RelPath, FileState>,
    current: Option<Current>,
    /// Bytes that page checkers of open files hold.
    held: u64,
    /// Error in the content of the current chunk, dropped if the chunk's checksum does not match.
    failure: Option<InspectError>,
    undone: u64,
    unpacked: u64,
    unopened: u64,
    evidence: Evidence,
    /// Of a clone: its patches.
    patches: Option<ClonePatches>,
    postponed: BTreeSet<RelPath>,
    /// Names of files that every backup has with some content, and that turned out to be empty once decoded.
    blank: Vec<String>,
    /// If set, only these files are inspected: they were postponed by an earlier pass.
    only: Option<BTreeSet<RelPath>>,
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
            desk: InspectResources::new(options.memory),
            scanner: Scanner::new(Dialect::Auto, options.rule.clone()),
            options,
            check: ChunkCheck::default(),
            records: Records::default(),
            open: HashMap::new(),
            current: None,
            held: 0,
            failure: None,
            undone: 0,
            unpacked: 0,
            unopened: 0,
            evidence: Evidence::default(),
            patches: None,
            postponed: BTreeSet::new(),
            blank: Vec::new(),
            only: None,
        }
    }

    /// Creates an inspector for another pass over the same stream, for the files that the earlier
    /// one postponed. Its results include the earlier ones. Each pass inspects at least one file, or
    /// fails.
    #[must_use]
    pub fn again(options: InspectOptions, earlier: InspectReport) -> Self {
        let InspectReport { scanned, undone, unpacked, unopened, evidence, postponed, .. } =
            earlier;
        let (blank, only) = (scanned.lacking, Some(postponed));
        Self { undone, unpacked, unopened, evidence, blank, only, ..Self::new(options) }
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
    pub fn finish(self) -> Result<InspectReport, InspectError> {
        let Self { scanner, mut records, undone, unpacked, unopened, postponed, mut blank, .. } =
            self;
        let mut evidence = self.evidence;
        if let Some(mut patches) = self.patches {
            evidence.patched(&mut patches, self.only.is_none());
        }
        let (notes, mut scanned) = scanner.finish()?;
        blank.retain(|name| !scanned.lacking.contains(name));
        scanned.lacking.append(&mut blank);
        notes.entries.iter().for_each(|entry| records.entry(entry));
        let (records, pages) = (records.finish(), evidence.judge(&scanned.described));
        Ok(InspectReport {
            scanned,
            records,
            undone,
            unpacked,
            unopened,
            pages,
            postponed,
            evidence,
        })
    }

    /// The bad pages so far.
    #[must_use]
    pub fn pages(&self) -> &PagesFound {
        self.evidence.found()
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
    fn look(&mut self, path: &RelPath, position: u64) -> Result<&mut FileState, InspectError> {
        if !self.open.contains_key(path) {
            let look = match &self.only {
                Some(only) if !only.contains(path) => FileState::default(),
                _ => FileState::new(path, &self.options).map_err(cannot_decode(path, position))?,
            };
            if self.options.pages && self.patches.is_none() {
                self.patches = ClonePatches::of_first(path);
                if self.patches.is_some() {
                    self.evidence.is_clone(self.options.memory);
                }
            }
            if let Some(patches) = &mut self.patches {
                patches.file(path);
            }
            self.open.insert(path.clone(), look);
        }
        // Inserted above if it was missing.
        Ok(self.open.entry(path.clone()).or_default())
    }

    fn piece(&mut self, mut bytes: &[u8]) -> Result<(), InspectError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(look) = self.open.get_mut(&current.path) else { return Ok(()) };
        if let Some(patches) =
            self.patches.as_mut().filter(|_| ClonePatches::is_patches(&current.path))
        {
            patches.feed(bytes, self.evidence.unpatched());
        }
        let before = look.held();
        while let Some((offset, len)) = current.place.take(bytes.len() as u64) {
            // At most as long as requested, so the conversion cannot fail.
            let (now, later) = bytes.split_at(usize::try_from(len).unwrap_or(bytes.len()));
            let mut bad = self.evidence.of_file(&current.path);
            match look.take(offset, now, &mut self.desk, &mut bad) {
                Err(FileDecodeError::Memory { needed, allowed }) if needed <= allowed => {
                    look.postpone();
                }
                done => done.map_err(cannot_decode(&current.path, current.position))?,
            }
            bytes = later;
        }
        self.held = self.held - before + look.held();
        if self.held.saturating_add(self.evidence.held()) > self.options.memory {
            self.held -= look.held();
            look.postpone();
        }
        Ok(())
    }

    fn chunk_end(&mut self) {
        let Some(current) = self.current.take() else { return };
        if let Some(look) = self.open.get_mut(&current.path) {
            let before = look.held();
            look.hole_up_to(current.end, &mut self.evidence.of_file(&current.path));
            self.held = self.held - before + look.held();
        }
    }

    fn end(&mut self, path: &RelPath, look: FileState, position: u64) -> Result<(), InspectError> {
        self.held -= look.held();
        if look.is_postponed() {
            self.postponed.insert(path.clone());
            return Ok(());
        }
        self.unopened += u64::from(look.is_unopened());
        let is_undone = look.is_undone();
        self.undone += u64::from(is_undone);
        let done = look.finish(&mut self.desk, &mut self.evidence.of_file(path));
        let (content, unpacked) = done.map_err(cannot_decode(path, position))?;
        let name = logical_name(path.as_bytes());
        if is_undone && unpacked == 0 && has_content(name) {
            self.blank.push(String::from_utf8_lossy(name).into_owned());
        }
        // Other passes have counted the files that this one leaves alone.
        if self.only.as_ref().is_none_or(|only| only.contains(path)) {
            self.unpacked += unpacked;
            self.evidence.file(path, content);
        }
        Ok(())
    }
}

fn cannot_decode(path: &RelPath, position: u64) -> impl Fn(FileDecodeError) -> InspectError {
    let path = path.clone();
    move |source| InspectError::FileDecoding {
        path: path.clone(),
        position,
        source: Arc::new(source),
    }
}
