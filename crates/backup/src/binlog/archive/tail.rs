//! Checks whether an archive still has its end: anyone with write access to the store can remove the last segments, and the
//! record that tells of them.

use std::path::Path;

use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::listing::is_stored;
use xb_repo::archive::plan::{Histories, Stream};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::root::Root;

use crate::binlog::archive::state::StateFile;
use crate::error::BackupError;

/// Notes of the receiver of this host, from its state directory.
#[derive(Debug, Default)]
pub(crate) struct HostNotes {
    /// The head of its last stored segment.
    pub(crate) last: Option<Record<SegmentHead>>,
    /// Since when the server runs or ran without a log, if no stream has begun since.
    unlogged: Option<String>,
}

/// What the receiver remembers in the folder `state`. It is read before the archive: a receiver that runs stores more
/// meanwhile, and remembers that.
pub(crate) fn host_notes(
    root: &Root,
    server: &str,
    state: Option<&Path>,
) -> Result<HostNotes, BackupError> {
    let Some(folder) = state else { return Ok(HostNotes::default()) };
    let state = StateFile::new(folder, root, server);
    Ok(HostNotes { last: state.read()?, unlogged: state.read_unlogged()? })
}

/// Reason why an archive may lack its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tail {
    /// It ends where its records say.
    Shown,
    /// This host remembers a segment that the archive lacks.
    Shorter(String),
    /// No authentic record shows how far the last stream reaches.
    Open {
        /// ID of the stream.
        stream: String,
        /// Why that is not known.
        what: String,
    },
    /// Another stream may continue behind the end of the last one.
    InDoubt {
        /// ID of the last one.
        stream: String,
        /// Why.
        what: String,
    },
}

impl Tail {
    /// The problem, and what it means for what can be restored up to the end: a half sentence.
    pub(crate) fn found(self) -> (Option<String>, Option<String>) {
        match self {
            Self::Shown => (None, None),
            Self::Shorter(what) => (Some(what), None),
            Self::Open { stream, what } => {
                let limit = format!(
                    "if nothing was removed after it: nothing shows how far stream {stream} reaches"
                );
                (Some(format!("stream {stream}: {what}")), Some(limit))
            }
            Self::InDoubt { stream, what } => {
                let limit = format!(
                    "the end of stream {stream}: another one may have transactions that it lacks"
                );
                (Some(format!("stream {stream}: {what}")), Some(limit))
            }
        }
    }
}

/// Compares the end of an archive with what its records say, and with what the receiver [`remembered`] before they were
/// read. A stream that another one follows is checked by that; so only the last one counts. Of `empty` streams, only the
/// head is stored.
pub(crate) async fn tail(
    root: &Root,
    server: &str,
    (histories, empty): (&Histories<'_>, &[Stream]),
    ours: &HostNotes,
) -> Result<Tail, BackupError> {
    if let Some(since) = &ours.unlogged {
        return Ok(Tail::Shorter(format!(
            "the archive may lack the commits since {since}: this host's receiver then found the server without a binary log, and has stored nothing since"
        )));
    }
    let ours = ours.last.as_ref();
    if let Some(ours) = ours {
        let (head, digest) = (ListedSegment::of(ours, None), ours.digest.to_string());
        if !is_stored(root, server, &head.stream, head.number, &digest).await? {
            return Ok(Tail::Shorter(format!(
                "the archive ends before the last segment that this host stored: segment {} of stream {}, up to {}, is missing or was changed",
                head.number, head.stream, head.to
            )));
        }
        // What is there by name counts for nothing in a plan that was made without it.
        if !histories.have(&head) {
            return Ok(Tail::Shorter(format!(
                "a listing of the archive lacks a segment that this host stored and the store still has: segment {} of stream {}, up to {}",
                head.number, head.stream, head.to
            )));
        }
        if histories.end_before(&head) {
            return Ok(Tail::Shorter(format!(
                "the present history of the archive ends before the last segment that this host stored: segment {} of stream {}, up to {}",
                head.number, head.stream, head.to
            )));
        }
    }
    let newest = histories.newest();
    let open = |stream: &str, what: &str| {
        Ok(Tail::Open { stream: stream.to_owned(), what: what.to_owned() })
    };
    // The first one of an archive has just begun; one that follows another is a copy that was interrupted, or all else is lost.
    let is_last = |empty: &&Stream| match &newest {
        Some((_, life)) => empty.newest() > *life,
        None => empty.head.content.begins.after().is_some(),
    };
    if let Some(empty) = empty.iter().find(is_last) {
        return open(empty.id(), "only its head is stored");
    }
    let Some((last, _)) = newest else { return Ok(Tail::Shown) };
    if let Some(further) = histories.unproven() {
        let what = may_go_on(further, last);
        return Ok(Tail::InDoubt { stream: last.id().to_owned(), what });
    }
    // This host knows it as well as the record.
    let is_remembered = ours.is_some_and(|ours| ours.content.stream == last.id());
    match last.shows_end || is_remembered {
        true => Ok(Tail::Shown),
        false => open(
            last.id(),
            "no authentic `alive` or `end` shows how far it reaches, so segments after its last one may have been removed",
        ),
    }
}

/// Says why a stream may continue behind the end of the last one.
pub(crate) fn may_go_on(further: &Stream, last: &Stream) -> String {
    let gtids = further.segments.values().next_back().and_then(|last| last.after());
    let gtids = gtids.map(|gtids| gtids.to_string()).unwrap_or_default();
    let (id, origin) = (further.id(), further.head.content.origin());
    match last.head.content.origin().differs_from(origin) {
        Some(_) => format!(
            "it ends the archive, but stream {id} of another server ({origin}) may have transactions that it lacks, up to {gtids}, and whether they were lost there is not known"
        ),
        None => format!(
            "it ends the archive, but stream {id} of another history ({origin}, too) is received beside it, up to {gtids}: two servers are archived under one name, such as a server and a copy of it"
        ),
    }
}
