//! The program as a process: files that appear only when complete, signals, and the process list.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Folder, filter, names, xbcrypt};
use xb_testkit::command::{Signal, is_heard};
use xb_testkit::data::noise;

const KEY: &str = "0123456789abcdefghijklmnopqrstuv";

#[test]
fn an_output_file_takes_any_path_and_replaces_nothing() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    let absolute = folder.name("absolute");
    for path in ["bare", "./dotted", "sub/below", &absolute] {
        let run = || {
            let words = ["-a", "AES256", "-k", KEY, "-o", path];
            xbcrypt().args(words).cwd(folder.0.path()).stdin_bytes("plain").run()
        };
        let _ = run().expect(0);
        let before = fs::read(folder.0.path().join(path)).unwrap();
        let ran = run().expect(1);
        assert!(ran.stderr_text().contains("already exists"), "{ran:?}");
        assert_eq!(fs::read(folder.0.path().join(path)).unwrap(), before);
        let back = xbcrypt().args(["-d", "-k", KEY, "-i", path]).cwd(folder.0.path()).run();
        assert_eq!(back.expect(0).stdout, b"plain");
    }
    // A dangling link counts as existing, too.
    std::os::unix::fs::symlink("nowhere", folder.path("link")).unwrap();
    for path in ["link", "no/folder/here", "sub", "..", "/"] {
        let words = ["-a", "AES256", "-k", KEY, "-o", path];
        let ran = xbcrypt().args(words).cwd(folder.0.path()).stdin_bytes("plain").run();
        assert!(ran.code() == 1 || ran.code() == 2, "{ran:?}");
    }
    assert_eq!(folder.names(), ["absolute", "bare", "dotted", "link", "sub"]);
    assert_eq!(names(&folder.path("sub")), ["below"]);
}

/// The runtime opens `/dev/null` in place of a closed stream, which would be an empty input.
#[test]
fn a_closed_standard_input_is_no_empty_one() {
    let shell = |words: &str| {
        let command = format!("exec {} -a AES256 {words}", crate::support::BINARY);
        xb_testkit::command::Cmd::new("/bin/sh").args(["-c", &command]).run()
    };
    let folder = Folder::new();
    let key = folder.file("key", KEY.as_bytes());
    // With a key on the command line, the program executes itself again to hide it.
    for key in [format!("--encrypt-key-file={key}"), format!("-k {KEY}")] {
        let closed = shell(&format!("{key} <&-")).expect(1);
        assert!(closed.stderr_text().contains("standard input is closed"), "{closed:?}");
        assert!(closed.stdout.is_empty());
        let _ = shell(&format!("{key} </dev/null")).expect(0);
        let _ = shell(&format!("{key} 0<>/dev/null")).expect(0);
    }
}

#[test]
fn a_signal_leaves_no_file() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP].into_iter().filter(|s| is_heard(*s)) {
        for format in ["--format=native", "--format=xbcrypt"] {
            let folder = Folder::new();
            let output = folder.name("out");
            let words = ["-a", "AES256", format, "-k", KEY, "-o", &output];
            let mut run = xbcrypt().args(words).stdin_held().spawn();
            let mut stdin = run.stdin().unwrap();
            stdin.write_all(&noise(1, 3 << 20)).unwrap();
            // The run has begun, and its input stalls.
            run.until("it has begun", || folder.path(".xb-partial").exists());
            run.signal(signal);
            let ran = run.wait();
            assert_eq!(ran.code(), 128 + signal.as_raw(), "{ran:?}");
            assert!(folder.names().is_empty(), "{:?}", folder.names());
            drop(stdin);
        }
    }
}

#[test]
fn no_secret_shows_in_the_process_list() {
    for words in [
        &["-k", KEY][..],
        &[&format!("-k{KEY}")],
        &[&format!("--encrypt-key={KEY}")],
        &["--encrypt_key", KEY, "-k", "fedcba9876543210"],
    ] {
        let mut run = xbcrypt().args(["-a", "AES256"]).args(words).stdin_held().spawn();
        let secrets = [KEY.as_bytes(), b"fedcba9876543210"];
        let shows = |bytes: &[u8]| {
            secrets.iter().any(|secret| bytes.windows(secret.len()).any(|part| part == *secret))
        };
        // The short time in which the original arguments are visible cannot be avoided.
        let (pid, mut cmdline) = (run.pid(), Vec::new());
        run.until("it has started anew", || {
            cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            cmdline.windows(3).any(|part| part == b"***")
        });
        assert!(!shows(&cmdline), "{}", cmdline.escape_ascii());
        let mut stdin = run.stdin().unwrap();
        stdin.write_all(b"plain").unwrap();
        let of = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        assert!(!shows(&of("environ")) && !shows(&of("cmdline")));
        // The short process name is that of the program.
        run.until("it has its name back", || {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "xbcrypt-rs\n")
        });
        // The memory file was emptied after reading.
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        for fd in fds.map(|fd| fd.unwrap().path()) {
            let is_ours =
                fs::read_link(&fd).is_ok_and(|to| to.starts_with("/memfd:xb-args (deleted)"));
            assert!(!is_ours || fs::read(&fd).unwrap().is_empty());
        }
        drop(stdin);
        let file = run.wait().expect(0).stdout;
        let key = if words.len() > 2 { "fedcba9876543210" } else { KEY };
        assert_eq!(filter(&["-d", "-k", key], &file).expect(0).stdout, b"plain");
    }
}

#[test]
fn keygen_makes_keys_and_never_replaces_one() {
    let folder = Folder::new();
    let key = folder.name("key");
    let _ = xbcrypt().args(["keygen", "-o", &key]).run().expect(0);
    let content = folder.read("key");
    assert_eq!(content.len(), 32);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let ran = xbcrypt().args(["keygen", "-o", &key]).run().expect(1);
    assert!(ran.stderr_text().contains("nothing is overwritten"), "{ran:?}");
    assert_eq!(folder.read("key"), content);
    let more = xbcrypt().arg("keygen").run().expect(0).stdout;
    assert!(more.len() == 32 && more != content);
    let identity = folder.name("identity");
    let ran = xbcrypt().args(["keygen", "--identity", "-o", &identity]).run().expect(0);
    assert!(!ran.stderr_text().contains("SECRET"), "{ran:?}");
    let public = xb_testkit::command::Cmd::new(xb_testkit::tools::find("age-keygen"));
    let public = public.args(["-y", &identity]).run().expect(0).stdout_text();
    assert!(ran.stderr_text().contains(public.trim()), "{ran:?}");
    // No public key is shown whose private half is kept nowhere.
    let ran = xbcrypt().args(["keygen", "--identity", "-o", &identity]).run().expect(1);
    assert!(!ran.stderr_text().contains("public key"), "{ran:?}");
    let inspect = format!("inspect {identity}");
    for command in ["keygen", "keygen --identity", "keygen --signing", &inspect] {
        let line = format!("exec {} {command} >&-", crate::support::BINARY);
        let ran = xb_testkit::command::Cmd::new("/bin/sh").args(["-c", &line]).run().expect(1);
        assert!(ran.stderr_text().contains("standard output is closed"), "{ran:?}");
        assert!(!ran.stderr_text().contains("public key"), "{ran:?}");
    }
}

#[test]
fn the_stock_name_knows_no_commands() {
    let folder = Folder::new();
    for word in ["keygen", "inspect", "rewrap"] {
        let ran = folder.linked_as("xbcrypt").arg(word).stdin_bytes("x").run().expect(1);
        assert!(ran.stdout.is_empty(), "{ran:?}");
    }
    for words in [&["--help"][..], &["-?"], &["keygen", "--help"], &["rewrap", "--help"], &["-V"]] {
        let ran = xbcrypt().args(words).run().expect(0);
        assert!(!ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran:?}");
    }
    let narrow = xbcrypt().arg("--help").env("COLUMNS", "80").run().expect(0).stdout_text();
    assert!(narrow.lines().count() <= 65, "{narrow}");
}

#[test]
fn a_missing_input_and_a_reader_that_goes_away() {
    let ran = xbcrypt().args(["-d", "-i", "/no/such/file"]).run().expect(1);
    assert!(ran.stderr_text().contains("/no/such/file"), "{ran:?}");
    let folder = Folder::new();
    let input = folder.file("in", &noise(2, 8 << 20));
    let line = format!(
        "set -o pipefail; {} --format=native -k {KEY} -i {input} | head -c 100 > /dev/null",
        crate::support::BINARY
    );
    let ran = xb_testkit::command::Cmd::new("/bin/bash").args(["-c", &line]).run().expect(1);
    assert!(ran.stderr_text().contains("has ended"), "{ran:?}");
}
