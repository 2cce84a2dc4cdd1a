//! Options that xtrabackup gets when a backup is prepared: those of a keyring and of a transition key,
//! a new master key; and what it writes then: a cluster's position. A program that records its calls
//! plays it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::files::tree;
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

/// Moves what the real program moves, and leaves the files that describe the backup.
const XTRABACKUP: &str = r#"#!/bin/sh
here=${0%/*}
echo "$*" >>"$here/calls"
for word; do
    case $word in
    --target-dir=*) target=${word#*=} ;;
    --datadir=*) datadir=${word#*=} ;;
    esac
done
case " $* " in
*" --prepare "*)
    [ ! -e "$here/galera" ] || cp "$here/galera" "$target/xtrabackup_galera_info"
    [ ! -e "$here/loses" ] || rm "$target/shop/lost.MYI"
    ;;
*" --move-back "*)
    [ ! -e "$here/fails" ] || { echo "cannot reach the vault" >&2; exit 1; }
    mv "$target/orders" "$target/shop" "$target/xtrabackup_info" "$datadir"
    ;;
esac
"#;

/// A redo log of MySQL whose recovery starts at LSN 5.
fn redo_log() -> Vec<u8> {
    let mut log = vec![0; 12 << 10];
    log[3] = 6;
    log[527] = 5;
    // CRC-32C of the checkpoint block.
    log[1020..1024].copy_from_slice(&0xb2ad_2d52_u32.to_be_bytes());
    log
}

/// A backup of xtrabackup 2.4 with a transition key; `increment` is one on top of it.
fn backup(increment: bool) -> Vec<u8> {
    let (kind, from, to) = if increment { ("incremental", 5, 9) } else { ("full-backuped", 0, 5) };
    let info = "tool_name = xtrabackup\ntool_command = --backup --transition-key=...\ntool_version = 2.4.29\n";
    let checkpoints =
        format!("backup_type = {kind}\nfrom_lsn = {from}\nto_lsn = {to}\nlast_lsn = 9\n");
    let end = if increment { ".delta" } else { "" };
    // Files whose content level `pages` does not know.
    let table = "rows".repeat(20_000);
    let mut out = StreamWriter::new(Vec::new());
    if increment {
        out.end("orders.meta").end("shop/orders.CSV.meta");
    }
    for (name, content) in [
        (format!("orders{end}"), table.as_bytes()),
        (format!("shop/orders.CSV{end}"), table.as_bytes()),
        ("xtrabackup_keys".to_owned(), b"keys"),
        ("xtrabackup_logfile".to_owned(), &redo_log()),
        ("xtrabackup_checkpoints".to_owned(), checkpoints.as_bytes()),
        ("backup-my.cnf".to_owned(), b"[mysqld]\ninnodb_data_file_path=orders:12M\n"),
        ("xtrabackup_info".to_owned(), info.as_bytes()),
        ("xtrabackup_tablespaces".to_owned(), b"{}"),
    ] {
        out.payload(&name, 0, content).end(&name);
    }
    out.finish()
}

struct Scene {
    store: Store,
    scratch: Scratch,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { store: Store::folder(), scratch: Scratch::new() };
        let program = scene.program();
        std::fs::write(&program, XTRABACKUP).unwrap();
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let _ = put_bytes(&scene.store, "full", &[], &backup(false));
        scene
    }

    fn program(&self) -> PathBuf {
        self.scratch.join("xtrabackup")
    }

    /// `restore` or `verify` with these options of the program that prepares.
    fn run(&self, command: &str, options: &[&str], prepare: &[&str]) -> xb_testkit::command::Ran {
        let program = format!("--prepare-program={}", self.program().display());
        let prepare: Vec<String> =
            prepare.iter().map(|option| format!("--prepare-opts={option}")).collect();
        // Here, the list of its calls.
        let writes = format!("--mysqld-writes={}", self.scratch.path().display());
        let options = [&[&*program, &*writes], options].concat();
        xbcloud(&self.store, command, "full", &options).args(prepare).run()
    }

    /// The calls of the program, without the folders of this test.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.scratch.join("calls")).unwrap_or_default();
        let here = format!("{}/", self.scratch.path().display());
        calls.lines().map(|line| line.replace(&here, "")).collect()
    }
}

fn names(folder: &Path) -> Vec<String> {
    tree(folder).into_keys().collect()
}

const KEYRINGS: [&str; 6] = [
    "--keyring-file-data=/keys/keyring",
    "--keyring-vault-config=/keys/vault.conf",
    "--component-keyring-config=/keys/component.cnf",
    "--early-plugin-load=keyring_vault.so",
    "--xtrabackup-plugin-dir=/usr/lib64/xtrabackup/plugin",
    "--transition-key=secret",
];

#[test]
fn every_option_reaches_every_call() {
    let scene = Scene::new();
    let store = &scene.store;
    let _ = put_bytes(store, "next", &[], &backup(true));
    let target = format!("--target-dir={}", scene.scratch.join("data").display());
    let ran = scene.run("restore", &["--prepare", &target], &KEYRINGS).expect(0);
    let all = KEYRINGS.join(" ");
    // Its redo log is empty: the least memory.
    let memory = "--use-memory=134217728";
    assert_eq!(scene.calls(), [format!("--prepare --target-dir=data {memory} {all}")]);
    assert!(!ran.stderr_text().contains("secret"), "{ran:?}");
    // The trial server comes after preparing; here it cannot start.
    let trial = format!("--scratch-dir={}", scene.scratch.dir("trial").display());
    let options = ["--level=restore", "--mysqld=/bin/false", &trial];
    let ran = scene.run("verify", &options, &KEYRINGS);
    let _ = ran.expect_failure();
    let calls = scene.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[1].starts_with("--prepare --target-dir=trial/"), "{calls:?}");
    assert!(calls[1].contains(&format!(" {memory} ")), "{calls:?}");
    assert!(calls[1].ends_with(&all), "{calls:?}");
}

#[test]
fn a_new_master_key_takes_one_more_call() {
    let scene = Scene::new();
    let data = scene.scratch.join("data");
    let target = format!("--target-dir={}", data.display());
    let given = ["--generate_new_master_key", "--transition-key=secret", "--keyring-file-data=/k"];
    let _ = scene.run("restore", &["--prepare", &target], &given).expect(0);
    let keys = "--transition-key=secret --keyring-file-data=/k";
    let expected = [
        format!("--prepare --target-dir=data --use-memory=134217728 {keys}"),
        format!(
            "--no-defaults --move-back --target-dir=data/.xb-prepared --datadir=data \
             --force-non-empty-directories {keys} --generate-new-master-key"
        ),
    ];
    assert_eq!(scene.calls(), expected);
    let files = [
        "backup-my.cnf",
        "orders",
        "shop/orders.CSV",
        "xtrabackup_checkpoints",
        "xtrabackup_info",
        "xtrabackup_keys",
        "xtrabackup_logfile",
        "xtrabackup_tablespaces",
    ];
    assert_eq!(names(&data), files);
    assert!(!data.join(".xb-prepared").exists());
    // An option file of the user's counts, and it comes first.
    let target = format!("--target-dir={}", scene.scratch.join("again").display());
    let given = ["--generate-new-master-key", "--defaults-file=/keys.cnf"];
    let _ = scene.run("restore", &["--prepare", &target], &given).expect(0);
    assert!(scene.calls()[3].starts_with("--defaults-file=/keys.cnf --move-back --target-dir="));
    // The files that the trial server gets are moved in the same way.
    let trial = format!("--scratch-dir={}", scene.scratch.dir("trial").display());
    let options = ["--level=restore", "--mysqld=/bin/false", &trial];
    let _ = scene.run("verify", &options, &["--generate-new-master-key"]).expect_failure();
    assert!(scene.calls()[5].ends_with("--force-non-empty-directories --generate-new-master-key"));
}

/// With backup locks, xtrabackup writes the position only when it prepares.
#[test]
fn a_position_that_preparing_writes_makes_a_node() {
    let scene = Scene::new();
    let state = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:57";
    let restore = |folder: &str| {
        let target = format!("--target-dir={}", scene.scratch.join(folder).display());
        scene.run("restore", &["--prepare", "--galera", &target], &[])
    };
    let ran = restore("without").expect_failure();
    assert!(ran.stderr_text().contains("position"), "{ran:?}");
    assert!(!scene.scratch.join("without/grastate.dat").exists());
    std::fs::write(scene.scratch.join("galera"), state).unwrap();
    let _ = restore("with").expect(0);
    let written = std::fs::read_to_string(scene.scratch.join("with/grastate.dat")).unwrap();
    let (uuid, seqno) = state.split_once(':').unwrap();
    assert!(written.contains(uuid) && written.contains(seqno), "{written}");
}

/// As mariadb-backup 10.11 loses a table that was renamed while an increment was taken.
#[test]
fn a_table_that_the_program_loses_fails_the_restore() {
    let scene = Scene::new();
    let mut tables = StreamWriter::new(Vec::new());
    for table in ["kept", "lost"] {
        // The definition names MyISAM.
        let frm = [&[0xfe, 1, 10, 9][..], &[0; 96]].concat();
        for (end, content) in [("frm", &*frm), ("MYD", b"rows"), ("MYI", b"keys")] {
            let name = format!("shop/{table}.{end}");
            tables.payload(&name, 0, content).end(&name);
        }
    }
    let stream = [tables.finish(), backup(false)].concat();
    let _ = put_bytes(&scene.store, "tables", &[], &stream);
    let restore = |folder: &str| {
        let target = format!("--target-dir={}", scene.scratch.join(folder).display());
        let program = format!("--prepare-program={}", scene.program().display());
        xbcloud(&scene.store, "restore", "tables", &["--prepare", &program, &target]).run()
    };
    let _ = restore("whole").expect(0);
    std::fs::write(scene.scratch.join("loses"), "").unwrap();
    let ran = restore("data").expect_failure();
    let said = ran.stderr_text();
    assert!(
        said.contains("lost the files of 1 table: shop/lost. All other files are prepared"),
        "{said}"
    );
}

#[test]
fn a_failure_to_make_the_key_fails_the_restore() {
    let scene = Scene::new();
    std::fs::write(scene.scratch.join("fails"), "").unwrap();
    let data = scene.scratch.join("data");
    let target = format!("--target-dir={}", data.display());
    let ran = scene.run("restore", &["--prepare", &target], &["--generate-new-master-key"]);
    let ran = ran.expect_failure();
    assert!(ran.stderr_text().contains("cannot reach the vault"), "{ran:?}");
    assert!(data.join(".xb-prepared/orders").exists(), "nothing is lost");
    // A backup of another program has no such step.
    let _ = put_bytes(&scene.store, "maria", &[], &xb_testkit::stream::small_backup(1, 5000));
    let target = format!("--target-dir={}", scene.scratch.join("maria").display());
    let program = format!("--prepare-program={}", scene.program().display());
    let key = "--prepare-opts=--generate-new-master-key";
    let ran = xbcloud(&scene.store, "restore", "maria", &["--prepare", &target, &program, key]);
    let ran = ran.run().expect_failure();
    assert!(ran.stderr_text().contains("is an option of xtrabackup"), "{ran:?}");
}

#[test]
fn a_program_that_is_missing_is_noticed_before_anything_is_written() {
    let scene = Scene::new();
    let data = scene.scratch.join("data");
    let target = format!("--target-dir={}", data.display());
    let restore = |options: &[&str]| {
        let options = [&["--prepare", &*target], options].concat();
        xbcloud(&scene.store, "restore", "full", &options).env("PATH", "/no/such/folder").run()
    };
    let ran = restore(&[]).expect_failure();
    assert!(ran.stderr_text().contains("xtrabackup"), "{ran:?}");
    let ran = restore(&["--prepare-program=/no/such/xtrabackup"]).expect_failure();
    assert!(ran.stderr_text().contains("/no/such/xtrabackup"), "{ran:?}");
    assert!(!data.exists());
}

/// Nothing limits the time of a program: only who waits for it can decide that it has stopped working.
#[test]
fn displays_show_how_long_a_program_has_been_silent() {
    let scene = Scene::new();
    let events = scene.scratch.join("events");
    let script = "#!/bin/sh\necho begun\nuntil [ -e \"${0%/*}/go\" ]; do :; done\n";
    std::fs::write(scene.program(), script).unwrap();
    let mut running = Cmd::new("sh")
        .args(["-c", "exec \"$@\" 2>\"$0\""])
        .arg(&events)
        .args([env!("CARGO_BIN_EXE_xbcloud-rs"), "restore", "--json", "--prepare"])
        .arg(format!("--target-dir={}", scene.scratch.join("data").display()))
        .arg(format!("--prepare-program={}", scene.program().display()))
        .args(scene.store.options())
        .arg(scene.store.url("full"))
        .spawn();
    let phases = || {
        let text = std::fs::read_to_string(&events).unwrap_or_default();
        let events = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
        let phases = events.filter(|event| event["event"] == "progress");
        phases.map(|event| event["phase"].clone()).collect::<Vec<_>>()
    };
    let silent = |phase: &Value| phase["silent_ms"].as_u64();
    running.until("a silence is shown", || phases().iter().any(|p| silent(p) >= Some(1000)));
    std::fs::write(scene.scratch.join("go"), "").unwrap();
    let _ = running.wait().expect(0);
    let phases = phases();
    let others = phases.iter().filter(|phase| phase["name"] != "prepare");
    assert!(others.into_iter().all(|phase| silent(phase).is_none()), "{phases:?}");
}
