//! The newest log that a server and its archive have in common. A server whose data came back from a snapshot, or that lost the end
//! of a log in a crash, has logs of the same names as those that are stored. They are the stored ones up to the newest that was
//! made at the same time, behind the same transactions: before a server makes a log, it has one history.

use std::collections::{BTreeMap, HashMap, HashSet};

use xb_binlog::{Event, GtidState, SentEvent, SentReader};
use xb_mysql::{Access, Client, DumpItem, Start as From, Timeouts};
use xb_repo::archive::authority::Keyless;
use xb_repo::archive::listing::streams;
use xb_repo::archive::stream::{Link, Origin};
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::log_request::{LOGIN_LIMIT, LogRequest};
use crate::binlog::sent_log::checksums;
use crate::binlog::start::ServerLog;

/// Beginning of a log: when it was made, in seconds since 1970, and the transactions before it, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogBeginning {
    made: Option<u32>,
    gtids: Option<GtidState>,
}

impl LogBeginning {
    fn is(&self, other: &Self) -> bool {
        let gtids = self.gtids.as_ref().zip(other.gtids.as_ref());
        self.made == other.made && gtids.is_none_or(|(own, its)| own == its)
    }
}

/// The beginnings of the logs that the archive has of this server, in the history that ends with the segment `last`.
pub(super) async fn stored(
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
            let beginning = LogBeginning { made: segment.log_made, gtids: segment.before() };
            found.entry(segment.from.log.to_string()).or_insert(beginning);
        }
        next = head.begins.after().and_then(|link| all.get(&*link.stream));
    }
    Ok(found)
}

/// The newest of these logs of the server that is a stored one, by as few looks as possible; the oldest if none is. `None` if
/// nothing can be compared.
pub(super) fn newest_common(
    logs: &[ServerLog],
    stored: &BTreeMap<String, LogBeginning>,
    mut look: impl FnMut(&str) -> Result<LogBeginning, ArchiveError>,
) -> Result<Option<String>, ArchiveError> {
    let both: Vec<_> = logs.iter().filter_map(|(log, _)| Some((log, stored.get(log)?))).collect();
    if both.is_empty() {
        return Ok(None);
    }
    // All before this number are common, none from the other one on.
    let (mut common, mut differing) = (0, both.len());
    while common < differing {
        let middle = usize::midpoint(common, differing);
        let Some((log, of)) = both.get(middle) else { break };
        match look(log)?.is(of) {
            true => common = middle + 1,
            false => differing = middle,
        }
    }
    let newest = common.checked_sub(1).and_then(|n| both.get(n)).map(|(log, _)| (*log).clone());
    Ok(newest.or_else(|| logs.first().map(|(log, _)| log.clone())))
}

/// The beginning of a log, as the server sends it; nothing of one that it cannot send.
pub(super) fn look(
    access: &Access,
    log: &str,
    request: LogRequest,
) -> Result<LogBeginning, ArchiveError> {
    let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
    let client = Client::connect(&access.target, &access.account, timeouts)?;
    let (replica, limit) = request.replica(false);
    let from = From::Position { log: log.to_owned(), offset: 4 };
    let mut dump = client.dump(&replica, &from, limit)?;
    let mut reader = SentReader::new(checksums(&dump));
    let mut found = LogBeginning::default();
    loop {
        let is_whole = dump.next(|dumped| match dumped {
            DumpItem::Event(part) => begins(&mut reader, &mut found, part.bytes),
            DumpItem::End => Ok(true),
        });
        match is_whole.map_err(ArchiveError::from).flatten() {
            Ok(false) => {}
            Ok(true) => return Ok(found),
            Err(ArchiveError::Server(xb_mysql::Error::Server(_)) | ArchiveError::Log(_)) => {
                return Ok(LogBeginning::default());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Takes bytes of a log from its beginning on; returns whether that is known.
fn begins(
    reader: &mut SentReader,
    found: &mut LogBeginning,
    mut input: &[u8],
) -> Result<bool, ArchiveError> {
    let mut bytes = Vec::new();
    while let Some(sent) = reader.next(&mut input, &mut bytes)? {
        let SentEvent::Log(entry) = sent else { continue };
        match entry.event {
            Event::Format(_) => {
                found.made = Some(entry.header.seconds).filter(|seconds| *seconds > 0);
            }
            Event::GtidList(list) => found.gtids = Some(list.position().into()),
            Event::PreviousGtids(set) => found.gtids = Some(GtidState::MySql(set)),
            Event::StartEncryption => {}
            _ => return Ok(true),
        }
        if found.gtids.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beginning(made: u32, gtids: &str) -> LogBeginning {
        LogBeginning { made: Some(made), gtids: Some(gtids.parse().unwrap()) }
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
        let nothing = BTreeMap::new();
        let found = newest_common(&logs, &nothing, |_| panic!("nothing can be compared"));
        assert_eq!(found.unwrap(), None);
    }
}
