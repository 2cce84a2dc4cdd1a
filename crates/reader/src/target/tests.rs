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
fn a_second_restore_into_one_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = TargetDir::open_kept(dir.path()).unwrap();
    let error = TargetDir::open_kept(dir.path()).unwrap_err();
    assert!(matches!(error, TargetError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("another restore is writing into"), "{error}");
    drop(first);
    assert!(TargetDir::open_kept(dir.path()).is_ok());
}

#[test]
fn a_brief_file_has_no_name_until_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap().with_modes(0o604, 0o700);
    let brief = |path: &str, bytes: &[u8]| {
        let file = target.begin_brief(&name(path))?;
        file.write_at(0, bytes)?;
        Ok::<_, TargetError>(file)
    };
    let file = brief("a/b", b"all").unwrap();
    assert_eq!(entries(dir.path()), [PARTIAL_DIR]);
    file.commit(&target, &name("a/b"), 4096, true).unwrap();
    assert_eq!(fs::read(dir.path().join("a/b")).unwrap().len(), 4096);
    put(&target, "named", b"x").unwrap();
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode();
    assert_eq!(mode("a/b"), mode("named"), "the umask counts for both");
    // Nothing is overwritten, and nothing remains of what is dropped or fails.
    let taken =
        brief("named", b"y").and_then(|file| file.commit(&target, &name("named"), 1, false));
    assert!(matches!(taken, Err(TargetError::Exists { .. })), "{taken:?}");
    let reserved = brief(".xb-partial/x", b"y")
        .and_then(|file| file.commit(&target, &name(".xb-partial/x"), 1, false));
    assert!(matches!(reserved, Err(TargetError::Reserved { .. })), "{reserved:?}");
    brief("dropped", b"y").unwrap().discard();
    drop(brief("dropped", b"y").unwrap());
    target.close();
    assert_eq!(entries(dir.path()), ["a", "named"]);
    assert_eq!(fs::read(dir.path().join("named")).unwrap(), b"x");
}

#[test]
fn files_of_many_directories_find_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    for round in 0..2 {
        for n in 0..3 * parents::PARENTS {
            put(&target, &format!("d{n}/f{round}"), n.to_string().as_bytes()).unwrap();
        }
    }
    for n in 0..3 * parents::PARENTS {
        let folder = dir.path().join(format!("d{n}"));
        assert_eq!(entries(&folder), ["f0", "f1"]);
        assert_eq!(fs::read(folder.join("f1")).unwrap(), n.to_string().as_bytes());
    }
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
fn a_file_that_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = TargetDir::open(&missing).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn files_go_to_the_directory_that_selects_them() {
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open = |dir: &tempfile::TempDir| TargetDir::open(dir.path()).unwrap();
    let target = open(&dir).with_elsewhere(open(&other), |name| name.starts_with(b"ibdata"));
    for path in ["ibdata1", "ibdata2.qp", "shop/ibdata1", "t.ibd"] {
        put(&target, path, b"x").unwrap();
    }
    let brief = target.begin_brief(&name("ibdata3")).unwrap();
    brief.commit(&target, &name("ibdata3"), 0, true).unwrap();
    target.rename(&name("ibdata2.qp"), &name("ibdata2")).unwrap();
    assert!(matches!(put(&target, "ibdata1", b"y"), Err(TargetError::Exists { .. })));
    target.remove(&name("ibdata3")).unwrap();
    target.sync().unwrap();
    target.close();
    assert_eq!(entries(other.path()), ["ibdata1", "ibdata2"]);
    assert_eq!(entries(dir.path()), ["shop", "t.ibd"]);
    assert_eq!(entries(&dir.path().join("shop")), ["ibdata1"]);
}
