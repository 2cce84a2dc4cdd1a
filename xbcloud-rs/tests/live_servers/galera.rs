//! A node of a real Galera cluster starts from the bucket, and catches up by itself.

use crate::support::*;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::galera::Cluster;
use xb_testkit::ports::free_port;
use xb_testkit::store::Store;
use xb_testkit::tools::find;

fn back_up(cluster: &Cluster, store: &Store, name: &str, options: &[&str]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", "--quiet", "--state-dir"])
        .arg(cluster.scratch().join("state"))
        .arg(store.url(name))
        .args(store.options())
        .arg("--")
        .arg(find("mariadb-backup"))
        .args(["--no-defaults", "--backup", "--stream=xbstream", "--user=root"])
        .arg(format!("--socket={}", cluster.socket(1).display()))
        .arg(format!("--datadir={}", cluster.datadir(1).display()))
        .arg(format!("--target-dir={}", cluster.scratch().display()))
        .args(options)
        .run()
        .expect(0)
}

#[test]
fn a_restored_node_joins_without_a_snapshot() {
    // The stock method: a joiner always starts its program, which then learns whether it is needed.
    let mut cluster = Cluster::new(2, &[]);
    for node in [1, 2] {
        // The stock program for a state transfer listens on this port of all addresses.
        let receive = format!("{}:{}", cluster.address(node), free_port());
        let method = format!("wsrep-sst-method=mariabackup\nwsrep-sst-receive-address={receive}\n");
        cluster.configure(node, "", &method);
    }
    cluster.bootstrap();
    cluster.start_writing();
    let store = Store::folder();
    let _ = back_up(&cluster, &store, "plain", &[]);
    let _ = back_up(&cluster, &store, "node", &["--galera-info"]);
    let donor = cluster.socket(1).display().to_string();
    let restore = |name: &str, target: &std::path::Path, options: &[&str]| {
        xbcloud(&store, "restore", name, options).arg("--target-dir").arg(target).run()
    };

    let target = cluster.scratch().join("refused");
    let refused =
        restore("plain", &target, &["--galera", "--prepare"]).expect_failure().stderr_text();
    assert!(refused.contains("no Galera position") && !target.exists(), "{refused}");
    let refused =
        restore("node", &target, &["--galera", "--prepare", "--check-donor=/no/such/socket"]);
    let refused = refused.expect_failure().stderr_text();
    assert!(!target.exists(), "asked before anything is fetched: {refused}");

    let check = format!("--check-donor={donor}");
    let datadir = cluster.datadir(2);
    let _ = restore("node", &datadir, &["--galera", "--prepare", &check]).expect(0);
    let state = std::fs::read_to_string(datadir.join("grastate.dat")).unwrap();
    assert!(state.contains("safe_to_bootstrap: 0"), "{state}");
    cluster.start(2);
    cluster.wait_synced(2);
    let rows = cluster.stop_writing();
    assert!(rows.trim().parse::<u64>().unwrap() > 0);
    let log = cluster.log(2);
    assert!(log.contains("IST received"), "{log}");
    let donor = cluster.log(1);
    assert!(
        donor.contains("'donor'") && donor.contains("--bypass"),
        "a snapshot was taken: {donor}"
    );
    assert_eq!(cluster.checksums(1), cluster.checksums(2));
    rescued_tables_reach_the_cluster(&cluster, &store);
}

/// The rows of tables that go into one node reach the other one, and files are refused.
fn rescued_tables_reach_the_cluster(cluster: &Cluster, store: &Store) {
    let _ = back_up(cluster, store, "full", &[]);
    let rows = |node: u8| {
        let sums = "SELECT SHA1(GROUP_CONCAT(id, note, state ORDER BY id)) FROM shop.orders;
            SELECT SHA1(GROUP_CONCAT(id, v ORDER BY id)) FROM shop.packed;
            SELECT COUNT(*), SUM(row_end < NOW()), SHA1(GROUP_CONCAT(id, v ORDER BY id)) FROM shop.versions FOR SYSTEM_TIME ALL";
        cluster.sql(node, &format!("SET group_concat_max_len = 1 << 30; {sums}"))
    };
    let before = rows(1);
    cluster.sql(1, "DROP TABLE shop.orders; DROP TABLE shop.packed; DROP TABLE shop.versions");
    let into = format!("--into={}", cluster.socket(1).display());
    let rescue = |options: &[&str]| {
        xbcloud(store, "rescue", "full", &[&[&into, "--as={table}"], options].concat())
            .args(["shop.orders", "shop.packed", "shop.versions"])
            .run()
    };
    let refused = rescue(&["--physical"]).expect_failure().stderr_text();
    assert!(refused.contains("a node of a cluster"), "{refused}");
    let _ = rescue(&[]).expect(0);
    // Writes of node 1 have reached node 2 once this statement returns.
    let there = cluster.sql(2, "SET wsrep_sync_wait = 15; SELECT COUNT(*) FROM shop.orders");
    assert_eq!(there.trim(), "40000");
    for node in [1, 2] {
        assert_eq!(rows(node), before, "node {node}");
        let size = cluster.sql(node, "SHOW STATUS LIKE 'wsrep_cluster_size'");
        assert!(size.trim().ends_with('2'), "{size}");
    }
}
