//! Inspection of streams: pages with every combination of layers, damage in every layer, wrong
//! indexes.

use std::sync::Arc;

use crate::common::wrapped::{cipher, wrapped};
use crate::common::{CODECS, LIMITS, native, pack_plan, put};
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use proptest::prelude::*;
use xb_pipeline::{
    EndRule, IndexWatch, InspectError, InspectOptions, InspectReport, Inspector, Observer,
    RecoveredFiles, UnpackPlan, unpack_watched,
};
use xb_reader::ChunkWriter;

const PAGE: usize = 16384;

/// A tablespace of MariaDB's default kind.
fn tablespace(pages: u32) -> Vec<u8> {
    let page = |number: u32| {
        let noise = |n: u32| (n ^ number).wrapping_mul(0x9e37_79b9).to_le_bytes()[2];
        let mut page: Vec<u8> = (0..PAGE as u32).map(noise).collect();
        page[..38].fill(0);
        page[4..8].copy_from_slice(&number.to_be_bytes());
        page[54..58].copy_from_slice(&0x15_u32.to_be_bytes());
        page[PAGE - 8..].fill(0);
        let sum = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, &page[..PAGE - 4])).unwrap();
        page[PAGE - 4..].copy_from_slice(&sum.to_be_bytes());
        page
    };
    (0..pages).flat_map(page).collect()
}

/// Interleaves all files in chunks of `chunk` bytes.
fn mixed(files: &[(String, Vec<u8>)], chunk: usize) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    let most = files.iter().map(|(_, stored)| stored.len()).max().unwrap_or(0);
    for at in (0..most).step_by(chunk) {
        for (name, stored) in files.iter().filter(|(_, stored)| stored.len() > at) {
            let end = stored.len().min(at + chunk);
            writer.payload(name, at as u64, &stored[at..end]).unwrap();
        }
    }
    files.iter().for_each(|(name, _)| writer.end(name).unwrap());
    writer.payload("xtrabackup_info", 0, b"tool_name = x\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    writer.finish().unwrap()
}

const WRAPPINGS: [&str; 6] = ["", ".lz4", ".zst", ".xbcrypt", ".zst.xbcrypt", ".lz4.xbcrypt"];

fn files(plain: &[u8]) -> Vec<(String, Vec<u8>)> {
    let named = |(n, w): (usize, &&str)| (format!("d/t{n}.ibd{w}"), wrapped(w, plain));
    WRAPPINGS.iter().enumerate().map(named).collect()
}

fn options(key: bool) -> InspectOptions {
    InspectOptions {
        rule: EndRule::KnownProducer,
        decoding: true,
        cipher: key.then(|| Arc::new(cipher())),
        pages: true,
        memory: 32 << 20,
    }
}

fn inspect(
    stream: &[u8],
    piece: usize,
    options: InspectOptions,
) -> Result<InspectReport, InspectError> {
    let mut inspector = Inspector::new(options);
    for piece in stream.chunks(piece) {
        inspector.feed(&Bytes::copy_from_slice(piece))?;
    }
    inspector.finish()
}

#[test]
fn a_bad_page_is_found_in_every_wrapping() {
    let mut plain = tablespace(9);
    plain[5 * PAGE + 700] ^= 1;
    let stream = mixed(&files(&plain), 60_000);
    let found = inspect(&stream, 10_000, options(true)).unwrap();
    assert_eq!((found.pages.files, found.pages.passed_over, found.undone), (6, 0, 5));
    assert_eq!((found.pages.counts.good, found.pages.counts.damaged), (48, 6));
    let mut bad: Vec<String> = found
        .pages
        .bad
        .iter()
        .map(|bad| {
            assert_eq!((bad.page.page, bad.page.offset), (5, 5 * PAGE as u64));
            bad.path.to_string()
        })
        .collect();
    bad.sort();
    let mut all: Vec<String> = files(&plain).into_iter().map(|(name, _)| name).collect();
    all.sort();
    assert_eq!(bad, all);

    // Without the key, encrypted files are left alone and counted.
    let found = inspect(&stream, 10_000, options(false)).unwrap();
    assert_eq!((found.pages.files, found.pages.passed_over, found.unopened), (3, 3, 3));
    // Layers are only decoded on request.
    let plain = InspectOptions { decoding: false, ..options(true) };
    let found = inspect(&stream, 10_000, plain).unwrap();
    assert_eq!((found.pages.files, found.pages.passed_over, found.unopened), (1, 5, 0));
    // The file's changed pages in an incremental backup are not counted as checked.
    let delta = mixed(&[("d/t.ibd.delta".into(), vec![9; 70_000])], 60_000);
    let found = inspect(&delta, 10_000, options(false)).unwrap();
    assert_eq!((found.pages.files, found.pages.passed_over), (0, 1));
    assert_eq!(found.pages.changed_only, 0, "it is not made as such files are");
    let none = InspectOptions { pages: false, ..options(true) };
    assert_eq!(inspect(&stream, 10_000, none).unwrap().pages.files, 0);
}

/// The file of an increment with the changed pages of a tablespace: all of these.
fn changed(plain: &[u8]) -> Vec<u8> {
    let mut block = b"XTRA".to_vec();
    (0..(plain.len() / PAGE) as u32).for_each(|number| block.extend(number.to_be_bytes()));
    block.extend([0xff; 4]);
    block.resize(PAGE, 0);
    [&block, plain].concat()
}

#[test]
fn a_bad_page_is_found_among_the_changed_pages_of_an_increment() {
    let mut plain = tablespace(9);
    plain[5 * PAGE + 700] ^= 1;
    let all: Vec<_> = [("", 1), (".zst", 2), (".zst.xbcrypt", 3)]
        .map(|(wrapping, n)| {
            (format!("d/t{n}.ibd.delta{wrapping}"), wrapped(wrapping, &changed(&plain)))
        })
        .into();
    let found = inspect(&mixed(&all, 60_000), 10_000, options(true)).unwrap();
    let bad: Vec<_> = found.pages.bad.iter().map(|bad| (bad.page.page, bad.page.offset)).collect();
    assert_eq!(bad, [(5, 6 * PAGE as u64); 3]);
    // The tablespaces have other pages, which are elsewhere.
    assert_eq!((found.pages.passed_over, found.pages.changed_only), (3, 3));
    assert_eq!((found.pages.files, found.pages.counts.good), (0, 24));
}

/// No server has been started on the files: a page that is missing is lost.
#[test]
fn all_pages_of_a_data_directory_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (mut bit, mut cut) = (tablespace(300), tablespace(3));
    bit[299 * PAGE + 700] ^= 1;
    cut.truncate(2 * PAGE + 100);
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("d/bit.ibd", &bit);
    write("d/cut.ibd", &cut);
    write("d/sound.ibd", &tablespace(3));
    write("d/empty.ibd", &[0; 4 * PAGE]);
    for left_alone in
        ["d/t.frm", "d/left.ibd", "#innodb_temp/t.ibd", ".xb-merge/t.ibd", "ib_logfile0"]
    {
        write(left_alone, &[9; 2 * PAGE]);
    }
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("d/link.ibd")).unwrap();
    let list =
        || RecoveredFiles::list(dir.path(), |path| path.as_bytes() == b"d/left.ibd").unwrap();
    let found = list().check(4, |_| true).unwrap().unwrap();
    let bad: Vec<_> = found.bad.iter().map(|bad| (bad.path.to_string(), bad.page.page)).collect();
    let expected = [("d/bit.ibd", 299), ("d/cut.ibd", 2), ("d/empty.ibd", 0)];
    assert_eq!(bad, expected.map(|(path, page)| (path.to_owned(), page)));
    assert_eq!((found.files, found.counts.good, found.counts.damaged), (4, 304, 3));
    let read = std::sync::atomic::AtomicU64::new(0);
    let count = |bytes| {
        read.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        true
    };
    let _ = list().check(2, count).unwrap().unwrap();
    assert_eq!(read.into_inner(), list().bytes());
    assert!(list().check(2, |_| false).unwrap().is_none());
    // A hole in used pages is no less missing than zeros.
    let file = std::fs::File::create(dir.path().join("d/empty.ibd")).unwrap();
    file.set_len(64 * PAGE as u64).unwrap();
    let again = list().check(1, |_| true).unwrap().unwrap();
    assert_eq!(again.bad.len(), 3);
}

/// With many compressed files open at a time, memory does not suffice for all of them.
#[test]
fn files_beyond_the_memory_are_inspected_by_further_passes() {
    let mut plain = tablespace(3);
    plain[2 * PAGE + 700] ^= 1;
    let stored = wrapped(".zst", &plain);
    let mut files: Vec<_> = (0..200).map(|n| (format!("d/t{n}.ibd.zst"), stored.clone())).collect();
    files.push(("d/log.CSV".to_owned(), b"1\n".to_vec()));
    let stream = mixed(&files, 10_000);
    let few = || InspectOptions { memory: 16 << 20, ..options(false) };
    let mut found = inspect(&stream, 100_000, few()).unwrap();
    assert!(!found.postponed.is_empty() && found.pages.files < 200);
    let mut passes = 1;
    while !found.postponed.is_empty() {
        let mut inspector = Inspector::again(few(), found);
        stream.chunks(100_000).for_each(|p| inspector.feed(&Bytes::copy_from_slice(p)).unwrap());
        found = inspector.finish().unwrap();
        passes += 1;
    }
    assert!((2..20).contains(&passes), "{passes}");
    assert_eq!((found.pages.files, found.undone, found.pages.passed_over), (200, 200, 0));
    assert_eq!((found.pages.counts.good, found.pages.counts.damaged), (400, 200));
    assert_eq!(found.pages.not_checked, [("CSV", 1)].into());
}

/// A table that states its number and its pages in use, as its server does: all of the first six.
fn table_in_use(lsn: u64) -> Vec<u8> {
    let mut plain = tablespace(6);
    let first = &mut plain[..PAGE];
    first[16..24].copy_from_slice(&lsn.to_be_bytes());
    first[24..26].copy_from_slice(&8_u16.to_be_bytes());
    first[38..42].fill(0);
    first[46..50].copy_from_slice(&6_u32.to_be_bytes());
    first[50..54].copy_from_slice(&64_u32.to_be_bytes());
    first[150..PAGE - 4].fill(0);
    first[170..174].copy_from_slice(&2_u32.to_be_bytes());
    let tail = u32::try_from(lsn).unwrap().to_be_bytes();
    first[PAGE - 8..PAGE - 4].copy_from_slice(&tail);
    let sum = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, &first[..PAGE - 4])).unwrap();
    first[PAGE - 4..].copy_from_slice(&sum.to_be_bytes());
    plain
}

/// A redo log of MySQL or MariaDB 10.5 whose recovery starts at `checkpoint`.
fn redo(format: u32, checkpoint: u64) -> Vec<u8> {
    let mut head = vec![0; 12 << 10];
    head[..4].copy_from_slice(&format.to_be_bytes());
    head[520..528].copy_from_slice(&checkpoint.to_be_bytes());
    let sum = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, &head[512..1020])).unwrap();
    head[1020..1024].copy_from_slice(&sum.to_be_bytes());
    head
}

#[test]
fn an_empty_page_is_damage_unless_recovery_writes_it() {
    const MYSQL: u32 = 6;
    const MARIADB: u32 = 0x5048_5953;
    let sound = table_in_use(1000);
    let mut holed = sound.clone();
    holed[4 * PAGE..5 * PAGE].fill(0);
    // Of an unknown kind, which requires no other file.
    let checkpoints =
        |last: u64| format!("backup_type = x\nto_lsn = 5\nlast_lsn = {last}\n").into_bytes();
    let table = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    for (what, redo, last, expected) in [
        ("no redo log", None, 0, (1, 0)),
        ("page made before the checkpoint", Some(redo(MYSQL, 1000)), 9_000_000, (1, 0)),
        ("page made after it", Some(redo(MYSQL, 999)), 9_000_000, (0, 0)),
        ("a busy MariaDB may have freed it", Some(redo(MARIADB, 1000)), 9_000_000, (0, 1)),
        ("an idle one has not", Some(redo(MARIADB, 1000)), 1016, (1, 0)),
        ("a redo log that cannot be read", Some(vec![9; 20_000]), 0, (0, 1)),
    ] {
        for name in ["d/t.ibd", "d/t.ibd.new"] {
            let mut files = vec![table(name, &holed), table("d/sound.ibd", &sound)];
            files.extend(redo.clone().map(|redo| ("xtrabackup_logfile".to_owned(), redo)));
            files.push(("xtrabackup_checkpoints".to_owned(), checkpoints(last)));
            let pages = inspect(&mixed(&files, 50_000), 10_000, options(false)).unwrap().pages;
            let bad = u64::try_from(pages.bad.len()).unwrap();
            assert_eq!((bad, pages.doubtful), expected, "{what}");
            assert_eq!(pages.counts.damaged, expected.0);
            assert!(pages.bad.iter().all(|bad| bad.path.to_string() == name && bad.page.page == 4));
        }
    }
    // Cut after three pages.
    let short = mixed(&[table("d/t.ibd", &sound[..3 * PAGE])], 50_000);
    let pages = inspect(&short, 10_000, options(false)).unwrap().pages;
    assert_eq!((pages.bad.len(), pages.bad[0].page.page), (1, 3));
}

/// The results for a stream with these files and a checkpoints file.
fn pages_of(files: &[(&str, &[u8])], last: u64) -> xb_pipeline::PagesFound {
    let named = |(name, bytes): &(&str, &[u8])| ((*name).to_owned(), bytes.to_vec());
    let mut files: Vec<_> = files.iter().map(named).collect();
    let text = format!("backup_type = full-backuped\nto_lsn = 5\nlast_lsn = {last}\n");
    files.push(("xtrabackup_checkpoints".to_owned(), text.into_bytes()));
    let rule = EndRule::AnyEnd;
    let options = InspectOptions { rule, ..options(false) };
    inspect(&mixed(&files, 50_000), 10_000, options).unwrap().pages
}

/// The head of the log of MariaDB 10.5.
const MARIADB: u32 = 0x5048_5953;

#[test]
fn a_page_that_every_table_has_is_damage_on_a_busy_server_too() {
    let sound = table_in_use(1000);
    let log = redo(MARIADB, 1000);
    for (page, expected) in [(0, (1, 0)), (1, (1, 0)), (3, (1, 0)), (4, (0, 1)), (5, (0, 1))] {
        let mut holed = sound.clone();
        // The first page names the others, and the second states that the table is old.
        holed[page * PAGE..(page + 1) * PAGE].fill(0);
        if page == 0 {
            make_old(&mut holed);
        }
        let found = pages_of(&[("d/t.ibd", &holed), ("ib_logfile0", &log)], 9_000_000);
        assert_eq!((found.counts.damaged, found.doubtful), expected, "page {page}");
        assert_eq!(found.bad.len() as u64, expected.0, "page {page}");
    }
    // Created after the checkpoint: recovery writes them.
    let mut holed = table_in_use(1001);
    holed[3 * PAGE..4 * PAGE].fill(0);
    let found = pages_of(&[("d/t.ibd", &holed), ("ib_logfile0", &log)], 9_000_000);
    assert_eq!((found.counts.damaged, found.doubtful), (0, 0));
    // Created across the checkpoint: a server makes the root after the second page. Or it is lost, and all others are newer.
    make_old(&mut holed);
    let found = pages_of(&[("d/t.ibd", &holed), ("ib_logfile0", &log)], 9_000_000);
    assert_eq!((found.counts.damaged, found.doubtful), (0, 1));
}

/// Lets the second page of a table state that it was changed last before the checkpoint.
fn make_old(table: &mut [u8]) {
    let page = &mut table[PAGE..2 * PAGE];
    page[16..24].copy_from_slice(&900_u64.to_be_bytes());
    page[PAGE - 8..PAGE - 4].copy_from_slice(&900_u32.to_be_bytes());
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &page[..PAGE - 4]);
    page[PAGE - 4..].copy_from_slice(&(sum as u32).to_be_bytes());
}

#[test]
fn a_tablespace_without_pages_is_damage_unless_recovery_may_create_it() {
    let zeros = vec![0; 6 * PAGE];
    let log = redo(MARIADB, 1000);
    for content in [&[][..], &zeros[..100], &zeros[..]] {
        for name in ["d/t.ibd", "undo001", "undo_002.ibu", "ibdata1"] {
            // A running server creates no system tablespace.
            let busy = if name == "ibdata1" { (1, 1, 0) } else { (0, 0, 1) };
            let of = |log: Option<&[u8]>, last| {
                let mut files = vec![(name, content)];
                files.extend(log.map(|log| ("ib_logfile0", log)));
                let found = pages_of(&files, last);
                (found.bad.len(), found.counts.damaged, found.doubtful)
            };
            assert_eq!(of(Some(&log), 1694), (1, 1, 0), "{name} of an idle server");
            assert_eq!(of(Some(&log), 2560), busy, "{name} of a busy server");
            assert_eq!(of(None, 2560), (1, 1, 0), "{name} without a redo log");
        }
        // A later file of a system tablespace may never have been used.
        let found = pages_of(&[("ibdata2", content), ("ib_logfile0", &log)], 1694);
        assert_eq!((found.bad.len(), found.doubtful), (0, 0));
    }
}

#[test]
fn an_undo_tablespace_that_is_shorter_than_it_states_is_damage_unless_it_may_be_truncated() {
    let (sound, log) = (table_in_use(900), redo(MARIADB, 1000));
    for name in ["undo001", "undo_002", "x.ibu"] {
        let of = |log: Option<&[u8]>, last, pages| {
            let mut files = vec![(name, &sound[..pages * PAGE])];
            files.extend(log.map(|log| ("ib_logfile0", log)));
            let found = pages_of(&files, last);
            assert_eq!(found.bad.len() as u64, found.counts.damaged);
            (found.counts.damaged, found.doubtful)
        };
        assert_eq!(of(Some(&log), 1694, 6), (0, 0), "{name}");
        assert_eq!(of(Some(&log), 1694, 5), (1, 0), "{name} of an idle server");
        assert_eq!(of(Some(&log), 2560, 5), (0, 1), "{name} of a busy server");
        assert_eq!(of(None, 2560, 5), (1, 0), "{name} without a redo log");
    }
    // The length to which MariaDB truncates: its recovery writes the first page.
    let mut truncated = sound;
    truncated[46..50].copy_from_slice(&700_u32.to_be_bytes());
    // No page behind these was ever used.
    truncated[50..54].copy_from_slice(&6_u32.to_be_bytes());
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &truncated[..PAGE - 4]) as u32;
    truncated[PAGE - 4..PAGE].copy_from_slice(&sum.to_be_bytes());
    for (pages, expected) in [(640, (0, 0)), (639, (0, 1)), (641, (0, 1))] {
        truncated.resize(pages * PAGE, 0);
        let found = pages_of(&[("undo001", &truncated), ("ib_logfile0", &log)], 2560);
        assert_eq!((found.counts.damaged, found.doubtful), expected, "{pages}");
    }
    truncated.resize(640 * PAGE, 0);
    let found = pages_of(&[("undo001", &truncated), ("ib_logfile0", &log)], 1694);
    assert_eq!((found.counts.damaged, found.doubtful), (1, 0), "an idle server has written it");
}

#[test]
fn a_redo_log_that_recovery_cannot_read_is_damage() {
    use xb_pipeline::RedoFault;
    const NEWEST: u32 = 0x5068_7973;
    // As mariadb-backup writes it: 304 bytes of log behind the head, in two mini-transactions.
    let mut log = vec![0; 12 << 10];
    log[..4].copy_from_slice(&NEWEST.to_be_bytes());
    log[8..16].copy_from_slice(&1000_u64.to_be_bytes());
    log[16..31].copy_from_slice(b"Backup 10.11.19");
    log[4096..4104].copy_from_slice(&1000_u64.to_be_bytes());
    for (from, end) in [(0, 508), (4096, 4096 + 60)] {
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, &log[from..end]) as u32;
        log[end..end + 4].copy_from_slice(&sum.to_be_bytes());
    }
    for records in [[&[0x39][..], &[5; 9]].concat(), [&[0x30, 0x80, 140][..], &[7; 281]].concat()] {
        log.extend_from_slice(&records);
        log.push(1);
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, &records) as u32;
        log.extend_from_slice(&sum.to_be_bytes());
    }
    let fault = |files: &[(&str, &[u8])], last| pages_of(files, last).redo.map(|bad| bad.fault);
    let of = |log: &[u8], last| fault(&[("ib_logfile0", log)], last);
    assert_eq!(of(&log, 1304), None);
    assert_eq!(of(&log, 1300), None, "a log may hold more");
    let (len, expected) = (log.len() as u64 - 20, log.len() as u64);
    assert_eq!(of(&log[..log.len() - 20], 1304), Some(RedoFault::Cut { len, expected }));
    for at in 0..304 {
        let mut broken = log.clone();
        broken[(12 << 10) + at] ^= 64;
        let intact = if at < 15 { 1000 } else { 1015 };
        assert_eq!(of(&broken, 1304), Some(RedoFault::Broken { intact, end: 1304 }), "{at}");
        // The end is where the backup says: behind it, a log may hold anything.
        assert_eq!(of(&broken, intact), None);
    }
    assert_eq!(of(&[], 1304), Some(RedoFault::Blank));
    assert_eq!(of(&vec![0; log.len()], 1304), Some(RedoFault::Blank));
    let mut headless = log.clone();
    headless[4100] ^= 1;
    assert_eq!(of(&headless, 1304), Some(RedoFault::NoCheckpoint));
    assert_eq!(fault(&[("a", b"x")], 1304), Some(RedoFault::Missing));
    // A server's spare log is not damage, and neither is a format that we do not know.
    assert_eq!(fault(&[("ib_logfile0", &log), ("ib_logfile1", &[])], 1304), None);
    assert_eq!(of(&[9; 20_000], 1304), None);
}

/// The head of an index file of Aria: `flags` are the number of open handles, `transactional`, and
/// the lengths of both files.
fn aria_head(open: u8, transactional: u8, lengths: [u64; 2]) -> Vec<u8> {
    let mut head = vec![0; 8192];
    head[..4].copy_from_slice(&[0xfe, 0xfe, 9, 3]);
    (head[7], head[13], head[22], head[25]) = (200, 200, 3, open);
    head[89..97].copy_from_slice(&lengths[0].to_be_bytes());
    head[97..105].copy_from_slice(&lengths[1].to_be_bytes());
    (head[200 + 22], head[200 + 106]) = (0x20, transactional);
    head
}

#[test]
fn a_table_of_another_engine_is_judged_by_its_index_file() {
    use xb_pipeline::TableFault;
    // One page that does not match its checksum.
    let rows = vec![7; 8192];
    let of = |files: &[(&str, &[u8])]| {
        let found = pages_of(files, 5);
        let faults: Vec<_> =
            found.tables.iter().map(|bad| (bad.path.to_string(), bad.fault)).collect();
        let counts = (found.files, found.counts.damaged, found.bad.len(), found.in_use);
        (counts, faults, found)
    };
    for order in [["d/t.MAI", "d/t.MAD"], ["d/t.MAD", "d/t.MAI"]] {
        let both = |head: Vec<u8>| {
            of(&order.map(|name| (name, if name.ends_with('I') { &head[..] } else { &rows[..] })))
        };
        let (counts, faults, _) = both(aria_head(0, 1, [8192, 8192]));
        assert_eq!((counts, faults.len()), ((2, 1, 1, 0), 0));
        // The server may have been writing it.
        assert_eq!(both(aria_head(1, 1, [8192, 8192])).0, (2, 0, 0, 1));
        // Lengths count only where no log repairs them, and nothing is open.
        for (open, transactional) in [(0, 1), (1, 0), (1, 1)] {
            assert!(both(aria_head(open, transactional, [8192, 99_999])).1.is_empty());
        }
        let short = TableFault::Short { len: 8192, stated: 99_999 };
        assert_eq!(both(aria_head(0, 0, [8192, 99_999])).1, [("d/t.MAD".to_owned(), short)]);
        // Rows that are not in pages.
        let mut dynamic = aria_head(0, 0, [8192, 8192]);
        dynamic[22] = 1;
        let (counts, _, found) = both(dynamic);
        assert_eq!((counts, found.lengths_only["Aria"]), ((1, 0, 0, 0), 1));
        // Formats that are not known are not checked.
        for (at, value) in [(3, 4), (200 + 22, 0x10), (200 + 91, 1), (200 + 106, 2)] {
            let mut other = aria_head(0, 1, [8192, 8192]);
            other[at] = value;
            let (counts, faults, found) = both(other);
            assert_eq!(
                (counts, faults.len(), found.not_checked["Aria"]),
                ((0, 0, 0, 0), 0, 2),
                "{at}"
            );
        }
        assert_eq!(both(vec![0xfe; 2]).1, [("d/t.MAI".to_owned(), TableFault::HeadCut)]);
        assert!(matches!(both(vec![9; 9000]).1[..], [(_, TableFault::NotAnIndex(_))]));
        assert!(matches!(both(vec![]).1[..], [(_, TableFault::NotAnIndex(_))]));
    }
    for (name, other) in
        [("d/t.MYI", ".MYD"), ("d/t.MYD", ".MYI"), ("d/t.MAI", ".MAD"), ("d/t.MAD", ".MAI")]
    {
        let faults = of(&[(name, &rows)]).1;
        assert_eq!(faults, [(name.to_owned(), TableFault::Missing(other))]);
    }
    assert!(of(&[("d/#sql-1.MYI", &rows)]).1.is_empty());
    let (_, _, found) = of(&[
        ("d/c.CSV", b"1"),
        ("d/c.CSM", b"1"),
        ("d/a.ARZ", b"1"),
        ("#rocksdb/1.sst", b"1"),
        ("aria_log_control", b"1"),
        ("d/t.frm", b"1"),
    ]);
    let named: Vec<_> = found.not_checked.into_iter().collect();
    assert_eq!(named, [("ARCHIVE", 1), ("Aria (log)", 1), ("CSV", 2), ("RocksDB", 1)]);
}

#[test]
fn holes_of_sparse_chunks_are_zeros() {
    let plain = tablespace(4);
    let mut writer = ChunkWriter::new(Vec::new());
    // Pages 0 and 1, a hole of two pages, page 4, and a hole to the end.
    let payload: Vec<u8> = [&plain[..2 * PAGE], &tablespace(5)[4 * PAGE..]].concat();
    let hole = u32::try_from(2 * PAGE).unwrap();
    let map = [(0, hole), (hole, hole / 2), (hole, 0)];
    writer
        .sparse("t.ibd", 0, &map.map(|(skip, len)| xb_reader::MapEntry { skip, len }), &payload)
        .unwrap();
    writer.end("t.ibd").unwrap();
    writer.end("xtrabackup_info").unwrap();
    let found = inspect(&writer.finish().unwrap(), 5000, options(false)).unwrap();
    let counts = found.pages.counts;
    assert_eq!((counts.good, counts.empty, counts.damaged), (3, 4, 0));
}

#[test]
fn damage_in_a_file_is_not_blamed_on_the_key_nor_the_other_way_round() {
    let plain = tablespace(6);
    for wrapping in &WRAPPINGS[1..] {
        let name = format!("t.ibd{wrapping}");
        let stored = wrapped(wrapping, &plain);
        let stream = mixed(&[(name.clone(), stored.clone())], 60_000);
        // Damage in the stream only: the chunk's checksum detects it.
        let mut bad = stream.clone();
        bad[500] ^= 1;
        let error = inspect(&bad, 7777, options(true)).unwrap_err();
        assert!(matches!(error, InspectError::Stream(_)), "{wrapping}: {error}");
        // Damage before the file was put into a stream.
        let mut stored = stored;
        let at = stored.len() / 2;
        stored[at] ^= 1;
        let stream = mixed(&[(name.clone(), stored)], 60_000);
        match inspect(&stream, 7777, options(true)) {
            Err(InspectError::FileDecoding { path, .. }) => assert_eq!(path.to_string(), name),
            // A codec without checksums may miss the damage; the page check does not.
            Ok(found) => assert!(found.pages.counts.damaged > 0, "{wrapping}"),
            Err(error) => panic!("{wrapping}: {error}"),
        }
    }
    // Cut inside a layer.
    let stored = wrapped(".zst", &plain);
    let stream = mixed(&[("t.ibd.zst".into(), stored[..stored.len() - 3].to_vec())], 60_000);
    assert!(matches!(inspect(&stream, 999, options(true)), Err(InspectError::FileDecoding { .. })));
    // The stream itself must be complete, too.
    let stream = mixed(&[("t.ibd".into(), plain)], 60_000);
    for cut in [stream.len() - 40, stream.len() / 2] {
        let cut = inspect(&stream[..cut], 999, options(true));
        assert!(matches!(cut, Err(InspectError::Stream(_))));
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_with_the_number() {
    let stream = mixed(&files(&tablespace(9)), 60_000);
    let few = InspectOptions { memory: 100_000, ..options(true) };
    let error = inspect(&stream, 10_000, few).unwrap_err();
    assert!(error.to_string().contains("of memory"), "{error}");
}

/// The writer's index matches the stream, for every codec and with a seal.
#[test]
fn an_index_agrees_with_its_own_stream_only() {
    let streams = [mixed(&files(&tablespace(9)), 60_000), mixed(&files(&tablespace(9)), 50_000)];
    let records =
        streams.each_ref().map(|stream| inspect(stream, 1 << 20, options(false)).unwrap().records);
    for codec in CODECS {
        for sealed in [false, true] {
            let plan = pack_plan(64 << 20, 100_000, 2, 4, LIMITS).unwrap();
            let (cutting, key) = native(codec, sealed);
            let rule = EndRule::KnownProducer;
            let (objects, result) = put(streams[0].clone(), 65_536, plan, cutting, rule);
            result.unwrap();
            let bytes: Bytes = objects.into_values().collect::<Vec<_>>().concat().into();
            let watch = IndexWatch::default();
            let seen = watch.clone();
            let plan = UnpackPlan::new(64 << 20, 2, 2).unwrap();
            let ranges = bytes.chunks(99_999).map(|r| Some(bytes.slice_ref(r))).collect::<Vec<_>>();
            unpack_watched(
                ranges.into_iter(),
                key,
                &plan,
                &Observer::default(),
                move |header, payload| seen.frame(header, payload),
                |_| Ok::<_, std::convert::Infallible>(()),
            )
            .unwrap();
            let proof = watch.finish();
            proof.agrees(Some(&records[0])).unwrap();
            proof.agrees(None).unwrap();
            assert!(proof.agrees(Some(&records[1])).is_err());
        }
    }
    // An index without its frames, and frames without their index.
    assert!(IndexWatch::default().finish().agrees(Some(&records[0])).is_err());
}

proptest! {
    #[test]
    fn pieces_and_chunks_do_not_matter(
        pages in 1_u32..6, chunk in 1000_usize..90_000, piece in 1_usize..200_000,
        damage in prop::option::of((any::<prop::sample::Index>(), 1_u8..)),
    ) {
        let mut plain = tablespace(pages);
        let mut expected = 0;
        if let (Some((at, flip)), false) = (damage, plain.is_empty()) {
            let at = at.index(plain.len());
            plain[at] ^= flip;
            expected = 1;
        }
        let stream = mixed(&files(&plain), chunk);
        let found = inspect(&stream, piece, options(true)).unwrap();
        let damaged = found.pages.counts.damaged;
        // A damaged flag field makes one bad page look like several.
        let right = if expected == 0 { damaged == 0 } else { damaged >= 6 };
        prop_assert!(right, "{} bad pages", damaged);
        let whole = inspect(&stream, stream.len(), options(true)).unwrap();
        prop_assert_eq!(found.pages.bad, whole.pages.bad);
        prop_assert_eq!(found.records, whole.records);
    }

    /// Whatever the files of a table hold, it is judged without a panic, in any pieces.
    #[test]
    fn any_content_of_a_table_is_judged(
        mut head in prop::collection::vec(any::<u8>(), 0..600), magic in prop::sample::select(vec![[0xfe, 0xfe, 7, 1], [0xfe, 0xfe, 9, 3]]),
        zeros in 0_usize..20_000, rows in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        head.splice(..head.len().min(4), magic);
        head.resize(head.len() + zeros, 0);
        let rows = rows.repeat(60);
        for (index, data) in [("d/t.MYI", "d/t.MYD"), ("d/t.MAI", "d/t.MAD")] {
            let found = pages_of(&[(index, &head), (data, &rows)], 5);
            prop_assert!(found.tables.len() <= 3);
        }
    }

    #[test]
    fn any_damage_of_a_stream_is_an_error_and_no_panic(at: prop::sample::Index, flip in 1_u8.., piece in 1_usize..100_000) {
        let mut stream = mixed(&files(&tablespace(2)), 10_000);
        let at = at.index(stream.len());
        stream[at] ^= flip;
        let _ = inspect(&stream, piece, options(true));
    }
}

/// Packs a stream of these files, encoded as their names indicate.
fn taken(files: &[(&str, &[u8])]) -> Result<InspectReport, InspectError> {
    let mut writer = ChunkWriter::new(Vec::new());
    for (name, plain) in files {
        let suffixes = name.find('.').map_or("", |at| &name[at..]);
        writer.payload(name, 0, &wrapped(suffixes, plain)).unwrap();
        writer.end(name).unwrap();
    }
    let mut inspector = Inspector::new(InspectOptions {
        rule: EndRule::KnownProducer,
        decoding: false,
        cipher: None,
        pages: false,
        memory: 64 << 20,
    });
    inspector.feed(&Bytes::from(writer.finish().unwrap()))?;
    inspector.finish()
}

#[test]
fn a_required_file_that_is_empty_once_decoded_counts_as_missing() {
    // Output of `zstd` and `lz4` for an empty file.
    const ZSTD: [u8; 13] = *b"\x28\xb5\x2f\xfd\x24\x00\x01\x00\x00\x99\xe9\xd8\x51";
    const LZ4: [u8; 15] = *b"\x04\x22\x4d\x18\x64\x40\xa7\x00\x00\x00\x00\x05\x5d\xcc\x02";
    let lacking = |name: &str, stored: &[u8]| {
        let stream = mixed(&[(name.to_owned(), stored.to_vec())], 60_000);
        let found = inspect(&stream, 10_000, options(true)).unwrap();
        let first = found.scanned.lacking.clone();
        // A later pass does not forget it.
        let mut again = Inspector::again(options(true), found);
        again.feed(&Bytes::from(stream)).unwrap();
        assert_eq!(again.finish().unwrap().scanned.lacking, first);
        first
    };
    for name in ["aria_log.00000001", "aria_log_control"] {
        assert_eq!(lacking(&format!("{name}.zst"), &ZSTD), [name]);
        assert_eq!(lacking(&format!("{name}.lz4"), &LZ4), [name]);
        let sealed = format!("{name}.zst.xbcrypt");
        assert_eq!(lacking(&sealed, &wrapped(".xbcrypt", &ZSTD)), [name]);
        assert_eq!(lacking(&format!("{name}.zst"), &wrapped(".zst", &[0; 20_000])), [name]);
        assert!(lacking(&format!("{name}.zst"), &wrapped(".zst", b"log")).is_empty());
    }
    assert!(lacking("d/t.CSV.zst", &ZSTD).is_empty());
}

#[test]
fn a_compressed_info_file_tells_who_wrote_it() {
    let newer: &[u8] = b"tool_name = xtrabackup\ntool_version = 8.0.35-31\n";
    let other: &[u8] = b"tool_name = mariadb-backup\ntool_version = 10.11.19-MariaDB\n";
    for suffix in ["", ".zst", ".lz4"] {
        let (info, last) =
            (format!("xtrabackup_info{suffix}"), format!("xtrabackup_tablespaces{suffix}"));
        let cut = taken(&[("a", b"1"), (&info, newer)]).unwrap_err().to_string();
        assert!(cut.contains("xtrabackup 8.0.35-31 writes xtrabackup_tablespaces"), "{cut}");
        taken(&[("a", b"1"), (&info, newer), (&last, b"{}")]).unwrap();
        let whole = taken(&[("a", b"1"), (&info, other)]).unwrap();
        // The content is also kept for the manifest.
        assert_eq!(whole.scanned.described["xtrabackup_info"], other);
        let early = taken(&[(&info, other), ("a", b"1")]).unwrap_err().to_string();
        assert!(early.contains("a follows xtrabackup_info"), "{early}");
    }
}

#[test]
fn names_that_no_restore_takes_are_refused() {
    let last: (&str, &[u8]) = ("xtrabackup_info", b"tool_name = mariadb-backup\n");
    for (names, said) in [
        (["n", "n/m"], "n/m: its directory n is a file in the stream"),
        (["n/m", "n"], "n: without suffixes it is named n, which is a directory in the stream"),
        (["a", "a.lz4"], "a.lz4: without suffixes it is named a, as is a"),
        (["n.zst", "n/m"], "n/m: its directory n is a file in the stream"),
        (["a", ".xb-partial/x"], "names starting with .xb-partial are reserved"),
    ] {
        let error = taken(&[(names[0], b"1"), (names[1], b"2"), last]).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert!(error.place().1.is_some_and(|path| path.as_bytes() == names[1].as_bytes()));
    }
    taken(&[("n.lz4", b"1"), ("m/n", b"2"), ("m/n.x/o", b"3"), last]).unwrap();
}
