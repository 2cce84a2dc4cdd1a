//! The second start of a Percona joiner, with a real MySQL server as its `mysqld`. Percona's parts
//! that MySQL lacks are played: the cluster, and xtrabackup by a copy of a server's files after its
//! end.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere
//! they do nothing, and say so.
#![allow(clippy::unwrap_used, clippy::expect_used)] // test support: a panic with its cause is how a test fails

mod harness;

use std::path::{Path, PathBuf};

use harness::{Ended, STATE, Scene, percona, tree};
use xb_testkit::daemon::Scratch;
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::stream::StreamWriter;

/// Tables of several kinds, the account of the donor's transfers, and two replica channels.
const DATA: &str = "SET SESSION cte_max_recursion_depth=100000;
    CREATE DATABASE t; USE t;
    CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(200), KEY(v(50)));
    INSERT INTO plain WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<4000) SELECT n, REPEAT(LEFT(SHA2(n,256),32),5) FROM s;
    CREATE TABLE secret LIKE plain; ALTER TABLE secret ENCRYPTION='Y'; INSERT INTO secret SELECT * FROM plain;
    CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(200)) PARTITION BY HASH(id) PARTITIONS 3; INSERT INTO parts SELECT * FROM plain;
    CREATE TABLESPACE g1 ADD DATAFILE 'g1.ibd'; CREATE TABLE general (id INT PRIMARY KEY, v TEXT) TABLESPACE g1; INSERT INTO general SELECT * FROM plain;
    CREATE UNDO TABLESPACE u1 ADD DATAFILE 'u1.ibu';
    CREATE TABLE words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)); INSERT INTO words SELECT id, LEFT(v, 32) FROM plain;
    CREATE USER 'mysql.pxc.sst.user'@localhost IDENTIFIED BY 'x'; CREATE USER someone@localhost IDENTIFIED BY 'y';
    CHANGE REPLICATION SOURCE TO SOURCE_HOST='192.0.2.1', SOURCE_USER='u', SOURCE_PASSWORD='p' FOR CHANNEL 'up';
    CHANGE REPLICATION SOURCE TO SOURCE_HOST='192.0.2.2', SOURCE_USER='u', SOURCE_PASSWORD='p' FOR CHANNEL '';";
const TABLES: &str = "CHECKSUM TABLE t.plain, t.secret, t.parts, t.general, t.words, t.remote";

/// Plays xtrabackup, whose backup needs no preparing.
const XTRABACKUP: &str = r#"#!/bin/sh
case " $* " in
*" --version "*) cat "${0%/*}/version" >&2 ;;
*" --prepare "*) ;;
*) cat "${0%/*}/stream" ;;
esac
"#;

/// A donor's data, as its server left it.
struct Donor {
    folder: Scratch,
    /// Directory of a table outside the data directory.
    outside: Scratch,
    version: String,
    plugins: String,
    uuid: String,
    sums: String,
}

/// `None` where there is no MySQL.
fn donor() -> Option<Donor> {
    if !is_installed() {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
        return None;
    }
    let outside = Scratch::new();
    let server = MySql::start_with(&[&searched(&outside), "--server-id=1"]);
    server.sql(DATA);
    let place = outside.path().display();
    server.sql(&format!("CREATE TABLE t.remote (id INT PRIMARY KEY, v TEXT) DATA DIRECTORY='{place}'; INSERT INTO t.remote SELECT * FROM t.plain"));
    let ask = |what: &str| server.sql(what).trim().to_owned();
    let (version, plugins) = (ask("SELECT VERSION()"), ask("SELECT @@plugin_dir"));
    let (uuid, sums) = (ask("SELECT @@server_uuid"), server.sql(TABLES));
    Some(Donor { folder: server.shut_down(), outside, version, plugins, uuid, sums })
}

fn searched(outside: &Scratch) -> String {
    format!("--innodb-directories={}", outside.path().display())
}

impl Donor {
    /// Two nodes: this donor, and a joiner with old data and options that lead to other places.
    fn scene(&self, sst: &str, mysqld: &str) -> Scene {
        let scene = Scene::new();
        scene.program("backup", XTRABACKUP);
        let version =
            format!("xtrabackup version 9 based on MySQL server {} Linux\n", self.version);
        std::fs::write(scene.bin().join("version"), version).unwrap();
        std::fs::write(scene.bin().join("stream"), self.stream()).unwrap();
        let data = self.folder.join("data");
        for name in ["mysqld.my", "component_keyring_file.cnf"] {
            std::fs::copy(data.join(name), scene.data("joiner").join(name)).unwrap();
        }
        let auto = "[auto]\nserver-uuid=11111111-2222-3333-4444-555555555555\n";
        std::fs::write(scene.data("joiner").join("auto.cnf"), auto).unwrap();
        let (place, outside) = (scene.scratch.path().display(), self.outside.path().display());
        for name in ["redo", "undo"] {
            std::fs::create_dir(scene.scratch.join(name)).unwrap();
        }
        scene.options(&format!(
            "wire-security=any-donor\n{sst}\n[mysqld]\nserver-id=2\nlog-error={place}/never.err\nlog-bin={place}/never-bin\n\
             relay-log={place}/never-relay\ngeneral-log=ON\ngeneral-log-file={place}/never-general\nslow-query-log=ON\n\
             slow-query-log-file={place}/never-slow\nsocket={place}/never.sock\npid-file={place}/never.pid\n\
             super-read-only=ON\nssl-ca=none.pem\nssl-cert=none.pem\nssl-key=none.pem\ninit-file={place}/never.sql\n\
             innodb-log-group-home-dir={place}/redo\ninnodb-undo-directory={place}/undo\n\
             innodb-data-file-path={place}/joiner/ibdata1:12M:autoextend\ninnodb-directories={outside}\n\
             loose-wsrep-provider=/none.so\nloose-wsrep-cluster-address=gcomm://192.0.2.3\n{mysqld}"
        ));
        scene
    }

    /// The stream of its files.
    fn stream(&self) -> Vec<u8> {
        let mut out = StreamWriter::new(Vec::new());
        let mut add = |name: &str, content: &[u8]| {
            for (number, piece) in content.chunks(1 << 20).enumerate() {
                out.payload(name, (number << 20) as u64, piece);
            }
            out.end(name);
        };
        for (name, content) in tree(&self.folder.join("data")) {
            let own =
                ["auto.cnf", "mysqld.my", "component_", "relay", ".pem", "#innodb_temp", ".dblwr"];
            if !own.iter().any(|part| name.contains(part)) {
                add(&name, &content);
            }
        }
        let remote = self.remote();
        add(
            "t/remote.ibd",
            &std::fs::read(self.folder.join("remote.ibd")).or(std::fs::read(&remote)).unwrap(),
        );
        add("t/remote.isl", remote.to_str().unwrap().as_bytes());
        add("backup-my.cnf", b"[mysqld]\n");
        add("xtrabackup_checkpoints", b"backup_type = full-prepared\nto_lsn = 1\n");
        add("xtrabackup_galera_info", STATE.as_bytes());
        add("xtrabackup_info", b"tool_name = xtrabackup\ntool_version = 9\n");
        add("xtrabackup_tablespaces", b"{}");
        // The joiner has the same path on the same machine.
        if remote.exists() {
            std::fs::copy(&remote, self.folder.join("remote.ibd")).unwrap();
            std::fs::remove_dir_all(self.outside.join("t")).unwrap();
        }
        out.finish()
    }

    fn remote(&self) -> PathBuf {
        self.outside.join("t/remote.ibd")
    }

    fn transfer(&self, scene: &Scene) -> (Ended, Ended) {
        let server = percona::Install {
            base: Path::new("/usr"),
            plugins: &self.plugins,
            version: &self.version,
        };
        percona::transfer(scene, server)
    }

    /// Starts a server on what the joiner has now.
    fn server_on(&self, scene: &Scene) -> MySql {
        let place = scene.scratch.path().display();
        let dirs = [
            format!("--innodb-log-group-home-dir={place}/redo"),
            format!("--innodb-undo-directory={place}/undo"),
            searched(&self.outside),
        ];
        MySql::start_on(&scene.data("joiner"), &dirs.each_ref().map(String::as_str))
    }
}

const CHANNELS: &str =
    "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration WHERE HOST <> ''";

#[test]
fn a_real_server_finishes_the_data_before_the_swap() {
    let Some(donor) = donor() else { return };
    let scene = donor.scene("time=yes", "");
    let (joiner, ended) = donor.transfer(&scene);
    assert!(joiner.status.success(), "{}\n{}", joiner.log, ended.log);
    assert_eq!(joiner.lines, [STATE]);
    assert!(joiner.log.contains("its 2 replica channels were removed"), "{}", joiner.log);
    let data = scene.data("joiner");
    // Nothing was written where the option file leads, and nothing private is left in the data.
    let left = |folder: &Path, part: &str| {
        let mut names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name());
        names.any(|name| name.to_str().unwrap().contains(part))
    };
    for (folder, part) in [
        (scene.scratch.path(), "never"),
        (scene.scratch.path(), "xbrs-"),
        (&data, "auto.cnf"),
        (&data, ".pem"),
        (&data, "relay"),
        (&data, "#innodb_temp"),
        (&data, "undo_"),
    ] {
        assert!(!left(folder, part), "{part} in {}", folder.display());
    }
    assert!(
        left(&scene.scratch.join("undo"), "undo_001")
            && left(&scene.scratch.join("undo"), "u1.ibu")
    );
    assert!(donor.remote().exists(), "it is where the donor has it");

    let server = donor.server_on(&scene);
    assert_eq!(server.sql(TABLES), donor.sums);
    let locked =
        "SELECT User, account_locked FROM mysql.user WHERE User LIKE '%pxc%' OR User LIKE 'some%'";
    assert_eq!(server.sql(locked), "mysql.pxc.sst.user\tY\nsomeone\tN\n");
    assert_eq!(
        (server.sql(CHANNELS), server.sql("SHOW REPLICA STATUS")),
        ("0\n".into(), "".into())
    );
    let uuid = server.sql("SELECT @@server_uuid");
    assert!(uuid.trim() != donor.uuid && !uuid.starts_with("11111111"), "{uuid}");
    let _ = server.shut_down();
}

#[test]
fn replica_channels_and_files_outside_may_stay() {
    let Some(donor) = donor() else { return };
    let scene = donor.scene("reset-replica=no", "innodb-directories=/other");
    let (joiner, _) = donor.transfer(&scene);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert!(joiner.log.contains("keeps 2 replica channels"), "{}", joiner.log);
    // A server of this node would not look for the table outside.
    assert!(joiner.log.contains("innodb_directories does not name"), "{}", joiner.log);
    assert!(scene.data("joiner").join("t/remote.ibd").exists() && !donor.remote().exists());
    let server = donor.server_on(&scene);
    assert_eq!((server.sql(CHANNELS), server.sql(TABLES)), ("2\n".into(), donor.sums.clone()));
    let _ = server.shut_down();
}

/// The server's reason reaches the log, and the node has its old data.
#[test]
fn a_server_that_cannot_use_the_data_keeps_the_old() {
    let Some(donor) = donor() else { return };
    let scene = donor.scene("", "lower-case-table-names=1");
    let before = tree(&scene.data("joiner"));
    let (joiner, _) = donor.transfer(&scene);
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{}", joiner.log);
    assert!(joiner.log.contains("Different lower_case_table_names settings"), "{}", joiner.log);
    let mut after = tree(&scene.data("joiner"));
    after.retain(|(name, _)| !name.starts_with("xbrs."));
    assert!(after == before, "the old data changed");
}
