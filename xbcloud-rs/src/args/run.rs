//! Command line of run and monitor.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use xb_cli::{Secret, parse_age};
use xb_repo::verification::Level;

use crate::args::binlog::span;
use crate::args::shared::{CommonOptions, ReportOption, RootArg};
use crate::job::{ArchiveLimits, Limits};

/// Options around a run: results, metrics, hooks, heartbeat.
#[derive(Debug, Args)]
#[command(next_help_heading = "Around the run")]
pub(crate) struct JobOptions {
    /// Name in results and metrics [default: the name of @REPOSITORY, else ROOT]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) repository: Option<String>,
    /// Write the result to FILE as JSON, after success and after failure
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportOption,
    /// Write metrics to FILE, for the textfile collector of Prometheus
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Run this program before the backup, with the result so far on stdin; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub(crate) before: Vec<String>,
    /// Run this program when everything has succeeded; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub(crate) after: Vec<String>,
    /// Run this program when a stage has failed; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_failure: Vec<String>,
    /// Seconds that a hook may run
    #[arg(long, value_name = "S", default_value_t = 600, hide_short_help = true)]
    pub(crate) hook_timeout: u64,
    /// Post the result to this address when everything has succeeded
    #[arg(long, value_name = "URL")]
    pub(crate) heartbeat_url: Option<Secret>,
    /// Post the result to this address when a stage has failed
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) heartbeat_failure_url: Option<Secret>,
}

/// Level of the verification in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerifyArg(pub(crate) Option<Level>);

impl std::str::FromStr for VerifyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            level => clap::ValueEnum::from_str(level, true).map(|level| Self(Some(level))).map_err(
                |_| "use none, manifest, list, checksum, decrypt, pages or restore".to_owned(),
            ),
        }
    }
}

/// Rules by which a repository is judged.
#[derive(Debug, Args)]
pub(crate) struct LimitOptions {
    /// Maximum age of the newest backup, such as 26h or 8d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) max_age: Option<Duration>,
    /// Maximum age of the newest proof, such as 8d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) max_proof_age: Option<Duration>,
    /// Maximum age of the end of an archived binary log, such as 5m [default: 15m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) max_binlog_age: Option<Duration>,
    /// Maximum age of the state to which a trial has replayed an archived binary log, such as 8d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) max_binlog_proof_age: Option<Duration>,
    /// Level from which a verification counts as a proof
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "checksum")]
    #[arg(hide_possible_values = true)]
    pub(crate) proof_level: Level,
    /// Do not judge this server, which is retired; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) ignore_server: Vec<String>,
    /// Do not warn of transactions that a restore or a failover left in this stream of an archived
    /// log; at least 8 digits of its ID; may be repeated
    #[arg(long, value_name = "STREAM", value_parser = parse_stream, hide_short_help = true)]
    pub(crate) accept_left: Vec<String>,
}

/// Reads the ID of an archive stream, or its beginning.
fn parse_stream(text: &str) -> Result<String, String> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match (8..=32).contains(&text.len()) && text.bytes().all(is_digit) {
        true => Ok(text.to_owned()),
        false => {
            Err("give 8 to 32 hexadecimal digits, in lower case, of the stream's ID".to_owned())
        }
    }
}

/// Maximum age of the end of an archived binary log, unless a limit is given.
const BINLOG_AGE: Duration = Duration::from_secs(15 * 60);

impl LimitOptions {
    /// Returns whether a limit is given that only an archived binary log can meet.
    pub(crate) fn expects_archive(&self) -> bool {
        self.max_binlog_age.is_some() || self.max_binlog_proof_age.is_some()
    }

    /// The limits that are given.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            age: self.max_age,
            proof_age: self.max_proof_age,
            archive: ArchiveLimits {
                age: Some(self.max_binlog_age.unwrap_or(BINLOG_AGE)),
                proof_age: self.max_binlog_proof_age,
            },
        }
    }
}

const MONITOR_EXAMPLES: &str = "\
Exit status: 0 OK, 1 WARNING (an older backup is damaged), 2 CRITICAL, 3 UNKNOWN (the store cannot be read). A usage error exits with 2, too.

Examples:
  xbcloud-rs monitor @shop --max-age=26h --max-proof-age=8d --proof-level=pages";

#[derive(Debug, Args)]
#[command(after_help = MONITOR_EXAMPLES)]
pub(crate) struct MonitorArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Name in the output [default: the name of @REPOSITORY, else ROOT]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) repository: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Only backups of this server [default: each server that has backups here]
    #[arg(long, value_name = "ID", conflicts_with = "ignore_server")]
    pub(crate) server: Option<String>,
    /// Answer UNKNOWN if the store has not answered by then, such as 10s; Nagios ends a plugin after 10 s
    /// to 60 s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    pub(crate) answer_within: Duration,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}
