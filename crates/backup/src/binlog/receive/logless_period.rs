//! The time in which a server ran without a log, until a stream of its archive tells it: the logs that the server makes later
//! follow the stored ones as if nothing was between them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use xb_mysql::Access;
use xb_repo::archive::stream::{StreamOrigin, UNLOGGED};

use crate::archive_error::ArchiveError;
use crate::binlog::archive::state::StateFile;
use crate::binlog::overlap::log_beginning::log_beginning;
use crate::binlog::overlap::start::{ServerLog, Start, behind_hole};
use crate::binlog::source::log_request::LogRequest;

/// A server's time without a log that no stream tells yet.
pub(super) struct LoglessPeriod {
    state: Option<StateFile>,
    time: Mutex<UnloggedTime>,
}

#[derive(Debug, Default)]
struct UnloggedTime {
    /// Since when.
    since: Option<String>,
    /// Something is archived of the server, which lacks what it committed then.
    is_archived: bool,
    /// The stream that is being stored tells it.
    is_told: bool,
}

impl LoglessPeriod {
    pub(super) fn new(state: Option<StateFile>) -> Self {
        Self { state, time: Mutex::default() }
    }

    fn time(&self) -> MutexGuard<'_, UnloggedTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads whether the server has run without a log, also while an earlier process received from it.
    pub(super) fn remember(&self, is_archived: bool) -> Result<(), ArchiveError> {
        let mut time = self.time();
        time.is_archived |= is_archived;
        time.is_told = false;
        if let (None, Some(state)) = (&time.since, &self.state) {
            time.since = state.read_unlogged()?;
        }
        Ok(())
    }

    /// Notes that the server runs without a log. Returns whether anything of it is archived, without which nothing is lost.
    pub(super) fn note(&self) -> Result<bool, ArchiveError> {
        let mut time = self.time();
        if time.is_archived && time.since.is_none() {
            let since = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            time.since = Some(since.clone());
            if let Some(state) = &self.state {
                state.write_unlogged(&since)?;
            }
        }
        Ok(time.is_archived)
    }

    /// The start of a stream of a server that may have run without a log since the archive ends. Older backups must not be found
    /// behind the gap, so it ends where the server was started last.
    pub(super) async fn behind(
        &self,
        start: Start,
        logs: &[ServerLog],
        (access, request): (&Access, LogRequest),
    ) -> Result<Start, ArchiveError> {
        // Another server that took over never had what was committed without a log.
        let is_anew = match start.begins {
            StreamOrigin::First
            | StreamOrigin::Branch { .. }
            | StreamOrigin::Continues { at: Some(_), .. } => true,
            StreamOrigin::Continues { at: None, .. } | StreamOrigin::Gap { .. } => false,
        };
        let since = self.time().since.clone();
        let Some(since) = since else { return Ok(start) };
        self.time().is_told = true;
        // No older backup is replayed with such a stream.
        if is_anew {
            return Ok(start);
        }
        let (access, logs) = (access.clone(), logs.to_vec());
        let looking = tokio::task::spawn_blocking(move || last_start(&access, &logs, request));
        let log =
            looking.await.map_err(|_| ArchiveError::Bug("the thread that looks panicked"))??;
        let reason = format!("{UNLOGGED} at {since}");
        Ok(behind_hole(&start, &log, reason))
    }

    /// Notes that the stream has a segment: if it tells of the time without a log, the archive has that now.
    pub(super) fn has_stored(&self) -> Result<(), ArchiveError> {
        let mut time = self.time();
        if std::mem::take(&mut time.is_told) {
            time.since = None;
            self.state.as_ref().map_or(Ok(()), StateFile::remove_unlogged)?;
        }
        Ok(())
    }
}

/// The log that the server made when it was started last, which has nothing from before. If that is purged, its oldest one; if one on
/// the way cannot be read, the one behind it, so that no log is waited for without end.
fn last_start(
    access: &Access,
    logs: &[ServerLog],
    request: LogRequest,
) -> Result<String, ArchiveError> {
    let mut later = None;
    for (log, _) in logs.iter().rev() {
        match (log_beginning(access, log, request), later) {
            (Ok(found), _) if found.is_of_start => return Ok(log.clone()),
            (Ok(_), _) => later = Some(log),
            (Err(ArchiveError::Unread { .. }), Some(later)) => return Ok(String::clone(later)),
            (Err(error), _) => return Err(error),
        }
    }
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    Ok(oldest.clone())
}
