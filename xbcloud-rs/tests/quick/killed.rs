//! A run killed by SIGKILL takes down the programs that it has started.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use xb_testkit::command::Cmd;
use xb_testkit::daemon::{Scratch, process_name};
use xb_testkit::stream::StreamWriter;

/// A store with one backup, and programs of the test on PATH.
struct Place {
    scratch: Scratch,
    root: PathBuf,
    programs: PathBuf,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (root, programs) = (scratch.dir("root"), scratch.dir("programs"));
        let place = Self { scratch, root, programs };
        let mut stream = StreamWriter::new(Vec::new());
        stream.file("db/table.frm", b"a table", 99).info();
        let _ = place.xbcloud("put", "name").stdin_bytes(stream.finish()).run().expect(0);
        place
    }

    fn xbcloud(&self, command: &str, name: &str) -> Cmd {
        let path = std::env::var("PATH").unwrap();
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .args([command, "--quiet", &format!("file://{}/{name}", self.root.display())])
    }

    /// Creates a program and returns its path.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.programs.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Creates a program that never ends and writes its process ID.
    fn endless_program(&self, name: &str) -> PathBuf {
        let file = self.pid_file();
        self.program(name, &format!("echo $$ > {file}.new; mv {file}.new {file}; exec sleep 1000"))
    }

    fn pid_file(&self) -> String {
        self.scratch.join("pid").display().to_string()
    }

    /// Kills the run while its program is working; the program must then end.
    fn kill_9_and_look(&self, run: Cmd) {
        let (mut run, mut pid) = (run.spawn(), None);
        run.until("its program runs", || {
            let text = std::fs::read_to_string(self.pid_file());
            pid = text.ok().and_then(|text| text.trim().parse::<u32>().ok());
            pid.is_some()
        });
        run.kill_9();
        let _ = run.wait();
        xb_testkit::until("its program is gone", || process_name(pid.unwrap()).is_none());
    }
}

/// One that writes nothing does not notice that its reader is gone, and may block the commits of its server.
#[test]
fn a_killed_backup_takes_its_silent_producer_along() {
    let place = Place::new();
    let producer = place.endless_program("mariadb-backup");
    place.kill_9_and_look(place.xbcloud("backup", "other").arg("--").arg(producer));
}

#[test]
fn a_killed_restore_takes_its_prepare_program_along() {
    let place = Place::new();
    let _ = place.endless_program("mariadb-backup");
    let target = place.scratch.join("target");
    let restore = place.xbcloud("restore", "name").arg("--prepare").arg("--target-dir").arg(target);
    place.kill_9_and_look(restore);
}

#[test]
fn a_killed_verify_takes_its_server_and_its_directory_along() {
    let place = Place::new();
    let _ = place.program("mariadb-backup", "exit 0");
    let server = place.endless_program("server");
    let verify = place.xbcloud("verify", "name").args(["--level=restore", "--mysqld"]).arg(server);
    let scratch = place.scratch.dir("tmp");
    let folder = format!("--scratch-dir={}", scratch.display());
    // A confined server could not tell its process id.
    let writes = format!("--mysqld-writes={}", place.scratch.path().display());
    place.kill_9_and_look(verify.args([folder, writes]));
    xb_testkit::until("its directory is gone", || {
        std::fs::read_dir(&scratch).unwrap().next().is_none()
    });
}

#[test]
fn a_killed_put_takes_its_key_command_along() {
    let place = Place::new();
    let command = place.endless_program("key-command");
    let put = place.xbcloud("put", "other").arg(format!("--key-command={}", command.display()));
    let mut stream = StreamWriter::new(Vec::new());
    stream.info();
    place.kill_9_and_look(put.stdin_bytes(stream.finish()));
}

/// Such a run has nothing but its claim.
#[test]
fn a_classic_run_that_has_stored_nothing_yet_is_listed() {
    let place = Place::new();
    let lines = || -> serde_json::Value {
        let listed = place.xbcloud("list", "").arg("--json").run().expect(0);
        serde_json::from_slice(&listed.stdout).unwrap()
    };
    let mut run = place.xbcloud("put", "other").arg("--layout=classic").stdin_held().spawn();
    let mut stream = StreamWriter::new(Vec::new());
    let _ = stream.file("db/table.frm", b"a table", 99);
    // It stays open.
    let mut input = run.stdin().unwrap();
    input.write_all(&stream.finish()[..20]).unwrap();
    run.until("it is listed", || lines().as_array().unwrap().len() > 1);
    let line = &lines()[1];
    let of = |key: &str| line[key].as_str().unwrap().to_owned();
    assert_eq!(["name", "state", "layout"].map(of), ["other", "running", "classic"], "{line}");
    assert_eq!(line["objects"], 0);
    run.kill_9();
    let _ = run.wait();
    assert_eq!(lines().as_array().unwrap().len(), 1, "nothing is left of it");
}

/// The host that can see that the process is gone need not wait for its claim to grow old.
#[test]
fn a_killed_run_of_this_host_is_not_running_any_more() {
    let place = Place::new();
    let begun = place.scratch.join("begun");
    let mut stream = StreamWriter::new(Vec::new());
    let _ = stream.file("db/table.frm", b"a table", 99);
    std::fs::write(&begun, stream.finish()).unwrap();
    let script = format!("cat {}; exec sleep 1000", begun.display());
    let producer = place.program("mariadb-backup", &script);
    let state = || {
        let listed = place.xbcloud("list", "").arg("--json").run().expect(0);
        let lines: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let line = lines.as_array().unwrap().iter().find(|line| line["name"] == "other");
        line.map(|line| line["state"].as_str().unwrap().to_owned())
    };
    let backup = place.xbcloud("backup", "other").arg("--").arg(producer);
    let mut run = backup.arg("--stream=xbstream").spawn();
    run.until("it is listed", || state().as_deref() == Some("running"));
    run.kill_9();
    let _ = run.wait();
    assert_eq!(state().as_deref(), Some("abandoned"));
}
