use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::target::into_place::link_into_place;

fn name(name: &str) -> RelPath {
    RelPath::new(name.as_bytes()).unwrap()
}

fn put(target: &TargetDir, path: &str, bytes: &[u8]) -> Result<(), TargetError> {
    let file = target.begin(&name(path))?;
    file.write_at(0, bytes)?;
    file.commit(target, &name(path), bytes.len() as u64, false)
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_has_its_name_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    let file = target.begin(&name("a/b/c")).unwrap();
    file.write_at(0, b"half").unwrap();
    assert_eq!(entries(dir.path()), [PARTIAL_DIR]);
    file.commit(&target, &name("a/b/c"), 4, true).unwrap();
    assert_eq!(fs::read(dir.path().join("a/b/c")).unwrap(), b"half");
    let dropped = target.begin(&name("x")).unwrap();
    dropped.write_at(0, b"half").unwrap();
    drop(dropped);
    target.sync().unwrap();
    target.close();
    assert_eq!(entries(dir.path()), ["a"]);
}

#[test]
fn modes_are_not_open_to_the_world() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    put(&target, "d/f", b"x").unwrap();
    let mode =
        |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("d/f") & !0o640, 0);
    assert_eq!(mode("d") & !0o750, 0);

    let target = target.with_modes(0o600, 0o700);
    put(&target, "e/f", b"x").unwrap();
    assert_eq!((mode("e/f"), mode("e")), (0o600, 0o700));
}

#[test]
fn holes_stay_holes() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    let file = target.begin(&name("sparse")).unwrap();
    file.write_at(64 << 20, &[7; 4096]).unwrap();
    file.commit(&target, &name("sparse"), 128 << 20, false).unwrap();
    let meta = fs::metadata(dir.path().join("sparse")).unwrap();
    assert_eq!(meta.len(), 128 << 20);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "old").unwrap();
    symlink("nowhere", dir.path().join("link")).unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    for path in ["old", "link"] {
        assert!(matches!(target.begin(&name(path)), Err(TargetError::Exists { .. })), "{path}");
    }
    // Also when the name appears in between.
    let file = target.begin(&name("late")).unwrap();
    fs::write(dir.path().join("late"), "theirs").unwrap();
    let error = file.commit(&target, &name("late"), 0, false).unwrap_err();
    assert!(matches!(error, TargetError::Exists { .. }), "{error}");
    put(&target, "mine", b"mine").unwrap();
    let error = target.rename(&name("mine"), &name("old")).unwrap_err();
    assert!(matches!(error, TargetError::Exists { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join("late")).unwrap(), b"theirs");
    assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
}

#[test]
fn no_symbolic_link_is_followed() {
    let outside = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    put(&target, "mine", b"mine").unwrap();
    for path in ["out/x", "out/deeper/x", "file/x"] {
        let error = target.begin(&name(path)).unwrap_err();
        assert!(matches!(error, TargetError::NotADirectory { .. }), "{path}: {error}");
        let error = target.rename(&name("mine"), &name(path)).unwrap_err();
        assert!(matches!(error, TargetError::NotADirectory { .. }), "{path}: {error}");
        let error = target.remove(&name(path)).unwrap_err();
        assert!(matches!(error, TargetError::NotADirectory { .. }), "{path}: {error}");
    }
    // A directory replaced by a link after the file was begun.
    let file = target.begin(&name("later/x")).unwrap();
    symlink(outside.path(), dir.path().join("later")).unwrap();
    let error = file.commit(&target, &name("later/x"), 0, false).unwrap_err();
    assert!(matches!(error, TargetError::NotADirectory { .. }), "{error}");
    assert_eq!(entries(outside.path()), Vec::<String>::new());
}

#[test]
fn the_directory_of_unfinished_files_is_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    put(&target, "mine", b"mine").unwrap();
    for path in [".xb-partial", ".xb-partial/1/0", ".xb-partial-2", ".xb-incremental/1/x"] {
        assert!(matches!(target.begin(&name(path)), Err(TargetError::Reserved { .. })), "{path}");
        let renamed = target.rename(&name("mine"), &name(path));
        assert!(matches!(renamed, Err(TargetError::Reserved { .. })), "{path}");
        let file = target.begin(&name("x")).unwrap();
        let committed = file.commit(&target, &name(path), 0, false);
        assert!(matches!(committed, Err(TargetError::Reserved { .. })), "{path}");
    }
    // A link that someone else placed here is not ours to remove.
    drop(target);
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join(PARTIAL_DIR)).unwrap();
    assert!(matches!(TargetDir::open(dir.path()), Err(TargetError::Open { .. })));
}

#[test]
fn rename_and_remove_reach_committed_files() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    put(&target, "a", b"1").unwrap();
    target.rename(&name("a"), &name("new/dir/b")).unwrap();
    assert_eq!(fs::read(dir.path().join("new/dir/b")).unwrap(), b"1");
    target.remove(&name("new/dir/b")).unwrap();
    assert!(matches!(target.remove(&name("new/dir/b")), Err(TargetError::Remove { .. })));
    target.close();
    assert_eq!(entries(dir.path()), ["new"]);
}

#[test]
fn two_runs_share_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let one = TargetDir::open(dir.path()).unwrap();
    let two = TargetDir::open(dir.path()).unwrap();
    let file = two.begin(&name("x")).unwrap();
    one.close();
    file.commit(&two, &name("x"), 0, false).unwrap();
    two.close();
    assert_eq!(entries(dir.path()), ["x"]);
}

#[test]
fn linking_into_place_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    fs::write(dir.path().join("b"), "b").unwrap();
    let at = fs::File::open(dir.path()).unwrap();
    assert_eq!(link_into_place(&at, b"a", &at, b"b"), Err(Errno::EXIST));
    link_into_place(&at, b"a", &at, b"c").unwrap();
    assert_eq!(entries(dir.path()), ["b", "c"]);
    assert_eq!(fs::read(dir.path().join("c")).unwrap(), b"a");
}

#[test]
fn what_cannot_be_opened_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = TargetDir::open(&missing).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}
