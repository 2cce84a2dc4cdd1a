//! A worker's encoder, which changes its codec from frame to frame.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use xb_compressor::{Algorithm, BlockCodec, BlockEncoder, CodecError, RandomnessTest};

use super::levels::{Encoding, Probe, Rung};
use super::run::AutoCodec;
use crate::flow::plan::SLAB;

/// Encodes frames with the codec that the run chooses.
pub(crate) struct AutoEncoder {
    codec: AutoCodec,
    clock: ClockId,
    /// Runs since the worker took up the frame.
    begun: Stopwatch,
    snappy: BlockEncoder,
    lz4: BlockEncoder,
    zstd: BlockEncoder,
    random: RandomnessTest,
    /// Output of a probe, which is thrown away.
    discarded: Vec<u8>,
}

impl AutoEncoder {
    pub(crate) fn new(codec: AutoCodec) -> Result<Self, CodecError> {
        let clock = codec.clock();
        Ok(Self {
            codec,
            clock,
            begun: Stopwatch::start(clock),
            snappy: BlockEncoder::new(Algorithm::Snappy)?,
            lz4: BlockEncoder::new(Algorithm::Lz4)?,
            zstd: BlockEncoder::new(Rung::FIRST.algorithm())?,
            random: RandomnessTest::new(),
            discarded: Vec::new(),
        })
    }

    /// Length that the output must have for a slab.
    pub(crate) fn room(&self) -> usize {
        let encoders = [&self.snappy, &self.lz4, &self.zstd];
        let longest = encoders.map(|encoder| encoder.max_encoded_len(SLAB)).into_iter().max();
        longest.unwrap_or(0).max(RandomnessTest::room(SLAB))
    }

    /// Takes up the next frame.
    pub(crate) fn begin(&mut self) {
        self.begun = Stopwatch::start(self.clock);
    }

    /// Encodes a frame into the front of `out`. Returns its length and codec, or `None` if the
    /// frame must be stored uncompressed.
    pub(crate) fn encode(
        &mut self,
        plain: &[u8],
        out: &mut [u8],
    ) -> Result<Option<(usize, BlockCodec)>, CodecError> {
        let other = self.begun.seconds();
        let choice = self.codec.choose();
        let is_probed = choice.rung == Rung::STORED && choice.probe.is_some();
        if choice.rung.needs_test() || is_probed {
            let begun = Stopwatch::start(self.clock);
            let is_random = self.random.is_random(plain, out);
            self.codec.tested(plain.len(), begun.seconds());
            if is_random {
                self.codec.stored(plain.len(), other);
                return Ok(None);
            }
        }
        // Before the probe, which takes the tables of the codec in use from the processor's cache.
        let (len, chosen) = self.run(choice.rung, plain, out)?;
        // Data that a codec without a preceding test could not shrink may be random, too.
        if choice.rung != Rung::STORED && len.is_none() && RandomnessTest::is_flat(plain) {
            self.codec.stored(plain.len(), other + chosen.seconds);
            return Ok(None);
        }
        let probe = choice.probe.map(|rung| self.probe(rung, plain)).transpose()?;
        self.codec.encoded(&chosen, probe.as_ref(), other);
        Ok(len.zip(choice.rung.algorithm().block_codec()))
    }

    /// Encodes a frame twice, and counts the shorter time. The first time, the codec's tables are not in the
    /// processor's cache, where a codec in use finds them; and either time may include interrupts.
    fn probe(&mut self, rung: Rung, plain: &[u8]) -> Result<Probe, CodecError> {
        let mut discarded = std::mem::take(&mut self.discarded);
        discarded.resize(self.room(), 0);
        let first = self.run(rung, plain, &mut discarded);
        let second = self.run(rung, plain, &mut discarded);
        self.discarded = discarded;
        let (first, second) = (first?.1.seconds, second?.1);
        let seconds = first + second.seconds;
        Ok(Probe { encoding: Encoding { seconds: first.min(second.seconds), ..second }, seconds })
    }

    fn run(
        &mut self,
        rung: Rung,
        plain: &[u8],
        out: &mut [u8],
    ) -> Result<(Option<usize>, Encoding), CodecError> {
        let (begun, passing) = (Stopwatch::start(self.clock), Stopwatch::start(ClockId::Monotonic));
        let len = match rung.algorithm() {
            Algorithm::Snappy => self.snappy.encode(plain, out)?,
            Algorithm::Lz4 => self.lz4.encode(plain, out)?,
            Algorithm::Zstd(level) => {
                self.zstd.set_zstd_level(level)?;
                self.zstd.encode(plain, out)?
            }
            _ => None,
        };
        let seconds = begun.seconds();
        if rung != Rung::STORED {
            self.codec.ran(seconds, passing.seconds());
        }
        let stored = len.unwrap_or(plain.len());
        Ok((len, Encoding { rung, plain: plain.len(), stored, seconds }))
    }
}

/// Measures one step of the thread that started it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    clock: ClockId,
    begun: Duration,
}

impl Stopwatch {
    /// Starts with a clock that never goes back: the time that passes, or in which the thread runs.
    pub(super) fn start(clock: ClockId) -> Self {
        Self { clock, begun: read(clock) }
    }

    /// Returns the seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        read(self.clock).saturating_sub(self.begun).as_secs_f64()
    }
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
