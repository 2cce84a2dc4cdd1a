//! Default limits on the machine's memory and threads.

use xb_pipeline::{ObjectSize, PackPlan};
use xb_process::Memory;

/// Maximum default memory in bytes.
const MAX_MEMORY: u64 = 512 << 20;

/// Minimum default memory of a put in bytes: `PUT_BASE`, and `PUT_PER_CORE` for each core. With 2
/// cores, the resident memory of the process is about 190 to 200 MiB.
const PUT_BASE: u64 = 132 << 20;
const PUT_PER_CORE: u64 = 16 << 20;

/// Objects that the default memory of a put keeps in flight, if [`MAX_MEMORY`] allows it.
const PUT_IN_FLIGHT: u64 = 4;

/// Default memory in bytes on the smallest machine: with less, most commands cannot work.
const BARE: u64 = 32 << 20;
/// The same on one that allows more, but has almost none left: a passphrase needs all of this to open a backup, and 14
/// threads need it.
const BARE_NOW: u64 = 64 << 20;

/// Default budget: 512 MiB, but at most a quarter of what the machine and the control groups allow, and half of what
/// is free there now. Commands that read use it only if the consumer is slower than the store.
pub(crate) fn default_memory() -> u64 {
    Memory::now().map_or(MAX_MEMORY, default_of)
}

fn default_of(memory: Memory) -> u64 {
    (memory.allowed / 4).min((memory.available / 2).max(BARE_NOW)).clamp(BARE, MAX_MEMORY)
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

/// Default number of worker threads for a budget of `memory` bytes, of which each codec needs
/// `codec_memory`: one for each core, if they fit.
pub(crate) fn default_threads(memory: u64, codec_memory: u64) -> usize {
    xb_pipeline::worker_threads(memory, codec_memory, cores())
}

#[cfg(test)]
mod tests {
    use xb_encryptor::{FreshKey, KeyMaterial, KeySlotSpec, KeysObject, Passphrase};
    use xb_pipeline::{FileDecoding, UnpackPlan};

    use super::*;

    #[test]
    fn a_small_machine_or_one_that_is_almost_full_gives_little() {
        let mib = |allowed: u64, available: u64| {
            default_of(Memory { allowed: allowed << 20, available: available << 20 }) >> 20
        };
        assert_eq!([mib(24_000, 20_000), mib(1024, 1000), mib(256, 250)], [512, 256, 64]);
        // A server has the rest.
        assert_eq!([mib(24_000, 600), mib(24_000, 3), mib(160, 3), mib(16, 16)], [300, 64, 40, 32]);
        assert!(default_put_memory(ObjectSize::new(1), 0) <= MAX_MEMORY);
    }

    /// Else a backup could be opened on one night, and not on the next.
    #[test]
    fn memory_that_others_have_taken_keeps_no_backup_shut() {
        let memory = default_of(Memory { allowed: 1 << 30, available: 0 });
        let (fresh, words) =
            (FreshKey::generate().unwrap(), Passphrase::new("words".into()).unwrap());
        let sealed = KeysObject::seal(fresh.key(), [1; 16], &[KeySlotSpec::Passphrase(&words)]);
        let opened = sealed
            .unwrap()
            .open(&KeyMaterial::Passphrase { passphrase: &words, max_memory: memory });
        assert!(opened.is_ok(), "{:?}", opened.err());
        // Threads that an option names do not depend on the memory.
        assert!(UnpackPlan::new(memory - FileDecoding::MIN_MEMORY, 14, 8).is_ok());
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
