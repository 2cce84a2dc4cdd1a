//! Plays the server's side of the contract: starts the program with a server's arguments, reads its
//! lines, and provides a fake backup program.

#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses its part")]

pub(crate) mod percona;

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use xb_testkit::daemon::Scratch;
use xb_testkit::stream::StreamWriter;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs");
pub(crate) const STATE: &str = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42";
/// Time limit for anything that ends on its own.
const LIMIT: Duration = Duration::from_secs(300);

/// The fake backup program: `--prepare` leaves a mark, every other call writes the stream. It
/// records its arguments.
const BACKUP: &str = r#"#!/bin/sh
here=${0%/*}
case " $* " in
*" --version "*) cat "$here/version" ;;
*" --prepare "*)
    echo "$*" >"$here/prepare.args"
    for word in "$@"; do
        case $word in
        --target-dir=*)
            : >"${word#*=}/prepared.txt"
            cp "${word#*=}/backup-my.cnf" "$here/prepare.cnf" 2>/dev/null
            ls -l "${word#*=}" >"$here/prepare.ls"
            [ ! -e "$here/recorded" ] || cp "$here/recorded" "${word#*=}/xtrabackup_galera_info"
            [ ! -e "$here/replaces" ] || {
                rm "${word#*=}/ibdata1" "${word#*=}/undo001"
                printf replaced >"${word#*=}/ibdata1"
            }
            ;;
        esac
    done
    echo "prepared" >&2
    ;;
*)
    echo "$*" >"$here/backup.args"
    echo "$MYSQL_PWD $WSREP_SST_OPT_AUTH" >"$here/backup.env"
    env >"$here/backup.all.env"
    cat "$here/stream"
    [ ! -e "$here/once" ] || {
        rm "$here/once"
        [ ! -e "$here/next-stream" ] || mv "$here/next-stream" "$here/stream"
        [ ! -e "$here/next-hang" ] || mv "$here/next-hang" "$here/hang"
        [ ! -e "$here/next-none" ] || rm "$0"
        echo "the server stumbled" >&2
        exit 1
    }
    [ ! -e "$here/says" ] || cat "$here/says" >&2
    [ ! -e "$here/product" ] || {
        echo $$ >"$here/parent"
        sleep 1000 >&- 2>&- &
        echo $! >"$here/child"
        : >"$here/hangs"
        wait
    }
    [ ! -e "$here/more" ] || { cat /dev/zero || { echo "nobody takes it" >&2; exit 1; }; }
    [ ! -e "$here/hang" ] || { : >"$here/hangs"; exec sleep 1000; }
    [ ! -e "$here/fail" ] || { cat "$here/fail" >&2; echo "the server went away" >&2; exit 1; }
    ;;
esac
"#;

/// The first role of each node, by name.
const FIRST: [(&str, &str); 3] =
    [("galera.cache", "kept"), ("ibdata1", "old"), ("mysql/user.frm", "old")];

/// Directories of two nodes, and the fake backup program.
pub(crate) struct Scene {
    pub(crate) scratch: Scratch,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let scene = Self { scratch: Scratch::new() };
        for node in ["donor", "joiner"] {
            let data = scene.scratch.dir(node);
            for (name, content) in FIRST {
                let path = data.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
        }
        let _ = scene.scratch.dir("bin");
        scene.program("backup", BACKUP);
        scene.version("10.11.19-MariaDB");
        scene.stream(&["xtrabackup_info"]);
        scene.options("");
        scene
    }

    /// Installs a program in the scene's own directory.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let text = self.bin().join(format!("{name}.text"));
        std::fs::write(&text, script).unwrap();
        // In a process of its own: a file that this process has open for writing may for a moment
        // also be open in another test's child, and then the system refuses to execute it.
        let mut install = Command::new("install");
        let done = install.args(["-m", "755"]).arg(text).arg(self.bin().join(name)).status();
        assert!(done.unwrap().success());
    }

    /// Sets the version that the backup program reports.
    pub(crate) fn version(&self, version: &str) {
        let text = format!("backup based on MariaDB server {version} Linux (x86_64)\n");
        std::fs::write(self.bin().join("version"), text).unwrap();
    }

    /// Sets the stream that the backup program writes, with these files at its end. `DIR/db.opt` is an empty directory, whatever
    /// the donor has it for.
    pub(crate) fn stream(&self, last: &[&str]) {
        let mut out = StreamWriter::new(Vec::new());
        let galera = format!("{STATE} 7\n");
        let link = self.scratch.join("fast/shop/remote.ibd").display().to_string();
        let files: [(&str, &[u8]); 13] = [
            ("backup-my.cnf", b"[mysqld]\nplugin_load=file_key_management\nplugin_dir=.\n"),
            ("ibdata1", &[7; 70_000]),
            ("ib_logfile0", b"new redo"),
            ("undo001", b"new undo"),
            ("aria_log_control", b"new aria"),
            ("mysql/user.frm", b"new"),
            ("shop/orders.ibd", &[9; 300_000]),
            ("shop/remote.ibd", b"new remote"),
            ("shop/remote.isl", link.as_bytes()),
            ("binlog.000003", b"of the donor"),
            ("xtrabackup_binlog_info", b"binlog.000003\t328\t0-1-5\n"),
            ("xtrabackup_checkpoints", b"backup_type = full-backuped\nto_lsn = 1\n"),
            ("xtrabackup_galera_info", galera.as_bytes()),
        ];
        for (name, content) in files {
            out.payload(name, 0, content).end(name);
        }
        for name in last {
            if !name.ends_with("/db.opt") {
                out.payload(name, 0, b"tool_name = mariadb-backup\n");
            }
            out.end(name);
        }
        std::fs::write(self.bin().join("stream"), out.finish()).unwrap();
    }

    /// Sets a stream with one file that is larger than the disks in these tests and does not
    /// compress.
    pub(crate) fn large_stream(&self) {
        let mut state = 1_u64;
        let mut out = StreamWriter::new(Vec::new());
        for number in 0..8 {
            let mut chunk = Vec::with_capacity(1 << 20);
            while chunk.len() < 1 << 20 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                chunk.extend((state ^ (state >> 29)).to_le_bytes());
            }
            out.payload("ibdata1", number << 20, &chunk);
        }
        std::fs::write(self.bin().join("stream"), out.finish()).unwrap();
    }

    /// Sets an invalid stream, long enough to be inspected.
    pub(crate) fn garbage_stream(&self) {
        std::fs::write(self.bin().join("stream"), vec![b'?'; 4 << 20]).unwrap();
    }

    /// Makes the backup program do something else at its end.
    pub(crate) fn backup(&self, flag: &str) {
        std::fs::write(self.bin().join(flag), "").unwrap();
    }

    /// Sets lines for the group `[sst]` of both nodes; other groups may follow them.
    pub(crate) fn options(&self, sst: &str) {
        let backup = self.bin().join("backup");
        let tmp = self.scratch.path().display();
        // The fake program writes its records there.
        let writes = format!("inno-apply-opts=--tmpdir={tmp}");
        let backup = backup.display();
        let text = format!("[sst]\nbackup-program={backup}\ntmpdir={tmp}\n{writes}\n{sst}\n");
        std::fs::write(self.scratch.join("my.cnf"), text).unwrap();
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.scratch.join("bin")
    }

    pub(crate) fn data(&self, node: &str) -> PathBuf {
        self.scratch.join(node)
    }

    /// Asserts that the joiner has its first data, and nothing more except logs of what was done to the received data.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        let data = self.data("joiner");
        let mut files = tree(&data);
        files.retain(|(name, _)| name != "xbrs.prepare.log" && name != "xbrs.mysqld.log");
        let first = FIRST.map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
        assert_eq!(files, first);
        assert!(!data.join("#sql-xb").exists());
    }

    fn defaults(&self) -> String {
        self.scratch.join("my.cnf").display().to_string()
    }

    /// A joiner with a MariaDB server's arguments, listening on any free port.
    pub(crate) fn joiner(&self) -> Side {
        self.joiner_with(&["--parent", &std::process::id().to_string(), "--progress", "0"], &[])
    }

    /// Another joiner of the same node, with its own log.
    pub(crate) fn joiner_as(&self, log: &str) -> Side {
        let mut side = self.joiner();
        side.log = self.scratch.join(format!("{log}.log"));
        side
    }

    pub(crate) fn joiner_with(&self, words: &[&str], server: &[&str]) -> Side {
        self.joiner_at("127.0.0.1:0", words, server)
    }

    pub(crate) fn joiner_at(&self, address: &str, words: &[&str], server: &[&str]) -> Side {
        let data = self.data("joiner");
        let mut side = Side::of(self, "joiner");
        side.command.args(["--role", "joiner", "--address", address, "--datadir"]).arg(&data);
        side.command.args(["--defaults-file", &self.defaults()]).args(words);
        side.command.arg("--mysqld-args").args(server);
        side
    }

    /// A donor with a MariaDB server's arguments, which connects to the address in `ready`.
    pub(crate) fn donor(&self, ready: &str) -> Side {
        self.donor_with(ready, &["--progress", "0"])
    }

    /// A donor of a server before 11.6: credentials and the part before the address are in the
    /// environment.
    pub(crate) fn donor_with(&self, ready: &str, words: &[&str]) -> Side {
        let (auth, _) = split(ready);
        let mut side = self.donor_without_credentials(ready, words);
        side.command.env("WSREP_SST_OPT_AUTH", "sst:passw0rd");
        if !auth.is_empty() {
            side.command.env("WSREP_SST_OPT_REMOTE_AUTH", auth);
        }
        side
    }

    /// A donor of a server since 11.6: credentials are lines on standard input, which it closes.
    pub(crate) fn later_donor_with(&self, ready: &str, words: &[&str]) -> Side {
        let (auth, _) = split(ready);
        let (user, secret) = auth.split_once(':').unwrap();
        let mut side = self.donor_without_credentials(ready, words);
        side.input = Some(format!(
            "sst_user=sst\nsst_password=passw0rd\nsst_remote_user={user}\nsst_remote_password={secret}\n"
        ));
        side.command.stdin(Stdio::piped());
        side
    }

    pub(crate) fn donor_without_credentials(&self, ready: &str, words: &[&str]) -> Side {
        let mut side = Side::of(self, "donor");
        let (_, address) = split(ready);
        side.command.args(["--role", "donor", "--address", address, "--datadir"]);
        side.command.arg(self.data("donor")).args(["--defaults-file", &self.defaults()]);
        side.command.args(["--gtid", STATE, "--local-port", "3306", "--socket", "/nowhere"]);
        side.command.args(words);
        side
    }

    /// Runs both sides of a complete transfer; returns joiner and donor, with the lines after
    /// `ready`.
    pub(crate) fn transfer(&self) -> (Ended, Ended) {
        let mut joiner = self.joiner().start();
        let ready = joiner.ready();
        let donor = self.donor(&ready).start().wait();
        (joiner.wait(), donor)
    }
}

/// Splits into the part before the address, and the address.
fn split(ready: &str) -> (&str, &str) {
    ready.split_once('@').unwrap_or(("", ready))
}

/// A side that is not started yet.
pub(crate) struct Side {
    pub(crate) command: Command,
    /// Text that the server writes to its standard input.
    input: Option<String>,
    log: PathBuf,
}

impl Side {
    fn of(scene: &Scene, name: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        for name in ["NOTIFY_SOCKET", "WSREP_SST_OPT_AUTH", "WSREP_SST_OPT_REMOTE_AUTH"] {
            command.env_remove(name);
        }
        // The usual one may not be writable for a side that runs as another user.
        command.env("TMPDIR", scene.scratch.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Self { command, input: None, log: scene.scratch.join(format!("{name}.log")) }
    }

    /// Starts the program through `words`, another program with its arguments.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(PROGRAM).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        self.command = command;
        self
    }

    pub(crate) fn start(mut self) -> Started {
        let log = File::create(&self.log).unwrap();
        let mut child = self.command.stderr(log).spawn().unwrap();
        if let Some(input) = self.input {
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        }
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Started { child, stdout, log: self.log }
    }
}

/// A running side; killed when dropped.
pub(crate) struct Started {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    log: PathBuf,
}

/// A side that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Its lines that were not read before its end.
    pub(crate) lines: Vec<String>,
    pub(crate) log: String,
}

impl Started {
    /// Waits for the line `ready ADDRESS`; returns the address.
    pub(crate) fn ready(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let address =
            line.strip_prefix("ready ").unwrap_or_else(|| panic!("{line:?}: {}", self.log()));
        address.trim_end().to_owned()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until `reached` returns true.
    pub(crate) fn wait_for(&self, what: &str, reached: impl FnMut() -> bool) {
        wait_for(what, reached, || self.log());
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .unwrap();
    }

    pub(crate) fn wait(mut self) -> Ended {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < LIMIT, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        };
        // The pipe ends only when no program that it has started holds it.
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        let lines = text.lines().map(str::to_owned).collect();
        Ended { status, lines, log: self.log() }
    }
}

/// Waits until `reached` returns true.
pub(crate) fn wait_for(what: &str, mut reached: impl FnMut() -> bool, log: impl Fn() -> String) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < LIMIT, "no {what}: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Leaves what a MariaDB server makes last when it starts on the data.
pub(crate) fn start_on(data: &Path) {
    std::fs::write(data.join("multi-master.info"), "").unwrap();
}

/// Paths and contents of the files below a directory, including `#sql-xb` and its contents.
pub(crate) fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
