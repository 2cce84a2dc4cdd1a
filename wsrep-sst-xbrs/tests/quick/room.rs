//! Room on the joiner's file systems: what lacks is found before any data is received.

use std::path::Path;
use std::process::Command;

use crate::harness::{Ended, Scene, wait_for};
use xb_testkit::daemon::{children, kill_9};
use xb_testkit::scripted::Scripted;

const MIB: usize = 1 << 20;

/// Nothing runs before and after.
const NOTHING: (&str, &str) = (":", ":");

/// Returns whether this user can mount; says so if not.
fn may_mount() -> bool {
    let may = Command::new("unshare").args(["-m", "true"]).output();
    let may = may.is_ok_and(|ran| ran.status.success());
    if !may {
        xb_testkit::skipped("this user cannot mount");
    }
    may
}

fn put(path: &Path, len: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, vec![1; len]).unwrap();
}

/// Runs a transfer to a joiner that sees a disk of this size at `at`, on which `before` runs first
/// and `after` last, both by `sh`.
fn join_with_disk(
    scene: &Scene,
    (at, mib): (&Path, u32),
    (before, after): (&str, &str),
    words: &[&str],
) -> (Ended, Ended) {
    std::fs::create_dir_all(at).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={mib}m none \"$0\" && cd \"$0\" && {{ {before}\n}} && {{ \"$@\"; rc=$?; {after}\nexit $rc; }}"
    );
    let through = ["unshare", "-m", "sh", "-c", &script, at.to_str().unwrap()];
    let mut joiner = scene.joiner_with(&[], words).through(&through).start();
    let ready = joiner.ready();
    let donor = scene.donor(&ready).start().wait();
    (joiner.wait(), donor)
}

/// Asserts that the join was refused before data was received, because of the file system of `at`.
fn assert_refused((joiner, donor): &(Ended, Ended), at: &Path) {
    let why = format!("on the file system of {}", at.display());
    for log in [&joiner.log, &donor.log] {
        assert!(log.contains("the transfer needs") && log.contains(&why), "{log}");
    }
    assert_eq!(joiner.status.code(), Some(28), "{}", joiner.log);
    assert!(joiner.lines.is_empty() && !joiner.log.contains("received"), "{}", joiner.log);
}

#[test]
fn each_directory_needs_room_on_its_own_file_system() {
    if !may_mount() {
        return;
    }
    // The temporary tablespace is created beside the system tablespace.
    for (file, option, more) in [
        ("ibdata1", "--innodb-data-home-dir", 12),
        ("undo001", "--innodb-undo-directory", 0),
        ("aria_log.00000001", "--aria-log-dir-path", 0),
    ] {
        let scene = Scene::new();
        put(&scene.data("donor").join(file), 8 * MIB);
        let disk = scene.scratch.join("disk");
        let words = [format!("{option}={}", disk.display())];
        let words = words.each_ref().map(String::as_str);
        let small = join_with_disk(&scene, (&disk, 6 + more), NOTHING, &words);
        assert_refused(&small, &disk);
        scene.assert_untouched();
        let (joiner, _) = join_with_disk(&scene, (&disk, 16 + more), NOTHING, &words);
        assert!(joiner.status.success(), "{}", joiner.log);
    }
}

#[test]
fn the_redo_log_that_the_server_creates_needs_room() {
    if !may_mount() {
        return;
    }
    // The log of the second start, 16 MiB, is still there.
    for (mib, size, fits) in
        [(107, None, false), (120, None, true), (60, Some("32M"), true), (20, Some("16M"), true)]
    {
        let scene = Scene::new();
        let disk = scene.scratch.join("disk");
        let dir = format!("--innodb-log-group-home-dir={}", disk.display());
        let size = size.map(|size| format!("--innodb-log-file-size={size}"));
        let words: Vec<&str> = std::iter::once(&*dir).chain(size.as_deref()).collect();
        let ended = join_with_disk(&scene, (&disk, mib), NOTHING, &words);
        if fits {
            assert!(ended.0.status.success(), "{}", ended.0.log);
        } else {
            assert_refused(&ended, &disk);
            // The parts add up to what was checked.
            let said = format!(
                "needs 113 MiB on the file system of {}, 1 for the donor's data and 112 for redo",
                disk.display()
            );
            assert!(ended.0.log.contains(&said), "{}", ended.0.log);
            scene.assert_untouched();
        }
    }
}

/// Also those of which the donor has none.
#[test]
fn tablespaces_that_the_server_creates_need_room_where_it_creates_them() {
    if !may_mount() {
        return;
    }
    let undo = |number: u32| format!("--innodb-undo-tablespaces={number}");
    let temporary = |specs: &str| format!("--innodb-temp-data-file-path={specs}");
    for (option, more, least) in [
        // Not beside the donor's one, which has 8 MiB: the server removes that first.
        (Some("--innodb-undo-directory"), undo(4), 41),
        (Some("--innodb-undo-directory"), undo(0), 9),
        // The donor's 8 MiB, the log of 4 MiB, 16 MiB in reserve, and what is new.
        (None, undo(4), 60),
        (None, temporary("ibtmp1:32M;/tmp/ibtmp2:10M:autoextend"), 58),
        (Some("--innodb-data-home-dir"), temporary("ibtmp1:32M:autoextend"), 33),
    ] {
        let scene = Scene::new();
        put(&scene.data("donor").join("undo001"), 8 * MIB);
        let disk = option.map_or_else(|| scene.data("joiner"), |_| scene.scratch.join("disk"));
        let at = option.map(|option| format!("{option}={}", disk.display()));
        let words: Vec<&str> =
            ["--innodb-log-file-size=4M", &more].into_iter().chain(at.as_deref()).collect();
        let small = join_with_disk(&scene, (&disk, least - 1), NOTHING, &words);
        assert_refused(&small, &disk);
        let (joiner, _) = join_with_disk(&scene, (&disk, least + 2), NOTHING, &words);
        assert!(joiner.status.success(), "{}", joiner.log);
    }
}

/// Its size says less: a small server can have much of it since its last checkpoint.
#[test]
fn the_redo_log_that_a_donor_states_needs_room() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    let socket = scene.bin().join("socket");
    let _server = Scripted::start(&socket, "10.11.6-MariaDB", |statement: &str| {
        let age = || vec!["Innodb_checkpoint_age".to_owned(), "50000000".to_owned()];
        Ok(if statement.starts_with("SHOW GLOBAL STATUS") { vec![age()] } else { Vec::new() })
    });
    let data = scene.data("joiner");
    // Beside that, 16 MiB in reserve.
    for (mib, fits) in [(60, false), (66, true)] {
        let script = format!("mount -t tmpfs -o size={mib}m none \"$0\" && exec \"$@\"");
        let through = ["unshare", "-m", "sh", "-c", &script, data.to_str().unwrap()];
        let log = "--innodb-log-file-size=4M";
        let mut joiner = scene.joiner_with(&[], &[log]).through(&through).start();
        let ready = joiner.ready();
        let words = ["--socket", socket.to_str().unwrap()];
        let donor = scene.donor_with(&ready, &words).start().wait();
        let ended = (joiner.wait(), donor);
        if fits {
            assert!(ended.0.status.success(), "{}", ended.0.log);
        } else {
            assert_refused(&ended, &data);
        }
    }
}

#[test]
fn in_the_data_directory_the_redo_log_counts_beside_the_data() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    put(&scene.data("donor").join("shop/t.ibd"), 8 * MIB);
    let data = scene.data("joiner");
    // 8 MiB of data, 16 MiB in reserve, the log of the second start, and the log.
    for (mib, log, fits) in
        [(68, "32M", false), (80, "32M", true), (60, "16M", true), (40, "4M", true)]
    {
        let log = format!("--innodb-log-file-size={log}");
        let ended = join_with_disk(&scene, (&data, mib), NOTHING, &[&log]);
        if fits {
            assert!(ended.0.status.success(), "{}", ended.0.log);
        } else {
            assert_refused(&ended, &data);
        }
    }
}

#[test]
fn tablespaces_outside_the_data_directory_need_room_where_they_go() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    let fast = scene.scratch.join("fast");
    put(&fast.join("shop/remote.ibd"), 8 * MIB);
    let link = scene.data("donor").join("shop/remote.isl");
    put(&link, 0);
    std::fs::write(&link, fast.join("shop/remote.ibd").to_str().unwrap()).unwrap();
    let small = join_with_disk(&scene, (&fast, 6), NOTHING, &[]);
    assert_refused(&small, &fast);
    scene.assert_untouched();
    let (joiner, _) = join_with_disk(&scene, (&fast, 16), NOTHING, &[]);
    assert!(joiner.status.success(), "{}", joiner.log);
}

/// Backup programs follow such links, and a joiner receives plain files.
#[test]
fn data_of_the_donors_behind_links_needs_room() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    let (data, far) = (scene.data("joiner"), scene.scratch.join("far/shop"));
    put(&far.join("t.ibd"), 8 * MIB);
    std::os::unix::fs::symlink("../far/shop", scene.data("donor").join("shop")).unwrap();
    // 16 MiB in reserve, and the log.
    for (mib, fits) in [(24, false), (34, true)] {
        let log = "--innodb-log-file-size=4M";
        let ended = join_with_disk(&scene, (&data, mib), NOTHING, &[log]);
        if fits {
            assert!(ended.0.status.success(), "{}", ended.0.log);
        } else {
            assert_refused(&ended, &data);
        }
    }
}

/// The second start would find out when everything has arrived.
#[test]
fn a_directory_for_small_files_without_room_is_noticed_before_data_is_sent() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    let tmp = scene.scratch.dir("tmp");
    scene.options(&format!("[sst_of_joiner]\ntmpdir={}", tmp.display()));
    let words = ["--defaults-group-suffix", "_of_joiner"];
    for (options, status, why, hint) in [
        ("size=512k", 28, "cannot write 1 MiB in", "make room there, or set tmpdir in [sst]"),
        ("ro", 22, "cannot create a directory in", "hint: set tmpdir in [sst] to a directory"),
    ] {
        let script = format!("mount -t tmpfs -o {options} none \"$0\" && exec \"$@\"");
        let through = ["unshare", "-m", "sh", "-c", &script, tmp.to_str().unwrap()];
        let mut joiner = scene.joiner_with(&words, &[]).through(&through).start();
        let ready = joiner.ready();
        let donor = scene.donor(&ready).start().wait();
        let joiner = joiner.wait();
        assert_eq!(joiner.status.code(), Some(status), "{}", joiner.log);
        let why = format!("{why} {}", tmp.display());
        assert!(joiner.log.contains(&why) && donor.log.contains(&why), "{}", joiner.log);
        assert!(joiner.log.contains(hint) && !joiner.log.contains("at path"), "{}", joiner.log);
        assert!(!joiner.log.contains("received"), "{}", joiner.log);
        scene.assert_untouched();
    }
}

/// All was received and swapped in, and then the server could not start, as on a read-only root.
#[test]
fn a_server_that_can_make_no_temporary_files_is_noticed_before_data_is_sent() {
    if !may_mount() {
        return;
    }
    let tmpdir_of = |scene: &Scene| scene.scratch.dir("tmp");
    for (of_transfer, of_server, is_usual) in
        [(true, true, false), (false, true, false), (true, false, true), (false, false, true)]
    {
        let scene = Scene::new();
        let tmp = tmpdir_of(&scene);
        if !of_transfer {
            let text = std::fs::read_to_string(scene.scratch.join("my.cnf")).unwrap();
            let own = format!("tmpdir={}\n", scene.scratch.path().display());
            std::fs::write(scene.scratch.join("my.cnf"), text.replace(&own, "")).unwrap();
        }
        let option = format!("--tmpdir={}:/elsewhere", tmp.display());
        let words: &[&str] = if of_server { &[&option] } else { &[] };
        let script = "mount -t tmpfs -o ro none \"$0\" && exec \"$@\"";
        let through = ["unshare", "-m", "sh", "-c", script, tmp.to_str().unwrap()];
        let mut side = scene.joiner_with(&[], words);
        if is_usual {
            side.command.env("TMPDIR", &tmp);
        }
        let mut joiner = side.through(&through).start();
        let ready = joiner.ready();
        let donor = scene.donor(&ready).start().wait();
        let joiner = joiner.wait();
        assert_eq!(joiner.status.code(), Some(22), "{}", joiner.log);
        let why = format!(
            "this node's server could not start on the new data: it has its temporary files in {}",
            tmp.display()
        );
        assert!(joiner.log.contains(&why) && donor.log.contains(&why), "{}", joiner.log);
        assert!(joiner.log.contains("hint: set tmpdir in [mysqld] to a"), "{}", joiner.log);
        assert!(!joiner.log.contains("received"), "{}", joiner.log);
        scene.assert_untouched();
    }
}

#[test]
fn old_data_that_may_be_the_only_good_one_is_not_deleted_for_lack_of_room() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    put(&scene.data("donor").join("shop/t.ibd"), 8 * MIB);
    let (data, list) = (scene.data("joiner"), scene.scratch.join("list"));
    // As a transfer leaves it whose data the server then does not accept.
    let before = "mkdir -p '#sql-xb/.old/shop' mysql && : >mysql/user.frm \
        && head -c 20000000 /dev/zero >'#sql-xb/.old/shop/t.ibd'";
    let after = format!("find . -name t.ibd >'{}'", list.display());
    let join = || {
        let log = "--innodb-log-file-size=4M";
        join_with_disk(&scene, (&data, 40), (before, &after), &[log])
    };
    let refused = join();
    assert_refused(&refused, &data);
    assert!(refused.0.log.contains("clean-old"), "{}", refused.0.log);
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "./#sql-xb/.old/shop/t.ibd\n");

    scene.options("keep-old=no");
    let (joiner, _) = join();
    assert!(joiner.status.success(), "{}", joiner.log);
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "");
}

#[test]
fn tablespaces_elsewhere_go_with_old_data_that_makes_room() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    scene.options("keep-old=no");
    put(&scene.data("donor").join("shop/t.ibd"), 8 * MIB);
    let (data, fast) = (scene.data("joiner"), scene.scratch.join("fast/shop"));
    for name in ["remote.ibd", "gone.ibd"] {
        put(&fast.join(name), 1);
    }
    // There is room for one of both.
    let before = format!(
        "mkdir shop mysql && : >mysql/user.frm && head -c 20000000 /dev/zero >shop/t.ibd \
        && for name in remote gone; do echo '{}'/$name.ibd >shop/$name.isl; done",
        fast.display()
    );
    let log = "--innodb-log-file-size=4M";
    let (joiner, _) = join_with_disk(&scene, (&data, 40), (&before, "ls -A shop"), &[log]);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert!(joiner.log.contains("deleting the old data before"), "{}", joiner.log);
    assert!(!joiner.log.contains("stays in the data directory"), "{}", joiner.log);
    assert_eq!(std::fs::read(fast.join("remote.ibd")).unwrap(), b"new remote");
    assert_eq!(std::fs::read_dir(&fast).unwrap().count(), 1);
}

#[test]
fn room_is_counted_again_when_the_donor_begins_again() {
    if !may_mount() {
        return;
    }
    for fills in [true, false] {
        let scene = Scene::new();
        // The data of the first run takes most of the disk; that of the second needs all of this room.
        put(&scene.data("donor").join("ibdata1"), 8 * MIB);
        std::fs::rename(scene.bin().join("stream"), scene.bin().join("whole")).unwrap();
        scene.large_stream();
        scene.backup("hang");
        let data = scene.data("joiner");
        let script = "mount -t tmpfs -o size=34m none \"$0\" && exec \"$@\"";
        let through = ["unshare", "-m", "sh", "-c", script, data.to_str().unwrap()];
        let log = "--innodb-log-file-size=4M";
        let mut joiner = scene.joiner_with(&[], &[log]).through(&through).start();
        let ready = joiner.ready();
        let donor = scene.donor(&ready).start();
        // As its own mounts show it.
        let root = format!("/proc/{}/root", joiner.child.id());
        let seen = Path::new(&root).join(data.strip_prefix("/").unwrap());
        let new = seen.join("#sql-xb/.new");
        let has_received = || {
            crate::harness::tree(&new).iter().map(|(_, file)| file.len()).sum::<usize>() >= 4 * MIB
        };
        wait_for("received file", || new.exists() && has_received(), || joiner.log());
        if fills {
            put(&seen.join("filler.log"), 12 * MIB);
        }
        std::fs::rename(scene.bin().join("whole"), scene.bin().join("stream")).unwrap();
        std::fs::remove_file(scene.bin().join("hang")).unwrap();
        kill_9(children(donor.child.id())[0]);
        let (donor, joiner) = (donor.wait(), joiner.wait());
        if fills {
            for log in [&joiner.log, &donor.log] {
                assert!(log.contains("the transfer needs"), "{log}");
            }
            assert_eq!(joiner.status.code(), Some(28), "{}", joiner.log);
        } else {
            assert!(joiner.status.success() && donor.status.success(), "{}", joiner.log);
        }
    }
}

#[test]
fn a_tablespace_that_is_copied_in_part_stays_in_the_data_directory() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    scene.options("space-check=no");
    let fast = scene.scratch.join("fast");
    let link = fast.join("shop/remote.ibd").display().to_string();
    let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
    for part in 0..3 {
        out.payload("shop/remote.ibd", part << 20, &[3; MIB]);
    }
    out.end("shop/remote.ibd");
    let galera = format!("{} 7\n", crate::harness::STATE);
    for (name, content) in [
        ("backup-my.cnf", &b"[mysqld]\n"[..]),
        ("ibdata1", &[7; 70_000]),
        ("ib_logfile0", b"new"),
        ("mysql/user.frm", b"new"),
        ("shop/remote.isl", link.as_bytes()),
        ("xtrabackup_checkpoints", b"backup_type = full-backuped\nto_lsn = 1\n"),
        ("xtrabackup_galera_info", galera.as_bytes()),
        ("xtrabackup_info", b"tool_name = mariadb-backup\n"),
    ] {
        out.payload(name, 0, content).end(name);
    }
    std::fs::write(scene.bin().join("stream"), out.finish()).unwrap();
    let list = scene.scratch.join("list");
    let after = format!("find . -type f >'{}'", list.display());
    let (joiner, _) = join_with_disk(&scene, (&fast, 2), (":", &after), &[]);
    assert!(joiner.status.success(), "{}", joiner.log);
    assert!(joiner.log.contains("remote.ibd stays in the data directory"), "{}", joiner.log);
    assert_eq!(std::fs::read_to_string(list).unwrap(), "");
    let shop = scene.data("joiner").join("shop");
    assert_eq!(shop.join("remote.ibd").metadata().unwrap().len(), 3 << 20);
    assert!(!shop.join("remote.isl").exists());
}

#[test]
fn data_that_makes_way_for_the_old_data_is_counted_as_free() {
    if !may_mount() {
        return;
    }
    let scene = Scene::new();
    put(&scene.data("donor").join("shop/t.ibd"), 8 * MIB);
    let (joiner, _) = scene.transfer();
    assert!(joiner.status.success(), "{}", joiner.log);
    let (data, copy) = (scene.data("joiner"), scene.scratch.join("copy"));
    put(&data.join("shop/large.ibd"), 12 * MIB);
    std::fs::rename(&data, &copy).unwrap();
    let before = format!("cp -a '{}/.' .", copy.display());
    let log = "--innodb-log-file-size=4M";
    // 8 MiB of data, 16 MiB in reserve, and the log.
    let (joiner, _) = join_with_disk(&scene, (&data, 34), (&before, ":"), &[log]);
    assert!(joiner.log.contains("the data from before it is in place again"), "{}", joiner.log);
    assert!(joiner.status.success(), "{}", joiner.log);
}
