//! Finds the chunks in a stream as it passes, and tracks the order of chunks, the files, the index
//! entries, and the pieces whose checksums the workers must compute.
//!
//! The scanner only reads chunk heads. It does not touch payload: it notes which pieces of each
//! slab belong to which chunk, and the workers compute their checksums.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use xb_frame::index::ChunkRecord;
use xb_pages::REDO_HEAD;
use xb_reader::{
    Change, ChunkHead, ChunkKind, DecodeError, Decoder, Dialect, Event, FileTable, Limits,
    OrderError, PieceCheck, RelPath, Unfinished,
};

use crate::extract::decode::{ChainStop, CodecChain, FileDecodeError, Names, Plan};
use crate::scan::definitions::{DefinedTables, Definitions, TablesWithoutFiles};
use crate::scan::end_rule::{CLONE_INFO, EndProof, EndRule, EndWatch, NotWhole};
use crate::scan::producer_files::{
    ARIA_CONTROL, CHECKPOINTS, INFO, POSITIONS, SETTINGS, Texts, logical_name,
};

/// A stream from outside is damaged or incomplete.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The bytes are not an xbstream, or a checksum does not match.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A chunk does not continue its file where the previous one ended.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The input ended inside a file, or was empty.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// A restore could not create a file with this name.
    #[error("{path}: {source} (stream offset {position})")]
    Name {
        /// Name in the stream.
        path: RelPath,
        /// Stream offset of the chunk.
        position: u64,
        /// Cause.
        source: Arc<FileDecodeError>,
    },
    /// All files are complete, but the last file is missing.
    #[error(transparent)]
    NotWhole(#[from] NotWhole),
}

/// A record for the index, with its own copy of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File { file: u64, path: RelPath },
    Chunk(ChunkRecord),
    End { file: u64, size: u64 },
    Rename { file: u64, path: RelPath },
    Remove { file: u64 },
}

/// A step through the bytes of one slab, in order.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Start of a chunk whose head has been read completely.
    Head(Box<ChunkHead>),
    /// These bytes of the slab are the next piece of the chunk's payload.
    Piece(Range<usize>),
    /// End of the chunk.
    End,
}

/// Findings in one slab of the stream.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) steps: Vec<Step>,
    pub(crate) entries: Vec<Entry>,
}

/// Findings in a complete stream.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Scanned {
    /// Length of the stream in bytes.
    pub bytes: u64,
    /// Files that are complete.
    pub files: u64,
    /// Tables of users: their `.frm` files, or their `.ibd` files if there is no `.frm`.
    pub tables: u64,
    /// Files that the producer has compressed one by one.
    pub compressed_files: u64,
    /// Tables that have a `.frm` file.
    pub defined: DefinedTables,
    /// Tables of InnoDB that have a `.frm` file and no tablespace in the stream.
    pub without_tablespace: TablesWithoutFiles,
    /// Tables of other engines that have a `.frm` file, and of whose other files at least one is not in the
    /// stream: they cannot be opened.
    pub without_files: TablesWithoutFiles,
    /// Files that every backup of this kind has, and the stream lacks: their names, without suffixes of
    /// compression and encryption.
    pub lacking: Vec<String>,
    /// Whether it has changed pages of a tablespace, as only an increment has.
    pub has_changed_pages: bool,
    /// Reason why the stream counts as complete.
    pub proof: EndProof,
    /// Content of the small files that describe the backup, the head of the redo log
    /// ([`REDO_LOGS`], at most [`xb_pages::REDO_HEAD`] bytes), and the first MiB of
    /// [`CLONE_INFO`], if they were readable.
    pub described: BTreeMap<String, Vec<u8>>,
    /// Whether the file with its time and its server is encrypted, or cannot be decompressed.
    pub has_unread_info: bool,
}

impl Scanned {
    /// Result for a stream whose content was not inspected.
    pub(crate) fn unread(bytes: u64, proof: EndProof) -> Self {
        Self {
            bytes,
            files: 0,
            tables: 0,
            compressed_files: 0,
            defined: DefinedTables::default(),
            without_tablespace: TablesWithoutFiles::default(),
            without_files: TablesWithoutFiles::default(),
            lacking: Vec::new(),
            has_changed_pages: false,
            proof,
            described: BTreeMap::new(),
            has_unread_info: false,
        }
    }
}

/// Redo logs of which [`Scanned::described`] keeps the head: of mariadb-backup, and of xtrabackup.
pub const REDO_LOGS: [&str; 2] = ["ib_logfile0", "xtrabackup_logfile"];
/// Files whose content is kept for the manifest.
const DESCRIBING: [&str; 4] = ["info", "checkpoints", "binlog_info", "galera_info"];
/// Maximum length of the content kept per file, in bytes.
const MAX_DESCRIBING: usize = 64 << 10;
/// Maximum length that is kept of what a clone says about itself, in bytes. The list of its files, which may
/// be longer, is the end of it.
const MAX_CLONE_INFO: usize = 1 << 20;
/// Memory for decompressing one of these files, in bytes: producers need less.
const UNPACKING: u64 = 16 << 20;

/// Returns the name of a file that describes the backup, with its suffixes.
fn describes(path: &RelPath) -> Option<String> {
    let name = std::str::from_utf8(path.as_bytes()).ok()?;
    // A compressed or encrypted log is not decoded for its head.
    if REDO_LOGS.contains(&name) {
        return Some(name.to_owned());
    }
    let bare = std::str::from_utf8(logical_name(path.as_bytes())).ok()?;
    if bare == CLONE_INFO {
        return Some(name.to_owned());
    }
    let rest = bare.strip_prefix("xtrabackup_").or_else(|| bare.strip_prefix("mariadb_backup_"));
    let describes = [SETTINGS, ARIA_CONTROL].contains(&bare)
        || rest.is_some_and(|rest| DESCRIBING.contains(&rest));
    describes.then(|| name.to_owned())
}

/// Maximum length that is kept of a file, in bytes.
fn most(name: &str) -> usize {
    match name {
        _ if REDO_LOGS.contains(&name) => REDO_HEAD,
        _ if logical_name(name.as_bytes()) == CLONE_INFO.as_bytes() => MAX_CLONE_INFO,
        _ => MAX_DESCRIBING,
    }
}

/// Returns such a file without its suffixes; `None` if it is encrypted or cannot be decompressed.
fn decode_text((name, content): (String, Vec<u8>)) -> Option<(String, Vec<u8>)> {
    let plan = Plan::of_all(&RelPath::new(name.as_bytes()).ok()?).ok()?;
    if plan.layers.is_empty() {
        return Some((name, content));
    }
    let name = std::str::from_utf8(plan.name.as_bytes()).ok()?.to_owned();
    let mut chain = CodecChain::new(&plan.layers, None).ok()?;
    let (mut input, mut plain, mut buffer) = (&content[..], Vec::new(), vec![0; 4096]);
    loop {
        let (len, flow) = chain.run(&mut input, &mut buffer).ok()?;
        plain.extend_from_slice(buffer.get(..len)?);
        match flow {
            _ if plain.len() > most(&name) => return None,
            ChainStop::Full => {}
            ChainStop::Hungry => break,
            ChainStop::Wants(want) if chain.cost(want).0 > UNPACKING => return None,
            ChainStop::Wants(want) => chain.grant(want),
        }
    }
    chain.finish().ok().map(|()| (name, plain))
}

/// Reads an xbstream as it passes in slabs.
#[derive(Debug)]
pub(crate) struct Scanner {
    decoder: Decoder,
    files: FileTable,
    /// Names that a restore would create; `None` if restorable names are not required.
    names: Option<Names>,
    watch: EndWatch,
    described: BTreeMap<String, Vec<u8>>,
    definitions: Definitions,
    /// The descriptive file to which the current chunk belongs.
    keeping: Option<String>,
}

impl Scanner {
    pub(crate) fn new(dialect: Dialect, rule: EndRule) -> Self {
        Self {
            decoder: Decoder::new(dialect, Limits::default()),
            files: FileTable::new(),
            names: Some(Names::default()),
            watch: EndWatch::new(rule),
            described: BTreeMap::new(),
            definitions: Definitions::default(),
            keeping: None,
        }
    }

    /// Turns off the check that a restore could create the names.
    pub(crate) fn with_any_names(self) -> Self {
        Self { names: None, ..self }
    }

    /// Resumes after an earlier part of the stream, in which these files reached these offsets.
    pub(crate) fn go_on(&mut self, begun: &[(RelPath, u64)]) {
        self.files.went_before();
        for (path, next) in begun {
            let _ = self.files.begun_before(path, *next);
        }
    }

    /// Scans the next slab of the stream.
    pub(crate) fn scan(&mut self, slab: &[u8]) -> Result<Notes, StreamError> {
        let mut notes = Notes::default();
        let mut input = slab;
        while let Some(event) = self.decoder.next(&mut input)? {
            match event {
                Event::Head(head) => self.head(head, &mut notes)?,
                Event::Data(piece) => {
                    if let Some(name) = &self.keeping
                        && let Some(content) = self.described.get_mut(name)
                    {
                        let room = most(name).saturating_sub(content.len());
                        content.extend_from_slice(&piece[..piece.len().min(room)]);
                    }
                    self.definitions.bytes(piece);
                    let end = slab.len() - input.len();
                    notes.steps.push(Step::Piece(end - piece.len()..end));
                }
                Event::ChunkEnd => notes.steps.push(Step::End),
            }
        }
        Ok(notes)
    }

    /// Ends the input and returns the last notes and the result for the whole stream.
    pub(crate) fn finish(mut self) -> Result<(Notes, Scanned), StreamError> {
        let mut notes = Notes::default();
        while let Some(event) = self.decoder.finish()? {
            match event {
                Event::Head(head) => self.head(head, &mut notes)?,
                Event::Data(_) => {}
                Event::ChunkEnd => notes.steps.push(Step::End),
            }
        }
        self.files.finish()?;
        let is_info = |name: &String| {
            INFO.iter().any(|info| logical_name(name.as_bytes()) == info.as_bytes())
        };
        let has_info = self.described.keys().any(is_info);
        let described: BTreeMap<_, _> =
            self.described.into_iter().filter_map(decode_text).collect();
        let has_unread_info = has_info && !INFO.iter().any(|info| described.contains_key(*info));
        let text = |names: &[&str]| {
            let bytes = names.iter().find_map(|name| described.get(*name))?;
            std::str::from_utf8(bytes).ok()
        };
        let texts = Texts {
            info: text(&INFO),
            checkpoints: text(&CHECKPOINTS),
            settings: text(&[SETTINGS]),
            position: text(&POSITIONS),
            aria: described.get(ARIA_CONTROL).map(Vec::as_slice),
        };
        let proof = self.watch.verdict(texts)?;
        let (tables, compressed_files) = (self.definitions.count(), self.definitions.compressed());
        let defined = self.definitions.defined();
        let [without_tablespace, without_files] = self.definitions.without_files();
        let scanned = Scanned {
            bytes: self.decoder.position(),
            files: self.files.finished(),
            tables,
            compressed_files,
            defined,
            without_tablespace,
            without_files,
            lacking: self.watch.lacking(texts),
            has_changed_pages: self.watch.has_changed_pages(),
            proof,
            described,
            has_unread_info,
        };
        Ok((notes, scanned))
    }

    fn head(&mut self, head: ChunkHead, notes: &mut Notes) -> Result<(), StreamError> {
        let change = self.files.apply(&head)?;
        self.keeping = None;
        self.definitions.next_chunk();
        self.name(&change, &head)?;
        if matches!(change, Change::Opened { .. } | Change::Ended { only_chunk: true, .. }) {
            self.definitions.file(&head.path);
        }
        match change {
            Change::Opened { id, .. } => {
                notes.entries.push(Entry::File { file: id.0, path: head.path.clone() });
                self.keeping = describes(&head.path).inspect(|name| {
                    self.described.insert(name.clone(), Vec::new());
                });
                notes.entries.extend(chunk_record(id.0, &head).map(Entry::Chunk));
            }
            Change::Continued { id } => {
                self.keeping = describes(&head.path);
                notes.entries.extend(chunk_record(id.0, &head).map(Entry::Chunk));
            }
            Change::Ended { id, size, only_chunk } => {
                if only_chunk {
                    notes.entries.push(Entry::File { file: id.0, path: head.path.clone() });
                }
                notes.entries.push(Entry::End { file: id.0, size });
                self.watch.ended(head.path.as_bytes(), size);
            }
            Change::Renamed { id, .. } => {
                if let ChunkKind::Rename { to } = &head.kind {
                    notes.entries.push(Entry::Rename { file: id.0, path: to.clone() });
                }
            }
            Change::Removed { id: Some(id), .. } => {
                notes.entries.push(Entry::Remove { file: id.0 })
            }
            Change::FolderRemoved { ids } => {
                notes.entries.extend(ids.into_iter().map(|id| Entry::Remove { file: id.0 }));
            }
            Change::Removed { id: None, .. } | Change::Ignored => {}
        }
        notes.steps.push(Step::Head(Box::new(head)));
        Ok(())
    }
}

impl Scanner {
    /// Checks that a restore could give every file its name.
    fn name(&mut self, change: &Change, head: &ChunkHead) -> Result<(), StreamError> {
        let Some(names) = &mut self.names else { return Ok(()) };
        let plan = |path| Plan::of_all(path);
        let named = match (change, &head.kind) {
            (Change::Opened { .. } | Change::Ended { only_chunk: true, .. }, _) => {
                plan(&head.path).and_then(|plan| names.claim(&plan))
            }
            (Change::Renamed { .. }, ChunkKind::Rename { to }) => plan(&head.path)
                .map(|old| names.release(&old))
                .and_then(|()| plan(to))
                .and_then(|new| names.claim(&new)),
            (Change::Removed { id: Some(_), .. }, _) => {
                plan(&head.path).map(|old| names.release(&old))
            }
            _ => Ok(()),
        };
        let (path, position) = (&head.path, head.position);
        named.map_err(|source| StreamError::Name {
            path: path.clone(),
            position,
            source: Arc::new(source),
        })
    }
}

pub(crate) fn chunk_record(file: u64, head: &ChunkHead) -> Option<ChunkRecord> {
    let (kind, offset, holes) = match &head.kind {
        ChunkKind::Payload { offset, .. } => (b'P', *offset, 0),
        ChunkKind::Sparse { offset, map, .. } => {
            (b'S', *offset, map.iter().map(|e| u64::from(e.skip)).sum())
        }
        _ => return None,
    };
    Some(ChunkRecord {
        file,
        kind,
        position: head.position,
        head_len: head.head_len,
        payload_len: head.payload_len(),
        offset,
        logical_len: head.payload_len() + holes,
    })
}

/// Computes the checksums of the pieces in a slab, in order. Called by a worker.
pub(crate) fn sum_pieces(slab: &[u8], steps: &[Step]) -> Vec<PieceCheck> {
    steps
        .iter()
        .filter_map(|step| match step {
            Step::Piece(range) => Some(PieceCheck::of(slab.get(range.clone()).unwrap_or_default())),
            _ => None,
        })
        .collect()
}

/// Combines the checksums of pieces to those of chunks and compares them, in stream order.
#[derive(Debug, Default)]
pub(crate) struct ChunkCheck {
    current: Option<(Box<ChunkHead>, xb_reader::PayloadCheck)>,
}

impl ChunkCheck {
    /// Returns the file to which the current chunk belongs.
    pub(crate) fn path(&self) -> Option<&RelPath> {
        self.current.as_ref().map(|(head, _)| &head.path)
    }

    /// Processes the steps of the next slab with the checksums of its pieces; `on_head` sees each
    /// head.
    pub(crate) fn steps(
        &mut self,
        steps: Vec<Step>,
        sums: &[PieceCheck],
        mut on_head: impl FnMut(&ChunkHead),
    ) -> Result<(), DecodeError> {
        let mut sums = sums.iter();
        steps.into_iter().try_for_each(|step| {
            if let Step::Head(head) = &step {
                on_head(head);
            }
            self.step(step, &mut sums)
        })
    }

    /// Processes one step; `sums` returns the checksum if the step is a piece.
    pub(crate) fn step<'s>(
        &mut self,
        step: Step,
        sums: &mut impl Iterator<Item = &'s PieceCheck>,
    ) -> Result<(), DecodeError> {
        match step {
            Step::Head(head) => {
                let check = xb_reader::PayloadCheck::new(&head);
                self.current = Some((head, check));
            }
            Step::Piece(_) => {
                if let (Some((_, check)), Some(sum)) = (&mut self.current, sums.next()) {
                    check.append(sum);
                }
            }
            Step::End => {
                if let Some((head, check)) = self.current.take() {
                    check.finish(&head)?;
                }
            }
        }
        Ok(())
    }
}
