//! A restore that was interrupted goes on where it stood.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod common;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use common::*;
use xb_backup::{
    BackupError, GetRequest, Keys, Layout, PutRequest, RestoreOptions, RestoreReport, Selection,
    WaysIn, stopper,
};
use xb_encryptor::KeyBytes;
use xb_pipeline::{Durability, Observer, Transform};

fn restore(
    store: &Store,
    target: &Path,
    (key, files): (bool, Selection),
) -> Result<RestoreReport, BackupError> {
    let (_stopper, mut stop) = stopper();
    let key = key.then(|| KeyBytes::new(&[7; 32]).unwrap());
    let request = GetRequest { keys: Keys { key, ..Keys::default() }, files, ..request("n") };
    let how = RestoreOptions { durability: Durability::End, decompress: true, check_room: true };
    let observer = Observer::default();
    block_on(xb_backup::restore(&store.root, &request, target, how, &observer, &mut stop))
}

/// A store with one backup, and its data objects.
fn put(request: &PutRequest, stream: &[u8]) -> (Store, Vec<PathBuf>) {
    let store = Store::new();
    let (_stopper, mut stop) = stopper();
    let observer = Observer::default();
    let source = Cursor::new(stream.to_vec());
    block_on(xb_backup::put(&store.root, request, source, &observer, &mut stop)).unwrap();
    let data = |path: &PathBuf| {
        let text = path.to_str().unwrap();
        text.contains("/n/") && !text.ends_with("claim") && !text.ends_with("keys")
    };
    let objects = store.files().into_iter().filter(data).collect();
    (store, objects)
}

#[test]
fn what_is_proven_is_not_fetched_again() {
    let (stream, files) = backup_stream();
    let sealed = WaysIn { key: Some(KeyBytes::new(&[7; 32]).unwrap()), ..WaysIn::default() };
    let cases = [
        ("plain", false, put_request("n", Layout::Packed, MIB as u64)),
        (
            "sealed",
            true,
            PutRequest {
                ways_in: sealed,
                compress: "zstd:1".parse().unwrap(),
                ..put_request("n", Layout::Packed, MIB as u64)
            },
        ),
        ("classic", false, put_request("n", Layout::Classic, MIB as u64)),
        (
            "file by file",
            false,
            PutRequest {
                transform: Some(Transform {
                    compress: "lz4".parse::<xb_compressor::Algorithm>().unwrap().member_codec(),
                    encrypt: None,
                    threads: 2,
                }),
                ..put_request("n", Layout::Classic, MIB as u64)
            },
        ),
    ];
    for (what, key, request) in cases {
        let (store, objects) = put(&request, &stream);
        let total: u64 = objects.iter().map(|path| path.metadata().unwrap().len()).sum();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        let mut at = objects.len() / 4;
        // Again and again a little further.
        while at < objects.len() {
            let good = std::fs::read(&objects[at]).unwrap();
            let mut bad = good.clone();
            let middle = bad.len() / 2;
            bad[middle] ^= 1;
            std::fs::write(&objects[at], bad).unwrap();
            let error = restore(&store, &target, (key, Selection::default())).unwrap_err();
            let found = matches!(error, BackupError::Damaged { .. } | BackupError::Restore { .. });
            assert!(found, "{what}: {error}");
            assert!(xb_backup::is_unfinished(&target), "{what}");
            std::fs::write(&objects[at], good).unwrap();
            at += objects.len() / 3;
        }
        let report = restore(&store, &target, (key, Selection::default())).unwrap();
        let went_on = report.went_on.unwrap();
        let before = went_on.bytes;
        assert!(before > 0, "{what}: {went_on:?}");
        // What was proven is not read again. Chunks are 2 MiB; some were on their way.
        let read = report.get.stored_bytes;
        let wanted = stream.len() as u64 - before.min(stream.len() as u64);
        assert!(
            read < total && read <= wanted + 12 * MIB as u64,
            "{what}: {read} of {total}, {before} were there"
        );
        assert_eq!(report.files, files.len() as u64 + 2, "{what}");
        let got = tree(&target);
        for (name, content) in &files {
            assert!(got[*name] == *content, "{what}: {name}");
        }
        assert_eq!(got.len(), files.len() + 2, "{what}: {:?}", got.keys());
        assert!(!target.join(".xb-partial").exists(), "{what}");
        let again = restore(&store, &target, (key, Selection::default())).unwrap_err();
        assert!(again.to_string().contains("not empty"), "{again}");
    }
}

#[test]
fn only_the_same_restore_goes_on_and_nothing_of_others_is_touched() {
    let (stream, _) = backup_stream();
    let (store, objects) = put(&put_request("n", Layout::Packed, MIB as u64), &stream);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("t");
    let away = folder.path().join("away");
    let broken = objects.len() * 3 / 4;
    std::fs::rename(&objects[broken], &away).unwrap();
    restore(&store, &target, (false, Selection::default())).unwrap_err();
    std::fs::rename(&away, &objects[broken]).unwrap();
    let refused = |expected: &str| {
        let before = tree(&target);
        let error =
            restore(&store, &target, (false, Selection::default())).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(before == tree(&target));
    };
    let globs = Selection::globs(&["shop/*".to_owned()]).unwrap();
    let error = restore(&store, &target, (false, globs)).unwrap_err().to_string();
    assert!(error.contains("other options"), "{error}");

    std::fs::write(target.join("foreign"), "x").unwrap();
    refused("foreign");
    std::fs::remove_file(target.join("foreign")).unwrap();
    let whole = target.join("shop/t.ibd");
    let content = std::fs::read(&whole).unwrap();
    std::fs::write(&whole, "short").unwrap();
    refused("was changed");
    std::fs::write(&whole, &content).unwrap();

    // Another backup of the same name.
    let journal = target.join(".xb-partial/restore/journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let run: serde_json::Value = serde_json::from_str(head).unwrap();
    let run = run["about"]["run"].as_str().unwrap();
    std::fs::write(&journal, format!("{}\n{rest}", head.replace(run, &"0".repeat(32)))).unwrap();
    refused("unfinished restore of n");
    // After a reboot what was not synced is made again.
    let boot: serde_json::Value = serde_json::from_str(head).unwrap();
    let boot = boot["boot"].as_str().unwrap();
    std::fs::write(&journal, format!("{}\n{rest}", head.replace(boot, "another"))).unwrap();
    let report = restore(&store, &target, (false, Selection::default())).unwrap();
    assert_eq!(report.went_on.unwrap().files, 0);
    assert!(std::fs::read(&whole).unwrap() == content);
    assert!(!target.join(".xb-partial").exists());
}
