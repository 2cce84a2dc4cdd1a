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

/// Tables that cannot be made anew as they were, each with its column and what is said of it. `DATE(ts)` in a session two
/// hours east of UTC is another day for two hours; an index has it, too, if the column is virtual.
const CHANGED: [(&str, &str); 8] = [
    ("east", "generated columns (d)"),
    ("seconds", "generated columns (s)"),
    ("days", "generated columns (d)"),
    ("read_days", "the index of the generated columns (d)"),
    ("read_index", "the index of the generated columns (d)"),
    ("read_isam", "the index of the generated columns (d)"),
    ("digits", "more digits than its definition says (d, f)"),
    ("digits_before", "more digits than its definition says (d)"),
];
/// Those whose values come back.
const KEPT: [(&str, &str, &str); 7] = [
    ("noon", "id, d", "1\t2026-07-01\n2\tNULL\n"),
    ("noon_index", "id, d", "1\t2026-07-01\n"),
    ("kept", "*, e + 0", "0\t\t0\t1\t0\n2\ta\t1\tNULL\t1\n3\t\t0\t3\t0\n"),
    (
        "labels",
        "id, e + 0, s + 0, w + 0, l + 0, m, k",
        "1\t1\t1\t0\t1\t0,62,63\t1\n2\t0\t0\t1\t2\t\t0\n3\t2\t3\t1\t3\t1\t2\n4\tNULL\tNULL\t0\tNULL\tNULL\tNULL\n",
    ),
    (
        "fitting",
        "id, d * 10000, CAST(f AS DOUBLE)",
        "1\t12300.00\t1.2300000190734863\n2\t5000.00\t0.10000000149011612\n",
    ),
    // Computed without strict mode, which refuses them.
    ("loose", "id, CAST(f AS DOUBLE) > 3.4e38, d", "1\t0\t1.000\n3\t1\t9999999.999\n"),
    ("exact", "id, d, CAST(f AS DOUBLE)", "1\t0.30000000000000004\t0.3333333432674408\n"),
];

/// A table is made anew with the values that it has, or refused: in a dump, in a server, and as files.
#[test]
fn values_that_would_be_generated_otherwise_are_refused() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    let many: Vec<String> = (0..64).map(|n| format!("'{n}'")).collect();
    server.sql(&format!(
        "CREATE DATABASE odd; USE odd; SET time_zone = '+02:00', sql_mode = '';
         CREATE TABLE east (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED);
         INSERT INTO east (id, ts) VALUES (1, '2026-07-01 12:00:00'), (2, '2026-07-01 00:30:00');
         CREATE TABLE noon LIKE east; INSERT INTO noon (id, ts) VALUES (1, '2026-07-01 12:00:00'), (2, NULL);
         CREATE TABLE seconds (id INT PRIMARY KEY, t DATETIME, s BIGINT AS (UNIX_TIMESTAMP(t)) STORED);
         INSERT INTO seconds (id, t) VALUES (1, '2026-07-01 12:00:00');
         CREATE TABLE days (id INT PRIMARY KEY, e ENUM('a'), ts TIMESTAMP NULL, d DATE AS (DATE(ts)) STORED UNIQUE);
         INSERT INTO days (id, e, ts) VALUES (1, 'zz', '2026-07-01 00:30:00'), (2, 'zz', '2026-06-30 12:00:00');
         CREATE TABLE read_days (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) VIRTUAL UNIQUE);
         INSERT INTO read_days (id, ts) VALUES (1, '2026-07-01 00:30:00'), (2, '2026-06-30 12:00:00');
         CREATE TABLE read_index (id INT PRIMARY KEY, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) VIRTUAL, KEY (id, d));
         INSERT INTO read_index (id, ts) VALUES (1, '2026-07-01 12:00:00'), (2, '2026-07-01 00:30:00');
         CREATE TABLE read_isam (id INT, ts TIMESTAMP NULL, d DATE AS (DATE(ts)) VIRTUAL, KEY (d)) ENGINE=MyISAM;
         INSERT INTO read_isam (id, ts) SELECT id, ts FROM read_index;
         CREATE TABLE noon_index LIKE read_index; INSERT INTO noon_index (id, ts) VALUES (1, '2026-07-01 12:00:00'), (2, '2026-07-01 00:30:00');
         DELETE FROM noon_index WHERE id = 2;
         CREATE TABLE kept (id INT PRIMARY KEY, e ENUM('a') NOT NULL, w INT AS (LENGTH(e)) STORED, u INT UNIQUE);
         INSERT INTO kept (id, e, u) VALUES (0, 'zz', 1), (2, 'a', NULL), (3, 'zz', 3);
         CREATE TABLE labels (id INT PRIMARY KEY, e ENUM('', 'a'), s SET('', 'a'), w ENUM('b') CHARACTER SET utf16,
             l ENUM('e', 'é', 'E') CHARACTER SET latin1, m SET({}), k INT AS (e + 0) STORED);
         INSERT INTO labels (id, e, s, w, l, m) VALUES (1, '', 1, 'zz', 1, '0,62,63'), (2, 'zz', '', 'b', 2, ''), (3, 'a', 3, 'b', 3, '1'), (4, NULL, NULL, 'zz', NULL, NULL);
         CREATE TABLE digits (id INT PRIMARY KEY, d DOUBLE(10,4), f FLOAT(8,4)); INSERT INTO digits VALUES (1, 1.2345, 1.2345), (2, 5, 5);
         CREATE TABLE fitting LIKE digits; INSERT INTO fitting VALUES (1, 1.23, 1.23), (2, 0.5, 0.1);
         CREATE TABLE digits_before (id INT PRIMARY KEY, d DOUBLE(10,4)) WITH SYSTEM VERSIONING; INSERT INTO digits_before VALUES (1, 1.2345);
         UPDATE digits_before SET d = 1; SET system_versioning_alter_history = KEEP; ALTER TABLE digits_before MODIFY d DOUBLE(10,2), ALGORITHM=INSTANT;
         ALTER TABLE digits MODIFY d DOUBLE(10,2), MODIFY f FLOAT(8,2), ALGORITHM=INSTANT; ALTER TABLE fitting MODIFY d DOUBLE(10,2), MODIFY f FLOAT(8,2), ALGORITHM=INSTANT;
         CREATE TABLE loose (id INT PRIMARY KEY, a DOUBLE, f FLOAT AS (a / 3) STORED, d DECIMAL(10,3) AS (a / 3) STORED);
         INSERT INTO loose (id, a) VALUES (1, 3), (3, 1e100);
         CREATE TABLE exact (id INT PRIMARY KEY, d DOUBLE, f FLOAT); INSERT INTO exact VALUES (1, 0.1e0 + 0.2e0, 1 / 3)",
        many.join(", ")
    ));
    for (table, columns, rows) in KEPT {
        let found = server.sql(&format!("SELECT {columns} FROM odd.{table} ORDER BY id"));
        assert_eq!(found, rows, "{table}");
    }
    let _ = shop.back_up("full", &[]);
    let dump = shop.scratch.join("dump.sql");
    let into = shop.rescue_into(server, "full", &["odd.*", "--as={table}_2"]).run();
    let dumped = shop.rescue("full", &["odd.*"]).stdout_file(&dump).run();
    for told in [into, dumped].map(|ran| ran.expect(1).stderr_text()) {
        for (table, why) in CHANGED {
            let (_, said) = told.split_once(&format!(" odd.{table}: ")).expect(&told);
            let said = said.split("; nor ").next().unwrap();
            assert!(said.contains(why), "{table}: {told}");
            assert!(said.contains("restore the whole backup"), "{table}: {told}");
            assert_eq!(said.contains("time zone"), why.contains("generated"), "{table}: {told}");
            assert_eq!(said.contains("--physical"), !why.contains("index"), "{table}: {told}");
        }
        assert!(told.contains(&format!("rescued {} tables", KEPT.len())), "{told}");
    }
    assert_eq!(server.sql("SHOW TABLES FROM odd LIKE 'xb%'"), "");
    let text = std::fs::read_to_string(&dump).unwrap();
    assert!(!text.contains("IGNORE"), "a row that is not taken would be lost: {text}");
    let other = MariaDb::start();
    let _ = load(&other, "odd", &dump).expect(0);
    for (copy, name) in [(server, "_2"), (&other, "")] {
        for (table, columns, rows) in KEPT {
            let found = copy.sql(&format!("SELECT {columns} FROM odd.{table}{name} ORDER BY id"));
            assert_eq!(found, rows, "{table}{name}");
            let kept = definition(server, "odd", table);
            assert_eq!(definition(copy, "odd", &format!("{table}{name}")), kept);
        }
        for (table, _) in CHANGED {
            let made = copy.sql(&format!("SHOW TABLES FROM odd LIKE '{table}{name}'"));
            assert_eq!(made, "");
        }
    }
    // The pages have the values, but for indexes.
    let plain = MariaDb::start();
    plain.sql("CREATE DATABASE odd");
    let told =
        shop.rescue_into(&plain, "full", &["odd.*", "--as={table}", "--physical"]).run().expect(1);
    let told = told.stderr_text();
    for (table, why) in [
        ("read_days", CHANGED[3].1),
        ("read_index", CHANGED[4].1),
        ("read_isam", "of MyISAM"),
        ("digits_before", "SYSTEM VERSIONED"),
    ] {
        let (_, said) = told.split_once(&format!(" odd.{table}: ")).expect(&told);
        assert!(said.split("; nor ").next().unwrap().contains(why), "{table}: {told}");
    }
    for (table, columns, rows) in KEPT {
        let found = plain.sql(&format!("SELECT {columns} FROM odd.{table} ORDER BY id"));
        assert_eq!(found, rows, "{table}");
    }
    assert_eq!(plain.sql("SELECT d FROM odd.east WHERE id = 2"), "2026-07-01\n");
    assert_eq!(plain.sql("SELECT d * 10000 FROM odd.digits"), "12345.00\n50000.00\n");
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
        "CREATE DATABASE few CHARACTER SET latin2 COLLATE latin2_croatian_ci; USE few;
         CREATE TABLE twice (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING; REPLACE INTO twice VALUES (1, 1), (1, 2), (1, 3);
         DO SLEEP(0.01); UPDATE twice SET v = 4; CREATE TABLE a (i INT); INSERT INTO a VALUES (1); CREATE TABLE b LIKE a; CREATE TABLE c LIKE a;
         INSERT INTO c VALUES (3); ALTER TABLE b DISCARD TABLESPACE; CREATE TABLE label (e ENUM('😀')) CHARSET utf8mb4;
         CREATE DATABASE gone; CREATE TABLE gone.b LIKE few.a; ALTER TABLE gone.b DISCARD TABLESPACE; CREATE SEQUENCE gone.few;
         CREATE DATABASE hard; USE hard; CREATE TABLE a (i INT DEFAULT NEXTVAL(gone.few)); CREATE TABLE b (i LONGTEXT);
         INSERT INTO b SELECT REPEAT('b', 99999); CREATE TABLE c SELECT * FROM few.a",
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
    // No server takes rows of history that began and ended in one statement.
    let (_, said) = told.split_once(" few.twice: ").expect(&told);
    assert!(said.contains(" of its history ended when they began"), "{told}");
    assert!(said.contains("--where='`row_start` < `row_end`'"), "{told}");
    let part = shop.scratch.join("part.sql");
    let args = ["few.twice", "--where=`row_start` < `row_end`"];
    let _ = shop.rescue("full", &args).stdout_file(&part).run().expect(0);
    let _ = load(server, "part", &part).expect(0);
    let lasting = "FOR SYSTEM_TIME ALL WHERE row_start < row_end ORDER BY v";
    let history = |schema: &str| server.sql(&format!("SELECT v FROM {schema}.twice {lasting}"));
    assert_eq!((history("part"), history("few")), ("3\n4\n".into(), "3\n4\n".into()));
    let _ = load(server, "loaded", &dump).expect(0);
    assert_eq!(server.sql("SELECT i FROM loaded.a; SELECT i FROM loaded.c"), "1\n3\n");
    // One that is named is wanted.
    let told = shop.rescue_into(server, "full", &["few.*", "few.b", "--as={table}_3"]).run();
    assert!(told.expect(1).stderr_text().contains("few.b: "));
    assert_eq!(server.sql("SHOW TABLES FROM few LIKE '%3'"), "");
    let told = shop.rescue_into(server, "full", &["gone.*"]).run().expect(1).stderr_text();
    assert!(told.contains("gone.b: "), "{told}");
    // Two that the server does not take: the definition of one, and the rows of the other.
    server.sql("DROP SEQUENCE gone.few; SET GLOBAL max_allowed_packet = 16384");
    let args = ["hard.*", "--as={table}_2"];
    let told = shop.rescue_into(server, "full", &args).run().expect(1).stderr_text();
    server.sql("SET GLOBAL max_allowed_packet = DEFAULT");
    assert!(told.contains(" hard.a: ") && told.contains("'gone.few' doesn't exist"), "{told}");
    assert!(told.contains(" hard.b: ") && told.contains("raise its max_allowed_packet"), "{told}");
    assert_eq!(server.sql("SHOW TABLES FROM hard; SELECT i FROM hard.c_2"), "a\nb\nc\nc_2\n1\n");

    // Since the full backup, a chain lacks its pages.
    server.sql("ALTER TABLE few.c DISCARD TABLESPACE; INSERT INTO few.a VALUES (2)");
    let _ = shop.back_up("inc", &["--incremental-from=latest"]);
    let told = shop
        .rescue_into(server, "inc", &["few.?", "--as=made.{table}_4"])
        .run()
        .expect(1)
        .stderr_text();
    assert!(told.contains("few/c.ibd: the chain lacks pages of it"), "{told}");
    assert!(told.contains(" few.b: ") && told.contains(" few.c: "), "{told}");
    assert_eq!(server.sql("SELECT i FROM made.a_4"), "1\n2\n");
    // A later table there has the character set that it had before.
    let collation =
        "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'made'";
    assert_eq!(server.sql(collation), "latin2_croatian_ci\n");
    shop.assert_tidy();
}
