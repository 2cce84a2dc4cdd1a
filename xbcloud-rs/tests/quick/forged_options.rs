//! A backup that says in its own option file, or by what is in its other files, what the program that prepares it is to
//! do elsewhere.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::*;
use xb_testkit::daemon::Scratch;
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

#[test]
fn a_forged_backup_has_no_say_outside_its_directory() {
    let (scratch, store) = (Scratch::new(), Store::folder());
    let outside = scratch.dir("outside");
    // Its parser takes what is behind 511 bytes of a line for a line.
    let hidden = format!("#{}plugin_load=evil", "a".repeat(510));
    let forged = format!(
        "[mysqld]\ninnodb_page_size=4096\nplugin_dir=./shop\nplugin_load=evil\n{hidden}\nhelp # file_key_management=1\nhelp\n!include /etc/x\n"
    );
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("shop/evil.so", b"library", 99).file("backup-my.cnf", forged.as_bytes(), 1 << 20);
    stream.info();
    let stream = stream.finish();
    let _ = put_bytes(&store, "n", &["--unsafe-any-end"], &stream);
    let program = scratch.join("mariadb-backup");
    // It follows names in the redo log.
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = --help ] && exit\necho >{}/away\necho >\"${{2#*=}}/here\"\n",
        outside.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("--prepare-program={}", program.display());
    let restore = |name: &str, more: &[&str]| {
        let target = scratch.join(name);
        let option = format!("--target-dir={}", target.display());
        let options = [&["--prepare", "--sync=none", &program, &option], more].concat();
        let said = xbcloud(&store, "restore", "n", &options).run().expect(0).stderr_text();
        assert!(target.join("here").exists(), "{said}");
        let left = std::fs::read_to_string(target.join("backup-my.cnf")).unwrap();
        assert_eq!(left, "[mysqld]\ninnodb_page_size=4096\n");
        said
    };
    let said = restore("restored", &[]);
    for line in 3..=7 {
        assert!(said.contains(&format!("backup-my.cnf, line {line}: ")), "{said}");
    }
    assert!(said.contains("1 more lines are left out"), "{said}");
    if said.contains("can write anywhere") {
        xb_testkit::skipped("this system has no Landlock");
        return;
    }
    assert!(!outside.join("away").exists());
    let _ = restore("again", &[&format!("--mysqld-writes={}", outside.display())]);
    assert!(outside.join("away").exists(), "it is the confinement that kept it from it");
}
