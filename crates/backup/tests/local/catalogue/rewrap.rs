//! Two rewraps of one backup at the same time.

use xb_backup::{BackupError, CancelToken, KeySlots, RewrapRequest, rewrap};
use xb_repo::error::RepoError;
use xb_uploader::Operation;

use super::support::{KEY, before, copy_to, keys, name, unverified};
use crate::common::{Store, block_on, get_sealed, put_sealed};

/// Replaces all key slots by one for `new`.
fn replace(
    root: &xb_repo::root::Root,
    new: u8,
) -> Result<Vec<xb_encryptor::SlotInfo>, BackupError> {
    rewrap_with(root, KEY, new, &CancelToken::new())
}

/// The same for a backup that `key` opens.
fn rewrap_with(
    root: &xb_repo::root::Root,
    key: [u8; 32],
    new: u8,
    cancel: &CancelToken,
) -> Result<Vec<xb_encryptor::SlotInfo>, BackupError> {
    let request = RewrapRequest {
        name: name("n"),
        accept_unvouched: false,
        keys: keys(Some(key)),
        add: KeySlots { key: Some(key_bytes(new)), ..KeySlots::default() },
        remove: None,
        memory: 64 << 20,
    };
    block_on(rewrap(root, &request, cancel))
}

fn key_bytes(byte: u8) -> xb_encryptor::KeyBytes {
    xb_encryptor::KeyBytes::new(&[byte; 32]).unwrap()
}

/// A second rewrap, which had read the same key slots, writes right before a request of the first.
/// Whoever is told of success has its slots in the store, and the loser is told that it lost.
#[test]
fn of_two_rewraps_at_once_the_loser_is_told_that_it_lost() {
    let mut lost = 0;
    for (operation, n) in
        [(Operation::Get, 1), (Operation::Get, 4), (Operation::Put, 1), (Operation::Get, 5)]
    {
        let store = Store::new();
        put_sealed(&store, "n", &KEY).unwrap();
        let object = store.files().into_iter().find(|path| path.ends_with("keys")).unwrap();
        let old = std::fs::read(&object).unwrap();
        let _ = replace(&store.root, 8).unwrap();
        let other = std::fs::read(&object).unwrap();
        std::fs::write(&object, old).unwrap();
        let write = before(operation, n, move || std::fs::write(&object, &other).unwrap());
        let outcome = replace(&store.root.failing(std::sync::Arc::new(write)), 9);
        let opens = |byte| get_sealed(&store, "n", &[byte; 32]).is_ok();
        match outcome {
            Ok(_) => assert!(opens(9) && !opens(8), "{operation} {n}"),
            Err(error) => {
                assert!(opens(8) && !opens(9), "{operation} {n}");
                match error {
                    BackupError::Rewrapped { .. } => lost += 1,
                    // The key slots had been replaced before they were read for the first time.
                    BackupError::Keys(_) => assert_eq!((operation, n), (Operation::Get, 1)),
                    other => panic!("{operation} {n}: {other}"),
                }
            }
        }
    }
    assert_eq!(lost, 2, "before the comparison, and before it is read back");
}

/// Loses the answer to the put of the key slots, which follows that of the claim: the store has carried it
/// out, or will.
#[derive(Debug)]
struct SecondPutUnclear(std::sync::atomic::AtomicU32);

impl xb_uploader::Faults for SecondPutUnclear {
    fn next(&self, operation: Operation) -> Option<xb_uploader::Fault> {
        let second = operation == Operation::Put
            && self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
        second.then_some(xb_uploader::Fault::AnswerLost)
    }
}

/// Ends the command when it has sent the key slots, or right before.
#[derive(Debug)]
struct EndsAt(std::sync::atomic::AtomicU32, CancelToken);

impl xb_uploader::Faults for EndsAt {
    fn next(&self, operation: Operation) -> Option<xb_uploader::Fault> {
        let is_due = operation == Operation::Put
            && self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1;
        is_due.then(|| {
            self.1.cancel(15);
            xb_uploader::Fault::AnswerLost
        })
    }
}

/// Whoever throws the new key away after a signal may have lost the only one that opens the backup.
#[test]
fn a_signal_after_the_key_slots_were_sent_leaves_both_keys_in_doubt() {
    for (put, is_sent) in [(1, false), (2, true)] {
        let store = Store::new();
        put_sealed(&store, "n", &KEY).unwrap();
        let cancel = CancelToken::new();
        let ends = std::sync::Arc::new(EndsAt(put.into(), cancel.clone()));
        let error = rewrap_with(&store.root.failing(ends), KEY, 8, &cancel).unwrap_err();
        // The signal may overtake the request, whatever the command was told: that is the doubt.
        assert!(is_sent || get_sealed(&store, "n", &KEY).is_ok());
        match error {
            BackupError::MaybeRewrapped { source, .. } => {
                assert!(is_sent && matches!(*source, BackupError::Interrupted(15)), "{source}");
            }
            error => assert!(!is_sent && matches!(error, BackupError::Interrupted(15)), "{error}"),
        }
    }
}

/// A request that may arrive later would overwrite the key slots of the next rewrap.
#[test]
fn the_next_rewrap_does_not_begin_while_a_request_may_arrive() {
    let store = Store::new();
    put_sealed(&store, "n", &KEY).unwrap();
    let unclear = std::sync::Arc::new(SecondPutUnclear(0.into()));
    replace(&store.root.failing(unclear), 8).unwrap();
    assert!(get_sealed(&store, "n", &[8; 32]).is_ok());
    let next = rewrap_with(&store.root, [8; 32], 9, &CancelToken::new()).unwrap_err();
    assert!(matches!(next, BackupError::Repo(RepoError::Running { .. })), "{next}");
}

/// Neither may a request of the copy that made the backup.
#[test]
fn a_rewrap_of_a_copy_does_not_begin_while_a_request_of_the_copy_may_arrive() {
    let from = Store::new();
    put_sealed(&from, "n", &KEY).unwrap();
    for is_unclear in [true, false] {
        let to = Store::new();
        let unclear = std::sync::Arc::new(SecondPutUnclear(if is_unclear { 0 } else { 9 }.into()));
        let failing = to.root.failing(unclear);
        copy_to(&from, &failing, "n", unverified).unwrap();
        assert!(get_sealed(&to, "n", &KEY).is_ok());
        match replace(&to.root, 8) {
            Err(BackupError::Repo(RepoError::Running { .. })) => assert!(is_unclear),
            replaced => {
                replaced.unwrap();
                assert!(!is_unclear && get_sealed(&to, "n", &[8; 32]).is_ok());
            }
        }
    }
}

/// If the claim of the second rewrap were removed at its end, that of the first, which has slept since it
/// compared the key slots, would be the newest again.
#[test]
fn a_rewrap_that_has_slept_replaces_no_later_key_slots() {
    let store = Store::new();
    put_sealed(&store, "n", &KEY).unwrap();
    let claims = store.folder.path().join("root/.xb-catalog/@claims/n");
    let root = store.root.clone();
    // Right before it reads the key slots again, in order to compare them.
    let sleep = before(Operation::Get, 3, move || {
        let claim = std::fs::read_dir(&claims).unwrap().next().unwrap().unwrap().path();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        let file = std::fs::File::options().append(true).open(&claim).unwrap();
        file.set_modified(long_ago).unwrap();
        let root = root.clone();
        std::thread::spawn(move || replace(&root, 8).unwrap()).join().unwrap();
        let left: Vec<_> = std::fs::read_dir(&claims).unwrap().collect();
        assert!(left.len() == 1 && !claim.exists(), "the second claim stays: {left:?}");
    });
    assert!(replace(&store.root.failing(std::sync::Arc::new(sleep)), 9).is_err());
    assert!(get_sealed(&store, "n", &[8; 32]).is_ok());
}

/// `show` and `list --long` name the key slots that the store holds now, not those of the manifest.
#[test]
fn show_names_the_key_slots_that_are_stored() {
    let store = Store::new();
    put_sealed(&store, "n", &KEY).unwrap();
    let shown = || {
        let request = xb_backup::ShowRequest {
            name: name("n"),
            keys: keys(None),
            accept: xb_backup::Accept::default(),
            memory: 1 << 20,
        };
        block_on(xb_backup::show(&store.root, &request)).unwrap().listing
    };
    let before = shown().key_slots;
    let slots: Vec<String> =
        replace(&store.root, 9).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(shown().key_slots, slots);
    assert_ne!(before, slots);
    let mut listed = block_on(xb_repo::list::list(&store.root)).unwrap();
    assert_eq!(listed[0].key_slots, before);
    block_on(xb_backup::show_slots(&store.root, &mut listed)).unwrap();
    assert_eq!(listed[0].key_slots, slots);
    let object = store.files().into_iter().find(|path| path.ends_with("keys")).unwrap();
    std::fs::remove_file(object).unwrap();
    assert!(shown().problem.unwrap().contains("no key opens it"));
}
