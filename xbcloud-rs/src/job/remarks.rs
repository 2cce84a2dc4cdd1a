//! Remarks of a monitor, and how they show ages.

use std::time::Duration;

/// Remarks about one or several servers, by their weight.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Remarks {
    pub(crate) critical: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) good: Vec<String>,
}

/// An age in its largest two units: `3d 4h`, `2h 5m`, `40s`.
pub(crate) fn span(age: Duration) -> String {
    let seconds = age.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, 0) => format!("{hours}h"),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, 0, _) => format!("{days}d"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}
