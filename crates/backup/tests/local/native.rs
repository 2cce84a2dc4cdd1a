//! Input that is a native stream or raw bytes, and backups with several key slots.

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use serde_json::json;
use xb_backup::{
    Accept, BackupError, CancelToken, GetRequest, KeySlots, Keys, PutLayout, PutReport, PutRequest,
    RewrapRequest, rewrap,
};
use xb_compressor::Compression;
use xb_encryptor::KeyBytes;
use xb_frame::{StreamHeader, StreamId};
use xb_pipeline::{
    Budget, Content, EndRule, NativeStream, ObjectLayout, ObjectSize, Observer, PackPlan,
    PackSettings, PackSizing, Part, PartLimits, XbstreamInput, start_pack,
};
use xb_reader::Dialect;
use xb_repo::manifest::{End, Layout};
use xb_repo::names::BackupName;
use xb_testkit::clone::MadeClone;

use crate::common::{
    Collected, Store, block_on, get_sealed, put_request, put_sealed, request, session, stream,
    stream_reader,
};

const KEY: [u8; 32] = [7; 32];

/// The backup as a native file.
fn as_stored(store: &Store, name: &str) -> Result<Vec<u8>, BackupError> {
    let request = GetRequest { as_stored: true, ..request(name) };
    let in_session = session(&store.root);
    let run = xb_backup::get(&in_session, &request, Collected::default());
    block_on(run).map(|(_, Collected(bytes))| bytes)
}

fn put(store: &Store, request: &PutRequest, input: Vec<u8>) -> Result<PutReport, BackupError> {
    let input = Cursor::new(input);
    block_on(xb_backup::put(&session(&store.root), request, input))
}

/// A plain and a sealed backup in the store, both as native files.
fn native_files(store: &Store) -> [Vec<u8>; 2] {
    store.put("plain", Layout::Packed, 500, stream_reader()).unwrap();
    put_sealed(store, "sealed", &KEY).unwrap();
    [as_stored(store, "plain").unwrap(), as_stored(store, "sealed").unwrap()]
}

fn content(store: &Store, name: &str, sealed: bool) -> Result<Vec<u8>, BackupError> {
    if !sealed {
        return store.get(name);
    }
    let keys = Keys { key: Some(KeyBytes::new(&KEY).unwrap()), ..Keys::default() };
    let accept = Accept { unvouched: true, ..Accept::default() };
    let request = GetRequest { keys, accept, ..request(name) };
    let in_session = session(&store.root);
    let run = xb_backup::get(&in_session, &request, Collected::default());
    block_on(run).map(|(_, Collected(bytes))| bytes)
}

/// A stream as one native stream that is not sealed.
fn framed(stream: Vec<u8>) -> Vec<u8> {
    let limits =
        PartLimits { min: 1, max: u64::MAX, count: u64::MAX, object: u64::MAX, equal: false };
    let sizing = PackSizing {
        memory: 128 << 20,
        codec_memory: 0,
        object_size: ObjectSize::new(16 << 20),
        threads: 2,
        parallel: 1,
        limits,
    };
    let plan = PackPlan::new(sizing).unwrap();
    let input = XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto };
    let frames = NativeStream::plain(StreamHeader::new(StreamId([7; 16])));
    let layout = ObjectLayout::Packed { content: Content::Xbstream(input), stream: frames };
    let (budget, written) = (Budget::new(plan.memory), Arc::new(Mutex::new(Vec::new())));
    let to = Arc::clone(&written);
    let sink = move |part: Part| {
        to.lock().unwrap().extend(part.payload.concat());
        Ok(())
    };
    let settings = PackSettings { plan, layout };
    let source = Cursor::new(stream);
    start_pack(source, settings, &budget, &Observer::default(), sink).unwrap().join().unwrap();
    std::mem::take(&mut *written.lock().unwrap())
}

#[test]
fn a_clone_in_a_native_stream_is_stored_in_clear_only_if_it_has_no_keys() {
    let store = Store::new();
    for (name, has_keys, is_stored) in
        [("a", json!(false), true), ("b", json!(true), false), ("c", json!(null), false)]
    {
        let mut clone = MadeClone::new(false);
        clone.info["has_keys"] = has_keys;
        let stored = put(&store, &put_request(name, Layout::Packed, 65536), framed(clone.stream()));
        match stored {
            Ok(_) => assert!(is_stored, "{name}"),
            Err(error) => {
                assert!(!is_stored && matches!(error, BackupError::ClearKeys(_)), "{name}: {error}")
            }
        }
    }
}

/// A manifest must not lose its authentication by claiming that it never had one.
#[test]
fn an_unvouched_manifest_is_not_taken_by_itself() {
    let store = Store::new();
    let [_, sealed] = native_files(&store);
    put(&store, &put_request("n", Layout::Packed, 333), sealed).unwrap();
    let refused = get_sealed(&store, "n", &KEY);
    assert!(matches!(refused, Err(BackupError::Unvouched { .. })), "{refused:?}");
    assert_eq!(content(&store, "n", true).unwrap(), stream());
}

#[test]
fn a_native_file_is_stored_as_it_is_in_objects_of_the_size_asked_for() {
    let store = Store::new();
    for (native, sealed) in native_files(&store).into_iter().zip([false, true]) {
        for chunk in [1, 333, 1 << 20] {
            let name = format!("n{chunk}-{sealed}");
            let request = put_request(&name, Layout::Packed, chunk);
            let report = put(&store, &request, native.clone()).unwrap();
            let manifest = report.manifest;
            assert_eq!(manifest.end, End::NativeTrailer);
            assert_eq!(manifest.objects, manifest.stored_bytes.div_ceil(chunk));
            assert_eq!(as_stored(&store, &name).unwrap(), native);
            assert_eq!(content(&store, &name, sealed).unwrap(), stream());
            if sealed {
                assert!(matches!(get_sealed(&store, &name, &[8; 32]), Err(BackupError::Keys(_))));
                assert!(matches!(store.get(&name), Err(BackupError::Keys(_))), "no key at all");
            }
        }
        let target = store.folder.path().join("out");
        if !sealed {
            assert_eq!(store.restore("n333-false", &target).unwrap(), 3);
        }
    }
}

/// A sealed stream cannot be inspected without a key, so both its ends must be present.
#[test]
fn a_native_file_that_was_cut_is_never_a_backup() {
    let store = Store::new();
    for (native, sealed) in native_files(&store).into_iter().zip([false, true]) {
        let before = store.files();
        let request = put_request("n", Layout::Packed, 333);
        for cut in (8..native.len()).step_by(3) {
            assert!(put(&store, &request, native[..cut].to_vec()).is_err(), "cut at {cut}");
        }
        assert!(put(&store, &request, [&native[..], b"x"].concat()).is_err(), "more follows");
        for at in (0..native.len()).step_by(3) {
            let mut bad = native.clone();
            bad[at] ^= 1 << (at % 8);
            match put(&store, &request, bad) {
                Err(_) => {}
                // Faults that only the key can show are reported once the key is given.
                Ok(_) => {
                    assert!(sealed && content(&store, "n", sealed).is_err(), "byte {at}");
                    let name = BackupName::new("n").unwrap();
                    block_on(xb_backup::delete(&store.root, &name)).unwrap();
                }
            }
        }
        assert_eq!(store.files(), before, "nothing is left behind");
    }
}

#[test]
fn a_native_file_is_not_transformed_again() {
    let store = Store::new();
    let [plain, sealed] = native_files(&store);
    let key = || KeySlots { key: Some(KeyBytes::new(&KEY).unwrap()), ..KeySlots::default() };
    for native in [plain, sealed] {
        let asked = put_request("n", Layout::Packed, 333);
        for request in [
            PutRequest {
                layout: PutLayout::Packed {
                    compress: "lz4".parse().unwrap(),
                    key_slots: KeySlots::default(),
                },
                ..put_request("n", Layout::Packed, 333)
            },
            PutRequest {
                layout: PutLayout::Packed { compress: Compression::default(), key_slots: key() },
                ..asked
            },
            put_request("n", Layout::Classic, 333),
        ] {
            let refused = put(&store, &request, native.clone());
            assert!(matches!(refused, Err(BackupError::Input(_))), "{refused:?}");
        }
    }
}

#[test]
fn raw_input_comes_back_and_nothing_else_is_taken_for_a_stream() {
    let store = Store::new();
    let raw = || Content::Raw;
    for input in [b"any bytes at all".to_vec(), stream(), vec![0; 3 << 20]] {
        let request = PutRequest { content: raw(), ..put_request("n", Layout::Packed, 1 << 20) };
        let report = put(&store, &request, input.clone()).unwrap();
        assert_eq!(report.manifest.end, End::Raw);
        assert_eq!(store.get("n").unwrap(), input);
        let target = store.folder.path().join("out");
        assert!(store.restore("n", &target).unwrap_err().to_string().contains("--raw"));
        assert!(!target.exists());
        block_on(xb_backup::delete(&store.root, &BackupName::new("n").unwrap())).unwrap();
    }
    let empty = PutRequest { content: raw(), ..put_request("n", Layout::Packed, 1 << 20) };
    assert!(put(&store, &empty, Vec::new()).is_err(), "a dead producer's nothing");
    let refused = put(&store, &put_request("n", Layout::Packed, 500), b"-- MariaDB dump".to_vec());
    assert!(matches!(&refused, Err(BackupError::Input(what)) if what.contains("-- Maria")));
    assert_eq!(store.files().len(), 0);
}

#[test]
fn new_key_slots_move_no_data() {
    let store = Store::new();
    put_sealed(&store, "n", &KEY).unwrap();
    let key = |bytes: &[u8; 32]| Some(KeyBytes::new(bytes).unwrap());
    let change = |old: &[u8; 32], new: Option<&[u8; 32]>, remove: Option<Vec<usize>>| {
        let request = RewrapRequest {
            name: BackupName::new("n").unwrap(),
            accept_unvouched: false,
            keys: Keys { key: key(old), ..Keys::default() },
            add: KeySlots { key: new.and_then(key), ..KeySlots::default() },
            remove,
            memory: 64 << 20,
        };
        block_on(rewrap(&store.root, &request, &CancelToken::new()))
    };
    let before = objects(&store);
    assert!(change(&[9; 32], Some(&[8; 32]), None).is_err(), "who cannot open it changes nothing");
    assert_eq!(objects(&store), before);
    // Adds a slot.
    assert_eq!(change(&KEY, Some(&[8; 32]), Some(Vec::new())).unwrap().len(), 2);
    for good in [&KEY, &[8; 32]] {
        assert_eq!(get_sealed(&store, "n", good).unwrap(), stream());
    }
    // Removes the old slot.
    assert_eq!(change(&[8; 32], None, Some(vec![0])).unwrap().len(), 1);
    assert!(matches!(get_sealed(&store, "n", &KEY), Err(BackupError::Keys(_))));
    // The last slot cannot be removed.
    assert!(change(&[8; 32], None, None).is_err());
    assert!(change(&[8; 32], None, Some(vec![5])).is_err(), "there is none of that number");
    // Replaces all slots.
    assert_eq!(change(&[8; 32], Some(&[6; 32]), None).unwrap().len(), 1);
    assert_eq!(get_sealed(&store, "n", &[6; 32]).unwrap(), stream());
    let data = |all: &[(String, Vec<u8>)]| -> Vec<_> {
        all.iter().filter(|(name, _)| !name.ends_with("/keys")).cloned().collect()
    };
    assert_eq!(data(&objects(&store)), data(&before));
    // An unsealed backup has no key slots.
    store.put("plain", Layout::Packed, 500, stream_reader()).unwrap();
    let request = RewrapRequest {
        name: BackupName::new("plain").unwrap(),
        accept_unvouched: false,
        keys: Keys { key: key(&KEY), ..Keys::default() },
        add: KeySlots::default(),
        remove: None,
        memory: 64 << 20,
    };
    assert!(matches!(
        block_on(rewrap(&store.root, &request, &CancelToken::new())),
        Err(BackupError::Keys(_))
    ));
}

fn objects(store: &Store) -> Vec<(String, Vec<u8>)> {
    let named = |path: &std::path::PathBuf| path.to_str().unwrap().to_owned();
    store
        .files_but_claims()
        .iter()
        .map(|path| (named(path), std::fs::read(path).unwrap()))
        .collect()
}
