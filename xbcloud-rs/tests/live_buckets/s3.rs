//! A real S3 server, and one behind a proxy that fails on demand.

use crate::support::*;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::files::assert_same_tree;
use xb_testkit::reply::Reply;
use xb_testkit::s3::{Bucket, SECRET_KEY, bucket, options_for};
use xb_testkit::store::Store;
use xb_testkit::stream::{StreamWriter, small_backup};

const MIB: usize = 1 << 20;

/// Objects below and above the size limit of a single upload are read back unchanged.
#[test]
fn packed_put_and_get() {
    let store = Store::bucket();
    for (name, size, memory, len) in
        [("small", 1, "64M", 12), ("ten", 10, "512M", 22), ("beyond-memory", 32, "32M", 33)]
    {
        let stream = small_backup(1, len * MIB);
        let options =
            [&*format!("--chunk-size={size}M"), &format!("--memory={memory}"), "--compress=none"];
        put_bytes(&store, name, &options, &stream);
        let objects = assert_equal_objects(&store, name, size << 20);
        assert!(objects > 1);
        assert!(get_bytes(&store, name) == stream, "{name}");
    }
}

#[test]
fn classic_put_get_and_restore() {
    let store = Store::bucket();
    let stream = small_backup(2, 24 * MIB);
    let scratch = Scratch::new();
    let file = scratch.join("stream");
    std::fs::write(&file, &stream).unwrap();
    unpack(&file, &scratch.dir("reference"));
    put_bytes(&store, "stock", &["--layout=classic", "--md5"], &stream);
    let dir = scratch.dir("restored");
    let restore = xbcloud(&store, "restore", "stock", &[]).arg("--target-dir").arg(&dir);
    let _ = restore.run().expect(0);
    assert_same_tree(&dir, &scratch.join("reference"));
    let objects = data_objects(&store, "stock");
    let sums = String::from_utf8(store.get("stock.md5").expect("stock.md5")).unwrap();
    assert_eq!(sums.lines().count(), objects.len());
}

const MIXED: [&str; 4] = ["db/t0.ibd", "db/t1.ibd", "db/t2.ibd", "db/t3.ibd"];

/// Four interleaved files, each 15 times the block.
fn mixed_files(block: &[u8]) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    for n in 0..15 {
        for name in MIXED {
            stream.payload(name, n * block.len() as u64, block);
        }
    }
    for name in MIXED {
        stream.end(name);
    }
    stream.info();
    stream.finish()
}

/// The objects are larger than the memory available for each file, so they go up as concurrent
/// multipart uploads, with and without failures.
#[test]
fn classic_objects_have_the_size_asked_for() {
    let block = xb_testkit::data::noise(9, MIB);
    let part = |action| Rule::new("PUT", "partNumber=", action);
    let bad_day = vec![
        part(Action::answer(503)).every(4),
        part(Action::LoseAnswer).skip(2).times(2),
        part(Action::CutRequest(3_000_000)).skip(5).times(1),
        Rule::new("POST", "?uploads", Action::LoseAnswer).skip(1).times(1),
    ];
    for rules in [Vec::new(), bad_day] {
        let store = Store::bucket();
        let Store::Bucket(bucket) = &store else { unreachable!() };
        let proxy = Proxy::start(bucket.address(), rules);
        let options = ["--layout=classic", "--chunk-size=12M", "--memory=48M", "--threads=1"];
        let put = through(&proxy, bucket, "put", &options).args(["--json", "--max-backoff=200"]);
        let put = put.stdin_bytes(mixed_files(&block)).run().expect(0);
        assert!(put.stderr_text().contains("\"short_objects\":0"), "{put:?}");
        assert!(proxy.count("PUT", "partNumber=") > 0, "all of it went in single puts");
        for name in MIXED {
            let sizes = store.list(&format!("name/{name}."));
            let sizes: Vec<u64> = sizes.into_iter().map(|(_, size)| size).collect();
            assert!(sizes.len() == 2 && sizes[0] == 12 << 20, "{sizes:?}");
        }
        let scratch = Scratch::new();
        let dir = scratch.dir("restored");
        let restore = xbcloud(&store, "restore", "name", &[]).arg("--target-dir").arg(&dir);
        let _ = restore.run().expect(0);
        let whole = block.repeat(15);
        assert!(MIXED.iter().all(|name| std::fs::read(dir.join(name)).unwrap() == whole));
    }
}

/// Several objects have begun and none can end: all their uploads are aborted.
#[test]
fn classic_objects_in_parts_leave_nothing_when_the_run_fails() {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let rule = Rule::new("PUT", "partNumber=", Action::answer(403)).skip(3);
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let options = ["--layout=classic", "--chunk-size=12M", "--memory=48M", "--threads=1"];
    let stream = mixed_files(&xb_testkit::data::noise(9, MIB));
    let put = through(&proxy, &bucket, "put", &options).stdin_bytes(stream);
    let ran = put.run().expect_failure();
    assert!(ran.stderr_text().contains("AccessDenied"), "{ran:?}");
    assert_eq!(proxy.count("PUT", MANIFEST), 0, "a manifest was written");
    // The claim of a run that has ended stays, so that no older one counts again.
    let mut left = bucket.list("");
    left.retain(|(key, _)| !key.contains("/.xb-catalog/@claims/"));
    assert_eq!(left, []);
    // A request to begin one that was given up before the store saw it needs no abort.
    assert!(proxy.count("POST", "?uploads") > 1, "{ran:?}");
    assert_eq!(bucket.unfinished_uploads(""), Vec::<String>::new());
}

/// `delete` removes the manifest and every object, and nothing of another backup whose name has the
/// same beginning.
#[test]
fn delete_takes_this_backup_only() {
    let store = Store::bucket();
    let stream = small_backup(3, 4 * MIB);
    for (name, option) in [
        ("a", "--chunk-size=1M"),
        ("ab", "--chunk-size=1M"),
        ("b", "--layout=classic"),
        ("bc", "--layout=classic"),
    ] {
        put_bytes(&store, name, &[option], &stream);
    }
    for (name, neighbour) in [("a", "ab"), ("b", "bc")] {
        let _ = xbcloud(&store, "delete", name, &["--yes"]).run().expect(0);
        assert_eq!(store.list(&format!("{name}/")), []);
        assert_not_a_backup(&store, name);
        assert!(is_listed(&store, neighbour));
        assert!(!get_bytes(&store, neighbour).is_empty());
        let _ = xbcloud(&store, "delete", name, &["--yes"]).run().expect_failure();
    }
}

/// The program with its store behind a proxy.
fn through(proxy: &Proxy, bucket: &Bucket, command: &str, options: &[&str]) -> Cmd {
    through_named(proxy, bucket, command, "name", options)
}

fn through_named(
    proxy: &Proxy,
    bucket: &Bucket,
    command: &str,
    name: &str,
    options: &[&str],
) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg(command)
        // Every fault costs a pause, which is of seconds otherwise.
        .args(["--quiet", "--max-backoff=50"])
        .args(options_for(&proxy.endpoint()))
        .args(options)
        .arg(bucket.url(&format!("backups/nightly/{name}")))
}

/// Puts with temporary failures: the backup is complete.
fn put_through(rules: Vec<Rule>) -> Proxy {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let proxy = Proxy::start(bucket.address(), rules);
    let stream = small_backup(4, 5 * MIB);
    let put = through(&proxy, &bucket, "put", &["--chunk-size=1M"]).stdin_bytes(stream.clone());
    let _ = put.run().expect(0);
    let acted = proxy.seen().iter().filter(|seen| seen.action.is_some()).count();
    assert!(acted > 0, "the fault never came");
    proxy.set_rules(Vec::new());
    let got = through(&proxy, &bucket, "get", &[]).run().expect(0);
    assert!(got.stdout == stream);
    proxy
}

const DATA: &str = "/00000000";
const MANIFEST: &str = "/.xb-catalog/name";

#[test]
fn slow_down_is_waited_out() {
    let busy = Action::Answer { status: 503, retry_after: Some(1) };
    put_through(vec![
        Rule::new("PUT", &format!("{DATA}1"), busy).times(2),
        Rule::new("PUT", &format!("{DATA}3"), Action::answer(500)).times(1),
        Rule::new("PUT", MANIFEST, Action::answer(503)).times(1),
    ]);
}

#[test]
fn broken_requests_and_lost_answers_are_repeated() {
    put_through(vec![
        Rule::new("PUT", &format!("{DATA}0"), Action::CutRequest(300_000)).times(1),
        Rule::new("PUT", &format!("{DATA}2"), Action::LoseAnswer).times(1),
    ]);
}

/// Temporary failures only cost time: nothing is lost, and the store holds the planned objects,
/// uploaded whole or in parts.
#[test]
fn a_bad_day_costs_only_time() {
    type Day = (&'static str, fn() -> Action, u64);
    let days: [Day; 5] = [
        ("a third answered 503", || Action::answer(503), 3),
        ("a pause asked for", || Action::Answer { status: 429, retry_after: Some(1) }, 5),
        ("resets near the end", || Action::CutRequest(950_000), 3),
        ("lost answers", || Action::LoseAnswer, 3),
        ("slow and steady", || Action::Slow(MIB as u64), 4),
    ];
    let stream = small_backup(10, 40 * MIB);
    std::thread::scope(|scope| {
        for (day, action, every) in days {
            let stream = &stream;
            scope.spawn(move || one_bad_day(day, action(), every, stream));
        }
    });
}

fn one_bad_day(day: &str, action: Action, every: u64, stream: &[u8]) {
    let store = Store::bucket();
    let Store::Bucket(bucket) = &store else { unreachable!() };
    for (size, memory) in [(1_u64, "64M"), (32, "32M")] {
        let part = if size == 1 { DATA } else { "partNumber=" };
        let rule = Rule::new("PUT", part, action.clone()).every(every);
        // More of these failures would only take longer.
        let rule = if day == "slow and steady" { rule.times(3) } else { rule };
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let options = [&*format!("--chunk-size={size}M"), "--threads=1", "--timeout=2"];
        let options = [&options[..], &["--compress=none"]].concat();
        let put = through(&proxy, bucket, "put", &options).arg(format!("--memory={memory}"));
        let _ = put.arg("--max-backoff=200").stdin_bytes(stream.to_vec()).run().expect(0);
        assert!(proxy.seen().iter().any(|seen| seen.action.is_some()), "{day}: never came");
        let objects = assert_equal_objects(&store, "name", size << 20);
        assert_eq!(objects as u64, (stream.len() as u64).div_ceil(size << 20), "{day}");
        assert!(get_bytes(&store, "name") == stream, "{day}");
        let _ = xbcloud(&store, "delete", "name", &["--yes"]).run().expect(0);
    }
}

/// A permanent failure: an error within the given retry limits, and nothing is left behind.
#[test]
fn a_store_that_never_takes_anything_ends_the_run() {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let stream = small_backup(11, 33 * MIB);
    for (size, memory, part) in [("1M", "64M", DATA), ("32M", "32M", "partNumber=")] {
        let rule = Rule::new("PUT", part, Action::answer(503));
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let put = through(&proxy, &bucket, "put", &["--max-retries=2", "--retry-timeout=1"])
            .args([format!("--chunk-size={size}"), format!("--memory={memory}")])
            .args(["--threads=1", "--max-backoff=200"]);
        let ran = put.stdin_bytes(stream.clone()).run().expect_failure();
        assert!(ran.stderr_text().contains("SlowDown"), "{ran:?}");
        assert_eq!(proxy.count("PUT", MANIFEST), 0, "a manifest was written");
        assert_eq!(bucket.list(""), [], "{size}");
        let begun = proxy.count("POST", "?uploads");
        assert_eq!((begun > 0, proxy.count("DELETE", "uploadId=") >= begun), (size != "1M", true));
    }
}

/// The manifest was written, but the response was lost: the run reads it back and finds that it
/// won.
#[test]
fn a_lost_answer_to_the_manifest_is_cleared_up() {
    let proxy = put_through(vec![Rule::new("PUT", MANIFEST, Action::LoseAnswer).times(1)]);
    assert!(proxy.count("GET", MANIFEST) + proxy.count("HEAD", MANIFEST) > 0);
}

/// The manifest was written but cannot be read back: the backup may exist, so none of it may be
/// removed.
#[test]
fn a_manifest_that_cannot_be_read_back_leaves_everything_where_it_is() {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    // The first reads come before the run.
    let forbidden = Rule::new("GET", MANIFEST, Action::answer(403)).skip(2);
    let proxy = Proxy::start(bucket.address(), vec![forbidden]);
    let stream = small_backup(10, 3 * MIB);
    let put = through(&proxy, &bucket, "put", &["--chunk-size=1M"]).stdin_bytes(stream.clone());
    let ran = put.run().expect_failure();
    assert!(ran.stderr_text().contains("manifest status unknown"), "{ran:?}");
    assert_eq!(proxy.count("DELETE", ""), 0, "something was cleared away");
    proxy.set_rules(Vec::new());
    let got = through(&proxy, &bucket, "get", &[]).run().expect(0);
    assert!(got.stdout == stream);
}

#[test]
fn a_cut_download_is_taken_up_again() {
    let store = Store::bucket();
    let stream = small_backup(5, 5 * MIB);
    put_bytes(&store, "name", &["--chunk-size=1M"], &stream);
    let Store::Bucket(bucket) = &store else { unreachable!() };
    let rules = vec![
        Rule::new("GET", &format!("{DATA}1"), Action::CutAnswer(5000)).times(1),
        Rule::new("GET", &format!("{DATA}3"), Action::answer(503)).times(1),
    ];
    let proxy = Proxy::start(bucket.address(), rules);
    let got = through(&proxy, bucket, "get", &[]).run().expect(0);
    assert!(got.stdout == stream);
    assert_eq!(proxy.seen().iter().filter(|seen| seen.action.is_some()).count(), 2);
}

/// A stalled connection is given up.
#[test]
fn a_stalled_request_is_tried_again() {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let stall = |method: &str| vec![Rule::new(method, &format!("{DATA}1"), Action::Stall).times(1)];
    let proxy = Proxy::start(bucket.address(), stall("PUT"));
    let stream = small_backup(8, 4 * MIB);
    let put = through(&proxy, &bucket, "put", &["--chunk-size=1M", "--timeout=2"]);
    let _ = put.stdin_bytes(stream.clone()).run().expect(0);
    proxy.set_rules(stall("GET"));
    let got = through(&proxy, &bucket, "get", &["--timeout=2"]).run().expect(0);
    assert!(got.stdout == stream);
    let stalled = proxy.seen().into_iter().filter(|seen| seen.action.is_some()).count();
    assert_eq!(stalled, 2);
}

/// A refusal is final: there is no backup, and only the first cause is reported.
#[test]
fn a_refused_object_fails_the_run() {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let rule = Rule::new("PUT", &format!("{DATA}2"), Action::answer(403));
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    let put = through(&proxy, &bucket, "put", &["--chunk-size=1M"]);
    let ran = put.stdin_bytes(small_backup(6, 8 * MIB)).run().expect_failure();
    let said = ran.stderr_text();
    assert!(said.contains("000000002") && said.contains("AccessDenied"), "{ran:?}");
    assert_eq!(proxy.count("PUT", MANIFEST), 0, "a manifest was written");
}

#[test]
fn wrong_keys_are_refused_without_telling_them() {
    let bucket = bucket();
    let wrong = "another-secret-4711";
    let mut options = options_for(&bucket.endpoint());
    options.retain(|option| !option.contains(SECRET_KEY));
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg("put")
        .args(options)
        .env("AWS_SECRET_ACCESS_KEY", wrong)
        .arg(bucket.url("backups/name"))
        .stdin_bytes(small_backup(7, MIB))
        .run()
        .expect_failure();
    assert!(ran.stderr_text().contains("SignatureDoesNotMatch"), "{ran:?}");
    assert!(!ran.stderr_text().contains(wrong));
}

/// `plan` states exactly the requests that a run without failures sends.
#[test]
fn a_plan_counts_every_request() {
    let store = Store::bucket();
    for (name, size, memory, len) in [("small", "1M", "64M", 12), ("parts", "32M", "32M", 33)] {
        let stream = small_backup(9, len * MIB);
        let options =
            [&*format!("--chunk-size={size}"), &*format!("--memory={memory}"), "--threads=1"];
        // The first backup of a host, which misses none.
        let state = Scratch::new();
        let state = format!("--state-dir={}", state.path().display());
        let put = xbcloud(&store, "put", name, &options);
        let put = put.args(["--json", "--compress=none", &state]).stdin_bytes(stream);
        let events = put.run().expect(0).stderr_text();
        let done = events.lines().find(|line| line.contains("\"done\"")).expect("an event");
        let done: serde_json::Value = serde_json::from_str(done).unwrap();
        let stored = format!("--size={}", done["stored_bytes"]);
        let plan = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["plan", "--json", &stored])
            .args(options)
            .run()
            .expect(0);
        let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
        assert_eq!(plan["objects"], done["objects"], "{name}");
        assert_eq!(plan["backup_requests"], done["requests"], "{name}");
    }
}

/// A store without conditional writes is noticed at the claim, before anything is stored, and is
/// not mistaken for another run.
#[test]
fn a_store_that_cannot_create_only_if_absent_is_noticed_at_once() {
    let stream = small_backup(3, 9 * MIB);
    for layout in ["packed", "classic"] {
        for (status, code) in [(412, "PreconditionFailed"), (501, "NotImplemented")] {
            let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
            let rule = Rule::new("PUT", "", Action::Refuse { status, code });
            let proxy = Proxy::start(bucket.address(), vec![rule.with_header("if-none-match")]);
            let options = [&*format!("--layout={layout}"), "--max-backoff=20"];
            let put = through(&proxy, &bucket, "put", &options).stdin_bytes(stream.clone());
            let ran = put.run().expect(1);
            let text = ran.stderr_text();
            assert!(text.contains("--s3-provider"), "{status}: {ran:?}");
            assert!(!text.contains("another run") && !text.contains("exists:"), "{ran:?}");
            assert_eq!(bucket.list(""), [], "{layout}");
            assert!(proxy.seen().iter().all(|seen| !seen.path.contains("000000000")), "{layout}");
        }
    }
}

/// One listing after the last object does not show the objects yet.
#[test]
fn a_listing_that_lags_behind_is_waited_for() {
    const NOTHING: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    let stream = small_backup(3, 9 * MIB);
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let put = |name: &str, rules| {
        let proxy = Proxy::start(bucket.address(), rules);
        let options = ["--max-backoff=20", "--chunk-size=1M"];
        let put = through_named(&proxy, &bucket, "put", name, &options);
        (put.stdin_bytes(stream.clone()).run(), proxy)
    };
    let (ran, proxy) = put("n", Vec::new());
    let _ = ran.expect(0);
    let listings = proxy.count("GET", "list-type=2") as u64;
    // Two listings follow it: one looks for removals of the name, and one for the objects once more.
    let lag = Rule::new("GET", "list-type=2", Action::Reply(Reply::text(200, NOTHING)))
        .skip(listings - 3);
    let (ran, proxy) = put("m", vec![lag.clone().times(2)]);
    let _ = ran.expect(0);
    assert_eq!(proxy.count("GET", "list-type=2") as u64, listings + 2);
    // It is not waited for without end.
    let (ran, _) = put("o", vec![lag]);
    assert!(ran.expect_failure().stderr_text().contains(" exist"));
}

/// An altered answer is no damage if the second answer is right.
#[test]
fn one_altered_answer_to_a_read_is_asked_for_again() {
    let stream = small_backup(3, 3 * MIB);
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    for (layout, size) in [("packed", &["--chunk-size=1M"][..]), ("classic", &[])] {
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let put = through_named(&proxy, &bucket, "put", layout, size);
        let put = put.arg(format!("--layout={layout}"));
        let _ = put.stdin_bytes(stream.clone()).run().expect(0);
        let data = if layout == "packed" { "/000000001" } else { "ibdata1.00000" };
        for part in [&*format!(".xb-catalog/{layout}"), data] {
            let altered = Rule::new("GET", part, Action::Alter);
            for (command, options) in [("get", &[][..]), ("verify", &["--level=checksum"])] {
                let run = || through_named(&proxy, &bucket, command, layout, options);
                proxy.set_rules(vec![altered.clone().times(1)]);
                let _ = run().run().expect(0);
                proxy.set_rules(vec![altered.clone()]);
                let _ = run().run().expect_failure();
            }
        }
    }
}

/// Every small read has a second chance, too: of the manifest, the keys and the index. A copy of an
/// altered keys object could never be opened.
#[test]
fn one_altered_answer_spoils_no_copy_and_no_look_into_a_backup() {
    let stream = small_backup(3, 3 * MIB);
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let scratch = Scratch::new();
    let key = scratch.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let key = &*format!("--encrypt-key-file={}", key.display());
    for (name, put, opens) in [
        ("packed", &["--chunk-size=1M"][..], &[][..]),
        ("classic", &["--layout=classic"], &[]),
        ("sealed", &["--chunk-size=1M", key], &[key]),
    ] {
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let put = through_named(&proxy, &bucket, "put", name, put);
        let _ = put.stdin_bytes(stream.clone()).run().expect(0);
        let altered = |part: &str, n| vec![Rule::new("GET", part, Action::Alter).skip(n).times(1)];
        let parts: &[&str] = match name {
            "classic" => &[".xb-catalog/classic", "ibdata1.00000"],
            _ => {
                &[&format!(".xb-catalog/{name}"), "/000000000", "/000000001", "/00000000", "/keys"]
            }
        };
        for (part, n) in parts.iter().flat_map(|part| (0..4).map(move |n| (*part, n))) {
            let target = scratch.dir(&format!("{name}-{}-{n}", part.replace('/', "-")));
            let to = format!("file://{}/{name}", target.display());
            proxy.set_rules(altered(part, n));
            let copy = through_named(&proxy, &bucket, "copy", name, &["--unverified"]).arg(&to);
            let _ = copy.run().expect(0);
            let verify = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("verify").arg(&to);
            // The pages of this stream are no real ones.
            let verify = verify.arg("--level=decrypt");
            let _ = verify.args(opens).run().expect(0);
            for (command, options) in [("show", &[][..]), ("get", &["--files=ibdata1"])] {
                proxy.set_rules(altered(part, n));
                let options: Vec<&str> = options.iter().chain(opens).copied().collect();
                let ran = through_named(&proxy, &bucket, command, name, &options).run();
                // Data that was written to the pipe cannot be taken back.
                let said = ran.code() == 5 && ran.stderr_text().contains("altered in transit");
                assert!(ran.code() == 0 || command == "get" && said, "{part} {n}: {ran:?}");
            }
        }
        // Nor does one answer that there is no such object, which is legal of a checksum list.
        let beside: &[&str] = if name == "sealed" { &["keys", "sums"] } else { &[] };
        for (part, n) in beside.iter().flat_map(|part| (0..2).map(move |n| (*part, n))) {
            let target = scratch.dir(&format!("without-{part}-{n}"));
            let missing = Rule::new("GET", &format!("/{part}"), Action::answer(404));
            proxy.set_rules(vec![missing.skip(n).times(1)]);
            let copy = through_named(&proxy, &bucket, "copy", name, &["--unverified"]);
            let _ = copy.arg(format!("file://{}/{name}", target.display())).run().expect(0);
            let mut runs = std::fs::read_dir(target.join(name)).unwrap();
            assert!(runs.any(|run| run.unwrap().path().join(part).exists()), "{part} {n}");
        }
    }
}

/// An object that is fetched in several ranges has no checksum for each of them: only a second
/// answer shows that the first was altered.
#[test]
fn an_altered_range_of_a_large_object_is_no_damage() {
    let stream = small_backup(4, 45 * MIB);
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let scratch = Scratch::new();
    let (file, reference) = (scratch.join("stream"), scratch.dir("reference"));
    std::fs::write(&file, &stream).unwrap();
    unpack(&file, &reference);
    for (layout, options, data) in [
        ("packed", &["--chunk-size=40M"][..], "/000000000"),
        ("classic", &["--layout=classic", "--chunk-size=40M"], "db/table.ibd.00000"),
    ] {
        let proxy = Proxy::start(bucket.address(), Vec::new());
        let put = through_named(&proxy, &bucket, "put", layout, options);
        let _ = put.stdin_bytes(stream.clone()).run().expect(0);
        let altered = Rule::new("GET", data, Action::Alter);
        let run = |command: &str, options: &[&str]| {
            through_named(&proxy, &bucket, command, layout, options).run()
        };
        for skip in 0..2 {
            let once = || proxy.set_rules(vec![altered.clone().skip(skip).times(1)]);
            once();
            // Bytes written to the pipe cannot be taken back.
            let got = run("get", &[]).expect(5);
            assert!(got.stderr_text().contains("altered in transit"), "{got:?}");
            once();
            let target = scratch.join(format!("{layout}-{skip}"));
            let dir = format!("--target-dir={}", target.display());
            let _ = run("restore", &["--sync=none", &dir]).expect(0);
            assert_same_tree(&target, &reference);
            for level in ["checksum", "decrypt"] {
                once();
                let ran = run("verify", &[&format!("--level={level}")]);
                // The check of a classic backup could not be made, which is no damage either.
                assert_eq!(ran.code(), if layout == "packed" { 0 } else { 5 }, "{ran:?}");
            }
        }
        // An answer that is altered every time is damage.
        proxy.set_rules(vec![altered]);
        let got = run("get", &[]).expect(7);
        assert!(!got.stderr_text().contains("altered"), "{got:?}");
    }
}
