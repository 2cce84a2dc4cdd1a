//! A real MySQL server on a scratch data directory, reachable only by its socket.
//!
//! Few systems have one: `scripts/on-release sid mysql` runs the tests that need it in a chroot.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::command::{Cmd, Signal};
use crate::process::daemon::{Daemon, Scratch};
use crate::servers::listens;

/// Time limit for a server to start, and to end.
const LIMIT: Duration = Duration::from_secs(300);
const SERVER: &str = "/usr/sbin/mysqld";
const CLIENT: &str = "/usr/bin/mysql";
const LOG_READER: &str = "/usr/bin/mysqlbinlog";
const DUMP: &str = "/usr/bin/mysqldump";

/// Returns whether this system has MySQL, and not MariaDB under its name.
#[must_use]
pub fn is_installed() -> bool {
    let version = Command::new(SERVER).arg("--version").output();
    version.is_ok_and(|out| {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.contains("Ver ") && !text.contains("MariaDB")
    })
}

/// A running server. When dropped, it is killed and its data directory is removed.
#[derive(Debug)]
pub struct MySql {
    daemon: Daemon,
    socket: PathBuf,
    // The last field, so that the directory is removed after the server is gone.
    scratch: Scratch,
}

impl MySql {
    /// Starts a server on a new data directory, with these options, which also apply to the creation
    /// of its files. It has a keyring, if the server's manifest beside its program allows that.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let data = scratch.join("data");
        let args = arguments(&scratch, &data, options);
        let _ = Cmd::new(SERVER).args(&args).arg("--initialize-insecure").run().expect(0);
        for (name, text) in keyring(&scratch) {
            std::fs::write(data.join(name), text).unwrap();
        }
        Self::start_here(scratch, &args)
    }

    /// Starts a server on the data directory of another, with these options.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start_on(data: &Path, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let args = arguments(&scratch, data, options);
        Self::start_here(scratch, &args)
    }

    fn start_here(scratch: Scratch, args: &[String]) -> Self {
        let daemon = Daemon::start(Path::new(SERVER), args, &scratch.join("log"));
        let server = Self { daemon, socket: scratch.join("sock"), scratch };
        server.daemon.wait_ready("mysqld", LIMIT, || {
            listens(&server.socket) && server.client("SELECT 1").run().code() == 0
        });
        server
    }

    /// The data directory.
    #[must_use]
    pub fn datadir(&self) -> PathBuf {
        self.scratch.join("data")
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs statements; returns the rows as lines with tabs between columns.
    ///
    /// # Panics
    /// With the client's message, if a statement fails.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.client(statements).run().expect(0).stdout_text()
    }

    /// Runs statements in another process.
    ///
    /// # Panics
    /// If the client cannot be started.
    #[must_use]
    pub fn start_sql(&self, statements: &str) -> crate::process::command::Running {
        self.client(statements).spawn()
    }

    fn client(&self, statements: &str) -> Cmd {
        Cmd::new(CLIENT)
            .args([
                "--no-defaults",
                "--user=root",
                "--default-character-set=utf8mb4",
                "--batch",
                "--skip-column-names",
            ])
            .arg(format!("--socket={}", self.socket.display()))
            .arg(format!("--execute={statements}"))
    }

    /// Kills the server as a crash does. Its data stays.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.daemon.pid()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("process id"), signal).unwrap();
    }

    /// All rows of all tables of these schemas, as statements in the order of their keys.
    ///
    /// # Panics
    /// If a table cannot be read.
    #[must_use]
    pub fn rows(&self, schemas: &[&str]) -> Vec<u8> {
        let options = [
            "--no-defaults",
            "--user=root",
            "--no-create-info",
            "--skip-comments",
            "--hex-blob",
            "--order-by-primary",
            "--set-gtid-purged=OFF",
            "--no-tablespaces",
        ];
        let dump = Cmd::new(DUMP)
            .args(options)
            .arg(format!("--socket={}", self.socket.display()))
            .arg("--databases")
            .args(schemas);
        dump.run().expect(0).stdout
    }

    /// All transactions that it has committed.
    ///
    /// # Panics
    /// If it does not say.
    #[must_use]
    pub fn gtids(&self) -> String {
        self.sql("SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')").trim().to_owned()
    }

    /// Applies the transactions that it lacks of another server, from the binary logs in that one's data directory.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn catch_up(&self, donor: &Self, data: &Path) {
        let logs = donor.sql("SHOW BINARY LOGS");
        let logs =
            logs.lines().filter_map(|line| line.split('\t').next()).map(|name| data.join(name));
        let sql = Cmd::new(LOG_READER)
            .args(["--no-defaults".to_owned(), format!("--exclude-gtids={}", self.gtids())])
            .args(logs)
            .run()
            .expect(0);
        let client = Cmd::new(CLIENT)
            .args(["--no-defaults", "--user=root", "--default-character-set=utf8mb4"])
            .arg(format!("--socket={}", self.socket.display()));
        let _ = client.stdin_bytes(sql.stdout).run().expect(0);
    }

    /// Shuts the server down cleanly and returns the folder with its data directory, `data`.
    ///
    /// # Panics
    /// If the server does not end.
    #[must_use]
    pub fn shut_down(self) -> Scratch {
        self.sql("SHUTDOWN");
        let status = self.daemon.wait(LIMIT).expect("the server does not end");
        assert!(status.success(), "the server failed: {}", self.daemon.log());
        self.scratch
    }
}

fn arguments(scratch: &Scratch, data: &Path, options: &[&str]) -> Vec<String> {
    let mut args = vec![
        "--no-defaults".to_owned(),
        "--user=root".to_owned(),
        format!("--datadir={}", data.display()),
        format!("--socket={}", scratch.join("sock").display()),
        format!("--pid-file={}", scratch.join("pid").display()),
        format!("--tmpdir={}", scratch.path().display()),
        "--skip-networking".to_owned(),
        "--skip-log-bin".to_owned(),
        "--mysqlx=OFF".to_owned(),
        "--secure-file-priv=".to_owned(),
        "--innodb-flush-log-at-trx-commit=0".to_owned(),
        "--innodb-buffer-pool-size=64M".to_owned(),
    ];
    args.extend(options.iter().map(|option| (*option).to_owned()));
    args
}

/// The files that give a server a keyring, by name. The server's own manifest refers to them.
fn keyring(scratch: &Scratch) -> [(&'static str, String); 2] {
    let path = scratch.join("keyring");
    [
        ("mysqld.my", "{\"components\": \"file://component_keyring_file\"}".to_owned()),
        (
            "component_keyring_file.cnf",
            format!("{{\"path\": \"{}\", \"read_only\": false}}", path.display()),
        ),
    ]
}
