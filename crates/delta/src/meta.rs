//! The small text beside each delta file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Longest text that is read, in bytes.
pub(crate) const MAX_TEXT: u64 = 64 << 10;
/// More bytes than a usual text has.
const USUAL: usize = 256;

/// Text beside a delta file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Bytes of a page in the file: a power of two from 1 KiB to 64 KiB.
    pub page_size: usize,
    /// Number of the tablespace.
    pub space: u32,
}

impl Meta {
    /// Parses the text; `None` if a line that is needed is missing or has no sensible value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = |key: &str| value(text, key)?.parse::<u32>().ok();
        let page_size = match number("zip_size") {
            None | Some(0) => number("page_size")?,
            Some(zip) => zip,
        };
        let page_size = usize::try_from(page_size).ok()?;
        let is_sensible = page_size.is_power_of_two() && (1 << 10..=64 << 10).contains(&page_size);
        is_sensible.then_some(Self { page_size, space: number("space_id")? })
    }
}

/// The value of `key = value`.
pub(crate) fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// Reads a small text. `None` if it is missing, too long, or no text.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    // Non-blocking: opening a pipe without a writer would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).ok()?);
    // With room from the start: there is one such file for each tablespace of each increment.
    let mut text = String::with_capacity(USUAL);
    let len = file.take(MAX_TEXT + 1).read_to_string(&mut text).ok()?;
    (len as u64 <= MAX_TEXT).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_number_are_read() {
        let meta = |page_size, space| Some(Meta { page_size, space });
        let of = Meta::parse;
        assert_eq!(of("page_size = 16384\nzip_size = 0 \nspace_id = 8 \n"), meta(16384, 8));
        assert_eq!(of("page_size = 4096\nzip_size = 4096\nspace_id = 9\n"), meta(4096, 9));
        assert_eq!(of("page_size = 16384\nzip_size = 8192\nspace_id = 9\n"), meta(8192, 9));
        for bad in [
            "",
            "page_size = 16384\n",
            "space_id = 1\n",
            "page_size = 16000\nspace_id = 1",
            "page_size = 131072\nspace_id = 1",
            "page_size = 16384\nspace_id = -1",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
