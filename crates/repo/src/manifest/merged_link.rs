//! Names a backup that was merged into another one.

use serde::{Deserialize, Serialize};

/// A backup that was merged into another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedLink {
    /// Name of the backup.
    pub name: String,
    /// Run of the backup.
    pub run: String,
    /// SHA-256 of the text of its manifest, hexadecimal, as in the manifest's own check line.
    pub manifest: String,
}
