//! Checks that a replay begins where the data ends: between two transactions, with exactly the GTIDs of the backup.
//!
//! Logs of two servers have the same names, so a position alone may be found in a log that is not the backup's.

use xb_binlog::{GtidState, History, LogPosition, Reader};

use crate::binlog::pieces::{Fetched, Needed};

/// Why the first segment of a replay does not have `start` with `gtids`; `None` if it has, or if it begins within a
/// transaction, so that its events cannot be read from its beginning.
pub(super) fn displaced(
    first: &Needed,
    fetched: &Fetched,
    (start, gtids): (&LogPosition, &GtidState),
) -> Option<String> {
    let head = &first.segment.content;
    let (false, Some(before)) = (head.starts_inside, head.before()) else { return None };
    let from = start.offset().checked_sub(head.from.offset)?;
    let mut input = fetched.bytes.get(..usize::try_from(from).ok()?)?;
    let description = base16ct::lower::decode_vec(&head.description).ok()?;
    let no_boundary = || Some(format!("{start} is no boundary between two transactions"));
    let Ok(mut reader) = Reader::resume(&description, head.from.offset) else {
        return no_boundary();
    };
    let mut history = History::new(&head.from.log, Some(before));
    while !input.is_empty() {
        match reader.next(&mut input).map(|entry| entry.map(|entry| history.push(&entry))) {
            Ok(Some(Ok(_))) => {}
            _ => return no_boundary(),
        }
    }
    if reader.open().is_some() || history.open().is_some() {
        return no_boundary();
    }
    let found = history.gtids().filter(|found| *found != gtids)?;
    Some(format!("the archive has {found} at {start}, and the backup notes {gtids}"))
}
