//! An interrupted restore is resumed where it stopped.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use xb_backup::{
    BackupError, GetRequest, KeySlots, Keys, PutLayout, PutRequest, RestoreOptions, RestoreReport,
    Selection,
};
use xb_encryptor::KeyBytes;
use xb_pipeline::{Durability, Transform};
use xb_reader::ChunkWriter;
use xb_repo::manifest::Layout;

use crate::common::*;

fn restore(
    store: &Store,
    target: &Path,
    (key, files): (bool, Selection),
) -> Result<RestoreReport, BackupError> {
    let key = key.then(|| KeyBytes::new(&[7; 32]).unwrap());
    let request = GetRequest { keys: Keys { key, ..Keys::default() }, files, ..request("n") };
    let how = RestoreOptions { sync: Durability::End, ..RestoreOptions::default() };
    block_on(xb_backup::restore(&session(&store.root), &request, target, how))
}

/// Store with one backup, and the backup's data objects.
fn put(request: &PutRequest, stream: &[u8]) -> (Store, Vec<PathBuf>) {
    let store = Store::new();
    let source = Cursor::new(stream.to_vec());
    block_on(xb_backup::put(&session(&store.root), request, source)).unwrap();
    let data = |path: &PathBuf| {
        let text = path.to_str().unwrap();
        text.contains("/n/") && !text.ends_with("claim") && !text.ends_with("keys")
    };
    let objects = store.files().into_iter().filter(data).collect();
    (store, objects)
}

#[test]
fn proven_files_are_not_fetched_again() {
    let (stream, files) = backup_stream();
    let sealed = KeySlots { key: Some(KeyBytes::new(&[7; 32]).unwrap()), ..KeySlots::default() };
    let cases = [
        ("plain", false, put_request("n", Layout::Packed, MIB as u64)),
        (
            "sealed",
            true,
            PutRequest {
                layout: PutLayout::Packed {
                    compress: "zstd:1".parse().unwrap(),
                    key_slots: sealed,
                },
                ..put_request("n", Layout::Packed, MIB as u64)
            },
        ),
        ("classic", false, put_request("n", Layout::Classic, MIB as u64)),
        (
            "file by file",
            false,
            PutRequest {
                layout: PutLayout::Classic {
                    fixed_size: false,
                    transform: Some(Transform {
                        compress: "lz4".parse::<xb_compressor::Algorithm>().unwrap().file_codec(),
                        encrypt: None,
                        threads: 2,
                    }),
                    md5: false,
                },
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
        // Each attempt gets a little further.
        while at < objects.len() {
            let good = std::fs::read(&objects[at]).unwrap();
            let mut bad = good.clone();
            let middle = bad.len() / 2;
            bad[middle] ^= 1;
            std::fs::write(&objects[at], bad).unwrap();
            let error = restore(&store, &target, (key, Selection::default())).unwrap_err();
            let found = matches!(error, BackupError::Damaged { .. } | BackupError::Restore { .. });
            assert!(found, "{what}: {error}");
            assert!(xb_backup::is_unfinished(&target).unwrap(), "{what}");
            std::fs::write(&objects[at], good).unwrap();
            at += objects.len() / 3;
        }
        let report = restore(&store, &target, (key, Selection::default())).unwrap();
        let resumed = report.resumed.unwrap();
        let before = resumed.bytes;
        assert!(before > 0, "{what}: {resumed:?}");
        // Proven data is not read again. Chunks are 2 MiB; some were in flight.
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
    // After a reboot, data that was not synced is restored again.
    let boot: serde_json::Value = serde_json::from_str(head).unwrap();
    let boot = boot["boot"].as_str().unwrap();
    std::fs::write(&journal, format!("{}\n{rest}", head.replace(boot, "another"))).unwrap();
    let report = restore(&store, &target, (false, Selection::default())).unwrap();
    assert_eq!(report.resumed.unwrap().files, 0);
    assert!(std::fs::read(&whole).unwrap() == content);
    assert!(!target.join(".xb-partial").exists());
}

/// A restore that stopped after three quarters of the objects, which are intact again.
fn interrupted(files: usize) -> (Store, tempfile::TempDir, PathBuf, Vec<(String, Vec<u8>)>) {
    let files: Vec<(String, Vec<u8>)> =
        (0..files).map(|n| (format!("shop/t{n}.ibd"), noise(n as u64, 5 * MIB + n))).collect();
    let mut writer = ChunkWriter::new(Vec::new());
    // Half of the files one by one, the others interleaved.
    let (first, mixed) = files.split_at(files.len() / 2);
    for (name, content) in first {
        for (n, piece) in content.chunks(2 * MIB).enumerate() {
            writer.payload(name, (n * 2 * MIB) as u64, piece).unwrap();
        }
        writer.end(name).unwrap();
    }
    for n in 0..3 {
        for (name, content) in mixed {
            let piece = content.chunks(2 * MIB).nth(n).unwrap();
            writer.payload(name, (n * 2 * MIB) as u64, piece).unwrap();
        }
    }
    mixed.iter().for_each(|(name, _)| writer.end(name).unwrap());
    writer.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    let stream = writer.finish().unwrap();
    let (store, objects) = put(&put_request("n", Layout::Packed, MIB as u64), &stream);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("t");
    let (broken, away) = (&objects[objects.len() * 3 / 4], folder.path().join("away"));
    std::fs::rename(broken, &away).unwrap();
    restore(&store, &target, (false, Selection::default())).unwrap_err();
    std::fs::rename(&away, broken).unwrap();
    (store, folder, target, files)
}

fn unfinished(target: &Path) -> Vec<PathBuf> {
    let kept = std::fs::read_dir(target.join(".xb-partial/restore")).unwrap();
    let kept = kept.map(|entry| entry.unwrap().path());
    let mut kept: Vec<_> =
        kept.filter(|path| !path.to_str().unwrap().contains("journal")).collect();
    kept.sort();
    kept
}

/// Zeroes a file, as a file system leaves it after a crash before the data was written.
fn zero(path: &Path) {
    let len = path.metadata().unwrap().len();
    std::fs::write(path, vec![0; usize::try_from(len).unwrap()]).unwrap();
}

#[test]
fn changed_files_are_fetched_again() {
    type Harm = fn(&Path, &[PathBuf]);
    let cases: [(&str, u64, Harm); 4] = [
        ("a whole file is zeros", 1, |target, _| zero(&target.join("shop/t1.ibd"))),
        ("what was begun is zeros", 3, |_, begun| begun.iter().for_each(|path| zero(path))),
        ("what was begun is short", 1, |_, begun| {
            std::fs::OpenOptions::new().write(true).open(&begun[0]).unwrap().set_len(0).unwrap();
        }),
        ("two are mixed up", 2, |target, _| {
            let (one, other) = (target.join("shop/t0.ibd"), target.join("shop/t1.ibd"));
            let (first, second) = (std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
            let cut = |bytes: &[u8], len: usize| [bytes, &[0; 2]].concat()[..len].to_vec();
            std::fs::write(&one, cut(&second, first.len())).unwrap();
            std::fs::write(&other, cut(&first, second.len())).unwrap();
        }),
    ];
    for (what, distrusted, harm) in cases {
        let (store, _folder, target, files) = interrupted(8);
        let begun = unfinished(&target);
        assert_eq!(begun.len(), 4, "{what}");
        harm(&target, &begun);
        let report = restore(&store, &target, (false, Selection::default())).unwrap();
        let resumed = report.resumed.unwrap();
        // The last file that was started may have no proven data.
        assert!(
            (distrusted..=begun.len() as u64).contains(&resumed.distrusted),
            "{what}: {resumed:?}"
        );
        assert!(resumed.files > 0, "{what}: {resumed:?}");
        let got = tree(&target);
        for (name, content) in &files {
            assert!(got[name.as_str()] == *content, "{what}: {name}");
        }
        assert_eq!(got.len(), files.len() + 1, "{what}");
    }
}

#[test]
fn after_another_mount_only_what_was_synced_counts_and_only_if_it_is_there() {
    let (store, _folder, target, files) = interrupted(8);
    let journal = target.join(".xb-partial/restore/journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let said: serde_json::Value = serde_json::from_str(head).unwrap();
    let mount = said["mount"].as_str().unwrap();
    assert!(!mount.is_empty());
    let head = head.replace(mount, "another") + "\n";
    // The first two lines of complete files are synced; one of these files was changed.
    let whole = rest.match_indices("whole ").nth(1).unwrap().0;
    let cut = whole + rest[whole..].find('\n').unwrap() + 1;
    let (synced, later) = rest.split_at(cut);
    let upto = head.len() + synced.len();
    let text = format!("{head}{synced}synced {upto}\n{later}");
    std::fs::write(&journal, text).unwrap();
    std::fs::write(target.join("shop/t1.ibd"), "short").unwrap();
    let report = restore(&store, &target, (false, Selection::default())).unwrap();
    let resumed = report.resumed.unwrap();
    assert_eq!((resumed.files, resumed.distrusted), (1, 1));
    let got = tree(&target);
    files.iter().for_each(|(name, content)| assert!(got[name.as_str()] == *content, "{name}"));
}
