//! InnoDB's descriptors: what the data that follows is, and how much of it there will be.

use std::fmt;

use super::error::{CloneError, broken};
use super::fields::Fields;

/// The version of every descriptor that is known.
const VERSION: u32 = 100;

const LOCATOR: u32 = 1;
const TASK: u32 = 2;
const STATE: u32 = 3;
const FILE: u32 = 4;
const DATA: u32 = 5;

const LOCATOR_LEN: usize = 34;
/// Where its fields are that stay the same.
const LOCATOR_OWN: std::ops::Range<usize> = 8..32;
const STATE_LEN: u32 = 46;
/// Version, length and kind.
const HEAD: usize = 12;
const KEY_LEN: usize = 64;

/// A stage of a clone, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The donor prepares.
    Init,
    /// Whole files, read while the server writes to them.
    File,
    /// The pages that changed meanwhile, each whole.
    Page,
    /// The redo log since the page stage began.
    Redo,
    /// Everything has been sent.
    Done,
}

impl Stage {
    fn number(self) -> u32 {
        match self {
            Self::Init => 1,
            Self::File => 2,
            Self::Page => 3,
            Self::Redo => 4,
            Self::Done => 5,
        }
    }

    fn parse(number: u32) -> Result<Self, CloneError> {
        let all = [Self::Init, Self::File, Self::Page, Self::Redo, Self::Done];
        match all.into_iter().find(|stage| stage.number() == number) {
            Some(stage) => Ok(stage),
            None => broken(format!("a stage of the unknown number {number}")),
        }
    }

    /// The stage that follows.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Init => Self::File,
            Self::File => Self::Page,
            Self::Page => Self::Redo,
            Self::Redo | Self::Done => Self::Done,
        }
    }

    /// The stage's name, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::File => "file",
            Self::Page => "page",
            Self::Redo => "redo",
            Self::Done => "done",
        }
    }
}

#[derive(Debug)]
pub(super) enum Descriptor<'a> {
    Locator,
    Task { task: u32, chunk: u32, block: u32 },
    State(State),
    File(FileHead<'a>),
    Data(DataHead),
}

/// The begin or end of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) stage: Stage,
    pub(super) task: u32,
    pub(super) mark: StateMark,
    /// Bytes that the stage will send; 0 at its end.
    pub(super) bytes: u64,
    pub(super) is_begin: bool,
    /// A sign of life while the donor waits for the acknowledgement.
    pub(super) is_alive: bool,
}

/// Facts that a donor states at the beginning and at the end of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StateMark {
    pub(super) chunks: u32,
    /// Number of files; in the page stage, of pages.
    pub(super) files: u32,
}

impl StateMark {
    /// The descriptor of the stage's end, sent back.
    pub(super) fn acknowledgement(self, stage: Stage) -> Vec<u8> {
        let mut out = Vec::new();
        for field in [VERSION, STATE_LEN, STATE, stage.number(), 0, self.chunks, self.files] {
            out.extend(field.to_be_bytes());
        }
        out.extend([0; 16]);
        out.extend(ALIVE.to_be_bytes());
        out
    }
}

const BEGIN: u16 = 1;
/// In an acknowledgement, and in a sign of life.
const ALIVE: u16 = 2;

/// A file, as the donor describes it.
#[derive(Clone, Copy)]
pub(super) struct FileHead<'a> {
    pub(super) stage: Stage,
    pub(super) size: u64,
    pub(super) space_flags: u32,
    pub(super) flags: u16,
    pub(super) space: u32,
    pub(super) index: u32,
    pub(super) first_chunk: u32,
    pub(super) last_chunk: u32,
    /// Without its NUL; empty for a file of the redo log.
    pub(super) name: &'a [u8],
    /// Key and IV of the tablespace, in clear.
    pub(super) key: Option<&'a [u8]>,
}

/// Without the key.
impl fmt::Debug for FileHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileHead").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Flags of a file.
pub(super) mod flag {
    pub(in super::super) const ZLIB: u16 = 1;
    pub(in super::super) const LZ4: u16 = 2;
    pub(in super::super) const ENCRYPTED: u16 = 4;
    pub(in super::super) const RENAMED: u16 = 8;
    pub(in super::super) const REMOVED: u16 = 16;
    pub(in super::super) const KEY: u16 = 32;
}

/// The data message that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataHead {
    pub(super) stage: Stage,
    pub(super) task: u32,
    pub(super) chunk: u32,
    pub(super) block: u32,
    pub(super) file: u32,
    pub(super) len: u32,
    pub(super) offset: u64,
    /// Size of the file at that time.
    pub(super) file_size: u64,
}

impl<'a> Descriptor<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, CloneError> {
        let mut fields = Fields::new("descriptor", bytes);
        let (version, len, kind) = (fields.u32_be()?, fields.u32_be()?, fields.u32_be()?);
        if version != VERSION {
            return broken(format!("a descriptor of unknown version {version}"));
        }
        if usize::try_from(len) != Ok(bytes.len()) {
            return broken(format!("a descriptor of {len} bytes in a message of {}", bytes.len()));
        }
        let descriptor = match kind {
            LOCATOR => {
                fields.bytes(LOCATOR_LEN - HEAD)?;
                Self::Locator
            }
            TASK => Self::Task {
                task: fields.u32_be()?,
                chunk: fields.u32_be()?,
                block: fields.u32_be()?,
            },
            STATE => Self::State(state(&mut fields)?),
            FILE => Self::File(file(&mut fields)?),
            DATA => Self::Data(DataHead {
                stage: Stage::parse(fields.u32_be()?)?,
                task: fields.u32_be()?,
                chunk: fields.u32_be()?,
                block: fields.u32_be()?,
                file: fields.u32_be()?,
                len: fields.u32_be()?,
                offset: fields.u64_be()?,
                file_size: fields.u64_be()?,
            }),
            other => return broken(format!("a descriptor of the unknown kind {other}")),
        };
        fields.end()?;
        Ok(descriptor)
    }
}

fn state(fields: &mut Fields<'_>) -> Result<State, CloneError> {
    let (stage, task) = (Stage::parse(fields.u32_be()?)?, fields.u32_be()?);
    let mark = StateMark { chunks: fields.u32_be()?, files: fields.u32_be()? };
    let bytes = fields.u64_be()?;
    let _on_disk = fields.u64_be()?;
    let flags = fields.u16_be()?;
    if flags & !(BEGIN | ALIVE) != 0 {
        return broken(format!("a stage with the unknown flags {flags:#x}"));
    }
    let (is_begin, is_alive) = (flags & BEGIN != 0, flags & ALIVE != 0);
    Ok(State { stage, task, mark, bytes, is_begin, is_alive })
}

fn file<'a>(fields: &mut Fields<'a>) -> Result<FileHead<'a>, CloneError> {
    let stage = Stage::parse(fields.u32_be()?)?;
    let size = fields.u64_be()?;
    let _allocated = fields.u64_be()?;
    let space_flags = fields.u32_be()?;
    let _file_system_block = fields.u32_be()?;
    let flags = fields.u16_be()?;
    let (space, index) = (fields.u32_be()?, fields.u32_be()?);
    let (first_chunk, last_chunk) = (fields.u32_be()?, fields.u32_be()?);
    let name_len = fields.u32_be()?;
    let Ok(name_len) = usize::try_from(name_len) else {
        return broken(format!("a file name of {name_len} bytes"));
    };
    let name = match fields.bytes(name_len)?.split_last() {
        None => &[][..],
        Some((0, name)) => name,
        Some(_) => return broken("an incomplete file name"),
    };
    let key = if flags & flag::KEY != 0 { Some(fields.bytes(KEY_LEN)?) } else { None };
    Ok(FileHead {
        stage,
        size,
        space_flags,
        flags,
        space,
        index,
        first_chunk,
        last_chunk,
        name,
        key,
    })
}

/// How far a clone has come, to continue it from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CloneProgress {
    pub(super) stage: Stage,
    /// Number of chunks of the stage.
    pub(super) chunks: u32,
    /// The chunk and its block that came last; no block if no more of the chunk comes.
    pub(super) chunk: u32,
    pub(super) block: Option<u32>,
}

impl CloneProgress {
    /// Most chunks of a stage, so that a locator stays short: 256 TiB with the pages of most servers have fewer.
    pub(super) const MAX_CHUNKS: u32 = 1 << 22;

    /// The locator of a clone that continues here: its own fields, the stage, whether all files were described, the
    /// chunk that is not complete, and a bit for each chunk that has begun.
    pub(super) fn locator(&self, of: &[u8]) -> Vec<u8> {
        let words = self.chunks.div_ceil(32);
        let begun = (0..words).map(|word| match self.chunk.saturating_sub(word * 32) {
            bits @ 0..32 => (1_u32 << bits) - 1,
            _ => u32::MAX,
        });
        let mut more =
            vec![self.stage.number().to_le_bytes()[0], u8::from(self.stage == Stage::File)];
        let unfinished = self.block.map(|block| [1, self.chunk, block]);
        let unfinished = unfinished.map_or(vec![0], |fields| fields.to_vec());
        for field in unfinished.into_iter().chain([words]).chain(begun) {
            more.extend(field.to_be_bytes());
        }
        let own = of.get(LOCATOR_OWN).unwrap_or_default();
        let len = LOCATOR_OWN.start + own.len() + more.len();
        let mut out = VERSION.to_be_bytes().to_vec();
        out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(own);
        out.extend(more);
        out
    }
}

/// The fields of a locator that say which clone it is: kind, clone, snapshot, index.
pub(super) fn own_fields(locator: &[u8]) -> &[u8] {
    locator.get(LOCATOR_OWN).unwrap_or_default()
}

/// The locator of a clone that does not exist yet.
pub(super) fn empty_locator() -> Vec<u8> {
    let len = u32::try_from(LOCATOR_LEN).unwrap_or_default();
    let mut out: Vec<u8> =
        [VERSION, len, LOCATOR].iter().flat_map(|field| field.to_be_bytes()).collect();
    out.resize(LOCATOR_LEN, 0);
    out
}
