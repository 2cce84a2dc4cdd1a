//! `verify` finds every fault on the level that can find it, and reports where it is.

use std::path::{Path, PathBuf};

use xb_backup::{BackupError, CopyRequest, Keys, VerifyRequest};
use xb_encryptor::KeyBytes;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::names::BackupName;
use xb_repo::verification::{Authenticity, Level, VerifyReport};

use crate::common::{Store, block_on, put_sealed, session, stream, stream_reader};

const KEY: [u8; 32] = [7; 32];

fn verify(
    store: &Store,
    name: &str,
    level: Level,
    key: Option<[u8; 32]>,
) -> Result<VerifyReport, BackupError> {
    let request = VerifyRequest {
        name: BackupName::new(name).unwrap(),
        level,
        keys: Keys { key: key.map(|key| KeyBytes::new(&key).unwrap()), ..Keys::default() },
        accept: xb_backup::Accept::default(),
        // Writing a record for thousands of verifications would dominate the run time.
        record: None,
    };
    block_on(xb_backup::verify(&session(&store.root), &request))
}

#[track_caller]
fn sound(store: &Store, name: &str, level: Level, key: Option<[u8; 32]>) -> VerifyReport {
    let report = verify(store, name, level, key).unwrap();
    assert!(report.is_ok() && report.problems.is_empty(), "{report:#?}");
    assert_eq!(report.reached, Some(level));
    report
}

fn of(store: &Store, name: &str) -> Vec<PathBuf> {
    let ours = |path: &Path| path.iter().any(|part| part == name) && !path.ends_with("claim");
    store.files_but_claims().into_iter().filter(|path| ours(path)).collect()
}

#[test]
fn sound_backups_hold_on_every_level() {
    let store = Store::new();
    store.put("plain", Layout::Packed, 300, stream_reader()).unwrap();
    store.put("classic", Layout::Classic, 300, stream_reader()).unwrap();
    put_sealed(&store, "sealed", &KEY).unwrap();
    for level in [Level::Manifest, Level::List, Level::Checksum, Level::Decrypt] {
        let plain = sound(&store, "plain", level, None);
        assert_eq!(plain.authenticity, Authenticity::NotSealed);
        sound(&store, "classic", level, None);
        let sealed = sound(&store, "sealed", level, Some(KEY));
        assert_eq!(sealed.authenticity, Authenticity::Authenticated);
        assert_eq!(sealed.levels.len(), 1 + level as usize);
        if level >= Level::Decrypt {
            assert_eq!((plain.files, sealed.files), (Some(3), Some(3)));
            assert_eq!(plain.stream_bytes, Some(stream().len() as u64));
        }
    }
    // Up to the checksums no key is needed, and the report states that.
    let sealed = sound(&store, "sealed", Level::Checksum, None);
    assert_eq!(sealed.authenticity, Authenticity::NoKey);
    for level in [Level::Decrypt, Level::Pages] {
        assert!(matches!(verify(&store, "sealed", level, None), Err(BackupError::Keys(_))));
    }
    assert!(matches!(
        verify(&store, "sealed", Level::Manifest, Some([8; 32])),
        Err(BackupError::Keys(_))
    ));
    assert!(matches!(
        verify(&store, "none", Level::List, None),
        Err(BackupError::Repo(RepoError::NotThere { .. }))
    ));
}

/// The list of an earlier version had no names behind its checksums.
#[test]
fn the_checksum_list_of_an_earlier_version_counts() {
    let store = Store::new();
    store.put("n", Layout::Classic, 300, stream_reader()).unwrap();
    let list = store.files().into_iter().find(|path| path.iter().any(|part| part == "@sums"));
    let list = list.unwrap();
    let objects = verify(&store, "n", Level::List, None).unwrap().objects;
    let file = std::fs::File::options().write(true).open(&list).unwrap();
    file.set_len(objects * 8).unwrap();
    let report = verify(&store, "n", Level::Checksum, None).unwrap();
    assert!(report.is_ok() && report.warnings.is_empty(), "{report:?}");
}

/// Flips each byte of each object, of the manifest, the keys object and the checksum list.
#[test]
fn a_flipped_byte_anywhere_is_found_by_checksums_and_its_object_named() {
    let store = Store::new();
    store.put("plain", Layout::Packed, 300, stream_reader()).unwrap();
    store.put("classic", Layout::Classic, 300, stream_reader()).unwrap();
    put_sealed(&store, "sealed", &KEY).unwrap();
    for (name, keys) in
        [("plain", &[None] as &[_]), ("classic", &[None]), ("sealed", &[None, Some(KEY)])]
    {
        for path in of(&store, name) {
            let last = path.file_name().unwrap().to_str().unwrap().to_owned();
            let sums = last == "sums" || path.iter().any(|part| part == "@sums");
            let good = std::fs::read(&path).unwrap();
            let step = if last.len() == 9 || name == "classic" { 3 } else { 17 };
            for at in (0..good.len()).step_by(step) {
                let mut bad = good.clone();
                bad[at] ^= 1 << (at % 8);
                std::fs::write(&path, bad).unwrap();
                for key in keys {
                    let what =
                        format!("{} byte {at}, with a key: {}", path.display(), key.is_some());
                    let outcome = verify(&store, name, Level::Checksum, *key);
                    // The last line of manifest and keys object, which only a key can check.
                    let tail = "hmac-sha256:".len() + 64 + 1;
                    if name == "sealed"
                        && key.is_none()
                        && last != "sums"
                        && last.len() != 9
                        && at + tail >= good.len()
                    {
                        continue;
                    }
                    let report = match outcome {
                        Ok(report) => report,
                        // Keys that cannot be opened are reported as such.
                        Err(BackupError::Keys(_)) if last == "keys" => continue,
                        Err(error) => panic!("{what}: {error}"),
                    };
                    if sums {
                        // Nothing in the backup is damaged; the notes report that no object can be
                        // named.
                        assert!(
                            report.is_ok() && !report.warnings.is_empty(),
                            "{what}: {report:#?}"
                        );
                        continue;
                    }
                    assert!(!report.is_ok(), "{what}");
                    let named = report.problems.iter().any(|problem| {
                        problem.object.as_ref().is_some_and(|object| path.ends_with(object))
                    });
                    let file = report.problems.iter().any(|problem| problem.file.is_some());
                    assert!(named || file, "{what}: {report:#?}");
                }
                std::fs::write(&path, &good).unwrap();
            }
        }
        sound(&store, name, Level::Checksum, keys[0]);
    }
}

#[test]
fn all_damaged_objects_are_reported() {
    let store = Store::new();
    for (name, key) in [("plain", None), ("sealed", Some(KEY))] {
        match key {
            None => drop(store.put(name, Layout::Packed, 300, stream_reader()).unwrap()),
            Some(key) => drop(put_sealed(&store, name, &key).unwrap()),
        }
        let data: Vec<PathBuf> = of(&store, name)
            .into_iter()
            .filter(|path| path.file_name().unwrap().len() == 9)
            .collect();
        for path in &data {
            let mut bytes = std::fs::read(path).unwrap();
            let at = bytes.len() / 2;
            bytes[at] ^= 8;
            std::fs::write(path, bytes).unwrap();
        }
        for level in [Level::Checksum, Level::Decrypt, Level::Pages] {
            let report = verify(&store, name, level, key).unwrap();
            let sums = report.problems.iter().filter(|p| p.level == Level::Checksum).count();
            assert_eq!(sums, data.len(), "{report:#?}");
            assert_eq!(report.reached, Some(Level::List));
            assert_eq!(report.levels.len(), 1 + level as usize);
        }
    }
}

/// The first object holds the header of the stream and the beginning of the table.
#[test]
fn the_files_of_a_damaged_object_are_named_where_the_index_can_be_read() {
    let store = Store::new();
    store.put("plain", Layout::Packed, 300, stream_reader()).unwrap();
    put_sealed(&store, "sealed", &KEY).unwrap();
    for (name, key, named) in
        [("plain", None, true), ("sealed", Some(KEY), true), ("sealed", None, false)]
    {
        let data = of(&store, name).into_iter().find(|path| path.ends_with("000000000")).unwrap();
        let good = std::fs::read(&data).unwrap();
        let mut bad = good.clone();
        // In the sealed backup this byte lies behind the header of the seal.
        bad[250] ^= 1;
        std::fs::write(&data, bad).unwrap();
        let report = verify(&store, name, Level::Checksum, key).unwrap();
        std::fs::write(&data, good).unwrap();
        let problem = &report.problems[0];
        assert!(problem.object.as_ref().unwrap().ends_with("/000000000"));
        // The sealed backup is one segment, so its index cannot be opened either.
        let expected = (named && name == "plain").then(|| "shop/orders.ibd".to_owned());
        assert_eq!(problem.file, expected, "{report:#?}");
    }
}

#[test]
fn missing_short_and_foreign_objects_are_found_by_the_listing() {
    let store = Store::new();
    for (name, layout) in [("plain", Layout::Packed), ("classic", Layout::Classic)] {
        store.put(name, layout, 300, stream_reader()).unwrap();
        let good = sound(&store, name, Level::Decrypt, None);
        let data: Vec<PathBuf> = of(&store, name)
            .into_iter()
            .filter(|path| !path.ends_with("sums") && !path.iter().any(|p| p == ".xb-catalog"))
            .collect();
        for path in &data {
            let bytes = std::fs::read(path).unwrap();
            std::fs::remove_file(path).unwrap();
            let missing = verify(&store, name, Level::Pages, None).unwrap();
            assert_eq!(missing.reached, Some(Level::Manifest), "{missing:#?}");
            std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
            let short = verify(&store, name, Level::List, None).unwrap();
            assert_eq!(short.problems[0].level, Level::List);
            std::fs::write(path, &bytes).unwrap();
        }
        let more = data.last().unwrap().parent().unwrap();
        let extra = match layout {
            Layout::Packed => more.join("000000099"),
            Layout::Classic => more.join("other.00000000000000000000"),
        };
        std::fs::write(&extra, b"x").unwrap();
        assert!(!verify(&store, name, Level::List, None).unwrap().is_ok());
        std::fs::remove_file(extra).unwrap();
        assert_eq!(sound(&store, name, Level::Decrypt, None).objects, good.objects);
    }
}

/// Stock backup: complete as far as its chunks show, and the report states that.
#[test]
fn a_stock_backup_is_read_and_its_doubts_are_told() {
    let store = Store::new();
    store.put("n", Layout::Classic, 300, stream_reader()).unwrap();
    let catalog = store.folder.path().join("root/.xb-catalog");
    std::fs::remove_dir_all(catalog).unwrap();
    let report = sound(&store, "n", Level::Decrypt, None);
    assert_eq!(report.authenticity, Authenticity::NoManifest);
    assert!(report.notes.iter().any(|note| note.contains("no manifest")), "{report:#?}");
}

/// A tablespace with an empty first page and a second page with data, damaged before the stream was
/// created.
#[test]
fn a_page_that_was_damaged_before_the_backup_is_found() {
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    let mut pages = vec![0_u8; 4 * 16384];
    pages[16384..].fill(9);
    writer.payload("shop/orders.ibd", 0, &pages).unwrap();
    writer.end("shop/orders.ibd").unwrap();
    writer.end("xtrabackup_info").unwrap();
    let stream = writer.finish().unwrap();
    let store = Store::new();
    for (name, layout) in [("plain", Layout::Packed), ("classic", Layout::Classic)] {
        store.put(name, layout, 5000, std::io::Cursor::new(stream.clone())).unwrap();
        sound(&store, name, Level::Decrypt, None);
        let report = verify(&store, name, Level::Pages, None).unwrap();
        assert_eq!(report.reached, Some(Level::Decrypt));
        let pages = report.pages.unwrap();
        assert_eq!((pages.damaged, pages.empty, pages.files), (3, 1, 1));
        let first = &report.problems[0];
        assert_eq!(first.file.as_deref(), Some("shop/orders.ibd"));
        assert_eq!((first.level, first.offset), (Level::Pages, Some(16384)));
    }
}

/// The pages are reported although their file has no end.
#[test]
fn bad_pages_of_a_file_in_which_the_stream_breaks_off_are_told() {
    let (count, piece) = (50, 65536);
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    for number in 0..count {
        writer.payload("shop/orders.ibd", (number * piece) as u64, &vec![9; piece]).unwrap();
    }
    writer.end("shop/orders.ibd").unwrap();
    writer.end("xtrabackup_info").unwrap();
    let stream = writer.finish().unwrap();
    let store = Store::new();
    store.put("n", Layout::Packed, 1_000_000, std::io::Cursor::new(stream)).unwrap();
    let path = of(&store, "n").into_iter().find(|path| path.ends_with("000000002")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let report = verify(&store, "n", Level::Pages, None).unwrap();
    let bad = report.problems.iter().filter(|problem| problem.level == Level::Pages).count();
    assert!(bad > 0 && bad < count * piece / 8192, "{report:#?}");
    assert_eq!(report.more_problems, 0);
    assert!(!report.is_ok());
}

/// These pages cannot be checked: they are reported neither as intact nor as damaged.
#[test]
fn pages_that_cannot_be_checked_are_not_said_to_be_in_order() {
    let mut writer = xb_reader::ChunkWriter::new(Vec::new());
    writer.payload("shop/orders.ibd.delta", 0, &[9; 16384]).unwrap();
    writer.end("shop/orders.ibd.delta").unwrap();
    writer.end("xtrabackup_info").unwrap();
    let stream = writer.finish().unwrap();
    let store = Store::new();
    store.put("n", Layout::Packed, 5000, std::io::Cursor::new(stream)).unwrap();
    let report = verify(&store, "n", Level::Pages, None).unwrap();
    // Its base is unknown.
    assert!(report.broken_chain.is_some());
    let reached = (report.reached, report.is_undamaged());
    assert_eq!(reached, (Some(Level::Decrypt), true), "{report:#?}");
    let last = report.levels.last().unwrap();
    assert_eq!((last.level, last.ok, last.checked), (Level::Pages, true, false));
    let written = xb_repo::records::VerifyResult::of(&report, "test");
    assert_eq!((written.level, written.ok), (Level::Decrypt, true));
}

#[test]
fn a_native_stream_that_came_in_is_looked_into() {
    let store = Store::new();
    put_sealed(&store, "sealed", &KEY).unwrap();
    store.put("plain", Layout::Packed, 300, stream_reader()).unwrap();
    let data = |name: &str| -> Vec<u8> {
        let files = of(&store, name).into_iter();
        files
            .filter(|path| path.file_name().unwrap().len() == 9)
            .flat_map(|path| std::fs::read(path).unwrap())
            .collect()
    };
    store.put("carried", Layout::Packed, 500, std::io::Cursor::new(data("plain"))).unwrap();
    let report = sound(&store, "carried", Level::Decrypt, None);
    assert_eq!((report.files, report.stream_bytes), (Some(3), Some(stream().len() as u64)));
}

/// Verifying and copying cost what the listing costs, whatever number of objects a manifest states.
#[test]
fn a_forged_number_of_objects_costs_nothing() {
    let store = Store::new();
    store.put("n", Layout::Packed, 300, stream_reader()).unwrap();
    let path = store.folder.path().join("root/.xb-catalog/n");
    let good = Manifest::decode(&std::fs::read(&path).unwrap()).unwrap().manifest;
    let forge = |objects: u64| {
        let mut forged = good.clone();
        (forged.objects, forged.stored_bytes) = (objects, objects);
        forged.packed.as_mut().unwrap().chunk_size = 1;
        std::fs::write(&path, forged.encode(None).unwrap()).unwrap();
    };
    forge(1_000_000_000);
    let report = verify(&store, "n", Level::Checksum, None).unwrap();
    assert!(!report.is_ok() && report.problems.len() <= 1000, "{report:#?}");
    let told = report.problems.len() as u64 + report.more_problems;
    assert!((999_999_000..=1_000_000_000).contains(&told), "{told}");
    let other = Store::new();
    let request = CopyRequest {
        verify_bases: None,
        name: BackupName::new("n").unwrap(),
        to: BackupName::new("n").unwrap(),
        options: xb_backup::CopyOptions { unverified: true, alone: false },
        keys: Keys::default(),
        accept: xb_backup::Accept::default(),
        within_store: None,
        lock: None,
    };
    let in_session = session(&store.root);
    let copying = xb_backup::copy(&in_session, &other.root, request);
    let copied = block_on(copying);
    assert!(matches!(copied, Err(BackupError::Damaged { .. })), "{copied:?}");
    forge(10_000_000_000);
    let report = verify(&store, "n", Level::Checksum, None).unwrap();
    assert!(report.problems[0].what.contains("more objects than a backup can have"));
}
