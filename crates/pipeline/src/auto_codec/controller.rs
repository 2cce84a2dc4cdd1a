//! Chooses the rung for the next frames from what limits the pipeline.
//!
//! Each window of time shows what the pipeline waited for. If the link was busy all the time, its
//! rate was measured; if the reader waited for the source, the source's rate; else the rate of the
//! workers at the current rung. A limit that has not been measured lately grows slowly, so that a
//! change of circumstances is noticed. The best rung is the one with the highest predicted
//! throughput, and among rungs that are about as fast, the one that stores the fewest bytes.
//!
//! A link may seem busy because the store runs on the same machine and finds no processor free. Then
//! the processors are the limit, and a rung is judged by what it costs the whole machine
//! ([`super::machine`]).

use std::time::Duration;

use super::levels::{Encoding, Levels, RUNGS, Rung, mix};
use super::machine::MachineCosts;
use super::processors::Ticks;

/// Shortest time between two decisions.
const WINDOW: Duration = Duration::from_millis(100);
/// Share of the time for which the reader waits for what is the limit.
const WAITS: f64 = 0.5;
/// Rungs whose throughput is this close to the best count as equally fast.
const SAME_SPEED: f64 = 0.98;
/// A rung must save this much to be chosen for its size alone.
const SAME_SIZE: f64 = 0.99;
/// The source usually shares the processor: beyond this share of it, more work would slow the
/// source.
const FAIR_SHARE: f64 = 0.65;
/// Growth of a limit per window in which it was not measured.
const GROWTH: f64 = 1.02;
/// Weight of a new measurement of a limit.
const MEASUREMENT: f64 = 0.4;
/// Share of the workers' time for probes of other rungs.
const PROBING: f64 = 0.02;
/// Maximum distance of probes from the current rung.
const PROBE_STEPS: usize = 2;

/// Totals of a run at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Time since the start.
    pub(crate) at: Duration,
    /// Bytes read from the source.
    pub(crate) read: u64,
    /// Bytes out of the workers, for the link.
    pub(crate) produced: u64,
    /// Bytes that have left.
    pub(crate) sent: u64,
    /// Time for which the reader has waited for the source.
    pub(crate) source_wait: Duration,
    /// Time for which the reader has waited for memory, which sent bytes return.
    pub(crate) memory_wait: Duration,
}

impl Sample {
    fn is_later(&self, earlier: &Self, least: Duration) -> bool {
        self.at.saturating_sub(earlier.at) >= least
    }

    fn seconds_since(&self, earlier: &Self) -> f64 {
        self.at.saturating_sub(earlier.at).as_secs_f64().max(1e-9)
    }

    fn read_rate(&self, earlier: &Self) -> f64 {
        self.read.saturating_sub(earlier.read) as f64 / self.seconds_since(earlier)
    }

    fn sent_rate(&self, earlier: &Self) -> f64 {
        self.sent.saturating_sub(earlier.sent) as f64 / self.seconds_since(earlier)
    }
}

/// Stage that limits a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The producer.
    Source,
    /// The processor: too few workers, or no time left for the store on the same machine.
    Workers,
    /// The connection to the store or the joiner.
    Link,
}

/// The rung for the next frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) rung: Rung,
    /// Encode this frame with another rung, too, and report the comparison.
    pub(crate) probe: Option<Rung>,
}

/// Highest rate that something allows, in bytes per second; infinite while unknown.
#[derive(Debug, Clone, Copy)]
struct Bound(f64);

impl Bound {
    const UNKNOWN: Self = Self(f64::INFINITY);

    fn is_known(self) -> bool {
        self.0.is_finite()
    }

    fn measured(&mut self, rate: f64) {
        if self.is_known() { mix(&mut self.0, rate, MEASUREMENT) } else { self.0 = rate }
    }

    fn at_least(&mut self, rate: f64) {
        self.0 = self.0.max(rate) * GROWTH;
    }
}

/// The controller of one run.
#[derive(Debug)]
pub(crate) struct Controller {
    levels: Levels,
    threads: f64,
    /// With this many bytes produced and not sent, the sender is certainly busy.
    full: u64,
    rung: Rung,
    limit: Option<Limit>,
    link: Bound,
    source: Bound,
    workers: [Bound; RUNGS],
    /// What the run costs this machine, if its load is known.
    machine: Option<MachineCosts>,
    last: Sample,
    /// Start of the time for which the link has been busy without a break.
    busy_since: Option<Sample>,
    frames: usize,
    /// Seconds of probing that are still allowed.
    credit: f64,
    probe: Option<Rung>,
    next_probe: usize,
}

impl Controller {
    /// Creates a controller for `threads` workers and a sender that collects `batch` bytes before
    /// it sends any, on a machine with so many `processors` if their load is known.
    pub(crate) fn new(threads: usize, batch: u64, processors: Option<usize>) -> Self {
        Self {
            levels: Levels::new(),
            threads: threads.max(1) as f64,
            // Frames that wait for their turn have not reached the sender.
            full: batch + 2 * (threads * crate::flow::plan::SLAB) as u64,
            rung: Rung::FIRST,
            limit: None,
            link: Bound::UNKNOWN,
            source: Bound::UNKNOWN,
            workers: [Bound::UNKNOWN; RUNGS],
            machine: processors.map(|count| MachineCosts::new(count, threads)),
            last: Sample::default(),
            busy_since: None,
            frames: 0,
            credit: 0.0,
            probe: None,
            next_probe: 0,
        }
    }

    /// Returns the rung for the next frame.
    pub(crate) fn choose(&mut self) -> Choice {
        Choice { rung: self.rung, probe: self.probe.take() }
    }

    /// Returns what limited the run in the last window.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Learns from an encoded frame. `other` is the time spent apart from the codec, in seconds.
    pub(crate) fn encoded(&mut self, encoding: &Encoding, other: f64) {
        self.worked(encoding.seconds + other);
        self.frames += 1;
        self.levels.frame(encoding, other);
    }

    /// Learns from a frame that looked random and was stored.
    pub(crate) fn stored(&mut self, plain: usize, other: f64) {
        self.worked(other);
        self.frames += 1;
        self.levels.random_frame(plain, other);
    }

    /// Learns the `seconds` that the test for a random frame took.
    pub(crate) fn tested(&mut self, plain: usize, seconds: f64) {
        self.worked(seconds);
        self.levels.tested(plain, seconds);
    }

    /// Learns from a probe.
    pub(crate) fn compared(&mut self, probe: &Encoding, chosen: &Encoding) {
        self.worked(probe.seconds);
        self.levels.compare(probe, chosen);
    }

    fn worked(&mut self, seconds: f64) {
        if let Some(machine) = &mut self.machine {
            machine.worked(seconds);
        }
    }

    /// Checks the totals, and decides again if enough has happened since the last decision. Only
    /// then it reads the `ticks` of the processors.
    pub(crate) fn observe(&mut self, now: Sample, ticks: impl FnOnce() -> Option<Ticks>) {
        let busy = now.produced.saturating_sub(now.sent) >= self.full;
        self.busy_since = if busy { self.busy_since.or(Some(now)) } else { None };
        // Until the link is known, a wrong choice may fill all memory with bytes for a slow one.
        let window = if self.link.is_known() { WINDOW } else { WINDOW / 4 };
        if !now.is_later(&self.last, window) || (self.frames as f64) < 2.0 * self.threads {
            return;
        }
        let last = std::mem::replace(&mut self.last, now);
        self.frames = 0;
        let seconds = now.seconds_since(&last);
        let waits = |now: Duration, last| now.saturating_sub(last).as_secs_f64() > WAITS * seconds;
        let waits_for_source = waits(now.source_wait, last.source_wait);
        let waits_for_memory = waits(now.memory_wait, last.memory_wait);
        let (read, sent) = (now.read_rate(&last), now.sent_rate(&last));
        let bytes = (now.read.saturating_sub(last.read), now.sent.saturating_sub(last.sent));
        let load = self.machine.as_mut().map(|machine| machine.window(ticks(), seconds, bytes));
        let load = load.unwrap_or_default();
        // The part of the window in which the link was busy, if it is the end of the window.
        let busy = self.busy_since.map(|since| if since.at > last.at { since } else { last });
        match busy.filter(|busy| now.is_later(busy, window / 4)) {
            Some(_) if load.starves_sender => {
                // How fast the link is, only shows when a processor is idle. If all memory is full
                // and none is, the link is not what everything waits for.
                let link = if waits_for_memory { f64::INFINITY } else { self.link.0.max(sent) };
                self.measure(Limit::Workers, read, sent, load.full);
                self.link = Bound(link);
            }
            Some(busy) => self.measure(Limit::Link, read, now.sent_rate(&busy), load.full),
            None if waits_for_source && !load.starves_source => {
                self.measure(Limit::Source, read, sent, load.full);
            }
            None => self.measure(Limit::Workers, read, sent, load.full),
        }
        self.credit = (self.credit + seconds * self.threads * PROBING).min(1.0);
        if now.sent > 0 {
            self.rung = self.best();
        }
        self.plan_probe();
    }

    fn measure(&mut self, limit: Limit, read: f64, sent: f64, full: bool) {
        self.limit = Some(limit);
        match limit {
            Limit::Link => self.link.measured(sent),
            Limit::Source | Limit::Workers => self.link.at_least(sent),
        }
        match limit {
            Limit::Source => self.source.measured(read),
            Limit::Link | Limit::Workers => self.source.at_least(read),
        }
        for (index, workers) in self.workers.iter_mut().enumerate() {
            let is_used = index == self.rung.index();
            match limit {
                Limit::Workers if is_used && !full => workers.measured(read),
                _ if is_used => workers.at_least(read),
                _ => workers.at_least(0.0),
            }
        }
    }

    /// Predicted throughput of a rung in plain bytes per second.
    fn throughput(&self, rung: Rung) -> f64 {
        let (worker, ratio) = (self.levels.seconds(rung), self.levels.ratio(rung));
        let predicted = self.threads / worker.max(1e-12);
        let observed = self.workers.get(rung.index()).map_or(f64::INFINITY, |bound| bound.0);
        let machine = self.machine.as_ref();
        let machine = machine.map_or(f64::INFINITY, |costs| costs.throughput(worker, ratio));
        let workers = predicted.min(observed).min(machine);
        let link = self.link.0 / ratio;
        let source = self.source.0;
        if source < link && source > workers * FAIR_SHARE {
            return workers * FAIR_SHARE;
        }
        workers.min(link).min(source)
    }

    fn best(&self) -> Rung {
        let fastest = Rung::all().map(|rung| self.throughput(rung)).fold(0.0, f64::max);
        let small = |a: &Rung, b: &Rung| self.levels.ratio(*a).total_cmp(&self.levels.ratio(*b));
        let best = Rung::all()
            .filter(|rung| self.throughput(*rung) >= fastest * SAME_SPEED)
            .min_by(small)
            .unwrap_or(self.rung);
        let faster = self.throughput(self.rung) < self.throughput(best) * SAME_SPEED;
        let smaller = self.levels.ratio(best) < self.levels.ratio(self.rung) * SAME_SIZE;
        if faster || smaller { best } else { self.rung }
    }

    /// Plans the next probe: the neighbours take turns, as far as the credit allows.
    fn plan_probe(&mut self) {
        let neighbours: Vec<Rung> =
            self.rung.neighbours(PROBE_STEPS).filter(|rung| *rung != Rung::STORED).collect();
        let Some(&rung) = neighbours.get(self.next_probe % neighbours.len().max(1)) else { return };
        self.next_probe += 1;
        let cost = self.levels.codec_seconds(rung) * crate::flow::plan::SLAB as f64;
        if cost <= self.credit {
            self.credit -= cost;
            self.probe = Some(rung);
        }
    }
}
