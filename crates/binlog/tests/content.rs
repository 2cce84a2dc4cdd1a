//! Contents of transactions in the logs of two servers that have them. See `fixtures/binlog-two-servers`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use xb_binlog::{
    AnyGtid, Begin, ChecksumKind, Comparison, Content, ContentDigest, Entry, Event, Fork, Gtid,
    GtidSequence, GtidState, HEADER_LEN, History, Overlap, Reader, Stretch, StretchPlace,
    Transaction, Verb,
};
use xb_testkit::vectors;

const SUM: usize = 4;

type Events = Vec<(Entry, Vec<u8>)>;

fn log(name: &str) -> Vec<u8> {
    vectors::read(&format!("binlog-two-servers/{name}.gz"))
}

/// The transactions of a log: their events, and how they end.
fn transactions(log: &[u8]) -> Vec<(Events, Transaction)> {
    let (mut reader, mut input) = (Reader::new(), log);
    let mut history = History::new("bin.000001", None);
    let (mut found, mut open) = (Vec::new(), Vec::new());
    while let Some(entry) = reader.next(&mut input).unwrap() {
        let step = history.push(&entry).unwrap();
        let place = usize::try_from(entry.begin).unwrap()..usize::try_from(entry.end).unwrap();
        if history.open().is_some() || step.ended.is_some() {
            open.push((entry, log[place].to_vec()));
        }
        if let Some(ended) = step.ended {
            found.push((std::mem::take(&mut open), ended));
        }
    }
    found
}

fn content(events: &Events, ended: &Transaction, piece: usize) -> Option<Content> {
    let mut digest = ContentDigest::new();
    let fork = match &ended.first {
        Begin::MariaDb(_) => Fork::MariaDb,
        Begin::MySql(_) => Fork::MySql,
    };
    for (entry, bytes) in events {
        bytes.chunks(piece).for_each(|piece| digest.take(piece, fork, ChecksumKind::Crc32));
        digest.end_event(entry);
    }
    digest.end_transaction(ended)
}

fn contents(log: &[u8]) -> Vec<Content> {
    let all = transactions(log);
    all.iter().map(|(events, ended)| content(events, ended, usize::MAX).unwrap()).collect()
}

/// Each pair is two transactions with one GTID, which do different things.
#[test]
fn different_transactions_have_different_contents() {
    let one = |name: &str| {
        let all = contents(&log(name));
        let gtid: AnyGtid = "0-11-1".parse().unwrap();
        all.into_iter().find(|content| content.gtid == gtid).unwrap()
    };
    for (a, b, what) in [
        ("x1", "x2", "the time of a statement"),
        ("x3", "x4", "the SQL mode"),
        ("x5", "x6", "the time of rows"),
        ("x7", "x8", "the types of columns"),
    ] {
        let (a, b) = (one(a), one(b));
        assert_ne!(a.digest, b.digest, "{what}");
        assert_eq!(a.form, b.form, "{what}");
    }
}

/// How many transactions two logs share, and which of them have other contents.
fn differing(a: &str, b: &str) -> (usize, Vec<String>) {
    let of = |name| -> BTreeMap<AnyGtid, Content> {
        contents(&log(name)).into_iter().map(|content| (content.gtid.clone(), content)).collect()
    };
    let (a, b) = (of(a), of(b));
    let both: Vec<_> = a.iter().filter_map(|(gtid, one)| Some((one, b.get(gtid)?))).collect();
    let other = both.iter().filter(|(a, b)| a.digest != b.digest);
    (both.len(), other.map(|(a, b)| format!("{} {}", a.gtid, a.form != b.form)).collect())
}

#[test]
fn a_transaction_has_one_content_on_all_servers() {
    for (a, b) in [
        ("pair-load.p1", "pair-load.p2"),
        ("pair-mixed.p1", "pair-mixed.p2"),
        ("galera-row.n1", "galera-row.n2"),
        ("galera-row.n1", "galera-row.n3"),
        ("galera-row.n2", "galera-row.n3"),
        ("galera-session-formats.n2", "galera-session-formats.n3"),
    ] {
        let (number, differing) = differing(a, b);
        assert!(number > if a == "pair-load.p1" { 5 } else { 25 }, "{number}");
        assert_eq!(differing, [""; 0], "{a} {b}");
    }
}

/// Sessions in statement format: the other nodes write rows. Each such transaction has another form.
#[test]
fn statements_that_became_rows_are_of_another_form() {
    let (number, differing) = differing("galera-session-formats.n1", "galera-session-formats.n2");
    assert!(number > 25 && !differing.is_empty(), "{number}");
    assert!(differing.iter().all(|one| one.ends_with("true")), "{differing:?}");
    let stretch = |name: &str, like: &str| {
        let known: Vec<AnyGtid> = contents(&log(like)).into_iter().map(|one| one.gtid).collect();
        let mut stretch = Stretch::default();
        let all = contents(&log(name));
        all.iter().filter(|one| known.contains(&one.gtid)).for_each(|one| stretch.add(one));
        stretch
    };
    let one = stretch("galera-session-formats.n1", "galera-session-formats.n2");
    let other = stretch("galera-session-formats.n2", "galera-session-formats.n1");
    assert!(matches!(one.compare(&other), Comparison::AnotherForm));
}

/// Returns whether a statement is none that each server words itself, or that begins or ends a transaction.
fn is_counted(entry: &Entry) -> bool {
    matches!(&entry.event, Event::Query(query) if query.verb == Verb::Other
        && ![&b"CREATE TEMPORARY "[..], b"DROP TEMPORARY "].iter().any(|of| query.text.starts_with(of)))
}

/// Whatever a server may choose has no effect; every other byte has.
#[test]
fn every_byte_of_rows_and_statements_counts() {
    let mut flipped = 0;
    for name in ["pair-mixed.p1", "galera-row.n1"] {
        for (events, ended) in transactions(&log(name)) {
            let known = content(&events, &ended, usize::MAX).unwrap();
            let mut elsewhere = events.clone();
            elsewhere.retain(|(_, bytes)| bytes[4] != 160);
            for (_, bytes) in &mut elsewhere {
                let length = bytes.len();
                bytes[13..19].fill(0x55);
                bytes[length - SUM..].fill(0xaa);
                match bytes[4] {
                    2 | 16 | 165 => bytes[HEADER_LEN..HEADER_LEN + 8].fill(7),
                    19 | 23..=25 | 166..=171 => {
                        bytes[HEADER_LEN..HEADER_LEN + 6].iter_mut().for_each(|byte| *byte ^= 1)
                    }
                    _ => {}
                }
            }
            assert_eq!(content(&elsewhere, &ended, usize::MAX), Some(known.clone()));
            for (number, (_, bytes)) in events.iter().enumerate() {
                let length = bytes.len() - SUM;
                let body = match bytes[4] {
                    5 | 13 | 14 => HEADER_LEN..length,
                    19 | 23..=25 => HEADER_LEN + 8..length,
                    2 if is_counted(&events[number].0) => {
                        let variables = [bytes[HEADER_LEN + 11], bytes[HEADER_LEN + 12]];
                        HEADER_LEN + 13 + usize::from(u16::from_le_bytes(variables))..length
                    }
                    _ => continue,
                };
                // The error and the first variable of a statement.
                let more = if bytes[4] == 2 { vec![28, 29, 33, 34] } else { Vec::new() };
                for at in (0..4).chain(more).chain(body) {
                    let mut other = events.clone();
                    other[number].1[at] ^= 1;
                    let other = content(&other, &ended, usize::MAX);
                    assert_ne!(
                        other.map(|one| one.digest),
                        Some(known.digest),
                        "{at} of {bytes:?}"
                    );
                    flipped += 1;
                }
            }
        }
    }
    assert!(flipped > 1000, "{flipped}");
}

/// Each server has a file of its own for `LOAD DATA`; data, columns and the other words of the statement count.
#[test]
fn every_byte_of_loaded_data_counts_but_the_name_of_the_file() {
    let (mut counted, mut passed_over) = (0, 0);
    for (events, ended) in transactions(&log("pair-load.p1")) {
        let known = content(&events, &ended, usize::MAX).unwrap().digest;
        for (number, (_, bytes)) in events.iter().enumerate() {
            let end = bytes.len() - SUM;
            let body = &bytes[HEADER_LEN..];
            let (begin, file) = match bytes[4] {
                9 | 17 => (HEADER_LEN + 4, 0..0),
                18 => {
                    let lengths = usize::from(body[8]) + usize::from(body[11]);
                    let text = HEADER_LEN + 26 + lengths + 1;
                    let [from, to] = [17, 21].map(|at| usize::from(body[at]));
                    (text, text + from..text + to)
                }
                _ => continue,
            };
            for at in begin..end {
                let mut other = events.clone();
                other[number].1[at] ^= 1;
                let other = content(&other, &ended, usize::MAX).unwrap().digest;
                assert_eq!(other == known, file.contains(&at), "{at}");
                *(if other == known { &mut passed_over } else { &mut counted }) += 1;
            }
        }
    }
    assert!(counted > 300 && passed_over > 100, "{counted} {passed_over}");
}

/// A server compresses what another one does not.
#[test]
fn compressed_events_have_the_content_of_plain_ones() {
    use std::io::Write as _;
    let mut changed = 0;
    for name in ["pair-mixed.p1", "galera-row.n1"] {
        for (events, ended) in transactions(&log(name)) {
            let known = content(&events, &ended, usize::MAX);
            let mut compressed = events.clone();
            for (entry, bytes) in &mut compressed {
                let body = &bytes[HEADER_LEN..bytes.len() - SUM];
                let (new, at) = match bytes[4] {
                    2 if !body.ends_with(b"BEGIN") && !body.ends_with(b"COMMIT") => {
                        let variables = usize::from(u16::from_le_bytes([body[11], body[12]]));
                        (165, 13 + variables + usize::from(body[8]) + 1)
                    }
                    old @ 23..=25 => {
                        let images = if old == 24 { 2 } else { 1 };
                        (old - 23 + 166, 9 + usize::from(body[8]).div_ceil(8) * images)
                    }
                    _ => continue,
                };
                let mut zlib =
                    flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
                zlib.write_all(&body[at..]).unwrap();
                let length = u32::try_from(body.len() - at).unwrap().to_be_bytes();
                let body = [&body[..at], &[0x84], &length, &zlib.finish().unwrap()].concat();
                let mut event = [&bytes[..HEADER_LEN], &body, &[0; SUM]].concat();
                event[4] = new;
                let length = u32::try_from(event.len()).unwrap();
                event[9..13].copy_from_slice(&length.to_le_bytes());
                entry.header.event_type.0 = new;
                *bytes = event;
                changed += 1;
            }
            for piece in [1, 7, usize::MAX] {
                assert_eq!(content(&compressed, &ended, piece), known);
            }
        }
    }
    assert!(changed > 50, "{changed}");
}

const UUID: &str = "11111111-2222-3333-4444-555555555555";

fn made(number: usize, domains: u32, is_mysql: bool) -> Vec<Content> {
    let form = contents(&log("pair-mixed.p1"))[0].form;
    (0..number)
        .map(|n| {
            let n = u8::try_from(n).unwrap();
            let (domain, number) = (u32::from(n) % domains, u64::from(n) + 1);
            // As many sources of MySQL.
            let gtid = match is_mysql {
                false => Gtid { domain, server: 1, sequence: number }.into(),
                true => format!("{UUID}:tag{domain}:{number}").parse().unwrap(),
            };
            Content { gtid, digest: [n; 32], form }
        })
        .collect()
}

fn nothing() -> GtidState {
    "".parse().unwrap()
}

fn stretch(all: &[Content]) -> Stretch {
    let mut stretch = Stretch::default();
    all.iter().for_each(|one| stretch.add(one));
    stretch
}

/// The same transactions in another order between domains.
fn interleaved(all: &[Content], choices: &[u8]) -> Vec<Content> {
    let mut queues: BTreeMap<GtidSequence, std::collections::VecDeque<Content>> = BTreeMap::new();
    all.iter()
        .for_each(|one| queues.entry(one.gtid.sequence()).or_default().push_back(one.clone()));
    let (mut result, mut choices) = (Vec::new(), choices.iter().cycle());
    while result.len() < all.len() {
        let open: Vec<_> = queues.iter_mut().filter(|(_, q)| !q.is_empty()).collect();
        let chosen = usize::from(*choices.next().unwrap()) % open.len();
        result.extend(open.into_iter().nth(chosen).unwrap().1.pop_front());
    }
    result
}

proptest! {
    #[test]
    fn pieces_of_any_size_are_one_content(piece in 1_usize..3000, is_mysql in any::<bool>()) {
        let name = if is_mysql { "mysql-row.p1" } else { "pair-mixed.p2" };
        for (events, ended) in transactions(&log(name)).into_iter().take(65) {
            prop_assert_eq!(
                content(&events, &ended, piece),
                content(&events, &ended, usize::MAX)
            );
        }
    }

    /// The order between domains counts nowhere, and an archive's end lies at another place in each domain.
    #[test]
    fn domains_may_be_interleaved_in_any_way(
        domains in 1_u32..5,
        is_mysql in any::<bool>(),
        number in 1_usize..40,
        more in 0_usize..20,
        choices in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        let all = made(number + more, domains, is_mysql);
        let (stored, later) = all.split_at(number);
        let expected = stretch(stored);
        prop_assert_eq!(&stretch(&interleaved(stored, &choices)), &expected);
        let mut overlap = Overlap::new(nothing(), expected);
        let mut behind = 0;
        for one in interleaved(&all, &choices) {
            let is_later = later.iter().any(|later| later.gtid == one.gtid);
            let place = overlap.push(&one);
            prop_assert_eq!(place, if is_later { StretchPlace::Behind } else { StretchPlace::Within });
            behind += usize::from(is_later);
        }
        prop_assert!(overlap.is_over() && behind == more);
        prop_assert_eq!(overlap.compare(), Comparison::Same);
    }

    #[test]
    fn lost_changed_doubled_or_swapped_transactions_are_a_branch(
        domains in 1_u32..5,
        is_mysql in any::<bool>(),
        number in 6_usize..40,
        at: prop::sample::Index,
        how in 0..4,
        choices in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        let all = made(number, domains, is_mysql);
        let at = at.index(number);
        let domain = all[at].gtid.sequence();
        let mut other = interleaved(&all, &choices);
        let at = other.iter().position(|one| one.gtid == all[at].gtid).unwrap();
        match how {
            0 => drop(other.remove(at)),
            1 => other[at].digest[9] ^= 1,
            2 => other.insert(at, other[at].clone()),
            _ => {
                let next = other.iter().enumerate().skip(at + 1);
                let next = next.filter(|(_, one)| one.gtid.sequence() == domain).map(|(n, _)| n).next();
                prop_assume!(next.is_some());
                other.swap(at, next.unwrap());
            }
        }
        prop_assert_eq!(stretch(&all).compare(&stretch(&other)), Comparison::Branch);
        let mut overlap = Overlap::new(nothing(), stretch(&all));
        let places: Vec<StretchPlace> = other.iter().map(|one| overlap.push(one)).collect();
        // A transaction that is doubled at the end of a domain lies behind the stretch, where the reader of the log refuses it.
        let is_behind = places.contains(&StretchPlace::Behind);
        let is_branch = overlap.compare() == Comparison::Branch;
        prop_assert!(is_branch || (how == 2 && is_behind));
    }
}

#[test]
fn transactions_before_the_stretch_are_skipped() {
    let all = made(12, 2, false);
    let mut before = nothing();
    assert!(all[..4].iter().all(|one| before.add(one.gtid.clone())));
    let mut overlap = Overlap::new(before, stretch(&all[4..8]));
    let places: Vec<StretchPlace> = all.iter().map(|one| overlap.push(one)).collect();
    assert_eq!(
        places,
        [[StretchPlace::Before; 4], [StretchPlace::Within; 4], [StretchPlace::Behind; 4]].concat()
    );
    assert_eq!((overlap.is_over(), overlap.compare()), (true, Comparison::Same));
}

proptest! {
    /// Nothing that is damaged is more than no content, or another one; and it is the same in pieces of any size.
    #[test]
    fn no_bytes_are_too_bad(
        at: prop::sample::Index,
        is_mysql in any::<bool>(),
        event_type in prop::sample::select(vec![2, 5, 9, 18, 19, 24, 31, 38, 39, 40, 165, 166, 167, 170, 171]),
        keep in 0_usize..60,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        piece in 1_usize..50,
    ) {
        let all = transactions(&log(if is_mysql { "mysql-row.p1" } else { "galera-row.n1" }));
        let (mut events, ended) = all[at.index(all.len())].clone();
        let (mut entry, mut event) = events[events.len() - 1].clone();
        let body = event[HEADER_LEN..event.len() - SUM].to_vec();
        event.truncate(HEADER_LEN);
        event.extend(&body[..keep.min(body.len())]);
        event.extend(bytes);
        event.extend([0; SUM]);
        let length = u32::try_from(event.len()).unwrap();
        event[9..13].copy_from_slice(&length.to_le_bytes());
        event[4] = event_type;
        entry.header.event_type.0 = event_type;
        entry.event = Event::Content;
        let at = events.len() - 1;
        events.insert(at, (entry, event));
        prop_assert_eq!(content(&events, &ended, piece), content(&events, &ended, usize::MAX));
    }
}

/// Archives have the digests: whatever changes one makes an archive and its server a branch at the next change of servers.
#[test]
fn the_content_of_known_transactions_stays_the_same() {
    use sha2::{Digest as _, Sha256};
    for (name, known) in [
        ("pair-load.p1", "b3c3bf57"),
        ("pair-mixed.p1", "fc88d8ba"),
        ("galera-row.n1", "f6ce6138"),
        ("mysql-row.p1", "c5c7acfd"),
    ] {
        let mut all = Sha256::new();
        contents(&log(name)).iter().for_each(|one| all.update(one.digest));
        let sum: String = all.finalize()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum, known, "{name}");
    }
}

/// Whatever a source and its replica write differently has no effect, unless one of them does not write whole rows.
#[test]
fn a_transaction_of_mysql_has_one_content_on_both_servers() {
    let (number, of_rows) = differing("mysql-row.p1", "mysql-row.p2");
    // A part of a JSON value, and a minimal image.
    let is_known = |one: &String| [":12 true", ":53 true"].iter().any(|of| one.ends_with(of));
    assert!(number == 65 && of_rows.len() == 2 && of_rows.iter().all(is_known), "{of_rows:?}");
    let (number, of_statements) = differing("mysql-statement.p1", "mysql-statement.p2");
    assert_eq!((number, of_statements), (68, Vec::new()));
}

/// Every byte of a compressed transaction counts, and so does each that the replica writes of it.
#[test]
fn every_byte_of_a_transaction_of_mysql_counts() {
    let mut flipped = [0; 3];
    for (events, ended) in transactions(&log("mysql-row.p1")).into_iter().skip(6).step_by(3) {
        let known = content(&events, &ended, usize::MAX).unwrap();
        for (number, (entry, bytes)) in events.iter().enumerate() {
            let length = bytes.len() - SUM;
            let (kind, body) = match bytes[4] {
                40 => (0, HEADER_LEN..length),
                19 | 30..=32 | 39 => (1, HEADER_LEN + 8..length),
                // The flag and the name, not the time, of an XA transaction.
                38 => (1, HEADER_LEN..length),
                2 if is_counted(entry) => {
                    let variables = usize::from(u16::from_le_bytes([bytes[30], bytes[31]]));
                    (2, HEADER_LEN + 13 + variables..length)
                }
                _ => continue,
            };
            for at in body.step_by(if length > 2000 { 97 } else { 1 }) {
                let mut other = events.clone();
                other[number].1[at] ^= 1;
                let other = content(&other, &ended, usize::MAX);
                // Some bytes of zstd say nothing of the content.
                let is_same = other.is_some_and(|other| other.digest == known.digest);
                assert!(!is_same || kind == 0, "{at} of {bytes:?}");
                flipped[kind] += usize::from(!is_same);
            }
        }
    }
    assert!(flipped[0] > 50 && flipped[1] > 500 && flipped[2] > 300, "{flipped:?}");
}
