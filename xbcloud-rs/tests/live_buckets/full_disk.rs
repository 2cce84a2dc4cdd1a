//! Chains of a real MariaDB that are restored, rescued and consolidated on disks that run full, at every stage: one
//! error with the next step, nothing half-made, and the same command succeeds once there is room.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::support::*;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::small_disk::SmallDisk;
use xb_testkit::store::Store;

const MIB: u64 = 1 << 20;
/// Bytes that the disk gains after each failure.
const STEP: u64 = 3 * MIB;
/// More than any of these commands needs.
const ENOUGH: u64 = 1000 * MIB;
/// How every such error begins.
const FULL: &str = "not enough room in ";
const CANNOT: &str = "this user cannot mount a tmpfs";

/// A chain of three backups, each increment of which has a table of its own.
struct Site {
    store: Store,
    server: MariaDb,
    scratch: Scratch,
}

impl Site {
    fn new() -> Self {
        let store = Store::folder();
        let (server, scratch) = (MariaDb::start(), Scratch::new());
        server.sql(
            "CREATE DATABASE shop; USE shop; CREATE TABLE shop.a (id INT PRIMARY KEY, v VARCHAR(200), KEY (v));
             INSERT INTO shop.a SELECT seq, MD5(seq) FROM seq_1_to_9000",
        );
        let site = Self { store, server, scratch };
        site.back_up("full", &[]);
        for name in ["one", "two"] {
            site.server.sql(&format!(
                "USE shop; CREATE TABLE shop.{name} (id INT PRIMARY KEY, v VARCHAR(250)); UPDATE shop.a SET v = MD5(RAND()) WHERE id % 9 = 1;
                 INSERT INTO shop.{name} SELECT seq, REPEAT(MD5(seq), 7) FROM seq_1_to_40000"
            ));
            site.back_up(name, &["--incremental-from=latest"]);
        }
        site
    }

    fn back_up(&self, name: &str, options: &[&str]) {
        let run = xbcloud(&self.store, "backup", name, &["--chunk-size=4M", "--server=db1"]);
        let state = format!("--state-dir={}", self.scratch.join("state").display());
        let run = run.arg(state).args(options).arg("--").args(self.server.backup_command());
        let _ = run.run().expect(0);
    }

    /// A command on a backup of the chain, with the directory in which it works.
    fn work(&self, command: &str, name: &str, place: &str) -> Cmd {
        xbcloud(&self.store, command, name, &[]).arg(place)
    }

    fn assert_is_the_server(&self, name: &str) {
        let target = self.scratch.join(format!("restored-{name}"));
        let place = format!("--target-dir={}", target.display());
        let _ = self.work("restore", name, &place).arg("--prepare").run().expect(0);
        self.assert_is_the_server_in(&target);
        std::fs::remove_dir_all(&target).unwrap();
    }

    fn assert_is_the_server_in(&self, target: &std::path::Path) {
        let copy = MariaDb::start_on(target);
        copy.check_tables("shop");
        assert_eq!(copy.checksums("shop"), self.server.checksums("shop"));
    }

    /// The backup that `latest` means.
    fn latest(&self) -> String {
        let shown = xbcloud(&self.store, "show", "latest", &["--json"]).run().expect(0);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["name"].as_str().unwrap().to_owned()
    }
}

/// A small disk below the scratch directory of the site.
fn small_disk(site: &Site, mib: u64) -> Option<(SmallDisk, PathBuf)> {
    let place = site.scratch.dir("small");
    match SmallDisk::mount(&place, mib) {
        Some(disk) => Some((disk, place)),
        None => {
            xb_testkit::skipped(CANNOT);
            None
        }
    }
}

/// Runs a command on a disk that gains some room after each failure, until it succeeds. `failed` gets what each failure
/// told.
fn until_it_fits(
    disk: &SmallDisk,
    begin: u64,
    run: impl Fn() -> Cmd,
    mut failed: impl FnMut(&str),
) -> Ran {
    let mut size = begin;
    loop {
        assert!(size < ENOUGH, "it does not fit into {size} bytes");
        disk.resize(size);
        let ran = run().run();
        if ran.code() == 0 {
            return ran;
        }
        let told = ran.expect(1).stderr_text();
        assert_eq!(told.matches(FULL).count(), 1, "of {size} bytes: {told}");
        assert_eq!(told.matches("hint: make room").count(), 1, "of {size} bytes: {told}");
        failed(&told);
        size += STEP;
    }
}

#[test]
fn a_restore_of_a_chain_resumes_when_there_is_room() {
    let site = Site::new();
    let Some((disk, place)) = small_disk(&site, 8) else { return };
    let target = place.join("t");
    let option = format!("--target-dir={}", target.display());
    let run = || site.work("restore", "two", &option).args(["--prepare", "--no-space-check"]);
    let (mut fetch, mut merge) = (0, 0);
    let _ = until_it_fits(&disk, 8 * MIB, run, |told| {
        match (told.contains("empty the directory"), target.join(".xb-merge/plan").exists()) {
            (true, _) => std::fs::remove_dir_all(&target).unwrap(),
            (false, true) => merge += 1,
            (false, false) => fetch += 1,
        }
    });
    assert!(fetch > 0 && merge > 0, "{fetch}, {merge}");
    disk.resize(ENOUGH);
    site.assert_is_the_server_in(&target);
    // A program that finds the disk full has changed the files.
    let program = site.scratch.join("mariadb-backup");
    let script = "#!/bin/sh\necho 'InnoDB: preallocating 12582912 bytes for file ./ib_logfile0 failed with error 28'; exit 1\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let other = format!("--target-dir={}", place.join("p").display());
    let run = site.work("restore", "full", &other).arg("--prepare");
    let run = run.arg(format!("--prepare-program={}", program.display()));
    let told = run.run().expect(1).stderr_text();
    assert!(told.contains(FULL) && told.contains("make room there, empty the directory"), "{told}");
    // The message of the check before the start.
    disk.resize(disk.used() + MIB);
    let other = format!("--target-dir={}", place.join("u").display());
    let told = site.work("restore", "two", &other).arg("--prepare").run().expect(1).stderr_text();
    assert!(told.contains(FULL) && told.contains("--no-space-check"), "{told}");
    // With room for the first backup, but not for the chain, nothing is fetched.
    let shown = xbcloud(&site.store, "show", "full", &["--json"]).run().expect(0);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    disk.resize(disk.used() + shown["stream_bytes"].as_u64().unwrap() + 6 * MIB);
    let other = place.join("v");
    let option = format!("--target-dir={}", other.display());
    let told = site.work("restore", "two", &option).arg("--prepare").run().expect(1).stderr_text();
    assert!(told.contains(FULL) && told.contains("--no-space-check"), "{told}");
    assert!(!other.join("ibdata1").exists(), "{told}");
    // With room for the chain, but maybe not for what its increments add to the first backup, it begins.
    let streams = ["full", "one", "two"].map(|name| {
        let shown = xbcloud(&site.store, "show", name, &["--json"]).run().expect(0);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["stream_bytes"].as_u64().unwrap()
    });
    let [full, one, two] = streams;
    disk.resize(disk.used() + full + 2 * (one + two) - 2 * MIB);
    let other = place.join("w");
    let option = format!("--target-dir={}", other.display());
    let told = site.work("restore", "two", &option).arg("--prepare").run().expect(0).stderr_text();
    assert!(told.contains("may run full"), "{told}");
    disk.resize(ENOUGH);
    site.assert_is_the_server_in(&other);
    // Where a merge could not keep its plan.
    let odd = place.join(OsStr::from_bytes(b"odd-\xff"));
    let run = xbcloud(&site.store, "restore", "two", &["--prepare"]).arg("--target-dir").arg(&odd);
    let told = run.run().expect(1).stderr_text();
    assert!(told.contains("the path is not UTF-8") && !odd.exists(), "{told}");
    // The program keeps none.
    let run = xbcloud(&site.store, "restore", "two", &["--prepare", "--prepare-chain=stock"]);
    let _ = run.arg("--target-dir").arg(&odd).run().expect(0);
    // The arguments of the tests' servers are text.
    std::fs::rename(&odd, place.join("even")).unwrap();
    site.assert_is_the_server_in(&place.join("even"));
}

#[test]
fn a_rescue_without_room_leaves_nothing() {
    let site = Site::new();
    let Some((disk, place)) = small_disk(&site, 1) else { return };
    let dump = site.scratch.join("dump.sql");
    let option = format!("--scratch-dir={}", place.display());
    let run = || site.work("rescue", "two", &option).args(["shop.a"]).stdout_file(&dump);
    let complete = "-- Complete. Tables: 1, rows: 9000";
    let mut failures = 0;
    let _ = until_it_fits(&disk, MIB, run, |told| {
        failures += 1;
        assert!(told.contains("--scratch-dir"), "{told}");
        assert!(!told.contains("--no-space-check"), "{told}");
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "{told}");
        assert!(!std::fs::read_to_string(&dump).unwrap().contains(complete), "{told}");
    });
    assert!(failures > 1);
    assert!(std::fs::read_to_string(&dump).unwrap().contains(complete));
    // The disk of the dump itself.
    let all = format!("--scratch-dir={}", site.scratch.dir("room").display());
    let place = site.scratch.dir("of-the-dump");
    let Some(_disk) = SmallDisk::mount(&place, 3) else { return };
    let full = site.work("rescue", "two", &all).arg("shop.one").stdout_file(place.join("dump.sql"));
    let told = full.run().expect(1).stderr_text();
    assert!(told.contains("cannot write the dump") && told.contains("make room"), "{told}");
}

#[test]
fn a_consolidation_without_room_for_its_scratch_changes_nothing() {
    let site = Site::new();
    let Some((disk, place)) = small_disk(&site, 1) else { return };
    let option = format!("--scratch-dir={}", place.display());
    let run = || site.work("consolidate", "two", &option);
    let (mut before, mut proof) = (0, 0);
    let _ = until_it_fits(&disk, MIB, run, |told| {
        match has_manifest(&site.store, "two-full") {
            true => proof += 1,
            false => {
                before += 1;
                assert_eq!(site.store.list("two-full"), [], "{told}");
            }
        }
        assert!(told.contains("--scratch-dir"), "{told}");
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "{told}");
        assert_eq!(site.latest(), "two", "its chain is what counts: {told}");
    });
    assert!(before > 1 && proof > 0, "{before}, {proof}");
    assert_eq!(site.latest(), "two-full");
    disk.resize(ENOUGH);
    for name in ["two", "two-full"] {
        site.assert_is_the_server(name);
    }
}

/// A chain on a consolidated backup counts until the next one is proven, whether that is killed or its disk runs full.
#[test]
fn ten_increments_on_a_consolidated_backup_count_until_the_next_one_is_proven() {
    let site = Site::new();
    let Some((disk, place)) = small_disk(&site, 1) else { return };
    disk.resize(ENOUGH);
    let option = format!("--scratch-dir={}", place.display());
    let _ = site.work("consolidate", "two", &option).run().expect(0);
    for n in 0..10 {
        site.server.sql(&format!("UPDATE shop.a SET v = MD5(RAND()) WHERE id % 90 = {n}"));
        site.back_up(&format!("more{n}"), &["--incremental-from=latest"]);
    }
    let run = || site.work("consolidate", "more9", &option);
    let is_stored = || has_manifest(&site.store, "more9-full");
    // `prune` takes only the chain of which `two-full` was made.
    let counts = || {
        assert_eq!(site.latest(), "more9");
        let _ = xbcloud(&site.store, "prune", "", &["--yes", "--keep-last=1"]).run().expect(0);
        assert!(!has_manifest(&site.store, "two"));
        site.assert_is_the_server("more9");
    };
    let killed_when = |what: &str, in_scratch: &str| {
        let mut killed = run().arg("--check-sql=SELECT SLEEP(600)").spawn();
        killed.until(what, || {
            let mut there = std::fs::read_dir(&place).unwrap().flatten();
            there.any(|entry| {
                let name = entry.file_name();
                name.to_string_lossy().starts_with(in_scratch)
                    && entry.path().join("data/ibdata1").exists()
            })
        });
        killed.kill_9();
        assert_ne!(killed.wait().code(), 0);
    };
    killed_when("the chain is fetched", "xb-consolidate-");
    assert!(!is_stored());
    counts();
    let mut stages = std::collections::BTreeSet::new();
    let _ = until_it_fits(&disk, 8 * MIB, run, |_| {
        if stages.insert(is_stored()) {
            disk.resize(ENOUGH);
            if is_stored() {
                killed_when("a trial is made of it", "xb-verify-");
            }
            counts();
        }
    });
    assert_eq!(stages.len(), 2, "its disk ran full before and after it was stored");
    assert_eq!(site.latest(), "more9-full");
    site.assert_is_the_server("more9-full");
    site.assert_is_the_server("more9");
}

#[test]
fn a_consolidation_into_a_full_store_changes_nothing() {
    let site = Site::new();
    let Store::Folder { root, .. } = &site.store else { panic!("no folder") };
    // The repository moves to a small disk.
    let kept = site.scratch.join("kept");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let from = format!("{}/.", from.display());
        let _ = Cmd::new("cp").args(["-a", &from]).arg(to).run().expect(0);
    };
    std::fs::create_dir(&kept).unwrap();
    copy(root, &kept);
    let Some(disk) = SmallDisk::mount(root, 500) else {
        xb_testkit::skipped(CANNOT);
        return;
    };
    copy(&kept, root);
    let option = format!("--scratch-dir={}", site.scratch.dir("room").display());
    let used = disk.used();
    let mut size = used + MIB;
    let mut failures = 0;
    loop {
        disk.resize(size);
        let ran = site.work("consolidate", "two", &option).run();
        if ran.code() == 0 {
            break;
        }
        failures += 1;
        let told = ran.expect(1).stderr_text();
        assert!(told.contains("hint: make room, or raise the quota"), "{told}");
        assert!(!has_manifest(&site.store, "two-full"), "{told}");
        assert!(disk.used() < used + MIB / 2, "{} bytes stay: {told}", disk.used() - used);
        assert!(size < used + ENOUGH, "{told}");
        size += 2 * STEP;
    }
    assert!(failures > 0);
    for name in ["two", "two-full"] {
        site.assert_is_the_server(name);
    }
}
