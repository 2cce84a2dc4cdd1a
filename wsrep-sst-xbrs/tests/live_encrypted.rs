//! Nodes whose tables are encrypted, with the plugin and its keys in the server's option file.
#![allow(clippy::unwrap_used)] // test support: a panic with its cause is how a test fails

use std::path::Path;

use xb_testkit::galera::Cluster;
use xb_testkit::tools::workspace;

/// It comes with the server's full package only.
const PLUGIN: &str = "/usr/lib/mysql/plugin/file_key_management.so";

#[test]
fn encrypted_tables_join_with_the_keys_of_each_nodes_option_file() {
    if !Path::new(PLUGIN).exists() {
        eprintln!("skipped: {PLUGIN} is not installed");
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[program, &script]);
    for node in 1..=2 {
        let keys = cluster.scratch().join(format!("keys-of-{node}"));
        std::fs::write(&keys, "1;770A8A65DA156D24EE2A093277530142\n").unwrap();
        let server = format!(
            "plugin-load-add=file_key_management\nfile-key-management-filename={}\n\
             innodb-encrypt-tables=ON\ninnodb-encrypt-log=ON\ninnodb-encryption-threads=1",
            keys.display()
        );
        cluster.configure(node, "", &server);
    }
    cluster.bootstrap();
    // Nobody finds the donor's keys any more but the donor.
    let keys = cluster.scratch().join("keys-of-1");
    cluster.sql(1, "CREATE TABLE shop.secret ENCRYPTED=YES AS SELECT * FROM shop.orders");
    std::fs::remove_file(keys).unwrap();
    cluster.start(2);
    cluster.wait_synced(2);
    assert!(cluster.log(2).contains("SST: full backup"), "{}", cluster.log(2));
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    let scheme = "SELECT encryption_scheme FROM information_schema.innodb_tablespaces_encryption WHERE name = 'shop/secret'";
    assert_eq!(cluster.sql(2, scheme).trim(), "1");
}
