//! `gc` finds and removes what dead runs have left, and nothing else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use xb_backup::{BackupError, GcFindings};
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

use crate::common::{Store, block_on, put_request, session, stream, stream_reader};

const DAY: Duration = Duration::from_secs(86_400);

/// Sets the modification time of a file to `by` ago.
fn age(path: &Path, by: Duration) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - by).unwrap();
}

fn age_all(store: &Store) {
    store.files().iter().for_each(|path| age(path, 2 * DAY));
}

fn find(store: &Store) -> GcFindings {
    block_on(xb_backup::find_orphaned(&store.root, DAY)).unwrap()
}

fn remove_all(store: &Store) {
    let found = find(store);
    for dead in &found.dead {
        block_on(xb_backup::remove(&store.root, dead)).unwrap();
    }
    block_on(xb_backup::abort_uploads(&store.root, &found)).unwrap();
    block_on(xb_backup::remove_measurements(&store.root, &found)).unwrap();
}

fn below(store: &Store, path: &str) -> PathBuf {
    store.folder.path().join("root").join(path)
}

/// A run that was killed before it wrote its manifest.
fn dead_run(store: &Store, name: &str) {
    store.put(name, Layout::Packed, 500, stream_reader()).unwrap();
    std::fs::remove_file(below(store, &format!(".xb-catalog/{name}"))).unwrap();
}

/// A cache that answers with what was there before.
#[test]
fn an_old_manifest_makes_no_checksum_list_a_useless_one() {
    for before in [Layout::Classic, Layout::Packed] {
        let store = Store::new();
        store.put("n", before, 500, stream_reader()).unwrap();
        let manifest = below(&store, ".xb-catalog/n");
        let old = std::fs::read(&manifest).unwrap();
        block_on(xb_backup::delete(&store.root, &BackupName::new("n").unwrap())).unwrap();
        store.put("n", Layout::Classic, 500, stream_reader()).unwrap();
        let present = std::fs::read(&manifest).unwrap();
        let lists = || std::fs::read_dir(below(&store, ".xb-catalog/@sums/n")).unwrap().count();
        assert_eq!(lists(), 1);
        std::fs::write(&manifest, &old).unwrap();
        age_all(&store);
        remove_all(&store);
        assert_eq!(lists(), 1, "{before:?}");
        // That of a dead run beside the backup's own goes.
        std::fs::write(&manifest, &present).unwrap();
        let dead = below(&store, &format!(".xb-catalog/@sums/n/{}", "0".repeat(32)));
        std::fs::write(dead, "").unwrap();
        age_all(&store);
        remove_all(&store);
        assert_eq!(lists(), 1, "{before:?}");
        assert!(crate::faults::same(&store.get("n").unwrap(), &stream()));
    }
}

#[test]
fn only_old_runs_without_a_manifest_go() {
    let store = Store::new();
    dead_run(&store, "n");
    dead_run(&store, "n");
    dead_run(&store, "other");
    age_all(&store);
    store.put("n", Layout::Packed, 700, stream_reader()).unwrap();
    let good = store.files().into_iter().filter(|p| p.to_str().unwrap().contains("/n/")).count();
    dead_run(&store, "young");
    let found = find(&store);
    let names: Vec<&str> = found.dead.iter().map(|dead| dead.name.as_str()).collect();
    assert_eq!(names, ["n", "n", "other"]);
    assert!(found.dead.iter().all(|dead| dead.objects > 2 && dead.bytes > 1000));
    let before = store.files().len();
    assert_eq!(store.files().len(), before, "looking changes nothing");
    remove_all(&store);
    assert!(find(&store).dead.is_empty());
    assert_eq!(store.get("n").unwrap(), stream());
    let left = store.files().into_iter().filter(|p| p.to_str().unwrap().contains("/n/")).count();
    assert!(left < good && left > 2);
    assert_eq!(store.state("young"), Some(State::Running), "it may still be going on");
    assert_eq!(store.state("other"), None);
    // A complete backup stays, however old it is.
    age_all(&store);
    remove_all(&store);
    assert_eq!(store.get("n").unwrap(), stream());
    assert_eq!(store.state("young"), None);
}

#[test]
fn objects_of_a_killed_measurement_go() {
    let store = Store::new();
    store.put("n", Layout::Packed, 700, stream_reader()).unwrap();
    let run = "0be3c127b562c689b4984278b99fc896";
    let [dead, young, foreign] = [format!("{run}/0"), format!("{run}/1"), "notes/0".to_owned()]
        .map(|name| below(&store, &format!(".xb-catalog/@tune/{name}")));
    for file in [&dead, &young, &foreign] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"random").unwrap();
    }
    age(&dead, 2 * DAY);
    age(&foreign, 2 * DAY);
    assert_eq!(find(&store).measurements, 1);
    remove_all(&store);
    assert_eq!([&dead, &young, &foreign].map(|file| file.exists()), [false, true, true]);
    assert_eq!(store.get("n").unwrap(), stream());
}

#[test]
fn a_run_whose_claim_is_fresh_is_alive_however_old_its_objects_are() {
    let store = Store::new();
    dead_run(&store, "n");
    age_all(&store);
    let claim = store.files().into_iter().find(|path| path.ends_with("claim")).unwrap();
    age(&claim, Duration::from_secs(1200));
    assert!(find(&store).dead.is_empty());
}

#[test]
fn nothing_of_a_name_whose_manifest_cannot_be_read_is_touched() {
    let store = Store::new();
    store.put("n", Layout::Packed, 500, stream_reader()).unwrap();
    let manifest = below(&store, ".xb-catalog/n");
    let good = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &good[..good.len() / 2]).unwrap();
    age_all(&store);
    let found = find(&store);
    assert!(found.dead.is_empty());
    assert_eq!(found.unclear.len(), 1);
    std::fs::write(&manifest, good).unwrap();
    assert_eq!(store.get("n").unwrap(), stream());
}

#[test]
fn classic_orphaned_objects_go_with_their_claim_and_stock_backups_stay() {
    let store = Store::new();
    for name in ["stock", "dead", "good"] {
        store.put(name, Layout::Classic, 500, stream_reader()).unwrap();
    }
    std::fs::remove_file(below(&store, ".xb-catalog/stock")).unwrap();
    std::fs::remove_file(below(&store, ".xb-catalog/dead")).unwrap();
    for name in ["dead", "good"] {
        let claims = below(&store, &format!(".xb-catalog/@claims/{name}"));
        std::fs::create_dir_all(&claims).unwrap();
        std::fs::write(claims.join("000001"), "{}").unwrap();
    }
    assert!(find(&store).dead.is_empty());
    age_all(&store);
    let whole = store.get("good").unwrap();
    let found = find(&store);
    let of = |name: &str| found.dead.iter().find(|dead| dead.name == name);
    assert!(of("dead").unwrap().objects > 2);
    assert_eq!(of("good").unwrap().objects, 0, "only a claim");
    assert!(of("stock").is_none());
    remove_all(&store);
    assert_eq!(store.state("stock"), Some(State::StockUnproven));
    assert_eq!(store.state("dead"), None);
    assert_eq!(store.get("good").unwrap(), whole);
    assert!(find(&store).dead.is_empty());
}

#[test]
fn checksum_lists_of_dead_runs_go() {
    let store = Store::new();
    let lists = |store: &Store| {
        let all = store.files().into_iter();
        all.filter(|path| path.iter().any(|part| part == "@sums")).collect::<Vec<_>>()
    };
    // Killed between its list and its manifest.
    for name in ["killed", "cleared", "good"] {
        store.put(name, Layout::Classic, 500, stream_reader()).unwrap();
    }
    for name in ["killed", "cleared"] {
        std::fs::remove_file(below(&store, &format!(".xb-catalog/{name}"))).unwrap();
        let claims = below(&store, &format!(".xb-catalog/@claims/{name}"));
        std::fs::write(claims.join("000001"), "{}").unwrap();
    }
    // By hand, or by a removal that was interrupted: its objects and its claim are gone already.
    std::fs::remove_dir_all(below(&store, "cleared")).unwrap();
    std::fs::remove_dir_all(below(&store, ".xb-catalog/@claims/cleared")).unwrap();
    // A list that an earlier run of a complete backup's name left.
    let earlier = below(&store, ".xb-catalog/@sums/good").join("0".repeat(32));
    std::fs::write(&earlier, "{}").unwrap();
    let before = lists(&store);
    remove_all(&store);
    assert_eq!(lists(&store), before, "young ones stay");
    age_all(&store);
    remove_all(&store);
    remove_all(&store);
    assert!(find(&store).dead.is_empty());
    let left = lists(&store);
    assert!(left.len() == 1 && left[0].starts_with(below(&store, ".xb-catalog/@sums/good")));
    assert_ne!(left[0], earlier);
    assert!(!store.get("good").unwrap().is_empty());
    assert_eq!((store.state("killed"), store.state("cleared")), (None, None));
}

#[test]
fn files_that_were_never_finished_go_unless_their_run_lives() {
    let store = Store::new();
    for name in ["dead", "alive", "good"] {
        store.put(name, Layout::Packed, 500, stream_reader()).unwrap();
        let run = std::fs::read_dir(below(&store, name)).unwrap().next().unwrap().unwrap();
        std::fs::write(run.path().join("000000099#1"), "half an object").unwrap();
    }
    // An unfinished manifest, and a file that is not ours.
    std::fs::write(below(&store, ".xb-catalog/dead#1"), "half a manifest").unwrap();
    std::fs::create_dir_all(below(&store, "work")).unwrap();
    std::fs::write(below(&store, "work/invoice#7"), "precious").unwrap();
    for name in ["dead", "alive"] {
        std::fs::remove_file(below(&store, &format!(".xb-catalog/{name}"))).unwrap();
    }
    assert_eq!(find(&store).uploads, 0, "young ones may still grow");
    age_all(&store);
    let run = std::fs::read_dir(below(&store, "alive")).unwrap().next().unwrap().unwrap();
    age(&run.path().join("claim"), Duration::ZERO);
    let found = find(&store);
    assert_eq!((found.dead.len(), found.uploads), (1, 3));
    remove_all(&store);
    let left: Vec<PathBuf> = store.files();
    let half = |name: &str| {
        left.iter()
            .any(|path| path.ends_with("000000099#1") && path.starts_with(below(&store, name)))
    };
    assert!(half("alive") && !half("good") && !half("dead"));
    assert!(!below(&store, ".xb-catalog/dead#1").exists());
    assert!(below(&store, "work/invoice#7").exists());
    assert_eq!(store.get("good").unwrap(), stream());
}

/// A run of ours died right after its claim; later another tool stored a backup of that name.
#[test]
fn objects_long_after_a_dead_claim_are_foreign() {
    let store = Store::new();
    store.put("n", Layout::Classic, 500, stream_reader()).unwrap();
    std::fs::remove_file(below(&store, ".xb-catalog/n")).unwrap();
    let claims = below(&store, ".xb-catalog/@claims/n");
    std::fs::create_dir_all(&claims).unwrap();
    std::fs::write(claims.join("000001"), "{}").unwrap();
    age_all(&store);
    age(&claims.join("000001"), 3 * DAY);
    let before = store.get("n").unwrap();
    let refused = store.put("n", Layout::Classic, 500, stream_reader());
    assert!(
        matches!(refused, Err(xb_backup::BackupError::Repo(RepoError::Exists { .. }))),
        "{refused:?}"
    );
    remove_all(&store);
    assert_eq!(store.get("n").unwrap(), before);
}

#[test]
fn a_run_that_lives_again_or_has_become_a_backup_is_left_alone() {
    let store = Store::new();
    store.put("n", Layout::Packed, 500, stream_reader()).unwrap();
    let manifest = below(&store, ".xb-catalog/n");
    let good = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    age_all(&store);
    let mut found = find(&store);
    assert_eq!(found.dead.len(), 1);
    let before = store.files();
    // A copy resumes it.
    let claim = before.iter().find(|path| path.ends_with("claim")).unwrap();
    age(claim, Duration::ZERO);
    assert!(!block_on(xb_backup::remove(&store.root, &found.dead[0])).unwrap());
    assert_eq!(store.files(), before);
    // The copy completes it. Its claim is not later than when it was found dead, however long this takes.
    store.files().iter().for_each(|path| age(path, 3 * DAY));
    std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
    std::fs::write(&manifest, good).unwrap();
    assert!(!block_on(xb_backup::remove(&store.root, &found.dead[0])).unwrap());
    assert_eq!(store.get("n").unwrap(), stream());
    std::fs::remove_file(&manifest).unwrap();
    assert!(block_on(xb_backup::remove(&store.root, &found.dead[0])).unwrap());
    assert!(store.files().is_empty());
    // Backups that were left alone are not reported as removed.
    let left = block_on(xb_backup::remove_all(&store.root, &mut found)).unwrap();
    assert_eq!((left.len(), found.dead.len()), (0, 1));
    dead_run(&store, "n");
    age_all(&store);
    let mut found = find(&store);
    age(&store.files().into_iter().find(|path| path.ends_with("claim")).unwrap(), Duration::ZERO);
    let left = block_on(xb_backup::remove_all(&store.root, &mut found)).unwrap();
    assert_eq!((left.len(), found.dead.len()), (1, 0));
}

/// A run that sleeps while another host's `gc` looks, or removes: when it has stored its objects, and right before its
/// manifest.
#[derive(Debug)]
struct SuspendedRun {
    root: Root,
    folder: PathBuf,
    /// Whether `gc` has looked before the run slept, as opposed to right before the manifest.
    has_looked: bool,
    found: Mutex<Option<GcFindings>>,
}

impl SuspendedRun {
    fn objects(&self) -> Vec<PathBuf> {
        let runs = std::fs::read_dir(self.folder.join("n")).into_iter().flatten().flatten();
        let objects = runs.flat_map(|run| std::fs::read_dir(run.path()).into_iter().flatten());
        objects.map(|object| object.unwrap().path()).collect()
    }

    fn find(&self) -> GcFindings {
        self.objects().iter().for_each(|path| age(path, 2 * DAY));
        block_on(xb_backup::find_orphaned(&self.root, DAY)).unwrap()
    }

    fn act(&self, operation: Operation) {
        let mut found = self.found.lock().unwrap();
        match (operation, found.take()) {
            // The lists of what is already there come first.
            (Operation::List, None) if self.objects().len() > 2 => {
                *found = Some(if self.has_looked { self.find() } else { GcFindings::default() });
            }
            (Operation::Create, Some(mut all)) => {
                if !self.has_looked {
                    all = self.find();
                }
                assert_eq!(all.dead.len(), 1);
                let removed = block_on(xb_backup::remove(&self.root, &all.dead[0])).unwrap();
                assert_eq!(removed, !self.has_looked, "it has shown that it lives");
            }
            (_, before) => *found = before,
        }
    }
}

impl Faults for SuspendedRun {
    fn next(&self, operation: Operation) -> Option<Fault> {
        std::thread::scope(|scope| scope.spawn(|| self.act(operation)).join().unwrap());
        None
    }
}

/// ROOT of the store, without long pauses between listings that lack objects.
fn impatient(store: &Store) -> Root {
    let path =
        store.folder.path().join("root").to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let policy = Policy::default().with_max_backoff(Duration::from_millis(1));
    Root::open(&location, &StoreSettings::default(), policy, true).unwrap()
}

#[test]
fn no_run_that_slept_is_a_backup_without_objects() {
    for has_looked in [true, false] {
        let store = Store::new();
        let (root, folder) = (store.root.clone(), store.folder.path().join("root"));
        let asleep = Arc::new(SuspendedRun { root, folder, has_looked, found: Mutex::default() });
        let root = impatient(&store).failing(Arc::clone(&asleep) as Arc<dyn Faults>);
        let request = put_request("n", Layout::Packed, 500);
        let outcome = block_on(xb_backup::put(&session(&root), &request, stream_reader()));
        match has_looked {
            true => assert_eq!(store.get("n").unwrap(), stream()),
            false => {
                let gone = matches!(outcome, Err(BackupError::Damaged { .. }));
                assert!(gone, "{outcome:?}");
                assert_eq!((store.state("n"), asleep.objects()), (None, Vec::new()));
            }
        }
    }
}
