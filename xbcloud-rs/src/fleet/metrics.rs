//! The fleet as metrics, in the text format of Prometheus.
//!
//! Facts about a newest backup and its proof have the names that `run` gives them. The
//! label `fleet` keeps them apart from those, if both are collected on one host.

use std::time::Duration;

use xb_backup::ChainLock;

use crate::fleet::{Fleet, FleetRow, NewestBackup, trend_text};
use crate::job::shared_metrics::{self, Metric};
use crate::job::{ArchiveFacts, LabelledText, escaped};

/// Prefix of the names of the metrics of a fleet alone.
const PREFIX: &str = "xbcloud_fleet_";

/// Returns whether a file holds metrics of another command, which must not be replaced.
pub(crate) fn holds_others(old: &str) -> bool {
    let is_of_fleet = old.lines().any(|line| line.starts_with(&format!("# HELP {PREFIX}")));
    !is_of_fleet && old.lines().any(|line| line.starts_with("# HELP xbcloud_"))
}

/// A number of a line.
type Value = Box<dyn Fn(&FleetRow) -> Option<String>>;

/// The metrics of one name.
#[derive(Default)]
struct Block {
    name: String,
    /// Its comments.
    head: String,
    samples: String,
}

/// The blocks of a text, with the samples that are to be kept.
fn blocks(text: &str, is_kept: impl Fn(&str) -> bool) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default().to_owned();
            all.push(Block { name, ..Block::default() });
        }
        let Some(block) = all.last_mut() else { continue };
        let part = match line.starts_with('#') {
            true => &mut block.head,
            false if is_kept(line) => &mut block.samples,
            false => continue,
        };
        part.push_str(line);
        part.push('\n');
    }
    all
}

/// The label of a fleet.
fn label(fleet: &Fleet) -> String {
    format!("fleet=\"{}\"", escaped(&fleet.place))
}

/// Returns the text of the file; `old` is its text before, in which the samples of other fleets stay.
pub(crate) fn metrics_beside(fleet: &Fleet, tool: &str, old: &str) -> String {
    let own = format!("{{{}", label(fleet));
    let mut all = blocks(&metrics(fleet, tool), |_| true);
    for other in blocks(old, |line| !line.contains(&own)) {
        match all.iter_mut().find(|block| block.name == other.name) {
            Some(block) => block.samples.push_str(&other.samples),
            None if other.samples.is_empty() => {}
            None => all.push(other),
        }
    }
    all.into_iter().map(|block| block.head + &block.samples).collect()
}

/// The metrics of this fleet alone.
fn metrics(fleet: &Fleet, tool: &str) -> String {
    let mut text = LabelledText::with_labels(label(fleet));
    let (code, _) = fleet.worst();
    let (backups, bytes) = fleet.backups();
    text.head("xbcloud_fleet_build_info", "Version of the program that ran.");
    text.sample("xbcloud_fleet_build_info", &format!(",version=\"{}\"", escaped(tool)), "1");
    let mut one = |name: &str, help: &str, value: String| {
        text.one(&format!("{PREFIX}{name}"), help, value);
    };
    one("exit_code", "Worst state: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.", code.to_string());
    one("end_timestamp_seconds", "When the scan ended.", fleet.ended.as_second().to_string());
    let seconds = fleet.ended.duration_since(fleet.began).as_secs_f64().max(0.0);
    one("duration_seconds", "Duration of the scan.", seconds.to_string());
    one("requests", "Requests to the store.", fleet.requests.to_string());
    one("repositories", "Repositories that were found.", fleet.repositories.to_string());
    let too_deep = fleet.too_deep.len().to_string();
    one("too_deep", "Folders that were not searched, because of --depth.", too_deep);
    let too_many = fleet.too_many.len().to_string();
    one("too_many", "Folders that were not searched, because of --max-folders.", too_many);
    one("backups", "Complete backups of all servers.", backups.to_string());
    one("stored_bytes", "Size of all complete backups in the store.", bytes.to_string());
    text.head("xbcloud_fleet_servers", "Servers, by state.");
    for (code, state) in [(0, "OK"), (1, "WARNING"), (2, "CRITICAL"), (3, "UNKNOWN")] {
        let label = format!(",state=\"{state}\"");
        text.sample("xbcloud_fleet_servers", &label, &fleet.count(code).to_string());
    }
    for (name, help, value) in of_lines() {
        let samples: Vec<_> =
            fleet.lines.iter().filter_map(|line| Some((labels(line), value(line)?))).collect();
        if samples.is_empty() {
            continue;
        }
        text.head(name, help);
        for (labels, value) in samples {
            text.sample(name, &labels, &value);
        }
    }
    verified(&mut text, fleet);
    text.finish()
}

fn labels(line: &FleetRow) -> String {
    let server = line.server().map(|server| format!(",server=\"{}\"", escaped(server)));
    format!(",repository=\"{}\"{}", escaped(&line.root), server.unwrap_or_default())
}

/// The metrics that each line may have: name, help, value.
fn of_lines() -> Vec<(&'static str, &'static str, Value)> {
    fn newest(of: impl Fn(&NewestBackup) -> Option<u64> + 'static) -> Value {
        Box::new(move |line| Some(of(line.newest.as_ref()?)?.to_string()))
    }
    fn archive(of: impl Fn(&ArchiveFacts) -> Option<Duration> + 'static) -> Value {
        Box::new(move |line| Some(of(line.archive.as_ref()?)?.as_secs().to_string()))
    }
    let shared = |(name, help): Metric, value| (name, help, value);
    vec![
        (
            "xbcloud_fleet_state",
            "State of a server: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
            Box::new(|line| Some(line.verdict.code.to_string())),
        ),
        (
            "xbcloud_fleet_server_backups",
            "Complete backups of a server.",
            Box::new(|line| Some(line.found.as_ref()?.backups.to_string())),
        ),
        (
            "xbcloud_fleet_server_stored_bytes",
            "Size of the complete backups of a server in the store.",
            Box::new(|line| line.found.as_ref().map(|_| line.stored_bytes.to_string())),
        ),
        (
            "xbcloud_fleet_newest_timestamp_seconds",
            "When the newest backup that can be restored ended.",
            newest(|newest| u64::try_from(newest.finished.as_second()).ok()),
        ),
        (
            "xbcloud_fleet_newest_chain_backups",
            "Backups that a restore of the newest one needs, itself included.",
            newest(|newest| Some(newest.chain.len() as u64)),
        ),
        (
            "xbcloud_fleet_newest_trend_percent",
            "How much larger than usual the newest full backup is.",
            Box::new(|line| {
                let text = trend_text(line.newest.as_ref()?.trend?)?;
                Some(text.trim_start_matches(['>', '+']).trim_end_matches('%').to_owned())
            }),
        ),
        (
            "xbcloud_fleet_locked_until_timestamp_seconds",
            "End of the shortest lock in the newest chain; 0 if a backup of it is not locked. Absent if unknown.",
            newest(|newest| match newest.lock? {
                ChainLock::Until(until) => u64::try_from(until.as_second()).ok(),
                ChainLock::Open => Some(0),
                ChainLock::Unknown(_) => None,
            }),
        ),
        shared(shared_metrics::STORED_BYTES, newest(|newest| newest.stored_bytes)),
        shared(shared_metrics::STREAM_BYTES, newest(|newest| newest.stream_bytes)),
        shared(shared_metrics::OBJECTS, newest(|newest| newest.objects)),
        shared(shared_metrics::FILES, newest(|newest| newest.files)),
        shared(shared_metrics::TABLES, newest(|newest| newest.tables)),
        shared(shared_metrics::SHRUNK, newest(|newest| Some(newest.is_shrunk.into()))),
        shared(shared_metrics::ENCRYPTED, newest(|newest| newest.encrypted.map(u64::from))),
        shared(
            shared_metrics::ARCHIVED,
            Box::new(|line| {
                let archive = line.archive.as_ref().filter(|_| line.newest.is_some())?;
                let is_archived = archive.uncovered.is_none() && archive.missing.is_none();
                Some(u8::from(is_archived).to_string())
            }),
        ),
        // Not the times that a receiver writes every few seconds: these stay as they are until the next look.
        (
            "xbcloud_fleet_binlog_behind_seconds",
            "How long ago the archived log of a server had ended when the fleet was read.",
            archive(|archive| archive.behind),
        ),
        (
            "xbcloud_fleet_binlog_silent_seconds",
            "How long its receiver had been silent then.",
            archive(|archive| archive.silent),
        ),
        (
            "xbcloud_fleet_binlog_gap",
            "Whether logs after the newest backup are lost.",
            Box::new(|line| {
                let archive = line.archive.as_ref()?;
                Some(u8::from(archive.gap.is_some() || archive.missing.is_some()).to_string())
            }),
        ),
    ]
}

/// When each newest backup was verified, with the level as a label.
fn verified(text: &mut LabelledText, fleet: &Fleet) {
    let (name, help) = shared_metrics::VERIFIED;
    let mut is_first = true;
    for line in &fleet.lines {
        let Some((level, at)) = line.newest.as_ref().and_then(|newest| newest.verified) else {
            continue;
        };
        if std::mem::take(&mut is_first) {
            text.head(name, help);
        }
        let labels = format!("{},level=\"{level}\"", labels(line));
        text.sample(name, &labels, &at.as_second().to_string());
    }
}
