//! `verify` with the files of a real MySQL: in a backup as xtrabackup would have taken it, no page of
//! a sound server raises an alarm, and a changed byte is named.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere they
//! do nothing, and say so.

use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use xb_testkit::daemon::Scratch;
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

fn skipped() -> bool {
    let missing = !is_installed();
    if missing {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    missing
}

const PIECE: usize = 1 << 20;

/// Tables of every kind that does not depend on the page size.
const TABLES: &str = "SET SESSION cte_max_recursion_depth=100000;
    CREATE DATABASE t; USE t;
    CREATE TABLE seq (seq INT PRIMARY KEY);
    INSERT INTO seq WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<4000) SELECT n FROM s;
    CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50)));
    INSERT INTO plain SELECT seq, REPEAT(LEFT(SHA2(seq,256),32),5), IF(seq MOD 50, NULL, REPEAT('b',100000)) FROM seq;
    DELETE FROM plain WHERE id BETWEEN 500 AND 900;
    CREATE TABLE old ROW_FORMAT=REDUNDANT AS SELECT * FROM plain;
    CREATE TABLE squeezed LIKE plain; ALTER TABLE squeezed COMPRESSION='zlib'; INSERT INTO squeezed SELECT * FROM plain;
    CREATE TABLE squeezed2 LIKE plain; ALTER TABLE squeezed2 COMPRESSION='lz4'; INSERT INTO squeezed2 SELECT * FROM plain;
    CREATE TABLE scattered (id CHAR(36) PRIMARY KEY, v VARCHAR(400)); INSERT INTO scattered SELECT UUID(), REPEAT(LEFT(SHA2(seq,256),32),8) FROM seq;
    DELETE FROM scattered ORDER BY id LIMIT 1500;
    CREATE TABLE place (id INT PRIMARY KEY, g POINT NOT NULL SRID 0, SPATIAL INDEX(g)); INSERT INTO place SELECT seq, POINT(seq, seq MOD 7) FROM seq;
    CREATE TABLE words (id INT PRIMARY KEY, v TEXT, FULLTEXT(v)); INSERT INTO words SELECT seq, LEFT(SHA2(seq,256),32) FROM seq; OPTIMIZE TABLE words;
    CREATE TABLE changed AS SELECT * FROM plain; TRUNCATE changed;
    ALTER TABLE changed ADD COLUMN i INT DEFAULT 5, ALGORITHM=INSTANT; INSERT INTO changed (id, v) SELECT seq, 'x' FROM seq; ALTER TABLE changed DROP COLUMN v, ALGORITHM=INSTANT;
    CREATE TABLE parts (id INT PRIMARY KEY, v VARCHAR(100)) PARTITION BY HASH(id) PARTITIONS 4; INSERT INTO parts SELECT seq, LEFT(SHA2(seq,256),32) FROM seq;
    CREATE TABLESPACE g1 ADD DATAFILE 'g1.ibd'; CREATE TABLE general (id INT PRIMARY KEY, v TEXT) TABLESPACE g1; INSERT INTO general SELECT seq, REPEAT('x',300) FROM seq;
    CREATE UNDO TABLESPACE u1 ADD DATAFILE 'u1.ibu';
    CREATE TABLE doc (id INT PRIMARY KEY, j JSON); INSERT INTO doc SELECT seq, JSON_OBJECT('a', seq, 'b', REPEAT('z', 2000)) FROM seq;
    CREATE TABLE secret (id INT PRIMARY KEY, v VARCHAR(200), b LONGBLOB, KEY(v(50))) ENCRYPTION='Y'; INSERT INTO secret SELECT * FROM plain;
    CREATE TABLE both_ways LIKE squeezed; ALTER TABLE both_ways ENCRYPTION='Y'; INSERT INTO both_ways SELECT * FROM plain;
    CREATE TABLESPACE g2 ADD DATAFILE 'g2.ibd' ENCRYPTION='Y'; CREATE TABLE secret2 (id INT PRIMARY KEY, v TEXT) TABLESPACE g2 ENCRYPTION='Y'; INSERT INTO secret2 SELECT seq, REPEAT('x',300) FROM seq;";

/// Tables with `ROW_FORMAT=COMPRESSED`, for pages up to 16 KiB.
fn zipped(page_kib: u32) -> String {
    let sizes = [1, 2, 4, 8, 16].into_iter().filter(|size| *size <= page_kib);
    let tables = sizes.map(|size| {
        format!(
            "CREATE TABLE zip{size} (id INT PRIMARY KEY, v VARCHAR(20), b LONGBLOB) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={size};
             INSERT INTO zip{size} SELECT id, LEFT(v, 20), b FROM plain;
             CREATE TABLE secret_zip{size} LIKE zip{size}; ALTER TABLE secret_zip{size} ENCRYPTION='Y'; INSERT INTO secret_zip{size} SELECT * FROM zip{size};"
        )
    });
    format!("USE t; {}", tables.collect::<String>())
}

/// Starts a server with all tables.
fn server(page_kib: u32, options: &[&str]) -> MySql {
    let size = format!("--innodb-page-size={page_kib}k");
    let server = MySql::start_with(&[&[size.as_str()], options].concat());
    // Holes are blocks of the file system: pages of 4 KiB cannot have any.
    let kept = |line: &&str| page_kib > 4 || !line.contains("squeezed");
    server.sql(&TABLES.lines().filter(kept).collect::<Vec<_>>().join("\n"));
    if page_kib <= 16 {
        server.sql(&zipped(page_kib));
    }
    server
}

/// The files of a data directory that a backup has, by their names in it, the redo log first.
fn files(data: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut todo = vec![data.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(data).unwrap().to_str().unwrap().to_owned();
            let left_out = ["#innodb_temp", ".dblwr", ".pem", "_tmp", "ibtmp", "sock"];
            if left_out.iter().any(|part| name.contains(part)) {
                continue;
            }
            match path.is_dir() {
                true => todo.push(path),
                false => found.push((name, path)),
            }
        }
    }
    found.sort_by_key(|(name, _)| (!name.starts_with("#innodb_redo/"), name.clone()));
    found
}

/// Reads a file of a running server as a backup program does: a piece that changes meanwhile is read
/// again. `None` if the server has removed the file: it does so with parts of its redo log.
fn read_stable(path: &Path) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::open(path).ok()?;
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        let size = PIECE.min(len - all.len());
        let (mut one, mut two) = (vec![0; size], vec![1; size]);
        while one != two {
            file.read_exact_at(&mut one, all.len() as u64).unwrap();
            file.read_exact_at(&mut two, all.len() as u64).unwrap();
        }
        all.extend(one);
    }
    Some(all)
}

/// A stream of these files as xtrabackup writes it. `change` may change what a file holds.
fn stream(data: &Path, mut change: impl FnMut(&str, &mut Vec<u8>)) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new());
    for (name, path) in files(data) {
        let Some(mut content) = read_stable(&path) else { continue };
        change(&name, &mut content);
        for (n, piece) in content.chunks(PIECE).enumerate() {
            stream.payload(&name, (n * PIECE) as u64, piece);
        }
        stream.end(&name);
    }
    // Which files a backup must have depends on it.
    let settings = match data.join("sysdata1").exists() {
        true => "[mysqld]\ninnodb_data_file_path=sysdata1:12M:autoextend\n",
        false => "[mysqld]\n",
    };
    let info = "uuid = 1\ntool_name = xtrabackup\ntool_version = 9.1.0-1\n";
    let checkpoints = "backup_type = full-prepared\nfrom_lsn = 0\nto_lsn = 1\nlast_lsn = 1\n";
    for (name, text) in [
        ("backup-my.cnf", settings),
        ("xtrabackup_checkpoints", checkpoints),
        ("xtrabackup_info", info),
        ("xtrabackup_tablespaces", "{}"),
    ] {
        stream.payload(name, 0, text.as_bytes()).end(name);
    }
    stream.finish()
}

/// The report of `verify` on a backup of this stream.
fn verified(stream: &[u8], status: i32) -> Value {
    let store = Store::folder();
    let _ = put_bytes(&store, "n", &[], stream);
    let ran = xbcloud(&store, "verify", "n", &["--json"]).run().expect(status);
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[track_caller]
fn assert_sound(stream: &[u8]) {
    let found = verified(stream, 0);
    assert_eq!((&found["problems"], &found["reached"]), (&Value::Array(vec![]), &"pages".into()));
    assert!(found["pages"]["good"].as_u64().unwrap() > 500, "{found}");
}

/// Returns whether the pages of this file can be checked without a server: not if they are encrypted or
/// page-compressed.
fn can_be_checked(name: &str) -> bool {
    let hidden = ["secret", "both_ways", "squeezed", "g2"].iter().any(|no| name.contains(no));
    let tables = name.starts_with("t/") && name.ends_with(".ibd") && !hidden;
    tables || name == "ibdata1" || name == "mysql.ibd" || name.starts_with("undo_")
}

/// No alarm for what a server has left after its end; and changed bytes are found in each kind of file
/// whose pages can be checked, at the right pages.
fn sound_and_damaged(page_kib: u32, options: &[&str], settings: &str) {
    if skipped() {
        return;
    }
    let server = server(page_kib, options);
    server.sql(settings);
    server.sql("INSERT INTO t.old SELECT id + 100000, v, b FROM t.plain");
    let folder = server.shut_down();
    let data = folder.join("data");
    assert_sound(&stream(&data, |_, _| {}));

    let page = page_kib as usize * 1024;
    let mut expected = Vec::new();
    let damaged = stream(&data, |name, content| {
        if !can_be_checked(name) {
            return;
        }
        // A byte in each of the first two pages, which show the format and are always in use. Tables
        // with compressed pages have smaller ones.
        content[page / 2 / 16] ^= 1;
        expected.push((name.to_owned(), 0));
        if !name.contains("zip") {
            content[page + page / 2] ^= 1;
            expected.push((name.to_owned(), page as u64));
        }
    });
    expected.sort();
    let found = verified(&damaged, 7);
    let problems = found["problems"].as_array().unwrap();
    let place = |p: &Value| (p["file"].as_str().unwrap().to_owned(), p["offset"].as_u64().unwrap());
    let mut named: Vec<(String, u64)> = problems.iter().map(place).collect();
    named.sort();
    assert_eq!(named, expected);
}

#[test]
fn pages_of_4k() {
    sound_and_damaged(4, &[], "DO 0");
}

#[test]
fn pages_of_8k_and_an_encrypted_log() {
    let settings = "SET GLOBAL innodb_undo_log_encrypt=ON; SET GLOBAL innodb_redo_log_encrypt=ON";
    sound_and_damaged(8, &[], settings);
}

#[test]
fn pages_of_16k_and_a_system_tablespace_of_two_files() {
    sound_and_damaged(16, &["--innodb-data-file-path=ibdata1:12M;ibdata2:12M:autoextend"], "DO 0");
}

#[test]
fn pages_of_32k() {
    sound_and_damaged(32, &[], "DO 0");
}

#[test]
fn pages_of_64k() {
    sound_and_damaged(64, &[], "DO 0");
}

/// Damage that no checksum shows.
#[test]
fn missing_and_foreign_pages_are_found() {
    if skipped() {
        return;
    }
    let options = ["--innodb-data-file-path=sysdata1:12M:autoextend"];
    let folder = server(16, &options).shut_down();
    let data = folder.join("data");
    assert_sound(&stream(&data, |_, _| {}));
    let page = 16384;
    let other = std::fs::read(data.join("t/old.ibd")).unwrap();
    let damaged = stream(&data, |name, content| match name {
        "sysdata1" => content[100 * page + 500] ^= 1,
        "t/plain.ibd" => content[6 * page..8 * page].fill(0),
        "t/scattered.ibd" => content.truncate(content.len() - 4 * page),
        "t/doc.ibd" => content[4 * page..5 * page].copy_from_slice(&other[4 * page..5 * page]),
        // The number of the tablespace, which the first page has twice.
        "t/old.ibd" | "t/secret.ibd" => content[37] ^= 1,
        _ => {}
    });
    let found = verified(&damaged, 7);
    let problems = found["problems"].as_array().unwrap();
    let mut named: Vec<(&str, u64)> = problems
        .iter()
        .map(|problem| (problem["file"].as_str().unwrap(), problem["offset"].as_u64().unwrap()))
        .collect();
    named.sort_unstable();
    let end = std::fs::metadata(data.join("t/scattered.ibd")).unwrap().len() - 4 * page as u64;
    let expected = [
        ("sysdata1", 100 * page as u64),
        ("t/doc.ibd", 4 * page as u64),
        ("t/old.ibd", 0),
        ("t/plain.ibd", 6 * page as u64),
        ("t/plain.ibd", 7 * page as u64),
        ("t/scattered.ibd", end),
        ("t/secret.ibd", 0),
    ];
    assert_eq!(named, expected);
}

/// Pages that are changed in one backup.
const FLIPS: usize = 60;

/// Size of a page in this file of a server with pages of `usual` KiB.
fn page_size(name: &str, usual: u32) -> usize {
    let zip = name.split_once("zip").and_then(|(_, rest)| rest.split_once('.'));
    let kib = zip.and_then(|(size, _)| size.parse().ok()).unwrap_or(usual);
    kib as usize * 1024
}

/// Returns whether a byte of a page is in its checksum or always compared otherwise. Servers do not read the
/// rest, except the number of the tablespace: it is compared in pages that are in use, if the first page is
/// sound (`missing_and_foreign_pages_are_found`).
fn is_protected(name: &str, page: usize, at: usize) -> bool {
    let zipped = name.contains("zip");
    let without_lsn = zipped && (16..24).contains(&at);
    let space = !zipped && page > 0 && (34..38).contains(&at);
    !without_lsn && !space && !(26..34).contains(&at)
}

/// Bytes at random, of random pages of random files: each is named, with file and page, and nothing
/// else is.
fn changed_bytes(page_kib: u32, rounds: u64) {
    if skipped() {
        return;
    }
    let page_size = |name: &str| page_size(name, page_kib);
    let folder = server(page_kib, &[]).shut_down();
    let data = folder.join("data");
    assert_sound(&stream(&data, |_, _| {}));
    let checked = |name: &str| can_be_checked(name) || ["u1.ibu", "g1.ibd"].contains(&name);
    let pages: Vec<(String, usize)> = files(&data)
        .into_iter()
        .filter(|(name, _)| checked(name) || name.ends_with(".ibd"))
        .flat_map(|(name, path)| {
            let len = usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap();
            // The first page of an encrypted or page-compressed table is neither.
            let count = if checked(&name) { len / page_size(&name) } else { 1 };
            (0..count).map(move |page| (name.clone(), page)).collect::<Vec<_>>()
        })
        .collect();
    let mut names: Vec<&String> = pages.iter().map(|(name, _)| name).collect();
    names.dedup();
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = std::env::var("XB_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(started.subsec_nanos()));
    eprintln!("XB_SEED={seed} repeats this run");
    for round in 0..rounds {
        let mut random = Random(seed.wrapping_add(round).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut flips = std::collections::BTreeMap::new();
        while flips.len() < FLIPS {
            // Half of them by file, half by page.
            let (name, page) = match random.below(2) {
                0 => pages[random.below(pages.len())].clone(),
                _ => {
                    let name = names[random.below(names.len())];
                    let count = pages.iter().filter(|(other, _)| other == name).count();
                    (name.clone(), random.below(count))
                }
            };
            let at = random.below(page_size(&name));
            if is_protected(&name, page, at) {
                let change = u8::try_from(1 + random.below(255)).unwrap();
                flips.insert((name, page), (at, change));
            }
        }
        let damaged = stream(&data, |name, content| {
            for ((_, page), (at, change)) in flips.iter().filter(|((file, _), _)| file == name) {
                content[page * page_size(name) + at] ^= change;
            }
        });
        let found = verified(&damaged, 7);
        let problems = found["problems"].as_array().unwrap();
        let mut named: Vec<(String, usize)> = problems
            .iter()
            .map(|problem| {
                let name = problem["file"].as_str().unwrap().to_owned();
                let offset = usize::try_from(problem["offset"].as_u64().unwrap()).unwrap();
                let page = offset / page_size(&name);
                (name, page)
            })
            .collect();
        named.sort();
        let expected: Vec<(String, usize)> = flips.keys().cloned().collect();
        let missed: Vec<_> = flips.iter().filter(|(place, _)| !named.contains(place)).collect();
        assert!(missed.is_empty(), "seed {seed}, round {round}: not named: {missed:?}");
        assert_eq!(named, expected, "seed {seed}, round {round}");
    }
}

#[test]
fn every_changed_byte_is_named() {
    changed_bytes(16, 8);
}

#[test]
fn every_changed_byte_is_named_in_pages_of_4k() {
    changed_bytes(4, 3);
}

#[test]
fn every_changed_byte_is_named_in_pages_of_64k() {
    changed_bytes(64, 3);
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) as usize % limit
    }
}

/// Statements that keep a server busy: they fill, change and empty tables.
const BUSY: &str = "USE t;
    CREATE TABLE busy (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(400), KEY(v(20)));
    DELIMITER //
    CREATE PROCEDURE work() BEGIN
        DECLARE n INT DEFAULT 0;
        WHILE n < 1000000 DO
            INSERT INTO busy (v) SELECT REPEAT(LEFT(SHA2(RAND(),256),32), 10) FROM seq LIMIT 1000;
            UPDATE busy SET v = LEFT(SHA2(id,256),32) WHERE id MOD 7 = n MOD 7;
            IF n MOD 5 = 4 THEN DELETE FROM busy WHERE id MOD 2 = n MOD 2 LIMIT 4000; END IF;
            SET n = n + 1;
        END WHILE;
    END //
";

#[test]
fn a_running_server_and_its_clone_raise_no_alarm() {
    if skipped() {
        return;
    }
    let server = server(16, &["--plugin-load-add=mysql_clone.so"]);
    server.sql(BUSY);
    let busy = server.start_sql("CALL t.work()");
    for _ in 0..3 {
        assert_sound(&stream(&server.datadir(), |_, _| {}));
    }
    let scratch = Scratch::new();
    let copy = scratch.join("clone");
    server.sql(&format!("CLONE LOCAL DATA DIRECTORY = '{}'", copy.display()));
    assert_sound(&stream(&copy, |_, _| {}));
    drop(busy);
}

/// Level restore on files that need no preparing, with the keyring that the server needs and with
/// names in lower case.
#[test]
fn a_trial_server_gets_its_keyring_and_its_settings() {
    if skipped() {
        return;
    }
    let folder = server(16, &["--lower-case-table-names=1"]).shut_down();
    let data = folder.join("data");
    let scratch = Scratch::new();
    let outside = scratch.dir("keyring");
    let mut files = Vec::new();
    for name in ["mysqld.my", "component_keyring_file.cnf"] {
        std::fs::rename(data.join(name), outside.join(name)).unwrap();
        files.push(format!("--datadir-file={}", outside.join(name).display()));
    }
    let store = Store::folder();
    let _ = put_bytes(&store, "n", &[], &stream(&data, |_, _| {}));
    let trial = format!("--scratch-dir={}", scratch.path().display());
    let options = ["--json", "--level=restore", "--prepare-program=/bin/true", &trial];
    let options: Vec<&str> = options.into_iter().chain(files.iter().map(String::as_str)).collect();
    let check = "--check-sql=SELECT COUNT(*) FROM t.secret";
    let all = [&options[..], &[check]].concat();
    let ran = xbcloud(&store, "verify", "n", &all).run().expect(0);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&found["reached"], &found["restore"]["statements"]),
        (&"restore".into(), &1.into())
    );
    // Its list of tables is the data dictionary; what InnoDB keeps besides them is counted.
    let others = &found["restore"]["others"];
    assert!(found["restore"]["tables"].as_u64() > Some(40), "{found}");
    assert_eq!((&others["unused"], &others["intermediate"]), (&0.into(), &0.into()), "{found}");
    assert!(others["fulltext"].as_u64() > Some(5) && others["undo"].as_u64() >= Some(3), "{found}");
    std::fs::remove_file(data.join("t/plain.ibd")).unwrap();
    std::fs::remove_file(data.join("t/parts#p#p1.ibd")).unwrap();
    let _ = put_bytes(&store, "damaged", &[], &stream(&data, |_, _| {}));
    let ran = xbcloud(&store, "verify", "damaged", &options).run().expect(7);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let problems: Vec<&str> = found["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["what"].as_str().unwrap())
        .collect();
    assert!(problems.iter().any(|what| what.starts_with("table t.plain: ")), "{problems:?}");
    assert!(problems.iter().any(|what| what.starts_with("table t.parts: ")), "{problems:?}");
    assert_eq!(problems.len(), 2, "{problems:?}");
    // A file that is missing is noticed before anything is read.
    let missing = [&options[..4], &["--datadir-file=/no/such/mysqld.my"]].concat();
    let ran = xbcloud(&store, "verify", "n", &missing).run().expect(1);
    assert!(ran.stderr_text().contains("/no/such/mysqld.my"), "{ran:?}");
}
