//! Default limits on the machine's memory and threads.

use xb_pipeline::{ObjectSize, PackPlan};

/// Maximum default memory in bytes.
const MAX_MEMORY: u64 = 512 << 20;

/// Minimum default memory of a put in bytes: `PUT_BASE`, and `PUT_PER_CORE` for each core. With 2
/// cores, the resident memory of the process is about 190 to 200 MiB.
const PUT_BASE: u64 = 132 << 20;
const PUT_PER_CORE: u64 = 16 << 20;

/// Objects that the default memory of a put keeps in flight, if [`MAX_MEMORY`] allows it.
const PUT_IN_FLIGHT: u64 = 4;

/// Default budget: 512 MiB, but at most a quarter of what the machine and the control group allow.
/// Commands that read use it only if the consumer is slower than the store.
pub(crate) fn default_memory() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let allowed = machine.into_iter().chain(group).min().unwrap_or(u64::MAX);
    (allowed / 4).min(MAX_MEMORY)
}

/// Default budget for a put of objects of this size. A put uses all of it as soon as the store is
/// slower than the producer. With fewer objects in memory, large ones would have to be divided into
/// more requests, and a distant store would often be idle.
///
/// The codec of each worker needs `codec_memory` bytes more.
pub(crate) fn default_put_memory(object_size: ObjectSize, codec_memory: u64) -> u64 {
    put_memory_for(cores(), object_size, codec_memory).min(default_memory())
}

fn put_memory_for(cores: usize, object_size: ObjectSize, codec_memory: u64) -> u64 {
    let least = PUT_BASE.saturating_add(PUT_PER_CORE.saturating_mul(cores as u64)).min(MAX_MEMORY);
    let threads = xb_pipeline::worker_threads(least, codec_memory, cores);
    let codecs = codec_memory.saturating_mul(threads as u64);
    let buffers = least.max(PackPlan::memory_for(PUT_IN_FLIGHT, object_size, threads));
    buffers.saturating_add(codecs).min(MAX_MEMORY)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Default number of worker threads for a budget of `memory` bytes, of which each codec needs
/// `codec_memory`: one for each core, if they fit.
pub(crate) fn default_threads(memory: u64, codec_memory: u64) -> usize {
    xb_pipeline::worker_threads(memory, codec_memory, cores())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:       24576 kB\n"), Some(24 << 20));
        assert_eq!(total_of("MemTotal: lots\n"), None);
        assert!((1..=MAX_MEMORY).contains(&default_memory()));
        assert!(default_put_memory(ObjectSize::new(1), 0) <= default_memory());
    }

    #[test]
    fn small_machines_hold_little_and_large_objects_stay_whole() {
        let mib =
            |cores, object: u64| put_memory_for(cores, ObjectSize::new(object << 20), 0) >> 20;
        assert_eq!([mib(2, 10), mib(2, 32), mib(2, 64), mib(2, 200)], [164, 164, 315, 512]);
        assert_eq!(
            [mib(1, 32), mib(8, 32), mib(64, 32), mib(64, u64::MAX >> 20)],
            [160, 260, 512, 512]
        );
        assert_eq!(put_memory_for(2, ObjectSize::new(32 << 20), 5 << 20) >> 20, 174);
    }
}
