//! What comes in each stage, counted against what the donor announced.

use std::collections::BTreeSet;

use super::descriptor::{DataHead, FileHead, Place, Stage, State, StateMark};
use super::error::{CloneError, broken, unsupported};
use super::file::CloneFile;
use super::order::Order;
use super::redo::RedoFile;

/// Where a page has its own number, and that of its tablespace.
const PAGE_NUMBER: usize = 4;
const PAGE_SPACE: usize = 34;

/// What a stage will send, as the donor announces it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Files; none in the page stage.
    pub files: u32,
    /// Pages; none in the other stages.
    pub pages: u32,
    /// Bytes; in the page stage, an upper limit.
    pub bytes: u64,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block<'a> {
    /// The stage. In the file stage the blocks of a file come in order, and files one after the other.
    pub stage: Stage,
    /// Index of the file; in [`Stage::Redo`], of the redo log.
    pub file: u32,
    /// Where the bytes belong in the file.
    pub offset: u64,
    /// The bytes; at least one. In the page stage, one page.
    pub bytes: &'a [u8],
}

/// The files of a clone, and how far the current stage has come.
#[derive(Debug, Default)]
pub(super) struct Stages {
    /// Bytes of a page, of most tables.
    pub(super) page_size: u32,
    pub(super) files: Vec<CloneFile>,
    pub(super) redo: Vec<RedoFile>,
    names: BTreeSet<super::file::FileName>,
    announced: StateMark,
    announced_bytes: u64,
    order: Order,
    /// Bytes or pages of the current stage.
    bytes: u64,
    pages: u32,
    /// The file whose blocks come.
    current: usize,
    /// The page that came last: tablespace and offset.
    last_page: Option<(u32, u64)>,
}

impl Stages {
    pub(super) fn begin(&mut self, state: &State) -> Totals {
        self.announced = state.mark;
        self.announced_bytes = state.bytes;
        self.order = Order::default();
        (self.bytes, self.pages) = (0, 0);
        let (files, pages) = match state.stage {
            Stage::Page => (0, state.mark.files),
            _ => (state.mark.files, 0),
        };
        Totals { files, pages, bytes: state.bytes }
    }

    /// How far this stage has come, if a clone can continue from there.
    pub(super) fn place(&self, stage: Stage) -> Option<Place> {
        let (chunk, block) = self.order.last()?;
        let chunks = self.announced.chunks;
        let is_short = chunks <= Place::MAX_CHUNKS;
        is_short.then_some(Place { stage, chunks, chunk, block })
    }

    /// Takes a file's description, and returns whether it is a new file.
    pub(super) fn file(&mut self, stage: Stage, head: &FileHead<'_>) -> Result<bool, CloneError> {
        if head.stage != stage {
            return broken(format!(
                "a file of the {} stage in the {} stage",
                head.stage.name(),
                stage.name()
            ));
        }
        match stage {
            Stage::File if self.bytes == 0 => self.data_file(head).map(|()| true),
            Stage::Redo if head.name.is_empty() => self.redo_file(head),
            Stage::File | Stage::Page | Stage::Redo => unsupported(format!(
                "the file {} was created, renamed or removed while the clone ran, although DDL waits for it: try again when nothing changes tables or tablespaces",
                head.name.escape_ascii()
            )),
            Stage::Init | Stage::Done => broken(format!("a file in the {} stage", stage.name())),
        }
    }

    fn data_file(&mut self, head: &FileHead<'_>) -> Result<(), CloneError> {
        let file = CloneFile::new(head, self.page_size)?;
        let next_chunk = self.files.last().map_or(1, |last| last.last_chunk.saturating_add(1));
        let (index, announced) = (self.files.len(), self.announced);
        let has_index = usize::try_from(head.index) == Ok(index) && head.index < announced.files;
        let has_chunks = file.first_chunk == next_chunk
            && file.last_chunk <= announced.chunks
            && file.last_chunk.saturating_add(u32::from(file.size == 0)) >= file.first_chunk;
        if !has_index || !has_chunks {
            return broken(format!(
                "{}, file {} of {}, chunks {} to {} of {}, came as file {index}, after chunk {}",
                file.name,
                file.index,
                announced.files,
                file.first_chunk,
                file.last_chunk,
                announced.chunks,
                next_chunk.saturating_sub(1),
            ));
        }
        if !self.names.insert(file.name.clone()) {
            return broken(format!("two files are named {}", file.name));
        }
        self.files.push(file);
        Ok(())
    }

    fn redo_file(&mut self, head: &FileHead<'_>) -> Result<bool, CloneError> {
        let index = usize::try_from(head.index).unwrap_or(usize::MAX);
        match self.redo.get(index) {
            // The donor repeats it each time that it begins with another file.
            Some(file) if file.is_again(head) => Ok(false),
            None if index == self.redo.len()
                && self.bytes == 0
                && head.index < self.announced.files =>
            {
                self.redo.push(RedoFile::new(head));
                Ok(true)
            }
            _ => broken(format!(
                "redo log {} of {} came out of order, or otherwise than before",
                head.index, self.announced.files
            )),
        }
    }

    /// Takes the head of a block.
    pub(super) fn data(&mut self, stage: Stage, data: &DataHead) -> Result<(), CloneError> {
        if data.stage != stage || data.task != 0 || data.len == 0 {
            return broken(format!(
                "{} bytes of the {} stage and task {} in the {} stage",
                data.len,
                data.stage.name(),
                data.task,
                stage.name()
            ));
        }
        match stage {
            Stage::File => self.file_block(data)?,
            Stage::Page => self.page(data)?,
            Stage::Redo => self.redo_block(data)?,
            Stage::Init | Stage::Done => {
                return broken(format!("data in the {} stage", stage.name()));
            }
        }
        self.order.accept(data, self.announced.chunks)?;
        self.bytes = self.bytes.saturating_add(data.len.into());
        Ok(())
    }

    /// Files come one after the other, and the blocks of each one in order.
    fn file_block(&mut self, data: &DataHead) -> Result<(), CloneError> {
        self.all_described(self.files.len())?;
        let index = self.index(data)?;
        if index < self.current {
            return broken(format!("file {index} came after file {}", self.current));
        }
        self.whole_up_to(index)?;
        self.current = index;
        let Some(file) = self.files.get_mut(index) else { return Ok(()) };
        let end = data.offset.checked_add(data.len.into());
        let fits = end.is_some_and(|end| end <= file.first_size)
            && data.file_size == file.first_size
            && (file.first_chunk..=file.last_chunk).contains(&data.chunk);
        if data.offset != file.received || !fits {
            return broken(format!(
                "{}: {} bytes at {} of chunk {} came after {} of {} bytes of chunks {} to {}",
                file.name,
                data.len,
                data.offset,
                data.chunk,
                file.received,
                file.first_size,
                file.first_chunk,
                file.last_chunk,
            ));
        }
        file.received = file.received.saturating_add(data.len.into());
        Ok(())
    }

    /// Pages come once each, by tablespace and offset. The first page of a file says its new size.
    fn page(&mut self, data: &DataHead) -> Result<(), CloneError> {
        let index = self.index(data)?;
        let last = self.last_page;
        let Some(file) = self.files.get_mut(index) else { return Ok(()) };
        let page = file.space.map(|space| (space, data.offset));
        let is_page = data.len == file.page_size && data.offset.is_multiple_of(data.len.into());
        if data.offset == 0 {
            file.size = file.size.max(data.file_size);
        }
        let end = data.offset.checked_add(data.len.into());
        let fits = end.is_some_and(|end| end <= file.size) && data.file_size <= file.size;
        if !is_page || !fits || page.is_none() || last >= page {
            return broken(format!(
                "{}: {} bytes at {} of {}, as a changed page of {} bytes after {last:?}",
                file.name, data.len, data.offset, file.size, file.page_size,
            ));
        }
        self.last_page = page;
        self.pages = self.pages.saturating_add(1);
        Ok(())
    }

    /// Checks that a page says itself where it belongs. Its head is never encrypted or compressed.
    pub(super) fn check_page(&self, block: &Block<'_>) -> Result<(), CloneError> {
        let file = usize::try_from(block.file).ok().and_then(|index| self.files.get(index));
        let Some(file) = file.filter(|file| file.page_size > 0) else {
            return broken("a page of a file that has none");
        };
        let field = |at: usize| {
            let bytes = block.bytes.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*bytes))
        };
        let number = u32::try_from(block.offset / u64::from(file.page_size)).ok();
        let found = (field(PAGE_NUMBER), field(PAGE_SPACE));
        if number.is_none() || found != (number, file.space) {
            return broken(format!(
                "{}: the changed page at {} says that it is page {:?} of tablespace {:?}",
                file.name, block.offset, found.0, found.1
            ));
        }
        Ok(())
    }

    fn redo_block(&mut self, data: &DataHead) -> Result<(), CloneError> {
        self.all_described(self.redo.len())?;
        let index = usize::try_from(data.file).unwrap_or(usize::MAX);
        match self.redo.get_mut(index) {
            Some(file) => file.accept(data),
            None => broken(format!("data of redo log {}, which was not announced", data.file)),
        }
    }

    fn index(&self, data: &DataHead) -> Result<usize, CloneError> {
        match usize::try_from(data.file) {
            Ok(index) if index < self.files.len() => Ok(index),
            _ => broken(format!("data of file {}, which was not announced", data.file)),
        }
    }

    fn all_described(&self, found: usize) -> Result<(), CloneError> {
        if usize::try_from(self.announced.files) == Ok(found) {
            return Ok(());
        }
        broken(format!("{found} of {} files were announced", self.announced.files))
    }

    /// Checks that the files before `index` came whole, from the current one on.
    fn whole_up_to(&self, index: usize) -> Result<(), CloneError> {
        let files = self.files.get(self.current..index).unwrap_or_default();
        match files.iter().find(|file| file.received != file.first_size) {
            None => Ok(()),
            Some(file) => broken(format!(
                "{}: {} of {} bytes came",
                file.name, file.received, file.first_size
            )),
        }
    }

    /// Checks that everything came that was announced for a stage.
    pub(super) fn end(&mut self, state: &State) -> Result<(), CloneError> {
        if state.mark != self.announced {
            return broken(format!(
                "the {} stage ends with {:?} instead of {:?}",
                state.stage.name(),
                state.mark,
                self.announced
            ));
        }
        self.order.finish(self.announced.chunks)?;
        match state.stage {
            Stage::Init | Stage::Done => Ok(()),
            Stage::File => {
                self.all_described(self.files.len())?;
                self.whole_up_to(self.files.len())?;
                self.all_bytes()
            }
            Stage::Page if self.pages == self.announced.files => Ok(()),
            Stage::Page => {
                broken(format!("{} of {} changed pages came", self.pages, self.announced.files))
            }
            Stage::Redo => {
                self.all_described(self.redo.len())?;
                let count = self.redo.len();
                for (number, file) in self.redo.iter().enumerate() {
                    file.finish(number + 1 == count)?;
                }
                if count == 0 {
                    return broken("there is no redo log");
                }
                self.all_bytes()
            }
        }
    }

    fn all_bytes(&self) -> Result<(), CloneError> {
        if self.bytes == self.announced_bytes {
            return Ok(());
        }
        broken(format!("{} of {} bytes came", self.bytes, self.announced_bytes))
    }
}
