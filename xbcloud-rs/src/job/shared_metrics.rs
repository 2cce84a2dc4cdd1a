//! Metrics that `run` and `fleet` both write: the collector refuses one name with two texts of help.

/// Name and help.
pub(crate) type Metric = (&'static str, &'static str);

pub(crate) const STORED_BYTES: Metric =
    ("xbcloud_backup_stored_bytes", "Size of the last backup in the store.");
pub(crate) const STREAM_BYTES: Metric =
    ("xbcloud_backup_stream_bytes", "Size of the last backup's stream.");
pub(crate) const OBJECTS: Metric = ("xbcloud_backup_objects", "Objects of the last backup.");
pub(crate) const FILES: Metric = ("xbcloud_backup_files", "Files in the last backup.");
pub(crate) const TABLES: Metric = ("xbcloud_backup_tables", "User tables in the last backup.");
pub(crate) const SHRUNK: Metric = (
    "xbcloud_backup_shrunk",
    "Whether the last backup is much smaller than usual and not accepted.",
);
pub(crate) const ENCRYPTED: Metric =
    ("xbcloud_backup_encrypted", "Whether our programs have encrypted the last backup.");
pub(crate) const ARCHIVED: Metric = (
    "xbcloud_backup_archived",
    "Whether the archived binary log can be replayed onto the last backup.",
);
pub(crate) const VERIFIED: Metric =
    ("xbcloud_verify_timestamp_seconds", "When a backup was last verified by a run, by level.");
