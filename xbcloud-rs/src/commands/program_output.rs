//! Output of the programs that prepare a backup for a server of ours: with `--verbose` as it comes, else only
//! its last lines, and only if a program fails.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use xb_backup::{BackupError, OnLine};
use xb_cli::{Level, Log};

/// Number of lines that are shown of a program that has failed.
const LAST: usize = 20;

/// The output of one run.
#[derive(Clone)]
pub(crate) struct ProgramOutput {
    log: Log,
    last: Arc<Mutex<VecDeque<String>>>,
}

impl ProgramOutput {
    pub(crate) fn new(log: &Log) -> Self {
        Self { log: log.clone(), last: Arc::default() }
    }

    /// What takes the lines.
    pub(crate) fn on_line(&self) -> OnLine {
        let Self { log, last } = self.clone();
        Arc::new(move |line| {
            let line = String::from_utf8_lossy(line);
            log.verbose(&line);
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.len() == LAST {
                last.pop_front();
            }
            last.push_back(line.into_owned());
        })
    }

    /// Shows the last lines if `error` is a program's, unless they were shown.
    pub(crate) fn explain(&self, error: &BackupError) {
        if !matches!(error, BackupError::Program { .. }) || self.log.level() >= Level::Verbose {
            return;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().for_each(|line| self.log.pass_on(line));
    }
}
