//! A moment of the work as numbers: rate, time left, and how they are written.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::messages::progress::snapshot::Snapshot;
use crate::messages::size::{format_clock, format_duration, format_rate, format_size};

/// Time span of the rate: long enough for a steady number, short enough to show that a store has
/// become slow.
const RATE_SPAN: Duration = Duration::from_secs(10);

/// Silence of a program from which it is shown: programs that prepare a backup write a line more often.
const LONG_SILENCE: Duration = Duration::from_secs(60);

/// Counters and values computed from them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) now: Snapshot,
    pub(super) elapsed: Duration,
    /// Recent rate in bytes per second.
    rate: f64,
    /// Time left in the phase, if there is a total and the rate is not zero.
    left: Option<Duration>,
}

/// Computes the recent rate of the current phase.
#[derive(Debug, Default)]
pub(super) struct Meter {
    phase: u32,
    /// Moments within the span, oldest first.
    moments: VecDeque<(Duration, u64)>,
}

impl Meter {
    pub(super) fn read(&mut self, elapsed: Duration, now: &Snapshot) -> Reading {
        let mut reading = Reading { now: now.clone(), elapsed, rate: 0.0, left: None };
        let (number, begun) = match &now.phase {
            None => (0, Duration::ZERO),
            Some(phase) => (phase.number, elapsed.saturating_sub(phase.elapsed)),
        };
        // The begin counts as a moment, so that the first reading has a rate.
        if self.moments.is_empty() || number != self.phase {
            self.phase = number;
            self.moments.clear();
            self.moments.push_back((begun, 0));
        }
        let done = reading.done();
        self.moments.push_back((elapsed, done));
        // Keep one moment older than the span as the start of the measurement.
        while self.moments.get(1).is_some_and(|(at, _)| *at + RATE_SPAN <= elapsed) {
            self.moments.pop_front();
        }
        let (since, before) = self.moments[0];
        let span = elapsed.saturating_sub(since).as_secs_f64();
        let moved = done.saturating_sub(before) as f64;
        reading.rate = if span > 0.0 { moved / span } else { 0.0 };
        reading.left = reading.total().and_then(|total| {
            let seconds = total.saturating_sub(done) as f64 / reading.rate;
            Duration::try_from_secs_f64(seconds).ok()
        });
        reading
    }
}

impl Reading {
    /// Bytes done in the current phase, or at all if there are no phases.
    pub(super) fn done(&self) -> u64 {
        self.now.phase.as_ref().map_or(self.now.done, |phase| phase.done)
    }

    /// Bytes that the current phase will have done.
    pub(super) fn total(&self) -> Option<u64> {
        self.now.phase.as_ref().map_or(self.now.total, |phase| phase.total)
    }

    /// The work and its phase: `restore 2/3 prepare`
    pub(super) fn label(&self, what: &str) -> String {
        match &self.now.phase {
            Some(phase) if phase.of > 1 => {
                format!("{what} {}/{} {}", phase.number, phase.of, phase.name)
            }
            _ => what.to_owned(),
        }
    }

    /// Time since the beginning of a phase that moves no bytes, such as one in another program.
    fn only_time(&self) -> Option<Duration> {
        let phase = self.now.phase.as_ref()?;
        (phase.done == 0 && phase.total.is_none()).then_some(phase.elapsed)
    }

    /// Time for which a program has been silent, if it is long.
    fn silence(&self) -> String {
        let silent = self.now.phase.as_ref().and_then(|phase| phase.silent);
        let silent = silent.filter(|silent| *silent >= LONG_SILENCE).map(format_duration);
        silent.map_or_else(String::new, |silent| format!(", program silent for {silent}"))
    }

    /// Describes the reading: `1.50 GiB of 4.00 GiB (37%), stored 700 MiB (45%), 120 MiB/s, ETA
    /// 0:21, 2 retries, upload is slowest`
    pub(super) fn describe(&self) -> String {
        let now = &self.now;
        let done = self.done();
        let mut text = match self.only_time() {
            Some(elapsed) => format_duration(elapsed),
            None => format_size(done),
        };
        if self.only_time().is_none() {
            if let Some(total) = self.total() {
                text.push_str(&format!(" of {}", format_size(total)));
                if let Some(percent) = percent(done, total) {
                    text.push_str(&format!(" ({percent}%)"));
                }
            }
            if let Some(stored) = now.stored {
                text.push_str(&format!(", stored {}", format_size(stored)));
                if let Some(percent) = percent(stored, now.done) {
                    text.push_str(&format!(" ({percent}%)"));
                }
            }
            text.push_str(&format!(", {}", format_rate(self.rate)));
        }
        text.push_str(&self.silence());
        if let Some(left) = self.left {
            text.push_str(&format!(", ETA {}", format_clock(left)));
        }
        match now.retries {
            0 => {}
            1 => text.push_str(", 1 retry"),
            retries => text.push_str(&format!(", {retries} retries")),
        }
        if let Some(stage) = &now.slowest_stage {
            text.push_str(&format!(", {stage} is slowest"));
        }
        text
    }

    /// Describes the reading for a screen of 80 columns with a bar, most important facts first:
    /// `37% 1.50 GiB/4.00 GiB, 120 MiB/s, ETA 0:21, upload is slowest, stored 45%, 2 retries`
    pub(super) fn describe_short(&self) -> String {
        let now = &self.now;
        let done = self.done();
        let mut text = String::new();
        match (self.only_time(), self.total()) {
            (Some(elapsed), _) => text.push_str(&format_duration(elapsed)),
            (None, None) => text.push_str(&format_size(done)),
            (None, Some(total)) => {
                if let Some(percent) = percent(done, total) {
                    text.push_str(&format!("{percent}% "));
                }
                text.push_str(&format!("{}/{}", format_size(done), format_size(total)));
            }
        }
        if self.only_time().is_none() {
            text.push_str(&format!(", {}", format_rate(self.rate)));
        }
        text.push_str(&self.silence());
        if let Some(left) = self.left {
            text.push_str(&format!(", ETA {}", format_clock(left)));
        }
        if let Some(stage) = &now.slowest_stage {
            text.push_str(&format!(", {stage} is slowest"));
        }
        if let Some(percent) = now.stored.and_then(|stored| percent(stored, now.done)) {
            text.push_str(&format!(", stored {percent}%"));
        }
        match now.retries {
            0 => {}
            1 => text.push_str(", 1 retry"),
            retries => text.push_str(&format!(", {retries} retries")),
        }
        text
    }

    pub(super) fn event(&self, what: &str) -> Value {
        let phase = self.now.phase.as_ref().map(|phase| {
            json!({
                "name": phase.name,
                "number": phase.number,
                "of": phase.of,
                "done": phase.done,
                "total": phase.total,
                "elapsed_ms": millis(phase.elapsed),
                "silent_ms": phase.silent.map(millis),
            })
        });
        // The decimals of a rate have no meaning.
        json!({
            "what": what,
            "phase": phase,
            "done": self.now.done,
            "total": self.now.total,
            "stored": self.now.stored,
            "retries": self.now.retries,
            "slowest_stage": self.now.slowest_stage,
            "rate": self.rate.round(),
            "seconds_left": self.left.map(|left| left.as_secs()),
            "elapsed_ms": millis(self.elapsed),
        })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Percentage, rounded down, so that 100 means complete. A stated total may be too small.
fn percent(part: u64, whole: u64) -> Option<u128> {
    (u128::from(part) * 100).checked_div(u128::from(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::progress::snapshot::PhaseSnapshot;

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
        assert_eq!(reading(bytes(0)).describe(), "0 B, 0 B/s");
        let all = Snapshot {
            done: 2 << 30,
            total: Some(3 << 30),
            stored: Some(1 << 30),
            retries: 2,
            slowest_stage: Some("upload".to_owned()),
            phase: None,
        };
        assert_eq!(
            reading(all.clone()).describe(),
            "2.00 GiB of 3.00 GiB (66%), stored 1.00 GiB (50%), 1.00 GiB/s, ETA 0:01, 2 retries, \
             upload is slowest"
        );
        assert_eq!(
            reading(all.clone()).describe_short(),
            "66% 2.00 GiB/3.00 GiB, 1.00 GiB/s, ETA 0:01, upload is slowest, stored 50%, 2 retries"
        );
        assert_eq!(reading(bytes(0)).describe_short(), "0 B, 0 B/s");
        let one = Snapshot { retries: 1, total: Some(0), stored: Some(0), ..bytes(0) };
        assert_eq!(reading(one).describe(), "0 B of 0 B, stored 0 B, 0 B/s, 1 retry");
        let event = reading(all).event("put");
        assert_eq!(event["done"], 2u64 << 30);
        assert_eq!(event["rate"], f64::from(1 << 30));
        assert_eq!(event["seconds_left"], 1);
        assert_eq!(event["elapsed_ms"], 2000);
        assert_eq!(event["slowest_stage"], "upload");
    }

    #[test]
    fn a_phase_has_its_own_numbers() {
        let phase = |name: &str, number, done, total, elapsed| {
            let name = name.to_owned();
            let elapsed = seconds(elapsed);
            let phase = PhaseSnapshot { name, number, of: 3, done, total, elapsed, silent: None };
            Snapshot { phase: Some(phase), ..bytes(5 << 20) }
        };
        let mut meter = Meter::default();
        let fetch = meter.read(seconds(5.0), &phase("fetch", 1, 4 << 20, Some(8 << 20), 4.0));
        assert_eq!(fetch.label("restore"), "restore 1/3 fetch");
        assert_eq!(fetch.describe(), "4.00 MiB of 8.00 MiB (50%), 1.00 MiB/s, ETA 0:04");
        assert_eq!(fetch.describe_short(), "50% 4.00 MiB/8.00 MiB, 1.00 MiB/s, ETA 0:04");
        let event = fetch.event("restore");
        assert_eq!(event["phase"]["name"], "fetch");
        assert_eq!((&event["phase"]["number"], &event["phase"]["of"]), (&json!(1), &json!(3)));
        assert_eq!((&event["phase"]["done"], &event["done"]), (&json!(4 << 20), &json!(5 << 20)));
        // Another program works.
        let prepare = meter.read(seconds(67.0), &phase("prepare", 2, 0, None, 62.0));
        assert_eq!(prepare.label("restore"), "restore 2/3 prepare");
        assert_eq!([prepare.describe(), prepare.describe_short()], ["1m 02s", "1m 02s"]);
        assert_eq!(prepare.event("restore")["phase"]["silent_ms"], Value::Null);
        let mut quiet = phase("prepare", 2, 0, None, 602.0);
        for (silent, expected) in
            [(59.0, "10m 02s"), (600.0, "10m 02s, program silent for 10m 00s")]
        {
            quiet.phase.as_mut().unwrap().silent = Some(seconds(silent));
            let reading = Meter::default().read(seconds(605.0), &quiet);
            assert_eq!([reading.describe(), reading.describe_short()], [expected, expected]);
            assert_eq!(reading.event("restore")["phase"]["silent_ms"], silent * 1000.0);
        }
        // The rate is that of this phase alone.
        let last = meter.read(seconds(69.0), &phase("check", 3, 2 << 20, Some(2 << 20), 1.0));
        assert_eq!(last.describe(), "2.00 MiB of 2.00 MiB (100%), 2.00 MiB/s, ETA 0:00");
        let mut single = phase("fetch", 1, 1, None, 1.0);
        single.phase.as_mut().unwrap().of = 1;
        assert_eq!(Meter::default().read(seconds(1.0), &single).label("get"), "get");
    }
}
