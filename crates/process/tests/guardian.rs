//! Programs behind a guardian. This test starts itself as the program that is killed, which in turn
//! starts itself as the guardian.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use xb_process::{NOT_STARTED, Program, Remover, serve_as_guardian};

/// Prefix of the first argument that makes this test the program to be killed; the file for process
/// ids follows.
const VICTIM: &str = "--victim=";
/// First argument that makes this test a program with a child in its group.
const PARENT: &str = "--parent";

fn main() -> ExitCode {
    if let Some(status) = serve_as_guardian() {
        return status;
    }
    if let Some(file) =
        std::env::args().nth(1).and_then(|word| Some(word.strip_prefix(VICTIM)?.to_owned()))
    {
        return match std::env::args().nth(2).as_deref() {
            Some("directory") => victim_with_directory(&file),
            group => victim(&file, group.unwrap()),
        };
    }
    if std::env::args().nth(1).as_deref() == Some(PARENT) {
        let child = shell("exit 7").in_our_group().start().unwrap().wait().unwrap();
        return u8::try_from(child.code().unwrap()).unwrap().into();
    }
    let dir = tempfile::tempdir().unwrap();
    a_killed_program_takes_its_children_and_theirs_along(dir.path());
    without_its_guardian_a_program_is_gone(dir.path());
    a_large_program_is_gone_when_its_kill_returns(dir.path());
    status_and_signal_come_through();
    a_signal_before_the_program_is_there_ends_it();
    a_program_in_our_group_gets_the_signal_that_ends_it();
    no_guardian_shows_the_arguments_of_its_program();
    long_arguments_come_through();
    a_program_that_has_changed_its_user_is_gone_when_its_kill_returns(dir.path());
    all_three_streams_come_through();
    a_program_that_cannot_be_started_is_an_error_at_once();
    a_program_that_cannot_be_run_shows_it_by_its_status(dir.path());
    nothing_else_is_inherited();
    a_killed_program_leaves_no_directory(dir.path());
    a_group_of_another_namespace_is_not_ours();
    println!("14 tests of the guardian passed");
    ExitCode::SUCCESS
}

/// Starts a program that starts another, and waits for it.
fn victim(file: &str, group: &str) -> ExitCode {
    let script = format!("sleep 1000 & echo $$ $! > {file}.new; mv {file}.new {file}; wait");
    let program = match group {
        "own" => shell(&script),
        "ours" => shell(&script).in_our_group(),
        _ => as_another_user(&script).in_our_group(),
    };
    let _ = program.start().unwrap().wait();
    ExitCode::SUCCESS
}

/// Creates a directory that must not outlive this process, and waits in a program that writes into it.
fn victim_with_directory(dir: &str) -> ExitCode {
    std::fs::create_dir(dir).unwrap();
    let _remover = Remover::start(Path::new(dir)).unwrap().unwrap();
    let script =
        format!("while echo x >{dir}/new; do echo $$ >{dir}.new; mv {dir}.new {dir}.pid; done");
    let _ = shell(&script).stderr(Stdio::null()).start().unwrap().wait();
    ExitCode::SUCCESS
}

/// As in a container that `nsenter` has entered.
fn a_group_of_another_namespace_is_not_ours() {
    let inside = |program: &Path, word: &str| {
        Command::new("unshare").args(["--pid", "--fork"]).arg(program).arg(word).output()
    };
    if !inside(Path::new("true"), "").is_ok_and(|ran| ran.status.success()) {
        return println!("skipped: a process namespace needs root");
    }
    let ran = inside(&std::env::current_exe().unwrap(), PARENT).unwrap();
    assert_eq!(ran.status.code(), Some(7), "{}", String::from_utf8_lossy(&ran.stderr));
}

fn a_killed_program_leaves_no_directory(parent: &Path) {
    let dir = parent.join("scratch");
    let mut victim = Command::new("/proc/self/exe")
        .arg(format!("{VICTIM}{}", dir.display()))
        .arg("directory")
        .spawn()
        .unwrap();
    let pids = pids(&parent.join("scratch.pid"));
    victim.kill().unwrap();
    let _ = victim.wait().unwrap();
    until_gone(pids[0]);
    while dir.exists() {
        std::thread::yield_now();
    }
    // Without a kill, it is gone when the value is.
    std::fs::create_dir_all(dir.join("below")).unwrap();
    drop(Remover::start(&dir).unwrap());
    assert!(!dir.exists());
}

fn shell(script: &str) -> Program {
    Program::new("sh").args(["-c", script])
}

/// Like a program that changes its user: the kernel does not end it with its parent.
fn as_another_user(script: &str) -> Program {
    Program::new("setpriv").args(["--pdeathsig", "clear", "sh", "-c", script])
}

/// Returns the process ids that the program and its own child have written.
fn pids(file: &Path) -> Vec<Pid> {
    while !file.exists() {
        std::thread::yield_now();
    }
    let text = std::fs::read_to_string(file).unwrap();
    text.split_whitespace().map(|word| Pid::from_raw(word.parse().unwrap()).unwrap()).collect()
}

/// Waits until a process has ended, whether or not it has been reaped.
fn until_gone(pid: Pid) {
    while !is_gone(pid) {
        std::thread::yield_now();
    }
}

fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    !stat.is_ok_and(|stat| !stat.contains(") Z"))
}

fn a_killed_program_takes_its_children_and_theirs_along(dir: &Path) {
    for group in ["own", "ours", "ours-as-another"] {
        let file = dir.join(group);
        let mut victim = Command::new("/proc/self/exe")
            .arg(format!("{VICTIM}{}", file.display()))
            .arg(group)
            .spawn()
            .unwrap();
        let pids = pids(&file);
        victim.kill().unwrap();
        let _ = victim.wait().unwrap();
        until_gone(pids[0]);
        match group {
            "own" => until_gone(pids[1]),
            // In the shared group the program cannot be told apart from others.
            _ => kill_process(pids[1], Signal::KILL).unwrap(),
        }
    }
}

/// The guardian ends at once; the program behind it has memory to give back first.
fn a_large_program_is_gone_when_its_kill_returns(dir: &Path) {
    let file = dir.join("large");
    let script = format!(
        "(head -c 400000000 /dev/zero; echo > {0}.new; mv {0}.new {0}; sleep 1000) |
            exec tail -n 1",
        file.display()
    );
    let mut program = shell(&script).stdout(Stdio::null()).start().unwrap();
    let _ = pids(&file);
    let members = members(program.pid());
    program.kill();
    assert!(members.len() >= 4, "{members:?}");
    for pid in members {
        assert!(is_gone(pid), "{pid} still runs");
    }
}

/// Returns the processes of a group, by the fifth field of proc_pid_stat(5).
fn members(group: u32) -> Vec<Pid> {
    let in_group = |stat: &String| {
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(2) == Some(&group.to_string())
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("stat")).ok())
        .filter(in_group)
        .map(|stat| Pid::from_raw(stat.split(' ').next().unwrap().parse().unwrap()).unwrap())
        .collect()
}

fn without_its_guardian_a_program_is_gone(dir: &Path) {
    let file = dir.join("guardian");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
    let mut program = shell(&script).in_our_group().start().unwrap();
    let pids = pids(&file);
    assert_ne!(pids[0].as_raw_nonzero().get().unsigned_abs(), program.pid());
    program.kill();
    until_gone(pids[0]);
}

fn status_and_signal_come_through() {
    assert_eq!(shell("exit 7").start().unwrap().wait().unwrap().code(), Some(7));
    let killed = shell("kill -9 $$").start().unwrap().wait().unwrap();
    assert_eq!(killed.signal(), Some(9));
    let mut ended = shell("exec sleep 1000").start().unwrap();
    ended.end(Signal::TERM.as_raw());
    assert_eq!(ended.wait().unwrap().signal(), Some(15));
}

/// Its guardian has still to read the arguments.
fn a_signal_before_the_program_is_there_ends_it() {
    let words: Vec<String> = (0..200).map(|_| "x".repeat(4000)).collect();
    for _ in 0..10 {
        let mut program = shell("exec sleep 1000").args(&words).start().unwrap();
        program.end(Signal::TERM.as_raw());
        assert_eq!(program.wait().unwrap().signal(), Some(15));
    }
}

/// The guardian alone can be signalled: the group has other members.
fn a_program_in_our_group_gets_the_signal_that_ends_it() {
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut program = shell(script).in_our_group().stdout(Stdio::piped()).start().unwrap();
    program.stdout().unwrap().read_exact(&mut [0; 6]).unwrap();
    program.end(Signal::TERM.as_raw());
    assert_eq!(program.wait().unwrap().code(), Some(5));
}

/// One may be a password, which the program itself hides.
fn no_guardian_shows_the_arguments_of_its_program() {
    let program = shell("echo ready; read line").args(["topsecret"]).in_our_group();
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).start().unwrap();
    program.stdout().unwrap().read_exact(&mut [0; 6]).unwrap();
    let shown = std::fs::read(format!("/proc/{}/cmdline", program.pid())).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("--as-guardian-on=") && !shown.contains("topsecret"), "{shown}");
    drop(program.stdin());
    let _ = program.wait().unwrap();
}

/// They are more than a pipe holds.
fn long_arguments_come_through() {
    let long = "x".repeat(100_000);
    let program = shell("printf '%s,%s,%s' $# \"$1\" \"$2\"").args(["sh", "", &long]);
    let (mut program, mut text) = (program.stdout(Stdio::piped()).start().unwrap(), String::new());
    program.stdout().unwrap().read_to_string(&mut text).unwrap();
    assert!(program.wait().unwrap().success() && text == format!("2,,{long}"), "{}", text.len());
    assert!(shell("exit").args(["a\0b"]).start().is_err());
}

fn a_program_that_has_changed_its_user_is_gone_when_its_kill_returns(dir: &Path) {
    let file = dir.join("changed");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
    let mut program = as_another_user(&script).in_our_group().start().unwrap();
    let pids = pids(&file);
    program.kill();
    assert!(is_gone(pids[0]));
}

fn all_three_streams_come_through() {
    let mut program = shell("read line; echo \"$line\"; exec <&- >&-; echo why >&2; kill -STOP $$")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
        .unwrap();
    let (mut stdin, mut text) = (program.stdin().unwrap(), String::new());
    stdin.write_all(b"line\n").unwrap();
    // The program has closed both streams and still runs: the guardian must hold neither.
    program.stdout().unwrap().read_to_string(&mut text).unwrap();
    let error = loop {
        if let Err(error) = stdin.write_all(b"more\n") {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    let mut why = [0; 4];
    program.stderr().unwrap().read_exact(&mut why).unwrap();
    assert_eq!((text.as_str(), &why), ("line\n", b"why\n"));
    assert!(program.try_wait().unwrap().is_none());
}

fn a_program_that_cannot_be_started_is_an_error_at_once() {
    for missing in ["/no/such/program", "no-such-program-anywhere"] {
        let error = Program::new(missing).start().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{missing}");
    }
    let error = Program::new("/dev/null").start().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

fn a_program_that_cannot_be_run_shows_it_by_its_status(dir: &Path) {
    let file = dir.join("no-program");
    std::fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut program = Program::new(&file).stderr(Stdio::piped()).start().unwrap();
    let mut why = String::new();
    program.stderr().unwrap().read_to_string(&mut why).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(NOT_STARTED.into()));
    assert!(why.contains("No such file") && why.contains("its first line (#!)"), "{why}");
}

fn nothing_else_is_inherited() {
    let descriptors = |program: Program| {
        let mut program = program.stdout(Stdio::piped()).start().unwrap();
        let mut list = String::new();
        program.stdout().unwrap().read_to_string(&mut list).unwrap();
        list
    };
    let list = || shell("exec ls /proc/self/fd");
    assert_eq!(descriptors(list()), descriptors(list().unguarded()));
}
