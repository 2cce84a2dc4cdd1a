//! Whether the log of a backup is the archived one of that name. Two servers, or one that went back to an earlier state, have the
//! same names, positions and GTIDs; the bytes before the position of a backup, of which its manifest has a digest, are its own.

use std::ops::Range;
use std::sync::Arc;

use xb_binlog::{LogDigest, LogPosition, MAGIC};
use xb_repo::manifest::Manifest;

use crate::binlog::pieces::{NeededSegment, fetch};
use crate::error::BackupError;
use crate::session::Session;
use crate::until_error::UntilError;

/// Events at the beginning of a log, one of which says that the rest is encrypted on the server's disk.
const FIRST_EVENTS: usize = 4;
/// Type of that event. ("START_ENCRYPTION_EVENT", documentation of MariaDB Server)
const START_ENCRYPTION: u8 = 164;
/// Where the type and the length of an event are in its header.
const TYPE: usize = 4;
const LENGTH: Range<usize> = 9..13;

/// The windows of a log whose bytes count, as far as they have been read.
struct Windows {
    all: [(Range<u64>, Vec<u8>); 2],
}

impl Windows {
    fn new(offset: u64) -> Self {
        let mut all = LogDigest::windows(offset).map(|window| (window, Vec::new()));
        // What every log begins with is not archived.
        if let Some((window, bytes)) = all.first_mut().filter(|(window, _)| window.end >= 4) {
            bytes.extend_from_slice(&MAGIC);
            debug_assert_eq!(window.start, 0);
        }
        Self { all }
    }

    /// Whether these bytes of the log belong to them.
    fn need(&self, part: &Range<u64>) -> bool {
        self.all.iter().any(|(window, _)| window.start < part.end && part.start < window.end)
    }

    /// Takes bytes that follow those before.
    fn take(&mut self, offset: u64, bytes: &[u8]) {
        for (window, taken) in &mut self.all {
            let next = window.start + taken.len() as u64;
            let end = window.end.min(offset + bytes.len() as u64);
            if offset <= next && next < end {
                let place = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
                taken.extend_from_slice(bytes.get(place(next)..place(end)).unwrap_or_default());
            }
        }
    }

    /// The digest; `None` if bytes are missing, or if the server's file has others because it is encrypted.
    fn digest(self) -> Option<LogDigest> {
        let is_whole = |(window, bytes): &(Range<u64>, Vec<u8>)| {
            window.end - window.start == bytes.len() as u64
        };
        let [(_, head), (_, tail)] = self.all.iter().all(is_whole).then_some(self.all)?;
        (!is_encrypted(&head)).then(|| LogDigest::of(head, &tail))
    }
}

/// Whether a log, of which this is the beginning, is encrypted on its server.
fn is_encrypted(mut head: &[u8]) -> bool {
    head = head.get(MAGIC.len()..).unwrap_or_default();
    for _ in 0..FIRST_EVENTS {
        let length = head.get(LENGTH).and_then(|bytes| bytes.first_chunk());
        let (Some(event), Some(length)) = (head.get(TYPE), length) else { return false };
        if *event == START_ENCRYPTION {
            return true;
        }
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        head = head.get(length..).filter(|_| length > 0).unwrap_or_default();
    }
    false
}

/// The position of a backup in its server's log, and the digest of the log up to there, if its manifest has one.
pub(crate) fn noted(manifest: &Manifest) -> Option<(LogPosition, LogDigest)> {
    let at = manifest.source.binlog_pos.as_ref().and_then(|noted| noted.position().cloned())?;
    let digest = manifest.history.as_ref().and_then(|history| history.binlog.clone());
    Some((at, digest.filter(|digest| matches!(digest, LogDigest::Bytes(_)))?))
}

/// Returns whether the archived log with the position `offset` of a backup is that of the backup, whose digest is `noted`; `None`
/// if that cannot be told. `log` has its segments from the first event on, as far as they are stored.
///
/// # Errors
/// Those of the store and of keys.
pub(crate) async fn is_same(
    session: &Session,
    server: &str,
    mut log: Vec<NeededSegment>,
    offset: u64,
    noted: &LogDigest,
) -> Result<Option<bool>, BackupError> {
    let mut windows = Windows::new(offset);
    log.retain(|one| windows.need(&(one.segment.from.offset..one.until)));
    let needed: Arc<[NeededSegment]> = log.into();
    let mut fetched = fetch(session, server, &needed);
    while let Some(fetched) = fetched.recv().await {
        let fetched = match fetched {
            // A replay may need none of them.
            Err(BackupError::Until(error)) if matches!(*error, UntilError::Segment { .. }) => {
                return Ok(None);
            }
            fetched => fetched?,
        };
        let one = needed.get(fetched.number).ok_or(BackupError::Bug("a segment of no number"))?;
        let from = one.segment.from.offset;
        let counted = usize::try_from(one.until.saturating_sub(from)).unwrap_or(usize::MAX);
        windows.take(from, fetched.bytes.get(..counted).unwrap_or(&fetched.bytes));
    }
    Ok(windows.digest().map(|found| found == *noted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_file_whatever_its_pieces() {
        let log: Vec<u8> = MAGIC.into_iter().chain((0_u8..251).cycle().take(20_000)).collect();
        for offset in [4, 5, 100, 4096, 4097, 6000, 8192, 9000, 20_004] {
            let expected = LogDigest::windows(offset).map(|w| {
                log[usize::try_from(w.start).unwrap()..usize::try_from(w.end).unwrap()].to_vec()
            });
            let expected = LogDigest::of(expected[0].clone(), &expected[1]);
            for piece in [1, 7, 4096, 30_000] {
                let mut windows = Windows::new(offset);
                let mut at = 4;
                for bytes in log[4..].chunks(piece) {
                    let part = at..at + bytes.len() as u64;
                    if windows.need(&part) {
                        windows.take(at, bytes);
                    }
                    at = part.end;
                }
                assert_eq!(windows.digest().as_ref(), Some(&expected), "{offset} in {piece}");
            }
            // A hole.
            let mut windows = Windows::new(offset);
            windows.take(5, &log[5..]);
            assert_eq!(windows.digest().is_some(), offset == 4, "{offset}");
        }
    }

    #[test]
    fn a_log_that_its_server_encrypts_has_other_bytes() {
        let event = |kind: u8, len: u8| {
            let mut event = vec![0; usize::from(len)];
            (event[TYPE], event[LENGTH.start]) = (kind, len);
            event
        };
        let log = |kinds: &[u8]| {
            let events = kinds.iter().flat_map(|kind| event(*kind, 40));
            MAGIC.into_iter().chain(events).collect::<Vec<u8>>()
        };
        assert!(is_encrypted(&log(&[15, 164, 163])));
        assert!(!is_encrypted(&log(&[15, 163, 161, 162])));
        assert!(!is_encrypted(b"\xfebin"));
        assert!(!is_encrypted(&[0; 30]));
    }
}
