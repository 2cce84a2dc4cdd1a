//! State of one file during inspection: its layers are decoded and its pages checked.

use xb_pages::{
    BadPage, DeltaPageChecker, FileChecked, PageChecker, TableFileChecker, TableFileName,
};
use xb_reader::RelPath;

use super::options::InspectOptions;
use super::redo::{RedoFile, RedoFound};
use super::tables::TableCheck;
use crate::extract::decode::{
    ChainStop, CodecChain, Decrypt, FileDecodeError, FileDecoding, Layer, MemoryNeed, Plan,
};
use crate::flow::budget::{Budget, Permit};
use crate::scan::producer_files::{is_redo_log, logical_name};

/// Size of the buffer for decoded bytes.
const BUFFER: usize = 256 << 10;

/// A restore leaves pieces of zeros of this size as holes.
const HOLE: usize = 4096;

/// Suffix of the files that hold changed pages in incremental backups.
const DELTA: &[u8] = b".delta";

/// An open file.
#[derive(Debug, Default)]
pub(super) struct FileState {
    chain: Option<Layers>,
    pages: Pages,
    /// Whether the file is encrypted and there is no key.
    unopened: bool,
    /// Whether the file is left for another pass, because memory is short.
    postponed: bool,
    /// File offset of the next byte, as the stream has it.
    next: u64,
    /// Bytes of the decoded file, without its holes.
    unpacked: u64,
}

struct Layers {
    chain: CodecChain,
    permit: Permit,
}

/// Resources that all files share.
#[derive(Debug)]
pub(super) struct InspectResources {
    budget: Budget,
    buffer: Vec<u8>,
}

impl InspectResources {
    pub(super) fn new(memory: u64) -> Self {
        Self { budget: Budget::new(memory), buffer: vec![0; BUFFER] }
    }
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layers").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
enum Pages {
    /// Not a tablespace, or pages are not checked.
    #[default]
    None,
    PassedOver,
    Checked(Box<PageChecker>),
    /// The changed pages of a tablespace.
    Delta(Box<DeltaPageChecker>),
    /// A file of the redo log.
    Redo(Box<RedoFile>),
    /// A redo log that stays encrypted or compressed, or is out of order.
    UnreadRedo,
    /// A file of a MyISAM or Aria table.
    Table(Box<TableFileChecker>),
    /// A file of a MyISAM or Aria table that stays encrypted or compressed, or is out of order.
    UnreadTable,
}

/// Result for the content of a file.
pub(super) enum Content {
    Other,
    PassedOver,
    Pages(FileChecked),
    /// The changed pages of a tablespace: they were checked, and the others are in an earlier backup.
    Delta(FileChecked),
    /// A file of the redo log.
    Redo(RedoFound),
    /// A file of a MyISAM or Aria table.
    Table(TableCheck),
}

impl FileState {
    pub(super) fn new(path: &RelPath, options: &InspectOptions) -> Result<Self, FileDecodeError> {
        let decrypt = options.cipher.clone().map_or(Decrypt::Leave, Decrypt::With);
        let decoding =
            FileDecoding { decompress: options.decoding, decrypt, ..FileDecoding::default() };
        let decoding = if options.decoding {
            decoding
        } else {
            FileDecoding { decrypt: Decrypt::Leave, ..decoding }
        };
        let plan = Plan::new(path, &decoding)?;
        let chain = match plan.layers.is_empty() {
            true => None,
            false => Some(Layers {
                chain: CodecChain::new(&plan.layers, options.cipher.as_ref())?,
                permit: Permit::default(),
            }),
        };
        let all = Plan::of_all(path)?;
        let bare = plan.layers == all.layers;
        let name = logical_name(path.as_bytes());
        let pages = if options.pages { Pages::of_name(name, bare) } else { Pages::None };
        let unopened = options.decoding && !bare && all.layers.contains(&Layer::Xbcrypt);
        Ok(Self { chain, pages, unopened, ..Self::default() })
    }

    /// Stops checking pages, because the file's bytes are out of order.
    pub(super) fn pass_over(&mut self) {
        match self.pages {
            Pages::Checked(_) | Pages::Delta(_) => self.pages = Pages::PassedOver,
            Pages::Redo(_) => self.pages = Pages::UnreadRedo,
            Pages::Table(_) => self.pages = Pages::UnreadTable,
            Pages::None | Pages::PassedOver | Pages::UnreadRedo | Pages::UnreadTable => {}
        }
    }

    /// Leaves the file for another pass, and frees its memory.
    pub(super) fn postpone(&mut self) {
        (self.chain, self.pages, self.postponed) = (None, Pages::None, true);
    }

    pub(super) fn is_postponed(&self) -> bool {
        self.postponed
    }

    pub(super) fn is_unopened(&self) -> bool {
        self.unopened
    }

    pub(super) fn is_undone(&self) -> bool {
        self.chain.is_some()
    }

    /// Bytes that the file's page checker holds.
    pub(super) fn held(&self) -> u64 {
        match &self.pages {
            Pages::Checked(checker) => checker.held() as u64,
            Pages::Delta(checker) => checker.held() as u64,
            Pages::Table(checker) => checker.held() as u64,
            _ => 0,
        }
    }

    /// Takes bytes of the stream at `offset` of the file.
    pub(super) fn take(
        &mut self,
        offset: u64,
        bytes: &[u8],
        desk: &mut InspectResources,
        bad: &mut impl FnMut(BadPage),
    ) -> Result<(), FileDecodeError> {
        if offset != self.next && self.chain.is_some() {
            return Err(FileDecodeError::OutOfOrder);
        }
        self.hole_up_to(offset, bad);
        self.next = offset + bytes.len() as u64;
        match &mut self.chain {
            Some(layers) => {
                self.unpacked += layers.run(bytes, desk, &mut self.pages, bad)?;
                Ok(())
            }
            None => {
                self.unpacked += bytes.len() as u64;
                self.pages.feed(bytes, bad);
                Ok(())
            }
        }
    }

    /// Counts the gap up to `offset` as zeros.
    pub(super) fn hole_up_to(&mut self, offset: u64, bad: &mut impl FnMut(BadPage)) {
        if self.chain.is_none()
            && let Some(hole) = offset.checked_sub(self.next)
        {
            self.pages.feed_zeros(hole, bad);
            self.next = offset;
        }
    }

    /// Ends the file; every layer must have ended, too. Also returns the bytes of the decoded file,
    /// without its holes.
    pub(super) fn finish(
        mut self,
        desk: &mut InspectResources,
        bad: &mut impl FnMut(BadPage),
    ) -> Result<(Content, u64), FileDecodeError> {
        if let Some(mut layers) = self.chain.take() {
            self.unpacked += layers.run(&[], desk, &mut self.pages, bad)?;
            layers.chain.finish()?;
        }
        let content = match self.pages {
            Pages::None => Content::Other,
            Pages::PassedOver => Content::PassedOver,
            Pages::Checked(checker) => match checker.finish(bad) {
                checked if checked.is_tablespace => Content::Pages(checked),
                _ => Content::Other,
            },
            Pages::Delta(checker) => {
                checker.finish(bad).map_or(Content::PassedOver, Content::Delta)
            }
            Pages::Redo(file) => Content::Redo(file.finish()),
            Pages::UnreadRedo => Content::Redo(RedoFound::default()),
            Pages::Table(checker) => Content::Table(TableCheck::Read(Box::new(checker.finish()))),
            Pages::UnreadTable => Content::Table(TableCheck::Unread),
        };
        Ok((content, self.unpacked))
    }
}

/// The checks of a tablespace file of this name, if it is one, on which recovery is over.
pub(super) fn recovered_pages(name: &[u8]) -> Option<PageChecker> {
    match Pages::of_name(name, true) {
        Pages::Checked(checker) => Some(checker.recovered()),
        _ => None,
    }
}

impl Pages {
    /// Returns the checks for the file of this name. `bare`: its bytes are not wrapped, or the wrapping
    /// is undone.
    fn of_name(name: &[u8], bare: bool) -> Self {
        if is_redo_log(name) {
            return if bare { Self::Redo(Box::default()) } else { Self::UnreadRedo };
        }
        if let Some(TableFileName { engine, part, .. }) = TableFileName::of(name) {
            let checker = bare.then(|| Box::new(TableFileChecker::new(engine, part)));
            return checker.map_or(Self::UnreadTable, Self::Table);
        }
        // A file of an incremental backup has some of the pages.
        let delta = name.strip_suffix(DELTA).filter(|name| PageChecker::of_name(name).is_some());
        if let Some(name) = delta.filter(|_| bare) {
            return Self::Delta(Box::new(DeltaPageChecker::of_tablespace(name)));
        }
        match (PageChecker::of_name(delta.unwrap_or(name)), bare && delta.is_none()) {
            (Some(checker), true) => Self::Checked(Box::new(checker)),
            (Some(_), false) => Self::PassedOver,
            (None, true) => {
                let checker = PageChecker::of_any_name(name);
                checker.map_or(Self::None, |checker| Self::Checked(Box::new(checker)))
            }
            (None, false) => Self::None,
        }
    }

    fn feed(&mut self, bytes: &[u8], bad: &mut impl FnMut(BadPage)) {
        match self {
            Self::Checked(checker) => checker.feed(bytes, bad),
            Self::Delta(checker) => checker.feed(bytes, bad),
            Self::Redo(file) => file.feed(bytes),
            Self::Table(checker) => checker.feed(bytes),
            _ => {}
        }
    }

    fn feed_zeros(&mut self, len: u64, bad: &mut impl FnMut(BadPage)) {
        match self {
            Self::Checked(checker) => checker.feed_zeros(len, bad),
            Self::Delta(checker) => checker.feed_zeros(len, bad),
            Self::Redo(file) => file.feed_zeros(len),
            Self::Table(checker) => checker.feed_zeros(len),
            _ => {}
        }
    }
}

impl Layers {
    fn run(
        &mut self,
        mut input: &[u8],
        desk: &mut InspectResources,
        pages: &mut Pages,
        bad: &mut impl FnMut(BadPage),
    ) -> Result<u64, FileDecodeError> {
        let mut unpacked = 0;
        loop {
            let (len, flow) = self.chain.run(&mut input, &mut desk.buffer)?;
            let plain = desk.buffer.get(..len).unwrap_or_default();
            pages.feed(plain, bad);
            unpacked += plain
                .chunks(HOLE)
                .filter(|piece| !is_zero(piece))
                .map(|p| p.len() as u64)
                .sum::<u64>();
            match flow {
                ChainStop::Full => {}
                ChainStop::Hungry => return Ok(unpacked),
                ChainStop::Wants(want) => self.grant(want, &desk.budget)?,
            }
        }
    }

    /// Grants memory or fails: unlike a restore, an inspection has no disk on which to park a file.
    fn grant(&mut self, want: MemoryNeed, budget: &Budget) -> Result<(), FileDecodeError> {
        let (needed, more) = self.chain.cost(want);
        let allowed = budget.total();
        // A lease above the whole budget would be reduced to it, which is too little here.
        let lease = (more <= allowed).then(|| budget.try_lease(more)).flatten();
        let Some(permit) = lease else { return Err(FileDecodeError::Memory { needed, allowed }) };
        self.permit.merge(permit);
        self.chain.grant(want);
        Ok(())
    }
}

fn is_zero(piece: &[u8]) -> bool {
    piece.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of which bytes come out of order is not judged by those that came before.
    #[test]
    fn a_redo_log_that_is_out_of_order_is_not_read() {
        let path = RelPath::new(b"ib_logfile0").unwrap();
        let (rule, memory) = (crate::scan::end_rule::EndRule::AnyEnd, 1 << 20);
        let options = InspectOptions { rule, decoding: false, cipher: None, pages: true, memory };
        let found = |is_in_order: bool| {
            let mut desk = InspectResources::new(1 << 20);
            let mut file = FileState::new(&path, &options).unwrap();
            file.take(0, &[0; 4096], &mut desk, &mut |_| {}).unwrap();
            if !is_in_order {
                file.pass_over();
            }
            match file.finish(&mut desk, &mut |_| {}).unwrap().0 {
                Content::Redo(found) => format!("{found:?}"),
                _ => panic!("it is a redo log"),
            }
        };
        assert!(found(true).contains("Blank"));
        assert_eq!(found(false), format!("{:?}", RedoFound::default()));
    }
}
