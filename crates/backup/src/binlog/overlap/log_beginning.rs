//! The beginning of a log, as the server sends it.

use xb_binlog::{Event, GtidState, MAGIC, SentEvent, SentReader};
use xb_mysql::{Access, Client, DumpItem, Start as From, Timeouts};
use xb_repo::archive::log_beginning::LogBeginning;

use crate::archive_error::ArchiveError;
use crate::binlog::source::log_request::{LOGIN_LIMIT, LogRequest, NO_FILE, NO_SUCH_POSITION};
use crate::binlog::source::sent_log::checksums;

/// Asks the server for the beginning of a log.
///
/// # Errors
/// [`ArchiveError::Unread`] if the server cannot read the log, for the moment or for good: that tells nothing about the log.
pub(crate) fn log_beginning(
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
    let mut found = None;
    loop {
        let is_whole = dump.next(|dumped| match dumped {
            DumpItem::Event(part) => take(&mut reader, &mut found, part.bytes),
            DumpItem::End => Ok(true),
        });
        match is_whole.map_err(ArchiveError::from).flatten() {
            Ok(false) => {}
            Ok(true) => return found.ok_or(ArchiveError::Ended),
            Err(ArchiveError::Server(xb_mysql::Error::Server(said)))
                if [NO_FILE, NO_SUCH_POSITION].contains(&said.code) =>
            {
                return Err(ArchiveError::Unread { log: log.to_owned(), what: said.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Takes bytes of a log from its beginning on; returns whether all that it tells of it is known.
fn take(
    reader: &mut SentReader,
    found: &mut Option<LogBeginning>,
    mut input: &[u8],
) -> Result<bool, ArchiveError> {
    let mut bytes = Vec::new();
    while let Some(sent) = reader.next(&mut input, &mut bytes)? {
        let entry = match sent {
            SentEvent::Log(entry) => entry,
            // The log has nothing more yet.
            SentEvent::Artificial(entry) if matches!(entry.event, Event::Heartbeat) => {
                return Ok(true);
            }
            SentEvent::Artificial(_) => continue,
        };
        let gtids = match entry.event {
            Event::Format(format) => {
                let made = Some(entry.header.seconds).filter(|seconds| *seconds > 0);
                let is_of_start = format.created > 0;
                *found = Some(LogBeginning { made, is_of_start, before: None });
                continue;
            }
            Event::StartEncryption => continue,
            Event::GtidList(list) => Some(list.position().into()),
            Event::PreviousGtids(set) => Some(GtidState::MySql(set)),
            _ => None,
        };
        if let Some(found) = found {
            found.before = gtids.map(|gtids| (MAGIC.len() as u64, gtids));
        }
        return Ok(true);
    }
    Ok(false)
}
