//! What `binlog list` and `binlog verify` state about backups.

use std::os::unix::fs::PermissionsExt as _;

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

/// A key service that is away for a moment damages nothing.
#[test]
fn a_key_command_that_fails_is_no_damage_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let store = tempfile::tempdir().unwrap();
    let root = format!("file://{}", store.path().display());
    let [program, fails, once] = ["key", "fails", "once"].map(|name| folder.path().join(name));
    let script = format!(
        "#!/bin/sh\n[ $1 = wrap ] && exec tr '\\000-\\377' '\\001-\\377\\000'\n\
         [ ! -e {} ] || exit 1\nrm {} 2>/dev/null && exit 1\nexec tr '\\001-\\377\\000' '\\000-\\377'\n",
        fails.display(),
        once.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let key = format!("--key-command={}", program.display());
    let log = vectors::path("binlog/mariadb.000002").display().to_string();
    let push = ["binlog", "push", &root, &log, "--server=shop", "--new-archive", &key];
    let _ = run(&push, Vec::new()).expect(0);
    for command in ["verify", "show"] {
        let args = ["binlog", command, &root, &key];
        std::fs::write(&fails, "").unwrap();
        let failed = run(&args, Vec::new()).expect(4).stderr_text();
        let why =
            format!(" of the archive: key slot 0: key command {} unwrap: ", program.display());
        assert!(failed.contains(&why) && failed.contains("run the command again"), "{failed}");
        std::fs::remove_file(&fails).unwrap();
        std::fs::write(&once, "").unwrap();
        let _ = run(&args, Vec::new()).expect(0);
        assert!(!once.exists(), "it was called again");
    }
    // So is a key that opens nothing.
    let other = folder.path().join("other");
    std::fs::write(&other, [b'k'; 32]).unwrap();
    let other = format!("--encrypt-key-file={}", other.display());
    let wrong = run(&["binlog", "verify", &root, &other], Vec::new()).expect(4).stderr_text();
    assert!(wrong.contains("no key file slot"), "{wrong}");
}

/// A place with backups is no backup, but for a stop, its newest one that fits may be meant.
#[test]
fn a_url_that_ends_with_a_slash_leaves_the_choice_of_the_backup() {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("file://{}", folder.path().display());
    let _ = run(&["put", &format!("{root}/n")], small_backup(3, 5000)).expect(0);
    let log = vectors::path("binlog/mariadb.000002").display().to_string();
    let push = ["binlog", "push", &root, &log, "--server=shop", "--new-archive"];
    let _ = run(&push, Vec::new()).expect(0);
    for (command, more) in [("restore", "--dry-run"), ("rescue", "d.t")] {
        let refused = |place: &str| {
            let ran = run(&[command, place, more, "--until=latest"], Vec::new());
            ran.expect(1).stderr_text()
        };
        for place in [format!("{root}/"), format!("{root}/latest")] {
            let none = refused(&place);
            assert!(none.contains("no backup of shop can be restored until latest"), "{none}");
        }
        let named = refused(&root);
        assert!(named.contains("is not a backup, but a folder of 1 backup: n"), "{named}");
        assert!(named.contains("end the URL with a slash, or with /latest,"), "{named}");
    }
}
