//! Faults around the program: full disks, signals, readers that exit early.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::support::{BINARY, Cage, extract, xbstream};
use rustix::process::Signal;
use xb_testkit::command::{Cmd, Running, is_heard};
use xb_testkit::data::noise;
use xb_testkit::stream::StreamWriter;

/// One complete file, then half of another.
fn one_and_a_half() -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.payload("db/whole", 0, &noise(1, 10_000)).end("db/whole");
    stream.payload("db/half", 0, &noise(2, 3 << 20));
    stream.finish()
}

/// Both files complete.
fn two() -> Vec<u8> {
    let mut stream = StreamWriter::new(one_and_a_half());
    stream.end("db/half");
    stream.finish()
}

/// Starts an extraction and pauses its input after `one_and_a_half`.
fn stalled(dir: &Path) -> (Running, std::process::ChildStdin) {
    let mut running = xbstream().args(["-x", "-p", "2", "-C"]).arg(dir).stdin_held().spawn();
    let mut input = running.stdin().unwrap();
    input.write_all(&one_and_a_half()).unwrap();
    input.flush().unwrap();
    let whole = dir.join("db/whole");
    running.until("the first file has its name", || whole.exists());
    (running, input)
}

#[test]
fn a_signal_leaves_whole_files_only() {
    for (signal, code) in
        [(Signal::TERM, 143), (Signal::INT, 130)].into_iter().filter(|(s, _)| is_heard(*s))
    {
        let cage = Cage::new();
        let (running, input) = stalled(&cage.inner);
        running.signal(signal);
        let ran = running.wait().expect(code);
        drop(input);
        assert!(ran.stderr_text().contains("interrupted by signal"), "{ran:?}");
        assert_eq!(cage.files().into_keys().collect::<Vec<_>>(), ["db/whole"]);
    }
}

#[test]
fn a_kill_leaves_no_half_file_under_its_name() {
    let cage = Cage::new();
    let (mut running, input) = stalled(&cage.inner);
    running.kill_9();
    let _ = running.wait().expect(137);
    drop(input);
    // After SIGKILL nothing cleans up, but files with a final name are complete.
    let names: Vec<_> = xb_testkit::files::tree(&cage.inner).into_keys().collect();
    assert_eq!(names, ["db/whole"]);
    assert!(cage.inner.join(".xb-partial").exists());
    // These files do not prevent another run with the rest, which removes them.
    let mut rest = StreamWriter::new(Vec::new());
    rest.payload("db/half", 0, b"now whole").end("db/half");
    let _ = extract(&cage.inner, &rest.finish(), 1).expect(0);
    assert_eq!(fs::read(cage.inner.join("db/half")).unwrap(), b"now whole");
    assert_eq!(cage.files().len(), 2);
}

#[test]
fn an_error_is_reported_while_the_input_stalls() {
    let cage = Cage::new();
    let (running, mut input) = stalled(&cage.inner);
    // Less than the program reads at once, and then nothing more.
    input.write_all(b"not a chunk, and that is all\n").unwrap();
    let ran = running.wait().expect(1);
    assert!(ran.stderr_text().contains("found \"not a chunk, and that is all\""), "{ran:?}");
    assert_eq!(cage.files().into_keys().collect::<Vec<_>>(), ["db/whole"]);
}

#[test]
fn a_file_too_large_for_the_limit_is_an_error() {
    let cage = Cage::new();
    let stream = cage.outer.path().join("stream");
    fs::write(&stream, two()).unwrap();
    // Without the trap the system would kill the program immediately. The unit is 512 bytes.
    let script = r#"trap "" XFSZ; ulimit -f 2048; exec "$0" -x -C "$1" < "$2""#;
    let ran = Cmd::new("/bin/sh")
        .args(["-c", script, BINARY])
        .arg(&cage.inner)
        .arg(&stream)
        .run()
        .expect(1);
    fs::remove_file(&stream).unwrap();
    let said = ran.stderr_text();
    assert!(said.contains("db/half: cannot write at offset"), "{said}");
    assert!(said.contains("hint: raise the file size limit (ulimit -f)"), "{said}");
    assert!(said.contains("1 complete file was kept"), "{said}");
    assert_eq!(cage.files().into_keys().collect::<Vec<_>>(), ["db/whole"]);
}

#[test]
fn a_full_disk_is_an_error() {
    // A small file system of our own, in a namespace of our own. If the machine allows neither,
    // the limit above has tested the same path.
    let allowed =
        Command::new("unshare").args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        xb_testkit::skipped("this user cannot mount");
        return;
    }
    let cage = Cage::new();
    let stream = cage.outer.path().join("stream");
    fs::write(&stream, two()).unwrap();
    // One worker: with two, the large file may take the room before the small one is written.
    let script = r#"mount -t tmpfs -o size=1m none "$1" && "$0" -x -p 1 -C "$1" < "$2"; code=$?
        cd "$1" && find . -type f -o -name ".xb*"; exit $code"#;
    let ran = Cmd::new("unshare")
        .args(["-rm", "/bin/sh", "-c", script, BINARY])
        .arg(&cage.inner)
        .arg(&stream)
        .run()
        .expect(1);
    let said = ran.stderr_text();
    assert!(said.contains("db/half: cannot write at offset"), "{said}");
    assert!(said.contains("hint: make room"), "{said}");
    assert_eq!(ran.stdout_text(), "./db/whole\n");
}

#[test]
fn a_reader_that_leaves_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("big"), noise(3, 8 << 20)).unwrap();
    let script = r#""$0" -c big | head -c 1000 > part; exit "${PIPESTATUS[0]}""#;
    let ran = Cmd::new("bash").args(["-c", script, BINARY]).cwd(dir.path()).run().expect(1);
    assert!(ran.stderr_text().contains("cannot write the stream: Broken pipe"), "{ran:?}");
    let ran =
        xbstream().args(["-c", "big"]).cwd(dir.path()).stdout_file("/dev/full").run().expect(1);
    assert!(ran.stderr_text().contains("No space left"), "{ran:?}");
    let mut stream = StreamWriter::new(Vec::new());
    stream.end("f");
    let listing = xbstream().arg("-t").stdin_bytes(stream.finish()).stdout_file("/dev/full");
    let _ = listing.run().expect(1);
}

#[test]
fn existing_files_stay_unchanged() {
    let cage = Cage::new();
    fs::create_dir(cage.inner.join("db")).unwrap();
    fs::write(cage.inner.join("db/half"), "precious").unwrap();
    let stream = two();
    let ran = extract(&cage.inner, &stream, 2).expect(1);
    assert!(ran.stderr_text().contains("db/half: already exists (stream offset"), "{ran:?}");
    assert_eq!(fs::read(cage.inner.join("db/half")).unwrap(), b"precious");

    // A link to another directory is neither followed nor replaced.
    let cage = Cage::new();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), cage.inner.join("db")).unwrap();
    let ran = extract(&cage.inner, &stream, 2).expect(1);
    assert!(ran.stderr_text().contains("db is not a directory"), "{ran:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
