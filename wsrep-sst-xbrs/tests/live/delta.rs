//! A node of a real cluster joins again with old data, over a limited connection.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use xb_testkit::galera::Cluster;
use xb_testkit::tools::workspace;

/// Only the server's full package contains it.
const PLUGIN: &str = "/usr/lib/mysql/plugin/file_key_management.so";

/// 20 MB that no codec shrinks.
const FILL: &str = "USE shop;
    CREATE TABLE shop.large (id INT PRIMARY KEY AUTO_INCREMENT, text VARBINARY(1000)) ENGINE=InnoDB;
    CREATE TABLE shop.dropped (id INT PRIMARY KEY) ENGINE=InnoDB SELECT seq AS id FROM seq_1_to_20000;
    CREATE TABLE shop.rebuilt (id INT PRIMARY KEY, text VARCHAR(200)) ENGINE=InnoDB SELECT seq AS id, REPEAT(MD5(seq), 5) AS text FROM seq_1_to_5000;
    CREATE TABLE shop.before ENGINE=InnoDB SELECT seq AS id FROM seq_1_to_5000;
    CREATE TABLE shop.emptied ENGINE=InnoDB SELECT seq AS id FROM seq_1_to_5000;
    INSERT INTO shop.large (text) SELECT CONCAT(RANDOM_BYTES(500), RANDOM_BYTES(500)) FROM seq_1_to_20000;";

/// Changes while the node is away.
const CHANGES: &str = "USE shop;
    UPDATE shop.large SET text = RANDOM_BYTES(900) WHERE id BETWEEN 5000 AND 5400;
    INSERT INTO shop.large (text) SELECT RANDOM_BYTES(1000) FROM seq_1_to_400;
    DROP TABLE shop.dropped;
    ALTER TABLE shop.rebuilt ADD COLUMN more INT DEFAULT 7, FORCE;
    RENAME TABLE shop.before TO shop.after;
    TRUNCATE TABLE shop.emptied;
    CREATE INDEX words ON shop.rebuilt (text(20));
    OPTIMIZE TABLE shop.parted;
    CREATE TABLE shop.added ENGINE=InnoDB SELECT seq AS id FROM seq_1_to_3000;
    INSERT INTO shop.orders VALUES (0, 'while it was away', 'new');";

/// Tables whose pages are stored compressed, with holes behind them.
const SQUEEZED: &str = "USE shop;
    CREATE TABLE shop.squeezed (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(1000)) ENGINE=InnoDB PAGE_COMPRESSED=1;
    INSERT INTO shop.squeezed (text) SELECT REPEAT(MD5(seq), 20) FROM seq_1_to_10000;";

/// Numbers in the last line of a log that contains `word`.
fn numbers(log: &str, word: &str) -> Vec<u64> {
    let line = log.lines().rfind(|line| line.contains(word)).unwrap_or_else(|| panic!("{log}"));
    let (_, text) = line.split_once(word).unwrap();
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn a_node_with_old_data_gets_what_has_changed() {
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[program, &script]);
    for node in [1, 2] {
        cluster.configure(node, "delta=yes\ncompress=none\nrlimit=40M", "");
    }
    cluster.bootstrap();
    cluster.sql(1, FILL);
    cluster.start(2);
    cluster.wait_synced(2);
    // An empty node has nothing to compare.
    assert!(!cluster.log(2).contains("delta: "), "{}", cluster.log(2));
    let whole = numbers(&cluster.log(1), "] sent ")[2];

    cluster.stop(2);
    cluster.sql(1, CHANGES);
    let datadir = cluster.datadir(2);
    let forget = || std::fs::remove_file(datadir.join("grastate.dat")).unwrap();
    forget();
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    let (donor, joiner) = (cluster.log(1), cluster.log(2));
    let [asked, equal, ..] = numbers(&donor, "delta: asked about ")[..] else { panic!("{donor}") };
    let sent = numbers(&donor, "] sent ")[2];
    println!("of {whole} MiB: asked about {asked}, equal {equal}, on the wire {sent}");
    // The table has some 24 MiB, of which two runs of pages have changed.
    assert!(equal >= 18, "{donor}");
    // And the redo log.
    assert!(sent + equal <= asked + 20 && sent < whole, "{donor}");
    assert!(joiner.contains("are copies of this node's old data"), "{joiner}");

    // Old data that was damaged meanwhile is only worth less.
    cluster.stop(2);
    forget();
    let table = std::fs::File::options().write(true).open(datadir.join("shop/large.ibd")).unwrap();
    for page in 100..300 {
        table.write_all_at(b"damage", page * 16384 + 50).unwrap();
    }
    let len = table.metadata().unwrap().len();
    table.set_len(len - (2 << 20)).unwrap();
    std::fs::remove_file(datadir.join("ibdata1")).unwrap();
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    let again = numbers(&cluster.log(1), "delta: asked about ")[1];
    assert!(again < equal && again >= 10, "{}", cluster.log(1));
    cluster.use_all_databases(2);
}

/// Lets a node join again whose server has these options, and checks that it is equal and has got the delta.
fn join_again(install: &[&str], server: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[program, &script]);
    for node in [1, 2] {
        cluster.configure(node, "delta=yes\ncompress=none", server);
    }
    cluster.bootstrap_with(install);
    cluster.sql(1, FILL);
    cluster.sql(1, SQUEEZED);
    cluster.start(2);
    cluster.wait_synced(2);
    // The pages that wait in memory reach the files.
    for round in 1..=2 {
        cluster.stop(2);
        if round == 2 {
            cluster.sql(1, CHANGES);
            cluster.sql(1, "UPDATE shop.squeezed SET text = MD5(id) WHERE id BETWEEN 100 AND 200");
        }
        std::fs::remove_file(cluster.datadir(2).join("grastate.dat")).unwrap();
        cluster.start(2);
        cluster.wait_synced(2);
        assert_eq!(cluster.checksums(2), cluster.checksums(1));
        let donor = cluster.log(1);
        let [asked, equal, ..] = numbers(&donor, "delta: asked about ")[..] else {
            panic!("{donor}")
        };
        let sent = numbers(&donor, "] sent ")[2];
        println!(
            "{server:?}, round {round}: asked about {asked} MiB, equal {equal}, on the wire {sent}"
        );
        assert!(equal >= 18 && equal <= asked, "{donor}");
    }
    cluster.use_all_databases(2);
}

#[test]
fn small_pages_join_again() {
    join_again(&["--innodb-page-size=4k"], "innodb-page-size=4k");
}

#[test]
fn large_pages_join_again() {
    // Such a server has no ROW_FORMAT=COMPRESSED.
    join_again(&["--innodb-page-size=64k"], "innodb-page-size=64k\ninnodb-strict-mode=OFF");
}

#[test]
fn encrypted_tables_join_again() {
    if !Path::new(PLUGIN).exists() {
        xb_testkit::skipped(&format!("{PLUGIN} is not installed"));
        return;
    }
    let scratch = xb_testkit::daemon::Scratch::new();
    let keys = scratch.join("keys");
    std::fs::write(&keys, "1;770A8A65DA156D24EE2A093277530142\n").unwrap();
    let server = format!(
        "plugin-load-add=file_key_management\nfile-key-management-filename={}\n\
         innodb-encrypt-tables=ON\ninnodb-encrypt-log=ON\ninnodb-encryption-threads=1",
        keys.display()
    );
    join_again(&[], &server);
}
