//! Decides where a stream begins: what the archive has, and what the server still has.

use std::collections::BTreeMap;

use xb_repo::archive::listing::segment_head;
use xb_repo::archive::names::{HEAD, parse_segment, segment_name, server_folder, stream_folder};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::{LastTransaction, SegmentHead};
use xb_repo::archive::stream::{At, Begins, Link, StreamHead};
use xb_repo::names::RunId;
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use crate::archive_error::ArchiveError;

/// A log that the server has, and its size in bytes.
pub(crate) type ServerLog = (String, u64);

/// Where a stream begins, and what it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) begins: Begins,
    /// Position of the first byte that is stored.
    pub(crate) at: At,
    /// GTIDs up to there.
    pub(crate) gtids: Option<String>,
    /// A stored transaction that ends there: the server has to send it again first, with the same bytes.
    pub(crate) overlap: Option<LastTransaction>,
}

/// The last stored segment of the newest stream that has one.
pub(crate) async fn last_stored(
    root: &Root,
    server: &str,
) -> Result<Option<Record<SegmentHead>>, ArchiveError> {
    let folder = server_folder(server).map_err(xb_repo::error::RepoError::from)?;
    let mut sizes: BTreeMap<RunId, BTreeMap<u64, u64>> = BTreeMap::new();
    for listed in root.list_below(&folder).await? {
        if let Some((id, name)) = listed.key.split_once('/')
            && let (Some(id), Some(number)) = (RunId::parse(id), parse_segment(name))
        {
            sizes.entry(id).or_default().insert(number, listed.size);
        }
    }
    let mut found: Option<(jiff::Timestamp, Record<SegmentHead>)> = None;
    for (id, sizes) in sizes {
        // Behind a hole lies what a receiver had on its way when it was killed.
        let stored = (0..).zip(sizes).take_while(|(n, (number, _))| n == number);
        let Some((number, size)) = stored.map(|(_, last)| last).last() else { continue };
        let folder = stream_folder(&folder, id);
        let started = match root.store().get(&root.key(&format!("{folder}/{HEAD}"))).await {
            Ok(bytes) => Record::<StreamHead>::decode(&bytes).map(|head| head.content.started),
            Err(error) if error.kind == StoreErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let Ok(started) = started else { continue };
        if found.as_ref().is_some_and(|(newest, _)| *newest >= started) {
            continue;
        }
        let key = format!("{folder}/{}", segment_name(number));
        if let Ok(head) = segment_head(root, &key, size).await? {
            found = Some((started, head));
        }
    }
    Ok(found.map(|(_, head)| head))
}

/// Decides where a stream begins that follows `before`. The server has `logs`, the oldest first.
pub(crate) fn start(
    before: Option<&Record<SegmentHead>>,
    logs: &[ServerLog],
) -> Result<Start, ArchiveError> {
    let (oldest, _) = logs.first().ok_or(ArchiveError::NoLog)?;
    let whole = |log: &str, begins| Start {
        begins,
        at: At { log: log.to_owned(), offset: 4 },
        gtids: None,
        overlap: None,
    };
    let Some(before) = before else { return Ok(whole(oldest, Begins::First)) };
    let head = &before.content;
    let after =
        Link { stream: head.stream.clone(), number: head.number, head: before.digest.clone() };
    let (from, to) = match &head.last {
        Some(last) => (&last.from, &last.to),
        None => (&head.from, &head.from),
    };
    let Some((_, size)) = logs.iter().find(|(log, _)| *log == to.log) else {
        let is_purged = match (from.position(), logs.first()) {
            (Some(ours), Some((log, _))) => {
                xb_binlog::LogPosition::new(log, 0).is_some_and(|oldest| ours < oldest)
            }
            _ => false,
        };
        let begins = match is_purged {
            true => Begins::Gap {
                after,
                reason: format!("the server has purged {}; its oldest log is {oldest}", to.log),
            },
            false => Begins::Branch {
                after,
                reason: format!("the server has no log {}, and older ones", to.log),
            },
        };
        return Ok(whole(oldest, begins));
    };
    if *size < to.offset {
        let reason =
            format!("{} has {size} bytes on the server, and {} are stored", to.log, to.offset);
        return Ok(whole(&to.log, Begins::Branch { after, reason }));
    }
    let gtids = match &head.last {
        Some(_) => head.gtids_after.clone(),
        None => head.gtids_before.clone(),
    };
    let begins = Begins::Continues { after };
    Ok(Start { begins, at: to.clone(), gtids, overlap: head.last.clone() })
}

/// The start on a server whose history turned out to differ, because of `reason`: at the beginning of the log
/// that has the difference.
pub(crate) fn branch(start: &Start, reason: String) -> Start {
    let begins = match start.begins.after().cloned() {
        Some(after) => Begins::Branch { after, reason },
        None => Begins::First,
    };
    let at = At { log: start.at.log.clone(), offset: 4 };
    Start { begins, at, gtids: None, overlap: None }
}

/// The start behind a hole in the server's own logs: at the beginning of the log that does not follow.
pub(crate) fn behind_hole(start: &Start, log: &str, reason: String) -> Start {
    let begins = match start.begins.after().cloned() {
        Some(after) => Begins::Gap { after, reason },
        None => Begins::First,
    };
    Start { begins, at: At { log: log.to_owned(), offset: 4 }, gtids: None, overlap: None }
}
