//! Speed of codecs and cipher on this machine, measured with a sample.

use std::time::{Duration, Instant};

use serde::Serialize;
use xb_compressor::{Algorithm, BlockEncoder, Compression, ZstdLevel};
use xb_encryptor::{Backend, FreshKey, SealContext, SealStream, new_stream_id};
use xb_pipeline::{codec_memory, sums};

use crate::error::TuneError;
use crate::sample::{BLOCK, Sample};

/// Levels of zstd that are measured. Those between differ little from their neighbours.
const ZSTD_LEVELS: [u8; 6] = [1, 2, 3, 5, 7, 9];

/// Rounds in which all codecs take turns; the median of their speeds counts. Other work on the machine
/// comes and goes, and should not hit one codec alone.
const ROUNDS: u32 = 3;

/// Blocks that every codec compresses, however slow it is: only of the same data are ratios comparable.
const FOR_RATIO: usize = 32;

/// Measured speed of a codec.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodecSpeed {
    /// Value of `--compress`.
    pub compress: String,
    /// Plain bytes per second and thread, with all threads at work. Checksums are included.
    pub speed: f64,
    /// Bytes after compression per plain byte.
    pub ratio: f64,
    /// Memory in bytes that each thread needs for the codec.
    pub memory: u64,
}

/// Measurements of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Worker threads that worked at the same time.
    pub threads: usize,
    /// Bytes per second at which the data is read or arrives.
    pub read: f64,
    /// The codecs, `none` first.
    pub codecs: Vec<CodecSpeed>,
    /// Bytes per second and thread that the cipher seals, with all threads at work.
    pub seal: f64,
}

/// Measures the codecs and the cipher with `threads` threads, each for about `each`.
///
/// # Errors
/// [`TuneError`] if a codec or the cipher fails.
pub fn measure_machine(
    sample: &Sample,
    threads: usize,
    each: Duration,
) -> Result<Machine, TuneError> {
    let blocks = spread(sample);
    let mut works = vec![Vec::new(); algorithms().len()];
    for round in 0..ROUNDS {
        // The ratio is the same in every round.
        let needed = if round == 0 { blocks.len().min(FOR_RATIO) } else { 0 };
        for (algorithm, works) in algorithms().into_iter().zip(&mut works) {
            works.push(encode(algorithm, &blocks, threads, each / ROUNDS, needed)?);
        }
    }
    let codecs = algorithms().into_iter().zip(works).map(|(algorithm, works)| CodecSpeed {
        compress: algorithm.to_string(),
        speed: median(works.iter().map(Work::speed).collect()),
        ratio: works.first().map_or(1.0, Work::ratio),
        memory: codec_memory(Compression::Fixed(algorithm)),
    });
    let codecs = codecs.collect();
    let seal = at_once(&blocks, threads, each, 0, || {
        let stream_id = new_stream_id()?;
        let fresh = FreshKey::generate()?;
        let commitment = fresh.key().commitment(&stream_id);
        let context = SealContext { stream_id, commitment, header: &[0; 128] };
        let mut stream = SealStream::new(fresh.sealer(&context, Backend::default())?.0)?;
        let mut out = Vec::with_capacity(2 * BLOCK);
        Ok(move |plain: &[u8]| {
            out.clear();
            stream.push(plain, &mut out)?;
            Ok(plain.len())
        })
    })?;
    Ok(Machine { threads: threads.max(1), read: sample.read, codecs, seal: seal.speed() })
}

/// Measures one codec once.
fn encode(
    algorithm: Algorithm,
    blocks: &[&[u8]],
    threads: usize,
    each: Duration,
    needed: usize,
) -> Result<Work, TuneError> {
    at_once(blocks, threads, each, needed, || {
        let mut encoder = BlockEncoder::new(algorithm)?;
        let mut out = vec![0; encoder.max_encoded_len(BLOCK)];
        Ok(move |plain: &[u8]| {
            std::hint::black_box((sums::crc32(plain), sums::crc64(plain)));
            Ok(encoder.encode(plain, &mut out)?.unwrap_or(plain.len()))
        })
    })
}

/// The middle one of some numbers, or 1.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(1.0)
}

fn algorithms() -> Vec<Algorithm> {
    let zstd = ZSTD_LEVELS.into_iter().filter_map(ZstdLevel::new).map(Algorithm::Zstd);
    [Algorithm::None, Algorithm::Lz4, Algorithm::Snappy].into_iter().chain(zstd).collect()
}

/// The blocks in an order in which any first few come from all over the sample.
fn spread(sample: &Sample) -> Vec<&[u8]> {
    let len = sample.blocks.len();
    let step = (len * 5 / 8..=len).find(|step| coprime(*step, len)).unwrap_or(1);
    let order = (0..len).map(|n| n * step % len);
    order.filter_map(|n| sample.blocks.get(n)).map(Vec::as_slice).collect()
}

fn coprime(a: usize, b: usize) -> bool {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// Total work of the threads of a measurement.
#[derive(Debug, Default, Clone, Copy)]
struct Work {
    plain: u64,
    /// Length of the blocks for the ratio, after and before compression.
    stored: u64,
    of: u64,
    /// Time of all threads in seconds.
    busy: f64,
}

impl Work {
    /// Plain bytes per second and thread; at least 1.
    fn speed(&self) -> f64 {
        (self.plain as f64 / self.busy.max(1e-9)).max(1.0)
    }

    /// Bytes after compression per plain byte.
    fn ratio(&self) -> f64 {
        self.stored as f64 / self.of.max(1) as f64
    }
}

/// Lets `threads` threads work on the blocks in turn for about `each`, and on the first `needed`, for
/// the ratio, however long they take.
fn at_once<F>(
    blocks: &[&[u8]],
    threads: usize,
    each: Duration,
    needed: usize,
    make: impl Fn() -> Result<F, TuneError> + Sync,
) -> Result<Work, TuneError>
where
    F: FnMut(&[u8]) -> Result<usize, TuneError>,
{
    let threads = threads.max(1);
    let one = |thread: usize| -> Result<Work, TuneError> {
        let mut encode = make()?;
        let mut work = Work::default();
        let begin = Instant::now();
        for (n, plain) in blocks.iter().cycle().enumerate().skip(thread).step_by(threads) {
            if n >= needed && begin.elapsed() >= each && work.plain > 0 {
                break;
            }
            let stored = encode(plain)? as u64;
            work.plain += plain.len() as u64;
            if n < needed {
                work.stored += stored;
                work.of += plain.len() as u64;
            }
        }
        work.busy = begin.elapsed().as_secs_f64();
        Ok(work)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || one(n))).collect();
        let mut all = Work::default();
        for thread in running {
            let work = match thread.join() {
                Ok(work) => work?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            all.plain += work.plain;
            all.stored += work.stored;
            all.of += work.of;
            all.busy += work.busy;
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_data() {
        let mut random = vec![0; BLOCK];
        getrandom::fill(&mut random).unwrap();
        let text = b"one row of a table after the other, ".repeat(BLOCK / 36 + 1)[..BLOCK].to_vec();
        let of = |block: &[u8]| {
            let blocks = vec![block.to_vec(); 3];
            let sample = Sample { blocks, total: 3 * BLOCK as u64, files: None, read: 1e9 };
            measure_machine(&sample, 2, Duration::ZERO).unwrap()
        };
        let (random, text) = (of(&random), of(&text));
        for machine in [&random, &text] {
            assert_eq!(machine.codecs[0].compress, "none");
            assert!((machine.codecs[0].ratio - 1.0).abs() < 1e-9);
            assert!(machine.codecs.iter().all(|codec| codec.speed > 1.0 && codec.ratio <= 1.0));
            assert!(machine.seal > 1.0);
        }
        assert!(random.codecs.iter().all(|codec| codec.ratio > 0.99));
        assert!(text.codecs.iter().skip(1).all(|codec| codec.ratio < 0.1), "{text:?}");
    }

    #[test]
    fn every_block_has_its_turn() {
        for len in 1..40 {
            let blocks: Vec<Vec<u8>> = (0..len).map(|n| vec![n]).collect();
            let sample = Sample { blocks, total: 1, files: None, read: 1.0 };
            let mut seen: Vec<u8> = spread(&sample).into_iter().map(|block| block[0]).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<u8>>());
        }
    }
}
