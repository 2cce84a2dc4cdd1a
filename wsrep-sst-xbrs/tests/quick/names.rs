//! Schemas that have the names of files: of backup programs, of servers, and of transfers.

use std::path::Path;

use crate::harness::Scene;
use crate::present_data::{by_hand, read, succeeds, text};

fn put(path: impl AsRef<Path>, text: &str) {
    std::fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

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

/// They stayed, beside the new data or in its way.
#[test]
fn a_schema_with_the_name_of_a_file_that_stays_is_replaced() {
    const NAMES: [&str; 3] = ["my_sst_in_progress", "of_RPM_UPGRADE_MARKER", "sst_in_progress"];
    for is_sent in [true, false] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        for name in NAMES {
            put(data.join(name).join("t.ibd"), "old");
        }
        // A schema without tables, one behind a link, and what no server takes for a schema.
        std::fs::create_dir(data.join("no_sst_in_progress")).unwrap();
        put(scene.scratch.join("elsewhere/t.ibd"), "old");
        let link = data.join("far_sst_in_progress");
        std::os::unix::fs::symlink(scene.scratch.join("elsewhere"), &link).unwrap();
        put(data.join("keys_sst_in_progress/key"), "mine");
        put(data.join("certificates.pem/ca"), "mine");
        put(data.join("RPM_UPGRADE_MARKER"), "mine");
        if is_sent {
            with_schemas(&scene, &[&NAMES[..], &["no_sst_in_progress"]].concat());
        }
        succeeds(&scene, &[]);
        for name in NAMES {
            let table = data.join(name).join("t.ibd");
            assert_eq!(table.exists(), is_sent, "{name}");
            assert!(!is_sent || read(table) != "old", "{name}");
            assert_eq!(read(data.join("#sql-xb/.old").join(name).join("t.ibd")), "old");
        }
        assert_eq!(data.join("no_sst_in_progress").exists(), is_sent);
        assert!(!link.exists());
        for name in ["keys_sst_in_progress/key", "certificates.pem/ca", "RPM_UPGRADE_MARKER"] {
            assert_eq!(read(data.join(name)), "mine", "{name}");
        }
        // One that was made since makes way, too.
        put(data.join("new_sst_in_progress/t.ibd"), "later");
        let back = by_hand("roll-back", &data);
        assert!(back.status.success(), "{}", text(&back));
        assert_eq!(read(data.join("#sql-xb/.new/new_sst_in_progress/t.ibd")), "later");
        assert_eq!(read(data.join("sst_in_progress/t.ibd")), "old");
    }
}

/// The backup program would send it as a schema, and any joiner leaves `#sql-xb` out.
#[test]
fn a_donor_with_temporary_files_in_its_data_directory_has_them_where_no_schema_is() {
    for at_end in ["", "/", "/../donor"] {
        let scene = Scene::new();
        let data = scene.data("donor");
        scene.options(&format!("tmpdir={}{at_end}", data.display()));
        succeeds(&scene, &[]);
        let args = read(scene.bin().join("backup.args"));
        let target = args.split_once("--target-dir=").unwrap().1;
        let tmpdir = format!("{}{at_end}", data.display());
        let ours = format!("{}/#sql-xb/.xbrs-donor-", tmpdir.trim_end_matches('/'));
        assert!(target.starts_with(&ours), "{args}");
        assert!(!data.join("#sql-xb").exists());
    }
}

/// What the operator names in `cpat` stays, whatever it is.
#[test]
fn a_directory_that_the_operator_keeps_stays() {
    let scene = Scene::new();
    scene.options(r"cpat=.*/mine$");
    let kept = scene.data("joiner").join("mine/t.ibd");
    put(&kept, "old");
    succeeds(&scene, &[]);
    assert_eq!(read(kept), "old");
}
