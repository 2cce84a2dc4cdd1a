//! Default limits on the machine's memory and threads.

/// Maximum default memory in bytes.
const MOST: u64 = 512 << 20;

/// Default budget: 512 MiB, but at most a quarter of what the machine and the control group allow.
pub(crate) fn default_memory() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let allowed = machine.into_iter().chain(group).min().unwrap_or(u64::MAX);
    (allowed / 4).min(MOST)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Default number of worker threads for a budget of `memory` bytes: one for each core, if they fit.
pub(crate) fn default_threads(memory: u64) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    xb_pipeline::worker_threads(memory, cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:       24576 kB\n"), Some(24 << 20));
        assert_eq!(total_of("MemTotal: lots\n"), None);
        assert!((1..=MOST).contains(&default_memory()));
    }
}
