//! Why a table is not filled, and whether others that a pattern matches may be.

use super::faithful::of_backup;
use super::rows::RowsError;
use super::sink::SinkError;

/// Reason why a table is not filled.
pub(super) enum Unfilled {
    /// It cannot be made from this backup as it was. Others may be.
    Lost(String),
    /// The server does not take its rows, or not as they are.
    Refused(String),
    Failed(String),
}

impl Unfilled {
    /// An error of the place where the table goes, and what is to be said of it.
    pub(super) fn of(error: &SinkError, what: String) -> Self {
        // A server that refused a statement may take those of other tables.
        match error.is_refusal() {
            true => Self::Lost(what),
            false => Self::Failed(what),
        }
    }
}

impl From<SinkError> for Unfilled {
    fn from(error: SinkError) -> Self {
        Self::of(&error, error.to_string())
    }
}

impl From<String> for Unfilled {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

/// For rows that are read from the private server.
impl From<RowsError> for Unfilled {
    fn from(stop: RowsError) -> Self {
        match stop {
            RowsError::Server(error) => Self::Lost(of_backup(&error)),
            RowsError::Refused(what) => Self::Refused(what),
            RowsError::Other(what) => Self::Failed(what),
        }
    }
}
