//! Finding the ROOTs below a place.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use xb_repo::root::Root;
use xb_repo::roots::{FoundRoots, MAX_SILENT, SearchLimits, roots};
use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

fn place(folder: &std::path::Path) -> Root {
    let path = folder.to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap()
}

fn down_to(depth: u32) -> SearchLimits {
    SearchLimits { depth, folders: 100, within: Duration::from_secs(600) }
}

fn paths(found: &FoundRoots) -> Vec<&str> {
    found.roots.iter().map(|root| root.path.as_str()).collect()
}

#[tokio::test]
async fn roots_are_found_at_every_level_and_within_others() {
    let folder = tempfile::tempdir().unwrap();
    let make = |path: &str| {
        let file = folder.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"x").unwrap();
    };
    make(".xb-catalog/mon");
    make("mon/00112233445566778899aabbccddeeff/000000000");
    make("a/.xb-catalog/tue");
    make("a/tue/00112233445566778899aabbccddeeff/000000000");
    make("a/.xb-binlog/db1/x/head");
    make("b/c/ä \"q\" 50%/.xb-catalog/n");
    make("b/logs/x");
    make("b/c/d/e/.xb-catalog/n");
    // Within a backup that has a manifest, nothing is looked for.
    make("mon/.hidden/.xb-catalog/n");
    let found = roots(&place(folder.path()), down_to(3)).await.unwrap();
    assert_eq!(paths(&found), ["", "a", "b/c/ä \"q\" 50%"]);
    assert_eq!(found.roots[0].others, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert!(found.roots[1].has_archives() && !found.roots[0].has_archives());
    assert!(found.unread.is_empty());
    let found = roots(&place(folder.path()), down_to(4)).await.unwrap();
    assert_eq!(paths(&found), ["", "a", "b/c/d/e", "b/c/ä \"q\" 50%"]);
    let found = roots(&place(&folder.path().join("b")), down_to(1)).await.unwrap();
    assert_eq!((paths(&found), found.searched), (vec![], 3));
    assert_eq!(found.too_deep, ["c"], "it says where it did not look");
}

/// A folder with the form of a run's id is one of a run only where a run can be, and a backup hides no repository of its name.
#[tokio::test]
async fn names_hide_no_root() {
    let folder = tempfile::tempdir().unwrap();
    let make = |path: &str| {
        let file = folder.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"x").unwrap();
    };
    let (id, run) = ("0123456789abcdef0123456789abcdef", "00112233445566778899aabbccddeeff");
    make(&format!("hosts/{id}/.xb-catalog/n"));
    make(&format!("{id}/.xb-catalog/n"));
    // A run without a manifest.
    make(&format!("{id}/tue/{run}/000000000"));
    // A backup that was stored beside the repository of its name.
    make("prod/.xb-catalog/shop");
    make(&format!("prod/shop/{run}/000000000"));
    make("prod/shop/.xb-catalog/mon");
    make(&format!("prod/shop/mon/{run}/000000000"));
    let root = place(folder.path());
    let found = roots(&root, down_to(3)).await.unwrap();
    let host = format!("hosts/{id}");
    assert_eq!(paths(&found), [id, host.as_str(), "prod", "prod/shop"]);
    assert!(found.too_deep.is_empty(), "{:?}", found.too_deep);
    assert_eq!(roots(&root, down_to(1)).await.unwrap().too_deep, ["hosts"]);
    // A stray catalogue makes all of them a part of one ROOT, and hides none.
    make(".xb-catalog/@pins/n");
    let found = roots(&root, down_to(3)).await.unwrap();
    assert_eq!(paths(&found), ["", id, host.as_str(), "prod", "prod/shop"]);
}

/// In a bucket that an application shares, with a folder for each of its customers, the backups are still found, and the
/// folders that were not searched are named.
#[tokio::test]
async fn the_smallest_families_are_searched_first_and_the_others_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let make = |path: &str| {
        std::fs::create_dir_all(folder.path().join(path)).unwrap();
        std::fs::write(folder.path().join(path).join("x"), b"x").unwrap();
    };
    for number in 0..40 {
        make(&format!("app/customers/{number}"));
        make(&format!("app/mail/{number}/{number}"));
    }
    make("app/customers/7/.xb-catalog");
    make("backups/db1/.xb-catalog");
    make("backups/db2/.xb-catalog");
    let root = place(folder.path());
    let search =
        async |folders: u64| roots(&root, SearchLimits { folders, ..down_to(3) }).await.unwrap();
    // The place, `app` and `backups`, two in each of them, and one of the families of 40.
    let found = search(50).await;
    assert_eq!(paths(&found), ["app/customers/7", "backups/db1", "backups/db2"]);
    assert_eq!((found.too_many, found.searched), (vec![("app/mail".to_owned(), 40)], 47));
    let found = search(10).await;
    assert_eq!(paths(&found), ["backups/db1", "backups/db2"]);
    let names: Vec<&str> = found.too_many.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!((names, found.searched), (vec!["app/customers", "app/mail"], 7));
    // Exactly enough is no reason for a word.
    assert_eq!(search(87).await.too_many, []);
    assert_eq!(search(1).await.too_many, [(String::new(), 2)]);
}

/// Listings are in byte order, and a large family that comes first leaves no room for those behind it.
#[tokio::test]
async fn a_small_family_is_searched_before_a_large_one_that_is_listed_first() {
    let folder = tempfile::tempdir().unwrap();
    let make = |path: &str| {
        std::fs::create_dir_all(folder.path().join(path)).unwrap();
        std::fs::write(folder.path().join(path).join("x"), b"x").unwrap();
    };
    (0..40).for_each(|number| make(&format!("app/{number}")));
    make("backups/db1/.xb-catalog");
    let root = place(folder.path());
    // The place, `app` and `backups`, and 40 more: each family fits alone, both do not.
    let found = roots(&root, SearchLimits { folders: 43, ..down_to(2) }).await.unwrap();
    assert_eq!(paths(&found), ["backups/db1"]);
    assert_eq!((found.too_many, found.searched), (vec![("app".to_owned(), 40)], 4));
}

/// Lets two listings through, those of the place, and blocks the thread of each later one until it is released, as a mount
/// that hangs does.
#[derive(Debug, Default)]
struct Hang {
    /// Number of listings, and whether those that wait are released.
    state: Mutex<(usize, bool)>,
    released: Condvar,
}

impl Hang {
    fn release(&self) {
        self.state.lock().unwrap().1 = true;
        self.released.notify_all();
    }
}

impl Faults for Hang {
    fn next(&self, _: Operation) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        if state.0 > 2 {
            drop(self.released.wait_while(state, |state| !state.1).unwrap());
        }
        None
    }
}

/// The threads of a runtime are not used up by folders that hang, and the others are named.
#[tokio::test]
async fn after_many_folders_that_hang_no_more_are_waited_for() {
    const FOLDERS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..FOLDERS {
        let path = folder.path().join(format!("hosts-{number}"));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("x"), b"x").unwrap();
    }
    let hang = Arc::new(Hang::default());
    let root = place(folder.path()).failing(Arc::clone(&hang) as Arc<dyn Faults>);
    let reach = SearchLimits { folders: 1000, within: Duration::from_millis(500), ..down_to(1) };
    let found = roots(&root, reach).await;
    hang.release();
    let found = found.unwrap();
    // Those that were looked at together with the last one have not answered, either.
    let silent = found.silent.len();
    assert!((MAX_SILENT..MAX_SILENT + 16).contains(&silent), "{silent}");
    assert_eq!(found.untried, BTreeMap::from([(String::new(), (FOLDERS - silent) as u64)]));
    assert_eq!(found.searched, 1 + silent as u64);
}
