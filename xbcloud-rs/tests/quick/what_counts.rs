//! What counts as a backup when rules of retention remove others: only what can be restored, as far as the catalogue and the
//! first data object show.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::small_backup;

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
}

/// Makes all files a month old, as far as the store tells.
fn age(folder: &Path) {
    let time = SystemTime::now() - Duration::from_secs(30 * 86_400);
    for key in tree(folder).into_keys() {
        std::fs::File::open(folder.join(key)).unwrap().set_modified(time).unwrap();
    }
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
