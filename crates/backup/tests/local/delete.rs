//! A delete removes the named backup, and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use xb_backup::{BackupError, Candidate, Deleted, Keep, plan_prune};
use xb_repo::error::RepoError;
use xb_repo::list::{Listing, State};
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

use crate::common::{Store, block_on, positioned, session, stream, stream_reader, tree};

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::Classic];
const N: &str = "00000000000000000000";

fn name(text: &str) -> BackupName {
    BackupName::new(text).unwrap()
}

/// The ROOT at this directory.
fn root_at(folder: &Path) -> Root {
    let path = folder.to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    Root::open(&location, &StoreSettings::default(), Policy::default(), false).unwrap()
}

fn below(store: &Store, path: &str) -> PathBuf {
    store.folder.path().join("root").join(path)
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "precious").unwrap();
}

fn all(store: &Store) -> BTreeMap<String, Vec<u8>> {
    tree(store.folder.path())
}

/// Every way to delete `of` is refused for the same reason, and nothing is removed.
fn refused(store: &Store, root: &Root, of: &str) -> BackupError {
    let (before, of) = (all(store), name(of));
    let shown = block_on(xb_backup::doomed(root, &of, true)).map(drop);
    let careful = block_on(xb_backup::delete_unless_needed(&session(root), &of)).map(drop);
    let forced = block_on(xb_backup::delete(root, &of)).map(drop).unwrap_err();
    for other in [shown.unwrap_err(), careful.unwrap_err()] {
        assert_eq!(other.to_string(), forced.to_string());
    }
    assert_eq!(all(store), before, "{forced}");
    forced
}

fn line(root: &Root, of: &str) -> Listing {
    let lines = block_on(xb_repo::list::list(root)).unwrap();
    lines.into_iter().find(|line| line.name == of).expect("a line")
}

/// Creates what the stock tool leaves: objects without a manifest.
fn make_stock(store: &Store, of: &str) {
    store.put(of, Layout::Classic, 500, stream_reader()).unwrap();
    fs::remove_file(below(store, &format!(".xb-catalog/{of}"))).unwrap();
}

#[test]
fn a_folder_of_backups_is_listed_as_one_and_cannot_be_deleted() {
    for layout in LAYOUTS {
        let store = Store::new();
        for of in ["mon", "tue", "wed"] {
            store.put(of, layout, 500, stream_reader()).unwrap();
        }
        block_on(xb_repo::pin::pin(&store.root, &name("tue"), None)).unwrap();
        // One path component too few, and two.
        let above = root_at(store.folder.path());
        let far_above = root_at(store.folder.path().parent().unwrap());
        let folder = store.folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let far = BackupName::new(&folder);
        let check = || {
            let error = refused(&store, &above, "root");
            assert!(matches!(error, BackupError::Repo(RepoError::Folder { .. })), "{error}");
            assert!(error.to_string().contains("folder of 3 backups: mon, tue, wed"), "{error}");
            if far.is_ok() {
                let error = refused(&store, &far_above, &folder).to_string();
                assert!(error.contains("3 backups: root/mon, root/tue, root/wed"), "{error}");
            }
            let line = line(&above, "root");
            assert_eq!((line.state, line.backups, line.layout), (State::Folder, Some(3), None));
        };
        check();
        // Without the catalogue, the runs and the stock tool's files show the same.
        fs::remove_dir_all(below(&store, ".xb-catalog")).unwrap();
        check();
    }
}

#[test]
fn a_folder_of_stock_backups_is_not_read_as_one_either() {
    let store = Store::new();
    make_stock(&store, "mon");
    make_stock(&store, "tue");
    write(&below(&store, "tue.md5"));
    let above = Store { root: root_at(store.folder.path()), ..Store::new() };
    assert!(matches!(
        refused(&store, &above.root, "root"),
        BackupError::Repo(RepoError::Folder { .. })
    ));
    let error = above.get("root").unwrap_err();
    assert!(matches!(error, BackupError::Repo(RepoError::Folder { .. })), "{error}");
    let put = above.put("root", Layout::Packed, 500, stream_reader()).unwrap_err();
    assert!(matches!(put, BackupError::Repo(RepoError::Folder { .. })), "{put}");
    // Each of them is a backup.
    assert_eq!(store.state("mon"), Some(State::StockUnproven));
    block_on(xb_backup::delete(&store.root, &name("mon"))).unwrap();
    assert_eq!(store.state("mon"), None);
    assert!(!store.get("tue").unwrap().is_empty());
}

#[test]
fn objects_inside_a_backup_are_no_backup() {
    let store = Store::new();
    let run = store.put("packed", Layout::Packed, 500, stream_reader()).unwrap().manifest.run;
    store.put("classic", Layout::Classic, 500, stream_reader()).unwrap();
    // One path component too many.
    let error = refused(&store, &root_at(&below(&store, "packed")), &run).to_string();
    assert!(error.contains("not part of a backup") && error.contains("000000000"), "{error}");
    let inside = root_at(&below(&store, "classic"));
    let error = refused(&store, &inside, "shop");
    assert!(matches!(error, BackupError::Repo(RepoError::Unrecognised { .. })), "{error}");
    assert!(error.to_string().contains(&format!("orders.ibd.{N}")), "{error}");
    assert!(line(&inside, "shop").problem.is_some());
    assert_eq!(line(&root_at(&below(&store, "packed")), &run).state, State::Foreign);
}

#[test]
fn objects_of_other_programs_refuse_the_delete_and_are_named() {
    type Variant = (&'static str, fn(&Store));
    let variants: [Variant; 4] = [
        ("packed", |store| drop(store.put("n", Layout::Packed, 500, stream_reader()).unwrap())),
        ("classic", |store| drop(store.put("n", Layout::Classic, 500, stream_reader()).unwrap())),
        ("stock", |store| make_stock(store, "n")),
        ("damaged", |store| {
            store.put("n", Layout::Classic, 500, stream_reader()).unwrap();
            fs::write(below(store, ".xb-catalog/n"), "{").unwrap();
        }),
    ];
    for (what, make) in variants {
        let store = Store::new();
        make(&store);
        let run = fs::read_dir(below(&store, "n")).unwrap().next().unwrap().unwrap().file_name();
        for key in
            ["notes.txt", "db/t.ibd", "orders.0000000000000000001", &format!("{}/x", run.display())]
        {
            let path = below(&store, &format!("n/{key}"));
            if path.parent().unwrap().is_file() {
                continue;
            }
            write(&path);
            let before = all(&store);
            let error = block_on(xb_backup::delete(&store.root, &name("n"))).unwrap_err();
            assert!(
                matches!(error, BackupError::Repo(RepoError::Foreign { .. })),
                "{what}: {error}"
            );
            assert!(error.to_string().contains(key), "{what}: {error}");
            assert!(block_on(xb_backup::doomed(&store.root, &name("n"), false)).is_err());
            assert_eq!(all(&store), before);
            fs::remove_file(&path).unwrap();
        }
        block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
        assert_eq!(store.files_but_claims(), Vec::<PathBuf>::new(), "{what}");
    }
}

#[test]
fn a_data_directory_is_no_backup() {
    let store = Store::new();
    for file in ["ibdata1", "ib_logfile0", "shop/orders.ibd", "shop/orders.frm", "mysql/user.MYD"] {
        write(&below(&store, &format!("data/{file}")));
    }
    let error = refused(&store, &store.root, "data").to_string();
    assert!(error.contains("5 objects that are not part of a backup: ib_logfile0"), "{error}");
    assert_eq!(line(&store.root, "data").state, State::Foreign);
    let inside = root_at(&below(&store, "data"));
    assert!(matches!(
        refused(&store, &inside, "shop"),
        BackupError::Repo(RepoError::Foreign { .. })
    ));
    for layout in LAYOUTS {
        assert!(store.put("data", layout, 500, stream_reader()).is_err());
    }
    assert!(matches!(store.get("data"), Err(BackupError::Repo(RepoError::NotThere { .. }))));
}

/// A sound manifest names the backup's objects, whatever the directories below contain.
#[test]
fn a_backup_above_others_goes_without_them() {
    for layout in LAYOUTS {
        for nested in LAYOUTS {
            let store = Store::new();
            store.put("full", layout, 500, stream_reader()).unwrap();
            let inner = Store { root: root_at(&below(&store, "full")), ..Store::new() };
            inner.put("inc", nested, 500, stream_reader()).unwrap();
            let kept = inner.get("inc").unwrap();
            let outcome = block_on(xb_backup::delete(&store.root, &name("full")));
            match (layout, nested) {
                // Both have objects in the same directories, so their objects cannot be told apart.
                (Layout::Classic, Layout::Classic) => {
                    assert!(
                        matches!(outcome, Err(BackupError::Repo(RepoError::Folder { .. }))),
                        "{outcome:?}"
                    );
                    assert!(below(&store, ".xb-catalog/full").exists());
                }
                _ => assert_eq!(store.state("full"), outcome.map(|_| Some(State::Folder)).unwrap()),
            }
            assert_eq!(inner.get("inc").unwrap(), kept);
        }
    }
}

#[test]
fn a_pin_outlasts_its_manifest() {
    for layout in LAYOUTS {
        let store = Store::new();
        store.put("n", layout, 500, stream_reader()).unwrap();
        let whole = store.get("n").unwrap();
        block_on(xb_repo::pin::pin(&store.root, &name("n"), None)).unwrap();
        let manifest = fs::read(below(&store, ".xb-catalog/n")).unwrap();
        fs::remove_file(below(&store, ".xb-catalog/n")).unwrap();
        assert!(matches!(refused(&store, &store.root, "n"), BackupError::Pinned { .. }));
        // Nor is it removed as the remains of a dead run.
        age_all(&store);
        let found = block_on(xb_backup::find_orphaned(&store.root, DAY)).unwrap();
        assert!(found.dead.is_empty() && found.unclear.len() == 1, "{found:?}");
        fs::write(below(&store, ".xb-catalog/n"), manifest).unwrap();
        assert_eq!(store.get("n").unwrap(), whole);
        fs::remove_file(below(&store, ".xb-catalog/n")).unwrap();
        assert!(block_on(xb_repo::pin::unpin(&store.root, &name("n"))).unwrap().is_some());
        assert!(matches!(
            block_on(xb_repo::pin::unpin(&store.root, &name("n"))),
            Err(RepoError::NotThere { .. })
        ));
        let found = block_on(xb_backup::find_orphaned(&store.root, DAY)).unwrap();
        assert_eq!(found.dead.len(), usize::from(layout == Layout::Packed));
    }
}

/// The stock list of checksums belongs to classic backups only.
#[test]
fn a_packed_backup_leaves_the_file_beside_it() {
    let store = Store::new();
    store.put("n", Layout::Packed, 500, stream_reader()).unwrap();
    write(&below(&store, "n.md5"));
    block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
    assert_eq!(store.files(), [below(&store, "n.md5")]);
}

#[test]
fn only_shown_objects_are_removed() {
    for layout in LAYOUTS {
        let store = Store::new();
        store.put("n", layout, 500, stream_reader()).unwrap();
        let shown = block_on(xb_backup::doomed(&store.root, &name("n"), true)).unwrap();
        assert_eq!(store.files_but_claims().len(), shown.objects.len() + 1);
        // Replaced after it was shown.
        block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
        store.put("n", layout, 500, stream_reader()).unwrap();
        let before = all(&store);
        let outcome = block_on(xb_backup::delete_shown(&session(&store.root), &shown));
        assert!(
            matches!(outcome, Err(BackupError::Repo(RepoError::Changed { .. }))),
            "{outcome:?}"
        );
        assert_eq!(all(&store), before);
        let shown = block_on(xb_backup::doomed(&store.root, &name("n"), true)).unwrap();
        let objects = shown.objects.len() as u64;
        let deleted = block_on(xb_backup::delete_shown(&session(&store.root), &shown)).unwrap();
        assert_eq!(deleted, Deleted { objects, left: 0 });
        assert_eq!(store.files_but_claims(), Vec::<PathBuf>::new());
    }
    // Pinned after it was shown.
    let store = Store::new();
    store.put("n", Layout::Packed, 500, stream_reader()).unwrap();
    let shown = block_on(xb_backup::doomed(&store.root, &name("n"), true)).unwrap();
    block_on(xb_repo::pin::pin(&store.root, &name("n"), None)).unwrap();
    let outcome = block_on(xb_backup::delete_shown(&session(&store.root), &shown));
    assert!(matches!(outcome, Err(BackupError::Pinned { .. })), "{outcome:?}");
    assert_eq!(store.get("n").unwrap(), stream());
}

/// A cache or a replica that always answers with what was there before: the increments are based on what is there now.
#[test]
fn an_old_manifest_of_a_name_that_was_used_again_removes_no_base() {
    for layout in LAYOUTS {
        let store = Store::new();
        let put = |of: &str, from, to| {
            store.put(of, layout, 500, std::io::Cursor::new(positioned(from, to))).unwrap();
        };
        put("monday", 0, 100);
        let manifest = below(&store, ".xb-catalog/monday");
        let old = fs::read(&manifest).unwrap();
        block_on(xb_backup::delete(&store.root, &name("monday"))).unwrap();
        put("monday", 0, 200);
        put("tuesday", 200, 300);
        let present = fs::read(&manifest).unwrap();
        for with_increment in [true, false] {
            fs::write(&manifest, &old).unwrap();
            let before = all(&store);
            let shown = block_on(xb_backup::doomed(&store.root, &name("monday"), true)).map(drop);
            let removed =
                block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("monday")));
            let lines = block_on(xb_repo::list::list(&store.root)).unwrap();
            let keep = Keep { last: Some(0), ..Keep::default() };
            let mut plan = plan_prune(&Candidate::all(&lines), &keep, Timestamp::now());
            plan.iter_mut().for_each(|verdict| verdict.kept.clear());
            plan.retain(|verdict| verdict.name == "monday");
            let pruned = block_on(xb_backup::prune(&session(&store.root), &plan, |_, _| ()));
            assert_eq!(pruned.unwrap(), Vec::<String>::new());
            for refused in [shown.unwrap_err(), removed.map(drop).unwrap_err()] {
                let by = if with_increment { "tuesday is based on" } else { "of its objects none" };
                let said = refused.to_string();
                assert!(said.contains(by), "{layout:?}: {said}");
            }
            assert_eq!(all(&store), before, "{layout:?}");
            fs::write(&manifest, &present).unwrap();
            if with_increment {
                block_on(xb_backup::delete(&store.root, &name("tuesday"))).unwrap();
            }
        }
        block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("monday"))).unwrap();
        assert_eq!(store.files_but_claims(), Vec::<PathBuf>::new());
    }
}

#[test]
fn prune_keeps_what_other_objects_lie_in_and_removes_the_rest() {
    let store = Store::new();
    for of in ["b0", "b1", "b2"] {
        store.put(of, Layout::Packed, 500, stream_reader()).unwrap();
    }
    write(&below(&store, "b1/notes.txt"));
    let lines = block_on(xb_repo::list::list(&store.root)).unwrap();
    let candidates = Candidate::all(&lines);
    let plan =
        plan_prune(&candidates, &Keep { last: Some(1), ..Keep::default() }, Timestamp::now());
    let mut done = Vec::new();
    let gone = block_on(xb_backup::prune(&session(&store.root), &plan, |name, step| {
        let kept = match step {
            xb_backup::PruneStep::Kept(why) => Some(why.to_string()),
            _ => None,
        };
        done.push((name.to_owned(), kept));
    }));
    assert_eq!(gone.unwrap(), ["b0"]);
    let kept = done.iter().find(|(name, _)| name == "b1").unwrap().1.as_deref().unwrap();
    assert!(kept.contains("notes.txt"), "{kept}");
    assert_eq!(store.get("b1").unwrap(), stream());
}

const DAY: Duration = Duration::from_secs(86_400);

fn age_all(store: &Store) {
    for path in store.files() {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - 2 * DAY).unwrap();
    }
}

/// A dead classic run has left objects and a claim.
#[test]
fn gc_removes_the_objects_of_the_dead_run_only() {
    for beside in ["notes.txt", "work/invoice#7", &format!("tue/xtrabackup_info.{N}")] {
        let store = Store::new();
        make_stock(&store, "n");
        write(&below(&store, ".xb-catalog/@claims/n/000001"));
        write(&below(&store, &format!("n/{beside}")));
        age_all(&store);
        let found = block_on(xb_backup::find_orphaned(&store.root, DAY)).unwrap();
        assert_eq!((found.dead.len(), found.uploads), (1, 0), "{beside}");
        for dead in &found.dead {
            assert!(block_on(xb_backup::remove(&store.root, dead)).unwrap());
        }
        block_on(xb_backup::abort_uploads(&store.root, &found)).unwrap();
        assert!(below(&store, &format!("n/{beside}")).exists());
        let table = below(&store, &format!("n/shop/orders.ibd.{N}"));
        assert_eq!(table.exists(), beside.starts_with("tue"), "{beside}");
    }
}

/// A dead classic run is taken over; files of other programs in the same place are kept.
#[test]
fn a_take_over_removes_objects_of_the_dead_run_only() {
    let store = Store::new();
    make_stock(&store, "n");
    write(&below(&store, ".xb-catalog/@claims/n/000001"));
    write(&below(&store, "n/notes.txt"));
    age_all(&store);
    let _ = store.put("n", Layout::Classic, 500, stream_reader());
    assert!(below(&store, "n/notes.txt").exists());
}

#[test]
fn a_copy_goes_nowhere_that_something_else_is() {
    for layout in LAYOUTS {
        let (store, to) = (Store::new(), Store::new());
        store.put("n", layout, 500, stream_reader()).unwrap();
        let copy = || {
            let request = xb_backup::CopyRequest {
                verify_bases: None,
                name: name("n"),
                to: name("n"),
                options: xb_backup::CopyOptions { unverified: true, alone: false },
                accept: xb_backup::Accept::default(),
                keys: xb_backup::Keys::default(),
                within_store: None,
                lock: None,
            };
            block_on(xb_backup::copy(&session(&store.root), &to.root, request))
        };
        for taken in [format!("xtrabackup_info.{N}"), "notes.txt".into(), ".xb-catalog/tue".into()]
        {
            let path = below(&to, &format!("n/{taken}"));
            write(&path);
            let error = copy().unwrap_err();
            assert_eq!(to.files(), std::slice::from_ref(&path), "{error}");
            fs::remove_file(path).unwrap();
        }
        copy().unwrap();
        assert_eq!(to.get("n").unwrap().len(), stream().len());
    }
}
