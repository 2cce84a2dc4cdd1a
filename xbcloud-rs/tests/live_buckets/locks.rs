//! A stalled store must not stall a server.

use crate::support::*;
use xb_testkit::command::{Cmd, Running};
use xb_testkit::daemon::{Scratch, descendants, process_name};
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::mariadb::{MariaDb, prepare};
use xb_testkit::s3::{Bucket, options_for};
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

/// 100 MiB that are copied under locks, and do not fit into the memory of a run.
const LOCKED_TABLE: &str = "CREATE DATABASE d; USE d;
    CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT) ENGINE=InnoDB;
    CREATE TABLE big (id INT, filler CHAR(250)) ENGINE=MyISAM;
    INSERT INTO big SELECT seq, REPEAT('x', 250) FROM seq_1_to_400000";

/// A store in which every write of a data object waits until the proxy releases it.
fn stalled_store() -> (Bucket, Proxy) {
    let Store::Bucket(bucket) = Store::bucket() else { unreachable!() };
    let rule = Rule::new("PUT", "/00000", Action::Stall);
    let proxy = Proxy::start(bucket.address(), vec![rule]);
    (bucket, proxy)
}

fn backup(server: &MariaDb, proxy: &Proxy, bucket: &Bucket, options: &[&str]) -> Running {
    backup_of(server.backup_command(), proxy, bucket, options)
}

fn backup_of(producer: Vec<String>, proxy: &Proxy, bucket: &Bucket, options: &[&str]) -> Running {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", "--no-progress", "--producer-log=-"])
        .args(["--compress=none", "--memory=64M", "--chunk-size=1M", "--timeout=600"])
        .args(options_for(&proxy.endpoint()))
        .args(options)
        .arg(bucket.url("backups/nightly/name"))
        .arg("--")
        .args(producer)
        .spawn()
}

fn commit(server: &MariaDb) {
    server.sql("SET lock_wait_timeout=10; INSERT INTO d.t (v) VALUES (1)");
}

#[test]
fn the_spool_takes_what_is_copied_under_locks() {
    let server = MariaDb::start();
    server.sql(LOCKED_TABLE);
    let (bucket, proxy) = stalled_store();
    let scratch = Scratch::new();
    let spool = format!("--spool-dir={}", scratch.path().display());
    let mut run = backup(&server, &proxy, &bucket, &[&spool]);
    let pid = run.pid();
    let producing = move || {
        descendants(pid)
            .iter()
            .any(|child| process_name(*child).is_some_and(|n| n.contains("backup")))
    };
    run.until("the producer has begun", producing);
    // The producer releases its locks and ends while the store is still empty.
    run.until("the producer has ended", || !producing());
    commit(&server);
    assert!(!run.has_ended());
    let store = Store::Bucket(bucket);
    assert_eq!(packed_objects(&store, "name"), []);
    assert!(std::fs::read_dir(scratch.path()).unwrap().next().is_none(), "the spool has a name");

    proxy.set_rules(Vec::new());
    proxy.release();
    let ran = run.wait().expect(0);
    assert!(ran.stderr_text().contains("All tables unlocked"), "messages are passed on: {ran:?}");
    let dir = scratch.dir("restored");
    let _ = xbcloud(&store, "restore", "name", &[]).arg("--target-dir").arg(&dir).run().expect(0);
    prepare(&dir);
    let restored = MariaDb::start_on(&dir);
    assert_eq!(restored.sql("SELECT COUNT(*), SUM(id) FROM d.big"), "400000\t80000200000\n");
}

/// A producer that holds the lock that blocks every commit, as xtrabackup may, and writes more than
/// fits into a run's memory. When it is ended, its client is, too.
fn locking_producer(server: &MariaDb, scratch: &Scratch) -> Vec<String> {
    let mut stream = StreamWriter::new(Vec::new());
    for n in 0..100 {
        stream.payload("d/big.MYD", n << 20, &[7; 1 << 20]);
    }
    stream.end("d/big.MYD");
    stream.end("xtrabackup_info");
    let file = scratch.join("stream");
    std::fs::write(&file, stream.finish()).unwrap();
    let socket = server.backup_command().into_iter().find(|word| word.starts_with("--socket="));
    let script = format!(
        "mariadb --no-defaults --user=root {} --execute='FLUSH TABLES WITH READ LOCK; SELECT SLEEP(600)' &
         trap 'kill $!' EXIT TERM
         echo 'Executing FLUSH TABLES WITH READ LOCK...' >&2
         cat {}",
        socket.expect("a socket"),
        file.display()
    );
    vec!["sh".to_owned(), "-c".to_owned(), script]
}

#[test]
fn without_a_spool_the_producer_is_ended() {
    let server = MariaDb::start();
    server.sql(LOCKED_TABLE);
    let (bucket, proxy) = stalled_store();
    let scratch = Scratch::new();
    let producer = locking_producer(&server, &scratch);
    let run = backup_of(producer, &proxy, &bucket, &["--spool-dir=none", "--lock-stall=1"]);
    let ran = run.wait().expect_failure();
    let said = ran.stderr_text();
    assert!(said.contains("it blocked commits") && said.contains("--lock-stall"), "{ran:?}");
    commit(&server);
    assert_not_a_backup(&Store::Bucket(bucket), "name");
}
