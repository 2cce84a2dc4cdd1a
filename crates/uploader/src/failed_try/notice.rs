//! Reports of retries and warnings, for the program's log. A run may wait long for its store; its
//! operator must see why before it ends.

use std::sync::OnceLock;
use std::time::Duration;

use crate::error::StoreError;

type Report = Box<dyn Fn(&StoreError, Duration) + Send + Sync>;

static REPORT: OnceLock<Report> = OnceLock::new();

/// Calls `report` before every retry of this process with the error of the failed try and the pause
/// before the next one. Only the first call has an effect. `report` must not block.
pub fn report_retries(report: impl Fn(&StoreError, Duration) + Send + Sync + 'static) {
    let _ = REPORT.set(Box::new(report));
}

type Warning = Box<dyn Fn(&str) + Send + Sync>;

static WARNING: OnceLock<Warning> = OnceLock::new();

/// Calls `report` with each warning about a store of this process. Only the first call has an
/// effect. `report` must not block.
pub fn report_warnings(report: impl Fn(&str) + Send + Sync + 'static) {
    let _ = WARNING.set(Box::new(report));
}

/// Warns of something about a store; see [`report_warnings`].
pub fn warn(message: &str) {
    if let Some(report) = WARNING.get() {
        report(message);
    }
}

pub(crate) fn retry(error: &StoreError, pause: Duration) {
    if let Some(report) = REPORT.get() {
        report(error, pause);
    }
}
