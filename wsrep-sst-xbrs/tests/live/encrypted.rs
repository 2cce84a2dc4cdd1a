//! Nodes with encrypted tables, with the plugin and its keys in the server's option file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use xb_testkit::galera::Cluster;
use xb_testkit::tools::{find, workspace};

/// Only the server's full package contains it.
const PLUGIN: &str = "/usr/lib/mysql/plugin/file_key_management.so";

/// The joiner's backup program: the donor's keys do not exist on its machine.
const BACKUP: &str = r#"#!/bin/sh
case " $* " in *" --prepare "*) mv "${0%/*}/keys-of-1" "${0%/*}/away" ;; esac
exec REAL "$@"
"#;

#[test]
fn encrypted_tables_join_with_the_keys_of_each_nodes_option_file() {
    if !Path::new(PLUGIN).exists() {
        xb_testkit::skipped(&format!("{PLUGIN} is not installed"));
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let script = workspace().join("scripts/wsrep_sst_xbrs");
    let mut cluster = Cluster::new(2, &[program, &script]);
    let backup = cluster.scratch().join("backup");
    let real = find("mariadb-backup");
    std::fs::write(&backup, BACKUP.replace("REAL", real.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&backup, std::fs::Permissions::from_mode(0o755)).unwrap();
    // That program moves the keys: it may write where its temporary files are.
    let scratch = cluster.scratch().display();
    let own = format!("backup-program={}\ninno-apply-opts=--tmpdir={scratch}", backup.display());
    for (node, sst) in [(1, String::new()), (2, own)] {
        let keys = cluster.scratch().join(format!("keys-of-{node}"));
        std::fs::write(&keys, "1;770A8A65DA156D24EE2A093277530142\n").unwrap();
        let server = format!(
            "plugin-load-add=file_key_management\nfile-key-management-filename={}\n\
             innodb-encrypt-tables=ON\ninnodb-encrypt-log=ON\ninnodb-encryption-threads=1",
            keys.display()
        );
        cluster.configure(node, &sst, &server);
    }
    cluster.bootstrap();
    cluster.sql(1, "CREATE TABLE shop.secret ENCRYPTED=YES AS SELECT * FROM shop.orders");
    cluster.start(2);
    cluster.wait_synced(2);
    assert!(cluster.log(2).contains("SST: full backup"), "{}", cluster.log(2));
    assert!(cluster.scratch().join("away").exists(), "the program that prepares was this one");
    assert_eq!(cluster.checksums(2), cluster.checksums(1));
    cluster.use_all_databases(2);
    let scheme = "SELECT encryption_scheme FROM information_schema.innodb_tablespaces_encryption WHERE name = 'shop/secret'";
    assert_eq!(cluster.sql(2, scheme).trim(), "1");
}
