//! The fleet as JSON.

use serde_json::{Value, json};
use xb_backup::ChainLock;

use crate::fleet::{Fleet, FleetRow, NewestBackup, trend_text};
use crate::job::{archive_json, server_json};

/// The document.
pub(crate) fn json(fleet: &Fleet) -> Value {
    let (code, state) = fleet.worst();
    let (backups, stored_bytes) = fleet.backups();
    json!({
        "place": fleet.place,
        "state": state,
        "exit": code,
        "began": fleet.began,
        "ended": fleet.ended,
        "repositories": fleet.repositories,
        "searched": fleet.searched,
        "too_deep": fleet.too_deep,
        "too_many": fleet.too_many.iter().map(|(path, folders)| json!({"path": path, "folders": folders})).collect::<Vec<_>>(),
        "backups": backups,
        "stored_bytes": stored_bytes,
        "requests": fleet.requests,
        "critical": fleet.count(2),
        "unknown": fleet.count(3),
        "warning": fleet.count(1),
        "ok": fleet.count(0),
        "servers": fleet.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn line(line: &FleetRow) -> Value {
    let remarks = &line.verdict.remarks;
    json!({
        "path": line.path,
        "root": line.root,
        "server": line.server(),
        "state": line.verdict.state,
        "exit": line.verdict.code,
        "critical": remarks.critical,
        "warnings": remarks.warnings,
        "good": remarks.good,
        "stored_bytes": line.stored_bytes,
        "newest": line.newest.as_ref().map(newest),
        "found": line.found.as_ref().map(server_json),
        "archive": line.archive.as_ref().map(archive_json),
    })
}

fn newest(newest: &NewestBackup) -> Value {
    let verified = newest.verified;
    json!({
        "name": newest.name,
        "finished": newest.finished,
        "kind": newest.kind,
        "chain": newest.chain,
        "stored_bytes": newest.stored_bytes,
        "stream_bytes": newest.stream_bytes,
        "objects": newest.objects,
        "files": newest.files,
        "tables": newest.tables,
        "encrypted": newest.encrypted,
        "shrunk": newest.is_shrunk,
        "verified": verified.map(|(level, at)| json!({ "level": level, "at": at })),
        "trend": newest.trend.and_then(trend_text),
        "full_bytes": newest.trend.map(|(bytes, _)| bytes),
        "usual_bytes": newest.trend.map(|(_, usual)| usual),
        "keys": newest.keys,
        "locked_until": match newest.lock {
            Some(ChainLock::Until(until)) => Some(until),
            Some(ChainLock::Open | ChainLock::Unknown(_)) | None => None,
        },
        "lock": newest.lock.map(|lock| match lock {
            ChainLock::Until(_) => "locked",
            ChainLock::Open => "open",
            ChainLock::Unknown(_) => "unknown",
        }),
    })
}
