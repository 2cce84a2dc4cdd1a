//! Load of the run on the processors of this machine, apart from codecs.
//!
//! A store, a joiner or a producer on the same machine shares its processors, so a codec that saves
//! bytes takes time from them and saves them time. Each window shows how long all processors were
//! busy, and for how long the workers and the reader ran. The remaining time belongs to the bytes that were
//! sent (our sender and the store), up to a multiple of what this process used besides its workers; the
//! rest belongs to other programs. The time of a producer on this machine counts for the bytes sent, too,
//! because nothing tells it from the store's. Some time stays idle even if the processors are the limit;
//! it is not promised to any codec.
//!
//! On a machine that is busy with other programs, a worker waits for a processor for most of the time. Its
//! own processor time does not show that, so it is compared with the time that has passed.

use super::mean::Mean;
use super::processors::Ticks;

/// Share of idle time below which the processors count as fully used.
const IDLE: f64 = 0.15;
/// Threads apart from the workers that lack time if the processors are fully used: one of the
/// sender or the store, and part of another one.
const STARVING: f64 = 1.5;
/// Windows that count for the shares of time: a tick is a large part of a window.
const SHARES: f64 = 4.0;
/// Seconds of windows that [`MachineCosts::spare`] remembers.
const SPARE: f64 = 1.0;
/// Seconds after which most of it is forgotten if the processors are not the limit. A busy link leaves
/// processors idle, too, and some of that time may have been counted.
const FORGET: f64 = 1.5;
/// Typical processor seconds per byte read and sent.
const READ: f64 = 0.2e-9;
const SENT: f64 = 1.0e-9;
/// Processor seconds for which the typical costs count as measured at the start.
const WEIGHT: f64 = 0.03;
/// Time of the producer, the reader, the sender and the store relative to what this process spends on them,
/// at most: beyond that, the processors work for something else.
const OTHERS: f64 = 2.0;
/// Share of the processors that this run gets, however busy other programs are, as long as its workers wait for
/// none.
const LEAST: f64 = 0.5;
/// Seconds of work that [`MachineCosts::running`] remembers, waits included.
const RUNNING: f64 = 1.0;
/// Factor by which earlier windows count less at each new one.
const MEMORY: f64 = 0.95;

/// Costs of a run on this machine.
#[derive(Debug)]
pub(super) struct MachineCosts {
    processors: f64,
    last: Option<Ticks>,
    /// Seconds of the workers in this window.
    worked: f64,
    /// Cost of bytes read: the reader's.
    read: Cost,
    /// Cost of bytes sent: the sender's, the store's, and that of a producer on this machine.
    sent: Cost,
    /// Share of the processors that other threads must use for the processors to be their limit.
    fair: f64,
    /// Shares of idle time, of the producer, the reader, the sender and the store, and of other programs lately.
    shares: [Mean; 3],
    /// Share of time for which processors stay idle although they are the limit.
    spare: Mean,
    /// Share of the time for which workers have run, of that for which they had something to do.
    running: Mean,
}

impl MachineCosts {
    /// Creates the costs of a run with `threads` workers on a machine of `processors`, at
    /// those `ticks`.
    pub(super) fn new(processors: usize, threads: usize, ticks: Ticks) -> Self {
        Self {
            processors: processors.max(1) as f64,
            last: Some(ticks),
            worked: 0.0,
            read: Cost::new(READ),
            sent: Cost::new(SENT),
            // Besides the workers, there are the source, the sender and the store.
            fair: STARVING / (threads + 3) as f64,
            shares: [Mean::new(0.0, SHARES); 3],
            spare: Mean::new(0.0, SPARE),
            running: Mean::new(1.0, RUNNING),
        }
    }

    /// Counts processor time of a worker.
    pub(super) fn worked(&mut self, seconds: f64) {
        self.worked += seconds;
    }

    /// Learns that work of a worker took `seconds` of a processor, while so many seconds passed.
    pub(super) fn ran(&mut self, seconds: f64, passed: f64) {
        if passed > 0.0 {
            self.running.add((seconds / passed).min(1.0), passed);
        }
    }

    /// Learns from a window of `seconds`, in which so many bytes were `read` and `sent`. `ticks` are
    /// those at its end. Returns whether hardly any processor was idle, and not only because of
    /// the workers.
    pub(super) fn window(
        &mut self,
        ticks: Option<Ticks>,
        seconds: f64,
        read: u64,
        sent: u64,
    ) -> bool {
        let last = std::mem::replace(&mut self.last, ticks);
        let worked = std::mem::take(&mut self.worked);
        let Some((now, last)) = ticks.zip(last).filter(|(now, last)| now.all > last.all) else {
            return false;
        };
        let idle = now.idle.saturating_sub(last.idle) as f64 / (now.all - last.all) as f64;
        let available = self.processors * seconds;
        let own = now.own.saturating_sub(last.own).as_secs_f64();
        let busy = available * (1.0 - idle.min(1.0));
        let apart = (busy - worked).min(OTHERS * (own - worked)).max(0.0);
        let reader = match now.reader.zip(last.reader) {
            Some((now, last)) => now.saturating_sub(last).as_secs_f64(),
            None => read as f64 * READ,
        };
        self.read.add(reader, read);
        self.sent.add((apart - reader).max(0.0), sent);
        let foreign = (busy - worked - apart).max(0.0);
        let now = [idle, apart / available, foreign / available];
        self.shares.iter_mut().zip(now).for_each(|(share, now)| share.add(now, 1.0));
        let [idle, apart, _] = self.shares.map(|share| share.value());
        let full = idle < IDLE && apart > self.fair;
        if full {
            self.spare.add(idle, seconds);
        } else {
            self.spare.set(self.spare.value() * (-seconds / FORGET).exp());
        }
        full
    }

    /// Share of the time for which a worker that has something to do gets a processor, as far as other programs
    /// decide that. What the threads of this run and the store take from each other follows from their costs.
    pub(super) fn share(&self) -> f64 {
        let [_, apart, foreign] = self.shares.map(|share| share.value());
        let others = foreign / (foreign + apart).max(1e-9);
        1.0 - (1.0 - self.running.value()) * others
    }

    /// Throughput in plain bytes per second that the processors allow, if a worker takes
    /// `worker` seconds for a byte and makes `ratio` bytes of it.
    pub(super) fn throughput(&self, worker: f64, ratio: f64) -> f64 {
        let [_, _, foreign] = self.shares.map(|share| share.value());
        let least = LEAST * self.share();
        let processors = self.processors * (1.0 - foreign - self.spare.value()).max(least);
        processors / (worker + self.read.per_byte() + self.sent.per_byte() * ratio).max(1e-12)
    }
}

/// Processor time that bytes have taken lately.
#[derive(Debug)]
struct Cost {
    seconds: f64,
    bytes: f64,
}

impl Cost {
    /// Creates a cost of `typical` seconds per byte.
    fn new(typical: f64) -> Self {
        Self { seconds: WEIGHT, bytes: WEIGHT / typical }
    }

    fn add(&mut self, seconds: f64, bytes: u64) {
        self.seconds = self.seconds * MEMORY + seconds;
        self.bytes = self.bytes * MEMORY + bytes as f64;
    }

    fn per_byte(&self) -> f64 {
        self.seconds / self.bytes.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BYTES: (u64, u64) = (60_000_000, 50_000_000);

    /// Windows of 0.1 s on 2 processors of 1000 ticks a second each. `busy` of them were used, `own`
    /// of these by this process, and `reader` of these by its reader.
    fn windows(costs: &mut MachineCosts, number: u64, [busy, own, reader]: [f64; 3]) -> bool {
        let mut full = false;
        for _ in 0..number {
            let last = *costs.last.get_or_insert_default();
            let idle = Duration::from_secs_f64((2.0 - busy) * 0.1).as_millis();
            let now = Ticks {
                all: last.all + 200,
                idle: last.idle + u64::try_from(idle).unwrap(),
                own: last.own + Duration::from_secs_f64(own * 0.1),
                reader: Some(
                    last.reader.unwrap_or_default() + Duration::from_secs_f64(reader * 0.1),
                ),
            };
            full = costs.window(Some(now), 0.1, BYTES.0, BYTES.1);
        }
        full
    }

    fn costs() -> MachineCosts {
        MachineCosts::new(2, 2, Ticks::default())
    }

    /// Asserts that bytes read and sent cost so many seconds each, on so many processors.
    fn assert_costs(costs: &MachineCosts, (read, sent): (f64, f64), processors: f64) {
        let expected = processors / (1e-9 + read + sent * 0.5);
        let throughput = costs.throughput(1e-9, 0.5);
        assert!((throughput / expected - 1.0).abs() < 0.05, "{throughput} {expected}");
    }

    #[test]
    fn costs_follow_what_other_threads_use() {
        let mut costs = costs();
        for _ in 0..80 {
            costs.worked(0.02);
            windows(&mut costs, 1, [0.2 + 0.18 + 0.25, 0.2 + 0.18 + 0.2, 0.18]);
        }
        assert_costs(&costs, (0.3e-9, 0.5e-9), 2.0);
    }

    #[test]
    fn other_programs_count_only_up_to_a_limit() {
        let mut costs = costs();
        let (reader, own, foreign) = (0.18, 0.38, 0.6);
        windows(&mut costs, 80, [OTHERS * own + foreign, own, reader]);
        assert_costs(&costs, (0.3e-9, (OTHERS * own - reader) / 500e6), 2.0 - foreign);
    }

    #[test]
    fn a_worker_that_waits_for_other_programs_is_slow() {
        let mut costs = costs();
        windows(&mut costs, 80, [2.0, 0.1, 0.05]);
        assert!((costs.share() - 1.0).abs() < 1e-9, "nothing is known");
        // A burst of its own time slice, and then its wait.
        for _ in 0..100 {
            costs.ran(0.002, 0.002);
            costs.ran(0.002, 0.038);
        }
        assert!((0.1..0.2).contains(&costs.share()), "{}", costs.share());
        assert!(costs.throughput(1e-9, 0.5) < 0.2 * 2.0 * 1e9, "{}", costs.throughput(1e-9, 0.5));
        // The threads of this run do the same to each other, which is no reason.
        windows(&mut costs, 80, [1.4, 1.4, 0.05]);
        assert!(costs.share() > 0.9, "{}", costs.share());
    }

    #[test]
    fn processors_are_the_limit_if_none_is_idle_and_not_only_workers_use_them() {
        assert!(windows(&mut costs(), 20, [1.8, 1.0, 0.1]));
        assert!(!windows(&mut costs(), 20, [1.66, 1.0, 0.1]));
        assert!(!windows(&mut costs(), 20, [2.0, 0.1, 0.0]));
        let mut costs = costs();
        costs.worked(0.19);
        assert!(!windows(&mut costs, 1, [2.0, 2.0, 0.0]));
    }

    #[test]
    fn spare_time_is_forgotten_while_the_processors_are_not_the_limit() {
        let mut costs = costs();
        windows(&mut costs, 20, [1.8, 1.0, 0.1]);
        assert!((costs.spare.value() - 0.1).abs() < 0.01, "{:?}", costs.spare);
        windows(&mut costs, 50, [1.0, 0.5, 0.1]);
        assert!(costs.spare.value() < 0.01, "{:?}", costs.spare);
    }

    #[test]
    fn a_reader_whose_time_is_unknown_has_its_typical_cost() {
        let mut costs = costs();
        for number in 1..80 {
            let all = number * 200;
            let own = Duration::from_secs_f64((0.12 + 0.25) * 0.1) * u32::try_from(number).unwrap();
            let ticks = Ticks { all, idle: all / 2, own, reader: None };
            costs.window(Some(ticks), 0.1, BYTES.0, BYTES.1);
        }
        assert!((costs.read.per_byte() / READ - 1.0).abs() < 0.01, "{:?}", costs.read);
    }

    #[test]
    fn without_ticks_nothing_is_known() {
        let mut costs = costs();
        assert!(windows(&mut costs, 20, [2.0, 2.0, 0.0]));
        assert!(!costs.window(None, 0.1, BYTES.0, BYTES.1));
        let same = Some(Ticks { all: 7, idle: 7, ..Ticks::default() });
        assert!(!costs.window(same, 0.1, BYTES.0, BYTES.1));
        assert!(!costs.window(same, 0.1, BYTES.0, BYTES.1));
    }
}
