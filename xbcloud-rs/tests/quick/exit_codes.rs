//! Exit codes, the log of a night without a store, and what a child program inherits.

use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}/root/{name}", self.0.path().display())
    }

    /// The only data object of the backup `name`.
    fn object(&self, name: &str) -> PathBuf {
        let run = std::fs::read_dir(self.0.path().join("root").join(name)).unwrap();
        run.map(|entry| entry.unwrap().path().join("000000000")).next().unwrap()
    }
}

fn command(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("--no-defaults").args(args)
}

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    command(args).stdin_bytes(stdin).run()
}

/// Runs against an S3 store that refuses connections.
fn at_a_closed_port(args: &[&str]) -> Cmd {
    command(args).args([
        "--s3-endpoint=http://127.0.0.1:1",
        "--s3-access-key=k",
        "--s3-secret-key=s",
    ])
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn every_kind_of_failure_has_its_code() {
    let place = Place::new();
    let stream = small_backup(3, 5000);
    let (key, other) = (place.file("key", &[b'k'; 32]), place.file("other", &[b'o'; 32]));
    let with = |key: &Path| format!("--encrypt-key-file={}", key.display());
    let (key, other) = (with(&key), with(&other));
    let _ = run(&["put", &place.url("plain")], &stream).expect(0);
    let _ = run(&["put", &key, &place.url("sealed")], &stream).expect(0);

    // Usage.
    let _ = run(&["put", "--no-such-option", &place.url("x")], &stream).expect(2);
    let _ = run(&["put", &place.url("latest")], &stream).expect(2);
    let _ = run(&["put", &place.url("night#1")], &stream).expect(2);
    let endpoint = "--s3-endpoint=https://user:topsecret@h";
    let refused = run(&["list", "s3://b/x", endpoint], b"").expect(2);
    assert!(!refused.stderr_text().contains("topsecret"), "{refused:?}");
    // Not found.
    let _ = run(&["get", &place.url("nothing")], b"").expect(3);
    let _ = run(&["list", "file:///no/such/folder"], b"").expect(3);
    // Not permitted.
    let _ = run(&["get", &place.url("sealed")], b"").expect(4);
    let _ = run(&["get", &other, &place.url("sealed")], b"").expect(4);
    let _ = run(&["get", &key, &place.url("plain")], b"").expect(4);
    // Not reachable.
    let _ = at_a_closed_port(&["list", "s3://b/x", "--max-retries=0"]).run().expect(5);
    // Input and producer.
    let _ = run(&["put", &place.url("cut")], &stream[..stream.len() / 2]).expect(6);
    let _ = run(&["put", &place.url("text")], b"no stream").expect(6);
    let _ = run(&["backup", &place.url("bad"), "--", "sh", "-c", "exit 3"], b"").expect(6);
    let _ = run(&["backup", &place.url("bad"), "--", "/no/such/program"], b"").expect(6);
    // Anything else.
    let _ = run(&["put", &place.url("plain")], &stream).expect(1);
    // Damage.
    flip(&place.object("plain"));
    let _ = run(&["verify", &place.url("plain")], b"").expect(7);
    let _ = run(&["get", &place.url("plain")], b"").expect(7);
}

/// A requested level that cannot be reached is a failure; the default goes as far as possible.
#[test]
fn a_level_that_was_not_reached_is_no_success() {
    let place = Place::new();
    let _ = run(&["put", "--raw", &place.url("raw")], b"any bytes").expect(0);
    let _ = run(&["verify", &place.url("raw")], b"").expect(0);
    let _ = run(&["verify", "--level=decrypt", &place.url("raw")], b"").expect(0);
    let ran = run(&["verify", "--level=pages", &place.url("raw")], b"").expect(7);
    assert!(ran.stderr_text().contains("only up to decrypt"), "{ran:?}");
}

#[test]
fn stock_names_have_the_codes_of_the_stock_tool() {
    let place = Place::new();
    let link = place.0.path().join("xbcloud");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_xbcloud-rs"), &link).unwrap();
    for args in [&["get", "file:///no/such/folder/n"][..], &["put", "--bogus"]] {
        let _ = Cmd::new(link.to_str().unwrap()).args(args).run().expect(1);
    }
}

/// A night without a store fits a mail, and its first line names endpoint and cause.
#[test]
fn a_night_without_a_store_is_short() {
    for args in [
        &["put", "s3://b/shop/monday"][..],
        &["backup", "s3://b/shop/monday", "--", "sh", "-c", "exit 0"],
    ] {
        let (options, program) = args.split_at(2);
        let mut words = vec![options[0], options[1], "--reach-timeout=3"];
        words.extend([
            "--s3-endpoint=http://127.0.0.1:1",
            "--s3-access-key=k",
            "--s3-secret-key=s",
        ]);
        words.extend(program);
        let ran = command(&words).stdin_bytes(small_backup(1, 5000)).run().expect(5);
        let text = ran.stderr_text();
        let first = text.lines().next().unwrap_or_default();
        assert!(text.lines().count() <= 10, "{text}");
        for part in ["http://127.0.0.1:1", "Connection refused"] {
            assert!(first.contains(part), "{text}");
            assert!(text.lines().skip(1).any(|line| line.contains(part)), "{text}");
        }
        assert!(text.contains("--reach-timeout"), "{text}");
    }
}

/// The producer and the key command get the environment without the secrets of ours.
#[test]
fn child_programs_inherit_no_secret_of_ours() {
    let place = Place::new();
    let (seen, by_key) = (place.0.path().join("seen"), place.0.path().join("by-key"));
    let wrap =
        format!("#!/bin/sh\nenv >{}\ntr '\\000-\\377' '\\001-\\377\\000'\n", by_key.display());
    let wrapper = place.file("wrap", wrap.as_bytes());
    std::process::Command::new("chmod").arg("700").arg(&wrapper).status().unwrap();
    let stream = place.file("stream", &small_backup(1, 5000));
    let script = format!("env >{}; cat {}", seen.display(), stream.display());
    let key_command = format!("--key-command={}", wrapper.display());
    let ran = command(&["backup", &key_command, &place.url("n"), "--", "sh", "-c", &script])
        .env("AWS_SECRET_ACCESS_KEY", "topsecret")
        .env("AZURE_STORAGE_SAS_TOKEN", "topsecret")
        .env("XBCLOUD_ANYTHING", "topsecret")
        .env("MYSQL_PWD", "for the producer")
        .run();
    let _ = ran.expect(0);
    for file in [seen, by_key] {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(!text.contains("topsecret"), "{text}");
        assert!(text.contains("for the producer"), "{text}");
    }
}

/// The same for every other command, and for a whole run: the mail of a night is its log.
#[test]
fn every_command_names_a_store_that_refuses_connections() {
    let place = Place::new();
    let file = place.file(
        "my.cnf",
        b"[xbcloud.shop]\nroot=s3://b/shop\nproducer=false\nkeep-last=1\ns3-endpoint=http://127.0.0.1:1\n\
          s3-access-key=k\ns3-secret-key=s\nreach-timeout=2\n",
    );
    std::process::Command::new("chmod").arg("600").arg(&file).status().unwrap();
    let target = format!("--target-dir={}", place.0.path().join("new").display());
    let state = format!("--state-dir={}", place.0.path().join("state").display());
    let copy = format!("file://{}/copy/", place.0.path().display());
    for args in [
        &["run", "@shop", &state][..],
        &["backup", "@shop", &state],
        &["list", "@shop"],
        &["show", "@shop/latest"],
        &["restore", "@shop/latest", &target],
        &["get", "@shop/latest"],
        &["verify", "@shop/latest"],
        &["verify", "@shop/latest", "--level=restore"],
        &["prune", "@shop", "--yes"],
        &["delete", "@shop/x", "--yes"],
        &["gc", "@shop"],
        &["pin", "@shop/x"],
        &["copy", "@shop/x", &copy],
    ] {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", file.display()))
            .args(args)
            .run();
        let text = ran.stderr_text();
        let first = text.lines().next().unwrap_or_default();
        assert!(text.lines().count() <= 10, "{args:?}: {text}");
        assert_eq!(ran.code(), 5, "{args:?}: {text}");
        for part in ["http://127.0.0.1:1", "Connection refused"] {
            assert!(first.contains(part), "{args:?}: {text}");
        }
        assert_eq!(ran.stdout_text(), "", "{args:?}");
    }
    assert!(!place.0.path().join("new").exists());
}

#[test]
fn a_folder_needs_no_certificates_of_authorities() {
    let place = Place::new();
    let missing = place.0.path().join("none.pem");
    let blind = |verb: &str| {
        command(&[verb, &place.url("b")])
            .env("SSL_CERT_FILE", &missing)
            .env("SSL_CERT_DIR", &missing)
    };
    let stream = small_backup(2, 5000);
    let _ = blind("put").stdin_bytes(stream.clone()).run().expect(0);
    assert_eq!(blind("get").run().expect(0).stdout, stream);
}
