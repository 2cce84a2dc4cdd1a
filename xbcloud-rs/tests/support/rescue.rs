//! A server with tables of every kind, whose backups lie in a folder, and the command that rescues tables from them.

use std::path::PathBuf;

use xb_testkit::command::{Cmd, Ran, Running};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

/// Tables of every kind that a dump can get wrong.
const TABLES: &str = include_str!("tables.sql");

/// A shop with a backup of it in a folder.
pub(crate) struct RescueShop {
    pub(crate) store: Store,
    pub(crate) server: MariaDb,
    pub(crate) scratch: Scratch,
}

impl RescueShop {
    pub(crate) fn new(options: &[&str]) -> Self {
        let server = MariaDb::start_with(options);
        server.sql(TABLES);
        Self { store: Store::folder(), server, scratch: Scratch::new() }
    }

    pub(crate) fn back_up(&self, name: &str, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["backup", "--quiet", &self.store.url(name), "--chunk-size=4M", "--server=a"])
            .arg(format!("--state-dir={}", self.scratch.join("state").display()))
            .args(self.store.options())
            .args(options)
            .arg("--")
            .args(self.server.backup_command())
            .run()
            .expect(0)
    }

    /// The directory that holds the scratch directories of all rescues.
    pub(crate) fn room(&self) -> PathBuf {
        let room = self.scratch.join("room");
        std::fs::create_dir_all(&room).unwrap();
        room
    }

    pub(crate) fn rescue(&self, name: &str, args: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("rescue")
            .args(self.store.options())
            .arg(format!("--scratch-dir={}", self.room().display()))
            .arg(self.store.url(name))
            .args(args)
    }

    pub(crate) fn rescue_into(&self, server: &MariaDb, name: &str, args: &[&str]) -> Cmd {
        self.rescue(name, args).arg(format!("--into={}", server.socket().display()))
    }

    #[track_caller]
    pub(crate) fn assert_tidy(&self) {
        let left: Vec<_> = std::fs::read_dir(self.room()).unwrap().collect();
        assert!(left.is_empty(), "scratch directories are left: {left:?}");
    }
}

/// A client whose transaction has run a statement, and does not end.
pub(crate) fn in_transaction(server: &MariaDb, statement: &str) -> Running {
    let mut open = Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", "--execute"])
        .arg(format!("BEGIN; {statement}; SELECT SLEEP(600)"))
        .arg(format!("--socket={}", server.socket().display()))
        .spawn();
    let sleepers =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(600)'";
    open.until("the transaction has begun", || server.sql(sleepers).trim() == "1");
    open
}
