//! Rungs of the ladder of codecs, and what each would cost and save on the current data.

use xb_compressor::{Algorithm, ZstdLevel};

use super::mean::Mean;

/// Number of rungs.
pub(super) const RUNGS: usize = 11;

/// A codec with its level. A higher rung saves more bytes and takes more time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rung(usize);

impl Rung {
    /// Frames are stored uncompressed.
    pub(crate) const STORED: Self = Self(0);
    const SNAPPY: usize = 1;
    const LZ4: usize = 2;
    /// Zstd at level 1, where every run begins.
    pub(crate) const FIRST: Self = Self(3);

    /// Zstd at level 8. Level 9 needs twice as much memory, which each worker would have to set aside,
    /// and saves less than 1 % more.
    pub(crate) const STRONGEST: Self = Self(RUNGS - 1);

    pub(super) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..RUNGS).map(Self)
    }

    /// Rungs at most `steps` away, without this one.
    pub(super) fn neighbours(self, steps: usize) -> impl Iterator<Item = Self> {
        Self::all().filter(move |rung| *rung != self && rung.0.abs_diff(self.0) <= steps)
    }

    /// The rung `steps` further up, or the highest.
    #[cfg(test)]
    pub(super) fn stronger(self, steps: usize) -> Self {
        Self(self.0 + steps).min(Self::STRONGEST)
    }

    pub(crate) fn algorithm(self) -> Algorithm {
        match self.0 {
            0 => Algorithm::None,
            Self::SNAPPY => Algorithm::Snappy,
            Self::LZ4 => Algorithm::Lz4,
            higher => Algorithm::Zstd(zstd_level(higher)),
        }
    }

    /// Returns whether frames are tested before this codec, because it takes long for random ones. Snappy and LZ4 skip
    /// them almost as quickly as the test does.
    pub(super) fn needs_test(self) -> bool {
        self.0 > Self::LZ4
    }

    pub(super) fn index(self) -> usize {
        self.0
    }
}

fn zstd_level(rung: usize) -> ZstdLevel {
    u8::try_from(rung - Rung::LZ4).ok().and_then(ZstdLevel::new).unwrap_or_default()
}

/// Starting values relative to zstd:1, typical of table pages: the time per byte, and the exponent
/// by which the compression ratio of zstd:1 becomes that of the rung. Measurements replace them.
const TYPICAL: [(f64, f64); RUNGS] = [
    (0.0, 0.0),
    (0.55, 0.68),
    (0.60, 0.72),
    (1.00, 1.00),
    (1.15, 1.03),
    (1.70, 1.08),
    (2.00, 1.09),
    (3.30, 1.12),
    (4.30, 1.14),
    (5.50, 1.16),
    (6.50, 1.165),
];

/// Latest frames that the estimates remember. With fewer, the share of random frames would be noisy; with
/// more, changed data would be noticed too late.
const FRAMES: f64 = 30.0;
/// Weight of a new comparison of two rungs on the same frame.
const COMPARISON: f64 = 0.25;
/// A frame that shrinks less than this reveals nothing about the relation of two rungs.
const SHRINKS: f64 = 0.97;

/// A frame as one rung encoded it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoding {
    pub(crate) rung: Rung,
    /// Bytes before and after.
    pub(crate) plain: usize,
    pub(crate) stored: usize,
    /// Seconds that the codec took.
    pub(crate) seconds: f64,
}

/// A frame as a rung that is not in use encoded it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    /// The result, and the time that a codec in use would take.
    pub(crate) encoding: Encoding,
    /// Seconds that the probe took.
    pub(crate) seconds: f64,
}

impl Encoding {
    /// Natural logarithm of the compression ratio, at most 0.
    fn log_ratio(&self) -> f64 {
        (self.stored.max(1) as f64 / self.plain.max(1) as f64).ln().min(0.0)
    }

    fn shrinks(&self) -> bool {
        self.log_ratio() < SHRINKS.ln()
    }
}

/// Estimates for all rungs, from the frames of a few of them.
#[derive(Debug)]
pub(super) struct Levels {
    relative: [(f64, f64); RUNGS],
    /// Seconds per byte and logarithm of the ratio of zstd:1, without random frames.
    base: (Mean, Mean),
    /// Share of the frames that look random, which no rung compresses.
    random: Mean,
    /// Seconds per byte of the work apart from the codec, without the test for random frames.
    other: Mean,
    /// Seconds per byte of that test, which some rungs do without.
    test: Mean,
}

impl Levels {
    pub(super) fn new() -> Self {
        let [time, log_ratio, random, other, test] = [Mean::new(0.0, FRAMES); 5];
        Self { relative: TYPICAL, base: (time, log_ratio), random, other, test }
    }

    /// Learns from a frame that was encoded. `other` is the time that the worker spent on it apart
    /// from the codec, in seconds.
    pub(super) fn frame(&mut self, encoding: &Encoding, other: f64) {
        self.work(encoding.plain, other);
        self.codec(encoding);
    }

    fn codec(&mut self, encoding: &Encoding) {
        let Encoding { rung, plain, seconds, .. } = *encoding;
        let (cost, exponent) = self.relative(rung);
        if rung == Rung::STORED || plain == 0 {
            return;
        }
        self.random.add(0.0, 1.0);
        self.base.0.add(seconds / plain as f64 / cost, 1.0);
        self.base.1.add(encoding.log_ratio() / exponent, 1.0);
    }

    /// Learns from a frame that looked random and was stored.
    pub(super) fn random_frame(&mut self, plain: usize, other: f64) {
        self.random.add(1.0, 1.0);
        self.work(plain, other);
    }

    /// Learns the seconds that the test for random frames took.
    pub(super) fn tested(&mut self, plain: usize, seconds: f64) {
        self.test.add(seconds / plain.max(1) as f64, 1.0);
    }

    fn work(&mut self, plain: usize, other: f64) {
        self.other.add(other / plain.max(1) as f64, 1.0);
    }

    /// Learns the relation of two rungs that encoded the same frame.
    pub(super) fn compare(&mut self, probe: &Encoding, chosen: &Encoding) {
        if chosen.rung == Rung::STORED {
            return self.codec(probe);
        }
        if probe.rung == Rung::STORED || !chosen.shrinks() || chosen.seconds <= 0.0 {
            return;
        }
        let (cost, exponent) = self.relative(chosen.rung);
        let Some(relative) = self.relative.get_mut(probe.rung.index()) else { return };
        let saved = exponent * probe.log_ratio() / chosen.log_ratio();
        mix(
            &mut relative.0,
            (cost * probe.seconds / chosen.seconds).clamp(0.01, 100.0),
            COMPARISON,
        );
        mix(&mut relative.1, saved.clamp(0.1, 10.0), COMPARISON);
    }

    /// Compression ratio of a rung: stored bytes per plain byte.
    pub(super) fn ratio(&self, rung: Rung) -> f64 {
        let random = self.random.value();
        random + (1.0 - random) * (self.base.1.value() * self.relative(rung).1).exp()
    }

    /// Seconds that a worker takes for a byte with a rung.
    pub(super) fn seconds(&self, rung: Rung) -> f64 {
        let test = if rung.needs_test() { self.test.value() } else { 0.0 };
        self.other.value() + test + self.codec_seconds(rung)
    }

    /// Seconds per byte of the codec alone.
    pub(super) fn codec_seconds(&self, rung: Rung) -> f64 {
        (1.0 - self.random.value()) * self.base.0.value() * self.relative(rung).0
    }

    fn relative(&self, rung: Rung) -> (f64, f64) {
        self.relative.get(rung.index()).copied().unwrap_or((1.0, 1.0))
    }
}

/// Moves an average towards `new`.
fn mix(average: &mut f64, new: f64, weight: f64) {
    *average += (new - *average) * weight;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(rung: usize, stored: usize, seconds: f64) -> Encoding {
        Encoding { rung: Rung(rung), plain: 1000, stored, seconds }
    }

    #[test]
    fn the_ladder_is_in_order_of_strength() {
        let names: Vec<_> = Rung::all().map(|rung| rung.algorithm().to_string()).collect();
        assert_eq!(names[..4], ["none", "snappy", "lz4", "zstd:1"]);
        assert_eq!(Rung::STRONGEST.algorithm().to_string(), "zstd:8");
        assert_eq!(Rung::FIRST.algorithm().to_string(), "zstd:1");
        assert!(TYPICAL.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn frames_of_one_rung_tell_about_the_others() {
        let mut levels = Levels::new();
        (0..50).for_each(|_| levels.frame(&encoding(3, 400, 1e-3), 0.0));
        assert!((levels.ratio(Rung(3)) - 0.4).abs() < 1e-6);
        assert!(levels.ratio(Rung::STRONGEST) < 0.4 && levels.ratio(Rung(1)) > 0.4);
        assert!((levels.ratio(Rung::STORED) - 1.0).abs() < 1e-6);
        assert!(levels.seconds(Rung::STRONGEST) > 5.0 * levels.seconds(Rung(3)));
    }

    #[test]
    fn comparisons_replace_the_typical_values() {
        let mut levels = Levels::new();
        for _ in 0..50 {
            let chosen = encoding(3, 400, 1e-3);
            levels.frame(&chosen, 0.0);
            levels.compare(&encoding(5, 200, 9e-3), &chosen);
        }
        assert!((levels.ratio(Rung(5)) - 0.2).abs() < 1e-3);
        assert!((levels.seconds(Rung(5)) / levels.seconds(Rung(3)) - 9.0).abs() < 1e-3);
    }

    #[test]
    fn random_frames_dilute_the_ratio() {
        let mut levels = Levels::new();
        for _ in 0..100 {
            levels.frame(&encoding(3, 500, 1e-3), 0.0);
            levels.random_frame(1000, 0.0);
        }
        assert!((levels.ratio(Rung(3)) - 0.75).abs() < 0.05);
    }
}
