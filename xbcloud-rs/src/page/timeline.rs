//! The course of a section: rates, retries and the slowest stage in each part of it.

use std::time::Duration;

use xb_report::{MAX_LANES, Sample};

use crate::page::units::real;

/// Number of parts of a timeline at most. More would be narrower than a line.
const MAX_BINS: u32 = 120;

/// Length of a part at least. In a shorter one, a single buffer makes a rate that nothing has.
const MIN_BIN: Duration = Duration::from_millis(50);

/// Share of the time for which a stage must have held up the others to count as the slowest, of a part
/// and of the whole.
const NOTABLE: f64 = 0.25;

/// One part of a timeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bin {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// Bytes a second of each stage.
    pub(crate) rates: [f64; MAX_LANES],
    /// The stage that held up the others for the longest, if one did.
    pub(crate) slowest: Option<usize>,
    pub(crate) retries: u64,
}

/// Work of one stage in the whole section.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LaneTotal {
    pub(crate) bytes: u64,
    /// Bytes a second.
    pub(crate) mean: f64,
    /// The largest rate of any part.
    pub(crate) peak: f64,
    /// Share of the time in which this was the slowest stage.
    pub(crate) slowest: f64,
}

/// The course of a section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) length: Duration,
    pub(crate) bins: Vec<Bin>,
    pub(crate) lanes: [LaneTotal; MAX_LANES],
    /// The stage that was the slowest for the longest, if that was a notable share of the time.
    pub(crate) slowest: Option<usize>,
}

impl Timeline {
    /// Derives the course from the samples of a section.
    pub(crate) fn new(samples: &[Sample]) -> Self {
        let last = samples.last().copied().unwrap_or_default();
        let bins: Vec<Bin> = ends(samples, &last)
            .windows(2)
            .filter_map(|pair| match pair {
                [from, to] if to.at > from.at => Some(bin(from, to)),
                _ => None,
            })
            .collect();
        let length = last.at;
        let lanes = std::array::from_fn(|lane| total(lane, &last, &bins));
        let most = |(_, a): &(usize, &LaneTotal), (_, b): &(usize, &LaneTotal)| {
            a.slowest.total_cmp(&b.slowest)
        };
        let slowest = lanes.iter().enumerate().max_by(most);
        let slowest = slowest.filter(|(_, lane)| lane.slowest >= NOTABLE).map(|(lane, _)| lane);
        Self { length, bins, lanes, slowest }
    }

    /// Returns the parts in which one stage, or none, is the slowest, joined where they touch.
    pub(crate) fn stretches(&self) -> Vec<(Duration, Duration, Option<usize>)> {
        let mut stretches: Vec<(Duration, Duration, Option<usize>)> = Vec::new();
        for bin in &self.bins {
            match stretches.last_mut() {
                Some((_, to, slowest)) if *slowest == bin.slowest => *to = bin.to,
                _ => stretches.push((bin.from, bin.to, bin.slowest)),
            }
        }
        stretches
    }

    /// Returns the largest rate of all stages.
    pub(crate) fn peak(&self) -> f64 {
        self.lanes.iter().map(|lane| lane.peak).fold(0.0, f64::max)
    }
}

/// Returns the samples that divide the time into parts of about the same length.
fn ends(samples: &[Sample], last: &Sample) -> Vec<Sample> {
    let width = (last.at / MAX_BINS).max(MIN_BIN);
    let mut ends: Vec<Sample> = samples.iter().take(1).copied().collect();
    for sample in samples {
        if ends.last().is_some_and(|end| sample.at.saturating_sub(end.at) >= width) {
            ends.push(*sample);
        }
    }
    if ends.last().is_some_and(|end| end.at < last.at) {
        // The rest is too short for a part of its own, unless it is all there is.
        ends.truncate(ends.len().saturating_sub(1).max(1));
        ends.push(*last);
    }
    ends
}

fn bin(from: &Sample, to: &Sample) -> Bin {
    let span = to.at.saturating_sub(from.at);
    let seconds = span.as_secs_f64();
    let rate =
        |lane: usize| real(to.lanes[lane].bytes.saturating_sub(from.lanes[lane].bytes)) / seconds;
    let held = |lane: usize| to.lanes[lane].limiting.saturating_sub(from.lanes[lane].limiting);
    let slowest = (0..MAX_LANES)
        .max_by_key(|lane| held(*lane))
        .filter(|lane| held(*lane).as_secs_f64() >= NOTABLE * seconds);
    let retries = to.retries.saturating_sub(from.retries);
    Bin { from: from.at, to: to.at, rates: std::array::from_fn(rate), slowest, retries }
}

fn total(lane: usize, last: &Sample, bins: &[Bin]) -> LaneTotal {
    let seconds = last.at.as_secs_f64();
    let of_time = |span: f64| if seconds > 0.0 { span / seconds } else { 0.0 };
    let bytes = last.lanes[lane].bytes;
    let slowest = bins.iter().filter(|bin| bin.slowest == Some(lane));
    let slowest: Duration = slowest.map(|bin| bin.to.saturating_sub(bin.from)).sum();
    LaneTotal {
        bytes,
        mean: of_time(real(bytes)),
        peak: bins.iter().map(|bin| bin.rates[lane]).fold(0.0, f64::max),
        slowest: of_time(slowest.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xb_report::{LaneCount, Recorder};

    fn sample(at: u64, bytes: [u64; 2], limiting: [u64; 2], retries: u64) -> Sample {
        let mut lanes = [LaneCount::default(); MAX_LANES];
        for lane in 0..2 {
            let limiting = Duration::from_secs(limiting[lane]);
            lanes[lane] = LaneCount { bytes: bytes[lane], limiting };
        }
        Sample { at: Duration::from_secs(at), lanes, retries }
    }

    #[test]
    fn the_slowest_stage_is_found_in_each_part_and_overall() {
        let samples = [
            Sample::default(),
            sample(10, [1000, 500], [9, 1], 0),
            sample(20, [1000, 1500], [9, 10], 3),
            sample(30, [3000, 1500], [9, 20], 3),
            sample(40, [3000, 1500], [9, 20], 3),
        ];
        let line = Timeline::new(&samples);
        let slowest: Vec<Option<usize>> = line.bins.iter().map(|bin| bin.slowest).collect();
        assert_eq!(slowest, [Some(0), Some(1), Some(1), None]);
        assert_eq!(line.slowest, Some(1));
        assert_eq!(line.lanes[1].slowest, 0.5);
        assert_eq!(line.lanes[0].mean, 75.0);
        assert_eq!(line.peak(), 200.0);
        assert_eq!(line.bins[1].retries, 3);
        let stretches: Vec<Option<usize>> = line.stretches().iter().map(|s| s.2).collect();
        assert_eq!(stretches, [Some(0), Some(1), None]);
    }

    #[test]
    fn a_stage_that_was_rarely_slow_is_no_slowest_stage() {
        // In every part, the first stage held up the others for a tenth of the time.
        let samples: Vec<Sample> = (0..=10).map(|n| sample(n * 10, [n, n], [n, 0], 0)).collect();
        let line = Timeline::new(&samples);
        assert_eq!((line.slowest, line.lanes[0].slowest), (None, 0.0));
        // In one of five parts, it did so all the time.
        let samples: Vec<Sample> =
            (0..=5).map(|n| sample(n * 10, [n, n], [10.min(n * 10), 0], 0)).collect();
        let line = Timeline::new(&samples);
        assert_eq!((line.slowest, line.lanes[0].slowest), (None, 0.2));
        assert_eq!(line.bins[0].slowest, Some(0));
    }

    #[test]
    fn a_long_run_has_few_parts_and_the_same_bytes() {
        let mut recorder = Recorder::default();
        for n in 1..=5000 {
            recorder.push(sample(n, [n * n, n], [0, 0], n / 100));
        }
        let line = Timeline::new(recorder.samples());
        assert!(line.bins.len() <= MAX_BINS as usize, "{}", line.bins.len());
        let sum: f64 =
            line.bins.iter().map(|bin| bin.rates[0] * (bin.to - bin.from).as_secs_f64()).sum();
        assert!((sum - 25e6).abs() < 1.0, "{sum}");
        assert_eq!(line.bins.iter().map(|bin| bin.retries).sum::<u64>(), 50);
    }

    #[test]
    fn the_last_buffer_makes_no_rate_of_its_own() {
        let mut samples = vec![Sample::default(), sample(1, [100, 0], [0, 0], 0)];
        let mut last = sample(1, [1100, 0], [0, 0], 0);
        last.at += Duration::from_micros(3);
        samples.push(last);
        let line = Timeline::new(&samples);
        assert_eq!(line.bins.len(), 1);
        assert!(line.peak() < 1101.0, "{}", line.peak());
        // Even if it is all there is.
        assert_eq!(Timeline::new(&[Sample::default(), last]).bins.len(), 1);
    }

    #[test]
    fn a_run_that_never_began_has_no_parts() {
        let line = Timeline::new(&[Sample::default()]);
        assert_eq!((line.bins.len(), line.slowest, line.length), (0, None, Duration::ZERO));
    }
}
