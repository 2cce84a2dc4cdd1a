//! What `binlog list` and `binlog verify` state about backups.

use xb_testkit::command::{Cmd, Ran};
use xb_testkit::stream::small_backup;
use xb_testkit::vectors;

fn run(args: &[&str], stdin: Vec<u8>) -> Ran {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(args).stdin_bytes(stdin).run()
}

/// What it can be restored to is unknown, and a list without it would look complete.
#[test]
fn a_backup_whose_manifest_cannot_be_read_is_named_beside_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("file://{}", folder.path().display());
    let _ = run(&["put", &format!("{root}/n")], small_backup(3, 5000)).expect(0);
    let log = vectors::path("binlog/mariadb.000002");
    let log = log.display().to_string();
    let _ = run(&["binlog", "push", &root, &log, "--server=shop", "--new-archive"], Vec::new());
    let manifest = folder.path().join(".xb-catalog/n");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[7] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    // A proof says that it proves nothing of this backup.
    for (command, code) in [("list", 0), ("verify", 7)] {
        let shown = run(&["binlog", command, &root], Vec::new()).expect(code).stdout_text();
        assert!(shown.contains("its manifest cannot be read: n: "), "{command}: {shown}");
        let shown = run(&["binlog", command, "--json", &root], Vec::new()).expect(code);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let unreadable = &shown["servers"][0]["unreadable"];
        assert!(unreadable[0].as_str().unwrap().starts_with("n: "), "{shown:#}");
    }
}
