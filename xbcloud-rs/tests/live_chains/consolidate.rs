//! Chains of a real MariaDB server that are consolidated into full backups: equal to the server, proven by a trial
//! restore, and a base for more increments.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use xb_encryptor::Identities;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::files::Digester;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

/// A server with tables, and its repository.
struct Site {
    store: Store,
    scratch: Scratch,
    server: MariaDb,
}

const TABLES: &str = "CREATE DATABASE shop; USE shop;
    CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(200), KEY(v)); INSERT INTO a SELECT seq, MD5(seq) FROM seq_1_to_9000;
    CREATE TABLE b LIKE a; INSERT INTO b SELECT id, REVERSE(v) FROM a;
    CREATE TABLE squeezed (id INT PRIMARY KEY, v VARCHAR(200)) PAGE_COMPRESSED=1; INSERT INTO squeezed SELECT * FROM a;
    CREATE TABLE words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)); INSERT INTO words SELECT * FROM a;
    CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(200)) PARTITION BY HASH(id) PARTITIONS 3; INSERT INTO parts SELECT * FROM a;
    CREATE TABLE loose (id INT) ENGINE=MyISAM; CREATE TABLE log (n INT PRIMARY KEY AUTO_INCREMENT, v TEXT);";

impl Site {
    fn new() -> Self {
        let (store, scratch, server) = (Store::folder(), Scratch::new(), MariaDb::start());
        server.sql(TABLES);
        let site = Self { store, scratch, server };
        std::fs::create_dir(site.tmp()).unwrap();
        site
    }

    fn tmp(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    fn xbcloud(&self, args: &[&str], name: &str) -> Cmd {
        let run = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).args(self.store.options());
        run.arg(self.store.url(name))
    }

    fn back_up(&self, name: &str, options: &[&str]) -> Ran {
        let state = format!("--state-dir={}", self.scratch.join("state").display());
        let run = self.xbcloud(&["backup", "--chunk-size=4M", "--server=db1", &state], name);
        run.args(options).arg("--").args(self.server.backup_command()).run()
    }

    fn increment(&self, name: &str, options: &[&str]) {
        let options = [&["--incremental-from=latest"], options].concat();
        let _ = self.back_up(name, &options).expect(0);
    }

    /// A full backup and increments of these names, with changes between them.
    fn chain(&self, increments: &[&str], options: &[&str]) {
        let _ = self.back_up("full", options).expect(0);
        for (n, name) in increments.iter().enumerate() {
            self.change(n);
            self.increment(name, options);
        }
    }

    fn change(&self, n: usize) {
        self.server.sql(&format!(
            "USE shop; UPDATE a SET v = MD5(RAND()) WHERE id % 40 = {n}; DELETE FROM parts WHERE id % 50 = {n};
             INSERT INTO loose VALUES ({n}); INSERT INTO log (v) SELECT REPEAT('x', 300) FROM seq_1_to_500;
             CREATE TABLE made{n} LIKE b; INSERT INTO made{n} SELECT * FROM b WHERE id < 100;
             UPDATE words SET v = 'other words' WHERE id = {n}; ALTER TABLE b FORCE"
        ));
    }

    fn consolidate(&self, name: &str, options: &[&str]) -> Cmd {
        let tmp = format!("--scratch-dir={}", self.tmp().display());
        self.xbcloud(&["consolidate", "--json", &tmp], name).args(options)
    }

    /// Number of scratch directories left.
    fn left(&self) -> usize {
        std::fs::read_dir(self.tmp()).unwrap().count()
    }

    fn line(&self, name: &str) -> Value {
        let listed = self.xbcloud(&["list", "--json", "--no-cache"], "").run().expect(0);
        let lines: Value = serde_json::from_slice(&listed.stdout).unwrap();
        lines.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap().clone()
    }

    /// Asserts that a backup restores to the rows that the server has.
    fn assert_is_the_server(&self, name: &str, options: &[&str]) {
        let target = self.scratch.join(format!("restored-{name}"));
        let run = self.xbcloud(&["restore", "--prepare"], name).args(options);
        let _ = run.arg("--target-dir").arg(&target).run().expect(0);
        let copy = MariaDb::start_on(&target);
        copy.check_tables("shop");
        assert_eq!(copy.checksums("shop"), self.server.checksums("shop"), "{name}");
    }

    /// The backup that a name such as `latest` means.
    fn meant(&self, name: &str) -> String {
        let shown = self.xbcloud(&["show", "--json"], name).run().expect(0);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["name"].as_str().unwrap().to_owned()
    }

    fn prune(&self, rule: &str) -> Vec<String> {
        let pruned = self.xbcloud(&["prune", "--json", "--yes", rule], "").run().expect(0);
        let pruned: Value = serde_json::from_slice(&pruned.stdout).unwrap();
        let names = pruned["removed"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// Changes the text of a manifest, with a check line that fits.
    fn forge(&self, name: &str, from: &str, to: &str) {
        let key = format!("{CATALOG}/{name}");
        let text = String::from_utf8(self.store.get(&key).unwrap()).unwrap();
        let text = &text[..text.rfind("\nsha256:").unwrap() + 1];
        let forged = text.replace(from, to);
        assert_ne!(forged, text);
        let mut digest = Digester::default();
        digest.write_all(forged.as_bytes()).unwrap();
        let (_, digest) = digest.result();
        self.store.put(&key, format!("{forged}sha256:{digest}\n").as_bytes());
    }

    fn manifest(&self, name: &str) -> Value {
        let text = self.store.get(&format!("{CATALOG}/{name}")).unwrap();
        let text = String::from_utf8(text).unwrap();
        serde_json::from_str(&text[..text.rfind("\nsha256:").unwrap()]).unwrap()
    }
}

fn event(ran: &Ran, name: &str) -> Value {
    let text = ran.stderr_text();
    let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.find(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name}: {text}"))
}

#[test]
fn a_consolidated_chain_is_the_server_and_a_base_for_ten_more() {
    let site = Site::new();
    site.chain(&["one", "two"], &["--compress=zstd"]);
    let done = site.consolidate("two", &[]).run().expect(0);
    let found = event(&done, "consolidated");
    assert_eq!((&found["name"], &found["proven"]), (&"two-full".into(), &true.into()));
    assert_eq!(found["from"], serde_json::json!(["full", "one", "two"]));
    assert_eq!(site.left(), 0, "the scratch directory is removed");
    // Of the data of the last one, and stored in the same way.
    let (full, last) = (site.manifest("two-full"), site.manifest("two"));
    for same in ["started", "finished", "server"] {
        assert_eq!(full[same], last[same], "{same}");
    }
    for same in ["to_lsn", "last_lsn", "redo_start_lsn", "binlog_pos", "server_version"] {
        assert_eq!(full["source"][same], last["source"][same], "{same}");
    }
    assert_eq!(
        (&full["source"]["from_lsn"], &full["source"]["backup_type"]),
        (&0.into(), &"full-backuped".into())
    );
    assert_eq!(full["packed"]["chunk_size"], last["packed"]["chunk_size"]);
    assert_eq!(full["packed"]["codecs"], last["packed"]["codecs"]);
    assert_eq!(full["consolidated_from"][2]["run"], last["run"]);
    assert_eq!(full["history"]["redo"], last["history"]["redo"]);
    let line = site.line("two-full");
    assert_eq!((&line["kind"], &line["verified"]["level"]), (&"full".into(), &"restore".into()));
    site.assert_is_the_server("two-full", &[]);
    // There is nothing left to do.
    let again = site.consolidate("two", &[]).run().expect(0);
    assert!(again.stderr_text().contains("already"), "{}", again.stderr_text());
    assert_eq!(site.meant("latest"), "two-full");
    assert_eq!(site.xbcloud(&["monitor", "--max-age=1h"], "").run().code(), 0);
    let again = site.consolidate("latest", &[]).run().expect(0);
    assert!(again.stderr_text().contains("nothing to consolidate"), "{}", again.stderr_text());

    for n in 2..12 {
        site.change(n);
        site.increment(&format!("more{n}"), &[]);
    }
    assert_eq!(site.manifest("more2")["base"]["name"], "two-full");
    let lsn = |name: &str, key: &str| site.manifest(name)["source"][key].clone();
    assert_eq!(lsn("more2", "from_lsn"), lsn("two", "redo_start_lsn"));
    let _ = site.consolidate("latest", &["--as=whole"]).run().expect(0);
    assert_eq!(site.manifest("whole")["consolidated_from"].as_array().unwrap().len(), 11);
    site.assert_is_the_server("whole", &[]);
}

/// Pages of an imported tablespace have the log positions of another server: no increment has them, and a merged chain
/// would be without them for good.
#[test]
fn an_imported_tablespace_is_in_no_increment() {
    let site = Site::new();
    site.server.sql("CREATE TABLE shop.source LIKE shop.a; INSERT INTO shop.source SELECT id, 'new' FROM shop.a");
    let _ = site.back_up("full", &[]).expect(0);
    site.change(0);
    site.increment("one", &[]);
    site.server.sql("ALTER TABLE shop.a DISCARD TABLESPACE");
    let folder = site.server.datadir().join("shop");
    let copied = format!(
        "FLUSH TABLES source FOR EXPORT; system cp {0}/source.ibd {0}/a.ibd; system cp {0}/source.cfg {0}/a.cfg; UNLOCK TABLES; ALTER TABLE a IMPORT TABLESPACE",
        folder.display()
    );
    let client = Cmd::new(xb_testkit::tools::find("mariadb"));
    let client = client.args(["--no-defaults", "--user=root", "shop", "--execute", &copied]);
    let _ = client.arg(format!("--socket={}", site.server.socket().display())).run().expect(0);
    assert_eq!(site.server.sql("SELECT COUNT(*) FROM shop.a WHERE v = 'new'"), "9000\n");
    let refused =
        site.back_up("two", &["--incremental-from=latest"]).expect_failure().stderr_text();
    assert!(refused.contains("the tablespace of shop/a was imported since then"), "{refused}");
    assert!(refused.contains("--or-full"), "{refused}");

    // Without a checkpoint, the producer reads in the redo log that the table is gone, and ends with success.
    let lost = site.back_up("lacking", &["--checkpoint=no"]).expect_failure().stderr_text();
    assert!(lost.contains("left out the rows of shop/a"), "{lost}");
    assert!(lost.contains("innodb_log_checkpoint_now"), "{lost}");
    let _ = site.back_up("anew", &["--incremental-from=latest", "--or-full"]).expect(0);
    site.change(1);
    site.increment("three", &[]);
    // A base of an earlier version does not state its numbers.
    site.forge("anew", "\"highest\"", "\"of_old\"");
    let refused = site.consolidate("three", &[]).run().expect_failure().stderr_text();
    assert!(refused.contains("unknown whether a tablespace was imported since anew"), "{refused}");
    let _ = site.consolidate("three", &["--accept-imports"]).run().expect(0);
    site.assert_is_the_server("three-full", &[]);

    // An earlier version did not look, and took a trial restore for a proof.
    site.forge("three-full", "\"accepted_imports\"", "\"of_older\"");
    site.forge("three-full", "\"highest\"", "\"of_old\"");
    let verify = |name: &str, statement: &str| {
        let asked = format!("--check-sql={statement}");
        let tried = site.xbcloud(&["verify", "--level=restore", &asked], name).run();
        let tried = tried.expect(7);
        tried.stdout_text() + &tried.stderr_text()
    };
    // A server starts on it, and what that finds counts.
    let told = verify("three-full", "SELECT 1");
    assert!(told.contains("without looking for imported tablespaces"), "{told}");
    assert!(told.contains("tables checked: ") && told.contains("statements run: 1"), "{told}");
    let failure = told.lines().find(|line| line.contains("restore was requested")).unwrap();
    assert!(failure.contains("take a full backup"), "{told}");
    let told = verify("three-full", "SELECT * FROM shop.nothing");
    assert!(told.contains("shop.nothing` failed"), "{told}");
    assert_ne!(site.line("three-full")["verified"]["level"], "restore");
    let listed = site.xbcloud(&["list"], "").run().expect(0).stdout_text();
    assert!(listed.contains("full, imports unknown"), "{listed}");
    let refused = site.consolidate("three", &["--as=again"]).run().expect_failure().stderr_text();
    assert!(refused.contains("--accept-imports"), "{refused}");
    let _ = site.consolidate("three", &["--as=again", "--accept-imports"]).run().expect(0);
    assert_eq!(site.line("again")["verified"]["level"], "restore");

    // An increment on it lacks what it lacks.
    std::fs::remove_dir_all(site.scratch.join("state")).unwrap();
    site.change(2);
    let told = site.back_up("four", &["--incremental-from=three-full"]).expect(0).stderr_text();
    assert!(told.contains("can be proven: take a full backup (`--or-full` does it)"), "{told}");
    assert!(verify("four", "SELECT 1").contains("the full backup of its chain may lack"));
    assert_ne!(site.line("four")["verified"]["level"], "restore");
    let shown = site.xbcloud(&["show"], "four").run().expect(0).stdout_text();
    assert!(shown.contains("the full backup of its chain may lack"), "{shown}");
    let refused = site.consolidate("four", &["--accept-imports"]).run().expect_failure();
    assert!(refused.stderr_text().contains("take a full backup"), "{refused:?}");
    let done = site.back_up("five", &["--incremental-from=four", "--or-full"]).expect(0);
    let told = done.stderr_text();
    assert!(told.contains("instead of an increment: ") && told.contains("imported"), "{told}");
    assert!(site.manifest("five")["base"].is_null());
}

/// Until the trial has proven the new backup, its chain is what counts: for `latest`, and for `prune`.
#[test]
fn a_consolidation_that_is_killed_is_finished_by_the_next_one() {
    let site = Site::new();
    site.chain(&["one", "two"], &[]);
    let slow = "--check-sql=SELECT SLEEP(600)";
    let mut run = site.consolidate("two", &[slow]).spawn();
    run.until("the chain is fetched", || {
        let mut there = std::fs::read_dir(site.tmp()).unwrap().flatten();
        there.any(|entry| entry.path().join("data/ibdata1").exists())
    });
    run.kill_9();
    assert_ne!(run.wait().code(), 0);
    assert!(!has_manifest(&site.store, "two-full"));
    let mut run = site.consolidate("two", &[slow]).spawn();
    run.until("the new backup is stored", || has_manifest(&site.store, "two-full"));
    run.kill_9();
    assert_ne!(run.wait().code(), 0);

    assert_eq!(site.line("two-full")["verified"]["level"], Value::Null);
    let shown = site.xbcloud(&["show"], "latest").run().expect(0);
    assert!(shown.stderr_text().contains("no trial restore has proven it"), "{shown:?}");
    assert_eq!(site.meant("latest"), "two");
    assert_eq!(site.prune("--keep-last=1"), [""; 0], "the chain is what can be restored");
    for name in ["full", "one", "two", "two-full"] {
        assert!(has_manifest(&site.store, name), "{name}");
    }
    let objects = packed_objects(&site.store, "two-full");
    let done = site.consolidate("latest", &[]).run().expect(0);
    assert_eq!(event(&done, "consolidated")["made"], false);
    assert_eq!(packed_objects(&site.store, "two-full"), objects, "only the trial was made");
    assert_eq!(site.meant("latest"), "two-full");
    // The server may have begun an increment on the old chain.
    assert_eq!(site.prune("--keep-last=1"), [""; 0]);
    site.change(2);
    site.increment("three", &[]);
    assert_eq!(site.manifest("three")["base"]["name"], "two-full");
    let mut gone = site.prune("--keep-last=1");
    gone.sort();
    assert_eq!(gone, ["full", "one", "two"]);
    site.assert_is_the_server("latest", &[]);

    // A chain that begins with a consolidated backup is not lost either.
    let mut run = site.consolidate("three", &[slow]).spawn();
    run.until("the new backup is stored", || has_manifest(&site.store, "three-full"));
    run.kill_9();
    assert_ne!(run.wait().code(), 0);
    assert_eq!(site.prune("--keep-last=1"), [""; 0]);
    site.assert_is_the_server("three", &[]);
    let done = site.consolidate("three", &[]).run().expect(0);
    assert_eq!(event(&done, "consolidated")["made"], false);
    site.assert_is_the_server("three-full", &[]);
}

/// The host of the server has no identity. It takes increments on a full backup that another host has made, because
/// that states what this host has noted of the last one.
#[test]
fn a_host_that_has_only_recipients_takes_increments_on_it() {
    let site = Site::new();
    let (identities, secret) = Identities::generate();
    let identity = site.scratch.join("identity");
    std::fs::write(&identity, secret.as_bytes()).unwrap();
    let recipient = identities.recipients()[0].to_string();
    let (sealed, opens) =
        (format!("--recipient={recipient}"), format!("--identity-file={}", identity.display()));
    site.chain(&["one"], &[&sealed]);
    let refused = site.consolidate("one", &[&opens]).run().expect_failure();
    assert!(refused.stderr_text().contains("no key or recipient"), "{}", refused.stderr_text());
    let _ = site.consolidate("one", &[&opens, &sealed]).run().expect(0);
    let slots = |name| site.manifest(name)["packed"]["sealed"].clone();
    assert_eq!(slots("one-full"), slots("one"));
    site.change(1);
    site.increment("two", &[&sealed]);
    assert_eq!(site.manifest("two")["base"]["name"], "one-full");
    site.assert_is_the_server("two", &[&opens]);
    // Now with a link that this host did not write, but a last one that it did.
    let _ = site.consolidate("two", &[&opens, &sealed]).run().expect(0);
    site.change(2);
    site.increment("three", &[&sealed]);
    assert_eq!(site.manifest("three")["base"]["name"], "two-full");

    // Another host, or a manifest that states something else.
    let other = format!("--state-dir={}", site.scratch.join("elsewhere").display());
    let on = "--incremental-from=two-full";
    let refused = site.back_up("no", &[&sealed, on, &other]).expect_failure();
    assert!(refused.stderr_text().contains("not authenticated"), "{}", refused.stderr_text());
    let stated = |name: &str| {
        format!("\"redo_start_lsn\": {}", site.manifest(name)["source"]["redo_start_lsn"])
    };
    site.forge("two-full", &stated("two-full"), &stated("one"));
    let refused = site.back_up("no", &[&sealed, on]).expect_failure();
    assert!(refused.stderr_text().contains("other positions"), "{}", refused.stderr_text());
}

#[test]
fn a_chain_that_is_not_whole_is_refused_with_the_name_of_the_link() {
    let site = Site::new();
    site.chain(&["one", "two"], &[]);
    let Store::Folder { root: folder, .. } = &site.store else { panic!("no folder") };
    let refused = |link: &str| {
        let ran = site.consolidate("two", &[]).run().expect_failure();
        let text = ran.stderr_text();
        assert!(text.contains(link), "{text}");
        assert!(!has_manifest(&site.store, "two-full"), "{text}");
        assert_eq!(site.left(), 0);
        text
    };
    // The same link is named by a restore, and by its plan, which reads only manifests.
    let restored = |link: &str, is_seen_before: bool| {
        let target = format!("--target-dir={}", site.scratch.join(link).display());
        let restore = |options: &[&str]| site.xbcloud(&["restore"], "two").args(options).run();
        let text = restore(&["--prepare", &target]).expect_failure().stderr_text();
        assert!(text.contains(link) && !text.contains("can start on these files"), "{text}");
        assert_ne!(site.scratch.join(link).exists(), is_seen_before, "{text}");
        let planned = restore(&["--dry-run"]);
        assert_eq!(planned.code() != 0, is_seen_before, "{planned:?}");
        assert!((planned.stdout_text() + &planned.stderr_text()).contains(link), "{planned:?}");
    };
    // Damaged.
    let (run, number, _) = packed_objects(&site.store, "one")[0].clone();
    let object = folder.join(format!("one/{run}/{number:09}"));
    let bytes = std::fs::read(&object).unwrap();
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&object, damaged).unwrap();
    let _ = refused("one");
    restored("one", false);
    std::fs::write(&object, bytes).unwrap();
    // Missing.
    let manifest = folder.join(format!("{CATALOG}/one"));
    let kept = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    let _ = refused("its base one is missing");
    restored("its base one is missing", true);
    // Of another run.
    let _ = site.back_up("one", &["--incremental-from=full"]).expect(0);
    let _ = refused("one was replaced by another backup");
    restored("one was replaced by another backup", true);
    std::fs::write(&manifest, kept).unwrap();
    // A name that is taken is refused before anything is read.
    let taken = site.consolidate("two", &["--as=full"]).run().expect_failure().stderr_text();
    assert!(taken.contains("full") && !taken.contains("\"name\":\"fetch\""), "{taken}");
    // Of other files than its manifest describes.
    let ends = format!("\"to_lsn\": {}", site.manifest("two")["source"]["to_lsn"]);
    site.forge("two", &ends, &format!("{ends}0"));
    assert!(refused("two").contains("other log positions"));
    site.forge("two", &format!("{ends}0"), &ends);
    // The damage of a trial is found before anything counts for more than its chain.
    let _ = site.consolidate("two", &["--check-sql=SELECT 1 FROM shop.none"]).run().expect(7);
    assert_eq!(site.meant("latest"), "two");
}

/// Changes made while its base was taken may be only in the redo log of that, which a merge drops.
#[test]
fn an_increment_that_begins_where_its_base_ends_is_not_consolidated() {
    let site = Site::new();
    let back_up = |name: &str, options: &[&str], more: &str| {
        let run = site.xbcloud(&["backup", "--server=db1", "--checkpoint=no"], name).args(options);
        let state = format!("--state-dir={}", site.scratch.join("state").display());
        let run = run.arg(state).arg("--").args(site.server.backup_command());
        let _ = run.arg(more).run().expect(0);
    };
    back_up("full", &[], "--innodb-log-checkpoint-now");
    let ends = site.manifest("full")["source"]["to_lsn"].to_string();
    site.change(0);
    back_up("one", &["--accept-history"], &format!("--incremental-lsn={ends}"));
    let ran = site.consolidate("one", &[]).run().expect_failure();
    let text = ran.stderr_text();
    assert!(text.contains(&ends) && text.contains("redo log of its base full"), "{text}");
    assert!(!has_manifest(&site.store, "one-full") && site.left() == 0);
}

/// A server has run on the files, or may have: an increment on them would lose what it changed.
#[test]
fn nothing_is_based_on_a_prepared_copy() {
    let site = Site::new();
    let _ = site.back_up("full", &[]).expect(0);
    let copy = site.scratch.join("copy");
    let run = site.xbcloud(&["restore", "--prepare"], "full").arg("--target-dir").arg(&copy);
    let _ = run.run().expect(0);
    let stored = |copy: &Path, name: &str| {
        let list = Cmd::new("find").args([".", "-type", "f", "-printf", "%P\\n"]).cwd(copy);
        let files = list.run().expect(0).stdout_text();
        let mut files: Vec<&str> = files.lines().collect();
        files.sort_by_key(|file| (file.ends_with("_info"), *file));
        let stream = Cmd::new(xb_testkit::tools::find("mbstream")).arg("-c").args(files).cwd(copy);
        let stream = stream.run().expect(0).stdout;
        put_bytes(&site.store, name, &["--server=db1"], &stream)
    };
    let _ = stored(&copy, "prepared");
    let on = |name: &str| {
        let base = format!("--incremental-from={name}");
        site.back_up("no", &["--accept-history", &base]).expect_failure().stderr_text()
    };
    let refused = on("prepared");
    assert!(refused.contains("prepared before it was stored"), "{refused}");
    // Its tables were opened by a server, and their files rewritten for the export.
    let exported = site.scratch.join("exported");
    let run = site.xbcloud(&["restore", "--prepare", "--export"], "full").arg("--target-dir");
    let _ = run.arg(&exported).run().expect(0);
    assert!(exported.join("shop/a.cfg").exists());
    let _ = stored(&exported, "exported");
    let refused = on("exported");
    assert!(refused.contains("prepared before it was stored"), "{refused}");
    // A checkpoints file that was made to look like one of a server does not help.
    drop(MariaDb::start_on(&copy).shut_down());
    // MariaDB 11.1 and later has the other name.
    let names = ["xtrabackup_checkpoints", "mariadb_backup_checkpoints"];
    let checkpoints = names.map(|name| copy.join(name)).into_iter().find(|path| path.exists());
    let checkpoints = checkpoints.unwrap();
    let text = std::fs::read_to_string(&checkpoints).unwrap();
    std::fs::write(&checkpoints, text.replace("log-applied", "full-backuped")).unwrap();
    let _ = stored(&copy, "touched");
    let refused = on("touched");
    assert!(refused.contains("a server has run on its files"), "{refused}");
}

/// `run` consolidates when the chain has got as long as was asked, and prunes by what is proven then.
#[test]
fn a_run_consolidates_from_so_many_increments_on() {
    let site = Site::new();
    let state = format!("--state-dir={}", site.scratch.join("state").display());
    let tmp = format!("--scratch-dir={}", site.tmp().display());
    let result = site.scratch.join("result.json");
    let run = |name: &str| {
        let options = ["run", "--quiet", "--chunk-size=4M", "--server=db1", &state, &tmp];
        let ran = site.xbcloud(&options, name).arg(format!("--result={}", result.display()));
        let ran = ran.args(["--incremental-from=latest", "--or-full", "--consolidate-after=2"]);
        let _ =
            ran.args(["--keep-last=1", "--"]).args(site.server.backup_command()).run().expect(0);
        let done: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
        let stages = done["stages"].as_array().unwrap().clone();
        stages.into_iter().find(|stage| stage["stage"] == "consolidate")
    };
    assert_eq!(run("full"), None);
    site.change(0);
    assert_eq!(run("one"), None);
    site.change(1);
    let stage = run("two").expect("the chain has two increments");
    assert_eq!(
        (&stage["status"], site.meant("latest")),
        (&Value::from("ok"), "two-full".to_owned())
    );
    site.change(2);
    assert_eq!(run("three"), None, "its chain is short again");
    assert_eq!(site.manifest("three")["base"]["name"], "two-full");
    for (name, is_kept) in
        [("full", false), ("one", false), ("two", false), ("two-full", true), ("three", true)]
    {
        assert_eq!(has_manifest(&site.store, name), is_kept, "{name}");
    }
    site.assert_is_the_server("three", &[]);
    assert_eq!(site.left(), 0);
}

/// It is unknown of a chain that an earlier version began whether a tablespace was imported. That must not fail every
/// night until an operator looks.
#[test]
fn a_run_goes_on_if_a_chain_may_lack_an_import() {
    let site = Site::new();
    let file =
        |option: &str, name: &str| format!("--{option}={}", site.scratch.join(name).display());
    let (result, metrics) = (file("result", "result.json"), file("metrics-file", "run.prom"));
    let options = [
        &file("state-dir", "state"),
        &file("scratch-dir", "tmp"),
        &result,
        &metrics,
        "--incremental-from=latest",
        "--consolidate-after=1",
        "--keep-last=5",
        "--after=true",
        "--server=db1",
    ];
    let run = |name: &str| {
        let run = site.xbcloud(&["run", "--quiet", "--or-full"], name).args(options);
        let ran = run.arg("--").args(site.server.backup_command()).run().expect(0);
        let done = std::fs::read(site.scratch.join("result.json")).unwrap();
        let done: Value = serde_json::from_slice(&done).unwrap();
        let stages = done["stages"].as_array().unwrap();
        let of = |stage: &Value| format!("{} {}", stage["stage"], stage["status"]).replace('"', "");
        let warned = done["warnings"].as_array().unwrap().iter().map(Value::to_string).collect();
        (stages.iter().map(of).collect::<Vec<_>>().join(", "), warned, ran.stderr_text())
    };
    let (done, _, _): (_, String, _) = run("full");
    assert_eq!(done, "backup ok, verify ok, prune ok, after ok");
    site.forge("full", "\"highest\"", "\"of_old\"");
    std::fs::remove_dir_all(site.scratch.join("state")).unwrap();
    site.change(0);
    let (done, warned, said) = run("one");
    assert_eq!(done, "backup ok, verify ok, consolidate skipped, prune ok, after ok");
    for text in [&warned, &said] {
        assert!(text.contains("between full and one"), "{text}");
        assert!(text.contains("--accept-imports") && text.contains("a full backup"), "{text}");
    }
    let metrics = std::fs::read_to_string(site.scratch.join("run.prom")).unwrap();
    let of = |name: &str| metrics.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(of("xbcloud_run_success").ends_with(" 1"), "{metrics}");
    assert!(!of("xbcloud_run_warnings").ends_with(" 0"), "{metrics}");
    assert!(metrics.contains("stage=\"consolidate\"} 0"), "{metrics}");
    // As it says.
    let _ = site.consolidate("latest", &["--accept-imports"]).run().expect(0);
    site.change(1);
    let (done, _, _) = run("two");
    assert_eq!(done, "backup ok, verify ok, consolidate ok, prune ok, after ok");
    site.assert_is_the_server("two-full", &[]);
}
