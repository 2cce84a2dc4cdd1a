//! The mail of cron after a bad night: the cause and the next step come first, on at most ten lines.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::stream::small_backup;

const LINES: usize = 10;

/// A host with a repository in a folder, of which the last night was good.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        std::fs::write(host.path("stream"), small_backup(2, 5000)).unwrap();
        std::fs::create_dir(host.path("empty")).unwrap();
        let _ = host.night("cat \"$STREAM\"", &[], &["--name-template=good"]).expect(0);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A run by cron, with a producer that is this script, more lines in the option file, and more options.
    fn night(&self, script: &str, lines: &[&str], options: &[&str]) -> Ran {
        let program = self.path("mariadb-backup");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "[xbcloud.shop]\nroot=file://{}\nproducer={}\nstate-dir={}\nserver=db1\n{}\n",
            self.text("shop"),
            program.display(),
            self.text("state"),
            lines.join("\n").replace("DIR", &self.0.path().display().to_string()),
        );
        std::fs::write(self.path("my.cnf"), text).unwrap();
        let options = options.iter().map(|word| word.replace("DIR", &self.text("")));
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", self.text("my.cnf")))
            .args(["run", "@shop", "--quiet"])
            .args(options)
            .env("STREAM", self.path("stream"))
            .run()
    }
}

/// A bad night: what happened, its producer, lines of its option file, the exit status, and the words that name
/// cause and next step.
type Night = (&'static str, &'static str, &'static [&'static str], i32, &'static str, &'static str);

const NIGHTS: [Night; 22] = [
    (
        "wrong password",
        "echo \"[00] 2026-11-27 03:15:01 Failed to connect to MariaDB server: Access denied for user 'b'@'localhost' (using password: YES).\" >&2; exit 1",
        &[],
        6,
        "exit status 1: Failed to connect to MariaDB server: Access denied for user 'b'@'localhost'",
        "correct user and password",
    ),
    (
        "server gone",
        "echo \"[00] 2026-11-27 03:15:01 Failed to connect to MariaDB server: Can't connect to local server through socket '/s' (2).\" >&2; exit 1",
        &[],
        6,
        "Can't connect to local server through socket '/s'",
        "start the server",
    ),
    (
        "server stopped in the middle",
        "head -c 3000 \"$STREAM\"; echo 'mariadb-backup: Lost connection to server during query' >&2; echo done >&2; exit 1",
        &[],
        6,
        "Lost connection to server during query",
        "error log",
    ),
    (
        "privilege missing",
        "echo 'mariadb-backup: Error: failed to execute query FLUSH: Access denied; you need (at least one of) the RELOAD privilege(s) for this operation' >&2; exit 1",
        &[],
        6,
        "you need (at least one of) the RELOAD privilege(s)",
        "grant the missing privilege",
    ),
    (
        "no room for the producer",
        "echo 'mariadb-backup: Error writing file /tmp/x (Errcode: 28 \"No space left on device\")' >&2; exit 1",
        &[],
        6,
        "No space left on device",
        "make room where the producer writes",
    ),
    (
        "producer killed",
        "head -c 3000 \"$STREAM\"; kill -9 $$",
        &[],
        6,
        "signal 9",
        "journalctl -k",
    ),
    (
        "unknown option of the producer",
        "echo \"mariadb-backup: unknown variable 'paralel=4'\" >&2; exit 7",
        &[],
        6,
        "unknown variable 'paralel=4'",
        "correct this option",
    ),
    ("stream cut, and exit 0", "head -c 3000 \"$STREAM\"", &[], 6, "ends", "take a new backup"),
    ("no stream at all", "echo hello", &[], 6, "neither an xbstream", "--stream=xbstream"),
    (
        "tar instead of an xbstream",
        "tar -c --format=oldgnu -C \"${STREAM%/*}\" stream 2>/dev/null",
        &[],
        6,
        "the input is a tar archive",
        "--stream=xbstream",
    ),
    (
        "program missing",
        "exit 0",
        &["producer=/no/such/mariadb-backup --backup"],
        6,
        "/no/such/mariadb-backup",
        "install the program, or correct its path",
    ),
    (
        "key missing",
        "cat \"$STREAM\"",
        &["encrypt-key-file=DIR/no.key"],
        2,
        "no.key",
        "--encrypt-key-file",
    ),
    (
        "misspelled option",
        "cat \"$STREAM\"",
        &["keep-dayly=7"],
        2,
        "keep-dayly",
        "correct it, or write loose-keep-dayly",
    ),
    (
        "repository not mounted",
        "cat \"$STREAM\"",
        &["root=file://DIR/not/mounted/shop"],
        3,
        "DIR/not/mounted does not exist",
        "mounted",
    ),
    (
        "hook fails",
        "cat \"$STREAM\"",
        &["after=sh -c 'exit 9'"],
        1,
        "hook --after: sh failed with exit status 9",
        "to try it by hand",
    ),
    (
        "all copies under one name",
        "cat \"$STREAM\"",
        &["copy-to=file://DIR/copies/shop"],
        2,
        "--copy-to names a single backup, shop",
        "end it with a slash",
    ),
    (
        "a program that is not asked for a backup",
        "echo '[00] 2026-11-27 03:15:01 Warning: --stream parameter is ignored, it only works together with --backup.' >&2; echo 'Open source'",
        &[],
        6,
        "neither an xbstream",
        "add --backup",
    ),
    (
        "no base for an increment",
        "cat \"$STREAM\"",
        &["incremental-from=tuesday"],
        3,
        "tuesday",
        "list",
    ),
    (
        "program of a hook is gone",
        "cat \"$STREAM\"",
        &["after=DIR/gone"],
        1,
        "hook --after: cannot start DIR/gone: no such program",
        "correct its path",
    ),
    (
        "metrics file without its ending",
        "cat \"$STREAM\"",
        &["metrics-file=DIR/shop.txt"],
        2,
        "collector reads only",
        "name it",
    ),
    (
        "a shell's words",
        "exit 0",
        &["producer=cat DIR/stream | gzip"],
        2,
        "no shell runs it, so `|` would be an argument",
        "sh -c",
    ),
    (
        "program of the failure's hook is gone, too",
        "echo \"mariadb-backup: unknown variable 'paralel=4'\" >&2; exit 7",
        &["on-failure=DIR/gone"],
        6,
        "unknown variable 'paralel=4'",
        "correct this option",
    ),
];

#[test]
fn the_mail_begins_with_the_cause_and_the_next_step() {
    let host = Host::new();
    let mut wrong = Vec::new();
    for (what, script, lines, code, cause, next) in NIGHTS {
        let ran = host.night(script, lines, &[]);
        let mail = ran.stderr_text() + &ran.stdout_text();
        let cause = cause.replace("DIR", &host.0.path().display().to_string());
        let mut all = mail.lines();
        let (first, second) = (all.next().unwrap_or_default(), all.next().unwrap_or_default());
        // A line of clap has both.
        let both = format!("{first}\n{second}");
        let is_good = ran.code() == code
            && mail.lines().count() <= LINES
            && both.contains(&cause)
            && both.contains(next);
        if !is_good {
            wrong.push(format!("=== {what}: exit {}\n{mail}", ran.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_failed_night_names_its_stages_and_what_can_be_restored() {
    let host = Host::new();
    let ran = host.night("exit 1", &["keep-last=3"], &[]).expect(6);
    let mail = ran.stderr_text();
    assert!(mail.contains("\nrun of shop: backup failed after "), "{mail}");
    assert!(mail.contains("; not begun: verify, prune\n"), "{mail}");
    assert!(mail.contains("\nnewest backup that can be restored: good of 20"), "{mail}");
    assert!(mail.contains(" UTC, verified up to checksum\n"), "{mail}");
    // The backup is complete, although its night has failed.
    let ran = host.night("cat \"$STREAM\"", &["after=false"], &["--name-template=second"]);
    let mail = ran.expect(1).stderr_text();
    assert!(mail.contains("\nrun of shop: after failed after "), "{mail}");
    assert!(mail.contains("\nbackup second is complete, and verified up to checksum\n"), "{mail}");
    assert!(mail.contains("\nnewest backup that can be restored: second of "), "{mail}");
    let empty = host.night("exit 1", &["root=file://DIR/empty"], &[]).expect(6);
    assert!(empty.stderr_text().contains("\nno backup of this server can be restored\n"));
}

/// A producer writes hundreds of lines in a good night. Without a file for them they are no mail.
#[test]
fn a_night_without_a_state_directory_is_one_line() {
    let host = Host::new();
    std::fs::write(host.path("file"), "").unwrap();
    let lost = &["state-dir=DIR/file/state"][..];
    let good = "for n in $(seq 300); do echo \"line $n\" >&2; done; cat \"$STREAM\"";
    let mail = host.night(good, lost, &[]).expect(0).stderr_text();
    assert_eq!(mail.lines().count(), 1, "{mail}");
    assert!(mail.contains("only the last messages of the producer are kept"), "{mail}");
    let bad =
        "for n in $(seq 300); do echo \"line $n\" >&2; done; echo 'Error: at last' >&2; exit 1";
    let mail = host.night(bad, lost, &[]).expect(6).stderr_text();
    assert!(
        mail.lines().count() <= LINES && mail.contains("exit status 1: Error: at last"),
        "{mail}"
    );
    assert!(!mail.contains("all messages"), "{mail}");
}

#[test]
fn a_second_run_of_a_server_is_refused_while_the_first_works() {
    let host = Host::new();
    let gate = host.path("gate");
    let _ = Cmd::new("mkfifo").arg(&gate).run().expect(0);
    let script = format!("touch {0}.open; cat {0} >/dev/null; cat \"$STREAM\"", gate.display());
    let mut first = {
        let _ = host.night("exit 1", &[], &[]).expect(6);
        std::fs::write(host.path("mariadb-backup"), format!("#!/bin/sh\n{script}\n")).unwrap();
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", host.text("my.cnf")))
            .args(["run", "@shop", "--quiet"])
            .env("STREAM", host.path("stream"))
            .spawn()
    };
    let open = host.path("gate.open");
    first.until("the producer has started", || open.exists());
    let again = |more: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", host.text("my.cnf")))
            .args(["run", "@shop", "--quiet"])
            .args(more)
            .env("STREAM", host.path("stream"))
            .run()
    };
    let second = again(&[]).expect(1).stderr_text();
    let process =
        format!("a run of server db1 is under way already on this host: process {}", first.pid());
    assert!(second.lines().next().unwrap().contains(&process), "{second}");
    assert!(second.lines().nth(1).unwrap().contains("hint: wait until"), "{second}");
    // Another server, and another instance on this host, are none of its business.
    let stream = host.text("stream");
    let _ = again(&["--server=db2", "--", "cat", &stream]).expect(0);
    std::fs::write(&gate, "go").unwrap();
    let _ = first.wait().expect(0);
    let _ = again(&["--", "cat", &stream]).expect(0);
}

/// A host that keeps its state elsewhere has the lock of a prune there, too.
#[test]
fn a_prune_keeps_its_lock_in_the_named_state_directory() {
    let host = Host::new();
    let (named, other) = (host.path("named"), host.path("other"));
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "prune", "--keep-last=1", "--yes"])
        .arg(format!("--state-dir={}", named.display()))
        .arg(format!("file://{}", host.text("shop")))
        .env("XBCLOUD_STATE_DIR", &other)
        .run()
        .expect(0);
    assert_eq!(std::fs::read_dir(named.join("locks")).unwrap().count(), 1);
    assert!(!other.exists());
}

/// Two stores may have buckets of one name.
#[test]
fn a_prune_of_another_store_is_not_refused() {
    let (silent, scratch) = (TcpListener::bind("127.0.0.1:0").unwrap(), Scratch::new());
    let prune = |port: u16| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "prune", "s3://bucket/shop", "--keep-last=1", "--yes"])
            .arg(format!("--s3-endpoint=http://127.0.0.1:{port}"))
            .args([
                "--s3-access-key=k",
                "--s3-secret-key=s",
                "--max-retries=0",
                "--retry-timeout=0",
            ])
            .env("XBCLOUD_STATE_DIR", scratch.path())
    };
    let port = silent.local_addr().unwrap().port();
    let mut first = prune(port).spawn();
    let _connection = silent.accept().unwrap();
    let again = prune(port).run().expect(1).stderr_text();
    assert!(again.contains("a prune of s3://bucket/shop is under way already"), "{again}");
    // Nothing listens on port 1.
    let other = prune(1).run().expect_failure().stderr_text();
    assert!(!other.contains("under way already"), "{other}");
    first.kill_9();
}

/// A store that takes the connection and never answers.
#[test]
fn a_monitor_answers_although_the_store_does_not() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("--s3-endpoint=http://{}", silent.local_addr().unwrap());
    let monitor = |more: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "monitor", "s3://bucket/shop", &endpoint])
            .args(["--s3-access-key=k", "--s3-secret-key=s", "--answer-within=1s"])
            .args(more)
            .run()
            .expect(3)
            .stdout_text()
    };
    let line = monitor(&[]);
    assert!(line.starts_with("XBCLOUD UNKNOWN - s3://bucket/shop: "), "{line}");
    assert!(line.contains("has not answered within 1 s") && line.lines().count() == 1, "{line}");
    let document: serde_json::Value = serde_json::from_str(&monitor(&["--json"])).unwrap();
    assert_eq!((&document["state"], &document["exit"]), (&"UNKNOWN".into(), &3.into()));
    // One that is not there is named as the cause, not as a silence.
    drop(silent);
    let line = monitor(&["--answer-within=10s"]);
    assert!(line.contains("UNKNOWN") && !line.contains("has not answered within"), "{line}");
}

/// The JSON output has the cause of a wrong command line, too.
#[test]
fn a_monitor_with_a_wrong_command_line_answers_in_json() {
    for (words, cause) in [
        (&["file:///x", "--max-age=old"][..], "invalid value 'old' for '--max-age"),
        (&["--no-such-option"], "unexpected argument '--no-such-option' found"),
        (&["plain-name"], "no store is given"),
    ] {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "monitor", "--json"])
            .args(words)
            .run()
            .expect(2);
        let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!((&document["state"], &document["exit"]), (&"CRITICAL".into(), &2.into()));
        let named = document["critical"][0].as_str().unwrap();
        assert!(named.contains(cause) && !named.contains("Usage"), "{document}");
    }
}
