//! Command line of list, show, verify, copy, pin, accept, prune, delete, gc and rewrap.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use xb_backup::{CompareOptions, CopyOptions, Keep, Trial};
use xb_cli::{Failure, IdentityOptions, KeyOptions, NewKeyOptions, parse_age};
use xb_encryptor::VerifyingKey;
use xb_repo::verification::Level;
use xb_uploader::{Lock, LockMode};

use crate::args::binlog::{moment, span};
use crate::args::copy_destination::Destination;
use crate::args::shared::{CommonOptions, OpeningOptions, RootArg, RunOptions, Source};

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// manifest, list, checksum, decrypt, pages or restore; each includes the levels before it. If
    /// this level is given but not reached, `verify` fails [default: pages, as far as they can be
    /// checked]
    ///
    /// A SIGKILL during level `restore` leaves the scratch directory (xb-verify-*) behind: remove it.
    #[arg(long, value_enum, value_name = "LEVEL")]
    #[arg(hide_possible_values = true)]
    pub(crate) level: Option<Level>,
    /// Do not store the result beside the manifest
    #[arg(long)]
    pub(crate) no_record: bool,
    /// Also write checks and findings to this new file, signed (FILE.sig) with --signing-key-file; {utc},
    /// {date} and {host} in its name are filled in
    #[arg(long, value_name = "FILE")]
    pub(crate) evidence: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: MetricsOptions,
    #[command(flatten)]
    pub(crate) trial: Trial,
    #[command(flatten, next_help_heading = "Comparison")]
    pub(crate) compare: CompareOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct EvidenceArgs {
    /// File that `verify --evidence` has written
    pub(crate) file: PathBuf,
    /// Its signature [default: FILE.sig]
    #[arg(long, value_name = "FILE.sig")]
    pub(crate) signature: Option<PathBuf>,
    /// Public key of a host whose evidence counts (ed25519:...); repeatable
    #[arg(long, value_name = "KEY", required = true)]
    pub(crate) signer: Vec<VerifyingKey>,
    /// Fail unless it is for the backup of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Fail unless that backup is in the repository at this URL
    #[arg(long, value_name = "URL")]
    pub(crate) root: Option<String>,
    /// Fail unless it states that this level was reached
    #[arg(long, value_enum, value_name = "LEVEL", hide_possible_values = true)]
    pub(crate) level: Option<Level>,
    /// Fail if the verification ended longer ago, such as 26h or 8d
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) max_age: Option<std::time::Duration>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// Metrics of a command that proves or removes.
#[derive(Debug, Args)]
pub(crate) struct MetricsOptions {
    /// Name in metrics [default: the name of @REPOSITORY, else the place]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) repository: Option<String>,
    /// Write metrics to FILE, for the textfile collector of Prometheus; `run` may share it
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) metrics_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Leave out the files
    #[arg(long)]
    pub(crate) no_files: bool,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or @REPOSITORY/NAME
    pub(crate) name: String,
    /// Reason, shown by `list --long`
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// A lock in the store itself.
#[derive(Debug, Args)]
pub(crate) struct RetainOptions {
    /// Lock the objects against deletion for this long, such as 12h, 30d or 8w (S3 buckets with
    /// object lock)
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) retain: Option<std::time::Duration>,
    /// Lock mode. governance: removable with a special permission; compliance: not removable
    /// [default: governance]
    #[arg(long, value_enum, value_name = "MODE", requires = "retain", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) retain_mode: Option<LockMode>,
}

impl RetainOptions {
    /// The requested lock, counted from now.
    pub(crate) fn lock(&self) -> Result<Option<Lock>, Failure> {
        lock(self.retain, self.retain_mode)
    }
}

/// A lock for this long, counted from now.
pub(crate) fn lock(
    retain: Option<std::time::Duration>,
    mode: Option<LockMode>,
) -> Result<Option<Lock>, Failure> {
    let Some(age) = retain else { return Ok(None) };
    let mode = mode.unwrap_or(LockMode::Governance);
    let until = jiff::Timestamp::now().checked_add(age).map_err(|_| {
        Failure::usage("--retain is too long: the lock would end after the year 9999")
    })?;
    Ok(Some(Lock { mode, until }))
}

#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or @REPOSITORY/NAME
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    /// file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or @REPOSITORY/NAME
    pub(crate) name: String,
    /// Reason, shown by `list --long`
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Withdraw an earlier `accept`
    #[arg(long, conflicts_with = "reason")]
    pub(crate) undo: bool,
    /// Accept that a repository begins anew because the backups and archived logs that this host stored there
    /// are gone for good; give ROOT in place of NAME
    #[arg(long, conflicts_with_all = ["reason", "undo"])]
    pub(crate) begun_anew: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Remove the backups; without --yes they are only listed
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only list them, also with --yes
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsOptions,
    #[command(flatten)]
    pub(crate) keep: Keep,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Destination with the new NAME; end it with a slash, or give @REPOSITORY, to keep the name
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) options: CopyOptions,
    /// Also copy its server's archived binary log where the destination lacks it
    #[arg(long)]
    pub(crate) with_binlog: bool,
    /// Take over the new name from a run that still looks alive but that you know is dead (classic)
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) destination: Destination,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Which backups are listed. With any of these, names that are no backups are left out; damaged ones, of which nothing is
/// known, stay.
#[derive(Debug, Args)]
pub(crate) struct ListFilterOptions {
    /// Only the newest N backups, of those that the other options select
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Only backups that ended since then: a time such as 2026-11-20T14:00:00Z, or an age such as 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Only backups of this server; `none`: those without a server's name
    #[arg(long, value_name = "ID")]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Also show type and base, positions, key slots, verification and pins
    #[arg(short, long)]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) only: ListFilterOptions,
    /// Read everything from the store; ignore the cache in ~/.cache/xbcloud-rs
    #[arg(long, hide_short_help = true)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or @REPOSITORY/NAME
    pub(crate) name: String,
    /// Remove only the objects of these files; exact names, including suffixes; the backup is then no
    /// longer complete (classic)
    #[arg(conflicts_with = "dry_run")]
    pub(crate) files: Vec<String>,
    /// Accepted because stock xbcloud accepts it with every command; only `put` uses it
    #[arg(long, hide = true)]
    pub(crate) md5: bool,
    /// Remove without asking; required when there is no terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// Remove even if its manifest is damaged, or if incremental backups depend on it, which are
    /// then lost
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take over the name from a run that still looks alive but that you know is dead (classic)
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RewrapArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Remove only the key slot with this number, as listed by the last rewrap; repeatable
    #[arg(long, value_name = "N", conflicts_with = "keep")]
    pub(crate) remove: Vec<usize>,
    /// Accept a sealed backup that was stored as a native stream, with a manifest that is not
    /// authenticated
    #[arg(long, help_heading = "Keys")]
    pub(crate) accept_unvouched: bool,
    #[command(flatten)]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) new: NewKeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Remove it; without --yes it is only listed
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only list it, also with --yes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Treat a run as dead after this many hours without a sign of life
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=87_600))]
    pub(crate) older_than: u64,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}
