//! A store that stops answering in mid-backup: the pipeline fills up to its budget and waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::*;
use xb_testkit::command::Cmd;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::s3::options_for;
use xb_testkit::store::Store;

const MIB: u64 = 1 << 20;
const INPUT: u64 = 192 * MIB;
const MEMORY: u64 = 64 * MIB;

#[test]
fn a_store_that_does_not_answer_holds_back_the_producer() {
    let store = Store::bucket();
    let Store::Bucket(bucket) = &store else { panic!("a bucket") };
    let proxy = Proxy::start(bucket.address(), vec![Rule::new("PUT", "/00000000", Action::Hold)]);
    let taken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&taken);
    let mut run = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args([
            "put",
            "--raw",
            "--compress=none",
            "--json",
            "--memory=64M",
            "--chunk-size=8M",
            "--parallel=64",
        ])
        .args(options_for(&proxy.endpoint()))
        .arg(store.url("name"))
        .stdin_feed(move |pipe| {
            let block = vec![0x5a; 1 << 16];
            while counter.load(Ordering::Relaxed) < INPUT && pipe.write_all(&block).is_ok() {
                counter.fetch_add(block.len() as u64, Ordering::Relaxed);
            }
        })
        .spawn();
    // A producer that is not held back writes all of its output while the store is silent.
    let (mut last, mut same) = (0, 0);
    run.until("the pipeline was full", || {
        let now = taken.load(Ordering::Relaxed);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        proxy.held() > 0 && same > 200
    });
    assert!(last > MEMORY / 4, "only {last} bytes were taken");
    assert!(last <= MEMORY + 8 * MIB, "{} MiB were taken with --memory=64M", last / MIB);
    proxy.set_rules(Vec::new());
    proxy.release();
    let ran = run.wait().expect(0);
    let peak = peak_memory(&ran);
    assert!(peak < 2 * MEMORY, "it held {} MiB", peak / MIB);
    assert_eq!(get_digest(&store, "name").0, INPUT);
}
