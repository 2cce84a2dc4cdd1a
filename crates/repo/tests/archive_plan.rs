//! Plans of a restore to a stop, compared with a model: the prefix of the order of commits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use xb_binlog::{AnyGtid, Gtid, GtidPosition, GtidState, LogPosition};
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::plan::{
    Plan, PlanError, Stream, ends_before, furthest, holders, locate, newest, plan, unproven,
    witness,
};
use xb_repo::archive::record::{FORMAT, FORMAT_OF_ANOTHER, Record, RecordError, digest};
use xb_repo::archive::segment::{Body, Commits, LastTransaction, SegmentHead, StoredBarrier};
use xb_repo::archive::stop::{Cutter, RestoreStop};
use xb_repo::archive::stream::{Floor, Link, StoredPosition, StreamHead, StreamOrigin};

/// The receiver's clock.
const NOW: i64 = 1_000_000;

/// A transaction where it lies.
#[derive(Debug, Clone)]
struct Change {
    gtid: AnyGtid,
    seconds: u32,
    log: u64,
    begin: u64,
    end: u64,
}

fn log_name(number: u64) -> String {
    format!("bin.{number:06}")
}

fn at(log: u64, offset: u64) -> StoredPosition {
    StoredPosition { log: log_name(log), offset }
}

fn position(log: u64, offset: u64) -> LogPosition {
    LogPosition::new(&log_name(log), offset).unwrap()
}

fn gtid(is_mysql: bool, number: u64) -> AnyGtid {
    match is_mysql {
        true => format!("11111111-2222-3333-4444-555555555555:{number}").parse().unwrap(),
        false => Gtid { domain: 0, server: 1, sequence: number }.into(),
    }
}

/// A server's history of either fork: time, length, and whether another log follows.
fn history() -> impl Strategy<Value = Vec<Change>> {
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

fn gtids(changes: &[Change], log: u64, offset: u64) -> GtidState {
    let mut position = GtidState::MariaDb(GtidPosition::default());
    for change in changes.iter().filter(|each| (each.log, each.end) <= (log, offset)) {
        assert!(position.add(change.gtid.clone()));
    }
    position
}

/// The stream from a position on, cut at these distances, and how many segments are stored.
fn stream(
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
        start: at(start.0, start.1),
        gtids: state(start.0, start.1),
        settings: BTreeMap::new(),
        system_zone: None,
        begins,
        sealed: Vec::new(),
    };
    head.format = head.needed_format();
    let head = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
    let mut segments: BTreeMap<u64, Record<SegmentHead>> = BTreeMap::new();
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
        let last = changes.iter().rfind(|each| (each.log, each.end) <= (log, to));
        let number = segments.len() as u64;
        let previous: &str =
            segments.values().next_back().map_or(&head.digest, |last| &last.digest);
        let is_end = to == end && log < last_log;
        let segment = SegmentHead {
            format: FORMAT,
            stream: id.clone(),
            number,
            previous: previous.to_owned(),
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
            body: Body { id: None, len: 1, sha256: digest(b"") },
        };
        let record = Record::decode(&Record::encode(&segment, None).unwrap()).unwrap();
        segments.insert(number, record);
        (log, offset) = if is_end { (log + 1, 4) } else { (log, to) };
    }
    let stated = segments.len() as u64;
    let covered_until = covered.map(|time| Timestamp::from_second(time).unwrap());
    Stream {
        head,
        segments,
        stated,
        shows_end: true,
        floor: None,
        removed_below: 0,
        covered_until,
        written: None,
    }
}

/// Streams, each of which follows some segment of the one before it, the last with everything.
fn archive(changes: &[Change], lives: &[Vec<u64>], covered: i64) -> Vec<Stream> {
    let mut all = vec![];
    let mut start = ((1, 4), StreamOrigin::First);
    for (n, cuts) in lives.iter().enumerate() {
        let made = stream(changes, n as u8, start.clone(), cuts, None);
        if let Some(last) = made.segments.values().next_back()
            && let Some(whole) = &last.content.last
        {
            let after = Link {
                stream: made.id().to_owned(),
                number: last.content.number,
                head: last.digest.clone(),
            };
            let log = whole.to.log.rsplit_once('.').unwrap().1.parse().unwrap();
            start = ((log, whole.to.offset), StreamOrigin::Continues { after, at: None });
            all.push(made);
        }
    }
    all.push(stream(changes, lives.len() as u8, start, &[17; 2000], Some(covered)));
    all
}

/// The transactions that a replay by this plan applies.
fn replayed(plan: &Plan<'_>, changes: &[Change], base: &Base) -> Vec<AnyGtid> {
    found(plan, changes, base).0
}

/// The same, whether the stop was found, and whether it is doubtful.
fn found(plan: &Plan<'_>, changes: &[Change], base: &Base) -> (Vec<AnyGtid>, bool, bool) {
    let mut cutter = Cutter::new(&plan.stop);
    let mut taken = Vec::new();
    for piece in &plan.pieces {
        let head = &piece.segment.content;
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

/// Whether a transaction that a stop by time takes may lie behind it: the model of [`Cutter::is_doubtful`], from the other
/// end. Some run of transactions up to the last one has more that are late than those that are not.
fn is_doubtful(taken: &[Change], time: i64) -> bool {
    let mut sum = 0;
    taken.iter().rev().any(|each| {
        sum += if i64::from(each.seconds) > time { 1 } else { -1 };
        sum > 0
    })
}

fn base_at(changes: &[Change], number: usize) -> (Base, usize) {
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
        },
        number,
    )
}

proptest! {
    #[test]
    fn a_replay_applies_the_prefix_of_the_commits(
        changes in history(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        base in 0_usize..40,
        time in 0_i64..60,
        covered in 0_i64..60,
        number in 0_usize..40,
    ) {
        let streams = archive(&changes, &lives, covered);
        let (base, first) = base_at(&changes, base);
        let rest = &changes[first..];
        let all: Vec<AnyGtid> = rest.iter().map(|each| each.gtid.clone()).collect();
        let applied = |stop: &RestoreStop| {
            let plan = plan(&streams, &base, stop)?;
            let (taken, has_stopped, is_doubtful) = found(&plan, &changes, &base);
            let not_found = PlanError::NotReached { stop: String::new(), end: String::new(), known: String::new() };
            match plan.must_be_found && !has_stopped {
                true => Err(not_found),
                false => Ok((taken, is_doubtful)),
            }
        };

        prop_assert_eq!(applied(&RestoreStop::Latest), Ok((all.clone(), false)));

        let is_later = |each: &Change| {
            i64::from(each.seconds) > time && i64::from(each.seconds) <= NOW + 5
        };
        let stop = RestoreStop::Time(Timestamp::from_second(time).unwrap());
        let before = &changes[..first];
        match rest.iter().position(is_later) {
            // The order of the commits says so, if the clock of the backup does not.
            _ if matches!(applied(&stop), Err(PlanError::BeforeBackup { .. })) => {
                prop_assert!(before.iter().any(is_later));
            }
            Some(cut) => prop_assert_eq!(
                applied(&stop),
                Ok((all[..cut].to_vec(), is_doubtful(&rest[..cut], time)))
            ),
            None if covered >= time => {
                prop_assert_eq!(applied(&stop), Ok((all.clone(), is_doubtful(rest, time))));
            }
            None => {
                let is_short = matches!(applied(&stop), Err(PlanError::NotReached { .. }));
                prop_assert!(is_short);
            }
        }

        if let Some(change) = rest.get(number) {
            let until = |stop: RestoreStop| {
                applied(&stop).map(|(taken, is_doubtful)| (!is_doubtful).then_some(taken).unwrap())
            };
            prop_assert_eq!(until(RestoreStop::Gtid(change.gtid.clone())), Ok(all[..=number].to_vec()));
            prop_assert_eq!(until(RestoreStop::BeforeGtid(change.gtid.clone())), Ok(all[..number].to_vec()));
            let at = position(change.log, change.begin);
            prop_assert_eq!(until(RestoreStop::Position(at)), Ok(all[..number].to_vec()));
        }
        let beyond = gtid(matches!(changes[0].gtid, AnyGtid::MySql(_)), 99);
        let error = applied(&RestoreStop::Gtid(beyond));
        let is_refused = matches!(error, Err(PlanError::NotReached { .. }));
        prop_assert!(is_refused, "{:?}", error);
        if first > 1 {
            let before = applied(&RestoreStop::Gtid(changes[first - 2].gtid.clone()));
            let is_refused = matches!(before, Err(PlanError::BeforeBackup { .. }));
        prop_assert!(is_refused, "{:?}", before);
        }
    }

    /// The clock of the host that took a backup may be behind.
    #[test]
    fn a_backup_that_was_taken_after_the_stop_is_refused_whatever_its_clock_says(
        count in 2_u64..40,
        base in 1_usize..40,
        stop in 0_i64..40,
        cuts in vec(20_u64..90, 40),
    ) {
        let each = |n: u64| Change {
            gtid: gtid(false, n + 1),
            seconds: n as u32,
            log: 1,
            begin: 300 + 10 * n,
            end: 310 + 10 * n,
        };
        let changes: Vec<Change> = (0..count).map(each).collect();
        let streams = [stream(&changes, 0, ((1, 4), StreamOrigin::First), &cuts, Some(100))];
        let (base, first) = base_at(&changes, base);
        let stop = stop.min(count as i64);
        let planned = plan(&streams, &base, &RestoreStop::Time(Timestamp::from_second(stop).unwrap()));
        // What lies in the backup's own segment is read later.
        let head = |segment: &SegmentHead| segment.from.offset <= base.position.offset();
        let own = streams[0].segments.values().rfind(|each| head(&each.content)).unwrap();
        let is_known = own.content.from.offset / 10 > 31 + stop as u64;
        let is_refused = matches!(planned, Err(PlanError::BeforeBackup { .. }));
        prop_assert!(is_refused == is_known || first == 0, "{is_refused} {is_known} {first} {stop}");
    }

    /// A clone notes bounds. Wherever its data is between them, every transaction that it lacks is on the way.
    #[test]
    fn a_clone_is_replayed_from_a_place_before_its_data(
        changes in history().prop_filter("of MySQL", |all| matches!(all[0].gtid, AnyGtid::MySql(_))),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        from in 0_usize..40,
        more in 0_usize..5,
        lost in 0_usize..5,
    ) {
        let from = from % (changes.len() + 1);
        let to = (from + more).min(changes.len());
        let stored = changes.len().saturating_sub(lost).max(1);
        let streams = archive(&changes[..stored], &lives, 0);
        let set = |number: usize| {
            let mut set = GtidState::MariaDb(GtidPosition::default());
            changes[..number].iter().for_each(|each| assert!(set.add(each.gtid.clone())));
            set
        };
        let taken = Timestamp::from_second(NOW + 1000).unwrap();
        let noted = BasePosition::Between { from: set(from), to: set(to), taken };
        let base = locate(&streams, &noted).unwrap();
        let begins = changes.iter().position(|each| position(each.log, each.begin) >= base.position);
        prop_assert!(begins.is_none_or(|begins| begins <= from), "{begins:?} {from}");
        match plan(&streams, &base, &RestoreStop::Latest) {
            Ok(plan) => {
                prop_assert!(to <= stored);
                let (taken, ..) = found(&plan, &changes, &base);
                let expected = changes[begins.unwrap_or(stored).min(stored)..stored].iter();
                prop_assert_eq!(taken, expected.map(|each| each.gtid.clone()).collect::<Vec<_>>());
            }
            Err(PlanError::NotReached { .. }) => prop_assert!(to > stored),
            Err(error) => prop_assert!(false, "{error}"),
        }
        if let Some(inside) = to.checked_sub(1) {
            let stop = RestoreStop::Gtid(changes[inside].gtid.clone());
            let is_refused = matches!(plan(&streams, &base, &stop), Err(PlanError::BeforeBackup { .. } | PlanError::NotReached { .. }));
            prop_assert!(is_refused);
        }
    }

    #[test]
    fn a_segment_that_is_missing_or_changed_is_never_passed_over(
        changes in history(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        which: prop::sample::Index,
        is_removed: bool,
    ) {
        let mut streams = archive(&changes, &lives, 0);
        let (base, _) = base_at(&changes, 0);
        let needed: Vec<(String, u64)> = plan(&streams, &base, &RestoreStop::Latest)
            .unwrap()
            .pieces
            .iter()
            .map(|piece| (piece.stream.to_owned(), piece.segment.content.number))
            .collect();
        prop_assume!(!needed.is_empty());
        let (id, number) = which.get(&needed);
        let stream = streams.iter_mut().find(|stream| stream.id() == id).unwrap();
        if is_removed {
            stream.segments.remove(number);
        } else {
            // Its bytes are other ones, so no later head names it.
            let mut head = stream.segments[number].content.clone();
            head.description.push('0');
            let bytes = Record::encode(&head, None).unwrap();
            stream.segments.insert(*number, Record::decode(&bytes).unwrap());
        }
        // Only the last segment of all has no other that names it; `alive` does.
        let is_last = !is_removed && needed.last() == Some(&(id.clone(), *number));
        let found = plan(&streams, &base, &RestoreStop::Latest);
        prop_assert!(is_last || found.is_err(), "{:?}", found);
    }

    #[test]
    fn a_backup_behind_a_hole_reaches_the_end_and_one_before_it_does_not(
        changes in history(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        which: prop::sample::Index,
        backup in 0_usize..40,
        is_noted: bool,
    ) {
        let whole = archive(&changes, &lives, 0);
        let (first, _) = base_at(&changes, 0);
        let pieces = plan(&whole, &first, &RestoreStop::Latest).unwrap().pieces;
        prop_assume!(!pieces.is_empty());
        let lost = *which.get(&pieces);
        let number = lost.segment.content.number;
        let mut streams = whole.clone();
        let stream = streams.iter_mut().find(|stream| stream.id() == lost.stream).unwrap();
        stream.segments.remove(&number);
        stream.removed_below = if is_noted { number + 1 } else { 0 };
        let (base, _) = base_at(&changes, backup);
        let expected = plan(&whole, &base, &RestoreStop::Latest).unwrap();
        let end = LogPosition::new(&lost.segment.content.from.log, lost.until).unwrap();
        let is_behind = base.position >= end;
        match plan(&streams, &base, &RestoreStop::Latest) {
            Ok(found) => {
                prop_assert!(is_behind, "{found:?}");
                prop_assert_eq!(
                    replayed(&found, &changes, &base),
                    replayed(&expected, &changes, &base)
                );
            }
            // Of the last one of all, its end is lost with it.
            Err(error) => prop_assert!(
                !is_behind || base.position == end,
                "{error}: {} {end}", base.position
            ),
        }
    }
}

proptest! {
    /// Two receivers store one history, and either may lag behind, be away, or have a wrong clock.
    #[test]
    fn the_latest_is_the_end_of_the_receiver_that_reached_furthest(
        changes in history(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        others in vec(vec(1_u64..90, 1..12), 0..4),
        (first, second) in (1_usize..40, 1_usize..40),
        (life, other_life) in (0_i64..9000, 0_i64..9000),
        follows in prop::option::of(any::<prop::sample::Index>()),
        base in 0_usize..40,
    ) {
        let (first, second) = (first.min(changes.len()), second.min(changes.len()));
        let mut streams = archive(&changes[..first], &lives, NOW + life);
        // It began at the beginning, too, or continues what the other one had.
        let (start, begins) = match follows.map(|index| index.get(&streams).clone()) {
            Some(before) if before.segments.values().next_back().is_some_and(|last| {
                let end = position(changes[second - 1].log, changes[second - 1].end);
                last.content.last.as_ref().is_some_and(|last| last.to.position().unwrap() < end)
            }) => {
                let last = before.segments.values().next_back().unwrap().content.last.clone().unwrap();
                let log = last.to.log.rsplit_once('.').unwrap().1.parse().unwrap();
                let after = link_to_end(&before);
                ((log, last.to.offset), StreamOrigin::Continues { after, at: None })
            }
            _ => ((1, 4), StreamOrigin::First),
        };
        let cuts: Vec<u64> = others.concat().into_iter().chain([23; 2000]).collect();
        let covered = Some(NOW + other_life);
        streams.push(stream(&changes[..second], 100, (start, begins), &cuts, covered));
        let reached = first.max(second);
        let (base, from) = base_at(&changes[..reached], base);
        let found = plan(&streams, &base, &RestoreStop::Latest);
        let all: Vec<AnyGtid> = changes[from..reached].iter().map(|each| each.gtid.clone()).collect();
        prop_assert_eq!(found.map(|plan| replayed(&plan, &changes, &base)), Ok(all));
    }

    /// A server may have data of domains of which its log has nothing, as one that was built from a backup.
    #[test]
    fn domains_that_the_log_lacks_hide_no_backup(
        changes in of_mariadb(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        backup in 0_usize..40,
        more in vec((1_u32..6, 1_u64..100), 1..4),
    ) {
        let streams = archive(&changes, &lives, 0);
        // Behind a transaction at least: an empty log shows nothing.
        let (plain, first) = base_at(&changes, 1 + backup % changes.len());
        let base = with_domains(&plain, &more);
        let all: Vec<AnyGtid> = changes[first..].iter().map(|each| each.gtid.clone()).collect();
        match plan(&streams, &base, &RestoreStop::Latest) {
            Ok(plan) => {
                prop_assert_eq!(&replayed(&plan, &changes, &base), &all);
                let outside = plan.pieces[0].outside(&base);
                prop_assert!(more.iter().all(|(domain, _)| outside.get(*domain).is_some()));
                let known = plan.pieces[0].outside(&plain);
                prop_assert!(all.iter().all(|gtid| !is_past(&known, gtid)), "{known}");
            }
            // Where nothing else would compare the GTIDs.
            Err(error) => {
                let (begin, _) = base_at(&changes, 0);
                let pieces = plan(&streams, &begin, &RestoreStop::Latest).unwrap().pieces;
                let mut there = pieces.iter().filter(|piece| {
                    let head = &piece.segment.content;
                    let at = &base.position;
                    head.from.log == at.log() && (head.from.offset..=piece.until).contains(&at.offset())
                });
                prop_assert!(there.all(|piece| piece.segment.content.starts_inside), "{error}");
            }
        }
    }

    /// Such a domain may begin in the log later, even within the segment where the backup lies: what the data has of it is
    /// recognised, and what it lacks is not.
    #[test]
    fn a_domain_that_begins_behind_a_backup_is_compared_with_it(
        changes in of_mariadb(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        backup in 0_usize..40,
        begins in 0_usize..40,
        held in 0_u64..12,
    ) {
        let mut changes = changes;
        for (n, change) in changes.iter_mut().skip(begins).enumerate() {
            if n % 2 == 0 {
                change.gtid = Gtid { domain: 4, server: 1, sequence: n as u64 / 2 + 1 }.into();
            }
        }
        let streams = archive(&changes, &lives, 0);
        let (plain, first) = base_at(&changes, backup);
        let later = || changes[first..].iter().map(|change| &change.gtid);
        let of_it = |gtid: &AnyGtid| matches!(gtid, AnyGtid::MariaDb(gtid) if gtid.domain == 4);
        if let Ok(found) = plan(&streams, &plain, &RestoreStop::Latest)
            && let Some(piece) = found.pieces.first()
        {
            let outside = piece.outside(&plain);
            prop_assert!(later().all(|gtid| !is_past(&outside, gtid)), "{outside}");
        }
        prop_assume!(held > 0 && !changes[..first].iter().any(|change| of_it(&change.gtid)));
        let base = with_domains(&plain, &[(4, held)]);
        if let Ok(found) = plan(&streams, &base, &RestoreStop::Latest)
            && let Some(piece) = found.pieces.first()
        {
            let outside = piece.outside(&base);
            for gtid in later() {
                let AnyGtid::MariaDb(each) = gtid else { unreachable!() };
                let is_held = each.domain == 4 && each.sequence <= held;
                prop_assert_eq!(is_past(&outside, gtid), is_held, "{} {}", gtid, outside);
            }
        }
    }

    /// The same name and positions, as of another server, or of one whose log begins behind the backup.
    #[test]
    fn a_log_of_other_transactions_is_not_taken_for_that_of_a_backup(
        changes in of_mariadb(),
        lives in vec(vec(1_u64..90, 1..12), 0..4),
        backup in 0_usize..40,
        more in vec((1_u32..6, 1_u64..100), 0..4),
        kind in 0_u8..3,
    ) {
        let (mut base, _) = base_at(&changes, 1 + backup % changes.len());
        let mut logged = changes;
        for change in &mut logged {
            let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
            match kind {
                0 => gtid.sequence += 1000,
                1 => gtid.domain = 9,
                _ => {}
            }
        }
        if kind == 2 {
            base.gtids = Some("0-1-1000".parse().unwrap());
        }
        let base = with_domains(&base, &more);
        let streams = archive(&logged, &lives, 0);
        // A log that shows no transactions before the position may be that of any server that began then.
        let shows = |segment: &Record<SegmentHead>| {
            segment.content.before().is_some_and(|before| !before.is_empty())
        };
        let heads: Vec<_> = holders(&streams, &base).collect();
        prop_assert!(heads.iter().all(|head| kind == 0 && !shows(head)), "{:?}", heads);
        if heads.is_empty() {
            let found = plan(&streams, &base, &RestoreStop::Latest);
            let is_refused = matches!(found, Err(PlanError::NoStart { .. }));
            prop_assert!(is_refused, "{:?}", found);
        }
    }
}

fn of_mariadb() -> impl Strategy<Value = Vec<Change>> {
    history().prop_filter("of MariaDB", |all| matches!(all[0].gtid, AnyGtid::MariaDb(_)))
}

fn is_past(outside: &GtidPosition, gtid: &AnyGtid) -> bool {
    matches!(gtid, AnyGtid::MariaDb(gtid) if outside.is_past(*gtid))
}

/// The backup with data of more domains.
fn with_domains(base: &Base, more: &[(u32, u64)]) -> Base {
    let Some(GtidState::MariaDb(mut gtids)) = base.gtids.clone() else { unreachable!() };
    for (domain, sequence) in more {
        gtids.advance(Gtid { domain: *domain, server: 7, sequence: *sequence });
    }
    Base { gtids: Some(gtids.into()), ..base.clone() }
}

#[test]
fn a_head_of_an_older_format_continues_no_other_server() {
    let first = simple(&changes(10), StreamOrigin::First, 0, (1, 4));
    let begins = StreamOrigin::Continues { after: link_to_end(&first), at: Some(at(1, 550)) };
    let mut head = simple(&changes(10), begins, OTHER_SERVER, (1, 550)).head.content;
    assert_eq!(head.format, FORMAT_OF_ANOTHER);
    assert!(Record::<StreamHead>::decode(&Record::encode(&head, None).unwrap()).is_ok());
    head.format = FORMAT;
    let refused = Record::<StreamHead>::decode(&Record::encode(&head, None).unwrap());
    assert!(matches!(refused, Err(RecordError::Malformed(_))), "{refused:?}");
}

/// ID of the first stream that is of another server.
const OTHER_SERVER: u8 = 200;

fn simple(changes: &[Change], begins: StreamOrigin, id: u8, start: (u64, u64)) -> Stream {
    stream(changes, id, (start, begins), &[50; 40], None)
}

/// What a stream names that follows all segments of this one.
fn link_to_end(stream: &Stream) -> Link {
    let last = stream.segments.values().next_back().unwrap();
    Link { stream: stream.id().to_owned(), number: last.content.number, head: last.digest.clone() }
}

fn changes(number: u64) -> Vec<Change> {
    (0..number)
        .map(|n| {
            let gtid = gtid(false, n + 1);
            let begin = 300 + n * 25;
            Change { gtid, seconds: n as u32 * 10, log: 1, begin, end: begin + 25 }
        })
        .collect()
}

#[test]
fn a_gap_and_a_barrier_are_not_crossed() {
    let changes = changes(20);
    let first = simple(&changes[..10], StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&first);
    let gap = StreamOrigin::Gap { after: after.clone(), reason: "purged".to_owned() };
    let second = simple(&changes, gap, 1, (1, 650));
    let streams = [first.clone(), second];
    let (base, _) = base_at(&changes, 2);
    let error = plan(&streams, &base, &RestoreStop::Latest).unwrap_err();
    assert!(matches!(&error, PlanError::Gap { reason, .. } if reason == "purged"), "{error}");
    assert!(plan(&streams, &base, &RestoreStop::Gtid("0-1-9".parse().unwrap())).is_ok());
    // A backup behind the gap needs nothing of what is before it.
    let (late, _) = base_at(&changes, 16);
    assert!(plan(&streams, &late, &RestoreStop::Latest).is_ok());

    let mut with_barrier = first;
    let mut head = with_barrier.segments[&7].content.clone();
    head.barriers
        .push(StoredBarrier { kind: "tablespace".to_owned(), at: at(1, head.from.offset + 5) });
    let bytes = Record::encode(&head, None).unwrap();
    with_barrier.segments.insert(7, Record::decode(&bytes).unwrap());
    with_barrier.segments.retain(|number, _| *number <= 7);
    with_barrier.stated = 8;
    let streams = [with_barrier];
    let barrier = plan(&streams, &base, &RestoreStop::Latest);
    assert!(matches!(barrier, Err(PlanError::Barrier { .. })), "{barrier:?}");
    assert!(plan(&streams, &base, &RestoreStop::Gtid("0-1-3".parse().unwrap())).is_ok());
}

/// Nothing of the clocks is wrong: the one that came back began, and stores, later than the other one.
#[test]
fn a_receiver_that_catches_up_is_not_the_end_of_the_archive() {
    let changes = changes(20);
    let whole = stream(&changes, 0, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + 10));
    let behind =
        stream(&changes[..6], 1, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + 5000));
    let (base, _) = base_at(&changes, 2);
    let streams = [behind.clone(), whole.clone()];
    let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
    let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    assert_eq!(replayed(&found, &changes, &base), all);
    assert_eq!(newest(&streams).unwrap().0.id(), whole.id());
    // What a host remembers of either is there; it is not where only the other one is left.
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().content.clone();
    assert!(!ends_before(&streams, &last(&whole)) && !ends_before(&streams, &last(&behind)));
    let mut short = whole.clone();
    short.segments.retain(|number, _| *number < 3);
    short.stated = 3;
    assert!(ends_before(&[behind, short], &last(&whole)));
}

/// It began when the other one had ended, though its clock says that it is older.
#[test]
fn a_stream_that_follows_another_one_is_newer_than_it() {
    let changes = changes(20);
    let ahead =
        stream(&changes[..10], 9, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + 7200));
    let after = link_to_end(&ahead);
    let (base, _) = base_at(&changes, 2);
    let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
    let begins = StreamOrigin::Continues { after: after.clone(), at: None };
    let streams = [simple(&changes, begins, 1, (1, 550)), ahead.clone()];
    let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    assert_eq!(replayed(&found, &changes, &base), all);
    // A branch, too, which is shorter.
    let branch = StreamOrigin::Branch { after, reason: "shorter".to_owned() };
    let streams = [simple(&changes[..3], branch, 1, (1, 4)), ahead];
    assert_eq!(newest(&streams).unwrap().0.id(), streams[0].id());
    assert!(!ends_before(&streams, &streams[1].segments[&4].content));
}

/// The heads of MariaDB do not tell which of two servers lost transactions.
#[test]
fn a_receiver_of_another_server_that_catches_up_leaves_the_latest_in_doubt() {
    let changes = changes(20);
    let first = || ((1, 4), StreamOrigin::First);
    let further = stream(&changes, 0, first(), &[50; 40], Some(NOW + 60));
    let other = |stop: usize, life: i64| {
        stream(&changes[..stop], OTHER_SERVER, first(), &[50; 40], Some(NOW + life))
    };
    let streams = [further.clone(), other(6, 5000)];
    assert_eq!(newest(&streams).unwrap().0.id(), streams[1].id());
    assert_eq!(unproven(&streams).map(Stream::id), Some(further.id()));
    // What only the other one has is found there.
    let (base, _) = base_at(&changes, 2);
    for (stop, count) in [("0-1-20", 18), ("before:0-1-9", 6)] {
        let found = plan(&streams, &base, &stop.parse().unwrap()).unwrap();
        assert_eq!(replayed(&found, &changes, &base).len(), count, "{stop}");
    }
    assert!(plan(&streams, &base, &"0-1-21".parse().unwrap()).is_err());
    // It has caught up, or both were received to the end: then the one that has more counts.
    let streams = [further.clone(), other(20, 5000)];
    assert!(unproven(&streams).is_none());
    let streams = [further.clone(), other(6, 100)];
    assert_eq!(newest(&streams).unwrap().0.id(), further.id());
    assert!(unproven(&streams).is_none());
    // Of one server, nothing is in doubt.
    let same = stream(&changes[..6], 1, first(), &[50; 40], Some(NOW + 5000));
    assert!(unproven(&[further, same]).is_none());
}

/// A clock that was ahead is not that of the store.
#[test]
fn a_sign_of_life_is_no_later_than_the_store_has_it() {
    let changes = changes(10);
    let second = |seconds: i64| Some(Timestamp::from_second(NOW + seconds).unwrap());
    let mut ahead = stream(&changes, 0, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + 7200));
    ahead.written = second(100);
    let mut others = changes[..6].to_vec();
    for change in &mut others {
        let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
        gtid.sequence += 100;
    }
    let mut now = stream(&others, 1, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + 900));
    now.written = second(900);
    let streams = [ahead, now];
    let (last, life) = newest(&streams).unwrap();
    assert_eq!((last.id(), life), (streams[1].id(), second(900)));
}

/// Both end at the same place, and one of them lacks a part.
#[test]
fn of_two_lines_with_one_end_the_whole_one_is_replayed() {
    let changes = changes(20);
    let (base, _) = base_at(&changes, 2);
    let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
    let line = |id, life| {
        let cuts = [50 + u64::from(id); 40];
        stream(&changes, id, ((1, 4), StreamOrigin::First), &cuts, Some(NOW + life))
    };
    let mut broken = line(0, 5000);
    broken.segments.remove(&7);
    let streams = [broken.clone(), line(1, 10)];
    let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    assert_eq!(replayed(&found, &changes, &base), all);
    // Not if the end of the broken one is missing, or the whole one does not reach it.
    let mut endless = broken.clone();
    let last = *endless.segments.keys().next_back().unwrap();
    endless.segments.remove(&last);
    let mut short = stream(&changes, 1, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + 10));
    short.segments.pop_last();
    short.stated -= 1;
    for streams in [[endless, short.clone()], [broken, short]] {
        let found = plan(&streams, &base, &RestoreStop::Latest);
        assert!(matches!(found, Err(PlanError::Segment { .. })), "{found:?}");
    }
}

#[test]
fn what_one_receiver_missed_is_taken_from_another_one() {
    let mut changes = changes(30);
    for change in &mut changes[10..] {
        (change.log, change.begin, change.end) = (2, change.begin - 250, change.end - 250);
    }
    let logs = |stop: usize| simple(&changes[..stop], StreamOrigin::First, 0, (1, 4));
    let whole = logs(25);
    let early = simple(&changes[..6], StreamOrigin::First, 1, (1, 4));
    let gap = StreamOrigin::Gap { after: link_to_end(&early), reason: "purged".to_owned() };
    let back = stream(&changes, 2, ((2, 4), gap), &[40; 40], Some(NOW + 5000));
    let (base, _) = base_at(&changes, 2);
    let gtids = |to: usize| changes[2..to].iter().map(|c| c.gtid.clone()).collect::<Vec<_>>();
    let streams = [whole, early.clone(), back.clone()];
    let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    assert_eq!(replayed(&found, &changes, &base), gtids(30));
    let found = plan(&streams, &base, &"0-1-9".parse().unwrap()).unwrap();
    assert_eq!(replayed(&found, &changes, &base), gtids(9));
    // It lacks a part of the gap.
    let streams = [logs(8), early, back];
    let error = plan(&streams, &base, &RestoreStop::Latest).unwrap_err();
    assert!(matches!(error, PlanError::Gap { .. }), "{error}");
}

/// The first bytes of the format description event of a log that was made at this second.
fn made_at(streams: &mut Stream, seconds: impl Fn(u64) -> u32) {
    let mut previous = streams.head.digest.clone();
    for segment in streams.segments.values_mut() {
        let mut head = segment.content.clone();
        let log = head.to.log.rsplit_once('.').unwrap().1.parse().unwrap();
        head.description =
            seconds(log).to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        head.previous = previous;
        *segment = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
        previous = segment.digest.clone();
    }
}

/// The server lost the end of its log in a crash. One receiver had that end, and received a branch; the other one was away
/// before it, and had nothing to branch from.
#[test]
fn a_branch_counts_only_against_a_history_that_has_what_was_left() {
    let mut changes = changes(30);
    let mut lost = changes[..12].to_vec();
    for change in &mut lost[8..] {
        let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
        gtid.server = 9;
    }
    // The log ends with the eighth.
    for change in &mut changes[8..] {
        (change.log, change.begin, change.end) = (2, change.begin - 200, change.end - 200);
    }
    let logs = |log| 1000 + log as u32;
    let old = simple(&lost, StreamOrigin::First, 0, (1, 4));
    let q = |stop: usize, life: i64| {
        let after = link_to_end(&old);
        let begins = StreamOrigin::Branch { after, reason: "shorter".to_owned() };
        let mut q = stream(&changes[..stop], 1, ((1, 4), begins), &[50; 40], Some(NOW + life));
        made_at(&mut q, logs);
        q
    };
    let p = |stop: usize, life: i64| {
        let first = ((1, 4), StreamOrigin::First);
        let mut p = stream(&changes[..stop], 2, first, &[50; 40], Some(NOW + life));
        made_at(&mut p, logs);
        p
    };
    let (base, _) = base_at(&changes, 2);
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().content.clone();
    // The one that reached further, and the newest sign of life is that of the other one: which is in the same log, in the
    // log that branched, or before the difference.
    let pairs = [
        (q(30, 10), p(20, 5000), true),
        (q(20, 5000), p(30, 10), false),
        (q(30, 10), p(6, 5000), true),
        (q(5, 5000), p(30, 10), false),
    ];
    for (n, (q, p, is_q)) in pairs.into_iter().enumerate() {
        let (further, behind) = if is_q { (&q, &p) } else { (&p, &q) };
        let streams = [old.clone(), q.clone(), p.clone()];
        assert_eq!(newest(&streams).unwrap().0.id(), further.id(), "{n}");
        // Whichever of them a host remembers, this reaches it.
        assert!(!ends_before(&streams, &last(further)), "{n}");
        assert!(!ends_before(&streams, &last(behind)), "{n}");
        // Without the end of that one, the archive ends before what its host remembers.
        let mut short = further.clone();
        short.segments.retain(|_, segment| segment.content.to.log == log_name(1));
        short.stated = short.segments.len() as u64;
        let streams = [old.clone(), short, behind.clone()];
        assert!(ends_before(&streams, &last(further)), "{n}");
        if is_q {
            continue;
        }
        // As an older backup is restored by it.
        let streams = [old.clone(), q, p];
        let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
        let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
        assert_eq!(replayed(&found, &changes, &base), all, "{n}");
    }
    // A third receiver of the history that was lost: it has what was left, so its clock decides nothing, but it does not pass.
    let dead = stream(&lost, 3, ((1, 4), StreamOrigin::First), &[70; 40], Some(NOW + 9));
    let streams = [old.clone(), q(7, 100), dead];
    assert_eq!(newest(&streams).unwrap().0.id(), streams[1].id());
}

/// Without the segments of a stream, as `prune` leaves it.
fn removed(stream: &Stream) -> Stream {
    let (link, mut stream) = (link_to_end(stream), stream.clone());
    let at = stream.segments.values().next_back().unwrap().content.to.clone();
    let number = link.number + 1;
    stream.floor = Some(Floor { format: FORMAT, stream: link.stream, number, head: link.head, at });
    stream.removed_below = number;
    stream.segments.clear();
    stream
}

/// Thirty transactions in three logs, of eight, eight and fourteen.
fn in_three_logs() -> Vec<Change> {
    let mut changes = changes(30);
    for (n, change) in changes.iter_mut().enumerate() {
        let (log, moved) = [(1, 0), (2, 200), (3, 400)][(n / 8).min(2)];
        (change.log, change.begin, change.end) = (log, change.begin - moved, change.end - moved);
    }
    changes
}

/// What the branch left is removed, or is the log of a server that failed: that both go on in a log which was made later shows
/// that they are one.
#[test]
fn a_branch_counts_for_nothing_once_both_have_a_later_log() {
    let changes = in_three_logs();
    let mut lost = crate::changes(12);
    for change in &mut lost[8..] {
        let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
        gtid.server = 9;
    }
    let line = |stop: usize, id, begins, life: i64| {
        let mut line = stream(&changes[..stop], id, ((1, 4), begins), &[50; 40], Some(NOW + life));
        made_at(&mut line, |log| 1000 + log as u32);
        line
    };
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().content.clone();
    for (n, (id, is_removed)) in
        [(0, true), (OTHER_SERVER, false), (OTHER_SERVER, true)].into_iter().enumerate()
    {
        let old = simple(&lost, StreamOrigin::First, id, (1, 4));
        let branch = || {
            let after = link_to_end(&old);
            StreamOrigin::Branch { after, reason: "shorter".to_owned() }
        };
        // Of the other receiver, before the failover.
        let before = simple(&lost[..8], StreamOrigin::First, OTHER_SERVER + 1, (1, 4));
        let other = || match id {
            OTHER_SERVER => {
                let at = Some(last(&before).to);
                StreamOrigin::Continues { after: link_to_end(&before), at }
            }
            _ => StreamOrigin::First,
        };
        // Which of them is further, and whether they end in one log.
        for (q, p) in [(30, 20), (20, 30), (30, 14), (14, 30)] {
            let (q_life, p_life) = if q > p { (10, 5000) } else { (5000, 10) };
            let (q, p) = (line(q, 1, branch(), q_life), line(p, 2, other(), p_life));
            let further = if q_life < p_life { q.id() } else { p.id() }.to_owned();
            let old = if is_removed { removed(&old) } else { old.clone() };
            let streams = [old, before.clone(), q.clone(), p.clone()];
            let streams = if id == OTHER_SERVER {
                &streams[..]
            } else {
                &[streams[0].clone(), q.clone(), p.clone()]
            };
            assert_eq!(newest(streams).unwrap().0.id(), further, "{n}");
            assert!(!ends_before(streams, &last(&q)) && !ends_before(streams, &last(&p)), "{n}");
        }
    }
}

/// A session that begins a log may have set its time, and so has the thread that applies what a source sent.
#[test]
fn the_time_of_a_log_makes_no_history_another_one() {
    let changes = in_three_logs();
    let line = |stop: usize, id, life: i64| {
        let first = ((1, 4), StreamOrigin::First);
        let mut line = stream(&changes[..stop], id, first, &[50; 40], Some(NOW + life));
        made_at(&mut line, |log| if log == 3 { 500 } else { 1000 + log as u32 });
        line
    };
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().content.clone();
    let (base, _) = base_at(&changes, 2);
    let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
    let (further, behind) = (line(30, 0, 10), line(14, 1, 5000));
    let streams = [further.clone(), behind.clone()];
    assert_eq!(newest(&streams).unwrap().0.id(), further.id());
    assert!(!ends_before(&streams, &last(&further)) && !ends_before(&streams, &last(&behind)));
    let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    assert_eq!(replayed(&found, &changes, &base), all);
}

/// No branch is recorded between them: the head of its stream was lost.
#[test]
fn logs_that_were_made_in_another_order_are_of_two_histories() {
    let mut old = changes(20);
    for change in &mut old {
        change.log = 9;
    }
    let first = ((9, 4), StreamOrigin::First);
    let mut dead = stream(&old, 0, first, &[50; 40], Some(NOW + 10));
    made_at(&mut dead, |_| 1000);
    let mut new = changes(5);
    for change in &mut new {
        change.log = 3;
    }
    let mut alive = stream(&new, 1, ((3, 4), StreamOrigin::First), &[50; 40], Some(NOW + 5000));
    made_at(&mut alive, |_| 2000);
    let streams = [dead.clone(), alive.clone()];
    assert_eq!(newest(&streams).unwrap().0.id(), alive.id());
    // Made in the order of their names, they are one history.
    made_at(&mut alive, |_| 500);
    let streams = [dead.clone(), alive];
    assert_eq!(newest(&streams).unwrap().0.id(), dead.id());
}

#[test]
fn the_branch_that_goes_on_is_the_default() {
    let changes = changes(10);
    let old = simple(&changes, StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&old);
    // The server lost what follows the fifth, and continued with others.
    let mut others = changes.clone();
    for change in &mut others[5..] {
        if let AnyGtid::MariaDb(gtid) = &mut change.gtid {
            gtid.server = 2;
        }
    }
    let branch = StreamOrigin::Branch { after, reason: "shorter".to_owned() };
    let new = simple(&others, branch, 1, (1, 4));
    let streams = [old, new];
    let (base, _) = base_at(&changes, 2);
    // Whether an earlier backup lies before the difference is not known.
    let error = plan(&streams, &base, &RestoreStop::Latest);
    assert!(matches!(error, Err(PlanError::Branch { .. })), "{error:?}");
    // The history that was left has its moments.
    for (stop, count) in [("0-1-5", 3), ("before:0-1-7", 4), ("1970-01-01T00:00:45Z", 3)] {
        let plan = plan(&streams, &base, &stop.parse().unwrap()).unwrap();
        assert!(plan.pieces.iter().all(|piece| piece.stream == streams[0].id()), "{stop}");
        assert_eq!(replayed(&plan, &changes, &base).len(), count, "{stop}");
    }
    let later = Base { taken: Timestamp::from_second(NOW + 1000).unwrap(), ..base };
    let plan = plan(&streams, &later, &RestoreStop::Latest).unwrap();
    assert!(plan.pieces.iter().all(|piece| piece.stream == streams[1].id()));
    assert_eq!(replayed(&plan, &others, &later).last(), Some(&others[9].gtid));
}

#[test]
fn a_moment_before_the_logs_began_anew_lies_in_the_history_that_was_left() {
    let changes = changes(10);
    let old = simple(&changes, StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&old);
    // A restored server writes other transactions into a log of the same name.
    let mut others = changes.clone();
    for change in &mut others {
        if let AnyGtid::MariaDb(gtid) = &mut change.gtid {
            gtid.sequence += 100;
        }
    }
    let branch = StreamOrigin::Branch { after, reason: "restored".to_owned() };
    let streams = [old, simple(&others, branch, 1, (1, 4))];
    let (base, _) = base_at(&changes, 6);
    let all: Vec<_> = changes[6..].iter().map(|change| change.gtid.clone()).collect();
    for (stop, count) in [("0-1-9", 3), ("before:0-1-9", 2), ("1970-01-01T00:01:15Z", 2)] {
        let plan = plan(&streams, &base, &stop.parse().unwrap()).unwrap();
        assert!(plan.pieces.iter().all(|piece| piece.stream == streams[0].id()), "{stop}");
        assert_eq!(replayed(&plan, &changes, &base), all[..count], "{stop}");
    }
    assert_eq!(furthest(&streams, &base).unwrap().until, changes[9].end);
    // Its end is not the latest: the newer history is.
    let error = plan(&streams, &base, &RestoreStop::Latest).unwrap_err();
    assert!(matches!(&error, PlanError::Branch { reason, .. } if reason == "restored"), "{error}");
    // The store's clock is behind that of the backup's host.
    let taken = Timestamp::from_second(NOW - 10).unwrap();
    let just = Base { taken, ..base.clone() };
    let mut old = streams[0].clone();
    old.written = Some(Timestamp::from_second(NOW - 20).unwrap());
    assert!(plan(&[old, streams[1].clone()], &just, &"0-1-9".parse().unwrap()).is_ok());
    // Nothing shows that a backup from after the last sign of life is of the old history.
    let late = Base { taken: Timestamp::from_second(NOW + 1000).unwrap(), ..base };
    let error = plan(&streams, &late, &"0-1-9".parse().unwrap()).unwrap_err();
    assert!(matches!(error, PlanError::NoStart { .. }), "{error}");
    assert!(furthest(&streams, &late).is_none());
}

#[test]
fn a_backup_of_one_server_is_not_sought_in_the_log_of_another() {
    let changes = changes(20);
    let first = simple(&changes[..10], StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&first);
    let gap = StreamOrigin::Gap { after, reason: "another server".to_owned() };
    let same = simple(&changes, gap.clone(), 1, (1, 650));
    let other = simple(&changes, gap, OTHER_SERVER, (1, 650));
    let (base, _) = base_at(&changes, 16);
    assert!(plan(&[first.clone(), same], &base, &RestoreStop::Latest).is_ok());
    let streams = [first, other];
    // It was taken when neither server was archived.
    let error = plan(&streams, &base, &RestoreStop::Latest);
    assert!(matches!(error, Err(PlanError::Branch { .. })), "{error:?}");
    let taken = Timestamp::from_second(NOW + 1000).unwrap();
    let later = Base { taken, ..base };
    assert!(plan(&streams, &later, &RestoreStop::Latest).is_ok());
    // That of the first server can still be restored up to its end.
    let (early, _) = base_at(&changes, 2);
    let error = plan(&streams, &early, &RestoreStop::Latest).unwrap_err();
    assert!(matches!(&error, PlanError::Gap { .. }), "{error}");
    assert!(plan(&streams, &early, &RestoreStop::Gtid("0-1-9".parse().unwrap())).is_ok());
}

#[test]
fn logs_that_begin_anew_share_nothing_with_those_before() {
    let old = Change { log: 7, ..changes(1).remove(0) };
    let before = simple(std::slice::from_ref(&old), StreamOrigin::First, 0, (7, 4));
    let after = link_to_end(&before);
    let branch = StreamOrigin::Branch { after, reason: "RESET MASTER".to_owned() };
    let streams = [before, simple(&changes(5), branch, 1, (1, 4))];
    let (base, _) = base_at(&[old], 0);
    let error = plan(&streams, &base, &RestoreStop::Latest);
    assert!(matches!(error, Err(PlanError::Branch { .. })), "{error:?}");
}

/// A floor alone, which anyone can write, takes no stream out of the middle.
#[test]
fn a_stream_whose_segments_were_removed_is_not_passed_over() {
    let changes = changes(20);
    let first = simple(&changes[..5], StreamOrigin::First, 0, (1, 4));
    let end = |stream: &Stream| stream.segments.values().next_back().unwrap().content.to.clone();
    let begins = StreamOrigin::Continues { after: link_to_end(&first), at: None };
    let second = simple(&changes[..10], begins, 1, (1, end(&first).offset));
    let begins = StreamOrigin::Continues { after: link_to_end(&second), at: None };
    let third = simple(&changes, begins, 2, (1, end(&second).offset));
    let (base, _) = base_at(&changes, 2);
    let whole = [first.clone(), second.clone(), third.clone()];
    assert!(plan(&whole, &base, &RestoreStop::Latest).is_ok());
    let streams = [first, removed(&second), third];
    let found = plan(&streams, &base, &RestoreStop::Latest);
    assert!(found.is_err(), "{found:?}");
    let (late, _) = base_at(&changes, 16);
    assert!(plan(&streams, &late, &RestoreStop::Latest).is_ok());
}

/// The logs of two servers have the same names and positions, and may have the same GTIDs.
/// After a failover: the same transactions, in a log of the same name, at other positions.
#[test]
fn a_position_means_the_log_of_one_server() {
    let all = changes(16);
    let old = simple(&all[..8], StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&old);
    let moved: Vec<Change> = all
        .iter()
        .map(|each| Change { begin: each.begin - 100, end: each.end - 100, ..each.clone() })
        .collect();
    let takes_over = |end| StreamOrigin::Continues { after: after.clone(), at: Some(at(1, end)) };
    let new = simple(&moved, takes_over(all[7].end), OTHER_SERVER, (1, moved[7].end));
    let streams = [old.clone(), new];
    let (base, _) = base_at(&all, 2);
    let planned = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    let servers: Vec<usize> = planned.pieces.iter().map(|piece| piece.server).collect();
    assert!(servers.is_sorted() && servers.contains(&0) && servers.last() == Some(&1));
    let of_old = planned.pieces.iter().rfind(|piece| piece.server == 0).unwrap();
    assert_eq!((of_old.stream, of_old.until), (streams[0].id(), all[7].end));
    let of_new = planned.pieces.iter().find(|piece| piece.server == 1).unwrap();
    assert_eq!(of_new.segment.content.from, at(1, moved[7].end));
    let stop = |offset| plan(&streams, &base, &RestoreStop::Position(position(1, offset)));
    let both = stop(all[7].end);
    assert!(matches!(both, Err(PlanError::Ambiguous { .. })), "{both:?}");
    assert!(stop(moved[7].end - 20).unwrap().pieces.iter().all(|piece| piece.server == 0));
    assert_eq!(stop(moved[15].end).unwrap().pieces.last().unwrap().server, 1);
    let early = stop(base.position.offset() - 1);
    assert!(matches!(early, Err(PlanError::BeforeBackup { .. })), "{early:?}");
    // A stream that continues elsewhere than the one before ends is broken there, and so is one with other GTIDs.
    let wrong = [
        simple(&moved, takes_over(all[7].end + 1), OTHER_SERVER, (1, moved[7].end)),
        simple(&moved, takes_over(all[7].end), OTHER_SERVER, (1, moved[9].end)),
    ];
    for wrong in wrong {
        let error = plan(&[old.clone(), wrong], &base, &RestoreStop::Latest).map(drop);
        assert!(matches!(error, Err(PlanError::Segment { .. })), "{error:?}");
    }
}

#[test]
fn a_backup_behind_the_last_transaction_of_the_old_server_is_replayed_with_the_log_of_the_new_one()
{
    let all = changes(16);
    // The old server's log ends, and the next one has begun.
    let mut logged = all[..8].to_vec();
    logged.push(Change { log: 2, ..all[8].clone() });
    let mut old = simple(&logged, StreamOrigin::First, 0, (1, 4));
    old.segments.retain(|_, segment| segment.content.to.log == log_name(1));
    old.stated = old.segments.len() as u64;
    let end = all[7].end;
    let moved: Vec<Change> = all
        .iter()
        .map(|each| Change { begin: each.begin - 100, end: each.end - 100, ..each.clone() })
        .collect();
    let begins = StreamOrigin::Continues { after: link_to_end(&old), at: Some(at(1, end)) };
    let new = simple(&moved, begins, OTHER_SERVER, (1, moved[7].end));
    let streams = [old, new];
    let noted = |offset: u64, number: usize| {
        let gtids = Some(gtids(&all, 1, all[number].end));
        let position = position(1, offset);
        BasePosition::Position(Base {
            position,
            gtids,
            at_most: None,
            taken: Timestamp::UNIX_EPOCH,
        })
    };
    let planned = |noted: &BasePosition| {
        let base = locate(&streams, noted).unwrap();
        plan(&streams, &base, &RestoreStop::Latest).map(|plan| replayed(&plan, &moved, &base))
    };
    let rest: Vec<AnyGtid> = all[8..].iter().map(|each| each.gtid.clone()).collect();
    assert_eq!(planned(&noted(end + 40, 7)), Ok(rest));
    // Only the old server's last segment shows that.
    let shows = witness(&streams, &noted(end + 40, 7)).unwrap().content.number;
    assert_eq!(streams[0].segments.keys().next_back(), Some(&shows));
    let without = |number: u64| {
        let mut streams = streams.clone();
        streams[0].segments.remove(&number).unwrap();
        witness(&streams, &noted(end + 40, 7)).is_some()
    };
    for number in streams[0].segments.keys() {
        assert_eq!(without(*number), *number != shows, "{number}");
    }
    // One with other GTIDs, or where the archive has nothing of the old server, is none.
    for wrong in [noted(end + 40, 6), noted(end + 41, 7)] {
        assert_eq!(
            locate(&streams, &wrong),
            Some(match &wrong {
                BasePosition::Position(base) => base.clone(),
                BasePosition::Between { .. } => unreachable!(),
            })
        );
    }
    // A backup before the end is sought where it was.
    let base = locate(&streams, &noted(all[3].end, 3)).unwrap();
    assert_eq!(base.position, position(1, all[3].end));
}

#[test]
fn a_branch_of_another_server_shares_nothing() {
    let changes = changes(20);
    let first = simple(&changes[..10], StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&first);
    let begin = (1, first.segments.values().next_back().unwrap().content.to.offset);
    let branch = StreamOrigin::Branch { after, reason: "other bytes".to_owned() };
    let (base, _) = base_at(&changes, 2);
    for (id, is_same) in [(1, true), (OTHER_SERVER, false)] {
        let streams = [first.clone(), simple(&changes, branch.clone(), id, begin)];
        let found = plan(&streams, &base, &RestoreStop::Latest);
        assert_eq!(found.is_ok(), is_same, "{found:?}");
    }
}

#[test]
fn stops_are_read_as_they_are_printed() {
    let uuid = "11111111-2222-3333-4444-555555555555";
    for text in [
        "latest",
        "2026-11-20T09:14:59Z",
        "0-1-26",
        "before:0-1-26",
        &format!("{uuid}:26"),
        &format!("before:{uuid}:tag:26"),
        "bin.000123:1343",
    ] {
        assert_eq!(text.parse::<RestoreStop>().unwrap().to_string(), text);
    }
    let zoned: RestoreStop = "2026-11-20T04:14:59-05:00".parse().unwrap();
    assert_eq!(zoned, "2026-11-20T09:14:59Z".parse().unwrap());
    for bad in [
        "",
        "2026-11-20",
        "2026-11-20T09:14:59",
        "2026-11-20 09:14:59",
        "before:",
        "bin.1:x",
        "0-1",
        &format!("{uuid}:1-5"),
        uuid,
    ] {
        assert!(bad.parse::<RestoreStop>().is_err(), "{bad}");
    }
}

/// It notes no position: only a stream that began before it has surely all that it lacks.
#[test]
fn a_clone_from_before_the_archive_may_lack_transactions_without_a_gtid() {
    let mut changes = changes(20);
    for (change, number) in changes.iter_mut().zip(1..) {
        change.gtid = gtid(true, number);
    }
    let state = |number: usize| gtids(&changes, 1, changes[number - 1].end);
    let planned = |streams: &[Stream], seconds: i64| {
        let taken = Timestamp::from_second(NOW + seconds).unwrap();
        let base =
            locate(streams, &BasePosition::Between { from: state(12), to: state(14), taken });
        plan(streams, &base.unwrap(), &RestoreStop::Latest).map(|plan| plan.pieces.len())
    };
    let lost = |planned| matches!(planned, Err(PlanError::BeforeArchive { .. }));
    let first = simple(&changes[..10], StreamOrigin::First, 0, (1, 4));
    let after = link_to_end(&first);
    // Each began at the second of the last digit of its ID, as a byte.
    let began = i64::from(b'1');
    let gap = StreamOrigin::Gap { after: after.clone(), reason: "purged".to_owned() };
    for begins in [StreamOrigin::First, gap] {
        let streams = [first.clone(), simple(&changes, begins, 1, (1, 600))];
        assert!(planned(&streams, began).is_ok(), "{:?}", planned(&streams, began));
        assert!(lost(planned(&streams, began - 1)));
    }
    let streams =
        [first, simple(&changes, StreamOrigin::Continues { after, at: None }, 1, (1, 550))];
    assert!(planned(&streams, began - 1).is_ok(), "{:?}", planned(&streams, began - 1));
    assert!(planned(&streams[..1], began - 2).is_err());
    // Pushed after it, but from before it.
    let streams = [simple(&changes, StreamOrigin::First, 1, (1, 300))];
    assert!(planned(&streams, began - 1).is_ok(), "{:?}", planned(&streams, began - 1));
}
