//! Progress display: a bar on a terminal, occasional lines in a log.

mod reading;
mod snapshot;

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::reading::{Meter, Reading};
pub use self::snapshot::{PhaseSnapshot, Snapshot};
use crate::messages::log::{Level, Log};

/// Interval between readings of the counters.
const TICK: Duration = Duration::from_millis(200);
/// Maximum time between lines in a log.
const MAX_INTERVAL: Duration = Duration::from_hours(1);

/// Display options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressOptions {
    /// Whether to show progress. [`Level::Quiet`] hides it, too, except in JSON.
    pub enabled: bool,
    /// Time until the first line in a log. The intervals double from line to line, up to an hour, so
    /// that a long run writes few lines.
    pub first: Duration,
    /// Time between `progress` events in JSON.
    pub json_every: Duration,
}

impl Default for ProgressOptions {
    /// Progress is shown, with lines after 30 s, 1 min, 2 min and so on, and an event every second.
    fn default() -> Self {
        Self { enabled: true, first: Duration::from_secs(30), json_every: Duration::from_secs(1) }
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
    /// Durations of the run's phases, in order; may be incomplete.
    pub phases: Vec<(&'static str, Duration)>,
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
                    return ProgressEnd { last: now, elapsed, phases: Vec::new() };
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
        let none = || ProgressEnd {
            last: Snapshot::default(),
            elapsed: Duration::ZERO,
            phases: Vec::new(),
        };
        self.join().unwrap_or_else(none)
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

/// Display of one run of work.
struct Show {
    log: Log,
    what: String,
    way: Display,
}

enum Display {
    Hidden,
    Bar(ProgressBar),
    Lines { next: Duration },
    Events { every: Duration, next: Duration, phase: u32 },
}

impl Show {
    fn new(log: &Log, what: &str, options: ProgressOptions) -> Self {
        let way = if !options.enabled {
            Display::Hidden
        } else if log.is_json() {
            Display::Events { every: options.json_every, next: options.json_every, phase: 0 }
        } else if log.level() == Level::Quiet {
            Display::Hidden
        } else if log.is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(style(false));
            bar.set_prefix(what.to_owned());
            log.attach(bar.clone());
            Display::Bar(bar)
        } else {
            Display::Lines { next: options.first }
        };
        Self { log: log.clone(), what: what.to_owned(), way }
    }

    fn tick(&mut self, reading: &Reading) {
        match &mut self.way {
            Display::Hidden => {}
            Display::Bar(bar) => draw(bar, &self.what, reading),
            Display::Lines { next } => {
                if reading.elapsed >= *next {
                    *next = (reading.elapsed * 2).min(reading.elapsed + MAX_INTERVAL);
                    let label = reading.label(&self.what);
                    self.log.info(format_args!("{label}: {}", reading.describe()));
                }
            }
            Display::Events { every, next, phase } => {
                let number = reading.now.phase.as_ref().map_or(0, |phase| phase.number);
                if reading.elapsed >= *next || number != *phase {
                    *next = reading.elapsed + *every;
                    *phase = number;
                    self.log.event("progress", &reading.event(&self.what));
                }
            }
        }
    }

    /// Ends the display. In JSON, the last reading is always logged; for text, the command prints a
    /// summary.
    fn end(&mut self, reading: &Reading) {
        match &self.way {
            Display::Hidden | Display::Lines { .. } => {}
            Display::Bar(bar) => {
                bar.finish_and_clear();
                self.log.detach();
            }
            Display::Events { .. } => self.log.event("progress", &reading.event(&self.what)),
        }
    }
}

fn draw(bar: &ProgressBar, what: &str, reading: &Reading) {
    let total = reading.total().filter(|total| *total > 0);
    if bar.length() != total {
        bar.set_style(style(total.is_some()));
        match total {
            Some(total) => bar.set_length(total),
            None => bar.unset_length(),
        }
    }
    if total.is_some() {
        bar.set_position(reading.done());
    }
    bar.set_prefix(reading.label(what));
    bar.set_message(reading.describe_short());
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
        let mut show = Show { log: log.clone(), what: "put".to_owned(), way: Display::Bar(bar) };
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
            drawn.contains("put [======>     ] 50% 2.00 KiB/4.00 KiB, 1.00 KiB/s, ETA 0:02"),
            "{drawn:?}"
        );
    }
}
