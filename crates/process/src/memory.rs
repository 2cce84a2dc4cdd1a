//! The memory that this process and its programs may take.

use std::path::{Path, PathBuf};

/// Memory of the machine, or of the control groups of this process if they allow less, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What all programs together may have.
    pub allowed: u64,
    /// What can be taken now without another program losing its own.
    pub available: u64,
}

impl Memory {
    /// Reads what the system says now. `None` if it says nothing.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    /// `root` is where `proc` and `sys` are mounted.
    fn below(root: &Path) -> Option<Self> {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let machine = text("proc/meminfo")?;
        let machine = Self {
            allowed: kib_of(&machine, "MemTotal:")?,
            available: kib_of(&machine, "MemAvailable:")?,
        };
        let groups = text("proc/self/cgroup").unwrap_or_default();
        let hierarchies = groups.lines().filter_map(|line| Group::of_line(root, line));
        Some(hierarchies.flat_map(|group| group.limits()).fold(machine, Self::least))
    }

    fn least(self, other: Self) -> Self {
        Self {
            allowed: self.allowed.min(other.allowed),
            available: self.available.min(other.available),
        }
    }
}

/// The control group of this process in one hierarchy.
struct Group {
    /// Mount point of the hierarchy.
    mount: PathBuf,
    /// The group in it, without a leading slash.
    path: PathBuf,
    files: &'static Files,
}

/// Names in the folder of a group.
struct Files {
    /// Files with a limit. Above the first, the kernel kills; above the others, it slows down.
    limits: &'static [&'static str],
    used: &'static str,
    /// Counters of memory that the kernel takes back when it is needed.
    reclaimable: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: ["total_active_file", "total_inactive_file"],
};
const VERSION_2: Files = Files {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    reclaimable: ["active_file", "inactive_file"],
};

impl Group {
    /// Parses a line of `/proc/self/cgroup`: number, controllers and path. `None` if the hierarchy
    /// does not limit memory.
    fn of_line(root: &Path, line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let path = PathBuf::from(path.trim_start_matches('/'));
        if controllers.is_empty() {
            return Some(Self { mount: root.join("sys/fs/cgroup"), path, files: &VERSION_2 });
        }
        let is_memory = controllers.split(',').any(|name| name == "memory");
        is_memory.then(|| Self {
            mount: root.join("sys/fs/cgroup/memory"),
            path,
            files: &VERSION_1,
        })
    }

    /// What this group and each above it allow and leave.
    fn limits(&self) -> Vec<Memory> {
        let groups = self.path.ancestors().map(|path| self.mount.join(path));
        groups.filter_map(|group| self.limit_of(&group)).collect()
    }

    fn limit_of(&self, group: &Path) -> Option<Memory> {
        let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let allowed = self.files.limits.iter().filter_map(|name| number(name)).min()?;
        let used = number(self.files.used)?;
        let stat = text("memory.stat").unwrap_or_default();
        let counter = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            let value = lines.find(|(key, _)| *key == name).map(|(_, value)| value);
            value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let reclaimable =
            self.files.reclaimable.map(counter).into_iter().fold(0, u64::saturating_add);
        let available = allowed.saturating_sub(used.saturating_sub(reclaimable));
        Some(Memory { allowed, available })
    }
}

fn kib_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_above_this_process_counts_without_its_cache() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = || Memory::below(dir.path()).map(|memory| (memory.allowed, memory.available));
        assert_eq!(read(), None);
        write("proc/meminfo", "MemFree: 1 kB\nMemTotal:  9000 kB\nMemAvailable:   8000 kB\n");
        assert_eq!(read(), Some((9000 << 10, 8000 << 10)));
        // A service of systemd: its group is not at the root of the mount.
        write("proc/self/cgroup", "4:cpu:/x\n0::/a/b\n");
        write("sys/fs/cgroup/a/memory.max", "5000000\n");
        write("sys/fs/cgroup/a/memory.current", "4000000\n");
        write("sys/fs/cgroup/a/memory.stat", "anon 1\nactive_file 500000\ninactive_file 250000\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/b/memory.current", "100\n");
        assert_eq!(read(), Some((5_000_000, 1_750_000)));
        write("sys/fs/cgroup/a/b/memory.high", "1000000\n");
        assert_eq!(read(), Some((1_000_000, 999_900)));
        // In a container, its group is the root.
        write("proc/self/cgroup", "0::/\n");
        write("sys/fs/cgroup/memory.max", "6000000");
        write("sys/fs/cgroup/memory.current", "7000000");
        assert_eq!(read(), Some((6_000_000, 0)));
        write("proc/self/cgroup", "7:cpuacct,memory:/d\n");
        write("sys/fs/cgroup/memory/d/memory.limit_in_bytes", "3000000");
        write("sys/fs/cgroup/memory/d/memory.usage_in_bytes", "1000000");
        assert_eq!(read(), Some((3_000_000, 2_000_000)));
    }

    #[test]
    fn this_machine_says_what_it_has() {
        let memory = Memory::now().unwrap();
        assert!(0 < memory.allowed && memory.available <= memory.allowed, "{memory:?}");
    }
}
