//! Replays onto backups of a real server, compared with that server and with models of its commits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod origin;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use origin::{Backup, Origin, replay};
use xb_binlog::{Gtid, GtidState, LogPosition, ReplayStop};
use xb_replay::{Progress, ReplayError, Watch};
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::small_disk::SmallDisk;
use xb_testkit::tools::find;

/// The definitions of accounts, events and routines, as text.
const DEFINITIONS: &str = "
SELECT host, user, JSON_REMOVE(priv, '$.version_id') FROM mysql.global_priv ORDER BY 1, 2;
SELECT host, db, user, select_priv, insert_priv FROM mysql.db ORDER BY 1, 2, 3;
SELECT host, user, role, admin_option FROM mysql.roles_mapping ORDER BY 1, 2, 3;
SELECT db, name, body, definer, originator, interval_value FROM mysql.event ORDER BY 1, 2;
SELECT db, name, type, body, definer, sql_mode FROM mysql.proc WHERE db <> 'sys' ORDER BY 1, 2;
SELECT schema_name, default_collation_name FROM information_schema.schemata ORDER BY 1;
SELECT table_schema, table_name, engine, row_format, table_collation, create_options
FROM information_schema.tables WHERE table_schema LIKE 'x%' ORDER BY 1, 2";

const BEFORE: &str = "
CREATE DATABASE x1; USE x1;
CREATE TABLE t (c INT, n INT, v VARCHAR(200), PRIMARY KEY (c, n)) ENGINE=InnoDB;
CREATE TABLE m (c INT, n INT) ENGINE=MyISAM;
CREATE TABLE a (c INT, n INT) ENGINE=Aria;
CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB;
INSERT INTO account SELECT seq, 1000 FROM seq_0_to_99;
CREATE DATABASE v; CREATE TABLE v.par (id INT PRIMARY KEY); INSERT INTO v.par VALUES (1);
CREATE TABLE v.chi (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES v.par (id) ON UPDATE CASCADE)
WITH SYSTEM VERSIONING; INSERT INTO v.chi VALUES (1, 1);
CREATE TABLE v.still (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES v.par (id) ON DELETE SET NULL)
WITH SYSTEM VERSIONING;
CREATE TABLE v.numbered (id INT PRIMARY KEY, a BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,
b BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (a, b)) WITH SYSTEM VERSIONING;
-- As of an hour ago, so that its time has come, however fast the rest is.
SET timestamp = UNIX_TIMESTAMP() - 3600;
CREATE EVENT once ON SCHEDULE AT NOW() + INTERVAL 2 SECOND ON COMPLETION PRESERVE DO SELECT 1;
SET timestamp = DEFAULT;
CREATE EVENT later ON SCHEDULE AT NOW() + INTERVAL 1 DAY DO SELECT 1;
CREATE USER old IDENTIFIED BY 'x'; CREATE EVENT old ON SCHEDULE EVERY 1 DAY DO SELECT 1;
DELIMITER //
CREATE PROCEDURE fill(c INT, n INT) BEGIN
 DECLARE x, y INT;
 WHILE n > 0 DO
  INSERT INTO t VALUES (c, n, REPEAT(CHAR(64 + c), n MOD 190));
  START TRANSACTION;
  SET x = (n * c) MOD 100, y = (n * 7 + c) MOD 100;
  -- In the order of the rows, so that no two clients wait for each other.
  UPDATE account SET balance = balance + IF(x < y, -1, 1) WHERE id = LEAST(x, y);
  UPDATE account SET balance = balance - IF(x < y, -1, 1) WHERE id = GREATEST(x, y);
  COMMIT;
  IF n MOD 9 = 0 THEN INSERT INTO m VALUES (c, n); INSERT INTO a VALUES (c, n); END IF;
  IF n MOD 11 = 0 THEN DELETE FROM t WHERE t.c = c AND t.n = n + 5; END IF;
  SET n = n - 1;
 END WHILE;
END //
DELIMITER ;
XA START 'open before'; INSERT INTO t VALUES (90, 1, 'xa'); XA END 'open before';
XA PREPARE 'open before';
";

/// Everything that logs can hold, after the backup.
const AFTER: &str = "
USE x1;
CREATE TABLE big (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT, u CHAR(36)) ROW_FORMAT=DYNAMIC;
INSERT INTO big (v, u) SELECT REPEAT('y', 50), UUID() FROM seq_1_to_30000;
INSERT INTO big (v, u) VALUES (REPEAT('z', 9000000), 'a\\0b');
ALTER TABLE big ADD COLUMN w INT DEFAULT 7, ADD INDEX (u);
CREATE TEMPORARY TABLE p (i INT); INSERT INTO p VALUES (1), (2);
FLUSH BINARY LOGS;
INSERT INTO t SELECT 91, i, CONNECTION_ID() FROM p; INSERT INTO m SELECT 91, i FROM p; DROP TEMPORARY TABLE p;
XA COMMIT 'open before';
XA START 'a'; INSERT INTO t VALUES (92, 1, ''); XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a';
XA START 'b'; INSERT INTO t VALUES (92, 2, ''); XA END 'b'; XA PREPARE 'b'; XA ROLLBACK 'b';
XA START 'c'; INSERT INTO t VALUES (92, 3, ''); XA END 'c'; XA COMMIT 'c' ONE PHASE;
SET SESSION binlog_alter_two_phase = 1; ALTER TABLE big DROP COLUMN w; SET SESSION binlog_alter_two_phase = 0;
CREATE USER u IDENTIFIED BY 'secret' REQUIRE SSL; CREATE ROLE r; GRANT SELECT ON x1.* TO r; GRANT r TO u;
CREATE USER y@localhost IDENTIFIED VIA unix_socket OR mysql_native_password USING 'invalid';
SET PASSWORD FOR y@localhost = PASSWORD('q');
SET SESSION binlog_format = ROW; UPDATE v.par SET id = 2; INSERT INTO v.numbered (id) VALUES (1);
SET SESSION binlog_format = MIXED;
GRANT INSERT ON x1.t TO u; DROP USER old; SET PASSWORD FOR u = PASSWORD('other');
CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO x1.m VALUES (99, 99);
CREATE EVENT f ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1;
ALTER EVENT old ON SCHEDULE EVERY 2 DAY;
CREATE FUNCTION one() RETURNS INT DETERMINISTIC RETURN 1;
CREATE VIEW v AS SELECT * FROM t; CREATE TRIGGER g BEFORE INSERT ON m FOR EACH ROW SET NEW.n = NEW.n + 1;
INSERT INTO m VALUES (93, one());
CREATE SEQUENCE s; SELECT NEXTVAL(s); SELECT SETVAL(s, 100);
CREATE DATABASE x2 CHARACTER SET latin2; CREATE TABLE x2.l (v TEXT) SELECT 'x' AS v;
SET gtid_domain_id = 5; INSERT INTO t VALUES (94, 1, ''); SET server_id = 77; INSERT INTO t VALUES (94, 2, '');
SET gtid_domain_id = 0; INSERT INTO t VALUES (94, 3, '');
SET timestamp = 1500000000; INSERT INTO t VALUES (95, 1, NOW()); SET timestamp = DEFAULT;
SET SESSION binlog_format = STATEMENT; INSERT INTO t VALUES (96, 1, RAND());
SET @u = 'user variable'; INSERT INTO t VALUES (97, LAST_INSERT_ID(), @u); TRUNCATE TABLE a;
XA START 'left'; INSERT INTO t VALUES (98, 1, ''); XA END 'left'; XA PREPARE 'left';
";

/// Loads the server from several clients.
fn load(origin: &Origin, clients: Range<u32>, rows: u32) {
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || origin.server.sql(&format!("CALL x1.fill({client}, {rows})")));
        }
    });
}

#[test]
fn a_whole_history_is_replayed() {
    let origin = Origin::start(&[
        "--binlog-format=MIXED",
        "--innodb-default-row-format=REDUNDANT",
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_swedish_ci",
    ]);
    origin.server.sql(BEFORE);
    let backup = std::thread::scope(|scope| {
        let work = scope.spawn(|| load(&origin, 1..4, 300));
        let backup = Backup::of(&origin);
        work.join().unwrap();
        backup
    });
    let file = origin.scratch.join("load.txt");
    std::fs::write(&file, "1001\tone\n1002\ttwo\n").unwrap();
    origin.server.sql(&format!(
        "SET SESSION binlog_format = STATEMENT; LOAD DATA INFILE '{}' INTO TABLE x1.t (n, v) SET c = 89",
        file.display()
    ));
    origin.server.sql(AFTER);
    origin.server.wait_for_checkpoint();
    load(&origin, 4..7, 150);
    let (data, mut request) = backup.request(ReplayStop::End);
    request.settings = origin.settings();
    assert!(request.settings.len() > 10, "{:?}", request.settings);
    let mut seen = Vec::new();
    let report = replay(&origin, &request, 70_000, |progress| seen.push(progress)).unwrap();
    assert_eq!(report.gtids.to_string(), origin.gtids());
    assert_eq!(report.position.to_string(), origin.position());
    assert_eq!(report.prepared_xa, ["'left'"]);
    assert_eq!(report.disabled_events, ["x1.e", "x1.f", "x1.old"]);
    assert_eq!(report.past_events, ["x1.once"]);
    assert_eq!(report.cascaded_history, ["v.chi"]);
    assert_eq!(report.numbered_history, ["v.numbered"]);
    assert!(report.is_doubtful());
    assert_eq!((report.retried, report.left_out), (None, 0));
    assert!(seen.contains(&Progress::Starting) && seen.contains(&Progress::Stopping));
    let all = |progress: &Progress| matches!(progress, Progress::Applying(n, all) if n == all);
    assert!(seen.iter().any(all), "{seen:?}");

    let copy = MariaDb::start_on_with(data.path(), &["--event-scheduler=DISABLED"]);
    origin.server.sql("XA ROLLBACK 'left'");
    copy.sql("XA ROLLBACK 'left'");
    // On a busy machine, the backup program may have copied it too early.
    let in_use = report.in_use == ["x1/m.MYI"];
    let sums = |server: &MariaDb| {
        let mut sums = server.checksums("x");
        sums.retain(|table, _| !in_use || table != "x1.m");
        sums
    };
    assert_eq!(sums(&copy), sums(&origin.server));
    assert!(in_use || report.in_use.is_empty(), "{:?}", report.in_use);
    assert!(copy.checksums("x").len() >= 7);
    copy.check_tables("x");
    assert_eq!(copy.sql(DEFINITIONS), origin.server.sql(DEFINITIONS));
    let later = "SELECT status FROM mysql.event WHERE name = 'later'";
    assert_eq!(copy.sql(later), "ENABLED\n");
    let created = "SELECT created FROM mysql.event WHERE name = 'once'";
    assert_eq!(copy.sql(created), origin.server.sql(created));
    assert_eq!(copy.sql("SELECT @@gtid_slave_pos"), format!("{}\n", report.gtids));
    assert_eq!(copy.sql("SHOW ALL SLAVES STATUS"), "");
    let left = std::fs::read_dir(data.path()).unwrap().map(|e| e.unwrap().file_name());
    let left = left.filter(|name| name.to_string_lossy().contains("replay")).count();
    assert_eq!(left, 0);
}

/// A backup has no rows of MEMORY tables.
#[test]
fn changes_of_rows_that_no_backup_has_need_a_word() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.mem (i INT) ENGINE=MEMORY; INSERT INTO x.mem VALUES (1);
         CREATE TABLE x.t (i INT) ENGINE=InnoDB",
    );
    let backup = Backup::of(&origin);
    origin.server.sql("UPDATE x.mem SET i = 2; INSERT INTO x.t VALUES (1)");
    let (_data, request) = backup.request(ReplayStop::End);
    let error = replay(&origin, &request, 1000, |_| {}).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("on x.mem (UPDATE x.mem SET i = 2)"), "{error}");
    assert!(error.contains("leave it out with --replicate-ignore-table=x.mem;"), "{error}");
    let (data, mut request) = backup.request(ReplayStop::End);
    request.settings.push("--replicate-ignore-table=x.mem".into());
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!(report.gtids.to_string(), origin.gtids());
    assert_eq!(report.filters, ["replicate_ignore_table=x.mem"]);
    assert!(!report.is_partial);
    assert_eq!(MariaDb::start_on(data.path()).sql("SELECT i FROM x.t"), "1\n");
    // Of another table, a backup has the rows.
    let (_data, mut request) = backup.request(ReplayStop::End);
    let both = ["--replicate-ignore-table=x.mem", "--replicate-ignore-table=x.t"];
    request.settings.extend(both.map(Into::into));
    assert!(replay(&origin, &request, 1000, |_| {}).unwrap().is_partial);
}

/// A server leaves out what has its own number, as if it had written that itself.
#[test]
fn a_number_that_is_in_the_logs_leaves_nothing_out() {
    let origin = Origin::start(&[]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.t (i INT)");
    let backup = Backup::of(&origin);
    origin
        .server
        .sql("INSERT INTO x.t VALUES (1); SET SESSION server_id = 77; INSERT INTO x.t VALUES (2)");
    // At the end, it is run by a client.
    origin.server.sql(
        "CREATE USER y@localhost IDENTIFIED VIA unix_socket OR mysql_native_password USING 'invalid';
         SET PASSWORD FOR y@localhost = PASSWORD('q')",
    );
    let (data, mut request) = backup.request(ReplayStop::End);
    request.settings.push("--server-id=77".into());
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert!(!report.is_doubtful() && report.past_events.is_empty(), "{report:?}");
    let copy = MariaDb::start_on(data.path());
    assert_eq!(copy.sql("SELECT i FROM x.t ORDER BY i"), "1\n2\n");
    let account = "SELECT JSON_VALUE(priv, '$.authentication_string'),
                   JSON_VALUE(priv, '$.password_last_changed') FROM mysql.global_priv WHERE user = 'y'";
    assert_eq!(copy.sql(account), origin.server.sql(account));
}

/// GTIDs and positions are the planned ones nevertheless.
#[test]
fn no_option_lets_the_server_pass_over_what_fails() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.mem (i INT) ENGINE=MEMORY; INSERT INTO x.mem VALUES (1)",
    );
    let backup = Backup::of(&origin);
    origin.server.sql("UPDATE x.mem SET i = 2");
    for (option, named) in [
        ("--slave-skip-errors=all", "slave_skip_errors=0,1,2,"),
        ("--slave-skip-err=1032", "slave_skip_errors=1032"),
        ("--slave-exec-mode=IDEMPOTENT", "slave_exec_mode=IDEMPOTENT"),
        ("--init-slave=DELETE FROM x.mem", "init_slave=DELETE"),
        ("--slave-run-triggers-for-rbr=ENFORCE", "slave_run_triggers_for_rbr=ENFORCE"),
        ("--slave-type-conversions=ALL_LOSSY", "slave_type_conversions=ALL_LOSSY"),
    ] {
        let (_data, mut request) = backup.request(ReplayStop::End);
        request.settings.push(option.into());
        let error = replay(&origin, &request, 1000, |_| {}).unwrap_err();
        assert!(matches!(error, ReplayError::Lenient(_)), "{option}: {error}");
        assert!(error.to_string().contains(named) && !error.is_data_untouched(), "{error}");
    }
}

/// A server waits for room, and says so only in its log.
#[test]
fn a_full_disk_ends_a_replay_at_once() {
    let place = Scratch::new();
    let Some(disk) = SmallDisk::mount(place.path(), 1024) else {
        return xb_testkit::skipped("this user cannot mount");
    };
    let origin = Origin::start(&[]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.m (v LONGTEXT) ENGINE=MyISAM");
    let backup = Backup::of(&origin);
    origin.server.sql("USE x; INSERT INTO m SELECT REPEAT('y', 100000) FROM seq_1_to_1200");
    // With its temporary tables elsewhere, the server answers as if it were at work.
    let elsewhere = Scratch::new();
    for tmpdir in [None, Some(elsewhere.path())] {
        let (copy, mut request) = backup.request(ReplayStop::End);
        request.data = place.join("data");
        let _ = Cmd::new("cp").arg("-a").arg(copy.path()).arg(&request.data).run().expect(0);
        request.settings.extend(tmpdir.map(|dir| format!("--tmpdir={}", dir.display()).into()));
        request.writable.extend(tmpdir.map(Path::to_owned));
        // The server needs 76 MiB to start, and the rows another 115: a part of them finds room.
        let error = replay(&origin, &request, 1000, |now| {
            if now == Progress::Starting {
                disk.leave(140 << 20);
            }
        });
        let error = error.unwrap_err();
        assert!(matches!(error, ReplayError::FullDisk { .. }), "{error}");
        assert!(error.to_string().contains("no space left on device"), "{error}");
        std::fs::remove_dir_all(&request.data).unwrap();
        disk.resize(1 << 30);
    }
}

/// Rows of a table that is on another server are changed there by the origin only.
#[test]
fn a_replay_changes_no_other_server() {
    if !find("mariadbd").with_file_name("../lib/mysql/plugin/ha_federatedx.so").exists() {
        return xb_testkit::skipped("the server has no FEDERATED");
    }
    let origin = Origin::start(&["--plugin-maturity=unknown"]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.remote (i INT) ENGINE=InnoDB; INSTALL SONAME 'ha_federatedx'",
    );
    let socket = origin.server.socket().display().to_string();
    origin.server.sql(&format!(
        "CREATE SERVER here FOREIGN DATA WRAPPER mysql OPTIONS (SOCKET '{socket}', DATABASE 'x', USER 'root');
         CREATE TABLE x.f (i INT) ENGINE=FEDERATED CONNECTION='here/remote'"
    ));
    let backup = Backup::of(&origin);
    origin.server.sql("INSERT INTO x.f VALUES (1)");
    assert_eq!(origin.server.sql("SELECT * FROM x.remote"), "1\n");
    let (_data, mut request) = backup.request(ReplayStop::End);
    request.settings.push("--plugin-maturity=unknown".into());
    let done = replay(&origin, &request, 1000, |_| {});
    assert_eq!(origin.server.sql("SELECT * FROM x.remote"), "1\n", "{done:?}");
    assert!(
        matches!(&done, Err(ReplayError::Transaction { what, .. }) if what.contains("x.f")),
        "{done:?}"
    );
}

/// A server that crashed takes its temporary tables along, and a session may make the same ones again.
#[test]
fn temporary_tables_end_with_the_server_that_had_them() {
    let files = MariaDb::start().shut_down();
    let data = files.join("data");
    let options =
        ["--log-bin=bin", "--server-id=1", "--binlog-format=STATEMENT", "--binlog-checksum=NONE"];
    let origin =
        Origin { server: MariaDb::start_on_with(&data, &options), scratch: Scratch::new() };
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.t (i INT) ENGINE=InnoDB");
    let backup = Backup::of(&origin);
    let make = |server: &MariaDb, n: u32| {
        server.sql(&format!(
            "SET pseudo_thread_id = 99; CREATE TEMPORARY TABLE x.p (i INT); INSERT INTO x.p VALUES ({n});
             INSERT INTO x.t SELECT * FROM x.p; SET GLOBAL innodb_flush_log_at_trx_commit = 1"
        ))
    };
    // Its session still has the table when the server is killed.
    let mut client = std::process::Command::new(find("mariadb"))
        .args(["--no-defaults", "--user=root", "--unbuffered"])
        .arg(format!("--socket={}", origin.server.socket().display()))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let work = "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET pseudo_thread_id = 99; \
                CREATE TEMPORARY TABLE x.p (i INT); INSERT INTO x.p VALUES (1); \
                INSERT INTO x.t SELECT * FROM x.p;\n";
    client.stdin.as_mut().unwrap().write_all(work.as_bytes()).unwrap();
    xb_testkit::until("the row is there", || {
        origin.server.sql("SELECT COUNT(*) FROM x.t") == "1\n"
    });
    let Origin { server, scratch } = origin;
    drop(server);
    client.wait().unwrap();
    let origin = Origin { server: MariaDb::start_on_with(&data, &options), scratch };
    make(&origin.server, 2);
    let (data, request) = backup.request(ReplayStop::End);
    replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!(MariaDb::start_on(data.path()).sql("SELECT i FROM x.t ORDER BY i"), "1\n2\n");
}

/// The position of the backup says nothing about them.
#[test]
fn tables_that_were_in_use_when_they_were_copied_are_named() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.m (i INT) ENGINE=MyISAM;
         CREATE TABLE x.n (i INT) ENGINE=Aria TRANSACTIONAL=0; CREATE TABLE x.a (i INT) ENGINE=Aria;
         INSERT INTO x.m VALUES (1); INSERT INTO x.n VALUES (1); INSERT INTO x.a VALUES (1)",
    );
    let backup = Backup::of(&origin);
    origin.server.sql("INSERT INTO x.m VALUES (2)");
    let (data, request) = backup.request(ReplayStop::End);
    assert_eq!(replay(&origin, &request, 1000, |_| {}).unwrap().in_use, [""; 0]);
    assert_eq!(MariaDb::start_on(data.path()).sql("SELECT i FROM x.m ORDER BY i"), "1\n2\n");
    let (data, request) = backup.request(ReplayStop::End);
    for name in ["m.MYI", "n.MAI", "a.MAI"] {
        let path = data.path().join("x").join(name);
        let mut head = std::fs::read(&path).unwrap();
        // The number of times that it is open.
        head[25] = 1;
        std::fs::write(&path, head).unwrap();
    }
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    // The other one is repaired from its log.
    assert_eq!(report.in_use, ["x/m.MYI", "x/n.MAI"]);
}

/// Their rows are newer than their index. The repair of a server at their first use does not look at rows.
#[test]
fn tables_that_were_in_use_are_sound_before_the_replay() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE `x y`; USE `x y`; CREATE TABLE `m-1` (i INT, n INT) ENGINE=MyISAM;
         CREATE TABLE n (i INT, v VARCHAR(99), KEY (i)) ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC;
         CREATE TABLE p (i INT, n INT, KEY (i)) ENGINE=MyISAM PARTITION BY HASH (i) PARTITIONS 2;
         CREATE SEQUENCE s ENGINE=MyISAM;
         INSERT INTO `m-1` VALUES (1, 1); INSERT INTO n VALUES (1, 'a'); INSERT INTO p VALUES (1, 1)",
    );
    let (early, _) = Backup::of(&origin).request(ReplayStop::End);
    let insert = |i: u32| {
        origin.server.sql(&format!(
            "USE `x y`; INSERT INTO `m-1` VALUES ({i}, 1); INSERT INTO n VALUES ({i}, 'a'); INSERT INTO p VALUES ({i}, 1)"
        ));
    };
    insert(3);
    let backup = Backup::of(&origin);
    insert(5);
    let (data, request) = backup.request(ReplayStop::End);
    let files =
        ["m@002d1.MYI", "n.MAI", "p#P#p1.MYI", "s.MYI"].map(|file| format!("x@0020y/{file}"));
    for name in &files {
        let mut index = std::fs::read(early.path().join(name)).unwrap();
        // The number of times that it is open.
        index[25] = 1;
        std::fs::write(data.path().join(name), index).unwrap();
    }
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!(report.in_use, files);
    // The server's words, as far as it has any.
    for table in ["`x y`.`m-1`: ", "`x y`.`n`: "] {
        assert!(report.repairs.iter().any(|said| said.starts_with(table)), "{:?}", report.repairs);
    }
    let copy = MariaDb::start_on(data.path());
    copy.check_tables("x y");
    for table in ["`m-1`", "n", "p"] {
        assert_eq!(copy.sql(&format!("SELECT i FROM `x y`.{table} ORDER BY i")), "1\n3\n5\n");
    }
}

/// With the `sql_mode` of a session, a server takes another engine for one that it lacks, and says so only to that session.
#[test]
fn an_engine_that_the_private_server_lacks_is_named() {
    let origin = Origin::start(&["--plugin-load-add=ha_blackhole"]);
    origin.server.sql("CREATE DATABASE x");
    let backup = Backup::of(&origin);
    origin.server.sql(
        "SET sql_mode = ''; CREATE TABLE x.t (i INT) ENGINE=BLACKHOLE; INSERT INTO x.t VALUES (1)",
    );
    let engines = origin.server.sql(xb_replay::ENGINES);
    for (option, missing) in [(None, &["BLACKHOLE"][..]), (Some("ha_blackhole"), &[])] {
        let (data, mut request) = backup.request(ReplayStop::End);
        request.engines = engines.lines().map(str::to_owned).collect();
        request.settings.extend(option.map(|name| format!("--plugin-load-add={name}").into()));
        let report = replay(&origin, &request, 1000, |_| {}).unwrap();
        assert_eq!(report.missing_engines, missing);
        let copy = MariaDb::start_on_with(data.path(), &["--plugin-load-add=ha_blackhole"]);
        let rows = if missing.is_empty() { "" } else { "1\n" };
        assert_eq!(copy.sql("SELECT i FROM x.t"), rows);
    }
}

/// Its logs lack them, and so does each transaction. The applier works in parallel before and behind each change.
#[test]
fn settings_are_changed_where_the_origin_changed_them() {
    let origin = &Origin::start(&[]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.rows (i INT PRIMARY KEY) ENGINE=InnoDB");
    let backup = Backup::of(origin);
    let mut changes = Vec::new();
    let settings = [
        ("default_storage_engine", "Aria"),
        ("innodb_default_row_format", "compact"),
        ("default_storage_engine", "InnoDB"),
        ("innodb_ft_min_token_size", "2"),
    ];
    let load = |first: usize| {
        std::thread::scope(|scope| {
            for begin in (first * 1000..(first + 1) * 1000).step_by(250) {
                let ids = begin..begin + 250;
                let work: String =
                    ids.map(|i| format!("INSERT INTO x.rows VALUES ({i});")).collect();
                scope.spawn(move || origin.server.sql(&work));
            }
        });
    };
    load(0);
    origin.server.sql("CREATE TABLE x.t0 (i INT)");
    for (n, (name, value)) in (1..).zip(settings) {
        changes.push((origin.position(), name, value));
        if n < settings.len() {
            origin.server.sql(&format!("SET GLOBAL {name} = {value}"));
        }
        if n == 2 {
            origin.server.sql("FLUSH BINARY LOGS");
        }
        let drop = format!("CREATE TABLE t{n} (i INT); DROP TABLE t{n}, no_such");
        let ran = Cmd::new(find("mariadb"))
            .args(["--no-defaults", "--user=root", "--execute", &drop, "x"])
            .arg(format!("--socket={}", origin.server.socket().display()))
            .run();
        assert!(ran.stderr_text().contains("Unknown"), "{ran:?}");
        origin.server.sql(&format!("CREATE TABLE x.t{n} (i INT)"));
        load(n);
    }
    let tables = "SELECT table_name, engine, row_format, 1 FROM information_schema.tables \
                  WHERE table_schema = 'x' AND table_name LIKE 't%' ORDER BY 1";
    let (data, request) = backup.request(ReplayStop::End);
    let report =
        origin::replay_pieces(&request, origin.changing(&request.position, &changes), |_| true);
    let report = report.unwrap();
    assert_eq!(report.unchanged, ["innodb_ft_min_token_size=2"]);
    assert_eq!(report.retried, None);
    let copy = MariaDb::start_on(data.path());
    assert_eq!(copy.sql(tables), origin.server.sql(tables));
    assert!(copy.sql(tables).contains("t1\tAria") && copy.sql(tables).contains("Compact"));
    assert_eq!(copy.checksums("x"), origin.server.checksums("x"));
}

/// The applier stops at each, and starts again: within temporary tables, XA transactions, and an ALTER of two phases.
#[test]
fn a_whole_history_is_replayed_with_a_change_of_settings_behind_each_transaction() {
    let origin = Origin::start(&["--binlog-format=MIXED"]);
    origin.server.sql(BEFORE);
    let backup = Backup::of(&origin);
    origin.server.sql(AFTER);
    load(&origin, 4..6, 4);
    let ends = origin.ends(&backup.position);
    assert!(ends.len() > 40, "{}", ends.len());
    let changes: Vec<_> = ends
        .into_iter()
        .zip(["4", "5"].into_iter().cycle())
        .map(|(at, value)| (at, "div_precision_increment", value))
        .collect();
    origin.server.sql("XA ROLLBACK 'left'");
    for threads in [4, 1] {
        let (data, mut request) = backup.request(ReplayStop::End);
        request.settings = origin.settings();
        request.threads = threads;
        let pieces = origin.changing(&request.position, &changes);
        let report = origin::replay_pieces(&request, pieces, |_| true).unwrap();
        assert_eq!((report.unchanged, report.retried), (Vec::new(), None), "{threads}");
        let copy = MariaDb::start_on_with(data.path(), &["--event-scheduler=DISABLED"]);
        assert_eq!(copy.checksums("x"), origin.server.checksums("x"), "{threads}");
        copy.check_tables("x");
        assert_eq!(copy.sql(DEFINITIONS), origin.server.sql(DEFINITIONS), "{threads}");
    }
}

/// The applier stops at a change, and starts again.
#[test]
fn a_temporary_table_outlives_a_change_of_settings() {
    let origin = Origin::start(&["--binlog-format=STATEMENT"]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.t (i INT) ENGINE=InnoDB");
    let backup = Backup::of(&origin);
    let mut client = std::process::Command::new(find("mariadb"))
        .args(["--no-defaults", "--user=root", "--unbuffered"])
        .arg(format!("--socket={}", origin.server.socket().display()))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut work = |text: &str, rows: &str| {
        client.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        xb_testkit::until("the rows are there", || {
            origin.server.sql("SELECT COUNT(*) FROM x.t") == rows
        });
    };
    work("CREATE TEMPORARY TABLE x.p SELECT 1 i; INSERT INTO x.t SELECT i FROM x.p;\n", "1\n");
    let changes = [(origin.position(), "div_precision_increment", "9")];
    work("INSERT INTO x.t SELECT i + 1 FROM x.p;\n", "2\n");
    drop(client.stdin.take());
    client.wait().unwrap();
    // Its session ends after it, and logs that it drops the table.
    let sessions = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'";
    xb_testkit::until("the session has ended", || origin.server.sql(sessions) == "1\n");
    for threads in [1, 4] {
        let (data, mut request) = backup.request(ReplayStop::End);
        request.threads = threads;
        let pieces = origin.changing(&request.position, &changes);
        let report = origin::replay_pieces(&request, pieces, |_| true).unwrap();
        assert_eq!((report.unchanged, report.retried), (Vec::new(), None));
        assert_eq!(MariaDb::start_on(data.path()).sql("SELECT i FROM x.t ORDER BY i"), "1\n2\n");
    }
}

/// Empty, they say something else than a server without them.
#[test]
fn settings_of_the_origin_that_are_empty_are_not_those_of_a_new_server() {
    let origin = Origin::start(&["--old-mode=", "--ft-stopword-file="]);
    origin.server.sql("CREATE DATABASE x");
    let backup = Backup::of(&origin);
    origin.server.sql(
        "CREATE TABLE x.t (v VARCHAR(9) CHARACTER SET utf8, FULLTEXT (v)) ENGINE=MyISAM; INSERT INTO x.t VALUES ('about')",
    );
    let (data, mut request) = backup.request(ReplayStop::End);
    request.settings = origin.settings();
    replay(&origin, &request, usize::MAX, |_| {}).unwrap();
    let copy = MariaDb::start_on_with(data.path(), &["--ft-stopword-file="]);
    for ask in [
        "SELECT table_collation FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) WHERE table_schema = 'x'",
        "SELECT character_set_name FROM information_schema.columns WHERE table_schema = 'x'",
        "SELECT COUNT(*) FROM x.t WHERE MATCH (v) AGAINST ('about' IN BOOLEAN MODE)",
    ] {
        assert_eq!(copy.sql(ask), origin.server.sql(ask), "{ask}");
    }
}

#[test]
fn a_table_in_memory_is_as_large_as_on_its_server() {
    let origin = Origin::start(&["--max-heap-table-size=64M"]);
    origin.server.sql("CREATE DATABASE x");
    let backup = Backup::of(&origin);
    origin.server.sql(
        "USE x; CREATE TABLE x.mem (v BINARY(250)) ENGINE=MEMORY; INSERT INTO x.mem SELECT 'v' FROM seq_1_to_90000;
         CREATE TABLE x.t SELECT COUNT(*) n FROM x.mem",
    );
    let (data, request) = backup.request(ReplayStop::End);
    replay(&origin, &request, 70_000, |_| {}).unwrap();
    assert_eq!(MariaDb::start_on(data.path()).sql("SELECT n FROM x.t"), "90000\n");
}

/// Of a statement that failed half-way, the log has the statement and its error, and an applier expects the same.
#[test]
fn a_table_in_memory_is_full_where_it_was_on_its_server() {
    let origin = Origin::start(&["--binlog-format=MIXED"]);
    origin.server.sql("CREATE DATABASE x; USE x; CREATE TABLE n (i INT); INSERT INTO n SELECT seq FROM seq_1_to_90000");
    let backup = Backup::of(&origin);
    origin.server.sql("CREATE TABLE x.mem (v BINARY(250)) ENGINE=MEMORY");
    let fill = "INSERT INTO x.mem SELECT 'v' FROM x.n";
    let filled = Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", "--execute", fill])
        .arg(format!("--socket={}", origin.server.socket().display()))
        .run();
    assert!(filled.stderr_text().contains("is full"), "{filled:?}");
    origin.server.sql("CREATE TABLE x.t SELECT COUNT(*) n FROM x.mem");
    let (data, mut request) = backup.request(ReplayStop::End);
    request.settings = origin.settings();
    replay(&origin, &request, 70_000, |_| {}).unwrap();
    let rows = MariaDb::start_on(data.path()).sql("SELECT n FROM x.t");
    assert_eq!(rows, origin.server.sql("SELECT n FROM x.t"));
}

#[test]
fn a_repair_before_the_replay_ends_with_a_cancel() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; USE x; CREATE TABLE x.m (i INT, n INT, KEY (i), KEY (n)) ENGINE=MyISAM;
         INSERT INTO x.m SELECT seq, seq FROM seq_1_to_1000000",
    );
    let backup = Backup::of(&origin);
    origin.server.sql("INSERT INTO x.m VALUES (5, 5)");
    let (data, mut request) = backup.request(ReplayStop::End);
    let index = data.path().join("x/m.MYI");
    let mut head = std::fs::read(&index).unwrap();
    head[25] = 1;
    std::fs::write(&index, head).unwrap();
    // Key by key, it takes most of a minute, so that no cancel comes too late.
    request.settings.push("--myisam-max-sort-file-size=0".into());
    // The server has this file for as long as it repairs the table.
    let repaired = data.path().join("x/m.TMD");
    let mut watch =
        Watch { progress: &mut |_| {}, is_cancelled: &|| repaired.exists(), note: &|_| Vec::new() };
    let pieces = origin::pieces_in(origin.server.datadir(), &request.position, 1000);
    let error = xb_replay::replay(&request, pieces, &mut watch);
    let error = error.unwrap_err();
    assert!(matches!(error, ReplayError::Abandoned), "{error}");
}

/// InnoDB prepares one before the GTID counts: a clone of MySQL may be of the moment in between.
#[test]
fn an_xa_transaction_that_the_backup_has_ahead_of_its_position_is_rolled_back_and_replayed() {
    let origin = Origin::start(&[]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB; INSERT INTO x.t VALUES (0, 0)");
    let xa = |name: &str, id: u32, v: u32| {
        format!(
            "XA START {name}; INSERT INTO x.t VALUES ({id}, {v}); XA END {name}; XA PREPARE {name};"
        )
    };
    origin.server.sql(&xa("'before'", 1, 1));
    let backup = Backup::of(&origin);
    let (data, request) = backup.request(ReplayStop::End);
    let ahead = MariaDb::start_on_with(data.path(), &["--skip-log-bin"]);
    ahead.sql(&xa("'ahead','b',7", 2, 200));
    ahead.sql(&xa("'left'", 3, 300));
    drop(ahead.shut_down());
    origin.server.sql(&format!(
        "INSERT INTO x.t VALUES (4, 4); {} XA COMMIT 'ahead','b',7; XA COMMIT 'before';",
        xa("'ahead','b',7", 2, 2)
    ));
    let report = replay(&origin, &request, usize::MAX, |_| {}).unwrap();
    assert_eq!(report.ahead_xa, ["X'6168656164',X'62',7"]);
    assert_eq!(report.retried, None);
    // The log says nothing of it.
    assert_eq!(report.prepared_xa.len(), 1, "{report:?}");
    let copy = MariaDb::start_on(data.path());
    let rows = "SELECT * FROM x.t ORDER BY id";
    assert_eq!(copy.sql(rows), origin.server.sql(rows));
}

/// A server logs the names of those that were not there, too.
#[test]
fn a_drop_of_tables_that_were_not_there_is_replayed() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; USE x; CREATE TABLE t (i INT); CREATE TABLE a (i INT); CREATE TABLE b (i INT); CREATE SEQUENCE s;
         CREATE TABLE last (i INT); CREATE TABLE c (i INT); CREATE TABLE d (i INT)",
    );
    let backup = Backup::of(&origin);
    let fails = |statement: &str| {
        let ran = Cmd::new(find("mariadb"))
            .args(["--no-defaults", "--user=root", "--execute", statement, "x"])
            .arg(format!("--socket={}", origin.server.socket().display()))
            .run();
        assert!(ran.stderr_text().contains("Unknown"), "{ran:?}");
    };
    fails("DROP TABLE a, no_such, b");
    origin.server.sql("INSERT INTO x.t VALUES (1); FLUSH BINARY LOGS");
    fails("DROP SEQUENCE s, no_such");
    origin.server.sql("INSERT INTO x.t VALUES (2)");
    fails("DROP TABLE no_schema.t, last");
    // Other quotes in the log, and none.
    fails("SET sql_mode = ANSI_QUOTES; DROP TABLE c, no_such");
    fails("SET sql_quote_show_create = 0; DROP TABLE no_such, d");
    for threads in [1, 4] {
        let (data, mut request) = backup.request(ReplayStop::End);
        request.threads = threads;
        let report = replay(&origin, &request, 1000, |_| {}).unwrap();
        assert_eq!((report.gtids.to_string(), report.retried), (origin.gtids(), None));
        let copy = MariaDb::start_on(data.path());
        assert_eq!(copy.sql("SHOW TABLES FROM x; SELECT i FROM x.t ORDER BY i"), "t\n1\n2\n");
    }
}

/// In parallel, MariaDB has ALTER SEQUENCE wait for a later transaction, which waits for it.
#[test]
fn sequences_that_are_altered_while_they_are_used_hold_up_no_replay() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; USE x; CREATE SEQUENCE s; CREATE TABLE t (id BIGINT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT)",
    );
    let backup = Backup::of(&origin);
    let changes = (1..20).map(|n| {
        format!("INSERT INTO t (v) VALUES ({n}); ALTER SEQUENCE s RESTART {n}000; INSERT INTO t (v) VALUES ({n});")
    });
    origin.server.sql(&format!("USE x; {}", changes.collect::<String>()));
    let (data, mut request) = backup.request(ReplayStop::End);
    request.threads = 2;
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!(report.gtids.to_string(), origin.gtids());
    let copy = MariaDb::start_on(data.path());
    let rows = "SELECT * FROM x.t ORDER BY id";
    assert_eq!(copy.sql(rows), origin.server.sql(rows));
}

/// Workers may fail for a reason that only a serial retry shows: here one that waits for another, before a DROP.
#[test]
fn a_replay_goes_on_in_parallel_once_the_reason_against_it_is_gone() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; USE x; CREATE SEQUENCE s; CREATE TABLE t (id BIGINT DEFAULT NEXTVAL(s) PRIMARY KEY, v INT);
         CREATE TABLE a (i INT); CREATE TABLE b (i INT)",
    );
    let backup = Backup::of(&origin);
    for table in ["a", "b"] {
        let changes = (1..40).map(|n| {
            format!("INSERT INTO t (v) VALUES ({n}); ALTER SEQUENCE s RESTART {n}000; INSERT INTO t (v) VALUES ({n});")
        });
        origin.server.sql(&format!("USE x; {} DELETE FROM t", changes.collect::<String>()));
        let drop = format!("DROP TABLE {table}, no_such");
        let ran = Cmd::new(find("mariadb"))
            .args(["--no-defaults", "--user=root", "--execute", &drop, "x"])
            .arg(format!("--socket={}", origin.server.socket().display()))
            .run();
        assert!(ran.stderr_text().contains("Unknown"), "{ran:?}");
    }
    let (data, mut request) = backup.request(ReplayStop::End);
    request.threads = 2;
    let mut serially = 0;
    let count = |now| serially += u32::from(now == Progress::Serially);
    let report = replay(&origin, &request, 1000, count).unwrap();
    assert_eq!((serially, report.retried), (2, None));
    assert_eq!(report.gtids.to_string(), origin.gtids());
    assert_eq!(MariaDb::start_on(data.path()).sql("SHOW TABLES FROM x"), "s\nt\n");
}

/// A server without a binary log reads in triggers, functions and MyISAM tables without locks, and numbers the rows of a table
/// without a key in the order in which they came.
#[test]
fn what_depends_on_the_transactions_before_is_applied_behind_them() {
    let origin = Origin::start(&["--binlog-format=MIXED"]);
    let server = &origin.server;
    server.sql(
        "CREATE DATABASE x; USE x; CREATE TABLE price (id INT PRIMARY KEY, p INT) ENGINE=InnoDB;
         CREATE TABLE sold (id INT PRIMARY KEY, p INT) ENGINE=InnoDB;
         CREATE TABLE m (id INT PRIMARY KEY, p INT) ENGINE=MyISAM; CREATE TABLE of_m LIKE sold;
         CREATE TABLE unnumbered (v INT) ENGINE=InnoDB;
         INSERT INTO price VALUES (1, 0); INSERT INTO m VALUES (1, 0);
         DELIMITER //
         CREATE TRIGGER g BEFORE INSERT ON sold FOR EACH ROW
         BEGIN DECLARE now INT; SELECT p INTO now FROM price WHERE id = 1; SET NEW.p = now; END //",
    );
    let backup = Backup::of(&origin);
    let sales = (1..60).map(|n| {
        format!(
            "UPDATE price SET p = {n}; INSERT INTO sold (id) VALUES ({n});
             UPDATE m SET p = {n}; INSERT INTO of_m SELECT {n}, p FROM m;"
        )
    });
    let rows = (1..400).map(|n| format!("INSERT INTO unnumbered VALUES ({n});"));
    let rows = format!(
        "SET binlog_format = ROW; {} ALTER TABLE unnumbered ADD id INT AUTO_INCREMENT PRIMARY KEY",
        rows.collect::<String>()
    );
    let mut backup = backup;
    for (work, tables) in [(sales.collect(), &["sold", "of_m"][..]), (rows, &["unnumbered"])] {
        server.sql(&format!("USE x; {work}"));
        let (data, request) = backup.request(ReplayStop::End);
        let report = replay(&origin, &request, 100_000, |_| {}).unwrap();
        assert_eq!(report.gtids.to_string(), origin.gtids());
        let copy = MariaDb::start_on(data.path());
        for table in tables {
            let rows = format!("SELECT * FROM x.{table} ORDER BY id");
            assert_eq!(copy.sql(&rows), server.sql(&rows));
        }
        drop(copy);
        // Of what follows, the first part needs no order.
        backup = Backup::of(&origin);
    }
}

/// As a dump of all schemas does when it is loaded.
#[test]
fn the_position_outlives_a_log_that_makes_its_table_anew() {
    let origin = Origin::start(&[]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.t (i INT)");
    let backup = Backup::of(&origin);
    origin.server.sql(
        "SET gtid_domain_id = 7; INSERT INTO x.t VALUES (1); SET gtid_domain_id = 0; INSERT INTO x.t VALUES (2);
         CREATE TABLE mysql.made LIKE mysql.gtid_slave_pos; DROP TABLE mysql.gtid_slave_pos;
         RENAME TABLE mysql.made TO mysql.gtid_slave_pos; INSERT INTO x.t VALUES (3)",
    );
    let (data, request) = backup.request(ReplayStop::End);
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    let noted = MariaDb::start_on(data.path()).sql("SELECT @@GLOBAL.gtid_slave_pos");
    assert_eq!(noted.trim().parse::<GtidState>().unwrap(), report.gtids);
}

/// A backslash in a string is a letter there.
#[test]
fn a_filter_is_understood_with_any_sql_mode() {
    let origin = Origin::start(&["--sql-mode=NO_BACKSLASH_ESCAPES"]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE `x`.`a\\b` (i INT) ENGINE=MEMORY; CREATE TABLE x.A (i INT) ENGINE=InnoDB;
         CREATE TABLE x.a (i INT) ENGINE=MEMORY",
    );
    let backup = Backup::of(&origin);
    for (table, is_partial) in [("x.a\\b", false), ("x.a", false), ("x.A", true)] {
        let (_data, mut request) = backup.request(ReplayStop::End);
        request.settings.push("--sql-mode=NO_BACKSLASH_ESCAPES".into());
        request.settings.push(format!("--replicate-ignore-table={table}").into());
        origin.server.sql("INSERT INTO x.A VALUES (1)");
        let report = replay(&origin, &request, 1000, |_| {}).unwrap();
        assert_eq!(report.is_partial, is_partial, "{table}");
    }
}

/// What sessions can set for themselves, and statements that log other than they are written.
#[test]
fn what_a_session_sets_for_itself_is_replayed() {
    for format in ["ROW", "MIXED"] {
        let origin =
            Origin::start(&["--binlog-row-image=MINIMAL", &format!("--binlog-format={format}")]);
        origin.server.sql(
            "CREATE DATABASE x; USE x; CREATE TABLE t (i INT PRIMARY KEY, v INT, w INT) ENGINE=InnoDB;
             CREATE TABLE h (i INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING; CREATE TABLE log (i INT);
             CREATE TABLE c (i INT PRIMARY KEY, CHECK (i < 5)); CREATE TABLE k (i INT, FOREIGN KEY (i) REFERENCES t (i));
             CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW INSERT INTO log VALUES (NEW.i);
             CREATE SEQUENCE q CACHE 10; SELECT NEXTVAL(q); INSTALL SONAME 'simple_password_check';
             SET GLOBAL simple_password_check_digits = 0, simple_password_check_letters_same_case = 0,
             simple_password_check_other_characters = 0, simple_password_check_minimal_length = 1",
        );
        let backup = Backup::of(&origin);
        origin.server.sql(
            "USE x; INSERT INTO t VALUES (1, 1, 1), (2, 2, 2); UPDATE t SET v = 7 WHERE i = 1; DELETE FROM t WHERE i = 2;
             INSERT INTO h VALUES (1, 1); UPDATE h SET v = 2; DELETE FROM h;
             SET system_versioning_insert_history = ON;
             INSERT INTO h (i, v, row_start, row_end) VALUES (9, 9, '2001-01-01 00:00:00', '2002-01-01 00:00:00');
             SET system_versioning_insert_history = OFF;
             SET timestamp = 1600000000; INSERT INTO h VALUES (5, 5); SET timestamp = 1600000001; UPDATE h SET v = 6;
             SET timestamp = DEFAULT;
             SET check_constraint_checks = OFF; INSERT INTO c VALUES (77); SET check_constraint_checks = ON;
             SET foreign_key_checks = OFF; INSERT INTO k VALUES (88); SET foreign_key_checks = ON;
             CREATE TABLE s SELECT * FROM t; CREATE OR REPLACE TABLE s SELECT i FROM t;
             INSERT INTO t VALUES (3, NEXTVAL(q), 0); SELECT NEXTVAL(q) FROM seq_1_to_30;
             SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES'; CREATE TABLE z (i INT AUTO_INCREMENT PRIMARY KEY, v TEXT);
             INSERT INTO z VALUES (0, 'a\\b'); SET sql_mode = DEFAULT; SET insert_id = 40; INSERT INTO z (v) VALUES ('c');
             SET time_zone = '+05:00'; CREATE TABLE y (d TIMESTAMP, e DATETIME); INSERT INTO y VALUES (NOW(), NOW());
             SET auto_increment_increment = 7, auto_increment_offset = 3; INSERT INTO z (v) VALUES ('d'), ('e');
             SET innodb_strict_mode = OFF; CREATE TABLE f (i INT) ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8 ENGINE=InnoDB;
             INSERT INTO f VALUES (1); CREATE USER short IDENTIFIED BY 'x'",
        );
        let (data, request) = backup.request(ReplayStop::End);
        let report = replay(&origin, &request, 1000, |_| {}).unwrap();
        assert_eq!(report.retried, None);
        let copy = MariaDb::start_on(data.path());
        assert_eq!(copy.checksums("x"), origin.server.checksums("x"), "{format}");
        let history =
            "SELECT i, v, row_start, row_end FROM x.h FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3, 4";
        assert_eq!(copy.sql(history), origin.server.sql(history), "{format}");
        let next = "SELECT next_not_cached_value FROM x.q";
        assert_eq!(copy.sql(next), origin.server.sql(next), "{format}");
    }
}

#[test]
fn a_dropped_table_is_left_out_or_never_reached() {
    let origin = Origin::start(&["--log-bin-compress=ON", "--log-bin-compress-min-len=10"]);
    origin.server.sql(BEFORE);
    origin.server.sql("XA ROLLBACK 'open before'");
    let backup = Backup::of(&origin);
    load(&origin, 1..4, 40);
    let before = origin.server.checksums("x");
    origin.server.sql("DROP TABLE x1.m");
    let dropped: Gtid = origin.gtids().parse().unwrap();
    let at = origin.position();
    origin.server.sql("CREATE TABLE x1.later (i INT); INSERT INTO x1.later VALUES (1)");

    let (data, request) = backup.request(ReplayStop::Before(dropped.into()));
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    let GtidState::MariaDb(gtids) = &report.gtids else { panic!("{report:?}") };
    assert_eq!(gtids.get(0).unwrap().sequence, dropped.sequence - 1);
    assert_eq!(MariaDb::start_on(data.path()).checksums("x"), before);

    let (_data, mut request) = backup.request(ReplayStop::End);
    request.plan.leave_out = BTreeSet::from([dropped.into()]);
    let error = replay(&origin, &request, 1000, |_| {}).unwrap_err();
    assert!(
        error.is_data_untouched() && error.to_string().contains(&dropped.to_string()),
        "{error}"
    );
    request.plan.may_leave_out_ddl = true;
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!((report.left_out, report.later), (1, 2));
    let sums = MariaDb::start_on(&request.data).checksums("x");
    assert_eq!(sums.get("x1.m"), before.get("x1.m"));
    assert_eq!(sums.get("x1.later"), origin.server.checksums("x").get("x1.later"));

    // Nothing at all.
    let (data, request) = backup.request(ReplayStop::At(backup.position.clone()));
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!((report.transactions, report.position), (0, backup.position.clone()));
    let copy = MariaDb::start_on(data.path());
    assert_eq!(copy.sql("SELECT @@gtid_slave_pos"), format!("{}\n", backup.gtids));
    assert_eq!(copy.sql("SELECT COUNT(*) FROM x1.t"), "0\n");

    // Nothing after it, so that only the position moves on.
    let (log, offset) = at.split_once(':').unwrap();
    let stop = ReplayStop::At(LogPosition::new(log, offset.parse().unwrap()).unwrap());
    let (data, mut request) = backup.request(stop);
    request.plan.leave_out = BTreeSet::from([dropped.into()]);
    request.plan.may_leave_out_ddl = true;
    let report = replay(&origin, &request, 1000, |_| {}).unwrap();
    assert_eq!((report.position.to_string(), report.left_out), (at, 1));
    assert_eq!(MariaDb::start_on(data.path()).checksums("x"), before);
}

/// The commits, in their order, from the statements in the log.
#[test]
fn any_stop_is_a_prefix_of_the_commits() {
    const STOPS: u64 = 20;
    let origin = Origin::start(&["--max-binlog-size=65536"]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.t (c INT, n INT, PRIMARY KEY (c, n)) ENGINE=InnoDB;
         CREATE TABLE x.m (c INT, n INT) ENGINE=MyISAM",
    );
    let backup = Backup::of(&origin);
    std::thread::scope(|scope| {
        for client in 1..=4 {
            let server = &origin.server;
            let work: String = (1..400)
                .map(|n| {
                    let table = if n % 10 == 0 { "m" } else { "t" };
                    // Clocks that jump.
                    let time = 1_700_000_000 + (n * 7919 * client) % 1000;
                    format!(
                        "SET timestamp = {time}; INSERT INTO x.{table} VALUES ({client}, {n});\n"
                    )
                })
                .collect();
            scope.spawn(move || server.sql(&work));
        }
    });
    let commits = origin.commits(&backup);
    assert_eq!(commits.len(), 4 * 399);
    for number in 0..STOPS {
        // Spread over all of them, in no order.
        let last = usize::try_from((number * 7919 + 13) % commits.len() as u64).unwrap();
        let stop = match number % 3 {
            0 => ReplayStop::After(commits[last].0.clone()),
            1 => ReplayStop::Before(commits[last + 1].0.clone()),
            _ => ReplayStop::At(commits[last].1.clone()),
        };
        let (data, mut request) = backup.request(stop.clone());
        request.threads = u32::try_from(number % 5).unwrap();
        let report = replay(&origin, &request, 1 + 997 * last, |_| {}).unwrap();
        assert_eq!((report.transactions, &report.position), (last as u64 + 1, &commits[last].1));
        let mut expected: Vec<&str> =
            commits[..=last].iter().map(|(_, _, row)| row.as_str()).collect();
        expected.sort_unstable();
        let copy = MariaDb::start_on(data.path());
        let rows = copy.sql(
            "SELECT CONCAT('t (', c, ', ', n, ')') FROM x.t UNION ALL SELECT CONCAT('m (', c, ', ', n, ')')
             FROM x.m",
        );
        let mut rows: Vec<&str> = rows.lines().collect();
        rows.sort_unstable();
        assert_eq!(rows, expected, "{stop}");
    }
}

#[test]
fn a_transaction_that_cannot_be_applied_is_named_and_never_skipped() {
    let origin = Origin::start(&[]);
    origin.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.t (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO x.t VALUES (1)",
    );
    let backup = Backup::of(&origin);
    origin.server.sql("INSERT INTO x.t VALUES (2); INSERT INTO x.t VALUES (3)");
    origin.server.sql("DELETE FROM x.t WHERE id = 1");
    let failing = origin.gtids();
    origin.server.sql("INSERT INTO x.t VALUES (4)");
    let (data, request) = backup.request(ReplayStop::End);
    // Other data than that of the backup.
    let copy = MariaDb::start_on(data.path());
    copy.sql("DELETE FROM x.t");
    drop(copy.shut_down());
    let mut serially = false;
    let error = replay(&origin, &request, 1000, |progress| {
        serially |= progress == Progress::Serially;
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ReplayError::Transaction { .. }) && serially, "{text}");
    for part in [&*failing, "on x.t", "DELETE FROM x.t WHERE id = 1", "error 1032", "again"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!error.is_data_untouched());
    let again = replay(&origin, &request, 1000, |_| {}).unwrap_err();
    assert!(matches!(again, ReplayError::Interrupted(_)), "{again}");
}

#[test]
fn a_log_that_does_not_fit_changes_nothing() {
    let origin = Origin::start(&[]);
    origin.server.sql("CREATE DATABASE x; CREATE TABLE x.t (id INT PRIMARY KEY) ENGINE=InnoDB");
    let early = Backup::of(&origin);
    origin.server.sql("INSERT INTO x.t VALUES (1)");
    let backup = Backup::of(&origin);
    origin.server.sql("INSERT INTO x.t VALUES (2); FLUSH BINARY LOGS; INSERT INTO x.t VALUES (3)");
    let (data, request) = backup.request(ReplayStop::End);
    let before = backup.listing();
    let refused = |request: &_| {
        let error = replay(&origin, request, 1000, |_| {}).unwrap_err();
        assert!(error.is_data_untouched(), "{error}");
        assert_eq!(Backup::listing_of(data.path()), before);
        error.to_string()
    };
    // One transaction too early: the data has it.
    let mut other = request.clone();
    other.position = early.position.clone();
    assert!(refused(&other).contains("already in the data"));
    // The logs begin behind the position of the data.
    let mut other = request.clone();
    other.position = early.position.clone();
    other.plan.start = early.gtids.clone();
    let error = origin::replay_from(&origin, &backup.position, &other).unwrap_err();
    assert!(matches!(error, ReplayError::Gap { .. }), "{error}");
    let mut other = request.clone();
    other.plan.stop = ReplayStop::After("0-1-999".parse().unwrap());
    assert!(refused(&other).contains("0-1-999"));
    let mut other = request.clone();
    other.programs = vec!["/no/such/program".into()];
    assert!(refused(&other).contains("/no/such/program"));
    std::fs::write(data.path().join("x/t.isl"), "/elsewhere/t.ibd").unwrap();
    let error = replay(&origin, &request, 1000, |_| {}).unwrap_err();
    assert!(matches!(error, ReplayError::Outside(_)), "{error}");
}
