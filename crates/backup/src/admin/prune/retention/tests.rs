use proptest::prelude::*;
use xb_repo::manifest::Base;
use xb_repo::verification::Level;

use super::*;

const DAY: i64 = 86_400;

fn candidate(name: &str, at: i64) -> Candidate {
    Candidate {
        name: name.to_owned(),
        run: format!("run of {name}"),
        server: None,
        finished: Timestamp::from_second(at).unwrap(),
        base: None,
        stands_for: None,
        is_partial: false,
        is_undated: false,
        is_clone: false,
        is_incremental: false,
        from_lsn: Some(0),
        to_lsn: Some(1),
        proven: None,
        pinned: false,
        damaged: false,
        broken: None,
        accepted_without_base: false,
        raw: false,
        shrunk: None,
        in_doubt: false,
        just_made: false,
        written: at,
        unread_record: false,
        possible_dependent: None,
    }
}

fn on(name: &str, at: i64, base: &str) -> Candidate {
    let base = Base { name: base.to_owned(), run: format!("run of {base}") };
    Candidate { base: Some(base), is_incremental: true, ..candidate(name, at) }
}

fn rests(increment: &Candidate, base: &Candidate) -> bool {
    increment.lineage().is_based_on(&base.lineage())
}

fn now() -> Timestamp {
    Timestamp::from_second(1000 * DAY).unwrap()
}

fn kept(all: &[Candidate], keep: Keep) -> Vec<String> {
    let plan = plan_prune(all, &keep, now());
    plan.into_iter().filter(|v| !v.is_removed()).map(|v| v.name).collect()
}

#[test]
fn each_rule_keeps_on_its_own() {
    // Two a day for 100 days, the later one at noon.
    let all: Vec<Candidate> = (0..200)
        .map(|n| candidate(&format!("{n:03}"), 900 * DAY + i64::from(n) * DAY / 2))
        .collect();
    assert!(Keep { last: Some(0), ..Keep::default() }.keeps_nothing());
    assert!(!Keep { daily: Some(1), ..Keep::default() }.keeps_nothing());
    assert_eq!(kept(&all, Keep { last: Some(3), ..Keep::default() }), ["199", "198", "197"]);
    assert_eq!(kept(&all, Keep { daily: Some(3), ..Keep::default() }), ["199", "197", "195"]);
    let weekly = kept(&all, Keep { weekly: Some(4), ..Keep::default() });
    assert_eq!(weekly.len(), 4);
    // The newest of all, then the last of each earlier Sunday. Day 0 was a Thursday.
    for name in &weekly[1..] {
        let n: i64 = name.parse().unwrap();
        assert_eq!(((900 + n / 2) % 7, n % 2), (3, 1), "{name}");
    }
    assert_eq!(
        kept(&all, Keep { monthly: Some(9), ..Keep::default() }).len(),
        4,
        "four months have one"
    );
    let week = Some(Duration::from_secs(7 * 86_400));
    assert_eq!(kept(&all, Keep { within: week, ..Keep::default() }).len(), 15);
    // All are old: the newest stays.
    let hour = Some(Duration::from_secs(3600));
    assert_eq!(kept(&all, Keep { within: hour, ..Keep::default() }), ["199"]);
}

#[test]
fn a_clock_that_is_ahead_makes_no_backup_old() {
    let mut all: Vec<Candidate> = (0..5).map(|n| candidate(&format!("f{n}"), n * 60)).collect();
    all[0].server = Some("other".to_owned());
    let within = Some(Duration::from_secs(30 * 86_400));
    assert_eq!(kept(&all, Keep { within, ..Keep::default() }), ["f4", "f3", "f2", "f1", "f0"]);
    // One that is older than that when the newest one ended goes.
    all[4].finished = Timestamp::from_second(31 * DAY).unwrap();
    assert_eq!(kept(&all, Keep { within, ..Keep::default() }), ["f4", "f0"]);
}

#[test]
fn required_backups_stay() {
    let keep = Keep { last: Some(1), ..Keep::default() };
    let mut all: Vec<Candidate> = (0..6).map(|n| candidate(&format!("f{n}"), n * DAY)).collect();
    all[1].pinned = true;
    all[2].proven = Some(Level::Pages);
    all[3].proven = Some(Level::Pages);
    all[4].damaged = true;
    assert_eq!(kept(&all, keep), ["f5", "f4", "f3", "f1"]);
    // Damaged ones count for no rule.
    all[5].damaged = true;
    assert_eq!(kept(&all, keep), ["f5", "f4", "f3", "f1"]);
    assert!(plan_prune(&all, &keep, now())[2].kept.contains(&KeepReason::Last));
    // The rules apply to another server separately.
    all[0].server = Some("other".into());
    assert_eq!(kept(&all, keep), ["f5", "f4", "f3", "f1", "f0"]);
}

#[test]
fn the_one_that_is_proven_furthest_stays_beside_newer_ones_that_are_proven_less() {
    let keep = Keep { last: Some(1), ..Keep::default() };
    let mut all: Vec<Candidate> = (0..5).map(|n| candidate(&format!("f{n}"), n * DAY)).collect();
    all[0].proven = Some(Level::Restore);
    all[1].proven = Some(Level::Restore);
    all[2].proven = Some(Level::Decrypt);
    all[3].proven = Some(Level::Checksum);
    assert_eq!(kept(&all, keep), ["f4", "f3", "f1"]);
    let plan = plan_prune(&all, &keep, now());
    assert_eq!(plan[1].kept, [KeepReason::NewestVerified]);
    assert_eq!(plan[3].kept, [KeepReason::BestVerified]);
    // Once the newest is verified to the same level, it is kept instead.
    all[4].proven = Some(Level::Restore);
    assert_eq!(kept(&all, keep), ["f4"]);
}

#[test]
fn a_backup_with_a_clock_ahead_replaces_no_other() {
    let all = [
        candidate("tonight", 1000 * DAY),
        candidate("last-night", 999 * DAY),
        candidate("ahead", 1300 * DAY),
        candidate("a-little", 1000 * DAY + 600),
    ];
    for keep in [
        Keep { last: Some(2), ..Keep::default() },
        Keep { daily: Some(1), last: Some(2), ..Keep::default() },
    ] {
        assert_eq!(kept(&all, keep), ["ahead", "a-little", "tonight"]);
    }
    let plan = plan_prune(&all, &Keep { last: Some(2), ..Keep::default() }, now());
    assert_eq!(plan[0].kept, [KeepReason::ClockAhead]);
}

#[test]
fn chains_are_kept_whole() {
    let keep = Keep { last: Some(1), ..Keep::default() };
    let mut all = vec![
        candidate("full", 0),
        on("i1", DAY, "full"),
        on("i2", 2 * DAY, "i1"),
        candidate("full2", 3 * DAY),
        on("j1", 4 * DAY, "full2"),
    ];
    assert_eq!(kept(&all, keep), ["j1", "full2"]);
    all[2].pinned = true;
    assert_eq!(kept(&all, keep), ["j1", "full2", "i2", "i1", "full"]);
    // Another backup that reused the base's name is not the base.
    all[0].run = "another".into();
    assert_eq!(kept(&all, keep), ["j1", "full2", "i2", "i1"]);
    // If the manifest names no base, the log positions decide.
    let lsn = |c: Candidate, from, to| Candidate {
        is_incremental: from > 0,
        from_lsn: Some(from),
        to_lsn: Some(to),
        ..c
    };
    let by_lsn = [
        lsn(candidate("a", 0), 0, 100),
        lsn(candidate("b", DAY), 0, 150),
        lsn(candidate("c", 2 * DAY), 100, 200),
    ];
    assert_eq!(kept(&by_lsn, keep), ["c", "a"]);
}

#[test]
fn an_unrestorable_backup_counts_for_no_rule_and_stays() {
    let keep = Keep { last: Some(1), ..Keep::default() };
    let mut all = vec![
        candidate("good", 0),
        candidate("gone", DAY),
        on("i1", 2 * DAY, "lost"),
        on("i2", 3 * DAY, "i1"),
    ];
    for broken in &mut all[2..] {
        broken.broken = Some("its base lost is missing".into());
    }
    assert_eq!(kept(&all, keep), ["i2", "i1", "gone"]);
    all[1].damaged = true;
    assert_eq!(kept(&all, keep), ["i2", "i1", "gone", "good"]);
    let plan = plan_prune(&all, &keep, now());
    assert!(plan[0].kept.contains(&KeepReason::Broken("its base lost is missing".into())));
    assert!(plan[3].kept.contains(&KeepReason::Newest));
}

/// Clocks of hosts may be behind, so the newest by the store's clock counts, too.
#[test]
fn a_clock_that_is_behind_loses_no_backup() {
    let keep = Keep { last: Some(1), ..Keep::default() };
    let mut all = vec![candidate("before", 10 * DAY), candidate("now", 9 * DAY)];
    assert_eq!(kept(&all, keep), ["before"]);
    (all[0].written, all[1].written) = (10 * DAY, 11 * DAY);
    assert_eq!(kept(&all, keep), ["before", "now"]);
    all[1].written = 0;
    all[1].just_made = true;
    assert_eq!(kept(&all, keep), ["before", "now"]);
}

#[test]
fn the_newest_by_its_own_clock_stays_beside_the_one_that_was_written_last() {
    let keep = Keep { within: Some(Duration::from_secs(3600)), ..Keep::default() };
    let last = Candidate { written: 11 * DAY, ..candidate("written-last", 9 * DAY) };
    assert_eq!(kept(&[candidate("newest", 10 * DAY), last], keep), ["newest", "written-last"]);
}

#[test]
fn a_backup_with_an_unreadable_record_stays() {
    let unread = Candidate { unread_record: true, ..candidate("unread", DAY) };
    let all = [unread, candidate("later", 2 * DAY)];
    assert_eq!(kept(&all, LAST), ["later", "unread"]);
    assert_eq!(plan_prune(&all, &LAST, now())[1].kept, [KeepReason::UnreadRecord]);
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let one = (0_i64..40, 0_usize..12, any::<[bool; 4]>(), 0_u64..5, 0_u64..5);
    prop::collection::vec(one, 0..12).prop_map(|all| {
        let make = |(n, (at, base, [verified, pinned, damaged, other], from, to)): (
            usize,
            &(i64, usize, [bool; 4], u64, u64),
        )| {
            let name = format!("b{n}");
            let mut made = candidate(&name, 960 * DAY + at * DAY / 3);
            // Some are based on another, mostly an earlier one, maybe a missing one.
            if base % 3 == 0 && n > 0 {
                made = on(&name, 960 * DAY + at * DAY / 3, &format!("b{}", base % (n + 1)));
            }
            if base % 4 == 1 {
                (made.from_lsn, made.to_lsn) = (Some(*from), Some(*to));
                made.is_incremental |= *from > 0;
            }
            Candidate {
                proven: (*verified && !*damaged).then(|| Level::ALL[2 + n % 4]),
                pinned: *pinned && n % 3 == 0,
                damaged: *damaged && n % 4 == 0,
                broken: (*damaged && n % 4 == 1).then(|| "broken".to_owned()),
                shrunk: (*verified && n % 4 == 2).then(|| "smaller".to_owned()),
                written: 970 * DAY - at * DAY * i64::from(n % 5 == 0),
                server: other.then(|| "other".to_owned()),
                ..made
            }
        };
        all.iter().enumerate().map(make).collect()
    })
}

/// Returns whether a backup, or one in its chain, is much smaller than usual. No chain is longer than all backups.
fn is_small(of: &Candidate, all: &[Candidate]) -> bool {
    let mut chain = vec![of];
    for _ in all {
        let bases = |c: &Candidate| {
            all.iter().filter(|base| base.name != c.name && rests(c, base)).collect::<Vec<_>>()
        };
        let more: Vec<&Candidate> = chain.iter().flat_map(|c| bases(c)).collect();
        chain.extend(
            more.into_iter()
                .filter(|c| !chain.iter().any(|of| of.name == c.name))
                .collect::<Vec<_>>(),
        );
    }
    chain.iter().any(|c| c.shrunk.is_some())
}

proptest! {
    #[test]
    fn nothing_that_is_needed_goes(
        all in candidates(), last in 0_usize..4, daily in 0_usize..4, weekly in 0_usize..3, monthly in 0_usize..3,
        days in prop::option::of(0_u64..30),
    ) {
        let within = days.map(|days| Duration::from_secs(days * 86_400));
        let numbers = [last, daily, weekly, monthly].map(Some);
        let keep = Keep { last: numbers[0], daily: numbers[1], weekly: numbers[2], monthly: numbers[3], within, ..Keep::default() };
        let plan = plan_prune(&all, &keep, now());
        prop_assert_eq!(plan.len(), all.len());
        let goes = |c: &Candidate| plan.iter().any(|v| v.name == c.name && v.is_removed());
        for c in &all {
            if c.pinned || c.damaged || c.broken.is_some() || is_small(c, &all) {
                prop_assert!(!goes(c));
            }
            // The base of a kept backup is kept.
            if !goes(c) {
                prop_assert!(all.iter().all(|base| base.name == c.name || !rests(c, base) || !goes(base)));
            }
        }
        for server in [None, Some("other".to_owned())] {
            let mut mine: Vec<&Candidate> = all.iter().filter(|c| c.server == server && c.is_restorable() && !is_small(c, &all)).collect();
            mine.sort_by_key(|c| std::cmp::Reverse((c.finished, c.name.clone())));
            prop_assert!(mine.first().is_none_or(|newest| !goes(newest)));
            let written = mine.iter().map(|c| c.written).max();
            prop_assert!(mine.is_empty() || mine.iter().any(|c| Some(c.written) == written && !goes(c)));
            prop_assert!(mine.iter().find(|c| c.proven.is_some()).is_none_or(|newest| !goes(newest)));
            for level in Level::ALL {
                let reach = |c: &&&Candidate| c.proven >= Some(level);
                prop_assert!(mine.iter().find(reach).is_none() || mine.iter().filter(reach).any(|c| !goes(c)), "{level}");
            }
            prop_assert!(mine.iter().take(last).all(|c| !goes(c)));
            // As many days as requested have a backup.
            let left: BTreeSet<_> = mine.iter().filter(|c| !goes(c)).map(|c| day(c.finished)).collect();
            let days: BTreeSet<_> = mine.iter().map(|c| day(c.finished)).collect();
            prop_assert!(left.len() >= daily.min(days.len()));
        }
        // A smaller count never keeps more.
        if last > 0 {
            let less = Keep { last: Some(last - 1), ..keep };
            for verdict in plan_prune(&all, &less, now()) {
                prop_assert!(verdict.is_removed() || plan.iter().any(|v| v.name == verdict.name && !v.is_removed()));
            }
        }
        // In the order of removal no backup precedes one that depends on it, except in cycles.
        for (n, verdict) in plan.iter().enumerate() {
            let Some(base) = all.iter().find(|c| c.name == verdict.name) else { continue };
            let later: Vec<&Candidate> = plan[n + 1..].iter().filter_map(|v| all.iter().find(|c| c.name == v.name)).collect();
            let waits = later.iter().any(|c| rests(c, base));
            prop_assert!(!waits || later.iter().all(|x| later.iter().chain([&base]).any(|y| rests(y, x))));
        }
    }

    /// The order of the listing does not matter.
    #[test]
    fn order_of_listing_does_not_matter(all in candidates(), last in 0_usize..4, daily in 0_usize..4) {
        let keep = Keep { last: Some(last), daily: Some(daily), ..Keep::default() };
        let sort = |mut plan: Vec<Verdict>| { plan.sort_by_key(|v| v.name.clone()); plan };
        let mut turned = all.clone();
        turned.reverse();
        prop_assert_eq!(sort(plan_prune(&all, &keep, now())), sort(plan_prune(&turned, &keep, now())));
    }
}

#[test]
fn nothing_of_a_server_goes_while_its_newest_backup_is_in_doubt() {
    let of = |name: &str, at, server: &str| Candidate {
        server: Some(server.to_owned()),
        ..candidate(name, at * DAY)
    };
    let mut all: Vec<Candidate> = (1..6).map(|n| of(&format!("a{n}"), n, "a")).collect();
    all.extend((1..4).map(|n| of(&format!("b{n}"), n, "b")));
    let keep = Keep { last: Some(1), ..Keep::default() };
    assert_eq!(kept(&all, keep), ["a5", "b3"]);
    all[4].shrunk = Some("2 bytes instead of 20".to_owned());
    // An older one is no reason to wait, and no reason for another to go.
    assert_eq!(kept(&all, keep), ["a5", "a4", "b3"]);
    all[4].in_doubt = true;
    assert_eq!(kept(&all, keep), ["a5", "a4", "b3", "a3", "a2", "a1"]);
    // Its clock may make it look old.
    (all[4].in_doubt, all[4].just_made) = (false, true);
    assert_eq!(kept(&all, keep).len(), 6);
}

/// They and what rests on them stay, and so do as many good ones as the rules ask for.
#[test]
fn a_backup_that_shrank_counts_for_no_rule() {
    let small = |of: Candidate| Candidate { shrunk: Some("2 bytes instead of 20".into()), ..of };
    let mut all: Vec<Candidate> = (1..4).map(|n| candidate(&format!("g{n}"), n * DAY)).collect();
    all.extend([small(candidate("s4", 4 * DAY)), on("i5", 5 * DAY, "s4")]);
    all.extend([candidate("g6", 6 * DAY), small(on("i7", 7 * DAY, "g6"))]);
    let proven = Some(Level::Restore);
    (all[3].proven, all[6].proven) = (proven, proven);
    for keep in
        [Keep { last: Some(2), ..Keep::default() }, Keep { daily: Some(2), ..Keep::default() }]
    {
        assert_eq!(kept(&all, keep), ["i7", "g6", "i5", "s4", "g3"], "{keep:?}");
    }
    let plan = plan_prune(&all, &LAST, now());
    let doubt = |of: &str| KeepReason::Doubt(of.to_owned());
    assert_eq!(plan[2].kept, [doubt("s4")]);
    assert!(plan[1].kept.contains(&KeepReason::Newest));
    // Once accepted, it is as good as any.
    (all[3].shrunk, all[6].shrunk) = (None, None);
    assert_eq!(kept(&all, LAST), ["i7", "g6"]);
}

#[test]
fn an_uninspected_backup_counts_only_among_its_own_kind() {
    let mut all: Vec<Candidate> = (1..4).map(|n| candidate(&format!("b{n}"), n * DAY)).collect();
    let raw = |n: i64| Candidate {
        raw: true,
        proven: Some(Level::Checksum),
        ..candidate(&format!("r{n}"), (10 + n) * DAY)
    };
    all.extend((1..4).map(raw));
    assert_eq!(kept(&all, Keep { last: Some(1), ..Keep::default() }), ["r3", "b3"]);
}

/// One that was proven by a trial restore, too: it has shown that it can be restored, not that it has all tables.
#[test]
fn no_whole_backup_goes_in_favour_of_a_partial_one() {
    let mut all: Vec<Candidate> = (1..4).map(|n| candidate(&format!("w{n}"), n * DAY)).collect();
    let partial = |n: i64| Candidate {
        is_partial: true,
        proven: Some(Level::Restore),
        ..candidate(&format!("p{n}"), (10 + n) * DAY)
    };
    all.extend((1..4).map(partial));
    let keep = Keep { last: Some(1), ..Keep::default() };
    assert_eq!(kept(&all, keep), ["p3", "w3"]);
    assert_eq!(kept(&all[3..], keep), ["p3"], "alone, they are kept as before");
}

/// An old stream that is imported counts as made when it was stored.
#[test]
fn no_backup_goes_in_favour_of_one_that_was_made_nobody_knows_when() {
    let mut all: Vec<Candidate> = (1..4).map(|n| candidate(&format!("k{n}"), n * DAY)).collect();
    let undated = |n: i64| Candidate {
        is_undated: true,
        proven: Some(Level::Restore),
        ..candidate(&format!("u{n}"), (10 + n) * DAY)
    };
    all.extend((1..4).map(undated));
    let keep = Keep { last: Some(1), ..Keep::default() };
    assert_eq!(kept(&all, keep), ["u3", "k3"]);
    assert_eq!(kept(&all[3..], keep), ["u3"], "alone, they count as any other");
}

#[test]
fn an_increment_whose_base_is_elsewhere_counts_once_accepted_but_replaces_no_whole_chain() {
    let broken = |n: i64| Candidate {
        broken: Some("its base f is missing".to_owned()),
        ..on(&format!("i{n}"), n * DAY, "f")
    };
    let full = candidate("full", DAY);
    let all: Vec<Candidate> = [full].into_iter().chain((2..5).map(broken)).collect();
    let keep = Keep { last: Some(1), ..Keep::default() };
    assert_eq!(kept(&all, keep).len(), 4, "they stay, and count for no rule");
    let accept =
        |one: &Candidate| Candidate { accepted_without_base: one.name != "full", ..one.clone() };
    let all: Vec<Candidate> = all.iter().map(accept).collect();
    assert_eq!(kept(&all, keep), ["i4", "full"]);
}

#[test]
fn a_proven_increment_whose_base_is_elsewhere_replaces_no_proven_chain() {
    let proven = Some(Level::Restore);
    let away = Candidate {
        broken: Some("its base f is missing".to_owned()),
        accepted_without_base: true,
        proven,
        ..on("away", 3 * DAY, "f")
    };
    let whole = Candidate { proven, ..candidate("whole", DAY) };
    assert_eq!(kept(&[whole, candidate("later", 2 * DAY), away], LAST), ["away", "later", "whole"]);
}

/// A chain of a full backup and two increments, and a full backup that was consolidated from it.
fn consolidated(proven: Option<Level>) -> Vec<Candidate> {
    let full = Candidate {
        stands_for: Some("run of i2".to_owned()),
        proven,
        ..candidate("i2-full", 902 * DAY)
    };
    vec![candidate("f", 900 * DAY), on("i1", 901 * DAY, "f"), on("i2", 902 * DAY, "i1"), full]
}

const LAST: Keep = Keep {
    last: Some(1),
    daily: None,
    weekly: None,
    monthly: None,
    within: None,
    binlog_within: None,
};

#[test]
fn a_chain_counts_until_its_consolidated_backup_is_proven_by_a_trial() {
    for proven in [None, Some(Level::Checksum), Some(Level::Pages)] {
        let all = consolidated(proven);
        let names = kept(&all, LAST);
        assert_eq!(names, ["i2-full", "i2", "i1", "f"], "{proven:?}");
        let plan = plan_prune(&all, &LAST, now());
        let of = |name: &str| plan.iter().find(|verdict| verdict.name == name).unwrap();
        assert!(of("i2").kept.contains(&KeepReason::Newest), "{plan:?}");
        let copy = [KeepReason::UnprovenCopyOf("i2".to_owned())];
        assert!(of("i2-full").kept.ends_with(&copy), "{plan:?}");
        assert!(!of("i2-full").kept.contains(&KeepReason::Newest), "{plan:?}");
    }
    // The server may be taking an increment of i2.
    let mut all = consolidated(Some(Level::Restore));
    assert_eq!(kept(&all, LAST), ["i2-full", "i2", "i1", "f"]);
    all.push(on("i3", 903 * DAY, "i2-full"));
    assert_eq!(kept(&all, LAST), ["i3", "i2-full"]);
}

#[test]
fn copies_and_backups_that_name_another_one_wrongly_are_backups_of_their_own() {
    let copied = Candidate { run: "run of f".to_owned(), ..candidate("golden", 900 * DAY) };
    let all = [candidate("f", 900 * DAY), copied];
    let two = Keep { last: Some(2), ..LAST };
    assert_eq!(kept(&all, two).len(), 2);
    let plan = plan_prune(&all, &two, now());
    assert!(
        plan.iter()
            .all(|one| !one.kept.iter().any(|why| matches!(why, KeepReason::UnprovenCopyOf(_))))
    );
    for change in [
        (|one: &mut Candidate| one.server = Some("other".to_owned())) as fn(&mut Candidate),
        |one| one.to_lsn = Some(77),
        |one| one.finished = Timestamp::from_second(950 * DAY).unwrap(),
    ] {
        let mut all = consolidated(Some(Level::Restore));
        change(&mut all[3]);
        let names = kept(&all, two);
        assert!(
            ["i2-full", "i2"].iter().all(|name| names.iter().any(|kept| kept == name)),
            "{names:?}"
        );
    }
}

#[test]
fn a_merge_that_can_be_restored_counts_before_a_chain_that_cannot() {
    let mut all = consolidated(None);
    all[2].broken = Some("its base is gone".to_owned());
    all[2].accepted_without_base = true;
    let mut newer = on("n", 903 * DAY, "elsewhere");
    (newer.broken, newer.accepted_without_base) = (Some("elsewhere".to_owned()), true);
    all.push(newer);
    let names = kept(&all, LAST);
    assert!(names.iter().any(|name| name == "i2-full"), "{names:?}");
}

#[test]
fn a_chain_and_its_consolidated_backup_are_one_for_the_rules() {
    let mut all = consolidated(Some(Level::Restore));
    all.insert(0, candidate("before", 800 * DAY));
    let two = Keep { last: Some(2), ..LAST };
    assert_eq!(kept(&all, two), ["i2-full", "i2", "i1", "f"]);
    let mut all = consolidated(None);
    all.insert(0, candidate("before", 800 * DAY));
    assert_eq!(kept(&all, two), ["i2-full", "i2", "i1", "f"]);
    // An unproven one goes with the link that counts for it.
    all.push(candidate("later", 903 * DAY));
    assert_eq!(kept(&all, LAST), ["later"]);
}

#[test]
fn the_last_link_counts_again_if_the_consolidated_backup_is_damaged_or_its_chain_does_not() {
    let mut all = consolidated(Some(Level::Restore));
    all[3].damaged = true;
    assert_eq!(kept(&all, LAST), ["i2-full", "i2", "i1", "f"]);
    let mut all = consolidated(None);
    (all[1].broken, all[2].broken) = (Some("gone".to_owned()), Some("gone".to_owned()));
    let plan = plan_prune(&all, &LAST, now());
    let newest = plan.iter().find(|verdict| verdict.kept.contains(&KeepReason::Newest)).unwrap();
    assert_eq!(newest.name, "i2-full", "it is all that can be restored");
    // The chain is gone: then it is a backup like any other.
    let alone = consolidated(None).split_off(3);
    assert_eq!(kept(&alone, LAST), ["i2-full"]);
}

/// It is written after all others, and so would hide the newest one of a host whose clock is behind.
#[test]
fn the_time_at_which_a_merge_was_stored_makes_it_not_the_newest() {
    let mut all = consolidated(Some(Level::Restore));
    let behind = Candidate { written: 950 * DAY, ..candidate("behind", 899 * DAY) };
    all.push(behind);
    all[3].written = 902 * DAY;
    assert_eq!(kept(&all, LAST), ["i2-full", "i2", "i1", "f", "behind"]);
}

proptest! {
    /// Whatever is proven or damaged, a backup of the newest data that can be restored stays, with its chain.
    #[test]
    fn the_newest_data_that_can_be_restored_stays(
        levels in proptest::collection::vec(proptest::option::of(0_usize..6), 4),
        damaged in proptest::collection::vec(any::<bool>(), 4),
        twice: bool,
    ) {
        let mut all = consolidated(None);
        if twice {
            let again = Candidate { name: "again".into(), run: "run of again".into(), ..all[3].clone() };
            all.push(again);
        }
        for (n, candidate) in all.iter_mut().take(4).enumerate() {
            candidate.proven = levels[n].map(|level| Level::ALL[level]);
            candidate.damaged = damaged[n];
        }
        for n in [1, 2] {
            let base_is_bad = damaged[..n].iter().any(|bad| *bad);
            all[n].broken = base_is_bad.then(|| "its base is damaged".to_owned());
        }
        let names = kept(&all, LAST);
        let restorable: Vec<&Candidate> = all.iter().filter(|c| c.is_restorable()).collect();
        if let Some(newest) = restorable.iter().map(|c| c.finished).max() {
            let stays = |c: &&&Candidate| c.finished == newest && names.contains(&c.name);
            prop_assert!(restorable.iter().any(|c| stays(&c)), "{names:?}");
        }
    }
}
