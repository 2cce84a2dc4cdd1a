//! Single tables of a real MariaDB server, rescued from its backups: as a dump, and into a running
//! server.

use std::path::Path;

use crate::support::put_bytes;
use crate::support::rescue::{RescueShop as Shop, in_transaction};
use crate::verify::stream_of;
use rustix::fs::inotify;
use rustix::process::{Pid, Signal};
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::ports::free_port;

/// A name with a newline, a dot, quotes and a comment in it.
const ODD: &str = "100% ä.x\nDROP \"line\" \\! it's";
/// The tables without the views, each with what orders its rows.
const NAMES: [&str; 17] = [
    "customers",
    "orders",
    "audit",
    "kinds",
    "parts",
    "versioned",
    "explicitv",
    "history_parts",
    "seq1",
    "my_isam",
    "an_aria",
    "select",
    "nokey",
    "con",
    "empty",
    "latin",
    ODD,
];

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// All rows of a table, or of a copy of it, with their history, and all that they are, in whatever
/// order.
fn rows(server: &MariaDb, (schema, table): (&str, &str), original: &str) -> Vec<String> {
    let (more, history) = match original {
        "versioned" | "history_parts" => (", row_start, row_end", " FOR SYSTEM_TIME ALL"),
        "explicitv" => ("", " FOR SYSTEM_TIME ALL"),
        "orders" => (", hidden", ""),
        "kinds" => (", CAST(f AS DOUBLE), HEX(sj), HEX(g), e2 + 0, HEX(b)", ""),
        _ => ("", ""),
    };
    let name = format!("{}.{}", quoted(schema), quoted(table));
    let text = server.sql(&format!("SELECT *{more} FROM {name}{history}"));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The definition of a table, under any name. The file of a table holds the last number that it gave
/// out; only the running server knows those that it has reserved beyond that.
fn definition(server: &MariaDb, schema: &str, table: &str) -> String {
    let text = server.sql(&format!("SHOW CREATE TABLE {}.{}", quoted(schema), quoted(table)));
    let text = text.split_once("CREATE TABLE").unwrap().1.split_once(" (").unwrap().1;
    match text.split_once("AUTO_INCREMENT=") {
        Some((begin, rest)) => {
            format!("{begin}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text.to_owned(),
    }
}

#[track_caller]
fn assert_equal(found: &MariaDb, copy: (&str, &str), server: &MariaDb, original: &str) {
    let (found, expected) =
        (rows(found, copy, original), rows(server, ("shop", original), original));
    let differ = || found.iter().zip(&expected).find(|(a, b)| a != b);
    assert!(
        found == expected,
        "{copy:?}: {} rows, {}: {:?}",
        found.len(),
        expected.len(),
        differ()
    );
}

/// A dump of all tables makes an empty server equal, from a full backup and from a chain.
#[test]
fn a_dump_of_all_tables_makes_an_empty_server_equal() {
    let shop = Shop::new(&[]);
    let _ = shop.back_up("full", &["--compress=zstd"]);
    let dump = shop.scratch.join("dump.sql");
    let ran = shop.rescue("full", &["shop.*"]).stdout_file(&dump).run().expect(0).stderr_text();
    assert!(ran.contains("no rows of their own: shop.a_view"), "{ran}");
    assert!(ran.contains("shop.kinds is now kinds: 5 rows"), "{ran}");
    // No row is written to a table without its triggers.
    let text = std::fs::read(&dump).unwrap();
    let place = |words: &[u8]| text.windows(words.len()).position(|part| part == words).unwrap();
    assert!(place(b"TRIGGER orders_ai AFTER INSERT ON `xb_rescue_") < place(b"` TO `orders`;"));
    let load = |dump: &Path, schema: &str| {
        let copy = MariaDb::start();
        copy.sql(&format!("CREATE DATABASE `{schema}`"));
        let _ = load_into(&copy, schema, dump).expect(0);
        copy
    };
    let copy = load(&dump, "other");
    for table in NAMES {
        assert_equal(&copy, ("other", table), &shop.server, table);
        let [new, old] = [(&copy, "other"), (&shop.server, "shop")]
            .map(|(s, schema)| definition(s, schema, table));
        assert_eq!(new, old, "{table}");
    }
    let triggers = "SELECT trigger_name, action_statement, sql_mode FROM information_schema.triggers WHERE trigger_schema";
    assert_eq!(
        copy.sql(&format!("{triggers} = 'other'")),
        shop.server.sql(&format!("{triggers} = 'shop'"))
    );
    assert_eq!(
        copy.sql("SELECT NEXTVAL(other.seq1)"),
        shop.server.sql("SELECT NEXTVAL(shop.seq1)")
    );
    assert_eq!(copy.sql("SHOW TABLES FROM other LIKE 'xb%'"), "");
    // Nothing is replaced, and what failed has no name.
    let refused = load_into(&copy, "other", &dump).expect_failure().stderr_text();
    assert!(refused.contains("already exists"), "{refused}");
    drop(copy);

    // A chain of two increments: changes, DDL, and a table that took another's name.
    let state = ["--incremental-from=latest"];
    shop.server.sql(
        "USE shop; UPDATE orders SET note = 'changed' WHERE id % 3 = 0; DELETE FROM parts WHERE id < 50;
         CREATE TABLE nokey_new LIKE nokey; INSERT INTO nokey_new SELECT seq, seq FROM seq_1_to_20000; UPDATE versioned SET v = 'x' WHERE id = 3;",
    );
    // An increment has only the pages that were changed after the checkpoint of the one before it.
    let checkpoint = "SET GLOBAL innodb_log_checkpoint_now = ON";
    shop.server.sql(checkpoint);
    let _ = shop.back_up("one", &state);
    shop.server.sql(
        "USE shop; RENAME TABLE nokey TO nokey_old, nokey_new TO nokey; INSERT INTO nokey VALUES (1, 1); INSERT INTO my_isam VALUES (7, 'seven');
         INSERT INTO orders (customer, note) SELECT 5, seq FROM seq_1_to_1000; INSERT INTO kinds (id) VALUES (99);",
    );
    shop.server.sql(checkpoint);
    let _ = shop.back_up("two", &state);
    let chain = shop.scratch.join("chain.sql");
    // Tables that every backup of the chain has under one name are restored alone.
    let stable = ["shop.orders", "shop.parts", "shop.kinds", "shop.my_isam", "shop.versioned"];
    let said = shop.rescue("two", &stable).stdout_file(&chain).run().expect(0).stderr_text();
    let copy = load(&chain, "chain");
    for table in stable.map(|name| name.strip_prefix("shop.").unwrap()) {
        assert_equal(&copy, ("chain", table), &shop.server, table);
    }
    assert!(!said.contains("xb-rescue"), "{said}");
    // This one had another name at the first increment, where most of its pages are.
    let _ = shop.rescue("two", &["shop.nokey"]).stdout_file(&chain).run().expect(0);
    let copy = load(&chain, "renamed");
    assert_equal(&copy, ("renamed", "nokey"), &shop.server, "nokey");
    shop.assert_tidy();
}

fn load_into(server: &MariaDb, schema: &str, dump: &Path) -> Ran {
    Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", schema])
        .arg(format!("--socket={}", server.socket().display()))
        .stdin_file(dump)
        .run()
}

/// Tables go into the live server under new names, and under the old ones where that is asked for.
#[test]
fn tables_go_into_a_running_server() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    let _ = shop.back_up("full", &[]);
    let into = |args: &[&str]| shop.rescue_into(server, "full", args).run();
    let day = server.sql("SELECT DATE_FORMAT(UTC_DATE(), '%Y%m%d')").trim().to_owned();

    // Every table, beside the one that is there.
    let said = into(&["shop.*"]).expect(0).stderr_text();
    let new = format!("orders_rescued_{day}");
    let line = format!(
        "shop.orders is now shop.{new}: 20000 rows, compared with the backup; without its foreign keys (1) and triggers (1)"
    );
    assert!(said.contains(&line), "{said}");
    assert!(!said.contains("compare the definitions"), "{said}");
    for table in NAMES {
        assert_equal(server, ("shop", &format!("{table}_rescued_{day}")), server, table);
    }
    let children = "SELECT COUNT(*) FROM information_schema.referential_constraints WHERE constraint_schema = 'shop'";
    assert_eq!(server.sql(children), "1\n", "a copy must not hold on to the customers");

    // Somebody dropped a table.
    let expected = rows(server, ("shop", "orders"), "orders");
    let keys = definition(server, "shop", "orders");
    server.sql("DROP TABLE shop.orders");
    let _ = into(&["shop.orders", "--as={table}"]).expect(0);
    assert!(rows(server, ("shop", "orders"), "orders") == expected);
    assert_eq!(definition(server, "shop", "orders"), keys);
    server.sql("INSERT INTO shop.orders (customer) VALUES (1)");
    assert_eq!(server.sql("SELECT COUNT(*) FROM shop.audit"), "1\n", "the trigger is back");
    let refused = "INSERT INTO shop.orders (customer) VALUES (1000)";
    let _ = client(server, refused).expect_failure();

    // An existing table stays, but for --replace.
    let refused = into(&["shop.orders", "--as=orders"]).expect(1).stderr_text();
    assert!(
        refused.contains(
            "shop.orders: the table exists; give another name with --as, or add --replace"
        ),
        "{refused}"
    );
    assert_eq!(server.sql("SELECT COUNT(*) FROM shop.orders"), "20001\n");
    let _ = into(&["shop.orders", "shop.seq1", "--as={table}", "--replace"]).expect(0);
    assert!(rows(server, ("shop", "orders"), "orders") == expected);
    assert_eq!(definition(server, "shop", "orders"), keys);
    let refused = into(&["shop.customers", "--as={table}", "--replace"]).expect(1).stderr_text();
    assert!(
        refused.contains("foreign keys of shop.orders refer to the existing table"),
        "{refused}"
    );

    // Some rows, in another schema.
    let some = ["shop.orders", "--where=id <= 10 OR id = 20000", "--as=old.some"];
    let said = into(&some).expect(0).stderr_text();
    assert!(said.contains("11 rows"), "{said}");
    assert_eq!(server.sql("SELECT COUNT(*), MAX(id) FROM old.some"), "11\t20000\n");
    let replacing = ["shop.orders", "--where=id <= 10", "--as=orders", "--replace"];
    let refused = into(&replacing).expect(1).stderr_text();
    assert!(refused.contains("under another name, and merge them"), "{refused}");
    assert!(rows(server, ("shop", "orders"), "orders") == expected);
    let search = "--where=MATCH (v) AGAINST ('x')";
    let refused = into(&["shop.orders", search, "--as=x"]).expect(1).stderr_text();
    assert!(refused.contains("full-text indexes are not rescued"), "{refused}");
    let refused = into(&["shop.orders", "--where=no_such = 1", "--as=x"]).expect(1).stderr_text();
    assert!(refused.contains("no_such"), "{refused}");

    // Names.
    for (args, expected) in [
        (&["shop.ordres"][..], "there is no table shop.ordres, but shop.orders"),
        (&["shop.a_view"], "it is a view"),
        (&["tx.counted", "--as=x"], "transactions, which are numbered differently"),
        (&["orders"], "the schema is missing"),
        (&["shop.orders", "--as=gone.`{table}`x.y"], "more than one dot"),
        (&["shop.*", "--as=one"], "would both be called shop.one"),
        (&["shop.orders", "--as=customers", "--replace"], "refer to the existing table"),
        (&["shop.orders", "--as=a_view", "--replace"], "a view has this name"),
    ] {
        let refused = into(args).expect(1).stderr_text();
        assert!(refused.contains(expected), "{args:?}: {refused}");
    }
    server.sql("DROP DATABASE IF EXISTS nowhere");
    let other = MariaDb::start();
    let refused = shop.rescue_into(&other, "full", &["shop.orders"]).run().expect(1).stderr_text();
    assert!(refused.contains("the server has no such schema"), "{refused}");
    let dead = shop.rescue("full", &["shop.orders", "--into=/no/such/socket"]).run().expect(1);
    assert!(dead.stderr_text().contains("/no/such/socket"), "{}", dead.stderr_text());

    // A row that the server does not take, after others that it took.
    other.sql("CREATE DATABASE shop; SET GLOBAL max_allowed_packet = 16384");
    let refused =
        shop.rescue_into(&other, "full", &["shop.long_rows"]).run().expect(1).stderr_text();
    assert!(refused.contains("raise its max_allowed_packet"), "{refused}");
    assert_eq!(other.sql("SHOW TABLES FROM shop"), "", "nothing half-made stays");
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE 'xb%'"), "");
    shop.assert_tidy();
}

/// Sealed and classic backups, and a table whose files are outside the data directory of a server that
/// still runs there.
#[test]
fn sealed_and_classic_backups_give_their_tables_too() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    let key = shop.scratch.join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", key.display());
    server.sql(&format!(
        "USE shop; CREATE TABLE away (id INT PRIMARY KEY, v CHAR(32)) ENGINE=InnoDB DATA DIRECTORY='{}';
         INSERT INTO away SELECT seq, MD5(seq) FROM seq_1_to_5000",
        shop.scratch.dir("elsewhere").display()
    ));
    let _ = shop.back_up("sealed", &["--compress=zstd", &key]);
    let _ =
        shop.back_up("classic", &["--layout=classic", "--compress=lz4", "--encrypt=AES256", &key]);
    let before = rows(server, ("shop", "away"), "away");
    server.sql("UPDATE shop.away SET v = 'live'; SET GLOBAL innodb_log_checkpoint_now = ON");
    for name in ["sealed", "classic"] {
        let new_name = format!("--as={name}_{{table}}");
        let args =
            ["shop.away", "shop.parts", "shop.versioned", &new_name, &key, "--accept-unsealed"];
        let _ = shop.rescue_into(server, name, &args).run().expect(0);
        assert!(rows(server, ("shop", &format!("{name}_away")), "away") == before, "{name}");
        for table in ["parts", "versioned"] {
            assert_equal(server, ("shop", &format!("{name}_{table}")), server, table);
        }
    }
    let live = "SELECT COUNT(*) FROM shop.away WHERE v = 'live'";
    assert_eq!(server.sql(live), "5000\n");
    let checked = server.sql("CHECK TABLE shop.away EXTENDED");
    assert!(checked.ends_with("status\tOK\n"), "{checked}");
    let refused = shop.rescue("sealed", &["shop.away"]).stdout_file(shop.scratch.join("x")).run();
    let refused = refused.expect(4).stderr_text();
    assert!(refused.contains("key"), "{refused}");
    shop.assert_tidy();
}

/// Their rows are newer than their index, and the repair of a server at the first use does not look at rows.
#[test]
fn tables_that_were_in_use_when_they_were_copied_are_repaired_and_named() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "USE shop; CREATE TABLE `m-1` (i INT, n INT) ENGINE=MyISAM; CREATE TABLE closed (i INT) ENGINE=MyISAM;
         CREATE TABLE n (i INT, v VARCHAR(99), KEY (i)) ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC;
         INSERT INTO `m-1` VALUES (1, 1); INSERT INTO n VALUES (1, 'a'); INSERT INTO closed VALUES (1);
         CREATE VIEW `a-1` AS SELECT * FROM `m-1`",
    );
    let files = |name: &str| {
        let (stream, folder) = (shop.scratch.join("stream"), shop.scratch.dir(name));
        server.save_stream(&stream);
        let unpack = Cmd::new(xb_testkit::tools::find("mbstream")).args(["-x", "-C"]).arg(&folder);
        let _ = unpack.stdin_file(&stream).run().expect(0);
        folder
    };
    let early = files("early");
    server.sql("USE shop; INSERT INTO `m-1` VALUES (3, 1); INSERT INTO n VALUES (3, 'a')");
    let backup = files("backup");
    for name in ["shop/m@002d1.MYI", "shop/n.MAI"] {
        let mut index = std::fs::read(early.join(name)).unwrap();
        // The number of times that it is open.
        index[25] = 1;
        std::fs::write(backup.join(name), index).unwrap();
    }
    let _ = put_bytes(&shop.store, "n", &[], &stream_of(&backup));
    // With a view of one of them, which is looked at first.
    let args = ["shop.?-1", "shop.n", "shop.closed", "--as=back_{table}"];
    let said = shop.rescue_into(server, "n", &args).run().expect(0).stderr_text();
    for table in ["`back_m-1`", "back_n"] {
        assert_eq!(server.sql(&format!("SELECT i FROM shop.{table} ORDER BY i")), "1\n3\n");
    }
    for table in ["m-1", "n"] {
        assert!(said.contains(&format!("shop.{table}: it was in use while")), "{said}");
    }
    assert!(!said.contains("closed: it was in use"), "{said}");
    shop.assert_tidy();
}

/// Without its keys, a server calls the table damaged, and says to drop it.
#[test]
fn an_encrypted_table_without_its_keys_is_no_damaged_one() {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), format!("1;{}\n", "0123456789abcdef".repeat(4))).unwrap();
    let file = format!("--file-key-management-filename={}", keys.path().display());
    let plugin = "--plugin-load-add=file_key_management";
    let shop = Shop::new(&[plugin, &file]);
    let server = &shop.server;
    server
        .sql("CREATE TABLE shop.secret (i INT) ENCRYPTED=YES; INSERT INTO shop.secret VALUES (1)");
    let _ = shop.back_up("full", &[]);
    let refused = shop.rescue_into(server, "full", &["shop.secret"]).run().expect(1).stderr_text();
    for said in ["server with file_key_management", "give its keys with --mysqld-opts"] {
        assert!(refused.contains(said), "{refused}");
    }
    let told = shop.rescue_into(server, "full", &["shop.se*", "--as={table}_2"]).run().expect(1);
    let told = told.stderr_text();
    assert!(told.contains("but not shop.secret: ") && told.contains("--mysqld-opts"), "{told}");
    assert_eq!(server.sql("SELECT COUNT(*) FROM shop.select_2"), "1\n");
    let [plugin, file] = [plugin, &file].map(|option| format!("--mysqld-opts={option}"));
    let args = ["shop.secret", "--as=found", &plugin, &file];
    let _ = shop.rescue_into(server, "full", &args).run().expect(0);
    assert_eq!(server.sql("SELECT i FROM shop.found"), "1\n");
    // Nor does a server without keys take it; that is no matter of strict mode, and none of a read-only session.
    let plain = MariaDb::start();
    plain.sql("SET GLOBAL tx_read_only = ON");
    let args = ["shop.secret", "shop.empty", "--as=there.{table}", &plugin, &file];
    let told = shop.rescue_into(&plain, "full", &args).run().expect(1).stderr_text();
    assert!(told.contains("load the key plugin") && !told.contains("strict"), "{told}");
    let dumped = shop.rescue("full", &["shop.secret", &plugin, &file]).run().expect(0);
    assert!(dumped.stderr_text().contains("load the key plugin there before"), "{dumped:?}");
}

/// What is written to a table of MERGE goes into other tables, which may be in use.
#[test]
fn tables_without_rows_of_their_own_change_no_others() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "USE shop; CREATE TABLE j1 (i INT) ENGINE=MyISAM; CREATE TABLE j2 LIKE j1; INSERT INTO j1 VALUES (1); INSERT INTO j2 VALUES (2);
         CREATE TABLE joined (i INT) ENGINE=MERGE UNION=(j1, j2) INSERT_METHOD=LAST;
         CREATE TABLE mem (i INT) ENGINE=MEMORY; INSERT INTO mem VALUES (1);
         CREATE TABLE copied LIKE j1; INSERT INTO copied VALUES (5); FLUSH TABLES",
    );
    let long = "k".repeat(64);
    server.sql(&format!("CREATE TABLE shop.k1 SELECT 1 i; CREATE TABLE shop.{long} SELECT 2 i"));
    let folder = server.datadir().join("shop");
    for end in ["frm", "MYD", "MYI"] {
        let (from, to) = (format!("copied.{end}"), format!("j-copied.{end}"));
        std::fs::rename(folder.join(from), folder.join(to)).unwrap();
    }
    let _ = shop.back_up("full", &[]);
    let into = |args: &[&str]| shop.rescue_into(server, "full", args).run();
    let said = into(&["shop.j*", "--as={table}_2"]).expect(0).stderr_text();
    assert_eq!(server.sql("SELECT i FROM shop.j2; SELECT i FROM shop.j2_2"), "2\n2\n");
    for left_out in ["no rows of their own: shop.joined", "leaves them out: shop.#mysql50#j-copied"]
    {
        assert!(said.contains(left_out), "{said}");
    }
    // A name that becomes too long keeps no other table from being rescued.
    let said = into(&["shop.k*", "--as={table}_2"]).expect(1).stderr_text();
    assert!(said.contains(&format!("but not shop.{long}: the name {long}_2 is longer")), "{said}");
    assert_eq!(server.sql("SELECT i FROM shop.k1_2"), "1\n");
    let refused = into(&["shop.k*", &format!("shop.{long}"), "--as={table}_3"]).expect(1);
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE 'k1_3'"), "", "{}", refused.stderr_text());
    let refused = into(&["shop.joined", "--as=x"]).expect(1).stderr_text();
    assert!(refused.contains("those of other tables (engine MRG_MyISAM)"), "{refused}");
    let _ = into(&["shop.#mysql50#j-copied", "--as={table}"]).expect(0);
    assert_eq!(server.sql("SELECT i FROM shop.`j-copied`"), "5\n");
    // No backup has the rows of a table in memory.
    let said = into(&["shop.mem", "--as={table}_2"]).expect(0).stderr_text();
    assert!(said.contains("shop.mem: its rows were in memory only"), "{said}");
    let refused = into(&["shop.mem", "--as={table}", "--replace"]).expect(1).stderr_text();
    assert!(refused.contains("an empty table would replace"), "{refused}");
    assert_eq!(server.sql("SELECT i FROM shop.mem"), "1\n");
    shop.assert_tidy();
}

fn client(server: &MariaDb, sql: &str) -> Ran {
    Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", "--execute", sql])
        .arg(format!("--socket={}", server.socket().display()))
        .run()
}

/// A table whose files lie outside the data directory is rescued on the host of its server, which has them open: no
/// process of the rescue opens one of them.
#[test]
fn the_files_of_a_live_table_elsewhere_are_not_opened() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    let elsewhere = shop.scratch.dir("elsewhere");
    server.sql(&format!(
        "USE shop; CREATE TABLE away (id INT PRIMARY KEY, v CHAR(32)) ENGINE=InnoDB DATA DIRECTORY='{}';
         INSERT INTO away SELECT seq, MD5(seq) FROM seq_1_to_5000",
        elsewhere.display()
    ));
    let _ = shop.back_up("full", &[]);
    server.sql("UPDATE shop.away SET v = 'changed' WHERE id % 5 = 0");
    let _ = shop.back_up("inc", &["--incremental-from=latest"]);
    let expected = rows(server, ("shop", "away"), "away");
    server.sql("UPDATE shop.away SET v = 'live'; SET GLOBAL innodb_log_checkpoint_now = ON");
    let file = elsewhere.join("shop/away.ibd");
    let before = std::fs::read(&file).unwrap();
    // Whoever opens a file while the server is suspended is no thread of it.
    let pid = server.sql("SELECT @@pid_file");
    let pid = std::fs::read_to_string(pid.trim()).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let all = inotify::WatchFlags::OPEN | inotify::WatchFlags::ACCESS | inotify::WatchFlags::MODIFY;
    inotify::add_watch(&opened, &file, all).unwrap();
    let seen = || {
        let mut room = [std::mem::MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&opened, &mut room).next().is_ok()
    };
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let target = shop.scratch.join("restored");
    let restored = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["restore", "--prepare"]);
    let restored = restored.args(shop.store.options()).arg(shop.store.url("full"));
    let told = restored.arg("--target-dir").arg(&target).run().expect(0).stderr_text();
    let was = format!("shop/away.ibd: was at {} on its server", file.display());
    assert!(told.contains(&was), "{told}");
    let (full, chain) = (shop.scratch.join("full.sql"), shop.scratch.join("chain.sql"));
    let ran = [("full", &full), ("inc", &chain)]
        .map(|(name, dump)| shop.rescue(name, &["shop.away"]).stdout_file(dump).run());
    let (is_seen, after) = (seen(), std::fs::read(&file).unwrap());
    assert!(seen(), "the watch sees an open file");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    for ran in ran {
        let _ = ran.expect(0);
    }
    assert!(!is_seen, "a live file was opened");
    assert!(before == after);
    assert_eq!(server.sql("SELECT COUNT(*) FROM shop.away WHERE v = 'live'"), "5000\n");
    let copy = MariaDb::start();
    copy.sql("CREATE DATABASE other");
    let _ = load_into(&copy, "other", &chain).expect(0);
    assert!(rows(&copy, ("other", "away"), "away") == expected);
    shop.assert_tidy();
}

/// A table that is replaced has no more than its backup gives back, and no table that depends on it; and no client
/// waits long for it.
#[test]
fn a_replacement_takes_nothing_from_a_live_server() {
    let shop = Shop::new(&["--lower-case-table-names=1"]);
    let server = &shop.server;
    server.sql(
        "USE shop; CREATE TABLE far (id INT PRIMARY KEY); INSERT INTO far VALUES (1);
         CREATE TABLE par (id INT PRIMARY KEY, f INT, at TIMESTAMP NULL, KEY (f)) ENGINE=InnoDB;
         INSERT INTO par SELECT seq, 1, '2026-01-01' FROM seq_1_to_100",
    );
    let _ = shop.back_up("full", &[]);
    server.sql("CREATE USER limited@localhost; GRANT ALL ON shop.* TO limited@localhost");
    let home = shop.scratch.dir("home");
    std::fs::write(home.join(".my.cnf"), "[client]\nuser=limited\n").unwrap();
    let replace = || {
        let run = shop.rescue_into(server, "full", &["shop.par", "--as=par", "--replace"]);
        run.env("HOME", &home)
    };
    let rows = |sql: &str| server.sql(sql).trim().to_owned();

    let told = shop.rescue_into(server, "full", &["shop.par", "--where=id < 5"]).run().expect(0);
    assert!(told.stderr_text().contains("compares them in UTC"), "{}", told.stderr_text());

    // Changes since the backup.
    server.sql("USE shop; CREATE TRIGGER since BEFORE INSERT ON par FOR EACH ROW SET NEW.f = 1");
    let told = replace().run().expect(1).stderr_text();
    assert!(told.contains("trigger since; drop that first"), "{told}");
    let told = shop.rescue_into(server, "full", &["shop.par", "--as=Par", "--replace"]).run();
    let told = told.expect(1).stderr_text();
    assert!(told.contains("give the name in lower case"), "{told}");
    // The server would find out after the last row.
    let told = shop.rescue_into(server, "full", &["shop.far", "--as=Par"]).run().expect(1);
    let told = told.stderr_text();
    assert!(
        told.contains("shop.Par: the table exists") && !told.contains("using backup"),
        "{told}"
    );
    server.sql("USE shop; DROP TRIGGER since; ALTER TABLE par ADD CONSTRAINT key_since FOREIGN KEY (f) REFERENCES far (id)");
    let told = replace().run().expect(1).stderr_text();
    assert!(told.contains("CONSTRAINT `key_since` FOREIGN KEY"), "{told}");
    server.sql("ALTER TABLE shop.par DROP FOREIGN KEY key_since");

    // A table that this login does not see.
    server.sql(
        "CREATE DATABASE acct; CREATE TABLE acct.child (c INT, FOREIGN KEY (c) REFERENCES shop.par (id)) ENGINE=InnoDB;
         DELETE FROM shop.par WHERE id > 50",
    );
    let told = replace().run().expect(1).stderr_text();
    assert!(told.contains("a foreign key of another table refers to the existing table"), "{told}");
    server.sql("INSERT INTO acct.child VALUES (50)");
    assert_eq!(rows("SELECT COUNT(*) FROM shop.par"), "50");
    // Clients may have written to the new one meanwhile.
    let new = rows("SHOW TABLES FROM shop LIKE 'xb%'");
    assert!(told.contains(&format!("drop `shop`.`{new}`")), "{told}");
    assert_eq!(rows(&format!("SELECT COUNT(*) FROM shop.{new}")), "100");
    server.sql(&format!("DROP TABLE acct.child, shop.{new}"));

    // A transaction that has read it, and does not end.
    let mut open = in_transaction(server, "SELECT COUNT(*) FROM shop.par");
    let told = replace().run().expect(1).stderr_text();
    assert!(told.contains("Lock wait timeout"), "{told}");
    assert_eq!(rows("SELECT COUNT(*) FROM shop.par"), "50");
    open.kill_9();
    let _ = open.wait();
    assert_eq!(rows("SHOW TABLES FROM shop LIKE 'xb%'"), "");
    shop.assert_tidy();
}

/// A table that clients use has all that belongs to it, also if another one cannot be replaced; and what the login may
/// not make is found before anything is replaced.
#[test]
fn tables_in_use_are_complete_when_another_one_fails() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    let rows = |sql: &str| server.sql(sql).trim().to_owned();
    let known = |id: u32| {
        format!(
            "CREATE OR REPLACE TRIGGER shop.known BEFORE INSERT ON shop.zz FOR EACH ROW SET NEW.id = {id}"
        )
    };
    server.sql(
        "CREATE TABLE shop.zz (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO shop.zz VALUES (1)",
    );
    server.sql(&known(1));
    let first = "CREATE TRIGGER shop.first BEFORE INSERT ON shop.zz FOR EACH ROW PRECEDES known SET NEW.id = NEW.id";
    server.sql(first);
    let triggers = "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = 'shop' AND event_object_table = 'orders'";
    let (had, defined) = (rows(triggers), definition(server, "shop", "orders"));
    assert!(!had.is_empty() && defined.contains("FOREIGN KEY"), "{had}, {defined}");
    let _ = shop.back_up("full", &[]);
    server.sql("DELETE FROM shop.orders WHERE id = 1; DELETE FROM shop.zz");
    server.sql(
        "CREATE USER plain@localhost, other@localhost; GRANT ALL ON shop.* TO plain@localhost, other@localhost;
         REVOKE TRIGGER ON shop.* FROM plain@localhost",
    );
    for (user, why) in [("plain", "lacks the privilege TRIGGER"), ("other", "SET USER")] {
        let home = shop.scratch.dir(user);
        std::fs::write(home.join(".my.cnf"), format!("[client]\nuser={user}\n")).unwrap();
        let run = shop.rescue_into(server, "full", &["shop.orders", "--as=orders", "--replace"]);
        let told = run.env("HOME", &home).run().expect(1).stderr_text();
        assert!(told.contains(why), "{told}");
        assert_eq!(rows("SELECT COUNT(*) FROM shop.orders"), "19999");
        assert_eq!(rows("SHOW TABLES FROM shop LIKE 'xb%'"), "");
    }

    // A trigger of the same name does something else since the backup.
    let both = ["shop.orders", "shop.zz", "--as={table}", "--replace"];
    server.sql(&known(2));
    let told = shop.rescue_into(server, "full", &both).run().expect(1).stderr_text();
    assert!(told.contains("trigger known, which differs in the backup; drop"), "{told}");
    server.sql(&known(1));

    // Two triggers of one event that fire in another order since the backup.
    server.sql("DROP TRIGGER shop.first; CREATE TRIGGER shop.first BEFORE INSERT ON shop.zz FOR EACH ROW FOLLOWS known SET NEW.id = NEW.id");
    let told = shop.rescue_into(server, "full", &both).run().expect(1).stderr_text();
    assert!(told.contains("lack: the order of its triggers, which differs"), "{told}");
    server.sql("DROP TRIGGER shop.first");
    server.sql(first);

    let mut open = in_transaction(server, "SELECT COUNT(*) FROM shop.zz");
    let told = shop.rescue_into(server, "full", &both).run().expect(1).stderr_text();
    open.kill_9();
    let _ = open.wait();
    assert!(told.contains("Lock wait timeout"), "{told}");
    assert!(told.contains("have their names and all their rows: shop.orders"), "{told}");
    assert_eq!((rows(triggers), definition(server, "shop", "orders")), (had, defined));
    assert_eq!(rows("SELECT COUNT(*) FROM shop.orders"), "20000");
    assert_eq!(rows("SELECT COUNT(*) FROM shop.zz"), "0");
    assert_eq!(rows("SHOW TABLES FROM shop LIKE 'xb%'"), "");
    let _ = shop.rescue_into(server, "full", &both).run().expect(0);
    assert_eq!(rows("SELECT COUNT(*) FROM shop.zz"), "1");
    shop.assert_tidy();
}

/// A server that lets no user make triggers says nothing about the privilege to see them.
#[test]
fn triggers_that_a_login_cannot_see_are_not_lost() {
    let shop = Shop::new(&["--log-bin=log", "--server-id=1"]);
    let server = &shop.server;
    server.sql(
        "CREATE TABLE shop.par (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO shop.par VALUES (1)",
    );
    let _ = shop.back_up("full", &[]);
    server.sql(
        "CREATE TRIGGER shop.since BEFORE INSERT ON shop.par FOR EACH ROW SET NEW.id = NEW.id + 1;
         CREATE USER blind@localhost, seeing@localhost; GRANT ALL ON shop.* TO blind@localhost, seeing@localhost;
         REVOKE TRIGGER ON shop.* FROM blind@localhost;
         CREATE ROLE inner_role, outer_role; GRANT ALL ON shop.* TO inner_role; GRANT inner_role TO outer_role;
         CREATE USER by_role@localhost; GRANT outer_role TO by_role@localhost; SET DEFAULT ROLE outer_role FOR by_role@localhost",
    );
    let home = shop.scratch.dir("home");
    let replace = |user: &str, table: &str| {
        std::fs::write(home.join(".my.cnf"), format!("[client]\nuser={user}\n")).unwrap();
        let args = [table, "--as={table}", "--replace"];
        shop.rescue_into(server, "full", &args).env("HOME", &home).run()
    };
    server.sql(
        "CREATE USER poor@localhost; GRANT SELECT, INSERT, CREATE ON shop.* TO poor@localhost",
    );
    for (user, table, why) in [
        ("poor", "shop.par", "GRANT ALTER, DROP ON `shop`.*"),
        ("blind", "shop.par", "lacks the privilege TRIGGER on shop.par"),
        ("seeing", "shop.par", "trigger since; drop that first"),
        ("seeing", "shop.orders", "SET GLOBAL log_bin_trust_function_creators = 1"),
    ] {
        let told = replace(user, table).expect(1).stderr_text();
        assert!(told.contains(why), "{user}: {told}");
    }
    server.sql("DROP TRIGGER shop.since; SET GLOBAL binlog_format = STATEMENT");
    let told = replace("seeing", "shop.seq1").expect(1).stderr_text();
    assert!(told.contains("SET GLOBAL binlog_format = MIXED"), "{told}");
    server.sql("SET GLOBAL binlog_format = MIXED");
    let _ = replace("seeing", "shop.par").expect(0);
    let _ = replace("by_role", "shop.par").expect(0);
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE 'xb%'"), "");
}

/// A key that cannot be added is found before anything is replaced, as is a name that another table has; and a table that
/// others hold is not waited for.
#[test]
fn keys_are_tried_before_a_table_is_replaced() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "USE shop; CREATE TABLE far (id INT PRIMARY KEY) ENGINE=InnoDB;
         CREATE TABLE par (id INT PRIMARY KEY, f INT, KEY (f), CONSTRAINT par_far FOREIGN KEY (f) REFERENCES far (id)) ENGINE=InnoDB;
         CREATE TABLE zz (id INT PRIMARY KEY) ENGINE=InnoDB;
         SET sql_mode = ''; CREATE TABLE kid (id INT PRIMARY KEY, b INT, v INT AS (b + 0) VIRTUAL, g INT AS (v * 2) STORED, e ENUM('e', 'é') CHARACTER SET latin1, KEY (b)) ENGINE=InnoDB;
         INSERT INTO far VALUES (5); INSERT INTO kid (id, b, e) VALUES (1, 5, 2), (2, 5, 'zz');
         ALTER TABLE kid ADD CONSTRAINT kid_far FOREIGN KEY (b) REFERENCES far (id) ON DELETE CASCADE, ALGORITHM=COPY",
    );
    let _ = shop.back_up("full", &[]);

    // A server adds this key only while it copies the table, and alters this ENUM only if it is not strict.
    let kid = definition(server, "shop", "kid");
    server.sql("DELETE FROM shop.kid WHERE id = 1");
    let args = ["shop.kid", "--as=kid", "--replace"];
    let _ = shop.rescue_into(server, "full", &args).run().expect(0);
    let dump = shop.scratch.join("dump.sql");
    let _ = shop.rescue("full", &["shop.kid", "shop.far"]).stdout_file(&dump).run().expect(0);
    server.sql("CREATE DATABASE loaded");
    let _ = load_into(server, "loaded", &dump).expect(0);
    for schema in ["shop", "loaded"] {
        assert_eq!(definition(server, schema, "kid"), kid);
        let rows = server.sql(&format!("SELECT id, g, e + 0 FROM {schema}.kid"));
        assert_eq!(rows, "1\t10\t2\n2\t10\t0\n", "{schema}");
    }

    let defined = definition(server, "shop", "par");
    let replace = || {
        let run = shop.rescue_into(server, "full", &["shop.par", "--as=par", "--replace"]);
        run.limit(std::time::Duration::from_secs(120)).run()
    };
    let far = |kind: &str| {
        server.sql(&format!("SET foreign_key_checks = 0; DROP TABLE shop.far; CREATE TABLE shop.far (id {kind} PRIMARY KEY) ENGINE=InnoDB"));
    };
    server.sql("INSERT INTO shop.par VALUES (7, NULL)");
    far("CHAR(9)");
    let told = replace().expect(1).stderr_text();
    assert!(told.contains("its foreign key cannot be added"), "{told}");
    assert_eq!(server.sql("SELECT id FROM shop.par"), "7\n");
    far("INT");
    assert_eq!(definition(server, "shop", "par"), defined);

    // The table was renamed, and its keys went with it.
    server.sql("RENAME TABLE shop.par TO shop.kept");
    let told = replace().expect(1).stderr_text();
    assert!(
        told.contains("table kept of the server has a foreign key of the name par_far"),
        "{told}"
    );
    server.sql("RENAME TABLE shop.kept TO shop.par");
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE 'xb%'"), "");

    // The statement of another client holds it, and waits for another table.
    let mut open = in_transaction(server, "SELECT COUNT(*) FROM shop.zz");
    let both = "RENAME TABLE shop.par TO shop.par2, shop.zz TO shop.zz2";
    let mut waits = Cmd::new(xb_testkit::tools::find("mariadb"))
        .args(["--no-defaults", "--user=root", "--execute", both])
        .arg(format!("--socket={}", server.socket().display()))
        .spawn();
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata%'";
    waits.until("it waits", || server.sql(waiting).trim() == "1");
    let told = replace().expect(1).stderr_text();
    open.kill_9();
    waits.kill_9();
    assert!(told.contains("Lock wait timeout") && told.contains("SHOW FULL PROCESSLIST"), "{told}");
}

/// A killed rescue leaves no scratch directory, no server, and no table under its new name.
#[test]
fn a_rescue_that_is_killed_leaves_nothing() {
    let shop = Shop::new(&[]);
    let _ = shop.back_up("full", &[]);
    let room = shop.room();
    let files = || std::fs::read_dir(&room).unwrap().flatten().map(|entry| entry.path());
    let servers = || {
        let ours = |entry: &std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&format!("--datadir={}", room.display()))
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter(ours).count()
    };
    let unfinished = || shop.server.sql("SHOW TABLES FROM shop LIKE 'xb%'").trim().to_owned();
    // The private server takes 200 s for that.
    let slow = ["shop.orders", "--where=SLEEP(0.01) = 0", "--as=again"];
    for signal in [Signal::TERM, Signal::KILL] {
        let mut run = shop.rescue("full", &slow).stdout_file(shop.scratch.join("half.sql")).spawn();
        run.until("its server answers", || files().any(|dir| dir.join("s").exists()));
        run.signal(signal);
        assert_ne!(run.wait().code(), 0);
        xb_testkit::until("nothing is left", || servers() == 0 && files().count() == 0);
        let mut run = shop.rescue_into(&shop.server, "full", &slow).spawn();
        run.until("the table is begun", || !unfinished().is_empty());
        run.signal(signal);
        assert_ne!(run.wait().code(), 0);
        xb_testkit::until("nothing is left", || servers() == 0 && files().count() == 0);
        assert_eq!(shop.server.sql("SHOW TABLES FROM shop LIKE 'again'"), "");
        let left = unfinished();
        if signal == Signal::TERM {
            assert_eq!(left, "");
            continue;
        }
        // After a kill, the next rescue names what could not be dropped.
        assert!(left.starts_with("xb_rescue_"), "{left}");
        let next =
            shop.rescue_into(&shop.server, "full", &["shop.con", "--as=con2"]).run().expect(0);
        assert!(next.stderr_text().contains(&left), "{}", next.stderr_text());
    }
}

/// The rows of a table that goes into a server with a binary log reach its replica.
#[test]
fn a_rescued_table_is_replicated() {
    let port = free_port();
    let port = format!("--port={port}");
    let shop = Shop::new(&[
        "--log-bin=log",
        "--server-id=1",
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        &port,
    ]);
    let primary = &shop.server;
    primary.sql("CREATE USER r@'%' IDENTIFIED BY 'r'; GRANT REPLICATION SLAVE ON *.* TO r@'%'");
    let replica = MariaDb::start_with(&["--server-id=2"]);
    let port = port.trim_start_matches("--port=");
    replica.sql(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='r', MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos;
         START SLAVE"
    ));
    let _ = shop.back_up("full", &[]);

    // What is written to the replica itself would be there only, and end the replication in strict mode.
    let refused = || {
        let args = ["shop.orders", "--as=again"];
        shop.rescue_into(&replica, "full", &args).run().expect(1).stderr_text()
    };
    let told = refused();
    assert!(told.contains(&format!("a replica of 127.0.0.1:{port}")), "{told}");
    assert!(told.contains("name the primary in --into"), "{told}");
    replica.sql("STOP SLAVE");
    let told = refused();
    assert!(told.contains("a replica of 127.0.0.1") && told.contains("RESET SLAVE ALL"), "{told}");
    replica.sql("SET GLOBAL read_only = 1");
    let told = refused();
    assert!(told.contains("read_only=ON"), "{told}");
    replica.sql("SET GLOBAL read_only = 0; START SLAVE");

    primary.sql("DROP TABLE shop.orders; DROP TABLE shop.versioned; DROP SEQUENCE shop.seq1");
    let tables = ["shop.orders", "shop.versioned", "shop.seq1", "shop.kinds"];
    let _ = shop
        .rescue_into(primary, "full", &[&tables[..], &["--as={table}", "--replace"]].concat())
        .run()
        .expect(0);
    primary.sql("INSERT INTO shop.orders (customer) VALUES (1)");
    let position = primary.sql("SELECT @@gtid_binlog_pos");
    let waited = replica.sql(&format!("SELECT MASTER_GTID_WAIT('{}', 60)", position.trim()));
    let status = replica.sql("SHOW ALL SLAVES STATUS");
    assert_eq!(waited, "0\n", "{status}");
    for table in tables {
        let table = table.strip_prefix("shop.").unwrap();
        assert_equal(&replica, ("shop", table), primary, table);
    }
}

/// A definition can name a sequence, which has to come first. It stays only with the tables.
#[test]
fn a_table_comes_back_with_the_sequence_that_it_takes_values_from() {
    let shop = Shop::new(&[]);
    let server = &shop.server;
    server.sql(
        "USE shop; CREATE SEQUENCE z_seq START WITH 100 NOCACHE;
         CREATE TABLE by_seq (id INT DEFAULT NEXTVAL(z_seq) PRIMARY KEY, x INT);
         INSERT INTO by_seq (x) VALUES (1), (2), (3)",
    );
    let _ = shop.back_up("full", &[]);
    server.sql("USE shop; DROP TABLE by_seq; DROP SEQUENCE z_seq");

    let alone = shop.rescue_into(server, "full", &["shop.by_seq"]).run().expect(1).stderr_text();
    assert!(
        alone.contains("z_seq") && alone.contains("rescue the sequence with the table"),
        "{alone}"
    );

    // A table that fails takes the sequence along: only the sequence has this column.
    let both = ["shop.by_seq", "shop.z_seq", "--as={table}"];
    let failing = [&both[..], &["--where=cycle_option = 0"]].concat();
    let failed = shop.rescue_into(server, "full", &failing).run().expect(1).stderr_text();
    assert!(failed.contains("shop.by_seq"), "{failed}");
    assert_eq!(server.sql("SHOW TABLES FROM shop LIKE '%seq'"), "");

    let _ = shop.rescue_into(server, "full", &both).run().expect(0);
    let new = server.sql("INSERT INTO shop.by_seq (x) VALUES (4) RETURNING id");
    assert_eq!(new, "103\n");
    assert_eq!(server.sql("SELECT COUNT(*) FROM shop.by_seq"), "4\n");

    // With a table that stays, an older sequence would give the same values again.
    let replacing = [&both[..], &["--replace"]].concat();
    let mut open = in_transaction(server, "SELECT COUNT(*) FROM shop.by_seq");
    let told = shop.rescue_into(server, "full", &replacing).run().expect(1).stderr_text();
    open.kill_9();
    let _ = open.wait();
    assert!(told.contains("Lock wait timeout"), "{told}");
    let new = server.sql("INSERT INTO shop.by_seq (x) VALUES (5) RETURNING id");
    assert_eq!(new, "104\n", "{told}");
    let _ = shop.rescue_into(server, "full", &replacing).run().expect(0);
    let new = server.sql("INSERT INTO shop.by_seq (x) VALUES (4) RETURNING id");
    assert_eq!((&*new, &*server.sql("SELECT COUNT(*) FROM shop.by_seq")), ("103\n", "4\n"));

    // Likewise from a dump.
    let dump = shop.rescue("full", &both).run().expect(0).stdout_text();
    let other = MariaDb::start();
    other.sql(&format!("CREATE DATABASE shop; USE shop; {dump}"));
    assert_eq!(other.sql("INSERT INTO shop.by_seq (x) VALUES (4) RETURNING id"), "103\n");
}

/// Tables that cannot be imported, and the reason that the error gives.
const PLAIN_ONLY: [(&str, &str); 7] = [
    ("words", "full-text index"),
    ("in_system", "in the system tablespace"),
    ("parts", "in partitions"),
    ("versioned", "SYSTEM VERSIONED"),
    ("seq1", "SEQUENCE"),
    ("my_isam", "of MyISAM"),
    ("an_aria", "of Aria"),
];

/// Files go into a server only where nothing else has to know of them.
#[test]
fn tables_are_imported_as_files() {
    let shop = Shop::new(&["--log-bin=bin", "--server-id=3"]);
    shop.server.sql(
        "USE shop; CREATE TABLE shop.plain (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(99), w INT AS (LENGTH(v)) VIRTUAL, KEY (v), blob_ LONGBLOB) ROW_FORMAT=DYNAMIC;
         INSERT INTO shop.plain (v, blob_) SELECT MD5(seq), REPEAT(seq, 3000) FROM seq_1_to_500;
         CREATE TABLE shop.words (id INT PRIMARY KEY, t TEXT, FULLTEXT (t)) ENGINE=InnoDB;
         CREATE TABLE shop.hashed (id INT, v VARCHAR(100), UNIQUE KEY (v) USING HASH); INSERT INTO shop.hashed VALUES (1, 'a');
         SET GLOBAL innodb_file_per_table = 0; CREATE TABLE shop.in_system (i INT) ENGINE=InnoDB; SET GLOBAL innodb_file_per_table = 1",
    );
    let _ = shop.back_up("full", &[]);
    shop.server.sql(
        "USE shop; ALTER TABLE shop.plain ADD COLUMN more INT DEFAULT 7; UPDATE shop.plain SET v = 'changed' WHERE id % 9 = 1;
         INSERT INTO shop.plain (v) SELECT REVERSE(v) FROM shop.plain LIMIT 100",
    );
    let _ = shop.back_up("inc", &["--incremental-from=latest"]);
    let live = MariaDb::start();
    live.sql("CREATE DATABASE `sh-op`");
    let rescue = |server: &MariaDb, args: &[&str]| {
        shop.rescue_into(server, "inc", args).arg("--physical").run()
    };
    let to = "--as=`sh-op`.{table}_back";
    let told = rescue(&live, &["shop.plain", to]).expect(0).stderr_text();
    assert!(told.contains("compared with the backup"), "{told}");
    assert!(told.contains("the rows are those of inc, which ended at "), "{told}");
    assert_equal(&live, ("sh-op", "plain_back"), &shop.server, "plain");
    live.check_tables("sh-op");
    live.sql("CREATE TABLE `sh-op`.more LIKE `sh-op`.plain_back; INSERT INTO `sh-op`.more (v) SELECT v FROM `sh-op`.plain_back LIMIT 1");
    let files = || {
        let there = std::fs::read_dir(live.datadir().join("sh@002dop")).unwrap();
        let names = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> =
            names.filter(|name| name.starts_with("xb_rescue") || name.ends_with(".cfg")).collect();
        names.sort();
        names
    };
    assert_eq!(files(), [""; 0]);
    // The table is the server's: it comes up with it again, also after a crash.
    let kept = live.kill();
    let again = MariaDb::start_on(&kept.join("data"));
    assert_equal(&again, ("sh-op", "plain_back"), &shop.server, "plain");

    // Its file has what a transaction in XA PREPARE has done.
    let prepared = "XA START 'x'; UPDATE shop.plain SET v = 'prepared'; XA END 'x'; XA PREPARE 'x'";
    shop.server.sql(prepared);
    let _ = shop.back_up("prepared", &[]);
    shop.server.sql("XA ROLLBACK 'x'");
    let into = shop.rescue_into(&again, "prepared", &["shop.plain", "--as=`sh-op`.x"]);
    let told = into.arg("--physical").run().expect(1).stderr_text();
    assert!(told.contains("XA PREPARE") && told.contains("leave out --physical"), "{told}");

    let refused = |server: &MariaDb, args: &[&str], why: &str| {
        let ran = rescue(server, args);
        assert!(ran.code() != 0 && ran.stderr_text().contains(why), "{why}: {ran:?}");
        shop.assert_tidy();
    };
    refused(&again, &["shop.plain", to], "the table exists");
    for (table, why) in PLAIN_ONLY {
        refused(&again, &[&format!("shop.{table}"), "--as=`sh-op`.{table}"], why);
    }
    // A server that rebuilds this one prints another definition.
    let told = rescue(&again, &["shop.hashed", "--as=`sh-op`.{table}"]).expect(0).stderr_text();
    assert!(told.contains("since it has rebuilt the imported table"), "{told}");
    refused(&shop.server, &["shop.plain"], "writes a binary log");
    let small = MariaDb::start_with(&["--innodb-page-size=4096"]);
    refused(&small, &["shop.plain", "--as=other.{table}"], "pages of 4096 bytes");
    assert_eq!(again.sql("SHOW TABLES FROM `sh-op`"), "hashed\nmore\nplain_back\n");
    assert_eq!(small.sql("SHOW DATABASES LIKE 'other'"), "");
}
