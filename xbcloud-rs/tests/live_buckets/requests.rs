//! How many requests commands need: listings and reads cost money, and time with a distant store.

use std::collections::BTreeMap;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};

use crate::support::shop::Shop;

/// Requests by kind: `LIST`, and otherwise the method with what it is about.
type Counts = BTreeMap<String, usize>;

/// A full backup n0, increments i1 and i2 of it, and a full backup n3.
fn shop() -> Shop {
    let shop = Shop::new();
    for (name, lsn, base) in [
        ("n0", (0, 100), None),
        ("i1", (100, 200), Some("n0")),
        ("i2", (200, 300), Some("i1")),
        ("n3", (0, 400), None),
    ] {
        let _ = shop.backup(name, lsn, base).run().expect(0);
    }
    shop
}

const NAMES: [&str; 4] = ["n0", "i1", "i2", "n3"];

/// Runs a command, and counts its requests.
fn counted(shop: &Shop, args: &[&str], name: &str) -> (Ran, Counts) {
    requests(shop, |shop| shop.xbcloud(args, name))
}

fn requests(shop: &Shop, command: impl FnOnce(&Shop) -> Cmd) -> (Ran, Counts) {
    let before = shop.proxy.seen().len();
    let cache = shop.scratch.join("cache");
    let ran = command(shop).env("XDG_CACHE_HOME", cache).run().expect(0);
    let mut counts = Counts::new();
    for seen in &shop.proxy.seen()[before..] {
        let path = seen.path.split('?').next().unwrap();
        let manifest = path.rsplit_once("/.xb-catalog/").map(|(_, of)| of);
        let kind = match manifest {
            _ if seen.path.contains("list-type=2") => "LIST".to_owned(),
            Some(of) if NAMES.contains(&of) => format!("{} {of}", seen.method),
            _ => format!("{} other", seen.method),
        };
        *counts.entry(kind).or_default() += 1;
    }
    (ran, counts)
}

fn of(counts: &Counts, kind: &str) -> usize {
    counts.get(kind).copied().unwrap_or_default()
}

#[test]
fn a_listing_reads_what_has_changed() {
    let shop = shop();
    let (_, cold) = counted(&shop, &["list"], "");
    assert_eq!(of(&cold, "LIST"), 2, "{cold:?}");
    for name in NAMES {
        assert_eq!(of(&cold, &format!("GET {name}")), 1, "{cold:?}");
    }
    for command in [&["list"][..], &["monitor", "--max-age=1h"]] {
        let (_, warm) = counted(&shop, command, "");
        assert_eq!(warm, Counts::from([("LIST".to_owned(), 2)]), "{command:?}");
    }
    let _ = shop.backup("n3x", (0, 500), None).run().expect(0);
    let (_, warm) = counted(&shop, &["list"], "");
    assert_eq!((of(&warm, "LIST"), warm.values().sum::<usize>()), (2, 4), "{warm:?}");
    // Of the one that is shown, everything is read anew.
    let (_, show) = counted(&shop, &["show"], "/latest");
    assert_eq!(of(&show, "LIST"), 2, "{show:?}");
    assert!(NAMES.iter().all(|name| of(&show, &format!("GET {name}")) == 0), "{show:?}");
}

#[test]
fn gc_lists_all_backups_together() {
    let shop = shop();
    let (_, gc) = counted(&shop, &["gc"], "");
    assert_eq!(of(&gc, "LIST"), 3, "{gc:?}");
    for name in NAMES {
        assert_eq!(of(&gc, &format!("GET {name}")), 1, "{gc:?}");
    }
}

#[test]
fn a_removal_reads_the_manifests_of_others_once() {
    let shop = shop();
    let (_, delete) = counted(&shop, &["delete", "--yes"], "/i2");
    for name in ["n0", "i1", "n3"] {
        assert_eq!(of(&delete, &format!("GET {name}")), 1, "{delete:?}");
    }
    let (_, prune) = counted(&shop, &["prune", "--yes", "--keep-last=1"], "");
    assert_eq!(of(&prune, "GET n3"), 1, "{prune:?}");
    let left = shop.bucket.list("shop/.xb-catalog/");
    assert!(left.iter().all(|(key, _)| !key.ends_with("/n0")), "{left:?}");
}

#[test]
fn verify_reads_bases_once_and_what_it_verifies_again_before_it_stores_the_result() {
    let shop = shop();
    let (_, verify) = counted(&shop, &["verify", "--level=manifest"], "/i2");
    for (name, reads) in [("n0", 1), ("i1", 1), ("i2", 2)] {
        assert_eq!(of(&verify, &format!("GET {name}")), reads, "{verify:?}");
    }
    let target = format!("--target-dir={}", shop.scratch.join("restored").display());
    let (_, restore) = counted(&shop, &["restore", &target], "/n3");
    assert!(of(&restore, "GET n3") <= 2, "{restore:?}");
}

/// With the bases that it takes along: each manifest is read once where it is.
#[test]
fn a_copy_reads_each_manifest_of_its_chain_once() {
    let shop = shop();
    let to = format!("file://{}/", shop.scratch.join("copies").display());
    std::fs::create_dir(shop.scratch.join("copies")).unwrap();
    let (_, copied) =
        requests(&shop, |shop| shop.xbcloud(&["copy", "--unverified"], "/i2").arg(&to));
    for name in ["n0", "i1", "i2"] {
        assert_eq!(of(&copied, &format!("GET {name}")), 1, "{copied:?}");
    }
}

/// It compares the sizes of earlier backups, of which it knows the manifests, and looks whether the newest one of this
/// host is still there.
#[test]
fn a_run_reads_earlier_manifests_only_to_prune() {
    let shop = shop();
    let stream = shop.scratch.join("stream");
    std::fs::copy(shop.scratch.join("n3"), &stream).unwrap();
    let producer = ["--", "sh", "-c", &format!("cat {}", stream.display()), "mariadb-backup"];
    let state = format!("--state-dir={}", shop.scratch.join("state").display());
    let run = |name: &str, options: &[&str]| {
        let args = [&["run", "--chunk-size=64K", &state], options].concat();
        requests(&shop, |shop| shop.xbcloud(&args, name).args(producer)).1
    };
    let _ = counted(&shop, &["list"], "");
    let alone = run("/n4", &[]);
    let pruned = run("/n5", &["--keep-last=9"]);
    for name in NAMES {
        let get = format!("GET {name}");
        let is_newest = usize::from(name == "n3");
        assert_eq!((of(&alone, &get), of(&pruned, &get)), (is_newest, 1), "{alone:?} {pruned:?}");
    }
}

/// `show` judges a backup as `list` does.
#[test]
fn show_and_list_agree_on_what_can_be_restored() {
    let shop = shop();
    let json = |args: &[&str], name: &str| -> Value {
        serde_json::from_slice(&counted(&shop, args, name).0.stdout).unwrap()
    };
    let same = |name: &str, restorable: bool| {
        let shown = json(&["show", "--json"], &format!("/{name}"));
        let listed = json(&["list", "--json"], "");
        let listed = listed.as_array().unwrap().iter().find(|line| line["name"] == name).unwrap();
        for field in ["restorable", "broken"] {
            assert_eq!(shown[field], listed[field], "{name} {field}");
        }
        assert_eq!(shown["restorable"], restorable, "{shown}");
    };
    same("i2", true);
    shop.bucket.delete("shop/.xb-catalog/n0");
    same("i2", false);
    same("n3", true);
}
