//! All servers of all repositories below a place: one line for each, the worst first.

mod json;
mod metrics;
mod table;

use std::time::Duration;

use jiff::Timestamp;
use xb_backup::ChainLock;
use xb_repo::list::BackupKind;
use xb_repo::verification::Level;

pub(crate) use self::json::json;
pub(crate) use self::metrics::{holds_others, metrics_beside};
pub(crate) use self::table::{TableOptions, summary, table};
use crate::job::{ArchiveFacts, BackupFacts, Verdict};

/// Repositories found below a place.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The place, as a URL.
    pub(crate) place: String,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    /// One for each server of each repository, the worst first.
    pub(crate) lines: Vec<FleetRow>,
    /// Number of repositories.
    pub(crate) repositories: u64,
    /// Number of folders that were searched for repositories.
    pub(crate) searched: u64,
    /// Number of searched folders below the place.
    pub(crate) depth: u32,
    /// Folders that hold further ones, which were not searched because they lie too deep.
    pub(crate) too_deep: Vec<String>,
    /// Folders that hold more folders than could be searched, and how many they hold.
    pub(crate) too_many: Vec<(String, u64)>,
    /// Requests to the store, retries included; 0 for a local directory.
    pub(crate) requests: u64,
}

/// One server of a repository, or a repository about which nothing more is known.
#[derive(Debug)]
pub(crate) struct FleetRow {
    /// Path of the repository below the place; empty for the place itself.
    pub(crate) path: String,
    /// URL of the repository.
    pub(crate) root: String,
    pub(crate) verdict: Verdict,
    /// Unknown for a repository that could not be read.
    pub(crate) found: Option<BackupFacts>,
    /// Bytes of all its complete backups in the store.
    pub(crate) stored_bytes: u64,
    /// The newest backup that can be restored.
    pub(crate) newest: Option<NewestBackup>,
    pub(crate) archive: Option<ArchiveFacts>,
}

/// The newest backup of a server that can be restored.
#[derive(Debug, Clone)]
pub(crate) struct NewestBackup {
    pub(crate) name: String,
    pub(crate) finished: Timestamp,
    pub(crate) kind: Option<BackupKind>,
    /// The backups that a restore needs, the full one first.
    pub(crate) chain: Vec<String>,
    pub(crate) stored_bytes: Option<u64>,
    pub(crate) stream_bytes: Option<u64>,
    pub(crate) objects: Option<u64>,
    pub(crate) files: Option<u64>,
    pub(crate) tables: Option<u64>,
    pub(crate) encrypted: Option<bool>,
    pub(crate) is_shrunk: bool,
    /// Level to which it is verified, and when it was.
    pub(crate) verified: Option<(Level, Timestamp)>,
    /// Bytes of the newest full backup of its server, and what is usual.
    pub(crate) trend: Option<(u64, u64)>,
    /// Keys that open the backups of the chain: of all, those that are the same for each.
    pub(crate) keys: Vec<String>,
    /// End of the shortest lock in the chain; `None` if that was not asked for.
    pub(crate) lock: Option<ChainLock>,
}

impl Fleet {
    /// The worst state of all lines: CRITICAL, UNKNOWN, WARNING, OK, in this order. What was not searched is at least a
    /// warning.
    pub(crate) fn worst(&self) -> (u8, &'static str) {
        let worst = self.lines.iter().map(|line| &line.verdict).min_by_key(|v| weight(v.code));
        match worst.map_or((2, "CRITICAL"), |verdict| (verdict.code, verdict.state)) {
            (0, _) if !self.not_searched().is_empty() => (1, "WARNING"),
            state => state,
        }
    }

    /// Places that were not searched, each with the reason, as sentences.
    pub(crate) fn not_searched(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if !self.too_deep.is_empty() {
            let (depth, below) = (self.depth, first(&self.too_deep));
            texts.push(format!(
                "not searched more than {depth} folders deep: below {below}; raise --depth"
            ));
        }
        if !self.too_many.is_empty() {
            let within = first(&self.too_many());
            texts.push(format!(
                "not looked for in too many folders: those in {within}; raise --max-folders, or give a place below"
            ));
        }
        texts
    }

    /// The folders that hold too many folders, with their number.
    pub(crate) fn too_many(&self) -> Vec<String> {
        let named = |(path, number): &(String, u64)| {
            let path = if path.is_empty() { "the place itself" } else { path };
            format!("{path} ({number})")
        };
        self.too_many.iter().map(named).collect()
    }

    /// Puts the worst lines first.
    pub(crate) fn sort(&mut self) {
        self.lines.sort_by(|a, b| a.key().cmp(&b.key()));
    }

    /// Number of lines in this state.
    pub(crate) fn count(&self, code: u8) -> u64 {
        self.lines.iter().filter(|line| line.verdict.code == code).count() as u64
    }

    /// Number of complete backups, and their bytes in the store.
    pub(crate) fn backups(&self) -> (u64, u64) {
        let found = self.lines.iter().filter_map(|line| line.found.as_ref());
        let backups = found.map(|found| found.backups as u64).sum();
        let bytes = self.lines.iter().map(|line| line.stored_bytes);
        (backups, bytes.fold(0, u64::saturating_add))
    }
}

impl FleetRow {
    /// Order with the worst first: by state, by the age of the newest backup, then by name.
    fn key(&self) -> (u8, std::cmp::Reverse<Duration>, &str, Option<&String>) {
        let found = self.found.as_ref();
        let newest = found.and_then(|found| found.newest.as_ref());
        let age = newest.map_or(Duration::MAX, |(_, age)| *age);
        let server = found.and_then(|found| found.server.as_ref());
        (weight(self.verdict.code), std::cmp::Reverse(age), &self.path, server)
    }

    pub(crate) fn server(&self) -> Option<&str> {
        self.found.as_ref()?.server.as_deref()
    }

    /// Returns its verdict without the good parts.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &String> {
        self.verdict.remarks.critical.iter().chain(&self.verdict.remarks.warnings)
    }
}

/// The first of these names, and the number of the others.
fn first(names: &[String]) -> String {
    const NAMED: usize = 3;
    let named = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}, {more} more"),
    }
}

/// Place of a state in the order of what is worse.
fn weight(code: u8) -> u8 {
    match code {
        2 => 0,
        1 => 2,
        0 => 3,
        _ => 1,
    }
}

/// The chain in short: `full`, or the full backup and its increments, `1+6`; `elsewhere` if that is not here.
pub(crate) fn chain_text(newest: &NewestBackup) -> String {
    match newest.chain.len() {
        0 | 1 if newest.kind == Some(BackupKind::Incremental) => "elsewhere".to_owned(),
        0 | 1 => "full".to_owned(),
        links => format!("1+{}", links - 1),
    }
}

/// How much larger or smaller than usual the newest full backup is: `+3%`, `-60%`.
pub(crate) fn trend_text(trend: (u64, u64)) -> Option<String> {
    let (now, usual) = (i128::from(trend.0), i128::from(trend.1));
    let percent = (now - usual).checked_mul(100)?.checked_div(usual)?;
    Some(match percent {
        1000.. => ">+999%".to_owned(),
        percent => format!("{percent:+}%"),
    })
}

/// The archived log in short: its delay, or its fault.
pub(crate) fn log_text(archive: &ArchiveFacts, age: impl Fn(u64) -> String) -> String {
    match (&archive.gap, &archive.uncovered, archive.behind) {
        (Some(_), ..) => "gap".to_owned(),
        _ if archive.missing.is_some() => "missing".to_owned(),
        _ if archive.branch.is_some() => "branch".to_owned(),
        (None, Some(_), _) => "no replay".to_owned(),
        (None, None, Some(behind)) => age(behind.as_secs()),
        (None, None, None) => "empty".to_owned(),
    }
}

#[cfg(test)]
mod tests;
