//! Increments on a base of another history: refused before the producer starts, on real MariaDB
//! servers, and accepted as long as the server continues the base's history.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::files::Digester;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

/// A server with this option opens no table at its start.
const COLD: &str = "--innodb-buffer-pool-load-at-startup=OFF";

/// A server whose data directory stays while it is restarted and restored, and its backups.
struct Site {
    store: Store,
    scratch: Scratch,
    options: Vec<String>,
}

impl Site {
    /// A new server with some tables, and with these options.
    fn new(options: &[&str]) -> (Self, MariaDb) {
        let (store, scratch) = (Store::folder(), Scratch::new());
        let options: Vec<String> = options
            .iter()
            .map(|option| option.replace("SCRATCH", scratch.path().to_str().unwrap()))
            .collect();
        let site = Self { store, scratch, options };
        std::fs::create_dir(site.scratch.join("binlogs")).unwrap();
        let fresh = MariaDb::start().shut_down();
        copy_tree(&fresh.join("data"), &site.data());
        let server = site.start(&[]);
        server.sql(
            "CREATE DATABASE shop; USE shop;
             CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB;
             INSERT INTO t SELECT seq, 'A' FROM seq_1_to_300;
             CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t;
             CREATE TABLE w (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(300)) ENGINE=InnoDB;",
        );
        (site, server)
    }

    fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    fn start(&self, more: &[&str]) -> MariaDb {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        MariaDb::start_on_with(&self.data(), &[&options[..], more].concat())
    }

    fn restarted(&self, server: MariaDb, more: &[&str]) -> MariaDb {
        drop(server.shut_down());
        self.start(more)
    }

    fn back_up(&self, server: &MariaDb, name: &str, options: &[&str]) -> Ran {
        let state = format!("--state-dir={}", self.scratch.join("state").display());
        let backup = xbcloud(&self.store, "backup", name, options).arg(state).arg("--");
        backup.args(server.backup_command()).run()
    }

    fn manifest(&self, name: &str) -> Value {
        let text = self.store.get(&format!("{CATALOG}/{name}")).expect("a manifest");
        let json = String::from_utf8(text).unwrap();
        serde_json::from_str(&json[..json.rfind("\nsha256:").unwrap()]).unwrap()
    }

    fn restore(&self, name: &str, target: &Path) {
        let restore = xbcloud(&self.store, "restore", name, &["--prepare"]);
        let _ = restore.arg("--target-dir").arg(target).run().expect(0);
    }

    /// Asserts that backup `name`, with its chain, is the server's data.
    fn assert_restores(&self, name: &str, server: &MariaDb) {
        let target = self.scratch.join(format!("restored-{name}"));
        self.restore(name, &target);
        assert_eq!(
            MariaDb::start_on(&target).checksums("shop"),
            server.checksums("shop"),
            "{name}"
        );
    }

    /// The message of an increment that is refused before the producer starts.
    fn refused(&self, server: &MariaDb, options: &[&str]) -> String {
        let options = [&["--incremental-from=latest"], options].concat();
        let said = self.back_up(server, "refused", &options).expect_failure().stderr_text();
        assert_not_a_backup(&self.store, "refused");
        said
    }
}

fn copy_tree(from: &Path, to: &Path) {
    let _ = Cmd::new("cp").arg("-a").arg(from).arg(to).run().expect(0);
}

/// Full backups A and B; A is restored over the server, which then passes B's log position with other
/// changes. Returns the server.
fn fork(site: &Site, server: MariaDb, restore: impl FnOnce(&Path)) -> MariaDb {
    let server = site.restarted(server, &[]);
    let _ = site.back_up(&server, "a", &[]).expect(0);
    server.sql("USE shop; UPDATE shop.t SET v = REPEAT('B', 150); INSERT INTO shop.w (v) SELECT REPEAT('C', 200) FROM seq_1_to_500;");
    let server = site.restarted(server, &[]);
    let _ = site.back_up(&server, "b", &[]).expect(0);
    drop(server.shut_down());
    restore(&site.data());
    let server = site.start(&[]);
    server.sql("UPDATE shop.u SET v = REPEAT('D', 150);");
    let end = site.manifest("b")["source"]["last_lsn"].as_u64().unwrap();
    let lsn = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_LSN_CURRENT'";
    while server.sql(lsn).trim().parse::<u64>().unwrap() <= end {
        server.sql("USE shop; INSERT INTO w (v) SELECT REPEAT('E', 200) FROM seq_1_to_500;");
    }
    site.restarted(server, &[])
}

/// Restores A into the place of the data directory.
fn in_place_of(site: &Site) -> impl FnOnce(&Path) {
    |data| {
        std::fs::rename(data, data.with_extension("old")).unwrap();
        site.restore("a", data);
    }
}

/// The result that every fork must have.
fn assert_only_a_full_backup_is_taken(site: &Site, server: &MariaDb) {
    let said = site.refused(server, &[]);
    assert!(
        said.contains("cannot be based on b: the server's redo log was created at LSN"),
        "{said}"
    );
    assert!(said.contains("--or-full"), "{said}");
    // No word helps against proof.
    let _ = site.refused(server, &["--accept-history"]);
    let options = ["--incremental-from=latest", "--or-full"];
    let said = site.back_up(server, "instead", &options).expect(0).stderr_text();
    assert!(said.contains("a full backup is taken instead"), "{said}");
    assert_eq!(site.manifest("instead")["source"]["backup_type"], "full-backuped");
    // It is a base like any other.
    server.sql("INSERT INTO shop.w (v) VALUES ('last')");
    let _ = site.back_up(server, "next", &["--incremental-from=latest", "--or-full"]).expect(0);
    assert_eq!(site.manifest("next")["base"]["name"], "instead");
    site.assert_restores("next", server);
}

#[test]
fn no_increment_is_taken_after_a_restore_of_a_server_without_a_binary_log() {
    let (site, server) = Site::new(&[]);
    let server = fork(&site, server, in_place_of(&site));
    assert_only_a_full_backup_is_taken(&site, &server);
}

/// The new binary log has the names and GTIDs of the old one.
#[test]
fn no_increment_is_taken_after_a_restore_of_a_server_with_a_binary_log() {
    let (site, server) = Site::new(&["--log-bin=bin", "--server-id=1"]);
    let server = fork(&site, server, in_place_of(&site));
    assert_only_a_full_backup_is_taken(&site, &server);
}

/// The binary log survives the restore: it still holds B's position, byte for byte.
#[test]
fn a_binary_log_in_another_directory_does_not_hide_a_restore() {
    let (site, server) = Site::new(&["--log-bin=SCRATCH/binlogs/bin", "--server-id=1"]);
    let server = fork(&site, server, in_place_of(&site));
    assert!(site.refused(&server, &[]).contains("redo log was created at LSN"));
    // A redo log of another size is new in any case, and begins behind B.
    let server = site.restarted(server, &["--innodb-log-file-size=32M"]);
    let said = site.refused(&server, &[]);
    assert!(said.contains("a different redo log") && said.contains("--accept-history"), "{said}");
}

/// Files that are copied over the old ones keep their inodes and birth times.
#[test]
fn a_restore_that_copies_over_the_old_files_is_noticed() {
    let (site, server) = Site::new(&["--log-bin=bin", "--server-id=1"]);
    let server = fork(&site, server, |data| {
        let prepared = site.scratch.join("prepared");
        site.restore("a", &prepared);
        copy_tree(&prepared.join("."), data);
    });
    assert_only_a_full_backup_is_taken(&site, &server);
}

#[test]
fn a_server_that_continues_is_accepted_through_restarts_and_rotations() {
    let (site, server) = Site::new(&["--log-bin=bin", "--server-id=1"]);
    let _ = site.back_up(&server, "full", &[]).expect(0);
    let full = site.manifest("full");
    let (start, end) = (&full["source"]["redo_start_lsn"], &full["source"]["last_lsn"]);
    assert!(start.as_u64().unwrap() > 0 && start.as_u64() <= end.as_u64(), "{full}");
    server.sql("UPDATE shop.t SET v = 'one'; FLUSH LOGS");
    let server = site.restarted(server, &[]);
    let _ = site.back_up(&server, "one", &["--incremental-from=full"]).expect(0);
    assert_eq!(site.manifest("one")["history"]["binlog_at_base"], full["history"]["binlog"]);
    assert_eq!(site.manifest("one")["history"]["redo"], full["history"]["redo"]);

    // Another redo log, but the binary log and the data file are the same.
    server.sql("UPDATE shop.t SET v = 'two'");
    let server = site.restarted(server, &["--innodb-log-file-size=32M"]);
    let _ = site.back_up(&server, "two", &["--incremental-from=latest"]).expect(0);
    assert_ne!(site.manifest("two")["history"]["redo"], full["history"]["redo"]);

    // The binary log of the base is gone, and the redo log is the same.
    server.sql("FLUSH LOGS; UPDATE shop.t SET v = 'three'; PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY");
    let _ = site.back_up(&server, "three", &["--incremental-from=latest"]).expect(0);
    site.assert_restores("three", &server);

    // The binary log begins anew, under the old name.
    server.sql("RESET MASTER; UPDATE shop.t SET v = 'four'");
    let _ = site.back_up(&server, "four", &["--incremental-from=latest"]).expect(0);
    server.sql("RESET MASTER; UPDATE shop.t SET v = 'five'");
    let said = site.refused(&server, &[]);
    assert!(said.contains("the binary log holds different events"), "{said}");
    let _ =
        site.back_up(&server, "five", &["--incremental-from=latest", "--accept-history"]).expect(0);
    assert_eq!(site.manifest("five")["history"]["accepted"], true);
    site.assert_restores("five", &server);
}

#[test]
fn a_new_redo_log_without_a_binary_log_needs_a_word() {
    let (site, server) = Site::new(&[]);
    // The producer would fail each night, with a word about a file.
    let _ = site.back_up(&server, "before", &[]).expect(0);
    let server = site.restarted(server, &["--innodb-undo-tablespaces=3"]);
    let said = site.refused(&server, &[]);
    assert!(said.contains("was taken with innodb_undo_tablespaces=0"), "{said}");
    let told = site.back_up(&server, "full", &["--incremental-from=latest", "--or-full"]).expect(0);
    assert!(told.stderr_text().contains("a full backup is taken instead"), "{told:?}");
    let resized = ["--innodb-undo-tablespaces=3", "--innodb-log-file-size=32M"];
    let server = site.restarted(server, &resized);
    let said = site.refused(&server, &[]);
    assert!(said.contains("--accept-history") && said.contains("--or-full"), "{said}");
    server.sql("UPDATE shop.t SET v = 'one'");
    let by_word = ["--incremental-from=latest", "--accept-history"];
    let said = site.back_up(&server, "one", &by_word).expect(0).stderr_text();
    assert!(said.contains("accepted by --accept-history"), "{said}");
    let verify = xbcloud(&site.store, "verify", "one", &["--level=manifest", "--json"]).run();
    let said = verify.expect(0);
    let said = said.stdout_text() + &said.stderr_text();
    assert!(said.contains("unknown whether one continues the history of its base full"), "{said}");
    site.assert_restores("one", &server);
}

/// A base of an earlier version has no evidence. The redo log is older than it, or is not.
#[test]
fn a_base_of_an_earlier_version_is_accepted_as_long_as_the_redo_log_is_older() {
    let (site, server) = Site::new(&[]);
    let _ = site.back_up(&server, "full", &[]).expect(0);
    forget_history(&site, "full");
    server.sql("UPDATE shop.t SET v = 'one'");
    let said = site.back_up(&server, "one", &["--incremental-from=full"]).expect(0).stderr_text();
    assert!(said.contains("the base has no evidence of its history, but"), "{said}");
    site.assert_restores("one", &server);
    forget_history(&site, "one");
    let server = site.restarted(server, &["--innodb-log-file-size=32M"]);
    let said = site.refused(&server, &[]);
    assert!(said.contains("redo log is newer than the base"), "{said}");
}

/// Without the server's files, nothing is known: a producer in a container, or behind `sudo`.
#[test]
fn a_server_whose_files_are_unknown_needs_a_word() {
    let (site, server) = Site::new(&[]);
    let _ = site.back_up(&server, "full", &[]).expect(0);
    let program = site.scratch.join("wrapped");
    std::os::unix::fs::symlink(&server.backup_command()[0], &program).unwrap();
    let back_up = |name: &str, options: &[&str]| {
        let state = format!("--state-dir={}", site.scratch.join("state").display());
        let backup = xbcloud(&site.store, "backup", name, options).arg(state).arg("--");
        backup.arg(&program).args(&server.backup_command()[1..]).run()
    };
    let said = back_up("refused", &["--incremental-from=full"]).expect_failure().stderr_text();
    assert!(said.contains("wrapped is not a known backup program"), "{said}");
    let _ = back_up("one", &["--incremental-from=full", "--accept-history"]).expect(0);
    // Without an earlier backup, a full one is taken on the first night.
    let _ = xbcloud(&site.store, "delete", "one", &["--yes"]).run().expect(0);
    let _ = xbcloud(&site.store, "delete", "full", &["--yes"]).run().expect(0);
    let _ = back_up("first", &["--incremental-from=latest", "--or-full"]).expect(0);
    assert_eq!(site.manifest("first")["source"]["from_lsn"], 0);
}

/// Removes what earlier versions did not write from a manifest, and this host's note of it.
fn forget_history(site: &Site, name: &str) {
    let mut manifest = site.manifest(name);
    assert!(manifest.as_object_mut().unwrap().remove("history").is_some());
    let mut text = serde_json::to_string_pretty(&manifest).unwrap();
    text.push('\n');
    let mut digest = Digester::default();
    std::io::Write::write_all(&mut digest, text.as_bytes()).unwrap();
    let (_, sum) = digest.result();
    site.store.put(&format!("{CATALOG}/{name}"), format!("{text}sha256:{sum}\n").as_bytes());
    std::fs::remove_dir_all(site.scratch.join("state")).unwrap();
}

/// A login in the producer's own group of an option file, which the client program does not read, and
/// one on the command line.
#[test]
fn the_producers_login_is_used_wherever_it_is_given() {
    let (site, server) = Site::new(&[]);
    server.sql(
        "CREATE USER backup@localhost IDENTIFIED BY 'se cret';
         GRANT RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR ON *.* TO backup@localhost;",
    );
    let file = site.scratch.join("login.cnf");
    std::fs::write(&file, "[mariadb-backup]\nuser=backup\npassword='se cret'\n").unwrap();
    let in_group = vec![format!("--defaults-file={}", file.display())];
    let given =
        ["--no-defaults", "--user=backup", "--password=se cret"].map(str::to_owned).to_vec();
    let command = server.backup_command();
    let rest =
        command[1..].iter().filter(|word| *word != "--no-defaults" && *word != "--user=root");
    let back_up = |name: &str, login: &[String], options: &[&str]| {
        let state = format!("--state-dir={}", site.scratch.join("state").display());
        let backup = xbcloud(&site.store, "backup", name, options).arg(state).arg("--");
        let _ = backup.arg(&command[0]).args(login).args(rest.clone()).run().expect(0);
    };
    back_up("full", &in_group, &[]);
    back_up("one", &given, &["--incremental-from=full"]);
    back_up("two", &in_group, &["--incremental-from=one"]);
    assert_eq!(site.manifest("two")["history"]["redo"], site.manifest("full")["history"]["redo"]);
}

/// Passes connections on to a server. Once `silent` exists, questions for InnoDB's tables get no answer.
fn hanging_proxy(socket: &Path, server: PathBuf, silent: PathBuf) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
            let (mut back, mut answers) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let silent = silent.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 1 << 16];
                while let Ok(len @ 1..) = client.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..len]);
                    let is_lost = text.contains("innodb_sys_tables") && silent.exists();
                    if !is_lost && server.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
}

/// The log has another birth time then, as after a restore.
#[test]
fn a_server_whose_redo_log_is_resized_while_a_backup_runs_continues_its_history() {
    let (site, server) = Site::new(&["--log-bin=SCRATCH/binlogs/b"]);
    let command = server.backup_command();
    let program = site.scratch.join("mariadb-backup");
    let back_up = |name: &str, options: &[&str], mib: u32| {
        let script = format!(
            "#!/bin/sh\n{} \"$@\" && {} --no-defaults --user=root --socket={} --execute='SET GLOBAL innodb_log_file_size = {mib} << 20'\n",
            command[0],
            xb_testkit::tools::find("mariadb").display(),
            server.socket().display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let state = format!("--state-dir={}", site.scratch.join("state").display());
        let backup = xbcloud(&site.store, "backup", name, options).arg(state).arg("--");
        let _ = backup.arg(&program).args(&command[1..]).run().expect(0);
        site.manifest(name)["history"]["redo"].clone()
    };
    let full = back_up("full", &[], 24);
    server.sql("UPDATE shop.t SET v = 'B'");
    let one = back_up("one", &["--incremental-from=full"], 48);
    assert!(full.is_object() && one.is_object(), "{full} {one}");
    assert_ne!(full, one);
    server.sql("UPDATE shop.u SET v = 'C'");
    let _ = site.back_up(&server, "two", &["--incremental-from=one"]).expect(0);
    site.assert_restores("two", &server);
}

/// By its end, the backup is stored. What the server would have said then is unknown.
#[test]
fn a_server_that_hangs_at_the_end_does_not_hang_the_backup() {
    let (site, server) = Site::new(&[]);
    let command = server.backup_command();
    let (socket, silent) = (site.scratch.join("proxy"), site.scratch.join("silent"));
    hanging_proxy(&socket, server.socket().to_owned(), silent.clone());
    let program = site.scratch.join("mariadb-backup");
    let script = format!("#!/bin/sh\n{} \"$@\" && touch {}\n", command[0], silent.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let back_up = |name: &str, options: &[&str]| {
        let state = format!("--state-dir={}", site.scratch.join("state").display());
        let backup = xbcloud(&site.store, "backup", name, options).arg(state);
        let backup = backup.args(["--checkpoint=no", "--"]).arg(&program);
        let rest = command[1..].iter().filter(|word| !word.starts_with("--socket="));
        backup.args(rest).arg(format!("--socket={}", socket.display())).run().expect(0)
    };
    let _ = back_up("full", &[]);
    assert!(silent.exists());
    let history = site.manifest("full")["history"].clone();
    assert!(history["redo"].is_object() && history["highest"].is_null(), "{history}");
    std::fs::remove_file(&silent).unwrap();
    let said = site.back_up(&server, "one", &["--incremental-from=full"]).expect(0).stderr_text();
    assert!(said.contains("the base does not state its highest numbers"), "{said}");
    assert!(site.manifest("one")["history"]["highest"].is_object());
}

/// A server lists only the tablespaces that it has opened since its start.
#[test]
fn tables_that_nobody_has_used_since_the_start_are_not_discarded() {
    let (site, server) = Site::new(&[COLD]);
    let server = site.restarted(server, &[]);
    let _ = site.back_up(&server, "full", &[]).expect(0);
    let server = site.restarted(server, &[]);
    let said = site.back_up(&server, "one", &["--incremental-from=full"]).expect(0).stderr_text();
    assert!(!said.contains("imported"), "{said}");
    for name in ["full", "one"] {
        assert!(site.manifest(name)["history"]["highest"].is_object(), "{name}");
    }
}

/// DISCARD gives a table a new number, and IMPORT does not: after a DISCARD before the base, no number shows the import.
#[test]
fn a_base_with_a_discarded_table_does_not_rule_out_an_import() {
    let (site, server) = Site::new(&[COLD]);
    server.sql("CREATE TABLE shop.away LIKE shop.t; INSERT INTO shop.away SELECT * FROM shop.t");
    server.sql("ALTER TABLE shop.away DISCARD TABLESPACE");
    // Not known to the server by a table that was used.
    let server = site.restarted(server, &[]);
    let _ = site.back_up(&server, "full", &[]).expect(0);
    assert!(site.manifest("full")["history"]["highest"].is_null());
    let said = site.back_up(&server, "one", &["--incremental-from=full"]).expect(0).stderr_text();
    assert!(said.contains("the tablespace of shop/away is discarded"), "{said}");
    server.sql("DROP TABLE shop.away");
    let _ = site.back_up(&server, "anew", &[]).expect(0);
    assert!(site.manifest("anew")["history"]["highest"].is_object());
}
