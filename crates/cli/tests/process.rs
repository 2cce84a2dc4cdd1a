//! Tests that need a whole process: exit codes, messages, signals.
//!
//! Each test runs this binary again with `XB_CLI_TEST` set to the name of a role; the role ends the
//! process before the test harness can print anything.

// The setting that allows this in tests does not apply to the helpers of an integration test.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::raise;
use xb_cli::{
    Failure, FailureContext, Log, LogOptions, Program, Signals, interrupted, refuse_terminal_input,
    run,
};

#[derive(Debug, Parser)]
struct Line {
    #[arg(long)]
    number: Option<u32>,
}

/// Entry point of the child; does nothing in a normal test run.
#[test]
fn part() {
    let Ok(part) = std::env::var("XB_CLI_TEST") else { return };
    let code = run("fallback", |program| play(&part, program));
    // ExitCode can only be returned from main; its number is sufficient here.
    std::process::exit(
        (0..=255).find(|n| code == std::process::ExitCode::from(*n)).unwrap().into(),
    );
}

fn play(part: &str, program: &Program) -> Result<(), Failure> {
    let options = LogOptions { no_stamps: true, ..LogOptions::default() };
    match part {
        "done" => Ok(()),
        "failed" => Err(std::io::Error::other("broken")).stage("upload").hint("mend it"),
        "logged" => {
            program.start_log(LogOptions { json: true, ..options }).info("one");
            Err(Failure::new("broken").stage("upload"))
        }
        "stdin" => refuse_terminal_input("x < FILE"),
        "usage" => words(&["--number=x"]),
        "help" => words(&["--help"]),
        "signal" => {
            let _signals = wait_for_first_signal();
            Err(std::io::Error::other("cancelled").into())
        }
        "signal-twice" => {
            let _signals = wait_for_first_signal();
            loop {
                std::thread::park();
            }
        }
        "signals-end" => {
            drop(Signals::catch(|_| ())?);
            assert_eq!(interrupted(), None);
            println!("ready");
            Ok(())
        }
        "nohup" => {
            let log: Log = program.start_log(options);
            let seen = std::sync::mpsc::channel();
            let _signals = Signals::catch(move |signal| {
                let _ = seen.0.send(signal);
            })?;
            raise(SIGHUP)?;
            raise(SIGTERM)?;
            log.info(seen.1.recv().unwrap());
            log.info(format_args!("{:?}", interrupted()));
            Ok(())
        }
        other => panic!("no part {other}"),
    }
}

fn words(words: &[&str]) -> Result<(), Failure> {
    let argv: Vec<OsString> = ["x", "--no-defaults"].iter().chain(words).map(Into::into).collect();
    Program::new(argv, "x").parse::<Line>(&["x"]).map(|_| ())
}

fn wait_for_first_signal() -> Signals {
    let (send, receive) = std::sync::mpsc::channel();
    let caught = move |signal| {
        println!("caught {signal}");
        let _ = send.send(());
    };
    let signals = Signals::catch_and_tell(caught, |signal| println!("ends by {signal}")).unwrap();
    println!("ready");
    std::io::stdout().flush().unwrap();
    receive.recv().unwrap();
    signals
}

fn start(part: &str, prefix: &[&str]) -> Child {
    let this = std::env::current_exe().unwrap();
    let mut command = match prefix.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(&this);
            command
        }
        None => Command::new(&this),
    };
    command.args(["part", "--exact", "--nocapture", "--quiet"]).env("XB_CLI_TEST", part);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(part: &str) -> (ExitStatus, String, String) {
    let output = start(part, &[]).wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status, text(output.stdout), text(output.stderr))
}

/// Reads until a line contains `text`; the test harness of the child writes to the same output.
fn wait_for(out: &mut BufReader<ChildStdout>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "no {text:?}");
    }
}

/// Returns whether the tests themselves run with the signal ignored, as in a shell's background jobs.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1 == 1
}

fn kill(child: &Child, signal: i32) {
    let status =
        Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_service_extends_its_timeouts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this)
        .args(["part", "--exact", "--nocapture", "--quiet"])
        .envs([("XB_CLI_TEST", "signal".as_ref()), ("NOTIFY_SOCKET", path.as_os_str())])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut buffer = [0; 200];
    let len = manager.recv(&mut buffer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        std::str::from_utf8(&buffer[..len]).unwrap().trim(),
        "EXTEND_TIMEOUT_USEC=120000000"
    );
}

#[test]
fn codes_and_messages() {
    let (status, _, stderr) = end("done");
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    let (status, stdout, stderr) = end("failed");
    assert_eq!(status.code(), Some(1));
    assert!(stderr.ends_with(": upload: broken\nhint: mend it\n"), "{stderr}");
    assert!(!stdout.contains("broken"), "{stdout}");
    let (status, _, stderr) = end("usage");
    assert_eq!(status.code(), Some(2));
    assert!(stderr.contains("--number"), "{stderr}");
    let (status, stdout, stderr) = end("help");
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("--number"), "{stdout}");
    // /dev/null is not a terminal.
    assert_eq!(end("stdin").0.code(), Some(0));
}

#[test]
fn a_json_log_takes_the_error() {
    let (status, _, stderr) = end("logged");
    assert_eq!(status.code(), Some(1));
    let events: Vec<serde_json::Value> =
        stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["text"], "one");
    assert_eq!(events[1]["event"], "error");
    assert_eq!(events[1]["message"], "broken");
}

#[test]
fn the_first_signal_winds_down_and_names_the_exit() {
    for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)) {
        let mut child = start("signal", &[]);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        wait_for(&mut out, "ready");
        kill(&child, signal);
        wait_for(&mut out, &format!("caught {signal}"));
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal), "{status} {stderr}");
        assert!(stderr.ends_with(": cancelled\n"), "{stderr}");
    }
}

#[test]
fn a_later_signal_ends_at_once() {
    let mut child = start("signal-twice", &[]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut out, "ready");
    kill(&child, SIGTERM);
    wait_for(&mut out, "caught 15");
    // Signals that follow at once count as one request, so keep sending them for a while, until the
    // process ends.
    let start = Instant::now();
    let status = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        kill(&child, SIGTERM);
    };
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    // The program can name the files that it leaves behind first.
    wait_for(&mut out, "ends by 15");
}

#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    let child = start("nohup", &["nohup"]);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    // An ignored HUP leaves no trace; a caught one would appear first.
    assert!(
        stderr.ends_with(": 15\nXX: Some(15)\n".replace("XX", &name(&stderr)).as_str()),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(0));
}

fn name(stderr: &str) -> String {
    let last = stderr.lines().last().unwrap_or_default();
    last.split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn the_thread_ends_with_its_guard() {
    let (status, stdout, _) = end("signals-end");
    assert_eq!(status.code(), Some(0));
    assert!(stdout.contains("ready"), "{stdout}");
}
