//! Retries in the log: the first one at once, later ones only now and then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use xb_cli::{Level, Log};

use crate::commands::reporting::Reporting;

/// Minimum time between two warnings about retries. `--verbose` shows all of them.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// Reports the retries of all stores in the log, and in the report of the run, from now on.
pub(crate) fn report(log: &Log, reporting: Reporting) {
    let (log, last) = (log.clone(), Mutex::new(None));
    xb_uploader::report_retries(move |error, pause| {
        reporting.retry(error);
        let line = format!("{error}; the next try follows in {} s", pause.as_secs().max(1));
        if is_due(&mut last.lock().unwrap_or_else(PoisonError::into_inner), Instant::now()) {
            // With --quiet, only the error that ends the run is shown.
            log.info(line);
        } else if log.level() >= Level::Verbose {
            log.verbose(line);
        }
    });
}

fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now.duration_since(last) >= SILENCE);
    if due {
        *last = Some(now);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_reported_and_the_next_ones_not() {
        let (mut last, begin) = (None, Instant::now());
        assert!(is_due(&mut last, begin));
        assert!(!is_due(&mut last, begin + SILENCE / 2));
        assert!(is_due(&mut last, begin + SILENCE));
        assert!(!is_due(&mut last, begin + SILENCE + SILENCE / 2));
    }
}
