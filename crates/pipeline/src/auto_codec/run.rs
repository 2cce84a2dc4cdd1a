//! One run: the reports of its workers, and the codecs that it has used.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use xb_compressor::Algorithm;

use super::controller::{Choice, Controller, Limit};
use super::levels::{Encoding, Probe, RUNGS, Rung};
use super::processors::Processors;
use super::sample::Sample;
use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;

/// Time after which a waiting worker looks again.
pub(super) const HOLD: Duration = Duration::from_millis(1);

/// Chooses the codec of each frame of one run. Clones share the run.
#[derive(Clone)]
pub struct AutoCodec(Arc<Shared>);

struct Shared {
    sent: Box<dyn Fn() -> u64 + Send + Sync>,
    run: Mutex<Run>,
}

/// State of a run.
struct Run {
    begin: Instant,
    observer: Observer,
    controller: Controller,
    processors: Option<Processors>,
    produced: u64,
    /// Plain and stored bytes of each rung.
    bytes: [(u64, u64); RUNGS],
    /// Time spent at each limit.
    limits: [Duration; 3],
    looked: Duration,
}

/// Codecs that a run has used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AutoReport {
    /// Codec, plain bytes and stored bytes, in order of strength.
    pub codecs: Vec<(Algorithm, u64, u64)>,
    /// Stage that limited the run for most of the time.
    pub limit: Option<Limit>,
}

impl AutoCodec {
    /// Creates a chooser for one run. `sent` returns the number of bytes that have left so far, for
    /// the store or the joiner. It may count bytes that are sent again.
    pub fn new(sent: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let run = Run {
            begin: Instant::now(),
            observer: Observer::default(),
            controller: Controller::new(1, 0, None),
            processors: None,
            produced: 0,
            bytes: [(0, 0); RUNGS],
            limits: [Duration::ZERO; 3],
            looked: Duration::ZERO,
        };
        Self(Arc::new(Shared { sent: Box::new(sent), run: Mutex::new(run) }))
    }

    /// Begins the run with `threads` workers and a sender that collects `batch` bytes.
    pub(crate) fn start(&self, threads: usize, batch: u64, observer: &Observer) {
        let mut run = self.run();
        run.begin = Instant::now();
        run.observer = observer.clone();
        run.processors = Processors::open();
        let processors = run.processors.as_ref().and_then(|all| Some((all.count(), all.ticks()?)));
        run.controller = Controller::new(threads, batch, processors);
    }

    /// Remembers the calling thread as the reader of the source.
    pub(crate) fn reader_is_here(&self) {
        if let Some(processors) = &mut self.run().processors {
            processors.reader_is_here();
        }
    }

    /// Returns the codecs used so far.
    #[must_use]
    pub fn report(&self) -> AutoReport {
        let run = self.run();
        let codecs = Rung::all().zip(run.bytes).filter(|(_, (plain, _))| *plain > 0);
        let limits = [Limit::Source, Limit::Workers, Limit::Link].into_iter().zip(run.limits);
        let longest = limits.filter(|(_, time)| !time.is_zero()).max_by_key(|(_, time)| *time);
        AutoReport {
            codecs: codecs
                .map(|(rung, (plain, stored))| (rung.algorithm(), plain, stored))
                .collect(),
            limit: longest.map(|(limit, _)| limit),
        }
    }

    /// Returns the clock for the workers. Where the load of the machine is known, the time for which
    /// a worker waits for a processor is not part of the cost of its codec.
    pub(super) fn clock(&self) -> ClockId {
        match self.run().processors {
            Some(_) => ClockId::ThreadCPUTime,
            None => ClockId::Monotonic,
        }
    }

    /// Returns the codec for the next frame, at the start of a run after a short wait.
    pub(super) fn choose(&self) -> Choice {
        loop {
            if let Some(choice) = self.choice() {
                return choice;
            }
            std::thread::sleep(HOLD);
        }
    }

    /// Returns the codec for the next frame, or `None` if the worker should wait.
    fn choice(&self) -> Option<Choice> {
        let sent = (self.0.sent)();
        let mut guard = self.run();
        let run = &mut *guard;
        let sample = Sample {
            at: run.begin.elapsed(),
            read: run.observer.snapshot().bytes,
            produced: run.produced,
            sent: sent.min(run.produced),
            source_wait: run.observer.waited(Wait::Source),
        };
        let processors = run.processors.as_ref();
        run.controller.observe(sample, || processors.and_then(Processors::ticks));
        let passed = sample.at.saturating_sub(run.looked);
        run.looked = run.looked.max(sample.at);
        if let Some(limit) = run.controller.limit()
            && let Some(time) = run.limits.get_mut(limit as usize)
        {
            *time += passed;
        }
        let holds = run.controller.holds(sample);
        (!holds).then(|| run.controller.choose())
    }

    /// Counts a frame that was encoded, and learns from it and from its probe. `other` is the time
    /// spent apart from the codec, in seconds.
    pub(super) fn encoded(&self, chosen: &Encoding, probe: Option<&Probe>, other: f64) {
        let mut run = self.run();
        run.controller.encoded(chosen, other);
        if let Some(probe) = probe {
            run.controller.compared(probe, chosen);
        }
        let stored = chosen.stored == chosen.plain;
        run.count(if stored { Rung::STORED } else { chosen.rung }, chosen.plain, chosen.stored);
    }

    /// Learns that work of a worker took `seconds` by the workers' clock, while so many seconds passed.
    pub(super) fn ran(&self, seconds: f64, passed: f64) {
        self.run().controller.ran(seconds, passed);
    }

    /// Learns from the test whether a frame looks random.
    pub(super) fn tested(&self, plain: usize, seconds: f64) {
        self.run().controller.tested(plain, seconds);
    }

    /// Counts a frame that looked random and was stored.
    pub(super) fn stored(&self, plain: usize, other: f64) {
        let mut run = self.run();
        run.controller.stored(plain, other);
        run.count(Rung::STORED, plain, plain);
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.0.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run {
    fn count(&mut self, rung: Rung, plain: usize, stored: usize) {
        self.produced += stored as u64;
        if let Some(bytes) = self.bytes.get_mut(rung.index()) {
            *bytes = (bytes.0 + plain as u64, bytes.1 + stored as u64);
        }
    }
}

impl fmt::Debug for AutoCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutoCodec").finish_non_exhaustive()
    }
}

impl fmt::Display for AutoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.codecs.iter().map(|(_, plain, _)| plain).sum();
        for (number, (codec, plain, _)) in self.codecs.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let percent = (plain * 100 + total / 2) / total.max(1);
            write!(f, "{comma}{codec} {percent} %")?;
        }
        match self.limit {
            Some(Limit::Source) => f.write_str("; limited by the source"),
            Some(Limit::Workers) => f.write_str("; limited by the processor"),
            Some(Limit::Link) => f.write_str("; limited by the connection"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_codecs_and_limit() {
        let zstd = "zstd:3".parse().unwrap();
        let codecs = vec![(Algorithm::None, 250, 250), (zstd, 750, 200)];
        let report = AutoReport { codecs, limit: Some(Limit::Link) };
        assert_eq!(report.to_string(), "none 25 %, zstd:3 75 %; limited by the connection");
    }
}
