//! The log that a server made when it was started last: after a time without a log, nothing before it is behind that time.

use xb_binlog::{Event, SentEvent, SentReader};
use xb_mysql::{Access, Client, DumpItem, Start as From, Timeouts};

use crate::archive_error::ArchiveError;
use crate::binlog::log_request::{LOGIN_LIMIT, LogRequest};
use crate::binlog::sent_log::checksums;
use crate::binlog::start::ServerLog;

/// The log that the server made when it was started last, which has nothing from before. If that is purged, its oldest one.
pub(crate) fn last_start(
    access: &Access,
    logs: &[ServerLog],
    request: LogRequest,
) -> Result<String, ArchiveError> {
    for (log, _) in logs.iter().rev() {
        let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
        let client = Client::connect(&access.target, &access.account, timeouts)?;
        let (replica, limit) = request.replica(false);
        let from = From::Position { log: log.clone(), offset: 4 };
        let mut dump = client.dump(&replica, &from, limit)?;
        let (mut reader, mut bytes) = (SentReader::new(checksums(&dump)), Vec::new());
        let created = loop {
            let found = dump.next(|dumped| created(&mut reader, &mut bytes, dumped))??;
            if let Some(created) = found {
                break created;
            }
        };
        if created > 0 {
            return Ok(log.clone());
        }
    }
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    Ok(oldest.clone())
}

/// The time in the description at the beginning of a log, which is 0 unless the server made the log when it was started.
fn created(
    reader: &mut SentReader,
    bytes: &mut Vec<u8>,
    dumped: DumpItem<'_>,
) -> Result<Option<u32>, ArchiveError> {
    let DumpItem::Event(part) = dumped else { return Err(ArchiveError::Ended) };
    let mut input = part.bytes;
    while let Some(event) = reader.next(&mut input, bytes)? {
        if let SentEvent::Log(entry) = event {
            return match entry.event {
                Event::Format(format) => Ok(Some(format.created)),
                _ => Err(ArchiveError::Ended),
            };
        }
    }
    Ok(None)
}
