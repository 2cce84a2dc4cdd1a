//! Helpers of the live tests: the program under test with a store.
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod archive;
pub(crate) mod logged_shop;
pub(crate) mod rescue;
pub(crate) mod shop;

use std::path::Path;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::{Digester, tree};
use xb_testkit::store::Store;
use xb_testkit::stream::scan;

/// Prefix of the manifests, below ROOT.
pub(crate) const CATALOG: &str = ".xb-catalog";

/// `xbcloud-rs COMMAND --quiet OPTIONS URL`.
pub(crate) fn xbcloud(store: &Store, command: &str, name: &str, options: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg(command)
        .arg("--quiet")
        .args(store.options())
        .args(options)
        .arg(store.url(name))
}

/// Stores a stream from a file.
#[track_caller]
pub(crate) fn put_file(store: &Store, name: &str, options: &[&str], stream: &Path) -> Ran {
    xbcloud(store, "put", name, options).stdin_file(stream).run().expect(0)
}

/// Stores a stream from memory.
#[track_caller]
pub(crate) fn put_bytes(store: &Store, name: &str, options: &[&str], stream: &[u8]) -> Ran {
    xbcloud(store, "put", name, options).stdin_bytes(stream).run().expect(0)
}

/// Peak memory in bytes that a run with `--json` reports itself. Measured from outside, it would
/// include the test's own memory before the start.
#[track_caller]
pub(crate) fn peak_memory(ran: &Ran) -> u64 {
    let events = ran.stderr_text();
    let mut events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let done = events.find(|event| event["event"] == "done").expect("an event");
    done["peak_memory"].as_u64().expect("a number")
}

/// Length and SHA-256 of the output of `get`.
#[track_caller]
pub(crate) fn get_digest(store: &Store, name: &str) -> (u64, String) {
    let digest = Digester::default();
    let _ = xbcloud(store, "get", name, &[]).stdout_into(digest.clone()).run().expect(0);
    digest.result()
}

/// Output of `get`.
#[track_caller]
pub(crate) fn get_bytes(store: &Store, name: &str) -> Vec<u8> {
    xbcloud(store, "get", name, &[]).run().expect(0).stdout
}

/// Returns whether the catalogue has a manifest of this name.
pub(crate) fn has_manifest(store: &Store, name: &str) -> bool {
    store.get(&format!("{CATALOG}/{name}")).is_some()
}

/// Data objects of a packed backup: run, number and size.
pub(crate) fn packed_objects(store: &Store, name: &str) -> Vec<(String, u64, u64)> {
    let object = |(key, size): (String, u64)| {
        let mut parts = key.split('/');
        let (_, run, last) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = last.len() == 9 && last.bytes().all(|b| b.is_ascii_digit());
        let number = last.parse().ok().filter(|_| digits)?;
        Some((run.to_owned(), number, size))
    };
    store.list(&format!("{name}/")).into_iter().filter_map(object).collect()
}

/// Data objects of any layout: everything below the name except claims.
pub(crate) fn data_objects(store: &Store, name: &str) -> Vec<(String, u64)> {
    let mut objects = store.list(&format!("{name}/"));
    objects.retain(|(key, _)| !key.ends_with("/claim"));
    objects
}

/// Asserts that the objects of the only run are numbered from 0, and that all but the last have
/// exactly `size` bytes. Returns their number.
#[track_caller]
pub(crate) fn assert_equal_objects(store: &Store, name: &str, size: u64) -> usize {
    let objects = packed_objects(store, name);
    assert!(!objects.is_empty(), "no data objects: {:?}", store.list(""));
    for (n, (run, number, len)) in objects.iter().enumerate() {
        assert_eq!((run, *number), (&objects[0].0, n as u64), "{objects:?}");
        let last = n + 1 == objects.len();
        let right = if last { (1..=size).contains(len) } else { *len == size };
        assert!(right, "object {n} of {} has {len} bytes, not {size}", objects.len());
    }
    objects.len()
}

/// Returns whether `list` shows this backup as complete.
#[track_caller]
pub(crate) fn is_listed(store: &Store, name: &str) -> bool {
    let listing = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["list", "--json"])
        .args(store.options())
        .arg(store.root_url())
        .run()
        .expect(0);
    let lines: Value = serde_json::from_slice(&listing.stdout).expect("JSON");
    let lines = lines.as_array().expect("a list");
    lines.iter().any(|line| line["name"] == name && line["state"] == "complete")
}

/// Asserts that the store has nothing under this name that looks like a backup.
#[track_caller]
pub(crate) fn assert_not_a_backup(store: &Store, name: &str) {
    assert!(!has_manifest(store, name), "there is a manifest of {name}");
    assert!(!is_listed(store, name), "{name} is listed as a backup");
    let got = xbcloud(store, "get", name, &[]).run().expect_failure();
    assert!(!got.stderr.is_empty(), "get fails without a word");
}

/// Asserts that no run has left orphaned data: a manifest names it, or its claim shows its age.
#[track_caller]
pub(crate) fn assert_no_orphans(store: &Store, name: &str) {
    let manifest = store.get(&format!("{CATALOG}/{name}")).unwrap_or_default();
    let manifest = String::from_utf8(manifest).expect("a manifest is text");
    for (run, number, _) in packed_objects(store, name) {
        let claimed = store.get(&format!("{name}/{run}/claim")).is_some();
        assert!(claimed || manifest.contains(&run), "object {number} of {run} is an orphan");
    }
}

/// Extracts a stream into a directory with the stock tool.
pub(crate) fn unpack(stream: &Path, into: &Path) {
    let _ = Cmd::new(xb_testkit::tools::find("mbstream"))
        .args(["-x", "-C"])
        .arg(into)
        .stdin_file(stream)
        .run()
        .expect(0);
    // mbstream exits with 0 on many errors, so the extracted files must match the stream.
    let ended = scan(&std::fs::read(stream).unwrap()).iter().filter(|c| c.kind == 'E').count();
    assert_eq!(tree(into).len(), ended, "mbstream left files out");
}
