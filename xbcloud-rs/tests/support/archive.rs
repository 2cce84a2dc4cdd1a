//! A server, and the archive of its log.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

pub(crate) const SERVER: &str = "--server=shop";
pub(crate) const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

pub(crate) struct Archive {
    pub(crate) server: MariaDb,
    pub(crate) store: Store,
    pub(crate) folder: tempfile::TempDir,
}

impl Archive {
    pub(crate) fn new(store: Store) -> Self {
        Self::with_options(store, &[])
    }

    pub(crate) fn with_options(store: Store, more: &[&str]) -> Self {
        let server = server(3, more);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), KEY).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join("key"), private).unwrap();
        let archive = Self { server, store, folder };
        archive.write_login();
        archive
    }

    /// Puts another server, of other data, in the place of the server.
    pub(crate) fn replace_server(&mut self, server_id: u32) {
        self.server = server(server_id, &[]);
        self.write_login();
    }

    /// Kills the server, and starts it anew with these options once `meanwhile` has been done to its data directory, which lives
    /// as long as what is returned beside the archive.
    pub(crate) fn restarted(
        self,
        options: &[&str],
        meanwhile: impl FnOnce(&Path),
    ) -> (Self, Scratch) {
        let Self { server, store, folder } = self;
        let datadir = server.datadir().to_owned();
        let scratch = server.kill();
        meanwhile(&datadir);
        let server = MariaDb::start_on_with(&datadir, options);
        let archive = Self { server, store, folder };
        archive.write_login();
        (archive, scratch)
    }

    /// Log and offset of the end of the server's log.
    pub(crate) fn log_end(&self) -> (String, u64) {
        let status = self.server.sql("SHOW MASTER STATUS");
        let mut columns = status.split('\t');
        (columns.next().unwrap().to_owned(), columns.next().unwrap().parse().unwrap())
    }

    pub(crate) fn write_login(&self) {
        let login = format!("[client]\nuser=root\nsocket={}\n", self.server.socket().display());
        std::fs::write(self.folder.path().join("login"), login).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn write(&self, number: usize) {
        let rows: String =
            (0..number).map(|n| format!("INSERT INTO d.t (v) VALUES ({n});")).collect();
        self.server.sql(&rows);
    }

    pub(crate) fn cmd(&self, words: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(words).args(self.store.options())
    }

    /// Starts a receiver that can be ended in an orderly way, or that has ended at once.
    pub(crate) fn receive(&self, more: &[&str]) -> Running {
        let mut receiver = self.cmd(&[]).args(self.receiver_words(more)).spawn();
        receiver.until_handled(Signal::TERM);
        receiver
    }

    /// The same, with its messages in a file, where they can be waited for.
    pub(crate) fn receive_telling(&self, file: &Path, more: &[&str]) -> Running {
        let mut receiver = Cmd::new("/bin/sh")
            .args(["-c", "exec \"$@\" 2>\"$0\""])
            .args([file.as_os_str(), env!("CARGO_BIN_EXE_xbcloud-rs").as_ref()])
            .args(self.store.options())
            .args(self.receiver_words(more))
            .spawn();
        receiver.until_handled(Signal::TERM);
        receiver
    }

    fn receiver_words(&self, more: &[&str]) -> Vec<String> {
        let mut words = vec![
            "binlog".to_owned(),
            "receive".to_owned(),
            self.store.root_url(),
            SERVER.to_owned(),
            "--rpo=1s".to_owned(),
            format!("--login-file={}", self.path("login")),
            format!("--encrypt-key-file={}", self.path("key")),
            format!("--state-dir={}", self.path("state")),
            format!("--binlog-metrics-file={}", self.path("binlog.prom")),
        ];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    }

    pub(crate) fn back_up(&self, name: &str) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["backup", SERVER, "--quiet"])
            .args(self.store.options())
            .args([self.store.url(name), "--".to_owned()])
            .args(self.server.backup_command())
            .run()
            .expect(0)
    }

    pub(crate) fn verify(&self) -> Ran {
        self.verify_with(&[])
    }

    pub(crate) fn verify_with(&self, more: &[&str]) -> Ran {
        self.cmd(&["binlog", "verify", &self.store.root_url(), "--json"])
            .args([
                format!("--encrypt-key-file={}", self.path("key")),
                format!("--state-dir={}", self.path("state")),
            ])
            .args(more)
            .run()
    }

    pub(crate) fn list(&self) -> String {
        self.cmd(&["binlog", "list", &self.store.root_url()]).run().expect(0).stdout_text()
    }

    /// Position behind the last stored byte of the newest stream.
    pub(crate) fn stored(&self) -> Option<(String, u64)> {
        let ran = self.cmd(&["binlog", "list", &self.store.root_url(), "--json"]).run();
        let found: Value = serde_json::from_slice(&ran.stdout).ok()?;
        let streams = found["servers"][0]["streams"].as_array()?.iter();
        streams.filter_map(|stream| position(stream["to"].as_str()?)).max()
    }

    /// Waits until a receiver has stored what the server has.
    pub(crate) fn wait(&self, receiver: &mut Running) {
        let end = self.log_end();
        receiver.until("all is stored", || self.stored().is_some_and(|at| at >= end));
    }

    pub(crate) fn catch_up(&self) -> Ran {
        let mut receiver = self.receive(&[]);
        self.wait(&mut receiver);
        receiver.signal(Signal::TERM);
        receiver.wait().expect(0)
    }

    /// Ends a log, and writes into the next one.
    pub(crate) fn next_log(&self, rows: usize) {
        self.server.sql("FLUSH BINARY LOGS");
        self.write(rows);
    }

    /// Removes the server's logs before this one.
    pub(crate) fn purge_to(&self, log: &str) {
        // InnoDB needs a log for a moment.
        let mut left = self.server.sql("SHOW BINARY LOGS");
        while !left.starts_with(log) {
            self.server.sql(&format!("PURGE BINARY LOGS TO '{log}'"));
            left = self.server.sql("SHOW BINARY LOGS");
        }
    }

    pub(crate) fn metric(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path("binlog.prom")).ok()?;
        let line =
            text.lines().find(|line| line.starts_with(&format!("xbcloud_binlog_{name}{{")))?;
        line.rsplit_once(' ').map(|(_, value)| value.to_owned())
    }

    /// The files of the archive in a folder, segments only, in the order of their names.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let prefix = self.store.root_url();
        let root = PathBuf::from(prefix.strip_prefix("file://").unwrap());
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        let keys = self.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
        let mut keys: Vec<String> =
            keys.filter(|key| is_number(key.rsplit('/').next().unwrap())).collect();
        keys.sort();
        keys.iter().map(|key| root.join(key)).collect()
    }
}

/// Options of the server that has a log.
pub(crate) const LOGGED: [&str; 3] = ["--log-bin=bin", "--server-id=3", "--sync-binlog=0"];

fn server(server_id: u32, more: &[&str]) -> MariaDb {
    let id = format!("--server-id={server_id}");
    let server = MariaDb::start_with(&[&["--log-bin=bin", &id, "--sync-binlog=0"], more].concat());
    server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)");
    server
}

pub(crate) fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

pub(crate) fn position(text: &str) -> Option<(String, u64)> {
    let (log, offset) = text.rsplit_once(':')?;
    Some((log.to_owned(), offset.parse().ok()?))
}
