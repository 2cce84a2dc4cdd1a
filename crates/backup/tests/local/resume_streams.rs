//! A resumed restore ends with what an uninterrupted one writes, whatever the stream does to its files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use xb_backup::{BackupError, RestoreOptions, RestoreReport};
use xb_pipeline::Durability;
use xb_repo::manifest::Layout;
use xb_testkit::stream::StreamWriter;

use crate::common::*;

/// Next step of the producer. Names and moments that make no sense there are left out.
#[derive(Debug, Clone)]
enum Step {
    /// Appends to a file, which begins, or, if it has ended, is written again.
    Chunk(usize, usize),
    /// Appends at another place of an open file.
    Seek(usize, u64, usize),
    End(usize),
    Rename(usize, usize),
    Remove(usize),
}

const FILES: usize = 5;
/// Flag of a chunk that begins a file anew.
const FLAG_REWRITE: u8 = 2;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (file, len) = (0..FILES, 1..700_000_usize);
    proptest::collection::vec(
        prop_oneof![
            8 => (file.clone(), len.clone()).prop_map(|(file, len)| Step::Chunk(file, len)),
            2 => (file.clone(), 0_u64..900_000, len).prop_map(|(file, to, len)| Step::Seek(file, to, len)),
            5 => file.clone().prop_map(Step::End),
            2 => (file.clone(), file.clone()).prop_map(|(file, to)| Step::Rename(file, to)),
            1 => file.prop_map(Step::Remove),
        ],
        1..40,
    )
}

/// The stream of these steps; with `plain`, each file is written once, from its first byte to its last.
fn stream(steps: &[Step], plain: bool) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new());
    let (mut open, mut ended) = (BTreeMap::<usize, u64>::new(), BTreeSet::<usize>::new());
    let name = |n: usize| format!("shop/t{n}.{}", ["ibd", "MYD"][n % 2]);
    // Every database has one. Whether a folder is left that held only files which are removed one by one is not said.
    writer.file("shop/db.opt", b"default-character-set=utf8mb4\n", MIB);
    for (seed, step) in steps.iter().enumerate() {
        match *step {
            Step::Chunk(n, _) if plain && ended.contains(&n) => {}
            Step::Chunk(n, len) => {
                let rewrite = ended.remove(&n);
                let next = open.entry(n).or_default();
                writer.flags(if rewrite { FLAG_REWRITE } else { 0 });
                writer.payload(&name(n), *next, &noise(seed as u64, len)).flags(0);
                *next += len as u64;
            }
            Step::Seek(n, to, len) if !plain => {
                let Some(next) = open.get_mut(&n) else { continue };
                writer.seek(&name(n), to).payload(&name(n), to, &noise(seed as u64, len));
                *next = to + len as u64;
            }
            Step::End(n) if open.remove(&n).is_some() => {
                ended.insert(n);
                writer.end(&name(n));
            }
            Step::Rename(n, to) if !plain && n != to && !open.contains_key(&to) => {
                if let Some(next) = open.remove(&n) {
                    open.insert(to, next);
                    ended.remove(&to);
                } else if ended.remove(&n) {
                    ended.insert(to);
                } else {
                    continue;
                }
                writer.rename(&name(n), &name(to));
            }
            Step::Remove(n) if !plain && (open.remove(&n).is_some() | ended.remove(&n)) => {
                writer.remove(&name(n));
            }
            _ => {}
        }
    }
    for n in open.into_keys() {
        writer.end(&name(n));
    }
    writer.info();
    writer.finish()
}

fn restore(store: &Store, target: &Path) -> Result<RestoreReport, BackupError> {
    let how = RestoreOptions { sync: Durability::None, ..RestoreOptions::default() };
    block_on(xb_backup::restore(&session(&store.root), &request("n"), target, how))
}

fn put(layout: Layout, stream: &[u8]) -> (Store, Vec<PathBuf>) {
    let store = Store::new();
    let source = Cursor::new(stream.to_vec());
    block_on(xb_backup::put(&session(&store.root), &put_request("n", layout, MIB as u64), source))
        .unwrap();
    let data = |path: &PathBuf| {
        let text = path.to_str().unwrap();
        text.contains("/n/") && !text.ends_with("claim") && !text.ends_with("keys")
    };
    let objects = store.files().into_iter().filter(data).collect();
    (store, objects)
}

/// Restores while an object is damaged, which ends the run there.
fn cut(store: &Store, target: &Path, object: &Path) -> bool {
    let good = std::fs::read(object).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(object, bad).unwrap();
    let outcome = restore(store, target);
    std::fs::write(object, good).unwrap();
    outcome.is_err()
}

/// Takes the restore for one before a power cut, which has left of the journal what was synced: `lines` of it.
fn cut_power(target: &Path, lines: usize) {
    let journal = target.join(".xb-partial/restore/journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    let mut kept = text.split_inclusive('\n');
    let head = kept.next().unwrap();
    let said: serde_json::Value = serde_json::from_str(head).unwrap();
    let boot = said["boot"].as_str().unwrap();
    assert!(!boot.is_empty());
    let head = head.replace(boot, "another");
    let lines: String = kept.take(lines).collect();
    let upto = head.len() + lines.len();
    std::fs::write(&journal, format!("{head}{lines}synced {upto}\n")).unwrap();
}

/// Cuts a restore at these places, in hundredths of the objects, resumes it, and compares it with one that is not cut.
fn resumes(layout: Layout, stream: &[u8], cuts: &[usize], power: Option<usize>) {
    let (store, objects) = put(layout, stream);
    let folder = tempfile::tempdir().unwrap();
    let (target, whole) = (folder.path().join("t"), folder.path().join("whole"));
    for at in cuts {
        let object = &objects[objects.len() * at / 100];
        if !cut(&store, &target, object) && target.exists() {
            // A run that needs nothing of this object has ended.
            std::fs::remove_dir_all(&target).unwrap();
        }
        if let Some(lines) = power
            && xb_backup::is_unfinished(&target).unwrap()
        {
            cut_power(&target, lines);
        }
    }
    restore(&store, &target).unwrap();
    restore(&store, &whole).unwrap();
    let (got, expected) = (tree(&target), tree(&whole));
    assert_eq!(got.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, content) in &expected {
        assert!(got[name] == *content, "{name}");
    }
    // Without a file in it, it would be an empty database.
    assert_eq!(target.join("shop").exists(), whole.join("shop").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_resumed_restore_writes_what_an_uninterrupted_one_does(
        steps in steps(),
        cuts in proptest::collection::vec(0_usize..100, 1..4),
        power in proptest::option::weighted(0.3, 0_usize..8),
    ) {
        resumes(Layout::Packed, &stream(&steps, false), &cuts, power);
        resumes(Layout::Classic, &stream(&steps, true), &cuts, power);
    }
}

/// A stream whose last bytes do something to a file that has long been written.
fn late(change: impl FnOnce(&mut StreamWriter<Vec<u8>>)) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new());
    writer.file("shop/t.MYD", &noise(1, 2 * MIB), MIB);
    writer.payload("ib_logfile0", 0, &noise(2, 2 * MIB));
    writer.file("shop/big.ibd", &noise(3, 6 * MIB), MIB);
    change(&mut writer);
    writer.end("ib_logfile0").info();
    writer.finish()
}

#[test]
fn what_the_stream_does_to_a_proven_file_later_is_not_lost() {
    let again = |writer: &mut StreamWriter<Vec<u8>>| {
        writer.flags(FLAG_REWRITE).payload("shop/t.MYD", 0, b"new").flags(0).end("shop/t.MYD");
    };
    let back = |writer: &mut StreamWriter<Vec<u8>>| {
        writer.seek("ib_logfile0", 4096).payload("ib_logfile0", 4096, &[7; 512]);
    };
    let remove = |writer: &mut StreamWriter<Vec<u8>>| {
        writer.remove("shop/t.MYD");
    };
    let rename = |writer: &mut StreamWriter<Vec<u8>>| {
        writer.rename("shop/t.MYD", "shop/u.MYD");
    };
    // The database was dropped while the backup ran.
    let drop = |writer: &mut StreamWriter<Vec<u8>>| {
        writer.remove("shop");
    };
    for stream in [late(again), late(back), late(remove), late(rename), late(drop)] {
        // Before the change, and after it.
        for at in [70, 99] {
            resumes(Layout::Packed, &stream, &[at], None);
        }
    }
}

#[test]
fn files_whose_lines_a_power_cut_took_are_fetched_again() {
    for layout in [Layout::Packed, Layout::Classic] {
        let (store, objects) = put(layout, &late(|_| {}));
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        assert!(cut(&store, &target, &objects[objects.len() * 2 / 3]));
        cut_power(&target, 0);
        let there = tree(&target);
        assert!(there.keys().any(|name| !name.starts_with(".xb-partial")), "{:?}", there.keys());
        std::fs::write(target.join("foreign"), "mine").unwrap();
        let error = restore(&store, &target).unwrap_err().to_string();
        assert!(error.contains("foreign") && error.contains("is not in the backup"), "{error}");
        assert!(error.contains("empty the directory"), "{error}");
        assert_eq!(std::fs::read(target.join("foreign")).unwrap(), b"mine");
        assert_eq!(tree(&target).len(), there.len() + 1);
        std::fs::remove_file(target.join("foreign")).unwrap();
        restore(&store, &target).unwrap();
        assert_eq!(std::fs::read(target.join("shop/t.MYD")).unwrap(), noise(1, 2 * MIB));
        assert_eq!(std::fs::read(target.join("shop/big.ibd")).unwrap(), noise(3, 6 * MIB));
    }
}
