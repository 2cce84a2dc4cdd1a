//! Reads the counters of a pipeline, and derives which stage held up the others.

use std::time::{Duration, Instant};

use xb_pipeline::{Observer, Wait, Work};

use crate::direction::Direction;
use crate::recorder::{LaneCount, MAX_LANES, Sample};

/// Counters of the requests to a store at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Body bytes passed to connections, those of retries included; 0 if the store counts none.
    pub sent: u64,
    /// Requests.
    pub requests: u64,
    /// Tries that followed a failed one.
    pub retries: u64,
}

/// A reading of the counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    source: Duration,
    workers: Duration,
    sink: Duration,
    /// Busy time of the two steps of workers in this direction.
    busy: [Duration; 2],
}

/// Reads the counters of one section.
pub(crate) struct Gauge {
    observer: Observer,
    traffic: Box<dyn Fn() -> Traffic + Send>,
    direction: Direction,
    threads: u32,
    begun: Instant,
    before: Reading,
    limiting: [Duration; MAX_LANES],
}

impl Gauge {
    pub(crate) fn new(
        observer: &Observer,
        traffic: impl Fn() -> Traffic + Send + 'static,
        direction: Direction,
        threads: usize,
    ) -> Self {
        let threads = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        let (observer, traffic) = (observer.clone(), Box::new(traffic));
        let (before, limiting) = (Reading::default(), Default::default());
        Self { observer, traffic, direction, threads, begun: Instant::now(), before, limiting }
    }

    /// Returns the counters of the requests.
    pub(crate) fn traffic(&self) -> Traffic {
        (self.traffic)()
    }

    /// Returns the counters as a sample.
    pub(crate) fn sample(&mut self) -> Sample {
        let now = self.reading();
        let since = Reading {
            source: now.source.saturating_sub(self.before.source),
            workers: now.workers.saturating_sub(self.before.workers),
            sink: now.sink.saturating_sub(self.before.sink),
            busy: [0, 1].map(|step: usize| now.busy[step].saturating_sub(self.before.busy[step])),
        };
        self.before = now;
        let limiting = limiting(self.direction, self.threads, &since);
        for (total, more) in self.limiting.iter_mut().zip(limiting) {
            *total += more;
        }
        let traffic = self.traffic();
        let bytes = self.bytes(&traffic);
        let mut lanes = [LaneCount::default(); MAX_LANES];
        for (index, lane) in lanes.iter_mut().enumerate() {
            *lane = LaneCount { bytes: bytes[index], limiting: self.limiting[index] };
        }
        Sample { at: self.begun.elapsed(), lanes, retries: traffic.retries }
    }

    fn reading(&self) -> Reading {
        let steps = match self.direction {
            Direction::Up | Direction::Send => [Work::Encode, Work::Seal],
            _ => [Work::Open, Work::Decode],
        };
        Reading {
            source: self.observer.held_up(Wait::Source),
            workers: self.observer.held_up(Wait::Workers),
            sink: self.observer.held_up(Wait::Sink),
            busy: steps.map(|step| self.observer.worked(step).busy),
        }
    }

    fn bytes(&self, traffic: &Traffic) -> [u64; MAX_LANES] {
        let (now, done) = (self.observer.snapshot(), |step| self.observer.worked(step).bytes);
        match self.direction {
            // The bytes that a connection accepts show the link, even while no object is complete yet.
            Direction::Up | Direction::Send => {
                let sent = traffic.sent.max(now.stored);
                [now.bytes, done(Work::Encode), done(Work::Seal), sent]
            }
            Direction::Restore | Direction::Verify | Direction::Receive => {
                let written = match done(Work::Write) {
                    0 => now.bytes,
                    written => written,
                };
                [now.stored, done(Work::Open), done(Work::Decode), written]
            }
            Direction::Copy => [now.stored, 0, 0, 0],
        }
    }
}

/// Time for which each stage held up the others.
fn limiting(direction: Direction, threads: u32, since: &Reading) -> [Duration; MAX_LANES] {
    let zero = Duration::ZERO;
    match direction {
        // One thread reads, and it waits for one thing at a time.
        Direction::Up | Direction::Send => {
            let [encode, seal] = since.busy;
            let share = match encode + seal {
                both if both.is_zero() => 1.0,
                both => encode.as_secs_f64() / both.as_secs_f64(),
            };
            let encode = since.workers.mul_f64(share);
            [since.source, encode, since.workers.saturating_sub(encode), since.sink]
        }
        // Each stage blocks the one before it, so their waits overlap: how long a stage was busy
        // shows more. Whoever waits for bytes of the store waits for the seal, too.
        Direction::Restore | Direction::Verify | Direction::Receive => {
            let [open, decode] = since.busy.map(|busy| busy / threads);
            [since.source.saturating_sub(open), open, decode, since.sink]
        }
        Direction::Copy => [zero; MAX_LANES],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn largest(direction: Direction, since: &Reading) -> usize {
        let limiting = limiting(direction, 2, since);
        (0..MAX_LANES).max_by_key(|lane| limiting[*lane]).unwrap()
    }

    #[test]
    fn on_the_way_up_the_readers_waits_count() {
        let busy = [3 * S, S];
        let up = |source, workers, sink| {
            largest(Direction::Up, &Reading { source, workers, sink, busy })
        };
        assert_eq!(up(9 * S, S, S), 0);
        assert_eq!(up(S, 9 * S, S), 1);
        assert_eq!(up(S, S, 9 * S), 3);
        let sealing = Reading { source: S, workers: 9 * S, sink: S, busy: [S, 20 * S] };
        assert_eq!(largest(Direction::Up, &sealing), 2);
        let sum: Duration = limiting(Direction::Up, 2, &sealing).iter().sum();
        assert_eq!(sum, 11 * S);
    }

    #[test]
    fn on_the_way_back_a_blocked_stage_does_not_count() {
        // The disk is slow: everything in front of it waits, too.
        let disk = Reading { source: S, workers: 19 * S, sink: 9 * S, busy: [S, 2 * S] };
        assert_eq!(largest(Direction::Restore, &disk), 3);
        // The link is slow.
        let link = Reading { source: 9 * S, workers: S, sink: S, busy: [S, 2 * S] };
        assert_eq!(largest(Direction::Restore, &link), 0);
        // Two workers open segments all the time, and the reader waits for them.
        let seal = Reading { source: 9 * S, workers: S, sink: S, busy: [19 * S, 2 * S] };
        assert_eq!(largest(Direction::Restore, &seal), 1);
        let codec = Reading { source: S, workers: 9 * S, sink: S, busy: [S, 19 * S] };
        assert_eq!(largest(Direction::Verify, &codec), 2);
    }

    #[test]
    fn a_sample_has_the_bytes_of_each_stage() {
        let observer = Observer::default();
        observer.add_bytes(100);
        observer.add_stored(40);
        observer.working(Work::Encode, 90, || ());
        observer.working(Work::Seal, 50, || ());
        let traffic = || Traffic { sent: 45, requests: 3, retries: 2 };
        let mut gauge = Gauge::new(&observer, traffic, Direction::Up, 1);
        let sample = gauge.sample();
        assert_eq!(sample.lanes.map(|lane| lane.bytes), [100, 90, 50, 45]);
        assert_eq!(sample.retries, 2);
        let mut gauge = Gauge::new(&observer, traffic, Direction::Restore, 1);
        assert_eq!(gauge.sample().lanes.map(|lane| lane.bytes), [40, 0, 0, 100]);
    }
}
