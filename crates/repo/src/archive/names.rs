//! Names and keys of the archive.

use crate::names::{BackupName, NameError, RunId};

/// Folder of all archives below ROOT.
pub(crate) const ARCHIVES: &str = ".xb-binlog";
/// Names of the records of a stream.
pub const HEAD: &str = "head";
/// The key slots of a stream.
pub const KEYS: &str = "keys";
/// Record of the end of a stream.
pub const ALIVE: &str = "alive";
/// The end of a stream.
pub const END: &str = "end";
/// The beginning of what is left of a stream, with the number of its first segment.
const FLOOR: &str = "floor-";
/// A roll-up of heads, with the numbers of its first and last segment. In the order of names before all segments,
/// so that a listing of the last segments does not have them.
const ROLL_UP: &str = ".heads-";
/// Folder of the roll-ups of streams that have ended, in that of a server. It is no ID of a stream.
pub const STREAMS: &str = ".streams";
/// Lies behind the names of roll-ups, and before those of segments, floors and records.
pub(crate) const BEFORE_SEGMENTS: &str = ".~";
/// Digits of a segment's number.
const DIGITS: usize = 12;

/// Folder of the archive of a server, below ROOT.
///
/// # Errors
/// [`NameError`]: a server's name follows the rules of a backup's.
pub fn server_folder(server: &str) -> Result<String, NameError> {
    BackupName::new(server).map(|name| format!("{ARCHIVES}/{name}"))
}

/// Folder of a stream, below ROOT.
#[must_use]
pub fn stream_folder(server_folder: &str, stream: RunId) -> String {
    format!("{server_folder}/{stream}")
}

/// Name of a segment in the folder of its stream.
#[must_use]
pub fn segment_name(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

/// Number of the segment with this name.
#[must_use]
pub(crate) fn parse_segment(name: &str) -> Option<u64> {
    let is_number = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| name.parse().ok()).flatten()
}

/// Name of the record that segments before this one may have been removed.
#[must_use]
pub fn floor_name(number: u64) -> String {
    format!("{FLOOR}{}", segment_name(number))
}

/// Number of the first segment that is left, by the name of such a record.
#[must_use]
pub(crate) fn parse_floor(name: &str) -> Option<u64> {
    parse_segment(name.strip_prefix(FLOOR)?)
}

/// Name of the roll-up of the heads of these segments.
#[must_use]
pub fn rollup_name((first, last): (u64, u64)) -> String {
    format!("{ROLL_UP}{}-{}", segment_name(first), segment_name(last))
}

/// The numbers of the first and the last segment of the roll-up with this name.
#[must_use]
pub(crate) fn parse_rollup(name: &str) -> Option<(u64, u64)> {
    let (first, last) = name.strip_prefix(ROLL_UP)?.split_once('-')?;
    let span = (parse_segment(first)?, parse_segment(last)?);
    (span.0 <= span.1).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_come_back() {
        for number in [0, 7, 999_999_999_999] {
            assert_eq!(parse_segment(&segment_name(number)), Some(number));
            assert_eq!(parse_floor(&floor_name(number)), Some(number));
            assert_eq!(parse_segment(&floor_name(number)), None);
            let name = rollup_name((number / 2, number));
            assert_eq!(parse_rollup(&name), Some((number / 2, number)));
            assert!(name < segment_name(0) && parse_segment(&name).is_none());
        }
        for bad in ["", "head", "00000000000", "0000000000000", "00000000000x", "+00000000001"] {
            assert_eq!(parse_segment(bad), None, "{bad}");
        }
        for bad in [".heads-", ".heads-000000000001", ".heads-000000000001-000000000000"] {
            assert_eq!(parse_rollup(bad), None, "{bad}");
        }
        assert_eq!(server_folder("shop").unwrap(), ".xb-binlog/shop");
        assert!(server_folder("a/b").is_err() && server_folder("").is_err());
    }
}
