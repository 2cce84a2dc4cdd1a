//! `tune`: measures this machine and the link to a store, and recommends options.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FileType;
use xb_backup::{CancelToken, Resources, put_plan};
use xb_cli::{Failure, format_size};
use xb_pipeline::ObjectSize;
use xb_repo::root::Root;
use xb_tune::{
    Candidates, Job, Link as StoreLink, LinkBounds, Sample, TuneError, measure_link,
    measure_machine, recommend,
};

use crate::args::TuneArgs;
use crate::commands::context::{Context, threads};
use crate::commands::inspect::price_options::{priced, provider_of};
use crate::commands::inspect::tune_report::TuneReport;
use crate::limits::default_memory;
use crate::location::{locate, root_place};
use crate::report;

/// Object sizes to choose from.
const CHUNK_SIZES: [u64; 5] = [16 << 20, 32 << 20, 64 << 20, 256 << 20, 1 << 30];
/// Memory budgets to choose from, below the largest one allowed.
const MEMORY: [u64; 4] = [128 << 20, 256 << 20, 512 << 20, 1 << 30];
/// Fewest parallel requests to recommend, if more are allowed.
const LEAST_PARALLEL: usize = 4;
/// Time to measure one codec.
const CODEC_TIME: Duration = Duration::from_millis(400);
/// Smallest sample that says anything about codecs: one frame.
const LEAST_SAMPLE: u64 = 1 << 20;
/// Retries of a request: a store that is not there should be reported soon.
const RETRIES: u32 = 2;

impl Context {
    pub(crate) fn tune(&self, args: &mut TuneArgs) -> Result<(), Failure> {
        report::can_print()?;
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
            _ => provider_of(&locate(place, store)?.place, &args.common)?,
        };
        let prices = priced(&args.prices, default)?;
        // Opened first: a wrong place should not show only after everything else.
        let root = match args.link {
            None => Some(root_place(args.place.as_deref(), &args.common)?),
            Some(_) => None,
        };
        let memory = budgets(args.max_memory.map_or_else(default_memory, |size| size.bytes()));
        check_memory(&memory)?;
        let source = source(args)?;
        // A producer on standard input waits, so that it is not ended if the store fails.
        let (sample, link) = match source {
            Source::Stdin(file) => {
                let link = self.link(args, root)?;
                let name = Path::new("standard input");
                let sample = Sample::of_input(file, name, args.sample_size.bytes());
                (sample.map_err(failure)?, link)
            }
            Source::Files => (sample(args).map_err(failure)?, self.link(args, root)?),
        };
        if sample.len() < LEAST_SAMPLE {
            return Err(Failure::new(format!(
                "the sample has only {}, at least {} are needed",
                format_size(sample.len()),
                format_size(LEAST_SAMPLE)
            ))
            .stage("sample")
            .hint("sample a data directory or a longer stream"));
        }
        let threads = threads(&args.common.run);
        self.log.verbose(format!("measuring codecs and cipher with {threads} threads"));
        let machine = measure_machine(&sample, threads, CODEC_TIME).map_err(failure)?;
        let job = Job {
            bytes: args.size.map_or(sample.total, |size| size.bytes()),
            sealed: args.sealed,
            prices: prices.as_ref().map(|priced| priced.prices),
            threads: args.common.run.threads,
        };
        let candidates = Candidates {
            chunk_sizes: CHUNK_SIZES.into(),
            parallel: enough(link.points.iter().map(|point| point.parallel).collect()),
            memory,
        };
        let found = recommend(&machine, &link, &job, &candidates).map_err(report::failure)?;
        let report = TuneReport { sample: &sample, machine, link, job, prices, found };
        report::printed(report.print(args.common.run.json))
    }

    /// Measures the link to `root`, or takes it as given.
    fn link(&self, args: &TuneArgs, root: Option<Root>) -> Result<StoreLink, Failure> {
        let most = usize::from(args.max_parallel);
        let Some(root) = root else {
            let rate = args.link.map_or(1.0, |rate| rate.bytes() as f64);
            let latency = Duration::from_millis(args.latency).as_secs_f64();
            return Ok(StoreLink::known(rate, latency, most));
        };
        let bounds = LinkBounds {
            bytes: args.upload_size.bytes(),
            time: Duration::from_secs(args.upload_time),
            parallel: most,
        };
        let measure =
            |_, cancel: CancelToken| async move { measure_link(&root, bounds, cancel).await };
        Ok(self.with_progress("tune", &args.common.run, None, measure)?.0)
    }
}

/// Source of the sample.
enum Source {
    /// `--sample` or `--data-dir`.
    Files,
    Stdin(File),
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

/// Refuses budgets that are too small for any setting, before anything is measured.
fn check_memory(budgets: &[u64]) -> Result<(), Failure> {
    let memory = budgets.iter().copied().max().unwrap_or_default();
    let object_size = ObjectSize::new(CHUNK_SIZES[0]);
    let resources = Resources { memory, threads: 1, parallel: 1 };
    let refused = |error: xb_backup::BackupError| {
        Failure::usage(error.to_string()).hint("raise --max-memory")
    };
    put_plan(resources, object_size, false).map(|_| ()).map_err(refused)
}

/// Finds out where the sample is to come from.
fn source(args: &TuneArgs) -> Result<Source, Failure> {
    if args.sample.is_some() || args.data_dir.is_some() {
        return Ok(Source::Files);
    }
    let stdin = rustix::stdio::stdin();
    let kind = rustix::fs::fstat(stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(FileType::RegularFile) => {}
        Ok(FileType::Fifo | FileType::Socket) if args.size.is_some() => {}
        Ok(FileType::Fifo | FileType::Socket) => {
            return Err(Failure::usage("the size of the backup is unknown").hint(
                "add --size: `tune` reads only the beginning of a pipe, for example --size=2T",
            ));
        }
        _ => {
            return Err(Failure::usage("no sample of the data is given").hint(
                "give a data directory with --data-dir or a stream with --sample, or pipe a stream into it",
            ));
        }
    }
    let file = stdin.try_clone_to_owned().map_err(|error| {
        Failure::new(format!("cannot read standard input: {error}")).stage("sample")
    })?;
    Ok(Source::Stdin(File::from(file)))
}

fn sample(args: &TuneArgs) -> Result<Sample, TuneError> {
    let limit = args.sample_size.bytes();
    match (&args.sample, &args.data_dir) {
        (Some(file), _) => Sample::of_file(file, limit),
        (None, folder) => Sample::of_folder(folder.as_deref().unwrap_or(Path::new(".")), limit),
    }
}

fn failure(error: TuneError) -> Failure {
    let hint = match &error {
        TuneError::Read { source, .. } => match source.kind() {
            ErrorKind::NotFound => "correct the path",
            ErrorKind::IsADirectory => "use --data-dir for a directory",
            ErrorKind::NotADirectory => "use --sample for a file",
            ErrorKind::PermissionDenied => "run `tune` as a user who may read it",
            _ => "sample something else",
        },
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
    fn few_parallel_requests_must_be_requested() {
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
