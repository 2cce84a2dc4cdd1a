//! `verify` with backups of a real server, with damage from before the backup, and with a real
//! server started on restored files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::*;
use rustix::process::Signal;
use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::{Scratch, descendants, process_name};
use xb_testkit::mariadb::{MariaDb, Sample};
use xb_testkit::store::Store;
use xb_testkit::stream::{StreamWriter, small_backup};
use xb_testkit::tools::find;

/// A backup of a server under load, as mariadb-backup wrote it.
fn live_stream() -> &'static Path {
    static STREAM: OnceLock<(PathBuf, Scratch)> = OnceLock::new();
    &STREAM
        .get_or_init(|| {
            let server = MariaDb::start();
            server.load_sample(Sample::SMALL);
            server.sql(
                "USE shop; CREATE TABLE shop.squeezed (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB PAGE_COMPRESSED=1;
                 INSERT INTO shop.squeezed SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_3000;
                 CREATE TABLE shop.zipped (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4;
                 INSERT INTO shop.zipped SELECT * FROM shop.squeezed;",
            );
            // Data that the server has not yet written to its files is only in the redo log.
            let files = server.shut_down();
            let server = MariaDb::start_on(&files.join("data"));
            let writer = server.start_writing();
            let scratch = Scratch::new();
            let stream = scratch.join("stream");
            server.save_stream(&stream);
            let _ = writer.stop();
            (stream, scratch)
        })
        .0
}

pub(crate) fn verify(store: &Store, name: &str, options: &[&str]) -> Cmd {
    xbcloud(store, "verify", name, options).arg("--json")
}

#[track_caller]
pub(crate) fn report(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("no report: {ran:?}"))
}

fn line(store: &Store, name: &str) -> Value {
    let listing = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["list", "--json", "--quiet"])
        .args(store.options())
        .arg(store.root_url())
        .run()
        .expect(0);
    let lines: Value = serde_json::from_slice(&listing.stdout).unwrap();
    lines.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap().clone()
}

#[test]
fn a_healthy_live_backup_gives_no_alarm_in_any_layout() {
    let scratch = Scratch::new();
    let file = scratch.join("key");
    std::fs::write(&file, [5; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", file.display());
    for (store, put, with) in [
        (Store::folder(), vec!["--compress=zstd:1", &key], vec![key.as_str()]),
        (Store::bucket(), vec!["--chunk-size=5M"], vec![]),
        (Store::folder(), vec!["--layout=classic"], vec![]),
        (
            Store::folder(),
            vec!["--layout=classic", "--compress=lz4", "--encrypt=AES256", &key],
            vec![key.as_str(), "--accept-unsealed"],
        ),
    ] {
        let _ = put_file(&store, "n", &put, live_stream());
        let mut with = with.clone();
        with.push("--memory=64M");
        let found = report(&verify(&store, "n", &with).run().expect(0));
        assert_eq!(
            (&found["reached"], &found["problems"]),
            (&"pages".into(), &Value::Array(vec![]))
        );
        let pages = &found["pages"];
        assert_eq!((pages["damaged"].as_u64(), pages["passed_over"].as_u64()), (Some(0), Some(0)));
        assert!(
            pages["good"].as_u64().unwrap() > 1000 && pages["files"].as_u64().unwrap() > 10,
            "{pages}"
        );
        assert_eq!(line(&store, "n")["verified"]["level"], "pages");
    }
}

/// The server's files with one changed bit, put into a stream directly: mariadb-backup would have
/// refused them.
#[test]
fn a_page_damaged_before_the_backup_is_found_in_its_file_and_place() {
    let server = MariaDb::start();
    server.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v TEXT) ENGINE=InnoDB;
                INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_5000;",
    );
    let files = server.shut_down();
    let data = files.join("data");
    let mut table = std::fs::read(data.join("d/t.ibd")).unwrap();
    let mut stream = StreamWriter::new(Vec::new());
    let system = std::fs::read(data.join("ibdata1")).unwrap();
    table[5 * 16384 + 1000] ^= 4;
    for (name, content) in [("ibdata1", &system), ("d/t.ibd", &table)] {
        for (n, piece) in content.chunks(1 << 20).enumerate() {
            stream.payload(name, (n << 20) as u64, piece);
        }
        stream.end(name);
    }
    stream.payload("xtrabackup_info", 0, b"uuid = x\n");
    stream.end("xtrabackup_info");
    let stream = stream.finish();
    for options in [vec![], vec!["--layout=classic", "--compress=zstd"]] {
        let store = Store::folder();
        let _ = put_bytes(&store, "n", &options, &stream);
        let _ = verify(&store, "n", &["--level=decrypt"]).run().expect(0);
        let found = report(&verify(&store, "n", &[]).run().expect_failure());
        assert_eq!(found["reached"], "decrypt");
        let problems = found["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{found}");
        assert!(problems[0]["file"].as_str().unwrap().starts_with("d/t.ibd"));
        assert_eq!(problems[0]["offset"], 5 * 16384);
        assert_eq!(line(&store, "n")["verified"]["failed"], "pages");
    }
}

/// The events of a run show its phases in order, with numbers that fit each other, up to the last
/// one. A phase that takes less than the display's interval may be left out.
fn assert_phases(ran: &Ran, of: u64, last: &str) {
    let text = ran.stderr_text();
    let phases: Vec<Value> = text
        .lines()
        .map(serde_json::from_str::<Value>)
        .map(|event| event.expect("JSON"))
        .filter(|event| event["event"] == "progress")
        .map(|event| event["phase"].clone())
        .filter(|phase| !phase.is_null())
        .collect();
    let number = |phase: &Value| phase["number"].as_u64().unwrap();
    assert!(phases.is_sorted_by_key(number), "{phases:?}");
    for phase in &phases {
        assert_eq!(phase["of"], of, "{phase}");
        let (done, total) = (phase["done"].as_u64().unwrap(), phase["total"].as_u64());
        assert!(total.is_none_or(|total| done <= total), "{phase}");
    }
    let end = phases.last().expect("phases");
    assert_eq!((number(end), end["name"].as_str()), (of, Some(last)), "{phases:?}");
}

#[test]
fn a_server_is_tried_on_the_restored_backup() {
    let store = Store::folder();
    let _ = put_file(&store, "n", &["--compress=zstd:1"], live_stream());
    let scratch = Scratch::new();
    let folder = format!("--scratch-dir={}", scratch.path().display());
    let options = ["--level=restore", &folder, "--check-sql=SELECT COUNT(*) FROM shop.squeezed"];
    // Without --quiet, which hides the events.
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["verify", "--json"]);
    let ran = ran.args(store.options()).args(options).arg(store.url("n")).run().expect(0);
    assert_phases(&ran, 6, "check");
    let found = report(&ran);
    assert_eq!(found["reached"], "restore");
    assert!(found["restore"]["tables"].as_u64().unwrap() > 30, "{found}");
    assert_eq!(found["restore"]["statements"], 1);
    assert_eq!(line(&store, "n")["verified"]["level"], "restore");
    let left = || std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left(), 0, "the scratch folder is removed");

    let options = ["--level=restore", &folder, "--check-sql=SELECT 1 FROM shop.no_such_table"];
    let found = report(&verify(&store, "n", &options).run().expect_failure());
    assert_eq!(found["reached"], "pages");
    assert!(found["failed_checks"][0].as_str().unwrap().contains("no_such_table"), "{found}");
    assert_eq!(found["problems"].as_array().unwrap().len(), 0, "a bad statement is no damage");
    // An earlier proof still counts.
    let verified = line(&store, "n")["verified"].clone();
    assert_eq!((&verified["level"], &verified["failed"]), (&"restore".into(), &Value::Null));
    assert_eq!(left(), 0);

    // Cancelled while its server runs: both the server and the scratch directory are removed.
    let slow = "--check-sql=SELECT SLEEP(600)";
    let mut run = verify(&store, "n", &["--level=restore", &folder, slow]).spawn();
    let pid = std::cell::Cell::new(None);
    let main = run.pid();
    run.until("its server runs", || {
        let found = descendants(main).into_iter().find(|pid| {
            process_name(*pid).is_some_and(|n| n.contains("mariadbd") || n.contains("mysqld"))
        });
        pid.set(pid.get().or(found));
        pid.get().is_some()
    });
    run.signal(Signal::TERM);
    let _ = run.wait().expect(143);
    assert_eq!(left(), 0);
    assert!(process_name(pid.get().unwrap()).is_none(), "its server still runs");
}

/// The system kills a server that fills the memory of a small host. That is no damage of the backup.
#[test]
fn a_trial_whose_server_was_killed_proves_nothing() {
    let (store, scratch) = (Store::folder(), Scratch::new());
    let _ = put_file(&store, "n", &["--compress=zstd:1"], live_stream());
    let folder = format!("--scratch-dir={}", scratch.path().display());
    let log = ["--mysqld-opts=--general-log=1", "--mysqld-opts=--general-log-file=asked.log"];
    let options = ["--level=restore", &folder, "--check-sql=SELECT SLEEP(600)"];
    let mut run = verify(&store, "n", &options).args(log).spawn();
    let main = run.pid();
    run.until("the statement runs", || {
        let scratches = std::fs::read_dir(scratch.path()).unwrap();
        scratches.flatten().any(|place| {
            let asked = std::fs::read_to_string(place.path().join("data/asked.log"));
            asked.is_ok_and(|asked| asked.contains("SLEEP(600)"))
        })
    });
    let is_server = |pid: &u32| {
        process_name(*pid).is_some_and(|n| n.contains("mariadbd") || n.contains("mysqld"))
    };
    let server = descendants(main).into_iter().find(is_server).unwrap();
    let server = rustix::process::Pid::from_raw(server.cast_signed()).unwrap();
    rustix::process::kill_process(server, Signal::KILL).unwrap();
    let said = run.wait().expect(1).stderr_text();
    assert!(
        said.contains("was killed by signal 9") && said.contains("if memory ran out"),
        "{said}"
    );
    let found = line(&store, "n");
    assert_eq!(found["verified"]["failed"], Value::Null, "{found}");
    assert!(found["failed_try"]["why"].as_str().unwrap().contains("killed"), "{found}");
}

/// An incremental backup is tried out with its base. Its own tablespaces are not checked page by
/// page, and the report states that. Neither `prune` nor `delete` breaks the chain.
#[test]
fn an_incremental_backup_is_tried_out_with_its_base() {
    let (store, scratch) = (Store::folder(), Scratch::new());
    let server = MariaDb::start();
    server.sql("CREATE DATABASE d; CREATE TABLE d.first (id INT) ENGINE=InnoDB;");
    let state = format!("--state-dir={}", scratch.join("state").display());
    let back_up = |name: &str, options: &[&str]| {
        let run = xbcloud(&store, "backup", name, options).arg(&state).arg("--");
        let _ = run.args(server.backup_command()).run().expect(0);
    };
    back_up("full", &[]);
    server.sql("CREATE TABLE d.second (id INT) ENGINE=InnoDB; INSERT INTO d.second VALUES (7);");
    back_up("inc", &["--incremental-from=full"]);

    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let sql = "--check-sql=SELECT id FROM d.second";
    let found = report(&verify(&store, "inc", &["--level=restore", &folder, sql]).run().expect(0));
    assert_eq!(found["reached"], "restore");
    assert!(found["pages"]["passed_over"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(
        (&line(&store, "inc")["kind"], &line(&store, "inc")["base"]["name"]),
        (&"incremental".into(), &"full".into())
    );

    let prune = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["prune", "--quiet", "--keep-last=1", "--yes"])
        .args(store.options())
        .arg(store.root_url())
        .run()
        .expect(0);
    assert!(prune.stdout_text().contains("base of inc"), "{prune:?}");
    assert!(has_manifest(&store, "full") && has_manifest(&store, "inc"));
    let _ = xbcloud(&store, "delete", "full", &["--yes"]).run().expect_failure();
}

/// Tables of every kind that a trial answers differently. The name of one holds a line break and a
/// tab.
const EVERY_KIND: &str = "CREATE DATABASE x; USE x;
    CREATE TABLE a (i INT PRIMARY KEY); INSERT INTO a SELECT seq FROM seq_1_to_3000;
    CREATE TABLE b LIKE a; CREATE TABLE c LIKE a; CREATE TABLE whole LIKE a;
    CREATE TABLE m (i INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO m VALUES (1);
    CREATE TABLE n LIKE m; CREATE TABLE r (i INT PRIMARY KEY) ENGINE=Aria;
    CREATE TABLE s (i INT PRIMARY KEY) WITH SYSTEM VERSIONING; INSERT INTO s SELECT seq FROM seq_1_to_3000;
    CREATE SEQUENCE q; CREATE SEQUENCE q2;
    CREATE TABLE p (i INT PRIMARY KEY) PARTITION BY HASH (i) PARTITIONS 2;
    CREATE TABLE f (i INT PRIMARY KEY, t TEXT, FULLTEXT (t)); INSERT INTO f VALUES (1, 'some words');
    CREATE TABLE mem (i INT) ENGINE=MEMORY; CREATE TABLE ar (i INT) ENGINE=ARCHIVE;
    CREATE TABLE disc (i INT PRIMARY KEY); ALTER TABLE disc DISCARD TABLESPACE;
    CREATE VIEW v AS SELECT * FROM a; CREATE TABLE gone (i INT); CREATE VIEW vb AS SELECT * FROM gone; DROP TABLE gone;
    CREATE TRIGGER `on.e` BEFORE INSERT ON whole FOR EACH ROW SET @x = 1;
    CREATE TABLE `odd.näme\n1\tx\\\\n\r'\"$%/\u{1}\u{ffef}` (i INT PRIMARY KEY) ENGINE=MyISAM;
    CREATE DATABASE `oth-er`; CREATE TABLE `oth-er`.`t.1` (i INT PRIMARY KEY);";

/// The files of a backup of all these tables, as the producer wrote them.
fn backup_of_every_kind(scratch: &Scratch) -> PathBuf {
    backup_of(EVERY_KIND, scratch)
}

/// The files of a backup of a server on which these statements were run, and nothing since.
pub(crate) fn backup_of(statements: &str, scratch: &Scratch) -> PathBuf {
    let archive = "--plugin-load-add=ha_archive";
    let server = MariaDb::start_with(&[archive]);
    server.sql(statements);
    // So that all tables are older than the checkpoint, and recovery creates none of them.
    let files = server.shut_down();
    let server = MariaDb::start_on(&files.join("data"));
    let (stream, backup) = (scratch.join("stream"), scratch.dir("backup"));
    server.save_stream(&stream);
    let unpack = Cmd::new(find("mbstream")).args(["-x", "-C"]).arg(&backup);
    let _ = unpack.stdin_file(&stream).run().expect(0);
    backup
}

/// A stream of these files, with the last file of a producer at its end.
pub(crate) fn stream_of(backup: &Path) -> Vec<u8> {
    let (mut stream, mut todo, mut files) =
        (StreamWriter::new(Vec::new()), vec![backup.to_owned()], vec![]);
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { todo.push(path) } else { files.push(path) }
        }
    }
    let is_last = |path: &Path| {
        ["xtrabackup_info", "mariadb_backup_info"].iter().any(|name| path.ends_with(name))
    };
    files.sort_by_key(|path| (is_last(path), path.clone()));
    for path in files {
        let name = path.strip_prefix(backup).unwrap().to_str().unwrap().to_owned();
        let _ = stream.file(&name, &std::fs::read(&path).unwrap(), 1 << 20);
    }
    stream.finish()
}

/// A trial that ends without a result is no damage, and no earlier proof hides it.
#[test]
fn a_trial_whose_preparation_fails_is_recorded_and_shown() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = MariaDb::start();
    let stream = scratch.join("stream");
    server.save_stream(&stream);
    drop(server);
    let _ = put_file(&store, "n", &[], &stream);
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let options = ["--level=restore", &folder];
    let monitor = |code| {
        let limits = ["--proof-level=restore", "--max-proof-age=1d"];
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg("monitor")
            .args(limits)
            .args(store.options())
            .arg(store.root_url())
            .run()
            .expect(code);
        String::from_utf8(ran.stdout).unwrap()
    };
    let _ = verify(&store, "n", &options).run().expect(0);
    assert_eq!(line(&store, "n")["failed_try"], Value::Null);
    let _ = monitor(0);

    let program = scratch.join("false");
    std::fs::write(&program, "#!/bin/sh\necho no keyring here >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("--prepare-program={}", program.display());
    let failed = verify(&store, "n", &options).arg(program).run().expect(1);
    assert!(failed.stderr_text().contains("no keyring here"), "{failed:?}");
    let found = line(&store, "n");
    assert_eq!(found["failed_try"]["level"], "restore", "{found}");
    assert!(found["failed_try"]["why"].as_str().unwrap().contains("false"), "{found}");
    let proof = &found["verified"];
    assert_eq!((&proof["level"], &proof["failed"]), (&"restore".into(), &Value::Null), "{found}");
    let said = monitor(2);
    assert!(
        said.contains("no backup is verified up to the requested level")
            && said.contains("n: the last try to verify level restore failed"),
        "{said}"
    );

    // So is one that this host cannot even begin. That says nothing about the backup: its proof stands, and ages.
    let nowhere = scratch.join("nowhere");
    let lacks = |option: &str| format!("--{option}={}", nowhere.display());
    for option in ["prepare-program", "mysqld"] {
        let _ = verify(&store, "n", &options).run().expect(0);
        let _ = monitor(0);
        let _ = verify(&store, "n", &options).arg(lacks(option)).run().expect_failure();
        let found = line(&store, "n");
        let why = found["failed_try"]["why"].as_str().unwrap();
        assert!(why.contains("no such program"), "{option}: {found}");
        let said = monitor(1);
        assert!(said.contains("n: the last try to verify level restore could not begin"), "{said}");
    }

    // A statement of the user's own that fails leaves the question open, too.
    let _ = verify(&store, "n", &options).arg("--check-sql=SELECT no_such").run().expect(7);
    let found = line(&store, "n");
    assert!(found["failed_try"]["why"].as_str().unwrap().contains("no_such"), "{found}");
    let _ = verify(&store, "n", &options).run().expect(0);
    assert_eq!(line(&store, "n")["failed_try"], Value::Null);
    let _ = monitor(0);
}

/// A wrong key says nothing about the backup, but a night without a proof must show.
#[test]
fn a_trial_without_the_right_key_is_recorded_as_not_begun() {
    let (scratch, store) = (Scratch::new(), Store::folder());
    let key = |name: &str, byte| {
        let file = scratch.join(name);
        std::fs::write(&file, [byte; 32]).unwrap();
        format!("--encrypt-key-file={}", file.display())
    };
    let (right, wrong) = (key("right", 1), key("wrong", 2));
    let stream = scratch.join("stream");
    std::fs::write(&stream, small_backup(2, 3000)).unwrap();
    let _ = put_file(&store, "n", &[&right], &stream);
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    for keys in [&[wrong.as_str()][..], &[]] {
        let tried = verify(&store, "n", &["--level=restore", &folder]).args(keys).run();
        let said = tried.expect_failure().stderr_text();
        let found = line(&store, "n");
        let why = found["failed_try"]["why"].as_str().unwrap();
        assert!(found["failed_try"]["refused"] == true && said.contains(why), "{found}: {said}");
        assert_eq!(found["verified"]["failed"], Value::Null, "{found}");
    }
}

/// Files that hold nothing, and a redo log that recovery cannot read, are damage at level pages.
#[test]
fn files_without_pages_and_unusable_redo_logs_are_damage_at_level_pages() {
    let scratch = Scratch::new();
    let tables = "CREATE DATABASE x; USE x; CREATE TABLE a (i INT PRIMARY KEY); CREATE TABLE s (i INT PRIMARY KEY, t VARCHAR(99)); \
        INSERT INTO a SELECT seq FROM seq_1_to_3000; INSERT INTO s SELECT seq, SHA1(seq) FROM seq_1_to_3000";
    let backup = backup_of(tables, &scratch);
    let store = Store::folder();
    let level = ["--level=pages"];
    let _ = put_bytes(&store, "sound", &[], &stream_of(&backup));
    let found = report(&verify(&store, "sound", &level).run().expect(0));
    assert_eq!(found["pages"]["undecided"], 0, "{found}");

    let zeros = |bytes: &[u8]| vec![0; bytes.len()];
    let nothing = |_: &[u8]| Vec::new();
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 20].to_vec();
    let headless = |bytes: &[u8]| [&zeros(&bytes[..16384]), &bytes[16384..]].concat();
    let rootless =
        |bytes: &[u8]| [&bytes[..3 * 16384], &zeros(&bytes[..16384]), &bytes[4 * 16384..]].concat();
    type Damage<'d> = &'d dyn Fn(&[u8]) -> Vec<u8>;
    // In the last record: recovery ends before it, and exits with 0.
    let broken = |log: &[u8]| {
        let at = log.len() - 30;
        [&log[..at], &[log[at] ^ 4], &log[at + 1..]].concat()
    };
    let damages: [(&str, &str, Damage<'_>, &str); 10] = [
        ("ibd-empty", "x/a.ibd", &nothing, "page 0: the file holds no page"),
        ("ibd-zeros", "x/a.ibd", &zeros, "page 0: the file holds no page"),
        ("ibd-head", "x/s.ibd", &headless, "page 0: empty page that is in use in every tablespace"),
        ("ibd-root", "x/s.ibd", &rootless, "page 3: empty page that is in use in every tablespace"),
        ("system-zeros", "ibdata1", &zeros, "page 0: the file holds no page"),
        ("redo-empty", "ib_logfile0", &nothing, "the redo log is empty, or only zeros"),
        ("redo-zeros", "ib_logfile0", &zeros, "the redo log is empty, or only zeros"),
        (
            "redo-head",
            "ib_logfile0",
            &|log| [&log[..4096], &zeros(&log[4096..])].concat(),
            "no intact checkpoint",
        ),
        ("redo-cut", "ib_logfile0", &cut, "the redo log has "),
        ("redo-record", "ib_logfile0", &broken, "the redo log is damaged after position "),
    ];
    for (name, file, damage, what) in damages {
        let at = backup.join(file);
        let sound = std::fs::read(&at).unwrap();
        std::fs::write(&at, damage(&sound)).unwrap();
        // An empty redo log is refused otherwise.
        let end = if name == "redo-empty" { &["--unsafe-any-end"][..] } else { &[] };
        let _ = put_bytes(&store, name, end, &stream_of(&backup));
        std::fs::write(&at, sound).unwrap();
        let found = report(&verify(&store, name, &level).run().expect(7));
        let problems = found["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{name}: {problems:#?}");
        assert_eq!(problems[0]["file"], file, "{name}");
        assert!(problems[0]["what"].as_str().unwrap().contains(what), "{name}: {problems:#?}");
        assert_eq!(line(&store, name)["verified"]["failed"], "pages", "{name}");
    }

    // A stream without one of these, or with one that says nothing, is no complete backup, unless the operator
    // says so.
    let stream = scratch.join("stream");
    let newer = backup.join("mariadb_backup_checkpoints").exists();
    let checkpoints = if newer { "mariadb_backup_checkpoints" } else { "xtrabackup_checkpoints" };
    for (n, (file, content)) in [
        ("ib_logfile0", None),
        ("ibdata1", None),
        ("backup-my.cnf", None),
        ("backup-my.cnf", Some(&b""[..])),
        ("backup-my.cnf", Some(&[0; 285])),
        (checkpoints, None),
        (checkpoints, Some(b"")),
        (checkpoints, Some(b"backup_type = full-backuped\nfrom_lsn = 0\nto_")),
        ("mysql/global_priv.frm", None),
        ("aria_log_control", None),
        ("aria_log_control", Some(b"")),
        ("aria_log.00000001", None),
        ("aria_log.00000001", Some(b"")),
        // With a log that ends here, mariadb-backup prepares without end.
        ("aria_log.00000001", Some(&[1; 8193])),
    ]
    .into_iter()
    .enumerate()
    {
        let (name, sound) = (format!("lacks-{n}"), std::fs::read(backup.join(file)).unwrap());
        std::fs::remove_file(backup.join(file)).unwrap();
        content.iter().for_each(|content| std::fs::write(backup.join(file), content).unwrap());
        std::fs::write(&stream, stream_of(&backup)).unwrap();
        std::fs::write(backup.join(file), sound).unwrap();
        let (refused, damage) = match file {
            "ib_logfile0" => {
                ("the stream has no redo log".to_owned(), "the backup has no redo log")
            }
            _ => (format!("the stream lacks {file},"), "the file is missing"),
        };
        let ran = xbcloud(&store, "put", &name, &[]).stdin_file(&stream).run();
        assert!(ran.expect(6).stderr_text().contains(&refused), "{name} {file}");
        let _ = put_file(&store, &name, &["--unsafe-any-end"], &stream);
        let found = report(&verify(&store, &name, &level).run().expect(7));
        let problems = found["problems"].as_array().unwrap();
        assert!(problems.iter().any(|p| p["what"].to_string().contains(damage)), "{found}");
        assert!(file == "ib_logfile0" || problems[0]["file"] == *file, "{found}");
    }
}

/// Full, incremental, partial and packed: none of them lacks a file.
#[test]
fn real_backups_have_the_files_that_are_required() {
    let server = MariaDb::start_with(&["--innodb-undo-tablespaces=2"]);
    let store = Store::folder();
    server
        .sql("CREATE DATABASE x; CREATE TABLE x.a (i INT PRIMARY KEY); INSERT INTO x.a VALUES (1)");
    for (name, options, more) in [
        ("full", &[][..], None),
        ("next", &["--incremental-from=full"][..], None),
        ("packed", &[], Some("--compress")),
        ("part", &[], Some("--databases=x")),
    ] {
        let ran = xbcloud(&store, "backup", name, options)
            .arg("--")
            .args(server.backup_command())
            .args(more)
            .run();
        let _ = ran.expect(0);
        let found = report(&verify(&store, name, &[]).run().expect(0));
        assert_eq!(found["problems"], Value::Array(vec![]), "{name}");
    }
}

/// Level pages checks the pages of Aria and the lengths of MyISAM, and names what it does not check.
#[test]
fn tables_of_other_engines_are_checked_as_far_as_they_show_it() {
    let scratch = Scratch::new();
    let tables = "CREATE DATABASE x; USE x;
        CREATE TABLE p (i INT PRIMARY KEY, t VARCHAR(99), KEY(t)) ENGINE=Aria;
        CREATE TABLE d (i INT PRIMARY KEY, t VARCHAR(99), KEY(t)) ENGINE=Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC;
        CREATE TABLE m (i INT PRIMARY KEY, t VARCHAR(99), KEY(t)) ENGINE=MyISAM;
        CREATE TABLE c (i INT NOT NULL) ENGINE=CSV; CREATE TABLE ar (i INT) ENGINE=ARCHIVE;
        INSERT INTO p SELECT seq, SHA1(seq) FROM seq_1_to_3000; INSERT INTO d SELECT * FROM p; INSERT INTO m SELECT * FROM p;
        INSERT INTO c SELECT i FROM p; INSERT INTO ar SELECT i FROM p;";
    let backup = backup_of(tables, &scratch);
    let store = Store::folder();
    let level = ["--level=pages"];
    let _ = put_bytes(&store, "sound", &[], &stream_of(&backup));
    let found = report(&verify(&store, "sound", &level).run().expect(0));
    let pages = &found["pages"];
    // Two tables of x in the first, beside two logs of the server; a data file that has no pages.
    assert_eq!(pages["not_checked"]["CSV"], 6, "{found}");
    assert_eq!(pages["not_checked"]["ARCHIVE"], 1, "{found}");
    assert_eq!(pages["lengths_only"], serde_json::json!({ "Aria": 1, "MyISAM": 2 }), "{found}");
    let notes = found["notes"].to_string();
    assert!(notes.contains("not checked below level restore: 1 file of ARCHIVE"), "{notes}");
    assert!(
        notes.contains("only the length was checked: 1 file of Aria, 2 files of MyISAM"),
        "{notes}"
    );

    let flip = |at: usize| {
        move |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 4;
            bytes
        }
    };
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 20].to_vec();
    type Damage<'d> = &'d dyn Fn(&[u8]) -> Vec<u8>;
    let (data, index) = (flip(3 * 8192 + 500), flip(2 * 8192 + 100));
    let damages: [(&str, &str, Damage<'_>, &str); 8] = [
        ("aria-data", "x/p.MAD", &data, "page 3: checksum "),
        ("aria-index", "x/p.MAI", &index, "page 2: checksum "),
        ("aria-rows", "x/d.MAI", &index, "page 2: checksum "),
        ("aria-cut", "x/p.MAD", &cut, "the file ends after 8172 bytes of this page"),
        ("aria-dynamic-cut", "x/d.MAD", &cut, "but the table's index file states"),
        ("myisam-data", "x/m.MYD", &cut, "but the table's index file states"),
        (
            "myisam-index",
            "x/m.MYI",
            &|bytes| bytes[..1024].to_vec(),
            "the file has 1024 bytes, but",
        ),
        (
            "myisam-head",
            "x/m.MYI",
            &|bytes| vec![0; bytes.len()],
            "does not begin as an index file of MyISAM",
        ),
    ];
    for (name, file, damage, what) in damages {
        let at = backup.join(file);
        let sound = std::fs::read(&at).unwrap();
        std::fs::write(&at, damage(&sound)).unwrap();
        // An empty redo log is refused otherwise.
        let end = if name == "redo-empty" { &["--unsafe-any-end"][..] } else { &[] };
        let _ = put_bytes(&store, name, end, &stream_of(&backup));
        std::fs::write(&at, sound).unwrap();
        let found = report(&verify(&store, name, &level).run().expect(7));
        let problems = found["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{name}: {problems:#?}");
        assert_eq!(problems[0]["file"], file, "{name}");
        assert!(problems[0]["what"].as_str().unwrap().contains(what), "{name}: {problems:#?}");
    }
    for (lost, left) in [("x/m.MYD", "x/m.MYI"), ("x/p.MAI", "x/p.MAD")] {
        let sound = std::fs::read(backup.join(lost)).unwrap();
        std::fs::remove_file(backup.join(lost)).unwrap();
        let _ = put_bytes(&store, lost.split('/').next_back().unwrap(), &[], &stream_of(&backup));
        std::fs::write(backup.join(lost), sound).unwrap();
        let name = lost.split('/').next_back().unwrap();
        let found = report(&verify(&store, name, &level).run().expect(7));
        let problems = found["problems"].as_array().unwrap();
        assert_eq!((problems.len(), &problems[0]["file"]), (1, &left.into()), "{problems:#?}");
        assert!(
            problems[0]["what"].as_str().unwrap().ends_with("file is missing"),
            "{problems:#?}"
        );
    }
}

/// A table of InnoDB whose `.frm` came without its `.ibd`: a note at the commit. Level restore decides.
#[test]
fn a_table_without_its_tablespace_is_noted_when_it_is_stored() {
    let scratch = Scratch::new();
    let tables = "CREATE DATABASE x; USE x; CREATE TABLE a (i INT PRIMARY KEY); CREATE TABLE b (i INT PRIMARY KEY);
        CREATE TABLE p (i INT) PARTITION BY HASH (i) PARTITIONS 2; CREATE VIEW v AS SELECT * FROM a; CREATE TABLE m (i INT) ENGINE=MEMORY;
        CREATE SEQUENCE q; CREATE TABLE c (i INT) ENGINE=MyISAM;
        SET GLOBAL innodb_file_per_table=0; CREATE TABLE sys (i INT PRIMARY KEY); SET GLOBAL innodb_file_per_table=1;
        CREATE TABLE disc (i INT PRIMARY KEY); ALTER TABLE disc DISCARD TABLESPACE;";
    let backup = backup_of(tables, &scratch);
    let store = Store::folder();
    let stream = scratch.join("lone");
    let put = |name: &str| {
        std::fs::write(&stream, stream_of(&backup)).unwrap();
        let put = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).arg("put").arg(store.url(name));
        let put = put.stdin_file(&stream).run().expect(0);
        (put.stderr_text(), line(&store, name)["without_tablespace"].clone())
    };
    let (_, lone) = put("legal");
    assert_eq!(lone, serde_json::json!({ "tables": 2, "first": ["x/disc", "x/sys"] }));
    std::fs::remove_file(backup.join("x/b.ibd")).unwrap();
    let (text, lone) = put("lost");
    assert_eq!(lone, serde_json::json!({ "tables": 3, "first": ["x/b", "x/disc", "x/sys"] }));
    assert!(text.contains("no .ibd file in the stream for 3 tables: x/b, x/disc, x/sys"), "{text}");
    let long =
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(["list", "--long"]).arg(store.root_url());
    assert!(long.run().expect(0).stdout_text().contains("no .ibd file 3 tables: x/b"));
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let options = ["--level=restore", &folder];
    assert_eq!(report(&verify(&store, "legal", &options).run().expect(0))["reached"], "restore");
    let found = report(&verify(&store, "lost", &options).run().expect(7));
    let problems = found["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert!(problems[0]["what"].as_str().unwrap().starts_with("table x.b: "), "{problems:#?}");
}

/// A table of another engine whose `.frm` came without its files: a warning at the commit, and damage at
/// level pages. mariadb-backup leaves such files out, and exits with 0.
#[test]
fn a_table_of_any_engine_without_its_files_is_told_and_damage() {
    let scratch = Scratch::new();
    let elsewhere = scratch.dir("elsewhere");
    let tables = format!("CREATE DATABASE x; USE x; CREATE TABLE i (i INT PRIMARY KEY); CREATE TABLE a (i INT, KEY (i)) ENGINE=Aria;
        CREATE TABLE m (i INT, KEY (i)) ENGINE=MyISAM; CREATE TABLE c (i INT NOT NULL) ENGINE=CSV; CREATE TABLE g (i INT, KEY (i)) ENGINE=MERGE UNION=(m);
        CREATE TABLE p (i INT) ENGINE=Aria PARTITION BY HASH (i) PARTITIONS 2; CREATE TABLE q (i INT) ENGINE=MyISAM PARTITION BY HASH (i) PARTITIONS 2;
        CREATE SEQUENCE s ENGINE=Aria; CREATE TABLE h (i INT) ENGINE=MEMORY; CREATE TABLE far (i INT, KEY (i)) ENGINE=Aria INDEX DIRECTORY='{}';",
        elsewhere.display());
    let backup = backup_of(&tables, &scratch);
    let store = Store::folder();
    let put = |name: &str| put_bytes(&store, name, &[], &stream_of(&backup)).stderr_text();
    let level = |level: &str| report(&verify(&store, level, &["--level=pages"]).run().expect(7));
    let text = put("far");
    assert!(text.contains("files are missing of 1 table: x/far"), "{text}");
    assert_eq!(
        line(&store, "far")["without_files"],
        serde_json::json!({ "tables": 1, "first": ["x/far"] })
    );
    assert_eq!(line(&store, "far")["without_tablespace"], Value::Null);
    let problems = level("far")["problems"].clone();
    assert_eq!(
        (problems.as_array().unwrap().len(), &problems[0]["file"]),
        (1, &"x/far.frm".into())
    );
    assert!(problems[0]["what"].as_str().unwrap().contains("missing"), "{problems}");
    std::fs::remove_file(backup.join("x/far.frm")).unwrap();
    assert_eq!(
        (put("whole").contains("missing"), line(&store, "whole")["without_files"].clone()),
        (false, Value::Null)
    );
    assert_eq!(
        report(&verify(&store, "whole", &["--level=pages"]).run().expect(0))["reached"],
        "pages"
    );
    for (name, files) in [
        ("a", &["x/a.MAD", "x/a.MAI"][..]),
        ("m", &["x/m.MYD"]),
        ("c", &["x/c.CSM"]),
        ("g", &["x/g.MRG"]),
        ("p", &["x/p#P#p0.MAD", "x/p#P#p0.MAI", "x/p#P#p1.MAD", "x/p#P#p1.MAI"]),
        ("s", &["x/s.MAD", "x/s.MAI"]),
    ] {
        let sound = files.iter().map(|file| std::fs::read(backup.join(file)).unwrap());
        let sound: Vec<_> = sound.collect();
        files.iter().for_each(|file| std::fs::remove_file(backup.join(file)).unwrap());
        let text = put(name);
        files
            .iter()
            .zip(sound)
            .for_each(|(file, bytes)| std::fs::write(backup.join(file), bytes).unwrap());
        assert!(text.contains(&format!("1 table: x/{name}")), "{name}: {text}");
        assert_eq!(
            line(&store, name)["without_files"]["first"],
            serde_json::json!([format!("x/{name}")])
        );
        let found = level(name);
        assert_eq!(found["problems"].as_array().unwrap().len(), 1, "{found}");
    }
}

/// A trial without the keys of encrypted tables proves nothing about them.
#[test]
fn encrypted_tables_without_their_keys_are_not_provable_rather_than_damaged() {
    let scratch = Scratch::new();
    let key = |name: &str, hex: &str| {
        let file = scratch.join(name);
        std::fs::write(&file, format!("1;{}\n", hex.repeat(8))).unwrap();
        file
    };
    let (first, right, wrong) =
        (key("first", "01234567"), key("right", "01234567"), key("wrong", "89abcdef"));
    let plugin = "--plugin-load-add=file_key_management";
    let file = |file: &Path| format!("--file-key-management-filename={}", file.display());
    let options = [plugin, &file(&first), "--aria-encrypt-tables=ON"];
    let server = MariaDb::start_with(&options);
    server.sql(
        "CREATE DATABASE x; USE x; CREATE TABLE plain (i INT PRIMARY KEY);
         CREATE TABLE secret (i INT PRIMARY KEY, t TEXT) ENCRYPTED=YES; INSERT INTO secret SELECT seq, SHA1(seq) FROM seq_1_to_3000;
         CREATE TABLE parts (i INT) ENCRYPTED=YES PARTITION BY HASH (i) PARTITIONS 2; INSERT INTO parts SELECT seq FROM seq_1_to_9;
         CREATE TABLE z (i INT PRIMARY KEY, t TEXT) ENGINE=Aria; INSERT INTO z SELECT * FROM secret;",
    );
    let files = server.shut_down();
    let server = MariaDb::start_on_with(&files.join("data"), &options);
    let stream = scratch.join("stream");
    server.save_stream(&stream);
    drop(server);
    std::fs::remove_file(&first).unwrap();
    let store = Store::folder();
    let _ = put_file(&store, "n", &[], &stream);

    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let load = format!("--mysqld-opts={plugin}");
    let options = ["--level=restore", &folder, &load];
    // Changes in the redo log can be prepared only with the right keys. mariadb-backup takes the option
    // as one of the plugin's, which it learns from the backup, only with this prefix.
    let prepare = format!("--prepare-opts=--loose{}", &file(&right)[1..]);
    let with = |keys: &Path| {
        let run = verify(&store, "n", &options).arg(format!("--mysqld-opts={}", file(keys)));
        run.arg(&prepare)
    };
    let without = verify(&store, "n", &["--level=restore", &folder]).arg(&prepare);
    // Those of the server are among them.
    for run in [with(&wrong), without] {
        let found = report(&run.run().expect(7));
        assert_eq!(found["problems"], Value::Array(vec![]), "{found}");
        assert_eq!(found["reached"], "pages", "{found}");
        assert!(found["restore"]["no_engine"]["encryption keys"].as_u64() >= Some(9), "{found}");
        let warnings = found["warnings"].to_string();
        assert!(
            warnings.contains("--mysqld-opts=--plugin-load-add=file_key_management")
                && warnings.contains("lacks the right keys"),
            "{warnings}"
        );
        let line = line(&store, "n");
        assert_eq!(
            (&line["verified"]["failed"], &line["state"]),
            (&Value::Null, &"complete".into())
        );
    }
    assert_eq!(report(&with(&right).run().expect(0))["reached"], "restore");

    // With the right keys, it is damage. The other tables of Aria show that they are right.
    let unpacked = scratch.dir("unpacked");
    let unpack = Cmd::new(find("mbstream")).args(["-x", "-C"]).arg(&unpacked);
    let _ = unpack.stdin_file(&stream).run().expect(0);
    let rows = unpacked.join("x/z.MAD");
    let mut damaged = std::fs::read(&rows).unwrap();
    damaged[3 * 8192 + 100] ^= 4;
    std::fs::write(&rows, damaged).unwrap();
    let _ = put_bytes(&store, "damaged", &[], &stream_of(&unpacked));
    let run = verify(&store, "damaged", &options).arg(format!("--mysqld-opts={}", file(&right)));
    let found = report(&run.arg(&prepare).run().expect(7));
    let problem = found["problems"][0]["what"].to_string();
    assert!(problem.contains("table x.z: "), "{found}");
}

/// Whatever the data or a statement has it do. The last run shows that it is the confinement that
/// keeps the server from it.
#[test]
fn a_trial_server_writes_nothing_outside_its_scratch_directory() {
    let (store, scratch) = (Store::folder(), Scratch::new());
    let _ = xbcloud(&store, "put", "name", &[]).stdin_file(live_stream()).run().expect(0);
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let outside = scratch.dir("outside");
    let away = format!(
        "--check-sql=CREATE TABLE shop.away (i INT) ENGINE=InnoDB DATA DIRECTORY='{}'",
        outside.display()
    );
    let here = "--check-sql=CREATE TABLE shop.here (i INT); RENAME TABLE shop.here TO mysql.here";
    let options = ["--level=restore", &folder, &away, here];
    let found = report(&verify(&store, "name", &options).run());
    if found["warnings"].to_string().contains("was not confined") {
        xb_testkit::skipped("this system has no Landlock");
        return;
    }
    assert_eq!(found["failed_checks"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    // A table of MyISAM that was written to during the backup.
    let is_other = |warning: &&Value| !warning.as_str().unwrap().contains("hasn't closed");
    assert_eq!(found["warnings"].as_array().unwrap().iter().find(is_other), None, "{found}");
    let writes = format!("--mysqld-writes={}", outside.display());
    let _ = verify(&store, "name", &[&options[..], &[&writes]].concat()).run().expect(0);
    assert!(outside.join("shop/away.ibd").exists());
}

/// Nor does the program that prepares the files: it follows what the data names. The last run shows
/// that it is the confinement that keeps it from it.
#[test]
fn a_trial_prepares_without_writing_outside_its_scratch_directory() {
    let (store, scratch) = (Store::folder(), Scratch::new());
    let _ = xbcloud(&store, "put", "name", &[]).stdin_file(live_stream()).run().expect(0);
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let outside = scratch.dir("outside");
    let program = scratch.join("mariadb-backup");
    let script =
        format!("#!/bin/sh\necho >{}/away\nexec mariadb-backup \"$@\"\n", outside.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("--prepare-program={}", program.display());
    let options = ["--level=restore", &folder, &program];
    let found = report(&verify(&store, "name", &options).run().expect(0));
    if found["warnings"].to_string().contains("was not confined") {
        xb_testkit::skipped("this system has no Landlock");
        return;
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    let writes = format!("--mysqld-writes={}", outside.display());
    let _ = verify(&store, "name", &[&options[..], &[&writes]].concat()).run().expect(0);
    assert!(outside.join("away").exists());
}

/// mariadb-backup takes any of its options from the backup's own option file. With the first of these it wrote pages to
/// the file outside, with the others it ended with success and had prepared nothing.
#[test]
fn what_a_forged_option_file_adds_is_not_done() {
    let (store, scratch) = (Store::folder(), Scratch::new());
    let _ = xbcloud(&store, "put", "sound", &[]).stdin_file(live_stream()).run().expect(0);
    let restore = |name: &str, folder: &str, more: &[&str]| {
        let target = scratch.join(folder);
        let option = format!("--target-dir={}", target.display());
        (target, xbcloud(&store, "restore", name, &[&[&*option], more].concat()).run())
    };
    let (files, ran) = restore("sound", "files", &[]);
    let _ = ran.expect(0);
    let settings = std::fs::read_to_string(files.join("backup-my.cnf")).unwrap();
    let outside = scratch.dir("outside").join("ibdata1");
    let _ = std::fs::copy(files.join("ibdata1"), &outside).unwrap();
    let before = std::fs::read(&outside).unwrap();
    let elsewhere = format!("innodb_data_file_path={}:12M:autoextend", outside.display());
    let lines = [&elsewhere, "help", "print-param", "help # file_key_management=1"];
    for (n, line) in lines.into_iter().enumerate() {
        let name = format!("forged-{n}");
        std::fs::write(files.join("backup-my.cnf"), format!("{settings}{line}\n")).unwrap();
        let _ = put_bytes(&store, &name, &[], &stream_of(&files));
        let (target, ran) = restore(&name, &name, &["--prepare"]);
        if n == 0 {
            let said = ran.expect_failure().stderr_text();
            assert!(said.contains("may be forged") && said.contains("own directory"), "{said}");
            assert!(std::fs::read(&outside).unwrap() == before, "a file elsewhere was changed");
            continue;
        }
        let said = ran.expect(0).stderr_text();
        assert!(said.contains("is left out") && said.contains(line), "{said}");
        assert_eq!(std::fs::read_to_string(target.join("backup-my.cnf")).unwrap(), settings);
        assert!(std::fs::read(&outside).unwrap() == before, "{line}: a file elsewhere was changed");
        let checkpoints = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
        let mut texts =
            checkpoints.iter().flat_map(|name| std::fs::read_to_string(target.join(name)));
        let text = texts.next().unwrap();
        assert!(!text.contains("full-backuped"), "{line}: it was not prepared: {text}");
    }
}

/// Each table of a trial is opened and checked, or named with its reason: a table that the server
/// cannot open is damage, whatever is left of it, and what is no table is counted on its own.
#[test]
fn a_trial_answers_for_every_table_that_the_backup_holds() {
    let scratch = Scratch::new();
    let backup = backup_of_every_kind(&scratch);
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let archive = "--mysqld-opts=--plugin-load-add=ha_archive";
    let options = ["--level=restore", &folder, archive];

    let store = Store::folder();
    let _ = put_bytes(&store, "sound", &[], &stream_of(&backup));
    let found = report(&verify(&store, "sound", &options).run().expect(0));
    assert_eq!(found["reached"], "restore");
    let trial = &found["restore"];
    assert_eq!(trial["not_checkable"], serde_json::json!({ "MEMORY": 1 }), "{found}");
    let others = &trial["others"];
    for (kind, number) in [("discarded", 1), ("intermediate", 0), ("unused", 0), ("left_out", 0)] {
        assert_eq!(others[kind], number, "{kind}: {found}");
    }
    assert!(
        others["fulltext"].as_u64() >= Some(7) && others["views"].as_u64() >= Some(2),
        "{found}"
    );
    let notes = found["notes"].to_string();
    assert!(notes.contains("x.disc") && notes.contains("x.vb"), "{notes}");
    assert!(!notes.contains("trigger"), "{notes}");

    // Without the engine of one table, the level is not reached. That is no damage.
    let ran = verify(&store, "sound", &options[..2]).run().expect(7);
    let found = report(&ran);
    assert_eq!(found["restore"]["no_engine"], serde_json::json!({ "ARCHIVE": 1 }), "{found}");
    assert_eq!(
        (&found["reached"], found["problems"].as_array().unwrap().len()),
        (&"pages".into(), 0)
    );
    assert!(
        found["warnings"]
            .to_string()
            .contains("ARCHIVE (give --mysqld-opts=--plugin-load-add=ha_archive) of: 1: x.ar"),
        "{found}"
    );
    assert_eq!(line(&store, "sound")["verified"]["failed"], Value::Null);

    let at = |file: &str| backup.join(file);
    let is_part = |path: &PathBuf| path.to_str().unwrap().ends_with("_CONFIG.ibd");
    let words =
        std::fs::read_dir(at("x")).unwrap().map(|entry| entry.unwrap().path()).find(is_part);
    for file in ["x/s.ibd", "x/q.ibd", "x/c.frm", "x/n.frm", "x/p#P#p0.ibd", "x/whole.TRG"] {
        std::fs::remove_file(at(file)).unwrap();
    }
    std::fs::remove_file(words.expect("a part of the FULLTEXT index")).unwrap();
    std::fs::remove_dir_all(at("oth@002der")).unwrap();
    for empty in ["x/a.frm", "x/m.frm", "x/v.frm"] {
        std::fs::write(at(empty), "").unwrap();
    }
    std::fs::write(at("x/b.frm"), &std::fs::read(at("x/b.frm")).unwrap()[..100]).unwrap();
    // A view that refers to something else than on the source.
    let view = std::fs::read_to_string(at("x/vb.frm")).unwrap();
    let (query, rest) = view.split_once("\nmd5=").unwrap();
    let (start, end) = query.rsplit_once('`').unwrap();
    std::fs::write(at("x/vb.frm"), format!("{start}z`{end}\nmd5={rest}")).unwrap();
    let _ = put_bytes(&store, "damaged", &[], &stream_of(&backup));
    let found = report(&verify(&store, "damaged", &options).run().expect(7));
    let problems = found["problems"].as_array().unwrap();
    let what = |problem: &Value| problem["what"].as_str().unwrap().to_owned();
    for (table, why) in [
        ("x.a", "Incorrect information in file"),
        ("x.b", "Incorrect information in file"),
        ("x.c", "in InnoDB's dictionary, but its .frm file is missing"),
        ("x.m", "Incorrect information in file"),
        ("x.n", "its .frm file is missing"),
        ("x.p", "Tablespace is missing"),
        ("x.q", "Tablespace is missing"),
        ("x.s", "Tablespace is missing"),
        ("x.v", "Incorrect information in file"),
        ("x.vb", "its text does not match its checksum"),
        ("x.FTS_", "part of a FULLTEXT index is missing"),
        ("oth-er.t.1", "directory of its schema is missing"),
    ] {
        let named = |problem: &Value| {
            what(problem).starts_with(&format!("table {table}")) && what(problem).contains(why)
        };
        assert!(problems.iter().any(named), "{table}: {why}: {problems:#?}");
    }
    assert_eq!(problems.len(), 12, "no other table is blamed: {problems:#?}");
    let trigger = "trigger files that belong to no trigger of their table: 1: x.on.e";
    assert!(found["notes"].to_string().contains(trigger), "{found}");
}

/// InnoDB's dictionary names tables that a partial backup leaves out.
#[test]
fn a_partial_backup_is_no_damaged_one() {
    let server = MariaDb::start();
    server.sql("CREATE DATABASE x; CREATE TABLE x.a (i INT PRIMARY KEY); CREATE DATABASE y; CREATE TABLE y.b (i INT PRIMARY KEY);");
    let (store, scratch) = (Store::folder(), Scratch::new());
    let run = xbcloud(&store, "backup", "n", &[]).arg("--").args(server.backup_command());
    let _ = run.arg("--databases=x").run().expect(0);
    let folder = format!("--scratch-dir={}", scratch.path().display());
    let found = report(&verify(&store, "n", &["--level=restore", &folder]).run().expect(0));
    // The other one, and those of the server.
    assert!(found["restore"]["others"]["left_out"].as_u64() >= Some(2), "{found}");
    assert_eq!(found["restore"]["tables"], 1);
    // Nobody may have told the producer so: it can lack a table for another reason.
    let notes = found["notes"].to_string();
    assert!(notes.contains("the backup states that it is partial: InnoDB's dictionary"), "{notes}");

    // A whole increment on it would lack the other tables, and is refused before the producer runs.
    let backup = |name: &str, options: &[&str], chosen: &[&str]| {
        let backup = xbcloud(&store, "backup", name, options).arg("--");
        backup.args(server.backup_command()).args(chosen).run()
    };
    let on = "--incremental-from=n";
    let refused = backup("i", &[on], &[]).expect_failure().stderr_text();
    assert!(refused.contains("its base n is a partial backup"), "{refused}");
    assert!(refused.contains("--or-full") && !refused.contains("mariadb-backup:"), "{refused}");
    let _ = backup("p", &[on], &["--databases=x"]).expect(0);
    let told = backup("w", &[on, "--or-full"], &[]).expect(0).stderr_text();
    assert!(told.contains("a full backup is taken instead of an increment"), "{told}");
    let refused = backup("q", &["--incremental-from=w"], &["--databases-exclude=y"]);
    let refused = refused.expect_failure().stderr_text();
    assert!(refused.contains("its base w is a whole backup"), "{refused}");

    let restored = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["restore", "--prepare", &store.url("p")])
        .args(store.options())
        .arg(format!("--target-dir={}", scratch.join("p").display()))
        .run()
        .expect(0)
        .stderr_text();
    assert!(restored.contains("prepared, but partial"), "{restored}");
    assert!(restored.contains("next: take single tables out of the backup"), "{restored}");
}
