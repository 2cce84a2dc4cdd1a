//! Tablespaces of a real MariaDB, in the page sizes and kinds that it supports.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::path::{Path, PathBuf};

use xb_pages::{BadPage, Format, Kind, PageChecker, PageCounts};
use xb_testkit::mariadb::MariaDb;

/// Creates tables of all row formats that the page size allows, with several levels of an index.
fn tables(server: &MariaDb, zip: bool) {
    let zipped = if zip {
        "CREATE TABLE t.zip LIKE t.plain; ALTER TABLE t.zip ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=2;
         INSERT INTO t.zip SELECT * FROM t.plain; INSERT INTO t.zip SELECT id + 10000, v, b FROM t.plain;"
    } else {
        ""
    };
    server.sql(&format!(
        "CREATE DATABASE t; USE t;
         CREATE TABLE t.plain (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50))) ENGINE=InnoDB;
         INSERT INTO t.plain SELECT seq, REPEAT(MD5(seq), 5), IF(seq MOD 50, NULL, REPEAT('b', 100000)) FROM seq_1_to_2000;
         DELETE FROM t.plain WHERE id BETWEEN 500 AND 900;
         CREATE TABLE t.old LIKE t.plain; ALTER TABLE t.old ROW_FORMAT=REDUNDANT; INSERT INTO t.old SELECT * FROM t.plain;
         CREATE TABLE t.packed LIKE t.plain; ALTER TABLE t.packed PAGE_COMPRESSED=1; INSERT INTO t.packed SELECT * FROM t.plain;
         CREATE TABLE t.place (id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL INDEX(g)) ENGINE=InnoDB;
         INSERT INTO t.place SELECT seq, POINT(seq, seq MOD 7) FROM seq_1_to_3000;
         CREATE TABLE t.words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)) ENGINE=InnoDB;
         INSERT INTO t.words SELECT seq, MD5(seq) FROM seq_1_to_500;
         CREATE TABLE t.gone AS SELECT * FROM t.plain; TRUNCATE t.gone; OPTIMIZE TABLE t.words;
         {zipped}"
    ));
}

/// All files below a folder that have pages.
fn tablespaces(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if PageChecker::of_name(path.to_str().unwrap().as_bytes()).is_some() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn check(path: &Path, bytes: &[u8]) -> (PageCounts, Vec<BadPage>, Option<Format>) {
    let mut checker = PageChecker::of_name(path.to_str().unwrap().as_bytes()).unwrap();
    let mut bad = Vec::new();
    checker.feed(bytes, &mut |page| bad.push(page));
    let format = checker.format();
    let found = checker.finish(&mut |page| bad.push(page));
    (found.counts, bad, format)
}

/// Every tablespace of a server that was shut down passes. A byte changed in the middle of a used
/// page is found.
fn sound(options: &[&str], page_size: usize, kind: Kind) {
    let server = MariaDb::start_with(options);
    tables(&server, page_size <= 16384);
    let files = server.shut_down();
    let mut sum = PageCounts::default();
    let mut kinds = Vec::new();
    for path in tablespaces(files.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        let (counts, bad, format) = check(&path, &bytes);
        assert_eq!(bad, [], "{options:?} {}", path.display());
        sum.add(&counts);
        // In a file shorter than the largest page, the format is known only at its end.
        let Some(format) = format else { continue };
        let zip = path.ends_with("zip.ibd");
        assert_eq!(format.kind, if zip { Kind::Zip } else { kind }, "{}", path.display());
        assert_eq!(format.page_size, if zip { 2048 } else { page_size }, "{}", path.display());
        kinds.push(format.kind);
        // In files with rows, the root page has content in its middle.
        if path.ends_with("plain.ibd") || path.ends_with("zip.ibd") {
            let at = 3 * format.page_size + format.page_size / 3;
            bytes[at] ^= 0x10;
            let (_, bad, _) = check(&path, &bytes);
            assert_eq!(bad.iter().map(|b| b.page).collect::<Vec<_>>(), [3], "{}", path.display());
        }
    }
    assert!(sum.good > 200, "{sum:?}");
    assert_eq!(kinds.contains(&Kind::Zip), page_size <= 16384);
    assert_eq!(sum.no_checksum, 0);
}

#[test]
fn full_crc32_of_16k_and_undo_tablespaces_of_their_own() {
    sound(&["--innodb-undo-tablespaces=3"], 16384, Kind::Full);
}

#[test]
fn full_crc32_of_4k() {
    sound(&["--innodb-page-size=4k"], 4096, Kind::Full);
}

#[test]
fn full_crc32_of_64k() {
    sound(&["--innodb-page-size=64k"], 65536, Kind::Full);
}

#[test]
fn crc32_of_8k() {
    sound(&["--innodb-checksum-algorithm=strict_crc32", "--innodb-page-size=8k"], 8192, Kind::Both);
}

/// With the key file plugin, which also encrypts redo-only and system pages.
#[test]
fn encrypted_tables_of_both_kinds() {
    for (algorithm, kind) in [("full_crc32", Kind::Full), ("crc32", Kind::Both)] {
        let keys = tempfile_with_keys();
        let options = [
            "--plugin-load-add=file_key_management".to_owned(),
            format!("--file-key-management-filename={}", keys.path().join("keys").display()),
            "--innodb-encrypt-tables=ON".to_owned(),
            "--innodb-encryption-threads=0".to_owned(),
            format!("--innodb-checksum-algorithm={algorithm}"),
        ];
        sound(&options.each_ref().map(String::as_str), 16384, kind);
    }
}

fn tempfile_with_keys() -> xb_testkit::daemon::Scratch {
    let folder = xb_testkit::daemon::Scratch::new();
    let line = format!("1;{}\n", "0123456789abcdef".repeat(4));
    std::fs::write(folder.join("keys"), line).unwrap();
    folder
}
