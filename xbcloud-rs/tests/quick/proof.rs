//! A check that cannot be made, or that fails for another reason, is not damage of a backup: what
//! was proven before stays proven.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::StreamWriter;
use xb_testkit::vectors;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        format!("--encrypt-key-file={}", self.path(name).display())
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("root/n").display())
    }

    fn run(&self, args: &[&str], stdin: &[u8]) -> Ran {
        let command = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).arg(self.url());
        command.stdin_bytes(stdin).run()
    }

    /// Level up to which the backup is verified, and whether it counts as damaged.
    fn proof(&self) -> (Value, Value) {
        let list = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["list", "--json", &format!("file://{}", self.path("root").display())])
            .run()
            .expect(0);
        let lines: Value = serde_json::from_slice(&list.stdout).unwrap();
        let verified = &lines[0]["verified"];
        (verified["level"].clone(), verified["failed"].clone())
    }
}

fn plain() -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("shop/t.frm", &[7; 5000], 1000).info();
    stream.finish()
}

/// One bit of the record is no damage of the backup, and no reason to use an older one for ever.
#[test]
fn a_damaged_record_is_named_and_healed() {
    let place = Place::new();
    let key = place.key("key", &[3; 32]);
    let form = [&*key, "--chunk-size=64K"];
    let _ = place.run(&["put", form[0], form[1]], &plain()).expect(0);
    let verify = |level: &str| place.run(&["verify", &key, &format!("--level={level}")], b"");
    let root = format!("file://{}", place.path("root").display());
    let xbcloud =
        |command: &str| Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args([command, &root]).run();
    let _ = verify("decrypt").expect(0);
    let record = place.path("root/.xb-catalog/@verified/n/with-key");
    let mut bytes = std::fs::read(&record).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&record, bytes).unwrap();
    for said in
        [xbcloud("monitor").expect(2).stdout_text(), xbcloud("list").expect(0).stdout_text()]
    {
        assert!(said.contains("level") && said.contains("pages"), "{said}");
    }
    let said = verify("decrypt").expect(0).stderr_text();
    assert!(said.contains("passes at level restore, or a damaged one at level pages"), "{said}");
    let _ = verify("pages").expect(0);
    assert_eq!(place.proof(), ("pages".into(), Value::Null));
    let said = xbcloud("monitor").expect(1).stdout_text();
    assert!(said.contains("may have held a fault that only a trial restore finds"), "{said}");
}

#[test]
fn a_wrong_or_missing_key_for_single_files_is_no_damage() {
    let list = String::from_utf8(vectors::read("pipeline/vectors.jsonl")).unwrap();
    let entry = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let entry = entry.into_iter().find(|entry| entry["key"].is_string()).unwrap();
    let stream = vectors::read(&format!("pipeline/{}", entry["file"].as_str().unwrap()));
    let right = entry["key"].as_str().unwrap().as_bytes().to_vec();
    let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 1).collect();
    for layout in ["--layout=packed", "--layout=classic"] {
        let place = Place::new();
        let _ = place.run(&["put", layout, "--unsafe-any-end"], &stream).expect(0);
        let (right, wrong) = (place.key("right", &right), place.key("wrong", &wrong));
        let verify = ["verify", "--level=decrypt"];
        let with = |key: &str| place.run(&[&verify[..], &[key, "--accept-unsealed"]].concat(), b"");
        // Nothing was verified before: only the levels that passed are recorded.
        for ran in [with(&wrong), place.run(&verify, b"")] {
            let ran = ran.expect_failure();
            assert!(ran.stderr_text().contains("--encrypt-key-file"), "{ran:?}");
            assert_eq!(place.proof(), ("list".into(), Value::Null), "{layout}");
        }
        let _ = with(&right).expect(0);
        for ran in [with(&wrong), place.run(&verify, b"")] {
            let _ = ran.expect_failure();
            assert_eq!(place.proof(), ("decrypt".into(), Value::Null), "{layout}");
        }
    }
}

/// Programs without function, under the names of a server and its tools.
fn programs(dir: &Path, prepare: &str) -> String {
    std::fs::create_dir_all(dir).unwrap();
    for (name, script) in [("mariadbd", "exit 1"), ("mariadb-backup", prepare)] {
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir.display().to_string()
}

#[test]
fn passed_levels_are_kept_when_the_restore_cannot_be_tried() {
    let place = Place::new();
    let _ = place.run(&["put"], &plain()).expect(0);
    let path = programs(&place.path("bin"), "exit 1");
    std::fs::create_dir(place.path("scratch")).unwrap();
    let scratch = format!("--scratch-dir={}", place.path("scratch").display());
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["verify", "--level=restore", &scratch, &place.url()])
        .env("PATH", path)
        .run()
        .expect_failure();
    assert!(ran.stderr_text().contains("mariadb-backup"), "{ran:?}");
    assert_eq!(place.proof(), ("pages".into(), Value::Null));
    assert_eq!(std::fs::read_dir(place.path("scratch")).unwrap().count(), 0);
}

#[test]
fn output_of_the_programs_is_where_the_option_file_says() {
    let place = Place::new();
    let _ = place.run(&["put"], &plain()).expect(0);
    let path = programs(&place.path("bin"), "echo no room >&2; exit 1");
    let (options, state) = (place.path("my.cnf"), place.path("state"));
    std::fs::write(&options, format!("[xbcloud]\nstate-dir={}\n", state.display())).unwrap();
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .arg(format!("--defaults-file={}", options.display()))
        .args(["verify", "--level=restore", &place.url()])
        .args([format!("--scratch-dir={}", place.folder.path().display())])
        .env("PATH", path)
        .run()
        .expect_failure();
    let logs = std::fs::read_dir(state.join("program-logs"));
    let log = logs.unwrap_or_else(|error| panic!("{error}: {ran:?}")).next().unwrap().unwrap();
    assert!(log.file_name().to_str().unwrap().starts_with("verify-n-"), "{log:?}");
    assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "no room\n");
}

/// If an object were read, its damage would be found.
#[test]
fn requirements_of_the_trial_are_checked_before_anything_is_read() {
    let place = Place::new();
    let _ = place.run(&["put"], &plain()).expect(0);
    let objects = tree(&place.path("root/n"));
    let object = objects.keys().find(|key| key.ends_with("000000000")).unwrap();
    std::fs::write(place.path("root/n").join(object), b"damaged").unwrap();
    let path = programs(&place.path("bin"), "exit 0");
    let verify = |options: &[&str], path: &str| {
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["verify", "--level=restore"]);
        let ran = cmd.args(options).arg(place.url()).env("PATH", path).run().expect_failure();
        assert!(ran.stdout.is_empty(), "{ran:?}");
        assert_eq!(place.proof(), (Value::Null, Value::Null), "{options:?}");
        ran.stderr_text()
    };
    assert!(verify(&["--mysqld=/no/such/server"], &path).contains("/no/such/server"));
    let none = "--scratch-dir=/no/such/folder";
    assert!(verify(&[none], &path).contains("/no/such/folder"));
    std::fs::remove_file(place.path("bin/mariadb-backup")).unwrap();
    assert!(verify(&[], &path).contains("mariadb-backup"));
}
