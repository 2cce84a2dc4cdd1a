//! What a trial restore finds besides the answers of `CHECK TABLE`, and which of these answers are no damage.

use crate::support::*;
use crate::verify::{backup_of, report, stream_of, verify};
use serde_json::Value;
use xb_testkit::daemon::Scratch;
use xb_testkit::store::Store;

/// A server without its table of privileges on schemas does not start, and one without its table of events has lost
/// them. The trial server runs without accounts and events.
#[test]
fn a_backup_without_a_table_of_the_server_itself_is_damaged() {
    let scratch = Scratch::new();
    let events = "CREATE DATABASE x; CREATE EVENT x.e ON SCHEDULE EVERY 1 DAY DO DO 0;";
    let backup = backup_of(events, &scratch);
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let store = Store::folder();
    let problems = |name: &str, status| {
        let _ = put_bytes(&store, name, &[], &stream_of(&backup));
        let found =
            report(&verify(&store, name, &["--level=restore", &folder]).run().expect(status));
        let what = |problem: &Value| problem["what"].as_str().unwrap().to_owned();
        found["problems"].as_array().unwrap().iter().map(what).collect::<Vec<_>>()
    };
    assert_eq!(problems("sound", 0), [""; 0]);
    // CHECK TABLE says OK: the table is sound, but another one.
    let at = |table: &str, end: &str| backup.join(format!("mysql/{table}.{end}"));
    let ends = ["frm", "MAI", "MAD"];
    for end in ends {
        std::fs::copy(at("columns_priv", end), at("db", end)).unwrap();
    }
    let found = problems("other", 7);
    assert!(found.len() == 1 && found[0].contains("without --skip-grant-tables"), "{found:?}");
    assert!(found[0].contains("mysql.db"), "{found:?}");
    for (table, end) in ["db", "event"].iter().flat_map(|table| ends.map(|end| (table, end))) {
        std::fs::remove_file(at(table, end)).unwrap();
    }
    let found = problems("missing", 7);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("table mysql.db: the backup does not have it"), "{found:?}");
    assert!(found[1].contains("mysql.event") && found[1].contains("lacks events"), "{found:?}");
}

/// Such a table answers CHECK TABLE on the source in the same words.
#[test]
fn a_table_that_cannot_be_checked_on_the_source_either_is_named_and_not_damaged() {
    let scratch = Scratch::new();
    let backup = backup_of(
        "CREATE DATABASE x; USE x; CREATE TABLE child (i INT) ENGINE=MyISAM; CREATE TABLE gone LIKE child;
         CREATE TABLE merged (i INT) ENGINE=MERGE UNION=(child, gone); DROP TABLE gone;
         CREATE TABLE old (i INT, t LONGTEXT, UNIQUE (t)); INSERT INTO old SELECT seq, SHA1(seq) FROM seq_1_to_99;",
        &scratch,
    );
    // Made by a server of 10.5: its index on a hash is to be built anew.
    let definition = backup.join("x/old.frm");
    let mut head = std::fs::read(&definition).unwrap();
    head[51..55].copy_from_slice(&100_500_u32.to_le_bytes());
    std::fs::write(&definition, head).unwrap();
    let folder = format!("--scratch-dir={}", scratch.dir("tmp").display());
    let store = Store::folder();
    let _ = put_bytes(&store, "n", &[], &stream_of(&backup));
    let found = report(&verify(&store, "n", &["--level=restore", &folder]).run().expect(0));
    let warnings = found["warnings"].to_string();
    for named in
        ["MERGE tables that cannot be read", ": 1: x.merged", "after an upgrade", ": 1: x.old"]
    {
        assert!(warnings.contains(named), "{named}: {warnings}");
    }
    let not_checkable = &found["restore"]["not_checkable"];
    assert_eq!(not_checkable, &serde_json::json!({ "InnoDB": 1 }), "{found}");
}
