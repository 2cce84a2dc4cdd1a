//! An archive of many segments, made up of heads: how many requests reading it takes.

use std::collections::BTreeMap;
use std::io::Cursor;

use jiff::Timestamp;
use serde_json::Value;
use xb_encryptor::KeySlots;
use xb_pipeline::Observer;
use xb_pipeline::filter::{SealFile, write_stream};
use xb_repo::archive::names::rollup_name;
use xb_repo::archive::record::{FORMAT, Record, digest};
use xb_repo::archive::rollup::{LARGE, PendingHeads, RollUp, SMALL};
use xb_repo::archive::segment::{Body, Commits, LastTransaction, SegmentHead};
use xb_repo::archive::stream::{Alive, StoredPosition, StreamHead, StreamOrigin};
use xb_testkit::command::Cmd;
use xb_testkit::fault::Proxy;
use xb_testkit::store::Store;

const STREAM: &str = "00112233445566778899aabbccddeeff";
/// Where a native stream would be, which is not read.
const BODY: &[u8] = b"XBRSTR01";

fn at(offset: u64) -> StoredPosition {
    StoredPosition { log: "bin.000001".to_owned(), offset }
}

fn head(number: u64, previous: &str, begin: Timestamp) -> SegmentHead {
    let gtids = |sequence: u64| Some(format!("0-1-{sequence}"));
    let received = begin + jiff::SignedDuration::from_secs(5 * number as i64);
    let seconds = u32::try_from(received.as_second()).unwrap();
    let (from, to) = (at(300 + number * 100), at(400 + number * 100));
    SegmentHead {
        format: FORMAT,
        stream: STREAM.to_owned(),
        number,
        previous: previous.to_owned(),
        from: from.clone(),
        to: to.clone(),
        next_log: None,
        description: "0f".repeat(252),
        gtids_before: gtids(number),
        gtids_after: gtids(number + 1),
        starts_inside: false,
        ends_inside: false,
        transactions: 1,
        domains: None,
        turns: None,
        commits: Some(Commits { first: seconds, last: seconds, greatest: seconds }),
        received: [received; 2],
        last: Some(LastTransaction {
            gtid: format!("0-1-{}", number + 1),
            from,
            to,
            sha256: digest(&number.to_le_bytes()),
        }),
        barriers: Vec::new(),
        more_barriers: 0,
        prepared: 0,
        altering: 0,
        body: Body { id: None, len: BODY.len() as u64, sha256: digest(BODY) },
    }
}

fn object(rollup: RollUp) -> Vec<u8> {
    let slots = KeySlots::default();
    let compress = "zstd".parse().unwrap();
    let settings = SealFile { key_slots: &slots, compress, threads: 1, raw: true };
    let mut object = Vec::new();
    let text = Cursor::new(rollup.text);
    write_stream(text, &mut object, None, &settings, &Observer::default()).unwrap();
    object
}

/// Stores an archive of this many segments, as a receiver would.
fn make(store: &Store, segments: u64) {
    let folder = format!(".xb-binlog/shop/{STREAM}");
    let begin: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let stream = StreamHead {
        format: FORMAT,
        stream: STREAM.to_owned(),
        server: "shop".to_owned(),
        tool: "test".to_owned(),
        started: begin,
        server_version: "10.11.19-MariaDB".to_owned(),
        server_id: 1,
        server_uuid: None,
        node: None,
        host: None,
        repeats: None,
        start: at(300),
        gtids: Some("0-1-0".to_owned()),
        begins: StreamOrigin::First,
        settings: BTreeMap::new(),
        system_zone: None,
        engines: Vec::new(),
        doubts: Vec::new(),
        sealed: Vec::new(),
    };
    let stream = Record::encode(&stream, None).unwrap();
    store.put(&format!("{folder}/head"), &stream);
    let (mut previous, mut collected) = (digest(&stream), PendingHeads::new());
    for number in 0..segments {
        let head = Record::encode(&head(number, &previous, begin), None).unwrap();
        previous = digest(&head);
        store.put(&format!("{folder}/{number:012}"), &[&head[..], BODY].concat());
        for rollup in collected.add(&head) {
            store.put(&format!("{folder}/{}", rollup_name(rollup.span)), &object(rollup));
        }
    }
    let alive = Alive {
        format: FORMAT,
        stream: STREAM.to_owned(),
        segments,
        head: previous,
        position: at(300 + segments * 100),
        covered_until: None,
        acknowledged: None,
        written: Timestamp::now(),
        trouble: None,
    };
    store.put(&format!("{folder}/alive"), &Record::encode(&alive, None).unwrap());
}

/// Set `XB_TEST_SEGMENTS` to 17280 for a day, or 518400 for a month, of segments of 5 s.
#[test]
fn an_archive_is_read_with_few_requests() {
    let wanted = std::env::var("XB_TEST_SEGMENTS").ok().and_then(|text| text.parse().ok());
    let segments: u64 = wanted.unwrap_or(LARGE + 2 * SMALL + 5);
    let store = Store::bucket();
    make(&store, segments);
    let options = store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let begin = std::time::Instant::now();
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "binlog", "list", &store.root_url(), "--json"])
        .args(store.options())
        .arg(format!("--s3-endpoint={}", proxy.endpoint()))
        .run()
        .expect(0);
    let requests = proxy.seen().len() as u64;
    println!("{segments} segments: {requests} requests, {:.1} s", begin.elapsed().as_secs_f64());
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let stream = &found["servers"][0]["streams"][0];
    assert_eq!(stream["transactions"].as_u64(), Some(segments), "{stream:#}");
    assert_eq!(stream["problems"].as_array().map(Vec::len), Some(0), "{stream:#}");
    // Records, the archive's pages of 1000, large and small roll-ups, and heads that no roll-up has.
    let rollups = segments / LARGE + segments % LARGE / SMALL;
    let pages = (segments + segments / SMALL + 64) / 1000 + 1;
    let most = 8 + pages + rollups + segments % SMALL;
    assert!(requests <= most, "{requests} requests, at most {most} expected");
}
