//! Round numbers for the axes of a chart.

use std::time::Duration;

use crate::page::units::{real, unit};

/// A line across the chart and its label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// Steps between the lines of an axis of time, in seconds.
const TIME_STEPS: [f64; 24] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0, 86_400.0, 172_800.0, 604_800.0,
];

/// Returns about four lines for rates up to `peak` bytes a second; the last one is above all of
/// them.
pub(crate) fn rates(peak: f64) -> Vec<Tick> {
    let (name, scale) = unit(peak.max(1.0));
    let step = round_up(peak.max(1.0) / scale / 4.0);
    let mut ticks = Vec::new();
    let mut number = 0_u32;
    loop {
        let value = step * f64::from(number);
        let decimals = if step < 1.0 { if step < 0.1 { 2 } else { 1 } } else { 0 };
        let label = match number {
            0 => "0".to_owned(),
            _ => format!("{value:.decimals$} {name}/s"),
        };
        ticks.push(Tick { at: value * scale, label });
        if number > 0 && (value * scale >= peak || number > 20) {
            return ticks;
        }
        number += 1;
    }
}

/// Returns at most ten lines for a time of this length.
pub(crate) fn times(length: Duration) -> Vec<Tick> {
    let length = length.as_secs_f64();
    let long_enough = TIME_STEPS.iter().find(|step| length / **step <= 9.0);
    let step = long_enough.copied().unwrap_or(length / 9.0);
    let mut ticks = Vec::new();
    for number in 0..10_u32 {
        let at = step * f64::from(number);
        if at > length {
            break;
        }
        ticks.push(Tick { at, label: time_label(at, step) });
    }
    ticks
}

fn time_label(seconds: f64, step: f64) -> String {
    // Steps of a minute and more are whole seconds.
    let whole = Duration::from_secs_f64(seconds).as_secs();
    match step {
        s if s < 0.1 => format!("{seconds:.2} s"),
        s if s < 1.0 => format!("{seconds:.1} s"),
        s if s < 60.0 && seconds < 60.0 => format!("{seconds:.0} s"),
        s if s < 60.0 => format!("{}:{:02}", whole / 60, whole % 60),
        s if s < 3_600.0 && seconds < 3_600.0 => format!("{} min", whole / 60),
        s if s < 86_400.0 => format!("{}:{:02} h", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d", whole / 86_400),
    }
}

/// Next number of the form 1, 2 or 5 times a power of ten.
fn round_up(number: f64) -> f64 {
    let power = 10_f64.powf(number.max(1e-9).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= number * 0.999);
    step.unwrap_or(10.0) * power
}

/// Returns the place of a number on a line of `length` pixels with the end `all`.
pub(crate) fn place(number: f64, all: f64, length: f64) -> f64 {
    if all > 0.0 { number / all * length } else { 0.0 }
}

/// Part of a whole, from 0 to 1.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { real(part) / real(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn rates_end_above_the_peak_in_round_steps() {
        let mib = 1024.0 * 1024.0;
        assert_eq!(
            labels(&rates(170.0 * mib)),
            ["0", "50 MiB/s", "100 MiB/s", "150 MiB/s", "200 MiB/s"]
        );
        assert_eq!(labels(&rates(2.2 * mib)), ["0", "1 MiB/s", "2 MiB/s", "3 MiB/s"]);
        for peak in [0.0, 0.5, 3.0, 999.0, 1e5, 7.77e9, 1e18] {
            let ticks = rates(peak);
            assert!((2..=6).contains(&ticks.len()), "{peak}: {ticks:?}");
            assert!(ticks.last().is_some_and(|tick| tick.at >= peak), "{peak}: {ticks:?}");
        }
    }

    #[test]
    fn times_are_in_units_of_people() {
        let of = |seconds| times(Duration::from_secs_f64(seconds));
        assert_eq!(
            labels(&of(3.9)),
            ["0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s", "2.5 s", "3.0 s", "3.5 s"]
        );
        assert_eq!(labels(&of(100.0))[4..], ["1:00", "1:15", "1:30"]);
        assert_eq!(labels(&of(1500.0)), ["0 min", "5 min", "10 min", "15 min", "20 min", "25 min"]);
        assert_eq!(labels(&of(20_000.0))[..2], ["0:00 h", "1:00 h"]);
        for seconds in [0.0, 0.3, 59.0, 61.0, 3e3, 1e5, 1e6, 1e8] {
            assert!((1..=10).contains(&of(seconds).len()), "{seconds}");
        }
    }
}
