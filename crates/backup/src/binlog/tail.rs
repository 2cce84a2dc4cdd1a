//! Whether an archive still has its end: anyone with write access to the store can remove the last segments, and the
//! record that tells of them.

use std::path::Path;

use xb_repo::archive::listing::is_stored;
use xb_repo::archive::plan::{Stream, ends_before, newest, unproven};
use xb_repo::root::Root;

use crate::binlog::state::StateFile;
use crate::error::BackupError;

/// Reason why an archive may lack its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tail {
    /// It ends where its records say.
    Shown,
    /// This host remembers a segment that the archive lacks.
    Shorter(String),
    /// No authentic record shows how far the last stream reaches, or another one may go on behind its end.
    Open {
        /// ID of the stream.
        stream: String,
        /// Why that is not known.
        what: String,
    },
}

/// Compares the end of an archive with what its records say, and with what the receiver remembers in the folder
/// `state`. A stream that another one follows is checked by that; so only the last one counts. Of `empty`
/// streams, only the head is stored.
pub(crate) async fn tail(
    root: &Root,
    server: &str,
    (streams, empty): (&[Stream], &[Stream]),
    state: Option<&Path>,
) -> Result<Tail, BackupError> {
    let ours = match state {
        Some(folder) => StateFile::new(folder, root, server).read()?,
        None => None,
    };
    if let Some(ours) = &ours {
        let head = &ours.content;
        if !is_stored(root, server, &head.stream, head.number, &ours.digest).await? {
            return Ok(Tail::Shorter(format!(
                "the archive ends before what this host remembers: segment {} of stream {}, up to {}, is missing or was changed",
                head.number, head.stream, head.to
            )));
        }
        if ends_before(streams, head) {
            return Ok(Tail::Shorter(format!(
                "the present history of the archive ends before what this host remembers: segment {} of stream {}, up to {}",
                head.number, head.stream, head.to
            )));
        }
    }
    let Some((last, life)) = newest(streams) else { return Ok(Tail::Shown) };
    let open = |stream: &str, what: &str| {
        Ok(Tail::Open { stream: stream.to_owned(), what: what.to_owned() })
    };
    if let Some(empty) = empty.iter().find(|empty| empty.newest() > life) {
        return open(empty.id(), "nothing is stored of it but its head");
    }
    if let Some(further) = unproven(streams) {
        let gtids = further.segments.values().next_back().and_then(|last| last.content.after());
        let gtids = gtids.map(|gtids| gtids.to_string()).unwrap_or_default();
        let what = format!(
            "it ends the archive, but stream {} of another server ({}) has more transactions, up to {gtids}. Whether they were lost there is not known: let a receiver catch up, or give --until=GTID",
            further.id(),
            further.head.content.origin(),
        );
        return open(last.id(), &what);
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
