//! Schemas that have the names of files: of backup programs, of servers, and of transfers.

use crate::harness::Scene;
use crate::present_data::succeeds;

/// Lets the donor's backup have a table in each of these schemas.
fn with_schemas(scene: &Scene, names: &[&str]) {
    let tables: Vec<_> = names.iter().map(|name| format!("{name}/t.ibd")).collect();
    let tables = tables.iter().map(String::as_str);
    scene.stream(&tables.chain(["xtrabackup_info"]).collect::<Vec<_>>());
}

/// They were removed with the files that only the backup program needs, or read as such a file.
#[test]
fn a_schema_with_the_name_of_a_file_of_the_backup_arrives() {
    const NAMES: [&str; 11] = [
        "donor_galera_info",
        "ibtmp1",
        "mariadb_backup_binlog_info",
        "mariadb_backup_checkpoints",
        "mariadb_backup_galera_info",
        "sst_in_progress",
        "xtrabackup_binlog_pos_innodb",
        "xtrabackup_keys",
        "xtrabackup_logfile",
        "xtrabackup_suspended",
        "xtrabackup_tablespaces",
    ];
    let scene = Scene::new();
    with_schemas(&scene, &NAMES);
    succeeds(&scene, &[]);
    for name in NAMES {
        let table = scene.data("joiner").join(name).join("t.ibd");
        assert!(table.exists(), "{name}");
    }
    assert!(!scene.data("joiner").join("xtrabackup_checkpoints").exists());
}
