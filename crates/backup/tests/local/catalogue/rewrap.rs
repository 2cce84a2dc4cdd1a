//! Two rewraps of one backup at the same time.

use xb_backup::{BackupError, KeySlots, RewrapRequest, rewrap};
use xb_uploader::Operation;

use super::support::{KEY, before, keys, name};
use crate::common::{Store, block_on, get_sealed, put_sealed};

/// Replaces all key slots by one for `new`.
fn replace(
    root: &xb_repo::root::Root,
    new: u8,
) -> Result<Vec<xb_encryptor::SlotInfo>, BackupError> {
    let request = RewrapRequest {
        name: name("n"),
        accept_unvouched: false,
        keys: keys(Some(KEY)),
        add: KeySlots::default().with_key(Some(key_bytes(new))),
        remove: None,
        memory: 64 << 20,
    };
    block_on(rewrap(root, &request))
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
        [(Operation::Get, 1), (Operation::Get, 3), (Operation::Put, 0), (Operation::Get, 4)]
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
