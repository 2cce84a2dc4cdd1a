//! Progress display: a bar on a terminal, occasional lines in a log.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::messages::log::{Level, Log};
use crate::messages::size::{format_duration, format_rate, format_size};

/// Interval between readings of the counters.
const TICK: Duration = Duration::from_millis(200);
/// Time span of the rate: long enough for a steady number, short enough to show that a store has
/// become slow.
const RATE_SPAN: Duration = Duration::from_secs(10);

/// Counters at one moment. They never decrease; `bottleneck` may change freely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes done, in the same unit as `total`.
    pub done: u64,
    /// Total bytes of the work, if known.
    pub total: Option<u64>,
    /// Bytes stored after packing and compression, if the work stores data.
    pub stored: Option<u64>,
    /// Requests that were sent again.
    pub retries: u64,
    /// Stage that slows down the others, if there is a clear one.
    pub bottleneck: Option<String>,
}

/// Display options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressOptions {
    /// Whether to show progress. [`Level::Quiet`] hides it, too, except in JSON.
    pub enabled: bool,
    /// Time between lines in a log.
    pub every: Duration,
    /// Time between `progress` events in JSON.
    pub json_every: Duration,
}

impl Default for ProgressOptions {
    /// Progress is shown, with a line every 30 s and an event every second.
    fn default() -> Self {
        Self { enabled: true, every: Duration::from_secs(30), json_every: Duration::from_secs(1) }
    }
}

/// Result of a finished progress display.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressEnd {
    /// Counters at the end.
    pub last: Snapshot,
    /// Time from start to finish.
    pub elapsed: Duration,
}

/// Shows counters until it is finished or dropped. No thread stays behind.
#[derive(Debug)]
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<ProgressEnd>>,
}

impl Progress {
    /// Starts a thread that reads the counters with `poll` five times per second and shows them in
    /// the form that fits `log`: a bar on a terminal, lines in a log, events in JSON. `what` is the
    /// label in front, such as `put` or `restore`.
    ///
    /// `poll` must not block and must not write to `log`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        log: &Log,
        what: &str,
        options: ProgressOptions,
        poll: impl Fn() -> Snapshot + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut show = Show::new(log, what, options);
        let (stop, stopped) = channel();
        let run = move || {
            let start = Instant::now();
            let mut meter = Meter::default();
            loop {
                let ended = stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout);
                let (elapsed, now) = (start.elapsed(), poll());
                let reading = meter.read(elapsed, &now);
                if ended {
                    show.end(&reading);
                    return ProgressEnd { last: now, elapsed };
                }
                show.tick(&reading);
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops the display, removes the bar, and returns the current counters. If `poll` panicked,
    /// the counters are zero.
    pub fn finish(mut self) -> ProgressEnd {
        self.join().unwrap_or(ProgressEnd { last: Snapshot::default(), elapsed: Duration::ZERO })
    }

    fn join(&mut self) -> Option<ProgressEnd> {
        // The thread ends when the sender is dropped.
        drop(self.stop.take());
        self.thread.take()?.join().ok()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.join();
    }
}

/// Counters and values computed from them.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    now: Snapshot,
    elapsed: Duration,
    /// Recent rate in bytes per second.
    rate: f64,
    /// Time left, if there is a total and the rate is not zero.
    left: Option<Duration>,
}

/// Computes the recent rate.
#[derive(Debug, Default)]
struct Meter {
    /// Moments within the span, oldest first.
    moments: VecDeque<(Duration, u64)>,
}

impl Meter {
    fn read(&mut self, elapsed: Duration, now: &Snapshot) -> Reading {
        // The start counts as a moment, so that the first reading has a rate.
        if self.moments.is_empty() {
            self.moments.push_back((Duration::ZERO, 0));
        }
        self.moments.push_back((elapsed, now.done));
        // Keep one moment older than the span as the start of the measurement.
        while self.moments.get(1).is_some_and(|(at, _)| *at + RATE_SPAN <= elapsed) {
            self.moments.pop_front();
        }
        let (since, before) = self.moments[0];
        let span = elapsed.saturating_sub(since).as_secs_f64();
        let moved = now.done.saturating_sub(before) as f64;
        let rate = if span > 0.0 { moved / span } else { 0.0 };
        let left = now.total.and_then(|total| {
            let seconds = total.saturating_sub(now.done) as f64 / rate;
            Duration::try_from_secs_f64(seconds).ok()
        });
        Reading { now: now.clone(), elapsed, rate, left }
    }
}

/// Describes a reading: `1.50 GiB of 4.00 GiB (37%), stored 700 MiB (45%), 120 MiB/s, 21 s left, 2
/// retries, upload is slowest`
fn describe(reading: &Reading) -> String {
    let now = &reading.now;
    let mut text = format_size(now.done);
    if let Some(total) = now.total {
        text.push_str(&format!(" of {}", format_size(total)));
        if let Some(percent) = percent(now.done, total) {
            text.push_str(&format!(" ({percent}%)"));
        }
    }
    if let Some(stored) = now.stored {
        text.push_str(&format!(", stored {}", format_size(stored)));
        if let Some(percent) = percent(stored, now.done) {
            text.push_str(&format!(" ({percent}%)"));
        }
    }
    text.push_str(&format!(", {}", format_rate(reading.rate)));
    if let Some(left) = reading.left {
        text.push_str(&format!(", {} left", format_duration(left)));
    }
    match now.retries {
        0 => {}
        1 => text.push_str(", 1 retry"),
        retries => text.push_str(&format!(", {retries} retries")),
    }
    if let Some(stage) = &now.bottleneck {
        text.push_str(&format!(", {stage} is slowest"));
    }
    text
}

/// Describes a reading for a screen of 80 columns with a bar, most important facts first: `1.50
/// GiB/4.00 GiB, 120 MiB/s, 21 s left, upload is slowest, stored 45%, 2 retries`
fn describe_short(reading: &Reading) -> String {
    let now = &reading.now;
    let mut text = format_size(now.done);
    if let Some(total) = now.total {
        text.push_str(&format!("/{}", format_size(total)));
    }
    text.push_str(&format!(", {}", format_rate(reading.rate)));
    if let Some(left) = reading.left {
        text.push_str(&format!(", {} left", format_duration(left)));
    }
    if let Some(stage) = &now.bottleneck {
        text.push_str(&format!(", {stage} is slowest"));
    }
    if let Some(percent) = now.stored.and_then(|stored| percent(stored, now.done)) {
        text.push_str(&format!(", stored {percent}%"));
    }
    if now.retries > 0 {
        text.push_str(&format!(", {} retries", now.retries));
    }
    text
}

/// Percentage, rounded down, so that 100 means complete.
fn percent(part: u64, whole: u64) -> Option<u128> {
    (u128::from(part) * 100).checked_div(u128::from(whole))
}

fn event(what: &str, reading: &Reading) -> Value {
    // The decimals of a rate have no meaning.
    json!({
        "what": what,
        "done": reading.now.done,
        "total": reading.now.total,
        "stored": reading.now.stored,
        "retries": reading.now.retries,
        "bottleneck": reading.now.bottleneck,
        "rate": reading.rate.round(),
        "seconds_left": reading.left.map(|left| left.as_secs()),
        "elapsed_ms": u64::try_from(reading.elapsed.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Display of one run of work.
struct Show {
    log: Log,
    what: String,
    way: Way,
}

enum Way {
    Hidden,
    Bar(ProgressBar),
    Lines { every: Duration, next: Duration },
    Events { every: Duration, next: Duration },
}

impl Show {
    fn new(log: &Log, what: &str, options: ProgressOptions) -> Self {
        let way = if !options.enabled {
            Way::Hidden
        } else if log.is_json() {
            Way::Events { every: options.json_every, next: options.json_every }
        } else if log.level() == Level::Quiet {
            Way::Hidden
        } else if log.is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(style(false));
            bar.set_prefix(what.to_owned());
            log.attach(bar.clone());
            Way::Bar(bar)
        } else {
            Way::Lines { every: options.every, next: options.every }
        };
        Self { log: log.clone(), what: what.to_owned(), way }
    }

    fn tick(&mut self, reading: &Reading) {
        match &mut self.way {
            Way::Hidden => {}
            Way::Bar(bar) => draw(bar, reading),
            Way::Lines { every, next } => {
                if reading.elapsed >= *next {
                    *next = reading.elapsed + *every;
                    self.log.info(format_args!("{}: {}", self.what, describe(reading)));
                }
            }
            Way::Events { every, next } => {
                if reading.elapsed >= *next {
                    *next = reading.elapsed + *every;
                    self.log.event("progress", &event(&self.what, reading));
                }
            }
        }
    }

    /// Ends the display. In JSON, the last reading is always logged; for text, the command prints a
    /// summary.
    fn end(&mut self, reading: &Reading) {
        match &self.way {
            Way::Hidden | Way::Lines { .. } => {}
            Way::Bar(bar) => {
                bar.finish_and_clear();
                self.log.detach();
            }
            Way::Events { .. } => self.log.event("progress", &event(&self.what, reading)),
        }
    }
}

fn draw(bar: &ProgressBar, reading: &Reading) {
    if let Some(total) = reading.now.total.filter(|total| *total > 0) {
        if bar.length() != Some(total) {
            bar.set_style(style(true));
            bar.set_length(total);
        }
        bar.set_position(reading.now.done);
    }
    bar.set_message(describe_short(reading));
    bar.tick();
}

fn style(with_total: bool) -> ProgressStyle {
    let template =
        if with_total { "{prefix} [{bar:12}] {wide_msg}" } else { "{prefix} {spinner} {wide_msg}" };
    // The templates are valid constants; the default bar is only a fallback.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::log::LogOptions;
    use crate::messages::log::tests::log;
    use indicatif::TermLike;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    fn bytes(done: u64) -> Snapshot {
        Snapshot { done, ..Snapshot::default() }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(Duration::ZERO, &bytes(0)).rate, 0.0);
        assert_eq!(meter.read(seconds(1.0), &bytes(100)).rate, 100.0);
        assert_eq!(meter.read(seconds(10.0), &bytes(1000)).rate, 100.0);
        // No progress: after the span, the rate is zero.
        assert_eq!(meter.read(seconds(15.0), &bytes(1000)).rate, 900.0 / 14.0);
        assert_eq!(meter.read(seconds(30.0), &bytes(1000)).rate, 0.0);
        assert!(meter.moments.len() <= 3);
        for tick in 0..1000 {
            meter.read(seconds(31.0 + f64::from(tick) * 0.2), &bytes(1000));
        }
        assert!(meter.moments.len() <= 52, "{}", meter.moments.len());
    }

    #[test]
    fn the_time_left_needs_a_total_and_movement() {
        let at = |done, total| {
            let now = Snapshot { total, ..bytes(done) };
            Meter::default().read(seconds(2.0), &now).left
        };
        assert_eq!(at(100, None), None);
        assert_eq!(at(0, Some(100)), None);
        assert_eq!(at(0, Some(0)), None);
        assert_eq!(at(100, Some(300)), Some(seconds(4.0)));
        assert_eq!(at(300, Some(100)), Some(Duration::ZERO));
        assert_eq!(at(1, Some(u64::MAX)), None);
        assert_eq!(at(1, Some(u64::MAX / 4)).map(|left| left.as_secs() > 1 << 60), Some(true));
    }

    #[test]
    fn the_line_tells_what_is_known() {
        let reading = |now: Snapshot| Meter::default().read(seconds(2.0), &now);
        assert_eq!(describe(&reading(bytes(0))), "0 B, 0 B/s");
        let all = Snapshot {
            done: 2 << 30,
            total: Some(3 << 30),
            stored: Some(1 << 30),
            retries: 2,
            bottleneck: Some("upload".to_owned()),
        };
        assert_eq!(
            describe(&reading(all.clone())),
            "2.00 GiB of 3.00 GiB (66%), stored 1.00 GiB (50%), 1.00 GiB/s, 1.0 s left, 2 retries, \
             upload is slowest"
        );
        assert_eq!(
            describe_short(&reading(all.clone())),
            "2.00 GiB/3.00 GiB, 1.00 GiB/s, 1.0 s left, upload is slowest, stored 50%, 2 retries"
        );
        assert_eq!(describe_short(&reading(bytes(0))), "0 B, 0 B/s");
        let one = Snapshot { retries: 1, total: Some(0), stored: Some(0), ..bytes(0) };
        assert_eq!(describe(&reading(one)), "0 B of 0 B, stored 0 B, 0 B/s, 1 retry");
        let event = event("put", &reading(all));
        assert_eq!(event["done"], 2u64 << 30);
        assert_eq!(event["rate"], f64::from(1 << 30));
        assert_eq!(event["seconds_left"], 1);
        assert_eq!(event["elapsed_ms"], 2000);
        assert_eq!(event["bottleneck"], "upload");
    }

    fn readings(show: &mut Show, at: &[f64]) {
        let mut meter = Meter::default();
        for at in at {
            show.tick(&meter.read(seconds(*at), &bytes(1024)));
        }
        show.end(&meter.read(seconds(100.0), &bytes(2048)));
    }

    #[test]
    fn each_way_of_talk_has_its_progress() {
        let at = [0.2, 0.9, 1.0, 1.9, 2.1, 29.9, 30.0, 30.2, 60.0, 60.1];
        let table = [
            (LogOptions { no_stamps: true, ..LogOptions::default() }, true, 2),
            (LogOptions { no_stamps: true, ..LogOptions::default() }, false, 0),
            (LogOptions { level: Level::Quiet, ..LogOptions::default() }, true, 0),
            (LogOptions { json: true, ..LogOptions::default() }, true, 5),
            (LogOptions { json: true, level: Level::Quiet, no_stamps: false }, true, 5),
            (LogOptions { json: true, ..LogOptions::default() }, false, 0),
        ];
        for (options, enabled, count) in table {
            let (log, said) = log(options);
            let mut show =
                Show::new(&log, "put", ProgressOptions { enabled, ..Default::default() });
            readings(&mut show, &at);
            assert_eq!(said.lines().len(), count, "{options:?} {enabled}");
            if options.json && enabled {
                let events = said.events();
                assert!(events.iter().all(|event| event["event"] == "progress"));
                assert_eq!(events.last().unwrap()["done"], 2048);
            } else if count > 0 {
                assert_eq!(said.lines()[0], "x: put: 1.00 KiB, 0 B/s");
            }
        }
    }

    #[test]
    fn the_thread_reads_the_counters_and_ends() {
        let (log, said) = log(LogOptions { json: true, ..LogOptions::default() });
        let counter = Arc::new(AtomicU64::new(0));
        let poll = {
            let counter = Arc::clone(&counter);
            move || bytes(counter.load(Ordering::Relaxed))
        };
        let progress = Progress::start(&log, "put", ProgressOptions::default(), poll).unwrap();
        counter.store(77, Ordering::Relaxed);
        let end = progress.finish();
        assert_eq!(end.last, bytes(77));
        assert_eq!(said.events().last().unwrap()["done"], 77);
        // The closure is dropped, so the thread has ended.
        assert_eq!(Arc::strong_count(&counter), 1);

        let poll = {
            let counter = Arc::clone(&counter);
            move || bytes(counter.load(Ordering::Relaxed))
        };
        drop(Progress::start(&log, "put", ProgressOptions::default(), poll).unwrap());
        assert_eq!(Arc::strong_count(&counter), 1);
    }

    /// Terminal that records its output.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> std::io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> std::io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bar_fits_the_screen_and_steps_aside_for_lines() {
        let screen = Screen::default();
        let bar = ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::term_like(Box::new(screen.clone())),
        );
        bar.set_style(style(false));
        bar.set_prefix("put");
        let (log, said) = log(LogOptions { no_stamps: true, ..LogOptions::default() });
        log.attach(bar.clone());
        let mut show = Show { log: log.clone(), what: "put".to_owned(), way: Way::Bar(bar) };
        let mut meter = Meter::default();
        show.tick(&meter.read(seconds(1.0), &bytes(1024)));
        log.info("a line");
        let now = Snapshot { total: Some(4096), ..bytes(2048) };
        show.tick(&meter.read(seconds(2.0), &now));
        log.info("another");
        show.end(&meter.read(seconds(3.0), &now));
        assert_eq!(said.lines(), ["x: a line", "x: another"]);
        let drawn = screen.0.lock().unwrap().clone();
        assert!(drawn.contains("1.00 KiB, 1.00 KiB/s"), "{drawn:?}");
        assert!(
            drawn.contains("put [======>     ] 2.00 KiB/4.00 KiB, 1.00 KiB/s, 2.0 s left"),
            "{drawn:?}"
        );
    }
}
