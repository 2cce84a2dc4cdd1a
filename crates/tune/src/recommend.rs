//! Recommends settings: predicts the effect of all possible ones, and keeps the best.

use serde::Serialize;

use crate::machine::Machine;
use crate::model::{Choice, Job, Link, Prediction, predict};
use xb_backup::BackupError;

/// A duration so much longer than the shortest one still counts as equal: measurements vary more.
const AS_FAST: f64 = 1.05;
/// A cost so much higher than the lowest one still counts as equal.
const AS_CHEAP: f64 = 1.01;

/// Values to choose from; none may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// Object sizes in bytes.
    pub chunk_sizes: Vec<u64>,
    /// Numbers of parallel requests.
    pub parallel: Vec<usize>,
    /// Memory budgets in bytes.
    pub memory: Vec<u64>,
}

/// The recommended settings, and the predictions for others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The recommended settings.
    pub best: Prediction,
    /// Each codec, the other settings as recommended; or if its memory does not allow these, the best
    /// for it.
    pub compress: Vec<Prediction>,
    /// Each object size, the other settings as recommended.
    pub chunk_size: Vec<Prediction>,
    /// Each number of parallel requests, the other settings as recommended.
    pub parallel: Vec<Prediction>,
    /// Each memory budget, the other settings as recommended.
    pub memory: Vec<Prediction>,
}

/// Recommends settings: of all that take at most 5 % longer than the fastest ones, those that cost
/// least for the requests of one backup and a month of storage (without prices: that store least); of
/// those within 1 % of that, those with the least memory, then the fewest parallel requests, then the
/// least CPU time, then the fewest requests in all.
///
/// # Errors
/// [`BackupError::Plan`] if no setting fits into the memory.
pub fn recommend(
    machine: &Machine,
    link: &Link,
    job: &Job,
    candidates: &Candidates,
) -> Result<Recommendation, BackupError> {
    let mut possible: Vec<Prediction> = Vec::new();
    let mut refused = None;
    for codec in &machine.codecs {
        for &chunk_size in &candidates.chunk_sizes {
            for &parallel in &candidates.parallel {
                for &memory in &candidates.memory {
                    let choice = Choice { codec, chunk_size, parallel, memory };
                    match predict(machine, link, job, &choice) {
                        Ok(prediction) => possible.push(prediction),
                        Err(error) => refused = Some(error),
                    }
                }
            }
        }
    }
    let Some(best) = best_of(possible.iter()).cloned() else {
        return Err(refused.unwrap_or(BackupError::Bug("there are no settings to choose from")));
    };
    let like_best = |differs: fn(&Prediction) -> [u64; 3]| {
        possible
            .iter()
            .filter(|one| one.compress == best.compress && differs(one) == differs(&best))
            .cloned()
            .collect()
    };
    let settings = |one: &Prediction| (one.chunk_size, one.parallel, one.memory);
    let compress = machine.codecs.iter().filter_map(|codec| {
        let own = || possible.iter().filter(|one| one.compress == codec.compress);
        let like_best = own().find(|one| settings(one) == settings(&best));
        like_best.or_else(|| best_of(own())).cloned()
    });
    Ok(Recommendation {
        compress: compress.collect(),
        chunk_size: like_best(|one| [one.parallel as u64, one.memory, 0]),
        parallel: like_best(|one| [one.chunk_size, one.memory, 0]),
        memory: like_best(|one| [one.chunk_size, one.parallel as u64, 0]),
        best,
    })
}

/// The best of some predictions, by the rule of [`recommend`].
fn best_of<'a>(all: impl Iterator<Item = &'a Prediction> + Clone) -> Option<&'a Prediction> {
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let fastest = least(&mut all.clone().map(|one| one.seconds));
    let fast = all.filter(move |one| one.seconds <= fastest * AS_FAST);
    let cheapest = least(&mut fast.clone().map(price));
    let rest = |one: &Prediction| (one.requests, one.stored);
    fast.filter(move |one| price(one) <= cheapest * AS_CHEAP).min_by(|a, b| {
        let modest = (a.memory, a.parallel).cmp(&(b.memory, b.parallel));
        modest.then(a.cpu.total_cmp(&b.cpu)).then_with(|| rest(a).cmp(&rest(b)))
    })
}

/// Cost of a backup, or without prices the bytes that it stores.
fn price(one: &Prediction) -> f64 {
    match (one.cost_backup, one.cost_storage_month) {
        (Some(backup), Some(month)) => backup + month,
        _ => one.stored as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CodecSpeed;
    use crate::price_table::PRICE_TABLE;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn candidates() -> Candidates {
        Candidates {
            chunk_sizes: vec![16 * MIB, 64 * MIB, 256 * MIB],
            parallel: vec![1, 4, 8, 16],
            memory: vec![128 * MIB, 512 * MIB],
        }
    }

    fn machine() -> Machine {
        let codec = |compress: &str, speed, ratio| CodecSpeed {
            compress: compress.into(),
            speed,
            ratio,
            memory: 0,
        };
        let codecs = vec![
            codec("none", 5e9, 1.0),
            codec("lz4", 8e8, 0.6),
            codec("zstd:1", 4e8, 0.4),
            codec("zstd:9", 3e7, 0.34),
        ];
        Machine { threads: 4, read: 2e9, codecs, seal: 2e9 }
    }

    fn best(rate: f64) -> Recommendation {
        let job = Job {
            bytes: 100 << 30,
            sealed: true,
            prices: Some(PRICE_TABLE[0].prices),
            threads: None,
        };
        recommend(&machine(), &Link::known(rate, 0.02, 16), &job, &candidates()).unwrap()
    }

    #[test]
    fn a_thin_link_wants_a_strong_codec_and_a_fat_one_a_fast_codec() {
        assert_eq!(best(1e7).best.compress, "zstd:9");
        assert_eq!(best(2e8).best.compress, "zstd:1");
        assert_eq!(best(1e10).best.compress, "lz4");
    }

    #[test]
    fn the_tables_hold_the_recommended_settings() {
        let found = best(2e8);
        assert_eq!(found.compress.len(), 4);
        assert_eq!(found.chunk_size.len(), 3);
        assert_eq!(found.parallel.len(), 4);
        assert_eq!(found.memory.len(), 2);
        for table in [&found.compress, &found.chunk_size, &found.parallel, &found.memory] {
            assert_eq!(table.iter().filter(|one| **one == found.best).count(), 1, "{table:?}");
        }
    }

    #[test]
    fn of_codecs_as_fast_and_as_cheap_the_one_with_less_work_wins() {
        let codec = |compress: &str, speed, ratio| CodecSpeed {
            compress: compress.into(),
            speed,
            ratio,
            memory: 0,
        };
        let codecs = vec![codec("zstd:3", 2e8, 0.500), codec("zstd:5", 1e8, 0.499)];
        let machine = Machine { codecs, ..machine() };
        let job = Job { bytes: 100 << 30, sealed: false, prices: None, threads: None };
        let found = recommend(&machine, &Link::known(1e7, 0.02, 16), &job, &candidates()).unwrap();
        assert_eq!(found.best.compress, "zstd:3");
    }

    #[test]
    fn the_table_of_codecs_holds_them_if_another_codec_is_faster() {
        let job = Job { bytes: 88_088_554, sealed: false, prices: None, threads: None };
        let link = Link::known(7_879_625_921.0, 0.924_365_590_769_649_3, 16);
        let found = recommend(&machine(), &link, &job, &candidates()).unwrap();
        assert!(found.compress.contains(&found.best), "{found:?}");
    }

    #[test]
    fn without_room_it_says_so() {
        let job = Job { bytes: 1 << 30, sealed: false, prices: None, threads: None };
        let small = Candidates { memory: vec![MIB], ..candidates() };
        let refused = recommend(&machine(), &Link::known(1e9, 0.0, 16), &job, &small);
        assert!(matches!(refused, Err(BackupError::Plan(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_is_much_faster_or_as_fast_and_cheaper(
            rate in 1e5..1e10_f64, latency in 0.0..1.0_f64, bytes in 1_u64..(1 << 44), sealed: bool,
            priced: bool,
        ) {
            let job = Job { bytes, sealed, prices: priced.then_some(PRICE_TABLE[1].prices), threads: None };
            let found = recommend(&machine(), &Link::known(rate, latency, 16), &job, &candidates()).unwrap();
            for table in [&found.compress, &found.chunk_size, &found.parallel, &found.memory] {
                prop_assert!(table.contains(&found.best));
                for other in table {
                    prop_assert!(found.best.seconds <= other.seconds * AS_FAST * (1.0 + 1e-9));
                    let as_fast = other.seconds <= found.best.seconds / AS_FAST;
                    prop_assert!(!as_fast || price(&found.best) <= price(other) * AS_CHEAP * (1.0 + 1e-9));
                }
            }
        }
    }
}
