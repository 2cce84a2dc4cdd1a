//! Plans of a restore to a stop, compared with a model: the prefix of the order of commits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod archive_model;

use archive_model::*;
use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use xb_binlog::{AnyGtid, Gtid, GtidPosition, GtidState, LogPosition};
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::plan::{Histories, PlanError, Stream, holders, witness};
use xb_repo::archive::record::{FORMAT, FORMAT_OF_ANOTHER, Record, RecordError};
use xb_repo::archive::segment::StoredBarrier;
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::{StreamHead, StreamOrigin};

/// Whether a transaction that a stop by time takes may lie behind it: the model of [`Cutter::is_doubtful`], from the other
/// end. Some run of transactions up to the last one has more that are late than those that are not.
fn is_doubtful(taken: &[Change], time: i64) -> bool {
    let mut sum = 0;
    taken.iter().rev().any(|each| {
        sum += if i64::from(each.seconds) > time { 1 } else { -1 };
        sum > 0
    })
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
        let head = |segment: &ListedSegment| segment.from.offset <= base.position.offset();
        let own = streams[0].segments.values().rfind(|each| head(each)).unwrap();
        let is_known = own.from.offset / 10 > 31 + stop as u64;
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
            .map(|piece| (piece.stream.to_owned(), piece.segment.number))
            .collect();
        prop_assume!(!needed.is_empty());
        let (id, number) = which.get(&needed);
        let stream = streams.iter_mut().find(|stream| stream.id() == id).unwrap();
        if is_removed {
            stream.segments.remove(number);
        } else {
            // Its bytes are other ones, so no later head names it.
            let mut head = head_of(&stream.segments[number]);
            head.description.push('0');
            stream.segments.insert(*number, listed(head));
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
        let number = lost.segment.number;
        let mut streams = whole.clone();
        let stream = streams.iter_mut().find(|stream| stream.id() == lost.stream).unwrap();
        stream.segments.remove(&number);
        stream.removed_below = if is_noted { number + 1 } else { 0 };
        let (base, _) = base_at(&changes, backup);
        let expected = plan(&whole, &base, &RestoreStop::Latest).unwrap();
        let end = LogPosition::new(&lost.segment.from.log, lost.until).unwrap();
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
                    let head = piece.segment;
                    let at = &base.position;
                    head.from.log == at.log() && (head.from.offset..=piece.until).contains(&at.offset())
                });
                prop_assert!(there.all(|piece| piece.segment.starts_inside), "{error}");
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
        let shows = |segment: &ListedSegment| {
            segment.before().is_some_and(|before| !before.is_empty())
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
    let mut head = head_of(&with_barrier.segments[&7]);
    head.barriers
        .push(StoredBarrier { kind: "tablespace".to_owned(), at: at(1, head.from.offset + 5) });
    with_barrier.segments.insert(7, listed(head));
    with_barrier.segments.retain(|number, _| *number <= 7);
    with_barrier.stated = 8;
    let streams = [with_barrier];
    let barrier = plan(&streams, &base, &RestoreStop::Latest);
    assert!(matches!(barrier, Err(PlanError::Barrier { .. })), "{barrier:?}");
    assert!(plan(&streams, &base, &RestoreStop::Gtid("0-1-3".parse().unwrap())).is_ok());
}

/// An idle server purges the log with its last transaction. Its next stream begins with a log that has none yet.
#[test]
fn a_stream_without_transactions_ends_no_archive_before_those_of_the_streams_before_it() {
    let mut changes = changes(6);
    changes[5].log = 2;
    let first = stream(&changes, 0, ((1, 4), StreamOrigin::First), &[2000, 296], None);
    let continues =
        |before: &Stream, at| StreamOrigin::Continues { after: link_to_end(before), at };
    let begins = ((2, 4), continues(&first, None));
    let idle = stream(&changes, 1, begins, &[200, 96], Some(NOW));
    assert!(idle.segments.values().all(|segment| segment.last.is_none()));
    let begins = ((2, 300), continues(&idle, Some(at(2, 300))));
    let moved = stream(&changes, OTHER_SERVER, begins, &[20], Some(NOW));
    let (base, _) = base_at(&changes, 2);
    let (late, _) = base_at(&changes[..5], 5);
    let end = |streams: &[Stream], base: &Base, stop: &str| {
        let plan = plan(streams, base, &stop.parse().unwrap()).unwrap();
        plan.end(&base.position).unwrap()
    };
    let time = Timestamp::from_second(NOW).unwrap().to_string();
    let all = [first.clone(), idle.clone(), moved];
    for streams in [&all[..1], &all[..2], &all[..]] {
        assert_eq!(end(streams, &base, "latest"), (position(1, 425), 0), "{}", streams.len());
        assert_eq!(end(streams, &late, "latest"), (late.position.clone(), 0));
    }
    assert_eq!(end(&all[..2], &base, &time), (position(1, 425), 0));
    assert_eq!(end(&all, &base, "bin.000001:350"), (position(1, 350), 0));
    // Once the server writes again.
    let begins = ((2, 4), continues(&first, None));
    let streams = [first.clone(), stream(&changes, 1, begins, &[200, 2000], None)];
    assert_eq!(end(&streams, &base, "latest"), (position(2, changes[5].end), 0));
    // No receiver writes a head that has transactions and no last one.
    let mut damaged = first;
    let mut head = head_of(&damaged.segments[&0]);
    head.last = None;
    damaged.segments.insert(0, listed(head));
    damaged.segments.pop_last();
    damaged.stated = 1;
    let streams = [damaged];
    let plan = plan(&streams, &base, &RestoreStop::Latest).unwrap();
    assert!(matches!(plan.end(&base.position), Err(PlanError::Segment { number: 0, .. })));
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
        assert!(plan.is_left, "{stop}");
        let by = plan.left_by.as_ref().unwrap();
        assert!(matches!(by, PlanError::Branch { reason, .. } if reason == "shorter"), "{by}");
        assert_eq!(replayed(&plan, &changes, &base).len(), count, "{stop}");
    }
    let later = Base { taken: Timestamp::from_second(NOW + 1000).unwrap(), ..base };
    let plan = plan(&streams, &later, &RestoreStop::Latest).unwrap();
    assert!(plan.pieces.iter().all(|piece| piece.stream == streams[1].id()));
    assert_eq!(replayed(&plan, &others, &later).last(), Some(&others[9].gtid));
    assert!(!plan.is_left);
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
        assert!(plan.is_left, "{stop}");
        assert_eq!(replayed(&plan, &changes, &base), all[..count], "{stop}");
    }
    assert_eq!(Histories::new(&streams).furthest(&base).unwrap().until, changes[9].end);
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
    assert!(Histories::new(&streams).furthest(&late).is_none());
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

/// A snapshot that is started writes logs of the same names, with as many transactions.
#[test]
fn a_branch_shares_only_logs_that_were_made_at_the_same_time() {
    let logs = |count: u64| {
        let mut all = changes(3 * count);
        for (n, change) in all.iter_mut().enumerate() {
            let (log, place) = (n as u64 / count + 1, n as u64 % count);
            (change.log, change.begin, change.end) = (log, 300 + 50 * place, 350 + 50 * place);
        }
        all
    };
    let changes = logs(3);
    let made = |stream: &mut Stream, log: u64, second: u32| {
        for segment in stream.segments.values_mut() {
            if segment.from.log == log_name(log) {
                std::sync::Arc::make_mut(segment).log_made = Some(second);
            }
        }
    };
    let mut old = simple(&changes, StreamOrigin::First, 0, (1, 4));
    for log in 1..=3 {
        made(&mut old, log, log as u32);
    }
    let after = link_to_end(&old);
    let branch = StreamOrigin::Branch { after, reason: "shorter".to_owned() };
    let (base, _) = base_at(&changes, 1);
    for (second, joins) in [(3, true), (33, false)] {
        let mut new = simple(&changes, branch.clone(), 1, (3, 4));
        made(&mut new, 3, second);
        let streams = [old.clone(), new];
        let planned = plan(&streams, &base, &RestoreStop::Latest);
        match joins {
            true => assert_eq!(planned.unwrap().pieces.last().unwrap().stream, streams[1].id()),
            false => assert!(planned.is_err(), "{planned:?}"),
        }
    }
}

/// A floor alone, which anyone can write, takes no stream out of the middle.
#[test]
fn a_stream_whose_segments_were_removed_is_not_passed_over() {
    let changes = changes(20);
    let first = simple(&changes[..5], StreamOrigin::First, 0, (1, 4));
    let end = |stream: &Stream| stream.segments.values().next_back().unwrap().to.clone();
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
    assert_eq!(of_new.segment.from, at(1, moved[7].end));
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
    old.segments.retain(|_, segment| segment.to.log == log_name(1));
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
            is_shown_by_bytes: false,
        })
    };
    let planned = |noted: &BasePosition| {
        let base = locate(&streams, noted).unwrap();
        plan(&streams, &base, &RestoreStop::Latest).map(|plan| replayed(&plan, &moved, &base))
    };
    let rest: Vec<AnyGtid> = all[8..].iter().map(|each| each.gtid.clone()).collect();
    assert_eq!(planned(&noted(end + 40, 7)), Ok(rest));
    // Only the old server's last segment shows that.
    let shows = witness(&streams, &noted(end + 40, 7)).unwrap().number;
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
    let begin = (1, first.segments.values().next_back().unwrap().to.offset);
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
        "2026-11-20T09:14",
        "09:14",
        "bin:1343",
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

/// Numbers that a session has set back: with `gtid_strict_mode=OFF`, MariaDB gives each GTID of them twice.
#[test]
fn numbers_that_were_given_twice_are_seen_as_far_as_the_heads_show_them() {
    let numbered = |numbers: &[u64], cuts: &[u64]| {
        let mut changes = changes(numbers.len() as u64);
        for (change, number) in changes.iter_mut().zip(numbers) {
            change.gtid = gtid(false, *number);
        }
        let first = ((1, 4), StreamOrigin::First);
        let stream = stream(&changes, 0, first, cuts, None);
        (changes, stream)
    };
    let recurs = |(changes, stream): &(Vec<Change>, Stream), base, stop: &str| {
        let (base, _) = base_at(changes, base);
        let planned = Histories::new(std::slice::from_ref(stream));
        let planned = planned.plan(&base, &stop.parse().unwrap()).unwrap();
        (planned.pieces.last().unwrap().segment.number, planned.numbers_recur)
    };
    let once = numbered(&[1, 2, 3, 4, 5, 6, 7, 8], &[296 + 50, 50, 50, 50]);
    assert_eq!(recurs(&once, 2, "0-1-5"), (2, false));
    // All segments that have the number are read.
    let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 5, 6, 7, 8, 9];
    let twice = numbered(&numbers, &[296 + 50, 50, 50, 50, 50, 50, 50, 50]);
    assert_eq!(recurs(&twice, 2, "0-1-5"), (5, false));
    assert_eq!(recurs(&twice, 2, "before:0-1-9"), (7, false));
    // One lies before the backup.
    assert_eq!(recurs(&twice, 12, "0-1-7"), (6, true));
    assert_eq!(recurs(&twice, 12, "0-1-9"), (7, false));
    // The numbers went back and beyond it in one segment.
    let within = numbered(&[1, 2, 3, 4, 5, 6, 7, 8, 5, 6], &[296 + 50, 50, 50, 25, 75]);
    assert_eq!(recurs(&within, 2, "0-1-5"), (2, true));
    assert_eq!(recurs(&within, 2, "0-1-3"), (1, false));
}
