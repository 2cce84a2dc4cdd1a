//! A real cluster whose joiner has small disks and keeps files on several of them.

use std::path::Path;

use crate::disk::Disk;
use xb_testkit::galera::Cluster;
use xb_testkit::tools::workspace;

const MIB: u64 = 1 << 20;

/// A table in the system tablespace, which makes `ibdata1` the largest file.
const LARGE_SYSTEM: &str = "
SET wsrep_on=OFF;
USE shop;
SET GLOBAL innodb_file_per_table=OFF;
CREATE TABLE shop.in_system (id INT PRIMARY KEY, b BLOB) ENGINE=InnoDB;
INSERT INTO shop.in_system SELECT seq, CONCAT(RANDOM_BYTES(1024), RANDOM_BYTES(1024), RANDOM_BYTES(1024)) FROM seq_1_to_24000;
SET GLOBAL innodb_file_per_table=ON;
FLUSH TABLES;
";

#[test]
fn files_on_small_disks_of_their_own_are_received_there_or_refused() {
    let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
    let mut cluster = Cluster::new(2, &[program, &workspace().join("scripts/wsrep_sst_xbrs")]);
    let at = ["home", "undo", "redo", "aria"].map(|name| cluster.scratch().join(name));
    at.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let datadir = cluster.datadir(2);
    let Some(data) = Disk::mount(&datadir, 600) else {
        xb_testkit::skipped("this user cannot mount");
        return;
    };
    let disks = at.each_ref().map(|dir| Disk::mount(dir, 600).unwrap());
    let [home, undo, redo, aria] = at.each_ref().map(|dir| dir.display());
    let undos = "innodb-undo-tablespaces=2";
    let elsewhere = format!(
        "{undos}\ninnodb-data-home-dir={home}\ninnodb-undo-directory={undo}\ninnodb-log-group-home-dir={redo}\naria-log-dir-path={aria}"
    );
    cluster.configure(1, "", undos);
    cluster.configure(2, "", &elsewhere);
    cluster.bootstrap();
    cluster.sql(1, LARGE_SYSTEM);
    let system = std::fs::metadata(cluster.datadir(1).join("ibdata1")).unwrap().len();
    assert!(system > 90 * MIB, "{system}");

    // Refused before anything is received: the file systems are checked one by one.
    for (number, mib, what) in [(0, 20, "home"), (1, 2, "undo"), (2, 10, "redo")] {
        disks[number].resize(mib * MIB);
        let before = disks[number].used();
        cluster.start(2);
        cluster.wait_ended(2);
        let log = cluster.log(2);
        let why = format!("on the file system of {}", at[number].display());
        assert!(log.contains(&why), "{what}: {log}");
        assert_eq!(disks[number].used(), before, "{what}");
        cluster.wait_synced(1);
        cluster.kill(2);
        disks[number].resize(600 * MIB);
    }

    // The data directory alone has no room for all data, and need not have it.
    data.resize(data.used() + system - 2 * MIB);
    for round in 1..=2 {
        cluster.start(2);
        cluster.wait_synced(2);
        let log = cluster.log(2);
        assert!(log.contains("SST: full backup"), "{log}");
        assert_eq!(cluster.checksums(2), cluster.checksums(1), "round {round}");
        for (dir, name) in [
            (&at[0], "ibdata1"),
            (&at[1], "undo001"),
            (&at[2], "ib_logfile0"),
            (&at[3], "aria_log_control"),
        ] {
            assert!(dir.join(name).symlink_metadata().unwrap().is_file(), "{name}");
            assert!(!dir.join("#sql-xb/.new").exists(), "{name}");
            assert!(!datadir.join(name).exists(), "{name}");
            assert_eq!(dir.join("#sql-xb/.old").join(name).exists(), round == 2, "{name}");
        }
        cluster.use_all_databases(2);
        cluster.stop(2);
        let _ = std::fs::remove_file(datadir.join("grastate.dat"));
        // Room for the old and the new data.
        data.resize(600 * MIB);
    }
}
