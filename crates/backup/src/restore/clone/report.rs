//! Report of a restored clone.

use std::path::PathBuf;

/// Report of a restored clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloneReport {
    /// Version of its server.
    pub version: String,
    /// Tables of other engines than InnoDB, which are empty.
    pub empty_tables: Vec<String>,
    /// Files that lay outside of its server's data directory: where they were, and where in the directory they are.
    pub moved: Vec<(String, String)>,
    /// Where its data is in its server's history; known once a server has started on it.
    pub position: Option<ClonePosition>,
    /// XA transactions that are prepared in it, as `XA RECOVER` prints them; known once a server has started on it.
    pub prepared_xa: Vec<String>,
    /// The `lower_case_table_names` without which no server starts on it, unless that is 0; known once a server has started.
    pub lower_case_table_names: Option<String>,
    /// The server that prepared it.
    pub server: Option<PathBuf>,
    /// Why the server that prepared it could write anywhere; `None` if it could not.
    pub unconfined: Option<&'static str>,
}

/// Where the data of a restored clone is in its server's history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClonePosition {
    /// Name of the binary log, and offset in it in bytes; `None` if the server wrote none.
    pub binlog: Option<(String, u64)>,
    /// All transactions in the data.
    pub gtids: String,
}
