//! Metrics of a run, in the text format of Prometheus, for the textfile collector.

use std::fmt::Write as _;

use crate::job::result::{RunResult, RunStatus, Stage, StageStatus};
use crate::job::shared_metrics::{self, Metric};

/// Time of the last successful run: kept from the old file when a run fails.
const LAST_SUCCESS: &str = "xbcloud_run_last_success_timestamp_seconds";

/// Metrics that copy a number of a stage's details.
const OF_DETAILS: [(&str, &str, Metric); 8] = [
    ("backup", "stored_bytes", shared_metrics::STORED_BYTES),
    ("backup", "stream_bytes", shared_metrics::STREAM_BYTES),
    ("backup", "objects", shared_metrics::OBJECTS),
    ("backup", "files", shared_metrics::FILES),
    ("backup", "tables", shared_metrics::TABLES),
    ("backup", "retries", ("xbcloud_backup_retries", "Retried requests of the last backup.")),
    ("prune", "kept", ("xbcloud_prune_kept_backups", "Backups that the last prune kept.")),
    ("prune", "removed", ("xbcloud_prune_removed_backups", "Backups that the last prune removed.")),
];

/// Whether the backups that this host had stored are gone.
const BEGUN_ANEW: Metric = (
    "xbcloud_repository_begun_anew",
    "Whether all backups that this host had stored in the repository are gone, and this is not accepted.",
);

/// Whether an increment may have nothing new.
const STUCK_LSN: Metric = (
    "xbcloud_backup_stuck_lsn",
    "Whether the last backup is an increment whose server has written no checkpoint since its base.",
);

/// Returns the metrics of an ended run. `old` is the text of the previous run's file, from which
/// the time of the last success is kept if this run failed.
pub(crate) fn metrics(result: &RunResult, old: Option<&str>) -> String {
    let mut text = Text::new(&result.repository, result.server.as_deref());
    let ok = result.status == RunStatus::Ok;
    text.head("xbcloud_build_info", "Version of the program that ran last.");
    text.sample("xbcloud_build_info", &format!(",version=\"{}\"", escaped(&result.tool)), "1");
    text.one("xbcloud_run_success", "Whether the last run succeeded.", u8::from(ok));
    text.one("xbcloud_run_exit_code", "Exit code of the last run.", result.exit);
    text.one(
        "xbcloud_run_start_timestamp_seconds",
        "When the last run began.",
        result.started.as_second(),
    );
    if let Some(finished) = result.finished {
        text.one(
            "xbcloud_run_end_timestamp_seconds",
            "When the last run ended.",
            finished.as_second(),
        );
    }
    let last_success = match (ok, result.finished) {
        (true, Some(finished)) => Some(finished.as_second().to_string()),
        _ => old.and_then(|old| previous(old, LAST_SUCCESS, &text.labels)),
    };
    if let Some(time) = last_success {
        text.one(LAST_SUCCESS, "When the last successful run ended.", time);
    }
    text.one("xbcloud_run_duration_seconds", "Duration of the last run.", result.seconds);
    text.one("xbcloud_run_warnings", "Warnings of the last run.", result.warnings.len());
    stages(&mut text, result);
    for (stage, field, (name, help)) in OF_DETAILS {
        let value = result.succeeded(stage).and_then(|stage| stage.details[field].as_u64());
        if let Some(value) = value {
            text.one(name, help, value);
        }
    }
    if let Some(Stage { details, .. }) = result.succeeded("backup") {
        let flags = [
            (shared_metrics::SHRUNK, Some(details["shrunk"].is_string())),
            (BEGUN_ANEW, Some(details["begun_anew"].is_string())),
            (STUCK_LSN, Some(details["stuck_lsn"].is_u64())),
            (shared_metrics::ENCRYPTED, details["encrypted"].as_bool()),
            (shared_metrics::ARCHIVED, details["archived"].as_bool()),
        ];
        for ((name, help), flag) in flags {
            if let Some(flag) = flag {
                text.one(name, help, u8::from(flag));
            }
        }
    }
    if let Some((stage, finished)) = result.succeeded("verify").zip(result.finished) {
        let level = stage.details["reached"].as_str().unwrap_or("none");
        let (name, help) = shared_metrics::VERIFIED;
        text.head(name, help);
        text.sample(
            name,
            &format!(",level=\"{}\"", escaped(level)),
            &finished.as_second().to_string(),
        );
        let until = stage.details["proven_until"].as_str();
        if let Some(until) = until.and_then(|until| until.parse::<jiff::Timestamp>().ok()) {
            text.one(
                "xbcloud_verify_proven_until_timestamp_seconds",
                "Time up to which the verification has replayed the archived binary log.",
                until.as_second(),
            );
        }
    }
    text.out
}

/// The hooks of one kind are one stage here: no two samples may have the same labels.
fn stages(text: &mut Text, result: &RunResult) {
    let mut stages: Vec<(&str, bool, f64)> = Vec::new();
    for Stage { stage, status, seconds, .. } in &result.stages {
        let ok = *status == StageStatus::Ok;
        match stages.iter_mut().find(|(name, ..)| name == stage) {
            Some((_, all_ok, sum)) => (*all_ok, *sum) = (*all_ok && ok, *sum + seconds),
            None => stages.push((stage, ok, *seconds)),
        }
    }
    let mut of = |name: &str, help: &str, value: fn(bool, f64) -> String| {
        if !stages.is_empty() {
            text.head(name, help);
        }
        for (stage, ok, seconds) in &stages {
            let label = format!(",stage=\"{}\"", escaped(stage));
            text.sample(name, &label, &value(*ok, *seconds));
        }
    };
    of("xbcloud_stage_success", "Whether a stage of the last run succeeded.", |ok, _| {
        u8::from(ok).to_string()
    });
    of("xbcloud_stage_duration_seconds", "Duration of a stage of the last run.", |_, seconds| {
        seconds.to_string()
    });
}

/// Metrics in the text format, as they grow.
pub(crate) struct Text {
    /// Labels of every sample.
    labels: String,
    out: String,
}

impl Text {
    pub(crate) fn new(repository: &str, server: Option<&str>) -> Self {
        let mut labels = format!("repository=\"{}\"", escaped(repository));
        if let Some(server) = server {
            labels = format!("{labels},server=\"{}\"", escaped(server));
        }
        Self::with_labels(labels)
    }

    /// Metrics that have these labels in every sample.
    pub(crate) fn with_labels(labels: String) -> Self {
        Self { labels, out: String::new() }
    }

    pub(crate) fn labels(&self) -> String {
        self.labels.clone()
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    pub(crate) fn head(&mut self, name: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
    }

    pub(crate) fn sample(&mut self, name: &str, more_labels: &str, value: &str) {
        let _ = writeln!(self.out, "{name}{{{}{more_labels}}} {value}", self.labels);
    }

    pub(crate) fn one(&mut self, name: &str, help: &str, value: impl ToString) {
        self.head(name, help);
        self.sample(name, "", &value.to_string());
    }
}

/// The value of a sample in an earlier file of ours.
pub(crate) fn previous(old: &str, name: &str, labels: &str) -> Option<String> {
    let start = format!("{name}{{{labels}}} ");
    let value = old.lines().find_map(|line| line.strip_prefix(&start))?;
    value.parse::<i64>().ok().map(|value| value.to_string())
}

pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::result::FirstCause;

    fn begun() -> RunResult {
        RunResult::begin(
            "xbcloud-rs 0.1.0",
            "sh\"op\\",
            "db1",
            "2026-11-22T03:15:00Z".parse().unwrap(),
        )
    }

    fn good() -> RunResult {
        let mut result = begun();
        result.stage(
            "backup",
            StageStatus::Ok,
            12.5,
            json!({ "stored_bytes": 4096, "objects": 2 }),
        );
        result.stage("verify", StageStatus::Ok, 1.0, json!({ "reached": "checksum" }));
        result.end("2026-11-22T03:15:20Z".parse().unwrap(), 0, None);
        result
    }

    #[test]
    fn the_state_of_the_archived_log_is_shown() {
        let text = metrics(&good(), None);
        assert!(!text.contains("xbcloud_backup_archived") && !text.contains("proven_until"));
        let mut result = good();
        result.stages[0].details["archived"] = json!(false);
        result.stages[1].details["proven_until"] = json!("2026-11-22T03:00:00Z");
        let text = metrics(&result, None);
        check(&text);
        assert!(
            text.lines()
                .any(|line| line.starts_with("xbcloud_backup_archived{") && line.ends_with(" 0"))
        );
        let until = format!(
            "}} {}\n",
            "2026-11-22T03:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second()
        );
        let name = "xbcloud_verify_proven_until_timestamp_seconds{";
        assert!(text.contains(name) && text.contains(&until), "{text}");
    }

    /// The format's rules: HELP and TYPE before the samples of a name, each name in one block,
    /// labels quoted, values numbers.
    fn check(text: &str) {
        let mut seen = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().unwrap();
                assert!(!seen.contains(&name), "{name} has two blocks");
                seen.push(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert_eq!(rest, format!("{} gauge", seen.last().unwrap()));
            } else {
                let (name, rest) = line.split_once('{').unwrap();
                assert_eq!(name, *seen.last().unwrap());
                let (labels, value) = rest.rsplit_once("} ").unwrap();
                assert!(labels.starts_with("repository=\"sh\\\"op\\\\\""), "{labels}");
                value.parse::<f64>().unwrap();
            }
        }
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn a_good_run_has_all_metrics() {
        let text = metrics(&good(), None);
        check(&text);
        for line in [
            "xbcloud_run_success{repository=\"sh\\\"op\\\\\"} 1",
            "xbcloud_run_duration_seconds{repository=\"sh\\\"op\\\\\"} 20",
            "xbcloud_stage_success{repository=\"sh\\\"op\\\\\",stage=\"verify\"} 1",
            "xbcloud_backup_stored_bytes{repository=\"sh\\\"op\\\\\"} 4096",
            "xbcloud_verify_timestamp_seconds{repository=\"sh\\\"op\\\\\",level=\"checksum\"} 1795317320",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }

    /// The exporter refuses a second sample with the same labels.
    #[test]
    fn hooks_of_one_kind_are_one_stage() {
        let mut result = good();
        for (status, seconds) in [(StageStatus::Ok, 1.5), (StageStatus::Failed, 2.0)] {
            result.stage("after", status, seconds, json!({}));
        }
        let text = metrics(&result, None);
        check(&text);
        let of = |name: &str| -> Vec<&str> {
            let start = format!("{name}{{");
            let lines = text.lines().filter(|line| line.starts_with(&start));
            lines.filter(|line| line.contains("stage=\"after\"")).collect()
        };
        let (success, duration) =
            (of("xbcloud_stage_success"), of("xbcloud_stage_duration_seconds"));
        assert!(success.len() == 1 && success[0].ends_with("} 0"), "{text}");
        assert!(duration.len() == 1 && duration[0].ends_with("} 3.5"), "{text}");
    }

    #[test]
    fn every_metric_has_the_server_if_it_is_known() {
        let mut result = good();
        result.server = Some("db1".to_owned());
        let text = metrics(&result, None);
        check(&text);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        assert!(samples.clone().all(|line| line.contains(",server=\"db1\"")), "{text}");
        assert!(
            text.contains("xbcloud_backup_shrunk{repository=\"sh\\\"op\\\\\",server=\"db1\"} 0")
        );
    }

    #[test]
    fn a_failed_run_keeps_the_time_of_the_last_success() {
        let old = metrics(&good(), None);
        let mut bad = begun();
        bad.stage("backup", StageStatus::Failed, 1.0, json!({}));
        let error = FirstCause { stage: "backup".into(), message: "x".into(), hint: None };
        bad.end("2026-11-23T03:15:20Z".parse().unwrap(), 1, Some(error));
        let text = metrics(&bad, Some(&old));
        check(&text);
        let time = |text: &str| previous(text, LAST_SUCCESS, "repository=\"sh\\\"op\\\\\"");
        assert_eq!(time(&text).as_deref(), Some("1795317320"));
        assert!(text.contains("xbcloud_run_success{repository=\"sh\\\"op\\\\\"} 0\n"));
        assert!(!text.contains("stored_bytes"));
        assert_eq!(time(&metrics(&bad, None)), None);
        let again = metrics(&bad, Some(&text));
        assert_eq!(time(&again), time(&old));
    }
}
