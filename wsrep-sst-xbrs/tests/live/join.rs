//! Nodes of a real cluster join with this method.

use std::path::Path;

use xb_testkit::command::Cmd;
use xb_testkit::galera::Cluster;
use xb_testkit::tools::{find, workspace};

fn cluster(size: u8) -> Cluster {
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    Cluster::new(size, &[program, &script])
}

#[test]
fn every_codec_brings_the_same_data_while_it_is_written_to() {
    let mut cluster = cluster(2);
    cluster.bootstrap();
    cluster.start_writing();
    for compress in ["none", "lz4", "snappy", "gzip:1", "zstd:3", "auto"] {
        let sst = format!("compress={compress}\ntime=1");
        cluster.configure(1, &sst, "");
        cluster.configure(2, &sst, "");
        cluster.wipe(2);
        cluster.start(2);
        cluster.wait_synced(2);
        let log = cluster.log(2);
        assert!(log.contains(&format!("compress={compress}")), "{log}");
        assert!(log.contains("xbrs SST completed on joiner"), "{log}");
    }
    let rows = cluster.stop_writing();
    assert_eq!(cluster.sql(2, "SET wsrep_sync_wait=1; SELECT COUNT(*) FROM live.w"), rows);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    assert_eq!(cluster.state(1), Some(4), "the donor is synced again");
    // An empty node has no old data to keep.
    assert!(!cluster.datadir(2).join("#sql-xb").exists());
    assert!(!cluster.datadir(2).join("sst_in_progress").exists());
}

/// Of schemas that have the names of files, and of a donor's temporary files, which no node may take for a schema.
#[test]
fn every_schema_arrives_and_no_other() {
    let mut cluster = cluster(2);
    cluster.bootstrap();
    let named = ["mariadb_backup_checkpoints", "xtrabackup_suspended", "xtrabackup_tablespaces"];
    let stays = ["my_sst_in_progress", "sst_in_progress"];
    for name in named.into_iter().chain(stays) {
        let sql = format!("CREATE DATABASE {name}; CREATE TABLE {name}.t AS SELECT 7 AS n");
        cluster.sql(1, &sql);
    }
    let data = cluster.datadir(1);
    cluster.configure(1, &format!("tmpdir={}", data.display()), "");
    for is_dropped in [false, true] {
        if is_dropped {
            for name in stays {
                cluster.sql(1, &format!("DROP DATABASE {name}"));
            }
            cluster.kill(2);
            std::fs::remove_file(cluster.datadir(2).join("grastate.dat")).unwrap();
        }
        cluster.start(2);
        cluster.wait_synced(2);
        assert_eq!(cluster.sql(2, "SHOW DATABASES"), cluster.sql(1, "SHOW DATABASES"));
        assert_eq!(cluster.checksums(2), cluster.checksums(1));
        assert!(!data.join("#sql-xb").exists());
    }
}

#[test]
fn a_short_absence_costs_write_sets_and_a_long_one_keeps_the_old_data() {
    let mut cluster = cluster(2);
    // Names of its own: with an index or a log of the old data, the server would not start on the new, or drop tables of it.
    let logs = cluster.scratch().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let at = logs.display();
    let names = "log-tc=my-tc.log\nlog-ddl-recovery=my-ddl";
    cluster.configure(2, "", &format!("log-bin={at}/bl\nlog-bin-index={at}/bl.idx\n{names}"));
    cluster.bootstrap();
    cluster.start(2);
    cluster.wait_synced(2);

    cluster.stop(2);
    cluster.sql(1, "INSERT INTO shop.orders VALUES (0, 'while it was away', 'new')");
    cluster.start(2);
    cluster.wait_synced(2);
    assert!(cluster.log(2).contains("] IST: the donor still has"), "{}", cluster.log(2));
    assert!(
        cluster.log(1).contains("] IST: this node still has all write sets"),
        "{}",
        cluster.log(1)
    );
    assert_eq!(cluster.checksums(2), cluster.checksums(1));

    // A node without a position needs a snapshot.
    cluster.kill(2);
    let datadir = cluster.datadir(2);
    std::fs::remove_file(datadir.join("grastate.dat")).unwrap();
    std::fs::write(datadir.join("shop/left-over.txt"), "old").unwrap();
    cluster.start(2);
    cluster.wait_synced(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    let old = datadir.join("#sql-xb/.old");
    assert_eq!(std::fs::read(old.join("shop/left-over.txt")).unwrap(), b"old");
    assert!(old.join("ibdata1").exists() && old.join("mysql").is_dir());
    assert!(old.join("my-ddl.log").exists() && logs.join("#sql-xb/.old/bl.idx").exists());
    assert!(datadir.join("galera.cache").exists() && !old.join("galera.cache").exists());

    let log = cluster.log(2);
    assert!(log.contains("where servers do not see it"), "{log}");
    cluster.use_all_databases(2);

    // Backups of this node work, and it can be a donor.
    let target = cluster.scratch().join("backup");
    let _ = Cmd::new(find("mariadb-backup"))
        .args(["--no-defaults", "--backup", "--user=root"])
        .arg(format!("--socket={}", cluster.socket(2).display()))
        .arg(format!("--datadir={}", datadir.display()))
        .arg(format!("--target-dir={}", target.display()))
        .run()
        .expect(0);
    assert!(target.join("shop/orders.ibd").exists() && !target.join("#sql-xb/.old").exists());

    let program = env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs");
    let _ = Cmd::new(program).arg("clean-old").arg(&datadir).run().expect(0);
    assert!(!datadir.join("#sql-xb").exists());
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
}

#[test]
fn without_wsrep_sst_auth_a_login_is_found_and_the_joiner_can_be_dumped() {
    let mut cluster = cluster(2);
    for node in 1..=2 {
        // The last value counts.
        cluster.configure(node, "", "wsrep-sst-auth=");
    }
    cluster.bootstrap();
    cluster.start(2);
    cluster.wait_synced(2);
    let users = "SELECT user FROM mysql.global_priv WHERE user LIKE 'wsrep.sst%'";
    for node in 1..=2 {
        // Later servers create a user for the transfer.
        assert_eq!(cluster.sql(node, users), "", "node {node}");
    }
    assert_eq!(cluster.sql(1, "SELECT @@GLOBAL.wsrep_sst_method").trim(), "xbrs");
    cluster.use_all_databases(2);
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
}

#[test]
fn three_nodes_agree_whoever_joined_from_whom_and_when() {
    let mut cluster = cluster(3);
    cluster.bootstrap();
    cluster.start_writing();
    let rows = "SELECT COUNT(*) FROM live.w";
    let before: u64 = cluster.sql(1, rows).trim().parse().unwrap();

    // At the same time: one waits until the donor is free again.
    cluster.start(2);
    cluster.start(3);
    cluster.wait_synced(2);
    cluster.wait_synced(3);
    let after: u64 = cluster.sql(1, rows).trim().parse().unwrap();
    assert!(after > before, "nobody could write on the donor: {before} rows, {after} rows");
    // Replication was not paused for the backup's locks, and the setting for that is restored.
    assert!(!cluster.log(1).contains("Provider paused"), "{}", cluster.log(1));
    assert_eq!(cluster.sql(1, "SELECT @@wsrep_sst_method").trim(), "xbrs");

    // One after the other, the second from a node that has itself joined.
    cluster.configure(3, "", "wsrep-sst-donor=node2");
    cluster.wipe(3);
    cluster.start(3);
    cluster.wait_synced(3);
    assert!(cluster.log(2).contains("xbrs SST completed on donor"), "{}", cluster.log(2));
    cluster.wipe(2);
    cluster.start(2);
    cluster.wait_synced(2);

    let rows = cluster.stop_writing();
    for node in 1..=3 {
        let size = cluster.sql(node, "SHOW STATUS LIKE 'wsrep_cluster_size'");
        assert_eq!(size.trim(), "wsrep_cluster_size\t3");
        cluster.sql(node, &format!("INSERT INTO shop.orders VALUES (-{node}, 'of a node', 'new')"));
    }
    let sums = cluster.checksums(1);
    for node in 2..=3 {
        assert_eq!(cluster.sql(node, "SET wsrep_sync_wait=1; SELECT COUNT(*) FROM live.w"), rows);
        assert_eq!(cluster.checksums(node), sums, "node {node}");
        assert_eq!(cluster.state(node), Some(4));
        cluster.use_all_databases(node);
    }
}

#[test]
fn the_gtids_of_a_joiner_continue_those_of_the_cluster() {
    let mut cluster = cluster(2);
    for node in 1..=2 {
        let server = format!(
            "log-bin=log-of-{node}\nlog-slave-updates\nwsrep-gtid-mode=ON\nwsrep-gtid-domain-id=7"
        );
        cluster.configure(node, "", &server);
    }
    cluster.bootstrap();
    cluster.sql(1, "INSERT INTO shop.orders VALUES (-1, 'before', 'new')");
    let gtids = |cluster: &Cluster, node| {
        let position =
            "SET wsrep_sync_wait=1; SELECT COUNT(*) FROM shop.orders; SELECT @@gtid_binlog_pos";
        let text = cluster.sql(node, position);
        let gtids = text.lines().nth(1).unwrap_or_default().split(',');
        gtids.filter(|gtid| gtid.starts_with("7-")).map(str::to_owned).collect::<Vec<_>>()
    };
    // The second time, the joiner has a binary log of its own.
    for round in 0..2 {
        cluster.kill(2);
        let _ = std::fs::remove_file(cluster.datadir(2).join("grastate.dat"));
        cluster.start(2);
        cluster.wait_synced(2);
        assert!(cluster.log(2).contains("SST: full backup"), "{}", cluster.log(2));
        assert_eq!(gtids(&cluster, 2), gtids(&cluster, 1), "after join {round}");
        cluster.sql(1, &format!("INSERT INTO shop.orders VALUES (-{round} - 2, 'after', 'new')"));
        assert_eq!(gtids(&cluster, 1).len(), 1);
        assert_eq!(gtids(&cluster, 2), gtids(&cluster, 1), "after a write set");
        let logs = cluster.sql(2, "SHOW BINARY LOGS");
        assert!(logs.starts_with("log-of-2.000001"), "{logs}");
    }
}

/// With a binary log, a backup under load is taken behind the last commit that its data has: this node is sent the write sets
/// between both once more, with their GTIDs.
#[test]
fn a_joiner_under_load_logs_what_it_is_sent_in_strict_mode() {
    let mut cluster = cluster(2);
    for node in 1..=2 {
        cluster.configure(
            node,
            "",
            "log-bin\nlog-slave-updates\nwsrep-gtid-mode=ON\nwsrep-gtid-domain-id=7\ngtid-strict-mode=ON",
        );
    }
    cluster.bootstrap();
    cluster.start_writing();
    for round in 0..3 {
        cluster.wipe(2);
        cluster.start(2);
        cluster.wait_synced(2);
        let begins = cluster.sql(2, "SELECT @@gtid_binlog_pos LIKE '%7-%'");
        assert_eq!(begins.trim(), "1", "join {round}");
    }
    let rows = cluster.stop_writing();
    let last = "SET wsrep_sync_wait=1; SELECT COUNT(*) FROM live.w; SELECT @@gtid_binlog_pos";
    assert_eq!(cluster.sql(2, last).lines().next(), rows.lines().next());
    assert_eq!(cluster.state(2), Some(4));
    assert_eq!(cluster.sql(2, last), cluster.sql(1, last));
}
