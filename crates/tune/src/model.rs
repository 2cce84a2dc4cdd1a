//! The model behind `tune`: predicts duration and cost of a backup with given settings, from
//! measured numbers alone.
//!
//! All stages of the pipeline work at the same time, so the slowest one sets the pace:
//!
//! - read: plain bytes at the speed of the source;
//! - cpu: the codec, and the cipher on what it leaves, on all worker threads;
//! - link: stored bytes at the speed of the link, and the latency of each request, shared by the
//!   parallel ones.
//!
//! A part is sent once it is full, so the link starts one part late, and the last part leaves after
//! everything has been read and encoded. The few requests around the data are added.

use serde::Serialize;
use xb_pipeline::{ObjectSize, PackPlan, PackSizing, UnpackPlan, worker_threads};
use xb_repo::manifest::Layout;

use crate::estimate::{EstimateRequest, estimate};
use crate::machine::{CodecSpeed, Machine};
use crate::prices::Prices;
use xb_backup::BackupError;
use xb_backup::limits;

/// Requests of a run that wait for each other.
const IN_TURN: f64 = 8.0;

/// Throughput of the link with some number of parallel requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkPoint {
    /// Parallel requests.
    pub parallel: usize,
    /// Bytes per second, without the latency of requests.
    pub rate: f64,
    /// Bytes per second as they were measured, latency included.
    pub measured: f64,
}

/// Properties of the link to the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// Latency of a request in seconds.
    pub latency: f64,
    /// Measured throughput, in increasing order of parallel requests; not empty.
    pub points: Vec<LinkPoint>,
    /// Bytes that were uploaded to measure it.
    pub uploaded: u64,
    /// Requests that were sent to measure it.
    pub requests: u64,
}

impl Link {
    /// A link of which the user knows the throughput, whatever the number of requests, up to `most`
    /// parallel ones.
    #[must_use]
    pub fn known(rate: f64, latency: f64, most: usize) -> Self {
        let point = |parallel| LinkPoint { parallel, rate, measured: rate };
        let points = counts(most).into_iter().map(point).collect();
        Self { latency, points, uploaded: 0, requests: 0 }
    }

    /// Throughput with `parallel` requests in bytes per second, at least 1.
    #[must_use]
    pub fn rate(&self, parallel: usize) -> f64 {
        let reached = self.points.iter().rev().find(|point| point.parallel <= parallel);
        let rate = match (reached, self.points.first()) {
            (Some(point), _) => point.rate,
            (None, Some(first)) => first.rate * parallel as f64 / first.parallel.max(1) as f64,
            (None, None) => 1.0,
        };
        rate.max(1.0)
    }
}

/// Numbers of parallel requests to consider: powers of two up to `most`, and `most`.
pub(crate) fn counts(most: usize) -> Vec<usize> {
    let most = most.max(1);
    let powers = std::iter::successors(Some(1_usize), |n| n.checked_mul(2));
    let mut counts: Vec<usize> = powers.take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

/// Settings of a backup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice<'a> {
    /// The codec.
    pub codec: &'a CodecSpeed,
    /// Size of the objects in bytes.
    pub chunk_size: u64,
    /// Parallel requests.
    pub parallel: usize,
    /// Memory budget in bytes.
    pub memory: u64,
}

/// The data that is backed up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Size of the stream in bytes.
    pub bytes: u64,
    /// The backup is sealed.
    pub sealed: bool,
    /// Prices of the store, if it has any.
    pub prices: Option<Prices>,
    /// Value of `--threads`, if it is set.
    pub threads: Option<usize>,
}

/// Stage that sets the pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlowestStage {
    /// The source.
    Read,
    /// The worker threads.
    Cpu,
    /// The link to the store.
    Link,
}

impl SlowestStage {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Cpu => "cpu",
            Self::Link => "link",
        }
    }
}

/// Prediction for a backup with given settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Value of `--compress`.
    pub compress: String,
    /// Value of `--chunk-size` in bytes.
    pub chunk_size: u64,
    /// Value of `--parallel`.
    pub parallel: usize,
    /// Value of `--memory` in bytes.
    pub memory: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Stage that sets the pace.
    pub slowest_stage: SlowestStage,
    /// Seconds of CPU time for codec and cipher.
    pub cpu: f64,
    /// Bytes in the store.
    pub stored: u64,
    /// Data objects.
    pub objects: u64,
    /// Requests, without retries.
    pub requests: u64,
    /// Cost of the requests in dollars.
    pub cost_backup: Option<f64>,
    /// Cost of the storage in dollars a month.
    pub cost_storage_month: Option<f64>,
}

/// Predicts the duration and size of a backup with the settings of `choice`.
///
/// # Errors
/// [`BackupError::Plan`] if the memory is not enough for these settings.
pub(crate) fn predict(
    machine: &Machine,
    link: &Link,
    job: &Job,
    choice: &Choice<'_>,
) -> Result<Prediction, BackupError> {
    let Choice { codec, chunk_size, parallel, memory } = *choice;
    let fitting = || worker_threads(memory, codec.memory, machine.threads);
    let threads = job.threads.unwrap_or_else(fitting).max(1);
    let object_size = ObjectSize::new(chunk_size);
    let put = PackPlan::new(PackSizing {
        memory,
        codec_memory: codec.memory,
        object_size,
        threads,
        parallel,
        limits: limits(),
    })?;
    let get = UnpackPlan::new(memory, threads, parallel)?;
    let stored = share(job.bytes, codec.ratio);
    let (layout, sealed) = (Layout::Packed, job.sealed);
    let numbers = estimate(&EstimateRequest {
        stored,
        layout,
        fixed_size: false,
        files: 1,
        sealed,
        put,
        get,
    });

    let plain = job.bytes as f64;
    let read = plain / machine.read.max(1.0);
    let seal = if sealed { stored as f64 / machine.seal.max(1.0) } else { 0.0 };
    let work = plain / codec.speed.max(1.0) + seal;
    let cpu = work / threads as f64;
    let rate = link.rate(put.parallel);
    let waiting = numbers.backup_requests as f64 * link.latency / put.parallel as f64;
    let sending = stored as f64 / rate + waiting;
    let stages =
        [(read, SlowestStage::Read), (cpu, SlowestStage::Cpu), (sending, SlowestStage::Link)];
    let slowest =
        stages.into_iter().fold(stages[0], |most, one| if one.0 > most.0 { one } else { most });
    let encoding = read.max(cpu);
    let part = put.part_size.min(stored) as f64;
    let last_part = part / link.rate(1);
    let first_part = encoding * part / stored.max(1) as f64;
    let seconds = (encoding + last_part).max(first_part + sending);
    let cost = job.prices.map(|prices| numbers.cost(&prices));
    Ok(Prediction {
        compress: codec.compress.clone(),
        chunk_size,
        parallel,
        memory,
        seconds: seconds + IN_TURN * link.latency,
        slowest_stage: slowest.1,
        cpu: work,
        stored,
        objects: numbers.objects,
        requests: numbers.backup_requests,
        cost_backup: cost.map(|cost| cost.backup),
        cost_storage_month: cost.map(|cost| cost.storage_month),
    })
}

/// `ratio` of `bytes`, rounded up.
fn share(bytes: u64, ratio: f64) -> u64 {
    // `as` saturates, and the product is not negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let share = (bytes as f64 * ratio.clamp(0.0, 1.0)).ceil() as u64;
    share.min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn codec(speed: f64, ratio: f64) -> CodecSpeed {
        CodecSpeed { compress: "zstd:1".into(), speed, ratio, memory: 0 }
    }

    fn machine(read: f64) -> Machine {
        Machine { threads: 4, read, codecs: Vec::new(), seal: 2e9 }
    }

    fn seconds(
        link: &Link,
        read: f64,
        codec: &CodecSpeed,
        bytes: u64,
        chunk_size: u64,
    ) -> (f64, SlowestStage) {
        let job = Job { bytes, sealed: true, prices: None, threads: None };
        let choice = Choice { codec, chunk_size, parallel: 8, memory: 512 * MIB };
        let prediction = predict(&machine(read), link, &job, &choice).unwrap();
        (prediction.seconds, prediction.slowest_stage)
    }

    #[test]
    fn memory_of_a_codec_is_missing_to_the_buffers() {
        let (machine, link) = (machine(1e9), Link::known(1e8, 0.0, 16));
        let predicted = |memory, threads| {
            let job = Job { bytes: 10 * GIB, sealed: false, prices: None, threads };
            let codec = &CodecSpeed { memory, ..codec(2e7, 0.5) };
            let choice = Choice { codec, chunk_size: 32 * MIB, parallel: 8, memory: 128 * MIB };
            predict(&machine, &link, &job, &choice).unwrap()
        };
        // With 4 times 16 MiB less, objects no longer fit in one request.
        let requests = |memory| predicted(memory, Some(4)).requests;
        assert!(requests(16 * MIB) > 2 * requests(0));
        // A run would have 3 threads, so that the codecs take at most half.
        let seconds = |threads| predicted(16 * MIB, threads).seconds;
        assert!(seconds(None) > 1.3 * seconds(Some(4)));
        assert!((seconds(None) - seconds(Some(3))).abs() < 1e-9);
    }

    #[test]
    fn the_slowest_stage_sets_the_pace() {
        // 100 GiB that halve: 50 GiB on a link of 100 MB/s are 537 s.
        let link = Link::known(1e8, 0.0, 16);
        let (took, by) = seconds(&link, 1e9, &codec(4e8, 0.5), 100 * GIB, 64 * MIB);
        assert!((537.0..545.0).contains(&took) && by == SlowestStage::Link, "{took}");
        // A codec of 40 MB/s on each of 4 threads: 671 s, and a little for the cipher.
        let (took, by) = seconds(&link, 1e9, &codec(4e7, 0.5), 100 * GIB, 64 * MIB);
        assert!((671.0..690.0).contains(&took) && by == SlowestStage::Cpu, "{took}");
        // A disk of 50 MB/s.
        let (took, by) = seconds(&link, 5e7, &codec(4e8, 0.5), 100 * GIB, 64 * MIB);
        assert!((2147.0..2160.0).contains(&took) && by == SlowestStage::Read, "{took}");
        // Latency weighs on small objects: 6400 requests of 1 s, 8 at a time, are 800 s.
        let far = Link::known(1e9, 1.0, 16);
        let (took, by) = seconds(&far, 1e9, &codec(4e8, 0.5), 100 * GIB, 8 * MIB);
        assert!((850.0..880.0).contains(&took) && by == SlowestStage::Link, "{took}");
    }

    #[test]
    fn a_small_backup_takes_no_longer_than_one_stage_after_the_other() {
        // 100 MB at 20 MB/s are 5 s, whether it is one object or several.
        let link = Link::known(2e7, 0.0, 16);
        let job = Job { bytes: 100_000_000, sealed: false, prices: None, threads: None };
        let codec = codec(1e9, 1.0);
        for memory in [128 * MIB, 512 * MIB] {
            for chunk_size in [16 * MIB, 64 * MIB, GIB] {
                let choice = Choice { codec: &codec, chunk_size, parallel: 8, memory };
                let took = predict(&machine(1e9), &link, &job, &choice).unwrap().seconds;
                assert!((5.0..=5.1 + 1e-9).contains(&took), "{memory} {chunk_size}: {took}");
            }
        }
    }

    #[test]
    fn parallel_requests_double_up_to_the_limit() {
        assert_eq!(counts(16), [1, 2, 4, 8, 16]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(0), [1]);
        let points = Link::known(1e6, 0.0, 3).points;
        assert_eq!(points.iter().map(|point| point.parallel).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn memory_that_is_too_small_is_refused() {
        let codec = codec(4e8, 0.5);
        let job = Job { bytes: GIB, sealed: false, prices: None, threads: None };
        let choice = Choice { codec: &codec, chunk_size: 64 * MIB, parallel: 8, memory: MIB };
        let refused = predict(&machine(1e9), &Link::known(1e9, 0.0, 16), &job, &choice);
        assert!(matches!(refused, Err(BackupError::Plan(_))));
    }

    #[test]
    fn points_between_measurements_are_those_below() {
        let points = vec![
            LinkPoint { parallel: 2, rate: 10.0, measured: 9.0 },
            LinkPoint { parallel: 8, rate: 30.0, measured: 9.0 },
        ];
        let link = Link { latency: 0.0, points, uploaded: 0, requests: 0 };
        assert_eq!([1, 2, 7, 8, 99].map(|n| link.rate(n)), [5.0, 10.0, 10.0, 30.0, 30.0]);
    }

    proptest! {
        #[test]
        fn more_of_anything_is_never_worse(
            rate in 1e4..1e10_f64, latency in 0.0..2.0_f64, read in 1e6..1e10_f64,
            speed in 1e6..1e10_f64, ratio in 0.0..=1.0_f64, bytes in 0_u64..(64 << 40),
            chunk in 1_u64..(5 << 30), better in 1.0..100.0_f64,
        ) {
            let link = Link::known(rate, latency, 16);
            let (took, _) = seconds(&link, read, &codec(speed, ratio), bytes, chunk);
            prop_assert!(took.is_finite() && took >= 0.0);
            let tolerance = took * 1e-9 + 1e-9;
            let others = [
                seconds(&Link::known(rate * better, latency, 16), read, &codec(speed, ratio), bytes, chunk),
                seconds(&Link::known(rate, latency / better, 16), read, &codec(speed, ratio), bytes, chunk),
                seconds(&link, read * better, &codec(speed, ratio), bytes, chunk),
                seconds(&link, read, &codec(speed * better, ratio), bytes, chunk),
                seconds(&link, read, &codec(speed, ratio), bytes / 2, chunk),
            ];
            for (other, _) in others {
                prop_assert!(other <= took + tolerance, "{} instead of {}", other, took);
            }
            // No stage is faster than its bytes.
            prop_assert!(took + tolerance >= bytes as f64 / read);
            prop_assert!(took + tolerance >= bytes as f64 * ratio / rate);
        }
    }
}
