//! Checks that a replay begins where the data ends: between two transactions, with exactly the GTIDs of the backup.
//!
//! Logs of two histories may have the same names, so a position alone may be found in a log that is not the backup's.

use jiff::Timestamp;
use xb_binlog::{Error, GtidState, History, LogPosition, Reader, Repeats};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::plan::PlanError;
use xb_repo::archive::stop::TimesBefore;

/// Returns why the first segment of a replay does not have `start` with `gtids`; `None` if it has, or if it begins within a
/// transaction, so that its events cannot be read from its beginning.
pub(super) fn displaced(
    head: &ListedSegment,
    (description, events): (&[u8], &[u8]),
    repeats: Option<&Repeats>,
    (start, gtids): (&LogPosition, &GtidState),
) -> Option<String> {
    let history = match read_before(head, (description, events), repeats, start)? {
        Ok(history) => history,
        Err(what) => return Some(what),
    };
    let found = history.gtids().filter(|found| are_two(found, gtids))?;
    Some(format!("the archive has {found} at {start}, and the backup notes {gtids}"))
}

/// Returns the GTIDs that the first segment has at `start`; `None` if it begins within a transaction, or cannot be read.
pub(super) fn gtids_at(
    head: &ListedSegment,
    read: (&[u8], &[u8]),
    repeats: Option<&Repeats>,
    start: &LogPosition,
) -> Option<GtidState> {
    read_before(head, read, repeats, start)?.ok()?.gtids().cloned()
}

/// Reads the first segment up to `start`, and says what is wrong there. `None` if it begins within a transaction.
fn read_before(
    head: &ListedSegment,
    (description, events): (&[u8], &[u8]),
    repeats: Option<&Repeats>,
    start: &LogPosition,
) -> Option<Result<History, String>> {
    let (false, Some(before)) = (head.starts_inside, head.before()) else { return None };
    let from = start.offset().checked_sub(head.from.offset)?;
    let mut input = events.get(..usize::try_from(from).ok()?)?;
    let no_boundary = || Some(Err(format!("{start} is not a boundary between two transactions")));
    let unread =
        |error: Error| Some(Err(format!("the log before {start} cannot be read: {error}")));
    let mut reader = match Reader::resume(description, head.from.offset) {
        Ok(reader) => reader,
        Err(error) => return unread(error),
    };
    let mut history = History::new(&head.from.log, Some(before)).with_repeats(repeats.cloned());
    while !input.is_empty() {
        let pushed = match reader.next(&mut input) {
            Ok(Some(entry)) => history.push(&entry).map(drop),
            // An event has begun.
            Ok(None) => return no_boundary(),
            Err(error) => Err(error),
        };
        if let Err(error) = pushed {
            return unread(error);
        }
    }
    if reader.open().is_some() || history.open().is_some() {
        return no_boundary();
    }
    Some(Ok(history))
}

/// Checks by the transactions before `start` in the first segment that a stop by time does not lie before it. Nothing is
/// known of a segment that begins within a transaction.
pub(super) fn before_stop(
    head: &ListedSegment,
    (description, events): (&[u8], &[u8]),
    repeats: Option<&Repeats>,
    (start, time): (&LogPosition, Timestamp),
) -> Result<(), PlanError> {
    let mut times = TimesBefore::new(time);
    let mut read = || {
        let from = start.offset().checked_sub(head.from.offset).filter(|_| !head.starts_inside)?;
        let mut input = events.get(..usize::try_from(from).ok()?)?;
        let mut reader = Reader::resume(description, head.from.offset).ok()?;
        let history = History::new(&head.from.log, head.before());
        let mut history = history.with_repeats(repeats.cloned());
        while !input.is_empty() {
            let entry = reader.next(&mut input).ok()??;
            history.push(&entry).ok()?;
            if let Some(open) = history.open().filter(|open| open.begin == entry.begin) {
                times.take(1, open.micros, head.clock());
            }
        }
        Some(())
    };
    read();
    times.check(start)
}

/// Returns whether two states cannot be of one place of a log. A backup of MariaDB may note domains that the log lacks, or lack
/// one, by what its server had replicated: those in both count.
fn are_two(archived: &GtidState, noted: &GtidState) -> bool {
    match (archived, noted) {
        (GtidState::MariaDb(archived), GtidState::MariaDb(noted)) => {
            archived.iter().any(|gtid| noted.get(gtid.domain).is_some_and(|other| other != *gtid))
        }
        _ => archived != noted,
    }
}

#[cfg(test)]
mod tests {
    use xb_repo::archive::record::Record;
    use xb_repo::archive::sample::segment_head;
    use xb_repo::archive::segment::SegmentHead;

    use super::*;

    const LOG: &str = "bin.000001";

    #[test]
    fn a_position_with_other_gtids_than_the_backup_has_is_named() {
        let log = xb_testkit::vectors::read("binlog/mariadb.000001.gz");
        let length = u32::from_le_bytes(log[13..17].try_into().unwrap());
        let head = SegmentHead {
            gtids_before: Some(String::new()),
            transactions: 8,
            received: [Timestamp::now(); 2],
            ..segment_head(&"0".repeat(32), 0, [4, log.len() as u64], b" ")
        };
        let record = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
        let mut head = (*ListedSegment::of(&record, None)).clone();
        let description = &log[4..4 + length as usize];
        let (mut reader, mut input) = (Reader::new(), &log[..]);
        let mut history = History::new(LOG, None);
        let (mut known, mut inside) = (Vec::new(), Vec::new());
        while let Some(entry) = reader.next(&mut input).unwrap() {
            let step = history.push(&entry).unwrap();
            match (step.ended, history.open()) {
                (Some(_), _) => known.push((entry.end, history.gtids().unwrap().clone())),
                (None, Some(_)) => inside.push(entry.end),
                _ => {}
            }
        }
        let check = |head: &ListedSegment, end: u64, gtids: &GtidState| {
            displaced(
                head,
                (description, &log[4..]),
                None,
                (&LogPosition::new(LOG, end).unwrap(), gtids),
            )
        };
        assert!(known.len() > 20 && !inside.is_empty());
        let mut named = 0;
        for pair in known.windows(2) {
            let [(before, old), (end, gtids)] = pair else { panic!() };
            assert_eq!(check(&head, *end, gtids), None);
            for (end, gtids) in [(end, old), (before, gtids)] {
                let found = check(&head, *end, gtids);
                named +=
                    usize::from(found.is_some_and(|what| what.contains("and the backup notes")));
            }
        }
        // But where another domain begins.
        assert!(named > known.len(), "{named}");
        let (end, gtids) = known.last().unwrap();
        // A domain that only one of them has, as of a server that has replicated.
        let more = format!("{gtids},4242-7-1").parse().unwrap();
        assert_eq!(check(&head, *end, &more), None);
        for end in inside {
            let found = check(&head, end, gtids).unwrap();
            assert!(found.contains("not a boundary"), "{found}");
        }
        // Within an event; and in a segment that cannot be read from its beginning.
        assert!(check(&head, end - 1, gtids).unwrap().contains("not a boundary"));
        // A fault of the log is reported unchanged.
        let mut damaged = log[4..].to_vec();
        damaged[length as usize + 30] ^= 1;
        let start = LogPosition::new(LOG, *end).unwrap();
        let found = displaced(&head, (description, &damaged), None, (&start, gtids)).unwrap();
        assert!(found.contains("cannot be read") && found.contains("checksum"), "{found}");
        head.starts_inside = true;
        assert_eq!(check(&head, end - 1, gtids), None);
        // Whatever the clock of the host said that took the backup.
        head.starts_inside = false;
        let time = |second| Timestamp::from_second(second).unwrap();
        let is_before = |head: &ListedSegment, second| {
            before_stop(head, (description, &log[4..]), None, (&start, time(second))).is_err()
        };
        assert_eq!((is_before(&head, 1), is_before(&head, 4_000_000_000)), (true, false));
        // But times that are ahead of the receiver's clock say nothing.
        head.received = [time(0); 2];
        assert!(!is_before(&head, 1));
    }
}
