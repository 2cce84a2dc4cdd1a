//! Progress of a run: plain counters that any thread may read at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of one run. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Observer(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    stored: AtomicU64,
    files: AtomicU64,
    waits: [AtomicU64; 3],
}

/// What the first stage of the pipeline waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Bytes from the producer or the store.
    Source = 0,
    /// A worker.
    Workers = 1,
    /// Memory, which is returned when the last stage has sent its bytes.
    Sink = 2,
}

/// Values of the counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes of the stream so far, as the producer wrote it.
    pub bytes: u64,
    /// Bytes in the store so far: sent and acknowledged, or fetched.
    pub stored: u64,
    /// Files that are complete.
    pub files: u64,
    /// The longest of the waits so far, if there was any.
    pub bottleneck: Option<Wait>,
}

impl Observer {
    /// Adds bytes of the stream.
    pub fn add_bytes(&self, n: u64) {
        self.0.bytes.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds bytes in the store.
    pub fn add_stored(&self, n: u64) {
        self.0.stored.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds complete files.
    pub fn add_files(&self, n: u64) {
        self.0.files.fetch_add(n, Ordering::Relaxed);
    }

    /// Runs `step` and counts its duration as a wait for `what`.
    pub fn waiting<T>(&self, what: Wait, step: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let value = step();
        let waited = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.waits[what as usize].fetch_add(waited, Ordering::Relaxed);
        value
    }

    /// Returns how long the first stage has waited for `what`.
    #[must_use]
    pub fn waited(&self, what: Wait) -> Duration {
        let waited = self.0.waits.get(what as usize);
        Duration::from_micros(waited.map_or(0, |micros| micros.load(Ordering::Relaxed)))
    }

    /// Returns the current values.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let wait = |what: Wait| (self.waited(what), what);
        let longest = [wait(Wait::Source), wait(Wait::Workers), wait(Wait::Sink)]
            .into_iter()
            .max_by_key(|(time, _)| *time);
        Snapshot {
            bytes: self.0.bytes.load(Ordering::Relaxed),
            stored: self.0.stored.load(Ordering::Relaxed),
            files: self.0.files.load(Ordering::Relaxed),
            bottleneck: longest.filter(|(time, _)| !time.is_zero()).map(|(_, what)| what),
        }
    }
}
