//! Tablespaces of a real MariaDB, in the page sizes and kinds that it supports.

use std::path::{Path, PathBuf};

use xb_pages::{
    BadPage, Format, Kind, PageChecker, PageCounts, TableFileChecked, TableFileChecker,
    TableFileName, TableHead,
};
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

fn table_file(path: &Path, bytes: &[u8], piece: usize) -> TableFileChecked {
    let name = TableFileName::of(path.to_str().unwrap().as_bytes()).unwrap();
    let mut checker = TableFileChecker::new(name.engine, name.part);
    bytes.chunks(piece).for_each(|piece| checker.feed(piece));
    checker.finish()
}

/// Files of MyISAM and Aria tables of a server that was shut down have the lengths that their heads
/// state, and Aria's pages match their checksums. A byte changed in a used page is found.
#[test]
fn tables_of_myisam_and_aria() {
    let keys = tempfile_with_keys();
    let server = MariaDb::start_with(&[
        "--plugin-load-add=file_key_management",
        &format!("--file-key-management-filename={}", keys.path().join("keys").display()),
    ]);
    let rows = "SELECT seq, REPEAT(SHA1(seq), 1 + seq MOD 4), IF(seq MOD 99, NULL, REPEAT('b', 50000)) FROM seq_1_to_3000";
    let columns = "(id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v))";
    let mut sql = "CREATE DATABASE t; USE t;".to_owned();
    for (name, options) in [
        ("page", "Aria"),
        ("page_plain", "Aria TRANSACTIONAL=0 ROW_FORMAT=PAGE"),
        ("no_sums", "Aria PAGE_CHECKSUM=0"),
        ("dynamic", "Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC"),
        ("myisam", "MyISAM"),
        ("packed", "MyISAM CHECKSUM=1 PACK_KEYS=1"),
    ] {
        sql +=
            &format!("CREATE TABLE {name} {columns} ENGINE={options}; INSERT INTO {name} {rows};");
        sql += &format!(
            "DELETE FROM {name} WHERE id MOD 3 = 0; UPDATE {name} SET v = UUID() WHERE id MOD 7 = 0;"
        );
    }
    sql += "CREATE TABLE places (id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL INDEX(g)) ENGINE=Aria;
        INSERT INTO places SELECT seq, POINT(seq, seq) FROM seq_1_to_2000;
        CREATE TABLE words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)) ENGINE=Aria; INSERT INTO words SELECT seq, SHA1(seq) FROM seq_1_to_2000;
        SET GLOBAL aria_encrypt_tables = 1; CREATE TABLE secret LIKE page; INSERT INTO secret SELECT * FROM page;";
    server.sql(&sql);
    let files = server.shut_down();
    let data = files.join("data");
    let mut sum = PageCounts::default();
    let mut tables = 0;
    for folder in ["mysql", "t"] {
        for entry in std::fs::read_dir(data.join(folder)).unwrap() {
            let index = entry.unwrap().path();
            let extension = index.extension().unwrap_or_default().to_str().unwrap();
            let rows = match extension {
                "MAI" => index.with_extension("MAD"),
                "MYI" => index.with_extension("MYD"),
                _ => continue,
            };
            let shown = index.display();
            let bytes = std::fs::read(&index).unwrap();
            let checked = table_file(&index, &bytes, 4000);
            let head: TableHead = checked.head.unwrap().unwrap();
            let row_bytes = std::fs::read(&rows).unwrap();
            let row_checked = table_file(&rows, &row_bytes, 20_000);
            assert!(!head.in_use, "{shown}");
            assert_eq!((checked.len, row_checked.len), (head.index_len, head.data_len), "{shown}");
            assert_eq!(
                head.pages.is_none(),
                extension == "MYI" || shown.to_string().contains("secret"),
                "{shown}"
            );
            let Some(pages) = head.pages else { continue };
            assert_eq!((&checked.bad, checked.more_bad), (&vec![], 0), "{shown}");
            sum.add(&checked.counts);
            tables += 1;
            if !pages.rows {
                continue;
            }
            assert_eq!((&row_checked.bad, row_checked.more_bad), (&vec![], 0), "{shown}");
            sum.add(&row_checked.counts);
            if shown.to_string().contains("t/page") {
                for (path, mut bytes) in [(&index, bytes), (&rows, row_bytes)] {
                    bytes[2 * 8192 + 60] ^= 1;
                    let bad = table_file(path, &bytes, 9000).bad;
                    assert_eq!(
                        bad.iter().map(|bad| (bad.page, bad.offset)).collect::<Vec<_>>(),
                        [(2, 16384)],
                        "{shown}"
                    );
                }
            }
        }
    }
    assert!(tables > 25 && sum.good > 300 && sum.no_checksum > 100, "{tables} {sum:?}");
}
