//! Both sides report the first error, and report it immediately.

use std::process::Command;

use crate::harness::{Ended, Scene};

/// Runs both sides, the joiner started through `words`; both must fail.
fn fails(scene: &Scene, words: &[&str]) -> (Ended, Ended) {
    let mut joiner = scene.joiner().through(words).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    let joiner = joiner.wait();
    for side in [&joiner, &donor] {
        assert!(!side.status.success() && side.lines.is_empty(), "{side:?}");
    }
    (joiner, donor)
}

/// The donor's backup hangs for longer than this test may take, and the joiner cannot write.
fn a_disk_that_fails(words: &[&str], expected: &str, hint: &str, status: i32) {
    let scene = Scene::new();
    scene.large_stream();
    scene.backup("hang");
    scene.options("space-check=no");
    let (joiner, donor) = fails(&scene, words);
    let folder = scene.data("joiner").join("#sql-xb/.new");
    let cause = format!("cannot write received files in {}: ibdata1: ", folder.display());
    assert!(joiner.log.contains(&format!("joiner: {cause}")), "{}", joiner.log);
    assert!(joiner.log.contains(expected) && joiner.log.contains(hint), "{}", joiner.log);
    assert_eq!(joiner.status.code(), Some(status), "{}", joiner.log);
    assert!(donor.log.contains(&format!("the joiner refused: {cause}")), "{}", donor.log);
    assert!(donor.log.contains(expected), "{}", donor.log);
    assert_eq!(donor.status.code(), Some(32), "{}", donor.log);
}

#[test]
fn a_fault_of_the_stream_is_not_blamed_on_the_backup() {
    // The backup continues, and fails because its output is closed; or it hangs.
    for then in ["more", "hang"] {
        let scene = Scene::new();
        scene.garbage_stream();
        scene.backup(then);
        let (joiner, donor) = fails(&scene, &["env"]);
        assert!(donor.log.contains("donor: backup stream: "), "{}", donor.log);
        let told = "the donor gave up: backup stream: ";
        assert!(joiner.log.contains(told), "{}", joiner.log);
        for log in [&donor.log, &joiner.log] {
            assert!(!log.contains("nobody takes it") && !log.contains("exit status"), "{log}");
        }
    }
}

#[test]
fn a_failure_of_the_backup_program_that_an_operator_can_end_has_a_hint() {
    for (words, hint) in [
        (
            "Access denied for user 'sst'@'localhost' (using password: YES)",
            "hint: correct wsrep_sst_auth",
        ),
        (
            "Error number 24 means 'Too many open files'",
            "hint: raise the server's limit of open files",
        ),
        (
            "Access denied; you need (at least one of) the RELOAD privilege(s) for this operation",
            "",
        ),
    ] {
        let scene = Scene::new();
        std::fs::write(scene.bin().join("stream"), "").unwrap();
        std::fs::write(scene.bin().join("fail"), format!("{words}\n")).unwrap();
        let (_, donor) = fails(&scene, &["env"]);
        assert!(donor.log.contains(words) && donor.log.contains(hint), "{}", donor.log);
        assert_eq!(donor.log.contains("hint: correct wsrep_sst_auth"), hint.contains("auth"));
    }
}

/// mariadb-backup takes a directory with such a name for an undo tablespace, and gives general advice after its end.
#[test]
fn a_schema_that_the_backup_program_takes_for_an_undo_tablespace_is_named() {
    let scene = Scene::new();
    std::fs::write(scene.bin().join("stream"), "").unwrap();
    let cause = "InnoDB: Failing assertion: size != os_offset_t(-1)";
    let advice = "InnoDB: immediately after the mariadbd startup, there may be\n".repeat(5);
    std::fs::write(scene.bin().join("fail"), format!("{cause}\n{advice}")).unwrap();
    let (joiner, donor) = fails(&scene, &["env"]);
    assert!(donor.log.contains(cause) && joiner.log.contains(cause), "{}", donor.log);
    assert!(donor.log.contains("a directory whose name is `undo` and a number"), "{}", donor.log);
}

/// The donor ends before it connects; the joiner's server ends it then.
#[test]
fn a_joiner_knows_why_its_donor_cannot_begin() {
    let scene = Scene::new();
    scene.options("[sst_of_donor]\ntcapath=/certificates");
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let words = ["--defaults-group-suffix", "_of_donor"];
    let donor = scene.donor_with(&ready, &words).start().wait();
    assert_eq!(donor.status.code(), Some(22), "{}", donor.log);
    joiner.wait_for("the donor's words", || joiner.log().contains("the donor gave up"));
    joiner.signal(rustix::process::Signal::TERM);
    let joiner = joiner.wait();
    let error = joiner.log.lines().rfind(|line| line.contains("[ERROR]")).unwrap();
    assert!(error.contains("joiner: the donor gave up: ") && error.contains("tcapath"), "{error}");
    assert!(error.contains("interrupted by signal 15"), "{error}");
    assert_eq!(joiner.status.code(), Some(3), "{error}");
}

#[test]
fn a_joiner_that_cannot_write_says_so_while_the_donor_is_silent() {
    let limit = ["bash", "-c", "trap '' XFSZ; ulimit -f 1024; exec \"$@\"", "sh"];
    a_disk_that_fails(&limit, "File too large", "repair the file system of that directory", 22);
}

#[test]
fn a_full_disk_is_reported_while_the_donor_is_silent() {
    let may = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !may.is_ok_and(|ran| ran.status.success()) {
        xb_testkit::skipped("this user cannot mount");
        return;
    }
    // The argument after `--datadir` is the directory.
    let script = "for word; do [ \"$before\" != --datadir ] || \
        mount -t tmpfs -o size=3m none \"$word\" || exit 77; before=$word; done; exec \"$@\"";
    let full = ["unshare", "-m", "bash", "-c", script, "sh"];
    a_disk_that_fails(&full, "No space left on device", "make room there", 28);
}

/// It says so among its messages, and ends with 0.
#[test]
fn a_table_that_the_backup_program_leaves_out_is_missed() {
    let scene = Scene::new();
    let says = |number: u32| {
        let line = format!(
            "mariadb-backup: Can't find file: './shop/far.MAI' (errno: {number} \"why\")\n"
        );
        std::fs::write(scene.bin().join("says"), line + &"and more\n".repeat(40)).unwrap();
    };
    says(40);
    let (joiner, donor) = fails(&scene, &["env"]);
    let why = "left ./shop/far.MAI out, because it is a symbolic link";
    assert!(donor.log.contains(why) && joiner.log.contains(why), "{}{}", donor.log, joiner.log);
    assert!(donor.log.contains("hint: dump the table"), "{}", donor.log);
    scene.assert_untouched();
    // It was dropped meanwhile.
    says(2);
    assert!(scene.transfer().0.status.success());
}
