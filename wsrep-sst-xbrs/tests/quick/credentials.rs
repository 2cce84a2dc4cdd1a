//! Secrets: the donor's login and the joiner's secret, in both ways in which servers pass them, and
//! the location of a node's keys of encrypted tables.

use crate::harness::{STATE, Scene};
use rustix::process::Signal;

fn assert_old(scene: &Scene) {
    let data = scene.data("joiner");
    assert_eq!(std::fs::read(data.join("mysql/user.frm")).unwrap(), b"old");
    assert!(!data.join("#sql-xb").exists());
}

#[test]
fn credentials_on_standard_input_are_used_and_not_passed_on() {
    let scene = Scene::new();
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let secret = ready.split(['@', ':']).nth(1).unwrap().to_owned();
    let donor = scene.later_donor_with(&ready, &[]).start().wait();
    let joiner = joiner.wait();
    assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
    let data = scene.data("joiner");
    assert_eq!(std::fs::read(data.join("mysql/user.frm")).unwrap(), b"new");
    let read = |name: &str| std::fs::read_to_string(scene.bin().join(name)).unwrap();
    assert_eq!(read("backup.env"), "passw0rd \n");
    let args = read("backup.args");
    assert!(args.contains("--user=sst") && !args.contains("passw0rd"), "{args}");
    assert!(!donor.log.contains("passw0rd"), "{}", donor.log);
    for (what, text) in
        [("log", donor.log), ("arguments", args), ("environment", read("backup.all.env"))]
    {
        assert!(!text.contains(&secret), "{what}: {text}");
    }

    // Write sets instead of a snapshot.
    let scene = Scene::new();
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let donor = scene.later_donor_with(&ready, &["--bypass"]).start().wait();
    let joiner = joiner.wait();
    assert_eq!(donor.lines, ["continue".to_owned(), format!("done {STATE}")], "{}", donor.log);
    assert_eq!(joiner.lines, [STATE]);
    assert_old(&scene);
}

#[test]
fn the_backups_own_option_file_counts_when_it_is_prepared() {
    let scene = Scene::new();
    scene.options("[mysqld]\nplugin-load-add=file_key_management\nfile_key_management_filename=/keys\nfile_key_management_filekey=passw0rd");
    let (joiner, donor) = scene.transfer();
    assert!(joiner.status.success() && donor.status.success(), "{}", joiner.log);
    let read = |name: &str| std::fs::read_to_string(scene.bin().join(name)).unwrap();
    assert!(read("backup.args").contains("--defaults-file="));
    let words = read("prepare.args");
    assert!(!words.contains("--defaults-file=") && !words.contains("passw0rd"), "{words}");
    // The joiner uses the location of its own keys.
    let keys = "[mysqld]\nplugin_load=file_key_management\n\n[mysqld]\nloose-file-key-management-filename=\"/keys\"\nloose-file-key-management-filekey=\"passw0rd\"\n";
    assert_eq!(read("prepare.cnf"), keys);
    // A donor cannot name the directory of a library that the joiner loads.
    assert!(
        joiner.log.contains("backup-my.cnf, line 3: `plugin_dir=.` is left out"),
        "{}",
        joiner.log
    );
    assert!(!scene.data("joiner").join("backup-my.cnf").exists());
}

#[test]
fn a_donor_without_an_input_does_not_wait_for_credentials() {
    let scene = Scene::new();
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    let null = scene.donor_without_credentials(&ready, &[]);
    let closed = scene.donor_without_credentials(&ready, &[]);
    let closed = closed.through(&["sh", "-c", "exec \"$@\" <&-", "sh"]);
    for side in [null, closed] {
        let donor = side.start().wait();
        assert!(!donor.status.success() && donor.lines.is_empty(), "{donor:?}");
        assert!(donor.log.contains("secret"), "{}", donor.log);
        assert!(!donor.log.contains("in time"), "{}", donor.log);
    }
    joiner.signal(Signal::TERM);
    let _ = joiner.wait();
    assert_old(&scene);
}
