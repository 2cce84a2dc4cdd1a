//! Finds out with few requests how far the archives of a repository reach.

use std::collections::HashSet;

use jiff::Timestamp;
use xb_binlog::LogPosition;
use xb_repo::archive::listing::servers;
use xb_repo::archive::newest::{Outline, outlines, stranded};
use xb_repo::archive::stranded::StrandedTransactions;
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::root::Root;

use crate::binlog::archive::coverage::{Coverage, covers_now};

/// Streams at the end of an archive in which missing segments are looked for.
const LOOKED_AT: usize = 2;
/// Streams before each of these that are looked at if they may lack some, and streams that may have what is missing.
const LOOKED_BACK: usize = 8;

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
    pub stranded: Vec<StrandedTransactions>,
    /// Why the last stream ended, if its receiver could not continue.
    pub trouble: Option<String>,
    /// Which segments that a receiver has stored are missing at the end, if any are.
    pub missing: Option<String>,
    /// How far another stream has received them again, if one does.
    pub again: Option<String>,
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
            again: None,
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
    let (missing, again) = missing(root, found, &counted).await?.unzip();
    Ok(ArchiveState {
        missing,
        again: again.flatten(),
        gaps,
        branches,
        stranded,
        trouble,
        ..ArchiveState::new(&server, stored_until, alive)
    })
}

/// Which segments are missing at the end of a stream that is `counted`, or of one before it, unless another stream has them: that of
/// another receiver, or one that has received all of them again. And how far the latter has come, if it has not yet.
async fn missing(
    root: &Root,
    found: &[Outline],
    counted: &[&Outline],
) -> Result<Option<(String, Option<String>)>, RepoError> {
    let lines = Lines(found);
    for outline in lines.ends(counted) {
        let Some((first, count)) = outline.missing(root).await? else { continue };
        if lines.is_left(outline, first) || lines.is_stored(root, outline, first).await? {
            continue;
        }
        let id = id(outline);
        let what = match count {
            1 => {
                format!("segment {first} of stream {id} is missing, which its receiver has stored")
            }
            _ => format!(
                "{count} segments of stream {id} from {first} on are missing, which its receiver has stored"
            ),
        };
        return Ok(Some((what, lines.again(outline, first))));
    }
    Ok(None)
}

fn id(outline: &Outline) -> &str {
    &outline.head.content.stream
}

/// The number of segments that a stream says are stored.
fn segments(outline: &Outline) -> u64 {
    outline.alive.as_ref().map_or(0, |alive| alive.content.segments)
}

/// The position up to which a stream says that it is stored.
fn stated(outline: &Outline) -> Option<LogPosition> {
    outline.alive.as_ref()?.content.position.position()
}

/// All streams of an archive, by what each follows.
struct Lines<'o>(&'o [Outline]);

impl<'o> Lines<'o> {
    /// The last ones of these, and those before them that another stream follows from before their end: what they lack may be
    /// on its way.
    fn ends(&self, counted: &[&'o Outline]) -> Vec<&'o Outline> {
        let mut ends: Vec<&Outline> = counted.iter().rev().take(LOOKED_AT).copied().collect();
        for mut next in ends.clone() {
            for _ in 0..LOOKED_BACK {
                let Some(link) = next.head.content.begins.after() else { break };
                let Some(before) = self.0.iter().find(|one| id(one) == link.stream) else { break };
                if segments(before) > link.number.saturating_add(1)
                    && ends.iter().all(|one| id(one) != id(before))
                {
                    ends.push(before);
                }
                next = before;
            }
        }
        ends
    }

    /// Whether a line that leaves a stream before segment `first` says why it does not have that: it continues behind a gap, in
    /// another history, or on another server.
    fn is_left(&self, outline: &Outline, first: u64) -> bool {
        let goes_on = |one: &&Outline| {
            matches!(one.head.content.begins, StreamOrigin::Continues { at: None, .. })
        };
        let mut others = self.0.iter().filter(|one| !goes_on(one));
        others.any(|one| self.leaves(one, outline).is_some_and(|last| last < first))
    }

    /// Whether another stream of the same server is whole and reaches as far, and does not lie behind segment `first` of this
    /// one.
    async fn is_stored(
        &self,
        root: &Root,
        outline: &Outline,
        first: u64,
    ) -> Result<bool, RepoError> {
        let Some(end) = stated(outline) else { return Ok(false) };
        let origin = outline.head.content.origin();
        let has_all = |other: &&Outline| {
            let is_of_server = other.head.content.origin().differs_from(origin).is_none();
            let reaches = stated(other).is_some_and(|at| at >= end);
            let is_behind = self.leaves(other, outline).is_some_and(|last| last >= first);
            // This one follows its end.
            let is_before = self
                .leaves(outline, other)
                .is_some_and(|last| last.saturating_add(1) >= segments(other));
            is_of_server && reaches && !is_behind && !is_before
        };
        for other in self.0.iter().rev().filter(has_all).take(LOOKED_BACK) {
            if other.missing(root).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Number of the last segment of `outline` in the line that ends with a stream, if the line has any.
    fn leaves(&self, stream: &Outline, outline: &Outline) -> Option<u64> {
        let (mut next, mut last) = (stream, u64::MAX);
        // A circle is no history.
        for _ in 0..=self.0.len() {
            if id(next) == id(outline) {
                return Some(last);
            }
            let link = next.head.content.begins.after()?;
            (next, last) = (self.0.iter().find(|one| id(one) == link.stream)?, link.number);
        }
        None
    }

    /// How far a stream has come that continues from before segment `first` of this one.
    fn again(&self, outline: &Outline, first: u64) -> Option<String> {
        let end = &outline.alive.as_ref()?.content.position;
        let begins_before = |one: &&Outline| match &one.head.content.begins {
            StreamOrigin::Continues { after, at: None } => {
                after.stream == id(outline) && after.number < first
            }
            _ => false,
        };
        let next = self.0.iter().rev().find(begins_before)?;
        let stored = next.alive.as_ref().map(|alive| &alive.content.position);
        let at = stored.unwrap_or(&next.head.content.start);
        Some(format!("stream {} receives them again, and has come to {at} of {end}", id(next)))
    }
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

    /// Stores a stream of the server whose segments, of 100 bytes each, begin at this offset, without that of number `gap`.
    fn stream(
        folder: &std::path::Path,
        id: u8,
        begins: StreamOrigin,
        (start, count): (u64, u64),
        gap: Option<u64>,
        has_ended: bool,
    ) {
        const BODY: &[u8] = b"whatever";
        let stream = format!("{id:032x}");
        let at_second = i64::from(id) * 1000;
        let head = StreamHead {
            started: time(at_second),
            begins,
            start: at(start),
            ..stream_head(&stream)
        };
        let alive = Alive {
            format: FORMAT,
            stream: stream.clone(),
            segments: count,
            head: digest(b""),
            position: at(start + 100 * count),
            covered_until: Some(time(at_second)),
            acknowledged: None,
            written: time(at_second),
            trouble: None,
        };
        let place = folder.join(".xb-binlog/shop").join(&stream);
        std::fs::create_dir_all(&place).unwrap();
        let write = |name: &str, bytes: Vec<u8>| std::fs::write(place.join(name), bytes).unwrap();
        write("head", Record::encode(&head, None).unwrap());
        write("alive", Record::encode(&alive, None).unwrap());
        for number in (0..count).filter(|number| Some(*number) != gap) {
            let from = start + 100 * number;
            let segment = segment_head(&stream, number, [from, from + 100], BODY);
            write(
                &segment_name(number),
                [&Record::encode(&segment, None).unwrap()[..], BODY].concat(),
            );
        }
        if has_ended {
            let end = End { format: FORMAT, stream, segments: count, head: digest(b"") };
            write("end", Record::encode(&end, None).unwrap());
        }
    }

    /// A receiver that starts says at once that it receives them again, and may be stopped before it has.
    #[tokio::test]
    async fn what_is_missing_is_critical_until_all_of_it_is_received_again() {
        let after = |stream: u8, number| Link {
            stream: format!("{stream:032x}"),
            number,
            head: digest(b""),
        };
        let goes_on =
            |stream, number| StreamOrigin::Continues { after: after(stream, number), at: None };
        // The first one has lost its third segment of ten: what is stored of it, and by each that follows.
        let first = |folder: &std::path::Path, has_ended| {
            stream(folder, 1, StreamOrigin::First, (4, 10), Some(2), has_ended);
        };
        type Make<'a> = &'a dyn Fn(&std::path::Path);
        let cases: [(&str, Make<'_>, Option<Option<&str>>); 7] = [
            ("nothing follows", &|folder| first(folder, false), Some(None)),
            (
                "it is on its way",
                &|folder| {
                    first(folder, true);
                    stream(folder, 2, goes_on(1, 1), (204, 3), None, false);
                },
                Some(Some("has come to bin.000001:504 of bin.000001:1004")),
            ),
            (
                "it was on its way when the receiver was killed",
                &|folder| {
                    first(folder, false);
                    stream(folder, 2, goes_on(1, 1), (204, 3), None, true);
                    stream(folder, 3, goes_on(2, 2), (504, 2), None, false);
                },
                Some(Some("has come to")),
            ),
            (
                "all of it is there",
                &|folder| {
                    first(folder, true);
                    stream(folder, 2, goes_on(1, 1), (204, 3), None, true);
                    stream(folder, 3, goes_on(2, 2), (504, 5), None, false);
                },
                None,
            ),
            (
                "behind the hole",
                &|folder| {
                    first(folder, false);
                    stream(folder, 2, goes_on(1, 9), (1004, 5), None, false);
                },
                Some(None),
            ),
            (
                "a gap",
                &|folder| {
                    first(folder, true);
                    let begins =
                        StreamOrigin::Gap { after: after(1, 1), reason: "purged".to_owned() };
                    stream(folder, 2, begins, (804, 1), None, false);
                },
                None,
            ),
            (
                "another receiver",
                &|folder| {
                    first(folder, false);
                    stream(folder, 2, StreamOrigin::First, (4, 10), None, false);
                },
                None,
            ),
        ];
        for (name, make, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
            let location = Location { place: StorePlace::Local, path };
            let root =
                Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
            make(folder.path());
            let states = archive_states(&root, |_| None).await.unwrap();
            let [state] = &states[..] else { panic!("{states:?}") };
            assert_eq!(state.missing.is_some(), expected.is_some(), "{name}: {state:?}");
            if let Some(missing) = &state.missing {
                assert!(missing.starts_with("segment 2 of stream 0000"), "{name}: {missing}");
            }
            let again = expected.flatten();
            assert_eq!(state.again.is_some(), again.is_some(), "{name}: {state:?}");
            assert!(
                state.again.as_deref().unwrap_or_default().contains(again.unwrap_or_default()),
                "{name}: {state:?}"
            );
        }
    }
}
