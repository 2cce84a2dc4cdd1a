//! Small disks, for tests of what a program does without room.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::{Cmd, Ran};

/// A small disk; unmounted when dropped, and when the test is killed.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
    janitor: Child,
}

impl SmallDisk {
    /// Mounts a disk of `mib` MiB at an existing directory; `None` if this user cannot mount.
    #[must_use]
    pub fn mount(at: &Path, mib: u64) -> Option<Self> {
        let mount = |options: &str| {
            let mut command = Command::new("mount");
            command.args(["-t", "tmpfs", "-o", options, "none"]).arg(at).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if !mount(&format!("size={mib}m,mode=755")) {
            return None;
        }
        let janitor = Command::new("sh")
            .args(["-c", r#"read -r _; umount -l "$1""#, "janitor"])
            .arg(at)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Self { at: at.to_owned(), janitor })
    }

    /// Changes its size.
    pub fn resize(&self, bytes: u64) {
        let _ = self.remount(bytes).expect(0);
    }

    /// Leaves this many bytes of room beside those in use, while a program may be writing more of them.
    pub fn leave(&self, bytes: u64) {
        let is_left = |_| self.remount(self.used() + bytes).code() == 0;
        assert!((0..20).any(is_left), "the disk fills faster than it can be made smaller");
    }

    fn remount(&self, bytes: u64) -> Ran {
        let options = format!("remount,size={}k", bytes >> 10);
        Cmd::new("mount").args(["-o", &options]).arg(&self.at).run()
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.at).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}
