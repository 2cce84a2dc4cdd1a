//! The file with the changed pages of a tablespace.
//!
//! It is a row of groups. A group begins with a block as long as a page: a mark, then the numbers of the pages that
//! follow it, big-endian. The mark of the last group differs; its list ends with all bits set, or with the block.
//! Numbers ascend through the whole file. Seen in the increments of mariadb-backup 10.11.19.

use std::io::{self, Read};

/// Marks of a group, and of the last one.
const GROUP: [u8; 4] = *b"xtra";
const LAST: [u8; 4] = *b"XTRA";
/// In place of a number: the list ends here.
const NO_PAGE: u32 = u32::MAX;

/// Reason why a delta file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamagedDelta {
    /// It cannot be read, or ends early.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A group begins otherwise.
    #[error("a group of pages begins with {0:02x?}")]
    Mark([u8; 4]),
    /// A group that is not the last lists fewer pages than it has room for.
    #[error("a group lists {0} pages, but more groups follow")]
    Short(usize),
    /// A page is not behind the one before it.
    #[error("page {0} is out of order")]
    Order(u32),
    /// Something follows the last page.
    #[error("bytes follow the last page")]
    Behind,
}

/// Reads the pages of a delta file, in order.
#[derive(Debug)]
pub struct DeltaReader<R> {
    input: R,
    block: Vec<u8>,
    /// Numbers of the group's pages, the next one last.
    numbers: Vec<u32>,
    before: Option<u32>,
    is_last: bool,
    is_over: bool,
}

impl<R: Read> DeltaReader<R> {
    /// Begins a file whose pages have `page_size` bytes, as its `.meta` file states.
    pub fn new(input: R, page_size: usize) -> Self {
        let block = vec![0; page_size];
        Self { input, block, numbers: Vec::new(), before: None, is_last: false, is_over: false }
    }

    /// Returns the next page and its number; `None` at the end of a file that is whole.
    ///
    /// # Errors
    /// [`DamagedDelta`].
    pub fn next_page(&mut self) -> Result<Option<(u32, &[u8])>, DamagedDelta> {
        while self.numbers.is_empty() {
            if self.is_over {
                return Ok(None);
            }
            match self.is_last {
                true => self.end()?,
                false => self.begin_group()?,
            }
        }
        let Some(number) = self.numbers.pop() else { return Ok(None) };
        self.input.read_exact(&mut self.block)?;
        Ok(Some((number, &self.block)))
    }

    fn begin_group(&mut self) -> Result<(), DamagedDelta> {
        self.input.read_exact(&mut self.block)?;
        let mut words = self.block.chunks_exact(4);
        let mark = words.next().and_then(|mark| mark.first_chunk().copied()).unwrap_or_default();
        self.is_last = match mark {
            LAST => true,
            GROUP => false,
            other => return Err(DamagedDelta::Mark(other)),
        };
        let room = words.len();
        let numbers = words.filter_map(|word| Some(u32::from_be_bytes(*word.first_chunk()?)));
        self.numbers = numbers.take_while(|number| *number != NO_PAGE).collect();
        if !self.is_last && self.numbers.len() < room {
            return Err(DamagedDelta::Short(self.numbers.len()));
        }
        for number in &self.numbers {
            if self.before.is_some_and(|before| before >= *number) {
                return Err(DamagedDelta::Order(*number));
            }
            self.before = Some(*number);
        }
        self.numbers.reverse();
        Ok(())
    }

    fn end(&mut self) -> Result<(), DamagedDelta> {
        match self.input.read(&mut [0])? {
            0 => self.is_over = true,
            _ => return Err(DamagedDelta::Behind),
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A delta file with these pages.
    pub(crate) fn write(page_size: usize, pages: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let room = page_size / 4 - 1;
        let mut groups: Vec<_> = pages.chunks(room).collect();
        if groups.is_empty() {
            groups.push(&[]);
        }
        let mut out = Vec::new();
        for (n, group) in groups.iter().enumerate() {
            let mut block = if n + 1 == groups.len() { LAST } else { GROUP }.to_vec();
            group.iter().for_each(|(number, _)| block.extend(number.to_be_bytes()));
            block.resize(page_size, 0xff);
            out.extend(block);
            group.iter().for_each(|(_, page)| out.extend(page));
        }
        out
    }

    fn read(page_size: usize, bytes: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, DamagedDelta> {
        let (mut reader, mut pages) = (DeltaReader::new(bytes, page_size), Vec::new());
        while let Some((number, page)) = reader.next_page()? {
            pages.push((number, page.to_vec()));
        }
        Ok(pages)
    }

    const SIZE: usize = 16;

    fn pages() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
        let page = prop::collection::vec(any::<u8>(), SIZE);
        prop::collection::btree_map(0..NO_PAGE, page, 0..12)
            .prop_map(|pages| pages.into_iter().collect())
    }

    proptest! {
        #[test]
        fn pages_come_back(pages in pages()) {
            prop_assert_eq!(read(SIZE, &write(SIZE, &pages)).unwrap(), pages);
        }

        #[test]
        fn a_cut_or_longer_file_is_refused(pages in pages(), at: prop::sample::Index) {
            let bytes = write(SIZE, &pages);
            prop_assert!(read(SIZE, &bytes[..at.index(bytes.len())]).is_err());
            prop_assert!(read(SIZE, &[&bytes[..], &[0]].concat()).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, last: bool) {
            let mark = if last { LAST } else { GROUP };
            let _ = read(SIZE, &[&mark[..], &bytes].concat());
        }
    }

    #[test]
    fn an_order_that_goes_back_is_refused() {
        let page = vec![1; SIZE];
        for numbers in [[2, 1], [3, 3]] {
            let bytes = write(SIZE, &numbers.map(|number| (number, page.clone())));
            assert!(matches!(read(SIZE, &bytes), Err(DamagedDelta::Order(_))), "{numbers:?}");
        }
        let group: Vec<_> = (0..3).map(|number| (number, page.clone())).collect();
        let mut short = write(SIZE, &group[..2]);
        short[..4].copy_from_slice(&GROUP);
        assert!(matches!(read(SIZE, &short), Err(DamagedDelta::Short(2))));
    }
}
