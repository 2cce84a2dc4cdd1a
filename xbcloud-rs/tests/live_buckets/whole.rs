//! Incomplete input, killed programs and races never leave anything that looks like a complete
//! backup, and none of them blocks the next run.

use std::io::Write;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use crate::support::*;
use xb_testkit::command::Signal;
use xb_testkit::daemon::{Scratch, descendants, process_name};
use xb_testkit::data::{Noise, noise};
use xb_testkit::files::Digester;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;
use xb_testkit::stream::{StreamWriter, scan, small_backup};

/// A small backup of a real, nearly empty server.
fn real_stream() -> &'static [u8] {
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| {
        let server = MariaDb::start();
        server.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE t ENGINE=InnoDB AS SELECT seq FROM seq_1_to_9999",
        );
        let scratch = Scratch::new();
        server.save_stream(&scratch.join("stream"));
        std::fs::read(scratch.join("stream")).unwrap()
    })
}

fn cuts(stream: &[u8]) -> Vec<usize> {
    let chunks = scan(stream);
    let last = chunks.last().expect("chunks");
    assert_eq!((last.kind, last.path.as_str()), ('E', "xtrabackup_info"));
    let mut cuts = vec![0, 8, chunks[0].stop, last.start, last.stop - 1];
    // Between two files, where only the missing last file shows the cut.
    let ends: Vec<usize> = chunks.iter().filter(|c| c.kind == 'E').map(|c| c.stop).collect();
    cuts.extend([ends[0], ends[ends.len() / 2], ends[ends.len() - 3], ends[ends.len() - 2]]);
    // Just before the end of the last file's payload, and anywhere.
    cuts.push(last.start - 1);
    let mut draw = Noise::new(11);
    cuts.extend((0..6).map(|_| usize::try_from(draw.below(last.start as u64)).unwrap()));
    cuts
}

fn cut_anywhere(store: &Store, options: &[&str]) {
    let stream = real_stream();
    for cut in cuts(stream) {
        let run = xbcloud(store, "put", "name", options)
            .stdin_bytes(&stream[..cut])
            .run()
            .expect_failure();
        assert!(!run.stderr.is_empty(), "cut at {cut}: failed without a word");
        assert!(!has_manifest(store, "name"), "cut at {cut}: there is a manifest");
        assert!(!is_listed(store, "name"), "cut at {cut}: listed");
        assert_no_orphans(store, "name");
    }
    assert_not_a_backup(store, "name");
    put_bytes(store, "name", options, stream);
    assert!(is_listed(store, "name"));
}

#[test]
fn a_cut_stream_is_never_a_backup_packed_in_a_folder() {
    let store = Store::folder();
    cut_anywhere(&store, &["--chunk-size=1M"]);
    assert!(get_bytes(&store, "name") == real_stream());
}

#[test]
fn a_cut_stream_is_never_a_backup_classic_in_a_folder() {
    cut_anywhere(&Store::folder(), &["--layout=classic"]);
}

#[test]
fn a_cut_stream_is_never_a_backup_packed_in_a_bucket() {
    let store = Store::bucket();
    cut_anywhere(&store, &["--chunk-size=10M"]);
    assert!(get_bytes(&store, "name") == real_stream());
}

fn killed_put(store: &Store, options: &[&str]) {
    let stream = small_backup(1, 12 << 20);
    let mut put = xbcloud(store, "put", "name", options).stdin_held().spawn();
    let mut pipe = put.stdin().expect("stdin");
    let half = stream[..stream.len() / 2].to_vec();
    let feeder = thread::spawn(move || {
        let _ = pipe.write_all(&half);
        pipe
    });
    put.until("some objects are there", || data_objects(store, "name").len() > 1);
    put.kill_9();
    assert_eq!(put.wait().code(), 137);
    drop(feeder.join().unwrap());
    assert_not_a_backup(store, "name");
    put_bytes(store, "name", options, &stream);
    assert!(is_listed(store, "name"));
}

fn killed_packed_put(store: &Store) {
    killed_put(store, &["--chunk-size=1M"]);
    assert!(get_bytes(store, "name") == small_backup(1, 12 << 20));
}

#[test]
fn a_killed_put_does_not_block_the_next_in_a_folder() {
    killed_packed_put(&Store::folder());
}

#[test]
fn a_killed_put_does_not_block_the_next_in_a_bucket() {
    killed_packed_put(&Store::bucket());
}

#[test]
fn a_killed_classic_put_does_not_block_the_next() {
    killed_put(&Store::folder(), &["--layout=classic"]);
}

/// The stream is complete, but its producer failed.
#[test]
fn a_producer_must_end_well() {
    let store = Store::folder();
    let scratch = Scratch::new();
    let file = scratch.join("stream");
    std::fs::write(&file, small_backup(2, 2 << 20)).unwrap();
    let produce = |script: &str| {
        xbcloud(&store, "backup", "name", &["--chunk-size=1M"])
            .args(["--", "/bin/sh", "-c", script])
            .arg(&file)
            .run()
    };
    for script in [
        "cat \"$0\"; exit 3",
        "cat \"$0\"; kill -9 $$",
        "cat \"$0\"; kill -TERM $$",
        "head -c 100000 \"$0\"",
    ] {
        let _ = produce(script).expect_failure();
        assert_not_a_backup(&store, "name");
    }
    let missing =
        xbcloud(&store, "backup", "name", &[]).args(["--", "/no/such/producer-4711"]).run();
    let missing = missing.expect_failure();
    assert!(missing.stderr_text().contains("producer-4711"), "{missing:?}");
    assert_not_a_backup(&store, "name");
    let _ = produce("exec cat \"$0\"").expect(0);
    assert!(get_bytes(&store, "name") == small_backup(2, 2 << 20));
}

/// A signal also ends the producer, and the exit code is the shell's code for the signal.
#[test]
fn a_terminated_backup_takes_its_producer_along() {
    let store = Store::folder();
    let mut run = xbcloud(&store, "backup", "name", &["--chunk-size=1M"])
        .args(["--", "/bin/sh", "-c", "cat \"$0\"; exec sleep 1000"])
        .arg("/dev/null")
        .spawn();
    let producer = |run: &xb_testkit::command::Running| {
        descendants(run.pid())
            .into_iter()
            .find(|pid| process_name(*pid).as_deref() == Some("sleep"))
    };
    let pid = run.pid();
    run.until("the producer runs", || {
        descendants(pid).iter().any(|child| process_name(*child).as_deref() == Some("sleep"))
    });
    let child = producer(&run).expect("producer");
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), 143);
    assert_ne!(process_name(child).as_deref(), Some("sleep"), "the producer still runs");
    assert_not_a_backup(&store, "name");
}

/// Sixteen runs of one name, all ready to commit at the same moment.
fn race(store: &Store) {
    const RUNNERS: usize = 16;
    let barrier = Arc::new(Barrier::new(RUNNERS));
    let streams: Vec<Vec<u8>> = (0..RUNNERS).map(|n| small_backup(n as u64, 2 << 20)).collect();
    let codes: Vec<i32> = thread::scope(|scope| {
        let run = |stream: Vec<u8>| {
            let barrier = Arc::clone(&barrier);
            let put = xbcloud(store, "put", "name", &["--chunk-size=1M", "--memory=32M"]);
            scope.spawn(move || {
                let put = put.stdin_feed(move |pipe| {
                    let (most, end) = stream.split_at(stream.len() - 10);
                    let _ = pipe.write_all(most);
                    barrier.wait();
                    let _ = pipe.write_all(end);
                });
                let ran = put.run();
                assert!(matches!(ran.code(), 0 | 1), "{ran:?}");
                assert!(ran.code() == 0 || !ran.stderr.is_empty(), "lost without a word");
                ran.code()
            })
        };
        let runs: Vec<_> = streams.iter().cloned().map(run).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    let winner = codes.iter().position(|code| *code == 0).unwrap();
    assert!(is_listed(store, "name"));
    assert!(get_bytes(store, "name") == streams[winner], "not the winner's data");
    assert_no_orphans(store, "name");

    // One more run is refused, and changes nothing.
    let late = xbcloud(store, "put", "name", &[]).stdin_bytes(small_backup(99, 1 << 20)).run();
    let _ = late.expect_failure();
    assert!(get_bytes(store, "name") == streams[winner], "a later run changed the backup");
}

#[test]
fn sixteen_racing_runs_have_one_winner_in_a_folder() {
    race(&Store::folder());
}

#[test]
fn sixteen_racing_runs_have_one_winner_in_a_bucket() {
    race(&Store::bucket());
}

/// An object size above the memory limit, with a stream longer than one object.
#[test]
fn objects_larger_than_the_memory() {
    fn write(out: impl Write) {
        let block = noise(5, 10 << 20);
        let mut stream = StreamWriter::new(out);
        stream
            .repeated("ibdata1", &block[..1 << 20], 12)
            .repeated("db/huge.ibd", &block, 28)
            .info();
    }
    let expected = Digester::default();
    write(expected.clone());
    let store = Store::folder();
    let put = xbcloud(&store, "put", "huge", &["--chunk-size=256M", "--memory=64M", "--json"])
        .stdin_feed(|pipe| write(pipe))
        .run()
        .expect(0);
    assert_eq!(assert_equal_objects(&store, "huge", 256 << 20), 2);
    assert!(peak_memory(&put) < 128 << 20, "put held {} MiB", peak_memory(&put) >> 20);
    assert_eq!(get_digest(&store, "huge"), expected.result());
}
