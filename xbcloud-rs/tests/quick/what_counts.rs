//! What counts as a backup when rules of retention remove others: only what can be restored, as far as the catalogue and the
//! first data object show.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::{StreamWriter, small_backup};

/// A repository in a directory, and its neighbour.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}/root/{name}", self.0.path().display())
    }

    /// A command on the repository, with a state and a cache of this test.
    fn cmd(&self, words: &[&str], place: &str) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(words)
            .arg(format!("--state-dir={}", self.path("state").display()))
            .arg(self.url(place))
            .env("XDG_CACHE_HOME", self.path("cache"))
    }

    fn run(&self, words: &[&str], place: &str) -> Ran {
        self.cmd(words, place).run()
    }

    #[track_caller]
    fn put(&self, name: &str, options: &[&str], stream: &[u8]) -> Ran {
        self.cmd(&[&["put"], options].concat(), name).stdin_bytes(stream).run().expect(0)
    }

    /// Files below the repository whose paths end so.
    fn files(&self, end: &str) -> Vec<PathBuf> {
        let found = tree(&self.path("root")).into_keys().filter(|key| key.ends_with(end));
        found.map(|key| self.path("root").join(key)).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.path("root/.xb-catalog").join(name).exists()
    }

    /// Asserts that only `good` counts: the other one is named with these words, and retention leaves both.
    #[track_caller]
    fn only_one_counts(&self, good: &str, other: &str, words: &str) {
        let listed = self.run(&["list", "--long"], "");
        let text = listed.stdout_text() + &listed.stderr_text();
        assert!(text.contains(words), "{text}");
        let found = self.run(&["monitor", "--max-age=1d"], "");
        assert!(found.stdout_text().contains(other) && found.code() != 0, "{found:?}");
        let latest = self.run(&["show", "--json"], "latest").expect(0).stdout_text();
        assert!(latest.contains(&format!("\"{good}\"")), "{latest}");
        let pruned = self.run(&["prune", "--keep-last=1", "--yes"], "");
        assert!(self.has(good) && self.has(other), "{pruned:?}");
    }
}

/// Makes all files a month old, as far as the store tells.
fn age(folder: &Path) {
    let time = SystemTime::now() - Duration::from_secs(30 * 86_400);
    for key in tree(folder).into_keys() {
        std::fs::File::open(folder.join(key)).unwrap().set_modified(time).unwrap();
    }
}

fn backup((from, to): (u64, u64)) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("shop/t.frm", &[7; 5000], 1000).positions(from, to).info();
    stream.finish()
}

/// The same, with an info file that says whether it is partial.
fn of_kind((from, to): (u64, u64), partial: &str) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("shop/t.frm", &[7; 5000], 1000).positions(from, to);
    let info = format!("tool_name = mariadb-backup\npartial = {partial}\n");
    stream.file("xtrabackup_info", info.as_bytes(), 1000);
    stream.finish()
}

/// By its size, it may be no smaller: then it was the newest, and the whole one was pruned.
#[test]
fn a_partial_backup_counts_for_no_whole_one() {
    let site = Site::new();
    let (whole, partial) = ("N", "Y");
    site.put("alone", &[], &of_kind((0, 10), partial));
    let told = site.run(&["show"], "latest").expect(0).stdout_text();
    assert!(told.contains("partial      it has only the databases and tables"), "{told}");
    let _ = site.run(&["monitor", "--max-age=1d"], "").expect(0);

    site.put("whole", &[], &of_kind((0, 20), whole));
    let told = site.put("part", &[], &of_kind((0, 30), partial)).stderr_text();
    assert!(told.contains("part is partial"), "{told}");
    let _ = site.run(&["verify", "--level=checksum"], "part").expect(0);
    let listed = site.run(&["list"], "").expect(0).stdout_text();
    assert!(listed.contains("full, partial"), "{listed}");
    let latest = site.run(&["show", "--no-files"], "latest").expect(0);
    assert!(latest.stdout_text().contains("name         whole"), "{latest:?}");
    assert!(latest.stderr_text().contains("part is newer, but partial"), "{latest:?}");
    let found = site.run(&["monitor", "--max-age=1d"], "").expect(0).stdout_text();
    assert!(found.contains("newest backup whole"), "{found}");
    // Neither is the base of the other, and what is asked for by LSN says so, too.
    for (name, stream, base) in [
        ("w1", of_kind((30, 40), whole), "its base part is a partial backup"),
        ("p1", of_kind((20, 40), partial), "its base whole is a whole backup"),
    ] {
        let put = site.cmd(&["put"], name).stdin_bytes(stream).run();
        assert!(put.code() != 0 && put.stderr_text().contains(base), "{put:?}");
    }
    site.put("p2", &[], &of_kind((30, 40), partial));
    let _ = site.run(&["prune", "--keep-last=1", "--yes"], "").expect(0);
    let left = ["alone", "whole", "part", "p2"].map(|name| site.has(name));
    assert_eq!(left, [false, true, true, true]);
}

/// In a directory, an object `NAME` is called `NAME#N` until it is complete.
#[test]
fn a_name_like_that_of_an_unfinished_file_is_no_remains() {
    let site = Site::new();
    for name in ["db#shard#12", "db#x#7#8"] {
        site.put(name, &[], &small_backup(2, 5000));
        let _ = site.run(&["verify", "--level=checksum"], name).expect(0);
        let _ = site.run(&["pin", "--reason=audit"], name).expect(0);
    }
    let before = tree(&site.path("root"));
    age(&site.path("root"));
    std::fs::write(site.path("root/.xb-catalog/db#1"), "half a manifest").unwrap();
    age(&site.path("root/.xb-catalog"));
    let _ = site.run(&["gc", "--yes"], "").expect(0);
    assert_eq!(tree(&site.path("root")), before);
    // A folder that can be listed only by walking, because a link leads in a circle.
    std::os::unix::fs::symlink("..", site.path("root/.xb-catalog/circle")).unwrap();
    let listed = site.run(&["list"], "").expect(0).stdout_text();
    assert!(listed.contains("db#shard#12") && listed.contains("db#x#7#8"), "{listed}");
}

#[test]
fn a_backup_without_its_first_object_counts_for_nothing() {
    for layout in ["packed", "classic"] {
        let site = Site::new();
        let option = format!("--layout={layout}");
        site.put("n29", &[&option], &small_backup(2, 5000));
        site.put("n30", &[&option], &small_backup(2, 5000));
        for file in site.files("") {
            let data = file.file_name().unwrap().to_str().unwrap();
            let digits = data.rsplit('.').next().unwrap();
            if file.starts_with(site.path("root/n30")) && digits.bytes().all(|b| b.is_ascii_digit())
            {
                std::fs::remove_file(file).unwrap();
            }
        }
        std::fs::create_dir_all(site.path("root/n30")).unwrap();
        std::fs::write(site.path("root/n30/README"), "of another program").unwrap();
        site.only_one_counts("n29", "n30", "missing");
    }
}

#[test]
fn a_sealed_backup_without_its_keys_counts_for_nothing() {
    let site = Site::new();
    std::fs::write(site.path("key"), [7; 32]).unwrap();
    let key = format!("--encrypt-key-file={}", site.path("key").display());
    site.put("n29", &[&key], &small_backup(2, 5000));
    site.put("n30", &[&key], &small_backup(2, 5000));
    let keys = site.files("/keys").into_iter().find(|key| key.starts_with(site.path("root/n30")));
    std::fs::remove_file(keys.unwrap()).unwrap();
    site.only_one_counts("n29", "n30", "missing");
}

/// xtrabackup 2.4 encrypts the file with the positions, too; the names of changed pages are to be seen.
#[test]
fn an_increment_whose_positions_are_encrypted_counts_for_nothing() {
    let site = Site::new();
    site.put("full", &[], &backup((0, 5)));
    let mut stream = StreamWriter::new(Vec::new());
    for name in ["ibdata1.delta", "ibdata1.meta", "xtrabackup_checkpoints", "xtrabackup_info"] {
        stream.file(&format!("{name}.xbcrypt"), &[9; 500], 1000);
    }
    let stored = site.put("more", &[], &stream.finish()).stderr_text();
    assert!(stored.contains("an increment of unknown base"), "{stored}");
    site.only_one_counts("full", "more", "base");
}

/// Nothing can be restored of a chain whose base is lost, whatever was accepted before.
#[test]
fn the_word_for_a_small_size_is_none_for_a_lost_base() {
    let site = Site::new();
    let full = |files| {
        let mut stream = StreamWriter::new(Vec::new());
        for n in 0..files {
            stream.file(&format!("shop/t{n}.frm"), &[7; 5000], 1000);
        }
        stream
    };
    for (n, name) in (1..).zip(["f1", "f2", "f3"]) {
        let mut stream = full(40);
        stream.positions(0, n).info();
        site.put(name, &[], &stream.finish());
    }
    let increment = |files, from, to| {
        let mut stream = full(files);
        stream.positions(from, to).info();
        stream.finish()
    };
    site.put("i1", &[], &increment(40, 3, 4));
    site.put("i2", &[], &increment(40, 4, 5));
    site.put("i3", &[], &increment(1, 5, 6));
    let _ = site.run(&["accept", "--reason=tables moved"], "i3").expect(0);
    for base in ["f1", "f2", "f3", "i1", "i2"] {
        std::fs::remove_dir_all(site.path("root").join(base)).unwrap();
        std::fs::remove_file(site.path("root/.xb-catalog").join(base)).unwrap();
    }
    let found = site.run(&["monitor", "--max-age=1d"], "");
    assert_eq!(found.code(), 2, "{found:?}");
    let fleet = site.run(&["fleet", "--max-age=1d"], "");
    assert_eq!(fleet.code(), 2, "{fleet:?}");
    // Now, it is for the base.
    let _ = site.run(&["accept", "--reason=an archive"], "i3").expect(0);
    let _ = site.run(&["monitor", "--max-age=1d"], "").expect(0);
}

#[test]
fn a_copy_that_has_lost_objects_is_not_called_complete() {
    let site = Site::new();
    let copy = |name: &str| {
        let to = format!("file://{}/", site.path("vault").display());
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["copy", "--unverified", &site.url(name), &to])
            .run()
    };
    for (name, layout) in [("packed", "--layout=packed"), ("classic", "--layout=classic")] {
        site.put(name, &[layout, "--chunk-size=4096", "--compress=none"], &small_backup(3, 90_000));
        let _ = copy(name).expect(0);
        let vault = site.path("vault").join(name);
        let before = tree(&vault);
        let mut data: Vec<_> = before.keys().filter(|key| key.ends_with('1')).collect();
        let lost = vault.join(data.pop().unwrap());
        std::fs::remove_file(&lost).unwrap();
        let text = copy(name).expect(7).stderr_text();
        assert!(text.contains("missing") && text.contains("delete --force"), "{text}");
        // Cut, it is no better.
        std::fs::write(&lost, "x").unwrap();
        let _ = copy(name).expect(7);
        let place = format!("file://{}", vault.display());
        let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["delete", "--force", "--yes", &place])
            .run()
            .expect(0);
        let _ = copy(name).expect(0);
        let of = |tree: std::collections::BTreeMap<String, (u64, String)>| {
            let data = tree.into_iter().filter(|(key, _)| !key.ends_with("claim"));
            data.collect::<Vec<_>>()
        };
        assert_eq!(of(tree(&vault)), of(before));
    }
}

/// Nothing is written there: the copy would be the backup itself.
#[test]
fn a_copy_whose_disk_is_not_mounted_is_neither_complete_nor_damaged() {
    let site = Site::new();
    site.put("n", &["--compress=none"], &small_backup(2, 9_000));
    let copy = || {
        let to = format!("file://{}/", site.path("vault").display());
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["copy", "--unverified", &site.url("n"), &to])
            .run()
    };
    let _ = copy().expect(0);
    let (folder, disk) = (site.path("vault/n"), site.path("disk"));
    std::fs::rename(&folder, &disk).unwrap();
    let refused = |what: &str| {
        let text = copy().expect(1).stderr_text();
        assert!(text.contains(what) && text.contains("is its disk mounted?"), "{text}");
        assert!(text.contains("mount it, then copy again"), "{text}");
    };
    // The empty mount point, then a link to where the disk should be.
    std::fs::create_dir(&folder).unwrap();
    refused("its folder is empty");
    std::fs::remove_dir(&folder).unwrap();
    std::os::unix::fs::symlink(site.path("elsewhere"), &folder).unwrap();
    refused("leads nowhere");
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&disk, &folder).unwrap();
    let _ = copy().expect(0);
}

#[test]
fn a_run_does_not_copy_to_its_own_place() {
    let site = Site::new();
    std::fs::create_dir(site.path("root")).unwrap();
    std::os::unix::fs::symlink(site.path("root"), site.path("vault")).unwrap();
    std::fs::write(site.path("stream"), small_backup(2, 5000)).unwrap();
    let to = format!("--copy-to=file://{}/", site.path("vault").display());
    let ran = site
        .cmd(&["run", &to], "n1")
        .arg("--")
        .arg("cat")
        .arg(site.path("stream"))
        .run()
        .expect_failure();
    assert!(ran.stderr_text().contains("the place of the backup itself"), "{ran:?}");
}

/// Opening it would wait for a writer that never comes.
#[test]
fn what_is_no_file_is_refused() {
    for place in [".xb-catalog/@pins/n", ".xb-catalog/n", "first"] {
        let site = Site::new();
        site.put("n", &[], &small_backup(2, 5000));
        let file = match place {
            "first" => site.files("/000000000").remove(0),
            place => site.path("root").join(place),
        };
        let _ = std::fs::remove_file(&file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let _ = Cmd::new("/usr/bin/mkfifo").arg(&file).run().expect(0);
        for command in
            [&["list"][..], &["verify"], &["prune", "--keep-last=1", "--yes"], &["delete", "--yes"]]
        {
            let at = if ["verify", "delete"].contains(&command[0]) { "n" } else { "" };
            let words = ["5", env!("CARGO_BIN_EXE_xbcloud-rs")];
            let ran =
                Cmd::new("/usr/bin/timeout").args(words).args(command).arg(site.url(at)).run();
            assert_ne!(ran.code(), 124, "{place}: {command:?} waits");
        }
        assert!(file.exists(), "{place}");
    }
}

/// `lost+found`, or a folder of another program.
#[test]
fn a_foreign_folder_beside_the_archives_is_passed_over() {
    let site = Site::new();
    site.put("n1", &[], &small_backup(2, 5000));
    site.put("n2", &[], &small_backup(2, 5000));
    for folder in ["latest", "@tmp"] {
        let folder = site.path("root/.xb-binlog").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("notes"), "of another program").unwrap();
    }
    let pruned = site.run(&["prune", "--keep-last=1", "--yes"], "").expect(0).stderr_text();
    assert!(!site.has("n1") && pruned.contains("latest"), "{pruned}");
    let _ = site.run(&["monitor", "--max-age=1d"], "").expect(0);
}

/// This host remembers the newest backup of each server.
#[test]
fn a_server_of_which_nothing_is_left_is_missed_beside_another() {
    let site = Site::new();
    site.put("a1", &["--server=a"], &small_backup(2, 5000));
    site.put("b1", &["--server=b"], &small_backup(2, 5000));
    let _ = site.run(&["monitor"], "").expect(0);
    let remove = |name: &str| {
        std::fs::remove_dir_all(site.path("root").join(name)).unwrap();
        std::fs::remove_file(site.path("root/.xb-catalog").join(name)).unwrap();
    };
    remove("a1");
    let found = site.run(&["monitor"], "").expect(2).stdout_text();
    assert!(found.contains("a1"), "{found}");
    let _ = site.run(&["monitor", "--ignore-server=a"], "").expect(0);
    // One that is deleted is not missed, and the other one still is.
    let _ = site.run(&["delete", "--yes"], "b1").expect(0);
    site.put("c1", &["--server=c"], &small_backup(2, 5000));
    let found = site.run(&["monitor"], "").expect(2).stdout_text();
    assert!(found.contains("a1") && !found.contains("b1"), "{found}");
    let _ = site.run(&["accept", "--begun-anew"], "").expect(0);
    let _ = site.run(&["monitor"], "").expect(0);
}

/// The copy of an older backup makes it no newer.
#[test]
fn the_newest_backup_is_remembered_when_an_older_one_comes() {
    let site = Site::new();
    let vault = format!("file://{}/", site.path("vault").display());
    let vault = |words: &[&str]| {
        let state = format!("--state-dir={}", site.path("state").display());
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(words).args([&vault, &state]).run()
    };
    for name in ["n1", "n2"] {
        site.put(name, &[], &small_backup(2, 5000));
    }
    for name in ["n2", "n1"] {
        let _ = vault(&["copy", "--unverified", &site.url(name)]).expect(0);
    }
    std::fs::remove_dir_all(site.path("vault/n2")).unwrap();
    std::fs::remove_file(site.path("vault/.xb-catalog/n2")).unwrap();
    let found = vault(&["monitor"]);
    assert!(found.code() == 1 && found.stdout_text().contains("n2"), "{found:?}");
}
