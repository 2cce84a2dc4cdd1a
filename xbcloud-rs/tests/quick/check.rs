//! `check` and `init`.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::scripted::Scripted;

struct Site {
    // Dropped before its socket.
    server: RefCell<Option<Scripted>>,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { server: RefCell::default(), folder: tempfile::tempdir().unwrap() };
        site.program(
            "mariadb-backup",
            "echo 'mariadb-backup based on MariaDB server 10.11.6-MariaDB Linux' >&2",
        );
        site.server("10.11.6-MariaDB", "GRANT RELOAD, PROCESS ON *.* TO b");
        site.program("wsrep_sst_xbrs", "");
        site.program("wsrep_sst_xbrs-rs", "");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that stands in for one of the server's.
    fn program(&self, name: &str, script: &str) {
        std::fs::create_dir_all(self.path("bin")).unwrap();
        let path = self.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A server that plays a cluster node, instead of the one before.
    fn server(&self, version: &'static str, grant: &'static str) {
        let row = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let answer = move |statement: &str| match statement {
            "SELECT VERSION()" => Ok(vec![row(&[version])]),
            "SHOW GRANTS" => Ok(vec![row(&[grant])]),
            _ => Ok(vec![row(&["wsrep_on", "ON"]), row(&["wsrep_sst_method", "xbrs"])]),
        };
        *self.server.borrow_mut() = None;
        let server = Scripted::start(&self.path("socket"), version, answer);
        *self.server.borrow_mut() = Some(server);
    }

    fn run(&self, args: &[&str]) -> Ran {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let socket = self.path("socket").display().to_string();
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults"])
            .args(args)
            .arg(format!("--root=file://{}", self.path("shop").display()))
            .env("PATH", path)
            .env("XBCLOUD_PRODUCER", format!("mariadb-backup --backup --user=b --socket={socket}"))
            .env("XBCLOUD_STATE_DIR", self.path("state"))
            .run()
    }

    /// Name, state and fix of each check.
    fn check(&self, args: &[&str], code: i32) -> Vec<(String, String, String)> {
        let ran = self.run(&[&["check", "--json"], args].concat()).expect(code);
        let lines: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let lines = lines.as_array().unwrap().iter();
        lines.map(|line| (text(line, "what"), text(line, "state"), text(line, "fix"))).collect()
    }
}

fn state<'a>(lines: &'a [(String, String, String)], what: &str) -> &'a str {
    lines.iter().find(|line| line.0 == what).map_or("absent", |line| &line.1)
}

#[test]
fn everything_that_a_backup_needs_is_tried() {
    let site = Site::new();
    let lines = site.check(&[], 1);
    assert_eq!(state(&lines, "list"), "failed", "the folder is missing: {lines:?}");
    let _ = site.run(&["init"]).expect(0);
    let lines = site.check(&[], 0);
    for what in [
        "list",
        "write",
        "read",
        "create only",
        "multipart",
        "delete",
        "clock",
        "program",
        "server",
        "grants",
        "state transfer",
        "state",
    ] {
        assert_eq!(state(&lines, what), "ok", "{what}: {lines:?}");
    }
    assert_eq!(state(&lines, "keys"), "warning", "not sealed");
    assert_eq!(state(&lines, "checkpoint"), "warning", "no SUPER");
    assert_eq!(state(&site.check(&["--checkpoint=no"], 0), "checkpoint"), "absent");
    site.server("10.11.6-MariaDB", "GRANT RELOAD, PROCESS, SUPER ON *.* TO b");
    assert_eq!(state(&site.check(&[], 0), "checkpoint"), "ok");
    assert!(lines.iter().all(|line| line.1 == "ok" || !line.2.is_empty()), "{lines:?}");
    // Nothing is left in the repository.
    let table = site.run(&["list"]).expect(0).stdout_text().to_string();
    assert_eq!(table.lines().count(), 1, "{table}");
    assert!(xb_testkit::files::tree(&site.path("shop")).is_empty());
    let table = site.run(&["check"]).expect(0).stdout_text().to_string();
    assert!(table.lines().any(|line| line.contains("fix: add a --recipient")), "{table}");
}

#[test]
fn a_missing_requirement_fails_with_a_fix() {
    let site = Site::new();
    let _ = site.run(&["init"]).expect(0);
    let lines = site.check(&["--retain=1d"], 1);
    assert_eq!(state(&lines, "object lock"), "failed");
    let lines = site.check(&["--spool-dir=/no/such/folder"], 1);
    assert_eq!(state(&lines, "spool"), "failed");
    let lines = site.check(&["--encrypt-key-file=/no/such/key"], 1);
    assert_eq!(state(&lines, "keys"), "failed");
    let lines = site.check(&["--producer=/no/such/mariadb-backup"], 1);
    assert_eq!(state(&lines, "program"), "failed");
    *site.server.borrow_mut() = None;
    let lines = site.check(&[], 1);
    assert_eq!(state(&lines, "server"), "failed");
    site.server("11.8.3-MariaDB", "GRANT SELECT ON `x`.* TO b");
    let lines = site.check(&[], 0);
    assert_eq!((state(&lines, "server"), state(&lines, "grants")), ("warning", "warning"));
}

#[test]
fn keys_are_tried_with_those_of_this_host() {
    let site = Site::new();
    let _ = site.run(&["init"]).expect(0);
    std::fs::write(site.path("key"), [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", site.path("key").display());
    let lines = site.check(&[&key], 0);
    assert_eq!((state(&lines, "keys"), state(&lines, "open")), ("warning", "ok"), "one key is few");
}

#[test]
fn a_store_that_does_not_answer_is_reported_soon() {
    let site = Site::new();
    let ran = site
        .run(&[
            "check",
            "s3://bucket/x",
            "--s3-endpoint=http://127.0.0.1:1",
            "--s3-access-key=a",
            "--s3-secret-key=b",
            "--max-backoff=1",
        ])
        .expect(1);
    let text = ran.stdout_text();
    assert!(
        text.lines().next().is_some_and(|line| line.starts_with("list ")
            && line.contains("FAILED")
            && line.contains("127.0.0.1")),
        "{text}"
    );
}

#[test]
fn init_prints_what_a_bucket_needs() {
    let site = Site::new();
    let ran = site.run(&["init", "s3://bucket/shop", "--json", "--retain=1d"]).expect(0);
    let needs: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let policy = needs[0]["document"].to_string();
    assert!(
        policy.contains("arn:aws:s3:::bucket/shop/*") && policy.contains("s3:PutObjectRetention"),
        "{policy}"
    );
    assert_eq!(needs[1]["document"]["Rules"][0]["Filter"]["Prefix"], "shop/");
    assert!(!policy.contains("s3:PutObjectTagging"), "{policy}");
    let tagged = site.run(&["init", "s3://bucket/shop", "--json", "--tag=team=db"]).expect(0);
    assert!(tagged.stdout_text().contains("s3:PutObjectTagging"), "{tagged:?}");
    let text = site.run(&["init", "gs://bucket"]).expect(0).stdout_text().to_string();
    assert!(text.contains("AbortIncompleteMultipartUpload"), "{text}");
}

/// A rule is for one ROOT alone, and no other ROOT's takes its place.
#[test]
fn each_repository_of_a_bucket_has_its_own_rule() {
    let site = Site::new();
    let rule = |path: &str| {
        let ran = site.run(&["init", &format!("s3://bucket/{path}"), "--json"]).expect(0);
        let needs: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let rule = &needs[1]["document"]["Rules"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&rule["Filter"]["Prefix"]), text(&rule["ID"]))
    };
    assert_eq!(rule("shop"), ("shop/".to_owned(), "xbcloud-unfinished-uploads-shop".to_owned()));
    assert_eq!(rule("").0, "");
    let long = "long/".repeat(60);
    let paths = ["a&b", "a-b", "a<b", "a%26b", &*format!("{long}1"), &*format!("{long}2")];
    let ids: std::collections::BTreeSet<String> = paths.iter().map(|path| rule(path).1).collect();
    assert!(ids.len() == paths.len() && ids.iter().all(|id| id.len() <= 255), "{ids:?}");
}
