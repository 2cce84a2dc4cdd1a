//! The document of one run.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Version of the document. It changes only when a field changes its meaning or disappears.
pub const FORMAT: u32 = 1;

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
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
pub enum StageStatus {
    /// Done.
    Ok,
    /// Failed; the run's error is the first of these.
    Failed,
    /// Not begun, because an earlier stage failed.
    Skipped,
}

/// One stage of a run, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// `backup`, `verify`, `copy`, `prune`, or a hook: `before`, `after`, `on-failure`.
    pub stage: String,
    /// Outcome.
    pub status: StageStatus,
    /// Duration in seconds.
    pub seconds: f64,
    /// Details of its result; an object.
    pub details: Value,
}

/// First cause of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirstCause {
    /// Stage that failed.
    pub stage: String,
    /// The failure: what failed, on what, and why.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
}

/// Document of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: u32,
    /// Program and version.
    pub tool: String,
    /// Name of the repository, or its ROOT.
    pub repository: String,
    /// Name of this host.
    pub host: String,
    /// ID of the backed-up server, if it is known.
    pub server: Option<String>,
    /// Name of the backup.
    pub name: Option<String>,
    /// Outcome.
    pub status: RunStatus,
    /// Exit code of the program.
    pub exit: u8,
    /// When it began, UTC.
    pub started: Timestamp,
    /// When it ended, UTC.
    pub finished: Option<Timestamp>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Stages, in order.
    pub stages: Vec<Stage>,
    /// First cause of the failure.
    pub error: Option<FirstCause>,
    /// Unusual events that were no failures.
    pub warnings: Vec<String>,
}

impl RunResult {
    /// Creates the document of a run that begins.
    #[must_use]
    pub fn begin(tool: &str, repository: &str, host: &str, started: Timestamp) -> Self {
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
    pub fn stage(&mut self, stage: &str, status: StageStatus, seconds: f64, details: Value) {
        self.stages.push(Stage { stage: stage.to_owned(), status, seconds, details });
    }

    /// Ends the run, with the exit code of the program and the error, if there is one.
    pub fn end(&mut self, finished: Timestamp, exit: u8, error: Option<FirstCause>) {
        self.status = if error.is_none() { RunStatus::Ok } else { RunStatus::Failed };
        self.exit = exit;
        self.seconds = finished.duration_since(self.started).as_secs_f64().max(0.0);
        self.finished = Some(finished);
        self.error = error;
    }

    /// Returns the stage of this name, if it succeeded.
    #[must_use]
    pub fn succeeded(&self, stage: &str) -> Option<&Stage> {
        self.stages.iter().find(|own| own.stage == stage && own.status == StageStatus::Ok)
    }

    /// Returns the document as JSON text, with a final newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and maps with string keys: this cannot fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }
}
