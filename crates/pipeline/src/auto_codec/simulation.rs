//! The controller in a simulated pipeline, without real time: a grid of links, sources, processors
//! and data. In each world it is compared with every fixed rung.

#![allow(clippy::cast_possible_truncation, reason = "sizes of simulated frames are small")]

mod shared;

use std::time::Duration;

use super::controller::{Choice, Controller};
use super::levels::{Encoding, Probe, RUNGS, Rung};
use super::processors::Ticks;
use super::run::HOLD;
use super::sample::Sample;

const MIB: u64 = 1 << 20;
/// Plain bytes of a frame.
const FRAME: u64 = MIB;

/// Plain bytes per second of one worker for each rung, on pages that shrink to a third.
const SPEED: [f64; RUNGS] =
    [8e9, 700e6, 620e6, 420e6, 350e6, 230e6, 190e6, 115e6, 85e6, 66e6, 58e6];
/// Seconds per byte for the checksums.
const OTHER: f64 = 1.0 / 4e9;

/// Seconds for the test of a random frame, and for a codec that skips it.
const TEST: f64 = 2e-4;
const SKIP: f64 = 1e-4;

#[derive(Debug, Clone, Copy)]
struct Data {
    name: &'static str,
    ratios: [f64; RUNGS],
    /// Speed relative to [`SPEED`].
    speed: f64,
    /// Share of random frames in percent.
    random: u64,
}

const DATA: [Data; 5] = [
    Data {
        name: "pages",
        ratios: [1.0, 0.50, 0.47, 0.36, 0.355, 0.345, 0.34, 0.33, 0.325, 0.32, 0.317],
        speed: 1.0,
        random: 0,
    },
    Data {
        name: "text",
        ratios: [1.0, 0.35, 0.31, 0.17, 0.165, 0.150, 0.145, 0.13, 0.127, 0.123, 0.122],
        speed: 1.3,
        random: 0,
    },
    Data {
        name: "dense",
        ratios: [1.0, 0.93, 0.92, 0.85, 0.848, 0.845, 0.84, 0.835, 0.83, 0.828, 0.827],
        speed: 0.7,
        random: 0,
    },
    Data { name: "noise", ratios: [1.0; RUNGS], speed: 1.0, random: 100 },
    Data {
        name: "mixed",
        ratios: [1.0, 0.50, 0.47, 0.36, 0.355, 0.345, 0.34, 0.33, 0.325, 0.32, 0.317],
        speed: 1.0,
        random: 40,
    },
];

impl Data {
    /// Encodes a frame whose ratio is `size` times the usual one.
    fn encode(&self, rung: Rung, size: f64, is_random: bool, spread: &mut Generator) -> Encoding {
        let ratio = (self.ratios[rung.index()] * size).min(1.0);
        let ratio = if is_random || rung == Rung::STORED { 1.0 } else { ratio };
        let seconds = match rung == Rung::STORED {
            true => 0.0,
            false => FRAME as f64 / SPEED[rung.index()] / self.speed * spread.around(0.1),
        };
        let stored = (FRAME as f64 * ratio) as usize;
        Encoding { rung, plain: FRAME as usize, stored, seconds }
    }
}

/// Numerical Recipes' generator: the same worlds in every run.
struct Generator(u32);

impl Generator {
    fn new() -> Self {
        Self(1)
    }

    /// Returns a number around 1.
    fn around(&mut self, spread: f64) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        1.0 + spread * (f64::from(self.0) / 2f64.powi(31) - 1.0)
    }
}

#[derive(Debug, Clone, Copy)]
struct SimulatedRun {
    data: Data,
    threads: usize,
    /// Whether the load of the machine is known.
    observed: bool,
    /// Bytes per second.
    source: f64,
    link: f64,
    /// Bytes that the sender collects before it sends any, and bytes that may be under way.
    batch: u64,
    budget: u64,
    frames: u64,
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    seconds: f64,
    stored: u64,
}

/// Link that sends one batch after the other.
struct Link {
    rate: f64,
    /// Start, end and length of each batch, and the length of all up to it.
    batches: Vec<(f64, f64, u64, u64)>,
}

impl Link {
    fn send(&mut self, ready: f64, len: u64) -> f64 {
        let start = self.batches.last().map_or(ready, |last| last.1.max(ready));
        let end = start + len as f64 / self.rate;
        let total = self.batches.last().map_or(0, |last| last.3) + len;
        self.batches.push((start, end, len, total));
        end
    }

    fn sent(&self, at: f64) -> u64 {
        let done = self.batches.partition_point(|batch| batch.1 <= at);
        let whole: u64 = done.checked_sub(1).map_or(0, |last| self.batches[last].3);
        let part = self.batches.get(done).map_or(0.0, |(start, end, len, _)| {
            *len as f64 * ((at - start) / (end - start)).clamp(0.0, 1.0)
        });
        whole + part as u64
    }
}

/// Returns the outcome of a run, at a fixed rung or under the controller.
fn run(world: &SimulatedRun, fixed: Option<Rung>) -> Outcome {
    let mut spread = Generator::new();
    let processors = world.observed.then_some((world.threads, Ticks::default()));
    let mut controller = Controller::new(world.threads, world.batch, processors);
    // The processors of this machine do nothing but encode.
    let mut work = 0.0_f64;
    let mut free = vec![0.0_f64; world.threads];
    let mut link = Link { rate: world.link, batches: Vec::new() };
    let (mut read, mut source_wait, mut out) = (0.0_f64, 0.0_f64, 0.0_f64);
    let (mut produced, mut filled) = (0, 0);
    let mut outs: Vec<f64> = Vec::new();
    // Bytes produced up to each batch, and when they have left.
    let mut left: Vec<(u64, f64)> = Vec::new();
    for number in 0..world.frames {
        // The reader waits for memory and for a worker, then for the source.
        let needed = (produced + FRAME).saturating_sub(world.budget);
        let memory = left.get(left.partition_point(|batch| batch.0 < needed));
        let memory = if needed == 0 { 0.0 } else { memory.map_or(out, |batch| batch.1) };
        let depth = outs.len().checked_sub(2 * world.threads).map_or(0.0, |at| outs[at]);
        let begin = read.max(memory).max(depth);
        let took = FRAME as f64 / world.source;
        (read, source_wait) = (begin + took, source_wait + took);
        // A worker.
        let worker = (0..free.len()).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
        let mut start = read.max(free[worker]);
        // A fixed rung needs no answer of the controller.
        while fixed.is_none() {
            let sample = Sample {
                at: Duration::from_secs_f64(start),
                read: number * FRAME,
                produced,
                sent: link.sent(start),
                source_wait: Duration::from_secs_f64(source_wait),
            };
            let all = start * world.threads as f64;
            let idle = (all - work).max(0.0);
            let ticks = Ticks {
                all: (all * 100.0) as u64,
                idle: (idle * 100.0) as u64,
                own: Duration::from_secs_f64(work),
                reader: None,
            };
            controller.observe(sample, || world.observed.then_some(ticks));
            if !controller.holds(sample) {
                break;
            }
            start += HOLD.as_secs_f64();
        }
        let Choice { rung, probe } = choice(&mut controller, fixed);
        let is_random = number * 7919 % 100 < world.data.random;
        let size = spread.around(0.2);
        let mut encode = |rung: Rung| world.data.encode(rung, size, is_random, &mut spread);
        let mut busy = OTHER * FRAME as f64;
        let stored = if is_random && (rung != Rung::STORED || probe.is_some()) {
            busy += random_frame(&mut controller, rung, busy);
            FRAME
        } else {
            let chosen = encode(rung);
            controller.encoded(&chosen, busy);
            busy += chosen.seconds;
            if let Some(probe) = probe {
                let encoding = encode(probe);
                let probe = Probe { encoding, seconds: 2.0 * encoding.seconds };
                controller.compared(&probe, &chosen);
                busy += probe.seconds;
            }
            chosen.stored as u64
        };
        free[worker] = start + busy;
        work += busy;
        out = out.max(free[worker]);
        outs.push(out);
        produced += stored;
        filled += stored;
        if filled >= world.batch {
            left.push((produced, link.send(out, filled)));
            filled = 0;
        }
    }
    Outcome { seconds: link.send(out, filled.max(1)), stored: produced }
}

/// The rung for the next frame: the fixed one, or what the controller says.
fn choice(controller: &mut Controller, fixed: Option<Rung>) -> Choice {
    fixed.map_or_else(|| controller.choose(), |rung| Choice { rung, probe: None })
}

/// Reports a random frame; returns the seconds that it took to notice that.
fn random_frame(controller: &mut Controller, rung: Rung, other: f64) -> f64 {
    if rung.needs_test() || rung == Rung::STORED {
        controller.stored(FRAME as usize, other);
        controller.tested(FRAME as usize, TEST);
        return TEST;
    }
    controller.stored(FRAME as usize, other + SKIP);
    SKIP
}

/// Checks a simulated world; returns a description of the failure, if there is one.
fn check(world: &SimulatedRun) -> Option<String> {
    let fixed: Vec<(Rung, Outcome)> =
        Rung::all().map(|rung| (rung, run(world, Some(rung)))).collect();
    let best = fixed.iter().map(|(_, outcome)| outcome.seconds).fold(f64::MAX, f64::min);
    let auto = run(world, None);
    // The strongest rung that is as fast as the best.
    let (strongest, smallest) =
        fixed.iter().rev().find(|(_, outcome)| outcome.seconds <= best * 1.02).unwrap();
    let thin = world.link < 50e6 && smallest.stored as f64 / world.link > best * 0.9;
    // Before the first batch has left, nothing is known about the link.
    let start = world.batch as f64 / world.data.ratios[3] / (SPEED[3] * world.threads as f64);
    let slow = auto.seconds > best * 1.05 + start;
    let large = thin && auto.stored as f64 > smallest.stored as f64 * 1.10;
    (slow || large).then(|| {
        let SimulatedRun { data, threads, observed, source, link, batch, .. } = world;
        format!(
            "{} x{threads} (observed: {observed}), source {:.0}, link {:.0} MB/s, batch {}: {:.2} s, best {best:.2} ({:.3}); {} MB, {} has {}",
            data.name, source / 1e6, link / 1e6, batch / MIB, auto.seconds, auto.seconds / best,
            auto.stored / 1_000_000, strongest.algorithm(), smallest.stored / 1_000_000,
        )
    })
}

#[test]
fn as_fast_as_the_best_rung_and_as_small_on_thin_links() {
    let mut complaints = Vec::new();
    let mut worlds = 0;
    for data in DATA {
        for threads in [1, 2, 16] {
            for source in [150e6, 400e6, 2e9] {
                for link in [6e6, 37e6, 125e6, 312e6, 1.25e9, 5e9] {
                    for batch in [MIB, 16 * MIB, 64 * MIB] {
                        let (budget, frames) = (512 * MIB, 8192);
                        // Every other machine's load is known.
                        let observed = worlds % 2 == 1;
                        let world = SimulatedRun {
                            data,
                            threads,
                            observed,
                            source,
                            link,
                            batch,
                            budget,
                            frames,
                        };
                        worlds += 1;
                        complaints.extend(check(&world));
                    }
                }
            }
        }
    }
    let shown = complaints.iter().take(60).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(complaints.is_empty(), "{} of {worlds} worlds:\n{shown}", complaints.len());
}
