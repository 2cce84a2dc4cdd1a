//! The newest log that a server and its archive have in common. A server whose data came back from a snapshot, or that lost the end
//! of a log in a crash, has logs of the same names as those that are stored. They are the stored ones up to the newest that was
//! made at the same time, behind the same transactions: before a server makes a log, it has one history.

use std::collections::{BTreeMap, HashMap, HashSet};

use xb_repo::archive::authority::Keyless;
use xb_repo::archive::listing::streams;
use xb_repo::archive::log_beginning::LogBeginning;
use xb_repo::archive::stream::{Link, Origin};
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::start::ServerLog;

/// The beginnings of the logs that the archive has of this server, in the history that ends with the segment `last`.
pub(crate) async fn stored(
    root: &Root,
    server: &str,
    last: &Link,
    now: Origin<'_>,
) -> Result<BTreeMap<String, LogBeginning>, ArchiveError> {
    let listed = streams(root, server, &Keyless).await?;
    let all: HashMap<_, _> =
        listed.iter().filter_map(|one| one.stream.as_ref()).map(|one| (one.id(), one)).collect();
    let (mut found, mut seen) = (BTreeMap::new(), HashSet::new());
    let mut next = all.get(&*last.stream);
    while let Some(stream) = next.filter(|one| seen.insert(one.id())) {
        let head = &stream.head.content;
        if head.origin().differs_from(now).is_some() {
            break;
        }
        for segment in stream.segments.values().filter(|segment| segment.from.offset == 4) {
            found.entry(segment.from.log.to_string()).or_insert_with(|| LogBeginning::of(segment));
        }
        next = head.begins.after().and_then(|link| all.get(&*link.stream));
    }
    Ok(found)
}

/// The newest of these logs of the server that is a stored one, by as few looks as possible; the oldest if none is. `None` if
/// nothing can be compared. A log that cannot be looked at is passed over: that does not make it another one than the stored
/// one, and a later log that is a stored one shows that it is none.
pub(crate) fn newest_common(
    logs: &[ServerLog],
    stored: &BTreeMap<String, LogBeginning>,
    mut look: impl FnMut(&str) -> Result<LogBeginning, ArchiveError>,
) -> Result<Option<String>, ArchiveError> {
    let mut both: Vec<_> =
        logs.iter().filter_map(|(log, _)| Some((log, stored.get(log)?))).collect();
    if both.is_empty() {
        return Ok(None);
    }
    // All before this number are common, none from the other one on.
    let (mut common, mut differing) = (0, both.len());
    while common < differing {
        let middle = usize::midpoint(common, differing);
        let Some((log, of)) = both.get(middle) else { break };
        match look(log) {
            Ok(found) if found.is(of) => common = middle + 1,
            Ok(_) => differing = middle,
            Err(ArchiveError::Unread { .. } | ArchiveError::Log(_)) => {
                both.remove(middle);
                differing -= 1;
            }
            Err(error) => return Err(error),
        }
    }
    let newest = common.checked_sub(1).and_then(|n| both.get(n)).map(|(log, _)| (*log).clone());
    Ok(newest.or_else(|| logs.first().map(|(log, _)| log.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beginning(made: u32, gtids: &str) -> LogBeginning {
        let before = Some((4, gtids.parse().unwrap()));
        LogBeginning { made: Some(made), is_of_start: false, before }
    }

    #[test]
    fn the_newest_common_log_is_found_with_few_looks() {
        let name = |n: u32| format!("bin.{n:06}");
        let logs: Vec<ServerLog> = (3..103).map(|n| (name(n), 1000)).collect();
        // Log `n` was made at second `n`. The archive lacks the beginning of log 50, and has logs that were purged since.
        let stored: BTreeMap<_, _> = (1..103)
            .filter(|n| *n != 50)
            .map(|n| (name(n), beginning(n, &format!("0-1-{n}"))))
            .collect();
        for common in [2_u32, 3, 4, 49, 50, 51, 101, 102] {
            let mut looks = 0;
            let found = newest_common(&logs, &stored, |log| {
                looks += 1;
                let n: u32 = log[4..].parse().unwrap();
                let later = if n > common { 1000 } else { 0 };
                Ok(beginning(n + later, &format!("0-1-{n}")))
            });
            let expected = match common {
                2 => 3,
                50 => 49,
                other => other,
            };
            assert_eq!(found.unwrap(), Some(name(expected)), "{common}");
            assert!(looks <= 7, "{looks}");
        }
        // Made in the same second, behind other transactions.
        let found = newest_common(&logs, &stored, |log| {
            let n: u32 = log[4..].parse().unwrap();
            Ok(beginning(n, &format!("0-1-{}", n + u32::from(n > 10))))
        });
        assert_eq!(found.unwrap(), Some(name(10)));
        // The server cannot send some of them for the moment, the one that would be looked at first among them.
        let unread = |log: &str| ArchiveError::Unread { log: log.to_owned(), what: String::new() };
        let found = newest_common(&logs, &stored, |log| {
            let n: u32 = log[4..].parse().unwrap();
            match n {
                30..=60 | 80 => Err(unread(log)),
                n => Ok(beginning(n + u32::from(n > 90) * 1000, &format!("0-1-{n}"))),
            }
        });
        assert_eq!(found.unwrap(), Some(name(90)));
        let found = newest_common(&logs, &stored, |log| {
            let n: u32 = log[4..].parse().unwrap();
            match n {
                40..=102 => Err(unread(log)),
                n => Ok(beginning(n, &format!("0-1-{n}"))),
            }
        });
        assert_eq!(found.unwrap(), Some(name(39)));
        // A server that is away tells nothing.
        let found = newest_common(&logs, &stored, |_| Err(ArchiveError::Ended));
        assert!(matches!(found, Err(ArchiveError::Ended)));
        let nothing = BTreeMap::new();
        let found = newest_common(&logs, &nothing, |_| panic!("nothing can be compared"));
        assert_eq!(found.unwrap(), None);
    }
}
