//! Command line of binlog.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use xb_cli::{IdentityOptions, KeyOptions, RecipientOptions, Secret};

use crate::args::examples;
use crate::args::shared::{CommonOptions, RootArg, RunOptions};

#[derive(Debug, Args)]
pub(crate) struct BinlogArgs {
    #[command(subcommand)]
    pub(crate) command: BinlogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BinlogCommand {
    /// Receive a server's binary log as a replica does, and archive it until a signal ends this
    #[command(after_help = examples::BINLOG_RECEIVE)]
    Receive(Box<ReceiveArgs>),
    /// Archive the rest of a dead server's log from its log files
    #[command(after_help = examples::BINLOG_PUSH)]
    Push(PushArgs),
    /// List archives: how far they reach, gaps, and what each backup can be restored to
    #[command(after_help = examples::BINLOG_LIST)]
    List(ArchiveListArgs),
    /// Show transactions of an archive, with values for `restore --until`: who dropped this table, and when?
    #[command(after_help = examples::BINLOG_SHOW)]
    Show(ArchiveShowArgs),
    /// Verify archives: seal, order, checksum of each event, continuity from each backup
    #[command(after_help = examples::BINLOG_VERIFY)]
    Verify(ArchiveVerifyArgs),
}

impl BinlogCommand {
    pub(crate) fn run_options(&self) -> &RunOptions {
        match self {
            Self::Receive(args) => &args.common.run,
            Self::Push(args) => &args.common.run,
            Self::List(args) => &args.common.run,
            Self::Show(args) => &args.common.run,
            Self::Verify(args) => &args.common.run,
        }
    }
}

/// Server of a receiver.
#[derive(Debug, Args)]
pub(crate) struct SourceServer {
    /// The server: its socket, HOST[:PORT] or mysql://[USER@]HOST[:PORT]; or a primary and its replicas,
    /// with commas between them [default: as the stock clients find it]
    #[arg(long, value_name = "SERVER")]
    pub(crate) source: Option<String>,
}

/// The file with the login to a server.
#[derive(Debug, Args)]
pub(crate) struct LoginFile {
    /// Option file with the login in its group [client], [xbcloud-binlog] or [xbcloud-clone]: user,
    /// password, host, ssl-ca, ...; read after those of the stock clients
    #[arg(long, value_name = "FILE")]
    pub(crate) login_file: Option<PathBuf>,
}

/// How a log is archived.
#[derive(Debug, Args)]
pub(crate) struct ArchiveOptions {
    /// Name of the server, as in its backups and archive [default: this host's name]
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
    /// none, lz4, snappy, gzip[:LEVEL] or zstd[:LEVEL]
    #[arg(long, value_name = "CODEC", default_value = "zstd")]
    #[arg(add = xb_cli::candidates(&xb_compressor::Algorithm::NAMES))]
    pub(crate) compress: String,
    /// Also archive logs without checksums (binlog_checksum=NONE)
    #[arg(long, hide_short_help = true)]
    pub(crate) accept_no_crc: bool,
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY: where the backups are
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
    #[command(flatten)]
    pub(crate) source: SourceServer,
    #[command(flatten)]
    pub(crate) login: LoginFile,
    /// Longest time that a transaction waits before it is sent to the store, such as 1s or 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    pub(crate) rpo: Duration,
    /// Let commits wait until they are stored: the archive is a semi-synchronous replica
    #[arg(long)]
    pub(crate) ack: bool,
    /// Start at most N objects per second while commits keep waiting; fewer cost less to store and read
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[arg(requires = "ack", hide_short_help = true)]
    pub(crate) ack_rate: u32,
    // Not the options of `run`, which the group of a repository sets for each night.
    /// Write metrics to FILE, for the textfile collector of Prometheus
    #[arg(long = "binlog-metrics-file", value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Post the state to this address every minute, while the log is received and stored
    #[arg(long = "binlog-heartbeat-url", value_name = "URL")]
    pub(crate) heartbeat_url: Option<Secret>,
    /// Run this program when a gap or a branch begins, or a barrier is stored, with its details on standard input; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_gap: Vec<String>,
    /// Name in metrics [default: the name of @REPOSITORY, else ROOT]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) repository: Option<String>,
    #[command(flatten)]
    pub(crate) archive: ArchiveOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: String,
    /// Log files, starting with the one in which the archive ends; their names are those of the logs
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Begin an archive with these files if the server has none
    #[arg(long)]
    pub(crate) new_archive: bool,
    #[command(flatten)]
    pub(crate) archive: ArchiveOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveListArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Only the archive of this server
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
    /// Show all streams, not only the last ones
    #[arg(short, long)]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveShowArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// The archive of this server; needed if there are several
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
    /// From this time on: with its zone, such as 2026-11-20T14:00:00Z, or an age, such as 2h or 3d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
    /// Only transactions that concern this table; * and ? are wildcards; repeatable
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Vec<String>,
    /// Only transactions with this text in the first KiB of a statement, ignoring case
    #[arg(long = "match", value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only statements that change definitions, such as DROP, ALTER and TRUNCATE
    #[arg(long)]
    pub(crate) ddl: bool,
    /// Show at most this many transactions
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveVerifyArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Only the archive of this server
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
    /// Logs are pruned by this rule, so older backups may lack theirs
    #[arg(long, value_name = "AGE", value_parser = xb_cli::parse_age)]
    pub(crate) keep_binlog_within: Option<Duration>,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Parses a number of seconds, minutes or hours.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; use a form such as 5s, 15m or 2h");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match text.get(digits.len()..) {
        Some("s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        Some("d") => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let total = number.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(total))
}

/// Parses a time with its zone, or an age.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "`{text}` is not a time: give one with its zone, such as 2026-11-20T14:00:00Z, or an age, such as 2h"
        )
    };
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let age = span(text).map_err(|_| wrong())?;
    Timestamp::now().checked_sub(age).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_with_its_zone_or_an_age() {
        let time = |text: &str| moment(text).map(Timestamp::as_second);
        assert_eq!(time("2026-11-20T15:00:00+01:00"), Ok(1_795_183_200));
        let ago = Timestamp::now().as_second() - time("2h").unwrap();
        assert!((7200..7260).contains(&ago), "{ago}");
        for bad in ["2026-11-20T14:00:00", "2026-11-20", "14:00", "2", "99999999d", ""] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_have_a_unit() {
        for (text, seconds) in [("5s", 5), ("15m", 900), ("2h", 7200), ("1d", 86_400)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)));
        }
        for bad in ["", "5", "0s", "s", "-1s", "5ms", "99999999999999999999h"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
