//! At the end of which receiver's streams an archive ends, and what of the others is used.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod archive_model;

use std::path::Path;
use std::sync::Arc;

use archive_model::*;
use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use xb_binlog::{AnyGtid, GtidPosition, GtidState};
use xb_repo::archive::authority::Keyless;
use xb_repo::archive::base::{Base, BasePosition};
use xb_repo::archive::listed_segment::ListedSegment;
use xb_repo::archive::listing::{self, Problem};
use xb_repo::archive::names::segment_name;
use xb_repo::archive::newest::{last_stored, outlines};
use xb_repo::archive::plan::{Histories, PlanError, Stream, reach};
use xb_repo::archive::record::{FORMAT, Record};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::archive::stream::{Alive, Link, StreamOrigin};
use xb_repo::root::Root;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

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
                last.last.as_ref().is_some_and(|last| last[1].position().unwrap() < end)
            }) => {
                let last = before.segments.values().next_back().unwrap().last.clone().unwrap();
                let log = last[1].log.rsplit_once('.').unwrap().1.parse().unwrap();
                let after = link_to_end(&before);
                ((log, last[1].offset), StreamOrigin::Continues { after, at: None })
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
    assert_eq!(newest(&streams).id(), whole.id());
    // What a host remembers of either is there; it is not where only the other one is left.
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().clone();
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
    assert_eq!(newest(&streams).id(), streams[0].id());
    assert!(!ends_before(&streams, &streams[1].segments[&4]));
}

/// A copy of a server that was started beside it says that it is the same one.
#[test]
fn two_histories_that_are_received_at_the_same_time_are_in_doubt() {
    let all = changes(20);
    let own =
        |life: i64| stream(&all, 0, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW + life));
    let mut others = all.clone();
    for change in &mut others[5..] {
        if let AnyGtid::MariaDb(gtid) = &mut change.gtid {
            gtid.server = 7;
        }
    }
    let of_copy = |number: usize, own: &Stream, life: i64| {
        let (number, parted) = own.segments.iter().nth(number).unwrap();
        let (stream_id, head) = (own.id().to_owned(), parted.digest.to_string());
        let after = Link { stream: stream_id, number: *number, head };
        let branch = StreamOrigin::Branch { after, reason: "other bytes".to_owned() };
        stream(&others, 1, ((1, 4), branch), &[50; 40], Some(NOW + life))
    };
    let last = own(0).segments.len() - 1;
    for (parted, life, of, is_in_doubt) in [
        (2, 1000, 1030, true),
        (2, 1030, 1000, true),
        // One of them has ended, or they have just parted, as in a crash that another receiver has not noticed.
        (2, 1000, 2000, false),
        (2, 2000, 1000, false),
        (2, 100, 105, false),
        // It was left where it ended.
        (last, 1000, 1030, false),
    ] {
        let own = own(life);
        let streams = [own.clone(), of_copy(parted, &own, of)];
        let histories = Histories::new(&streams);
        let found = (histories.unproven().is_some(), histories.beside().is_some());
        assert_eq!(found, (is_in_doubt, is_in_doubt), "{parted} {life} {of}");
    }
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
    assert_eq!(newest(&streams).id(), streams[1].id());
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
    assert_eq!(newest(&streams).id(), further.id());
    assert!(unproven(&streams).is_none());
    // Of one server, nothing is in doubt.
    let same = stream(&changes[..6], 1, first(), &[50; 40], Some(NOW + 5000));
    assert!(unproven(&[further, same]).is_none());
}

/// The numbers of GTIDs do not tell that the primary had transactions which the server that took its place lacks.
#[test]
fn a_primary_that_failed_does_not_pass_the_server_that_took_its_place() {
    let all = changes(20);
    let by_itself = |mut all: Vec<Change>, from: usize| {
        for change in &mut all[from..] {
            let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
            gtid.server = 2;
        }
        all
    };
    let first = || ((1, 4), StreamOrigin::First);
    let lived = |life: i64| Some(NOW + life);
    let before = simple(&all[..8], StreamOrigin::First, 1, (1, 4));
    let at = before.segments.values().next_back().unwrap().to.clone();
    let failed = |life| stream(&all[..10], 0, first(), &[50; 40], lived(life));
    // It was received from before, or taken over to.
    let took = |count: usize, life: i64, is_known: bool| {
        let begins = match is_known {
            true => (
                (1, at.offset),
                StreamOrigin::Continues { after: link_to_end(&before), at: Some(at.clone()) },
            ),
            false => first(),
        };
        stream(&by_itself(all.clone(), 8)[..count], OTHER_SERVER, begins, &[50; 40], lived(life))
    };
    for (count, is_known) in [(9, true), (9, false), (15, true), (15, false)] {
        for (old, new) in [(60, 100), (100, 60)] {
            let streams = [failed(old), before.clone(), took(count, new, is_known)];
            let (present, doubt) = (newest(&streams).id(), unproven(&streams));
            let doubt = doubt.map(Stream::id);
            match (count, is_known, old < new) {
                // It has more, and its receiver came from the primary.
                (15, true, _) => assert_eq!((present, doubt), (streams[2].id(), None)),
                (_, _, true) => {
                    assert_eq!((present, doubt), (streams[2].id(), Some(streams[0].id())))
                }
                (_, _, false) => {
                    assert_eq!((present, doubt), (streams[0].id(), Some(streams[2].id())))
                }
            }
        }
    }
    // It only has less of the same, as a replica.
    let replica = stream(&all[..9], OTHER_SERVER, first(), &[50; 40], lived(100));
    let streams = [failed(60), replica];
    assert_eq!(newest(&streams).id(), streams[0].id());
    assert!(unproven(&streams).is_none());
    // It was the primary before, and came back: the one that failed is the other one.
    let back =
        StreamOrigin::Continues { after: link_to_end(&took(9, 0, true)), at: Some(at.clone()) };
    let back = stream(&all[..12], 2, ((1, at.offset), back), &[50; 40], lived(100));
    let streams = [before.clone(), took(13, 60, true), took(9, 0, true), back];
    assert_ne!(newest(&streams).id(), streams[1].id());
}

/// The transactions of other servers that the present history lacks. Found by all segments and by few, which have to agree.
fn stranded(streams: &[Stream]) -> Vec<String> {
    let found = Histories::new(streams).stranded();
    let (folder, root) = stored_root(streams);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let by_few = runtime.block_on(async {
        let outlines = outlines(&root, "shop").await.unwrap();
        xb_repo::archive::newest::stranded(&root, &outlines).await.unwrap()
    });
    drop(folder);
    assert_eq!(found, by_few);
    found.iter().map(|found| found.gtids.to_string()).collect()
}

/// The doubt about a primary that failed ends with the time; what it alone has does not.
#[test]
fn what_a_failed_primary_alone_has_is_told_for_ever() {
    let all = changes(20);
    let by_itself = |from: usize| {
        let mut all = all.clone();
        for change in &mut all[from..] {
            let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
            gtid.server = 2;
        }
        all
    };
    let first = || ((1, 4), StreamOrigin::First);
    let failed =
        |count: usize, life: i64| stream(&all[..count], 0, first(), &[50; 40], Some(NOW + life));
    // Cut between any transactions, and not between those where the server changed.
    for cuts in [[50; 40], [1000; 40], [35; 40]] {
        let took = |from: usize, count: usize, life: i64| {
            let changes = &by_itself(from)[..count];
            stream(changes, OTHER_SERVER, first(), &cuts, Some(NOW + life))
        };
        for later in [200, 100_000_000] {
            // Another one took its place behind the eighth.
            let streams = [failed(10, 0), took(8, 15, later)];
            assert_eq!(newest(&streams).id(), streams[1].id());
            assert!(unproven(&streams).is_none());
            assert_eq!(stranded(&streams), ["0-1-10"], "{cuts:?}");
            let streams = [failed(10, 0), took(8, 9, later)];
            assert_eq!(stranded(&streams), ["0-1-10"], "{cuts:?}");
            // It had everything.
            for (from, count) in [(10, 15), (10, 10), (12, 15)] {
                let streams = [failed(10, 0), took(from, count, later)];
                assert_eq!(stranded(&streams), [""; 0], "{from} {count} {cuts:?}");
            }
        }
        // Both are received, and the replica lags.
        assert_eq!(stranded(&[failed(10, 70), took(20, 8, 100)]), [""; 0]);
    }
    // The branch of another server names the stream that it left; that of the server itself is no failover.
    for (id, expected) in [(OTHER_SERVER, &["0-1-10"][..]), (5, &[])] {
        let left = failed(10, 0);
        let begins =
            StreamOrigin::Branch { after: link_to_end(&left), reason: "shorter".to_owned() };
        let branch = stream(&by_itself(8), id, ((1, 4), begins), &[50; 40], Some(NOW + 500));
        assert_eq!(stranded(&[left, branch]), expected, "{id}");
    }
    // One that took over where the other ended has everything.
    let old = simple(&all[..10], StreamOrigin::First, 0, (1, 4));
    let at = old.segments.values().next_back().unwrap().to.clone();
    let start = (1, at.offset);
    let begins = StreamOrigin::Continues { after: link_to_end(&old), at: Some(at) };
    let new = stream(&by_itself(10), OTHER_SERVER, (start, begins), &[50; 40], Some(NOW + 500));
    assert_eq!(stranded(&[old, new]), [""; 0]);
}

/// A server that was restored to a moment, or a replica that took over, and logs only what clients do there.
#[test]
fn a_server_behind_a_gap_lacks_what_its_numbers_repeat() {
    let all = changes(40);
    let own = |from: usize, count: usize| {
        let mut all = all[from..from + count].to_vec();
        for change in &mut all {
            let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
            gtid.server = 2;
        }
        all
    };
    for cuts in [[50; 40], [1000; 40], [35; 40]] {
        let first = ((1, 4), StreamOrigin::First);
        let left = stream(&all[..20], 0, first, &cuts, Some(NOW));
        let begins =
            || StreamOrigin::Gap { after: link_to_end(&left), reason: "its own log".to_owned() };
        for (from, count, expected) in [
            (12, 4, "0-1-20"),
            (12, 8, "0-1-20"),
            (12, 20, "0-1-20"),
            (20, 1, ""),
            (20, 10, ""),
            (25, 5, ""),
        ] {
            let behind =
                stream(&own(from, count), OTHER_SERVER, ((1, 4), begins()), &cuts, Some(NOW + 500));
            let found = stranded(&[left.clone(), behind]);
            assert_eq!(found.join(" "), expected, "{from} {count} {cuts:?}");
        }
    }
}

/// A receiver of an earlier version did not say where the servers of a domain changed.
#[test]
fn nothing_is_invented_of_servers_that_no_head_names() {
    let mut all = changes(20);
    let failed = stream(&all[..10], 0, ((1, 4), StreamOrigin::First), &[50; 40], Some(NOW));
    for change in &mut all[10..] {
        let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
        gtid.server = 2;
    }
    let first = ((1, 4), StreamOrigin::First);
    let mut took = stream(&all, OTHER_SERVER, first, &[1000; 40], Some(NOW + 500));
    let mut head = head_of(&took.segments[&0]);
    head.turns = None;
    took.segments.insert(0, listed(head));
    assert_eq!(stranded(&[failed, took]), [""; 0]);
}

/// Sets of MySQL name all transactions.
#[test]
fn what_a_failed_source_of_mysql_alone_has_is_told() {
    let mut all = changes(20);
    for (n, change) in all.iter_mut().enumerate() {
        change.gtid = gtid(true, n as u64 + 1);
    }
    let first = || ((1, 4), StreamOrigin::First);
    let failed = stream(&all[..10], 0, first(), &[50; 40], Some(NOW));
    let mut others = all.clone();
    for change in &mut others[8..] {
        let text = change.gtid.to_string().replace("1111-", "2222-");
        change.gtid = text.parse().unwrap();
    }
    for (changes, expected) in [(&others, 1), (&all, 0)] {
        let took = stream(changes, OTHER_SERVER, first(), &[50; 40], Some(NOW + 500));
        let found = stranded(&[failed.clone(), took]);
        assert_eq!(found.len(), expected, "{found:?}");
        assert!(found.iter().all(|gtids| gtids.ends_with(":9-10")), "{found:?}");
    }
    // It got them with a dump, which no log has.
    let mut took = stream(&others, OTHER_SERVER, first(), &[50; 40], Some(NOW + 500));
    took.head.content.outside = Some(format!("{}-10", all[8].gtid));
    assert_eq!(stranded(&[failed, took]), [""; 0]);
}

/// The record of its end shows how far it reached.
#[test]
fn a_stream_without_its_last_segment_is_passed_only_by_one_that_has_its_end() {
    let changes = changes(20);
    let (base, _) = base_at(&changes, 2);
    for (life, other_life) in [(10, 5000), (5000, 10)] {
        let other = |stop: usize| {
            let first = ((1, 4), StreamOrigin::First);
            stream(&changes[..stop], 1, first, &[50; 40], Some(NOW + other_life))
        };
        let first = ((1, 4), StreamOrigin::First);
        let mut cut = stream(&changes, 0, first, &[50; 40], Some(NOW + life));
        let (_, last) = cut.segments.pop_last().unwrap();
        cut.end = Some(last.to.clone());
        for stop in [17, 19] {
            let streams = [cut.clone(), other(stop)];
            let found = plan(&streams, &base, &RestoreStop::Latest);
            assert!(matches!(found, Err(PlanError::Segment { .. })), "{found:?}");
        }
        let streams = [cut, other(20)];
        let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
        assert_eq!(replayed(&found, &changes, &base).len(), 18);
    }
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
    let (last, life) = Histories::new(&streams).newest().unwrap();
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

/// Of two receivers, one was away while the server ran without a log: for that one, its logs follow each other.
#[test]
fn what_a_server_did_not_log_is_taken_from_no_receiver() {
    let changes = in_three_logs();
    let made = |mut stream: Stream, second: u32| {
        made_at(&mut stream, |log| second + log as u32);
        stream
    };
    let whole = |stop: usize, life| {
        let begins = ((1, 4), StreamOrigin::First);
        made(stream(&changes[..stop], 0, begins, &[50; 60], Some(NOW + life)), 1000)
    };
    let saw = made(simple(&changes[..6], StreamOrigin::First, 1, (1, 4)), 1000);
    let tells = |reason: &str, life: i64| {
        let gap = StreamOrigin::Gap { after: link_to_end(&saw), reason: reason.to_owned() };
        stream(&changes, 2, ((2, 4), gap), &[50; 60], Some(NOW + life))
    };
    let unlogged = "the server ran without a binary log at 2026-11-30T22:00:00Z";
    let (base, _) = base_at(&changes, 2);
    let (behind, _) = base_at(&changes, 10);
    let is_gap = |streams: &[Stream], base: &Base| {
        let found = plan(streams, base, &RestoreStop::Latest);
        match found {
            Ok(_) => false,
            Err(PlanError::Gap { reason, .. }) => reason == unlogged,
            Err(error) => panic!("{error}"),
        }
    };
    // Whichever of them is the present one.
    for (life, other) in [(10, 5000), (5000, 10)] {
        for stop in [14, 30] {
            let streams = [whole(stop, life), saw.clone(), made(tells(unlogged, other), 1000)];
            assert!(is_gap(&streams, &base), "{life} {stop}");
            assert!(!is_gap(&streams, &behind), "{life} {stop}");
            let before = plan(&streams, &base, &"0-1-7".parse().unwrap()).unwrap();
            assert_eq!(replayed(&before, &changes, &base).len(), 5);
            // What was only missed, another receiver has.
            let streams = [whole(30, life), saw.clone(), made(tells("purged", other), 1000)];
            assert!(!is_gap(&streams, &base), "{life}");
            // A log of the same name that was made at another time, as after RESET MASTER, is another one.
            let streams = [whole(30, 5000), saw.clone(), made(tells(unlogged, 10), 2000)];
            assert!(!is_gap(&streams, &base));
        }
    }
}

/// The first bytes of the format description event of a log that was made at this second.
fn made_at(streams: &mut Stream, seconds: impl Fn(u64) -> u32) {
    let mut previous = streams.head.digest.to_string();
    for segment in streams.segments.values_mut() {
        let mut head = head_of(segment);
        let log = head.to.log.rsplit_once('.').unwrap().1.parse().unwrap();
        head.description =
            seconds(log).to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        head.previous = previous;
        *segment = listed(head);
        previous = segment.digest.to_string();
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
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().clone();
    // The one that reached further, and the newest sign of life is that of the other one: which is in the same log, in the
    // log that branched, or before the difference.
    let pairs = [
        (q(30, 10), p(20, 5000), true),
        (q(20, 5000), p(30, 10), false),
        (q(30, 10), p(6, 5000), true),
        (q(5, 5000), p(30, 10), false),
    ];
    // Where it ended is stated, though its segments are removed.
    let gone = removed(&old);
    let pairs = pairs.iter().flat_map(|pair| [&old, &gone].map(|old| (old, pair)));
    for (n, (old, (q, p, is_q))) in pairs.enumerate() {
        let (further, behind) = if *is_q { (q, p) } else { (p, q) };
        let streams = [old.clone(), q.clone(), p.clone()];
        assert_eq!(newest(&streams).id(), further.id(), "{n}");
        // Whichever of them a host remembers, this reaches it.
        assert!(!ends_before(&streams, &last(further)), "{n}");
        assert!(!ends_before(&streams, &last(behind)), "{n}");
        // Without the end of that one, the archive ends before what its host remembers.
        let mut short = further.clone();
        short.segments.retain(|_, segment| segment.to.log == log_name(1));
        short.stated = short.segments.len() as u64;
        let streams = [old.clone(), short, behind.clone()];
        assert!(ends_before(&streams, &last(further)), "{n}");
        if *is_q {
            continue;
        }
        // As an older backup is restored by it.
        let streams = [old.clone(), q.clone(), p.clone()];
        let found = plan(&streams, &base, &RestoreStop::Latest).unwrap();
        let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
        assert_eq!(replayed(&found, &changes, &base), all, "{n}");
    }
    // A third receiver of the history that was lost: it has what was left, so its clock decides nothing, but it does not pass.
    let dead = stream(&lost, 3, ((1, 4), StreamOrigin::First), &[70; 40], Some(NOW + 9));
    for old in [old.clone(), gone] {
        let streams = [old, q(7, 100), dead.clone()];
        assert_eq!(newest(&streams).id(), streams[1].id());
    }
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

/// What the branch left is removed, or is the log of a server that failed: that both continue in a log which was made later shows
/// that they are one.
#[test]
fn a_branch_counts_for_nothing_once_both_have_a_later_log() {
    let changes = in_three_logs();
    let mut lost = archive_model::changes(12);
    for change in &mut lost[8..] {
        let AnyGtid::MariaDb(gtid) = &mut change.gtid else { unreachable!() };
        gtid.server = 9;
    }
    let line = |stop: usize, id, begins, life: i64| {
        let mut line = stream(&changes[..stop], id, ((1, 4), begins), &[50; 40], Some(NOW + life));
        made_at(&mut line, |log| 1000 + log as u32);
        line
    };
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().clone();
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
                let at = Some(last(&before).to.clone());
                StreamOrigin::Continues { after: link_to_end(&before), at }
            }
            _ => StreamOrigin::First,
        };
        // Which of them is further, and whether they end in one log.
        for (q, p) in [(30, 20), (20, 30), (30, 14), (14, 30)] {
            let (q_life, p_life) = if q > p { (10, 5000) } else { (5000, 10) };
            let (q, p) = (line(q, 1, branch(), q_life), line(p, 2, other(), p_life));
            let further = if q_life < p_life { q.id() } else { p.id() }.to_owned();
            // Nor is it stated where it ended.
            let old = if is_removed { Stream { end: None, ..removed(&old) } } else { old.clone() };
            let streams = [old, before.clone(), q.clone(), p.clone()];
            let streams = if id == OTHER_SERVER {
                &streams[..]
            } else {
                &[streams[0].clone(), q.clone(), p.clone()]
            };
            assert_eq!(newest(streams).id(), further, "{n}");
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
    let last = |stream: &Stream| stream.segments.values().next_back().unwrap().clone();
    let (base, _) = base_at(&changes, 2);
    let all: Vec<_> = changes[2..].iter().map(|change| change.gtid.clone()).collect();
    let (further, behind) = (line(30, 0, 10), line(14, 1, 5000));
    let streams = [further.clone(), behind.clone()];
    assert_eq!(newest(&streams).id(), further.id());
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
    assert_eq!(newest(&streams).id(), alive.id());
    // Made in the order of their names, they are one history.
    made_at(&mut alive, |_| 500);
    let streams = [dead.clone(), alive];
    assert_eq!(newest(&streams).id(), dead.id());
}

/// Writes a stream as a receiver does that was killed.
fn store(folder: &Path, stream: &Stream) {
    let folder = folder.join(".xb-binlog/shop").join(stream.id());
    std::fs::create_dir_all(&folder).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    put("head", &Record::encode(&stream.head.content, None).unwrap());
    for (number, segment) in &stream.segments {
        let head = Record::encode(&head_of(segment), None).unwrap();
        put(&segment_name(*number), &[&head[..], BODY].concat());
    }
    let Some(last) = stream.segments.values().next_back() else { return };
    let alive = Alive {
        format: FORMAT,
        stream: stream.id().to_owned(),
        segments: stream.stated,
        head: last.digest.to_string(),
        position: stream.end.clone().unwrap_or_else(|| last.to.clone()),
        covered_until: stream.covered_until,
        acknowledged: None,
        written: Timestamp::from_second(NOW).unwrap(),
        trouble: None,
    };
    put("alive", &Record::encode(&alive, None).unwrap());
}

/// Another receiver's stream: how many changes it has, its sign of life, how it began, behind which stream, and how many of its
/// stated segments are not there.
type Other = (usize, i64, u8, usize, usize);

/// Streams of one server whose third log began by a session that had set its time, up to a change.
fn in_one_archive(lives: &[Vec<u64>], others: Vec<Other>, end: usize, life: i64) -> Vec<Stream> {
    let changes = in_three_logs();
    let mut streams = archive(&changes[..end], lives, NOW + life);
    for (n, (stop, life, kind, before, cut)) in others.into_iter().enumerate() {
        let stored: Vec<_> = streams.iter().filter(|stream| !stream.segments.is_empty()).collect();
        let after = link_to_end(stored[before % stored.len()]);
        let begins = match kind {
            0 => StreamOrigin::First,
            1 => StreamOrigin::Branch { after, reason: "shorter".to_owned() },
            2 => StreamOrigin::Gap { after, reason: "purged".to_owned() },
            _ => StreamOrigin::Continues { after, at: None },
        };
        let begins = ((1, 4), begins);
        let mut other =
            stream(&changes[..stop], 100 + n as u8, begins, &[40; 60], Some(NOW + life));
        other.end = other.segments.values().next_back().map(|last| last.to.clone());
        // What its sign of life states is not there.
        for _ in 0..cut.min(other.segments.len() - 1) {
            other.segments.pop_last();
        }
        streams.push(other);
    }
    for stream in &mut streams {
        made_at(stream, |log| if log == 3 { 500 } else { 1000 + log as u32 });
    }
    streams
}

/// Stores these streams, and finds their end as a receiver does and as a restore does.
fn stored_root(streams: &[Stream]) -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    streams.iter().for_each(|stream| store(folder.path(), stream));
    let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let root = Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
    (folder, root)
}

fn found_ends(streams: &[Stream]) -> (Option<ListedSegment>, Option<ListedSegment>) {
    let (_folder, root) = stored_root(streams);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (last, read) = runtime.block_on(async {
        (
            last_stored(&root, "shop").await.unwrap(),
            listing::streams(&root, "shop", &Keyless).await.unwrap(),
        )
    });
    for listed in &read {
        let is_cut = |problem: &&Problem| !problem.what.ends_with("is missing");
        assert!(listed.problems.iter().find(is_cut).is_none(), "{:?}", listed.problems);
    }
    let read: Vec<Stream> = read.into_iter().map(|listed| listed.stream.unwrap()).collect();
    let present = newest(&read);
    let of_it = present.segments.values().next_back().or_else(|| {
        // It has stored nothing yet.
        let link = present.head.content.begins.after()?;
        let followed = read.iter().find(|stream| stream.id() == link.stream)?;
        followed.segments.get(&link.number)
    });
    let last = last.map(|last| (*ListedSegment::of(&last, None)).clone());
    (last, of_it.map(|last| (**last).clone()))
}

/// That these have more in common than their last segments show is in segments that a receiver does not read.
#[test]
fn logs_that_a_receiver_has_not_read_leave_it_in_doubt() {
    let gap = vec![(1, 0, 2, 0, 0), (2, 0, 0, 0, 0)];
    let (last, of_it) = found_ends(&in_one_archive(&[], gap, 17, 54));
    assert_eq!(last, of_it);
}

/// Its logs before the branch are those of the stream that it left.
#[test]
fn a_last_segment_does_not_show_what_is_behind_a_branch() {
    let others = vec![(9, 1811, 1, 0, 1), (17, 0, 2, 1, 0)];
    let (last, of_it) = found_ends(&in_one_archive(&[], others, 17, 0));
    assert_eq!(last, of_it);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// `prune` removes what is out of reach.
    #[test]
    fn what_a_plan_needs_is_within_reach(
        lives in vec(vec(20_u64..90, 1..6), 0..3),
        others in vec((1_usize..31, 0_i64..9000, 0_u8..4, 0_usize..6, 0_usize..3), 0..4),
        end in 1_usize..31,
        base in 0_usize..31,
        number in 0_usize..31,
    ) {
        let changes = in_three_logs();
        let is_one = others.is_empty();
        let streams = in_one_archive(&lives, others, end, 0);
        let (base, _) = base_at(&changes[..end], base);
        let within = reach(&streams, std::slice::from_ref(&base));
        let gtid = changes[number % changes.len()].gtid.clone();
        for stop in [RestoreStop::Latest, RestoreStop::Gtid(gtid)] {
            let planned = Histories::new(&streams).plan(&base, &stop);
            for piece in planned.iter().flat_map(|plan| &plan.pieces) {
                let number = piece.segment.number;
                prop_assert!(within.contains(&(piece.stream, number)), "{stop:?}: {number}");
            }
        }
        // Nothing that lies before the backup, if no history begins anew.
        for (stream, number) in within.into_iter().filter(|_| is_one) {
            let of_it = streams.iter().find(|each| each.id() == stream).unwrap();
            let segment = &of_it.segments[&number];
            let is_before = segment.to.position().unwrap() < base.position;
            prop_assert!(!is_before, "{number}");
        }
    }

    /// A receiver does not read all of the archive.
    #[test]
    fn a_receiver_goes_on_where_a_restore_ends(
        lives in vec(vec(20_u64..90, 1..6), 0..3),
        others in vec((1_usize..31, 0_i64..9000, 0_u8..4, 0_usize..6, 0_usize..3), 1..4),
        end in 1_usize..31,
        life in 0_i64..9000,
    ) {
        let (last, of_it) = found_ends(&in_one_archive(&lives, others, end, life));
        prop_assert_eq!(last, of_it);
    }
}

/// Many connections, and a backup that none of their histories has: each history shares what comes before with others.
/// The power failed while it was written, or a copy was cut.
#[test]
fn a_last_segment_that_cannot_be_read_hides_none_before_it() {
    let changes = changes(20);
    let streams = [simple(&changes, StreamOrigin::First, 0, (1, 4))];
    let (folder, root) = stored_root(&streams);
    let place = folder.path().join(".xb-binlog/shop").join(streams[0].id());
    let count = streams[0].segments.len() as u64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = || {
        runtime.block_on(async {
            let outlines = outlines(&root, "shop").await.unwrap();
            let last = outlines[0].last_segment(&root).await.unwrap();
            let stored = last_stored(&root, "shop").await.unwrap();
            [last, stored].map(|last| last.map(|last| last.content.number))
        })
    };
    assert_eq!(found(), [Some(count - 1); 2]);
    for cut in 1..4 {
        std::fs::write(place.join(segment_name(count - cut)), b"").unwrap();
        assert_eq!(found(), [Some(count - 1 - cut); 2]);
    }
}

#[test]
fn histories_share_what_they_have_in_common() {
    const STREAMS: usize = 1500;
    let changes = changes(24);
    let first = simple(&changes, StreamOrigin::First, 0, (1, 4));
    let mut streams = vec![first];
    for number in 1..STREAMS {
        let mut next = streams[number - 1].clone();
        let after = link_to_end(&next);
        let id = format!("{number:032x}");
        let mut head = next.head.content.clone();
        head.stream.clone_from(&id);
        head.start = at(number as u64 + 1, 4);
        head.begins = StreamOrigin::Gap { after, reason: "purged".to_owned() };
        next.head = Record::decode(&Record::encode(&head, None).unwrap()).unwrap();
        for segment in next.segments.values_mut() {
            let mut own = (**segment).clone();
            own.stream = id.as_str().into();
            for end in [&mut own.from, &mut own.to] {
                *end = at(number as u64 + 1, end.offset);
            }
            *segment = Arc::new(own);
        }
        streams.push(next);
    }
    let (mut base, _) = base_at(&changes, 6);
    base.position = position(STREAMS as u64 + 7, 4);
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        peak.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = memory();
    let histories = Histories::new(&streams);
    assert!(histories.furthest(&base).is_none());
    let error = histories.plan(&base, &RestoreStop::Latest).unwrap_err();
    assert!(matches!(error, PlanError::NoStart { .. }), "{error}");
    let noted = BasePosition::Between {
        from: GtidState::MariaDb(GtidPosition::default()),
        to: gtids(&changes, 1, 1000),
        taken: base.taken,
    };
    assert!(histories.locate(&noted).is_some());
    let grown = memory() - before;
    assert!(grown < 200 << 10, "{grown} KB for {} segments", STREAMS * 12);
}
