//! Backups and restores on a file system that is shut down, as by a power loss, and mounted again (as root).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::files::assert_same_tree;
use xb_testkit::s3::options_for;
use xb_testkit::store::Store;
use xb_testkit::stream::small_backup;

const MIB: usize = 1 << 20;

/// A file system in a file; unmounted when dropped, and when the test is killed.
struct Disk {
    at: PathBuf,
    image: PathBuf,
    janitor: Child,
}

impl Disk {
    /// `None` if this user cannot mount, or the system has no loop devices.
    fn mount(scratch: &Scratch) -> Option<Self> {
        let (image, at) = (scratch.join("image"), scratch.dir("disk"));
        std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
        if !made.is_ok_and(|status| status.success()) || !Self::mount_at(&image, &at) {
            return None;
        }
        let janitor = Command::new("sh")
            .args(["-c", r#"read -r _; umount -l "$1""#, "janitor"])
            .arg(&at)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Self { at, image, janitor })
    }

    fn mount_at(image: &Path, at: &Path) -> bool {
        let mounting = Command::new("mount").args(["-o", "loop"]).args([image, at]).status();
        mounting.is_ok_and(|status| status.success())
    }

    /// Shuts the file system down without writing anything that is still in memory.
    fn lose_power(&self) {
        let script = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
        let _ = Cmd::new("python3").args(["-c", script]).arg(&self.at).run().expect(0);
    }

    /// Mounts what the disk has, from a copy: in another test's mount namespace, the file system that was shut down may live on,
    /// and the system would mount that one again.
    fn mount_again(&mut self) {
        let _ = Cmd::new("umount").arg(&self.at).run().expect(0);
        let left = self.image.with_extension("left");
        std::fs::rename(&self.image, &left).unwrap();
        let copy = ["--sparse=always".as_ref(), left.as_os_str(), self.image.as_os_str()];
        let _ = Cmd::new("cp").args(copy).run().expect(0);
        std::fs::remove_file(left).unwrap();
        assert!(Self::mount_at(&self.image, &self.at), "it cannot be mounted again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// A store with a backup, its files, and a place to restore them.
struct Scene {
    // Dropped in this order.
    disk: Disk,
    store: Store,
    scratch: Scratch,
}

impl Scene {
    fn new() -> Option<Self> {
        let scratch = Scratch::new();
        let disk = Disk::mount(&scratch)?;
        let store = Store::bucket();
        let stream = small_backup(9, 24 * MIB);
        put_bytes(&store, "name", &["--chunk-size=1M"], &stream);
        let file = scratch.join("stream");
        std::fs::write(&file, &stream).unwrap();
        unpack(&file, &scratch.dir("reference"));
        Some(Self { disk, store, scratch })
    }

    fn target(&self) -> PathBuf {
        self.disk.at.join("data")
    }

    fn restore(&self, sync: &str, endpoint: &str) -> Cmd {
        let place = self.store.url("name");
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["restore", "--memory=48M", "--threads=2", "--parallel=2", sync])
            .args(options_for(endpoint))
            .arg(format!("--target-dir={}", self.target().display()))
            .arg(place)
    }

    fn same(&self) {
        assert_same_tree(&self.target(), &self.scratch.join("reference"));
    }
}

fn endpoint(store: &Store) -> String {
    let Store::Bucket(bucket) = store else { unreachable!() };
    bucket.endpoint()
}

#[test]
fn files_lost_in_a_power_loss_are_restored_again() {
    let Some(mut scene) = Scene::new() else {
        xb_testkit::skipped("no loop device can be mounted here");
        return;
    };
    let Store::Bucket(bucket) = &scene.store else { unreachable!() };
    for (round, sync) in [(3, "--sync=file"), (9, "--sync=end"), (15, "--sync=none")] {
        // The restore stops at this object, with some files complete and one begun.
        let rule = Rule::new("GET", &format!("/{round:09}"), Action::Hold);
        let proxy = Proxy::start(bucket.address(), vec![rule]);
        let mut run = scene.restore(sync, &proxy.endpoint()).spawn();
        run.until("the request is held", || proxy.held() > 0);
        scene.disk.lose_power();
        run.kill_9();
        let _ = run.wait();
        proxy.release();
        scene.disk.mount_again();
        let _ = scene.restore(sync, &endpoint(&scene.store)).run().expect(0);
        scene.same();
        std::fs::remove_dir_all(scene.target()).unwrap();
    }
}

#[test]
fn restored_files_survive_a_power_loss() {
    let Some(mut scene) = Scene::new() else {
        xb_testkit::skipped("no loop device can be mounted here");
        return;
    };
    let endpoint = endpoint(&scene.store);
    for sync in ["--sync=file", "--sync=end"] {
        let _ = scene.restore(sync, &endpoint).run().expect(0);
        scene.disk.lose_power();
        scene.disk.mount_again();
        scene.same();
        std::fs::remove_dir_all(scene.target()).unwrap();
    }
    // Without a sync nothing is promised, and the same command must not call it restored.
    let _ = scene.restore("--sync=none", &endpoint).run().expect(0);
    scene.disk.lose_power();
    scene.disk.mount_again();
    let again = scene.restore("--sync=none", &endpoint).run();
    assert!(!again.stderr_text().contains("already there"), "{again:?}");
    if again.code() == 0 {
        scene.same();
    }
}

/// Small objects pass through the page cache, and large ones past it, whole or in parts.
#[test]
fn a_backup_in_a_folder_survives_a_power_loss() {
    let scratch = Scratch::new();
    let Some(mut disk) = Disk::mount(&scratch) else {
        xb_testkit::skipped("no loop device can be mounted here");
        return;
    };
    let stream = small_backup(9, 24 * MIB);
    let place = format!("file://{}", disk.at.display());
    let run = |words: &[&str], name: &str| {
        let program = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"));
        program.args(words).arg(format!("{place}/{name}"))
    };
    let sizes = ["256K", "4M", "1G"];
    for size in sizes {
        let chunk = format!("--chunk-size={size}");
        let put = run(&["put", "--compress=none", &chunk], size);
        let _ = put.stdin_bytes(stream.clone()).run().expect(0);
    }
    disk.lose_power();
    disk.mount_again();
    for size in sizes {
        assert!(run(&["get"], size).run().expect(0).stdout == stream, "{size}");
    }
}
