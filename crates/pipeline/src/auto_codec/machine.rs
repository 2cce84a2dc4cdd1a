//! What the run costs the processors of this machine, apart from codecs.
//!
//! A store, a joiner or a producer on the same machine shares its processors, so a codec that saves
//! bytes takes time from them and saves them time. Each window shows how long all processors were
//! busy. What the workers did not use belongs to the bytes that were read (the producer and our
//! reader) and to those that were sent (our sender and the store). Two weighted sums tell the two
//! apart.

use super::processors::Ticks;

/// Share of idle time below which the processors count as fully used.
const IDLE: f64 = 0.20;
/// A thread that waits for a processor gets about its fair share of them; one that waits for a link
/// or a disk needs less. Part of that share which counts as all of it.
const FAIR: f64 = 0.85;
/// Seconds in which the share of idle time is known well enough.
const SETTLED: f64 = 0.1;
/// Processor seconds per byte read and sent before anything was measured, and the weight of these
/// values in bytes. A local store varies more than a reader, so its value yields first.
const TYPICAL: [f64; 2] = [0.3e-9, 1.5e-9];
const WEIGHT: [f64; 2] = [64e6, 16e6];
/// Weight of what was known at each new window.
const MEMORY: f64 = 0.95;

/// Load of the processors in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Hardly any processor was idle.
    pub(super) full: bool,
    /// The processors are full, and the producer or the reader lacks time on them.
    pub(super) starves_source: bool,
    /// The processors are full, and the sender or the store lacks time on them.
    pub(super) starves_sender: bool,
}

/// Costs of a run on this machine.
#[derive(Debug)]
pub(super) struct MachineCosts {
    processors: f64,
    /// Share of the processors that is fair for a thread.
    fair: f64,
    last: Option<Ticks>,
    /// Seconds of the workers in this window.
    worked: f64,
    /// Sums of the windows: products of bytes read and sent, and of each with the seconds.
    bytes: [[f64; 2]; 2],
    seconds: [f64; 2],
    /// Processor seconds per byte read, and per byte sent.
    costs: [f64; 2],
    /// Share of idle time lately.
    idle: Option<f64>,
}

impl MachineCosts {
    /// Creates the costs of a run with `threads` workers on a machine of `processors`.
    pub(super) fn new(processors: usize, threads: usize) -> Self {
        Self {
            processors: processors.max(1) as f64,
            // Besides the workers, there are the source, the sender and the store.
            fair: FAIR / (threads + 3) as f64,
            last: None,
            worked: 0.0,
            bytes: [[0.0; 2]; 2],
            seconds: [0.0; 2],
            costs: TYPICAL,
            idle: None,
        }
    }

    /// Counts processor time of a worker.
    pub(super) fn worked(&mut self, seconds: f64) {
        self.worked += seconds;
    }

    /// Learns from a window of `seconds`, in which these `bytes` were read and sent. `ticks` are
    /// those at its end.
    pub(super) fn window(&mut self, ticks: Option<Ticks>, seconds: f64, bytes: (u64, u64)) -> Load {
        let last = std::mem::replace(&mut self.last, ticks);
        let worked = std::mem::take(&mut self.worked);
        let Some((now, last)) = ticks.zip(last).filter(|(now, last)| now.all > last.all) else {
            return Load::default();
        };
        let idle = now.idle.saturating_sub(last.idle) as f64 / (now.all - last.all) as f64;
        let available = self.processors * seconds;
        let apart = (available * (1.0 - idle.min(1.0)) - worked).max(0.0);
        let (read, sent) = (bytes.0 as f64, bytes.1 as f64);
        self.learn([read, sent], apart);
        // A tick is a large part of a short window.
        let weight = (seconds / SETTLED).min(1.0);
        let recent = self.idle.map_or(idle, |before| before + (idle - before) * weight);
        self.idle = Some(recent);
        let full = recent < IDLE;
        let starves = |cost: f64, bytes: f64, threads: f64| {
            full && cost * bytes > threads * self.fair * available
        };
        let [per_read, per_sent] = self.costs;
        Load {
            full,
            starves_source: starves(per_read, read, 1.0),
            starves_sender: starves(per_sent, sent, 2.0),
        }
    }

    /// Throughput in plain bytes per second that the processors allow, if a worker takes
    /// `worker` seconds for a byte and makes `ratio` bytes of it.
    pub(super) fn throughput(&self, worker: f64, ratio: f64) -> f64 {
        let [per_read, per_sent] = self.costs;
        self.processors / (worker + per_read + per_sent * ratio).max(1e-12)
    }

    /// Least squares of the two costs, drawn to the typical values while little was measured.
    fn learn(&mut self, bytes: [f64; 2], seconds: f64) {
        for i in 0..2 {
            for j in 0..2 {
                self.bytes[i][j] = self.bytes[i][j] * MEMORY + bytes[i] * bytes[j];
            }
            self.seconds[i] = self.seconds[i] * MEMORY + bytes[i] * seconds;
        }
        let weight = WEIGHT.map(|bytes| bytes * bytes);
        let [[read, both], [_, sent]] = self.bytes;
        let (read, sent) = (read + weight[0], sent + weight[1]);
        let value = [0, 1].map(|i| self.seconds[i] + weight[i] * TYPICAL[i]);
        // Positive: the weights make it so.
        let determinant = read * sent - both * both;
        let costs = [
            (value[0] * sent - value[1] * both) / determinant,
            (value[1] * read - value[0] * both) / determinant,
        ];
        self.costs = match costs {
            [read_cost, _] if read_cost < 0.0 => [0.0, (value[1] / sent).max(0.0)],
            [_, sent_cost] if sent_cost < 0.0 => [(value[0] / read).max(0.0), 0.0],
            costs => costs,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 0.1 s on 2 processors of 1000 ticks a second each, `busy` of which were used.
    fn windows(costs: &mut MachineCosts, number: u64, read: u64, sent: u64, busy: f64) -> Load {
        let mut load = Load::default();
        for _ in 0..number {
            let last = *costs.last.get_or_insert_default();
            let idle = last.idle + ((2.0 - busy) * 100.0).round() as u64;
            load = costs.window(Some(Ticks { all: last.all + 200, idle }), 0.1, (read, sent));
        }
        load
    }

    #[test]
    fn costs_of_bytes_read_and_sent_are_told_apart() {
        let mut costs = MachineCosts::new(2, 2);
        // 1 ns per byte read, 2 ns per byte sent, 0.02 s for the workers.
        for sent in [10_000_000, 40_000_000, 20_000_000, 0].repeat(20) {
            costs.worked(0.02);
            let seconds = 0.02 + 50e6 * 1e-9 + sent as f64 * 2e-9;
            windows(&mut costs, 1, 50_000_000, sent, seconds / 0.1);
        }
        assert!((costs.costs[0] - 1e-9).abs() < 0.2e-9, "{:?}", costs.costs);
        assert!((costs.costs[1] - 2e-9).abs() < 0.2e-9, "{:?}", costs.costs);
        let throughput = costs.throughput(1e-9, 0.5);
        assert!((throughput / 667e6 - 1.0).abs() < 0.05, "{throughput}");
    }

    #[test]
    fn a_sender_starves_only_if_no_processor_is_idle_and_it_uses_many() {
        let mut costs = MachineCosts::new(2, 2);
        let load = windows(&mut costs, 20, 60_000_000, 50_000_000, 2.0);
        assert!(load.full && load.starves_sender);
        let load = windows(&mut costs, 1, 60_000_000, 50_000_000, 1.5);
        assert_eq!(load, Load::default());
        // The workers use what there is.
        let mut costs = MachineCosts::new(2, 2);
        for _ in 0..20 {
            costs.worked(0.19);
            let load = windows(&mut costs, 1, 60_000_000, 5_000_000, 2.0);
            assert!(!load.starves_sender && !load.starves_source);
        }
        // Nothing is sent yet.
        let mut costs = MachineCosts::new(2, 2);
        let load = windows(&mut costs, 20, 60_000_000, 0, 2.0);
        assert!(load.starves_source && !load.starves_sender);
    }

    #[test]
    fn without_ticks_nothing_is_known() {
        let mut costs = MachineCosts::new(2, 2);
        windows(&mut costs, 20, 60_000_000, 50_000_000, 2.0);
        let bytes = (60_000_000, 50_000_000);
        assert_eq!(costs.window(None, 0.1, bytes), Load::default());
        let same = Some(Ticks { all: 7, idle: 7 });
        assert_eq!(costs.window(same, 0.1, bytes), Load::default());
        assert_eq!(costs.window(same, 0.1, bytes), Load::default());
    }
}
