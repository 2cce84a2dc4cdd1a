//! Context of every command: the log, the settings of a run, progress and signals.

use xb_backup::{CancelToken, OrInterrupted as _, Resources, Session};
use xb_cli::{
    Failure, FailureContext as _, Log, PhaseSnapshot, Progress, ProgressOptions, Signals, Snapshot,
};
use xb_pipeline::{ObjectSize, Observer, Wait};
use xb_repo::list_cache::ListCache;
use xb_repo::names::BackupName;
use xb_repo::resolve::{BackupSelector, ResolvedBackup};
use xb_repo::root::Root;
use xb_uploader::Traffic;

use crate::args::{CommonOptions, RunOptions, Source};
use crate::commands::reporting::Reporting;
use crate::limits::{default_memory, default_put_memory, default_threads};
use crate::location::wanted_place;
use crate::report;

/// Default object size in bytes.
pub(crate) const DEFAULT_CHUNK: u64 = 32 << 20;
/// Default number of concurrent requests.
pub(crate) const DEFAULT_PARALLEL: usize = 8;
/// Program and version, for manifests and records.
pub(crate) const TOOL: &str = concat!("xbcloud-rs ", env!("CARGO_PKG_VERSION"));
pub(crate) struct Context {
    pub(crate) log: Log,
    pub(crate) stock: bool,
    pub(crate) reporting: Reporting,
}

impl Context {
    /// ROOT; with `--take-over`, one that takes over claims and reports whose they were.
    ///
    /// Stock xbcloud knows no claims, and its callers restart a killed run at once, often on
    /// another host. So by its name, a claim only holds while its process is known to be alive.
    pub(crate) fn taking_over(&self, root: Root, take_over: bool) -> Root {
        let log = self.log.clone();
        let tell = move |who: &str| {
            log.warn(format!("took over the claim of another run: {who}"));
        };
        match (take_over, self.stock) {
            (true, _) => root.taking_over(tell),
            (false, true) => root.taking_over_unless_alive(tell),
            (false, false) => root,
        }
    }

    /// Warns in the log and in the report.
    pub(crate) fn unusual(&self, text: &str) {
        self.log.warn(text);
        self.reporting.warning(text);
    }

    /// Finds the backup that a place names, also for `latest` or a day.
    pub(crate) fn resolve(
        &self,
        source: &Source,
        common: &CommonOptions,
    ) -> Result<(Root, BackupName), Failure> {
        self.resolve_cached(source, common, None)
    }

    /// Like [`Context::resolve`], for a command that only shows the backup: takes unchanged manifests from
    /// the cache.
    pub(crate) fn resolve_cached(
        &self,
        source: &Source,
        common: &CommonOptions,
        cache: Option<&ListCache>,
    ) -> Result<(Root, BackupName), Failure> {
        let (root, wanted) = wanted_place(&source.name, common)?;
        if let BackupSelector::Name(name) = wanted {
            return Ok((root, name));
        }
        let server = source.server.as_deref();
        let find = |_, cancel: CancelToken| async move {
            cancel.or(xb_repo::resolve::resolve_with(&root, &wanted, server, cache)).await
        };
        let (ResolvedBackup { name, doubts }, _) =
            self.with_progress("find", &common.run, None, find)?;
        doubts.iter().for_each(|doubt| self.log.warn(doubt));
        self.log.info(format!("using backup {name}"));
        // Connections belong to the runtime that made them, and that runtime has ended.
        Ok((wanted_place(&source.name, common)?.0, name))
    }

    /// Like [`Context::with_progress`], for a command that moves data of `root`.
    pub(crate) fn with_session<T, F, Fut>(
        &self,
        what: &str,
        run: &RunOptions,
        root: Root,
        resources: Resources,
        command: F,
    ) -> Result<(T, xb_cli::ProgressEnd), Failure>
    where
        F: FnOnce(Session) -> Fut,
        Fut: Future<Output = Result<T, xb_backup::BackupError>>,
    {
        let traffic = root.store().traffic().clone();
        self.with_progress(what, run, Some(traffic), |observer, cancel| {
            command(Session { root, resources, observer, cancel })
        })
    }

    /// Runs `command` until it ends or a signal cancels it. If there is `traffic` to show, shows
    /// progress on stderr.
    pub(crate) fn with_progress<T, F, Fut>(
        &self,
        what: &str,
        run: &RunOptions,
        traffic: Option<Traffic>,
        command: F,
    ) -> Result<(T, xb_cli::ProgressEnd), Failure>
    where
        F: FnOnce(Observer, CancelToken) -> Fut,
        Fut: Future<Output = Result<T, xb_backup::BackupError>>,
    {
        let observer = Observer::default();
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let (log, left) = (self.log.clone(), left_behind(WRITES.contains(&what)));
        let cancel_work = move |signal| canceller.cancel(signal);
        let tell = move |_| log.warn(left);
        let _signals = Signals::catch_and_tell(cancel_work, tell).stage("run")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .stage("run")?;
        let (drawn, timed) = (observer.clone(), observer.clone());
        let options = ProgressOptions {
            enabled: traffic.is_some() && !run.no_progress && !run.quiet,
            ..ProgressOptions::default()
        };
        let watch = self.reporting.watch(what, threads(run), &observer, traffic.as_ref());
        let traffic = traffic.unwrap_or_default();
        let progress =
            Progress::start(&self.log, what, options, move || snapshot(&drawn, &traffic))
                .stage("run")?;
        let outcome = runtime.block_on(command(observer, cancel));
        let mut end = progress.finish();
        end.phases = timed.phase_times();
        drop(watch);
        // One of our threads may still wait for a stalled producer; it ends with the process.
        runtime.shutdown_background();
        Ok((outcome.map_err(report::failure)?, end))
    }
}

/// Commands that write objects and claims, as [`Context::with_progress`] names them.
const WRITES: [&str; 7] = ["put", "backup", "consolidate", "copy", "delete", "prune", "gc"];

/// Message of a command that another signal ends before it has cleaned up.
fn left_behind(writes: bool) -> &'static str {
    match writes {
        true => {
            "ended at once by another signal: objects, unfinished uploads and a claim may be left; `xbcloud-rs gc` removes them once they are a day old"
        }
        false => "ended at once by another signal",
    }
}

/// Limits of a command that reads.
pub(crate) fn resources(run: &RunOptions) -> Resources {
    Resources { memory: memory(run), threads: threads(run), parallel: parallel(run) }
}

pub(crate) fn threads(run: &RunOptions) -> usize {
    run.threads.unwrap_or_else(|| default_threads(memory(run), 0))
}

pub(crate) fn parallel(run: &RunOptions) -> usize {
    run.parallel.unwrap_or(DEFAULT_PARALLEL)
}

pub(crate) fn memory(run: &RunOptions) -> u64 {
    run.memory.map_or_else(default_memory, |size| size.bytes())
}

/// Limits of a put of objects of this size, with a codec that needs `codec_memory` for each of its `threads`.
pub(crate) fn put_resources(
    run: &RunOptions,
    threads: Option<usize>,
    object_size: ObjectSize,
    codec_memory: u64,
) -> Resources {
    let memory = put_memory(run, object_size, codec_memory);
    let threads = threads.unwrap_or_else(|| default_threads(memory, codec_memory));
    Resources { memory, threads, parallel: parallel(run) }
}

/// Memory for a put of objects of this size, with a codec that needs `codec_memory` for each worker.
fn put_memory(run: &RunOptions, object_size: ObjectSize, codec_memory: u64) -> u64 {
    run.memory.map_or_else(|| default_put_memory(object_size, codec_memory), |size| size.bytes())
}

fn snapshot(observer: &Observer, traffic: &Traffic) -> Snapshot {
    let now = observer.snapshot();
    let phase = observer.phase().map(|phase| PhaseSnapshot {
        name: phase.name.to_owned(),
        number: phase.number,
        of: phase.of,
        done: phase.bytes,
        total: phase.total,
        elapsed: phase.elapsed,
        silent: phase.silent,
    });
    Snapshot {
        phase,
        done: now.bytes,
        total: None,
        stored: Some(now.stored),
        retries: traffic.retries(),
        slowest_stage: now.slowest_stage.map(|wait| {
            match wait {
                Wait::Source => "source",
                Wait::Workers => "cpu",
                Wait::Sink => "sink",
            }
            .to_owned()
        }),
    }
}
