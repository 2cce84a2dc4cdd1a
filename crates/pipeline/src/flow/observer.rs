//! Progress of a run: counters and the current phase, which any thread may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::flow::hold_ups::{StageWaits, WAITS, Wait};
use crate::flow::work::{Watcher, Work, WorkCounters, WorkDone};

/// Counters of one run. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Observer(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    stored: AtomicU64,
    files: AtomicU64,
    parts: AtomicU64,
    waits: [AtomicU64; 3],
    hold_ups: StageWaits,
    work: WorkCounters,
    watcher: OnceLock<Watching>,
    phases: Mutex<Phases>,
}

/// Wrapper of the trait object, which has no `Debug` of its own.
struct Watching(Arc<dyn Watcher>);

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watching")
    }
}

/// Values of the counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Bytes of the stream so far, as the producer wrote it.
    pub bytes: u64,
    /// Bytes in the store so far: sent and acknowledged, or fetched.
    pub stored: u64,
    /// Files that are complete.
    pub files: u64,
    /// The stage that has held up the others for the longest time in the current phase, if one has.
    pub slowest_stage: Option<Wait>,
}

/// A phase of a run, such as `fetch` or `prepare`, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Phase {
    /// Short name, one word.
    pub name: &'static str,
    /// Its number, from 1.
    pub number: u32,
    /// Number of phases of the run.
    pub of: u32,
    /// Bytes of the stream that it has done.
    pub bytes: u64,
    /// Bytes of the stream that it will have done at its end, if known.
    pub total: Option<u64>,
    /// Time since its begin.
    pub elapsed: Duration,
    /// If a program runs in it: time since the program last wrote a line, or since its start.
    pub silent: Option<Duration>,
}

/// Begin of a phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseBegin {
    /// Short name, one word.
    pub name: &'static str,
    /// When it began. It lasts until the next one begins.
    pub at: Instant,
}

/// The current phase, and the counters at its begin.
#[derive(Debug, Default)]
struct Phases {
    of: u32,
    number: u32,
    current: Option<Current>,
    /// The first phases. A run has few.
    begun: Vec<PhaseBegin>,
}

/// Number of phases whose begin is kept.
const MAX_PHASES: usize = 64;

#[derive(Debug)]
struct Current {
    name: &'static str,
    begun: Instant,
    bytes: u64,
    held: [Duration; 3],
    later: u64,
    total: Option<u64>,
    /// When a program that runs in it last wrote a line.
    heard: Option<Instant>,
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
    pub(crate) fn add_files(&self, n: u64) {
        self.0.files.fetch_add(n, Ordering::Relaxed);
    }

    /// States the number of phases of the run. The first call counts: a run may be part of a longer
    /// one, which has stated its own number.
    pub fn expect_phases(&self, n: u32) {
        let mut phases = self.phases();
        if phases.of == 0 {
            phases.of = n;
        }
    }

    /// Begins the next phase.
    pub fn begin_phase(&self, name: &'static str) {
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        let mut phases = self.phases();
        phases.number += 1;
        phases.of = phases.of.max(phases.number);
        let begun = Instant::now();
        let held = self.0.hold_ups.held(begun);
        if phases.begun.len() < MAX_PHASES {
            phases.begun.push(PhaseBegin { name, at: begun });
        }
        phases.current =
            Some(Current { name, begun, bytes, held, later: 0, total: None, heard: None });
    }

    /// States that the current phase will process `next` more bytes of the stream, and then those
    /// of [`Observer::expect_later`].
    pub fn expect_bytes(&self, next: u64) {
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        if let Some(current) = &mut self.phases().current {
            let done = bytes.saturating_sub(current.bytes);
            current.total = Some(done.saturating_add(next).saturating_add(current.later));
        }
    }

    /// States how many bytes the current phase will process after those of the next call of
    /// [`Observer::expect_bytes`]: those of the backups after this one.
    pub fn expect_later(&self, bytes: u64) {
        if let Some(current) = &mut self.phases().current {
            current.later = bytes;
        }
    }

    /// Notes that a program that runs in the current phase was started, or has written a line.
    pub fn hear_program(&self) {
        if let Some(current) = &mut self.phases().current {
            current.heard = Some(Instant::now());
        }
    }

    /// Returns the current phase, if the run has phases.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        let phases = self.phases();
        phases.current.as_ref().map(|current| Phase {
            name: current.name,
            number: phases.number,
            of: phases.of,
            bytes: bytes.saturating_sub(current.bytes),
            total: current.total,
            elapsed: current.begun.elapsed(),
            silent: current.heard.map(|heard| heard.elapsed()),
        })
    }

    /// Returns the beginning of each phase so far.
    #[must_use]
    pub fn phases_begun(&self) -> Vec<PhaseBegin> {
        self.phases().begun.clone()
    }

    /// Returns the duration of each phase so far; the last one lasts until now.
    #[must_use]
    pub fn phase_times(&self) -> Vec<(&'static str, Duration)> {
        let begun = self.phases_begun();
        let ends = begun.iter().skip(1).map(|next| next.at).chain([Instant::now()]);
        let time = |(phase, end): (&PhaseBegin, Instant)| {
            (phase.name, end.saturating_duration_since(phase.at))
        };
        begun.iter().zip(ends).map(time).collect()
    }

    fn phases(&self) -> MutexGuard<'_, Phases> {
        // Every change is a single assignment, so a panic elsewhere leaves nothing inconsistent.
        self.0.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `step` and counts its duration as a wait for `what`.
    pub fn waiting<T>(&self, what: Wait, step: impl FnOnce() -> T) -> T {
        let _wait = self.wait(what);
        step()
    }

    /// Begins a wait for `what`, which lasts until the result is dropped.
    pub fn wait(&self, what: Wait) -> Waiting {
        let begun = Instant::now();
        self.0.hold_ups.begin(what, begun);
        Waiting { observer: self.clone(), what, begun }
    }

    /// Returns for how long `what` has held up the others, including a wait that has not ended.
    /// Unlike [`Observer::waited`], every moment counts for one stage at most: a stage that is
    /// blocked by a later one holds up nothing.
    #[must_use]
    pub fn held_up(&self, what: Wait) -> Duration {
        self.0.hold_ups.held(Instant::now())[what as usize]
    }

    /// Runs a `step` on `bytes` bytes, and counts bytes and time.
    pub fn working<T>(&self, what: Work, bytes: u64, step: impl FnOnce() -> T) -> T {
        self.0.work.run(what, bytes, step)
    }

    /// Returns what has been done in this step.
    #[must_use]
    pub fn worked(&self, what: Work) -> WorkDone {
        self.0.work.done(what)
    }

    /// Sets the watcher. The first call counts.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        let _ = self.0.watcher.set(Watching(watcher));
    }

    /// Returns the watcher, if there is one.
    #[must_use]
    pub fn watcher(&self) -> Option<&dyn Watcher> {
        self.0.watcher.get().map(|watching| &*watching.0)
    }

    /// Adds acknowledged parts of objects that are sent in several parts.
    pub fn add_parts(&self, n: u64) {
        self.0.parts.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the acknowledged parts of objects that are sent in several parts.
    #[must_use]
    pub fn parts(&self) -> u64 {
        self.0.parts.load(Ordering::Relaxed)
    }

    fn add_wait(&self, what: Wait, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.waits[what as usize].fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the bytes in the store so far.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.0.stored.load(Ordering::Relaxed)
    }

    /// Returns how long threads of the pipeline have waited for `what`. A wait counts at its end.
    #[must_use]
    pub fn waited(&self, what: Wait) -> Duration {
        let waited = self.0.waits.get(what as usize);
        Duration::from_micros(waited.map_or(0, |micros| micros.load(Ordering::Relaxed)))
    }

    /// Returns the stage that has held up the others for the longest time in the current phase.
    fn slowest_stage(&self) -> Option<Wait> {
        let phases = self.phases();
        let before = phases.current.as_ref().map_or([Duration::ZERO; 3], |current| current.held);
        let held = self.0.hold_ups.held(Instant::now());
        WAITS
            .into_iter()
            .map(|what| (held[what as usize].saturating_sub(before[what as usize]), what))
            .max_by_key(|(time, _)| *time)
            .filter(|(time, _)| !time.is_zero())
            .map(|(_, what)| what)
    }

    /// Returns the current values.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            bytes: self.0.bytes.load(Ordering::Relaxed),
            stored: self.stored(),
            files: self.0.files.load(Ordering::Relaxed),
            slowest_stage: self.slowest_stage(),
        }
    }
}

/// A wait for a stage. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the wait ends when this is dropped"]
pub struct Waiting {
    observer: Observer,
    what: Wait,
    begun: Instant,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let now = Instant::now();
        self.observer.0.hold_ups.end(self.what, now);
        self.observer.add_wait(self.what, now.saturating_duration_since(self.begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_counts_from_its_begin() {
        let observer = Observer::default();
        assert_eq!(observer.phase(), None);
        observer.add_bytes(100);
        observer.expect_phases(2);
        observer.expect_phases(7);
        observer.begin_phase("fetch");
        observer.expect_later(50);
        observer.expect_bytes(30);
        observer.add_bytes(30);
        let phase = observer.phase().unwrap();
        assert_eq!((phase.name, phase.number, phase.of), ("fetch", 1, 2));
        assert_eq!((phase.bytes, phase.total), (30, Some(80)));
        // The second of its backups is smaller than stated.
        observer.expect_later(0);
        observer.expect_bytes(20);
        assert_eq!(observer.phase().unwrap().total, Some(50));
        observer.begin_phase("prepare");
        let phase = observer.phase().unwrap();
        assert_eq!((phase.name, phase.number, phase.bytes, phase.total), ("prepare", 2, 0, None));
        assert_eq!(phase.silent, None);
        observer.hear_program();
        pass(Duration::from_millis(2));
        let silent = observer.phase().unwrap().silent.unwrap();
        assert!(silent >= Duration::from_millis(2));
        observer.hear_program();
        assert!(observer.phase().unwrap().silent.unwrap() < observer.phase().unwrap().elapsed);
        // One more than was stated.
        observer.begin_phase("check");
        let last = observer.phase().map(|phase| (phase.number, phase.of, phase.silent));
        assert_eq!(last, Some((3, 3, None)));
        assert_eq!(observer.snapshot().bytes, 130);
    }

    #[test]
    fn a_wait_that_has_not_ended_counts_too() {
        let observer = Observer::default();
        let wait = observer.wait(Wait::Sink);
        pass(Duration::from_millis(2));
        assert_eq!(observer.waited(Wait::Sink), Duration::ZERO);
        assert!(observer.held_up(Wait::Sink) >= Duration::from_millis(2));
        assert_eq!(observer.snapshot().slowest_stage, Some(Wait::Sink));
        drop(wait);
        assert!(observer.waited(Wait::Sink) >= Duration::from_millis(2));
        assert_eq!(observer.held_up(Wait::Sink), observer.held_up(Wait::Sink));
    }

    #[test]
    fn the_stage_that_blocks_the_others_is_the_slowest_stage() {
        let observer = Observer::default();
        let begin = Instant::now();
        observer.waiting(Wait::Source, || pass(Duration::from_millis(1)));
        observer.waiting(Wait::Workers, || {
            pass(Duration::from_millis(1));
            // However long that took on a busy machine.
            let before = begin.elapsed();
            // Meanwhile, what the workers wait for does not move.
            observer.waiting(Wait::Sink, || pass(4 * before));
        });
        assert!(observer.waited(Wait::Workers) > observer.waited(Wait::Sink));
        assert_eq!(observer.snapshot().slowest_stage, Some(Wait::Sink));
    }

    #[test]
    fn the_begin_of_each_phase_is_kept_up_to_a_limit() {
        let observer = Observer::default();
        for _ in 0..MAX_PHASES + 5 {
            observer.begin_phase("fetch");
        }
        assert_eq!(observer.phases_begun().len(), MAX_PHASES);
        let (begun, times) = (observer.phases_begun(), observer.phase_times());
        assert_eq!((times.len(), times[0].0), (MAX_PHASES, "fetch"));
        assert_eq!(begun[0].at + times[0].1, begun[1].at);
    }

    #[test]
    fn a_phase_has_its_own_slowest_stage() {
        let observer = Observer::default();
        observer.waiting(Wait::Source, || pass(Duration::from_millis(4)));
        assert_eq!(observer.snapshot().slowest_stage, Some(Wait::Source));
        observer.begin_phase("check");
        assert_eq!(observer.snapshot().slowest_stage, None);
        observer.waiting(Wait::Workers, || pass(Duration::from_millis(1)));
        assert_eq!(observer.snapshot().slowest_stage, Some(Wait::Workers));
    }

    /// Lets this time pass, or more.
    fn pass(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::thread::yield_now();
        }
    }
}
