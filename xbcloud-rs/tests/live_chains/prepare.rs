//! How a backup is prepared: with which memory, how its files reach the disk, and with how much redo
//! log, because the server wrote a checkpoint before.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::{MariaDb, Sample};
use xb_testkit::short_disk::ShortDisk;
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;
use xb_testkit::tools::find;

/// A MariaDB whose checkpoint stays where it is.
fn quiet_server() -> MariaDb {
    let server = MariaDb::start_with(&["--innodb-max-dirty-pages-pct-lwm=0"]);
    server.load_sample(Sample::SMALL);
    server
}

fn back_up(store: &Store, server: &MariaDb, name: &str, options: &[&str]) -> Ran {
    back_up_as(store, server, "root", name, options)
}

fn back_up_as(store: &Store, server: &MariaDb, user: &str, name: &str, options: &[&str]) -> Ran {
    let producer = server.backup_command();
    let producer = producer.iter().map(|word| match word.starts_with("--user=") {
        true => format!("--user={user}"),
        false => word.clone(),
    });
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", &store.url(name), "--no-progress", "--server=a", "--accept-history"])
        .arg(format!("--state-dir={}", server.datadir().join("../state").display()))
        .args(store.options())
        .args(options)
        .arg("--")
        .args(producer)
        .run()
        .expect(0)
}

fn source(store: &Store, name: &str) -> Value {
    let text = String::from_utf8(store.get(&format!("{CATALOG}/{name}")).unwrap()).unwrap();
    let manifest: Value = serde_json::from_str(&text[..text.rfind("\nsha256:").unwrap()]).unwrap();
    manifest["source"].clone()
}

fn lsn(source: &Value, field: &str) -> u64 {
    source[field].as_u64().unwrap_or_else(|| panic!("{field} in {source}"))
}

const CHANGE: &str =
    "USE shop; CREATE TABLE IF NOT EXISTS c (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE=InnoDB;
     REPLACE INTO c SELECT seq, REPEAT(MD5(RAND()), 6) FROM seq_1_to_5000;";

#[test]
fn a_checkpoint_moves_each_increment_and_without_one_a_warning_says_so() {
    let store = Store::folder();
    let server = quiet_server();
    let since = "--incremental-from=latest";
    let _ = back_up(&store, &server, "full", &[]);
    server.sql(CHANGE);
    let _ = back_up(&store, &server, "one", &[since]);
    let (full, one) = (source(&store, "full"), source(&store, "one"));
    assert!(lsn(&one, "to_lsn") > lsn(&full, "last_lsn"), "{full} {one}");
    // Its redo log begins there, too.
    assert!(lsn(&one, "redo_start_lsn") > lsn(&full, "last_lsn"), "{full} {one}");
    // Nothing has changed since: no reason for a warning.
    let idle = back_up(&store, &server, "idle", &[since]).stderr_text();
    assert!(!idle.contains("like its base"), "{idle}");

    server.sql(CHANGE);
    let stuck = back_up(&store, &server, "stuck", &[since, "--checkpoint=no"]).stderr_text();
    // A server may write that there was nothing to write.
    let moved = lsn(&source(&store, "stuck"), "to_lsn") - lsn(&source(&store, "idle"), "to_lsn");
    assert!(moved <= 1024, "{moved}");
    assert!(stuck.contains("warning") && stuck.contains("like its base"), "{stuck}");

    server.sql(
        "CREATE USER plain@localhost;
         GRANT RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR ON *.* TO plain@localhost;",
    );
    let refused = back_up_as(&store, &server, "plain", "refused", &[since]).stderr_text();
    assert!(
        refused.contains("no checkpoint before the backup: the login has no SUPER"),
        "{refused}"
    );
    assert!(refused.contains("like its base"), "{refused}");
    assert!(refused.contains("give the producer's login the privilege SUPER"), "{refused}");
}

#[test]
fn the_result_and_the_metrics_of_a_run_say_that_an_increment_is_stuck() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    let _ = back_up(&store, &server, "full", &[]);
    server.sql(CHANGE);
    let (result, metrics) = (scratch.join("result.json"), scratch.join("x.prom"));
    let run = |name: &str, checkpoint: &str| {
        let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["run", &store.url(name), "--quiet", "--server=a", "--accept-history"])
            .args(["--incremental-from=latest", "--verify=none", checkpoint])
            .arg(format!("--state-dir={}", scratch.join("state").display()))
            .arg(format!("--result={}", result.display()))
            .arg(format!("--metrics-file={}", metrics.display()))
            .args(store.options())
            .arg("--")
            .args(server.backup_command())
            .run()
            .expect(0);
        let text = std::fs::read_to_string(&result).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let value = document["stages"][0]["details"]["stuck_lsn"].clone();
        let metrics = std::fs::read_to_string(&metrics).unwrap();
        let metric = metrics.lines().find(|line| line.starts_with("xbcloud_backup_stuck_lsn{"));
        (value, document["warnings"].to_string(), metric.unwrap().ends_with(" 1"))
    };
    let (lsn, warnings, metric) = run("stuck", "--checkpoint=no");
    assert!(lsn.is_u64() && warnings.contains("like its base") && metric, "{warnings}");
    let (lsn, warnings, metric) = run("moved", "--checkpoint=auto");
    assert!(lsn.is_null() && warnings == "[]" && !metric, "{warnings}");
}

/// A program in front of mariadb-backup that records its arguments, and then runs `more`.
fn recorder(scratch: &Scratch, more: &str) -> (PathBuf, PathBuf) {
    let (program, log) = (scratch.join("mariadb-backup-recorded"), scratch.join("calls"));
    let real = find("mariadb-backup").display().to_string();
    let script = format!(
        "#!/bin/sh\n{real} \"$@\" || exit\n[ \"$2\" = --help ] && exit\necho \"$@\" >>{}\n{more}\n",
        log.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, log)
}

fn restore(store: &Store, name: &str, target: &Path, program: &Path, options: &[&str]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["restore", &store.url(name), "--prepare", "--json"])
        .arg(format!("--prepare-program={}", program.display()))
        // The recorder's list.
        .arg(format!("--mysqld-writes={}", program.parent().unwrap().display()))
        .arg(format!("--target-dir={}", target.display()))
        .args(store.options())
        .args(options)
        .run()
}

#[test]
fn memory_and_syncs_are_chosen_for_each_step_unless_the_operator_does() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    let _ = back_up(&store, &server, "full", &[]);
    server.sql(CHANGE);
    let _ = back_up(&store, &server, "one", &["--incremental-from=full"]);
    let (program, log) = recorder(&scratch, "");
    let calls = |name: &str, options: &[&str]| {
        let _ = std::fs::remove_file(&log);
        let options = [&["--prepare-chain=stock"], options].concat();
        let ran = restore(&store, "one", &scratch.join(name), &program, &options).expect(0);
        let calls = std::fs::read_to_string(&log).unwrap();
        let calls: Vec<String> = calls.lines().map(str::to_owned).collect();
        assert_eq!(calls.len(), 2, "{calls:?}");
        (ran.stderr_text(), calls)
    };
    let (said, own) = calls("own", &[]);
    for call in &own {
        // Little redo: the least memory, on every machine that runs this test.
        assert!(call.contains(" --use-memory=134217728 "), "{call}");
        assert!(call.ends_with(" --innodb-flush-method=nosync"), "{call}");
    }
    let done = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let done = done.into_iter().find(|event| event["event"] == "done").unwrap();
    for phase in ["fetch", "prepare", "sync"] {
        assert!(done["phases"][phase].is_f64(), "{phase} in {done}");
    }
    assert!(said.contains("can start on these files (fetch "), "{said}");
    let copy = MariaDb::start_on(&scratch.join("own"));
    assert_eq!(copy.checksums("shop"), server.checksums("shop"));
    drop(copy);

    for (name, options, memory) in [
        ("program", &["--prepare-sync=program", "--use-memory=64M"][..], " --use-memory=67108864"),
        ("none", &["--sync=none", "--prepare-opts=--use_memory=65M"], " --use_memory=65M"),
        ("method", &["--prepare-opts=--innodb-flush-method=fsync"], " --use-memory=134217728"),
    ] {
        let (said, calls) = calls(name, options);
        for call in calls {
            assert!(!call.contains("nosync") && call.contains(memory), "{call}");
            assert_eq!(call.matches(" --use").count(), 1, "{call}");
            assert!(call.matches("-flush-").count() <= 1, "{call}");
        }
        assert!(!said.contains("\"sync\""), "{said}");
    }
}

/// As on a host whose root file system is read-only.
#[test]
fn a_backup_is_prepared_where_nothing_temporary_can_be_written() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    let _ = back_up(&store, &server, "full", &[]);
    let target = scratch.join("t");
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["restore", &store.url("full"), "--prepare"])
        .arg(format!("--target-dir={}", target.display()))
        .args(store.options())
        .env("TMPDIR", "/nonexistent")
        .run()
        .expect(0);
    let copy = MariaDb::start_on(&target);
    assert_eq!(copy.checksums("shop"), server.checksums("shop"));
}

/// The chunk that mariadb-backup 10.11.19 writes near the end then: it removes the folder, and names none of the files in it that
/// the stream has.
#[test]
fn a_database_that_is_dropped_while_its_backup_runs_is_not_restored() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    server.sql("CREATE DATABASE gone; CREATE TABLE gone.t (id INT PRIMARY KEY); CREATE TABLE gone.u (id INT) ENGINE=MyISAM");
    let saved = scratch.join("stream");
    server.save_stream(&saved);
    let mut stream = std::fs::read(&saved).unwrap();
    let head = |kind: u8, name: &str| {
        let len = u32::try_from(name.len()).unwrap().to_le_bytes();
        [b"XBSTCK01\0", &[kind][..], &len, name.as_bytes()].concat()
    };
    let ends = ["xtrabackup_info", "mariadb_backup_info"].map(|name| head(b'P', name));
    let end = ends.iter().find_map(|end| stream.windows(end.len()).position(|at| at == end));
    let end = end.expect("the last file");
    stream.splice(end..end, head(b'D', "gone"));
    let _ = put_bytes(&store, "full", &[], &stream);
    let target = scratch.join("t");
    let restored = xbcloud(&store, "restore", "full", &["--prepare"]);
    let _ = restored.arg("--target-dir").arg(&target).run().expect(0);
    assert!(target.join("shop").exists() && !target.join("gone").exists());
    let copy = MariaDb::start_on(&target);
    assert_eq!(copy.checksums("shop"), server.checksums("shop"));
}

#[test]
fn a_disk_that_fails_while_a_backup_is_prepared_fails_the_restore() {
    let Some(disk) = ShortDisk::mount(200) else {
        xb_testkit::skipped("this user cannot mount a file system on a loop device");
        return;
    };
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    let _ = back_up(&store, &server, "full", &[]);
    let target = disk.path().join("t");
    // The program has succeeded, and its writes are in the cache. It does not sync.
    let fill =
        format!("dd if=/dev/urandom of={}/big bs=1M count=200 2>/dev/null", target.display());
    let (program, log) = recorder(&scratch, &fill);
    let said = restore(&store, "full", &target, &program, &[]).expect_failure().stderr_text();
    assert!(std::fs::read_to_string(&log).unwrap().contains("nosync"));
    assert!(said.contains("the disk did not store everything"), "{said}");
    assert!(!said.contains("can start on these files"), "{said}");
}

/// Increments are not synced when they are fetched: the last sync has to know of what failed since.
#[test]
fn a_disk_that_fails_before_a_chain_is_prepared_fails_the_restore() {
    let Some(disk) = ShortDisk::mount(300) else {
        xb_testkit::skipped("this user cannot mount a file system on a loop device");
        return;
    };
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    let _ = back_up(&store, &server, "full", &[]);
    server.sql(CHANGE);
    let _ = back_up(&store, &server, "one", &["--incremental-from=full"]);
    let target = disk.path().join("t");
    // The first call comes before the merge. The disk fails, another program is told, and then it is well again.
    let program = scratch.join("mariadb-backup-behind-a-failure");
    let script = format!(
        "#!/bin/sh
        if [ \"$2\" = --help ]; then
            dd if=/dev/urandom of={big} bs=1M count=300 2>/dev/null
            sync -f {big} && exit 1
            rm {big}; mount -o remount,size=2g {backing}; sync -f {target} || sync -f {target}
        fi
        exec {real} \"$@\"",
        big = target.join(".xb-incremental/big").display(),
        backing = disk.path().with_file_name("backing").display(),
        target = target.display(),
        real = find("mariadb-backup").display(),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = restore(&store, "one", &target, &program, &[]).expect_failure().stderr_text();
    assert!(said.contains("in one pass: 1"), "{said}");
    assert!(said.contains("the disk did not store everything"), "{said}");
    assert!(!said.contains("can start on these files"), "{said}");
}

/// mariadb-backup stores no list of the buffer pool's pages; another program, or a later version, may.
#[test]
fn the_list_of_the_buffer_pool_comes_back_if_a_stream_has_it() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = MariaDb::start();
    server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY)");
    let options = |command: &str, name: &str| {
        let run = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args([command, &store.url(name)]);
        run.args(["--no-progress"]).args(store.options())
    };
    let mut since = None;
    for (name, pages) in [("full", "0,1\n"), ("one", "0,1\n0,5\n")] {
        // The program's own stream comes behind this part of it.
        let program = scratch.join("mariadb-backup-with-pool");
        let part = scratch.join("part");
        let mut stream = StreamWriter::new(Vec::new());
        stream.payload("ib_buffer_pool", 0, pages.as_bytes()).end("ib_buffer_pool");
        std::fs::write(&part, stream.finish()).unwrap();
        let real = find("mariadb-backup").display().to_string();
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *\" --backup \"*) cat {} ;; esac\nexec {real} \"$@\"\n",
            part.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = options("backup", name).args(["--server=a", "--accept-history"]).args(&since);
        let run = run.arg(format!("--state-dir={}", scratch.join("state").display()));
        let words = server.backup_command();
        let _ = run.arg("--").arg(program).args(&words[1..]).run().expect(0);
        server.sql("REPLACE INTO shop.t VALUES (1), (2)");
        since = Some(format!("--incremental-from={name}"));
    }
    let pool = |name: &str, how: &[&str]| {
        let target = scratch.join(format!("{name}{}", how.len()));
        let run = options("restore", name).arg(format!("--target-dir={}", target.display()));
        let _ = run.args(how).run().expect(0);
        std::fs::read_to_string(target.join("ib_buffer_pool")).unwrap()
    };
    assert_eq!(pool("full", &["--prepare"]), "0,1\n");
    assert_eq!(pool("one", &["--prepare"]), "0,1\n0,5\n");
    let tmp = format!("--scratch-dir={}", scratch.path().display());
    let _ = options("consolidate", "one").arg(tmp).run().expect(0);
    assert_eq!(pool("one-full", &[]), "0,1\n0,5\n");
}

#[test]
fn an_export_leaves_no_redo_log_of_the_origins_size() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = quiet_server();
    let _ = back_up(&store, &server, "full", &[]);
    let (program, _) = recorder(&scratch, "");
    let target = scratch.join("exported");
    let options = ["--export", "--files=shop/*"];
    let _ = restore(&store, "full", &target, &program, &options).expect(0);
    let log = target.join("ib_logfile0").metadata().unwrap().len();
    assert!(log <= 32 << 20, "the server has a log of 64 MiB, the export one of {log}");
    let settings = std::fs::read_to_string(target.join("backup-my.cnf")).unwrap();
    assert!(settings.contains("innodb_log_file_size=67108864"), "{settings}");
}
