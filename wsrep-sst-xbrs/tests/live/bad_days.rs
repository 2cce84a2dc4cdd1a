//! A real cluster with failures during a transfer.

use std::path::Path;

use xb_testkit::daemon::{children, kill_9, process_name};
use xb_testkit::galera::Cluster;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::tools::{find, workspace};

/// A backup program that hangs in the middle until it is signalled to continue or to fail.
const SLOW: &str = r#"#!/bin/sh
here=${0%/*}
case " $* " in *" --prepare "* | *" --version "*) exec REAL "$@" ;; esac
[ -e "$here/slow" ] || exec REAL "$@"
REAL "$@" 2>/dev/null | head -c 3000000
: >"$here/stands-still"
exec sleep 1000
"#;

struct Scene {
    cluster: Cluster,
}

impl Scene {
    /// Creates two nodes with the same data, the second of which is about to need a snapshot.
    fn new() -> Self {
        Self::with(SLOW)
    }

    /// The same with this backup program.
    fn with(program_text: &str) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_wsrep_sst_xbrs-rs"));
        let script = workspace().join("scripts/wsrep_sst_xbrs");
        let mut cluster = Cluster::new(2, &[program, &script]);
        let backup = cluster.scratch().join("slow-backup");
        let real = find("mariadb-backup");
        std::fs::write(&backup, program_text.replace("REAL", real.to_str().unwrap())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&backup, mode).unwrap();
        // Uncompressed and without questions about the old data, the joiner gets what the backup has written up to there.
        let sst = format!("backup-program={}\ncompress=none\ndelta=no", backup.display());
        cluster.configure(1, &sst, "");
        cluster.configure(2, &sst, "");
        cluster.bootstrap();
        cluster.start(2);
        cluster.wait_synced(2);
        Self { cluster }
    }

    /// Node 2 begins to join and has received a part of the backup, which then hangs.
    fn join_halfway(&mut self) {
        let cluster = &mut self.cluster;
        cluster.kill(2);
        let _ = std::fs::remove_file(cluster.datadir(2).join("grastate.dat"));
        self.slow();
        self.cluster.start(2);
        self.wait_halfway();
    }

    /// Makes the next backup hang in the middle.
    fn slow(&self) {
        let scratch = self.cluster.scratch();
        let _ = std::fs::remove_file(scratch.join("stands-still"));
        std::fs::write(scratch.join("slow"), "").unwrap();
    }

    /// Waits until a backup hangs in the middle. The next one does not.
    fn wait_halfway(&self) {
        let cluster = &self.cluster;
        let still = cluster.scratch().join("stands-still");
        let begin = std::time::Instant::now();
        while !still.exists() {
            let late = begin.elapsed() > xb_testkit::galera::LIMIT;
            assert!(!late, "no transfer: {}\n{}", cluster.log(1), cluster.log(2));
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::fs::remove_file(cluster.scratch().join("slow")).unwrap();
    }

    /// Returns the program that a node's server has started, and that program's children.
    fn script(&self, node: u8) -> (u32, Vec<u32>) {
        let mut pid = self.cluster.pid(node);
        loop {
            let below = children(pid);
            pid = *below.first().unwrap_or_else(|| panic!("no script: {}", self.cluster.log(node)));
            if process_name(pid).is_some_and(|name| name.starts_with("wsrep_sst_xbrs")) {
                return (pid, children(pid));
            }
        }
    }

    fn gone(&self, pids: &[u32]) {
        let begin = std::time::Instant::now();
        while pids.iter().any(|pid| process_name(*pid).is_some()) {
            assert!(begin.elapsed() < xb_testkit::galera::LIMIT, "{pids:?} live on");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Asserts that node 2 has its old data, node 1 serves, and the next join works.
    fn recovered(&mut self) {
        let cluster = &mut self.cluster;
        let data = cluster.datadir(2);
        assert!(data.join("mysql").is_dir() && data.join("ibdata1").exists());
        assert!(data.join("shop/orders.ibd").exists());
        cluster.wait_synced(1);
        cluster.start(2);
        cluster.wait_synced(2);
        assert_eq!(cluster.checksums(2), cluster.checksums(1));
        assert!(!data.join("#sql-xb/.new").exists() && !data.join("#sql-xb/journal").exists());
    }
}

#[test]
fn either_side_may_die_and_the_other_loses_nothing() {
    let mut scene = Scene::new();

    // The donor's program.
    scene.join_halfway();
    let (donor, backup) = scene.script(1);
    kill_9(donor);
    scene.gone(&[&[donor], &backup[..]].concat());
    // Galera tells the joiner's server, which ends itself.
    scene.cluster.wait_ended(2);
    scene.recovered();

    // The joiner's server.
    scene.join_halfway();
    let (donor, backup) = scene.script(1);
    let (joiner, _) = scene.script(2);
    scene.cluster.kill(2);
    scene.gone(&[&[donor, joiner], &backup[..]].concat());
    scene.recovered();

    // The joiner's program.
    scene.join_halfway();
    let (donor, backup) = scene.script(1);
    let (joiner, _) = scene.script(2);
    kill_9(joiner);
    scene.cluster.wait_ended(2);
    scene.cluster.sql(1, "DELETE FROM shop.orders WHERE id < 10");
    // The donor finds the joiner's port closed.
    scene.gone(&[&[donor], &backup[..]].concat());
    scene.recovered();

    // The backup itself: it is run once more.
    scene.join_halfway();
    let (_, backup) = scene.script(1);
    kill_9(backup[0]);
    scene.cluster.wait_synced(2);
    assert_eq!(scene.cluster.checksums(2), scene.cluster.checksums(1));
    let (donor, joiner) = (scene.cluster.log(1), scene.cluster.log(2));
    assert!(donor.contains("slow-backup was killed by signal 9"), "{donor}");
    assert!(donor.contains("running it once more"), "{donor}");
    assert!(joiner.contains("discarding what was received"), "{joiner}");

    // The backup, twice.
    scene.join_halfway();
    let (donor, backup) = scene.script(1);
    scene.slow();
    kill_9(backup[0]);
    scene.wait_halfway();
    let (_, backup) = scene.script(1);
    kill_9(backup[0]);
    scene.gone(&[donor]);
    scene.cluster.wait_ended(2);
    let log = scene.cluster.log(2);
    assert!(log.contains("the donor gave up: slow-backup was killed by signal 9"), "{log}");
    assert!(log.contains("run once more, it failed again"), "{log}");
    scene.recovered();
}

/// A backup program whose output stands still in the middle, until it may go on.
const HELD: &str = r#"#!/bin/bash
set -o pipefail
here=${0%/*}
case " $* " in *" --prepare "* | *" --version "*) exec REAL "$@" ;; esac
[ -e "$here/slow" ] || exec REAL "$@"
REAL "$@" | { head -c 3000000; : >"$here/stands-still"; read -r _ <"$here/go"; cat; }
"#;

/// The backup program takes it for dropped, and ends with success.
#[test]
fn a_table_that_is_imported_during_a_transfer_is_not_lost() {
    let mut scene = Scene::with(HELD);
    let scratch = scene.cluster.scratch().to_owned();
    assert!(
        std::process::Command::new("mkfifo").arg(scratch.join("go")).status().unwrap().success()
    );
    let table = "(id INT PRIMARY KEY, v VARCHAR(99))";
    let origin = MariaDb::start();
    origin.sql(&format!("CREATE DATABASE x; USE x; CREATE TABLE imp {table}; INSERT INTO imp SELECT seq, MD5(seq) FROM seq_1_to_500"));
    origin.export("x", "imp", &scratch);
    scene.cluster.sql(1, &format!("CREATE TABLE shop.imp {table}"));

    let import = |scene: &Scene, table: &str| {
        scene.cluster.sql(1, &format!("ALTER TABLE shop.{table} DISCARD TABLESPACE"));
        for suffix in ["ibd", "cfg"] {
            let to = scene.cluster.datadir(1).join("shop").join(table).with_extension(suffix);
            std::fs::copy(scratch.join("imp").with_extension(suffix), to).unwrap();
        }
        scene.cluster.sql(1, &format!("ALTER TABLE shop.{table} IMPORT TABLESPACE"));
    };
    let created = |scene: &Scene| {
        scene.cluster.sql(1, &format!("CREATE TABLE shop.made {table}"));
        import(scene, "made");
        scene.cluster.sql(1, "RENAME TABLE shop.made TO shop.named");
    };
    let mut loses = |lost: &str, during: &dyn Fn(&Scene)| {
        scene.join_halfway();
        let (donor, _) = scene.script(1);
        during(&scene);
        std::fs::write(scratch.join("go"), "\n").unwrap();
        scene.gone(&[donor]);
        scene.cluster.wait_ended(2);
        let log = scene.cluster.log(1);
        assert!(log.contains(&format!("left out the rows of {lost}: ")), "{log}");
        assert!(log.contains("innodb_log_checkpoint_now"), "{log}");
        scene.cluster.sql(1, "SET GLOBAL innodb_log_checkpoint_now = ON");
        scene.recovered();
        assert_eq!(scene.cluster.sql(2, "SELECT COUNT(*) FROM shop.imp"), "500\n");
    };
    loses("shop/imp", &|scene| import(scene, "imp"));
    loses("shop/named", &created);
    // What is dropped and rebuilt is no fault.
    scene.join_halfway();
    scene.cluster.sql(
        1,
        "DROP TABLE shop.imp; CREATE TABLE shop.imp (i INT PRIMARY KEY); TRUNCATE shop.named; ALTER TABLE shop.orders FORCE",
    );
    std::fs::write(scratch.join("go"), "\n").unwrap();
    scene.cluster.wait_synced(2);
    assert_eq!(scene.cluster.checksums(2), scene.cluster.checksums(1));
}
