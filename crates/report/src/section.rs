//! A section of a run: one transfer through the pipeline, and what is known about it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xb_pipeline::{PhaseBegin, Watcher};

use crate::content::object_sizes::ObjectSizes;
use crate::content::table_totals::TableTotals;
use crate::lanes::{Direction, Lane};
use crate::recorder::Recorder;

/// Totals of a section. What is not known is counted by the report itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the stream, as the producer wrote it.
    pub stream_bytes: Option<u64>,
    /// Bytes in the store.
    pub stored_bytes: Option<u64>,
    /// Files.
    pub files: Option<u64>,
    /// Objects.
    pub objects: Option<u64>,
    /// Requests to the store, retries included.
    pub requests: Option<u64>,
    /// Tries that followed a failed one.
    pub retries: Option<u64>,
}

/// What to show of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionOptions {
    /// Direction of the bytes.
    pub direction: Direction,
    /// What the workers do on the way up, as a verb; `None`: compress.
    pub encode: Option<&'static str>,
    /// Worker threads.
    pub threads: usize,
}

/// One transfer.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) direction: Direction,
    pub(crate) lanes: Vec<Lane>,
    /// When it began and how long it lasted.
    pub(crate) begun: Instant,
    pub(crate) length: Duration,
    pub(crate) recorder: Recorder,
    pub(crate) phases: Vec<PhaseBegin>,
    /// What the run says itself.
    pub(crate) stated: Totals,
    /// What was counted, and is shown where the run says nothing.
    pub(crate) counted: Totals,
    /// Parts of objects that were sent in several parts.
    pub(crate) parts: u64,
    pub(crate) content: Content,
}

impl Section {
    pub(crate) fn new(name: &str, options: SectionOptions) -> Self {
        Self {
            name: name.to_owned(),
            direction: options.direction,
            lanes: options.direction.lanes(options.encode),
            begun: Instant::now(),
            length: Duration::ZERO,
            recorder: Recorder::default(),
            phases: Vec::new(),
            stated: Totals::default(),
            counted: Totals::default(),
            parts: 0,
            content: Content::default(),
        }
    }

    /// Whether the run ended before the transfer was complete: then it never stated what it has stored.
    pub(crate) fn is_cut_off(&self, failed: bool) -> bool {
        failed && self.stated == Totals::default()
    }

    /// Returns the bytes that were passed to the last stage.
    pub(crate) fn sent(&self) -> u64 {
        let last = self.recorder.samples().last();
        last.and_then(|sample| sample.lanes.last()).map_or(0, |lane| lane.bytes)
    }

    /// Returns the totals, as far as anything is known.
    pub(crate) fn totals(&self) -> Totals {
        let (stated, counted) = (&self.stated, &self.counted);
        Totals {
            stream_bytes: stated.stream_bytes.or(counted.stream_bytes),
            stored_bytes: stated.stored_bytes.or(counted.stored_bytes),
            files: stated.files.or(counted.files),
            objects: stated.objects.or(counted.objects),
            requests: stated.requests.or(counted.requests),
            retries: stated.retries.or(counted.retries),
        }
    }
}

/// Bytes by table and sizes of objects.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tables: TableTotals,
    pub(crate) objects: ObjectSizes,
}

/// Receives the content from the threads of the pipeline.
#[derive(Debug, Default)]
pub(crate) struct ContentWatcher(Mutex<Content>);

impl ContentWatcher {
    pub(crate) fn take(&self) -> Content {
        std::mem::take(&mut *self.content())
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // The counters are only added to, so a panic elsewhere leaves them usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for ContentWatcher {
    fn file_bytes(&self, path: &[u8], plain: u64, stored: u64) {
        self.content().tables.add(path, plain, stored);
    }

    fn object(&self, size: u64) {
        self.content().objects.add(size);
    }
}
