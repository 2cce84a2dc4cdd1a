//! Clones of MySQL restored from a store, without a server: whole, killed at any write, and refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use xb_testkit::clone::{MadeClone, content};
use xb_testkit::command::{Cmd, Ran};

struct Site {
    folder: tempfile::TempDir,
    clone: MadeClone,
}

impl Site {
    fn new(is_encrypted: bool) -> Self {
        let site =
            Self { folder: tempfile::tempdir().unwrap(), clone: MadeClone::new(is_encrypted) };
        if is_encrypted {
            // Keys are stored only under a seal.
            let (home, key) = (site.path("home"), site.path("key"));
            std::fs::create_dir(&home).unwrap();
            std::fs::write(&key, [7; 32]).unwrap();
            let options = format!("[xbcloud]\nencrypt-key-file={}\n", key.display());
            std::fs::write(home.join(".my.cnf"), options).unwrap();
        }
        let _ = site.run(&["put", &site.url()]).stdin_bytes(site.clone.stream()).run().expect(0);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        format!("file://{}/a", self.path("root").display())
    }

    fn run(&self, args: &[&str]) -> Cmd {
        self.with(Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args))
    }

    fn with(&self, cmd: Cmd) -> Cmd {
        cmd.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("state"))
    }

    fn arguments(&self, target: &Path, options: &[&str]) -> Vec<String> {
        let target = format!("--target-dir={}", target.display());
        let mut words = vec!["restore".to_owned(), self.url(), target];
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words
    }

    fn restore(&self, target: &Path, options: &[&str]) -> Ran {
        let args = self.arguments(target, options);
        self.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).run()
    }
}

const EXPOSED: &str = "--allow-exposed-keys";

#[test]
fn a_clone_is_restored_and_the_same_command_finds_it_done() {
    let site = Site::new(false);
    let target = site.path("t");
    let first = site.restore(&target, &[]).expect(0);
    site.clone.assert_is_in(&target);
    let text = first.stderr_text();
    for words in ["shop.gone (MyISAM)", "/far/away/shop/moved.ibd was outside", "MySQL 9.7.4-2"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let before = content(&target);
    let _ = site.restore(&target, &[]).expect(0);
    assert!(content(&target) == before);
    let json = site.restore(&site.path("u"), &["--json"]).expect(0);
    let event = json.stderr_text();
    let event = event.lines().find(|line| line.contains("\"event\":\"clone\"")).unwrap();
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["empty_tables"][0], "shop.gone (MyISAM)");
    assert_eq!(event["moved"][1]["to"], "general.ibd");
    assert!(event["gtids"].is_null() && event["binlog"].is_null());
}

/// The contents of the objects of a backup, in the order of their names.
fn objects(folder: &Path) -> Vec<u8> {
    let names = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let is_object = |path: &PathBuf| path.to_str().unwrap().rsplit('/').next().unwrap().len() == 9;
    let mut paths: Vec<PathBuf> = names.filter(is_object).collect();
    paths.sort();
    paths.iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn a_clone_of_which_the_manifest_says_nothing_is_put_together_or_refused() {
    let site = Site::new(false);
    // The objects of a packed backup are one native stream.
    let runs = std::fs::read_dir(site.path("root/a")).unwrap().flatten().map(|run| run.path());
    let run = runs.into_iter().next().unwrap();
    let native = format!("{}n", site.url());
    let _ = site.run(&["put", &native]).stdin_bytes(objects(&run)).run().expect(0);
    let target = site.path("t");
    let into = format!("--target-dir={}", target.display());
    let ran = site.run(&["restore", &native, &into]).run().expect(0);
    assert!(ran.stderr_text().contains("shop.gone (MyISAM)"), "{}", ran.stderr_text());
    site.clone.assert_is_in(&target);
    let _ = site.run(&["restore", &native, &into, "--files=shop/*"]).run().expect_failure();

    // As a stock program stores it, without a manifest.
    let stock = format!("{}s", site.url());
    let put = site.run(&["put", &stock, "--layout=classic"]);
    let _ = put.stdin_bytes(site.clone.stream()).run().expect(0);
    std::fs::remove_dir_all(site.path("root/.xb-catalog")).unwrap();
    let target = site.path("u");
    let into = format!("--target-dir={}", target.display());
    let ran = site.run(&["restore", &stock, &into]).run().expect_failure();
    let text = ran.stderr_text();
    assert!(text.contains("store it anew and sealed"), "{text}");
}

/// Killed before each of its changes in turn, and again while it continues.
#[test]
fn a_restore_that_is_killed_at_any_change_is_continued() {
    const CALLS: [&str; 7] =
        ["pwrite64", "ftruncate", "renameat", "renameat2", "mkdirat", "unlinkat", "syncfs"];
    let site = Site::new(true);
    let killed = |target: &Path, call: &str, number: usize| {
        let mut args: Vec<String> =
            ["-f", "-qq", "-o", "/dev/null", "-e"].map(str::to_owned).into();
        args.push(format!("inject={call}:signal=KILL:when={number}"));
        args.push(env!("CARGO_BIN_EXE_xbcloud-rs").to_owned());
        args.extend(site.arguments(target, &[EXPOSED]));
        site.with(Cmd::new("strace").args(args)).run().code() != 0
    };
    if !Command::new("strace").args(["-qq", "true"]).output().is_ok_and(|out| out.status.success())
    {
        xb_testkit::skipped("there is no strace, or it may not trace");
        return;
    }
    let (mut killed_ones, mut in_patches) = (0, 0);
    let mut over = Vec::new();
    for (call, number) in CALLS.into_iter().flat_map(|call| (1..40).map(move |n| (call, n))) {
        if over.contains(&call) {
            continue;
        }
        let target = site.path(&format!("{call}-{number}"));
        if !killed(&target, call, number) {
            std::fs::remove_dir_all(target).unwrap();
            over.push(call);
            continue;
        }
        killed_ones += 1;
        if target.join("#innodb_redo").exists() {
            // A server could start: then everything is there.
            let found = content(&target);
            for (name, wanted) in &site.clone.result {
                let is_key = name.contains("shop/") || name.contains("#ib_redo");
                assert!(is_key || found[name] == *wanted, "{name} at {call} {number}");
            }
        }
        in_patches += u32::from(target.join(".xb-partial/restore/clone").exists());
        let _ = killed(&target, "pwrite64", 3);
        let ran = site.restore(&target, &[EXPOSED]).expect(0);
        // Fetched files are not fetched again.
        assert!(!ran.stderr_text().contains("restored again"), "{}", ran.stderr_text());
        site.clone.assert_is_in(&target);
        assert!(!target.join(".xb-partial").exists(), "{call} {number}");
        std::fs::remove_dir_all(target).unwrap();
    }
    assert!(in_patches > 8, "{in_patches} of {killed_ones}");
}

#[test]
fn an_impossible_restore_of_a_clone_is_refused_before_any_data() {
    let site = Site::new(true);
    let refused = |options: &[&str], words: &str| {
        let target = site.path("t");
        let ran = site.restore(&target, options).expect_failure();
        assert!(ran.stderr_text().contains(words), "{}", ran.stderr_text());
        assert!(!target.exists(), "{words}");
    };
    refused(&[], "--allow-exposed-keys");
    refused(&["--files=shop/*"], "restore all of it with --prepare and without --files");
    refused(&["--files=shop/*", "--prepare"], "without --files");
    refused(&["--export"], "FLUSH TABLES");
    refused(&["--prepare", "--prepare-opts=--x"], "--mysqld-opts");
    refused(&["--prepare", "--prepare-program=xtrabackup"], "--mysqld");
    refused(&["--prepare", "--mysqld=/no/such"], "cannot start /no/such");
    refused(&["--galera", "--prepare"], "is no node of a Galera cluster");
    let ran = site.run(&["rescue", &site.url(), "shop.plain"]).run().expect_failure();
    assert!(ran.stderr_text().contains("dump the tables there"), "{}", ran.stderr_text());
}

/// A server that only tells its version.
fn server(site: &Site, version: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = site.path(&format!("mysqld-{version}"));
    std::fs::write(&path, format!("#!/bin/sh\necho '/usr/sbin/mysqld  Ver {version} for Linux'\n"))
        .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("--mysqld={}", path.display())
}

#[test]
fn a_server_that_may_not_start_on_it_is_not_started() {
    let site = Site::new(false);
    for (version, words) in [
        ("9.7.3", "it is older"),
        ("9.8.0", "belongs to another series"),
        ("8.4.9", "belongs to another series"),
        ("10.11.6-MariaDB", "MariaDB"),
    ] {
        let target = site.path("t");
        let ran = site.restore(&target, &["--prepare", &server(&site, version)]).expect_failure();
        assert!(ran.stderr_text().contains(words), "{}", ran.stderr_text());
        assert!(!target.exists(), "{version}");
    }
}

/// The clone of a replica, of a server with events or of a member of a group would work on if its server were started as usual.
#[test]
fn the_server_that_prepares_a_clone_neither_listens_nor_replicates_nor_runs_events() {
    let site = Site::new(false);
    let option = server(&site, "9.7.4-2");
    let path = option.strip_prefix("--mysqld=").unwrap();
    let notes = "for word; do case $word in --datadir=*) printf '%s\\n' \"$@\" >\"${word#--datadir=}/words\"; esac; done\n";
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, text + notes).unwrap();
    let target = site.path("t");
    let _ = site.restore(&target, &["--prepare", &option]).expect_failure();
    let words = std::fs::read_to_string(target.join("words")).unwrap();
    for word in [
        "--skip-networking",
        "--loose-mysqlx=OFF",
        "--loose-skip-replica-start",
        "--loose-event-scheduler=DISABLED",
        "--loose-group-replication-start-on-boot=OFF",
        "--loose-persisted-globals-load=OFF",
    ] {
        assert!(words.lines().any(|line| line == word), "{word}: {words}");
    }
}

/// A server that is gone once it has told its version.
fn vanishing(site: &Site) -> String {
    let option = server(site, "9.7.4-2");
    let path = option.strip_prefix("--mysqld=").unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, text + "rm \"$0\"\n").unwrap();
    option
}

#[test]
fn a_clone_on_which_no_server_began_is_not_fetched_again() {
    let site = Site::new(false);
    let target = site.path("t");
    for number in 0..2 {
        let ran = site.restore(&target, &["--prepare", &vanishing(&site)]).expect_failure();
        let said = ran.stderr_text();
        assert!(said.contains("mysqld-9.7.4-2"), "{number}: {said}");
        assert!(!said.contains("did not stop cleanly"), "{number}: {said}");
    }
    let args = site.arguments(&target, &["--prepare", &vanishing(&site)]);
    let without_room = site.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let ran = without_room.env("TMPDIR", site.path("missing")).run().expect_failure();
    assert!(!ran.stderr_text().contains("did not stop cleanly"), "{}", ran.stderr_text());
    let _ = site.restore(&target, &[]).expect(0);
    site.clone.assert_is_in(&target);
}

#[test]
fn a_clone_that_is_damaged_is_not_put_together() {
    let mut site = Site::new(false);
    site.clone.info["patches"] = serde_json::json!(99);
    let bad = site.clone.stream();
    let _ = site.run(&["put", &format!("{}b", site.url())]).stdin_bytes(bad).run().expect(0);
    let mut foreign = MadeClone::new(false);
    foreign.files.push(("#innodb_redo/#ib_redo0".to_owned(), vec![1; 4096]));
    let url = format!("{}c", site.url());
    let _ = site.run(&["put", &url]).stdin_bytes(foreign.stream()).run().expect(0);
    let mut unlisted = MadeClone::new(false);
    unlisted.files.push(("shop/foreign.ibd".to_owned(), vec![1; 4096]));
    let url = format!("{}d", site.url());
    let _ = site.run(&["put", &url]).stdin_bytes(unlisted.stream()).run().expect(0);
    for (name, words) in [
        ("b", "8 of 99 patches"),
        ("c", "which is in no clone"),
        ("d", "it has shop/foreign.ibd, which is no file of it"),
    ] {
        let (url, target) = (format!("{}{name}", site.url()), site.path(name));
        let into = format!("--target-dir={}", target.display());
        let ran = site.run(&["restore", &url, &into]).run().expect_failure();
        assert!(ran.stderr_text().contains(words), "{}", ran.stderr_text());
        assert!(target.join("xb_clone.patches").exists());
    }
}

#[test]
fn pages_are_read_through_the_patches() {
    let whole = MadeClone::new(true);
    // The torn page has no patch any more.
    let mut torn = whole.clone();
    torn.patches.remove(0);
    torn.info["patches"] = serde_json::json!(torn.patches.len());
    let mut damaged = whole.clone();
    damaged.patches[3].3[5000] ^= 1;
    // Recovery writes a page that is missing, if it starts before the page was in use.
    let [mut written, mut lost] = [MadeClone::new(false), MadeClone::new(false)];
    written.miss_a_page(0x1_0000);
    lost.miss_a_page(0x1_0180);
    let mut unusable = whole.clone();
    let head = |patch: &&mut (bool, u32, u64, Vec<u8>)| (patch.0, patch.1, patch.2) == (true, 0, 0);
    unusable.patches.iter_mut().find(head).unwrap().3[600] ^= 1;
    let site = Site::new(true);
    for (name, clone, place) in [
        ("a", whole, None),
        ("b", torn, Some("shop/plain.ibd at 32768: page 2")),
        ("c", damaged, Some("xb_clone.outside/6 at 16384: page 1")),
        ("d", written, None),
        ("e", lost, Some("shop/plain.ibd at 65536: page 4")),
        ("f", unusable, Some("no intact checkpoint")),
    ] {
        let url = site.url().replace("/a", &format!("/p{name}"));
        let _ = site.run(&["put", &url]).stdin_bytes(clone.stream()).run().expect(0);
        let ran = site.run(&["verify", &url, "--level=pages", "--no-record"]).run();
        let text = format!("{}{}", ran.stdout_text(), ran.stderr_text());
        match place {
            None => assert!(ran.code() == 0 && text.contains("0 damaged"), "{text}"),
            Some(place) => assert!(ran.code() != 0 && text.contains(place), "{place}: {text}"),
        }
    }
}
