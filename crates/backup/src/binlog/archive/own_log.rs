//! Finds the archived log of a new backup by few requests, and compares it with that of the backup.

use std::sync::Arc;

use xb_binlog::{LogDigest, LogPosition, MAGIC};
use xb_encryptor::{DataKey, Keys, KeysObject};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::names::{KEYS, server_folder, stream_folder};
use xb_repo::archive::newest::{Outline, one_segment_head};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::error::RepoError;
use xb_repo::manifest::Manifest;
use xb_repo::names::RunId;
use xb_uploader::StoreErrorKind;

use crate::binlog::archive::pieces::NeededSegment;
use crate::binlog::archive::same_log;
use crate::error::BackupError;
use crate::session::Session;

/// Streams of one log that are looked at.
const STREAMS: usize = 64;

/// The archive of a server, as far as a comparison needs it.
pub(super) struct OwnLog<'a> {
    pub(super) session: &'a Session,
    pub(super) server: &'a str,
    /// Keys that this host has anyway.
    pub(super) keys: &'a Keys,
    pub(super) streams: &'a [Outline],
}

impl OwnLog<'_> {
    /// Why the archived log is another one, if it is: `holder` has the position of the backup, and `last` is its last segment.
    /// Nothing can be told if the backup has no digest of its log, if the archive does not have the log from its beginning, or if
    /// the keys do not open it.
    pub(super) async fn differs(
        &self,
        manifest: &Manifest,
        holder: &Outline,
        last: u64,
    ) -> Result<Option<String>, RepoError> {
        let Some((at, noted)) = same_log::noted(manifest) else { return Ok(None) };
        let Some(log) = self.segments(&at, holder, last).await? else { return Ok(None) };
        match same_log::is_same(self.session, self.server, log, at.offset(), &noted).await {
            Ok(Some(false)) => Ok(Some(format!(
                "the log {} in stream {} is not that of the backup: it has other bytes before the position {at}, so it is of another server, or of this one after it went back to an earlier state",
                at.log(),
                holder.head.content.stream
            ))),
            Ok(_) => Ok(None),
            Err(BackupError::Repo(error)) => Err(error),
            // The backup is complete, and the log is compared again before a replay.
            Err(_) => Ok(None),
        }
    }

    /// The segments that have the bytes which count.
    async fn segments(
        &self,
        at: &LogPosition,
        holder: &Outline,
        last: u64,
    ) -> Result<Option<Vec<NeededSegment>>, RepoError> {
        let mut log = Vec::new();
        let mut key: Option<(String, Option<Arc<DataKey>>)> = None;
        for window in LogDigest::windows(at.offset()) {
            let mut next = window.start.max(MAGIC.len() as u64);
            let mut before: Option<Record<SegmentHead>> = None;
            while next < window.end {
                let found = self.with_byte((at.log(), next), before, (holder, last)).await?;
                let Some(found) = found else { return Ok(None) };
                let head = &found.content;
                if key.as_ref().is_none_or(|(of, _)| *of != head.stream) {
                    let Some(opened) = self.key(&head.stream).await? else { return Ok(None) };
                    key = Some((head.stream.clone(), opened));
                }
                next = head.to.offset;
                log.push(NeededSegment {
                    segment: ListedSegment::of(&found, None),
                    key: key.as_ref().and_then(|(_, key)| key.clone()),
                    until: next,
                    server: 0,
                    repeats: None,
                });
                before = Some(found);
            }
        }
        Ok(Some(log))
    }

    /// The segment with this byte of a log: the one behind `before`, or one of the line of the holder.
    async fn with_byte(
        &self,
        (log, byte): (&str, u64),
        before: Option<Record<SegmentHead>>,
        (holder, mut last): (&Outline, u64),
    ) -> Result<Option<Record<SegmentHead>>, RepoError> {
        let root = &self.session.root;
        let has = |found: &Record<SegmentHead>| {
            let (from, to) = (&found.content.from, &found.content.to);
            &*from.log == log && (from.offset..to.offset).contains(&byte)
        };
        if let Some(before) = before.map(|before| before.content) {
            let next = before.number.saturating_add(1);
            let next = one_segment_head(root, self.server, &before.stream, next).await?;
            if let Some(next) = next.filter(has) {
                return Ok(Some(next));
            }
        }
        let Some(behind) = LogPosition::new(log, byte.saturating_add(1)) else { return Ok(None) };
        let mut stream = holder;
        for _ in 0..STREAMS {
            let found = stream.segment_at(root, &behind, last).await?;
            if let Some(found) = found.filter(has) {
                return Ok(Some(found));
            }
            let StreamOrigin::Continues { after, at: None } = &stream.head.content.begins else {
                break;
            };
            let of_link = |one: &&Outline| one.head.content.stream == after.stream;
            let Some(earlier) = self.streams.iter().find(of_link) else { break };
            (stream, last) = (earlier, after.number);
        }
        Ok(None)
    }

    /// The key of a stream, if it is sealed; nothing, if the keys do not open it.
    async fn key(&self, stream: &str) -> Result<Option<Option<Arc<DataKey>>>, RepoError> {
        let is_it = |one: &&Outline| one.head.content.stream == stream;
        let Some(outline) = self.streams.iter().find(is_it) else { return Ok(None) };
        if outline.head.content.sealed.is_empty() {
            return Ok(Some(None));
        }
        let Some(id) = RunId::parse(stream).filter(|_| !self.keys.is_empty()) else {
            return Ok(None);
        };
        let root = &self.session.root;
        let key = format!("{}/{KEYS}", stream_folder(&server_folder(self.server)?, id));
        let slots = match root.store().get(&root.key(&key)).await {
            Ok(bytes) => KeysObject::parse(&bytes).ok(),
            Err(error) if error.kind == StoreErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let memory = self.session.resources.memory;
        let open = |slots: KeysObject| {
            tokio::task::block_in_place(|| self.keys.open(&slots, memory))?.ok().map(Arc::new)
        };
        Ok(slots.and_then(open).map(Some))
    }
}
