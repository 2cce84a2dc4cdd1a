//! The document of one run.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Version of the document. It changes only when a field changes its meaning or disappears.
pub(crate) const FORMAT: u32 = 1;

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunStatus {
    /// Not ended yet: the value that a hook before the run gets.
    Running,
    /// Every stage succeeded.
    Ok,
    /// A stage failed.
    Failed,
}

/// End of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StageStatus {
    /// Done.
    Ok,
    /// Failed; the run's error is the first of these.
    Failed,
    /// Not begun, because an earlier stage failed.
    Skipped,
}

/// One stage of a run, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Stage {
    /// `backup`, `verify`, `copy`, `prune`, or a hook: `before`, `after`, `on-failure`.
    pub(crate) stage: String,
    /// Outcome.
    pub(crate) status: StageStatus,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Details of its result; an object.
    pub(crate) details: Value,
}

/// First cause of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FirstCause {
    /// Stage that failed.
    pub(crate) stage: String,
    /// The failure: what failed, on what, and why.
    pub(crate) message: String,
    /// The next step.
    pub(crate) hint: Option<String>,
}

/// Document of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RunResult {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Program and version.
    pub(crate) tool: String,
    /// Name of the repository, or its ROOT.
    pub(crate) repository: String,
    /// Name of this host.
    pub(crate) host: String,
    /// ID of the backed-up server, if it is known.
    pub(crate) server: Option<String>,
    /// Name of the backup.
    pub(crate) name: Option<String>,
    /// Outcome.
    pub(crate) status: RunStatus,
    /// Exit code of the program.
    pub(crate) exit: u8,
    /// When it began, UTC.
    pub(crate) started: Timestamp,
    /// When it ended, UTC.
    pub(crate) finished: Option<Timestamp>,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Stages, in order.
    pub(crate) stages: Vec<Stage>,
    /// First cause of the failure.
    pub(crate) error: Option<FirstCause>,
    /// Unusual events that were no failures.
    pub(crate) warnings: Vec<String>,
}

impl RunResult {
    /// Creates the document of a run that begins.
    pub(crate) fn begin(tool: &str, repository: &str, host: &str, started: Timestamp) -> Self {
        Self {
            format: FORMAT,
            tool: tool.to_owned(),
            repository: repository.to_owned(),
            host: host.to_owned(),
            server: None,
            name: None,
            status: RunStatus::Running,
            exit: 0,
            started,
            finished: None,
            seconds: 0.0,
            stages: Vec::new(),
            error: None,
            warnings: Vec::new(),
        }
    }

    /// Adds a stage that has ended.
    pub(crate) fn stage(&mut self, stage: &str, status: StageStatus, seconds: f64, details: Value) {
        self.stages.push(Stage { stage: stage.to_owned(), status, seconds, details });
    }

    /// Ends the run, with the exit code of the program and the error, if there is one.
    pub(crate) fn end(&mut self, finished: Timestamp, exit: u8, error: Option<FirstCause>) {
        self.status = if error.is_none() { RunStatus::Ok } else { RunStatus::Failed };
        self.exit = exit;
        self.seconds = finished.duration_since(self.started).as_secs_f64().max(0.0);
        self.finished = Some(finished);
        self.error = error;
    }

    /// Returns the stage of this name, if it succeeded.
    pub(crate) fn succeeded(&self, stage: &str) -> Option<&Stage> {
        self.stages.iter().find(|own| own.stage == stage && own.status == StageStatus::Ok)
    }

    /// Returns the document as JSON text, with a final newline.
    pub(crate) fn to_json(&self) -> String {
        // Strings, numbers and maps with string keys: this cannot fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }
}
