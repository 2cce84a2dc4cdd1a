//! Command line of list, show, verify, copy, pin, accept, prune, delete, gc and rewrap.

use clap::{Args, ValueEnum};
use xb_backup::Keep;
use xb_cli::Failure;
use xb_keyring::NewKeyOptions;
use xb_repo::archive::plan::Stop;
use xb_uploader::{Lock, LockMode};

use crate::args::copy_destination::Destination;
use crate::args::private_server::PrivateServerOptions;
use crate::args::shared::{CommonOptions, OpeningOptions, Source, UnsealedOption};

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
    pub(crate) level: Option<LevelArg>,
    /// Do not store the result beside the manifest
    #[arg(long)]
    pub(crate) no_record: bool,
    #[command(flatten)]
    pub(crate) trial: TrialOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Options of a trial restore.
#[derive(Debug, Args)]
pub(crate) struct TrialOptions {
    #[command(flatten)]
    pub(crate) server: PrivateServerOptions,
    /// SQL statement that must succeed on the restored server; repeatable
    #[arg(long, value_name = "SQL", help_heading = "Private server")]
    pub(crate) check_sql: Vec<String>,
    /// At level `restore`: replay the archived binary log first, up to a stop as in `restore --until`
    #[arg(long, value_name = "STOP", help_heading = "Private server")]
    pub(crate) until: Option<Stop>,
}

/// Level to which a backup is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelArg {
    Manifest,
    List,
    Checksum,
    Decrypt,
    Pages,
    Restore,
}

impl LevelArg {
    pub(crate) fn level(self) -> xb_repo::verification::Level {
        match self {
            Self::Manifest => xb_repo::verification::Level::Manifest,
            Self::List => xb_repo::verification::Level::List,
            Self::Checksum => xb_repo::verification::Level::Checksum,
            Self::Decrypt => xb_repo::verification::Level::Decrypt,
            Self::Pages => xb_repo::verification::Level::Pages,
            Self::Restore => xb_repo::verification::Level::Restore,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
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
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) retain: Option<std::time::Duration>,
    /// Lock mode. governance: removable with a special permission; compliance: not removable
    /// [default: governance]
    #[arg(long, value_enum, value_name = "MODE", requires = "retain", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) retain_mode: Option<RetainMode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RetainMode {
    Governance,
    Compliance,
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
    mode: Option<RetainMode>,
) -> Result<Option<Lock>, Failure> {
    let Some(age) = retain else { return Ok(None) };
    let mode = match mode {
        Some(RetainMode::Compliance) => LockMode::Compliance,
        Some(RetainMode::Governance) | None => LockMode::Governance,
    };
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
    /// Take back an earlier `accept`
    #[arg(long, conflicts_with = "reason")]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
    /// Remove the backups; without --yes they are only listed
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) keep: KeepOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Rules of retention.
#[derive(Debug, Args)]
pub(crate) struct KeepOptions {
    /// Keep the newest N backups
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<usize>,
    /// Keep the newest backup of each of the last N days
    #[arg(long, value_name = "N")]
    pub(crate) keep_daily: Option<usize>,
    /// Keep the newest backup of each of the last N weeks
    #[arg(long, value_name = "N")]
    pub(crate) keep_weekly: Option<usize>,
    /// Keep the newest backup of each of the last N months
    #[arg(long, value_name = "N")]
    pub(crate) keep_monthly: Option<usize>,
    /// Keep all backups younger than AGE, such as 12h, 30d or 8w
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) keep_within: Option<std::time::Duration>,
}

impl KeepOptions {
    pub(crate) fn keep(&self) -> Keep {
        Keep {
            last: self.keep_last.unwrap_or(0),
            daily: self.keep_daily.unwrap_or(0),
            weekly: self.keep_weekly.unwrap_or(0),
            monthly: self.keep_monthly.unwrap_or(0),
            within: self.keep_within,
        }
    }

    /// The rules; `None` if none is given.
    ///
    /// # Errors
    /// All given rules keep nothing.
    pub(crate) fn given(&self) -> Result<Option<Keep>, Failure> {
        let keep = self.keep();
        let numbers = [self.keep_last, self.keep_daily, self.keep_weekly, self.keep_monthly];
        match keep.is_empty() {
            false => Ok(Some(keep)),
            true if numbers.iter().all(Option::is_none) => Ok(None),
            true => Err(Failure::usage("the retention rules keep nothing: each number is 0")
                .hint("give at least one rule above 0, or no rule")),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Destination with the new NAME; end it with a slash, or give @REPOSITORY, to keep the name
    pub(crate) to: String,
    /// Copy the backup even if it is not verified
    #[arg(long)]
    pub(crate) unverified: bool,
    /// Copy an incremental backup even if its base is missing at the destination
    #[arg(long)]
    pub(crate) alone: bool,
    /// Take over the new name from a run that still looks alive but that you know is dead (classic)
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
    #[command(flatten)]
    pub(crate) destination: Destination,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Parses a number of hours, days or weeks.
pub(crate) fn age(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is not an age; use a form such as 12h, 30d or 8w");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let hours = match text.get(digits.len()..) {
        Some("h") => 1,
        Some("d") => 24,
        Some("w") => 7 * 24,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(hours * 3600).map(std::time::Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_understood() {
        assert_eq!(age("12h").unwrap().as_secs(), 12 * 3600);
        assert_eq!(age("30d").unwrap().as_secs(), 30 * 86_400);
        assert_eq!(age("8w").unwrap().as_secs(), 56 * 86_400);
        for bad in
            ["", "d", "12", "-1d", "1.5d", "1y", "99999999999999999999d", "9999999999999999w"]
        {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
    /// Also show type and base, positions, key slots, verification and pins
    #[arg(short, long)]
    pub(crate) long: bool,
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
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) new: NewKeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
    /// Remove it; without --yes it is only listed
    #[arg(long)]
    pub(crate) yes: bool,
    /// Treat a run as dead after this many hours without a sign of life
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=87_600))]
    pub(crate) older_than: u64,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}
