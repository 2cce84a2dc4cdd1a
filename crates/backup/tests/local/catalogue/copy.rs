//! Copies within and between stores.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use xb_backup::{BackupError, CopyOptions, CopyRequest, Keep};
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::records::{self, VerifyResult};
use xb_repo::root::Root;
use xb_repo::verification::{Level, RestoreTest, VerifyReport};
use xb_uploader::{Location, Policy, StorePlace, StoreSettings};

use super::support::{KEY, copy, keys, line, manifest_of, name, plan, rewrite, unverified, verify};
use crate::common::{Store, block_on, put_sealed, session, stream_reader};

#[test]
fn every_layout_is_copied_bit_for_bit_and_under_another_name_too() {
    let (from, to) = (Store::new(), Store::new());
    for (of, layout) in [("packed", Layout::Packed), ("classic", Layout::Classic)] {
        from.put(of, layout, 300, stream_reader()).unwrap();
        assert!(matches!(copy(&from, &to, of, of, |r| r), Err(BackupError::Unverified { .. })));
        assert!(verify(&from, of, Level::Checksum, None).is_ok());
        let done = copy(&from, &to, of, of, |r| r).unwrap();
        assert_eq!((done.kept, done.was_there), (0, false));
        assert_eq!(to.get(of).unwrap(), from.get(of).unwrap());
        assert!(copy(&from, &to, of, of, |r| r).unwrap().was_there);
        let other = format!("{of}-2");
        copy(&from, &to, of, &other, |r| r).unwrap();
        assert_eq!(to.get(&other).unwrap(), from.get(of).unwrap());
        assert!(line(&to, &other).verified.is_none(), "the record is about another manifest");
        assert!(verify(&to, &other, Level::Decrypt, None).is_ok());
        // A backup that already has the name is left alone.
        to.put("taken", layout, 300, stream_reader()).unwrap();
        let taken = copy(&from, &to, of, "taken", |r| r);
        assert!(matches!(taken, Err(BackupError::Repo(RepoError::Exists { .. }))), "{taken:?}");
        block_on(xb_backup::delete(&to.root, &name("taken"))).unwrap();
    }
    // A sealed backup keeps its name, unless the key is given.
    put_sealed(&from, "sealed", &KEY).unwrap();
    copy(&from, &to, "sealed", "sealed", unverified).unwrap();
    assert!(verify(&to, "sealed", Level::Decrypt, Some(KEY)).is_ok());
    let renamed = copy(&from, &to, "sealed", "other", unverified);
    assert!(matches!(renamed, Err(BackupError::Keys(_))));
    let with = |r| CopyRequest { keys: keys(Some(KEY)), ..unverified(r) };
    copy(&from, &to, "sealed", "other", with).unwrap();
    assert!(verify(&to, "other", Level::Decrypt, Some(KEY)).is_ok());
    assert!(matches!(
        copy(&from, &to, "none", "none", |r| r),
        Err(BackupError::Repo(RepoError::NotThere { .. }))
    ));
}

#[test]
fn damage_is_not_copied() {
    let (from, to) = (Store::new(), Store::new());
    from.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    let object = from.files().into_iter().find(|path| path.ends_with("000000001")).unwrap();
    let good = std::fs::read(&object).unwrap();
    let mut bad = good.clone();
    bad[7] ^= 1;
    std::fs::write(&object, bad).unwrap();
    let outcome = copy(&from, &to, "n", "n", unverified);
    assert!(matches!(outcome, Err(BackupError::Damaged { .. })), "{outcome:?}");
    assert!(outcome.unwrap_err().to_string().contains("000000001"), "the object is named");
    assert_eq!(to.state("n"), Some(State::Running), "no manifest");
    // No damaged object is left there for the next copy to resume from.
    assert!(to.files().iter().all(|path| !path.ends_with("000000001")));
    std::fs::write(&object, good).unwrap();
    copy(&from, &to, "n", "n", unverified).unwrap();
    assert_eq!(to.get("n").unwrap(), from.get("n").unwrap());
    block_on(xb_backup::delete(&to.root, &name("n"))).unwrap();
    // Without the checksum list nothing is kept, and everything is compared.
    let sums = from.files().into_iter().find(|path| path.ends_with("sums")).unwrap();
    std::fs::remove_file(sums).unwrap();
    let mut bad = std::fs::read(&object).unwrap();
    bad[7] ^= 1;
    std::fs::write(&object, bad).unwrap();
    assert!(matches!(copy(&from, &to, "n", "n", unverified), Err(BackupError::Damaged { .. })));
    bad = std::fs::read(&object).unwrap();
    bad[7] ^= 1;
    std::fs::write(&object, bad).unwrap();
    assert_eq!(copy(&from, &to, "n", "n", unverified).unwrap().kept, 0);
    assert_eq!(to.get("n").unwrap(), from.get("n").unwrap());
    block_on(xb_backup::delete(&to.root, &name("n"))).unwrap();
    std::fs::remove_file(&object).unwrap();
    assert!(copy(&from, &to, "n", "m", unverified).is_err());
    // A record of damage is not a verification.
    assert!(!verify(&from, "n", Level::Checksum, None).is_ok());
    let why = copy(&from, &to, "n", "n", |r| r).unwrap_err();
    assert!(why.to_string().contains("found damage at level checksum"), "{why}");
}

#[test]
fn a_copy_that_was_killed_is_no_backup_and_the_next_one_goes_on() {
    let from = Store::new();
    for (of, layout) in [("packed", Layout::Packed), ("classic", Layout::Classic)] {
        from.put(of, layout, 300, stream_reader()).unwrap();
        let (whole, cut) = (Store::new(), Store::new());
        copy(&from, &whole, of, of, unverified).unwrap();
        let objects = whole.files();
        let relative =
            |path: &std::path::Path| path.strip_prefix(whole.folder.path()).unwrap().to_owned();
        // As if the copy had been killed after this many objects.
        let below = |path: &&std::path::PathBuf| relative(path).starts_with(format!("root/{of}"));
        let data: Vec<_> = objects.iter().filter(below).collect();
        for path in &data[..data.len() / 2] {
            let target = cut.folder.path().join(relative(path));
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::copy(path, target).unwrap();
        }
        if layout == Layout::Classic {
            // Claim of a process that no longer runs.
            let claims = cut.folder.path().join("root/.xb-catalog/@claims").join(of);
            std::fs::create_dir_all(&claims).unwrap();
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
            let claim = serde_json::json!({
                "pid": std::process::id(), "process_started": format!("{} 1", boot.trim()),
                "pid_namespace": space.to_str().unwrap(),
            });
            std::fs::write(claims.join("000001"), claim.to_string()).unwrap();
        }
        assert!(cut.state(of).is_none_or(|state| state != State::Complete));
        assert!(cut.get(of).is_err());
        let done = copy(&from, &cut, of, of, unverified).unwrap();
        assert_eq!(done.kept > 0, layout == Layout::Packed);
        assert_eq!(cut.get(of).unwrap(), from.get(of).unwrap());
        assert!(verify(&cut, of, Level::Decrypt, None).is_ok());
    }
}

#[test]
fn a_copy_goes_on_only_from_what_it_has_compared_and_leaves_records_alone() {
    let (from, to) = (Store::new(), Store::new());
    from.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(verify(&from, "n", Level::Checksum, None).is_ok());
    copy(&from, &to, "n", "n", |r| r).unwrap();
    // An unfinished copy with one damaged object.
    std::fs::remove_file(manifest_of(&to, "n")).unwrap();
    let object = to.files().into_iter().find(|path| path.ends_with("000000001")).unwrap();
    let mut bad = std::fs::read(&object).unwrap();
    let objects =
        from.files().iter().filter(|path| path.to_str().unwrap().contains("/0000")).count();
    bad[7] ^= 1;
    std::fs::write(&object, &bad).unwrap();
    let done = copy(&from, &to, "n", "n", |r| r).unwrap();
    assert_eq!(done.kept, objects as u64 - 1);
    assert_eq!(to.get("n").unwrap(), from.get("n").unwrap());
    // Verification results at the new place stay known.
    bad = std::fs::read(&object).unwrap();
    bad[7] ^= 1;
    std::fs::write(&object, &bad).unwrap();
    assert!(!verify(&to, "n", Level::Checksum, None).is_ok());
    let refused = copy(&from, &to, "n", "n", |r| r);
    assert!(matches!(refused, Err(BackupError::DamagedCopy { .. })), "{refused:?}");
    assert_eq!(line(&to, "n").verified.unwrap().failed, Some(Level::Checksum));
}

#[test]
fn an_incremental_one_is_copied_to_where_its_base_stands() {
    let (from, to) = (Store::new(), Store::new());
    let run = from.put("full", Layout::Packed, 300, stream_reader()).unwrap().manifest.run;
    from.put("inc", Layout::Packed, 300, stream_reader()).unwrap();
    rewrite(&from, "inc", |manifest| {
        manifest["base"] = serde_json::json!({ "name": "full", "run": run });
    });
    to.put("full", Layout::Packed, 300, stream_reader()).unwrap();
    let refused = copy(&from, &to, "inc", "inc", unverified);
    assert!(
        matches!(refused, Err(BackupError::Repo(RepoError::Chain { .. }))),
        "another backup: {refused:?}"
    );
    copy(&from, &to, "inc", "alone", |r| {
        let options = CopyOptions { unverified: true, alone: true };
        CopyRequest { options, ..r }
    })
    .unwrap();
    block_on(xb_backup::delete(&to.root, &name("full"))).unwrap();
    // The bases are copied, too, and need the same verification as the copy.
    let refused = copy(&from, &to, "inc", "inc", |request| request);
    assert!(matches!(refused, Err(BackupError::Unverified { .. })), "{refused:?}");
    let done = copy(&from, &to, "inc", "inc", unverified).unwrap();
    assert_eq!((done.bases, done.was_there), (vec!["full".to_owned()], false));
    assert!(line(&to, "inc").broken.is_none());
    assert!(copy(&from, &to, "inc", "inc", unverified).unwrap().bases.is_empty());
}

/// If an increment follows each night, a full backup is not verified by itself.
#[test]
fn an_unattended_copy_verifies_the_bases_that_it_takes_along() {
    let (from, to) = (Store::new(), Store::new());
    let run = from.put("full", Layout::Packed, 300, stream_reader()).unwrap().manifest.run;
    from.put("inc", Layout::Packed, 300, stream_reader()).unwrap();
    rewrite(&from, "inc", |manifest| {
        manifest["base"] = serde_json::json!({ "name": "full", "run": run });
    });
    assert!(verify(&from, "inc", Level::Checksum, None).is_ok());
    let unattended = |r| CopyRequest { verify_bases: Some("t".to_owned()), ..r };
    // One that is damaged is refused, and known from then on.
    let object = from
        .files()
        .into_iter()
        .find(|path| path.ends_with("000000001") && path.to_str().unwrap().contains("/full/"));
    let object = object.unwrap();
    let good = std::fs::read(&object).unwrap();
    let mut bad = good.clone();
    bad[7] ^= 1;
    std::fs::write(&object, &bad).unwrap();
    let refused = copy(&from, &to, "inc", "inc", unattended);
    assert!(matches!(refused, Err(BackupError::Unverified { .. })), "{refused:?}");
    assert_eq!(line(&from, "full").verified.unwrap().failed, Some(Level::Checksum));
    std::fs::write(&object, &good).unwrap();
    assert!(verify(&from, "full", Level::Checksum, None).is_ok());
    for record in from.files() {
        if record.to_str().unwrap().contains("@verified/full/") {
            std::fs::remove_file(record).unwrap();
        }
    }
    let done = copy(&from, &to, "inc", "inc", unattended).unwrap();
    assert_eq!(done.bases, ["full"]);
    assert!(line(&from, "full").is_verified(Level::Checksum));
}

/// Records a verification at level restore that has found faults, with the server that was started, if one was.
fn failed_trial(store: &Store, of: &str, restore: Option<RestoreTest>) {
    let digest = block_on(store.root.stored_manifest(&name(of))).unwrap().unwrap().digest();
    let mut report = VerifyReport::new(of.to_owned(), Level::Restore);
    for level in Level::ALL {
        report.close(level, String::new());
    }
    let result = VerifyResult { ok: false, restore, ..VerifyResult::of(&report, "t") };
    block_on(records::add(&store.root, &name(of), &digest, result, None)).unwrap();
}

/// Its bytes are those of the source: another copy would change nothing, and refusing it would leave each later night
/// without a copy.
#[test]
fn a_trial_that_failed_at_the_destination_is_a_doubt_and_no_damage() {
    let (from, to) = (Store::new(), Store::new());
    from.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(verify(&from, "n", Level::Checksum, None).is_ok());
    assert!(copy(&from, &to, "n", "n", |r| r).unwrap().doubts.is_empty());
    failed_trial(&to, "n", Some(RestoreTest::default()));
    let done = copy(&from, &to, "n", "n", |r| r).unwrap();
    assert!(done.was_there && done.doubts[0].contains("a trial restore of n"), "{done:?}");
    // A fault before the server was started may be one of the bytes.
    failed_trial(&to, "n", None);
    let refused = copy(&from, &to, "n", "n", |r| r);
    assert!(matches!(refused, Err(BackupError::DamagedCopy { .. })), "{refused:?}");
}

/// The host of the trial may be the cause, and the bytes are those that were stored.
#[test]
fn a_trial_that_failed_at_the_source_is_a_doubt_and_a_fault_of_the_bytes_refuses_the_copy() {
    let (from, to) = (Store::new(), Store::new());
    from.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(verify(&from, "n", Level::Checksum, None).is_ok());
    failed_trial(&from, "n", Some(RestoreTest::default()));
    let done = copy(&from, &to, "n", "n", |r| r).unwrap();
    assert!(
        !done.was_there && done.doubts[0].contains("a trial restore of n at the source"),
        "{done:?}"
    );
    // Whoever can write to the store can write a record without a key: it proves nothing where a key is given.
    put_sealed(&from, "s", &KEY).unwrap();
    failed_trial(&from, "s", Some(RestoreTest::default()));
    let refused = copy(&from, &to, "s", "s", |r| CopyRequest { keys: keys(Some(KEY)), ..r });
    assert!(matches!(refused, Err(BackupError::Unverified { .. })), "{refused:?}");
    failed_trial(&from, "n", None);
    let refused = copy(&from, &to, "n", "n2", |r| r);
    assert!(matches!(refused, Err(BackupError::Unverified { .. })), "{refused:?}");
}

/// What it says is not known, and another copy would not change that.
#[test]
fn a_record_at_the_destination_that_cannot_be_read_is_a_doubt() {
    let (from, to) = (Store::new(), Store::new());
    from.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(verify(&from, "n", Level::Checksum, None).is_ok());
    copy(&from, &to, "n", "n", |r| r).unwrap();
    let files = to.files();
    let record = files.iter().find(|path| path.to_str().unwrap().contains("@verified/n/"));
    std::fs::write(record.unwrap(), b"{}").unwrap();
    let done = copy(&from, &to, "n", "n", |r| r).unwrap();
    assert!(done.was_there && done.doubts[0].contains("it is not known whether"), "{done:?}");
}

/// With it, nothing on the copy could be restored until a trial restore has passed.
#[test]
fn a_record_at_the_source_that_cannot_be_read_stays_there_and_is_a_doubt() {
    let (from, to) = (Store::new(), Store::new());
    from.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(verify(&from, "n", Level::Checksum, None).is_ok());
    let files = from.files();
    let record = files.iter().find(|path| path.to_str().unwrap().contains("@verified/n/")).unwrap();
    let mut bytes = std::fs::read(record).unwrap();
    bytes[7] ^= 1;
    std::fs::write(record, bytes).unwrap();
    let done = copy(&from, &to, "n", "n", unverified).unwrap();
    assert!(done.doubts[0].contains("@verified/n/"), "{done:?}");
    assert!(line(&to, "n").restorable, "{:?}", line(&to, "n"));
    assert!(!line(&from, "n").restorable);
}

#[test]
fn a_copy_with_a_key_explains_why_a_proof_without_one_does_not_count() {
    let (from, to) = (Store::new(), Store::new());
    put_sealed(&from, "n", &KEY).unwrap();
    assert!(verify(&from, "n", Level::Checksum, None).is_ok());
    let with = |request| CopyRequest { keys: keys(Some(KEY)), ..request };
    let refused = copy(&from, &to, "n", "final", with).unwrap_err().to_string();
    assert!(refused.contains("verified only without a key"), "{refused}");
    assert!(verify(&from, "n", Level::Checksum, Some(KEY)).is_ok());
    copy(&from, &to, "n", "final", with).unwrap();
}

/// If the manifest names no base, the base is found by log positions, on the same server only.
#[test]
fn the_base_of_a_copy_is_not_another_servers() {
    let from = Store::new();
    let lsn = |store: &Store, of: &str, from: u64, to: u64, server: Option<&str>| {
        rewrite(store, of, |manifest| {
            manifest["source"]["from_lsn"] = from.into();
            manifest["source"]["to_lsn"] = to.into();
            if let Some(server) = server {
                manifest["server"] = server.into();
            }
        });
    };
    from.put("inc", Layout::Packed, 300, stream_reader()).unwrap();
    lsn(&from, "inc", 10, 20, Some("a"));
    for (server, to_lsn, fits) in
        [(Some("b"), 10, false), (Some("a"), 9, false), (Some("a"), 10, true), (None, 10, true)]
    {
        let to = Store::new();
        to.put("full", Layout::Packed, 300, stream_reader()).unwrap();
        lsn(&to, "full", 0, to_lsn, server);
        // It had ended before the other backup began.
        let begun = line(&from, "inc").started.unwrap().to_string();
        rewrite(&to, "full", |manifest| {
            manifest["started"] = begun.clone().into();
            manifest["finished"] = begun.into();
        });
        match copy(&from, &to, "inc", "inc", unverified) {
            Ok(_) => assert!(fits, "{server:?} {to_lsn}"),
            Err(BackupError::Repo(RepoError::Chain { .. })) => {
                assert!(!fits, "{server:?} {to_lsn}")
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Equal run IDs do not prove equal backups.
#[test]
fn an_existing_copy_is_believed_only_if_its_whole_manifest_is_the_same() {
    for layout in [Layout::Packed, Layout::Classic] {
        let (from, to) = (Store::new(), Store::new());
        from.put("n", layout, 300, stream_reader()).unwrap();
        copy(&from, &to, "n", "n", unverified).unwrap();
        assert!(copy(&from, &to, "n", "n", unverified).unwrap().was_there);
        let before = std::fs::read(manifest_of(&to, "n")).unwrap();
        rewrite(&to, "n", |manifest| manifest["stream_bytes"] = 7.into());
        let other = std::fs::read(manifest_of(&to, "n")).unwrap();
        let refused = copy(&from, &to, "n", "n", unverified);
        assert!(matches!(refused, Err(BackupError::Repo(RepoError::Exists { .. }))), "{refused:?}");
        assert_eq!(std::fs::read(manifest_of(&to, "n")).unwrap(), other, "it is left alone");
        // Half a manifest is not a copy either, and is not overwritten.
        std::fs::write(manifest_of(&to, "n"), &before[..before.len() / 2]).unwrap();
        let refused = copy(&from, &to, "n", "n", unverified);
        assert!(
            matches!(refused, Err(BackupError::Repo(RepoError::Manifest { .. }))),
            "{refused:?}"
        );
        std::fs::write(manifest_of(&to, "n"), before).unwrap();
        assert!(copy(&from, &to, "n", "n", unverified).unwrap().was_there);
    }
}

/// Is told when a copy of `n0` waits for a removal.
static TELL: Mutex<Option<Sender<()>>> = Mutex::new(None);

/// ROOT of the store. What a command waits for there is reported to `tell`.
fn reporting(store: &Store, tell: Sender<()>) -> Root {
    *TELL.lock().unwrap() = Some(tell);
    xb_uploader::report_retries(|why, _| {
        if why.to_string().contains("finished removing n0")
            && let Some(tell) = TELL.lock().unwrap().as_ref()
        {
            let _ = tell.send(());
        }
    });
    let path =
        store.folder.path().join("root").to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    Root::open(&location, &StoreSettings::default(), Policy::default(), false).unwrap()
}

/// A copy keeps the run of its source, so the removal of an earlier copy removes the same keys.
#[test]
fn a_copy_waits_until_the_objects_of_an_earlier_one_are_gone() {
    for layout in [Layout::Packed, Layout::Classic] {
        let (from, to) = (Store::new(), Store::new());
        for of in ["n0", "n1", "n2"] {
            from.put(of, layout, 300, stream_reader()).unwrap();
            copy(&from, &to, of, of, unverified).unwrap();
        }
        let plan = plan(&to, Keep { last: Some(1), ..Keep::default() });
        let (mut copying, from_root) = (None, from.root.clone());
        // All manifests go first; so n0 has objects, and no manifest, when n1 is gone.
        let pruned = block_on(xb_backup::prune(&session(&to.root), &plan, |gone, _| {
            if gone != "n1" {
                return;
            }
            let (tell, told) = channel();
            let (source, target) = (from_root.clone(), reporting(&to, tell.clone()));
            copying = Some(std::thread::spawn(move || {
                let request = unverified(CopyRequest {
                    verify_bases: None,
                    name: name("n0"),
                    to: name("n0"),
                    options: CopyOptions::default(),
                    keys: xb_backup::Keys::default(),
                    accept: xb_backup::Accept::default(),
                    within_store: None,
                    lock: None,
                });
                let done = block_on(xb_backup::copy(&session(&source), &target, request));
                let _ = tell.send(());
                done.map(drop)
            }));
            told.recv().unwrap();
        }));
        assert_eq!(pruned.unwrap(), ["n1", "n0"]);
        if copying.unwrap().join().unwrap().is_ok() {
            assert_eq!(to.get("n0").unwrap(), from.get("n0").unwrap(), "{layout:?}");
        }
        // The next one finds the name free.
        copy(&from, &to, "n0", "n0", unverified).unwrap();
        assert_eq!(to.get("n0").unwrap(), from.get("n0").unwrap());
    }
}
