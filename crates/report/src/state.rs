//! Everything that a page is made of.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::section::Section;

/// Number of sections, stages and settings that are kept.
pub(crate) const MAX_ROWS: usize = 64;
/// Number of retries of which the error is kept: of the first ones, and of the last ones.
pub(crate) const FIRST_RETRIES: usize = 5;
pub(crate) const LAST_RETRIES: usize = 15;

/// What is known when a run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What is run, as a noun: `Backup`.
    pub what: String,
    /// Program and version.
    pub tool: String,
    /// Where to, or where from; without secrets.
    pub place: String,
    /// Name of this host.
    pub host: String,
    /// When it began.
    pub started: Timestamp,
}

/// How a run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// When it ended.
    pub finished: Timestamp,
    /// Exit code of the program, and what it means.
    pub exit: u8,
    /// Meaning of the exit code.
    pub meaning: String,
    /// First cause of a failure.
    pub error: Option<Cause>,
}

/// First cause of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What failed, on what, and why.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// How a stage of a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageEnd {
    /// Done.
    Ok,
    /// Failed.
    Failed,
    /// Not begun, because an earlier stage failed.
    Skipped,
}

/// A stage of a run, such as `verify`.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) end: StageEnd,
    /// Since the begin of the run.
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// A retry with the error before it.
#[derive(Debug)]
pub(crate) struct Retry {
    /// Since the begin of the run.
    pub(crate) at: Duration,
    pub(crate) error: String,
}

/// Everything a page is made of.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) head: Head,
    /// Name of the backup, once it is known.
    pub(crate) name: Option<String>,
    pub(crate) begun: Instant,
    pub(crate) sections: Vec<Section>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) warnings: Vec<String>,
    pub(crate) retries: Vec<Retry>,
    /// Number of retries whose error was not kept.
    pub(crate) more_retries: u64,
}
