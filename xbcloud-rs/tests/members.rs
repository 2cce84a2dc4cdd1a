//! Backups whose files were compressed and encrypted one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::path::Path;

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::stream::small_backup;
use xb_testkit::vectors;

fn run(args: &[&str], stdin: &[u8]) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

fn url(folder: &Path, name: &str) -> String {
    format!("file://{}/root/{name}", folder.display())
}

/// Stream, key and the plain files of the chains in the checkout.
fn chains() -> Vec<(String, Vec<u8>, Option<String>, BTreeMap<String, (u64, String)>)> {
    let list = String::from_utf8(vectors::read("pipeline/vectors.jsonl")).unwrap();
    list.lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = entry["file"].as_str().unwrap().to_owned();
            let plain = entry["plain"].as_object().unwrap().iter().map(|(name, facts)| {
                let sum = facts["sha256"].as_str().unwrap().to_owned();
                (name.clone(), (facts["size"].as_u64().unwrap(), sum))
            });
            let bytes = vectors::read(&format!("pipeline/{name}"));
            (name, bytes, entry["key"].as_str().map(Into::into), plain.collect())
        })
        .collect()
}

#[test]
fn restore_undoes_what_the_producer_did_in_both_layouts() {
    for (name, stream, key, plain) in chains() {
        for layout in ["classic", "packed"] {
            let folder = tempfile::tempdir().unwrap();
            let place = url(folder.path(), "n");
            let layout = format!("--layout={layout}");
            let _ = run(&["put", &layout, "--unsafe-any-end", &place], &stream).expect(0);
            let out = folder.path().join("out");
            let dir = format!("--target-dir={}", out.display());
            let key_file = folder.path().join("key");
            let key_option = format!("--encrypt-key-file={}", key_file.display());
            if let Some(key) = &key {
                std::fs::write(&key_file, key).unwrap();
                // Without the key: the first such file, and which option is wanted.
                let ran = run(&["restore", &dir, &place], b"").expect(1);
                let said = ran.stderr_text();
                assert!(said.contains(".xbcrypt: it is encrypted, and no key"), "{name}: {said}");
                assert!(said.contains("--encrypt-key-file"), "{said}");
                std::fs::remove_dir_all(&out).unwrap();
                let _ = run(&["restore", &key_option, &dir, &place], b"").expect(0);
                // As stored they need no key, and there must be none.
                let _ = run(&["get", &key_option, &place], b"").expect(1);
            } else {
                let _ = run(&["restore", &dir, &place], b"").expect(0);
            }
            assert_eq!(tree(&out), plain, "{name} {layout}");
            // Objects of a classic backup come file by file.
            if layout == "--layout=packed" {
                assert!(run(&["get", &place], b"").expect(0).stdout == stream);
            }
        }
    }
}

#[test]
fn a_sealed_backup_and_the_files_in_it_open_with_one_key() {
    let (_, stream, key, plain) =
        chains().into_iter().find(|(name, ..)| name.contains("lz4-aes256")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, key.unwrap()).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    let place = url(folder.path(), "n");
    let _ = run(&["put", &key, "--unsafe-any-end", &place], &stream).expect(0);
    let out = folder.path().join("out");
    let dir = format!("--target-dir={}", out.display());
    let _ = run(&["restore", &key, &dir, &place], b"").expect(0);
    assert_eq!(tree(&out), plain);
    // Kept compressed, on request.
    let out = folder.path().join("kept");
    let dir = format!("--target-dir={}", out.display());
    let _ = run(&["restore", "--no-decompress", &key, &dir, &place], b"").expect(0);
    assert!(out.join("golf/small.ibd.lz4").is_file());
}

#[test]
fn a_key_that_opens_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, [7; 16]).unwrap();
    let key = format!("--encrypt-key-file={}", key_file.display());
    let out = folder.path().join("out");
    let dir = format!("--target-dir={}", out.display());
    // Known from the names beforehand in one layout, and only at the end in the other.
    for (layout, made) in [("classic", false), ("packed", true)] {
        let place = url(folder.path(), layout);
        let option = format!("--layout={layout}");
        let _ = run(&["put", &option, &place], &small_backup(1, 5000)).expect(0);
        let ran = run(&["restore", &key, &dir, &place], b"").expect(1);
        assert!(ran.stderr_text().contains("none of its files is encrypted"), "{ran:?}");
        assert_eq!(out.join("xtrabackup_info").exists(), made);
    }
}
