//! Bytes and time of the steps of a run, so that a report can tell which step was slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A step on the bytes of a stream, done by workers or where there is too little to do for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Checksums and codec on the way into the store.
    Encode = 0,
    /// The seal on the way into the store.
    Seal = 1,
    /// The seal on the way back.
    Open = 2,
    /// Checksums and codec on the way back.
    Decode = 3,
    /// Writing files.
    Write = 4,
}

/// All steps.
pub(crate) const STEPS: usize = 5;

/// Work done so far in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkDone {
    /// Bytes that went into the step.
    pub bytes: u64,
    /// Time that all workers together spent on it.
    pub busy: Duration,
}

/// Counters of all steps.
#[derive(Debug, Default)]
pub(crate) struct WorkCounters([(AtomicU64, AtomicU64); STEPS]);

impl WorkCounters {
    /// Runs `step` on `bytes` bytes and counts both.
    pub(crate) fn run<T>(&self, what: Work, bytes: u64, step: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let value = step();
        if let Some((done, busy)) = self.0.get(what as usize) {
            let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            done.fetch_add(bytes, Ordering::Relaxed);
            busy.fetch_add(nanos, Ordering::Relaxed);
        }
        value
    }

    pub(crate) fn done(&self, what: Work) -> WorkDone {
        let counters = self.0.get(what as usize);
        counters.map_or(WorkDone::default(), |(bytes, busy)| WorkDone {
            bytes: bytes.load(Ordering::Relaxed),
            busy: Duration::from_nanos(busy.load(Ordering::Relaxed)),
        })
    }
}

/// Receives what the counters cannot hold: names of files and lengths, never bytes. Its methods are
/// called by the threads of the pipeline, so they must return soon.
pub trait Watcher: Send + Sync {
    /// The next `len` bytes of content in the stream belong to the file `path`.
    fn file_bytes(&self, path: &[u8], len: u64);

    /// The bytes that passed since the last call are stored in this many bytes; `None`: unchanged.
    fn packed(&self, stored: Option<u64>);

    /// A file that is compressed or encrypted by itself is stored in this many more bytes.
    fn transformed(&self, path: &[u8], stored: u64);

    /// The store has acknowledged a whole object of this size.
    fn object(&self, size: u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_its_own_counters() {
        let counters = WorkCounters::default();
        assert_eq!(counters.run(Work::Seal, 7, || 3), 3);
        counters.run(Work::Seal, 5, || ());
        assert_eq!(counters.done(Work::Seal).bytes, 12);
        assert_eq!(counters.done(Work::Encode), WorkDone::default());
    }
}
