//! Finds out with few requests how far the archives of a repository reach.

use std::collections::HashSet;

use jiff::Timestamp;
use xb_repo::archive::listing::servers;
use xb_repo::archive::newest::{Outline, outlines, stranded};
use xb_repo::archive::stranded::Stranded;
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::root::Root;

use crate::binlog::archive::coverage::{Coverage, covers_now};

/// Streams at the end of an archive in which missing segments are looked for.
const LOOKED_AT: usize = 2;

/// A stream whose server's history differs from the stored one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveBranch {
    /// When it began.
    pub began: Timestamp,
    /// ID of the stream that it left.
    pub left: String,
    /// The difference.
    pub reason: String,
}

/// The archive of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveState {
    /// Name of the server.
    pub server: String,
    /// Everything up to this time is stored: time of the last transaction, or at which the server was idle.
    pub stored_until: Option<Timestamp>,
    /// Last sign of life of a receiver.
    pub alive: Option<Timestamp>,
    /// When streams began behind a gap, and why.
    pub gaps: Vec<(Timestamp, String)>,
    /// Streams with which the server's history began anew.
    pub branches: Vec<ArchiveBranch>,
    /// Transactions of other servers that the present history lacks.
    pub stranded: Vec<Stranded>,
    /// Why the last stream ended, if its receiver could not continue.
    pub trouble: Option<String>,
    /// Which segments that a receiver has stored are missing at the end, if any are.
    pub missing: Option<String>,
    /// Why the archive does not have the position of the newest backup, and its name, if so.
    pub uncovered: Option<(String, String)>,
}

impl ArchiveState {
    /// The state of an archive without gaps, which has the position of the newest backup.
    #[must_use]
    pub fn new(server: &str, stored_until: Option<Timestamp>, alive: Option<Timestamp>) -> Self {
        let server = server.to_owned();
        let (gaps, branches, stranded) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            server,
            stored_until,
            alive,
            gaps,
            branches,
            stranded,
            trouble: None,
            missing: None,
            uncovered: None,
        }
    }
}

/// Reads how far the archive of each server reaches, and whether it has the position of the server's newest
/// backup, whose name `newest` returns. Takes three requests for each stream, and few more for each server;
/// segments are not listed, but a few heads are sought if streams are of several servers. What they state is not authenticated.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn archive_states(
    root: &Root,
    newest: impl Fn(&str) -> Option<BackupName>,
) -> Result<Vec<ArchiveState>, RepoError> {
    let mut states = Vec::new();
    for server in servers(root).await? {
        match outlines(root, &server).await {
            Ok(found) => {
                let mut state = state(root, server, &found).await?;
                // What is found by its head would seem to be missing.
                if let Some(name) = newest(&state.server).filter(|_| state.missing.is_none()) {
                    state.uncovered = uncovered(root, &state.server, &name).await?;
                }
                states.push(state);
            }
            // A folder that is no archive.
            Err(RepoError::Name(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

async fn uncovered(
    root: &Root,
    server: &str,
    name: &BackupName,
) -> Result<Option<(String, String)>, RepoError> {
    let manifest = match root.manifest(name).await {
        Ok(manifest) => manifest,
        // The listing reports a manifest that cannot be read.
        Err(error) if error.is_of_one_object() => None,
        Err(error) => return Err(error),
    };
    let Some(manifest) = manifest else { return Ok(None) };
    Ok(match covers_now(root, server, &manifest).await? {
        Some(Coverage::Uncovered(what)) => Some((name.to_string(), what)),
        Some(Coverage::Covered) | None => None,
    })
}

async fn state(root: &Root, server: String, found: &[Outline]) -> Result<ArchiveState, RepoError> {
    let counted = counted(found);
    let records = || counted.iter().filter_map(|outline| Some(&outline.alive.as_ref()?.content));
    let mut stored_until = records().filter_map(|alive| alive.covered_until).max();
    // Several receivers may be at work: the latest stored transaction counts.
    let newest = counted.iter().filter(|outline| !outline.has_ended).chain(counted.last());
    for outline in newest.rev().take(2) {
        if let Some(last) = outline.last_segment(root).await? {
            stored_until = stored_until.max(last.content.last_commit());
        }
    }
    let gaps = found.iter().filter_map(|outline| {
        let head = &outline.head.content;
        match &head.begins {
            StreamOrigin::Gap { reason, .. } => Some((head.started, reason.clone())),
            _ => None,
        }
    });
    let gaps = gaps.collect();
    let branches = found.iter().filter_map(|outline| {
        let head = &outline.head.content;
        match &head.begins {
            StreamOrigin::Branch { after, reason } => {
                let (left, reason) = (after.stream.clone(), reason.clone());
                Some(ArchiveBranch { began: head.started, left, reason })
            }
            _ => None,
        }
    });
    let branches = branches.collect();
    let last = found.last().and_then(|outline| outline.alive.as_ref());
    let trouble = last.and_then(|alive| alive.content.trouble.clone());
    let alive = records().map(|alive| alive.written).max();
    let stranded = stranded(root, found).await?;
    let missing = missing(root, found, &counted).await?;
    Ok(ArchiveState {
        missing,
        gaps,
        branches,
        stranded,
        trouble,
        ..ArchiveState::new(&server, stored_until, alive)
    })
}

/// Which segments are missing at the end of a stream that is `counted`, unless the stream that follows it has them again, or another
/// receiver has all up to there.
async fn missing(
    root: &Root,
    found: &[Outline],
    counted: &[&Outline],
) -> Result<Option<String>, RepoError> {
    let mut looked = Vec::new();
    for outline in counted.iter().rev().take(LOOKED_AT) {
        looked.push((*outline, outline.missing(root).await?));
    }
    let position = |outline: &Outline| outline.alive.as_ref()?.content.position.position();
    Ok(looked.iter().find_map(|(outline, missing)| {
        let ((first, count), id) = ((*missing)?, &outline.head.content.stream);
        let links = found.iter().filter_map(|one| one.head.content.begins.after());
        let is_again = links.filter(|link| link.stream == *id).any(|link| link.number < first);
        let has_all = |(other, missing): &(&Outline, Option<_>)| {
            let is_whole = missing.is_none() && other.head.content.stream != *id;
            is_whole && position(other) >= position(outline)
        };
        (!is_again && !looked.iter().any(has_all)).then(|| match count {
            1 => format!("segment {first} of stream {id} is missing, which its receiver has stored"),
            _ => format!("{count} segments of stream {id} from {first} on are missing, which its receiver has stored"),
        })
    }))
}

/// The streams that say how far the archive reaches: not one that has ended, if another one that says so itself follows it.
/// A clock that was ahead then would hide that nothing is received now.
fn counted(found: &[Outline]) -> Vec<&Outline> {
    let says = |outline: &&Outline| {
        let alive = outline.alive.as_ref().map(|alive| &alive.content);
        alive.is_some_and(|alive| alive.segments > 0 || alive.covered_until.is_some())
    };
    let living = found.iter().filter(says);
    let followed = living.filter_map(|outline| outline.head.content.begins.after());
    let followed: HashSet<&str> = followed.map(|link| &*link.stream).collect();
    let is_over =
        |outline: &&Outline| outline.has_ended && followed.contains(&*outline.head.content.stream);
    found.iter().filter(|outline| !is_over(outline)).collect()
}

#[cfg(test)]
mod tests {

    use xb_repo::archive::names::segment_name;
    use xb_repo::archive::record::{FORMAT, Record, digest};
    use xb_repo::archive::sample::{at, segment_head, stream_head};
    use xb_repo::archive::segment::{Commits, SegmentHead};
    use xb_repo::archive::stream::{Alive, End, Link, StreamHead};
    use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Stores a stream of one segment, whose receiver's clock is at `now`, and which has ended if another one follows.
    fn store(folder: &std::path::Path, id: u8, now: i64, last: u32, has_ended: bool) {
        const BODY: &[u8] = b"whatever";
        let name = |id: u8| format!("{id:032x}");
        let after = id.checked_sub(1).map(|before| Link {
            stream: name(before),
            number: 0,
            head: digest(b""),
        });
        let head = StreamHead {
            started: time(now),
            server_version: "10.11.19-MariaDB".to_owned(),
            begins: match after {
                Some(after) => StreamOrigin::Continues { after, at: None },
                None => StreamOrigin::First,
            },
            ..stream_head(&name(id))
        };
        let segment = SegmentHead {
            description: "0f".repeat(100),
            transactions: 1,
            commits: Some(Commits { first: last, last, greatest: last }),
            received: [time(now); 2],
            ..segment_head(&name(id), 0, [4, 300], BODY)
        };
        let alive = Alive {
            format: FORMAT,
            stream: name(id),
            segments: 1,
            head: digest(b""),
            position: at(300),
            covered_until: Some(time(now)),
            acknowledged: None,
            written: time(now),
            trouble: None,
        };
        let end = End { format: FORMAT, stream: name(id), segments: 1, head: digest(b"") };
        let place = folder.join(".xb-binlog/shop").join(name(id));
        std::fs::create_dir_all(&place).unwrap();
        let write = |name: &str, bytes: Vec<u8>| std::fs::write(place.join(name), bytes).unwrap();
        write("head", Record::encode(&head, None).unwrap());
        write("alive", Record::encode(&alive, None).unwrap());
        write(&segment_name(0), [&Record::encode(&segment, None).unwrap()[..], BODY].concat());
        if has_ended {
            write("end", Record::encode(&end, None).unwrap());
        }
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_makes_no_archive_young() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        // One of a time before the network's, and the one that follows it, whose last session has set a time.
        store(folder.path(), 0, 9000, 9000, true);
        store(folder.path(), 1, 2000, 2_000_000_000, false);
        let states = archive_states(&root, |_| None).await.unwrap();
        let [state] = &states[..] else { panic!("{states:?}") };
        assert_eq!((state.alive, state.stored_until), (Some(time(2000)), Some(time(2000))));
        assert_eq!(state.missing, None);
        // The sign of life of the last one states a segment.
        let segment = format!(".xb-binlog/shop/{:032x}/{}", 1, segment_name(0));
        std::fs::remove_file(folder.path().join(segment)).unwrap();
        let states = archive_states(&root, |_| None).await.unwrap();
        let missing = states[0].missing.as_deref().unwrap();
        assert!(missing.starts_with("segment 0 of stream 0000"), "{missing}");
    }
}
