//! Backups of a real MariaDB server, stored and read back with the built program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::*;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::{Scratch, descendants, kill_9, process_name};
use xb_testkit::files::{Digester, assert_same_tree};
use xb_testkit::mariadb::{MariaDb, Sample, Writer, prepare};
use xb_testkit::store::Store;
use xb_testkit::stream::scan;

/// Rows of the largest table: its file has about 50 MiB, and a stream of the server about 200 MiB.
const ROWS: u32 = 30_000;

/// One server for all tests of this file, with continuous writes.
struct Live {
    server: &'static MariaDb,
    writer: Writer<'static>,
    sums: BTreeMap<String, u64>,
    /// A backup of the server, saved as mariadb-backup wrote it.
    stream: PathBuf,
    scratch: Scratch,
}

fn live() -> &'static Live {
    static LIVE: OnceLock<Live> = OnceLock::new();
    LIVE.get_or_init(|| {
        let server: &MariaDb = Box::leak(Box::new(MariaDb::start()));
        server.load_sample(Sample { big_rows: ROWS, small_tables: 300 });
        let sums = still_sums(server);
        let writer = server.start_writing();
        let scratch = Scratch::new();
        let stream = scratch.join("stream");
        server.save_stream(&stream);
        Live { server, writer, sums, stream, scratch }
    })
}

/// Checksums of the tables that are not written to.
fn still_sums(server: &MariaDb) -> BTreeMap<String, u64> {
    let mut sums = server.checksums("shop");
    sums.extend(server.checksums("many"));
    sums
}

/// Asserts that a server on the directory has the data of the live server, as of a moment between
/// the two row counts.
fn assert_same_data(dir: &Path, at_least: u64, at_most: u64) {
    prepare(dir);
    let copy = MariaDb::start_on(dir);
    let rows = copy.assert_written();
    assert!((at_least..=at_most).contains(&rows), "{at_least} <= {rows} <= {at_most}");
    let sums = still_sums(&copy);
    let differ: Vec<_> = live().sums.iter().filter(|(k, v)| sums.get(*k) != Some(v)).collect();
    assert!(differ.is_empty(), "these tables differ: {differ:?}");
    assert_eq!(sums.len(), live().sums.len());
    assert_eq!(copy.sql("SELECT COUNT(*) FROM shop.paid"), format!("{ROWS}\n"));
}

/// Backup during writes, restore, prepare, start, compare.
fn round_trip(store: &Store, options: &[&str]) {
    round_trip_with(store, options, &[]);
}

fn round_trip_with(store: &Store, options: &[&str], restore: &[&str]) {
    let live = live();
    let scratch = Scratch::new();
    let before = live.writer.rows();
    let _ = xbcloud(store, "backup", "nightly", options)
        .arg("--")
        .args(live.server.backup_command())
        .run()
        .expect(0);
    let after = live.writer.rows();
    assert!(has_manifest(store, "nightly") && is_listed(store, "nightly"));
    let dir = scratch.dir("restored");
    let cmd = xbcloud(store, "restore", "nightly", restore);
    let _ = cmd.arg("--target-dir").arg(&dir).run().expect(0);
    assert_same_data(&dir, before, after);
}

#[test]
fn packed_in_a_folder() {
    round_trip(&Store::folder(), &[]);
}

#[test]
fn classic_in_a_folder() {
    round_trip(&Store::folder(), &["--layout=classic"]);
}

/// Files compressed and encrypted one by one, as xtrabackup does.
#[test]
fn classic_with_every_file_transformed() {
    let scratch = Scratch::new();
    let file = scratch.join("key");
    fs::write(&file, [5; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", file.display());
    for codec in ["--compress=zstd:3", "--compress=lz4"] {
        let options = ["--layout=classic", codec, "--encrypt=AES256", &key];
        round_trip_with(&Store::folder(), &options, &[&key, "--accept-unsealed"]);
    }
}

#[test]
fn packed_in_a_bucket() {
    round_trip(&Store::bucket(), &["--chunk-size=10M"]);
}

#[test]
fn classic_in_a_bucket() {
    round_trip(&Store::bucket(), &["--layout=classic"]);
}

/// Exact object sizes for a real stream; the stream that is read back is identical.
#[test]
fn packed_gives_the_stream_back_at_every_chunk_size() {
    let live = live();
    let mut expected = Digester::default();
    let len = std::io::copy(&mut fs::File::open(&live.stream).unwrap(), &mut expected).unwrap();
    let store = Store::folder();
    for (option, size) in
        [("1M", 1 << 20), ("10M", 10 << 20), ("64M", 64 << 20), ("100M", 100 << 20)]
    {
        let options = [&*format!("--chunk-size={option}"), "--compress=none"];
        put_file(&store, option, &options, &live.stream);
        let objects = assert_equal_objects(&store, option, size);
        assert!(objects as u64 >= len / size, "{objects} objects of {option} for {len} bytes");
        assert!(objects > 1);
        assert_eq!(get_digest(&store, option), expected.result(), "--chunk-size={option}");
        let _ = xbcloud(&store, "delete", option, &["--yes"]).run().expect(0);
        assert_eq!(data_objects(&store, option), []);
    }
}

/// Without an object size, the classic layout stores objects as the stock tool does: each chunk of
/// the stream is one object, numbered within its file.
#[test]
fn classic_is_cut_as_the_stock_tool_does() {
    let live = live();
    let store = Store::folder();
    put_file(&store, "stock", &["--layout=classic"], &live.stream);
    let stream = fs::read(&live.stream).unwrap();
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    let mut expected: BTreeMap<String, &[u8]> = BTreeMap::new();
    for chunk in scan(&stream) {
        let number = numbers.entry(chunk.path.clone()).or_default();
        expected
            .insert(format!("stock/{}.{number:020}", chunk.path), &stream[chunk.start..chunk.stop]);
        *number += 1;
    }
    let keys: Vec<String> = data_objects(&store, "stock").into_iter().map(|(key, _)| key).collect();
    assert!(keys.iter().eq(expected.keys()), "other objects than the stock tool's");
    for (key, chunk) in expected {
        assert!(store.get(&key).as_deref() == Some(chunk), "{key} is not the chunk as it came");
    }
}

/// Debian's mbstream reads the output of `get`; our own restore writes the same files as mbstream.
#[test]
fn mbstream_and_restore_agree_on_the_files() {
    let live = live();
    let scratch = Scratch::new();
    let reference = scratch.dir("reference");
    unpack(&live.stream, &reference);
    let store = Store::folder();
    for (name, options) in [("packed", &["--chunk-size=10M"][..]), ("stock", &["--layout=classic"])]
    {
        put_file(&store, name, options, &live.stream);
        let stream = scratch.join(format!("{name}.xbs"));
        let _ = xbcloud(&store, "get", name, &[]).stdout_file(&stream).run().expect(0);
        let (unpacked, restored) =
            (scratch.dir(&format!("{name}-x")), scratch.dir(&format!("{name}-r")));
        unpack(&stream, &unpacked);
        assert_same_tree(&reference, &unpacked);
        let restore = xbcloud(&store, "restore", name, &[]).arg("--target-dir").arg(&restored);
        let _ = restore.run().expect(0);
        assert_same_tree(&reference, &restored);
        for dir in [&unpacked, &restored] {
            fs::remove_dir_all(dir).unwrap();
        }
    }
}

/// The memory limit holds for any size of objects and backup.
#[test]
fn memory_stays_within_its_limit() {
    let live = live();
    let store = Store::folder();
    let limit = 128 << 20;
    for size in ["1M", "100M"] {
        let options = ["--memory=64M", "--json", &format!("--chunk-size={size}")];
        let put = put_file(&store, size, &options, &live.stream);
        let peak = peak_memory(&put);
        assert!(peak < limit, "put held {} MiB: {put:?}", peak >> 20);
        let digest = Digester::default();
        let get = xbcloud(&store, "get", size, &["--memory=64M", "--json"]);
        let get = get.stdout_into(digest.clone()).run();
        let peak = peak_memory(&get);
        assert!(peak < limit, "get held {} MiB: {get:?}", peak >> 20);
        assert_eq!(digest.result().0, fs::metadata(&live.stream).unwrap().len());
    }
}

#[test]
fn a_killed_mariadb_backup_leaves_no_backup() {
    let live = live();
    let store = Store::folder();
    let producer = live.server.backup_command();
    let mut run =
        xbcloud(&store, "backup", "name", &["--chunk-size=1M"]).arg("--").args(&producer).spawn();
    run.until("some objects are there", || data_objects(&store, "name").len() > 5);
    let backup = descendants(run.pid());
    let backup: Vec<_> = backup
        .into_iter()
        .filter(|pid| process_name(*pid).as_deref() == Some("mariadb-backup"))
        .collect();
    assert_eq!(backup.len(), 1, "one producer");
    kill_9(backup[0]);
    let ran = run.wait().expect_failure();
    assert!(ran.stderr_text().contains("mariadb-backup"), "the producer is not named: {ran:?}");
    assert_not_a_backup(&store, "name");
    round_trip_again(&store);
}

/// The error message of a failing producer reaches the user through stderr.
#[test]
fn a_failing_mariadb_backup_is_heard() {
    let store = Store::folder();
    let mut producer = live().server.backup_command();
    producer.push("--socket=/no/such/socket".to_owned());
    let ran =
        xbcloud(&store, "backup", "name", &[]).arg("--").args(producer).run().expect_failure();
    assert!(ran.stderr_text().contains("/no/such/socket"), "{ran:?}");
    assert_not_a_backup(&store, "name");
}

/// The same name can be used after a failure.
fn round_trip_again(store: &Store) {
    let producer = live().server.backup_command();
    let run = xbcloud(store, "backup", "name", &["--chunk-size=10M"]).arg("--").args(producer);
    let _ = run.run().expect(0);
    assert!(is_listed(store, "name"));
    let scratch = Scratch::new();
    let stream = scratch.join("stream");
    let _ = xbcloud(store, "get", "name", &[]).stdout_file(&stream).run().expect(0);
    unpack(&stream, &scratch.dir("files"));
    // The name depends on the version.
    let names = ["xtrabackup_info", "mariadb_backup_info"];
    let read = |name: &&str| fs::read_to_string(scratch.join("files").join(name)).ok();
    let info = names.iter().find_map(read).unwrap();
    assert!(info.contains("tool_name = mariadb-backup"), "{info}");
}

/// The producer's messages go to stderr and never into the data.
#[test]
fn backup_writes_nothing_to_stdout() {
    let store = Store::folder();
    let stream = live().scratch.join("stream");
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", "--chunk-size=64M", "--producer-log=-"])
        .arg(store.url("name"))
        .args(["--", "/bin/sh", "-c", "echo talk >&2; exec cat \"$0\""])
        .arg(&stream)
        .run()
        .expect(0);
    assert_eq!(ran.stdout_text(), "");
    assert!(ran.stderr_text().contains("talk"));
    assert_eq!(get_digest(&store, "name").0, fs::metadata(&stream).unwrap().len());
}
