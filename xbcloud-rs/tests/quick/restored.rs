//! A restore whose end was not seen is run again: it finds its own finished work, and no other.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::small_backup;

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

/// Returns whether the file system of the tests has extended attributes.
fn has_attributes(folder: &Path) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(folder, "user.xb-test", b"x", flags).is_ok()
}

#[test]
fn a_finished_restore_is_known_again() {
    let folder = tempfile::tempdir().unwrap();
    if !has_attributes(folder.path()) {
        xb_testkit::skipped("this file system has no extended attributes");
        return;
    }
    let place = |name: &str| format!("file://{}/root/{name}", folder.path().display());
    let target = folder.path().join("data");
    let dir = format!("--target-dir={}", target.display());
    let restore = |options: &[&str], name: &str| {
        run(&[&["restore", "--sync=none", &dir], options, &[&place(name)]].concat(), b"")
    };
    for (name, layout) in [("packed", "--layout=packed"), ("classic", "--layout=classic")] {
        for other in [name, &format!("{name}-2")] {
            let _ = run(&["put", layout, &place(other)], &small_backup(1, 300_000)).expect(0);
        }
        let _ = restore(&[], name).expect(0);
        let files = tree(&target);
        let again = restore(&[], name).expect(0);
        assert!(again.stderr_text().contains("already there"), "{again:?}");
        assert_eq!(tree(&target), files);
        // A kill may have come before the empty folders were removed.
        std::fs::create_dir_all(target.join(".xb-partial/restore")).unwrap();
        let _ = restore(&[], name).expect(0);
        assert_eq!(tree(&target), files);
        assert!(!target.join(".xb-partial").exists());

        let refused = |options: &[&str], name: &str| {
            let ran = restore(options, name).expect_failure();
            assert!(ran.stderr_text().contains("not empty"), "{ran:?}");
        };
        refused(&[], &format!("{name}-2"));
        refused(&["--no-decompress"], name);
        refused(&["--files=*.ibd"], name);
        let foreign = target.join("foreign");
        std::fs::write(&foreign, "").unwrap();
        refused(&[], name);
        std::fs::remove_file(&foreign).unwrap();
        let _ = restore(&[], name).expect(0);
        let file = target.join("xtrabackup_info");
        let content = std::fs::read(&file).unwrap();
        std::fs::write(&file, &content).unwrap();
        refused(&[], name);
        std::fs::remove_dir_all(&target).unwrap();
    }
}

/// Files that the merge or the program has left are neither the chain nor its end.
#[test]
fn a_chain_whose_prepare_was_interrupted_is_distinguished_from_foreign_files() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/root/n", folder.path().display());
    let _ = run(&["put", &place], &small_backup(1, 100_000)).expect(0);
    let target = folder.path().join("data");
    std::fs::create_dir_all(target.join(".xb-incremental/1")).unwrap();
    std::fs::write(target.join("ibdata1"), "half").unwrap();
    let dir = format!("--target-dir={}", target.display());
    let refused = run(&["restore", &dir, &place], b"").expect_failure().stderr_text();
    assert!(
        refused.contains("interrupted") && refused.contains("empty the directory"),
        "{refused}"
    );
}

/// The root of a fresh ext4 has this directory, which only root can read.
#[test]
fn a_fresh_file_system_counts_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/root/n", folder.path().display());
    let _ = run(&["put", &place], &small_backup(1, 100_000)).expect(0);
    let target = folder.path().join("data");
    let dir = format!("--target-dir={}", target.display());
    std::fs::create_dir_all(target.join("lost+found")).unwrap();
    let _ = run(&["restore", &dir, &place], b"").expect(0);
    assert!(target.join("xtrabackup_info").is_file() && target.join("lost+found").is_dir());
    std::fs::remove_dir_all(&target).unwrap();
    std::fs::create_dir_all(&target).unwrap();
    let refused = || {
        let refused = run(&["restore", &dir, &place], b"").expect_failure().stderr_text();
        assert!(refused.contains("not empty"), "{refused}");
    };
    std::fs::write(target.join("lost+found"), "a file of this name is foreign").unwrap();
    refused();
    std::fs::remove_file(target.join("lost+found")).unwrap();
    std::fs::create_dir(target.join("lost+found")).unwrap();
    std::fs::write(target.join("lost+found/#12"), "what a check of the disk has found").unwrap();
    refused();
}

/// A server cannot use files of root.
#[test]
fn restored_files_belong_to_the_owner_of_their_directory() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("only root may change owners");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/root/n", folder.path().display());
    let _ = run(&["put", &place], &small_backup(1, 100_000)).expect(0);
    let parent = folder.path().join("servers");
    std::fs::create_dir(&parent).unwrap();
    let give = |path: &Path, owner| std::os::unix::fs::chown(path, Some(owner), Some(owner));
    give(&parent, 12345).unwrap();
    for (name, of_target, expected) in
        [("kept", Some(54321), 54321), ("roots", Some(0), 12345), ("new", None, 12345)]
    {
        let target = parent.join(name);
        if let Some(owner) = of_target {
            std::fs::create_dir(&target).unwrap();
            give(&target, owner).unwrap();
        }
        let dir = format!("--target-dir={}", target.display());
        let _ = run(&["restore", &dir, &place], b"").expect(0);
        for path in [&target, &target.join("xtrabackup_info")] {
            let facts = std::fs::metadata(path).unwrap();
            assert_eq!((facts.uid(), facts.gid()), (expected, expected), "{}", path.display());
        }
    }
}

/// While one run merges or prepares, another one of the same command would change the same files.
#[test]
fn a_directory_that_another_run_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/root/n", folder.path().display());
    let _ = run(&["put", &place], &small_backup(1, 100_000)).expect(0);
    let target = folder.path().join("data");
    let dir = format!("--target-dir={}", target.display());
    std::fs::create_dir(&target).unwrap();
    let other = std::fs::File::open(&target).unwrap();
    other.lock().unwrap();
    let refused = run(&["restore", &dir, &place], b"").expect_failure().stderr_text();
    assert!(refused.contains("another restore"), "{refused}");
    drop(other);
    let _ = run(&["restore", &dir, &place], b"").expect(0);
}

#[test]
fn a_restore_that_is_refused_leaves_no_directory() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("file://{}/root/n", folder.path().display());
    let _ = run(&["put", &place], &small_backup(1, 100_000)).expect(0);
    let target = folder.path().join("new/data");
    let dir = format!("--target-dir={}", target.display());
    // Nothing says which program took the backup.
    let _ = run(&["restore", &dir, "--prepare", "--prepare-program=/no/such", &place], b"")
        .expect_failure();
    assert!(!folder.path().join("new").exists());
    let _ = run(&["restore", &dir, &place], b"").expect(0);
}
