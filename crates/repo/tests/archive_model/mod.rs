//! Archives made up of heads, and the model of a server's history that they are compared with: the order of its commits.
#![allow(dead_code, reason = "each program needs a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use xb_binlog::{AnyGtid, Gtid, GtidPosition, GtidState, LogPosition};
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::plan::{Histories, Plan, PlanError, Stream};
use xb_repo::archive::record::{FORMAT, Record, RecordDigest, digest};
use xb_repo::archive::segment::{Body, Commits, LastTransaction, SegmentHead};
use xb_repo::archive::stop::{Cutter, RestoreStop};
use xb_repo::archive::stream::{Floor, Link, StoredPosition, StreamHead, StreamOrigin};

/// The receiver's clock.
pub(crate) const NOW: i64 = 1_000_000;
/// Where a native stream would be, which is not read.
pub(crate) const BODY: &[u8] = b"XBRSTR01";

/// A transaction where it lies.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) gtid: AnyGtid,
    pub(crate) seconds: u32,
    pub(crate) log: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

pub(crate) fn log_name(number: u64) -> String {
    format!("bin.{number:06}")
}

pub(crate) fn at(log: u64, offset: u64) -> StoredPosition {
    StoredPosition { log: log_name(log).into(), offset }
}

pub(crate) fn position(log: u64, offset: u64) -> LogPosition {
    LogPosition::new(&log_name(log), offset).unwrap()
}

pub(crate) fn gtid(is_mysql: bool, number: u64) -> AnyGtid {
    match is_mysql {
        true => format!("11111111-2222-3333-4444-555555555555:{number}").parse().unwrap(),
        false => Gtid { domain: 0, server: 1, sequence: number }.into(),
    }
}

thread_local! {
    /// The heads of which [`listed`] has made segments.
    static HEADS: RefCell<HashMap<RecordDigest, SegmentHead>> = RefCell::default();
}

/// The segment with this head, as a listing has it.
pub(crate) fn listed(head: SegmentHead) -> Arc<ListedSegment> {
    let record = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
    HEADS.with_borrow_mut(|heads| heads.insert(record.digest, head));
    ListedSegment::of(&record, None)
}

/// The head of a segment.
pub(crate) fn head_of(segment: &ListedSegment) -> SegmentHead {
    HEADS.with_borrow(|heads| heads[&segment.digest].clone())
}

/// A server's history of either fork: time, length, and whether another log follows.
pub(crate) fn history() -> impl Strategy<Value = Vec<Change>> {
    let each = (0_u32..40, 1_u64..50, prop::bool::weighted(0.2), prop::bool::weighted(0.05));
    (vec(each, 1..40), any::<bool>()).prop_map(|(all, is_mysql)| {
        let (mut log, mut offset, mut changes) = (1, 300, Vec::new());
        for (n, (seconds, len, rotates, is_ahead)) in all.into_iter().enumerate() {
            let gtid = gtid(is_mysql, n as u64 + 1);
            // A clock that was a day ahead for one transaction.
            let seconds = if is_ahead { NOW as u32 + 86_400 } else { seconds };
            changes.push(Change { gtid, seconds, log, begin: offset, end: offset + len });
            offset += len;
            if rotates {
                log += 1;
                offset = 300;
            }
        }
        changes
    })
}

pub(crate) fn gtids(changes: &[Change], log: u64, offset: u64) -> GtidState {
    let mut position = GtidState::MariaDb(GtidPosition::default());
    for change in changes.iter().filter(|each| (each.log, each.end) <= (log, offset)) {
        assert!(position.add(change.gtid.clone()));
    }
    position
}

/// The last transactions of each server in a part of a log, before another one wrote on.
fn turns(changes: &[Change], (log, offset): (u64, u64), to: u64) -> Option<Vec<String>> {
    let pairs = changes.windows(2).filter_map(|pair| match (&pair[0].gtid, &pair[1].gtid) {
        (AnyGtid::MariaDb(one), AnyGtid::MariaDb(two)) if one.server != two.server => {
            let is_here = pair[1].log == log && offset < pair[1].end && pair[1].end <= to;
            is_here.then(|| one.to_string())
        }
        _ => None,
    });
    Some(pairs.collect())
}

/// The stream from a position on, cut at these distances, and how many segments are stored.
pub(crate) fn stream(
    changes: &[Change],
    id: u8,
    (start, begins): ((u64, u64), StreamOrigin),
    cuts: &[u64],
    covered: Option<i64>,
) -> Stream {
    // Streams from this number on are of another server.
    let server_id = if id < OTHER_SERVER { 1 } else { 2 };
    let id = format!("{id:032x}");
    let state = |log, offset| Some(gtids(changes, log, offset).to_string());
    let mut head = StreamHead {
        format: FORMAT,
        stream: id.clone(),
        server: "shop".to_owned(),
        tool: "test".to_owned(),
        started: Timestamp::from_second(NOW + i64::from(id.as_bytes()[31])).unwrap(),
        server_version: "10.11.19-MariaDB".to_owned(),
        server_id,
        server_uuid: None,
        node: None,
        host: None,
        repeats: None,
        outside: None,
        start: at(start.0, start.1),
        gtids: state(start.0, start.1),
        settings: BTreeMap::new(),
        settings_at: None,
        system_zone: None,
        engines: Vec::new(),
        doubts: Vec::new(),
        begins,
        sealed: Vec::new(),
    };
    head.format = head.needed_format();
    let head = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
    let mut segments: BTreeMap<u64, Arc<ListedSegment>> = BTreeMap::new();
    let last_log = changes.last().map_or(1, |last| last.log);
    let end_of = |log| {
        let ends = changes.iter().filter(|each| each.log == log).map(|each| each.end);
        ends.max().unwrap_or(300) + if log < last_log { 40 } else { 0 }
    };
    let (mut log, mut offset) = start;
    for cut in cuts {
        let end = end_of(log);
        if offset >= end {
            break;
        }
        let to = (offset + cut).min(end);
        let inside = |offset| {
            changes.iter().any(|each| each.log == log && each.begin < offset && offset < each.end)
        };
        let ended = changes
            .iter()
            .filter(|each| each.log == log && offset < each.end && each.end <= to)
            .collect::<Vec<_>>();
        let sane: Vec<u32> = ended
            .iter()
            .map(|each| each.seconds)
            .filter(|time| i64::from(*time) <= NOW + 5)
            .collect();
        // Before its first transaction, a stream knows only one that it receives again: it begins behind that.
        let is_last =
            |each: &&Change| start <= (each.log, each.end) && (each.log, each.end) <= (log, to);
        let last = changes.iter().rfind(is_last);
        let number = segments.len() as u64;
        let previous = segments.values().next_back().map_or(head.digest, |last| last.digest);
        let is_end = to == end && log < last_log;
        let segment = SegmentHead {
            format: FORMAT,
            stream: id.clone(),
            number,
            previous: previous.to_string(),
            from: at(log, offset),
            to: at(log, to),
            next_log: is_end.then(|| log_name(log + 1)),
            description: String::new(),
            gtids_before: state(log, offset),
            gtids_after: state(log, to),
            starts_inside: inside(offset),
            ends_inside: inside(to),
            transactions: ended.len() as u64,
            domains: None,
            turns: turns(changes, (log, offset), to),
            commits: sane.iter().max().map(|greatest| Commits {
                first: sane[0],
                last: *sane.last().unwrap(),
                greatest: *greatest,
            }),
            received: [Timestamp::from_second(NOW).unwrap(); 2],
            last: last.map(|last| LastTransaction {
                gtid: last.gtid.to_string(),
                from: at(last.log, last.begin),
                to: at(last.log, last.end),
                sha256: digest(b""),
            }),
            barriers: Vec::new(),
            more_barriers: 0,
            prepared: 0,
            altering: 0,
            body: Body { id: None, len: BODY.len() as u64, sha256: digest(BODY) },
        };
        segments.insert(number, listed(segment));
        (log, offset) = if is_end { (log + 1, 4) } else { (log, to) };
    }
    let stated = segments.len() as u64;
    let covered_until = covered.map(|time| Timestamp::from_second(time).unwrap());
    Stream {
        head,
        segments,
        stated,
        end: None,
        shows_end: true,
        floor: None,
        removed_below: 0,
        covered_until,
        written: None,
    }
}

/// Streams, each of which follows some segment of the one before it, the last with everything.
pub(crate) fn archive(changes: &[Change], lives: &[Vec<u64>], covered: i64) -> Vec<Stream> {
    let mut all = vec![];
    let mut start = ((1, 4), StreamOrigin::First);
    for (n, cuts) in lives.iter().enumerate() {
        let made = stream(changes, n as u8, start.clone(), cuts, None);
        if let Some(last) = made.segments.values().next_back()
            && let Some([_, end]) = last.last.as_deref()
        {
            let after = Link {
                stream: made.id().to_owned(),
                number: last.number,
                head: last.digest.to_string(),
            };
            let log = end.log.rsplit_once('.').unwrap().1.parse().unwrap();
            start = ((log, end.offset), StreamOrigin::Continues { after, at: None });
            all.push(made);
        }
    }
    all.push(stream(changes, lives.len() as u8, start, &[17; 2000], Some(covered)));
    all
}

/// The transactions that a replay by this plan applies.
pub(crate) fn replayed(plan: &Plan<'_>, changes: &[Change], base: &Base) -> Vec<AnyGtid> {
    found(plan, changes, base).0
}

/// The same, whether the stop was found, and whether it is doubtful.
pub(crate) fn found(
    plan: &Plan<'_>,
    changes: &[Change],
    base: &Base,
) -> (Vec<AnyGtid>, bool, bool) {
    let mut cutter = Cutter::new(&plan.stop);
    let mut taken = Vec::new();
    for piece in &plan.pieces {
        let head = piece.segment;
        for change in changes {
            let begin = position(change.log, change.begin);
            let is_here = head.from.log == log_name(change.log)
                && head.from.offset <= change.begin
                && change.begin < piece.until;
            if is_here
                && begin >= base.position
                && cutter.takes(
                    &begin,
                    &change.gtid,
                    u64::from(change.seconds) * 1_000_000,
                    head.clock(),
                )
            {
                taken.push(change.gtid.clone());
            }
        }
    }
    (taken, cutter.has_stopped(), cutter.is_doubtful())
}

pub(crate) fn base_at(changes: &[Change], number: usize) -> (Base, usize) {
    let number = number % (changes.len() + 1);
    let (log, offset) = match changes.get(number) {
        Some(next) => (next.log, next.begin),
        None => changes.last().map(|last| (last.log, last.end)).unwrap(),
    };
    let gtids = Some(gtids(changes, log, offset));
    (
        Base {
            position: position(log, offset),
            gtids,
            at_most: None,
            taken: Timestamp::UNIX_EPOCH,
            is_shown_by_bytes: false,
        },
        number,
    )
}

/// ID of the first stream that is of another server.
pub(crate) const OTHER_SERVER: u8 = 200;

pub(crate) fn simple(
    changes: &[Change],
    begins: StreamOrigin,
    id: u8,
    start: (u64, u64),
) -> Stream {
    stream(changes, id, (start, begins), &[50; 40], None)
}

/// The link of a stream that follows all segments of this one.
pub(crate) fn link_to_end(stream: &Stream) -> Link {
    let last = stream.segments.values().next_back().unwrap();
    Link { stream: stream.id().to_owned(), number: last.number, head: last.digest.to_string() }
}

pub(crate) fn changes(number: u64) -> Vec<Change> {
    (0..number)
        .map(|n| {
            let gtid = gtid(false, n + 1);
            let begin = 300 + n * 25;
            Change { gtid, seconds: n as u32 * 10, log: 1, begin, end: begin + 25 }
        })
        .collect()
}

/// Without the segments of a stream, as `prune` leaves it: its sign of life states where it ended.
pub(crate) fn removed(stream: &Stream) -> Stream {
    let (link, mut stream) = (link_to_end(stream), stream.clone());
    let at = stream.segments.values().next_back().unwrap().to.clone();
    let number = link.number + 1;
    stream.floor = Some(Floor { format: FORMAT, stream: link.stream, number, head: link.head, at });
    stream.removed_below = number;
    stream.end = stream.floor.as_ref().map(|floor| floor.at.clone());
    stream.segments.clear();
    stream
}

pub(crate) fn plan<'a>(
    streams: &'a [Stream],
    base: &Base,
    stop: &RestoreStop,
) -> Result<Plan<'a>, PlanError> {
    Histories::new(streams).plan(base, stop)
}

pub(crate) fn newest(streams: &[Stream]) -> &Stream {
    Histories::new(streams).newest().unwrap().0
}

pub(crate) fn unproven(streams: &[Stream]) -> Option<&Stream> {
    Histories::new(streams).unproven()
}

pub(crate) fn ends_before(streams: &[Stream], segment: &ListedSegment) -> bool {
    Histories::new(streams).end_before(segment)
}

pub(crate) fn locate(streams: &[Stream], noted: &BasePosition) -> Option<Base> {
    Histories::new(streams).locate(noted)
}
