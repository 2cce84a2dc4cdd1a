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
