//! Backups of a real MariaDB server, restored to transactions of its archived binary log.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use xb_backup::{ArchiveFacts, ArchiveReport, BackupError, KeySlots, Keys, Notice, verify_archive};
use xb_encryptor::KeyBytes;
use xb_repo::archive::stream::StreamOrigin;
use xb_repo::resolve::KnownManifests;
use xb_testkit::command::Cmd;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::tools::find;

use crate::support::logged_shop::{
    KEY, ROWS, Receiver, Shop, age, block_on, copy_folder, into, newest_stream, segments,
};

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

#[test]
fn a_backup_is_restored_to_any_transaction() {
    let shop = Shop::new();
    shop.server.sql("INSERT INTO d.t VALUES (1, 'before the backup')");
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    let after_full = shop.rows();
    // Times of their own, so that nothing has to wait: at most 5 s ahead of the receiver's clock.
    let began = shop.now() + 1;
    shop.server.sql(&format!(
        "SET timestamp = {began}; INSERT INTO d.t VALUES (2, 'two'); INSERT INTO d.m VALUES (2)"
    ));
    let (second, at_second, rows_second) = (shop.gtid(), shop.position(), shop.rows());
    shop.server.sql(&format!(
        "FLUSH BINARY LOGS; SET timestamp = {}; BEGIN; INSERT INTO d.t VALUES (3, 'three');
         UPDATE d.t SET v = 'changed' WHERE id = 1; COMMIT",
        began + 1
    ));
    let (third, rows_third) = (shop.gtid(), shop.rows());
    shop.server.sql(&format!("SET timestamp = {}; DELETE FROM d.t", began + 2));
    let bad = shop.gtid();
    shop.server.sql(&format!("SET timestamp = {}; INSERT INTO d.t VALUES (4, 'four')", began + 3));
    let rows_fourth = shop.rows();
    shop.wait_for(&receiver);
    receiver.stop();
    let missing = shop.restore("no_such", "latest", &["--dry-run"]).run().expect(3).stderr_text();
    assert!(missing.contains("there is no complete backup no_such"), "{missing}");
    for (stop, expected) in [
        (format!("before:{bad}"), &rows_third),
        (third.clone(), &rows_third),
        (time(began + 1), &rows_third),
        (second.clone(), &rows_second),
        (at_second.clone(), &rows_second),
        ("latest".to_owned(), &rows_fourth),
    ] {
        let (rows, ran) = shop.restored("latest", &stop, &[]);
        assert_eq!(rows, *expected, "{stop}: {}", ran.stderr_text());
    }
    // Without a name, the newest one that fits.
    let ran = shop.restore("", &third, &["--dry-run"]).run().expect(0);
    assert!(ran.stdout_text().contains("backup full at "), "{}", ran.stdout_text());
    // Everything but the mistake.
    let (rows, ran) = shop.restored("full", "latest", &[&format!("--exclude-gtid={bad}")]);
    let expected = rows_third.replace("three\n", "three\n4\tfour\n");
    assert_eq!(rows, expected, "{}", ran.stderr_text());
    assert_ne!(after_full, rows_second);
    // Both neighbours of the stop are shown, and nothing is written.
    let dry = shop.restore("latest", &format!("before:{bad}"), &["--dry-run"]).run().expect(0);
    let text = dry.stdout_text();
    for part in ["backup full at bin.0", &format!("last transaction: {third}"), "d.t"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(&format!("first one after the stop: {bad}")), "{text}");
    assert!(text.contains("DELETE FROM d.t"), "{text}");

    // A stop that cannot be reached is refused before anything is written.
    let (log, offset) = at_second.rsplit_once(':').unwrap();
    let inside = format!("{log}:{}", offset.parse::<u64>().unwrap() - 10);
    for (stop, part) in [
        ("2026-11-20T14:02:59".to_owned(), "is not a stop"),
        ("2099-01-01T00:00:00Z".to_owned(), "does not reach"),
        ("0-3-9999".to_owned(), "does not reach"),
        (inside, "lies within transaction"),
        (time(began - 3600), "the first moment that can be reached is the end of full, 20"),
    ] {
        let text = shop.refused("full", &stop, &[]);
        assert!(text.contains(part), "{stop}: {text}");
    }
    let text = shop.refused("latest", &time(began - 3600), &[]);
    assert!(text.contains("before all backups of shop") && text.contains("full, 20"), "{text}");
    let text = shop.refused("full", "latest", &["--exclude-gtid=0-3-9999"]);
    assert!(text.contains("is not in the log"), "{text}");
}

/// Its data has no other tables, and a restore without them is not the server.
#[test]
fn a_partial_backup_is_no_base_unless_it_is_named() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql(
        "CREATE DATABASE other; CREATE TABLE other.t (i INT); INSERT INTO d.t VALUES (1, 'one')",
    );
    let put = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", "--quiet", &shop.place("part"), "--server=shop"])
        .arg(format!("--state-dir={}", shop.scratch.join("state").display()))
        .args(shop.key())
        .arg("--")
        .args(shop.server.backup_command())
        .arg("--databases=d mysql sys performance_schema");
    let _ = put.run().expect(0);
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two'); INSERT INTO other.t VALUES (1)");
    shop.wait_for(&receiver);
    receiver.stop();
    let planned =
        |name: &str| shop.restore(name, "latest", &["--dry-run"]).run().expect(0).stdout_text();
    assert!(planned("latest").contains("backup full at "), "{}", planned("latest"));
    let named = planned("part");
    assert!(
        named.contains("backup part at ") && named.contains("the backup is partial"),
        "{named}"
    );
}

/// A session may set numbers back, unless `gtid_strict_mode` is on.
#[test]
fn a_gtid_that_two_transactions_have_is_no_stop() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    let insert = |number: u64, id: u32| {
        let rows = format!("INSERT INTO d.t VALUES ({id}, 'x')");
        let begin = shop.position();
        shop.server.sql(&format!("SET gtid_seq_no = {number}; {rows}"));
        (shop.gtid(), begin, shop.position())
    };
    let _ = insert(1001, 1);
    let (twice, begin, end) = insert(1002, 2);
    shop.server.sql("FLUSH BINARY LOGS");
    let _ = insert(1001, 3);
    let _ = shop.back_up("late", &[]);
    let (again, second, _) = insert(1002, 4);
    let (once, ..) = insert(1003, 5);
    assert_eq!(twice, again);
    shop.wait_for(&receiver);
    receiver.stop();
    let (_, offset) = end.rsplit_once(':').unwrap();
    for stop in [twice.clone(), format!("before:{twice}")] {
        let told = shop.refused("full", &stop, &[]);
        let both = format!("have the GTID {twice}: {begin} to {offset}, and {second} to ");
        assert!(told.contains(&both) && told.contains("--until=FILE:POSITION"), "{told}");
    }
    // A position is exact, and so is a number that was given once.
    let (rows, _) = shop.restored("full", &end, &[]);
    assert!(rows.contains("2\tx") && !rows.contains("3\tx"), "{rows}");
    for (backup, stop, is_told) in
        [("full", &once, false), ("late", &once, false), ("late", &twice, true)]
    {
        let planned = shop.restore(backup, stop, &["--dry-run"]).run().expect(0).stdout_text();
        let told = planned.contains("a second transaction may also have the GTID");
        assert_eq!(told, is_told, "{backup} {stop}: {planned}");
    }
}

#[test]
fn a_chain_and_a_definition_are_replayed() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let _ = shop.back_up("inc", &["--incremental-from=full"]);
    shop.server.sql(
        "CREATE TABLE d.new (id INT) ENGINE=Aria; INSERT INTO d.new VALUES (1);
         CREATE USER u IDENTIFIED BY 'secret'; GRANT SELECT ON d.* TO u; DROP TABLE d.m",
    );
    let dropped = shop.gtid();
    // A transaction of several segments, which are cut within its events.
    shop.server.sql(
        "BEGIN; INSERT INTO d.t VALUES (2, REPEAT('large', 4 << 20)); UPDATE d.t SET v = UPPER(v);
         COMMIT; INSERT INTO d.new VALUES (2)",
    );
    shop.wait_for(&receiver);
    receiver.stop();
    let text = shop.refused("latest", "latest", &[&format!("--exclude-gtid={dropped}")]);
    assert!(text.contains("--exclude-ddl"), "{text}");
    let target = shop.scratch.join("new");
    let words = [&format!("--exclude-gtid={dropped}"), "--exclude-ddl", &into(&target)];
    let ran = shop.restore("latest", "latest", &words).run().expect(0);
    assert!(ran.stderr_text().contains("backup inc at"), "{}", ran.stderr_text());
    // Run again, it finds that everything is done.
    let ran = shop.restore("latest", "latest", &words).run().expect(0);
    assert!(ran.stderr_text().contains("has finished everything"), "{}", ran.stderr_text());
    let position = std::fs::read_to_string(target.join("xtrabackup_binlog_info")).unwrap();
    assert!(position.contains(&shop.gtid()), "{position}");
    assert!(!target.join("xtrabackup_binlog_pos_innodb").exists());
    let server = MariaDb::start_on_with(&target, &["--server-id=99"]);
    assert_eq!(server.sql("SELECT id FROM d.t; SELECT id FROM d.new"), "1\n2\n1\n2\n");
    assert_eq!(server.checksums("d")["d.t"], shop.server.checksums("d")["d.t"]);
    assert_eq!(server.sql("SELECT COUNT(*) FROM d.m"), "0\n");
    assert!(server.sql("SHOW GRANTS FOR u").contains("`d`"));
    server.check_tables("d");
}

#[test]
fn statements_are_replayed_in_the_local_time_and_with_the_settings_of_their_server() {
    // As a rule, which needs no files of time zones.
    let words = ["--ft-min-word-len=2", "--innodb-ft-min-token-size=2"];
    let options = [
        "TZ=CET-1CEST,M3.5.0,M10.5.0/3",
        "--div-precision-increment=9",
        "--binlog-format=MIXED",
        "--sysdate-is-now",
        "--max-allowed-packet=1M",
        "--aria-page-checksum=OFF",
    ];
    let shop = Shop::with_options(&[&options[..], &words].concat());
    shop.server.sql(
        "SET GLOBAL ft_boolean_syntax = ' +-><()~*:\"\"&|';
         CREATE TABLE d.z (id INT PRIMARY KEY, local DATETIME, part DECIMAL(20, 12), past TIMESTAMP NULL);
         CREATE TABLE d.i (id INT PRIMARY KEY, w TEXT, FULLTEXT (w)) ENGINE=InnoDB;
         CREATE TABLE d.a (id INT PRIMARY KEY, w TEXT, FULLTEXT (w)) ENGINE=Aria",
    );
    let _ = shop.back_up("full", &[]);
    // Winter, and the seconds before and at the beginning of summer.
    for (id, time) in [1_767_225_600, 1_774_745_999, 1_774_746_000].iter().enumerate() {
        shop.server
            .sql(&format!("SET timestamp = {time}; INSERT INTO d.z VALUES ({id}, NOW(), 1 / 3, '199{id}-07-01 12:00:00')"));
    }
    shop.server.sql(
        "INSERT INTO d.i VALUES (1, 'ab'), (2, 'other'), (3, 'more'); INSERT INTO d.a SELECT * FROM d.i;
         ALTER TABLE d.z ADD since DATETIME NOT NULL DEFAULT NOW();
         CREATE TABLE d.s (id INT PRIMARY KEY, local DATETIME(6) DEFAULT SYSDATE(6), v LONGTEXT);
         SET sql_mode = ''; INSERT INTO d.s (id, v) VALUES (1, REPEAT('long', 1 << 19));
         CREATE TABLE d.found SELECT id FROM d.a WHERE MATCH (w) AGAINST ('ab absent' IN BOOLEAN MODE);
         CREATE TABLE d.c (i INT) ENGINE=Aria",
    );
    // The archive begins with files, which state no settings.
    let log = shop.server.datadir().join("bin.000001");
    shop.server.sql("FLUSH BINARY LOGS");
    let pushed = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "binlog", "push", &shop.place(""), "--server=shop"])
        .args(["--new-archive", log.to_str().unwrap()])
        .args(shop.key())
        .run();
    let _ = pushed.expect(0);
    let planned = shop.restore("full", "latest", &["--dry-run", "--accept-lost-end"]).run();
    let planned = planned.expect(0).stdout_text();
    assert!(planned.contains("does not record the settings of the server"), "{planned}");
    let receiver = shop.receive();
    shop.server.sql("INSERT INTO d.s (id, v) VALUES (2, '')");
    let all = "SET time_zone = '+00:00'; SELECT * FROM d.z ORDER BY id; SELECT id FROM d.i WHERE MATCH (w) AGAINST ('ab');
               SELECT id FROM d.a WHERE MATCH (w) AGAINST ('ab'); SELECT id, local, LENGTH(v) FROM d.s;
               SELECT COUNT(*) FROM d.found; SHOW CREATE TABLE d.c";
    let expected = shop.server.sql(all);
    for part in [
        "2026-01-01 01:00:00\t0.333333333000\t1990-07-01 10:00:00",
        "2026-03-29 01:59:59",
        "2026-03-29 03:00:00",
    ] {
        assert!(expected.contains(part), "{expected}");
    }
    assert!(expected.contains("\n1\n1\n1\t") && expected.contains("PAGE_CHECKSUM=0"), "{expected}");
    assert!(expected.contains("\tNULL\n2\t") && expected.contains("\t0\n0\nc\t"), "{expected}");
    shop.wait_for(&receiver);
    receiver.stop();
    let target = shop.scratch.join("elsewhere");
    let restore = shop.restore("full", "latest", &[&into(&target)]).env("TZ", "XXX5");
    let text = restore.run().expect(0).stderr_text();
    assert!(
        !text.contains("local time") && !text.contains("does not apply these settings"),
        "{text}"
    );
    assert!(
        text.contains("it is replayed with those that the server had at bin.000002:"),
        "{text}"
    );
    let server = MariaDb::start_on_with(&target, &[&["--server-id=99"], &words[..]].concat());
    assert_eq!(server.sql(all), expected, "{text}");
}

#[test]
fn what_a_server_leaves_out_of_its_log_is_said_wherever_one_looks() {
    let shop = Shop::with_options(&[
        "--binlog-ignore-db=x",
        "--binlog-format=STATEMENT",
        "--binlog-row-image=MINIMAL",
    ]);
    shop.server.sql(
        "CREATE DATABASE x; CREATE TABLE x.t (i INT);
         DELIMITER //
         CREATE FUNCTION d.f() RETURNS INT DETERMINISTIC BEGIN
             SET @calls = IFNULL(@calls, 0) + 1; INSERT INTO d.m VALUES (@calls); RETURN @calls;
         END//
         CREATE PROCEDURE d.p() BEGIN
             DECLARE f FLOAT DEFAULT 0.1; DELETE FROM d.t WHERE id = f;
         END//",
    );
    shop.server.sql("SET GLOBAL system_versioning_asof = '2020-01-01 00:00:00'");
    let reasons = [
        "(Binlog_Ignore_DB)",
        "binlog_format=STATEMENT",
        "binlog_row_image=MINIMAL",
        "(system_versioning_asof)",
    ];
    let checked = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "check", &shop.place(""), "--server=shop", "--binlog"])
        .arg(format!("--source={}", shop.server.socket().display()))
        .run();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("USE x; INSERT INTO x.t VALUES (1); USE d; INSERT INTO d.t VALUES (1, 'one')");
    // The function reads the variable, sets it, and reads it again.
    shop.server.sql("SELECT d.f()");
    shop.server.sql("SET binlog_format = MIXED; CALL d.p()");
    // Functions whose results are in no log. Changes of such a table are logged as rows.
    shop.server.sql("ALTER TABLE d.t ADD u CHAR(36) DEFAULT UUID()");
    shop.wait_for(&receiver);
    let told = receiver.told();
    receiver.stop();
    let (_, ran) = shop.restored("full", "latest", &[]);
    let planned = shop.restore("full", "latest", &["--dry-run"]).run().expect(0);
    for reason in reasons {
        let is_it =
            |notice: &Notice| matches!(notice, Notice::Doubtful(why) if why.contains(reason));
        assert!(told.iter().any(is_it), "{told:?}");
        let said = [checked.stdout_text(), ran.stderr_text(), planned.stdout_text()];
        assert!(said.iter().all(|text| text.contains(reason)), "{said:?}");
    }
    for doubt in [
        "has a user variable that the log sets twice",
        "may fill a new column",
        "variable of a stored program",
    ] {
        assert!(planned.stdout_text().contains(doubt), "{doubt}: {}", planned.stdout_text());
    }
    // The tables are in order, but no time is proven.
    let (key, place) =
        (format!("--encrypt-key-file={}", shop.scratch.join("key").display()), shop.place("full"));
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args([
            "--no-defaults",
            "verify",
            &place,
            &key,
            "--level=restore",
            "--until=latest",
            "--json",
        ])
        .run()
        .expect(0);
    let (report, told) = (ran.stdout_text(), ran.stderr_text());
    assert!(
        report.contains("proves no time") && report.contains("\"doubtful\": true"),
        "{report}{told}"
    );
    let root = shop.place("");
    let listed = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "list", root.trim_end_matches('/'), "--json"])
        .run();
    let listed = listed.expect(0).stdout_text();
    assert!(listed.contains("\"restore\"") && !listed.contains("\"proven_until\""), "{listed}");
}

/// Statements do not name them, so a replay with those of the beginning gives a table that was created later another engine.
#[test]
fn a_setting_that_is_changed_while_the_log_is_received_is_changed_by_the_replay() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    shop.wait_for(&receiver);
    let is_of_engine = |what: &String| what.contains("default_storage_engine");
    shop.server.sql("SET GLOBAL default_storage_engine = Aria");
    receiver.wait_to_tell(|notice| match notice {
        Notice::Changed(what) => Some(what).filter(is_of_engine),
        _ => None,
    });
    shop.server.sql("CREATE TABLE d.later (i INT); SET GLOBAL binlog_format = STATEMENT");
    // The stream that the first change begins may find it, too.
    receiver.wait_to_tell(|notice| match notice {
        Notice::Changed(what) | Notice::Doubtful(what) => {
            Some(what).filter(|what| what.contains("binlog_format=STATEMENT"))
        }
        _ => None,
    });
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    shop.wait_for(&receiver);
    receiver.stop();
    // No receiver sees when this is changed: what came before has the old value.
    let left = shop.position();
    shop.server.sql("CREATE TABLE d.away (i INT); SET GLOBAL default_storage_engine = MyISAM");
    let back = shop.position();
    let receiver = shop.receive();
    receiver.wait_to_tell(|notice| matches!(notice, Notice::Begins { .. }).then_some(()));
    shop.server.sql("CREATE TABLE d.back (i INT)");
    shop.wait_for(&receiver);
    receiver.stop();
    // A start of the server tells when it was, before any receiver is there.
    let Shop { server, scratch, sealed } = shop;
    let data = server.shut_down();
    let options = ["--log-bin=bin", "--server-id=3", "--default-storage-engine=Aria"];
    let server = MariaDb::start_on_with(&data.join("data"), &options);
    let shop = Shop { server, scratch, sealed };
    shop.server.sql("CREATE TABLE d.started (i INT)");
    let receiver = shop.receive();
    shop.wait_for(&receiver);
    receiver.stop();
    let target = shop.scratch.join("restored");
    let said = shop.restore("full", "latest", &[&into(&target)]).run().expect(0).stderr_text();
    let unseen = format!("default_storage_engine=\"MyISAM\" at {back} (changed after {left})");
    let started = "default_storage_engine=\"Aria\", max_allowed_packet=\"16777216\" at bin.000002:4 (changed between";
    let seen = "default_storage_engine=\"Aria\" at bin.000001:";
    for named in [seen, &unseen, started, "binlog_format=STATEMENT"] {
        assert!(said.contains(named), "{named}: {said}");
    }
    assert_eq!(said.matches("default_storage_engine").count(), 3, "{said}");
    let server = MariaDb::start_on_with(&target, &["--server-id=99"]);
    assert_eq!(server.sql("SELECT * FROM d.t"), "1\tone\n2\ttwo\n");
    let engines = "SELECT table_name, engine FROM information_schema.tables \
                   WHERE table_name IN ('away', 'back', 'later', 'started') ORDER BY 1";
    assert_eq!(server.sql(engines), "away\tAria\nback\tMyISAM\nlater\tAria\nstarted\tAria\n");
    // The operator's word holds.
    let (other, engine_is) =
        (shop.scratch.join("other"), "--mysqld-opts=--default-storage-engine=InnoDB");
    let _ = shop.restore("full", "latest", &[&into(&other), engine_is]).run().expect(0);
    assert_eq!(
        MariaDb::start_on_with(&other, &["--server-id=99"]).sql(engines),
        "away\tInnoDB\nback\tInnoDB\nlater\tInnoDB\nstarted\tInnoDB\n"
    );
}

/// The archive continues as with a promoted server: nothing is missing, and nothing is another one.
#[test]
fn a_server_id_that_is_changed_while_the_log_is_received_is_no_other_server() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    shop.wait_for(&receiver);
    shop.server.sql("SET GLOBAL server_id = 77");
    receiver.wait_to_tell(|notice| match notice {
        Notice::Changed(what) => Some(what).filter(|what| what.contains("to \"77\"")),
        _ => None,
    });
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    shop.wait_for(&receiver);
    let told = receiver.told();
    receiver.stop();
    let (rows, ran) = shop.restored("full", "latest", &[]);
    assert_eq!(rows, "1\tone\n2\ttwo\n", "{}", ran.stderr_text());
    let is_wrong = |notice: &&Notice| match notice {
        Notice::Uncovered(why) => why.is_some(),
        Notice::Begins { begins, .. } => {
            matches!(begins, StreamOrigin::Gap { .. } | StreamOrigin::Branch { .. })
        }
        _ => false,
    };
    assert_eq!(told.iter().find(is_wrong), None, "{told:?}");
}

/// A server with encrypt_binlog=ON sends its log as it was before.
#[test]
fn the_log_of_a_server_that_encrypts_it_is_replayed() {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), format!("1;{}\n", "0123456789abcdef".repeat(4))).unwrap();
    let file = format!("--file-key-management-filename={}", keys.path().display());
    let shop = Shop::with_options(&[
        "--plugin-load-add=file_key_management",
        &file,
        "--encrypt-binlog=ON",
    ]);
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql(
        "INSERT INTO d.t VALUES (1, 'one'); FLUSH BINARY LOGS; INSERT INTO d.t VALUES (2, 'two')",
    );
    shop.wait_for(&receiver);
    receiver.stop();
    let on_disk = std::fs::read(shop.server.datadir().join("bin.000001")).unwrap();
    assert!(!on_disk.windows(3).any(|part| part == b"one"), "the log is not encrypted");
    let (rows, _) = shop.restored("full", "latest", &[]);
    assert_eq!(rows, "1\tone\n2\ttwo\n");
}

#[test]
fn a_damaged_archive_is_refused_before_anything_is_written() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let insert = |id: u32| {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    };
    insert(1);
    let earlier = segments(&shop).remove(0);
    insert(2);
    let _ = shop.back_up("full", &[]);
    (3..8).for_each(insert);
    receiver.stop();
    let all = segments(&shop);
    assert!(all.len() > 6 && all[0] == earlier, "{all:?}");
    // Only the comparison of the backup's log with the archived one would read this.
    let whole = std::fs::read(&earlier).unwrap();
    let mut damaged = whole.clone();
    let end = damaged.len() - 20;
    damaged[end] ^= 1;
    std::fs::write(&earlier, damaged).unwrap();
    let (rows, _) = shop.restored("latest", "latest", &[]);
    assert_eq!(rows, shop.rows());
    std::fs::write(&earlier, whole).unwrap();
    let (second, last) = (&all[all.len() - 3], &all[all.len() - 1]);
    let keep = std::fs::read(second).unwrap();
    let mut flipped = keep.clone();
    let end = flipped.len() - 20;
    flipped[end] ^= 1;
    std::fs::write(second, &flipped).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("damaged") && text.contains("segment"), "{text}");
    std::fs::remove_file(second).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("missing"), "{text}");
    // Two that were swapped, and one in the place of another one.
    let third = &all[all.len() - 2];
    let other = std::fs::read(third).unwrap();
    for [one, two] in [[&other, &keep], [&keep, &keep], [&other, &other]] {
        std::fs::write(second, one).unwrap();
        std::fs::write(third, two).unwrap();
        let text = shop.refused("latest", "latest", &[]);
        assert!(text.contains("segment"), "{text}");
    }
    std::fs::write(second, &keep).unwrap();
    std::fs::write(third, &other).unwrap();
    let next = last.with_file_name(format!("{:012}", all.len()));
    // One that was stored again behind the end does not count.
    std::fs::copy(last, &next).unwrap();
    let planned = shop.restore("latest", "latest", &["--dry-run"]).run().expect(0).stdout_text();
    assert!(planned.contains(&format!("GTIDs {}: 5 transactions in ", shop.gtid())), "{planned}");
    std::fs::remove_file(next).unwrap();
    // A stop before it can be reached all the same.
    std::fs::remove_file(last).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("missing"), "the archive has lost its end: {text}");
    // Another key, and none.
    std::fs::write(shop.scratch.join("key"), [7; 32]).unwrap();
    let _ = shop.refused("latest", "latest", &[]);
}

/// Whoever can write to the store can put a log of his own there.
#[test]
fn a_log_without_a_seal_is_refused_where_a_key_is_given() {
    let shop = Shop::new();
    let receiver = Receiver::start(&shop.scratch, &[shop.server.socket()], false);
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    shop.wait_for(&receiver);
    receiver.stop();
    let unproven = "it is not sealed, but a key was given";
    let text = shop.refused("full", "latest", &[]);
    assert!(text.contains(unproven) && text.contains("--accept-unsealed"), "{text}");
    let verify = |key: Option<String>| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "binlog", "verify", shop.place("").trim_end_matches('/')])
            .args(key)
            .run()
    };
    let text = verify(shop.key()).expect(7).stdout_text();
    assert!(text.contains(unproven), "{text}");
    let _ = verify(None).expect(0);
    let accepted = ["--accept-unsealed", "--dry-run"];
    let _ = shop.restore("full", "latest", &accepted).run().expect(0);
}

#[test]
fn an_archive_that_may_have_lost_its_end_is_not_restored_to_its_latest() {
    use xb_repo::archive::record::{FORMAT, Record};
    use xb_repo::archive::stream::{Alive, StoredPosition};

    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    shop.wait_for(&receiver);
    let (first, rows_first) = (shop.gtid(), shop.rows());
    shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (2, 'two')");
    shop.wait_for(&receiver);
    receiver.stop();
    let stream = newest_stream(&shop);
    let whole = std::fs::read(stream.join("alive")).unwrap();
    // An attacker with write access to the store removes the last log, and the records of it.
    let last = segments(&shop);
    let (kept, removed) = last.split_at(last.len() - 2);
    for file in removed {
        std::fs::remove_file(file).unwrap();
    }
    std::fs::remove_file(stream.join("alive")).unwrap();
    std::fs::remove_file(stream.join("end")).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("may have been removed"), "{text}");
    assert!(text.contains("--accept-lost-end"), "{text}");
    // Or writes another record, without the key.
    let id = stream.file_name().unwrap().to_str().unwrap();
    let forged = Alive {
        format: FORMAT,
        stream: id.to_owned(),
        segments: kept.len() as u64,
        head: "0".repeat(64),
        position: StoredPosition { log: "bin.000001".into(), offset: 4 },
        covered_until: Some(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(2)),
        acknowledged: None,
        written: jiff::Timestamp::now(),
        trouble: None,
    };
    std::fs::write(stream.join("alive"), Record::encode(&forged, None).unwrap()).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("may have been removed"), "{text}");
    // Nor does it tell that nothing happened until now.
    let text = shop.refused("latest", &time(shop.now() + 3600), &[]);
    assert!(text.contains("does not reach"), "{text}");
    let keys = Keys { key: Some(KeyBytes::new(KEY).unwrap()), ..Keys::default() };
    let report = verified(&shop, facts(&keys, None)).unwrap();
    assert!(!report.is_undamaged(), "{report:#?}");
    std::fs::remove_file(stream.join("alive")).unwrap();
    let listed = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "binlog", "list", shop.place("").trim_end_matches('/')])
        .run()
        .expect(0)
        .stdout_text();
    assert!(listed.contains("if nothing was removed after it"), "{listed}");
    // The archived part can be reached, and the rest is left, on demand.
    let (rows, _) = shop.restored("latest", &first, &[]);
    assert_eq!(rows, rows_first);
    let (rows, _) = shop.restored("latest", "latest", &["--accept-lost-end"]);
    assert_eq!(rows, rows_first);
    // A record of more segments than there are.
    std::fs::write(stream.join("alive"), whole).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("missing"), "{text}");
}

#[test]
fn a_replay_whose_end_was_not_noted_is_finished_by_the_same_command() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let at = shop.gtid();
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    shop.wait_for(&receiver);
    receiver.stop();
    let target = shop.scratch.join("new");
    let mut running = shop.restore("latest", "latest", &[&into(&target)]).spawn();
    running.until("the replay begins", || target.join("#sql-xb-replay").exists());
    let lock = std::fs::File::open(&target).unwrap().try_lock();
    assert!(lock.is_err(), "another run may change the files during the replay");
    // The replay is proven, but its end cannot be noted, as if the program were killed then.
    std::fs::create_dir(target.join("xb_until.json")).unwrap();
    let ran = running.wait();
    assert_ne!(ran.code(), 0);
    assert!(ran.stderr_text().contains("run the same command again"), "{}", ran.stderr_text());
    std::fs::remove_dir(target.join("xb_until.json")).unwrap();
    let place = into(&target);
    for dry in [&[][..], &["--dry-run"]] {
        let words = [dry, &[&*place]].concat();
        let other = shop.restore("latest", &at, &words).run();
        assert_ne!(other.code(), 0);
        assert!(other.stderr_text().contains("another backup or stop"), "{}", other.stderr_text());
    }
    let planned = || {
        let ran = shop.restore("latest", "latest", &[&into(&target), "--dry-run"]).run();
        ran.expect(0).stdout_text()
    };
    assert!(planned().contains("only its end is left to be recorded"), "{}", planned());
    let ran = shop.restore("latest", "latest", &[&into(&target)]).run().expect(0);
    assert!(ran.stderr_text().contains("has replayed everything"), "{}", ran.stderr_text());
    assert!(planned().contains("has finished everything"), "{}", planned());
    assert!(ran.stderr_text().contains("begins a new history"), "{}", ran.stderr_text());
    let position = std::fs::read_to_string(target.join("xtrabackup_binlog_info")).unwrap();
    assert!(position.contains(&shop.gtid()), "{position}");
    assert!(target.join("xb_until.json").is_file() && !target.join("#sql-xb-replay").exists());
    let ran = shop.restore("latest", "latest", &[&into(&target)]).run().expect(0);
    assert!(ran.stderr_text().contains("has finished everything"), "{}", ran.stderr_text());
    let server = MariaDb::start_on_with(&target, &["--server-id=99"]);
    assert_eq!(server.sql(ROWS), shop.rows());
}

#[test]
fn data_that_a_server_has_changed_after_its_replay_is_left_alone() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    shop.wait_for(&receiver);
    receiver.stop();
    let target = shop.scratch.join("new");
    let mut running = shop.restore("latest", "latest", &[&into(&target)]).spawn();
    running.until("the replay begins", || target.join("#sql-xb-replay").exists());
    std::fs::create_dir(target.join("xb_until.json")).unwrap();
    assert_ne!(running.wait().code(), 0);
    std::fs::remove_dir(target.join("xb_until.json")).unwrap();
    let server = MariaDb::start_on_with(&target, &["--server-id=99"]);
    server.sql("INSERT INTO d.t VALUES (7, 'of its own')");
    drop(server);
    let place = into(&target);
    for dry in [&[][..], &["--dry-run"]] {
        let words = [dry, &[&*place]].concat();
        let ran = shop.restore("latest", "latest", &words).run();
        assert_ne!(ran.code(), 0);
        assert!(ran.stderr_text().contains("has written to it since"), "{}", ran.stderr_text());
        assert!(ran.stderr_text().contains("remove the target"), "{}", ran.stderr_text());
    }
}

#[test]
fn a_dry_run_says_that_a_restore_has_to_be_repeated() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    shop.wait_for(&receiver);
    receiver.stop();
    let target = shop.scratch.join("new");
    let place = into(&target);
    let run = |more: &[&str]| shop.restore("latest", "latest", &[more, &[&*place]].concat());
    let planned = run(&["--dry-run"]).run().expect(0).stdout_text();
    assert!(planned.contains("backup full at ") && !planned.contains("earlier run"), "{planned}");
    // A server that never answers.
    let real = find("mariadbd").display().to_string();
    let text = format!("case $* in *--version*) exec {real} \"$@\";; esac\nexec sleep 300\n");
    let server = format!("--mysqld={}", program(&shop, "silent", &text));
    let mut running = run(&[&server]).spawn();
    running.until("the replay begins", || target.join("#sql-xb-replay/begun").exists());
    running.kill_9();
    let _ = running.wait();
    let told = run(&["--dry-run"]).run().expect_failure();
    assert!(told.stdout_text().contains("backup full at "), "{}", told.stdout_text());
    let next =
        "remove the target directory, and run the restore again: it begins anew with the backup";
    for text in [told.stderr_text(), run(&[]).run().expect_failure().stderr_text()] {
        assert!(
            text.contains("an earlier replay was interrupted") && text.contains(next),
            "{text}"
        );
    }
    std::fs::remove_dir_all(&target).unwrap();
    let planned = run(&["--dry-run"]).run().expect(0).stdout_text();
    assert!(!planned.contains("earlier run"), "{planned}");
    let _ = run(&[]).run().expect(0);
}

/// Writes a program of these lines of the shell.
fn program(shop: &Shop, name: &str, lines: &str) -> String {
    let path = shop.scratch.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_backup_whose_position_is_wrong_is_named() {
    use xb_repo::manifest::Manifest;

    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    shop.wait_for(&receiver);
    receiver.stop();
    let verify = || verified(&shop, facts(&Keys::default(), None));
    let report = verify().unwrap();
    assert!(report.is_undamaged() && !report.has_gap(), "{report:#?}");
    let path = shop.scratch.join("shop/.xb-catalog/full");
    let good = std::fs::read(&path).unwrap();
    let manifest = Manifest::decode(&good).unwrap().manifest;
    let noted = manifest.source.binlog_pos.clone().unwrap();
    let (offset, gtids) = (noted.position().unwrap().offset(), noted.gtids().unwrap().to_string());
    let (domain, sequence) = gtids.rsplit_once('-').unwrap();
    let next = format!("{domain}-{}", sequence.parse::<u64>().unwrap() + 1);
    for (from, to, what) in [
        (offset.to_string(), (offset - 10).to_string(), "is not a boundary of events"),
        (gtids.clone(), next, "but there the archive has"),
    ] {
        let text = noted.as_str().replace(&format!("'{from}'"), &format!("'{to}'"));
        let mut moved = manifest.clone();
        moved.source.binlog_pos = Some(text.into());
        std::fs::write(&path, moved.encode(None).unwrap()).unwrap();
        let report = verify().unwrap();
        let named = report.problems.iter().any(|problem| problem.contains(what));
        assert!(named && !report.is_undamaged(), "{what}: {report:#?}");
    }
}

/// Only its log shows that a backup does not fit.
#[test]
fn a_newest_backup_that_does_not_fit_the_archive_is_passed_over() {
    use xb_repo::manifest::Manifest;

    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let _ = shop.back_up("old", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    let _ = shop.back_up("new", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (3, 'three')");
    shop.wait_for(&receiver);
    receiver.stop();
    let path = shop.scratch.join("shop/.xb-catalog/new");
    let mut manifest = Manifest::decode(&std::fs::read(&path).unwrap()).unwrap().manifest;
    let noted = manifest.source.binlog_pos.clone().unwrap();
    let offset = noted.position().unwrap().offset();
    let text = noted.as_str().replace(&format!("'{offset}'"), &format!("'{}'", offset - 10));
    manifest.source.binlog_pos = Some(text.into());
    // Without the digest of its log, which tells at once.
    manifest.history.as_mut().unwrap().binlog = None;
    std::fs::write(&path, manifest.encode(None).unwrap()).unwrap();
    let refused = shop.refused("new", "latest", &[]);
    assert!(refused.contains("new does not fit the archive"), "{refused}");
    let said = shop.restore("", "latest", &["--dry-run"]).run().expect(0);
    let said = said.stdout_text() + &said.stderr_text();
    let told = "skipped a newer backup, new, because it does not fit the archive: ";
    assert!(said.contains(told) && said.contains("old"), "{said}");
}

#[test]
fn a_domain_that_is_numbered_anew_limits_how_far_a_backup_is_restored() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let of_domain = |id: u32| {
        shop.server.sql(&format!("SET gtid_domain_id = 7; INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    };
    of_domain(1);
    of_domain(2);
    let _ = shop.back_up("full", &[]);
    shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (3, 'x')");
    shop.wait_for(&receiver);
    let before = shop.position();
    let log = before.split(':').next().unwrap();
    // InnoDB needs a log for a moment.
    while !shop.server.sql("SHOW BINARY LOGS").starts_with(log) {
        shop.server.sql(&format!("PURGE BINARY LOGS TO '{log}'"));
    }
    shop.server.sql("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (7)");
    of_domain(4);
    let _ = shop.back_up("late", &[]);
    of_domain(5);
    receiver.stop();
    let anew = "restarted the numbering of domain 7";
    let report = verified(&shop, facts(&Keys::default(), None)).unwrap();
    let problem = |name: &str| {
        let window = report.backups.iter().find(|window| window.backup == name).unwrap();
        window.problem.clone().unwrap_or_default()
    };
    assert!(report.has_gap() && problem("full").contains(anew), "{report:#?}");
    assert_eq!(problem("late"), "");
    let refused = shop.refused("full", "latest", &[]);
    assert!(refused.contains(anew) && refused.contains("take one now"), "{refused}");
    let _ = shop.restore("full", &before, &["--dry-run"]).run().expect(0);
    let (rows, _) = shop.restored("late", "latest", &[]);
    assert_eq!(rows, shop.rows());
}

/// What is found in the archive by these facts.
fn verified(shop: &Shop, facts: ArchiveFacts<'_>) -> Result<ArchiveReport, BackupError> {
    let mut known = KnownManifests::default();
    block_on(verify_archive(&shop.session(), "shop", facts, &mut known))
}

/// The facts against which an archive is verified.
fn facts<'a>(keys: &'a Keys, state: Option<&'a Path>) -> ArchiveFacts<'a> {
    ArchiveFacts { keys, state, kept_within: None }
}

/// Writes a roll-up of these heads.
fn roll_up(folder: &Path, heads: &[Vec<u8>]) {
    use xb_pipeline::filter::{SealFile, write_stream};

    let slots = KeySlots::default();
    let compress = "zstd".parse().unwrap();
    let settings = SealFile { key_slots: &slots, compress, threads: 1, raw: true };
    let (mut object, text) = (Vec::new(), std::io::Cursor::new(heads.concat()));
    let observer = xb_pipeline::Observer::default();
    write_stream(text, &mut object, None, &settings, &observer).unwrap();
    let span = (0, heads.len() as u64 - 1);
    std::fs::write(folder.join(xb_repo::archive::names::rollup_name(span)), object).unwrap();
}

#[test]
fn prune_removes_only_what_no_kept_backup_needs() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("one", &[]);
    for id in 1..6 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    }
    shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (6, 'x')");
    shop.wait_for(&receiver);
    let _ = shop.back_up("two", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (7, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    let true_ones = shop.scratch.join("true");
    let archive = shop.scratch.join("shop/.xb-binlog");
    copy_folder(&archive, &true_ones);
    let aged = age(&shop, 0);
    let prune = |options: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "prune", shop.place("").trim_end_matches('/')])
            .args(options)
            .run()
            .expect(0)
    };
    let all = segments(&shop);
    let (rows, _) = shop.restored("one", "latest", &[]);
    assert_eq!(rows, shop.rows());
    // A roll-up alone tells that the segments are old.
    let all_aged = shop.scratch.join("aged");
    std::fs::rename(&archive, &all_aged).unwrap();
    copy_folder(&true_ones, &archive);
    for (folder, heads) in &aged {
        roll_up(folder, heads);
    }
    let text = prune(&["--keep-last=1"]).stderr_text();
    assert!(text.contains("its head is not that of its roll-up"), "{text}");
    assert_eq!(segments(&shop), all);
    std::fs::remove_dir_all(&archive).unwrap();
    std::fs::rename(&all_aged, &archive).unwrap();
    for (folder, heads) in &aged {
        roll_up(folder, heads);
    }
    // As long as the older one is kept, its log is.
    let text = prune(&["--keep-last=2", "--yes"]).stderr_text();
    assert!(!text.contains("binary log"), "{text}");
    let text = prune(&["--keep-last=1"]).stderr_text();
    assert!(text.contains("binary log of shop: would remove"), "{text}");
    assert_eq!(segments(&shop), all);
    let text = prune(&["--keep-last=1", "--yes"]).stderr_text();
    assert!(text.contains("binary log of shop: removed"), "{text}");
    let left = segments(&shop);
    assert!(left.len() + 4 < all.len() && all.ends_with(&left), "{left:?} of {all:?}");
    // Objects that a killed prune leaves are named, and harm nothing.
    let second = left[0].parent().unwrap().join(format!("{:012}", 1));
    std::fs::write(&second, "left").unwrap();
    let report = verified(&shop, facts(&Keys::default(), None)).unwrap();
    assert!(report.is_undamaged() && !report.has_gap(), "{report:#?}");
    let remarks = report.streams[0].remarks.join("; ");
    assert!(
        remarks.contains("1 of the segments before") && remarks.contains("`prune`"),
        "{remarks}"
    );
    std::fs::remove_file(second).unwrap();
    let (rows, _) = shop.restored("latest", "latest", &[]);
    assert_eq!(rows, shop.rows());
    // The receiver continues behind it, and what is left is whole.
    let receiver = shop.receive();
    shop.server.sql("INSERT INTO d.t VALUES (8, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    let (rows, _) = shop.restored("latest", "latest", &[]);
    assert_eq!(rows, shop.rows());
    let report = verified(&shop, facts(&Keys::default(), None)).unwrap();
    assert!(report.is_undamaged() && !report.has_gap(), "{report:#?}");
    assert_eq!(report.streams.len(), 2, "{report:#?}");
    // A floor that is too high is no excuse for what a backup needs.
    let needed = &left[0];
    let floor = left[0].parent().unwrap().join("floor-000000000999");
    let below = std::fs::read_dir(left[0].parent().unwrap()).unwrap().map(|e| e.unwrap().path());
    let made = below.filter(|path| path.to_str().unwrap().contains("floor-")).max().unwrap();
    let text = std::fs::read(made).unwrap();
    let mut content =
        xb_repo::archive::record::Record::<xb_repo::archive::stream::Floor>::decode(&text)
            .unwrap()
            .content;
    content.number = 999;
    content.at.offset = 1 << 40;
    let forged = xb_repo::archive::record::Record::encode(&content, None).unwrap();
    std::fs::write(&floor, forged).unwrap();
    std::fs::remove_file(needed).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("was removed"), "{text}");
    let report = verified(&shop, facts(&Keys::default(), None)).unwrap();
    assert!(report.has_gap(), "{report:#?}");
}

#[test]
fn a_log_is_kept_only_for_as_long_as_was_asked() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("one", &[]);
    for id in 1..5 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    }
    let _ = shop.back_up("two", &[]);
    let before = segments(&shop).len();
    shop.server.sql("INSERT INTO d.t VALUES (7, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    let all = segments(&shop);
    let _ = age(&shop, all.len() - before);
    let root = shop.place("");
    let run = |words: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("--no-defaults")
            .args(words)
            .arg(root.trim_end_matches('/'))
            .run()
            .expect(0)
    };
    let prune = |within: &str| run(&["prune", "--keep-last=2", within, "--yes"]).stderr_text();
    // No backup is older than that, so that every log is needed.
    let text = prune("--keep-binlog-within=30d");
    assert!(!text.contains("binary log"), "{text}");
    assert_eq!(segments(&shop), all);
    let text = prune("--keep-binlog-within=0h");
    assert!(text.contains("binary log of shop: removed"), "{text}");
    let left = segments(&shop);
    assert!(left.len() < all.len() && all.ends_with(&left), "{left:?} of {all:?}");
    // The newest backup from before that time still reaches the end; the older one is only itself.
    let (rows, _) = shop.restored("two", "latest", &[]);
    assert_eq!(rows, shop.rows());
    let text = shop.refused("one", "latest", &[]);
    assert!(text.contains("was removed"), "{text}");
    let text = run(&["binlog", "verify", "--keep-binlog-within=0h"]).stdout_text();
    assert!(text.contains("only itself: its log was removed: logs are kept since"), "{text}");
    let text = run(&["binlog", "list"]).stdout_text();
    assert!(text.contains("was removed; the archive begins at"), "{text}");
    // A floor alone is no excuse: anyone could have written it.
    let report = verified(&shop, facts(&Keys::default(), None)).unwrap();
    assert!(report.has_gap(), "{report:#?}");
    // Nor is the rule, where no other backup has the log.
    std::fs::remove_file(shop.scratch.join("shop/.xb-catalog/two")).unwrap();
    let keys = Keys::default();
    let kept = ArchiveFacts { kept_within: Some(Duration::ZERO), ..facts(&keys, None) };
    let report = verified(&shop, kept).unwrap();
    assert!(report.has_gap(), "{report:#?}");
}

#[test]
fn a_trial_proves_the_backup_with_its_log() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    // The last one has the mark of temporary tables.
    shop.server.sql(
        "INSERT INTO d.t VALUES (1, 'one'); CREATE TABLE d.n (id INT) ENGINE=Aria;
         CREATE DATABASE gone; CREATE TABLE gone.t (id INT); DROP DATABASE gone",
    );
    shop.wait_for(&receiver);
    receiver.stop();
    let command = |words: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults"])
            .args(words)
            .arg(format!("--encrypt-key-file={}", shop.scratch.join("key").display()))
            .run()
    };
    // An option that would let errors pass is found before anything is fetched.
    let lenient = "--mysqld-opts=--slave-skip-err=all";
    let place = shop.place("full");
    let words = ["verify", &place, "--level=restore", "--until=latest"];
    let planned = shop.restore("full", "latest", &[lenient, "--dry-run"]).run();
    let tried = command(&[&words[..], &[lenient]].concat());
    assert!(planned.code() != 0 && tried.code() != 0);
    for text in
        [shop.refused("full", "latest", &[lenient]), planned.stderr_text(), tried.stderr_text()]
    {
        assert!(text.contains("slave_skip_errors=all") && text.contains("--mysqld-opts"), "{text}");
    }
    // So is a server that is not of the origin's series, or not of its kind.
    let is_replayed_by = |version: &str, more: &[&str]| {
        let server = program(
            &shop,
            &format!("mysqld-{version}"),
            &format!("echo mysqld  Ver {version} for Linux"),
        );
        let server = format!("--mysqld={server}");
        let words = [&[&*server], more].concat();
        let planned = shop.restore("full", "latest", &[&words[..], &["--dry-run"]].concat()).run();
        if planned.code() == 0 {
            return true;
        }
        let told = [planned.stderr_text(), shop.refused("full", "latest", &words)];
        let why = format!("the server program is {version}, but the backup or its log is from ");
        assert!(
            told.iter().all(|text| text.contains(&why) && text.contains("--upgrade")),
            "{told:?}"
        );
        false
    };
    assert!(!is_replayed_by("99.1.2-MariaDB", &[]));
    assert!(is_replayed_by("99.1.2-MariaDB", &["--upgrade"]));
    assert!(!is_replayed_by("10.4.9-MariaDB", &["--upgrade"]));
    assert!(!is_replayed_by("99.7.0", &["--upgrade"]));
    let count = "--check-sql=SELECT 1 / 0 FROM d.t HAVING COUNT(*) <> 1";
    let (_, key) = xb_encryptor::SigningKey::generate().unwrap();
    std::fs::write(shop.scratch.join("signing"), &*key).unwrap();
    let file = shop.scratch.join("evidence");
    let key = format!("--signing-key-file={}", shop.scratch.join("signing").display());
    let evidence = format!("--evidence={}", file.display());
    let proven = || {
        let root = shop.place("");
        let listed = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "list", root.trim_end_matches('/'), "--json"])
            .run();
        listed.expect(0).stdout_text().contains("\"proven_until\"")
    };
    // Transactions left out count as applied, and nothing is proven.
    let numbers = shop.scratch.join("verify.prom");
    let metrics = format!("--metrics-file={}", numbers.display());
    let measured = "xbcloud_proof_proven_until_timestamp_seconds{";
    let is_measured = || std::fs::read_to_string(&numbers).unwrap().contains(measured);
    let filter = "--mysqld-opts=--replicate-ignore-db=d";
    let filtered = command(&[&words[..], &[filter, &metrics]].concat());
    let (text, said) = (filtered.stdout_text(), filtered.stderr_text());
    assert!(text.contains("not proven: options of the private server leave"), "{text}{said}");
    assert!(said.contains("replicate_ignore_db=d"), "{text}{said}");
    assert!(!proven() && !is_measured() && filtered.code() != 0, "{text}{said}");
    let insert = "--check-sql=INSERT INTO d.n SELECT id FROM d.t";
    let ran = command(&[&words[..], &[insert, count, &key, &evidence, &metrics]].concat());
    let text = ran.expect(0).stdout_text();
    let evidence: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!((&evidence["until"], &evidence["result"]), (&"latest".into(), &"ok".into()));
    let trial = &evidence["verification"]["restore"];
    assert_eq!((&trial["replayed"]["transactions"], &trial["statements"]), (&5.into(), &2.into()));
    assert!(text.contains("replayed before: 5 transactions"), "{text}");
    assert!(proven() && is_measured());
    let ran = command(&["verify", &place, "--level=pages", "--until=latest"]);
    assert!(ran.stderr_text().contains("--level=restore"), "{}", ran.stderr_text());
    assert_ne!(ran.code(), 0);
}

impl Shop {
    fn rescue(&self, stop: &str, args: &[&str]) -> Cmd {
        let room = self.scratch.join("room");
        std::fs::create_dir_all(&room).unwrap();
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "rescue", &self.place("latest")])
            .args(args)
            .env("STATE_DIRECTORY", self.scratch.join("nothing"))
            .args(self.key())
            .arg(format!("--until={stop}"))
            .arg(format!("--scratch-dir={}", room.display()))
    }
}

#[test]
fn a_dropped_table_is_rescued_as_it_was_just_before() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let _ = shop.back_up("inc", &["--incremental-from=full"]);
    shop.server.sql(
        "INSERT INTO d.t VALUES (2, 'two'); CREATE TABLE d.made (id INT); INSERT INTO d.made VALUES (7);
         RENAME TABLE d.m TO d.moved; INSERT INTO d.moved VALUES (8)",
    );
    let expected = shop.server.sql("SELECT * FROM d.t");
    shop.server.sql("DROP TABLE d.t, d.made");
    let bad = format!("before:{}", shop.gtid());
    shop.server.sql("CREATE TABLE d.t (id INT); INSERT INTO d.moved VALUES (9)");
    shop.wait_for(&receiver);
    receiver.stop();

    // Made and renamed in the log only.
    let dump = shop.scratch.join("dump.sql");
    let ran = shop.rescue(&bad, &["d.*"]).stdout_file(&dump).run().expect(0);
    let told = ran.stderr_text();
    assert!(told.contains("backup inc at") && told.contains("the rows are those at"), "{told}");
    let other = MariaDb::start();
    let text = std::fs::read_to_string(&dump).unwrap();
    other.sql(&format!("CREATE DATABASE d; USE d;\n{text}"));
    assert_eq!(other.sql("SELECT * FROM d.t"), expected);
    assert_eq!(other.sql("SELECT * FROM d.made; SELECT * FROM d.moved"), "7\n8\n");
    assert_eq!(other.sql("SHOW TABLES FROM d"), "made\nmoved\nt\n");

    // Into the running server; a table that exists there is refused before the backup is restored.
    let server = format!("--into={}", shop.server.socket().display());
    let refused = shop.rescue(&bad, &["d.t", &server, "--as={table}"]).run();
    let told = refused.stderr_text();
    assert!(refused.code() != 0 && told.contains("the table exists"), "{told}");
    assert!(!told.contains("replayed"), "{told}");
    // So is a server that does not answer, although the table comes with the log.
    let no_restore = "--prepare-program=/bin/false";
    let refused = shop.rescue(&bad, &["d.made", "--into=/nonexistent/socket", no_restore]).run();
    let told = refused.stderr_text();
    assert!(refused.code() != 0 && told.contains("/nonexistent/socket: "), "{told}");
    let _ = shop.rescue(&bad, &["d.t", &server, "--as=back_{table}"]).run().expect(0);
    assert_eq!(shop.server.sql("SELECT * FROM d.back_t"), expected);
    let missing = shop.rescue(&bad, &["d.never"]).stdout_file(&dump).run();
    assert!(missing.code() != 0 && missing.stderr_text().contains("d.never"), "{missing:?}");
    assert_eq!(std::fs::read_dir(shop.scratch.join("room")).unwrap().count(), 0);
}

/// The last backup of a chain and the full one that was made of it have the same position.
#[test]
fn of_the_same_data_the_proven_full_backup_is_taken_for_a_stop() {
    let shop = Shop { sealed: false, ..Shop::new() };
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let _ = shop.back_up("inc", &["--incremental-from=full"]);
    shop.server.sql("INSERT INTO d.t VALUES (2, 'two')");
    shop.wait_for(&receiver);
    receiver.stop();
    let consolidate = |options: &[&str]| {
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
        let ran = ran.args(["--no-defaults", "consolidate", &shop.place("inc")]).args(options);
        ran.arg(format!("--scratch-dir={}", shop.scratch.path().display())).run()
    };
    let taken = || {
        let ran = shop.restore("latest", "latest", &["--dry-run"]).run().expect(0);
        ran.stdout_text().lines().next().unwrap().to_owned()
    };
    assert_ne!(consolidate(&["--check-sql=SELECT nothing FROM d.none"]).code(), 0);
    assert!(shop.scratch.join("shop/.xb-catalog/inc-full").exists());
    assert!(taken().starts_with("backup inc at"), "{}", taken());
    let _ = consolidate(&[]).expect(0);
    assert!(taken().starts_with("backup inc-full at"), "{}", taken());
    let (rows, _) = shop.restored("latest", "latest", &[]);
    assert_eq!(rows, shop.rows());
}

/// Rows of a table, with their history if it has one, in whatever order.
fn sorted(server: &MariaDb, table: &str) -> Vec<String> {
    let history = if table.starts_with("versioned") { " FOR SYSTEM_TIME ALL" } else { "" };
    let text = server.sql(&format!("SELECT * FROM shop.`{table}`{history}"));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The rows that a rescue writes into a server are in its binary log like any others: the archive is replayed across
/// that moment, to a stop right behind it and to the end.
#[test]
fn a_log_with_a_rescue_in_it_is_replayed() {
    let shop = Shop::new();
    let server = &shop.server;
    server.sql(include_str!("../support/tables.sql"));
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    server.sql("USE shop; INSERT INTO orders (customer, note) SELECT 7, seq FROM seq_1_to_300");
    let lost = sorted(server, "orders");
    server.sql("DROP TABLE shop.orders; DROP TABLE shop.versioned");
    let dropped = server.sql("SELECT @@GLOBAL.gtid_binlog_pos");
    let (domain, number) = dropped.trim().rsplit_once('-').unwrap();
    let drop_of_orders = format!("{domain}-{}", number.parse::<u64>().unwrap() - 1);
    shop.wait_for(&receiver);
    let rescue = |name: &str, args: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "rescue", &shop.place(name)])
            .env("STATE_DIRECTORY", shop.scratch.join("nothing"))
            .args(shop.key())
            .arg(format!("--into={}", server.socket().display()))
            .args(args)
            .run()
            .expect(0)
    };
    // As of the moment before the mistake, as of the backup, and copies of tables of many kinds.
    let stop = format!("--until=before:{drop_of_orders}");
    let _ = rescue("full", &["shop.orders", "--as={table}", &stop]);
    assert!(sorted(server, "orders") == lost);
    let _ = rescue("full", &["shop.versioned", "--as={table}"]);
    let _ = rescue("full", &["shop.*", "--as={table}_2"]);
    let (behind, tables) = (
        shop.gtid(),
        server.sql("SHOW FULL TABLES FROM shop WHERE table_type NOT IN ('VIEW', 'SEQUENCE')"),
    );
    let tables: Vec<&str> = tables.lines().filter_map(|line| line.split('\t').next()).collect();
    assert!(tables.contains(&"versioned_2") && tables.contains(&"my_isam_2"), "{tables:?}");
    // The client shows a newline in a name otherwise.
    let tables: Vec<&str> = tables.into_iter().filter(|name| !name.contains('\\')).collect();
    let rows =
        |server: &MariaDb| tables.iter().map(|table| sorted(server, table)).collect::<Vec<_>>();
    let rows_behind = rows(server);
    server.sql(
        "USE shop; INSERT INTO orders (customer, note) VALUES (1, 'after the rescue'); UPDATE versioned SET v = 'z' WHERE id = 3;
         DELETE FROM parts_2 WHERE id < 9; UPDATE my_isam_2 SET t = 'x' WHERE id = 3; DROP TABLE latin_2",
    );
    shop.wait_for(&receiver);
    receiver.stop();
    let check = |server: &MariaDb| {
        let there = tables.iter().filter(|table| **table != "latin_2");
        let names: Vec<String> = there.map(|table| format!("shop.`{table}`")).collect();
        let told = server.sql(&format!("CHECK TABLE {} EXTENDED", names.join(", ")));
        let is_good = |line: &&str| line.ends_with("status\tOK");
        let bad: Vec<&str> = told.lines().filter(|line| !is_good(line)).collect();
        assert!(bad.is_empty(), "{bad:?}");
    };
    let restored = |stop: &str| {
        let target = tempfile::tempdir_in(shop.scratch.path()).unwrap();
        let _ = shop.restore("full", stop, &[&into(target.path())]).run().expect(0);
        (MariaDb::start_on_with(target.path(), &["--server-id=99"]), target)
    };
    let (copy, _target) = restored(&behind);
    for (table, (found, expected)) in tables.iter().zip(rows(&copy).iter().zip(&rows_behind)) {
        assert!(found == expected, "{table}: {} rows, {}", found.len(), expected.len());
    }
    check(&copy);
    drop(copy);
    let (copy, _target) = restored("latest");
    for table in ["orders", "audit", "versioned", "versioned_2", "parts_2", "my_isam_2", "kinds_2"]
    {
        assert!(sorted(&copy, table) == sorted(server, table), "{table}");
    }
    assert_eq!(copy.sql("SHOW TABLES FROM shop LIKE 'latin_2'"), "");
    let triggers = "SELECT trigger_name, event_object_table FROM information_schema.triggers WHERE trigger_schema = 'shop'";
    assert_eq!(copy.sql(triggers), server.sql(triggers));
    check(&copy);
}
