//! The data that a node has is not lost before a donor's backup takes its place.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Ended, PROGRAM, STATE, Scene};
use rustix::fs::{FlockOperation, fcntl_lock};
use xb_sst::Layout;
use xb_sst::swap::{self, FolderLocks};

pub(crate) const WORK: &str = "weeks of work";
/// Files that stay in a swap.
pub(crate) const GALERA: [&str; 2] = ["galera.cache", "grastate.dat"];

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn join(scene: &Scene, words: &[&str]) -> Ended {
    let mut joiner = scene.joiner_with(&[], words).start();
    let ready = joiner.ready();
    let _ = scene.donor(&ready).start().wait();
    joiner.wait()
}

/// Lets the donor send write sets alone.
pub(crate) fn join_by_write_sets(scene: &Scene, words: &[&str]) {
    let mut joiner = scene.joiner_with(&[], words).start();
    let ready = joiner.ready();
    let _ = scene.donor_with(&ready, &["--bypass"]).start().wait();
    let joiner = joiner.wait();
    assert!(joiner.status.success(), "{}", joiner.log);
}

/// Joins in vain; the donor, too, is told what the joiner's log says.
pub(crate) fn is_refused(scene: &Scene, words: &[&str], why: &str) -> Ended {
    let mut joiner = scene.joiner_with(&[], words).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    let joiner = joiner.wait();
    assert_eq!(joiner.status.code(), Some(22), "{}", joiner.log);
    assert!(joiner.lines.is_empty() && joiner.log.contains(why), "{}", joiner.log);
    assert!(!donor.status.success() && donor.log.contains(why), "{}", donor.log);
    joiner
}

pub(crate) fn succeeds(scene: &Scene, words: &[&str]) {
    let joiner = join(scene, words);
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
}

/// Lets the node ask for a donor that never comes.
pub(crate) fn ask_in_vain(scene: &Scene) -> Ended {
    scene.options("sst-initial-timeout=1");
    let joiner = scene.joiner().start().wait();
    assert_eq!(joiner.status.code(), Some(32), "{}", joiner.log);
    joiner
}

pub(crate) fn by_hand(word: &str, data: &Path) -> Output {
    Command::new(PROGRAM).arg(word).arg(data).output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Leaves the journal of a roll-back that was killed before its first rename.
fn kill_roll_back(data: &Path) {
    let is_data = |name: &OsStr, _: &_| !GALERA.iter().any(|of_galera| name == *of_galera);
    let mut journal = None;
    let kill = || {
        journal = swap::interrupted(data).unwrap();
        Err(io::Error::other("killed"))
    };
    let layout = Layout::of(data).unwrap();
    assert!(swap::take_back(&layout, &FolderLocks::default(), is_data, kill).is_err());
    swap::begin(data, &journal.unwrap()).unwrap();
}

/// Leaves the journal of a swap that was killed before its first rename.
fn kill_swap(data: &Path) {
    swap::make_folders(data).unwrap();
    swap::make_old(data).unwrap();
    std::fs::write(data.join("#sql-xb/.new/ibdata1"), "received").unwrap();
    let goes = |_, name: &OsStr, _: &_| !GALERA.iter().any(|of_galera| name == *of_galera);
    let journal = swap::plan(vec![data.to_owned()], goes).unwrap();
    swap::begin(data, &journal).unwrap();
}

#[test]
fn a_swap_that_has_moved_nothing_is_given_up_once_a_server_has_written() {
    for (kill, word) in [(kill_roll_back as fn(&Path), "roll-back"), (kill_swap, "swap")] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        succeeds(&scene, &[]);
        kill(&data);
        // A start without a transfer runs no program of ours.
        std::fs::write(data.join("ibdata1"), WORK).unwrap();
        let joiner = ask_in_vain(&scene);
        assert!(joiner.log.contains(&format!("the {word} is abandoned")), "{}", joiner.log);
        assert_eq!(read(data.join("ibdata1")), WORK, "{word}");
        assert!(!data.join("#sql-xb/journal").exists());
        if word == "roll-back" {
            let done = by_hand(word, &data);
            assert!(done.status.success(), "{}", text(&done));
            assert_eq!(read(data.join("ibdata1")), "old");
            assert_eq!(read(data.join("#sql-xb/.new/ibdata1")), WORK);
        }
    }
}

#[test]
fn an_operator_can_remove_what_made_way() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    succeeds(&scene, &[]);
    assert!(by_hand("roll-back", &data).status.success());
    let mut clean = Command::new(PROGRAM);
    let done = clean.arg("clean-old").arg(&data).arg("--all").output().unwrap();
    assert!(done.status.success(), "{}", text(&done));
    assert!(!data.join("#sql-xb").exists());
    assert_eq!(read(data.join("ibdata1")), "old");
}

#[test]
fn an_overtaken_roll_back_is_begun_again_by_hand() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    succeeds(&scene, &[]);
    kill_roll_back(&data);
    std::fs::write(data.join("ibdata1"), WORK).unwrap();
    std::fs::create_dir(data.join("made_since")).unwrap();
    let done = by_hand("roll-back", &data);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(read(data.join("ibdata1")), "old");
    assert_eq!(read(data.join("#sql-xb/.new/ibdata1")), WORK);
    assert!(data.join("#sql-xb/.new/made_since").exists() && !data.join("made_since").exists());
}

#[test]
fn data_that_made_way_stays_until_a_donor_has_a_backup() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let kept = data.join("#sql-xb/.new/ibdata1");
    succeeds(&scene, &[]);
    std::fs::write(data.join("ibdata1"), WORK).unwrap();
    let done = by_hand("roll-back", &data);
    assert!(done.status.success() && text(&done).contains("#sql-xb/.new until"), "{}", text(&done));
    let _ = ask_in_vain(&scene);
    assert_eq!(read(&kept), WORK);
    // Write sets alone bring no data, either.
    join_by_write_sets(&scene, &[]);
    assert_eq!(read(&kept), WORK);
    for word in ["recover", "clean-old"] {
        assert!(by_hand(word, &data).status.success());
        assert_eq!(read(&kept), WORK, "{word}");
    }
    assert!(text(&by_hand("clean-old", &data)).contains("--all"));
    succeeds(&scene, &[]);
    assert!(!data.join("#sql-xb/.new").exists() && !data.join("#sql-xb/folders").exists());
}

/// Runs a program as a user without rights.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"];

#[test]
fn a_roll_back_that_may_not_move_a_directory_leaves_no_journal() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root");
        return;
    }
    for of_root in ["mysql", "#sql-xb/.old/mysql"] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        succeeds(&scene, &[]);
        for (owner, path) in
            [("nobody:nogroup", scene.scratch.path()), ("root:root", &data.join(of_root))]
        {
            let mut chown = Command::new("chown");
            assert!(chown.args(["-R", owner]).arg(path).status().unwrap().success());
        }
        let before = crate::harness::tree(&data);
        let mut refused = Command::new(NOBODY[0]);
        let refused = refused.args(&NOBODY[1..]).args([PROGRAM, "roll-back"]).arg(&data);
        let refused = refused.output().unwrap();
        assert_eq!(refused.status.code(), Some(22), "{}", text(&refused));
        assert!(text(&refused).contains("nothing was moved"), "{}", text(&refused));
        assert_eq!(crate::harness::tree(&data), before);
    }
}

/// Two servers of one host keep their binary logs in one directory, under names of their own.
#[test]
fn servers_with_a_directory_in_common_leave_each_others_data_alone() {
    let (first, second) = (Scene::new(), Scene::new());
    let logs = first.scratch.dir("binlogs");
    let put = |name: &str| std::fs::write(logs.join(name), name).unwrap();
    put("one.000001");
    put("two.000001");
    let [one, two] = ["one", "two"].map(|name| format!("--log-bin={}/{name}", logs.display()));
    succeeds(&first, &[&one]);
    let old = logs.join("#sql-xb/.old/one.000001");
    assert_eq!(read(&old), "one.000001");
    // The first node has not started on its new data yet.
    let home = first.data("joiner").display().to_string();
    let said = format!("holds the data of a transfer to {home}");
    let refused = is_refused(&second, &[&two], &said);
    assert!(refused.log.contains("clean-old"), "{}", refused.log);
    join_by_write_sets(&second, &[&two]);
    assert_eq!(read(&old), "one.000001");
    assert_eq!(read(second.data("joiner").join("ibdata1")), "old");
    for word in ["clean-old", "recover"] {
        assert!(by_hand(word, &second.data("joiner")).status.success());
    }
    assert_eq!(read(&old), "one.000001");
    let back = by_hand("roll-back", &first.data("joiner"));
    assert!(back.status.success(), "{}", text(&back));
    assert_eq!(read(logs.join("one.000001")), "one.000001");

    // The directory is free again.
    succeeds(&first, &[&one]);
    std::fs::write(first.data("joiner").join("ibdata1"), WORK).unwrap();
    crate::harness::start_on(&first.data("joiner"));
    assert!(by_hand("clean-old", &first.data("joiner")).status.success());
    succeeds(&second, &[&two]);
    assert_eq!(read(logs.join("#sql-xb/.old/two.000001")), "two.000001");
    assert!(logs.join("one.state").exists());
    // Files of an earlier version may be of any server.
    std::fs::remove_file(logs.join("#sql-xb/home")).unwrap();
    is_refused(&first, &[&one], "two.000001 is of no transfer that the data directory");
    assert_eq!(read(logs.join("#sql-xb/.old/two.000001")), "two.000001");
    succeeds(&second, &[&two]);
}

/// Two containers have data directories of one path, and their binary logs in one directory.
#[test]
fn containers_with_one_path_leave_each_others_data_alone() {
    let (scene, second) = (Scene::new(), Scene::new());
    let (data, logs) = (scene.data("joiner"), scene.scratch.dir("binlogs"));
    let [one, two] = ["one", "two"].map(|name| format!("--log-bin={}/{name}", logs.display()));
    let old = logs.join("#sql-xb/.old/one.000001");
    std::fs::write(logs.join("one.000001"), "one").unwrap();
    std::fs::write(logs.join("two.000001"), "two").unwrap();
    succeeds(&scene, &[&one]);
    // What the second container sees.
    std::fs::rename(&data, scene.scratch.join("first")).unwrap();
    std::fs::rename(second.data("joiner"), &data).unwrap();
    let refused = is_refused(&scene, &[&two], &format!("{} is of no transfer", old.display()));
    assert!(refused.log.contains("another container"), "{}", refused.log);
    join_by_write_sets(&scene, &[&two]);
    for word in ["clean-old", "recover"] {
        assert!(by_hand(word, &data).status.success());
    }
    assert_eq!((read(&old), read(logs.join("two.000001"))), ("one".into(), "two".into()));
    // A data directory that was emptied is not another one: its server uses these names.
    succeeds(&scene, &[&one]);
    assert!(!old.exists() && logs.join("#sql-xb/.old/one.state").exists());
}

/// Two transfers at once, in data directories of one path.
#[test]
fn a_transfer_in_another_container_is_not_disturbed() {
    let may = Command::new("unshare").args(["-m", "true"]).output();
    if !may.is_ok_and(|ran| ran.status.success()) {
        xb_testkit::skipped("this user cannot mount");
        return;
    }
    let (first, second) = (Scene::new(), Scene::new());
    let (data, logs) = (first.data("joiner"), first.scratch.dir("binlogs"));
    let [one, two] = ["one", "two"].map(|name| format!("--log-bin={}/{name}", logs.display()));
    first.backup("hang");
    let mut joiner = first.joiner_with(&[], &[&one]).start();
    let ready = joiner.ready();
    let donor = first.donor(&ready).start();
    joiner.wait_for("a backup that pauses", || first.bin().join("hangs").exists());

    let (here, there) = (second.data("joiner").display().to_string(), data.display().to_string());
    let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
    let container = ["unshare", "-m", "sh", "-c", script, &here, &there];
    let start = || second.joiner_with(&["--datadir", &there], &[&two]).through(&container).start();
    let mut other = start();
    let ready = other.ready();
    let refused = second.donor(&ready).start().wait();
    let other = other.wait();
    assert_eq!(other.status.code(), Some(114), "{}", other.log);
    assert!(refused.log.contains("another state transfer is running in"), "{}", refused.log);
    second.assert_untouched();
    // It needs nothing there for write sets alone.
    let mut other = start();
    let ready = other.ready();
    let _ = second.donor_with(&ready, &["--bypass"]).start().wait();
    let other = other.wait();
    assert!(other.status.success(), "{}", other.log);

    assert_eq!(read(logs.join("#sql-xb/home")), format!("{there}\n"));
    assert!(logs.join("#sql-xb/.new").exists());
    joiner.signal(rustix::process::Signal::TERM);
    let joiner = joiner.wait();
    drop(donor);
    assert!(!joiner.status.success(), "{}", joiner.log);
    first.assert_untouched();
    assert!(!logs.join("#sql-xb").exists());
}

/// The lock is that of a transfer in another container, which may see this directory at another path.
#[test]
fn a_directory_in_which_another_transfer_works_is_left_alone() {
    let scene = Scene::new();
    let logs = scene.scratch.dir("binlogs");
    let one = format!("--log-bin={}/one", logs.display());
    std::fs::create_dir(logs.join("#sql-xb")).unwrap();
    let held = std::fs::File::open(logs.join("#sql-xb")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut joiner = scene.joiner_with(&[], &[&one]).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    let joiner = joiner.wait();
    assert_eq!(joiner.status.code(), Some(114), "{}", joiner.log);
    let said = format!("another state transfer is running in {}/#sql-xb", logs.display());
    assert!(joiner.log.contains(&said) && donor.log.contains(&said), "{}", donor.log);
    assert!(!logs.join("#sql-xb/home").exists());
    scene.assert_untouched();
    drop(held);
    succeeds(&scene, &[&one]);
}

/// A roll-back puts the new files of a directory aside in which there was nothing before.
#[test]
fn what_made_way_in_a_directory_in_common_is_left_alone() {
    let (first, second) = (Scene::new(), Scene::new());
    let undo = first.scratch.dir("undo");
    let words = format!("--innodb-undo-directory={}", undo.display());
    succeeds(&first, &[&words]);
    std::fs::write(undo.join("undo001"), WORK).unwrap();
    let back = by_hand("roll-back", &first.data("joiner"));
    assert!(back.status.success(), "{}", text(&back));
    let aside = undo.join("#sql-xb/.new/undo001");
    assert_eq!(read(&aside), WORK);
    let home = first.data("joiner").display().to_string();
    is_refused(&second, &[&words], &format!("holds the data of a transfer to {home}"));
    assert_eq!(read(&aside), WORK);
}

/// As services do before each start, to learn the position of the data.
#[test]
fn a_server_that_looks_for_its_position_has_not_accepted_the_data() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let recover = || std::fs::write(data.join("ibdata1"), "recovered").unwrap();
    succeeds(&scene, &[]);
    recover();
    let refused = by_hand("clean-old", &data);
    assert_eq!(refused.status.code(), Some(22), "{}", text(&refused));
    let joiner = join(&scene, &[]);
    assert!(joiner.log.contains("no server has accepted the data"), "{}", joiner.log);
    assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
    recover();
    crate::harness::start_on(&data);
    assert!(by_hand("clean-old", &data).status.success());
    assert!(!data.join("#sql-xb").exists());
    // The list of that start goes with the data.
    succeeds(&scene, &[]);
    recover();
    assert_eq!(by_hand("clean-old", &data).status.code(), Some(22));
    assert!(by_hand("roll-back", &data).status.success());
    // Where the list is elsewhere, nothing tells the two apart.
    succeeds(&scene, &["--master-info-file=/elsewhere/master.info"]);
    recover();
    assert!(by_hand("clean-old", &data).status.success());
}

/// Its server has asked for the write sets after the position of the data that was there before.
#[test]
fn write_sets_are_refused_for_data_that_was_replaced_in_between() {
    for kill in [kill_roll_back as fn(&Path), kill_swap] {
        let scene = Scene::new();
        let data = scene.data("joiner");
        let state = data.join("grastate.dat");
        succeeds(&scene, &[]);
        std::fs::write(&state, "version: 2.1\nuuid:    u\nseqno:   5000\n").unwrap();
        kill(&data);
        let mut joiner = scene.joiner().start();
        let ready = joiner.ready();
        let donor = scene.donor_with(&ready, &["--bypass"]).start().wait();
        let joiner = joiner.wait();
        assert_eq!(joiner.status.code(), Some(22), "{}", joiner.log);
        assert!(joiner.lines.is_empty() && joiner.log.contains("has changed"), "{}", joiner.log);
        assert!(!donor.status.success() && donor.log.contains("has changed"), "{}", donor.log);
        assert!(read(&state).contains("seqno:   -1"), "{}", read(&state));
        // The next start asks with the position of the data.
        join_by_write_sets(&scene, &[]);
    }
}

#[test]
fn a_file_system_that_is_not_mounted_is_no_proof_that_a_server_has_started() {
    for is_empty in [true, false] {
        let scene = Scene::new();
        let (data, redo) = (scene.data("joiner"), scene.scratch.dir("redo"));
        std::fs::write(redo.join("ib_logfile0"), "old redo").unwrap();
        let words = format!("--innodb-log-group-home-dir={}", redo.display());
        succeeds(&scene, &[&words]);
        let away = scene.scratch.join("away");
        std::fs::rename(&redo, &away).unwrap();
        std::fs::create_dir(&redo).unwrap();
        if !is_empty {
            // Of a time before the file system.
            std::fs::write(redo.join("ib_logfile0"), "from long ago").unwrap();
        }
        let refused = by_hand("clean-old", &data);
        assert_eq!(refused.status.code(), Some(22), "{}", text(&refused));
        assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
        let joiner = join(&scene, &[&words]);
        assert!(!joiner.status.success(), "{}", joiner.log);
        assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
        std::fs::remove_dir_all(&redo).unwrap();
        std::fs::rename(&away, &redo).unwrap();
        std::fs::write(redo.join("ib_logfile0"), "written by a server").unwrap();
        crate::harness::start_on(&data);
        assert!(by_hand("clean-old", &data).status.success());
        assert!(!data.join("#sql-xb").exists());
    }
}

#[test]
fn a_removal_of_old_data_that_was_interrupted_is_finished() {
    let scene = Scene::new();
    let (data, redo) = (scene.data("joiner"), scene.scratch.dir("redo"));
    std::fs::write(redo.join("ib_logfile0"), "old redo").unwrap();
    let words = format!("--innodb-log-group-home-dir={}", redo.display());
    succeeds(&scene, &[&words]);
    std::fs::write(redo.join("ib_logfile0"), "written by a server").unwrap();
    // Killed after the directories outside.
    std::fs::write(data.join("#sql-xb/removing"), "").unwrap();
    std::fs::remove_dir_all(redo.join("#sql-xb")).unwrap();
    let done = by_hand("clean-old", &data);
    assert!(done.status.success(), "{}", text(&done));
    assert!(!data.join("#sql-xb").exists());
}

#[test]
fn a_roll_back_needs_no_directory_in_which_it_moves_nothing() {
    let scene = Scene::new();
    let (data, other) = (scene.data("joiner"), scene.data("other"));
    let logs = scene.scratch.dir("undo");
    let words = format!("--innodb-undo-directory={}", logs.display());
    succeeds(&scene, &[&words]);
    // The server keeps nothing there any more.
    std::fs::remove_dir_all(&logs).unwrap();
    std::fs::create_dir_all(&other).unwrap();
    std::fs::create_dir_all(logs.join("#sql-xb/.old")).unwrap();
    std::fs::write(logs.join("#sql-xb/.old/undo001"), "of the other").unwrap();
    std::fs::write(logs.join("#sql-xb/home"), format!("{}\n", other.display())).unwrap();
    let back = by_hand("roll-back", &data);
    assert!(back.status.success(), "{}", text(&back));
    assert_eq!(read(data.join("ibdata1")), "old");
    assert_eq!(read(logs.join("#sql-xb/.old/undo001")), "of the other");
}

#[test]
fn old_data_on_a_file_system_that_is_not_mounted_is_waited_for() {
    let scene = Scene::new();
    let (data, logs) = (scene.data("joiner"), scene.scratch.dir("binlogs"));
    std::fs::write(logs.join("node.000001"), "old log").unwrap();
    let words = format!("--log-bin={}/node", logs.display());
    succeeds(&scene, &[&words]);
    let away = scene.scratch.join("away");
    std::fs::rename(&logs, &away).unwrap();
    std::fs::create_dir(&logs).unwrap();
    let joiner = join(&scene, &[&words]);
    assert_eq!(joiner.status.code(), Some(22), "{}", joiner.log);
    assert!(joiner.log.contains("mount the file system"), "{}", joiner.log);
    assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
    std::fs::remove_dir_all(&logs).unwrap();
    std::fs::rename(&away, &logs).unwrap();
    let back = by_hand("roll-back", &data);
    assert!(back.status.success(), "{}", text(&back));
    assert_eq!(read(logs.join("node.000001")), "old log");
}

#[test]
fn of_a_directory_that_stays_the_data_in_it_is_swapped() {
    let scene = Scene::new();
    let logs = scene.data("joiner").join("logs");
    std::fs::create_dir(&logs).unwrap();
    for (name, content) in [("slow.log", "slow"), ("bin.000001", "old log"), ("undo001", "old")] {
        std::fs::write(logs.join(name), content).unwrap();
    }
    let slow = format!("--slow-query-log-file={}/slow.log", logs.display());
    let words = ["--log-bin=logs/bin", "--innodb-undo-directory=logs", &slow];
    succeeds(&scene, &words);
    assert_eq!(
        (read(logs.join("slow.log")), read(logs.join("undo001"))),
        ("slow".into(), "new undo".into())
    );
    assert!(!logs.join("bin.000001").exists());
    let back = by_hand("roll-back", &scene.data("joiner"));
    assert!(back.status.success(), "{}", text(&back));
    for (name, content) in [("slow.log", "slow"), ("bin.000001", "old log"), ("undo001", "old")] {
        assert_eq!(read(logs.join(name)), content);
    }
}

#[test]
fn a_directory_for_small_files_that_is_not_there_is_noticed_before_data_is_sent() {
    let scene = Scene::new();
    let missing = scene.scratch.join("missing");
    scene.options(&format!("[sst_of_joiner]\ntmpdir={}", missing.display()));
    let words = ["--defaults-group-suffix", "_of_joiner"];
    let mut joiner = scene.joiner_with(&words, &[]).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    let joiner = joiner.wait();
    let why = format!("cannot create a directory in {}", missing.display());
    assert_eq!(joiner.status.code(), Some(22), "{}", joiner.log);
    assert!(joiner.log.contains(&why) && donor.log.contains(&why), "{}{}", joiner.log, donor.log);
    assert!(!joiner.log.contains("received 1"), "{}", joiner.log);
}

/// With its old position, it would apply once more what the received data has.
#[test]
fn the_position_of_a_replica_goes_with_its_data() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    std::fs::create_dir(data.join("relay")).unwrap();
    for name in ["relay/master.info", "relay/relay-log.info", "relay/bin.000001"] {
        std::fs::write(data.join(name), "old").unwrap();
    }
    let words = [
        "--master-info-file=relay/master.info",
        "--relay-log-info-file=relay/relay-log.info",
        "--relay-log=relay/bin",
    ];
    succeeds(&scene, &words);
    // The server needs the directory.
    assert_eq!(std::fs::read_dir(data.join("relay")).unwrap().count(), 0);
    assert_eq!(read(data.join("#sql-xb/.old/relay/master.info")), "old");
}

/// So do the other notes of a server on its data, also where a log keeps the directory, or outside.
#[test]
fn notes_of_a_server_go_with_its_data_wherever_they_are() {
    let scene = Scene::new();
    let (data, outside) = (scene.data("joiner"), scene.scratch.dir("notes"));
    let logs = data.join("logs");
    std::fs::create_dir(&logs).unwrap();
    let notes =
        ["master.info", "master-c2.info", "multi-master.info", "relay.info", "relay-c2.info"];
    for name in notes.iter().chain(&["slow.log"]) {
        std::fs::write(logs.join(name), "old").unwrap();
    }
    let others = ["ddl.log", "ddl-backup.log", "tc"];
    for name in others.iter().chain(&["mine.info"]) {
        std::fs::write(outside.join(name), "old").unwrap();
    }
    let words = [
        "--slow-query-log-file=logs/slow.log".to_owned(),
        "--master-info-file=logs/master.info".to_owned(),
        format!("--relay-log-info-file={}/relay.info", logs.display()),
        format!("--log-ddl-recovery={}/ddl", outside.display()),
        format!("--log-tc={}/tc", outside.display()),
    ];
    succeeds(&scene, &words.each_ref().map(String::as_str));
    for (dir, names, other) in
        [(&logs, &notes[..], "slow.log"), (&outside, &others[..], "mine.info")]
    {
        assert_eq!(read(dir.join(other)), "old");
        for name in names {
            assert!(!dir.join(name).exists(), "{name}");
            assert_eq!(read(dir.join("#sql-xb/.old").join(name)), "old");
        }
    }
}

/// Those of a replica may have a name without an ending, and be in a directory in which others have theirs.
#[test]
fn directories_are_no_notes_of_a_server() {
    let scene = Scene::new();
    let outside = scene.scratch.dir("notes");
    for name in ["master", "master-c2"] {
        std::fs::write(outside.join(name), "old").unwrap();
    }
    std::fs::create_dir(outside.join("master-copies")).unwrap();
    std::fs::write(outside.join("master-copies/mine"), WORK).unwrap();
    succeeds(&scene, &[&format!("--master-info-file={}/master", outside.display())]);
    assert_eq!(read(outside.join("master-copies/mine")), WORK);
    for name in ["master", "master-c2"] {
        assert_eq!(read(outside.join("#sql-xb/.old").join(name)), "old");
    }
}

/// No server has written its notes there, and none will: a node that is no replica never needs the directory.
#[test]
fn a_directory_for_notes_that_the_server_cannot_write_to_ends_no_join() {
    if !rustix::process::geteuid().is_root() {
        xb_testkit::skipped("needs root");
        return;
    }
    let scene = Scene::new();
    let mut chown = Command::new("chown");
    let chown = chown.args(["-R", "nobody:nogroup"]).arg(scene.scratch.path()).status();
    assert!(chown.unwrap().success());
    let notes = scene.scratch.dir("notes");
    let join = |dir: &Path| {
        let option = format!("--master-info-file={}/master.info", dir.display());
        let mut joiner = scene.joiner_with(&[], &[&option]).through(&NOBODY).start();
        let ready = joiner.ready();
        let _ = scene.donor(&ready).start().wait();
        joiner.wait()
    };
    for dir in [&notes, &notes.join("none")] {
        let joiner = join(dir);
        assert!(joiner.status.success(), "{}", joiner.log);
    }
    // These are of the old data, and cannot go with it.
    std::fs::write(notes.join("master-c2.info"), "old").unwrap();
    let joiner = join(&notes);
    assert_eq!(joiner.status.code(), Some(22), "{}", joiner.log);
    assert!(joiner.log.contains(notes.to_str().unwrap()), "{}", joiner.log);
}

/// A server does not start without the directory of `secure_file_priv`.
#[test]
fn directories_that_the_server_needs_are_there_after_the_swap() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    std::fs::create_dir(data.join("exports")).unwrap();
    std::fs::write(data.join("exports/list.csv"), "old").unwrap();
    succeeds(&scene, &["--secure-file-priv=exports", "--relay-log=relay/bin"]);
    for name in ["exports", "relay"] {
        assert_eq!(std::fs::read_dir(data.join(name)).unwrap().count(), 0, "{name}");
    }
    assert_eq!(read(data.join("#sql-xb/.old/exports/list.csv")), "old");
    // For MySQL, this is no directory.
    succeeds(&scene, &["--secure-file-priv=NULL"]);
    assert!(!data.join("NULL").exists());
}

/// Without the link, a server would not find the directory, and not start.
#[test]
fn links_to_directories_that_the_server_needs_stay() {
    let scene = Scene::new();
    let (data, far) = (scene.data("joiner"), scene.scratch.dir("far"));
    std::fs::create_dir(data.join("real")).unwrap();
    for (to, name) in [(far.as_path(), "exports"), (Path::new("real"), "relay")] {
        std::os::unix::fs::symlink(to, data.join(name)).unwrap();
    }
    std::fs::write(far.join("list.csv"), "old").unwrap();
    let exports = format!("--secure-file-priv={}/exports/", data.display());
    succeeds(&scene, &[&exports, "--relay-log=relay/bin"]);
    assert_eq!(read(data.join("exports/list.csv")), "old");
    assert!(data.join("relay").is_symlink() && data.join("relay").is_dir());
}

/// The donor has real directories where this node has links: one option file for both, and a second disk here.
#[test]
fn directories_of_the_donors_are_not_in_the_way_of_links() {
    let scene = Scene::new();
    let (data, far) = (scene.data("joiner"), scene.scratch.dir("far"));
    for name in ["exports", "redo"] {
        std::os::unix::fs::symlink(&far, data.join(name)).unwrap();
    }
    scene.stream(&["exports/db.opt", "redo/db.opt", "xtrabackup_info"]);
    succeeds(&scene, &["--secure-file-priv=exports", "--innodb-log-group-home-dir=redo"]);
    assert!(["exports", "redo"].iter().all(|name| data.join(name).is_symlink()));
    assert_eq!(read(far.join("ib_logfile0")), "new redo");
}

/// The new data is a directory, and `clean-old` removes no more than the link.
#[test]
fn old_data_behind_a_link_is_named() {
    let scene = Scene::new();
    let (data, big) = (scene.data("joiner"), scene.scratch.dir("big"));
    // The second one is no schema, and its target may be of use elsewhere.
    std::os::unix::fs::symlink("../big", data.join("shop")).unwrap();
    std::os::unix::fs::symlink(&big, data.join("notes")).unwrap();
    std::fs::write(big.join("t.frm"), "old").unwrap();
    let joiner = join(&scene, &[]);
    assert!(joiner.status.success(), "{}", joiner.log);
    let why = format!("shop was a link to {}: the new data is in", big.display());
    assert!(joiner.log.contains(&why), "{}", joiner.log);
    let why = format!("notes was a link to {}, and the donor has nothing of", big.display());
    assert!(joiner.log.contains(&why), "{}", joiner.log);
    assert!(data.join("shop/orders.ibd").exists() && !big.join("orders.ibd").exists());
    assert!(by_hand("roll-back", &data).status.success());
    assert_eq!(read(data.join("shop/t.frm")), "old");
}

/// With the server's own names, it would join without these tables, and nothing would say so.
#[test]
fn tables_that_the_server_would_not_find_are_refused() {
    let scene = Scene::new();
    let words = ["--lower-case-table-names=1"];
    succeeds(&scene, &words);
    scene.stream(&["Shop/t.frm", "xtrabackup_info"]);
    let joiner = is_refused(&scene, &words, "the donor has Shop, with a capital letter");
    assert!(joiner.log.contains("lower_case_table_names as on the donor"), "{}", joiner.log);
    succeeds(&scene, &["--lower-case-table-names=0"]);
}

/// Statements with capital letters mean other tables on each node.
#[test]
fn nodes_that_tell_names_apart_in_different_ways_are_told() {
    let scene = Scene::new();
    for (donor, own, told) in [
        ("lower-case-table-names", "0", Some("is 1 on the donor and 0 on this node")),
        ("lower-case-table-names=2", "01", Some("is 0 on the donor and 1 on this node")),
        ("lower-case-table-names=01", "1", None),
        ("lower-case-table-names=2", "0", None),
    ] {
        scene.options(&format!("[mysqld]\n{donor}"));
        let joiner = join(&scene, &[&format!("--lower-case-table-names={own}")]);
        assert!(joiner.status.success(), "{}", joiner.log);
        let text = "lower_case_table_names is";
        assert_eq!(joiner.log.contains(text), told.is_some(), "{}", joiner.log);
        assert!(joiner.log.contains(told.unwrap_or_default()), "{}", joiner.log);
    }
}

/// It would stay beside the new data, or stop the join once everything had arrived.
#[test]
fn an_option_that_keeps_a_schema_is_refused_before_data_is_sent() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let log = format!("--general-log-file={}/shop/all.log", data.display());
    for name in ["db.opt", "#sql-1.frm"] {
        std::fs::create_dir_all(data.join("shop")).unwrap();
        std::fs::write(data.join("shop").join(name), "").unwrap();
    }
    for name in ["t.frm", "t.ibd"] {
        std::fs::write(data.join("shop").join(name), "").unwrap();
        let joiner = is_refused(&scene, &[&log], "shop has tables, and general-log-file names it");
        assert!(
            joiner.log.contains("hint: set general-log-file to a path outside"),
            "{}",
            joiner.log
        );
        std::fs::remove_file(data.join("shop").join(name)).unwrap();
    }
    assert_eq!(read(data.join("ibdata1")), "old");
}

/// A table that the donor has dropped could not be made again: its file would be in the way.
#[test]
fn tablespaces_elsewhere_go_with_the_data_whose_links_name_them() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let [fast, far] = ["fast/shop", "far/shop"].map(|dir| scene.scratch.join(dir));
    for dir in [&fast, &far, &data.join("shop")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let own = [(&fast, "remote.ibd"), (&fast, "gone.ibd"), (&far, "away.ibd")];
    for (dir, name) in own {
        std::fs::write(dir.join(name), "old").unwrap();
        let link = data.join("shop").join(name).with_extension("isl");
        std::fs::write(link, dir.join(name).display().to_string()).unwrap();
    }
    std::fs::write(far.join("other.ibd"), "of another").unwrap();
    succeeds(&scene, &[]);
    assert_eq!(read(fast.join("remote.ibd")), "new remote");
    for (dir, name) in own {
        assert_eq!(read(dir.join("#sql-xb/.old").join(name)), "old");
        assert!(name == "remote.ibd" || !dir.join(name).exists(), "{name}");
    }
    assert_eq!(read(far.join("other.ibd")), "of another");
    assert!(by_hand("roll-back", &data).status.success());
    for (dir, name) in own {
        assert_eq!(read(dir.join(name)), "old", "{name}");
    }
    succeeds(&scene, &[]);
    crate::harness::start_on(&data);
    std::fs::write(data.join("ib_logfile0"), "written by a server").unwrap();
    let cleaned = by_hand("clean-old", &data);
    assert!(cleaned.status.success(), "{}", text(&cleaned));
    assert_eq!(std::fs::read_dir(&far).unwrap().count(), 1);
}

/// A node made from a copy of another one's data directory has links to the other's files.
#[test]
fn a_tablespace_elsewhere_that_another_server_has_in_use_stays() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let fast = scene.scratch.join("fast/shop");
    for dir in [&fast, &data.join("shop")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let files = ["remote.ibd", "gone.ibd"].map(|name| {
        let path = fast.join(name);
        std::fs::write(&path, "of another").unwrap();
        let link = data.join("shop").join(name).with_extension("isl");
        std::fs::write(link, path.display().to_string()).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        (path, file)
    });
    let joiner = join(&scene, &[]);
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
    let why = "a file that does not belong to this node's data is in the way";
    assert!(joiner.log.contains(why), "{}", joiner.log);
    assert_eq!(read(data.join("shop/remote.ibd")), "new remote");
    for (path, file) in files {
        assert_eq!(read(&path), "of another");
        drop(file);
    }
}

/// An upgrade leaves such groups. The new log would be where no server looks, and the old one beside the new data.
#[test]
fn directories_of_another_version_of_the_server_do_not_count() {
    let scene = Scene::new();
    let [redo, earlier] = ["redo", "earlier"].map(|name| scene.scratch.dir(name));
    std::fs::write(redo.join("ib_logfile0"), "old redo").unwrap();
    let group = |version: &str, dir: &Path| {
        format!("[mariadb-{version}]\ninnodb-log-group-home-dir={}\n", dir.display())
    };
    scene.options(&(group("10.11", &redo) + &group("10.6", &earlier)));
    succeeds(&scene, &[]);
    assert_eq!(read(redo.join("ib_logfile0")), "new redo");
    assert_eq!(read(redo.join("#sql-xb/.old/ib_logfile0")), "old redo");
    assert_eq!(std::fs::read_dir(earlier).unwrap().count(), 0);
}

/// Without them, the server does not start on the new data, or not the next time; and the only key may be among them.
#[test]
fn what_the_node_keeps_in_its_data_directory_stays() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    let own = [
        "keys/file",
        "tls/node.key",
        "node.crt",
        "tmp1/x",
        "tmp2/x",
        "gcache/galera.cache",
        "galera/grastate.dat",
        "temp/ibtmp1",
        "audit/log",
        "reports/x",
        "cluster/key",
        ".my.cnf",
        "linked/ca",
    ];
    for name in own {
        std::fs::create_dir_all(data.join(name).parent().unwrap()).unwrap();
        std::fs::write(data.join(name), "mine").unwrap();
    }
    let link = scene.scratch.join("link");
    std::os::unix::fs::symlink(data.join("linked"), &link).unwrap();
    let here = data.display();
    scene.options(&format!("report-dir={here}/reports"));
    let words = [
        "--loose-file-key-management-filename=keys/file".to_owned(),
        format!("--ssl-key={here}/tls/node.key"),
        format!("--ssl-ca={}/ca", link.display()),
        "--ssl-cert=node.crt".to_owned(),
        format!("--tmpdir={here}/tmp1:{here}/tmp2"),
        format!(
            "--wsrep_provider_options=gcache.size=1G; gcache.dir = {here}/gcache;socket.ssl_key={here}/cluster/key"
        ),
        format!("--wsrep-data-home-dir={here}/galera"),
        "--innodb-temp-data-file-path=temp/ibtmp1:12M:autoextend".to_owned(),
        format!("--some-plugins-file={here}/audit/log"),
        format!("--innodb-data-home-dir={here}"),
    ];
    succeeds(&scene, &words.each_ref().map(String::as_str));
    for name in own {
        assert_eq!(read(data.join(name)), "mine", "{name}");
    }
    assert_eq!(read(data.join("#sql-xb/.old/ibdata1")), "old");
}

#[test]
fn a_schema_may_have_the_name_of_a_keyring() {
    let scene = Scene::new();
    let data = scene.data("joiner");
    succeeds(&scene, &[]);
    std::fs::create_dir(data.join("keyring_of_a_shop")).unwrap();
    std::fs::write(data.join("keyring"), "keys").unwrap();
    assert!(by_hand("roll-back", &data).status.success());
    assert!(!data.join("keyring_of_a_shop").exists() && data.join("keyring").exists());
    assert!(data.join("#sql-xb/.new/keyring_of_a_shop").exists());
}

#[test]
fn a_limit_of_zero_for_the_donor_is_none() {
    let scene = Scene::new();
    scene.options("sst-initial-timeout=0");
    succeeds(&scene, &[]);
}
