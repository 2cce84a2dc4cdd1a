//! Chooses the rung for the next frames from what limits the pipeline.
//!
//! Each window of time shows what the pipeline waited for. If the link was busy all the time, its
//! rate was measured; if the reader waited for the source, the source's rate. A limit that has not
//! been measured lately grows slowly, so that a change of circumstances is noticed. The best rung is
//! the one with the highest predicted throughput, and among rungs that are about as fast, the one that
//! stores the fewest bytes.
//!
//! A link may seem busy because the store runs on the same machine and finds no processor free. Then
//! the processors are the limit, and a rung is judged by what it costs the whole machine
//! ([`super::machine`]). The limit of the link does not grow meanwhile, unless more has left. If other programs
//! take the processors from the sender, too, the link seems slow, and they take them from the workers: these are
//! predicted to be as slow as they are, or the strongest codec would seem to be the fastest.

use std::time::Duration;

use super::bound::Bound;
use super::levels::{Encoding, Levels, Probe, Rung};
use super::machine::MachineCosts;
use super::processors::Ticks;
use super::sample::Sample;
use super::trial::Trials;

/// Usual time between two decisions.
const WINDOW: Duration = Duration::from_millis(100);
/// Time after which a busy link counts as measured, even if a quarter of a batch has not left.
const LONG_WINDOW: Duration = Duration::from_millis(250);
/// Bytes that a link must have carried before its rate is guessed: a sender or the system may take so
/// many before any crosses the link.
const FIRST: u64 = 4 << 20;
/// A link that carries so many before its rate is known is fast.
const FAST: u64 = 16 << 20;
/// Longest time for which the workers wait until the link is known.
const LONGEST_HOLD: Duration = Duration::from_millis(100);
/// Share of the time for which the reader waits if the source is the limit.
const SOURCE_WAITS: f64 = 0.5;
/// Rungs whose throughput is this close to the best count as equally fast.
const SAME_SPEED: f64 = 0.98;
/// A rung must save this much to be chosen for its size alone.
const SAME_SIZE: f64 = 0.99;
/// The source usually shares the processor: beyond this share of it, more work would slow the
/// source.
const FAIR_SHARE: f64 = 0.65;
/// Growth of the source's limit per window in which it is not the limit.
const GROWTH: f64 = 1.02;
/// Growth of the link's limit per window. It is smaller, because links seldom change, and because too
/// high a rate fills all memory with bytes for the link.
const LINK_GROWTH: f64 = 1.007;
/// Share of the workers' time for probes of other rungs.
const PROBING: f64 = 0.01;
/// Seconds of probing that can be saved up.
const MAX_CREDIT: f64 = 1.0;
/// Number of times that a probe encodes its frame.
const ENCODINGS: f64 = 2.0;
/// Probes try rungs at most this far from the current one.
const PROBE_STEPS: usize = 2;

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

/// The controller of one run.
#[derive(Debug)]
pub(crate) struct Controller {
    levels: Levels,
    threads: f64,
    /// Bytes that the sender collects before it sends any.
    batch: u64,
    /// With this many bytes produced and not sent, the sender certainly has a whole batch.
    full: u64,
    /// With this many, the workers wait until the link is known.
    enough: u64,
    rung: Rung,
    /// Bytes produced before the first frame of this rung.
    rung_since: u64,
    limit: Option<Limit>,
    link: Bound,
    /// Rate at which bytes have left lately, while the link has been busy without a break. Never grows.
    leaving: Bound,
    source: Bound,
    trials: Trials,
    /// Load of the run on this machine, if it is known.
    machine: Option<MachineCosts>,
    last: Sample,
    /// Most bytes that had left in any sample.
    latest_sent: u64,
    /// Start of the time for which the link has been busy without a break, or of its latest window.
    busy_since: Option<Sample>,
    /// When the workers first waited for the link to be known.
    held_since: Option<Duration>,
    frames: usize,
    /// Seconds of probing that are still allowed.
    credit: f64,
    probe: Option<Rung>,
    next_probe: usize,
}

impl Controller {
    /// Creates a controller for `threads` workers and a sender that collects `batch` bytes before
    /// it sends any. If the load of the machine is known, `processors` are its number and ticks.
    pub(crate) fn new(threads: usize, batch: u64, processors: Option<(usize, Ticks)>) -> Self {
        // Frames that wait for their turn have not reached the sender.
        let turns = 2 * (threads * crate::flow::plan::SLAB) as u64;
        Self {
            levels: Levels::new(),
            threads: threads.max(1) as f64,
            batch,
            full: batch + turns,
            // More, so that the link stays busy for as long as they wait.
            enough: batch + 2 * turns,
            rung: Rung::FIRST,
            rung_since: 0,
            limit: None,
            link: Bound::unknown(LINK_GROWTH),
            leaving: Bound::unknown(1.0),
            source: Bound::unknown(GROWTH),
            trials: Trials::new(),
            machine: processors.map(|(count, ticks)| MachineCosts::new(count, threads, ticks)),
            last: Sample::default(),
            latest_sent: 0,
            busy_since: None,
            held_since: None,
            frames: 0,
            credit: 0.0,
            probe: None,
            next_probe: 0,
        }
    }

    /// Returns whether a worker should wait before it encodes the next frame. At the start of a run, workers
    /// would otherwise fill all memory with frames for a link about which nothing is known. As long
    /// as the sender has a whole batch, the link loses nothing.
    pub(crate) fn holds(&mut self, now: Sample) -> bool {
        let is_enough = now.produced.saturating_sub(now.sent) >= self.enough;
        if !is_enough || self.link.is_known() || now.sent >= self.batch.max(FAST) {
            return false;
        }
        let since = *self.held_since.get_or_insert(now.at);
        now.at.saturating_sub(since) < LONGEST_HOLD
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
    pub(crate) fn compared(&mut self, probe: &Probe, chosen: &Encoding) {
        self.worked(probe.seconds);
        self.levels.compare(&probe.encoding, chosen);
    }

    fn worked(&mut self, seconds: f64) {
        if let Some(machine) = &mut self.machine {
            machine.worked(seconds);
        }
    }

    /// Learns that work of a worker took `seconds` of a processor, while so many seconds passed.
    pub(crate) fn ran(&mut self, seconds: f64, passed: f64) {
        if let Some(machine) = &mut self.machine {
            machine.ran(seconds, passed);
        }
    }

    /// Checks the totals, and decides again if enough has happened since the last decision. Only
    /// then does it read the `ticks` of the processors.
    pub(crate) fn observe(&mut self, now: Sample, ticks: impl FnOnce() -> Option<Ticks>) {
        // Samples of several workers may come out of order.
        let moves = now.sent > self.latest_sent;
        self.latest_sent = self.latest_sent.max(now.sent);
        let busy = now.produced.saturating_sub(now.sent) >= self.full;
        // A sender that has just got a batch may prepare it before it sends anything.
        self.busy_since = self.busy_since.or(moves.then_some(now)).filter(|_| busy);
        // Until the link is known, a wrong choice may fill all memory with bytes for a slow one.
        let haste = if self.link.is_known() { 1 } else { 4 };
        let is_over = match self.busy_since {
            Some(since) => {
                now.sent.saturating_sub(since.sent) >= self.batch / 4
                    && now.is_later(&since, WINDOW / 4)
                    || now.is_later(&since, LONG_WINDOW / haste)
            }
            // As soon as the first bytes have left, storing is no longer the worst guess.
            None => now.is_later(&self.last, WINDOW) || self.none_left() && self.has_left(&now),
        };
        if !is_over || (self.frames as f64) < 2.0 * self.threads {
            return;
        }
        let last = std::mem::replace(&mut self.last, now);
        self.frames = 0;
        let seconds = now.seconds_since(&last);
        let read = now.read_rate(&last);
        let since = self.busy_since.unwrap_or(last);
        let (sent, sent_seconds) = (now.sent_rate(&since), now.seconds_since(&since));
        let bytes_read = now.read.saturating_sub(last.read);
        let bytes_sent = now.sent.saturating_sub(last.sent);
        let machine = self.machine.as_mut();
        let full =
            machine.is_some_and(|machine| machine.window(ticks(), seconds, bytes_read, bytes_sent));
        let source_wait = now.source_wait.saturating_sub(last.source_wait).as_secs_f64();
        let limit = match self.busy_since {
            _ if full => Limit::Workers,
            Some(_) => Limit::Link,
            None if source_wait > SOURCE_WAITS * seconds => Limit::Source,
            None => Limit::Workers,
        };
        self.measure(limit, read, seconds, sent, sent_seconds);
        self.busy_since = self.busy_since.and(Some(now));
        self.credit = (self.credit + seconds * self.threads * PROBING).min(MAX_CREDIT);
        let rung = self.next(now.at);
        if rung != self.rung {
            (self.rung, self.rung_since) = (rung, now.produced);
        }
        self.plan_probe();
    }

    fn measure(
        &mut self,
        limit: Limit,
        read: f64,
        read_seconds: f64,
        sent: f64,
        sent_seconds: f64,
    ) {
        self.limit = Some(limit);
        match self.busy_since {
            Some(_) => self.leaving.measured(sent, sent_seconds),
            None => self.leaving = Bound::unknown(1.0),
        }
        match self.busy_since {
            _ if self.rung != Rung::STORED => self.trials.compressed(read_seconds),
            Some(since) if since.sent >= self.rung_since => self.trials.stored(sent, sent_seconds),
            _ => {}
        }
        match limit {
            Limit::Link => self.link.measured(sent, sent_seconds),
            // If no processor is idle, the sender may lack time. Its rate is then the least that the link
            // can carry.
            _ if self.busy_since.is_some() => self.link.no_less_than(self.leaving.rate()),
            _ => self.link.at_least(sent),
        }
        match limit {
            Limit::Source => self.source.measured(read, read_seconds),
            Limit::Link | Limit::Workers => self.source.at_least(read),
        }
    }

    /// Predicted throughput of a rung in plain bytes per second.
    fn throughput(&self, rung: Rung) -> f64 {
        let (worker, ratio) = (self.levels.seconds(rung), self.levels.ratio(rung));
        let machine = self.machine.as_ref();
        let share = machine.map_or(1.0, MachineCosts::share);
        let predicted = self.threads * share / worker.max(1e-12);
        let machine = machine.map_or(f64::INFINITY, |costs| costs.throughput(worker, ratio));
        let workers = predicted.min(machine);
        let link = self.link.rate() / ratio;
        // Without a known link, the processors alone are the limit.
        let is_stored = rung == Rung::STORED && self.link.is_known();
        let link = if is_stored { link.min(self.trials.storing()) } else { link };
        let source = self.source.rate();
        if source < link && source > workers * FAIR_SHARE {
            return workers * FAIR_SHARE;
        }
        workers.min(link).min(source)
    }

    /// Returns the rung for the next frames, at the time `now`.
    fn next(&mut self, now: Duration) -> Rung {
        if self.trials.is_running(now) {
            return self.rung;
        }
        if self.rung == Rung::STORED && self.link.is_known() {
            let codecs = Rung::all().skip(1).map(|rung| (self.throughput(rung), rung));
            let best = codecs.max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((_, codec)) = best.filter(|(rate, _)| self.trials.begin(now, *rate)) {
                return codec;
            }
        }
        self.best()
    }

    fn none_left(&self) -> bool {
        !self.has_left(&self.last)
    }

    /// Returns whether enough had left at that time for a first guess at the link.
    fn has_left(&self, sample: &Sample) -> bool {
        sample.sent >= (self.batch / 4).max(FIRST)
    }

    fn best(&self) -> Rung {
        // Until something has left, nothing is known about the link: then storing is the worst guess.
        let none_left = self.none_left();
        let rungs = || Rung::all().filter(move |rung| !(none_left && *rung == Rung::STORED));
        let fastest = rungs().map(|rung| self.throughput(rung)).fold(0.0, f64::max);
        let small = |a: &Rung, b: &Rung| self.levels.ratio(*a).total_cmp(&self.levels.ratio(*b));
        let best = rungs()
            .filter(|rung| self.throughput(*rung) >= fastest * SAME_SPEED)
            .min_by(small)
            .unwrap_or(self.rung);
        let faster = self.throughput(self.rung) < self.throughput(best) * SAME_SPEED;
        let smaller = self.levels.ratio(best) < self.levels.ratio(self.rung) * SAME_SIZE;
        if faster || smaller { best } else { self.rung }
    }

    /// Plans the next probe. The neighbours take turns, and each waits until the credit pays for it.
    fn plan_probe(&mut self) {
        let neighbours: Vec<Rung> =
            self.rung.neighbours(PROBE_STEPS).filter(|rung| *rung != Rung::STORED).collect();
        let Some(&rung) = neighbours.get(self.next_probe % neighbours.len().max(1)) else { return };
        let cost = ENCODINGS * self.levels.codec_seconds(rung) * crate::flow::plan::SLAB as f64;
        let cost = cost.min(MAX_CREDIT);
        if cost <= self.credit {
            self.credit -= cost;
            self.next_probe += 1;
            self.probe = Some(rung);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::levels::RUNGS;
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Reports frames that shrink to half, and take the longer the stronger the rung is; and totals in MiB at
    /// a time in milliseconds.
    fn observe(controller: &mut Controller, at: u64, produced: u64, sent: u64) {
        for _ in 0..4 {
            let rung = controller.choose().rung;
            let seconds = 2e-3 * 1.4_f64.powf(rung.index() as f64 - Rung::FIRST.index() as f64);
            let encoding = Encoding { rung, plain: 1 << 20, stored: 1 << 19, seconds };
            controller.encoded(&encoding, 1e-4);
        }
        let [read, produced, sent] = [2 * produced, produced, sent].map(|mib| mib * MIB);
        let at = Duration::from_millis(at);
        controller
            .observe(Sample { at, read, produced, sent, source_wait: Duration::ZERO }, || None);
    }

    /// A sender prepares each batch for 200 ms, in which nothing leaves, and sends it in 100 ms.
    #[test]
    fn a_sender_that_prepares_a_batch_is_no_slow_link() {
        let mut controller = Controller::new(2, 64 * MIB, None);
        for at in (0..3000_u64).step_by(10) {
            let (batches, since) = (at / 300, at % 300);
            let sent = batches * 64 + since.saturating_sub(200) * 64 / 100;
            observe(&mut controller, at, 70 + at * 64 / 300, sent);
            assert!(controller.link.rate() > 190e6, "{at} ms: {}", controller.link.rate());
        }
        assert!(controller.rung <= Rung::FIRST.stronger(1), "{:?}", controller.rung);
    }

    #[test]
    fn a_slow_link_is_noticed_after_the_first_bytes() {
        let mut controller = Controller::new(2, 64 * MIB, None);
        for at in (0..3000_u64).step_by(10) {
            observe(&mut controller, at, 64 + at / 10, at / 100);
        }
        assert!((controller.link.rate() / (10 * MIB) as f64 - 1.0).abs() < 0.1);
        assert_eq!(controller.limit(), Some(Limit::Link));
        assert!(controller.rung > Rung::FIRST.stronger(2), "{:?}", controller.rung);
    }

    #[test]
    fn workers_wait_until_the_link_is_known_but_not_for_long() {
        let sample = |at: u64, produced: u64, sent: u64| Sample {
            at: Duration::from_millis(at),
            produced: produced * MIB,
            sent: sent * MIB,
            ..Sample::default()
        };
        let mut controller = Controller::new(2, 64 * MIB, None);
        assert!(!controller.holds(sample(20, 71, 0)), "the link may not stay busy");
        assert!(controller.holds(sample(50, 72, 0)));
        assert!(controller.holds(sample(149, 74, 1)));
        assert!(!controller.holds(sample(150, 74, 1)), "nothing is sent");
        let mut controller = Controller::new(2, 64 * MIB, None);
        assert!(controller.holds(sample(50, 72, 0)));
        assert!(!controller.holds(sample(60, 140, 64)), "the link is fast");
        observe(&mut controller, 50, 72, 0);
        observe(&mut controller, 60, 72, 1);
        observe(&mut controller, 130, 94, 18);
        assert!(!controller.holds(sample(130, 94, 18)), "{:?}", controller.link);
    }

    #[test]
    fn frames_are_stored_as_soon_as_a_fast_link_has_carried_some() {
        let mut controller = Controller::new(2, 64 * MIB, None);
        observe(&mut controller, 30, 60, 0);
        observe(&mut controller, 40, 70, 15);
        assert_eq!(controller.rung, Rung::FIRST);
        observe(&mut controller, 41, 70, 16);
        assert_eq!(controller.rung, Rung::STORED);
    }

    #[test]
    fn costly_neighbours_have_their_turn() {
        let mut controller = Controller::new(1, MIB, None);
        let encoding =
            Encoding { rung: Rung::FIRST, plain: 1 << 20, stored: 1 << 19, seconds: 2e-3 };
        controller.encoded(&encoding, 1e-4);
        let mut probes = [0; RUNGS];
        for _ in 0..1000 {
            controller.credit = (controller.credit + 1e-3).min(MAX_CREDIT);
            controller.plan_probe();
            if let Some(rung) = controller.choose().probe {
                probes[rung.index()] += 1;
            }
        }
        let neighbours = Rung::FIRST.neighbours(PROBE_STEPS).map(|rung| probes[rung.index()]);
        assert!(neighbours.into_iter().all(|number| number > 50), "{probes:?}");
    }

    #[test]
    fn samples_may_come_out_of_order() {
        let mut controller = Controller::new(2, MIB, None);
        for at in (0..3000_u64).step_by(10) {
            observe(&mut controller, at, 50 + at / 10, (at / 10).saturating_sub(at % 3));
        }
        assert!(controller.limit().is_some());
    }
}
