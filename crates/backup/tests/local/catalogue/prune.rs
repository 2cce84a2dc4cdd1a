//! Retention, and what others depend on.

use jiff::Timestamp;
use xb_backup::{BackupError, CancelToken, Candidate, Keep, Keys, Session, plan_prune};
use xb_repo::claim::mark::Mark;
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::{Base, Layout};
use xb_repo::resolve::BackupSelector;
use xb_repo::verification::Level;
use xb_uploader::Operation;

use super::support::{before, every, line, manifest_of, name, once_marked, plan, rewrite, verify};
use crate::common::{Store, block_on, session, stream_reader};

#[test]
fn prune_removes_the_chosen_backups_only() {
    let store = Store::new();
    for (n, layout) in
        [Layout::Packed, Layout::Classic, Layout::Packed, Layout::Packed].into_iter().enumerate()
    {
        store.put(&format!("b{n}"), layout, 300, stream_reader()).unwrap();
    }
    let plan = |keep: Keep| {
        let listed = block_on(xb_repo::list::list(&store.root)).unwrap();
        let all = Candidate::all(&listed);
        plan_prune(&all, &keep, Timestamp::now())
    };
    let verdicts = plan(Keep { last: Some(2), ..Keep::default() });
    let goes = |verdicts: &[xb_backup::Verdict]| -> Vec<String> {
        verdicts.iter().filter(|v| v.is_removed()).map(|v| v.name.clone()).collect()
    };
    assert_eq!(goes(&verdicts), ["b1", "b0"]);
    // Pinned between the plan and its execution.
    block_on(xb_repo::pin::pin(&store.root, &name("b0"), None)).unwrap();
    assert_eq!(
        block_on(xb_backup::prune(&session(&store.root), &verdicts, |_, _| ())).unwrap(),
        ["b1"]
    );
    let left: Vec<_> =
        block_on(xb_repo::list::list(&store.root)).unwrap().into_iter().map(|l| l.name).collect();
    assert_eq!(left, ["b0", "b2", "b3"]);
    // The delete's claim stays, so that no older claim of the name counts again.
    let claim = |path: &std::path::Path| path.iter().any(|part| part == "@claims");
    let of_b1 = |path: &std::path::PathBuf| path.iter().any(|part| part == "b1") && !claim(path);
    assert!(!store.files().iter().any(of_b1));
    // An old plan does not apply to another backup of the name.
    block_on(xb_repo::pin::unpin(&store.root, &name("b0"))).unwrap();
    block_on(xb_backup::delete(&store.root, &name("b0"))).unwrap();
    store.put("b0", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(
        block_on(xb_backup::prune(&session(&store.root), &verdicts, |_, _| ())).unwrap().is_empty()
    );
    assert_eq!(store.state("b0"), Some(State::Complete));
}

#[test]
fn a_possible_base_of_a_newer_version_stays() {
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
        block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("base"))).map(drop),
        may_be,
    );
    refused(block_on(xb_backup::doomed(&store.root, &name("base"), true)).map(drop), may_be);
    // Not even with force: its objects would stay, and nothing would find them.
    let newer = "install a newer version";
    refused(block_on(xb_backup::delete(&store.root, &name("new"))).map(drop), newer);
    refused(block_on(xb_backup::doomed(&store.root, &name("new"), false)).map(drop), newer);
    // The others are not concerned.
    block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("later"))).unwrap();
}

#[test]
fn a_possible_base_of_an_unreadable_increment_stays() {
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
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    let older = verdicts.iter().find(|verdict| verdict.name == "older").unwrap();
    assert_eq!(older.kept, [xb_backup::KeepReason::MayBeBaseOf("unread".into())]);
    let refused = block_on(xb_backup::delete_unless_needed(&session(&store.root), &name("older")));
    assert!(
        matches!(refused, Err(BackupError::Repo(RepoError::MayBeNeeded { .. }))),
        "{refused:?}"
    );
    block_on(xb_backup::delete(&store.root, &name("older"))).unwrap();
}

#[test]
fn prune_reports_each_backup_at_once() {
    let store = Store::new();
    for of in ["b0", "b1", "b2"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    // Damaged after the plan.
    let bytes = std::fs::read(manifest_of(&store, "b0")).unwrap();
    std::fs::write(manifest_of(&store, "b0"), &bytes[1..]).unwrap();
    let mut told = Vec::new();
    let outcome = block_on(xb_backup::prune(&session(&store.root), &verdicts, |name, _| {
        told.push(name.to_owned())
    }));
    assert_eq!(outcome.unwrap(), ["b1"]);
    assert_eq!(told, ["b0", "b1"]);
}

/// A backup that depends on another one of the store, and is still hidden.
struct Hidden {
    manifest: std::path::PathBuf,
    aside: std::path::PathBuf,
}

impl Hidden {
    /// Makes the backup `of` depend on `base`, and hides it.
    fn new(store: &Store, of: &str, base: &str) -> Self {
        let (manifest, aside) = (manifest_of(store, of), store.folder.path().join(of));
        depends(store, of, base);
        std::fs::rename(&manifest, &aside).unwrap();
        Self { manifest, aside }
    }

    fn show(&self) {
        std::fs::rename(&self.aside, &self.manifest).unwrap();
    }
}

/// Makes the backup `of` depend on `base`.
fn depends(store: &Store, of: &str, base: &str) {
    let run = line(store, base).run.unwrap();
    rewrite(store, of, |manifest| {
        manifest["base"] = serde_json::json!({ "name": base, "run": run });
    });
}

fn going(verdicts: &[xb_backup::Verdict]) -> Vec<&str> {
    verdicts.iter().filter(|v| v.is_removed()).map(|v| v.name.as_str()).collect()
}

/// The backups `full`, `middle` on top of it, and `other`, which a plan removes, and a hidden one on top
/// of `middle`.
fn doomed_chain(layout: Layout) -> (Store, Hidden, Vec<xb_backup::Verdict>) {
    let store = Store::new();
    for of in ["full", "middle", "other", "late", "newest"] {
        store.put(of, layout, 300, stream_reader()).unwrap();
    }
    depends(&store, "middle", "full");
    let late = Hidden::new(&store, "late", "middle");
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    assert_eq!(going(&verdicts), ["other", "middle", "full"]);
    (store, late, verdicts)
}

/// Prune lists the catalogue only once for several backups, but still notices backups that arrive
/// while it removes.
#[test]
fn prune_sees_backups_that_arrive_while_it_removes() {
    let store = Store::new();
    let names: Vec<String> = (0..35).map(|n| format!("b{n:02}")).collect();
    for of in names.iter().map(String::as_str).chain(["late"]) {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    let late = Hidden::new(&store, "late", "b00");
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    let expected: Vec<&str> = names[..34].iter().rev().map(String::as_str).collect();
    assert_eq!(going(&verdicts), expected);
    let mut told = Vec::new();
    let gone = block_on(xb_backup::prune(&session(&store.root), &verdicts, |name, _| {
        if told.is_empty() {
            late.show();
        }
        told.push(name.to_owned());
    }));
    assert_eq!(gone.unwrap(), expected[..33]);
    assert_eq!(told, expected[..33]);
    assert_eq!(store.state("b00"), Some(State::Complete));
}

/// Removing thousands of backups would take hours if the catalogue were listed for each.
#[test]
fn prune_lists_the_catalogue_once_for_many() {
    let store = Store::new();
    for n in 0..21 {
        store.put(&format!("b{n:02}"), Layout::Packed, 300, stream_reader()).unwrap();
    }
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    let lists = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = lists.clone();
    let root = store.root.failing(std::sync::Arc::new(every(Operation::List, move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    })));
    assert_eq!(
        block_on(xb_backup::prune(&session(&root), &verdicts, |_, _| ())).unwrap().len(),
        20
    );
    // Nine for the objects and the marks of each backup, and two of the catalogue and of ROOT.
    assert_eq!(lists.load(std::sync::atomic::Ordering::Relaxed), 9 * 20 + 4);
}

/// An incremental backup is committed after `prune` has marked what goes, and right before it looks for
/// dependants. The whole chain that it needs stays; others go.
#[test]
fn a_chain_stays_if_an_incremental_backup_comes_at_the_last_moment() {
    for layout in [Layout::Packed, Layout::Classic] {
        let (store, late, verdicts) = doomed_chain(layout);
        let came = once_marked(&store, &["full", "middle", "other"], move || late.show());
        let root = store.root.failing(std::sync::Arc::new(came));
        let gone = block_on(xb_backup::prune(&session(&root), &verdicts, |_, _| ())).unwrap();
        assert_eq!(gone, ["other"]);
        for of in ["full", "middle", "late"] {
            assert_eq!(store.state(of), Some(State::Complete), "{of}");
            assert_eq!(store.get(of).unwrap().len(), crate::common::stream().len());
        }
        assert_eq!(store.state("other"), None);
        // Without the late one, the chain goes as a whole.
        block_on(xb_backup::delete(&store.root, &name("late"))).unwrap();
        let gone = block_on(xb_backup::prune(&session(&store.root), &verdicts, |_, _| ())).unwrap();
        assert_eq!(gone, ["middle", "full"]);
    }
}

/// An increment is in the catalogue before its run knows that its base stays, so a prune must not remove others in
/// favour of it.
#[test]
fn nothing_goes_in_favour_of_what_another_command_removes() {
    for is_gone in [false, true] {
        let store = Store::new();
        for of in ["full", "other", "late"] {
            store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
        }
        depends(&store, "late", "full");
        let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
        assert_eq!(going(&verdicts), ["other"]);
        let full = line(&store, "full");
        let marked =
            block_on(Mark::set(&store.root, &name("full"), full.run.as_deref(), full.digest));
        let mark = marked.unwrap();
        let mark = if is_gone {
            block_on(async { mark.remove_manifest().await.unwrap().free().await });
            None
        } else {
            Some(mark)
        };
        let mut told = Vec::new();
        let mut prune = || {
            block_on(xb_backup::prune(&session(&store.root), &verdicts, |name, step| {
                told.push(format!("{name}: {step:?}"));
            }))
        };
        assert!(prune().unwrap().is_empty());
        assert_eq!(store.state("other"), Some(State::Complete));
        if let Some(mark) = mark {
            block_on(mark.withdraw());
            assert_eq!(prune().unwrap(), ["other"]);
        }
        assert!(told[0].starts_with("other: Kept(Repo(Overtaken"), "{told:?}");
    }
}

/// Needed backups stay, even if the command is cancelled meanwhile.
#[test]
fn a_cancelled_prune_leaves_needed_backups() {
    for layout in [Layout::Packed, Layout::Classic] {
        let (store, late, verdicts) = doomed_chain(layout);
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let came = once_marked(&store, &["full", "middle", "other"], move || {
            late.show();
            canceller.cancel(15);
        });
        let root = store.root.failing(std::sync::Arc::new(came));
        let outcome = block_on(xb_backup::prune(
            &Session { cancel: cancel.clone(), ..session(&root) },
            &verdicts,
            |_, _| (),
        ));
        assert!(matches!(outcome, Err(BackupError::Interrupted(15))), "{outcome:?}");
        for of in ["full", "middle", "late"] {
            assert_eq!(store.state(of), Some(State::Complete), "{of}");
        }
        // Cancelled before it begins, it removes nothing.
        let before = store.files();
        let outcome = block_on(xb_backup::prune(
            &Session { cancel: cancel.clone(), ..session(&store.root) },
            &verdicts,
            |_, _| (),
        ));
        assert!(matches!(outcome, Err(BackupError::Interrupted(15))), "{outcome:?}");
        assert_eq!(store.files(), before);
    }
}

/// All manifests of a batch go first. Cancelled after the first backup, it calls no other removed whose
/// objects are still there.
#[test]
fn a_cancelled_prune_says_whose_objects_are_left() {
    let store = Store::new();
    for of in ["b0", "b1", "b2"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    let cancel = CancelToken::new();
    let canceller = cancel.clone();
    let mut told = Vec::new();
    let session = Session { cancel, ..session(&store.root) };
    let outcome = block_on(xb_backup::prune(&session, &verdicts, |name, step| {
        told.push(format!("{name}: {step:?}"));
        canceller.cancel(15);
    }));
    assert!(matches!(outcome, Err(BackupError::Interrupted(15))), "{outcome:?}");
    assert_eq!(told, ["b1: Removed", "b0: ObjectsLeft"]);
    assert!(store.files().iter().any(|file| file.to_string_lossy().contains("/b0/")));
    assert_eq!(store.state("b2"), Some(State::Complete));
}

#[test]
fn no_file_of_a_base_goes() {
    let store = Store::new();
    for of in ["base", "later"] {
        store.put(of, Layout::Classic, 300, stream_reader()).unwrap();
    }
    depends(&store, "later", "base");
    let before = store.files();
    let files = ["xtrabackup_info".to_owned()];
    let delete = || block_on(xb_backup::delete_files(&store.root, &name("base"), &files));
    let refused = delete();
    assert!(matches!(refused, Err(BackupError::Repo(RepoError::Needed { .. }))), "{refused:?}");
    assert_eq!(store.files(), before);
    block_on(xb_backup::delete(&store.root, &name("later"))).unwrap();
    assert!(delete().unwrap() > 0);
}

#[test]
fn an_incremental_one_does_not_become_a_backup_when_its_base_is_gone() {
    let store = Store::new();
    let full = store.put("full", Layout::Packed, 300, stream_reader()).unwrap().manifest;
    let put = |of: &str| {
        let base = Base { name: "full".into(), run: full.run.clone() };
        let request = xb_backup::PutRequest {
            since: Some(xb_backup::IncrementalBase {
                base,
                lsn: 10,
                base_ends: 10,
                accept_history: true,
            }),
            ..crate::common::put_request(of, Layout::Packed, 300)
        };
        block_on(xb_backup::put(&session(&store.root), &request, stream_reader()))
    };
    put("i1").unwrap();
    rewrite(&store, "i1", |manifest| manifest["source"]["to_lsn"] = 20.into());
    let since_of = |is_partial| {
        let wanted = xb_repo::resolve::BackupSelector::Name(name("i1"));
        let request = xb_backup::SinceRequest {
            wanted: &wanted,
            server: None,
            keys: &Keys::default(),
            sealed: false,
            accept_unsealed: false,
            memory: 1 << 20,
            own: None,
            watch: None,
            accept_history: true,
            is_partial,
            or_full: false,
        };
        block_on(xb_backup::since(&store.root, &request))
    };
    let since = || since_of(None);
    assert_eq!(since().unwrap().0.lsn, 20);
    // Of one kind with its base, as far as the options of the producer show it.
    rewrite(&store, "i1", |manifest| manifest["source"]["tool_name"] = "mariadb-backup".into());
    assert_eq!(since_of(Some(false)).unwrap().0.lsn, 20);
    let refused = since_of(Some(true)).unwrap_err().to_string();
    assert!(
        refused.contains("its base i1 is a whole backup") && refused.contains("--or-full"),
        "{refused}"
    );
    block_on(xb_backup::delete(&store.root, &name("full"))).unwrap();
    let before = store.files();
    assert!(matches!(put("i2"), Err(BackupError::Repo(RepoError::Chain { .. }))));
    assert_eq!(store.files(), before, "nothing is left of it");
    // A backup that cannot be restored any more cannot be a base.
    assert!(matches!(since(), Err(BackupError::Repo(RepoError::Chain { .. }))));
    store.put("full", Layout::Packed, 300, stream_reader()).unwrap();
    assert!(
        matches!(put("i2"), Err(BackupError::Repo(RepoError::Chain { .. }))),
        "another one of that name"
    );
}

/// An incremental backup is committed after a delete has marked its base, and right before it looks for
/// dependants.
#[test]
fn a_base_stays_if_an_incremental_backup_comes_at_the_last_moment() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        for of in ["base", "late"] {
            store.put(of, layout, 300, stream_reader()).unwrap();
        }
        let late = Hidden::new(&store, "late", "base");
        let came = once_marked(&store, &["base"], move || late.show());
        let root = store.root.failing(std::sync::Arc::new(came));
        let refused = block_on(xb_backup::delete_unless_needed(&session(&root), &name("base")));
        assert!(matches!(refused, Err(BackupError::Repo(RepoError::Needed { .. }))), "{refused:?}");
        assert_eq!(store.state("base"), Some(State::Complete));
        assert_eq!(store.get("base").unwrap().len(), crate::common::stream().len());
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
    let goes = before(Operation::Create, 1, move || std::fs::remove_file(&path).unwrap());
    let root = store.root.failing(std::sync::Arc::new(goes));
    let base = Base { name: "full".into(), run: full.run };
    let request = xb_backup::PutRequest {
        since: Some(xb_backup::IncrementalBase {
            base,
            lsn: 10,
            base_ends: 10,
            accept_history: true,
        }),
        ..crate::common::put_request("i1", Layout::Packed, 300)
    };
    let in_session = session(&root);
    let put = xb_backup::put(&in_session, &request, stream_reader());
    let refused = block_on(put).unwrap_err();
    assert!(matches!(&refused, BackupError::Repo(RepoError::Chain { .. })), "{refused:?}");
    assert!(refused.to_string().contains("full, which its chain needs, was removed"), "{refused}");
    assert_eq!(store.state("i1"), None);
}

/// The last full backup that can be restored does not give way to an increment whose base is gone.
#[test]
fn a_broken_chain_counts_for_nothing_and_is_named() {
    let store = Store::new();
    for of in ["good", "base", "late"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    depends(&store, "late", "base");
    assert!(line(&store, "late").restorable);
    let whole = verify(&store, "late", Level::Manifest, None);
    assert!(whole.is_ok(), "{whole:?}");
    std::fs::remove_file(manifest_of(&store, "base")).unwrap();
    let late = line(&store, "late");
    assert_eq!(late.broken.as_deref(), Some("its base base is missing"));
    assert!(!late.restorable && line(&store, "good").restorable);
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    assert_eq!(going(&verdicts), [""; 0]);
    let latest =
        block_on(xb_repo::resolve::resolve(&store.root, &BackupSelector::Latest, None)).unwrap();
    assert_eq!(latest.name.as_str(), "good");
    assert_eq!(latest.doubts, ["late is skipped: its base base is missing"]);
    for level in [Level::Manifest, Level::Decrypt] {
        let found = verify(&store, "late", level, None);
        assert!(!found.is_ok() && found.is_undamaged(), "{found:?}");
        assert_eq!(found.broken_chain.as_deref(), Some("its base base is missing"));
    }
    // Its own data is intact, so it is not recorded as damaged.
    assert!(line(&store, "late").verified.unwrap().failed.is_none());
    std::fs::remove_file(manifest_of(&store, "good")).unwrap();
    let none = block_on(xb_repo::resolve::resolve(&store.root, &BackupSelector::Latest, None));
    assert!(matches!(none, Err(RepoError::NotRestorable { .. })), "{none:?}");
}

/// A fault in a base breaks every backup that depends on it.
#[test]
fn an_increment_on_a_damaged_base_cannot_be_restored() {
    let store = Store::new();
    for of in ["good", "base", "late"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    depends(&store, "late", "base");
    let of_base = |path: &std::path::PathBuf| path.to_str().unwrap().contains("/base/");
    let object = store.files().into_iter().filter(of_base);
    let object = object.into_iter().find(|path| path.ends_with("000000001")).unwrap();
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&object, bytes).unwrap();
    assert!(!verify(&store, "base", Level::Checksum, None).is_ok());
    let why = "its base base: verification found it damaged at level checksum";
    assert_eq!(line(&store, "late").broken.as_deref(), Some(why));
    let latest =
        block_on(xb_repo::resolve::resolve(&store.root, &BackupSelector::Latest, None)).unwrap();
    assert_eq!(latest.name.as_str(), "good");
    let found = verify(&store, "late", Level::Manifest, None);
    assert_eq!(found.broken_chain.as_deref(), Some(why));
}

/// A nightly verification reads the newest backup only: what its base has lost must not wait for a restore.
#[test]
fn a_verified_increment_shows_what_its_base_has_lost() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        for of in ["good", "base", "late"] {
            store.put(of, layout, 300, stream_reader()).unwrap();
        }
        depends(&store, "late", "base");
        assert!(verify(&store, "late", Level::List, None).is_ok());
        let (end, fault) = match layout {
            Layout::Packed => ("/000000001", "it is missing"),
            Layout::Classic => (".00000000000000000000", "the store lists 2 files"),
        };
        let of_base = |path: &&std::path::PathBuf| {
            let path = path.to_str().unwrap();
            path.contains("/base/") && path.ends_with(end)
        };
        std::fs::remove_file(store.files().iter().find(of_base).unwrap()).unwrap();
        let found = verify(&store, "late", Level::Manifest, None);
        assert!(found.is_ok(), "{found:?}");
        let found = verify(&store, "late", Level::Checksum, None);
        assert!(!found.is_ok() && found.is_undamaged(), "{found:?}");
        let why = found.broken_chain.unwrap();
        assert!(why.starts_with("its base base: ") && why.contains(fault), "{why}");
        // It is known from now on, and the last backup that can be restored stays.
        let why = "its base base: verification found it damaged at level list";
        assert_eq!(line(&store, "late").broken.as_deref(), Some(why));
        let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
        assert_eq!(going(&verdicts), [""; 0]);
    }
}

/// The clock of the host that made the newest backup is behind.
#[test]
fn the_newest_by_the_clock_of_the_store_stays() {
    let store = Store::new();
    for of in ["before", "now"] {
        store.put(of, Layout::Packed, 300, stream_reader()).unwrap();
    }
    rewrite(&store, "before", |manifest| {
        manifest["finished"] = Timestamp::now().to_string().into()
    });
    rewrite(&store, "now", |manifest| manifest["finished"] = "2026-01-01T00:00:00Z".into());
    let old = std::fs::File::options().append(true).open(manifest_of(&store, "before")).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    old.set_modified(std::time::SystemTime::now() - hour).unwrap();
    let verdicts = plan(&store, Keep { last: Some(1), ..Keep::default() });
    assert_eq!(going(&verdicts), [""; 0]);
}

/// An increment that the producer took by its own options may be useless: its base is not here.
#[test]
fn an_increment_without_its_base_needs_a_word() {
    use crate::common::{positioned, put_request};
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        let put = |of: &str, from, to, base_elsewhere| {
            let request = xb_backup::PutRequest { base_elsewhere, ..put_request(of, layout, 4096) };
            let stream = std::io::Cursor::new(positioned(from, to));
            block_on(xb_backup::put(&session(&store.root), &request, stream))
        };
        let refused = put("i1", 100, 200, false);
        assert!(matches!(refused, Err(BackupError::NoBase { lsn: 100, .. })), "{refused:?}");
        assert_eq!(store.state("i1"), None, "nothing is left of it");
        put("i1", 100, 200, true).unwrap();
        assert_eq!(line(&store, "i1").broken.as_deref(), Some("no backup here can be its base"));
        put("full", 0, 300, false).unwrap();
        let whole = put("i2", 300, 400, false).unwrap().manifest;
        assert_eq!(whole.base.unwrap().name, "full");
        assert!(line(&store, "i2").restorable);
    }
}
