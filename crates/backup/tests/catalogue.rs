//! Records beside the manifests (verification, pins), copies, retention and deletion.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod common;

use std::time::Duration;

use common::{Store, block_on, put_sealed, stream_reader};
use xb_backup::{
    BackupError, BackupName, Base, Candidate, CopyReport, CopyRequest, FileEntry, Keep, Keys,
    Layout, Level, Listing, ShowRequest, State, Timestamp, VerifyReport, VerifyRequest, Wanted,
    plan_prune, stopper,
};
use xb_encryptor::KeyBytes;
use xb_pipeline::Observer;

const KEY: [u8; 32] = [7; 32];

fn keys(key: Option<[u8; 32]>) -> Keys {
    Keys::default().with_key(key.map(|key| KeyBytes::new(&key).unwrap()))
}

fn name(name: &str) -> BackupName {
    BackupName::new(name).unwrap()
}

fn verify(store: &Store, of: &str, level: Level, key: Option<[u8; 32]>) -> VerifyReport {
    let (_stopper, mut stop) = stopper();
    let request = VerifyRequest {
        name: name(of),
        level,
        keys: keys(key),
        accept: xb_backup::Accept::default(),
        memory: 64 << 20,
        threads: 2,
        parallel: 4,
        record: Some("test 1".into()),
    };
    block_on(xb_backup::verify(&store.root, &request, &Observer::default(), &mut stop)).unwrap()
}

fn line(store: &Store, of: &str) -> Listing {
    let all = block_on(xb_backup::list(&store.root)).unwrap();
    all.into_iter().find(|line| line.name == of).unwrap()
}

fn copy(
    from: &Store,
    to: &Store,
    what: &str,
    called: &str,
    change: impl FnOnce(CopyRequest) -> CopyRequest,
) -> Result<CopyReport, BackupError> {
    let (_stopper, mut stop) = stopper();
    let request = change(CopyRequest {
        name: name(what),
        to: name(called),
        unverified: false,
        alone: false,
        keys: Keys::default(),
        accept: xb_backup::Accept::default(),
        within_store: None,
        lock: None,
        memory: 64 << 20,
        threads: 2,
        parallel: 4,
    });
    block_on(xb_backup::copy(&from.root, &to.root, &request, &Observer::default(), &mut stop))
}

fn unverified(request: CopyRequest) -> CopyRequest {
    CopyRequest { unverified: true, ..request }
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
fn results_of_who_had_the_key_are_authenticated() {
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
    block_on(xb_backup::pin(&store.root, &name("n"), Some("before the migration"))).unwrap();
    assert_eq!(line(&store, "n").pinned.unwrap().reason.as_deref(), Some("before the migration"));
    let deleted = block_on(xb_backup::delete(&store.root, &name("n")));
    assert!(matches!(deleted, Err(BackupError::Pinned { .. })));
    assert!(block_on(xb_backup::unpin(&store.root, &name("n"))).unwrap().is_some());
    assert!(block_on(xb_backup::unpin(&store.root, &name("n"))).unwrap().is_none());
    block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
    let pinned = block_on(xb_backup::pin(&store.root, &name("n"), None));
    assert!(matches!(pinned, Err(BackupError::NotThere { .. })));
}

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
        assert!(matches!(taken, Err(BackupError::Exists { .. })), "{taken:?}");
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
    assert!(matches!(copy(&from, &to, "none", "none", |r| r), Err(BackupError::NotThere { .. })));
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
fn prune_removes_what_goes_and_nothing_else() {
    let store = Store::new();
    for (n, layout) in
        [Layout::Packed, Layout::Classic, Layout::Packed, Layout::Packed].into_iter().enumerate()
    {
        store.put(&format!("b{n}"), layout, 300, stream_reader()).unwrap();
    }
    let plan = |keep: Keep| {
        let listed = block_on(xb_backup::list(&store.root)).unwrap();
        let all = Candidate::all(&listed);
        plan_prune(&all, &keep, Timestamp::now())
    };
    let verdicts = plan(Keep { last: 2, ..Keep::default() });
    let goes = |verdicts: &[xb_backup::Verdict]| -> Vec<String> {
        verdicts.iter().filter(|v| v.goes()).map(|v| v.name.clone()).collect()
    };
    assert_eq!(goes(&verdicts), ["b1", "b0"]);
    // Pinned between the plan and its execution.
    block_on(xb_backup::pin(&store.root, &name("b0"), None)).unwrap();
    assert_eq!(block_on(xb_backup::prune(&store.root, &verdicts, |_, _| ())).unwrap(), ["b1"]);
    let left: Vec<_> =
        block_on(xb_backup::list(&store.root)).unwrap().into_iter().map(|l| l.name).collect();
    assert_eq!(left, ["b0", "b2", "b3"]);
    // The delete's claim stays, so that no older claim of the name counts again.
    let claim = |path: &std::path::Path| path.iter().any(|part| part == "@claims");
    let of_b1 = |path: &std::path::PathBuf| path.iter().any(|part| part == "b1") && !claim(path);
    assert!(!store.files().iter().any(of_b1));
    // An old plan does not apply to another backup of the name.
    block_on(xb_backup::unpin(&store.root, &name("b0"))).unwrap();
    block_on(xb_backup::delete(&store.root, &name("b0"))).unwrap();
    store.put("b0", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(block_on(xb_backup::prune(&store.root, &verdicts, |_, _| ())).unwrap().is_empty());
    assert_eq!(store.state("b0"), Some(State::Complete));
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
    let sealed = show("sealed", None).unwrap();
    assert!(sealed.content.is_none() && sealed.why_not.is_some());
    assert_eq!(sealed.listing.ways_in.len(), 1);
    assert!(matches!(show("none", None), Err(BackupError::NotThere { .. })));
}

fn manifest_of(store: &Store, of: &str) -> std::path::PathBuf {
    store.folder.path().join("root/.xb-catalog").join(of)
}

/// Rewrites the manifest with changed content.
fn rewrite(store: &Store, of: &str, change: impl FnOnce(&mut serde_json::Value)) {
    use sha2::Digest as _;
    let path = manifest_of(store, of);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = &text[..text.rfind("sha256:").unwrap()];
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
    change(&mut value);
    let mut text = serde_json::to_string_pretty(&value).unwrap();
    text.push('\n');
    let digest: String = sha2::Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
    std::fs::write(path, format!("{text}sha256:{digest}\n")).unwrap();
}

fn plan(store: &Store, keep: Keep) -> Vec<xb_backup::Verdict> {
    let listed = block_on(xb_backup::list(&store.root)).unwrap();
    let all = Candidate::all(&listed);
    plan_prune(&all, &keep, Timestamp::now())
}

#[test]
fn what_a_backup_of_a_newer_version_may_depend_on_stays() {
    let store = Store::new();
    for of in ["base", "new"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    // For this version, it may be an incremental backup based on `base`.
    rewrite(&store, "new", |manifest| manifest["format"] = 2.into());
    for of in ["later", "last"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
        let ended = Timestamp::now() + std::time::Duration::from_secs(2 * 3600);
        rewrite(&store, of, |manifest| manifest["finished"] = ended.to_string().into());
    }
    let before = store.files();
    let refused = |outcome: Result<(), BackupError>, why: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(store.files(), before);
    };
    let may_be = "base may be the base of new";
    refused(
        block_on(xb_backup::delete_unless_needed(&store.root, &name("base"))).map(drop),
        may_be,
    );
    refused(block_on(xb_backup::doomed(&store.root, &name("base"), true)).map(drop), may_be);
    // Not even with force: its objects would stay, and nothing would find them.
    let newer = "install a newer version";
    refused(block_on(xb_backup::delete(&store.root, &name("new"))).map(drop), newer);
    refused(block_on(xb_backup::doomed(&store.root, &name("new"), false)).map(drop), newer);
    // The others are not concerned.
    block_on(xb_backup::delete_unless_needed(&store.root, &name("later"))).unwrap();
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
        let latest = block_on(xb_backup::resolve(&store.root, &Wanted::Latest, None)).unwrap();
        assert_eq!(latest.name.as_str(), "d");
        assert!(latest.doubts.iter().any(|doubt| doubt.starts_with("b is skipped")), "{latest:?}");
        let left = block_on(xb_backup::leftovers(&store.root, Duration::from_secs(86_400)));
        assert_eq!(left.unwrap().unclear.len(), 1);
        // A full backup in the stock layout depends on none.
        let verdicts = plan(&store, Keep { last: 1, ..Keep::default() });
        let gone = block_on(xb_backup::prune(&store.root, &verdicts, |_, _| ())).unwrap();
        assert_eq!(gone, ["c", "a"]);
        block_on(xb_backup::delete_unless_needed(&store.root, &name("d"))).unwrap();
        let refused = block_on(xb_backup::delete_unless_needed(&store.root, &name("b")));
        assert!(matches!(refused, Err(BackupError::Unclear { .. })), "{refused:?}");
    }
}

#[test]
fn what_an_unreadable_incremental_backup_may_depend_on_stays() {
    let store = Store::new();
    let increment = || {
        let mut writer = xb_reader::ChunkWriter::new(Vec::new());
        for (path, content) in [("shop/t.ibd.delta", "pages"), ("xtrabackup_info", "x = y\n")] {
            writer.payload(path, 0, content.as_bytes()).unwrap();
            writer.end(path).unwrap();
        }
        std::io::Cursor::new(writer.finish().unwrap())
    };
    store.put("older", Layout::Classic, 300, stream_reader()).unwrap();
    store.put("unread", Layout::Classic, 300, increment()).unwrap();
    store.put("newest", Layout::Classic, 300, stream_reader()).unwrap();
    rewrite(&store, "unread", |manifest| manifest["format"] = 2.into());
    let verdicts = plan(&store, Keep { last: 1, ..Keep::default() });
    let older = verdicts.iter().find(|verdict| verdict.name == "older").unwrap();
    assert_eq!(older.kept, [xb_backup::Why::MayBeBaseOf("unread".into())]);
    let refused = block_on(xb_backup::delete_unless_needed(&store.root, &name("older")));
    assert!(matches!(refused, Err(BackupError::MayBeNeeded { .. })), "{refused:?}");
    block_on(xb_backup::delete(&store.root, &name("older"))).unwrap();
}

#[test]
fn a_backup_whose_objects_are_gone_is_not_complete_and_its_name_is_free() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        store.put("n", layout, 300, stream_reader()).unwrap();
        store.put("older", layout, 300, stream_reader()).unwrap();
        let taken = store.put("n", layout, 300, stream_reader());
        assert!(matches!(taken, Err(BackupError::Exists { .. })), "{taken:?}");
        for file in store.files().into_iter().filter(|path| path.iter().any(|part| part == "n")) {
            if !file.iter().any(|part| part == ".xb-catalog") {
                std::fs::remove_file(file).unwrap();
            }
        }
        let row = line(&store, "n");
        assert_eq!(row.state, State::Missing);
        assert!(row.problem.unwrap().contains("objects missing"));
        let latest = block_on(xb_backup::resolve(&store.root, &Wanted::Latest, None)).unwrap();
        assert_eq!(latest.name.as_str(), "older");
        block_on(xb_backup::pin(&store.root, &name("n"), None)).unwrap();
        let pinned = store.put("n", layout, 300, stream_reader());
        assert!(matches!(pinned, Err(BackupError::Pinned { .. })), "{pinned:?}");
        block_on(xb_backup::unpin(&store.root, &name("n"))).unwrap();
        let other = if layout == Layout::Packed { Layout::Classic } else { Layout::Packed };
        store.put("n", other, 300, stream_reader()).unwrap();
        assert_eq!(line(&store, "n").state, State::Complete);
        let files = |of: &str| common::unpacked(&store.get(of).unwrap());
        assert!(files("n") == files("older"));
        // With only some of its objects, it is damaged, and the name is not free.
        let one = store.files().into_iter().find(|path| {
            path.iter().any(|part| part == "n") && !path.iter().any(|part| part == ".xb-catalog")
        });
        std::fs::remove_file(one.unwrap()).unwrap();
        let taken = store.put("n", layout, 300, stream_reader());
        assert!(matches!(taken, Err(BackupError::Exists { .. })), "{taken:?}");
    }
}

#[test]
fn a_backup_with_a_damaged_manifest_goes_by_force_only_and_not_if_it_is_pinned() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    block_on(xb_backup::pin(&store.root, &name("n"), None)).unwrap();
    let good = std::fs::read(manifest_of(&store, "n")).unwrap();
    std::fs::write(manifest_of(&store, "n"), &good[..good.len() / 2]).unwrap();
    let refused = block_on(xb_backup::delete_unless_needed(&store.root, &name("n")));
    assert!(matches!(refused, Err(BackupError::Unclear { .. })), "{refused:?}");
    let refused = block_on(xb_backup::delete(&store.root, &name("n")));
    assert!(matches!(refused, Err(BackupError::Pinned { .. })), "{refused:?}");
    assert!(block_on(xb_backup::unpin(&store.root, &name("n"))).unwrap().is_some());
    let deleted = block_on(xb_backup::delete(&store.root, &name("n"))).unwrap();
    assert_eq!(deleted.objects, 0);
    assert!(deleted.left > 2, "it says that the data stays: {deleted:?}");
    // The second delete names the command that removes the rest.
    let why = block_on(xb_backup::delete(&store.root, &name("n"))).unwrap_err().to_string();
    assert!(why.contains("`gc`"), "{why}");
}

#[test]
fn who_prunes_is_told_at_once_what_went_and_what_stays() {
    let store = Store::new();
    for of in ["b0", "b1", "b2"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    let verdicts = plan(&store, Keep { last: 1, ..Keep::default() });
    // Damaged after the plan.
    let bytes = std::fs::read(manifest_of(&store, "b0")).unwrap();
    std::fs::write(manifest_of(&store, "b0"), &bytes[1..]).unwrap();
    let mut told = Vec::new();
    let outcome =
        block_on(xb_backup::prune(&store.root, &verdicts, |name, _| told.push(name.to_owned())));
    assert_eq!(outcome.unwrap(), ["b1"]);
    assert_eq!(told, ["b1", "b0"]);
}

#[test]
fn a_pin_that_cannot_be_read_is_a_pin() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    block_on(xb_backup::pin(&store.root, &name("n"), None)).unwrap();
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
    assert!(block_on(xb_backup::unpin(&store.root, &name("n"))).unwrap().is_some());
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
        let latest = xb_backup::resolve(&store.root, &xb_backup::Wanted::Latest, None);
        block_on(latest).unwrap()
    };
    let found = latest();
    assert_eq!(found.name.as_str(), "good");
    assert!(found.doubts.len() == 1 && found.doubts[0].contains("ahead"), "{found:?}");
    assert!(!verify(&store, "good", Level::Pages, None).is_ok());
    assert!(latest().doubts.iter().any(|doubt| doubt.contains("damaged")));
    // Nor does it take the place of tonight's backup.
    let verdicts = plan(&store, Keep { last: 1, ..Keep::default() });
    assert!(verdicts.iter().all(|verdict| !verdict.goes()), "{verdicts:?}");
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
    // What was found at the new place in the meantime stays known.
    bad = std::fs::read(&object).unwrap();
    bad[7] ^= 1;
    std::fs::write(&object, &bad).unwrap();
    assert!(!verify(&to, "n", Level::Checksum, None).is_ok());
    assert!(copy(&from, &to, "n", "n", |r| r).unwrap().was_there);
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
    let refused = copy(&from, &to, "inc", "inc", unverified);
    assert!(matches!(refused, Err(BackupError::Chain { .. })), "{refused:?}");
    to.put("full", Layout::Packed, 300, stream_reader()).unwrap();
    let refused = copy(&from, &to, "inc", "inc", unverified);
    assert!(matches!(refused, Err(BackupError::Chain { .. })), "another backup: {refused:?}");
    copy(&from, &to, "inc", "alone", |r| CopyRequest { alone: true, ..unverified(r) }).unwrap();
    block_on(xb_backup::delete(&to.root, &name("full"))).unwrap();
    copy(&from, &to, "full", "full", unverified).unwrap();
    copy(&from, &to, "inc", "inc", unverified).unwrap();
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
            Err(BackupError::Chain { .. }) => assert!(!fits, "{server:?} {to_lsn}"),
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
        assert!(matches!(refused, Err(BackupError::Exists { .. })), "{refused:?}");
        assert_eq!(std::fs::read(manifest_of(&to, "n")).unwrap(), other, "it is left alone");
        // Half a manifest is not a copy either, and is not overwritten.
        std::fs::write(manifest_of(&to, "n"), &before[..before.len() / 2]).unwrap();
        let refused = copy(&from, &to, "n", "n", unverified);
        assert!(matches!(refused, Err(BackupError::Manifest { .. })), "{refused:?}");
        std::fs::write(manifest_of(&to, "n"), before).unwrap();
        assert!(copy(&from, &to, "n", "n", unverified).unwrap().was_there);
    }
}

/// Prune reads each manifest only once, but still notices backups that arrive while it removes.
#[test]
fn prune_sees_what_comes_while_it_removes() {
    let store = Store::new();
    for of in ["b0", "b1", "b2", "b3", "late"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    let late = manifest_of(&store, "late");
    let hidden = store.folder.path().join("late");
    let run = line(&store, "b0").run.unwrap();
    rewrite(&store, "late", |manifest| {
        manifest["base"] = serde_json::json!({ "name": "b0", "run": run });
    });
    std::fs::rename(&late, &hidden).unwrap();
    let verdicts = plan(&store, Keep { last: 1, ..Keep::default() });
    let going: Vec<&str> = verdicts.iter().filter(|v| v.goes()).map(|v| v.name.as_str()).collect();
    assert_eq!(going, ["b2", "b1", "b0"]);
    let mut told = Vec::new();
    let gone = block_on(xb_backup::prune(&store.root, &verdicts, |name, _| {
        if told.is_empty() {
            std::fs::rename(&hidden, &late).unwrap();
        }
        told.push(name.to_owned());
    }));
    assert_eq!(gone.unwrap(), ["b2", "b1"]);
    assert_eq!(told, ["b2", "b1"]);
    assert_eq!(store.state("b0"), Some(State::Complete));
}

#[test]
fn an_incremental_one_does_not_become_a_backup_when_its_base_is_gone() {
    let store = Store::new();
    let full = store.put("full", Layout::Packed, 300, stream_reader()).unwrap().manifest;
    let (_stopper, mut stop) = stopper();
    let mut put = |of: &str| {
        let base = Base { name: "full".into(), run: full.run.clone() };
        let request = xb_backup::PutRequest {
            since: Some(xb_backup::IncrementalBase { base, lsn: 10 }),
            ..common::put_request(of, Layout::Packed, 300)
        };
        let observer = Observer::default();
        block_on(xb_backup::put(&store.root, &request, stream_reader(), &observer, &mut stop))
    };
    put("i1").unwrap();
    rewrite(&store, "i1", |manifest| manifest["source"]["to_lsn"] = 20.into());
    let since = || {
        let wanted = xb_backup::Wanted::Name(name("i1"));
        let request = xb_backup::SinceRequest {
            wanted: &wanted,
            server: None,
            keys: &Keys::default(),
            sealed: false,
            accept_unsealed: false,
            memory: 1 << 20,
            own: None,
        };
        block_on(xb_backup::since(&store.root, &request))
    };
    assert_eq!(since().unwrap().0.lsn, 20);
    block_on(xb_backup::delete(&store.root, &name("full"))).unwrap();
    let before = store.files();
    assert!(matches!(put("i2"), Err(BackupError::Chain { .. })));
    assert_eq!(store.files(), before, "nothing is left of it");
    // A backup that cannot be restored any more cannot be a base.
    assert!(matches!(since(), Err(BackupError::Chain { .. })));
    store.put("full", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(matches!(put("i2"), Err(BackupError::Chain { .. })), "another one of that name");
}

/// Does something right before operation number `n` (from 0) of one kind.
struct Before<F>(&'static str, std::sync::atomic::AtomicUsize, F);

impl<F> std::fmt::Debug for Before<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl<F: Fn() + Send + Sync> xb_uploader::Faults for Before<F> {
    fn next(&self, operation: &'static str) -> Option<xb_uploader::Fault> {
        use std::sync::atomic::Ordering;
        if operation == self.0 && self.1.fetch_sub(1, Ordering::AcqRel) == 0 {
            (self.2)();
        }
        None
    }
}

fn before(
    kind: &'static str,
    n: usize,
    act: impl Fn() + Send + Sync + 'static,
) -> Before<impl Fn()> {
    Before(kind, n.into(), act)
}

/// An incremental backup is committed after `prune` has looked for dependants of its base, and right
/// before it removes the base's manifest.
#[test]
fn a_base_stays_if_an_incremental_backup_comes_at_the_last_moment() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        for of in ["base", "late"] {
            store.put(of, layout, 300, stream_reader()).unwrap();
        }
        let (late, hidden) = (manifest_of(&store, "late"), store.folder.path().join("late"));
        let run = line(&store, "base").run.unwrap();
        rewrite(&store, "late", |manifest| {
            manifest["base"] = serde_json::json!({ "name": "base", "run": run });
        });
        std::fs::rename(&late, &hidden).unwrap();
        let came = before("delete", 0, move || std::fs::rename(&hidden, &late).unwrap());
        let root = store.root.failing(std::sync::Arc::new(came));
        let refused = block_on(xb_backup::delete_unless_needed(&root, &name("base")));
        assert!(matches!(refused, Err(BackupError::Needed { .. })), "{refused:?}");
        assert_eq!(store.state("base"), Some(State::Complete));
        assert_eq!(store.get("base").unwrap().len(), common::stream().len());
    }
}

/// The other half of the same race: the base's manifest is removed after the incremental run has
/// looked for it, and right before the run commits.
#[test]
fn an_incremental_backup_whose_base_goes_at_the_last_moment_is_none() {
    let store = Store::new();
    let full = store.put("full", Layout::Packed, 300, stream_reader()).unwrap().manifest;
    let path = manifest_of(&store, "full");
    // The claim is created first, then the manifest.
    let goes = before("create", 1, move || std::fs::remove_file(&path).unwrap());
    let root = store.root.failing(std::sync::Arc::new(goes));
    let (_stopper, mut stop) = stopper();
    let base = Base { name: "full".into(), run: full.run };
    let request = xb_backup::PutRequest {
        since: Some(xb_backup::IncrementalBase { base, lsn: 10 }),
        ..common::put_request("i1", Layout::Packed, 300)
    };
    let observer = Observer::default();
    let put = xb_backup::put(&root, &request, stream_reader(), &observer, &mut stop);
    let refused = block_on(put).unwrap_err();
    assert!(matches!(&refused, BackupError::Chain { .. }), "{refused:?}");
    assert!(refused.to_string().contains("its base full was removed"), "{refused}");
    assert_eq!(store.state("i1"), None);
}
