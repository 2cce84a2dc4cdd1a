//! Values and definitions of rescued tables are those of the backup, also where the session that made them had other
//! settings; what cannot be rescued is named.

use std::path::Path;

use crate::support::rescue::RescueShop as Shop;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::mariadb::MariaDb;

fn load(server: &MariaDb, schema: &str, dump: &Path) -> Ran {
    server.sql(&format!("CREATE DATABASE IF NOT EXISTS {schema}"));
    Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", schema])
        .arg(format!("--socket={}", server.socket().display()))
        .stdin_file(dump)
        .run()
}

/// The definition of a table, under any name.
fn definition(server: &MariaDb, schema: &str, table: &str) -> String {
    let text = server.sql(&format!("SHOW CREATE TABLE {schema}.{table}"));
    text.split_once("CREATE TABLE").unwrap().1.split_once(" (").unwrap().1.to_owned()
}

/// `DATE(ts)` in a session two hours east of UTC is another day for two hours.
#[test]
fn values_that_would_be_generated_otherwise_are_refused() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "USE shop; SET time_zone = '+02:00', sql_mode = '';
         CREATE TABLE east (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED);
         INSERT INTO east (id, ts) VALUES (1, '2026-07-01 12:00:00'), (2, '2026-07-01 00:30:00');
         CREATE TABLE noon LIKE east; INSERT INTO noon (id, ts) VALUES (1, '2026-07-01 12:00:00'), (2, NULL);
         CREATE TABLE seconds (id INT PRIMARY KEY, t DATETIME, s BIGINT AS (UNIX_TIMESTAMP(t)) STORED);
         INSERT INTO seconds (id, t) VALUES (1, '2026-07-01 12:00:00');
         CREATE TABLE days (id INT PRIMARY KEY, e ENUM('a'), ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED UNIQUE);
         INSERT INTO days (id, e, ts) VALUES (1, 'zz', '2026-07-01 00:30:00'), (2, 'zz', '2026-06-30 12:00:00');
         CREATE TABLE read_days (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) VIRTUAL UNIQUE);
         INSERT INTO read_days (id, ts) VALUES (1, '2026-07-01 00:30:00'), (2, '2026-06-30 12:00:00');
         CREATE TABLE kept (id INT PRIMARY KEY, e ENUM('a') NOT NULL, w INT AS (LENGTH(e)) STORED, u INT UNIQUE);
         INSERT INTO kept (id, e, u) VALUES (0, 'zz', 1), (2, 'a', NULL), (3, 'zz', 3)",
    );
    let _ = shop.back_up("full", &[]);
    let dump = shop.scratch.join("dump.sql");
    for (table, column) in [("east", "d"), ("seconds", "s"), ("days", "d"), ("read_days", "d")] {
        let name = format!("shop.{table}");
        let into = shop.rescue_into(server, "full", &[&name, "--as={table}_2"]).run();
        let dumped = shop.rescue("full", &[&name]).stdout_file(&dump).run();
        for ran in [into, dumped] {
            let told = ran.expect(1).stderr_text();
            assert!(told.contains(&format!("{name}: ")), "{told}");
            assert!(told.contains(&format!("generated columns ({column})")), "{told}");
            assert!(told.contains("time zone") && told.contains("restore"), "{told}");
        }
        assert!(!std::fs::read_to_string(&dump).unwrap().contains("RENAME TABLE"));
    }
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE '%2'"), "");
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE 'xb%'"), "");
    // Values that are the same in UTC.
    let both = ["shop.noon", "shop.kept"];
    let _ = shop
        .rescue_into(server, "full", &[&both[..], &["--as={table}_2"]].concat())
        .run()
        .expect(0);
    let _ = shop.rescue("full", &both).stdout_file(&dump).run().expect(0);
    let text = std::fs::read_to_string(&dump).unwrap();
    assert!(!text.contains("IGNORE"), "a row that is not taken would be lost: {text}");
    let other = MariaDb::start();
    let _ = load(&other, "shop", &dump).expect(0);
    for (copy, name) in [(server, "_2"), (&other, "")] {
        assert_eq!(
            copy.sql(&format!("SELECT *, e + 0 FROM shop.kept{name} ORDER BY id")),
            "0\t\t0\t1\t0\n2\ta\t1\tNULL\t1\n3\t\t0\t3\t0\n"
        );
        let days = copy.sql(&format!("SELECT id, d FROM shop.noon{name} ORDER BY id"));
        assert_eq!(days, "1\t2026-07-01\n2\tNULL\n");
    }
    // The pages have the values.
    let plain = MariaDb::start();
    plain.sql("CREATE DATABASE shop");
    let _ =
        shop.rescue_into(&plain, "full", &["shop.east", "--as=east", "--physical"]).run().expect(0);
    assert_eq!(plain.sql("SELECT d FROM shop.east WHERE id = 2"), "2026-07-01\n");
    shop.assert_tidy();
}

/// What a session sets changes what a definition means, and SHOW CREATE TABLE prints no character beyond the first 65,536.
#[test]
fn a_definition_is_that_of_the_backup_or_the_table_is_refused() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "USE shop; CREATE TABLE stamps (a TIMESTAMP NOT NULL, b TIMESTAMP NOT NULL);
         CREATE TABLE face (a VARCHAR(9) DEFAULT '😀') CHARSET utf8mb4;
         CREATE TABLE label (e ENUM('😀', 'b')) CHARSET utf8mb4;
         CREATE TABLE wide_label (e ENUM('😀', 'b')) CHARSET utf16;
         CREATE TABLE asks (a VARCHAR(9) DEFAULT '?' COMMENT 'why?', e ENUM('?', 'ä'), w ENUM('b') CHARACTER SET utf16,
             g VARCHAR(20) AS (CONCAT(a, '😀')) STORED, t VARCHAR(9) DEFAULT CONCAT('😀', a), CHECK (a <> '😀')) CHARSET utf8mb4;
         INSERT INTO asks (e) VALUES ('?')",
    );
    let _ = shop.back_up("full", &[]);
    let dump = shop.scratch.join("dump.sql");
    let target = MariaDb::start_with(&["--explicit-defaults-for-timestamp=OFF"]);
    target.sql("CREATE DATABASE shop");
    for table in ["face", "label", "wide_label"] {
        let name = format!("shop.{table}");
        let into = shop.rescue_into(&target, "full", &[&name, "--as={table}"]).run();
        let dumped = shop.rescue("full", &[&name]).stdout_file(&dump).run();
        for told in [into, dumped].map(|ran| ran.expect(1).stderr_text()) {
            assert!(told.contains(&format!("{name}: ")) && told.contains("restore"), "{told}");
            assert!(told.contains("as a question mark"), "{told}");
        }
    }
    let both = ["shop.stamps", "shop.asks"];
    let _ =
        shop.rescue_into(&target, "full", &[&both[..], &["--as={table}"]].concat()).run().expect(0);
    let _ = shop.rescue("full", &both).stdout_file(&dump).run().expect(0);
    let _ = load(&target, "loaded", &dump).expect(0);
    for table in ["stamps", "asks"] {
        let expected = definition(server, "shop", table);
        for schema in ["shop", "loaded"] {
            assert_eq!(definition(&target, schema, table), expected, "{schema}");
        }
    }
    shop.assert_tidy();
}

/// A server that sets them for all sessions would refuse these tables.
#[test]
fn tables_that_were_made_with_other_settings_are_rescued() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    let columns: Vec<String> = (0..40).map(|n| format!("c{n} VARCHAR(255)")).collect();
    server.sql(&format!(
        "USE shop; SET innodb_strict_mode = 0, sql_mode = 'NO_UNSIGNED_SUBTRACTION';
         CREATE TABLE block (id INT PRIMARY KEY) ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8;
         CREATE TABLE wide ({}) ROW_FORMAT=COMPACT CHARSET latin1;
         CREATE TABLE minus (a INT UNSIGNED, b INT UNSIGNED, d INT AS (a - b) STORED); INSERT INTO minus (a, b) VALUES (1, 2)",
        columns.join(", ")
    ));
    let _ = shop.back_up("full", &[]);
    let tables = ["shop.block", "shop.wide", "shop.minus"];
    let _ = shop
        .rescue_into(server, "full", &[&tables[..], &["--as={table}_2"]].concat())
        .run()
        .expect(0);
    let dump = shop.scratch.join("dump.sql");
    let _ = shop.rescue("full", &tables).stdout_file(&dump).run().expect(0);
    let _ = load(server, "loaded", &dump).expect(0);
    for table in ["block", "wide", "minus"] {
        let expected = definition(server, "shop", table);
        assert_eq!(definition(server, "shop", &format!("{table}_2")), expected);
        assert_eq!(definition(server, "loaded", table), expected);
    }
    let minus = "SELECT d FROM shop.minus_2 UNION ALL SELECT d FROM loaded.minus";
    assert_eq!(server.sql(minus), "-1\n-1\n");
    // A replica has its own setting, and would stop.
    let primary = MariaDb::start_with(&["--log-bin=log", "--server-id=1"]);
    primary.sql("CREATE DATABASE shop");
    let into = || shop.rescue_into(&primary, "full", &["shop.block", "--as={table}"]).run();
    let told = into().expect(1).stderr_text();
    assert!(told.contains("SET GLOBAL innodb_strict_mode = OFF"), "{told}");
    primary.sql("SET GLOBAL innodb_strict_mode = OFF");
    let _ = into().expect(0);
    shop.assert_tidy();
}

/// What a pattern finds comes back without the tables that are lost, and these are an error at the end.
#[test]
fn a_lost_table_keeps_no_other_one_from_being_rescued() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "CREATE DATABASE few; USE few; CREATE TABLE a (i INT); INSERT INTO a VALUES (1); CREATE TABLE b LIKE a; CREATE TABLE c LIKE a;
         INSERT INTO c VALUES (3); ALTER TABLE b DISCARD TABLESPACE; CREATE TABLE label (e ENUM('😀')) CHARSET utf8mb4;
         CREATE DATABASE gone; CREATE TABLE gone.b LIKE few.a; ALTER TABLE gone.b DISCARD TABLESPACE",
    );
    let _ = shop.back_up("full", &[]);
    let told = shop
        .rescue_into(server, "full", &["few.*", "--as={table}_2"])
        .run()
        .expect(1)
        .stderr_text();
    assert!(told.contains("the other tables are rescued, but not few.label: "), "{told}");
    assert!(told.contains("nor few.b: ") && told.contains("rescued 2 tables"), "{told}");
    assert_eq!(server.sql("SELECT i FROM few.a_2; SELECT i FROM few.c_2"), "1\n3\n");
    let dump = shop.scratch.join("dump.sql");
    let told = shop.rescue("full", &["few.*"]).stdout_file(&dump).run().expect(1).stderr_text();
    assert!(told.contains("nor few.b: "), "{told}");
    assert!(told.contains("before it lost its tablespace"), "{told}");
    let _ = load(server, "loaded", &dump).expect(0);
    assert_eq!(server.sql("SELECT i FROM loaded.a; SELECT i FROM loaded.c"), "1\n3\n");
    // One that is named is wanted.
    let told = shop.rescue_into(server, "full", &["few.*", "few.b", "--as={table}_3"]).run();
    assert!(told.expect(1).stderr_text().contains("few.b: "));
    assert_eq!(server.sql("SHOW TABLES FROM few LIKE '%3'"), "");
    let told = shop.rescue_into(server, "full", &["gone.*"]).run().expect(1).stderr_text();
    assert!(told.contains("gone.b: "), "{told}");

    // Since the full backup, a chain lacks its pages.
    server.sql("ALTER TABLE few.c DISCARD TABLESPACE; INSERT INTO few.a VALUES (2)");
    let _ = shop.back_up("inc", &["--incremental-from=latest"]);
    let told =
        shop.rescue_into(server, "inc", &["few.?", "--as={table}_4"]).run().expect(1).stderr_text();
    assert!(told.contains("few/c.ibd: the chain lacks pages of it"), "{told}");
    assert!(told.contains(" few.b: ") && told.contains(" few.c: "), "{told}");
    assert_eq!(server.sql("SELECT i FROM few.a_4"), "1\n2\n");
    shop.assert_tidy();
}
