//! Damaged pages that no CHECK TABLE reads, such as those of long columns: in increments, in their bases, and where the
//! redo log may have had them.

use std::path::{Path, PathBuf};

use crate::support::*;
use crate::verify::stream_of;
use serde_json::Value;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

const PAGE: usize = 16384;
/// Type of a page with a part of a long column.
const LONG: [u8; 2] = [0, 10];

/// Backups of a server, each in a directory.
struct Site {
    server: MariaDb,
    scratch: Scratch,
    store: Store,
    /// Where its data is.
    data: PathBuf,
    /// Folders of the servers before this one.
    before: Vec<Scratch>,
}

impl Site {
    /// A server with long columns and a FULLTEXT index.
    fn new() -> Self {
        let server = MariaDb::start();
        server.sql(
            "CREATE DATABASE x; USE x; CREATE TABLE b (i INT PRIMARY KEY, t LONGBLOB) ENGINE=InnoDB;
             INSERT INTO b SELECT seq, REPEAT(SHA2(seq, 512), 1000) FROM seq_1_to_20;
             CREATE TABLE u (i INT PRIMARY KEY, t VARCHAR(200)) ENGINE=InnoDB;
             INSERT INTO u SELECT seq, REPEAT(SHA1(seq), 4) FROM seq_1_to_3000;
             CREATE TABLE w (i INT PRIMARY KEY, t TEXT, FULLTEXT (t)) ENGINE=InnoDB;
             INSERT INTO w SELECT i, CONCAT('word', i) FROM u;",
        );
        let (scratch, store) = (Scratch::new(), Store::folder());
        let _ = scratch.dir("tmp");
        let data = server.datadir().to_owned();
        Self { server, scratch, store, data, before: Vec::new() }.flushed()
    }

    /// Starts the server anew: all changes are in its files then, and before its checkpoint.
    fn flushed(self) -> Self {
        let Self { server, data, mut before, .. } = self;
        before.push(server.shut_down());
        Self { server: MariaDb::start_on(&data), data, before, ..self }
    }

    fn backup(&self, name: &str, base: Option<&Path>) -> PathBuf {
        let dir = self.scratch.join(name);
        let command = self.server.backup_command();
        let streams =
            |word: &&String| word.starts_with("--stream") || word.starts_with("--target-dir");
        let _ = Cmd::new(&command[0])
            .args(command[1..].iter().filter(|word| !streams(word)))
            .arg(format!("--target-dir={}", dir.display()))
            .args(base.map(|base| format!("--incremental-basedir={}", base.display())))
            .run()
            .expect(0);
        dir
    }

    /// Stores a directory. What was stored under this name goes.
    fn put(&self, name: &str, dir: &Path) {
        let _ = xbcloud(&self.store, "delete", name, &["--yes", "--force"]).run();
        let _ = put_bytes(&self.store, name, &["--compress=zstd:1"], &stream_of(dir));
    }

    fn try_out(&self, name: &str) -> Ran {
        let folder = format!("--scratch-dir={}", self.scratch.join("tmp").display());
        xbcloud(&self.store, "verify", name, &["--json", "--level=restore", &folder]).run()
    }
}

fn report(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("no report: {ran:?}"))
}

/// Changes each page of a long column in a file. Returns their number.
fn change_long(file: &Path, change: impl Fn(&mut [u8])) -> usize {
    let mut bytes = std::fs::read(file).unwrap();
    let pages = bytes.chunks_exact_mut(PAGE).filter(|page| page[24..26] == LONG);
    let number = pages.map(change).count();
    std::fs::write(file, bytes).unwrap();
    assert!(number > 10, "{}: {number}", file.display());
    number
}

fn bit(page: &mut [u8]) {
    page[3000] ^= 4;
}

#[track_caller]
fn assert_damaged(found: &Value, level: &str, file: &str, table: &str) {
    let problems = found["problems"].as_array().unwrap();
    assert!(!problems.is_empty(), "{found}");
    for problem in problems {
        assert_eq!((&problem["level"], &problem["file"]), (&level.into(), &file.into()), "{found}");
        assert!(problem["offset"].as_u64().unwrap() > 0, "{problem}");
        assert!(problem["what"].as_str().unwrap().contains(table), "{problem}");
    }
}

#[test]
fn damaged_pages_of_a_chain_are_found_although_every_table_opens() {
    let site = Site::new();
    let full = site.backup("full", None);
    site.server
        .sql("USE x; UPDATE b SET t = REPEAT(SHA2(i + 1000, 512), 1000) WHERE i BETWEEN 5 AND 9");
    let site = site.flushed();
    let increment = site.backup("inc", Some(&full));
    site.put("full", &full);
    site.put("inc", &increment);
    let sound = site.try_out("inc").expect(0);
    let pages = &report(&sound)["restore"]["pages"];
    assert_eq!((&pages["damaged"], &pages["undecided"]), (&0.into(), &0.into()), "{pages}");
    assert!(pages["good"].as_u64().unwrap() > 300, "{pages}");

    // In the increment: its own level shows it.
    let changed = increment.join("x/b.ibd.delta");
    let intact = std::fs::read(&changed).unwrap();
    let number = change_long(&changed, bit);
    site.put("inc", &increment);
    let found = report(&xbcloud(&site.store, "verify", "inc", &["--json"]).run().expect(7));
    assert_damaged(&found, "pages", "x/b.ibd.delta", "checksum");
    assert_eq!(found["pages"]["damaged"], number);
    assert_damaged(&report(&site.try_out("inc").expect(7)), "pages", "x/b.ibd.delta", "checksum");

    // In its base, of which the trial reads the bytes only.
    std::fs::write(&changed, intact).unwrap();
    change_long(&full.join("x/b.ibd"), bit);
    site.put("full", &full);
    site.put("inc", &increment);
    let ran = site.try_out("inc").expect(7);
    let found = report(&ran);
    assert_damaged(&found, "restore", "x/b.ibd", "table x.b");
    assert_eq!(found["reached"], "decrypt");
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("(full, inc)") && warnings.contains("level pages"), "{warnings}");
    let listed = xbcloud(&site.store, "list", "", &["--json"]).run().expect(0);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let failed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["name"].as_str().unwrap(), line["verified"]["failed"].clone()))
        .collect();
    // From which of the two they are is not certain.
    assert_eq!(failed, [("full", Value::Null), ("inc", "restore".into())]);

    // A rescue says it, too: a server reads such a column as empty, without an error.
    let rescue = |table: &str| {
        let folder = format!("--scratch-dir={}", site.scratch.join("tmp").display());
        xbcloud(&site.store, "rescue", "inc", &[&folder]).arg(table).run()
    };
    let refused = rescue("x.b").expect_failure().stderr_text();
    assert!(refused.contains("damaged pages in its file") && refused.contains("x.b"), "{refused}");
    let _ = rescue("x.u").expect(0);
}

/// A page that is missing may be in the redo log; only what recovery leaves behind shows it.
#[test]
fn a_missing_page_that_recovery_does_not_write_is_damage() {
    let site = Site::new();
    site.server.sql("USE x; UPDATE u SET t = REPEAT('m', 100) WHERE i < 500");
    let full = site.backup("full", None);
    site.put("full", &full);
    let _ = site.try_out("full").expect(0);

    change_long(&full.join("x/b.ibd"), |page| page.fill(0));
    site.put("full", &full);
    let found = report(&site.try_out("full").expect(7));
    assert!(found["pages"]["undecided"].as_u64().unwrap() > 10, "{found}");
    assert_damaged(&found, "restore", "x/b.ibd", "table x.b");
}
