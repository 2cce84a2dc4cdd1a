//! An archive of many segments or of many streams, made up of heads: how many requests reading it takes.

use std::collections::BTreeMap;
use std::io::Cursor;

use jiff::Timestamp;
use serde_json::Value;
use xb_encryptor::KeySlots;
use xb_pipeline::Observer;
use xb_pipeline::filter::{SealFile, write_stream};
use xb_repo::archive::ended::{EndedStream, STREAMS_AT_ONCE, encode};
use xb_repo::archive::names::{STREAMS, rollup_name};
use xb_repo::archive::record::{FORMAT, Record, digest};
use xb_repo::archive::rollup::{LARGE, PendingHeads, SMALL};
use xb_repo::archive::segment::{Body, Commits, LastTransaction, SegmentHead};
use xb_repo::archive::stream::{Alive, End, Link, StoredPosition, StreamHead, StreamOrigin};
use xb_repo::names::RunId;
use xb_testkit::command::Cmd;
use xb_testkit::fault::Proxy;
use xb_testkit::store::Store;
use xb_testkit::stream::small_backup;
use xb_testkit::vectors;

const STREAM: &str = "00112233445566778899aabbccddeeff";
/// Where a native stream would be, which is not read.
const BODY: &[u8] = b"XBRSTR01";

fn at(offset: u64) -> StoredPosition {
    StoredPosition { log: "bin.000001".into(), offset }
}

/// The head of a segment, behind `before` transactions of other streams.
fn head(
    (stream, before): (&str, u64),
    number: u64,
    previous: &str,
    begin: Timestamp,
) -> SegmentHead {
    let gtids = |sequence: u64| Some(format!("0-1-{sequence}"));
    let place = before + number;
    let received = begin + jiff::SignedDuration::from_secs(5 * place as i64);
    let seconds = u32::try_from(received.as_second()).unwrap();
    let (from, to) = (at(300 + place * 100), at(400 + place * 100));
    SegmentHead {
        format: FORMAT,
        stream: stream.to_owned(),
        number,
        previous: previous.to_owned(),
        from: from.clone(),
        to: to.clone(),
        next_log: None,
        description: "0f".repeat(252),
        gtids_before: gtids(place),
        gtids_after: gtids(place + 1),
        starts_inside: false,
        ends_inside: false,
        transactions: 1,
        domains: None,
        turns: None,
        commits: Some(Commits { first: seconds, last: seconds, greatest: seconds }),
        received: [received; 2],
        last: Some(LastTransaction {
            gtid: format!("0-1-{}", place + 1),
            from,
            to,
            sha256: digest(&place.to_le_bytes()),
        }),
        barriers: Vec::new(),
        more_barriers: 0,
        prepared: 0,
        altering: 0,
        body: Body { id: None, len: BODY.len() as u64, sha256: digest(BODY) },
    }
}

/// A roll-up of this text.
pub(crate) fn object(text: Vec<u8>) -> Vec<u8> {
    let slots = KeySlots::default();
    let compress = "zstd".parse().unwrap();
    let settings = SealFile { key_slots: &slots, compress, threads: 1, raw: true };
    let mut object = Vec::new();
    let text = Cursor::new(text);
    write_stream(text, &mut object, None, &settings, &Observer::default()).unwrap();
    object
}

/// The head of a stream that begins behind `before` transactions of others.
fn stream_head(id: &str, before: u64, started: Timestamp, begins: StreamOrigin) -> StreamHead {
    StreamHead {
        format: FORMAT,
        stream: id.to_owned(),
        server: "shop".to_owned(),
        tool: "test".to_owned(),
        started,
        server_version: "10.11.19-MariaDB".to_owned(),
        server_id: 1,
        server_uuid: None,
        node: None,
        host: None,
        repeats: None,
        outside: None,
        start: at(300 + before * 100),
        gtids: Some(format!("0-1-{before}")),
        begins,
        settings: BTreeMap::new(),
        settings_at: None,
        system_zone: None,
        engines: Vec::new(),
        doubts: Vec::new(),
        sealed: Vec::new(),
    }
}

/// The sign of life of a stream whose last segment has this head, behind `transactions` in all.
fn alive(id: &str, segments: u64, head: &str, transactions: u64) -> Vec<u8> {
    let alive = Alive {
        format: FORMAT,
        stream: id.to_owned(),
        segments,
        head: head.to_owned(),
        position: at(300 + transactions * 100),
        covered_until: None,
        acknowledged: None,
        written: Timestamp::now(),
        trouble: None,
    };
    Record::encode(&alive, None).unwrap()
}

fn begin() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

/// Stores an archive of this many segments, as a receiver would.
fn make(store: &Store, segments: u64) {
    let folder = format!(".xb-binlog/shop/{STREAM}");
    let begin = begin();
    let stream = stream_head(STREAM, 0, begin, StreamOrigin::First);
    let stream = Record::encode(&stream, None).unwrap();
    store.put(&format!("{folder}/head"), &stream);
    let (mut previous, mut collected) = (digest(&stream), PendingHeads::new());
    for number in 0..segments {
        let head = head((STREAM, 0), number, &previous, begin);
        let head = Record::encode(&head, None).unwrap();
        previous = digest(&head);
        store.put(&format!("{folder}/{number:012}"), &[&head[..], BODY].concat());
        for rollup in collected.add(&head) {
            store.put(&format!("{folder}/{}", rollup_name(rollup.span)), &object(rollup.text));
        }
    }
    store.put(&format!("{folder}/alive"), &alive(STREAM, segments, &previous, segments));
}

/// Stores an archive of `streams` connections of `each` segments, each of which ended in order, as a receiver would.
fn make_streams(store: &Store, streams: u64, each: u64, is_rolled_up: bool) {
    let mut link = None;
    let mut ended = Vec::new();
    for count in 0..streams {
        let (id, before) = (RunId((u128::from(count) << 64).to_be_bytes()), count * each);
        let (name, started) =
            (id.to_string(), begin() + jiff::SignedDuration::from_secs(5 * before as i64));
        let folder = format!(".xb-binlog/shop/{name}");
        let origin = match link.take() {
            Some(after) => StreamOrigin::Continues { after, at: None },
            None => StreamOrigin::First,
        };
        let stream = Record::encode(&stream_head(&name, before, started, origin), None).unwrap();
        store.put(&format!("{folder}/head"), &stream);
        let (mut previous, mut collected) = (digest(&stream), PendingHeads::new());
        for number in 0..each {
            let head =
                Record::encode(&head((&name, before), number, &previous, begin()), None).unwrap();
            previous = digest(&head);
            store.put(&format!("{folder}/{number:012}"), &[&head[..], BODY].concat());
            let _ = collected.add(&head);
        }
        if let Some(rest) = collected.rest() {
            store.put(&format!("{folder}/{}", rollup_name(rest.span)), &object(rest.text));
        }
        let alive = alive(&name, each, &previous, before + each);
        let end =
            End { format: FORMAT, stream: name.clone(), segments: each, head: previous.clone() };
        let end = Record::encode(&end, None).unwrap();
        store.put(&format!("{folder}/alive"), &alive);
        store.put(&format!("{folder}/end"), &end);
        link = Some(Link { stream: name, number: each - 1, head: previous });
        let heads = collected.few().unwrap_or_default().to_vec();
        ended.push(EndedStream { id, head: stream, keys: Vec::new(), alive, end, heads });
        if is_rolled_up && ended.len() == STREAMS_AT_ONCE {
            let key = format!(".xb-binlog/shop/{STREAMS}/{}", ended.last().unwrap().id);
            store.put(&key, &object(encode(&ended)));
            ended.clear();
        }
    }
}

/// Runs a command on the archive of a store. Returns what it printed, and its requests.
fn counted(store: &Store, args: &[&str]) -> (Value, u64) {
    let (printed, proxy) = seen(store, args);
    (printed, proxy.seen().len() as u64)
}

/// The same, with what has seen the requests.
fn seen(store: &Store, args: &[&str]) -> (Value, Proxy) {
    let options = store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let begin = std::time::Instant::now();
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults"])
        .args(args)
        .args(store.options())
        .arg(format!("--s3-endpoint={}", proxy.endpoint()))
        .run()
        .expect(0);
    let requests = proxy.seen().len();
    println!("{args:?}: {requests} requests, {:.1} s", begin.elapsed().as_secs_f64());
    (serde_json::from_slice(&ran.stdout).unwrap(), proxy)
}

/// With a request for each backup and each archive, a list of many servers would never end.
#[test]
fn each_manifest_is_read_once_for_the_archives_of_all_servers() {
    let store = Store::bucket();
    let (root, log) = (store.root_url(), vectors::path("binlog/mariadb.000002"));
    let run = |args: &[&str], stdin| {
        let program = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("--no-defaults").args(args);
        let _ = program.args(store.options()).stdin_bytes(stdin).run().expect(0);
    };
    for server in ["--server=a", "--server=b", "--server=c"] {
        let log = log.to_str().unwrap();
        run(&["binlog", "push", &root, log, server, "--new-archive"], Vec::new());
    }
    for name in ["one", "two"] {
        run(&["put", &format!("{root}/{name}")], small_backup(3, 5000));
    }
    for command in ["list", "verify"] {
        let (found, proxy) = seen(&store, &["binlog", command, &root, "--json"]);
        assert_eq!(found["servers"].as_array().map(Vec::len), Some(3), "{found:#}");
        for name in ["one", "two"] {
            let reads = proxy.count("GET", &format!("/.xb-catalog/{name}"));
            assert_eq!(reads, 1, "{command}, {name}: {:#?}", proxy.seen());
        }
    }
}

/// Set `XB_TEST_STREAMS` to 288 for a day of connections of five minutes, or 25920 for 90 days, and `XB_TEST_SEGMENTS` to 60
/// for a server that is never idle.
#[test]
fn an_archive_of_many_connections_is_read_with_few_requests() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let at_once = STREAMS_AT_ONCE as u64;
    let streams = number("XB_TEST_STREAMS").unwrap_or(3 * at_once + 2);
    let each = number("XB_TEST_SEGMENTS").unwrap_or(3);
    let store = Store::bucket();
    let root = store.root_url();
    let list = ["binlog", "list", &root, "--json"];
    make_streams(&store, streams, each, true);
    let (found, requests) = counted(&store, &list);
    let found = &found["servers"][0];
    let listed = found["streams"].as_array().unwrap();
    let transactions: u64 = listed.iter().map(|of| of["transactions"].as_u64().unwrap()).sum();
    assert_eq!((listed.len() as u64, transactions), (streams, streams * each));
    assert!(listed.iter().all(|of| of["problems"].as_array().is_some_and(Vec::is_empty)));
    // The archive's pages of 1000, a roll-up for 16 streams, and the records of those that are in none.
    let pages = streams * (each + 4) / 1000 + 1;
    let most = 8 + pages + streams / at_once + 5 * (streams % at_once);
    assert!(requests <= most, "{requests} requests, at most {most} expected");
    if number("XB_TEST_STREAMS").is_some() {
        return;
    }
    // With one that is cut, the answer is the same.
    let keys: Vec<String> = store
        .list(&format!(".xb-binlog/shop/{STREAMS}/"))
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys.len(), 3);
    let good = store.get(&keys[1]).unwrap();
    store.put(&keys[1], &good[..good.len() - 1]);
    let (cut, requests_of_cut) = counted(&store, &list);
    let cut = &cut["servers"][0];
    assert!(cut["streams"][0]["remarks"][0].as_str().unwrap().contains("is ignored"), "{cut:#}");
    assert_eq!(cut["streams"].as_array().unwrap()[1..], listed[1..]);
    assert!(requests_of_cut > requests + 4 * at_once - 2, "{requests_of_cut}");
    // None hides anything.
    store.put(&keys[1], &good);
    let of = |number: u64| {
        format!(".xb-binlog/shop/{}", RunId((u128::from(number) << 64).to_be_bytes()))
    };
    let segment = format!("{}/{:012}", of(17), 1);
    store.delete(&segment);
    store.put(&format!("{}/head", of(18)), b"damaged");
    let (wrong, _) = counted(&store, &list);
    let streams = wrong["servers"][0]["streams"].as_array().unwrap();
    let own = streams.iter().find(|stream| segment.contains(stream["stream"].as_str().unwrap()));
    let problems = own.unwrap()["problems"].to_string();
    assert!(problems.contains("segment 1 is missing"), "{problems}");
    assert!(wrong.to_string().contains("head: not a record"), "{wrong:#}");
}

/// Set `XB_TEST_SEGMENTS` to 17280 for a day, or 518400 for a month, of segments of 5 s.
#[test]
fn an_archive_is_read_with_few_requests() {
    let wanted = std::env::var("XB_TEST_SEGMENTS").ok().and_then(|text| text.parse().ok());
    let segments: u64 = wanted.unwrap_or(LARGE + 2 * SMALL + 5);
    let store = Store::bucket();
    make(&store, segments);
    let (found, requests) = counted(&store, &["binlog", "list", &store.root_url(), "--json"]);
    let stream = &found["servers"][0]["streams"][0];
    assert_eq!(stream["transactions"].as_u64(), Some(segments), "{stream:#}");
    assert_eq!(stream["problems"].as_array().map(Vec::len), Some(0), "{stream:#}");
    // Records, the archive's pages of 1000, large and small roll-ups, and heads that no roll-up has.
    let rollups = segments / LARGE + segments % LARGE / SMALL;
    let pages = (segments + segments / SMALL + 64) / 1000 + 1;
    let most = 8 + pages + rollups + segments % SMALL;
    assert!(requests <= most, "{requests} requests, at most {most} expected");
}
