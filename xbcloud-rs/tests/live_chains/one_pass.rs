//! Chains of a real MariaDB server that are prepared in one pass: equal to what the stock way makes of them, and to
//! the server.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::*;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

const ONE_PASS: &str = "increments applied in one pass";
const ONE_BY_ONE: &str = "increments are applied one by one";

/// How mariadb-backup says that it has lost a race with its server, which now and then it does.
const LOST_RACE: &str = "Was only able to copy log from";

fn back_up(store: &Store, state: &Path, name: &str, options: &[&str], producer: &[String]) -> Ran {
    let back_up = || {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["backup", &store.url(name), "--chunk-size=4M"])
            .arg(format!("--state-dir={}", state.display()))
            .args(store.options())
            .args(options)
            .arg("--")
            .args(producer)
            .run()
    };
    let first = back_up();
    // Nothing was stored under the name.
    let ran = if first.stderr_text().contains(LOST_RACE) { back_up() } else { first };
    ran.expect(0)
}

/// Restores a chain and prepares it; returns what was told, and the rows of every table of these schemas.
fn restored(
    store: &Store,
    name: &str,
    target: &Path,
    options: &[&str],
    server: &[&str],
) -> (String, BTreeMap<String, u64>) {
    let ran = xbcloud(store, "restore", name, options);
    let ran = ran.args(["--prepare", "--target-dir"]).arg(target).run().expect(0);
    let told = ran.stderr_text();
    let copy = MariaDb::start_on_with(target, server);
    copy.check_tables("shop");
    (told, copy.checksums("shop"))
}

fn manifest(store: &Store, name: &str) -> serde_json::Value {
    let text = String::from_utf8(store.get(&format!("{CATALOG}/{name}")).unwrap()).unwrap();
    serde_json::from_str(&text[..text.rfind("\nsha256:").unwrap()]).unwrap()
}

/// Every kind of change to the files of tables that DDL makes. Some of it fails, depending on what ran before. No table is
/// renamed here: if two swap their names while it runs, mariadb-backup 10.11.19 cannot apply the increment.
const DDL: [&str; 10] = [
    "CREATE TABLE shop.made (id INT PRIMARY KEY, v TEXT); INSERT INTO shop.made SELECT seq, MD5(RAND()) FROM seq_1_to_3000",
    "UPDATE shop.a SET v = MD5(RAND()) WHERE id % 7 = 1",
    "TRUNCATE TABLE shop.cut; INSERT INTO shop.cut SELECT seq, MD5(seq) FROM seq_1_to_500",
    "ALTER TABLE shop.b FORCE",
    "ALTER TABLE shop.zip ADD COLUMN extra INT DEFAULT 7, ALGORITHM=INSTANT",
    "DROP TABLE shop.made",
    "DELETE FROM shop.parts WHERE id % 3 = 1",
    "ALTER TABLE shop.parts REORGANIZE PARTITION",
    "UPDATE shop.zip SET v = MD5(RAND()) WHERE id % 5 = 1",
    "SET GLOBAL innodb_log_checkpoint_now = ON",
];

const TABLES: &str = "CREATE DATABASE shop; CREATE DATABASE other; USE shop;
    CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(200), KEY(v)); INSERT INTO a SELECT seq, MD5(seq) FROM seq_1_to_9000;
    CREATE TABLE b LIKE a; INSERT INTO b SELECT id, REVERSE(v) FROM a; CREATE TABLE cut LIKE a;
    CREATE TABLE zip (id INT PRIMARY KEY, v VARCHAR(200)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4; INSERT INTO zip SELECT * FROM a;
    CREATE TABLE squeezed (id INT PRIMARY KEY, v VARCHAR(200)) PAGE_COMPRESSED=1; INSERT INTO squeezed SELECT * FROM a;
    CREATE TABLE words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)); INSERT INTO words SELECT * FROM a;
    CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(200)) PARTITION BY HASH(id) PARTITIONS 3; INSERT INTO parts SELECT * FROM a;
    CREATE TABLE loose (id INT) ENGINE=MyISAM; CREATE SEQUENCE numbers;";

#[test]
fn a_chain_under_ddl_is_the_server_again_in_one_pass() {
    let scratch = Scratch::new();
    let (store, state) = (Store::folder(), scratch.join("state"));
    let options = ["--innodb-undo-tablespaces=3"];
    let server = MariaDb::start_with(&options);
    server.sql(TABLES);
    let stop = scratch.join("stop");
    std::thread::scope(|threads| {
        let ddl = threads.spawn(|| {
            let mut rounds = 0;
            while !stop.exists() {
                for statements in DDL {
                    let run = Cmd::new("mariadb").args(["--no-defaults", "--user=root", "--force"]);
                    let socket = format!("--socket={}", server.socket().display());
                    let _ = run.arg(socket).args(["-e", statements]).run();
                }
                rounds += 1;
            }
            rounds
        });
        let producer = server.backup_command();
        let _ = back_up(&store, &state, "full", &[], &producer);
        for name in ["one", "two"] {
            let _ = back_up(&store, &state, name, &["--incremental-from=latest"], &producer);
        }
        std::fs::write(&stop, "").unwrap();
        assert!(ddl.join().unwrap() > 0);
    });
    server.sql(
        "USE shop; CREATE OR REPLACE TABLE made LIKE b; RENAME TABLE a TO swap, b TO a, swap TO b, made TO other.moved; UPDATE a SET v = 'x' WHERE id % 50 = 1;
         INSERT INTO loose VALUES (1), (2); SELECT NEXTVAL(numbers)",
    );
    let last = ["--incremental-from=latest"];
    let _ = back_up(&store, &state, "three", &last, &server.backup_command());
    let expected = server.checksums("shop");

    // During "two" the server changed, so that it can only be compared with the stock way.
    let (told, merged) = restored(&store, "two", &scratch.join("two"), &[], &options);
    assert!(told.contains(ONE_PASS), "{told}");
    let stock = ["--prepare-chain=stock"];
    let (told, by_one) = restored(&store, "two", &scratch.join("stock"), &stock, &options);
    assert!(!told.contains(ONE_PASS), "{told}");
    assert_eq!(merged, by_one);

    let (told, merged) = restored(&store, "three", &scratch.join("three"), &[], &options);
    assert!(told.contains(&format!("{ONE_PASS}: 3;")), "{told}");
    assert_eq!(merged, expected);
    let (_, by_one) = restored(&store, "three", &scratch.join("stock3"), &stock, &options);
    assert_eq!(by_one, expected);
    assert!(
        scratch.join("three/other/moved.ibd").exists()
            && !scratch.join("three/shop/made.ibd").exists()
    );
}

/// The program that takes a backup, stopped once it has copied `aa.t`: meanwhile, a statement runs.
fn stopped_behind(server: &MariaDb, scratch: &Scratch, statement: &str) -> Vec<String> {
    let script = scratch.join("stop.sh");
    std::fs::write(
        &script,
        r#"statement=$1 socket=$2 messages=$3; shift 3
        rm -f "$messages"; mkfifo "$messages"
        "$@" 2> "$messages" & program=$!
        while IFS= read -r line; do
            printf '%s\n' "$line" >&2
            case $line in
            *aa/t.ibd*) is_copied=yes ;;
            *) if [ "$is_copied" = yes ]; then
                is_copied=
                kill -STOP $program
                mariadb --no-defaults --user=root --socket="$socket" -e "$statement" >&2
                kill -CONT $program
            fi ;;
            esac
        done < "$messages"
        wait $program"#,
    )
    .unwrap();
    let own = [script.display().to_string(), statement.to_owned()];
    let places =
        [server.socket().display().to_string(), scratch.join("fifo").display().to_string()];
    let words = ["sh".to_owned()].into_iter().chain(own).chain(places);
    words.chain(server.backup_command()).collect()
}

/// The page is in no delta: it was copied before the change, and flushed before the backup ended. It is in the next
/// increment only because that begins where the redo log of its base begins.
#[test]
fn a_page_that_was_flushed_behind_its_copy_is_in_the_chain() {
    // The smallest log is written round and round.
    for options in [&[][..], &["--innodb-log-file-size=4M"]] {
        a_flushed_page_is_in_the_chain(options);
    }
}

fn a_flushed_page_is_in_the_chain(options: &[&str]) {
    let scratch = Scratch::new();
    let (store, state) = (Store::folder(), scratch.join("state"));
    let server = MariaDb::start_with(options);
    server.sql(
        "CREATE DATABASE aa; CREATE DATABASE shop; USE aa; CREATE TABLE aa.t (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=InnoDB;
         INSERT INTO aa.t SELECT seq, 'old' FROM seq_1_to_50;
         CREATE TABLE shop.big (id INT PRIMARY KEY, v CHAR(255)) ENGINE=InnoDB; INSERT INTO shop.big SELECT seq, MD5(seq) FROM seq_1_to_90000;
         SET GLOBAL innodb_log_checkpoint_now = ON",
    );
    let change = |id: u32| {
        format!(
            "UPDATE aa.t SET v = 'new' WHERE id = {id}; SET GLOBAL innodb_log_checkpoint_now = ON"
        )
    };
    let stopped = |id| stopped_behind(&server, &scratch, &change(id));
    let accept = ["--incremental-from=latest", "--accept-history", "--server=a"];
    let _ = back_up(&store, &state, "full", &["--server=a"], &stopped(7));
    let _ = back_up(&store, &state, "middle", &accept, &stopped(8));
    let _ = back_up(&store, &state, "last", &accept, &server.backup_command());
    let (full, middle) = (manifest(&store, "full"), manifest(&store, "middle"));
    for backup in [&full, &middle] {
        let lsn = |key: &str| backup["source"][key].as_u64().unwrap();
        assert!(lsn("redo_start_lsn") < lsn("to_lsn"), "the page was not flushed meanwhile");
    }
    assert_eq!(middle["source"]["from_lsn"], full["source"]["redo_start_lsn"]);

    let rows = |name: &str, way: &str| {
        let target = scratch.join(format!("{name}{way}"));
        let way = format!("--prepare-chain={way}");
        let ran = xbcloud(&store, "restore", name, &["--prepare", &way]);
        let told = ran.arg("--target-dir").arg(&target).run().expect(0).stderr_text();
        let new = "SELECT GROUP_CONCAT(id ORDER BY id) FROM aa.t WHERE v = 'new'";
        (told, MariaDb::start_on_with(&target, options).sql(new))
    };
    for (name, new) in [("middle", "7,8\n"), ("last", "7,8\n")] {
        let (told, found) = rows(name, "auto");
        assert!(told.contains(ONE_PASS) && found == new, "{found} {told}");
        assert_eq!(rows(name, "stock").1, new);
    }
}

/// Increments of earlier versions, and those by hand, begin where their base ends.
#[test]
fn an_increment_that_begins_behind_the_redo_log_of_its_base_is_applied_by_the_program() {
    let scratch = Scratch::new();
    let (store, state) = (Store::folder(), scratch.join("state"));
    let server = MariaDb::start();
    server.sql(TABLES);
    let by_checkpoint = [server.backup_command(), vec!["--innodb-log-checkpoint-now".to_owned()]];
    let _ = back_up(&store, &state, "full", &["--checkpoint=no"], &by_checkpoint.concat());
    let full = manifest(&store, "full");
    let ends = &full["source"]["to_lsn"];
    assert!(full["source"]["redo_start_lsn"].as_u64() < ends.as_u64());
    server.sql("UPDATE shop.a SET v = 'x' WHERE id % 9 = 1");
    let by_hand = [server.backup_command(), vec![format!("--incremental-lsn={ends}")]].concat();
    let _ = back_up(&store, &state, "inc", &["--accept-history"], &by_hand);
    let (told, found) = restored(&store, "inc", &scratch.join("inc"), &[], &[]);
    assert!(told.contains(ONE_BY_ONE) && told.contains(&ends.to_string()), "{told}");
    assert_eq!(found, server.checksums("shop"));
}

/// Files that appear one after the other while a chain is merged.
const STEPS: [&str; 5] =
    [".xb-merge/plan", ".xb-merge/aside", "shop/big.ibd", "ib_logfile0", "xtrabackup_checkpoints"];

#[test]
fn a_merge_that_is_killed_is_finished_by_the_same_command() {
    let scratch = Scratch::new();
    let (store, state) = (Store::folder(), scratch.join("state"));
    let server = MariaDb::start();
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE big (id INT PRIMARY KEY, v CHAR(255)) ENGINE=InnoDB;
         INSERT INTO big SELECT seq, MD5(seq) FROM seq_1_to_200000; CREATE TABLE a LIKE big; INSERT INTO a SELECT * FROM big WHERE id < 99;
         CREATE TABLE b LIKE a; INSERT INTO b SELECT id, REVERSE(v) FROM a",
    );
    let producer = server.backup_command();
    let _ = back_up(&store, &state, "full", &[], &producer);
    for name in ["one", "two"] {
        server.sql("USE shop; UPDATE big SET v = MD5(RAND()); RENAME TABLE a TO c, b TO a, c TO b; CREATE OR REPLACE TABLE made LIKE a");
        let _ = back_up(&store, &state, name, &["--incremental-from=latest"], &producer);
    }
    let expected = server.checksums("shop");
    let mut finished = 0;
    for (n, step) in STEPS.iter().enumerate() {
        let target = scratch.join(format!("t{n}"));
        let restore = |options: &[&str]| {
            let ran = xbcloud(&store, "restore", "two", &["--prepare"]).args(options);
            ran.arg("--target-dir").arg(&target)
        };
        let mut run = restore(&[]).spawn();
        // The base has files of these names before they are put aside.
        let begun = |step: &str| target.join(".xb-merge").exists() && target.join(step).exists();
        let is_there = || begun(step) && (n < 2 || target.join(STEPS[1]).exists());
        while !is_there() && !run.has_ended() {}
        run.kill_9();
        let _ = run.wait();
        if !target.join(STEPS[0]).exists() {
            // It was too quick: the program that prepares was at work, and that is told.
            let ran = restore(&[]).run();
            assert!(
                ran.code() == 0 || ran.stderr_text().contains("empty the directory"),
                "{ran:?}"
            );
            continue;
        }
        for options in ["--prepare-chain=stock", "--sync=file"] {
            let other = restore(&[options]).run();
            assert!(
                other.code() != 0 && other.stderr_text().contains("while its pages were merged"),
                "{options}: {other:?}"
            );
        }
        let told = restore(&[]).run().expect(0).stderr_text();
        assert!(told.contains(&format!("{ONE_PASS}: 2;")), "{told}");
        let copy = MariaDb::start_on(&target);
        copy.check_tables("shop");
        assert_eq!(copy.checksums("shop"), expected, "killed at {step}");
        finished += 1;
    }
    assert!(finished > 1, "no merge was killed");
}

#[test]
fn a_system_tablespace_of_two_files_is_merged() {
    let scratch = Scratch::new();
    let (store, state) = (Store::folder(), scratch.join("state"));
    let options = [
        "--innodb-data-file-path=ibdata1:12M;ibdata2:4M:autoextend",
        "--innodb-file-per-table=OFF",
    ];
    let server = MariaDb::start_with(&options);
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE a (id INT PRIMARY KEY, v CHAR(255), KEY(v)) ENGINE=InnoDB;
         INSERT INTO a SELECT seq, MD5(seq) FROM seq_1_to_30000",
    );
    let producer = server.backup_command();
    let _ = back_up(&store, &state, "full", &[], &producer);
    for (name, table) in [("one", "b"), ("two", "c")] {
        server.sql(&format!(
            "USE shop; UPDATE a SET v = MD5(RAND()) WHERE id % 40 = 1; CREATE TABLE {table} LIKE a; INSERT INTO {table} SELECT * FROM a"
        ));
        let _ = back_up(&store, &state, name, &["--incremental-from=latest"], &producer);
    }
    let expected = server.checksums("shop");
    let (told, merged) = restored(&store, "two", &scratch.join("two"), &[], &options);
    assert!(told.contains(&format!("{ONE_PASS}: 2;")), "{told}");
    assert_eq!(merged, expected);
}
