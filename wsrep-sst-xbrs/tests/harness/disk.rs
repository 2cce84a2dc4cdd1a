//! Small disks for tests of what a transfer does without room.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use xb_testkit::command::Cmd;

/// A small disk; unmounted when dropped, and when the test is killed.
pub(crate) struct Disk {
    at: PathBuf,
    janitor: Child,
}

impl Disk {
    /// Mounts a disk; `None` if this user cannot mount.
    pub(crate) fn mount(at: &Path, mib: u64) -> Option<Self> {
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

    pub(crate) fn resize(&self, bytes: u64) {
        let options = format!("remount,size={}k", bytes >> 10);
        let _ = Cmd::new("mount").args(["-o", &options]).arg(&self.at).run().expect(0);
    }

    pub(crate) fn used(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.at).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}
