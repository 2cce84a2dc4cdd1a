//! Clones of MySQL servers as backups, without a server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::path::PathBuf;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::StreamWriter;

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path("root").join(name).display())
    }

    fn run(&self, args: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(args)
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
    }

    fn put(&self, name: &str, options: &[&str], stream: Vec<u8>) -> Ran {
        let args = [&["put", &self.url(name)], options].concat();
        self.run(&args).stdin_bytes(stream).run()
    }

    fn list(&self) -> Value {
        let ran = self.run(&["list", "--json", &self.url("")]).run().expect(0);
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

fn clone() -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.clone_of_mysql();
    stream.finish()
}

/// A producer's backup from one LSN to another.
fn backup(from: u64, to: u64) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.positions(from, to).info();
    stream.finish()
}

#[test]
fn a_piped_clone_is_a_backup_that_says_what_it_is() {
    let site = Site::new();
    for (name, options) in
        [("packed", &["--compress=zstd"][..]), ("classic", &["--layout=classic"])]
    {
        let _ = site.put(name, options, clone()).expect(0);
    }
    let list = site.list();
    for line in list.as_array().unwrap() {
        assert_eq!(line["kind"], "full");
        assert_eq!(line["server_version"], "9.7.4-2");
        assert_eq!(line["binlog_pos"], Value::Null, "no bound is a position");
        let facts = &line["mysql_clone"];
        assert_eq!(facts["page_size"], 16384);
        assert!(facts["gtids_from"].as_str().unwrap().ends_with(":1-5"));
        assert!(facts["gtids_to"].as_str().unwrap().ends_with(":1-7"));
        assert_eq!(facts["empty_tables"]["first"][0], "shop.old (MyISAM)");
    }
    let long =
        site.run(&["list", "--long", &site.url("")]).run().expect(0).stdout_text().into_owned();
    for expected in
        ["full, MySQL 9.7.4-2 clone", "gtids, at least", ":1-7", "1 table: shop.old (MyISAM)"]
    {
        assert!(long.contains(expected), "{expected}: {long}");
    }
}

#[test]
fn a_clone_without_its_end_is_no_backup() {
    let site = Site::new();
    let whole = clone();
    let cut = whole.windows(13).position(|bytes| bytes == b"xb_clone.json").unwrap() - 14;
    let mut late = StreamWriter::new(Vec::new());
    late.clone_of_mysql().file("undo_001", b"late", 100);
    let mut foreign = StreamWriter::new(Vec::new());
    foreign.file("xb_clone.patches", b"XBCLPT01", 100).info();
    let mut newer = StreamWriter::new(Vec::new());
    newer.file("xb_clone.patches", b"XBCLPT01", 100);
    newer.file("xb_clone.json", br#"{"format": 2}"#, 100);
    for (stream, expected) in [
        (whole[..cut].to_vec(), "no xb_clone.json"),
        (late.finish(), "undo_001 follows xb_clone.json"),
        (foreign.finish(), "no xb_clone.json"),
        (newer.finish(), "install a newer version"),
    ] {
        for options in [&[][..], &["--layout=classic"]] {
            let ran = site.put("bad", options, stream.clone()).expect_failure();
            assert!(ran.stderr_text().contains(expected), "{}", ran.stderr_text());
        }
    }
    let complete = |line: &Value| line["state"] == "complete";
    assert!(!site.list().as_array().unwrap().iter().any(complete));
}

#[test]
fn nothing_is_based_on_a_clone() {
    let site = Site::new();
    let _ = site.put("a-clone", &[], clone()).expect(0);
    let refused = site.run(&["backup", &site.url("b"), "--incremental-from=a-clone", "--", "true"]);
    let text = refused.run().expect_failure().stderr_text().into_owned();
    assert!(text.contains("a-clone is a clone of MySQL"), "{text}");
    // An increment whose start is unknown may be based on any backup but on this one.
    let _ = site.put("c-full", &[], backup(0, 100)).expect(0);
    let _ = site.put("d-increment", &[], backup(100, 200)).expect(0);
    let _ = site.run(&["delete", &site.url("a-clone"), "--yes"]).run().expect(0);
    let _ = site.run(&["delete", &site.url("c-full"), "--yes"]).run().expect_failure();
}
