//! The files of the redo log, and which of their bytes have come: first the body, then the head of the first
//! file, then the end of the last one.

use std::collections::BTreeMap;

use super::descriptor::{DataHead, FileHead, Stage};
use super::error::{CloneError, broken};

/// The block that ends a log; in a file that is full it lies behind it.
const LAST_BLOCK: u64 = 512;

/// Most ranges of a file that do not adjoin: a donor sends its body, its head and its end.
const MAX_RANGES: usize = 64;

/// A file of the redo log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedoFile {
    /// Its number, which is part of its name: `#innodb_redo/#ib_redo0`, and so on.
    pub index: u32,
    /// Its size in bytes. Less came of the last one; the server expects zeros there.
    pub size: u64,
    first_chunk: u32,
    last_chunk: u32,
    /// Received ranges: begin and end.
    ranges: BTreeMap<u64, u64>,
}

impl RedoFile {
    pub(super) fn new(head: &FileHead<'_>) -> Self {
        Self {
            index: head.index,
            size: head.size,
            first_chunk: head.first_chunk,
            last_chunk: head.last_chunk,
            ranges: BTreeMap::new(),
        }
    }

    /// Checks that the donor describes the file as before.
    pub(super) fn is_again(&self, head: &FileHead<'_>) -> bool {
        (self.size, self.first_chunk, self.last_chunk)
            == (head.size, head.first_chunk, head.last_chunk)
    }

    pub(super) fn accept(&mut self, data: &DataHead) -> Result<(), CloneError> {
        let refused = |what: &str| {
            broken(format!(
                "{} bytes at {} of redo log {} {what}",
                data.len, data.offset, self.index
            ))
        };
        let begin = data.offset;
        let Some(end) = begin.checked_add(data.len.into()) else { return refused("overflow") };
        if end > self.size.saturating_add(LAST_BLOCK) {
            return refused("lie behind its end");
        }
        let before = self.ranges.range(..end).next_back().map(|(&begin, &end)| (begin, end));
        match before {
            Some((_, before)) if before > begin => refused("came twice"),
            Some((first, before)) if before == begin => {
                self.ranges.insert(first, end);
                Ok(())
            }
            _ if self.ranges.len() >= MAX_RANGES => refused("adjoin nothing that came before"),
            _ => {
                self.ranges.insert(begin, end);
                Ok(())
            }
        }
    }

    /// Checks that the file came whole; the last one, up to some point.
    pub(super) fn finish(&self, is_last: bool) -> Result<(), CloneError> {
        let mut end = 0;
        for (&from, &to) in &self.ranges {
            if from != end {
                return broken(format!(
                    "{} stage: bytes {end} to {from} of redo log {} are missing",
                    Stage::Redo.name(),
                    self.index,
                ));
            }
            end = to;
        }
        if end == 0 || (end < self.size && !is_last) {
            return broken(format!(
                "the redo log {} has {end} bytes instead of {}",
                self.index, self.size
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn a_file_of_which_every_other_block_comes_is_refused() {
        let head = FileHead {
            stage: Stage::Redo,
            size: 1 << 30,
            space_flags: 0,
            flags: 0,
            space: 0,
            index: 0,
            first_chunk: 1,
            last_chunk: 1,
            name: b"",
            key: None,
        };
        let mut file = RedoFile::new(&head);
        let mut accept = |number: u64| {
            let (offset, len) = (number * 1024, 512);
            let (stage, task, chunk, block, file_size) = (Stage::Redo, 0, 1, 1, 1 << 30);
            file.accept(&DataHead { stage, task, chunk, block, file: 0, len, offset, file_size })
        };
        (0..64).for_each(|number| accept(number).unwrap());
        let error = accept(64).unwrap_err().to_string();
        assert!(error.contains("adjoin nothing"), "{error}");
    }
}
