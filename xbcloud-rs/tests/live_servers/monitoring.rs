//! The metrics file, the alert rules and the dashboard, judged by Prometheus' own `promtool`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use xb_testkit::command::{Cmd, Ran, Signal};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::stream::small_backup;
use xb_testkit::tools::{find, workspace};

/// Prefix of the names of our metrics.
const PREFIX: &str = "xbcloud_";

fn monitoring(name: &str) -> PathBuf {
    workspace().join("contrib/monitoring").join(name)
}

/// Runs a job with every stage whose metrics are documented, and one that fails.
fn metrics(folder: &tempfile::TempDir) -> (String, String) {
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("stream"), small_backup(2, 5000)).unwrap();
    let text = format!(
        "[xbcloud.shop]\nroot=file://{}\nproducer=cat {}\nkeep-last=1\nmetrics-file={}\n",
        path("root"),
        path("stream"),
        path("shop.prom"),
    );
    std::fs::write(path("my.cnf"), text).unwrap();
    let command = |words: &[&str]| -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .arg(format!("--defaults-file={}", path("my.cnf")))
            .args(words)
            .run()
    };
    let state = format!("--state-dir={}", path("state"));
    let run = |more: &[&str]| command(&[&["run", "@shop", &state], more].concat());
    let read = || std::fs::read_to_string(path("shop.prom")).unwrap();
    let _ = run(&[]).expect(0);
    // Each command replaces only its own metrics in the file that they share.
    let _ = command(&["verify", "@shop/latest", "--level=checksum"]).expect(0);
    let _ = command(&["prune", "@shop", "--yes"]).expect(0);
    let good = read();
    let _ = run(&["--name-template=bad", "--", "false"]).expect(6);
    (good, read())
}

/// The metrics of a receiver of binary logs that has stored something.
fn receiver_metrics(folder: &tempfile::TempDir) -> String {
    let server = MariaDb::start_with(&["--log-bin=bin", "--server-id=3"]);
    server.sql("CREATE DATABASE d");
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("archives")).unwrap();
    std::fs::write(path("login"), "[client]\nuser=root\n").unwrap();
    let mut receiver = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["binlog", "receive", "--server=db1", "--repository=sh\"op", "--quiet"])
        .arg(format!("file://{}", path("archives").display()))
        .arg(format!("--source={}", server.socket().display()))
        .arg(format!("--login-file={}", path("login").display()))
        .arg(format!("--state-dir={}", path("state").display()))
        .arg(format!("--binlog-metrics-file={}", path("binlog.prom").display()))
        .spawn();
    let read = || std::fs::read_to_string(path("binlog.prom")).unwrap_or_default();
    receiver.until("the times are known", || {
        ["stored_until", "alive"]
            .iter()
            .all(|name| read().contains(&format!("xbcloud_binlog_{name}_timestamp")))
    });
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    read()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(PREFIX)).map(str::to_owned).collect()
}

/// Metrics of a fleet with this repository, which its server has given a usual size.
fn fleet_metrics(folder: &tempfile::TempDir) -> String {
    let file = folder.path().join("fleet.prom");
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["fleet", &format!("file://{}", folder.path().display())])
        .arg(format!("--metrics-file={}", file.display()))
        .run();
    std::fs::read_to_string(file).unwrap()
}

/// Metrics of a server with an archive of its log, of several full backups, or with a lock, which those here have not.
const WITH_ARCHIVE: [&str; 8] = [
    "xbcloud_fleet_binlog_behind_seconds",
    "xbcloud_fleet_binlog_silent_seconds",
    "xbcloud_fleet_binlog_gap",
    "xbcloud_fleet_newest_trend_percent",
    "xbcloud_fleet_locked_until_timestamp_seconds",
    "xbcloud_backup_archived",
    "xbcloud_verify_proven_until_timestamp_seconds",
    "xbcloud_proof_proven_until_timestamp_seconds",
];

/// The metrics that a run, a fleet and a receiver write.
fn known(run: &str, fleet: &str, receiver: &str) -> BTreeSet<String> {
    let with_archive = WITH_ARCHIVE.map(str::to_owned);
    let all = [run, fleet, receiver].into_iter().flat_map(written);
    all.chain(with_archive).collect()
}

fn written(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn prometheus_reads_the_metrics_and_all_are_documented() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = metrics(&folder);
    let receiver = receiver_metrics(&folder);
    let fleet = fleet_metrics(&folder);
    for text in [&good, &bad, &receiver, &fleet] {
        let ran = Cmd::new(find("promtool"))
            .args(["check", "metrics"])
            .stdin_bytes(text.as_bytes())
            .run()
            .expect(0);
        assert_eq!(ran.stderr_text() + &ran.stdout_text(), "", "{text}");
    }
    let documents = std::fs::read_to_string(workspace().join("docs/reference/metrics.md")).unwrap();
    assert_eq!(names(&documents), known(&good, &fleet, &receiver));
    assert!(written(&bad).is_subset(&written(&good)), "{bad}");
}

#[test]
fn the_dashboard_and_the_alerts_use_metrics_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    let (good, _) = metrics(&folder);
    let receiver = receiver_metrics(&folder);
    let known = known(&good, &fleet_metrics(&folder), &receiver);
    for file in ["dashboard.json", "alerts.yml"] {
        let used = names(&std::fs::read_to_string(monitoring(file)).unwrap());
        assert!(!used.is_empty() && used.is_subset(&known), "{file}: {used:?}, not {known:?}");
    }
    let dashboard = std::fs::read_to_string(monitoring("dashboard.json")).unwrap();
    let shown = names(&dashboard);
    for name in ["binlog_stored_until", "binlog_alive", "proof_proven_until", "verify_proven_until"]
    {
        let name = format!("{PREFIX}{name}_timestamp_seconds");
        assert!(shown.contains(&name), "{name}: {shown:?}");
    }
    assert!(shown.contains("xbcloud_binlog_gaps"), "{shown:?}");
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let rules: Vec<Value> = panels
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| json!({ "record": "panel", "expr": target["expr"] }))
        .collect();
    assert!(!rules.is_empty());
    // promtool reads expressions as rules. JSON is YAML.
    let file = folder.path().join("panels.yml");
    let groups = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    std::fs::write(&file, groups.to_string()).unwrap();
    let _ = Cmd::new(find("promtool")).args(["check", "rules"]).arg(file).run().expect(0);
}

#[test]
fn the_alerts_fire_when_they_should() {
    let promtool = |args: &[&str], file: &str| {
        let _ = Cmd::new(find("promtool")).args(args).arg(monitoring(file)).run().expect(0);
    };
    promtool(&["check", "rules"], "alerts.yml");
    promtool(&["test", "rules"], "alerts_test.yml");
}
