//! The verdict of a monitor as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::job::archive::ArchiveFacts;
use crate::job::monitor::{BackupFacts, Verdict};

/// The document for a repository.
pub(crate) fn monitor_json(
    repository: &str,
    verdict: &Verdict,
    servers: &[BackupFacts],
    archives: &[ArchiveFacts],
) -> Value {
    json!({
        "repository": repository,
        "state": verdict.state,
        "exit": verdict.code,
        "critical": verdict.remarks.critical,
        "warnings": verdict.remarks.warnings,
        "good": verdict.remarks.good,
        "servers": servers.iter().map(server_json).collect::<Vec<_>>(),
        "archives": archives.iter().map(archive_json).collect::<Vec<_>>(),
    })
}

/// Findings about a server.
pub(crate) fn server_json(found: &BackupFacts) -> Value {
    let pairs = |pairs: &[(String, String)]| -> Vec<Value> {
        pairs.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect()
    };
    json!({
        "server": found.server,
        "backups": found.backups,
        "last": found.last,
        "newest": found.newest.as_ref().map(|(name, age)| json!({
            "name": name, "age_seconds": age.as_secs(),
        })),
        "proven": found.proven.as_ref().map(|(name, level, age)| json!({
            "name": name, "level": level, "age_seconds": age.as_secs(),
        })),
        "damaged": found.damaged,
        "unreadable": found.unreadable,
        "broken": pairs(&found.broken),
        "unproven": pairs(&found.unproven),
        "shrunk": pairs(&found.shrunk),
        "untrusted": found.untrusted,
        "future": found.future,
    })
}

/// Findings about an archive.
pub(crate) fn archive_json(found: &ArchiveFacts) -> Value {
    let seconds = |age: Option<Duration>| age.map(|age| age.as_secs());
    json!({
        "server": found.server,
        "behind_seconds": seconds(found.behind),
        "silent_seconds": seconds(found.silent),
        "proven_seconds": seconds(found.proven),
        "gap": found.gap,
        "branch": found.branch,
        "trouble": found.trouble,
        "stranded": found.stranded,
        "missing": found.missing,
        "uncovered": found.uncovered.as_ref().map(|(name, why)| json!({ "name": name, "why": why })),
    })
}
