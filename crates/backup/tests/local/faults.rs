//! Every operation of a store fails once, in every command: each run ends in a success that its
//! content proves, or in an error that leaves nothing half-made. No failure looks like success.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use xb_backup::{BackupError, Candidate, CopyRequest, Keep, RestoreOptions, plan_prune};
use xb_pipeline::Durability;
use xb_reader::ChunkWriter;
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::root::Root;
use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

use crate::common::{Collected, Store, block_on, put_request, request, session, stream, unpacked};

/// Fails operation number `n` (from 0) of one kind, and counts all.
#[derive(Debug, Default)]
struct Nth {
    fails: Option<(Operation, usize, Fault)>,
    seen: Mutex<BTreeMap<Operation, usize>>,
}

impl Faults for Nth {
    fn next(&self, operation: Operation) -> Option<Fault> {
        let mut seen = self.seen.lock().unwrap();
        let count = seen.entry(operation).or_default();
        *count += 1;
        let (kind, n, fault) = self.fails?;
        (kind == operation && n == *count - 1).then_some(fault)
    }
}

/// Runs `command` with every operation failing once: first refused, then done with its answer lost.
/// `prepare` makes the store that each run gets a copy of; `check` sees store, name of the failure, and outcome.
fn with_every_failure<T>(
    policy: &Policy,
    prepare: impl Fn(&Store),
    command: impl Fn(&Root) -> Result<T, BackupError>,
    check: impl Fn(&Store, &str, Result<T, BackupError>),
) {
    let prepared = Store::new();
    prepare(&prepared);
    let run = |fails| {
        let faults = Arc::new(Nth { fails, ..Nth::default() });
        let store = prepared.twin();
        let outcome = command(&with_policy(&store, policy).failing(faults.clone()));
        let text = fails.map_or("none".to_owned(), |(kind, n, how)| format!("{kind} {n} {how:?}"));
        check(&store, &text, outcome);
        Arc::try_unwrap(faults).unwrap().seen.into_inner().unwrap()
    };
    let all = run(None);
    assert!(all.values().sum::<usize>() > 2, "{all:?}");
    for (kind, count) in all {
        for n in 0..count {
            for fault in [Fault::Refused, Fault::AnswerLost] {
                run(Some((kind, n, fault)));
            }
        }
    }
}

/// The same ROOT with other limits for retries.
fn with_policy(store: &Store, policy: &Policy) -> Root {
    let path = store.folder.path().join("root").to_str().unwrap().trim_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    Root::open(&location, &StoreSettings::default(), policy.clone(), true).unwrap()
}

/// ROOT as the next command sees it. The claim of a failed run belongs to this process, which lives.
fn later(store: &Store) -> Root {
    store.root.taking_over(|_| {})
}

fn no_retries() -> Policy {
    Policy::default().with_max_retries(0).with_retry_timeout(Duration::ZERO)
}

fn retries() -> Policy {
    no_retries().with_max_retries(3).with_max_backoff(Duration::from_millis(1))
}

/// Stream larger than two parts of an object.
fn large() -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    for n in 0..13_u64 {
        let noise = vec![u8::try_from(n).unwrap(); 1 << 20];
        writer.payload("shop/orders.ibd", n << 20, &noise).unwrap();
    }
    writer.end("shop/orders.ibd").unwrap();
    writer.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    writer.finish().unwrap()
}

/// Input of a put: layout, object size, stream.
type Shape = (Layout, u64, fn() -> Vec<u8>);

const SMALL: [Shape; 2] = [(Layout::Packed, 500, stream), (Layout::Classic, 500, stream)];
const LARGE: Shape = (Layout::Packed, 12 << 20, large);

fn put(root: &Root, name: &str, (layout, size, content): Shape) -> Result<(), BackupError> {
    let request = put_request(name, layout, size);
    let input = std::io::Cursor::new(content());
    block_on(xb_backup::put(&session(root), &request, input)).map(drop)
}

fn get(root: &Root, name: &str) -> Result<Vec<u8>, BackupError> {
    let sink = Collected::default();
    let request = request(name);
    let in_session = session(root);
    let got = xb_backup::get(&in_session, &request, sink);
    block_on(got).map(|(_, Collected(bytes))| bytes)
}

/// Returns whether two streams hold the same files. The classic layout does not keep the order of chunks.
pub(crate) fn same(got: &[u8], stored: &[u8]) -> bool {
    got == stored || unpacked(got) == unpacked(stored)
}

/// After a failed run of a name: there is a whole backup, which only an error in doubt explains, or
/// none, and no object of it.
fn assert_clean(store: &Store, name: &str, content: &[u8], what: &str, error: &BackupError) {
    if store.state(name) == Some(State::Complete) {
        assert!(matches!(error, BackupError::Repo(RepoError::InDoubt { .. })), "{what}: {error}");
        assert!(same(&store.get(name).unwrap(), content), "{what}");
        return;
    }
    // A manifest may still appear, so the objects that it would name stay; `gc` removes them.
    if matches!(error, BackupError::Repo(RepoError::InDoubt { .. })) {
        return;
    }
    let objects: Vec<_> = store
        .files_but_claims()
        .into_iter()
        .filter(|path| path.iter().any(|part| part == name))
        .filter(|path| path.file_name().is_some_and(|file| file != "claim"))
        .collect();
    assert!(objects.is_empty(), "{what}: {error}: {objects:?}");
}

#[test]
fn put_ends_proven_or_clean() {
    for shape in SMALL.into_iter().chain([LARGE]) {
        let content = shape.2();
        with_every_failure(
            &no_retries(),
            |_| {},
            |root| put(root, "n", shape),
            |store, what, outcome| {
                match &outcome {
                    Ok(()) => assert!(same(&store.get("n").unwrap(), &content), "{what}"),
                    Err(error) => assert_clean(store, "n", &content, what, error),
                }
                // The name is not blocked.
                let again = put(&later(store), "n", shape);
                assert!(
                    again.is_ok()
                        || matches!(again, Err(BackupError::Repo(RepoError::Exists { .. }))),
                    "{what}: {again:?}"
                );
                let got = store.get("n").unwrap();
                assert!(same(&got, &content), "{what}");
            },
        );
    }
}

/// One failure of any operation that is retried changes nothing.
#[test]
fn with_retries_one_failure_is_no_failure() {
    for shape in SMALL {
        let content = shape.2();
        with_every_failure(
            &retries(),
            |_| {},
            |root| put(root, "n", shape).and_then(|()| get(root, "n")),
            |_, what, outcome| {
                // A local disk that fails is not a store that is away.
                let local = ["start multipart", "put part", "complete"];
                if outcome.is_err() && local.iter().any(|kind| what.starts_with(kind)) {
                    return;
                }
                let bytes = outcome.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(same(&bytes, &content), "{what}");
            },
        );
    }
}

#[test]
fn get_returns_the_content_or_an_error() {
    for shape in SMALL {
        let content = shape.2();
        with_every_failure(
            &no_retries(),
            |store| put(&store.root, "n", shape).unwrap(),
            |root| get(root, "n"),
            |store, what, outcome| {
                if let Ok(bytes) = outcome {
                    assert!(same(&bytes, &content), "{what}");
                }
                assert!(same(&store.get("n").unwrap(), &content), "{what}: the backup was changed");
            },
        );
    }
}

fn restore(root: &Root, target: &Path) -> Result<u64, BackupError> {
    let how = RestoreOptions { sync: Durability::None, ..RestoreOptions::default() };
    let request = request("n");
    let in_session = session(root);
    let done = xb_backup::restore(&in_session, &request, target, how);
    block_on(done).map(|report| report.files)
}

fn assert_restored(target: &Path, what: &str) {
    let orders = std::fs::read(target.join("shop/orders.ibd")).unwrap();
    assert!(orders == [vec![1; 900], vec![2; 300]].concat(), "{what}");
    assert_eq!(std::fs::read(target.join("empty")).unwrap(), b"", "{what}");
    assert!(!target.join(".xb-partial").exists(), "{what}");
}

#[test]
fn restore_is_whole_or_resumes() {
    for shape in SMALL {
        with_every_failure(
            &no_retries(),
            |store| put(&store.root, "n", shape).unwrap(),
            |root| {
                // Beside ROOT, so that the check finds it.
                let target = tempfile::tempdir().unwrap();
                let outcome = restore(root, &target.path().join("t"));
                Ok((outcome, target))
            },
            |store, what, outcome| {
                let (outcome, folder) = outcome.unwrap();
                let target = folder.path().join("t");
                if outcome.is_err() {
                    let files = restore(&later(store), &target);
                    assert_eq!(files.unwrap_or_else(|e| panic!("{what}: {e}")), 3, "{what}");
                }
                assert_restored(&target, what);
            },
        );
    }
}

fn copy(from: &Root, to: &Root) -> Result<(), BackupError> {
    let name = xb_repo::names::BackupName::new("n").unwrap();
    let request = CopyRequest {
        verify_bases: None,
        name: name.clone(),
        to: name,
        options: xb_backup::CopyOptions { unverified: true, alone: false },
        keys: xb_backup::Keys::default(),
        accept: xb_backup::Accept::default(),
        within_store: None,
        lock: None,
    };
    block_on(xb_backup::copy(&session(from), to, request)).map(drop)
}

/// The last listing of a copy is the look for its objects after the commit: an outage at that moment is no proof
/// that they are gone.
#[test]
fn an_outage_after_the_commit_does_not_remove_the_copy() {
    let from = Store::new();
    put(&from.root, "n", SMALL[0]).unwrap();
    let run = |fails| {
        let (to, faults) = (Store::new(), Arc::new(Nth { fails, ..Nth::default() }));
        let outcome = copy(&from.root, &with_policy(&to, &no_retries()).failing(faults.clone()));
        let lists = faults.seen.lock().unwrap()[&Operation::List];
        (to, outcome, lists)
    };
    let (_, whole, lists) = run(None);
    whole.unwrap();
    let (to, outcome, _) = run(Some((Operation::List, lists - 1, Fault::Refused)));
    assert!(matches!(outcome, Err(BackupError::Repo(RepoError::InDoubt { .. }))), "{outcome:?}");
    assert_eq!(to.state("n"), Some(State::Complete));
    assert_eq!(get(&to.root, "n").unwrap(), stream());
}

/// Failures of the source and of the destination.
#[test]
fn copy_ends_proven_or_can_be_repeated() {
    for shape in SMALL {
        let content = shape.2();
        for at_source in [true, false] {
            with_every_failure(
                &no_retries(),
                |store| {
                    if at_source {
                        put(&store.root, "n", shape).unwrap();
                    }
                },
                |root| {
                    let other = Store::new();
                    let outcome = match at_source {
                        true => copy(root, &other.root),
                        false => {
                            put(&other.root, "n", shape).unwrap();
                            copy(&other.root, root)
                        }
                    };
                    Ok((outcome, other))
                },
                |store, what, outcome| {
                    let (outcome, other) = outcome.unwrap();
                    let (from, to) = if at_source { (store, &other) } else { (&other, store) };
                    if let Err(error) = &outcome
                        && to.state("n") == Some(State::Complete)
                    {
                        assert!(
                            matches!(error, BackupError::Repo(RepoError::InDoubt { .. })),
                            "{what}: {error}"
                        );
                    }
                    if outcome.is_err() {
                        copy(&from.root, &later(to)).unwrap_or_else(|e| panic!("{what}: {e}"));
                    }
                    assert!(same(&to.get("n").unwrap(), &content), "{what}");
                    assert!(same(&from.get("n").unwrap(), &content), "{what}");
                },
            );
        }
    }
}

/// Removes all but the newest of three backups.
fn prune(root: &Root) -> Result<Vec<String>, BackupError> {
    block_on(async {
        let listed = xb_repo::list::list(root).await?;
        let all = Candidate::all(&listed);
        let keep = Keep { last: Some(1), ..Keep::default() };
        let plan = plan_prune(&all, &keep, jiff::Timestamp::now());
        xb_backup::prune(&session(root), &plan, |_, _| {}).await
    })
}

#[test]
fn prune_leaves_whole_backups_or_none() {
    for shape in SMALL {
        let content = shape.2();
        let names = ["first", "second", "third"];
        with_every_failure(
            &no_retries(),
            |store| names.iter().for_each(|name| put(&store.root, name, shape).unwrap()),
            prune,
            |store, what, outcome| {
                let complete = |name: &&str| store.state(name) == Some(State::Complete);
                let left: Vec<&str> = names.into_iter().filter(complete).collect();
                assert!(left.contains(&"third"), "{what}: {left:?}");
                for name in &left {
                    assert!(same(&store.get(name).unwrap(), &content), "{what}: {name}");
                }
                match outcome {
                    Ok(gone) => assert_eq!(left.len() + gone.len(), 3, "{what}: {gone:?}"),
                    Err(_) => {
                        prune(&later(store)).unwrap_or_else(|e| panic!("{what}: {e}"));
                        assert!(!complete(&"first") && !complete(&"second"), "{what}");
                    }
                }
            },
        );
    }
}

/// Removes what dead runs have left.
fn gc(root: &Root) -> Result<usize, BackupError> {
    block_on(async {
        let found = xb_backup::find_orphaned(root, Duration::from_secs(86_400)).await?;
        for dead in &found.dead {
            xb_backup::remove(root, dead).await?;
        }
        xb_backup::abort_uploads(root, &found).await?;
        Ok(found.dead.len())
    })
}

#[test]
fn gc_removes_only_dead_objects() {
    // Without its manifest, an ended classic run looks like a stock backup, which stays.
    let shape = SMALL[0];
    let content = shape.2();
    with_every_failure(
        &no_retries(),
        |store| {
            put(&store.root, "dead", shape).unwrap();
            put(&store.root, "good", shape).unwrap();
            let root = store.folder.path().join("root");
            std::fs::remove_file(root.join(".xb-catalog/dead")).unwrap();
            for path in store.files() {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(200_000)).unwrap();
            }
        },
        gc,
        |store, what, outcome| {
            assert!(same(&store.get("good").unwrap(), &content), "{what}");
            if outcome.is_err() {
                gc(&later(store)).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            let dead = store.files_but_claims();
            let dead = dead.iter().find(|path| path.iter().any(|part| part == "dead"));
            assert!(dead.is_none(), "{what}: {dead:?}");
        },
    );
}
