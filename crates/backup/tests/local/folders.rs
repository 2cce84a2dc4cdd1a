//! Entries that only a directory as a store can hold: symbolic links, and names that no key can have.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xb_backup::BackupError;
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;

use crate::common::{Store, block_on, stream, stream_reader};

const DAY: Duration = Duration::from_secs(86_400);

fn below(store: &Store, path: impl AsRef<Path>) -> PathBuf {
    store.folder.path().join("root").join(path)
}

fn name(name: &str) -> BackupName {
    BackupName::new(name).unwrap()
}

/// Makes every file of the store three days old. Does not follow links.
fn age_all(store: &Store) {
    let mut folders = vec![below(store, "")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let file = std::fs::File::options().write(true).open(entry.path()).unwrap();
                file.set_modified(SystemTime::now() - 3 * DAY).unwrap();
            }
        }
    }
}

fn is_linked<T>(outcome: Result<T, BackupError>) -> bool {
    matches!(outcome, Err(BackupError::Repo(RepoError::Linked { .. })))
}

/// Many scripts keep a link to the newest backup. Its objects belong to the backup that it leads to.
#[test]
fn a_link_to_a_backup_is_never_taken_for_a_dead_run() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        store.put("monday", layout, 500, stream_reader()).unwrap();
        symlink("monday", below(&store, "current")).unwrap();
        age_all(&store);
        let found = block_on(xb_backup::find_orphaned(&store.root, DAY)).unwrap();
        assert!(found.dead.is_empty(), "{:?}", found.dead);
        assert!(found.unclear.iter().any(|(name, why)| name == "current" && why.contains("link")));
        assert!(is_linked(block_on(xb_backup::delete(&store.root, &name("current")))));
        assert!(is_linked(store.put("current", layout, 500, stream_reader())));
        let lines = block_on(xb_repo::list::list(&store.root)).unwrap();
        let line = lines.iter().find(|line| line.name == "current").unwrap();
        assert!(line.problem.as_ref().unwrap().contains("symbolic link current"), "{line:?}");
        assert_eq!(store.state("monday"), Some(State::Complete));
        assert_eq!(store.get("monday").unwrap().len(), stream().len());
        block_on(xb_backup::delete(&store.root, &name("monday"))).unwrap();
    }
}

/// A backup may have been moved to another disk, with a link in its place.
#[test]
fn a_backup_behind_a_link_is_read_but_not_removed() {
    let store = Store::new();
    store.put("monday", Layout::Packed, 500, stream_reader()).unwrap();
    let moved = store.folder.path().join("other-disk");
    std::fs::rename(below(&store, "monday"), &moved).unwrap();
    symlink(&moved, below(&store, "monday")).unwrap();
    assert_eq!(store.state("monday"), Some(State::Complete));
    assert_eq!(store.get("monday").unwrap(), stream());
    assert!(is_linked(block_on(xb_backup::delete(&store.root, &name("monday")))));
    assert_eq!(store.get("monday").unwrap(), stream());
}

/// `delete` of a stock backup once removed what a link in it led to.
#[test]
fn nothing_is_removed_through_a_link_inside_a_backup() {
    let store = Store::new();
    store.put("stock", Layout::Classic, 500, stream_reader()).unwrap();
    std::fs::remove_dir_all(below(&store, ".xb-catalog")).unwrap();
    let outside = store.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let precious = outside.join("t.ibd.00000000000000000000");
    std::fs::write(&precious, b"precious").unwrap();
    symlink(&outside, below(&store, "stock/link")).unwrap();
    assert!(is_linked(block_on(xb_backup::delete(&store.root, &name("stock")))));
    // The store itself refuses, whichever command asks.
    let key = "stock/link/t.ibd.00000000000000000000";
    for outcome in [
        block_on(store.root.store().delete(key)),
        block_on(store.root.store().delete_all(vec![key.to_owned()])),
        block_on(store.root.store().put(key, bytes::Bytes::from_static(b"x").into())),
        block_on(store.root.store().create("stock/link/new", bytes::Bytes::from_static(b"x"))),
    ] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("stock/link is a symbolic link"), "{error}");
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    assert!(!outside.join("new").exists());
}

/// A link that leads in a circle, or a name that is no text, once stopped `list`, `prune` and `gc`
/// of the whole directory.
#[test]
fn links_in_a_circle_and_unusable_names_stop_no_command() {
    let store = Store::new();
    store.put("monday", Layout::Packed, 500, stream_reader()).unwrap();
    for circle in ["self", "monday/up", "foreign"] {
        let at = below(&store, circle);
        match circle {
            "self" => symlink("self", at).unwrap(),
            "foreign" => {
                std::fs::create_dir(&at).unwrap();
                std::fs::write(at.join("file"), b"x").unwrap();
                symlink("../foreign", at.join("loop")).unwrap();
            }
            _ => symlink("..", at).unwrap(),
        }
    }
    for odd in [&b"\xff\xfe"[..], b"a\nb", b"x\x1b[2J"] {
        let folder = below(&store, OsStr::from_bytes(odd));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), b"x").unwrap();
    }
    assert_eq!(store.state("monday"), Some(State::Complete));
    assert_eq!(store.state("foreign"), Some(State::Foreign));
    block_on(xb_backup::find_orphaned(&store.root, DAY)).unwrap();
    assert_eq!(store.get("monday").unwrap(), stream());
    // Such a name inside a backup is an object of another program.
    std::fs::remove_file(below(&store, "monday/up")).unwrap();
    let odd = below(
        &store,
        Path::new("monday").join(OsStr::from_bytes(b"\xff.ibd.00000000000000000000")),
    );
    std::fs::write(&odd, b"x").unwrap();
    let refused = block_on(xb_backup::delete(&store.root, &name("monday")));
    assert!(matches!(refused, Err(BackupError::Repo(RepoError::Foreign { .. }))), "{refused:?}");
    assert_eq!(store.get("monday").unwrap(), stream());
    std::fs::remove_file(&odd).unwrap();
    block_on(xb_backup::delete(&store.root, &name("monday"))).unwrap();
}

/// A disk that is unmounted beneath a long run leaves its mount point.
#[test]
fn nothing_is_written_or_read_where_the_opened_folder_is_not() {
    let store = Store::new();
    store.put("monday", Layout::Packed, 500, stream_reader()).unwrap();
    let (root, away) = (below(&store, ""), store.folder.path().join("away"));
    let refused = |what: &str| {
        let error = match what {
            "put" => store.put("tuesday", Layout::Packed, 500, stream_reader()).map(drop),
            "delete" => block_on(xb_backup::delete(&store.root, &name("monday"))).map(drop),
            _ => block_on(xb_repo::list::list(&store.root)).map(drop).map_err(BackupError::from),
        };
        let error = error.unwrap_err().to_string();
        assert!(error.contains("is its disk unmounted?"), "{what}: {error}");
    };
    std::fs::rename(&root, &away).unwrap();
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&root).unwrap();
        }
        for what in ["put", "delete", "list"] {
            refused(what);
        }
        assert!(!root.exists() || std::fs::read_dir(&root).unwrap().next().is_none());
    }
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    store.put("tuesday", Layout::Packed, 500, stream_reader()).unwrap();
}
