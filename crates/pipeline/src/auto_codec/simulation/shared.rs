//! Machines whose processors are shared by the workers, the producer, the sender and the store.
//!
//! Time passes in small steps. In each one, the threads that have something to do share the
//! processors fairly: a thread that needs less than its share leaves the rest to the others.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::controller::{Choice, Controller};
use super::super::levels::{Encoding, Probe, RUNGS, Rung};
use super::super::processors::Ticks;
use super::super::sample::Sample;
use super::{DATA, Data, FRAME, Generator, MIB, OTHER, Outcome, SPEED, choice, random_frame};

/// Seconds of a step.
const STEP: f64 = 0.001;
/// Steps for which the rate of a link stays the same.
const PERIOD: u64 = 20;
/// Bytes per second of each link, and the largest deviation from it, as a share.
const LINKS: [(f64, f64); 5] =
    [(37e6, 0.0), (312e6, 0.0), (625e6, 0.5), (1.25e9, 0.5), (1e11, 0.0)];
/// Bytes per second of a link that counts as thin.
const THIN: f64 = 50e6;
/// Limit on the duration relative to that of the best rung. Where both a link and a demanding store
/// are near their limits, the controller cannot tell them apart at once, so it is higher than for
/// machines of their own.
const SLOWER: f64 = 1.07;
/// The same for dense data and a demanding store behind a link with bursts, on more than two processors. With
/// snappy, too few of them are idle to tell that the link is the limit, so one low measurement of the link is
/// believed for too long.
const SLOWER_FEW_IDLE: f64 = 1.17;
/// The same where other programs use the processors. A thread gets the share of a thread there, so the processors are no
/// whole that workers and store divide, as the controller takes them. Before it knew how long its workers wait, runs took up
/// to 4.2 times as long.
const SLOWER_BUSY: f64 = 1.9;
/// Share of the sender in the time of sender and store.
const SENDER: f64 = 0.6;
/// Time of the first encoding of a probe relative to the second.
const COLD: f64 = 1.5;
/// Ticks of the kernel in a second.
const TICKS: f64 = 100.0;

#[derive(Debug, Clone, Copy)]
struct Machine {
    data: Data,
    processors: usize,
    /// Processor seconds per plain byte of the producer and of the reader, which never run at the same
    /// time.
    producer: f64,
    reader: f64,
    /// Processor seconds per stored byte of the sender and the store.
    store: f64,
    /// Threads of the sender and the store.
    store_threads: usize,
    /// Bytes per second on average.
    link: f64,
    /// Largest deviation from that in a period, as a share.
    bursts: f64,
    /// Bytes that the sender collects before it sends any, and bytes that may be under way.
    batch: u64,
    budget: u64,
    frames: u64,
    /// Threads of other programs that always have something to do.
    others: usize,
}

/// Frame in the hands of a worker.
struct InWork {
    /// Seconds until it is done.
    left: f64,
    stored: u64,
}

/// State of a run.
struct Run<'a> {
    machine: &'a Machine,
    fixed: Option<Rung>,
    controller: Controller,
    spread: Generator,
    /// Deviations of the link.
    weather: Generator,
    now: f64,
    steps: u64,
    /// Rate of the link in this period.
    rate: f64,
    idle: f64,
    /// Processor time of this program, and of its reader alone.
    own: f64,
    reader: f64,
    read: f64,
    source_wait: f64,
    begun: u64,
    workers: Vec<Option<InWork>>,
    done: u64,
    produced: u64,
    /// Sizes of complete batches that have not left, and the bytes that have.
    batches: VecDeque<u64>,
    collected: u64,
    sent: f64,
    released: f64,
    /// Room for what the threads demand in a step, and for the same in order.
    demands: Vec<f64>,
    order: Vec<f64>,
}

impl Run<'_> {
    /// Divides the processors for a step. Returns the most seconds that a thread gets of those that it demands.
    fn share(&mut self, demands: &[f64]) -> f64 {
        let mut left = self.machine.processors as f64 * STEP;
        // Demands below that leave more for the others.
        let order = &mut self.order;
        order.clear();
        order.extend_from_slice(demands);
        order.sort_unstable_by(f64::total_cmp);
        let mut part = f64::INFINITY;
        for (number, demand) in order.iter().enumerate() {
            part = left / (order.len() - number + self.machine.others) as f64;
            if *demand > part {
                break;
            }
            left -= demand;
            part = f64::INFINITY;
        }
        left = match part.is_finite() {
            true => 0.0,
            false => (left - self.machine.others as f64 * STEP).max(0.0),
        };
        self.idle += left;
        part
    }

    fn queued(&self) -> f64 {
        self.produced as f64 - self.collected as f64 - self.sent
    }

    fn step(&mut self) {
        let machine = self.machine;
        let total = machine.frames as f64 * FRAME as f64;
        // Bytes that the producer may write into memory.
        let taken = (self.begun * FRAME) as f64;
        let depth =
            self.done as f64 * FRAME as f64 + (2 * machine.processors as u64 * FRAME) as f64;
        let held = self.read - (self.done * FRAME) as f64 + self.produced as f64 - self.released;
        let (turn, memory) = (depth.min(total) - self.read, machine.budget as f64 - held);
        let free = turn.min(memory).max(0.0);
        let per_byte = machine.producer + machine.reader;
        let producer = (free * per_byte).min(STEP);
        if self.steps.is_multiple_of(PERIOD) {
            self.rate = machine.link * self.weather.around(machine.bursts);
        }
        self.steps += 1;
        let can_send = self.queued().min(self.rate * STEP).max(0.0);
        let store = (can_send * machine.store / machine.store_threads as f64).min(STEP);
        let mut waiting = (self.read - taken) as u64 / FRAME;
        let mut demanded = std::mem::take(&mut self.demands);
        demanded.clear();
        demanded.push(producer);
        for worker in &self.workers {
            let busy = worker.is_some() || waiting > 0;
            waiting -= u64::from(worker.is_none() && waiting > 0);
            demanded.push(if busy { STEP } else { 0.0 });
        }
        demanded.extend(std::iter::repeat_n(store, machine.store_threads));
        let most = self.share(&demanded);
        let given = |thread: usize| demanded[thread].min(most);
        // The producer; the reader waits for it while memory is free.
        self.read += (given(0) / per_byte).min(free);
        let reader = given(0) * machine.reader / per_byte;
        self.reader += reader;
        self.own += reader;
        if free > 0.0 {
            self.source_wait += demanded[0];
        }
        for number in 0..self.workers.len() {
            let (wanted, got) = (demanded[number + 1], given(number + 1));
            let unused = self.work(number, got);
            if got > unused {
                self.controller.ran(got - unused, STEP * (got - unused) / got);
            }
            self.own += got - unused;
            // Without further frames, the rest of the share stays unused.
            self.idle += if wanted > 0.0 { unused } else { 0.0 };
        }
        // The store.
        let seconds: f64 = (1 + self.workers.len()..demanded.len()).map(given).sum();
        self.own += seconds * SENDER;
        self.sent += (seconds / machine.store).min(can_send);
        let left = |batches: &VecDeque<u64>| batches.front().copied().map(|size| size as f64);
        while left(&self.batches).is_some_and(|size| self.released + size <= self.sent + 0.5) {
            self.released += self.batches.pop_front().unwrap_or(0) as f64;
        }
        self.now += STEP;
        self.demands = demanded;
    }

    /// Lets a worker work for some time; returns what it did not need.
    fn work(&mut self, number: usize, mut seconds: f64) -> f64 {
        while seconds > 0.0 {
            match self.workers[number].take() {
                Some(InWork { left, stored }) if left > seconds => {
                    self.workers[number] = Some(InWork { left: left - seconds, stored });
                    return 0.0;
                }
                Some(InWork { left, stored }) => {
                    seconds -= left;
                    self.finish(stored);
                }
                None if self.read as u64 / FRAME > self.begun => {
                    self.workers[number] = self.begin();
                    if self.workers[number].is_none() {
                        return seconds;
                    }
                }
                None => return seconds,
            }
        }
        0.0
    }

    fn finish(&mut self, stored: u64) {
        self.done += 1;
        self.produced += stored;
        self.collected += stored;
        if self.collected >= self.machine.batch || self.done == self.machine.frames {
            self.batches.push_back(std::mem::take(&mut self.collected));
        }
    }

    /// Tells the controller what has happened, and asks whether the worker should wait.
    fn holds(&mut self) -> bool {
        let sample = Sample {
            at: Duration::from_secs_f64(self.now),
            read: self.read as u64,
            produced: self.produced,
            sent: self.sent as u64,
            source_wait: Duration::from_secs_f64(self.source_wait),
        };
        let all = self.machine.processors as f64 * self.now * TICKS;
        let ticks = Ticks {
            all: all as u64,
            idle: (self.idle * TICKS) as u64,
            own: Duration::from_secs_f64(self.own),
            reader: Some(Duration::from_secs_f64(self.reader)),
        };
        self.controller.observe(sample, || Some(ticks));
        self.controller.holds(sample)
    }

    /// Begins a frame, unless the worker should wait.
    fn begin(&mut self) -> Option<InWork> {
        if self.fixed.is_none() && self.holds() {
            return None;
        }
        let Choice { rung, probe } = choice(&mut self.controller, self.fixed);
        let is_random = self.begun * 7919 % 100 < self.machine.data.random;
        self.begun += 1;
        let mut busy = OTHER * FRAME as f64;
        if is_random && (rung != Rung::STORED || probe.is_some()) {
            busy += random_frame(&mut self.controller, rung, busy);
            return Some(InWork { left: busy, stored: FRAME });
        }
        let size = self.spread.around(0.2);
        let chosen = self.encode(rung, size, is_random);
        self.controller.encoded(&chosen, busy);
        busy += chosen.seconds;
        if let Some(probe) = probe {
            let encoding = self.encode(probe, size, is_random);
            let probe = Probe { encoding, seconds: (COLD + 1.0) * encoding.seconds };
            self.controller.compared(&probe, &chosen);
            busy += probe.seconds;
        }
        Some(InWork { left: busy, stored: chosen.stored as u64 })
    }

    fn encode(&mut self, rung: Rung, size: f64, is_random: bool) -> Encoding {
        self.machine.data.encode(rung, size, is_random, &mut self.spread)
    }
}

fn run(machine: &Machine, fixed: Option<Rung>) -> Outcome {
    let mut run = Run {
        machine,
        fixed,
        controller: Controller::new(
            machine.processors,
            machine.batch,
            Some((machine.processors, Ticks::default())),
        ),
        spread: Generator::new(),
        weather: Generator(2),
        now: 0.0,
        steps: 0,
        rate: machine.link,
        idle: 0.0,
        own: 0.0,
        reader: 0.0,
        read: 0.0,
        source_wait: 0.0,
        begun: 0,
        workers: (0..machine.processors).map(|_| None).collect(),
        done: 0,
        produced: 0,
        batches: VecDeque::new(),
        collected: 0,
        sent: 0.0,
        released: 0.0,
        demands: Vec::new(),
        order: Vec::new(),
    };
    while run.done < machine.frames || !run.batches.is_empty() {
        run.step();
    }
    Outcome { seconds: run.now, stored: run.produced }
}

fn check(machine: &Machine) -> Option<String> {
    // Beyond a thin link, the strongest rungs only take long.
    let rungs = if machine.link < THIN { RUNGS } else { 7 };
    let fixed: Vec<(Rung, Outcome)> =
        Rung::all().take(rungs).map(|rung| (rung, run(machine, Some(rung)))).collect();
    let (best, fastest) = fixed.iter().min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds)).unwrap();
    let auto = run(machine, None);
    let start = machine.batch as f64
        / machine.data.ratios[3]
        / (SPEED[3] * machine.data.speed * machine.processors as f64);
    let (strongest, smallest) =
        fixed.iter().rev().find(|(_, outcome)| outcome.seconds <= fastest.seconds * 1.02).unwrap();
    let thin = machine.link < THIN && smallest.stored as f64 / machine.link > fastest.seconds * 0.9;
    let store_rate = machine.store_threads as f64 / machine.store;
    let few_idle = machine.data.name == "dense"
        && machine.bursts > 0.0
        && machine.link > store_rate
        && machine.processors > 2;
    let slower = match () {
        () if machine.others > 0 => SLOWER_BUSY,
        () if few_idle => SLOWER_FEW_IDLE,
        () => SLOWER,
    };
    let slow = auto.seconds > fastest.seconds * slower + start;
    let large = thin && auto.stored as f64 > smallest.stored as f64 * 1.10;
    (slow || large).then(|| {
        let Machine { data, processors, others, producer, reader, store, store_threads, link, bursts, .. } = machine;
        let producer = producer + reader;
        format!(
            "{} x{processors} ({others} other threads), producer {:.1}, store {:.1} ns/B x{store_threads}, link {:.0} MB/s (bursts {bursts}): {:.2} s, best {} {:.2} ({:.3}); {} MB, {} has {}",
            data.name, producer * 1e9, store * 1e9, link / 1e6, auto.seconds, best.algorithm(),
            fastest.seconds, auto.seconds / fastest.seconds, auto.stored / 1_000_000,
            strongest.algorithm(), smallest.stored / 1_000_000,
        )
    })
}

/// Machines of every combination of these parts.
struct Grid {
    data: &'static [&'static str],
    processors: &'static [usize],
    /// Busy threads of other programs for each processor.
    others: &'static [usize],
    /// Processor seconds per plain byte of the producer and of the reader.
    sources: &'static [(f64, f64)],
    /// Processor seconds per stored byte of the store, and its threads.
    stores: &'static [(f64, usize)],
    /// Bytes per second of the link, and its bursts.
    links: &'static [(f64, f64)],
    frames: u64,
}

impl Grid {
    fn machines(&self) -> Vec<Machine> {
        let mut machines = Vec::new();
        for data in DATA.into_iter().filter(|data| self.data.contains(&data.name)) {
            for &processors in self.processors {
                for &others in self.others {
                    for &(producer, reader) in self.sources {
                        for &(store, store_threads) in self.stores {
                            machines.extend(self.links.iter().map(|&(link, bursts)| Machine {
                                data,
                                processors,
                                producer,
                                reader,
                                store,
                                store_threads,
                                link,
                                bursts,
                                batch: 16 * MIB,
                                budget: 256 * MIB,
                                frames: self.frames,
                                others: others * processors,
                            }));
                        }
                    }
                }
            }
        }
        // The store does not matter for a thin link. A demanding one is not behind a link with bursts.
        machines.retain(|machine| {
            (machine.link >= THIN || machine.store_threads >= 8)
                && (machine.bursts == 0.0 || machine.store_threads <= 2)
        });
        machines
    }

    fn check(&self, number: usize) {
        let machines = self.machines();
        assert_eq!(machines.len(), number);
        let complaints: Vec<String> = machines.iter().filter_map(check).collect();
        let shown = complaints.join("\n");
        assert!(complaints.is_empty(), "{} of {number} machines:\n{shown}", complaints.len());
    }
}

#[test]
fn as_fast_as_the_best_rung_where_the_store_shares_the_processors() {
    let grid = Grid {
        data: &["pages", "dense", "noise", "mixed"],
        processors: &[2, 4],
        others: &[0],
        sources: &[(0.0, 0.2e-9), (0.15e-9, 0.15e-9), (0.8e-9, 0.2e-9)],
        stores: &[(0.4e-9, 1), (0.7e-9, 2), (2e-9, 2), (6e-9, 8)],
        links: &LINKS,
        frames: 4096,
    };
    grid.check(360);
}

/// The processors are busy with something else, such as other backups: a thread of this run gets a small share of
/// one, and so does the store.
#[test]
fn as_fast_as_the_best_rung_on_a_machine_that_is_busy_with_other_programs() {
    let grid = Grid {
        data: &["pages", "mixed"],
        processors: &[2],
        others: &[1, 4, 16],
        sources: &[(0.0, 0.2e-9), (0.8e-9, 0.2e-9)],
        stores: &[(0.7e-9, 2), (2e-9, 2), (6e-9, 8)],
        links: &[(37e6, 0.0), (312e6, 0.0), (1e11, 0.0)],
        frames: 1024,
    };
    grid.check(84);
}
