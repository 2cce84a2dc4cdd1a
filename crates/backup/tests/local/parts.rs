//! Reads single files of a packed backup without reading the rest.

use std::io::Cursor;

use sha2::{Digest, Sha256};
use xb_backup::{GetReport, GetRequest, KeySlots, Keys, PutLayout, PutRequest, Selection};
use xb_encryptor::KeyBytes;
use xb_repo::manifest::Layout;

use crate::common::*;

fn get_files(
    store: &Store,
    name: &str,
    keys: Keys,
    files: Selection,
) -> Result<(GetReport, Vec<u8>), xb_backup::BackupError> {
    let request = GetRequest { files, keys, ..request(name) };
    let in_session = session(&store.root);
    let run = xb_backup::get(&in_session, &request, Collected::default());
    block_on(run).map(|(report, Collected(bytes))| (report, bytes))
}

fn globs(patterns: &[&str]) -> Selection {
    let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
    Selection::globs(&patterns).unwrap()
}

#[test]
fn one_table_costs_little_more_than_its_bytes() {
    let store = Store::new();
    let (stream, files) = backup_stream();
    let key = || Keys { key: Some(KeyBytes::new(&[7; 32]).unwrap()), ..Keys::default() };
    for (name, sealed, compress) in
        [("plain", false, "none"), ("zstd", false, "zstd:1"), ("sealed", true, "lz4")]
    {
        let key_slots = KeySlots {
            key: sealed.then(|| KeyBytes::new(&[7; 32]).unwrap()),
            ..KeySlots::default()
        };
        let request = PutRequest {
            layout: PutLayout::Packed { compress: compress.parse().unwrap(), key_slots },
            ..put_request(name, Layout::Packed, 5 * MIB as u64 + 11)
        };
        let source = Cursor::new(stream.clone());
        block_on(xb_backup::put(&session(&store.root), &request, source)).unwrap();
        let keys = || if sealed { key() } else { Keys::default() };

        let (report, got) = get_files(&store, name, keys(), globs(&["shop/*"])).unwrap();
        let got = unpacked(&got);
        let names: Vec<_> = got.keys().map(String::as_str).collect();
        assert_eq!(names, ["shop/empty.MYD", "shop/t.frm", "shop/t.ibd"], "{name}");
        assert!(
            got["shop/t.ibd"] == files["shop/t.ibd"] && got["shop/t.frm"] == files["shop/t.frm"]
        );
        let chosen = report.chosen.unwrap();
        assert_eq!((chosen.files, chosen.needed_files), (3, 0));
        // Two runs of frames; the 1 MiB frames at their ends also hold data of neighbouring files.
        let (bytes, read) = (chosen.bytes, report.stored_bytes);
        assert!(read >= bytes && read <= bytes + 6 * MIB as u64, "{name}: {read} for {bytes}");

        let prepared = globs(&["shop/t.ibd"]).with_what_prepare_needs(true);
        let (report, got) = get_files(&store, name, keys(), prepared).unwrap();
        let names: Vec<_> = unpacked(&got).into_keys().collect();
        let all =
            ["ibdata1", "shop/t.frm", "shop/t.ibd", "xtrabackup_checkpoints", "xtrabackup_info"];
        assert_eq!(names, all, "{name}");
        let chosen = report.chosen.unwrap();
        assert_eq!((chosen.files, chosen.needed_files), (1, 4));
        assert_eq!(chosen.bytes, files["shop/t.ibd"].len() as u64);

        let (_, all) = get_files(&store, name, keys(), globs(&["*"])).unwrap();
        assert!(all == stream, "{name}: everything is the stream again");
        let exact = Selection::exact(["big/b.ibd".to_owned()]);
        let (_, got) = get_files(&store, name, keys(), exact).unwrap();
        assert!(unpacked(&got)["big/b.ibd"] == files["big/b.ibd"]);
        assert!(get_files(&store, name, keys(), globs(&["shop/*", "nope"])).is_err());
    }
}

#[test]
fn damage_in_the_parts_read_is_found() {
    let store = Store::new();
    let (stream, _) = backup_stream();
    store.put("n", Layout::Packed, 4 * MIB as u64, Cursor::new(stream)).unwrap();
    let objects: Vec<_> =
        store.files().into_iter().filter(|p| p.to_str().unwrap().contains("/n/")).collect();
    let mut failed = 0;
    for path in objects.iter().filter(|path| !path.ends_with("claim")) {
        let good = std::fs::read(path).unwrap();
        let mut bad = good.clone();
        // Damages every 1 MiB frame.
        bad.iter_mut().step_by(500_000).for_each(|byte| *byte ^= 1);
        std::fs::write(path, &bad).unwrap();
        match get_files(&store, "n", Keys::default(), globs(&["shop/*"])) {
            Ok((_, got)) => assert_eq!(unpacked(&got).len(), 3),
            Err(error) => {
                failed += 1;
                assert!(matches!(error, xb_backup::BackupError::Damaged { .. }), "{error}");
            }
        }
        std::fs::write(path, &good).unwrap();
    }
    assert!(failed >= 2, "the table lies in more than one object");
    assert!(failed < objects.len() - 1, "all objects were read");
}

/// Anyone who can write to the store could make a reader fetch and hold a whole backup at once.
#[test]
fn an_index_longer_than_any_is_refused_before_it_is_read() {
    let store = Store::new();
    store.put("n", Layout::Packed, 4 * MIB as u64, Cursor::new(backup_stream().0)).unwrap();
    let path = store.folder.path().join("root/.xb-catalog/n");
    let text = std::fs::read_to_string(&path).unwrap();
    let (json, _) = text.split_once("sha256:").unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(json).unwrap();
    manifest["packed"]["index_position"] = 0.into();
    manifest["packed"]["index_len"] = (2 * MIB).into();
    let mut text = format!("{manifest}\n");
    let digest: String =
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    text.push_str(&format!("sha256:{digest}\n"));
    std::fs::write(&path, text).unwrap();
    let error = get_files(&store, "n", Keys::default(), globs(&["shop/*"])).unwrap_err();
    assert!(error.to_string().contains("longer than the limit"), "{error}");
}
