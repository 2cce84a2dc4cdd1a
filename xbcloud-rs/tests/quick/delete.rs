//! `delete` shows what it would remove and asks, except with `--yes` and under the stock name.

use std::os::unix::fs::symlink;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::small_backup;

fn run(args: &[&str]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).run()
}

fn put(place: &str, options: &[&str]) {
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args([&["put"], options, &[place]].concat())
        .stdin_bytes(small_backup(2, 5000))
        .run()
        .expect(0);
}

fn url(folder: &Path, name: &str) -> String {
    format!("file://{}/{name}", folder.display())
}

#[test]
fn without_yes_and_without_a_terminal_nothing_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    put(&place, &["--chunk-size=1000"]);
    let before = tree(folder.path());
    for more in [&[] as &[&str], &["--force"], &["--json"], &["--quiet"]] {
        let text = run(&[&["delete"], more, &[&place]].concat()).expect(2).stderr_text();
        assert!(
            text.contains("--yes") && text.contains("n: the manifest .xb-catalog/n and "),
            "{text}"
        );
        assert_eq!(tree(folder.path()), before);
    }
    // A backup that cannot be deleted is an error with or without `--yes`.
    let _ = run(&["delete", &url(folder.path(), "other")]).expect_failure();
    let _ = run(&["delete", "--yes", &place]).expect(0);
    assert!(tree(folder.path()).is_empty());
}

/// Runs the command on a terminal of its own, with `script`.
fn on_terminal(place: &str, answer: &str) -> Ran {
    let command = format!("'{}' delete '{place}'", env!("CARGO_BIN_EXE_xbcloud-rs"));
    Cmd::new("/usr/bin/script").args(["-qec", &command, "/dev/null"]).stdin_bytes(answer).run()
}

#[test]
fn a_terminal_is_asked_and_only_yes_removes() {
    if !Path::new("/usr/bin/script").exists() {
        xb_testkit::skipped("/usr/bin/script is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = url(folder.path(), "n");
    put(&place, &["--layout=classic"]);
    let before = tree(folder.path());
    for (answer, code) in [("n\n", 1), ("\n", 1), ("\u{4}", 1)] {
        let ran = on_terminal(&place, answer).expect(code);
        assert!(ran.stdout_text().contains("Remove it? [y/N]"), "{ran:?}");
        assert_eq!(tree(folder.path()), before, "{answer:?}");
    }
    let ran = on_terminal(&place, "y\n").expect(0);
    assert!(ran.stdout_text().contains("the manifest .xb-catalog/n and "), "{ran:?}");
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn under_the_stock_name_it_removes_at_once_and_never_a_folder_of_backups() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("xbcloud");
    symlink(env!("CARGO_BIN_EXE_xbcloud-rs"), &link).unwrap();
    let shop = folder.path().join("root/shop");
    std::fs::create_dir_all(&shop).unwrap();
    for name in ["mon", "tue"] {
        put(&url(&shop, name), &["--layout=classic"]);
    }
    let before = tree(&shop);
    let parent = url(&folder.path().join("root"), "shop");
    for program in [&link, Path::new(env!("CARGO_BIN_EXE_xbcloud-rs"))] {
        let refused =
            Cmd::new(program).args(["delete", "--yes", "--force", &parent]).run().expect_failure();
        let text = refused.stderr_text();
        assert!(text.contains("folder of 2 backups: mon, tue"), "{text}");
        assert_eq!(tree(&shop), before);
    }
    let listed = run(&["list", &format!("file://{}/root", folder.path().display())]).expect(0);
    let is_folder = |line: &str| {
        line.starts_with("shop ") && line.contains(" folder ") && line.ends_with("2 backups")
    };
    assert!(listed.stdout_text().lines().any(is_folder), "{listed:?}");
    let _ = Cmd::new(&link).args(["delete", &url(&shop, "mon")]).run().expect(0);
    assert!(tree(&shop).keys().all(|key| key.contains("tue")));
}
