//! `tune`: measures this machine and the link to a store, and recommends options.

use std::path::Path;
use std::time::Duration;

use xb_backup::{
    CancelToken, Candidates, Job, LinkBounds, Sample, StoreLink, TuneError, measure_link,
    measure_machine, recommend,
};
use xb_cli::Failure;

use crate::args::TuneArgs;
use crate::commands::context::{Context, threads};
use crate::commands::inspect::price_options::{priced, provider_of};
use crate::commands::inspect::tune_report::TuneReport;
use crate::limits::default_memory;
use crate::place::{locate, root_place};
use crate::report;

/// Object sizes to choose from.
const CHUNK_SIZES: [u64; 5] = [16 << 20, 32 << 20, 64 << 20, 256 << 20, 1 << 30];
/// Memory budgets to choose from, below the largest one allowed.
const MEMORY: [u64; 4] = [128 << 20, 256 << 20, 512 << 20, 1 << 30];
/// Fewest parallel requests to recommend, if more are allowed.
const LEAST_PARALLEL: usize = 4;
/// Time to measure one codec.
const CODEC_TIME: Duration = Duration::from_millis(400);
/// Retries of a request: a store that is not there should be reported soon.
const RETRIES: u32 = 2;

impl Context {
    pub(crate) fn tune(&self, args: &mut TuneArgs) -> Result<(), Failure> {
        let run = &mut args.common.run;
        if run.max_retries.is_none() && run.retry_timeout.is_none() {
            run.max_retries = Some(RETRIES);
        }
        let args = &*args;
        let store = &args.common.store;
        let named = args.place.is_some() || store.root.is_some() || store.storage.is_some();
        if args.link.is_none() && !named {
            return Err(Failure::usage("neither a store nor --link is given").hint(
                "add ROOT, such as s3://bucket/shop, or --link with the bytes per second of the link",
            ));
        }
        let place = args.place.as_deref().unwrap_or_default();
        let default = match args.link {
            Some(_) if !named => None,
            _ => provider_of(&locate(place, store)?.place),
        };
        let prices = priced(&args.prices, default)?;
        // Opened first: a wrong place should not show only after everything else.
        let root = match args.link {
            None => Some(root_place(args.place.as_deref(), &args.common)?),
            Some(_) => None,
        };
        let sample = sample(args)?;
        let threads = threads(&args.common.run);
        self.log.verbose(format!("measuring codecs and cipher with {threads} threads"));
        let machine = measure_machine(&sample, threads, CODEC_TIME).map_err(failure)?;
        let link = match (root, args.link) {
            (Some(root), _) => {
                let bounds = LinkBounds {
                    bytes: args.upload_size.bytes(),
                    time: Duration::from_secs(args.upload_time),
                    parallel: usize::from(args.max_parallel),
                };
                let measure =
                    |_, stop: CancelToken| async move { measure_link(&root, bounds, stop).await };
                self.with_progress("tune", &args.common.run, None, measure)?.0
            }
            (None, rate) => {
                let rate = rate.map_or(0.0, |rate| rate.bytes() as f64);
                StoreLink::known(rate, Duration::from_millis(args.latency).as_secs_f64())
            }
        };
        let job = Job {
            bytes: args.size.map_or(sample.total, |size| size.bytes()),
            sealed: args.sealed,
            prices: prices.as_ref().map(|priced| priced.prices),
            threads: args.common.run.threads,
        };
        let candidates = Candidates {
            chunk_sizes: CHUNK_SIZES.into(),
            parallel: enough(link.points.iter().map(|point| point.parallel).collect()),
            memory: budgets(args.max_memory.map_or_else(default_memory, |size| size.bytes())),
        };
        let found = recommend(&machine, &link, &job, &candidates).map_err(report::failure)?;
        let report = TuneReport { sample: &sample, machine, link, job, prices, found };
        report::printed(report.print(args.common.run.json))
    }
}

/// Leaves out numbers of requests so small that one slow request would hold up everything.
fn enough(mut parallel: Vec<usize>) -> Vec<usize> {
    let least = parallel.iter().copied().max().unwrap_or(1).min(LEAST_PARALLEL);
    parallel.retain(|number| *number >= least);
    parallel
}

/// Memory budgets up to `most`.
fn budgets(most: u64) -> Vec<u64> {
    let below = MEMORY.into_iter().filter(|memory| *memory < most);
    below.chain([most]).collect()
}

fn sample(args: &TuneArgs) -> Result<Sample, Failure> {
    let limit = args.sample_size.bytes();
    let sample = match (&args.sample, &args.data_dir) {
        (Some(file), _) => Sample::of_file(file, limit),
        (None, Some(folder)) => Sample::of_folder(folder, limit),
        (None, None) if has_input() => {
            Sample::of_stream(std::io::stdin().lock(), Path::new("standard input"), limit)
        }
        (None, None) => {
            return Err(Failure::usage("no sample of the data is given").hint(
                "give a data directory with --data-dir or a stream with --sample, or pipe a stream into it",
            ));
        }
    };
    sample.map_err(failure)
}

/// Whether standard input is a pipe, a socket or a file.
fn has_input() -> bool {
    use rustix::fs::FileType;
    rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        matches!(kind, FileType::Fifo | FileType::Socket | FileType::RegularFile)
    })
}

fn failure(error: TuneError) -> Failure {
    let hint = match &error {
        TuneError::Read { .. } => "run `tune` as a user who may read it, or sample something else",
        TuneError::Empty { .. } => {
            "give a data directory with --data-dir or a stream with --sample"
        }
        _ => return Failure::new(error.to_string()).stage("measure"),
    };
    Failure::new(error.to_string()).stage("sample").hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_parallel_requests_are_only_for_those_who_ask() {
        assert_eq!(enough(vec![1, 2, 4, 8]), [4, 8]);
        assert_eq!(enough(vec![1, 2, 3]), [3]);
        assert_eq!(enough(vec![1]), [1]);
    }

    #[test]
    fn budgets_end_with_the_largest_one_allowed() {
        assert_eq!(budgets(512 << 20), [128 << 20, 256 << 20, 512 << 20]);
        assert_eq!(budgets(100), [100]);
        assert_eq!(budgets(300 << 20), [128 << 20, 256 << 20, 300 << 20]);
    }
}
