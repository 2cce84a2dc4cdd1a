//! Incremental backups of a real MariaDB server: taken, found, restored in order, prepared.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::*;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::{MariaDb, Sample};
use xb_testkit::store::Store;

/// Takes a backup with `backup`; its notes are in `state`.
fn back_up(store: &Store, server: &MariaDb, state: &Path, name: &str, options: &[&str]) -> Ran {
    let url = store.url(name);
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", "--quiet", &url, "--chunk-size=4M"])
        .arg(format!("--state-dir={}", state.display()))
        .args(store.options())
        .args(options)
        .arg("--")
        .args(server.backup_command())
        .run()
}

fn restore(store: &Store, name: &str, target: &Path, options: &[&str]) -> Ran {
    xbcloud(store, "restore", name, options).arg("--target-dir").arg(target).run()
}

fn manifest(store: &Store, name: &str) -> serde_json::Value {
    let text = store.get(&format!("{CATALOG}/{name}")).expect("a manifest");
    let json = String::from_utf8(text).unwrap();
    serde_json::from_str(&json[..json.rfind("\nsha256:").unwrap()]).unwrap()
}

fn sums(server: &MariaDb) -> BTreeMap<String, u64> {
    server.checksums("")
}

#[test]
fn a_full_backup_and_two_increments_are_one_server_again() {
    let scratch = Scratch::new();
    let state = scratch.join("state");
    let store = Store::folder();
    let server = MariaDb::start();
    server.load_sample(Sample::SMALL);
    let _ = back_up(&store, &server, &state, "full", &["--server=a"]).expect(0);

    server.sql(
        "USE shop; CREATE TABLE added (id INT PRIMARY KEY, v VARCHAR(64)) ENGINE=InnoDB;
         INSERT INTO added SELECT seq, MD5(seq) FROM seq_1_to_20000;
         CREATE TABLE gone (id INT) ENGINE=InnoDB;
         CREATE TABLE loose (id INT) ENGINE=MyISAM; INSERT INTO loose VALUES (1);",
    );
    // Sealed for other recipients: only this host's own note authenticates the base.
    let recipient = "--recipient=age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
    let since_full = ["--server=a", "--incremental-from=full"];
    let _ = back_up(&store, &server, &state, "one", &since_full).expect(0);
    server.sql(
        "USE shop; UPDATE added SET v = 'changed' WHERE id % 3 = 0; DROP TABLE gone;
         RENAME TABLE loose TO tight; INSERT INTO tight VALUES (2);",
    );
    let elsewhere = scratch.join("elsewhere");
    let foreign = ["--server=b", "--incremental-from=latest"];
    let refused = back_up(&store, &server, &state, "two", &foreign).expect_failure().stderr_text();
    assert!(refused.contains("server a") && refused.contains("this is b"), "{refused}");
    let _ = back_up(&store, &server, &state, "two", &["--server=a", "--incremental-from=latest"])
        .expect(0);
    let expected = sums(&server);

    let (one, two) = (manifest(&store, "one"), manifest(&store, "two"));
    assert_eq!((&one["base"]["name"], &two["base"]["name"]), (&"full".into(), &"one".into()));
    assert_eq!(two["source"]["backup_type"], "incremental");
    assert_eq!(two["source"]["from_lsn"], one["source"]["redo_start_lsn"]);

    // A sealed base requires a key, or the note of the host that took it.
    let _ = back_up(&store, &server, &state, "sealed", &["--server=a", recipient]).expect(0);
    let since_sealed = ["--server=a", "--incremental-from=sealed", recipient];
    let _ = back_up(&store, &server, &state, "own", &since_sealed).expect(0);
    let refused = back_up(&store, &server, &elsewhere, "others", &since_sealed)
        .expect_failure()
        .stderr_text();
    assert!(refused.contains("is not authenticated"), "{refused}");
    assert_not_a_backup(&store, "others");

    // No backup that others depend on is removed.
    let refused = xbcloud(&store, "delete", "one", &["--yes"]).run().expect_failure().stderr_text();
    assert!(refused.contains("is the base of two"), "{refused}");

    let target = scratch.join("restored");
    let refused = restore(&store, "two", &target, &[]).expect_failure().stderr_text();
    assert!(refused.contains("--prepare") && !target.exists(), "{refused}");
    let _ = restore(&store, "two", &target, &["--prepare", "--use-memory=64M"]).expect(0);
    assert!(!target.join(".xb-incremental").exists() && !target.join(".xb-partial").exists());
    let copy = MariaDb::start_on(&target);
    assert_eq!(sums(&copy), expected);
    drop(copy);

    // A day finds the newest backup, and a chain counts like the backup at its end.
    let alone = scratch.join("alone");
    let _ = restore(&store, "one", &alone, &["--alone"]).expect(0);
    assert!(alone.join("ibdata1.delta").exists() && !alone.join("ibdata1").exists());

    let _ = xbcloud(&store, "delete", "two", &["--yes"]).run().expect(0);
    let _ = xbcloud(&store, "delete", "one", &["--yes", "--force"]).run().expect(0);
    let _ = xbcloud(&store, "delete", "full", &["--yes"]).run().expect(0);
}

/// Pages of a table are in the files of its name at the time of each backup. Selected by its last name,
/// they are not all there, and the programs that prepare do not notice.
#[test]
fn a_selection_that_misses_pages_of_a_chain_is_refused() {
    let scratch = Scratch::new();
    let (store, state) = (Store::folder(), scratch.join("state"));
    let server = MariaDb::start();
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE t (id INT PRIMARY KEY, v CHAR(100)) ENGINE=InnoDB;
         CREATE TABLE u LIKE t; CREATE TABLE kept LIKE t; CREATE TABLE dropped LIKE t; INSERT INTO u SELECT seq, MD5(seq) FROM seq_1_to_3000;
         INSERT INTO kept SELECT * FROM u;",
    );
    let _ = back_up(&store, &server, &state, "full", &[]).expect(0);
    server.sql("USE shop; DROP TABLE dropped; RENAME TABLE t TO old, u TO t; UPDATE t SET v = 'x' WHERE id = 5; UPDATE kept SET v = 'x' WHERE id = 5;
         CREATE TABLE late (i INT) ENGINE=MyISAM; INSERT INTO late VALUES (1); CREATE TABLE later (i INT) ENGINE=InnoDB");
    let _ = back_up(&store, &server, &state, "inc", &["--incremental-from=latest"]).expect(0);
    let select = |files: &str, folder: &str| {
        let files = format!("--files={files}");
        restore(&store, "inc", &scratch.join(folder), &["--prepare", "--export", &files])
    };
    let refused = select("shop/t.*", "renamed").expect(1).stderr_text();
    assert!(
        refused.contains("files that were not selected") && refused.contains("rescue"),
        "{refused}"
    );
    // The same command would end in the same error.
    assert!(!refused.contains("to resume"), "{refused}");
    assert!(!scratch.join("renamed/shop/t.cfg").exists());
    let _ = select("shop/kept.*", "kept").expect(0);
    assert!(scratch.join("kept/shop/kept.cfg").exists());
    // Those that were made after the full backup are not in it: one is whole in the increment.
    let _ = select("shop/late.*", "late").expect(0);
    assert!(scratch.join("late/shop/late.MYD").exists());
    let refused = select("shop/later.*", "later").expect(1).stderr_text();
    assert!(refused.contains("was created, renamed or rebuilt"), "{refused}");
    // A table that an earlier backup has is not in the one that is named.
    for none in ["shop/none.*", "shop/dropped.*"] {
        let refused = select(none, "none").expect_failure().stderr_text();
        assert!(refused.contains(&format!("no file in the backup matches `{none}`")), "{refused}");
    }
}

/// Restores one schema of a backup in the form in which its tables can be imported elsewhere.
#[test]
fn single_tables_are_prepared_and_imported() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let server = MariaDb::start();
    server.load_sample(Sample::SMALL);
    server.sql("CREATE DATABASE small; USE small; CREATE TABLE t (id INT PRIMARY KEY, v CHAR(32)) ENGINE=InnoDB;
         INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_50000;");
    let expected = server.checksums("small");
    let _ = back_up(&store, &server, &scratch.join("state"), "n", &["--compress=zstd"]).expect(0);
    let target = scratch.join("exported");
    let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["restore", "--json", "--export", "--files=small/*"])
        .arg(format!("--target-dir={}", target.display()))
        .args(store.options())
        .arg(store.url("n"))
        .run()
        .expect(0);
    let text = ran.stderr_text();
    let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let done = events.into_iter().find(|event| event["event"] == "done").expect("an event");
    let chosen = &done["chosen"];
    assert!(
        chosen["needed_bytes"].as_u64().unwrap() > 0 && chosen["files"].as_u64().unwrap() >= 2,
        "{chosen}"
    );
    assert!(target.join("small/t.cfg").exists() && target.join("small/t.ibd").exists());
    assert!(!target.join("shop").exists());

    server.sql(
        "DROP TABLE small.t; CREATE TABLE small.t (id INT PRIMARY KEY, v CHAR(32)) ENGINE=InnoDB;
         ALTER TABLE small.t DISCARD TABLESPACE;",
    );
    for file in ["t.ibd", "t.cfg"] {
        std::fs::copy(target.join("small").join(file), server.datadir().join("small").join(file))
            .unwrap();
    }
    server.sql("ALTER TABLE small.t IMPORT TABLESPACE;");
    assert_eq!(server.checksums("small"), expected);
}

#[test]
fn a_trial_of_a_chain_proves_its_bases_too_and_an_import_keeps_its_time() {
    let scratch = Scratch::new();
    let state = scratch.join("state");
    let store = Store::folder();
    let server = MariaDb::start();
    server.load_sample(Sample::SMALL);
    let _ = back_up(&store, &server, &state, "full", &["--server=a"]).expect(0);
    server.sql("USE shop; CREATE TABLE added (id INT PRIMARY KEY) ENGINE=InnoDB");
    let since = ["--server=a", "--incremental-from=latest"];
    let _ = back_up(&store, &server, &state, "one", &since).expect(0);
    let scratch_dir = format!("--scratch-dir={}", scratch.path().display());
    let (_, key) = xb_encryptor::SigningKey::generate().unwrap();
    std::fs::write(scratch.join("key"), &*key).unwrap();
    let key = format!("--signing-key-file={}", scratch.join("key").display());
    let evidence = format!("--evidence={}", scratch.join("evidence").display());
    let options = ["--level=restore", &scratch_dir, &key, &evidence];
    let _ = xbcloud(&store, "verify", "one", &options).run().expect(0);
    let evidence = std::fs::read(scratch.join("evidence")).unwrap();
    let evidence: serde_json::Value = serde_json::from_slice(&evidence).unwrap();
    let chain = evidence["verification"]["chain"].as_array().unwrap();
    for (link, name) in chain.iter().zip(["full", "one"]) {
        assert_eq!((&link["name"], &link["restored"]), (&name.into(), &true.into()), "{link}");
        assert_eq!(link["run"], manifest(&store, name)["run"]);
    }
    assert_eq!((chain.len(), &evidence["result"]), (2, &"ok".into()));
    let levels = || {
        let listed = xbcloud(&store, "list", "", &["--json"]).run().expect(0);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let level =
            |line: &serde_json::Value| line["verified"]["level"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(level).collect::<Vec<_>>()
    };
    // The server opens nothing that was dropped between the two: the trial has only read it.
    assert_eq!(levels(), ["decrypt", "restore"]);
    let _ = xbcloud(&store, "verify", "full", &["--level=pages"]).run().expect(0);
    let _ = xbcloud(&store, "verify", "one", &["--level=restore", &scratch_dir]).run().expect(0);
    assert_eq!(levels(), ["restore", "restore"]);
    assert!(manifest(&store, "full")["tables"].as_u64().unwrap() > 0);
    // The stream of the full backup, imported after the increment, is as old as the full backup.
    let stream = get_bytes(&store, "full");
    let _ = put_bytes(&store, "import", &["--server=a"], &stream);
    let time = |name: &str, field: &str| -> jiff::Timestamp {
        manifest(&store, name)[field].as_str().unwrap().parse().unwrap()
    };
    assert!(time("import", "finished") <= time("full", "finished"));
    assert!(time("import", "finished").as_second() >= time("full", "started").as_second() - 1);
    let latest = xbcloud(&store, "show", "latest", &["--json"]).run().expect(0);
    let latest: serde_json::Value = serde_json::from_slice(&latest.stdout).unwrap();
    assert_eq!(latest["name"], "one");
    let _ = back_up(&store, &server, &state, "two", &since).expect(0);
    assert_eq!(manifest(&store, "two")["base"]["name"], "one");
}
