//! Where the next stream begins on a server: behind the archive's end, or, if their histories differ, where they parted.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use xb_binlog::{GtidState, LogPosition};
use xb_mysql::{Access, Client};
use xb_repo::archive::newest::{last_stored, stream_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::{Link, StoredPosition, StreamOrigin};
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;
use crate::binlog::overlap::common_log::{self, newest_common};
use crate::binlog::overlap::elsewhere::{ArchiveEnd, LogPlace};
use crate::binlog::overlap::log_beginning::log_beginning;
use crate::binlog::overlap::search_outcome::{OtherServer, Outcome};
use crate::binlog::overlap::start::{
    Start, behind_cut, behind_hole, branch, on_another, repeated, start_on,
};
use crate::binlog::receive::before_hole::before_hole;
use crate::binlog::receive::notice::{Notice, Tell};
use crate::binlog::receive::session::{Acknowledge, Message, Server, connect, find, receive};
use crate::binlog::source::log_request::LogRequest;
use crate::cancel::CancelToken;

/// Why another server cannot be recognised.
const UNRECOGNISED: &str = "the last segments of the archive do not record the effects of their transactions: they have none, an earlier version of this program stored them, or their GTIDs are out of order";

/// Reason why the next stream does not continue.
pub(super) enum StreamBreak {
    /// The server's history differs from the archive's.
    Differs(String),
    /// This log does not follow the one before it.
    Hole { log: String, reason: String },
    /// The server cannot send this log to its end.
    Cut { log: String, reason: String },
}

/// What decides where a stream begins, besides the server and the archive.
pub(super) struct NextStart<'a> {
    pub(super) root: &'a Root,
    /// Name of the server in the repository.
    pub(super) name: &'a str,
    /// Where the server is, for further connections.
    pub(super) access: &'a Access,
    pub(super) needs_checksums: bool,
    pub(super) request: LogRequest,
    /// How long to wait for a server that lacks stored transactions; for ever if there is no other one.
    pub(super) patience: Option<Duration>,
    pub(super) tell: &'a Tell,
    pub(super) cancel: &'a CancelToken,
}

impl NextStart<'_> {
    /// Decides where the next stream begins, and returns a connection on which it can be asked for: a search on another server
    /// takes that which is given. The archive ends with the segment `last`. If segments are missing before that, the stream begins
    /// before them, so that they are received again; but only if the server has what is behind them, too. One that went back to
    /// an earlier state has other transactions there, which would pass for the missing ones.
    pub(super) async fn find(
        &self,
        client: Client,
        server: Server,
        last: Option<Record<SegmentHead>>,
        fork: Option<StreamBreak>,
    ) -> Result<(Client, Server, Start), ArchiveError> {
        let end = last.as_ref().map(|last| last.content.clone());
        let before = match &end {
            Some(end) => before_hole(self.root, self.name, end, self.tell).await?,
            None => None,
        };
        let again = match &fork {
            Some(StreamBreak::Differs(what)) => Some(StreamBreak::Differs(what.clone())),
            _ => None,
        };
        let (client, server, start) = self.behind(client, server, last, fork).await?;
        let (Some(before), Some(end)) = (before, end) else { return Ok((client, server, start)) };
        if !self.has_end(&server, &start, &end).await? {
            return Ok((client, server, start));
        }
        let (client, server, filling) = self.behind(client, server, Some(before), again).await?;
        let start = match filling.begins {
            StreamOrigin::Continues { .. } => filling,
            _ => start,
        };
        Ok((client, server, start))
    }

    /// Whether the server has what the archive ends with, so that it has what is stored before it.
    async fn has_end(
        &self,
        server: &Server,
        start: &Start,
        end: &SegmentHead,
    ) -> Result<bool, ArchiveError> {
        match &start.begins {
            StreamOrigin::Continues { at: None, .. } => {}
            // A search has found it.
            StreamOrigin::Continues { .. } => return Ok(true),
            _ => return Ok(false),
        }
        let (access, start, who) =
            (self.access.clone(), start.clone(), server.write_access.who.clone());
        let (request, needs_checksums) = (self.request, self.needs_checksums);
        let made = start.made.or_else(|| end.log_made());
        let asking = tokio::task::spawn_blocking(move || {
            if start.overlap.is_none() {
                // No transaction shows it, but the log may.
                let found = log_beginning(&access, &start.at.log, request)?;
                return Ok(made.is_some() && found.made == made);
            }
            let (client, server) = connect(&access, needs_checksums)?;
            // A name that leads to several servers.
            if server.write_access.who != who {
                return Err(ArchiveError::Ended);
            }
            let mut receiving = receive(client, &start, request, Acknowledge::No)?;
            let first = receiving.messages.blocking_recv();
            match (first, receiving.join()) {
                (Some(Message::Begun), _) => Ok(true),
                (_, ArchiveError::Differs(_)) => Ok(false),
                (_, error) => Err(error),
            }
        });
        asking.await.map_err(|_| ArchiveError::Bug("the thread that asks panicked"))?
    }

    /// Decides the same behind this segment.
    async fn behind(
        &self,
        client: Client,
        server: Server,
        mut before: Option<Record<SegmentHead>>,
        fork: Option<StreamBreak>,
    ) -> Result<(Client, Server, Start), ArchiveError> {
        let logs = &server.logs;
        let (root, name) = (self.root, self.name);
        let now = server.origin();
        let mut start = start_on(root, name, before.as_ref(), now, logs).await?;
        if matches!(start.begins, StreamOrigin::Gap { .. } | StreamOrigin::Branch { .. }) {
            // Another receiver may have stored what this one has missed, or the branch.
            before = last_stored(root, name).await?;
            start = start_on(root, name, before.as_ref(), now, logs).await?;
        }
        let of = match &before {
            Some(before) => stream_head(root, name, &before.content.stream).await?,
            None => None,
        };
        let moved = of.as_ref().and_then(|of| of.content.origin().differs_from(now));
        // The bytes of one server's log decide, whoever it says that it is.
        let is_unproven = start.overlap.is_none() && start.begins != StreamOrigin::First;
        if let (Some(before), Some(how)) = (&before, moved)
            && (matches!(fork, Some(StreamBreak::Differs(_))) || (is_unproven && fork.is_none()))
        {
            let outcome = self.search(client, &server, before, &how).await?;
            let start = on_another(before, outcome, logs)?;
            let (access, needs_checksums) = (self.access.clone(), self.needs_checksums);
            let again = tokio::task::spawn_blocking(move || connect(&access, needs_checksums));
            let (client, again) = again
                .await
                .map_err(|_| ArchiveError::Bug("the thread that connects panicked"))??;
            return match again.write_access.who == server.write_access.who
                && again.role.node == server.role.node
            {
                true => Ok((client, again, start)),
                // A name that leads to several servers.
                false => Err(ArchiveError::Ended),
            };
        }
        if let (None, Some(of)) = (&fork, &of) {
            start.repeats = repeated(&of.content, &start);
        }
        let mut start = match fork {
            Some(StreamBreak::Differs(what)) => branch(start, what),
            Some(StreamBreak::Hole { log, reason }) => behind_hole(&start, &log, reason),
            Some(StreamBreak::Cut { log, reason }) => {
                match behind_cut(&start, logs, &log, reason.clone()) {
                    Some(start) => start,
                    None => {
                        (self.tell)(Notice::Damaged(reason));
                        start
                    }
                }
            }
            None => start,
        };
        if let StreamOrigin::Branch { after, .. } = &start.begins
            && let Some(log) = self.newest_common(&server, after, &start.at.log).await?
        {
            start.at = StoredPosition { log: log.as_str().into(), offset: 4 };
        }
        Ok((client, server, start))
    }

    /// The log in which the histories of the server and of the archive parted, as far as can be told: no later one than
    /// `differing`, unless that is the oldest one because nothing was compared.
    async fn newest_common(
        &self,
        server: &Server,
        after: &Link,
        differing: &str,
    ) -> Result<Option<String>, ArchiveError> {
        let (root, name) = (self.root, self.name);
        let stored = common_log::stored(root, name, after, server.origin()).await?;
        let (mut logs, access, request) = (server.logs.clone(), self.access.clone(), self.request);
        if let Some(last @ 1..) = logs.iter().position(|(log, _)| log == differing) {
            logs.truncate(last + 1);
        }
        let looking = tokio::task::spawn_blocking(move || {
            newest_common(&logs, &stored, |log| log_beginning(&access, log, request))
        });
        looking.await.map_err(|_| ArchiveError::Bug("the thread that looks panicked"))?
    }

    /// Looks for the archive's end on another server, which differs from that of the archive's end as `how` says.
    async fn search(
        &self,
        client: Client,
        server: &Server,
        before: &Record<SegmentHead>,
        how: &str,
    ) -> Result<Outcome, ArchiveError> {
        let unknown = |why: String| Ok(Outcome::Unknown(why).said_of(how));
        if let Some(apart) = &server.role.apart {
            return unknown(format!("its log cannot be compared with the archive: {apart}"));
        }
        let (root, name) = (self.root, self.name);
        let Some(archive) = ArchiveEnd::read(root, name, before).await? else {
            return unknown(UNRECOGNISED.to_owned());
        };
        if matches!(archive.gtids, GtidState::MySql(_)) != server.uuid.is_some() {
            return unknown("one is a MySQL server, the other MariaDB".to_owned());
        }
        let logs = server.logs.clone();
        let end = logs.last().and_then(|(log, size)| LogPosition::new(log, *size));
        let other = OtherServer {
            id: server.id,
            uuid: server.uuid.as_ref().and_then(|uuid| uuid.parse().ok()),
            applied: server.role.applied.clone(),
            executed: server.role.executed.clone(),
            end: end.ok_or(ArchiveError::NoLog)?,
            is_node: server.role.node.is_some(),
        };
        let (tell, cancel) = (Arc::clone(self.tell), self.cancel.clone());
        let (request, patience) = (self.request, self.patience);
        let searching = tokio::task::spawn_blocking(move || {
            let mut client = client;
            let log = match archive.look(&mut client, &logs)? {
                LogPlace::From(log) => log,
                LogPlace::Purged(reason) => return Ok(Outcome::Unknown(reason)),
                LogPlace::Other(reason) => {
                    let log = logs.first().map(|(log, _)| log.clone()).unwrap_or_default();
                    return Ok(Outcome::Branch { log, reason });
                }
            };
            let told = std::cell::Cell::new(None);
            let behind = |what| {
                if told.get().is_none() {
                    told.set(Some(Instant::now()));
                    tell(Notice::Behind(what));
                }
            };
            let has_waited = || {
                let since = told.get().zip(patience);
                since.is_some_and(|(since, patience)| since.elapsed() >= patience)
            };
            let is_cancelled = || cancel.reason().is_some() || has_waited();
            find(client, &log, archive, other, request, is_cancelled, behind)
        });
        let outcome = searching
            .await
            .map_err(|_| ArchiveError::Bug("the thread that searches panicked"))??;
        Ok(outcome.said_of(how))
    }
}
