//! Retention, and what others depend on.

use xb_backup::{
    BackupError, Base, Candidate, Keep, Keys, Layout, State, Timestamp, plan_prune, stopper,
};
use xb_pipeline::Observer;

use super::common::{Store, block_on, stream_reader};
use super::support::{before, line, manifest_of, name, plan, rewrite};

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
            ..super::common::put_request(of, Layout::Packed, 300)
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
        assert_eq!(store.get("base").unwrap().len(), super::common::stream().len());
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
        ..super::common::put_request("i1", Layout::Packed, 300)
    };
    let observer = Observer::default();
    let put = xb_backup::put(&root, &request, stream_reader(), &observer, &mut stop);
    let refused = block_on(put).unwrap_err();
    assert!(matches!(&refused, BackupError::Chain { .. }), "{refused:?}");
    assert!(refused.to_string().contains("its base full was removed"), "{refused}");
    assert_eq!(store.state("i1"), None);
}
