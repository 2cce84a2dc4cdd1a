//! A disk whose writes fail from some point on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::daemon::Scratch;

const MIB: u64 = 1 << 20;

/// A mounted file system on a loop device that has less room than it says. Writes into the cache
/// succeed; once that room is used, the device fails them when the cache is written back.
#[derive(Debug)]
pub struct ShortDisk {
    scratch: Scratch,
    mounts: Vec<PathBuf>,
}

impl ShortDisk {
    /// Mounts an ext4 of 1 GiB that holds `mib` MiB. `None` if this user or this machine cannot.
    #[must_use]
    pub fn mount(mib: u64) -> Option<Self> {
        let mut this = Self { scratch: Scratch::new(), mounts: Vec::new() };
        let backing = this.scratch.dir("backing");
        this.add(&["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"], &backing)?;
        let disk = backing.join("disk");
        File::create(&disk).ok()?.set_len(1024 * MIB).ok()?;
        let disk = disk.display().to_string();
        run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", &disk])?;
        let place = this.scratch.dir("disk");
        this.add(&["-o", "loop", &disk], &place)?;
        Some(this)
    }

    fn add(&mut self, what: &[&str], place: &Path) -> Option<()> {
        let at = place.display().to_string();
        run("mount", &[what, &[&at]].concat())?;
        self.mounts.push(place.to_owned());
        Some(())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.scratch.join("disk")
    }
}

impl Drop for ShortDisk {
    fn drop(&mut self) {
        for mount in self.mounts.iter().rev() {
            let _ = run("umount", &["-l", &mount.display().to_string()]);
        }
    }
}

/// Runs a program; `None` if it fails or is missing.
fn run(program: &str, args: &[&str]) -> Option<()> {
    // Debian keeps these programs in directories that a user's PATH lacks.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(args).env("PATH", path).output().ok()?;
    output.status.success().then_some(())
}
