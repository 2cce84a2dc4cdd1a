//! Finds the end of an archive without reading all of it: its streams by their heads, and the last segment of
//! one of them.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use xb_binlog::{Gtid, GtidState, LogPosition};

use crate::archive::authority::Keyless;
use crate::archive::chain::{Stream, life};
use crate::archive::ended::ended;
use crate::archive::listed_segment::ListedSegment;
use crate::archive::listing::{PARALLEL, record, segment_head, store_time, streams};
use crate::archive::names::{
    ALIVE, BEFORE_SEGMENTS, END, HEAD, STREAMS, parse_floor, parse_segment, segment_name,
    server_folder, stream_folder,
};
use crate::archive::plan::Histories;
use crate::archive::present::{LineEnd, by_id, last, line, lost_end, may_be_passed, present};
use crate::archive::record::Record;
use crate::archive::segment::SegmentHead;
use crate::archive::stranded::{
    MissingTransactions, Passage, StrandedTransactions, is_behind_gap, lacks, only, together,
};
use crate::archive::stream::{Alive, End, StreamHead, StreamOrigin};
use crate::error::RepoError;
use crate::names::RunId;
use crate::root::Root;

/// Stated segments that are looked for at the end of a stream: about as many as one answer of a store lists.
const LOOKED_AT: u64 = 900;
/// Segments before the last one that a receiver looks for when it starts: those of a day and more.
const LOOKED_BACK: u64 = 20_000;
/// Segments at the end of a stream that cannot be read, and are passed over.
const UNREAD: usize = 8;

/// A stream without its segments.
#[derive(Debug)]
pub struct Outline {
    /// Its head.
    pub head: Record<StreamHead>,
    /// Its recorded end.
    pub alive: Option<Record<Alive>>,
    /// Whether its receiver ended in order.
    pub has_ended: bool,
    folder: String,
}

/// Reads heads and signs of life of all streams of a server, in the order in which they began. Those without
/// a readable head are left out. Takes one request for 1000 streams, and three for each that no roll-up of ended streams has.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn outlines(root: &Root, server: &str) -> Result<Vec<Outline>, RepoError> {
    let folder = server_folder(server)?;
    let ids = root.folders_below(&folder).await?;
    let rollups = root.list_below(&format!("{folder}/{STREAMS}")).await?;
    let rollups = rollups.into_iter().map(|listed| listed.key).collect();
    let (mut ended, _) = ended(root, &folder, rollups, &Keyless, |_, _| false).await?;
    let reading = ids.iter().filter_map(|id| RunId::parse(id)).map(|id| {
        let (folder, ended) = (stream_folder(&folder, id), ended.remove(&id));
        async move {
            match ended {
                Some(ended) => {
                    let (head, alive) = (ended.head, Some(ended.alive));
                    Ok(Some(Outline { head, alive, has_ended: true, folder }))
                }
                None => outline(root, folder, id).await,
            }
        }
    });
    let reading: Vec<_> = reading.collect();
    let found: Vec<Option<Outline>> =
        futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    let mut found: Vec<Outline> = found.into_iter().flatten().collect();
    found.sort_by_key(|outline| outline.head.content.started);
    Ok(found)
}

/// Reads the head of one stream; `None` if there is none that can be read.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be reached.
pub async fn stream_head(
    root: &Root,
    server: &str,
    stream: &str,
) -> Result<Option<Record<StreamHead>>, RepoError> {
    let Some(id) = RunId::parse(stream) else { return Ok(None) };
    let folder = stream_folder(&server_folder(server)?, id);
    let mut problems = Vec::new();
    let head = record::<StreamHead>(root, &format!("{folder}/{HEAD}"), &mut problems).await?;
    Ok(head.filter(|head| head.content.stream == stream))
}

/// Reads the head of one segment; `None` if there is none that can be read.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be reached.
pub async fn one_segment_head(
    root: &Root,
    server: &str,
    stream: &str,
    number: u64,
) -> Result<Option<Record<SegmentHead>>, RepoError> {
    let Some(id) = RunId::parse(stream) else { return Ok(None) };
    let folder = stream_folder(&server_folder(server)?, id);
    let key = format!("{folder}/{}", segment_name(number));
    match root.store().size(&root.key(&key)).await? {
        Some(size) => Ok(segment_head(root, &key, size).await?.ok()),
        None => Ok(None),
    }
}

/// The number of the first segment that is missing before this one of a stream, if one is. Takes a request for 1000 segments before
/// it, and 20 at most.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn missing_before(
    root: &Root,
    server: &str,
    stream: &str,
    number: u64,
) -> Result<Option<u64>, RepoError> {
    let Some(id) = RunId::parse(stream) else { return Ok(None) };
    let folder = stream_folder(&server_folder(server)?, id);
    let found = missing(root, &folder, number.saturating_sub(LOOKED_BACK)..number).await?;
    Ok(found.map(|(first, _)| first))
}

/// Those of these segments of a stream that are missing, and were not removed: the number of the first one, and how many they are.
async fn missing(
    root: &Root,
    folder: &str,
    numbers: Range<u64>,
) -> Result<Option<(u64, u64)>, RepoError> {
    let Some((first, _)) = lacking(root, folder, &numbers).await? else { return Ok(None) };
    // One answer of a store may lack something, and `prune` may be at work.
    let key = format!("{folder}/{}", segment_name(first));
    match root.store().size(&root.key(&key)).await? {
        Some(_) => Ok(None),
        None => lacking(root, folder, &numbers).await,
    }
}

/// The same by one listing.
async fn lacking(
    root: &Root,
    folder: &str,
    numbers: &Range<u64>,
) -> Result<Option<(u64, u64)>, RepoError> {
    let before = numbers.start.checked_sub(1).map(segment_name);
    let before = before.as_deref().unwrap_or(BEFORE_SEGMENTS);
    let listed = root.list_below_after(folder, before).await?;
    let floor = listed.iter().filter_map(|listed| parse_floor(&listed.key)).max().unwrap_or(0);
    let stored: HashSet<u64> =
        listed.iter().filter_map(|listed| parse_segment(&listed.key)).collect();
    let all = numbers.start.max(floor)..numbers.end;
    let mut missing = all.filter(|number| !stored.contains(number));
    let first = missing.next();
    Ok(first.map(|first| (first, 1 + missing.count() as u64)))
}

/// The last segment of the archive: that at which a restore of its latest state ends. Takes three requests for each
/// stream, and two more for each that no other one follows, or whose receiver did not end in order. If the ends of these do
/// not show which of them is the last, it reads the whole archive.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn last_stored(
    root: &Root,
    server: &str,
) -> Result<Option<Record<SegmentHead>>, RepoError> {
    let outlines = outlines(root, server).await?;
    let all = unfollowed_ends(root, &outlines).await?;
    let stored: Vec<&(&Outline, FoundEnd, bool)> = all
        .iter()
        // One that has stored nothing yet may still tell a branch.
        .filter(|(outline, (last, _), is_followed)| {
            last.is_some() || *is_followed || outline.head.content.begins.after().is_some()
        })
        .collect();
    let ends: Vec<LineEnd<'_>> = stored
        .iter()
        .map(|(outline, found, is_followed)| outline.line_end(found, *is_followed))
        .collect();
    let number = match last(&ends)[..] {
        [number] if !may_be_passed(&ends, number) => number,
        _ => return last_of_all(root, server).await,
    };
    let Some((outline, (last, _), is_followed)) = stored.get(number) else {
        return Ok(None);
    };
    let last = match last {
        None if *is_followed => outline.last_segment(root).await?,
        last => last.as_ref().map(|(last, _)| last.clone()),
    };
    or_before(root, server, last, &outline.head.content).await
}

/// The end of each stream that no other one follows, and whether one does.
async fn unfollowed_ends<'o>(
    root: &Root,
    outlines: &'o [Outline],
) -> Result<Vec<(&'o Outline, FoundEnd, bool)>, RepoError> {
    let is_followed = |outline: &Outline| {
        let stated = outline.stated();
        outline.has_ended
            && outlines.iter().any(|other| {
                let link = other.head.content.begins.after();
                other.stated().is_some_and(|segments| segments > 0)
                    && link.is_some_and(|link| {
                        let follows = stated.is_some_and(|n| n <= link.number.saturating_add(1));
                        link.stream == outline.head.content.stream && follows
                    })
            })
    };
    let followed: Vec<bool> = outlines.iter().map(is_followed).collect();
    let reading = outlines.iter().zip(&followed).map(|(outline, is_followed)| async move {
        match is_followed {
            true => Ok((None, None)),
            false => outline.end(root).await,
        }
    });
    let reading: Vec<_> = reading.collect();
    let found: Vec<FoundEnd> =
        futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    let all = outlines.iter().zip(found).zip(followed);
    Ok(all.map(|((outline, found), is_followed)| (outline, found, is_followed)).collect())
}

/// The branches of an archive, and which history is the present one.
#[derive(Debug)]
pub struct Branches<'o> {
    streams: HashMap<&'o str, &'o StreamHead>,
    /// The streams of the present history, the last one first; none if no stream is a branch.
    present: Vec<&'o StreamHead>,
}

/// Finds the present history, if the archive has a branch: else all streams are of one. Takes two requests for each stream
/// that no other one follows, or whose receiver did not end in order.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be reached.
pub async fn branches<'o>(root: &Root, outlines: &'o [Outline]) -> Result<Branches<'o>, RepoError> {
    let heads = || outlines.iter().map(|outline| &outline.head.content);
    let streams: HashMap<&str, &StreamHead> =
        heads().map(|head| (head.stream.as_str(), head)).collect();
    let mut branches = Branches { streams, present: Vec::new() };
    if heads().any(is_branch) {
        let found = unfollowed_ends(root, outlines).await?;
        let ends = found.iter().map(|(one, end, is_followed)| one.line_end(end, *is_followed));
        let ends: Vec<LineEnd<'_>> = ends.collect();
        let last = present(&ends).and_then(|number| outlines.get(number));
        branches.present = last.map(|last| branches.line(&last.head.content)).unwrap_or_default();
    }
    Ok(branches)
}

impl<'o> Branches<'o> {
    /// The streams of the history that ends with this one, which comes first.
    fn line(&self, last: &'o StreamHead) -> Vec<&'o StreamHead> {
        let (mut line, mut seen) = (vec![last], HashSet::from([last.stream.as_str()]));
        let mut next = last;
        while let Some(before) =
            next.begins.after().and_then(|link| self.streams.get(&*link.stream))
        {
            // A circle is no history.
            if !seen.insert(&before.stream) {
                break;
            }
            line.push(before);
            next = before;
        }
        line
    }

    /// The stream with which the present history left that of a backup, which was taken at this time and whose position this
    /// stream has: a branch behind it, or one that it does not belong to because it is older.
    #[must_use]
    pub fn left_by(&self, stream: &str, taken: Timestamp) -> Option<&'o StreamHead> {
        let own = self.streams.get(stream).map(|head| self.line(head)).unwrap_or_default();
        let of = |line: &[&'o StreamHead], other: &[&'o StreamHead]| -> Vec<&'o StreamHead> {
            let is_shared = |head: &StreamHead| other.iter().any(|of| of.stream == head.stream);
            line.iter().copied().filter(|head| is_branch(head) && !is_shared(head)).collect()
        };
        let older = own.iter().rev().find(|head| is_branch(head) && taken < head.started);
        // Another receiver of the same history has branches of its own.
        let (behind, its) = (of(&self.present, &own), of(&own, &self.present));
        let behind = behind.last().filter(|_| behind.len() > its.len());
        older.or(behind).copied()
    }
}

fn is_branch(head: &StreamHead) -> bool {
    matches!(head.begins, StreamOrigin::Branch { .. })
}

/// Finds the transactions that streams of other servers have and the newest history lacks, as [`Histories::stranded`] finds it by all segments.
/// Takes no request if all streams are of one server, else three for each stream, and two for each halving of one in which a
/// place is sought.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn stranded(
    root: &Root,
    outlines: &[Outline],
) -> Result<Vec<StrandedTransactions>, RepoError> {
    let is_other = |pair: &[Outline]| {
        let [one, two] = pair else { return false };
        one.head.content.origin().differs_from(two.head.content.origin()).is_some()
    };
    if !outlines.windows(2).any(is_other) {
        return Ok(Vec::new());
    }
    let reading: Vec<_> = outlines.iter().map(|outline| outline.end(root)).collect();
    let found: Vec<FoundEnd> =
        futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    let all = outlines.iter().zip(&found);
    let ends: Vec<LineEnd<'_>> = all.map(|(one, end)| one.line_end(end, false)).collect();
    let Some(number) = present(&ends) else { return Ok(Vec::new()) };
    let mut stranded = Vec::new();
    for (end, lack) in lacks(&ends, number) {
        match lack {
            MissingTransactions::Certain(gtids) => stranded.push((end, gtids)),
            MissingTransactions::ToFind(gtid) => {
                if has(root, outlines, &ends, number, gtid).await? == Some(false) {
                    stranded.push((end, only(gtid)));
                }
            }
        }
    }
    Ok(together(stranded))
}

/// Whether the history that ends with this stream has a transaction.
async fn has(
    root: &Root,
    outlines: &[Outline],
    ends: &[LineEnd<'_>],
    last: usize,
    gtid: Gtid,
) -> Result<Option<bool>, RepoError> {
    let of_domain = |state: Option<GtidState>| match state? {
        GtidState::MariaDb(gtids) => gtids.get(gtid.domain),
        GtidState::MySql(_) => None,
    };
    let reaches = |state| of_domain(state).is_some_and(|at: Gtid| at.sequence >= gtid.sequence);
    let Some(end) = ends.get(last) else { return Ok(None) };
    let mut parts = line(&by_id(ends), end);
    // What another server's branch left is none of it.
    let is_left = |pair: &[LineEnd<'_>]| {
        let [next, before] = pair else { return false };
        matches!(next.head.begins, StreamOrigin::Branch { .. }) && next.is_of_another_server(before)
    };
    let gap = parts.windows(2).position(|pair| {
        let [next, before] = pair else { return false };
        is_behind_gap(next.head, before.head)
    });
    if let Some(at) = parts.windows(2).position(is_left).into_iter().chain(gap).min() {
        parts.truncate(at + 1);
    }
    parts.reverse();
    for (place, part) in parts.iter().enumerate() {
        let next = parts.get(place + 1);
        // What lies behind the place where the next one takes over does not count.
        let over = next.map(|next| next.head.gtids.as_ref().and_then(|gtids| gtids.parse().ok()));
        if over.clone().flatten().is_some_and(|over| !reaches(Some(over))) {
            continue;
        }
        let link = next.and_then(|next| next.head.begins.after());
        let last = link.map(|link| link.number).or_else(|| Some(part.last?.number));
        let outline =
            outlines.iter().find(|one| one.head.content.stream == part.head.stream).zip(last);
        let Some((outline, last)) = outline else { continue };
        let is_it = |head: &SegmentHead| reaches(head.after());
        let Some(found) = outline.first_segment(root, last, is_it).await? else { continue };
        let head = &found.content;
        let is_last = head.number == last;
        let after = over.flatten().filter(|_| is_last).or_else(|| head.after());
        let Some(after) = of_domain(after) else { return Ok(None) };
        let segment = &*ListedSegment::of(&found, None);
        let (before, is_of_gap) = (of_domain(head.before()), gap.is_some());
        let passage = Passage { before, after, segment, is_of_gap };
        return Ok(passage.has(gtid));
    }
    Ok(None)
}

/// [`last_stored`] by all segments.
async fn last_of_all(root: &Root, server: &str) -> Result<Option<Record<SegmentHead>>, RepoError> {
    let mut streams: Vec<Stream> = streams(root, server, &Keyless)
        .await?
        .into_iter()
        .filter_map(|listed| listed.stream)
        .collect();
    streams.retain(|stream| {
        !stream.segments.is_empty() || stream.head.content.begins.after().is_some()
    });
    let Some((newest, _)) = Histories::new(&streams).newest() else { return Ok(None) };
    let last = newest.chain().0.last().map(|piece| piece.segment.number);
    let last = match last {
        None => None,
        Some(number) => {
            let found = one_segment_head(root, server, newest.id(), number).await?;
            let key = || format!("{server}, stream {}, segment {number}", newest.id());
            Some(found.ok_or_else(|| RepoError::Record { key: key() })?)
        }
    };
    or_before(root, server, last, &newest.head.content).await
}

/// The last segment of a stream. If it has stored nothing yet, the archive ends with the segment that it follows.
async fn or_before(
    root: &Root,
    server: &str,
    last: Option<Record<SegmentHead>>,
    head: &StreamHead,
) -> Result<Option<Record<SegmentHead>>, RepoError> {
    match (last, head.begins.after()) {
        (None, Some(link)) => one_segment_head(root, server, &link.stream, link.number).await,
        (last, _) => Ok(last),
    }
}

/// The last segment of a stream, and the time of its newest object by the store's clock.
type FoundEnd = (Option<(Record<SegmentHead>, Arc<ListedSegment>)>, Option<Timestamp>);

async fn outline(root: &Root, folder: String, id: RunId) -> Result<Option<Outline>, RepoError> {
    // `streams` reports faults of records.
    let mut problems = Vec::new();
    let head = record::<StreamHead>(root, &format!("{folder}/{HEAD}"), &mut problems).await?;
    let Some(head) = head.filter(|head| head.content.stream == id.to_string()) else {
        return Ok(None);
    };
    let alive = record::<Alive>(root, &format!("{folder}/{ALIVE}"), &mut problems).await?;
    let end = record::<End>(root, &format!("{folder}/{END}"), &mut problems).await?;
    Ok(Some(Outline { head, alive, has_ended: end.is_some(), folder }))
}

impl Outline {
    /// Number of segments that its sign of life states.
    fn stated(&self) -> Option<u64> {
        self.alive.as_ref().map(|alive| alive.content.segments)
    }

    /// Segments that its sign of life states and that are missing: the number of the first one, and how many they are. Of a long
    /// stream, only its end is looked at. Takes a request, and two more if any are missing.
    ///
    /// # Errors
    /// [`RepoError::Store`] if the store cannot be listed or reached.
    pub async fn missing(&self, root: &Root) -> Result<Option<(u64, u64)>, RepoError> {
        let stated = self.stated().unwrap_or(0);
        missing(root, &self.folder, stated.saturating_sub(LOOKED_AT)..stated).await
    }

    /// Its end, as it was found. That of one that is followed is not read.
    fn line_end<'a>(&'a self, (last, written): &'a FoundEnd, is_followed: bool) -> LineEnd<'a> {
        let alive = self.alive.as_ref().map(|alive| &alive.content);
        let (head, last) = (&self.head.content, last.as_ref().map(|(_, last)| &**last));
        let covered = alive.and_then(|alive| alive.covered_until);
        let life = Some(life(head, last, covered, *written));
        let known = last.map_or(0, |last| last.number.saturating_add(1));
        let lost = alive.filter(|_| !is_followed);
        let lost = lost.and_then(|alive| lost_end(alive.segments, known, Some(&alive.position)));
        LineEnd { head, last, lost, life, received: None, segments: None, left: None }
    }

    /// The last segment up to which the stream has no hole, as far as its sign of life does not say that there
    /// is none; `None` if it has no segment. Lists only what was stored after the sign of life. If the last one cannot be read,
    /// as one that was cut when the power failed, it is the last one before it that can.
    ///
    /// # Errors
    /// [`RepoError::Store`] if the store cannot be reached.
    pub async fn last_segment(
        &self,
        root: &Root,
    ) -> Result<Option<Record<SegmentHead>>, RepoError> {
        Ok(self.end(root).await?.0.map(|(last, _)| last))
    }

    /// The same, and the time of its newest object by the store's clock.
    async fn end(&self, root: &Root) -> Result<FoundEnd, RepoError> {
        let stated = self.alive.as_ref().map_or(0, |alive| alive.content.segments);
        let from = stated.saturating_sub(1);
        let (last, written) = match self.tail(root, from).await? {
            (None, _) if from > 0 => self.tail(root, 0).await?,
            found => found,
        };
        let mut next = last;
        for _ in 0..UNREAD {
            let Some((number, size)) = next else { break };
            let key = format!("{}/{}", self.folder, segment_name(number));
            let head = segment_head(root, &key, size).await?;
            if let Some(last) = head.ok().filter(|head| head.content.number == number) {
                let listed = ListedSegment::of(&last, None);
                return Ok((Some((last, listed)), written));
            }
            next = match number.checked_sub(1) {
                Some(before) => {
                    let key = format!("{}/{}", self.folder, segment_name(before));
                    let size = root.store().size(&root.key(&key)).await?;
                    size.map(|size| (before, size))
                }
                None => None,
            };
        }
        Ok((None, written))
    }

    /// The first segment up to number `last` that has a position, or the beginning of what follows it; `None` if
    /// it is removed, or cannot be read. Takes two requests for each halving.
    ///
    /// # Errors
    /// [`RepoError::Store`] if the store cannot be reached.
    pub async fn segment_at(
        &self,
        root: &Root,
        at: &LogPosition,
        last: u64,
    ) -> Result<Option<Record<SegmentHead>>, RepoError> {
        let reaches = |head: &SegmentHead| {
            let order = head.end().and_then(|end| end.partial_cmp(at));
            matches!(order, Some(Ordering::Equal | Ordering::Greater))
        };
        self.first_segment(root, last, reaches).await
    }

    /// The first segment up to number `last` that reaches a place, which all behind it reach, too.
    async fn first_segment(
        &self,
        root: &Root,
        last: u64,
        reaches: impl Fn(&SegmentHead) -> bool,
    ) -> Result<Option<Record<SegmentHead>>, RepoError> {
        let (mut low, mut high, mut found) = (0, last.saturating_add(1), None);
        while low < high {
            let middle = low + (high - low) / 2;
            let key = format!("{}/{}", self.folder, segment_name(middle));
            let head = match root.store().size(&root.key(&key)).await? {
                Some(size) => segment_head(root, &key, size).await?.ok(),
                // Those at the beginning may be removed.
                None => None,
            };
            match head.filter(|head| reaches(&head.content)) {
                Some(head) => {
                    high = middle;
                    found = Some(head);
                }
                None => low = middle + 1,
            }
        }
        Ok(found)
    }

    /// Number and size of the last segment before a hole, from this number on, and the time of the newest object there, by the
    /// store's clock: `alive` is listed behind the segments.
    async fn tail(
        &self,
        root: &Root,
        from: u64,
    ) -> Result<(Option<(u64, u64)>, Option<Timestamp>), RepoError> {
        let listed = match from.checked_sub(1) {
            Some(before) => root.list_below_after(&self.folder, &segment_name(before)).await?,
            None => root.list_below(&self.folder).await?,
        };
        let own = listed.iter().filter(|listed| parse_floor(&listed.key).is_none());
        let written = own.map(|listed| listed.modified).max().and_then(store_time);
        // Segments before a floor may have been removed.
        let floor = listed.iter().filter_map(|l| parse_floor(&l.key)).max().unwrap_or(0);
        let first = from.max(floor);
        let sizes = listed.iter().filter_map(|l| Some((parse_segment(&l.key)?, l.size)));
        let sizes = sizes.filter(|(number, _)| *number >= first);
        // Behind a hole lies what a receiver had on its way when it was killed.
        let stored = (first..).zip(sizes).take_while(|(n, (number, _))| n == number);
        Ok((stored.map(|(_, last)| last).last(), written))
    }
}
