//! Location of the joiner's data, files that stay, and remains of crashes or other programs.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Ended, PROGRAM, STATE, Scene};
use rustix::fs::{FlockOperation, fcntl_lock};
use xb_sst::Layout;
use xb_sst::swap::{self, FolderLocks};

fn put(path: impl AsRef<Path>, text: &str) {
    std::fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(path: impl AsRef<Path>) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

/// Runs a transfer to a joiner whose server was started with `words`.
fn transfer(scene: &Scene, words: &[&str]) -> Ended {
    let mut joiner = scene.joiner_with(&[], words).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    assert!(donor.status.success(), "{}", donor.log);
    joiner.wait()
}

fn succeeds(scene: &Scene, words: &[&str]) -> Ended {
    let joiner = transfer(scene, words);
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
    joiner
}

#[test]
fn a_name_on_both_sides_is_found_before_the_swap_and_leaves_nothing() {
    let scene = Scene::new();
    scene.options(r"cpat=.*/shop");
    let data = scene.data("joiner");
    put(data.join("shop/mine.frm"), "old");
    let joiner = transfer(&scene, &[]);
    assert!(!joiner.status.success() && joiner.lines.is_empty(), "{}", joiner.log);
    assert!(joiner.log.contains("shop must stay") && joiner.log.contains("cpat"), "{}", joiner.log);
    assert_eq!(
        (read(data.join("mysql/user.frm")), read(data.join("ibdata1"))),
        ("old".into(), "old".into())
    );
    let fast = scene.scratch.join("fast/shop");
    assert!(fast.exists() && !fast.join("remote.ibd").exists());
    for folder in [&data, &fast] {
        assert!(!folder.join("#sql-xb").exists(), "{}", folder.display());
    }
}

#[test]
fn a_pattern_of_the_operators_forgets_nothing_that_galera_needs() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    scene.options(&format!(r"cpat={}/mine\|.*\.pem", data.display()));
    for name in ["mine", "a.pem", "grastate.dat", "tc.log", "slow.log", "gcache.page.000001"] {
        put(data.join(name), name);
    }
    succeeds(&scene, &[]);
    for name in ["mine", "a.pem", "grastate.dat", "gcache.page.000001", "galera.cache"] {
        assert!(data.join(name).exists(), "{name}");
    }
    for name in ["tc.log", "slow.log"] {
        assert!(
            !data.join(name).exists() && data.join("#sql-xb/.old").join(name).exists(),
            "{name}"
        );
    }
}

#[test]
fn a_position_that_the_data_lacks_is_in_the_log() {
    let scene = Scene::new();
    let said = "but the server's position in its data is";
    let usual = succeeds(&scene, &[]);
    assert!(!usual.log.contains(said), "{}", usual.log);
    let earlier = STATE.replace(":42", ":41");
    put(scene.bin().join("recorded"), &earlier);
    let joiner = succeeds(&scene, &[]);
    assert!(joiner.log.contains(&format!("{said} {earlier}")), "{}", joiner.log);
}

#[test]
fn links_to_folders_elsewhere_stay() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let redo = scene.scratch.dir("fast-redo");
    put(redo.join("ib_logfile0"), "old redo");
    std::os::unix::fs::symlink(&redo, data.join("redo")).unwrap();
    succeeds(&scene, &["--innodb-log-group-home-dir=./redo"]);
    assert_eq!(std::fs::read_link(data.join("redo")).unwrap(), redo);
    assert_eq!(read(data.join("redo/ib_logfile0")), "new redo");
    assert_eq!(read(redo.join("#sql-xb/.old/ib_logfile0")), "old redo");
    assert!(!data.join("ib_logfile0").exists());
}

#[test]
fn a_system_tablespace_elsewhere_is_replaced_there() {
    let scene = Scene::new();
    let big = scene.scratch.dir("big");
    put(big.join("ibdata1"), "old elsewhere");
    let specs = format!("--innodb-data-file-path={}/ibdata1:12M:autoextend", big.display());
    succeeds(&scene, &[&specs]);
    assert_eq!(std::fs::read(big.join("ibdata1")).unwrap(), [7; 70_000]);
    assert_eq!(read(big.join("#sql-xb/.old/ibdata1")), "old elsewhere");
    assert!(!scene.data("joiner").join("ibdata1").exists());
}

#[test]
fn files_are_received_where_they_belong_and_prepared_through_links() {
    let scene = Scene::new();
    let (home, undo) = (scene.scratch.dir("home"), scene.scratch.dir("undo"));
    put(home.join("ibdata1"), "old");
    put(undo.join("undo001"), "old");
    let words = [
        format!("--innodb-data-home-dir={}", home.display()),
        format!("--innodb-undo-directory={}", undo.display()),
    ];
    let words = words.each_ref().map(String::as_str);
    succeeds(&scene, &words);
    let listed = read(scene.bin().join("prepare.ls"));
    for (name, dir) in [("ibdata1", &home), ("undo001", &undo)] {
        let link = format!("{name} -> {}/#sql-xb/.new/{name}", dir.display());
        assert!(listed.contains(&link), "{listed}");
        assert_eq!(read(dir.join("#sql-xb/.old").join(name)), "old");
        assert!(std::fs::symlink_metadata(dir.join(name)).unwrap().is_file());
        assert!(!scene.data("joiner").join(name).exists(), "{name}");
        assert!(!dir.join("#sql-xb/.new").exists());
    }
    assert_eq!(std::fs::read(home.join("ibdata1")).unwrap(), [7; 70_000]);
    assert_eq!(read(undo.join("undo001")), "new undo");

    // Files that preparing replaces or removes count, not those received. A server has accepted the data meanwhile.
    put(scene.data("joiner").join("ib_logfile0"), "written by a server");
    crate::harness::start_on(&scene.data("joiner"));
    scene.backup("replaces");
    succeeds(&scene, &words);
    assert_eq!(read(home.join("ibdata1")), "replaced");
    assert!(!undo.join("undo001").exists());
    assert_eq!(read(undo.join("#sql-xb/.old/undo001")), "new undo");
}

#[test]
fn data_received_elsewhere_does_not_survive_other_settings() {
    let scene = Scene::new();
    let home = scene.scratch.dir("home");
    put(home.join("ibdata1"), "old");
    let words = [format!("--innodb-data-home-dir={}", home.display())];
    scene.large_stream();
    scene.backup("hang");
    let mut joiner = scene.joiner_with(&[], &[&words[0]]).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start();
    let new = home.join("#sql-xb/.new");
    let has_received =
        || new.exists() && crate::harness::tree(&new).iter().any(|(_, file)| !file.is_empty());
    joiner.wait_for("received file", has_received);
    joiner.child.kill().unwrap();
    drop((joiner, donor));
    assert!(has_received());
    std::fs::remove_file(scene.bin().join("hang")).unwrap();
    scene.stream(&["xtrabackup_info"]);
    // Without the option.
    succeeds(&scene, &[]);
    assert!(!home.join("#sql-xb").exists());
    assert_eq!(read(home.join("ibdata1")), "old");
    assert_eq!(std::fs::read(scene.data("joiner").join("ibdata1")).unwrap(), [7; 70_000]);
}

#[test]
fn a_strangers_file_stays_where_the_donor_has_a_tablespace() {
    let scene = Scene::new();
    let (data, fast) = (scene.data("joiner"), scene.scratch.join("fast/shop"));
    put(fast.join("remote.ibd"), "a stranger's");
    put(data.join("shop/remote.isl"), "/elsewhere/shop/remote.ibd");
    let joiner = succeeds(&scene, &[]);
    assert!(joiner.log.contains("stays in the data directory"), "{}", joiner.log);
    assert_eq!(read(fast.join("remote.ibd")), "a stranger's");
    assert_eq!(read(data.join("shop/remote.ibd")), "new remote");
    assert!(!data.join("shop/remote.isl").exists() && !fast.join("#sql-xb").exists());
}

#[test]
fn files_of_a_killed_transfer_elsewhere_do_not_come_in_later() {
    let scene = Scene::new();
    let fast = scene.scratch.join("fast/shop");
    put(fast.join("#sql-xb/.new/killed.ibd"), "of a transfer that was killed");
    // Nor do received files with the names of this program's own files.
    scene.stream(&[".journal", "xtrabackup_info"]);
    succeeds(&scene, &[]);
    assert_eq!(read(fast.join("remote.ibd")), "new remote");
    assert!(!fast.join("killed.ibd").exists());
    assert!(!scene.data("joiner").join(".journal").exists());
    assert!(!fast.join("#sql-xb").exists(), "there was nothing to keep");
}

#[test]
fn a_mount_is_found_before_anything_is_sent_unless_the_options_name_it() {
    let may = Command::new("unshare").args(["-m", "true"]).output();
    if !may.is_ok_and(|ran| ran.status.success()) {
        xb_testkit::skipped("this user cannot mount");
        return;
    }
    for (words, succeeds) in [(&[][..], false), (&["--innodb-log-group-home-dir=mnt"], true)] {
        let scene = Scene::new();
        let mount = scene.data("joiner").join("mnt");
        std::fs::create_dir(&mount).unwrap();
        let script = "mount -t tmpfs none \"$0\" && exec \"$@\"";
        let mount = ["unshare", "-m", "sh", "-c", script, mount.to_str().unwrap()];
        let mut joiner = scene.joiner_with(&[], words).through(&mount).start();
        let ready = joiner.ready();
        let _ = scene.donor(&ready).start().wait();
        let joiner = joiner.wait();
        assert_eq!(joiner.status.success(), succeeds, "{}", joiner.log);
        assert_eq!(joiner.log.contains("is a mount point"), !succeeds, "{}", joiner.log);
        let expected = if succeeds { "new" } else { "old" };
        assert_eq!(read(scene.data("joiner").join("mysql/user.frm")), expected);
    }
}

fn by_hand(word: &str, data: &Path) -> Output {
    Command::new(PROGRAM).arg(word).arg(data).output().unwrap()
}

/// Leaves received data in `data`, and a swap that was interrupted after `renames` renames.
fn interrupt(data: &Path, renames: usize) {
    swap::make_folders(data).unwrap();
    put(data.join("#sql-xb/.new/mysql/user.frm"), "received");
    put(data.join("#sql-xb/.new/ibdata1"), "received");
    let journal = swap::plan(vec![data.to_owned()], |_, name, _| name != "galera.cache").unwrap();
    swap::begin(data, &journal).unwrap();
    assert!(swap::finish(data, &journal, crash_after(renames)).is_err());
}

/// Lets some renames happen, and then simulates a crash.
fn crash_after(renames: usize) -> impl FnMut() -> std::io::Result<()> {
    let mut left = renames;
    move || match left.checked_sub(1) {
        Some(rest) => {
            left = rest;
            Ok(())
        }
        None => Err(std::io::Error::other("crash")),
    }
}

#[test]
fn only_recover_finishes_and_what_a_server_made_meanwhile_is_no_obstacle() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    interrupt(&data, 2);
    let refused = by_hand("clean-old", &data);
    assert!(!refused.status.success());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("recover"));
    assert!(data.join("#sql-xb/journal").exists() && data.join("#sql-xb/.old/mysql").exists());
    // As `mariadbd --wsrep_recover` leaves it.
    for name in ["ibdata1", "ib_logfile0", "undo001", "aria_log_control"] {
        put(data.join(name), "empty");
    }
    assert!(by_hand("recover", &data).status.success());
    assert_eq!(read(data.join("ibdata1")), "received");
    assert_eq!(read(data.join("mysql/user.frm")), "received");
    assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
    assert!(!data.join("ib_logfile0").exists() && !data.join("undo001").exists());
    assert!(by_hand("clean-old", &data).status.success());
    assert!(!data.join("#sql-xb").exists());
}

#[test]
fn a_copied_data_directory_is_finished_and_the_original_left_alone() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    interrupt(&data, 1);
    let copy = scene.scratch.join("copy");
    assert!(Command::new("cp").arg("-a").arg(&data).arg(&copy).status().unwrap().success());
    let before = crate::harness::tree(&data);
    assert!(by_hand("recover", &copy).status.success());
    assert!(by_hand("clean-old", &copy).status.success());
    assert_eq!(read(copy.join("ibdata1")), "received");
    assert_eq!(crate::harness::tree(&data), before);
}

/// Runs a program as a user without rights; the scene's directories belong to that user.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"];

fn give_to_nobody(path: &Path) {
    assert!(
        Command::new("chown").args(["-R", "nobody:nogroup"]).arg(path).status().unwrap().success()
    );
}

#[test]
fn root_leaves_nothing_that_the_owner_cannot_remove() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root");
        return;
    }
    let scene = Scene::new();
    let data = scene.data("joiner");
    interrupt(&data, 2);
    put(data.join("ib_logfile0"), "made by a server");
    give_to_nobody(&data);
    assert!(by_hand("recover", &data).status.success());
    let mut owners = Command::new("find");
    let foreign = owners.arg(&data).args(["!", "-user", "nobody"]).output().unwrap();
    assert_eq!(String::from_utf8(foreign.stdout).unwrap(), "");
    assert!(data.join("#sql-xb/.old/.stray/ib_logfile0").exists());
    assert!(by_hand("clean-old", &data).status.success());
    assert!(!data.join("#sql-xb").exists());
}

#[test]
fn an_immovable_file_is_found_before_a_donor_is_asked() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root");
        return;
    }
    for (entry, hint) in [("#sql-xb/.old/shop/x.ibd", "clean-old"), ("shop/x.ibd", "chown -R")] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        give_to_nobody(scene.scratch.path());
        let file = data.join(entry);
        put(&file, "of root");
        for folder in file.parent().unwrap().ancestors().skip(1).take_while(|dir| *dir != data) {
            assert!(Command::new("chown").arg("nobody").arg(folder).status().unwrap().success());
        }
        let refused = scene.joiner().through(&NOBODY).start().wait();
        assert!(refused.lines.is_empty(), "{:?}", refused.lines);
        let named = format!("cannot remove or rename {}", file.parent().unwrap().display());
        assert!(refused.log.contains(&named) && refused.log.contains(hint), "{}", refused.log);
        if hint == "clean-old" {
            assert!(by_hand(hint, &data).status.success());
        } else {
            give_to_nobody(&data);
        }
        let mut joiner = scene.joiner().through(&NOBODY).start();
        let ready = joiner.ready();
        assert!(scene.donor(&ready).start().wait().status.success());
        assert!(joiner.wait().status.success());
    }
}

/// The hint was about a swap, which had not begun.
#[test]
fn a_directory_elsewhere_that_belongs_to_another_user_is_named_with_that_user() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root");
        return;
    }
    for (below, mode, said, hint) in [
        ("", 0o755, "it belongs to user root (0), and this program runs as user", "chown"),
        ("/none", 0o755, "it belongs to user root (0), and this program runs as user", "chown"),
        ("", 0o555, "it belongs to user nobody", "chmod u+rwx"),
    ] {
        let scene = Scene::new();
        let undo = scene.scratch.dir("undo");
        give_to_nobody(scene.scratch.path());
        std::fs::set_permissions(&undo, Permissions::from_mode(mode)).unwrap();
        if mode == 0o755 {
            assert!(Command::new("chown").arg("root").arg(&undo).status().unwrap().success());
        }
        let option = format!("--innodb-undo-directory={}{below}", undo.display());
        let mut joiner = scene.joiner_with(&[], &[&option]).through(&NOBODY).start();
        let ready = joiner.ready();
        let donor = scene.donor(&ready).start().wait();
        let joiner = joiner.wait();
        let cause = format!("cannot make directories in {}: {said}", undo.display());
        assert!(joiner.log.contains(&cause) && donor.log.contains(&cause), "{}", joiner.log);
        assert!(joiner.log.contains(&format!("hint: run `{hint} ")), "{}", joiner.log);
        scene.assert_untouched();
    }
}

/// Such as one for certificates, in which a server only opens files that it knows.
#[test]
fn a_directory_that_the_server_cannot_list_holds_no_schema() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root");
        return;
    }
    let scene = Scene::new();
    let keys = scene.data("joiner").join("tls");
    put(keys.join("key.pem"), "key");
    give_to_nobody(scene.scratch.path());
    std::fs::set_permissions(&keys, Permissions::from_mode(0o711)).unwrap();
    assert!(Command::new("chown").arg("root").arg(&keys).status().unwrap().success());
    let option = format!("--ssl-key={}/key.pem", keys.display());
    let mut joiner = scene.joiner_with(&[], &[&option]).through(&NOBODY).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    let joiner = joiner.wait();
    assert!(donor.status.success() && joiner.status.success(), "{}{}", donor.log, joiner.log);
    assert_eq!(read(keys.join("key.pem")), "key");
}

#[test]
fn received_files_have_the_modes_of_the_stock_tools() {
    let scene = Scene::new();
    // The mask of a MariaDB server.
    let with_umask = ["sh", "-c", "umask 006; exec \"$@\"", "sh"];
    let mut joiner = scene.joiner().through(&with_umask).start();
    let ready = joiner.ready();
    assert!(scene.donor(&ready).start().wait().status.success());
    assert!(joiner.wait().status.success());
    let data = scene.data("joiner");
    for (name, expected) in [("ibdata1", 0o660), ("shop/orders.ibd", 0o660), ("shop", 0o700)] {
        let metadata = std::fs::metadata(data.join(name)).unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777;
        assert_eq!(mode, expected, "{name}");
    }
}

/// A server may have been started after the crash, on the old data or on what is there of the new one.
#[test]
fn an_interrupted_swap_is_not_finished_under_a_running_server() {
    for (renames, file) in
        [(0, "ibdata1"), (0, "#sql-xb/.new/ibdata1"), (3, "#sql-xb/.old/ibdata1")]
    {
        let scene = Scene::new();
        let data = scene.data("joiner");
        interrupt(&data, renames);
        let path = data.join(file);
        let server = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        fcntl_lock(&server, FlockOperation::NonBlockingLockExclusive).unwrap();
        let in_use = format!("a server has {} in use", path.display());
        let refused = by_hand("recover", &data);
        assert_eq!(refused.status.code(), Some(22));
        assert!(String::from_utf8(refused.stderr).unwrap().contains(&in_use));
        let joiner = scene.joiner().start().wait();
        assert!(!joiner.status.success() && joiner.log.contains(&in_use), "{}", joiner.log);
        assert!(path.exists() && data.join("#sql-xb/journal").exists());
        drop(server);
        assert!(by_hand("recover", &data).status.success());
        assert_eq!(read(data.join("ibdata1")), "received");
    }
}

#[test]
fn rolling_back_without_old_data_is_an_error() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    succeeds(&scene, &[]);
    assert!(by_hand("roll-back", &data).status.success());
    assert_eq!(read(data.join("ibdata1")), "old");
    let refused = by_hand("roll-back", &data);
    assert_eq!(refused.status.code(), Some(22));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("no old data") && text.contains("start the server"), "{text}");
    assert_eq!(read(data.join("ibdata1")), "old");
}

/// Before the first rename, and after the first, some and nearly all; the swap's own tests have each.
#[test]
fn an_interrupted_roll_back_continues_to_the_old_data() {
    for (word, renames) in [("roll-back", 0), ("join", 1), ("recover", 5), ("roll-back", 10)] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        succeeds(&scene, &[]);
        let is_data = |name: &OsStr, _: &_| name != "galera.cache";
        assert!(
            swap::take_back(
                &Layout::of(&data).unwrap(),
                &FolderLocks::default(),
                is_data,
                crash_after(renames)
            )
            .is_err(),
            "{renames}"
        );
        assert_eq!(by_hand("clean-old", &data).status.code(), Some(22), "{renames}");
        if word == "join" {
            // The data with which the node joins is the old one.
            succeeds(&scene, &[]);
            assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
            continue;
        }
        let done = by_hand(word, &data);
        assert!(done.status.success(), "{word} {renames}: {done:?}");
        assert_eq!(read(data.join("ibdata1")), "old", "{word} {renames}");
        assert_eq!(read(data.join("#sql-xb/.new/mysql/user.frm")), "new", "{word} {renames}");
        assert_eq!(by_hand("roll-back", &data).status.code(), Some(22), "{word} {renames}");
    }
}
