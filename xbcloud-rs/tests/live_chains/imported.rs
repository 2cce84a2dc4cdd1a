//! Tables whose tablespaces are imported while a real server is backed up: the program leaves their rows out, and ends with
//! success. What is dropped, renamed, truncated or rebuilt meanwhile is no fault.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::support::*;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

const TABLES: &str = "CREATE DATABASE x; USE x;
    CREATE TABLE src (i INT PRIMARY KEY, v VARCHAR(99)); INSERT INTO src SELECT seq, MD5(seq) FROM seq_1_to_500;
    CREATE TABLE imp LIKE src; INSERT INTO imp SELECT * FROM src LIMIT 99;
    CREATE TABLE two LIKE src; INSERT INTO two SELECT * FROM src LIMIT 7;
    CREATE TABLE three LIKE src; INSERT INTO three SELECT * FROM src LIMIT 8;
    CREATE TABLE parts (i INT PRIMARY KEY) PARTITION BY HASH (i) PARTITIONS 2; INSERT INTO parts VALUES (1), (2), (3);
    CREATE TABLE months (i INT PRIMARY KEY) PARTITION BY RANGE (i) (PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN (9));
    INSERT INTO months VALUES (1), (2), (3);
    CREATE TABLE words (i INT PRIMARY KEY, v TEXT, FULLTEXT (v)); INSERT INTO words SELECT * FROM src LIMIT 20;";

struct Site {
    store: Store,
    scratch: Scratch,
    server: MariaDb,
}

impl Site {
    fn new() -> Self {
        let site =
            Self { store: Store::folder(), scratch: Scratch::new(), server: MariaDb::start() };
        site.server.sql(TABLES);
        site.server.export("x", "src", site.scratch.path());
        for program in ["mariadb-backup", "unknown"] {
            site.write_producer(program);
        }
        site
    }

    fn schema(&self) -> PathBuf {
        self.server.datadir().join("x")
    }

    /// A program that runs mariadb-backup, and holds its output up in the system tablespace, which follows all others.
    fn write_producer(&self, name: &str) {
        let [program, reached, go] = [name, "reached", "go"].map(|name| self.scratch.join(name));
        let text = format!(
            "#!/bin/bash\nset -o pipefail\n{} \"$@\" | {{ head -c 4000000; : >{}; read -r <{}; cat; }}\n",
            self.server.backup_command()[0],
            reached.display(),
            go.display()
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Takes a backup with this program, and does something while it runs.
    fn back_up(
        &self,
        (program, more): (&str, &[&str]),
        name: &str,
        options: &[&str],
        during: impl FnOnce(),
    ) -> Ran {
        let [program, reached, go] = [program, "reached", "go"].map(|name| self.scratch.join(name));
        let _ = std::fs::remove_file(&reached);
        let _ = std::fs::remove_file(&go);
        assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
        let state = format!("--state-dir={}", self.scratch.join("state").display());
        // Not with `--quiet`, which hides notes.
        let run =
            Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["backup", "--server=db1", &state]);
        let run = run.args(self.store.options()).args(options).arg(self.store.url(name));
        // One thread, which reads the system tablespace last.
        let command = self.server.backup_command().into_iter().skip(1);
        let command = command.filter(|word| !word.starts_with("--parallel"));
        let run = run.arg("--").arg(program).args(command).args(more);
        let mut running = run.spawn();
        running.until("the backup is held up", || reached.exists());
        during();
        std::fs::write(&go, "\n").unwrap();
        running.wait()
    }

    fn discard(&self, table: &str) {
        self.server.sql(&format!("ALTER TABLE x.{table} DISCARD TABLESPACE"));
    }

    /// Imports the rows of another table into one that was discarded.
    fn import_discarded(&self, table: &str) {
        for suffix in ["ibd", "cfg"] {
            let from = self.scratch.join("src").with_extension(suffix);
            std::fs::copy(from, self.schema().join(table).with_extension(suffix)).unwrap();
        }
        self.server.sql(&format!("ALTER TABLE x.{table} IMPORT TABLESPACE"));
        assert_eq!(self.server.sql(&format!("SELECT COUNT(*) FROM x.{table}")), "500\n");
    }

    fn import(&self, table: &str) {
        self.discard(table);
        self.import_discarded(table);
    }

    fn checkpoint(&self) {
        self.server.sql("SET GLOBAL innodb_log_checkpoint_now = ON");
    }

    fn assert_is_the_server(&self, name: &str) {
        let target = self.scratch.join(format!("restored-{name}"));
        let options = ["--prepare", &format!("--target-dir={}", target.display())];
        let _ = xbcloud(&self.store, "restore", name, &options).run().expect(0);
        let copy = MariaDb::start_on(&target);
        assert_eq!(copy.checksums("x"), self.server.checksums("x"), "{name}");
    }
}

fn assert_left_out(ran: Ran, table: &str) {
    let said = ran.expect_failure().stderr_text();
    assert!(said.contains(&format!("left out the rows of {table}: ")), "{said}");
    assert!(said.contains("innodb_log_checkpoint_now"), "{said}");
}

#[test]
fn no_backup_lacks_a_table_that_was_imported_while_it_ran() {
    let site = Site::new();
    let during = |name: &str, options: &[&str], during: &dyn Fn()| {
        site.back_up(("mariadb-backup", &[]), name, options, during)
    };
    assert_left_out(during("a", &[], &|| site.import("imp")), "x/imp");
    let created = || {
        site.server.sql("CREATE TABLE x.made LIKE x.src");
        site.import("made");
    };
    assert_left_out(during("a", &[], &created), "x/made");
    let renamed = || {
        site.import("two");
        site.server.sql("RENAME TABLE x.two TO x.zwei");
    };
    assert_left_out(during("a", &[], &renamed), "x/zwei");
    site.discard("zwei");
    site.checkpoint();
    assert_left_out(during("a", &[], &|| site.import_discarded("zwei")), "x/zwei");
    let moved = || {
        site.discard("zwei");
        site.server.sql("RENAME TABLE x.zwei TO x.two");
        site.import_discarded("two");
    };
    assert_left_out(during("a", &[], &moved), "x/two");

    // Imported before, and after the last checkpoint.
    site.checkpoint();
    site.import("imp");
    let renamed = || {
        site.server.sql("RENAME TABLE x.imp TO x.imp9; CREATE TABLE x.imp LIKE x.src");
    };
    assert_left_out(during("a", &["--checkpoint=no"], &renamed), "x/imp9");

    // The next one has them all, and an increment on it misses what is made and imported while it runs.
    let _ = during("full", &[], &|| ()).expect(0);
    site.assert_is_the_server("full");
    // Enough for the program to be held up before it blocks DDL: the system tablespace of MariaDB 11.8 has few changes.
    site.server.sql(
        "USE x; CREATE TABLE filler (v TEXT); INSERT INTO filler SELECT REPEAT(MD5(seq), 60) FROM seq_1_to_4000",
    );
    let created = || {
        site.server.sql("CREATE TABLE x.later LIKE x.src");
        site.import("later");
    };
    let increment = ["--incremental-from=full"];
    assert_left_out(during("increment", &increment, &created), "x/later");
    assert!(!has_manifest(&site.store, "a") && !has_manifest(&site.store, "increment"));
}

/// A login, or a program whose options are unknown, may not let the server be asked.
#[test]
fn without_the_server_messages_tell_what_was_imported() {
    let site = Site::new();
    let during = |name: &str, during: &dyn Fn()| site.back_up(("unknown", &[]), name, &[], during);
    site.checkpoint();
    assert_left_out(during("a", &|| site.import("imp")), "x/imp");
    site.checkpoint();
    let renamed = || {
        site.import("two");
        site.server.sql("RENAME TABLE x.two TO x.zwei");
    };
    assert_left_out(during("a", &renamed), "x/zwei");
    site.checkpoint();
    let usual = || {
        site.server.sql("USE x; DROP TABLE imp; CREATE TABLE imp LIKE src; TRUNCATE zwei; ALTER TABLE three FORCE");
    };
    let _ = during("b", &usual).expect(0);
    site.assert_is_the_server("b");
}

#[test]
fn what_is_dropped_renamed_or_rebuilt_while_a_backup_runs_is_no_fault() {
    let site = Site::new();
    site.server.sql("CREATE TABLE x.before_it LIKE x.src; CREATE TABLE x.away LIKE x.src");
    site.discard("before_it");
    site.checkpoint();
    let changes = || {
        site.server.sql(
            "USE x; DROP TABLE two; CREATE TABLE two (i INT PRIMARY KEY); INSERT INTO two VALUES (1); DROP TABLE away;
             TRUNCATE imp; ALTER TABLE three FORCE; OPTIMIZE TABLE src; RENAME TABLE words TO terms;
             ALTER TABLE parts TRUNCATE PARTITION p0; ALTER TABLE months DROP PARTITION p0;
             ALTER TABLE months REORGANIZE PARTITION p1 INTO (PARTITION pa VALUES LESS THAN (3), PARTITION pb VALUES LESS THAN (9));
             CREATE TABLE other LIKE src; RENAME TABLE other TO other2, three TO other, other2 TO three;
             CREATE TABLE gone LIKE src; DROP TABLE gone",
        );
        // What is rebuilt is whole again.
        site.server.sql("CREATE TABLE x.whole LIKE x.src");
        site.import("whole");
        site.server.sql("ALTER TABLE x.whole FORCE; CREATE TABLE x.emptied LIKE x.src");
        site.import("emptied");
        site.server.sql("TRUNCATE x.emptied; CREATE TABLE x.dropped LIKE x.src");
        site.import("dropped");
        site.server.sql("DROP TABLE x.dropped; CREATE TABLE x.left_so LIKE x.src");
        site.discard("left_so");
    };
    let ran = site.back_up(("mariadb-backup", &[]), "full", &[], changes).expect(0);
    // These have no tablespace in the server either.
    let said = ran.stderr_text();
    assert!(
        said.contains("no .ibd file in the stream for 2 tables: x/before_it, x/left_so"),
        "{said}"
    );
    site.server.sql("DROP TABLE x.before_it, x.left_so");
    let target = site.scratch.join("restored");
    let options = ["--prepare", &format!("--target-dir={}", target.display())];
    let _ = xbcloud(&site.store, "restore", "full", &options).run().expect(0);
    let copy = MariaDb::start_on(&target);
    copy.sql("DROP TABLE x.before_it, x.left_so");
    assert_eq!(copy.checksums("x"), site.server.checksums("x"));

    // Of a backup of some tables, only these count.
    let some = ("mariadb-backup", &["--databases=mysql"][..]);
    let _ = site.back_up(some, "some", &[], || site.import("imp")).expect(0);
}
