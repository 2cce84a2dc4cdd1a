//! Backups in a local directory: damage is detected, and failures leave nothing behind.

use std::path::{Path, PathBuf};

use xb_backup::{BackupError, CancelToken, PutLayout, PutRequest, RestoreOptions, Session};
use xb_pipeline::Durability;
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;

use crate::common::{
    Store, block_on, get_sealed, get_watched, put_request, put_sealed, request, session, stream,
    stream_reader,
};

#[test]
fn a_sealed_backup_opens_with_its_key_alone() {
    let store = Store::new();
    let report = put_sealed(&store, "n", &[7; 32]).unwrap();
    let packed = report.manifest.packed.as_ref().unwrap();
    assert_eq!(packed.codecs, ["zstd:1"]);
    assert_eq!(packed.sealed.as_ref().unwrap().key_slots.len(), 1);
    assert_eq!(get_sealed(&store, "n", &[7; 32]).unwrap(), stream());
    assert!(matches!(get_sealed(&store, "n", &[8; 32]), Err(BackupError::Keys(_))));
    assert!(matches!(store.get("n"), Err(BackupError::Keys(_))), "no key at all");
    // Nothing in the store reveals the name of a table.
    for path in store.files() {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(6).any(|w| w == b"orders"), "{}", path.display());
    }
    // A user who gives a key does not accept unauthenticated bytes.
    store.put("plain", Layout::Packed, 500, stream_reader()).unwrap();
    assert!(matches!(get_sealed(&store, "plain", &[7; 32]), Err(BackupError::Unsealed { .. })));
}

/// Damage to the manifest, the keys object and every data object: each byte flipped; each object
/// cut, missing, replaced by its counterpart from another backup with the same key, or replaced by
/// another object of the same backup.
#[test]
fn a_sealed_backup_shows_any_change() {
    let store = Store::new();
    put_sealed(&store, "n", &[7; 32]).unwrap();
    put_sealed(&store, "twin", &[7; 32]).unwrap();
    let in_store = |path: &Path, name: &str| {
        path.iter().any(|part| part == name) && !path.ends_with("claim") && !path.ends_with("sums")
    };
    let files: Vec<PathBuf> = store.files().into_iter().filter(|p| in_store(p, "n")).collect();
    let twins: Vec<PathBuf> = store.files().into_iter().filter(|p| in_store(p, "twin")).collect();
    assert_eq!(files.len(), twins.len());
    let changed = |path: &Path, bytes: &[u8], what: &dyn std::fmt::Display| {
        std::fs::write(path, bytes).unwrap();
        let outcome = get_watched(&store, "n", &[7; 32]);
        assert!(outcome.is_err(), "{}: {what}", path.display());
    };
    let contents: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for (n, (path, good)) in files.iter().zip(&contents).enumerate() {
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            changed(path, &bad, &format_args!("byte {at}"));
            changed(path, &good[..at], &format_args!("cut {at}"));
        }
        changed(path, &[good, &b"x"[..]].concat(), &"longer");
        changed(path, &std::fs::read(&twins[n]).unwrap(), &"foreign");
        for (other, content) in contents.iter().enumerate().filter(|(other, _)| *other != n) {
            changed(path, content, &format_args!("as file {other}"));
            // Also in the other direction: the two objects are swapped.
            std::fs::write(&files[other], good).unwrap();
            assert!(get_watched(&store, "n", &[7; 32]).is_err(), "{n} and {other} swapped");
            std::fs::write(&files[other], content).unwrap();
        }
        std::fs::remove_file(path).unwrap();
        assert!(get_watched(&store, "n", &[7; 32]).is_err(), "{}: missing", path.display());
        std::fs::write(path, good).unwrap();
    }
    get_watched(&store, "n", &[7; 32]).unwrap();
    assert_eq!(get_sealed(&store, "n", &[7; 32]).unwrap(), stream());
}

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::Classic];

#[test]
fn both_layouts_come_back_as_stream_and_as_files() {
    for layout in LAYOUTS {
        let store = Store::new();
        let report = store.put("n", layout, 500, stream_reader()).unwrap();
        assert_eq!(report.manifest.source.server_version.as_deref(), Some("10.11.19-MariaDB"));
        assert_eq!(store.state("n"), Some(State::Complete));
        let back = store.get("n").unwrap();
        if layout == Layout::Packed {
            assert_eq!(back, stream());
        } else {
            assert_eq!(back.len(), stream().len());
        }
        let target = store.folder.path().join("out");
        assert_eq!(store.restore("n", &target).unwrap(), 3);
        let content = std::fs::read(target.join("shop/orders.ibd")).unwrap();
        assert!(content[..900].iter().all(|b| *b == 1) && content[900..] == [2; 300]);
        assert!(store.restore("n", &target).is_err(), "the target is not empty");
        block_on(xb_backup::delete(&store.root, &BackupName::new("n").unwrap())).unwrap();
        assert_eq!(store.files_but_claims(), Vec::<PathBuf>::new());
        assert!(matches!(store.get("n"), Err(BackupError::Repo(RepoError::NotThere { .. }))));
    }
}

/// Every file in the store except the claim and the checksum list, which only `verify` reads: every
/// byte flipped, the file cut at every byte, and the whole file missing.
#[test]
fn any_damage_to_the_store_is_an_error() {
    for layout in LAYOUTS {
        let store = Store::new();
        store.put("n", layout, 700, stream_reader()).unwrap();
        let whole = store.get("n").unwrap();
        let read = |path: &PathBuf| {
            let sums = path.ends_with("sums") || path.iter().any(|part| part == "@sums");
            !path.ends_with("claim") && !sums
        };
        for path in store.files_but_claims().into_iter().filter(read) {
            let good = std::fs::read(&path).unwrap();
            let what = path.strip_prefix(store.folder.path()).unwrap().display();
            for at in (0..good.len()).step_by(3) {
                let mut bad = good.clone();
                bad[at] ^= 1 << (at % 8);
                std::fs::write(&path, &bad).unwrap();
                match store.get("n") {
                    Err(error) => assert!(error.hint().is_some() || !error.to_string().is_empty()),
                    // The header of a classic chunk has bits that no reader checks: flags.
                    Ok(back) => assert!(
                        layout == Layout::Classic
                            && back.len() == whole.len()
                            && ignored_flag(&good, at),
                        "{what}: byte {at}"
                    ),
                }
                std::fs::write(&path, &good[..at]).unwrap();
                assert!(store.get("n").is_err(), "{what}: cut at {at}");
            }
            std::fs::remove_file(&path).unwrap();
            // A classic backup without its manifest is unproven.
            let unproven =
                layout == Layout::Classic && store.state("n") == Some(State::StockUnproven);
            assert!(store.get("n").is_err() || unproven, "{what}: missing");
            std::fs::write(&path, &good).unwrap();
        }
        assert_eq!(store.get("n").unwrap(), whole, "all is as it was");
    }
}

/// Returns whether byte `at` of an object is the flags byte of its chunk.
fn ignored_flag(object: &[u8], at: usize) -> bool {
    object.starts_with(b"XBSTCK01") && at == 8
}

/// Objects with several chunks each: bytes flipped, objects cut, replaced by another one, extended.
#[test]
fn any_damage_to_exact_classic_objects_is_an_error() {
    let store = Store::new();
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    for (n, bytes) in [[7_u8; 6000], [8; 6000], [9; 6000]].iter().enumerate() {
        writer.payload("db/t.ibd", n as u64 * 6000, bytes).unwrap();
    }
    writer.end("db/t.ibd").unwrap();
    writer.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    let stream = std::io::Cursor::new(writer.finish().unwrap());
    let layout = PutLayout::Classic { fixed_size: true, transform: None, md5: false };
    let request = PutRequest { layout, ..put_request("n", Layout::Classic, 5000) };
    let in_session = session(&store.root);
    let put = xb_backup::put(&in_session, &request, stream);
    let manifest = block_on(put).unwrap().manifest;
    let facts = manifest.classic.unwrap();
    assert_eq!((facts.chunk_size, facts.short_objects, manifest.objects), (5000, 0, 5));
    let whole = store.get("n").unwrap();
    let objects: Vec<_> =
        store.files().into_iter().filter(|p| p.display().to_string().contains("t.ibd.")).collect();
    let sizes: Vec<_> = objects.iter().map(|p| p.metadata().unwrap().len()).collect();
    assert_eq!(sizes[..3], [5000; 3]);
    let contents: Vec<_> = objects.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for (path, good) in objects.iter().zip(&contents) {
        let what = path.display();
        for at in (0..good.len()).step_by(7).filter(|at| *at != 8) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(path, &bad).unwrap();
            assert!(store.get("n").is_err() || ignored_flag(good, at), "{what}: byte {at}");
        }
        let longer = [&good[..], b"x"].concat();
        for bad in [&good[..good.len() - 1], &longer, &contents[1]] {
            std::fs::write(path, bad).unwrap();
            assert!(bad == good || store.get("n").is_err(), "{what}: {} bytes", bad.len());
        }
        std::fs::remove_file(path).unwrap();
        assert!(store.get("n").is_err(), "{what}: missing");
        std::fs::write(path, good).unwrap();
    }
    assert_eq!(store.get("n").unwrap(), whole);
}

#[test]
fn a_missing_object_is_named() {
    let store = Store::new();
    store.put("n", Layout::Packed, 700, stream_reader()).unwrap();
    let object = store.files().into_iter().find(|p| p.ends_with("000000001")).unwrap();
    std::fs::remove_file(object).unwrap();
    let error = store.get("n").unwrap_err();
    assert!(
        matches!(error, BackupError::Damaged { .. }) && error.to_string().contains("000000001"),
        "{error}"
    );
}

/// The extra bytes would never be read, but they show that the object was changed.
#[test]
fn an_object_that_is_longer_than_it_should_be_is_named() {
    for layout in LAYOUTS {
        let store = Store::new();
        store.put("n", layout, 700, stream_reader()).unwrap();
        let objects = store.files().into_iter().filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.len() == 9 || name.contains(".0000")
        });
        for path in objects {
            let good = std::fs::read(&path).unwrap();
            std::fs::write(&path, [&good[..], b"x"].concat()).unwrap();
            let error = store.get("n").unwrap_err();
            assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
            let name = path.file_name().unwrap().to_str().unwrap();
            let said = error.to_string();
            assert!(said.contains(name) || layout == Layout::Classic, "{said}");
            std::fs::write(&path, good).unwrap();
        }
        store.get("n").unwrap();
    }
}

#[test]
fn a_cut_stream_leaves_nothing_and_blocks_no_run() {
    for layout in LAYOUTS {
        let store = Store::new();
        let whole = stream();
        for cut in [0, 1, 500, whole.len() - 200, whole.len() - 1] {
            let input = std::io::Cursor::new(whole[..cut].to_vec());
            assert!(
                matches!(store.put("n", layout, 500, input), Err(BackupError::Put(_))),
                "cut at {cut}"
            );
            assert_eq!(store.files_but_claims(), Vec::<PathBuf>::new(), "cut at {cut}");
            assert_eq!(store.state("n"), None);
        }
        store.put("n", layout, 500, stream_reader()).unwrap();
    }
}

#[test]
fn a_name_that_is_taken_is_refused_and_left_alone() {
    for first in LAYOUTS {
        let store = Store::new();
        store.put("n", first, 500, stream_reader()).unwrap();
        let before = store.files();
        for second in LAYOUTS {
            assert!(matches!(
                store.put("n", second, 500, stream_reader()),
                Err(BackupError::Repo(RepoError::Exists { .. }))
            ));
        }
        assert_eq!(store.files(), before);
    }
}

#[test]
fn a_stock_backup_is_read_listed_unproven_and_never_overwritten() {
    let store = Store::new();
    store.put("n", Layout::Classic, 500, stream_reader()).unwrap();
    std::fs::remove_dir_all(store.folder.path().join("root/.xb-catalog")).unwrap();
    assert_eq!(store.state("n"), Some(State::StockUnproven));
    let back = store.get("n").unwrap();
    let before = store.files();
    for layout in LAYOUTS {
        assert!(matches!(
            store.put("n", layout, 500, stream_reader()),
            Err(BackupError::Repo(RepoError::Exists { .. }))
        ));
    }
    assert_eq!(store.files(), before);
    // Without its end chunk a file is incomplete; without a manifest, only that shows it.
    let end = before.iter().find(|p| p.ends_with("orders.ibd.00000000000000000002")).unwrap();
    std::fs::remove_file(end).unwrap();
    assert!(store.get("n").unwrap_err().to_string().contains("shop/orders.ibd"));
    assert!(!back.is_empty());
}

/// Claim of a process that no longer runs: its ID is above the largest possible one.
fn dead_claim() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let claim = serde_json::json!({
        "pid": 4_194_999, "process_started": format!("{} 1", boot.trim()), "pid_namespace": space,
    });
    claim.to_string()
}

#[test]
fn the_next_run_removes_the_objects_of_a_killed_classic_run() {
    let store = Store::new();
    store.put("n", Layout::Classic, 500, stream_reader()).unwrap();
    let root = store.folder.path().join("root");
    std::fs::remove_file(root.join(".xb-catalog/n")).unwrap();
    std::fs::write(root.join("n/old.ibd.00000000000000000000"), b"left over").unwrap();
    let claims = root.join(".xb-catalog/@claims/n");
    std::fs::create_dir_all(&claims).unwrap();
    std::fs::write(claims.join("000001"), dead_claim()).unwrap();
    assert!(matches!(store.state("n"), Some(State::Running | State::Abandoned)));
    // Every file may have its end chunk by chance: this is not a stock backup.
    std::fs::remove_file(root.join("n/old.ibd.00000000000000000000")).unwrap();
    assert!(matches!(store.get("n"), Err(BackupError::Repo(RepoError::NotThere { .. }))));
    std::fs::write(root.join("n/old.ibd.00000000000000000000"), b"left over").unwrap();
    store.put("n", Layout::Classic, 500, stream_reader()).unwrap();
    assert_eq!(store.state("n"), Some(State::Complete));
    assert!(!root.join("n/old.ibd.00000000000000000000").exists());
    assert!(store.get("n").is_ok());
}

/// A packed backup and the remains of a dead classic run may share a directory.
#[test]
fn a_packed_backup_beside_a_dead_classic_run_is_read_alone() {
    let store = Store::new();
    store.put("n", Layout::Packed, 500, stream_reader()).unwrap();
    let root = store.folder.path().join("root");
    let claims = root.join(".xb-catalog/@claims/n");
    std::fs::create_dir_all(&claims).unwrap();
    std::fs::write(claims.join("000001"), dead_claim()).unwrap();
    let objects = store.files();
    // A complete file of another backup: its chunk and its end chunk.
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    writer.payload("shop/orders.ibd", 0, b"of another day").unwrap();
    let chunk = writer.finish().unwrap();
    std::fs::create_dir_all(root.join("n/shop")).unwrap();
    std::fs::write(root.join("n/shop/orders.ibd.00000000000000000000"), chunk).unwrap();
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    writer.end("shop/orders.ibd").unwrap();
    let end = writer.finish().unwrap();
    std::fs::write(root.join("n/shop/orders.ibd.00000000000000000001"), end).unwrap();
    assert_eq!(store.get("n").unwrap(), stream());
    let target = store.folder.path().join("out");
    assert_eq!(store.restore("n", &target).unwrap(), 3);
    assert_eq!(store.state("n"), Some(State::Complete));
    // Without its manifest, neither of the two is a backup.
    std::fs::remove_file(root.join(".xb-catalog/n")).unwrap();
    assert!(matches!(store.get("n"), Err(BackupError::Repo(RepoError::NotThere { .. }))));
    assert!(objects.iter().filter(|path| !path.ends_with(".xb-catalog/n")).all(|p| p.exists()));
}

#[test]
fn a_classic_run_that_is_alive_is_not_disturbed() {
    let store = Store::new();
    let claims = store.folder.path().join("root/.xb-catalog/@claims/n");
    std::fs::create_dir_all(&claims).unwrap();
    std::fs::write(claims.join("000001"), "{\"pid\": 1, \"process_started\": \"another-boot 1\"}")
        .unwrap();
    assert!(matches!(
        store.put("n", Layout::Classic, 500, stream_reader()),
        Err(BackupError::Repo(RepoError::Running { .. }))
    ));
    assert_eq!(store.state("n"), Some(State::Running), "it has only its claim yet");
}

#[test]
fn asked_to_stop_it_cleans_up() {
    let store = Store::new();
    let cancel = CancelToken::new();
    let canceller = cancel.clone();
    let (reader, writer) = std::io::pipe().unwrap();
    let request = put_request("n", Layout::Packed, 500);
    canceller.cancel(15);
    // The pipe stays open: the source is stalled, and the run must still end.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let outcome = runtime.block_on(xb_backup::put(
        &Session { cancel: cancel.clone(), ..session(&store.root) },
        &request,
        reader,
    ));
    assert!(matches!(outcome, Err(BackupError::Interrupted(15))));
    drop(writer);
    assert_eq!(store.files(), Vec::<PathBuf>::new());
}

/// A directory that belongs to the server's user stays usable for that user.
#[test]
fn root_leaves_the_files_to_the_owner_of_the_folder() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let store = Store::new();
    store.put("n", Layout::Packed, 1 << 20, stream_reader()).unwrap();
    let target = store.folder.path().join("out");
    std::fs::create_dir(&target).unwrap();
    if chown(&target, Some(12345), Some(54321)).is_err() {
        xb_testkit::skipped("only root can change the owner");
        return;
    }
    let how = RestoreOptions { sync: Durability::None, ..RestoreOptions::default() };
    let ready = xb_backup::AfterRestore::default();
    let on_line: xb_backup::OnLine = std::sync::Arc::new(|_| {});
    let in_session = session(&store.root);
    let restored =
        xb_backup::restore_chain(&in_session, request("n"), &target, how, &ready, &on_line);
    block_on(restored).unwrap();
    let mut folders = vec![target];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.metadata().unwrap();
            assert_eq!((meta.uid(), meta.gid()), (12345, 54321), "{}", path.display());
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
}
