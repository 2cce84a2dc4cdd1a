//! Lists, records beside the manifests, and the choice of a backup.

use std::time::Duration;

use xb_backup::{Accept, BackupError, CopyRequest, FileEntry, Keep, ShowRequest, VerifyRequest};
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::resolve::BackupSelector;
use xb_repo::verification::Level;

use super::support::{KEY, before, copy, keys, line, manifest_of, name, plan, rewrite, verify};
use crate::common::{Store, Witness, block_on, put_sealed, request, session, stream_reader};

/// A verification of the backup `n` whose result is stored.
fn recorded() -> VerifyRequest {
    VerifyRequest {
        name: name("n"),
        level: Level::Checksum,
        keys: keys(None),
        accept: Accept::default(),
        record: Some("test 1".into()),
    }
}

/// A verification may take longer than its backup stays.
#[test]
fn a_result_that_comes_late_replaces_none_of_the_next_backup_of_the_name() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    let manifest = manifest_of(&store, "n");
    let earlier = std::fs::read(&manifest).unwrap();
    rewrite(&store, "n", |manifest| manifest["server"] = "other".into());
    let next = std::fs::read(&manifest).unwrap();
    // The pages file contains no pages.
    assert!(!verify(&store, "n", Level::Pages, None).is_ok());
    std::fs::write(&manifest, earlier).unwrap();
    let comes = before(xb_uploader::Operation::List, 0, move || {
        std::fs::write(&manifest, &next).unwrap();
    });
    let session = session(&store.root.failing(std::sync::Arc::new(comes)));
    let report = block_on(xb_backup::verify(&session, &recorded())).unwrap();
    let warned = report.warnings.iter().any(|warning| warning.contains("replaced while it was"));
    assert!(report.is_ok() && warned, "{report:?}");
    assert_eq!(line(&store, "n").verified.unwrap().failed, Some(Level::Pages));
}

#[test]
fn a_backup_that_is_removed_while_it_is_verified_is_not_damaged() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    let root = store.root.clone();
    let goes = before(xb_uploader::Operation::List, 0, move || {
        std::thread::scope(|scope| {
            let going = scope.spawn(|| block_on(xb_backup::delete(&root, &name("n"))));
            going.join().unwrap().unwrap();
        });
    });
    let session = session(&store.root.failing(std::sync::Arc::new(goes)));
    let gone = block_on(xb_backup::verify(&session, &recorded())).unwrap_err();
    assert!(gone.to_string().contains("removed or replaced while it was"), "{gone}");
    assert!(!store.folder.path().join("root/.xb-catalog/@verified/n/without-key").exists());
}

#[test]
fn a_backup_that_is_removed_while_it_is_read_is_not_damaged() {
    // The first object that is read is the manifest; the next one of a classic backup is the list of checksums.
    for (layout, read) in [(Layout::Packed, 1), (Layout::Classic, 2)] {
        let store = Store::new();
        store.put("n", layout, 300, stream_reader()).unwrap();
        let goes = || {
            let root = store.root.clone();
            before(xb_uploader::Operation::Get, read, move || {
                std::thread::scope(|scope| {
                    let going = scope.spawn(|| block_on(xb_backup::delete(&root, &name("n"))));
                    going.join().unwrap().unwrap();
                });
            })
        };
        let session = session(&store.root.failing(std::sync::Arc::new(goes())));
        let request = request("n");
        let read = xb_backup::get(&session, &request, Witness::default());
        let gone = block_on(read).map(|_| ()).unwrap_err();
        assert!(gone.to_string().contains("removed or replaced while it was being read"), "{gone}");
        assert!(matches!(gone, BackupError::Repo(RepoError::NotThere { .. })));
    }
}

#[test]
fn results_are_listed_until_the_name_is_that_of_another_backup() {
    let store = Store::new();
    for (of, layout) in [("packed", Layout::Packed), ("classic", Layout::Classic)] {
        store.put(of, layout, 300, stream_reader()).unwrap();
        assert!(line(&store, of).verified.is_none());
        assert!(verify(&store, of, Level::Decrypt, None).is_ok());
        let proof = line(&store, of).verified.unwrap();
        assert_eq!((proof.level, proof.failed), (Some(Level::Decrypt), None));
        assert!(line(&store, of).verified_age_seconds.unwrap() < 100);
        // A weaker verification does not contradict it.
        assert!(verify(&store, of, Level::List, None).is_ok());
        assert_eq!(line(&store, of).verified.unwrap().level, Some(Level::Decrypt));
        // Damage that it finds does: the pages file contains no pages.
        assert!(!verify(&store, of, Level::Pages, None).is_ok());
        assert_eq!(line(&store, of).verified.unwrap().failed, Some(Level::Pages));

        let catalog = store.folder.path().join("root/.xb-catalog");
        let record = catalog.join(format!("@verified/{of}/without-key"));
        let old = std::fs::read(&record).unwrap();
        block_on(xb_backup::delete(&store.root, &name(of))).unwrap();
        assert!(!record.exists(), "records go with the backup");
        // Another backup of that name; the old record still lies beside it.
        store.put(of, layout, 300, stream_reader()).unwrap();
        std::fs::create_dir_all(record.parent().unwrap()).unwrap();
        std::fs::write(&record, old).unwrap();
        assert!(line(&store, of).verified.is_none());
    }
}

#[test]
fn results_of_a_host_with_the_key_are_authenticated() {
    let store = Store::new();
    put_sealed(&store, "n", &KEY).unwrap();
    assert!(verify(&store, "n", Level::Checksum, None).is_ok());
    let with_key = store.folder.path().join("root/.xb-catalog/@verified/n/with-key");
    assert!(!with_key.exists());
    let to = Store::new();
    let with = |request| CopyRequest { keys: keys(Some(KEY)), ..request };
    // With the key, only a record that this key authenticates counts.
    assert!(matches!(copy(&store, &to, "n", "n", with), Err(BackupError::Unverified { .. })));
    assert!(verify(&store, "n", Level::Decrypt, Some(KEY)).is_ok());
    assert!(with_key.exists());
    // A record forged without a key.
    let good = std::fs::read_to_string(&with_key).unwrap();
    let without = with_key.with_file_name("without-key");
    std::fs::copy(without, &with_key).unwrap();
    assert!(matches!(copy(&store, &to, "n", "n", with), Err(BackupError::Unverified { .. })));
    std::fs::write(&with_key, good).unwrap();
    copy(&store, &to, "n", "n", with).unwrap();
    // The copy keeps the verification of the backup.
    assert_eq!(line(&to, "n").verified.unwrap().level, Some(Level::Decrypt));
    assert!(verify(&to, "n", Level::Decrypt, Some(KEY)).is_ok());
}

#[test]
fn a_pin_holds_until_it_is_taken_away() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    block_on(xb_repo::pin::pin(&store.root, &name("n"), Some("before the migration"))).unwrap();
    assert_eq!(line(&store, "n").pinned.unwrap().reason.as_deref(), Some("before the migration"));
    let deleted = block_on(xb_backup::delete(&store.root, &name("n")));
    assert!(matches!(deleted, Err(BackupError::Pinned { .. })));
    assert!(block_on(xb_repo::pin::unpin(&store.root, &name("n"))).unwrap().is_some());
    assert!(block_on(xb_repo::pin::unpin(&store.root, &name("n"))).unwrap().is_none());
    block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
    let pinned = block_on(xb_repo::pin::pin(&store.root, &name("n"), None));
    assert!(matches!(pinned, Err(RepoError::NotThere { .. })));
}

#[test]
fn files_are_shown_with_their_sizes() {
    let store = Store::new();
    store.put("packed", Layout::Packed, 300, stream_reader()).unwrap();
    store.put("classic", Layout::Classic, 300, stream_reader()).unwrap();
    put_sealed(&store, "sealed", &KEY).unwrap();
    let show = |of: &str, key| {
        let request = ShowRequest {
            name: name(of),
            accept: xb_backup::Accept::default(),
            keys: keys(key),
            memory: 1 << 30,
        };
        block_on(xb_backup::show(&store.root, &request))
    };
    let files = |of, key| -> Vec<FileEntry> { show(of, key).unwrap().content.unwrap() };
    for (of, key) in [("packed", None), ("sealed", Some(KEY))] {
        let found: Vec<_> = files(of, key).into_iter().map(|f| (f.path, f.size.unwrap())).collect();
        assert_eq!(found[..2], [("empty".to_owned(), 0), ("shop/orders.ibd".to_owned(), 1200)]);
    }
    let classic = files("classic", None);
    assert_eq!(classic.len(), 3);
    assert_eq!((classic[1].path.as_str(), classic[1].objects), ("shop/orders.ibd", Some(3)));
    for (of, size, cipher) in [("packed", 300, None), ("sealed", 400, Some("AES-256-GCM"))] {
        let storage = show(of, None).unwrap().storage;
        assert_eq!((storage.object_size, storage.cipher.as_deref()), (Some(size), cipher), "{of}");
        assert_eq!(storage.object_digest.map(|text| text.len()), Some(64));
        assert!(!storage.codecs.is_empty(), "{of}");
    }
    let storage = show("classic", None).unwrap().storage;
    assert_eq!((storage.object_size, storage.cipher, storage.codecs.len()), (None, None, 0));
    assert_eq!(storage.object_digest.map(|text| text.len()), Some(64));
    let sealed = show("sealed", None).unwrap();
    assert!(sealed.content.is_none() && sealed.why_not.is_some());
    assert_eq!(sealed.listing.key_slots.len(), 1);
    assert!(matches!(show("none", None), Err(BackupError::Repo(RepoError::NotThere { .. }))));
}

#[test]
fn one_unreadable_manifest_stops_no_command_on_other_backups() {
    for (damaged, state) in [(true, State::Damaged), (false, State::Unreadable)] {
        let store = Store::new();
        for of in ["a", "b", "c", "d"] {
            store.put(of, Layout::Classic, 300, stream_reader()).unwrap();
        }
        match damaged {
            true => std::fs::write(manifest_of(&store, "b"), b"no manifest").unwrap(),
            false => rewrite(&store, "b", |manifest| manifest["format"] = 2.into()),
        }
        let row = line(&store, "b");
        assert!(row.state == state && row.problem.is_some(), "{row:?}");
        assert_eq!(line(&store, "a").state, State::Complete);
        let latest =
            block_on(xb_repo::resolve::resolve(&store.root, &BackupSelector::Latest, None))
                .unwrap();
        assert_eq!(latest.name.as_str(), "d");
        assert!(latest.doubts.iter().any(|doubt| doubt.starts_with("b is skipped")), "{latest:?}");
        let left = block_on(xb_backup::find_orphaned(&store.root, Duration::from_secs(86_400)));
        assert_eq!(left.unwrap().unclear.len(), 1);
        // A full backup in the stock layout depends on none.
        let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
        let gone = block_on(xb_backup::prune(&session(&store.root), &verdicts, |_, _| ())).unwrap();
        assert_eq!(gone, ["c", "a"]);
        block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("d"))).unwrap();
        let refused = block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("b")));
        assert!(
            matches!(refused, Err(BackupError::Repo(RepoError::Unclear { .. }))),
            "{refused:?}"
        );
    }
}

#[test]
fn a_backup_whose_objects_are_gone_is_not_complete_and_its_name_is_free() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        store.put("n", layout, 300, stream_reader()).unwrap();
        store.put("older", layout, 300, stream_reader()).unwrap();
        let taken = store.put("n", layout, 300, stream_reader());
        assert!(matches!(taken, Err(BackupError::Repo(RepoError::Exists { .. }))), "{taken:?}");
        for file in store.files().into_iter().filter(|path| path.iter().any(|part| part == "n")) {
            if !file.iter().any(|part| part == ".xb-catalog") {
                std::fs::remove_file(file).unwrap();
            }
        }
        let row = line(&store, "n");
        assert_eq!(row.state, State::Missing);
        assert!(row.problem.unwrap().contains("objects missing"));
        // Its folder may be the mount point of a disk.
        let taken = store.put("n", layout, 300, stream_reader());
        assert!(matches!(taken, Err(BackupError::Repo(RepoError::Exists { .. }))), "{taken:?}");
        std::fs::remove_dir_all(store.folder.path().join("root/n")).unwrap();
        assert_eq!(line(&store, "n").state, State::Missing);
        let latest =
            block_on(xb_repo::resolve::resolve(&store.root, &BackupSelector::Latest, None))
                .unwrap();
        assert_eq!(latest.name.as_str(), "older");
        block_on(xb_repo::pin::pin(&store.root, &name("n"), None)).unwrap();
        let pinned = store.put("n", layout, 300, stream_reader());
        assert!(matches!(pinned, Err(BackupError::Pinned { .. })), "{pinned:?}");
        block_on(xb_repo::pin::unpin(&store.root, &name("n"))).unwrap();
        let other = if layout == Layout::Packed { Layout::Classic } else { Layout::Packed };
        store.put("n", other, 300, stream_reader()).unwrap();
        assert_eq!(line(&store, "n").state, State::Complete);
        let files = |of: &str| crate::common::unpacked(&store.get(of).unwrap());
        assert!(files("n") == files("older"));
        // With only some of its objects, it is damaged, and the name is not free.
        let one = store.files().into_iter().find(|path| {
            path.iter().any(|part| part == "n") && !path.iter().any(|part| part == ".xb-catalog")
        });
        std::fs::remove_file(one.unwrap()).unwrap();
        let taken = store.put("n", layout, 300, stream_reader());
        assert!(matches!(taken, Err(BackupError::Repo(RepoError::Exists { .. }))), "{taken:?}");
    }
}

/// Another run of a name may have left objects; they do not make its backup complete.
#[test]
fn a_backup_is_not_there_by_the_objects_of_another_run() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    std::fs::remove_file(manifest_of(&store, "n")).unwrap();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    let stored = block_on(xb_repo::list::describe(&store.root, &name("n"))).unwrap();
    let fault = || block_on(xb_repo::list::fault_of(&store.root, &name("n"), &stored)).unwrap();
    assert_eq!(fault(), None);
    std::fs::remove_dir_all(store.folder.path().join("root/n").join(&stored.manifest.run)).unwrap();
    assert!(fault().is_some());
}

/// Whoever can write a manifest, and remove nothing, could let `gc` remove the objects of a backup for it.
#[test]
fn a_manifest_that_names_another_run_makes_no_objects_dead() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    let good = std::fs::read(manifest_of(&store, "n")).unwrap();
    rewrite(&store, "n", |manifest| manifest["run"] = format!("{:032x}", 1).into());
    let day = Duration::from_secs(86_400);
    for path in store.files() {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::now() - 2 * day).unwrap();
    }
    let found = block_on(xb_backup::find_orphaned(&store.root, day)).unwrap();
    assert!(found.dead.is_empty(), "{found:?}");
    assert_eq!(found.unclear[0].0, "n");
    // One that names no objects lacks none.
    rewrite(&store, "n", |manifest| {
        manifest["objects"] = 0.into();
        manifest["stored_bytes"] = 0.into();
    });
    let found = block_on(xb_backup::find_orphaned(&store.root, day)).unwrap();
    assert!(found.dead.is_empty(), "{found:?}");
    std::fs::write(manifest_of(&store, "n"), good).unwrap();
    let found = block_on(xb_backup::find_orphaned(&store.root, day)).unwrap();
    assert!(found.dead.is_empty() && found.unclear.is_empty(), "{found:?}");
}

#[test]
fn a_backup_with_a_damaged_manifest_goes_by_force_only_and_not_if_it_is_pinned() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    block_on(xb_repo::pin::pin(&store.root, &name("n"), None)).unwrap();
    let good = std::fs::read(manifest_of(&store, "n")).unwrap();
    std::fs::write(manifest_of(&store, "n"), &good[..good.len() / 2]).unwrap();
    let refused = block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("n")));
    assert!(matches!(refused, Err(BackupError::Repo(RepoError::Unclear { .. }))), "{refused:?}");
    let refused = block_on(xb_backup::delete(&store.root, &name("n")));
    assert!(matches!(refused, Err(BackupError::Pinned { .. })), "{refused:?}");
    assert!(block_on(xb_repo::pin::unpin(&store.root, &name("n"))).unwrap().is_some());
    let deleted = block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
    assert_eq!(deleted.objects, 0);
    assert!(deleted.left > 2, "it says that the data stays: {deleted:?}");
    // The second delete names the command that removes the rest.
    let why = block_on(xb_backup::delete(&store.root, &name("n"))).unwrap_err().to_string();
    assert!(why.contains("`gc`"), "{why}");
}

#[test]
fn a_pin_that_cannot_be_read_is_a_pin() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    block_on(xb_repo::pin::pin(&store.root, &name("n"), None)).unwrap();
    let pin = store.folder.path().join("root/.xb-catalog/@pins/n");
    let good = std::fs::read(&pin).unwrap();
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    for bad in [flipped, good[..good.len() / 2].to_vec(), Vec::new(), vec![b' '; (1 << 20) + 1]] {
        std::fs::write(&pin, bad).unwrap();
        assert!(line(&store, "n").pinned.is_some());
        let deleted = block_on(xb_backup::delete(&store.root, &name("n")));
        assert!(matches!(deleted, Err(BackupError::Pinned { .. })));
    }
    assert!(block_on(xb_repo::pin::unpin(&store.root, &name("n"))).unwrap().is_some());
    block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
    // A readable record about another backup of the name does not count.
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    std::fs::create_dir_all(pin.parent().unwrap()).unwrap();
    std::fs::write(&pin, &good).unwrap();
    assert!(line(&store, "n").pinned.is_none());
    block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
}

#[test]
fn latest_passes_over_a_clock_that_was_ahead_and_says_what_is_doubtful() {
    let store = Store::new();
    for of in ["good", "ahead"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    rewrite(&store, "ahead", |manifest| manifest["finished"] = "2199-01-01T00:00:00Z".into());
    let latest = || {
        let latest =
            xb_repo::resolve::resolve(&store.root, &xb_repo::resolve::BackupSelector::Latest, None);
        block_on(latest).unwrap()
    };
    let found = latest();
    assert_eq!(found.name.as_str(), "good");
    assert!(found.doubts.len() == 1 && found.doubts[0].contains("ahead"), "{found:?}");
    // A damaged one is passed over, too.
    assert!(!verify(&store, "good", Level::Pages, None).is_ok());
    let found = latest();
    assert_eq!(found.name.as_str(), "ahead");
    assert!(found.doubts.iter().any(|doubt| doubt.contains("damaged")), "{found:?}");
    // Nor does it take the place of tonight's backup.
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    assert!(verdicts.iter().all(|verdict| !verdict.is_removed()), "{verdicts:?}");
}
