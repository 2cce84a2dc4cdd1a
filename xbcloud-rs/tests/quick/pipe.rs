//! A pipeline of three programs: each does its part, and only the last one cuts objects.

use std::path::{Path, PathBuf};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::{noise, pages};
use xb_testkit::files::assert_same_tree;

/// One of our programs, built beside the program under test.
fn program(name: &str) -> Cmd {
    let path = Path::new(env!("CARGO_BIN_EXE_xbcloud-rs")).with_file_name(name);
    assert!(path.exists(), "{name} is not built: cargo build --workspace");
    Cmd::new(path)
}

fn xbcloud(args: &[&str]) -> Cmd {
    program("xbcloud-rs").args(args)
}

fn objects(folder: &Path) -> Vec<u64> {
    let run = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut objects: Vec<(PathBuf, u64)> = std::fs::read_dir(run)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().len() == 9)
        .map(|entry| (entry.path(), entry.metadata().unwrap().len()))
        .collect();
    objects.sort();
    objects.into_iter().map(|(_, len)| len).collect()
}

#[test]
fn three_programs_and_one_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    std::fs::create_dir_all(path("data/db")).unwrap();
    std::fs::write(path("data/db/noise.ibd"), noise(1, 3_000_001)).unwrap();
    std::fs::write(path("data/db/pages.ibd"), pages(2, 3_000_000)).unwrap();
    std::fs::write(path("data/xtrabackup_info"), "tool_name = mariadb-backup\n").unwrap();
    let _ = program("xbcrypt-rs").args(["keygen", "-o", &text("key")]).run().expect(0);
    let key = format!("--encrypt-key-file={}", text("key"));

    let files = ["db/noise.ibd", "db/pages.ibd", "xtrabackup_info"];
    let stream = program("xbstream-rs").args(["-c", "-C", &text("data")]).args(files);
    let stream = stream.run().expect(0).stdout;
    let filter = |options: &[&str], input: Vec<u8>| -> Ran {
        program("xbcrypt-rs").args(options).stdin_bytes(input).run().expect(0)
    };
    let sealed = ["--format=native", "--compress=zstd:1", &key];
    let native = filter(&sealed, stream.clone()).stdout;
    for chunk in [70_000_u64, 1 << 20] {
        let name = format!("root/n{chunk}");
        let place = format!("file://{}", text(&name));
        let size = format!("--chunk-size={chunk}");
        let put = ["put", &size, &place];
        // A stream that was cut in transit is not a backup.
        let cut = native[..native.len() - 1].to_vec();
        let _ = xbcloud(&put).stdin_bytes(cut).run().expect_failure();
        let _ = xbcloud(&put).stdin_bytes(native.clone()).run().expect(0);
        let sizes = objects(&path(&name));
        let (last, full) = sizes.split_last().unwrap();
        assert!(!full.is_empty() && full.iter().all(|size| *size == chunk), "{sizes:?}");
        assert!(*last <= chunk);

        // The last program unpacks everything alone, or each program undoes its own part.
        let target = path(&format!("out{chunk}"));
        let dir = format!("--target-dir={}", target.display());
        let _ = xbcloud(&["restore", &key, &dir, &place]).run().expect_failure();
        let accept = "--accept-unvouched";
        let _ = xbcloud(&["restore", &key, accept, &dir, &place]).run().expect(0);
        assert_same_tree(&target, &path("data"));
        let stored = xbcloud(&["get", "--as-stored", &place]).run().expect(0).stdout;
        assert!(stored == native);
        assert!(filter(&["-d", &key], stored).stdout == stream);
        let _ = xbcloud(&["get", &place]).run().expect_failure();
    }
}

/// The data would be lost: the runtime opens `/dev/null` in place of a closed stream.
#[test]
fn a_closed_standard_output_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/n", folder.path().display());
    let stream = xb_testkit::stream::small_backup(1, 10_000);
    let _ = xbcloud(&["put", &place]).stdin_bytes(stream).run().expect(0);
    let shell = |redirect: &str| {
        let command = format!("exec {} get '{place}' {redirect}", env!("CARGO_BIN_EXE_xbcloud-rs"));
        Cmd::new("/bin/sh").args(["-c", &command]).run()
    };
    let closed = shell(">&-").expect(1);
    assert!(closed.stderr_text().contains("standard output is closed"), "{closed:?}");
    let _ = shell("> /dev/null").expect(0);
    // As a caller's own /dev/null may be opened.
    let _ = shell("1<> /dev/null").expect(0);
    // The same when the program executes itself again to hide a key.
    let keyed = |redirect: &str| shell(&format!("--header=x-key:abcdefgh {redirect}"));
    let hidden = keyed(">&-").expect(1);
    assert!(hidden.stderr_text().contains("standard output is closed"), "{hidden:?}");
    let _ = keyed("1<> /dev/null").expect(0);
}

/// A command whose result is what it prints fails without it; a verdict is unknown then.
#[test]
fn output_that_cannot_be_printed_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("file://{}", folder.path().display());
    let stream = xb_testkit::stream::small_backup(1, 10_000);
    let _ = xbcloud(&["put", &format!("{root}/n")]).stdin_bytes(stream).run().expect(0);
    let shell = |command: &str, redirect: &str| {
        let command = format!("exec {} {command} {redirect}", env!("CARGO_BIN_EXE_xbcloud-rs"));
        Cmd::new("/bin/sh").args(["-c", &command]).run()
    };
    for (command, code) in [
        (format!("list '{root}'"), 1),
        (format!("show '{root}/n'"), 1),
        ("plan --size=1G".to_owned(), 1),
        (format!("monitor --max-age=1h '{root}'"), 3),
        (format!("verify --level=decrypt '{root}/n'"), 1),
        (format!("check '{root}'"), 1),
        (format!("prune --keep-last=1 '{root}'"), 1),
        (format!("delete --dry-run '{root}/n'"), 1),
    ] {
        let _ = shell(&command, "> /dev/null").expect(0);
        let _ = shell(&command, ">&-").expect(code);
        let _ = shell(&command, "> /dev/full").expect(code);
    }
    let run = std::fs::read_dir(folder.path().join("n")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(run.join("000000000"), b"other bytes").unwrap();
    // Damage is known from the exit code, even without the report.
    for redirect in ["> /dev/null", ">&-", "> /dev/full"] {
        let _ = shell(&format!("verify --level=decrypt '{root}/n'"), redirect).expect(7);
    }
}

#[test]
fn auto_compression_reports_its_codecs_and_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/auto", folder.path().display());
    let input = [noise(3, 5_000_000), pages(4, 20_000_000)].concat();
    let put = xbcloud(&["put", "--raw", "--compress=auto", "--chunk-size=3M", &place]);
    let put = put.stdin_bytes(input.clone()).run().expect(0);
    let log = String::from_utf8(put.stderr).unwrap();
    let line = log.lines().find(|line| line.contains("compress=auto: ")).expect("a report");
    // Noise is stored, whatever limits the run.
    assert!(line.contains("none "), "{line}");
    let got = xbcloud(&["get", &place]).run().expect(0);
    assert!(got.stdout == input, "other bytes came back");
    let classic = ["put", "--layout=classic", "--compress=auto", &format!("{place}2")];
    let refused = xbcloud(&classic).stdin_bytes(Vec::new()).run();
    let log = String::from_utf8(refused.stderr).unwrap();
    assert!(log.contains("--compress=auto does not work in the classic layout"), "{log}");
}
