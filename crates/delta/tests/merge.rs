//! Chains that are made up, merged, and compared with a model.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use xb_delta::{
    Checkpoints, DeltaReader, Error, MergeReport, NotMergeable, discard, interrupted,
    is_interrupted, keep, merge, plan, restate_from,
};

const PAGE: usize = 4096;
/// Pages of a group of a delta file that is not the last one.
const GROUP: u32 = 1023;
/// Flags of a full_crc32 tablespace with pages of 4 KiB.
const FLAGS: u32 = 0x13;
/// Version of a page that was never written: it is in no delta.
const UNWRITTEN: u32 = 0;
/// Pages of the first file of a system tablespace that has two.
const SYSTEM_PAGES: usize = 4;

/// Number of a tablespace, and of the version of each of its pages; page 0 is the first.
type Server = BTreeMap<u32, (String, Vec<u32>)>;

fn page(space: u32, number: usize, version: u32, pages: usize) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    if version == UNWRITTEN {
        return page;
    }
    let mut put = |at: usize, value: u32| page[at..at + 4].copy_from_slice(&value.to_be_bytes());
    put(34, space);
    put(100, u32::try_from(number).unwrap());
    put(104, version);
    if number == 0 {
        put(38, space);
        put(46, u32::try_from(pages).unwrap());
        put(54, FLAGS);
        page[24..26].copy_from_slice(&8_u16.to_be_bytes());
    }
    page
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The small files that each backup has, and one that belongs to this backup alone.
fn common(dir: &Path, kind: &str, (from, redo, to): (u64, u64, u64)) {
    let text = format!("backup_type = {kind}\nfrom_lsn = {from}\nto_lsn = {to}\nlast_lsn = {to}\n");
    write(&dir.join("xtrabackup_checkpoints"), text.as_bytes());
    write(&dir.join("xtrabackup_info"), b"tool_name = mariadb-backup\npartial = N\n");
    write(&dir.join("shop/t.frm"), format!("{kind} {to}").as_bytes());
    let mut log = vec![0; 12 << 10];
    log[..4].copy_from_slice(&0x5068_7973_u32.to_be_bytes());
    log[4096..4104].copy_from_slice(&redo.to_be_bytes());
    let crc = crc32c(&log[4096..4156]);
    log[4156..4160].copy_from_slice(&crc.to_be_bytes());
    write(&dir.join("ib_logfile0"), &log);
}

/// A full backup. Tablespaces that were `seen` to change have the name of a new copy.
fn write_full(dir: &Path, server: &Server, seen: &BTreeSet<u32>, lsns: (u64, u64, u64)) {
    common(dir, "full-backuped", lsns);
    for (space, (name, versions)) in server {
        let name = match seen.contains(space) {
            true => Path::new(name).with_extension("new"),
            false => name.into(),
        };
        write(&dir.join(name), &whole(*space, versions));
    }
}

/// The bytes of a whole tablespace; no server makes a shorter file.
fn whole(space: u32, versions: &[u32]) -> Vec<u8> {
    let pages = versions.iter().enumerate();
    let mut bytes: Vec<u8> =
        pages.flat_map(|(n, version)| page(space, n, *version, versions.len())).collect();
    bytes.resize(bytes.len().max(4 * PAGE), 0);
    bytes
}

/// An increment: of each tablespace, the pages that `before` lacks or has in another version; or a new copy of all of
/// it, if it is one of those that were `seen` to change.
fn write_increment(
    dir: &Path,
    (before, server): (&Server, &Server),
    seen: &BTreeSet<u32>,
    lsns: (u64, u64, u64),
) {
    common(dir, "incremental", lsns);
    for (space, (name, versions)) in server {
        if seen.contains(space) {
            write(&dir.join(name).with_extension("new"), &whole(*space, versions));
            continue;
        }
        let old = before.get(space).map_or(&[][..], |(_, versions)| versions);
        let changed =
            |(n, version): &(usize, &u32)| **version != UNWRITTEN && old.get(*n) != Some(*version);
        let grown = |(n, version): &(usize, &u32)| {
            changed(&(*n, *version)) || *n == 0 && old.len() != versions.len()
        };
        let changed = versions.iter().enumerate().filter(grown);
        let changed = changed.map(|(n, version)| (n, page(*space, n, *version, versions.len())));
        write_delta(dir, name, *space, changed.collect());
    }
}

fn write_delta(dir: &Path, name: &str, space: u32, pages: Vec<(usize, Vec<u8>)>) {
    let mut delta = b"XTRA".to_vec();
    pages.iter().for_each(|(n, _)| delta.extend(u32::try_from(*n).unwrap().to_be_bytes()));
    delta.resize(PAGE, 0xff);
    pages.into_iter().for_each(|(_, page)| delta.extend(page));
    write(&dir.join(format!("{name}.delta")), &delta);
    let meta = format!("page_size = {PAGE}\nzip_size = 0 \nspace_id = {space} \n");
    write(&dir.join(format!("{name}.meta")), meta.as_bytes());
}

/// Divides the system tablespace of a backup into two files, the first with so many pages.
fn divide(dir: &Path, first: usize) {
    let settings = "[mysqld]\ninnodb_data_file_path=ibdata1:16K;ibdata2:4K:autoextend\n";
    write(&dir.join("backup-my.cnf"), settings.as_bytes());
    if let Ok(bytes) = fs::read(dir.join("ibdata1")) {
        write(&dir.join("ibdata1"), &bytes[..first * PAGE]);
        write(&dir.join("ibdata2"), &bytes[first * PAGE..]);
    }
    if let Ok(bytes) = fs::read(dir.join("ibdata1.delta")) {
        let mut reader = DeltaReader::new(&bytes[..], PAGE);
        let mut pages = [Vec::new(), Vec::new()];
        while let Some((n, page)) = reader.next_page().unwrap() {
            let n = n as usize;
            let (file, n) = if n < first { (0, n) } else { (1, n - first) };
            pages[file].push((n, page.to_vec()));
        }
        for (name, pages) in ["ibdata1", "ibdata2"].into_iter().zip(pages) {
            write_delta(dir, name, 0, pages);
        }
    }
}

/// Everything below a directory.
fn read(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_owned();
            if name.starts_with(".xb-incremental") {
                continue;
            }
            match path.is_dir() {
                true => {
                    found.insert(name, Vec::new());
                    folders.push(path);
                }
                false => drop(found.insert(name, fs::read(&path).unwrap())),
            }
        }
    }
    found
}

fn merged(dir: &Path, increments: &[PathBuf]) -> Result<MergeReport, NotMergeable> {
    plan(dir, increments).map(|plan| merge(&plan, 2, true, || false).unwrap())
}

/// A change of a server between two backups.
#[derive(Debug, Clone)]
enum Change {
    Update(prop::sample::Index, prop::sample::Index),
    Grow(prop::sample::Index, usize),
    Create(usize),
    Drop(prop::sample::Index),
    Rename(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    use Change::*;
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), at()).prop_map(|(table, page)| Update(table, page)),
        2 => (at(), 1..5_usize).prop_map(|(table, by)| Grow(table, by)),
        1 => (4..8_usize).prop_map(Create),
        1 => at().prop_map(Drop),
        1 => at().prop_map(Rename),
        1 => (at(), at()).prop_map(|(one, other)| Swap(one, other)),
    ]
}

/// Applies a change; `clock` numbers versions, tables and names.
fn apply(server: &mut Server, change: &Change, clock: &mut u32) {
    *clock += 1;
    let all: Vec<u32> = server.keys().copied().collect();
    let tables: Vec<u32> = all.iter().copied().filter(|space| *space > 1).collect();
    let pick = |at: &prop::sample::Index| (!tables.is_empty()).then(|| *at.get(&tables));
    match change {
        Change::Update(table, at) => {
            let versions = &mut server.get_mut(table.get(&all)).unwrap().1;
            let at = at.index(versions.len());
            versions[at] = *clock;
        }
        Change::Grow(table, by) => {
            let versions = &mut server.get_mut(table.get(&all)).unwrap().1;
            versions.resize(versions.len() + by, *clock);
            // A server makes a file longer before it writes its new pages.
            if clock.is_multiple_of(2) {
                versions.push(UNWRITTEN);
            }
        }
        Change::Create(pages) => {
            let name = format!("db{}/t{clock}.ibd", *clock % 3);
            server.insert(10 + *clock, (name, vec![*clock; *pages]));
        }
        Change::Drop(table) => drop(pick(table).map(|space| server.remove(&space))),
        Change::Rename(table) => {
            if let Some(space) = pick(table) {
                server.get_mut(&space).unwrap().0 = format!("db{}/r{clock}.ibd", *clock % 3);
            }
        }
        Change::Swap(one, other) => {
            if let (Some(one), Some(other)) = (pick(one), pick(other)) {
                let first = server[&one].0.clone();
                let second = std::mem::replace(&mut server.get_mut(&other).unwrap().0, first);
                server.get_mut(&one).unwrap().0 = second;
            }
        }
    }
}

fn seed() -> Server {
    [(0, ("ibdata1".to_owned(), vec![1; 5])), (1, ("undo001".to_owned(), vec![1; 3]))]
        .into_iter()
        .chain((4..7).map(|space| (space, (format!("shop/t{space}.ibd"), vec![1; 4]))))
        .collect()
}

/// A step of a chain: what changes before a backup, and on which tables that saw DDL.
type Step = (Vec<Change>, Vec<prop::sample::Index>);

/// A chain of these steps below `root`; returns the increments, the server at its end, and what the last one saw.
fn chain(root: &Path, steps: &[Step]) -> (Vec<PathBuf>, Server, BTreeSet<u32>) {
    let (mut server, mut clock, mut seen) = (seed(), 1, BTreeSet::new());
    write_full(root, &server, &seen, (0, 100, 110));
    let mut increments = Vec::new();
    for (n, (changes, saw)) in steps.iter().enumerate() {
        let before = server.clone();
        changes.iter().for_each(|change| apply(&mut server, change, &mut clock));
        let tables: Vec<u32> = server.keys().copied().filter(|space| *space > 1).collect();
        let picked = saw.iter().filter(|_| !tables.is_empty()).map(|at| *at.get(&tables));
        seen = picked.collect();
        let dir = root.join(format!(".xb-incremental/{}", n + 1));
        let at = 100 + 100 * n as u64;
        write_increment(&dir, (&before, &server), &seen, (at, at + 100, at + 110));
        increments.push(dir);
    }
    (increments, server, seen)
}

fn step() -> impl Strategy<Value = Step> {
    let seen = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    (prop::collection::vec(change(), 0..12), seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_merged_chain_is_the_full_backup_of_its_end(
        steps in prop::collection::vec(step(), 1..5), two_files: bool, ends in 0_usize..40
    ) {
        let (scratch, expected) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (increments, server, seen) = chain(scratch.path(), &steps);
        if two_files {
            increments.iter().for_each(|dir| divide(dir, SYSTEM_PAGES));
            divide(scratch.path(), SYSTEM_PAGES);
        }
        let at = 100 * steps.len() as u64;
        let fail = |error: &dyn std::fmt::Display| TestCaseError::fail(error.to_string());
        let planned = plan(scratch.path(), &increments).map_err(|e| fail(&e))?;
        // It is interrupted, now and then, and finished by another run, which may be interrupted as well.
        keep(&planned, "this").unwrap();
        for ends in [ends, ends / 2] {
            if let Some(planned) = interrupted(scratch.path(), "this") {
                let looks = AtomicUsize::new(0);
                let is_cancelled = || looks.fetch_add(1, Ordering::Relaxed) == ends;
                match merge(&planned, 2, true, is_cancelled) {
                    Ok(_) | Err(Error::Cancelled) => {}
                    Err(error) => return Err(fail(&error)),
                }
            }
        }
        if let Some(planned) = interrupted(scratch.path(), "this") {
            prop_assert!(interrupted(scratch.path(), "other").is_none());
            merge(&planned, 2, true, || false).map_err(|e| fail(&e))?;
        }
        write_full(expected.path(), &server, &seen, (0, at + 100, at + 110));
        if two_files {
            divide(expected.path(), SYSTEM_PAGES);
        }
        let (found, mut wanted) = (read(scratch.path()), read(expected.path()));
        // These come from the last increment.
        for name in ["ib_logfile0", "shop/t.frm"] {
            wanted.insert(name.into(), found[Path::new(name)].clone());
        }
        let names = |all: &BTreeMap<PathBuf, Vec<u8>>| all.keys().cloned().collect::<BTreeSet<_>>();
        prop_assert_eq!(names(&found), names(&wanted));
        for (name, bytes) in &wanted {
            prop_assert!(found[name] == *bytes, "{} differs", name.display());
        }
    }
}

fn simple(scratch: &Path) -> Vec<PathBuf> {
    let (mut server, mut increments) = (seed(), Vec::new());
    write_full(scratch, &server, &BTreeSet::new(), (0, 100, 110));
    for (n, at) in [(1_u32, 100), (2, 200)] {
        let before = server.clone();
        for (space, (_, versions)) in &mut server {
            // All but one grow, so that their first page is in the delta.
            match space {
                5 => versions[1] = 10 + n,
                _ => versions.push(n),
            }
        }
        let dir = scratch.join(format!(".xb-incremental/{n}"));
        write_increment(&dir, (&before, &server), &BTreeSet::new(), (at, at + 100, at + 110));
        increments.push(dir);
    }
    increments
}

/// Changes a full backup and the last increment on it.
type Damage<'a> = &'a dyn Fn(&Path, &Path);

/// The error for a chain after `damage`, which gets its directory and the last increment.
fn unfit(damage: impl Fn(&Path, &Path)) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    damage(scratch.path(), &increments[1]);
    let before = read(scratch.path());
    let unfit = plan(scratch.path(), &increments).unwrap_err();
    assert_eq!(read(scratch.path()), before);
    let is_lost =
        unfit.what.contains("first pages of shop/t5") || unfit.what.contains("nothing of its");
    assert_eq!(unfit.lost, is_lost.then(|| "shop/t5.ibd".into()));
    unfit.to_string()
}

#[test]
fn unproven_deltas_are_not_merged() {
    let text = |path: PathBuf, from: &str, to: &str| {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    };
    let strange = |dir: &Path| write(&dir.join(OsStr::from_bytes(b"shop/caf\xe9.frm")), b"");
    let cases: [(&str, Damage<'_>); 18] = [
        // The rule: an increment begins where the redo log of its base begins, or before.
        ("begins at LSN 201", &|_, last| {
            text(last.join("xtrabackup_checkpoints"), "from_lsn = 200", "from_lsn = 201");
        }),
        ("the full backup is log-applied", &|full, _| {
            text(full.join("xtrabackup_checkpoints"), "full-backuped", "log-applied");
        }),
        ("is not known to have all tables", &|_, last| {
            text(last.join("xtrabackup_info"), "partial = N", "partial = Y");
        }),
        ("redo log", &|full, _| fs::write(full.join("ib_logfile0"), "redo").unwrap()),
        ("outside the data directory", &|full, _| write(&full.join("shop/o.isl"), b"/else/o.ibd")),
        ("compressed or encrypted", &|full, _| write(&full.join("shop/o.ibd.qp"), b"")),
        ("the first page of shop/n.ibd", &|full, _| write(&full.join("shop/n.ibd"), &[7; PAGE])),
        ("second file of tablespace 4", &|full, _| {
            let _ = fs::copy(full.join("shop/t4.ibd"), full.join("shop/n.ibd")).unwrap();
        }),
        ("the system tablespace has other files", &|_, last| divide(last, SYSTEM_PAGES)),
        ("lacks a file of the system tablespace", &|full, last| {
            for dir in [full, &full.join(".xb-incremental/1"), last] {
                divide(dir, SYSTEM_PAGES);
            }
            fs::remove_file(last.join("ibdata2.delta")).unwrap();
        }),
        ("no .meta file", &|_, last| fs::remove_file(last.join("shop/t4.ibd.meta")).unwrap()),
        ("became shorter", &|full, _| {
            let mut first = page(4, 0, 1, 9);
            first.resize(9 * PAGE, 0);
            write(&full.join("shop/t4.ibd"), &first);
        }),
        ("is whole in an increment", &|_, last| {
            write(&last.join("shop/n.ibd"), &whole(77, &[1; 4]));
        }),
        // Its first pages may be old, but nothing says what the others are.
        ("an increment lacks shop/t4.ibd, although it is older", &|full, _| {
            let first = full.join(".xb-incremental/1/shop/t4.ibd");
            fs::remove_file(first.with_extension("ibd.delta")).unwrap();
        }),
        ("no backup of the chain has the first pages of shop/t5.ibd", &|full, _| {
            fs::remove_file(full.join("shop/t5.ibd")).unwrap();
        }),
        // The plan that is kept for another run is text.
        ("is not UTF-8", &|full, _| strange(full)),
        ("is not UTF-8", &|_, last| strange(last)),
        // As an import leaves it: a server that opens the result has no rows of it. A move into the system tablespace
        // leaves the same.
        (
            "since the full backup, or ALTER TABLE moved the table into the system tablespace",
            &|_, last| {
                fs::remove_file(last.join("shop/t5.ibd.delta")).unwrap();
                fs::remove_file(last.join("shop/t5.ibd.meta")).unwrap();
                write(&last.join("shop/t5.frm"), &[0xfe, 1, 9, 12, 3]);
            },
        ),
    ];
    for (words, damage) in cases {
        let said = unfit(damage);
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Its first page was not written when its backup copied it.
#[test]
fn a_table_that_was_being_made_comes_with_the_next_increment() {
    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    write(&scratch.path().join("shop/n.ibd"), &[0; 4 * PAGE]);
    write(&increments[0].join("shop/m.new"), &[0; 4 * PAGE]);
    assert_eq!(merged(scratch.path(), &increments).map(|merged| merged.spaces), Ok(5));
    assert!(!scratch.path().join("shop/n.ibd").exists());
}

/// RENAME TABLE t4 TO old, new TO t4, old TO t5, after DROP TABLE t5: link by link, mariadb-backup removes the file of t4
/// for that of the new table, and has none for t5.
#[test]
fn a_table_that_took_the_name_of_a_dropped_one_is_not_lost() {
    for name in ["shop/t5", "./shop/t5.ibd"] {
        let scratch = tempfile::tempdir().unwrap();
        let increments = simple(scratch.path());
        let last = &increments[1];
        fs::remove_file(last.join("shop/t5.ibd.delta")).unwrap();
        fs::remove_file(last.join("shop/t5.ibd.meta")).unwrap();
        write(&last.join("shop/t4.ren"), name.as_bytes());
        write(&last.join("shop/t4.new"), &whole(77, &[1; 4]));
        for table in ["t4", "t5"] {
            write(&last.join(format!("shop/{table}.frm")), &[0xfe, 1, 9, 12, 3]);
        }
        assert_eq!(merged(scratch.path(), &increments).map(drop), Ok(()), "{name}");
        let found = read(scratch.path());
        let space = |file: &str| found.get(Path::new(file)).map(|bytes| bytes[37]);
        assert_eq!(["shop/t4.ibd", "shop/t4.new"].map(space), [Some(4), Some(77)]);
        assert!(!found.contains_key(Path::new("shop/t5.ibd")));
        assert!(found.contains_key(Path::new("shop/t4.ren")));
    }
}

#[test]
fn a_damaged_delta_or_a_signal_ends_the_merge() {
    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    let delta = increments[0].join("shop/t4.ibd.delta");
    let mut bytes = fs::read(&delta).unwrap();
    bytes.push(0);
    fs::write(&delta, bytes).unwrap();
    let planned = plan(scratch.path(), &increments).unwrap();
    let error = merge(&planned, 2, false, || false).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    // Nothing prepares what is left.
    assert_eq!(Checkpoints::of(scratch.path()).map(|c| c.kind), None);

    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    let planned = plan(scratch.path(), &increments).unwrap();
    assert!(matches!(merge(&planned, 2, false, || true), Err(Error::Cancelled)));
}

#[test]
fn a_failure_ends_the_other_threads_amid_their_files() {
    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    let planned = plan(scratch.path(), &increments).unwrap();
    let [damaged, endless] = ["shop/t4.ibd.delta", "shop/t5.ibd.delta"].map(|name| {
        let path = increments[1].join(name);
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        path
    });
    let ended = std::thread::scope(|scope| {
        let merging = scope.spawn(|| merge(&planned, 2, false, || false));
        let [mut damaged, mut endless] =
            [&damaged, &endless].map(|path| fs::File::options().write(true).open(path).unwrap());
        let group = |first: u32| {
            let mut group = b"xtra".to_vec();
            (first..first + GROUP).for_each(|n| group.extend(n.to_be_bytes()));
            group.resize(PAGE * (1 + GROUP as usize), 0);
            group
        };
        endless.write_all(&group(0)[..PAGE * 2]).unwrap();
        // Until the other thread has seen it.
        while damaged.write_all(&[0; PAGE]).is_ok() {}
        let rest = group(0).split_off(PAGE * 2);
        let rest = std::iter::once(rest).chain((1..16).map(|n| group(n * GROUP)));
        let written = { rest }.try_for_each(|bytes| endless.write_all(&bytes));
        drop(endless);
        let error = merging.join().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Damaged { .. }) && error.to_string().contains("t4"),
            "{error}"
        );
        written.unwrap_err().kind()
    });
    assert_eq!(ended, ErrorKind::BrokenPipe);
}

#[test]
fn a_tablespace_that_keeps_its_name_is_never_without_it() {
    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    keep(&plan(scratch.path(), &increments).unwrap(), "this").unwrap();
    let mut interruptions = 0;
    while let Some(planned) = interrupted(scratch.path(), "this") {
        let looks = AtomicUsize::new(0);
        let is_cancelled = || looks.fetch_add(1, Ordering::Relaxed) == interruptions;
        let ended = merge(&planned, 1, false, is_cancelled);
        assert!(scratch.path().join("shop/t4.ibd").exists(), "look {interruptions}");
        interruptions += usize::from(ended.is_err());
    }
    assert!(interruptions > 9);
}

/// An earlier version had put all of them aside, and the next one finishes the merge.
#[test]
fn tablespaces_that_were_put_aside_with_their_names_get_them_back() {
    let (scratch, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(merged(other.path(), &simple(other.path())).is_ok());
    let increments = simple(scratch.path());
    keep(&plan(scratch.path(), &increments).unwrap(), "this").unwrap();
    let kept = scratch.path().join(".xb-merge");
    let plan: serde_json::Value =
        serde_json::from_slice(&fs::read(kept.join("plan")).unwrap()).unwrap();
    for (n, space) in plan["plan"]["spaces"].as_array().unwrap().iter().enumerate() {
        if let Some(copy) = space["copy"].as_str() {
            fs::rename(copy, kept.join(n.to_string())).unwrap();
        }
    }
    let planned = interrupted(scratch.path(), "this").unwrap();
    let _ = merge(&planned, 2, false, || false).unwrap();
    assert!(read(scratch.path()) == read(other.path()));
}

#[test]
fn lost_and_found_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let increments = simple(scratch.path());
    let found = scratch.path().join("lost+found/#12");
    write(&found, b"what a check of the disk has found");
    assert!(merged(scratch.path(), &increments).is_ok());
    assert!(found.is_file());
}

/// Whoever owns the directory can write such a file, and root may finish the merge.
#[test]
fn a_plan_of_another_user_or_that_leads_outside_is_none() {
    let scratch = tempfile::tempdir().unwrap();
    let base = scratch.path().join("data");
    fs::create_dir(&base).unwrap();
    let planned = plan(&base, &simple(&base)).unwrap();
    keep(&planned, "this").unwrap();
    let (folder, file) = (base.join(".xb-merge"), base.join(".xb-merge/plan"));
    let text = fs::read_to_string(&file).unwrap();
    assert!(interrupted(&base, "this").is_some());
    let inside = base.display().to_string();
    for (from, to) in [
        ("\"shop/t.frm\"", "\"../outside\""),
        ("\"shop/t.frm\"", "\"/etc/passwd\""),
        (&format!("\"{inside}/shop/t4.ibd\""), "\"/etc/passwd\""),
        (&format!("\"{inside}/shop/t4.ibd\""), &format!("\"{inside}/../outside\"")),
        (&format!("\"last\":\"{inside}"), "\"last\":\"/elsewhere"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        fs::write(&file, text.replace(from, to)).unwrap();
        assert!(interrupted(&base, "this").is_none(), "{to}");
    }
    fs::write(&file, &text).unwrap();
    let elsewhere = scratch.path().join("elsewhere");
    for path in [&file, &folder] {
        fs::rename(path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path).unwrap();
        assert!(interrupted(&base, "this").is_none());
        assert_eq!(keep(&planned, "this").is_err(), path == &folder);
        fs::remove_file(path).unwrap();
        fs::rename(&elsewhere, path).unwrap();
    }
    assert!(interrupted(&base, "this").is_some());
    // Only root can give files away.
    for path in [&file, &folder] {
        if std::os::unix::fs::chown(path, Some(12345), None).is_ok() {
            assert!(interrupted(&base, "this").is_none());
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
    }
}

#[test]
fn remains_of_an_abandoned_plan_are_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join(".xb-merge");
    discard(scratch.path()).unwrap();
    write(&folder.join("new"), b"half a pl");
    discard(scratch.path()).unwrap();
    assert!(!folder.exists());
    let planned = plan(scratch.path(), &simple(scratch.path())).unwrap();
    keep(&planned, "this").unwrap();
    discard(scratch.path()).unwrap();
    assert!(interrupted(scratch.path(), "this").is_some());
}

/// A folder that cannot be looked into may hold the plan of an interrupted merge.
#[test]
fn an_error_is_no_absence_of_a_plan() {
    let base = tempfile::tempdir().unwrap();
    assert!(!is_interrupted(base.path()).unwrap());
    std::os::unix::fs::symlink(".xb-merge", base.path().join(".xb-merge")).unwrap();
    assert!(is_interrupted(base.path()).is_err());
}

#[test]
fn the_target_of_a_link_is_not_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let (base, other) = (scratch.path().join("base"), scratch.path().join("other"));
    write(&other.join("new"), b"of something else");
    std::fs::create_dir(&base).unwrap();
    std::os::unix::fs::symlink(&other, base.join(".xb-merge")).unwrap();
    assert!(discard(&base).is_err());
    assert!(other.join("new").exists());
}

/// A later version of the backup program writes other files, and leaves these names to schemas.
#[test]
fn a_schema_is_not_taken_for_the_file_of_an_earlier_version() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("xtrabackup_checkpoints")).unwrap();
    let text = "backup_type = incremental\nfrom_lsn = 20\nto_lsn = 30\n";
    fs::write(dir.path().join("mariadb_backup_checkpoints"), text).unwrap();
    restate_from(dir.path(), 25).unwrap();
    assert_eq!(Checkpoints::of(dir.path()).unwrap().from, 25);
}
