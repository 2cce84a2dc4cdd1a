//! `check`: everything that a backup needs, tried before the first night.

pub(crate) mod binlog;
pub(crate) mod clone;
mod galera;
pub(crate) mod keys;
pub(crate) mod producer;
pub(crate) mod store;

use serde::Serialize;

use crate::error::BackupError;

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// In order.
    Ok,
    /// Backups work, but something else does not, or could not be checked.
    Warning,
    /// Backups fail.
    Failed,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckLine {
    /// Name of the check, in one or two words.
    pub what: &'static str,
    /// Its result.
    pub state: CheckState,
    /// The finding.
    pub found: String,
    /// The next step, in the imperative; absent if the check passed.
    pub fix: Option<String>,
}

impl CheckLine {
    /// Something in order.
    pub fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: CheckState::Ok, found: found.into(), fix: None }
    }

    /// Something that should be looked at.
    pub fn warning(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, state: CheckState::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    /// Something without which backups fail.
    pub fn failed(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what, state: CheckState::Failed, found: found.into(), fix: Some(fix.into()) }
    }
}

fn no_random(error: getrandom::Error) -> BackupError {
    BackupError::System { what: "no random numbers", source: error.into() }
}
