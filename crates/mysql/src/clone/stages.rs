//! Data of each stage, counted against the donor's announcement.

use std::collections::BTreeSet;

use super::descriptor::{CloneProgress, DataHead, FileHead, Stage, State, StateMark, flag};
use super::error::{CloneError, broken, unsupported};
use super::file::CloneFile;
use super::limits::{self, KeptFiles};
use super::order::Order;
use super::redo::RedoFile;

/// Offsets in a page of its own number, and of that of its tablespace.
const PAGE_NUMBER: usize = 4;
const PAGE_SPACE: usize = 34;
/// Number of the system tablespace.
const SYSTEM: u32 = 0;
/// Pages with which a server creates a tablespace.
const FIRST_PAGES: u64 = 7;

/// The donor's announcement of a stage.
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
    /// Offset of the bytes in the file.
    pub offset: u64,
    /// The bytes; at least one. In the page stage, one page.
    pub bytes: &'a [u8],
    /// Whether it is a page behind the end of its file, as long as the donor has said that it is. The file is longer now.
    pub is_behind_end: bool,
}

/// Description of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileDescription {
    /// A file, or a change of one.
    File,
    /// A file of the redo log.
    Redo,
    /// Nothing new.
    Again,
}

/// The files of a clone, and how far the current stage has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stages {
    /// Bytes of a page, of most tables.
    pub(super) page_size: u32,
    /// Whether DDL runs meanwhile.
    allows_ddl: bool,
    pub(super) files: Vec<CloneFile>,
    pub(super) redo: Vec<RedoFile>,
    kept: KeptFiles,
    names: BTreeSet<super::file::FileName>,
    /// Tablespaces of the files that DDL removed.
    removed_spaces: BTreeSet<u32>,
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
    pub(super) fn new(allows_ddl: bool) -> Self {
        Self { allows_ddl, ..Self::default() }
    }

    pub(super) fn begin(&mut self, state: &State) -> Result<Totals, CloneError> {
        limits::announced(state.stage, state.mark.files)?;
        self.announced = state.mark;
        self.announced_bytes = state.bytes;
        self.order = Order::default();
        (self.bytes, self.pages, self.last_page) = (0, 0, None);
        let (files, pages) = match state.stage {
            Stage::Page => (0, state.mark.files),
            _ => (state.mark.files, 0),
        };
        Ok(Totals { files, pages, bytes: state.bytes })
    }

    /// How far this stage has come, if a clone can continue from there.
    pub(super) fn place(&self, stage: Stage) -> Option<CloneProgress> {
        let (chunk, block) = self.order.last()?;
        let chunks = self.announced.chunks;
        let is_short = chunks <= CloneProgress::MAX_CHUNKS;
        is_short.then_some(CloneProgress { stage, chunks, chunk, block })
    }

    /// Takes a file's description.
    pub(super) fn file(
        &mut self,
        stage: Stage,
        head: &FileHead<'_>,
    ) -> Result<FileDescription, CloneError> {
        if head.stage != stage {
            return broken(format!(
                "a file of the {} stage in the {} stage",
                head.stage.name(),
                stage.name()
            ));
        }
        match stage {
            Stage::File if self.bytes == 0 && !self.is_known(head) => {
                self.data_file(head).map(|()| FileDescription::File)
            }
            Stage::Redo if head.name.is_empty() => self.redo_file(head),
            Stage::File | Stage::Page | Stage::Redo if self.allows_ddl => {
                self.changed_file(stage, head).map(|()| FileDescription::File)
            }
            Stage::File | Stage::Page | Stage::Redo => unsupported(format!(
                "the file {} was created, renamed or removed while the clone ran, although DDL waits for it: try again when nothing changes tables or tablespaces",
                head.name.escape_ascii()
            )),
            Stage::Init | Stage::Done => broken(format!("a file in the {} stage", stage.name())),
        }
    }

    fn data_file(&mut self, head: &FileHead<'_>) -> Result<(), CloneError> {
        let file = CloneFile::new(head, self.page_size)?;
        if head.flags & (flag::RENAMED | flag::REMOVED) != 0 && !self.allows_ddl {
            return broken(format!("{} has the unexpected flags {:#x}", file.name, head.flags));
        }
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
        // Its pages are numbered on in the second file, which has no first page of its own.
        if file.space == Some(SYSTEM) && self.files.iter().any(|other| other.space == file.space) {
            return unsupported(format!(
                "the system tablespace has more than one file (innodb_data_file_path), {} among them; dump the server, or make it anew with one file",
                file.name
            ));
        }
        self.add(file)
    }

    fn add(&mut self, file: CloneFile) -> Result<(), CloneError> {
        self.kept.add(file.name.len())?;
        self.files.push(file);
        Ok(())
    }

    fn is_known(&self, head: &FileHead<'_>) -> bool {
        usize::try_from(head.index).is_ok_and(|index| index < self.files.len())
    }

    /// Takes the description of a file that DDL created, renamed, changed or removed.
    fn changed_file(&mut self, stage: Stage, head: &FileHead<'_>) -> Result<(), CloneError> {
        let mut now = CloneFile::new(head, self.page_size)?;
        let (index, count) = (usize::try_from(head.index).unwrap_or(usize::MAX), self.files.len());
        let Some(file) = self.files.get_mut(index) else {
            if index != count || stage == Stage::File {
                return broken(format!(
                    "{}: a file that was created later has the index {index}, after {count}",
                    now.name
                ));
            }
            now.is_late = true;
            now.size = now.size.max(FIRST_PAGES * u64::from(now.page_size));
            return self.add(now);
        };
        if (file.space, file.page_size) != (now.space, now.page_size) {
            return broken(format!("{} became {}, of another tablespace", file.name, now.name));
        }
        // In place of a chunk, or of the rest of one.
        if stage == Stage::File && now.is_removed {
            self.order.pass_over(head.first_chunk, self.announced.chunks)?;
        }
        self.kept.rename(file.name.len(), now.name.len())?;
        file.name = now.name;
        file.space_flags = now.space_flags;
        if now.is_encrypted && !file.is_encrypted {
            // Its key is in the first page that it has since.
            (file.is_encrypted, file.is_encrypted_late, file.has_first_page) = (true, true, false);
        }
        if now.is_removed {
            file.is_removed = true;
            self.removed_spaces.extend(file.space);
        }
        Ok(())
    }

    fn redo_file(&mut self, head: &FileHead<'_>) -> Result<FileDescription, CloneError> {
        let index = usize::try_from(head.index).unwrap_or(usize::MAX);
        match self.redo.get(index) {
            // The donor repeats it each time that it begins with another file.
            Some(file) if file.is_again(head) => Ok(FileDescription::Again),
            None if index == self.redo.len()
                && self.bytes == 0
                && head.index < self.announced.files =>
            {
                self.redo.push(RedoFile::new(head));
                Ok(FileDescription::Redo)
            }
            _ => broken(format!(
                "redo log {} of {} arrived out of order, or differs from before",
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
            file.has_first_page = true;
        }
        let end = data.offset.checked_add(data.len.into());
        // A page may lie behind the end: see `whole_page`.
        let fits = end.is_some_and(|end| data.file_size <= file.size.max(end));
        if !is_page || !fits || page.is_none() || last >= page {
            return broken(format!(
                "{}: {} bytes at {} of {} ({} by this block), as a changed page of {} bytes after {last:?}",
                file.name, data.len, data.offset, file.size, data.file_size, file.page_size,
            ));
        }
        // The pages of a removed file are left out.
        if page.is_some_and(|(space, _)| self.lacks_removed(space)) {
            self.order.skip_to(data);
        }
        self.last_page = page;
        self.pages = self.pages.saturating_add(1);
        Ok(())
    }

    /// Takes a page that has come, and returns whether it lies behind the end of its file as the donor announced
    /// that. A page says itself where it belongs, and this is never encrypted or compressed.
    ///
    /// The donor describes a file by its length, and may make it longer after that: the new length is in the first page,
    /// which comes only once the donor has written it. Until then it is in the redo log alone.
    pub(super) fn whole_page(&mut self, block: &Block<'_>) -> Result<bool, CloneError> {
        let file = usize::try_from(block.file).ok().and_then(|index| self.files.get_mut(index));
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
                "{}: the changed page at {} states that it is page {:?} of tablespace {:?}",
                file.name, block.offset, found.0, found.1
            ));
        }
        let end = block.offset.saturating_add(block.bytes.len() as u64);
        let is_behind_end = end > file.size;
        file.size = file.size.max(end);
        Ok(is_behind_end)
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
        let is_short = |file: &&CloneFile| !file.is_removed && file.received != file.first_size;
        match files.iter().find(is_short) {
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
        match state.stage == Stage::Page && self.lacks_removed(u32::MAX) {
            true => self.order.skip_to_end(),
            false => self.order.finish(self.announced.chunks)?,
        }
        match state.stage {
            Stage::Init | Stage::Done => Ok(()),
            Stage::File => {
                self.all_described(self.files.len())?;
                self.whole_up_to(self.files.len())?;
                self.all_bytes(state.stage)
            }
            Stage::Page if self.has_all_pages() => Ok(()),
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
                self.all_named()?;
                self.all_bytes(state.stage)
            }
        }
    }

    /// Checks that files which DDL left have names of their own, and their keys.
    fn all_named(&self) -> Result<(), CloneError> {
        let mut names = BTreeSet::new();
        for file in self.files.iter().filter(|file| !file.is_removed) {
            if !names.insert(&file.name) {
                return broken(format!("two files are named {} at the end", file.name));
            }
            let has_key = file.key.is_some() && !file.is_encrypted_late || file.has_first_page;
            if (file.is_late || file.is_encrypted_late) && file.is_encrypted && !has_key {
                return broken(format!("the key of {} is missing", file.name));
            }
        }
        Ok(())
    }

    /// Returns whether pages of a removed file may be left out between the last page and this tablespace.
    fn lacks_removed(&self, next: u32) -> bool {
        let from = self.last_page.map_or(0, |(space, _)| space);
        from <= next && self.removed_spaces.range(from..=next).next().is_some()
    }

    /// Returns whether all pages came, or were left out because their file was removed.
    fn has_all_pages(&self) -> bool {
        let Some(missing) = self.announced.files.checked_sub(self.pages) else { return false };
        let of_removed = self.files.iter().filter(|file| file.is_removed && file.page_size > 0);
        let most: u64 = of_removed.map(|file| file.size / u64::from(file.page_size)).sum();
        match self.order.skipped() {
            Some(skipped) => missing == skipped,
            // No more than the files had that were removed.
            None => u64::from(missing) <= most,
        }
    }

    /// Checks that all bytes came but those of removed files.
    fn all_bytes(&self, stage: Stage) -> Result<(), CloneError> {
        let removed = self.files.iter().filter(|file| file.is_removed && stage == Stage::File);
        let left = removed.map(|file| file.first_size.saturating_sub(file.received));
        if left.fold(self.bytes, u64::saturating_add) == self.announced_bytes {
            return Ok(());
        }
        broken(format!("{} of {} bytes came", self.bytes, self.announced_bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    const PAGE: u32 = 16384;
    const NAMES: [&[u8]; 3] = [b"./t/a.ibd", b"./t/b.ibd", b"./t/c.ibd"];

    fn head(stage: Stage, index: u32, name: &'static [u8], flags: u16) -> FileHead<'static> {
        FileHead {
            stage,
            size: u64::from(PAGE) * 4,
            space_flags: 0x4021,
            flags,
            space: index + 1,
            index,
            first_chunk: index + 1,
            last_chunk: index + 1,
            name,
            key: None,
        }
    }

    fn state(stage: Stage, chunks: u32, files: u32, bytes: u64) -> State {
        let mark = StateMark { chunks, files };
        State { stage, task: 0, mark, bytes, is_begin: true, is_alive: false }
    }

    fn data(stage: Stage, file: u32, chunk: u32, block: u32, offset: u64, len: u32) -> DataHead {
        let file_size = u64::from(PAGE) * 4;
        DataHead { stage, task: 0, chunk, block, file, len, offset, file_size }
    }

    /// Three files of four pages each: which of them came in the file stage, and which are said to be removed.
    fn with_files(sent: [bool; 3], told: [bool; 3]) -> Result<Stages, CloneError> {
        let mut stages = Stages::new(true);
        stages.page_size = PAGE;
        let begin = state(Stage::File, 3, 3, u64::from(PAGE) * 12);
        stages.begin(&begin).unwrap();
        for (name, index) in NAMES.into_iter().zip(0..) {
            stages.file(Stage::File, &head(Stage::File, index, name, 0))?;
        }
        for ((index, name), (sent, told)) in (0..).zip(NAMES).zip(sent.into_iter().zip(told)) {
            if sent {
                stages.data(Stage::File, &data(Stage::File, index, index + 1, 1, 0, PAGE * 4))?;
            }
            if told {
                let mut gone = head(Stage::File, index, name, flag::REMOVED);
                gone.last_chunk = 0;
                stages.file(Stage::File, &gone)?;
            }
        }
        stages.end(&begin)?;
        Ok(stages)
    }

    /// Nothing says which of its files has a page.
    #[test]
    fn a_system_tablespace_of_two_files_is_refused_before_a_byte_of_it() {
        let mut stages = Stages::new(false);
        stages.page_size = PAGE;
        stages.begin(&state(Stage::File, 2, 2, u64::from(PAGE) * 8)).unwrap();
        let system = |index, name| FileHead { space: 0, ..head(Stage::File, index, name, 0) };
        stages.file(Stage::File, &system(0, b"./ibdata1")).unwrap();
        let refused = stages.file(Stage::File, &system(1, b"./ibdata2")).unwrap_err();
        assert!(refused.to_string().contains("more than one file"), "{refused}");
    }

    #[test]
    fn a_chunk_may_be_left_out_only_if_its_file_is_said_to_be_removed() {
        for at in 0..3 {
            let (mut sent, mut told) = ([true; 3], [false; 3]);
            sent[at] = false;
            assert!(with_files(sent, told).is_err(), "{at}");
            told[at] = true;
            assert!(with_files(sent, told).is_ok_and(|stages| stages.files[at].is_removed));
            // Of another file.
            let mut other = [false; 3];
            other[(at + 1) % 3] = true;
            assert!(with_files(sent, other).is_err(), "{at}");
        }
    }

    #[test]
    fn a_block_lies_within_its_file_and_its_chunks() {
        let begun = || {
            let mut stages = Stages::new(false);
            stages.page_size = PAGE;
            stages.begin(&state(Stage::File, 3, 3, u64::from(PAGE) * 12)).unwrap();
            for (name, index) in NAMES.into_iter().zip(0..) {
                stages.file(Stage::File, &head(Stage::File, index, name, 0)).unwrap();
            }
            stages.data(Stage::File, &data(Stage::File, 0, 1, 1, 0, PAGE * 4)).unwrap();
            stages
        };
        let second = |chunk, block, len| data(Stage::File, 1, chunk, block, 0, len);
        assert!(begun().data(Stage::File, &second(2, 1, PAGE * 4)).is_ok());
        assert!(begun().data(Stage::File, &second(2, 1, PAGE * 5)).is_err(), "behind its end");
        assert!(begun().data(Stage::File, &second(1, 2, PAGE * 4)).is_err(), "a chunk before it");
        // Removed instead: in the rest of a chunk, or in place of the next one.
        for (chunk, is_right) in [(0, false), (1, true), (2, true), (3, false), (4, false)] {
            let mut stages = begun();
            stages.allows_ddl = true;
            let mut gone = head(Stage::File, 1, NAMES[1], flag::REMOVED);
            (gone.first_chunk, gone.last_chunk) = (chunk, 0);
            assert_eq!(stages.file(Stage::File, &gone).is_ok(), is_right, "{chunk}");
        }
    }

    /// Takes these pages, by file, number and block, of `count` that were announced.
    fn pages(
        removed: Option<u32>,
        came: &[(u32, u64, u32)],
        count: u32,
    ) -> Result<Stages, CloneError> {
        let mut stages = with_files([true; 3], [false; 3])?;
        if let Some(index) = removed {
            stages.file(Stage::Page, &head(Stage::Page, index, b"./t/b.ibd", flag::REMOVED))?;
        }
        let begin = state(Stage::Page, 1, count, 0);
        stages.begin(&begin).unwrap();
        for &(file, number, block) in came {
            let offset = number * u64::from(PAGE);
            stages.data(Stage::Page, &data(Stage::Page, file, 1, block, offset, PAGE))?;
        }
        stages.end(&begin)?;
        Ok(stages)
    }

    #[test]
    fn pages_may_be_left_out_only_where_those_of_a_removed_file_belong() {
        let around = [(0, 0, 1), (0, 1, 2), (2, 0, 5), (2, 1, 6)];
        assert!(pages(Some(1), &around, 6).is_ok());
        assert!(pages(None, &around, 6).is_err());
        // One more was announced, or one less.
        assert!(pages(Some(1), &around, 7).is_err() && pages(Some(1), &around, 5).is_err());
        // Within another file, and behind it.
        let within = [(0, 0, 1), (0, 1, 3), (2, 0, 4), (2, 1, 5)];
        assert!(pages(Some(1), &within, 5).is_err());
        assert!(pages(Some(1), &[(0, 0, 1), (2, 0, 2), (2, 1, 4)], 4).is_err());
        // Those of the first file, and of the last one.
        assert!(pages(Some(0), &[(1, 0, 3), (2, 0, 4)], 4).is_ok());
        assert!(pages(Some(2), &[(0, 0, 1), (1, 0, 2)], 4).is_ok());
        // More than the last one had, and in a chunk behind the last one.
        assert!(pages(Some(2), &[(0, 0, 1), (1, 0, 2)], 6).is_ok());
        assert!(pages(Some(2), &[(0, 0, 1), (1, 0, 2)], 7).is_err());
        let mut stages = with_files([true; 3], [false; 3]).unwrap();
        stages.file(Stage::Page, &head(Stage::Page, 0, b"./t/a.ibd", flag::REMOVED)).unwrap();
        stages.begin(&state(Stage::Page, 1, 4, 0)).unwrap();
        assert!(stages.data(Stage::Page, &data(Stage::Page, 1, 2, 1, 0, PAGE)).is_err());
        assert!(pages(Some(1), &[(0, 0, 1), (2, 0, 2)], 4).is_err());
        assert!(pages(Some(1), &[(0, 0, 2), (0, 1, 1)], 2).is_err());
    }

    /// Each is kept, so a donor does not decide how many there are.
    #[test]
    fn a_donor_cannot_announce_files_without_end() {
        for (stage, most) in [(Stage::File, 1 << 21), (Stage::Redo, 1024)] {
            let begin = |files| Stages::new(false).begin(&state(stage, files, files, 0));
            assert!(begin(most).is_ok(), "{most}");
            let error = begin(most + 1).unwrap_err().to_string();
            assert!(error.contains("more than"), "{error}");
        }
        // Those that DDL creates, and their names, are counted.
        let mut stages = Stages::new(true);
        stages.page_size = PAGE;
        stages.begin(&state(Stage::Page, 1, 1, 0)).unwrap();
        let late = |index, name| head(Stage::Page, index, name, 0);
        for (index, name) in [(0, NAMES[0]), (1, NAMES[1]), (0, NAMES[2])] {
            stages.file(Stage::Page, &late(index, name)).unwrap();
        }
        let mut kept = KeptFiles::default();
        (0..2).for_each(|_| kept.add("t/a.ibd".len()).unwrap());
        assert_eq!(stages.kept, kept);
    }

    /// Takes a page with these bytes in its head.
    fn page_at(
        stages: &mut Stages,
        head: DataHead,
        (number, space): (u32, u32),
    ) -> Result<bool, CloneError> {
        stages.data(Stage::Page, &head)?;
        let mut bytes = vec![1; usize::try_from(head.len).unwrap()];
        bytes[PAGE_NUMBER..PAGE_NUMBER + 4].copy_from_slice(&number.to_be_bytes());
        bytes[PAGE_SPACE..PAGE_SPACE + 4].copy_from_slice(&space.to_be_bytes());
        let DataHead { stage, file, offset, .. } = head;
        stages.whole_page(&Block { stage, file, offset, bytes: &bytes, is_behind_end: false })
    }

    /// The donor makes a file longer after it has described it, and writes its first page later.
    #[test]
    fn a_page_behind_the_end_that_says_where_it_belongs_makes_its_file_longer() {
        let begun = || {
            let mut stages = with_files([true; 3], [false; 3]).unwrap();
            stages.begin(&state(Stage::Page, 1, 9, 0)).unwrap();
            stages
        };
        let at = |number: u64| data(Stage::Page, 1, 1, 1, number * u64::from(PAGE), PAGE);
        // Directly behind the end, after new extents, and the last page that a file can have.
        for (number, page) in [(4, 4), (70, 70), (u64::from(u32::MAX), u32::MAX)] {
            let mut stages = begun();
            assert_eq!(page_at(&mut stages, at(number), (page, 2)), Ok(true));
            assert_eq!(stages.files[1].size, (number + 1) * u64::from(PAGE));
            assert_eq!((stages.files[0].size, stages.files[2].size), (4 << 14, 4 << 14));
        }
        let mut stages = begun();
        assert_eq!(page_at(&mut stages, at(3), (3, 2)), Ok(false));
        assert_eq!(stages.files[1].size, 4 << 14);
        // Another page, or one of another tablespace; half of one; one that no file can have.
        for (head, says) in [
            (at(4), (5, 2)),
            (at(4), (4, 3)),
            (DataHead { len: PAGE / 2, ..at(4) }, (4, 2)),
            (DataHead { offset: 4 * u64::from(PAGE) + 512, ..at(4) }, (4, 2)),
            (at(1 << 32), (0, 2)),
            (at(u64::MAX / u64::from(PAGE)), (u32::MAX, 2)),
            // The donor says of another page that the file is longer than that.
            (DataHead { file_size: 6 * u64::from(PAGE), ..at(4) }, (4, 2)),
        ] {
            let mut stages = begun();
            assert!(page_at(&mut stages, head, says).is_err(), "{head:?}");
            assert_eq!(stages.files[1].size, 4 << 14, "{head:?}");
        }
        // A file that DDL made, and pages of ROW_FORMAT=COMPRESSED.
        let mut stages = with_files([true; 3], [false; 3]).unwrap();
        let mut late = head(Stage::Page, 3, b"./t/d.ibd", 0);
        late.space_flags = 0x4021 | 3 << 1;
        stages.file(Stage::Page, &late).unwrap();
        stages.begin(&state(Stage::Page, 1, 9, 0)).unwrap();
        let size = stages.files[3].size;
        let zip = |file_size| DataHead { file_size, ..data(Stage::Page, 3, 1, 1, 20 << 12, 4096) };
        assert_eq!(page_at(&mut stages, zip(size), (20, 4)), Ok(true));
        assert_eq!(stages.files[3].size, 21 << 12);
    }

    /// Returns the stages after files that DDL changed before the redo stage.
    fn changed(heads: &[FileHead<'_>]) -> Result<Stages, CloneError> {
        let mut stages = with_files([true; 3], [false; 3])?;
        for head in heads {
            stages.file(Stage::Redo, head)?;
        }
        stages.all_named()?;
        Ok(stages)
    }

    #[test]
    fn files_that_ddl_changed_have_one_name_each_at_the_end() {
        let renamed = |index, name| head(Stage::Redo, index, name, flag::RENAMED);
        let swapped = changed(&[renamed(0, b"./t/b.ibd"), renamed(1, b"./t/a.ibd")]).unwrap();
        assert_eq!(swapped.files[0].name.to_string(), "t/b.ibd");
        assert!(changed(&[renamed(0, b"./t/b.ibd")]).is_err());
        let gone = head(Stage::Redo, 1, b"./t/b.ibd", flag::REMOVED);
        assert!(changed(&[renamed(0, b"./t/b.ibd"), gone]).is_ok());
        // A new one, and one whose number leaves a hole.
        let late = changed(&[head(Stage::Redo, 3, b"./t/d.ibd", 0)]).unwrap();
        assert!(late.files[3].is_late && late.files[3].size == 7 * u64::from(PAGE));
        assert!(changed(&[head(Stage::Redo, 4, b"./t/d.ibd", 0)]).is_err());
        // Another tablespace under a known number.
        let mut other = renamed(0, b"./t/x.ibd");
        other.space = 9;
        assert!(changed(&[other]).is_err());
        // Encrypted: its key comes, or the clone is over.
        let mut secret = head(Stage::Redo, 3, b"./t/d.ibd", flag::ENCRYPTED);
        assert!(changed(&[secret]).is_err());
        secret.key = Some(&[7; 64]);
        assert!(changed(&[secret]).is_ok_and(|stages| stages.files[3].key.is_some()));
        // One that DDL encrypts: its key is in a first page that comes after that.
        let page = data(Stage::Page, 0, 1, 1, 0, PAGE);
        for told_in in [Stage::Page, Stage::Redo] {
            let mut stages = with_files([true; 3], [false; 3]).unwrap();
            let encrypted = head(told_in, 0, NAMES[0], flag::ENCRYPTED);
            if told_in == Stage::Page {
                stages.file(told_in, &encrypted).unwrap();
            }
            stages.begin(&state(Stage::Page, 1, 1, 0)).unwrap();
            stages.data(Stage::Page, &page).unwrap();
            if told_in == Stage::Redo {
                stages.file(told_in, &encrypted).unwrap();
            }
            assert!(stages.files[0].is_encrypted);
            assert_eq!(stages.all_named().is_ok(), told_in == Stage::Page, "{told_in:?}");
        }
    }

    #[test]
    fn a_file_that_ddl_changed_ends_a_clone_for_which_ddl_waits() {
        let mut stages = with_files([true; 3], [false; 3]).unwrap();
        stages.allows_ddl = false;
        for (index, name, flags) in [
            (0, &b"./t/x.ibd"[..], flag::RENAMED),
            (1, b"./t/b.ibd", flag::REMOVED),
            (3, b"./t/d.ibd", 0),
        ] {
            assert!(stages.file(Stage::Page, &head(Stage::Page, index, name, flags)).is_err());
        }
    }
}
