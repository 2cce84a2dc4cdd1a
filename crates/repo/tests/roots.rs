//! Finding the ROOTs below a place.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeSet;

use xb_repo::root::Root;
use xb_repo::roots::{FoundRoots, roots};
use xb_uploader::{Location, Place, Policy, StoreSettings};

fn place(folder: &std::path::Path) -> Root {
    let path = folder.to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: Place::Local, path };
    Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap()
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
    let found = roots(&place(folder.path()), 3).await.unwrap();
    assert_eq!(paths(&found), ["", "a", "b/c/ä \"q\" 50%"]);
    assert_eq!(found.roots[0].others, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert!(found.roots[1].has_archives() && !found.roots[0].has_archives());
    assert!(found.unread.is_empty());
    let found = roots(&place(folder.path()), 4).await.unwrap();
    assert_eq!(paths(&found), ["", "a", "b/c/d/e", "b/c/ä \"q\" 50%"]);
    let found = roots(&place(&folder.path().join("b")), 1).await.unwrap();
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
    let found = roots(&root, 3).await.unwrap();
    let host = format!("hosts/{id}");
    assert_eq!(paths(&found), [id, host.as_str(), "prod", "prod/shop"]);
    assert!(found.too_deep.is_empty(), "{:?}", found.too_deep);
    assert_eq!(roots(&root, 1).await.unwrap().too_deep, ["hosts"]);
    // A stray catalogue makes all of them a part of one ROOT, and hides none.
    make(".xb-catalog/@pins/n");
    let found = roots(&root, 3).await.unwrap();
    assert_eq!(paths(&found), ["", id, host.as_str(), "prod", "prod/shop"]);
}
