//! Progress reports for the log, the server and the service manager.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xb_pipeline::{Observer, Wait};
use xb_report::{Direction, SectionOptions, Traffic, Watch};

use crate::cancel::{CancelReason, CancelToken};
use crate::context::Context;
use crate::contract::args::Role;
use crate::contract::error_log::ErrorLog;
use crate::contract::server_lines::Server;
use crate::server::gcache::Gcache;
use crate::server::systemd_notify::Notifier;

/// Interval at which the counters are read.
const TICK: Duration = Duration::from_secs(1);

/// Reports progress until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    observer: Observer,
    discarded: Arc<AtomicU64>,
    begin: Instant,
    error_log: ErrorLog,
    /// Samples the counters for the report of the transfer, if one is wanted.
    _watch: Option<Watch>,
}

impl Progress {
    /// Starts the phase of this node's role, and its reports; `total` is the approximate number of bytes to transfer. `arrived` returns the number of bytes that
    /// the peer is known to have: what a donor has passed on waits for a slow network, after the backup program has ended, too.
    pub(crate) fn start(
        context: &Context,
        total: u64,
        arrived: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        let Context { settings, report, .. } = context;
        let (phase, direction, threads) = match context.args.role {
            Role::Donor => ("sending", Direction::Send, settings.compress_threads),
            Role::Joiner => ("receiving", Direction::Receive, settings.write_threads),
        };
        let observer = Observer::default();
        observer.begin_phase(phase);
        let (stop, stopped) = channel::<()>();
        let discarded = Arc::new(AtomicU64::new(0));
        let mut reporter = ProgressReporter {
            role: context.args.role,
            observer: observer.clone(),
            discarded: Arc::clone(&discarded),
            total,
            server: context.server.clone(),
            error_log: context.error_log.clone(),
            notifier: Notifier::new(context.notify_socket.as_deref()),
            every: context.settings.progress_every,
            idle_limit: context.settings.idle_timeout,
            arrived: Box::new(arrived),
            moved: (0, Instant::now()),
            gcache: (context.args.role == Role::Donor).then(|| Gcache::new(context)),
            cancel: context.cancel.clone(),
            reported: 0,
            next: context.settings.progress_every,
            begin: Instant::now(),
        };
        let run = move || {
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                reporter.tick();
            }
            reporter.tell_server();
        };
        let options = SectionOptions { direction, encode: None, threads };
        let watch = report
            .as_ref()
            .map(|report| report.watch("transfer", options, &observer, Traffic::default));
        // Without a thread for them there are no reports, but the transfer continues.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(run).ok();
        Self {
            stop: Some(stop),
            thread,
            observer,
            discarded,
            begin: Instant::now(),
            error_log: context.error_log.clone(),
            _watch: watch,
        }
    }

    /// The counters of the transfer.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Notes that the stream begins again: what was transferred before no longer counts.
    pub(crate) fn begin_again(&self) {
        self.discarded.store(self.observer.snapshot().bytes, Relaxed);
    }

    /// Ends the reports with a summary line.
    pub(crate) fn finish(mut self, what: impl Display) {
        self.join();
        let now = self.observer.snapshot();
        let seconds = self.begin.elapsed().as_secs_f64().max(0.001);
        self.error_log.info(format_args!(
            "{what}, {} MiB, {} MiB on the wire ({}), in {seconds:.1} s, {:.0} MiB/s",
            now.bytes.saturating_sub(self.discarded.load(Relaxed)) >> 20,
            now.stored >> 20,
            ratio(now.bytes, now.stored),
            now.bytes as f64 / seconds / f64::from(1 << 20),
        ));
    }

    fn join(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has already printed its message.
            let _ = thread.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.join();
    }
}

struct ProgressReporter {
    role: Role,
    observer: Observer,
    /// Bytes that were transferred before the stream began again.
    discarded: Arc<AtomicU64>,
    total: u64,
    idle_limit: Duration,
    /// Bytes that the peer is known to have.
    arrived: Box<dyn Fn() -> u64 + Send>,
    /// Bytes transferred at the last change, and the time of that change.
    moved: (u64, Instant),
    cancel: CancelToken,
    /// Queried on the donor, if progress lines are logged.
    gcache: Option<Gcache>,
    server: Server,
    error_log: ErrorLog,
    notifier: Notifier,
    every: Duration,
    /// Bytes that were reported to the server.
    reported: u64,
    next: Duration,
    begin: Instant,
}

impl ProgressReporter {
    fn tick(&mut self) {
        self.tell_server();
        self.watch();
        let elapsed = self.begin.elapsed();
        let text = self.describe(elapsed);
        self.notifier.alive(&format!("State transfer: {text}"));
        if elapsed >= self.next {
            self.next = elapsed + self.every;
            self.error_log.info(format_args!("{}: {text}", self.role.word()));
            if let Some(gcache) = &mut self.gcache {
                gcache.ask();
            }
        }
        let left = self.left(elapsed);
        if let Some(warning) = self.gcache.as_mut().and_then(|gcache| gcache.warning(left)) {
            self.error_log.warn(warning);
        }
    }

    /// Cancels the transfer if no data moves for too long.
    fn watch(&mut self) {
        let now = self.observer.snapshot();
        let bytes = now.bytes.saturating_add(now.stored).saturating_add((self.arrived)());
        if bytes != self.moved.0 {
            self.moved = (bytes, Instant::now());
        } else if !self.idle_limit.is_zero() && self.moved.1.elapsed() >= self.idle_limit {
            self.cancel.cancel(CancelReason::Idle { seconds: self.idle_limit.as_secs() });
        }
    }

    /// Bytes of the stream that count.
    fn done(&self) -> u64 {
        self.observer.snapshot().bytes.saturating_sub(self.discarded.load(Relaxed))
    }

    fn tell_server(&mut self) {
        let bytes = self.done();
        if bytes > self.reported {
            // If the server no longer reads, a later and more important line fails.
            let _ = self.server.complete(bytes - self.reported);
            self.reported = bytes;
        }
    }

    /// Estimates the remaining time.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let done = self.done();
        let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
        Duration::try_from_secs_f64(self.total.saturating_sub(done) as f64 / rate).ok()
    }

    fn describe(&self, elapsed: Duration) -> String {
        let now = self.observer.snapshot();
        let rate = now.bytes as f64 / elapsed.as_secs_f64().max(0.001);
        let mut text = format!("{} MiB of about {} MiB", self.done() >> 20, self.total >> 20);
        text.push_str(&format!(
            ", {} MiB on the wire ({}), {:.0} MiB/s",
            now.stored >> 20,
            ratio(now.bytes, now.stored),
            rate / f64::from(1 << 20)
        ));
        if let Some(left) = self.left(elapsed) {
            text.push_str(&format!(", {} s left", left.as_secs()));
        }
        if let Some(wait) = now.slowest_stage {
            text.push_str(&format!(", {} is slowest", name(self.role, wait)));
        }
        text
    }
}

fn ratio(plain: u64, stored: u64) -> String {
    if stored == 0 { "-".into() } else { format!("{:.1}:1", plain as f64 / stored as f64) }
}

fn name(role: Role, wait: Wait) -> &'static str {
    match (role, wait) {
        (Role::Donor, Wait::Source) => "the backup",
        (Role::Donor, Wait::Workers) => "compression",
        (Role::Donor, Wait::Sink) => "the network or the joiner",
        (Role::Joiner, Wait::Source) => "the donor or the network",
        (Role::Joiner, Wait::Workers) => "decompression",
        (Role::Joiner, Wait::Sink) => "the disk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the backup program has ended, nothing else moves on a donor.
    #[test]
    fn a_transfer_of_which_blocks_still_arrive_is_not_idle() {
        let arrived = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&arrived);
        let mut reporter = ProgressReporter {
            role: Role::Donor,
            observer: Observer::default(),
            discarded: Arc::default(),
            total: 0,
            idle_limit: Duration::from_nanos(1),
            arrived: Box::new(move || counted.load(Relaxed)),
            moved: (0, Instant::now()),
            cancel: CancelToken::new(),
            gcache: None,
            server: Server::new(std::io::sink(), false),
            error_log: ErrorLog::new(|_, _| {}),
            notifier: Notifier::new(None),
            every: Duration::MAX,
            reported: 0,
            next: Duration::MAX,
            begin: Instant::now(),
        };
        for bytes in 1..4 {
            arrived.store(bytes, Relaxed);
            reporter.watch();
            assert!(reporter.cancel.check().is_ok(), "{bytes}");
        }
        while reporter.moved.1.elapsed() < reporter.idle_limit {}
        reporter.watch();
        assert!(matches!(reporter.cancel.reason(), Some(CancelReason::Idle { .. })));
    }
}
