//! Reads the records of an archive.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use xb_encryptor::{DataKey, KeysObject, MacKey};
use xb_uploader::{ListedObject, StoreError, StoreErrorKind};

use crate::archive::authority::Authority;
use crate::archive::ended::{EndedRecords, ended};
use crate::archive::listed_segment::ListedSegment;
use crate::archive::names::{
    ALIVE, ARCHIVES, END, HEAD, KEYS, STREAMS, floor_name, parse_floor, parse_rollup,
    parse_segment, segment_name, server_folder, stream_folder,
};
use crate::archive::plan::Stream;
use crate::archive::record::{Content, MAX_LEN, Record, RecordError, front};
use crate::archive::rollup::{Span, own_heads, rolled};
use crate::archive::segment::SegmentHead;
use crate::archive::stream::{Alive, End, Floor, StoredPosition, StreamHead};
use crate::error::RepoError;
use crate::names::{BackupName, RunId};
use crate::root::Root;

/// Bytes of a segment in which its head usually ends.
const USUAL_HEAD: u64 = 4096;
/// Records that are read at once.
pub(super) const PARALLEL: usize = 16;
/// Streams that are read at once.
const STREAMS_AT_ONCE: usize = 8;

/// A stream as the store has it.
#[derive(Debug)]
pub struct ListedStream {
    /// ID of the stream.
    pub id: RunId,
    /// Its records, if its head can be read.
    pub stream: Option<Stream>,
    /// Its recorded end.
    pub alive: Option<Record<Alive>>,
    /// Its end, if its receiver was stopped in order.
    pub end: Option<Record<End>>,
    /// Sizes of its segments by number, as they are listed.
    pub sizes: BTreeMap<u64, u64>,
    /// Sizes of segments that a `prune` which did not finish has left before the beginning: nothing needs them.
    pub left: BTreeMap<u64, u64>,
    /// Its roll-ups.
    pub rollups: Vec<Span>,
    /// Bytes of its key slots.
    pub keys: Option<KeysObject>,
    /// Faults of its records.
    pub problems: Vec<Problem>,
    /// Remarks about faults that cost requests or room, and nothing else.
    pub remarks: Vec<String>,
}

/// Problem of a stream whose head names key slots that the store does not have.
pub const NO_SLOTS: &str = "its key slots are missing";

/// Something that is wrong with a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub part: Part,
    /// What.
    pub what: String,
}

/// A part of a stream that may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A record without which nothing of the stream can be used.
    Stream,
    /// A segment: it counts if it is on the way.
    Segment,
    /// The same, of one that is missing: it counts unless another stream has received it again.
    Missing,
    /// A record that shows how far the stream reaches.
    End,
}

impl Problem {
    fn new(part: Part, what: impl Into<String>) -> Self {
        Self { part, what: what.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// The names of the servers that have an archive. A folder that cannot be one is passed over, with a warning.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn servers(root: &Root) -> Result<Vec<String>, RepoError> {
    let mut folders = root.folders_below(ARCHIVES).await?;
    folders.retain(|folder| {
        // The last one is made with the file system, and only root may read it.
        let is_archive = BackupName::new(folder).is_ok() && folder != "lost+found";
        if !is_archive {
            warn_once(&format!(
                "skipped the folder {}: it cannot be the archive of a server, and belongs to another program",
                format!("{ARCHIVES}/{folder}").escape_debug()
            ));
        }
        is_archive
    });
    Ok(folders)
}

/// Warns of something about an archive, unless this process has done so.
fn warn_once(message: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(message.to_owned()) {
        xb_uploader::warn(message);
    }
}

/// Reads the records of all streams of a server, in the order in which they began. What cannot be read is a
/// problem of its stream. A record or a segment counts as missing only if the store says so when it is asked
/// for it by name, too. Roll-ups save most of the requests for heads, and for the records of streams that have ended. Which
/// segments are authentic is as `authority` says; [`ListedStream::authenticate`] tells it of the other records.
///
/// # Errors
/// [`RepoError::Name`]; [`RepoError::Store`] if the store cannot be listed or reached.
pub async fn streams(
    root: &Root,
    server: &str,
    authority: &dyn Authority,
) -> Result<Vec<ListedStream>, RepoError> {
    read_all(root, server, (authority, true)).await
}

/// The same by the records themselves, at five requests for each stream.
///
/// # Errors
/// Those of [`streams`].
pub async fn streams_by_records(
    root: &Root,
    server: &str,
    authority: &dyn Authority,
) -> Result<Vec<ListedStream>, RepoError> {
    read_all(root, server, (authority, false)).await
}

async fn read_all(
    root: &Root,
    server: &str,
    (authority, by_rollups): (&dyn Authority, bool),
) -> Result<Vec<ListedStream>, RepoError> {
    let folder = server_folder(server)?;
    let mut all: BTreeMap<RunId, StreamObjects> = BTreeMap::new();
    let mut written: BTreeMap<RunId, i64> = BTreeMap::new();
    let mut rollups = Vec::new();
    let mut add = |id: RunId, name: &str, listed: &ListedObject| {
        // Who prunes writes a floor.
        if parse_floor(name).is_none() {
            let newest = written.entry(id).or_default();
            *newest = listed.modified.max(*newest);
        }
        all.entry(id).or_default().add(name, listed.size);
    };
    let mut known = BTreeSet::new();
    for listed in root.list_below(&folder).await? {
        let Some((id, name)) = listed.key.split_once('/') else { continue };
        if id == STREAMS && by_rollups {
            rollups.push(name.to_owned());
        } else if let Some(id) = RunId::parse(id) {
            known.insert(id);
            add(id, name, &listed);
        }
    }
    let unlisted = unlisted(root, &folder, &known).await?;
    for id in &unlisted {
        let listed = root.list_below(&stream_folder(&folder, *id)).await?;
        listed.iter().for_each(|listed| add(*id, &listed.key, listed));
    }
    // What is listed nowhere is asked for by name.
    for id in unlisted {
        let _ = all.entry(id).or_default();
    }
    let is_listed = |id: RunId, number: u64| {
        all.get(&id).is_some_and(|objects| objects.segments.contains_key(&number))
    };
    let (mut ended, remarks) = ended(root, &folder, rollups, authority, is_listed).await?;
    let reading: Vec<_> = all
        .into_iter()
        .map(|(id, objects)| {
            let ended = ended.remove(&id).filter(|ended| ended.fit(&objects.records));
            read(root, &folder, (id, authority), objects, ended)
        })
        .collect();
    let mut found: Vec<ListedStream> =
        futures::stream::iter(reading).buffered(STREAMS_AT_ONCE).try_collect().await?;
    for ListedStream { id, stream, .. } in &mut found {
        if let Some(stream) = stream {
            stream.written = written.get(id).and_then(|seconds| store_time(*seconds));
        }
    }
    found.sort_by_key(|found| found.stream.as_ref().map(|stream| stream.head.content.started));
    if let Some(first) = found.first_mut() {
        first.remarks.extend(remarks);
    }
    Ok(found)
}

/// The streams that a listing of objects lacks, and that of the folders has: without the newest one, an older state would look
/// like the latest.
async fn unlisted(
    root: &Root,
    folder: &str,
    known: &BTreeSet<RunId>,
) -> Result<Vec<RunId>, RepoError> {
    let mut found = Vec::new();
    for id in root.folders_below(folder).await?.iter().filter_map(|name| RunId::parse(name)) {
        // A receiver that was killed may leave an empty directory.
        let head = root.key(&format!("{}/{HEAD}", stream_folder(folder, id)));
        if !known.contains(&id) && root.store().size(&head).await?.is_some() {
            found.push(id);
        }
    }
    Ok(found)
}

/// Sizes of the objects of a stream, as they are listed.
#[derive(Default)]
struct StreamObjects {
    /// Segments by number, which are many.
    segments: BTreeMap<u64, u64>,
    /// All others by name.
    records: BTreeMap<String, u64>,
}

impl StreamObjects {
    fn add(&mut self, name: &str, size: u64) {
        match parse_segment(name) {
            Some(number) => self.segments.insert(number, size),
            None => self.records.insert(name.to_owned(), size),
        };
    }
}

/// The records of a stream, and what is wrong with them.
struct StreamRecords {
    head: Option<Record<StreamHead>>,
    keys: Option<KeysObject>,
    alive: Option<Record<Alive>>,
    end: Option<Record<End>>,
    /// Heads of all its segments, by their numbers, or none.
    segments: BTreeMap<u64, Arc<ListedSegment>>,
    problems: Vec<Problem>,
}

impl StreamRecords {
    fn of_ended(ended: EndedRecords, sizes: &BTreeMap<u64, u64>) -> Self {
        let EndedRecords { head, keys, alive, end, segments, .. } = ended;
        let segments = own_heads(&segments, sizes).into_iter().collect();
        let (head, alive, end) = (Some(head), Some(alive), Some(end));
        Self { head, keys, alive, end, segments, problems: Vec::new() }
    }

    /// Reads those in `listed`, and any that a listing may lack.
    async fn read(
        root: &Root,
        folder: &str,
        id: RunId,
        listed: &BTreeMap<String, u64>,
    ) -> Result<Self, RepoError> {
        let get = async |name: &str| {
            let key = format!("{folder}/{name}");
            match small(root, &key).await? {
                // One answer that there is none is not believed.
                None if listed.contains_key(name) => small(root, &key).await,
                found => Ok(found),
            }
        };
        let (mut unusable, mut of_end) = (Vec::new(), Vec::new());
        let head = decoded::<StreamHead>(HEAD, get(HEAD).await?, &mut unusable);
        if head.is_none() && unusable.is_empty() {
            unusable.push("its head is missing".to_owned());
        }
        let mut problems: Vec<Problem> = of(Part::Stream, unusable).collect();
        let alive = decoded::<Alive>(ALIVE, get(ALIVE).await?, &mut of_end);
        let end = decoded::<End>(END, get(END).await?, &mut of_end);
        let is_own = |stream: &str| stream == id.to_string();
        let alive = alive.filter(|alive| is_own(&alive.content.stream));
        let end = end.filter(|end| is_own(&end.content.stream));
        problems.extend(of(Part::End, of_end));
        let is_sealed = head.as_ref().is_some_and(|head| !head.content.sealed.is_empty());
        let slots = match get(KEYS).await? {
            // Nor is one if the head, which is written before them, names them.
            None if is_sealed => get(KEYS).await?,
            found => found,
        };
        let keys = match slots {
            Some(bytes) => match KeysObject::parse(&bytes) {
                Ok(keys) => Some(keys),
                Err(error) => {
                    problems.push(Problem::new(Part::Stream, format!("{KEYS}: {error}")));
                    None
                }
            },
            None => None,
        };
        Ok(Self { head, keys, alive, end, segments: BTreeMap::new(), problems })
    }
}

/// A time by the store's clock, of which a store that has none says 0. It has seconds: one that is written in the same second is
/// not before the time that it states.
pub(super) fn store_time(seconds: i64) -> Option<Timestamp> {
    let end = seconds.checked_add(1).filter(|_| seconds > 0)?;
    Timestamp::from_second(end).ok()
}

async fn read(
    root: &Root,
    folder: &str,
    (id, authority): (RunId, &dyn Authority),
    objects: StreamObjects,
    ended: Option<EndedRecords>,
) -> Result<ListedStream, RepoError> {
    let folder = stream_folder(folder, id);
    let StreamObjects { segments: mut sizes, records: objects } = objects;
    let records = match ended {
        Some(ended) => StreamRecords::of_ended(ended, &sizes),
        None => StreamRecords::read(root, &folder, id, &objects).await?,
    };
    let StreamRecords { head, keys, alive, end, mut segments, mut problems } = records;
    let mac = keys.as_ref().and_then(|slots| authority.key(id, slots));
    let floors: BTreeSet<u64> = objects.keys().filter_map(|name| parse_floor(name)).collect();
    let removed_below = floors.last().copied().unwrap_or(0);
    // Segments before the last floor count from the beginning, or from a floor of their own: a `prune` that was killed
    // leaves others.
    if sizes.range(..removed_below).next().is_some() {
        for number in std::iter::once(0).chain(floors.range(..removed_below).copied()) {
            // A listing may lack the beginning; asked for by name, the store does not.
            let key = root.key(&format!("{folder}/{}", segment_name(number)));
            if let Entry::Vacant(vacant) = sizes.entry(number)
                && let Some(size) = root.store().size(&key).await?
            {
                vacant.insert(size);
            }
        }
    }
    let is_begin = |number: &u64| *number == 0 || floors.contains(number);
    let begin = sizes.range(..removed_below).map(|(number, _)| *number).find(is_begin);
    let first = begin.unwrap_or(removed_below);
    let floor = match first {
        0 => None,
        number => {
            let name = floor_name(number);
            let mut wrong = Vec::new();
            let floor = record::<Floor>(root, &format!("{folder}/{name}"), &mut wrong).await?;
            problems.extend(of(Part::Stream, wrong));
            floor.map(|floor| floor.content).filter(|floor| {
                let is_own = floor.stream == id.to_string() && floor.number == number;
                if !is_own {
                    let what = format!("{name} is that of another stream");
                    problems.push(Problem::new(Part::Stream, what));
                }
                is_own
            })
        }
    };
    let from_first = sizes.split_off(&first);
    // A roll-up has the heads of what is left before it, too.
    segments = segments.split_off(&first);
    let left = std::mem::replace(&mut sizes, from_first);
    // Segments on their way when a receiver was killed may have holes; those that its records state may not.
    let stated = stated(alive.as_ref(), end.as_ref());
    let known = sizes.keys().next_back().map_or(0, |last| last + 1);
    let mut missing = 0_u64;
    // No more questions than a few for each segment that is there: the count is only a claim.
    let asked = (sizes.len() as u64 * 2).saturating_add(1024).saturating_add(first);
    let mut number = first;
    while number < known.max(stated.min(asked)) && missing <= 1024 {
        if let Entry::Vacant(vacant) = sizes.entry(number) {
            // A listing may lack what was just written; asked for by name, the store does not.
            let key = root.key(&format!("{folder}/{}", segment_name(number)));
            match root.store().size(&key).await? {
                Some(size) => drop(vacant.insert(size)),
                None if number < removed_below => {
                    let left = sizes.range(number..removed_below).next();
                    number = left.map_or(removed_below, |(number, _)| *number);
                    continue;
                }
                None => {
                    missing += 1;
                    if number < stated && missing <= 8 {
                        let what = format!("segment {number} is missing");
                        problems.push(Problem::new(Part::Missing, what));
                    }
                }
            }
        }
        number += 1;
    }
    let rollups: Vec<Span> = objects.keys().filter_map(|name| parse_rollup(name)).collect();
    let mut remarks = Vec::new();
    if segments.is_empty() {
        (segments, remarks) =
            rolled(root, &folder, &id.to_string(), &sizes, &rollups, mac.as_ref()).await?;
    }
    let others = sizes.iter().filter(|(number, _)| !segments.contains_key(number));
    let reading = others.map(|(number, size)| {
        let key = format!("{folder}/{}", segment_name(*number));
        let mac = mac.as_ref();
        async move {
            let head = segment_head(root, &key, *size).await?;
            Ok::<_, RepoError>((*number, head.map(|head| ListedSegment::of(&head, mac))))
        }
    });
    let reading: Vec<_> = reading.collect();
    let heads: Vec<(u64, Result<Arc<ListedSegment>, String>)> =
        futures::stream::iter(reading).buffered(PARALLEL).try_collect().await?;
    for (number, head) in heads {
        match head {
            Ok(head) if head.number != number || head.stream != id.to_string() => {
                let what = format!(
                    "segment {number} is segment {} of stream {}: it was moved here",
                    head.number, head.stream
                );
                problems.push(Problem::new(Part::Segment, what));
            }
            Ok(head) => drop(segments.insert(number, head)),
            Err(what) => {
                problems.push(Problem::new(Part::Segment, format!("segment {number}: {what}")));
            }
        }
    }
    if !left.is_empty() {
        remarks.push(format!(
            "{} of the segments before {} are left over from a `prune` that did not finish: they are not needed, and the next `prune` removes them",
            left.len(),
            segment_name(first)
        ));
    }
    let covered_until = alive.as_ref().and_then(|alive| alive.content.covered_until);
    let head = head.filter(|head| {
        let is_own = head.content.stream == id.to_string();
        if !is_own {
            let what = format!("its head is that of stream {}", head.content.stream);
            problems.push(Problem::new(Part::Stream, what));
        }
        is_own
    });
    let shows_end = alive.is_some() || end.is_some();
    let is_sealed = head.as_ref().is_some_and(|head| !head.content.sealed.is_empty());
    // A receiver that was killed may have written its head, and nothing else.
    let has_more = !sizes.is_empty() || shows_end;
    let has_problem = problems.iter().any(|problem| problem.part == Part::Stream);
    if is_sealed && keys.is_none() && has_more && !has_problem {
        problems.push(Problem::new(Part::Stream, NO_SLOTS));
    }
    let stated_end = stated_end(alive.as_ref(), stated);
    let stream = head.map(|head| Stream {
        head,
        segments,
        stated,
        end: stated_end,
        shows_end,
        floor,
        removed_below,
        covered_until,
        written: None,
    });
    Ok(ListedStream { id, stream, alive, end, sizes, left, rollups, keys, problems, remarks })
}

fn of(part: Part, problems: Vec<String>) -> impl Iterator<Item = Problem> {
    problems.into_iter().map(move |what| Problem::new(part, what))
}

/// Number of segments that the records of a stream's end say are stored.
fn stated(alive: Option<&Record<Alive>>, end: Option<&Record<End>>) -> u64 {
    let stated = [alive.map(|alive| alive.content.segments), end.map(|end| end.content.segments)];
    stated.into_iter().flatten().max().unwrap_or(0)
}

/// Position behind the last one of that many segments, if `alive` states it.
fn stated_end(alive: Option<&Record<Alive>>, stated: u64) -> Option<StoredPosition> {
    let alive = &alive.filter(|alive| alive.content.segments == stated)?.content;
    Some(alive.position.clone())
}

/// Reads a record of at most [`MAX_LEN`] bytes; `None` if it is missing, or unreadable, which is a problem.
pub(super) async fn record<T: Content>(
    root: &Root,
    key: &str,
    problems: &mut Vec<String>,
) -> Result<Option<Record<T>>, RepoError> {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    Ok(decoded(name, small(root, key).await?, problems))
}

fn decoded<T: Content>(
    name: &str,
    bytes: Option<Bytes>,
    problems: &mut Vec<String>,
) -> Option<Record<T>> {
    let decoded = Record::decode(&bytes?);
    decoded.map_err(|error| problems.push(format!("{name}: {error}"))).ok()
}

async fn small(root: &Root, key: &str) -> Result<Option<Bytes>, StoreError> {
    match root.store().get(&root.key(key)).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the head of a segment of `size` bytes; an error of the head itself is the inner one.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be reached.
pub(crate) async fn segment_head(
    root: &Root,
    key: &str,
    size: u64,
) -> Result<Result<Record<SegmentHead>, String>, RepoError> {
    Ok(segment_head_text(root, key, size).await?.map(|(head, _)| head))
}

/// The same, and its bytes.
pub(super) async fn segment_head_text(
    root: &Root,
    key: &str,
    size: u64,
) -> Result<Result<(Record<SegmentHead>, Bytes), String>, RepoError> {
    let full = root.key(key);
    let mut wanted = USUAL_HEAD.min(size);
    loop {
        let bytes = match root.store().get_range(&full, 0..wanted, size).await {
            Ok(bytes) => bytes,
            Err(error) if is_of_object(&error) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let most = (MAX_LEN as u64).min(size);
        match front(&bytes) {
            Some(len) => {
                let text = bytes.slice(..len);
                let decoded = Record::<SegmentHead>::decode(&text).and_then(|record| {
                    let whole = record.content.body.len.checked_add(len as u64);
                    match whole == Some(size) {
                        true => Ok((record, text)),
                        false => Err(RecordError::Malformed(format!(
                            "the object has {size} bytes, but its head gives {} after it",
                            record.content.body.len
                        ))),
                    }
                });
                return Ok(decoded.map_err(|error| error.to_string()));
            }
            None if wanted < most => wanted = most,
            None => return Ok(Err(RecordError::NoCheck.to_string())),
        }
    }
}

/// Returns whether a segment is stored with this head.
///
/// # Errors
/// [`RepoError`] if the store cannot be reached.
pub async fn is_stored(
    root: &Root,
    server: &str,
    stream: &str,
    number: u64,
    digest: &str,
) -> Result<bool, RepoError> {
    let Some(id) = RunId::parse(stream) else { return Ok(false) };
    let folder = stream_folder(&server_folder(server)?, id);
    let key = format!("{folder}/{}", segment_name(number));
    match root.store().size(&root.key(&key)).await? {
        Some(size) => {
            let head = segment_head(root, &key, size).await?;
            Ok(head.is_ok_and(|head| head.digest == *digest))
        }
        None => Ok(false),
    }
}

fn is_of_object(error: &StoreError) -> bool {
    matches!(
        error.kind,
        StoreErrorKind::NotFound | StoreErrorKind::Damaged | StoreErrorKind::Altered
    )
}

impl ListedStream {
    /// Returns whether nothing is stored of it but its head and its keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.alive.is_none() && self.end.is_none()
    }

    /// Returns whether it is sealed, as its key slots or its head say: a store may deny the slots.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        let named = self.stream.as_ref().map(|stream| &stream.head.content.sealed);
        self.keys.is_some() || named.is_some_and(|slots| !slots.is_empty())
    }

    /// Checks that holders of the stream's key wrote all its records; adds a problem for each that they did
    /// not, and ignores it. Of the segments, the authority has told it when they were read.
    pub fn authenticate(&mut self, key: &DataKey) {
        let mac: MacKey = key.archive_mac(&self.id.0);
        let forged =
            |part, what: &str| Problem::new(part, format!("{what}: {}", RecordError::NotAuthentic));
        let mut problems = Vec::new();
        if self.alive.take_if(|alive| alive.authenticate(&mac).is_err()).is_some() {
            problems.push(forged(Part::End, ALIVE));
        }
        if self.end.take_if(|end| end.authenticate(&mac).is_err()).is_some() {
            problems.push(forged(Part::End, END));
        }
        let stated = stated(self.alive.as_ref(), self.end.as_ref());
        if let Some(stream) = &mut self.stream {
            if stream.head.authenticate(&mac).is_err() {
                problems.push(forged(Part::Stream, HEAD));
            }
            stream.stated = stated;
            stream.end = stated_end(self.alive.as_ref(), stated);
            stream.shows_end = self.alive.is_some() || self.end.is_some();
            stream.covered_until =
                self.alive.as_ref().and_then(|alive| alive.content.covered_until);
            stream.segments.retain(|number, segment| {
                if !segment.is_authentic {
                    problems.push(forged(Part::Segment, &format!("segment {number}")));
                }
                segment.is_authentic
            });
        }
        self.problems.append(&mut problems);
    }
}
