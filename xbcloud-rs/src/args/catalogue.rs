//! Command line of verify, show, pin, prune and copy.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use xb_backup::Keep;
use xb_cli::Failure;
use xb_uploader::{Lock, LockMode};

use crate::args::copy_destination::Destination;
use crate::args::shared::{CommonOptions, OpeningOptions, Source, UnsealedOption};

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// manifest, list, checksum, decrypt, pages or restore; each includes those before it
    ///
    /// After a kill -9 the server and the scratch folder of `restore` (xb-verify-*) stay: end the one and
    /// remove the other.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "pages")]
    #[arg(hide_possible_values = true)]
    pub(crate) level: LevelArg,
    /// Do not write the result beside the manifest
    #[arg(long)]
    pub(crate) no_record: bool,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) unsealed: UnsealedOption,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// How a restored backup is tried out.
#[derive(Debug, Args)]
#[command(next_help_heading = "Level restore")]
pub(crate) struct ServerOptions {
    /// Folder in which a scratch folder is made and removed again [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch_dir: Option<PathBuf>,
    /// Further option of the server, as --plugin-load-add=file_key_management; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) mysqld_opts: Vec<String>,
    /// File that the server needs in its data directory, as mysqld.my of a keyring; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) datadir_file: Vec<PathBuf>,
    /// Further option of the program that prepares, as --keyring-file-data=FILE; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) prepare_opts: Vec<String>,
    /// The program to prepare with, where it is not found by its name
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    pub(crate) prepare_program: Option<PathBuf>,
    /// Statement that must succeed on the restored server; repeatable
    #[arg(long, value_name = "SQL")]
    pub(crate) check_sql: Vec<String>,
    /// The server [default: mariadbd or mysqld on PATH]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) mysqld: Option<PathBuf>,
}

/// How far a backup is verified.
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
    pub(crate) fn level(self) -> xb_backup::Level {
        match self {
            Self::Manifest => xb_backup::Level::Manifest,
            Self::List => xb_backup::Level::List,
            Self::Checksum => xb_backup::Level::Checksum,
            Self::Decrypt => xb_backup::Level::Decrypt,
            Self::Pages => xb_backup::Level::Pages,
            Self::Restore => xb_backup::Level::Restore,
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
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or @REPOSITORY/NAME
    pub(crate) name: String,
    /// Why
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
    /// Lock its objects against removal for so long, as 12h, 30d or 8w (S3, in a bucket that can)
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) retain: Option<std::time::Duration>,
    /// Who may take the lock away: governance, who has a right for that; compliance, nobody [default:
    /// governance]
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

/// A lock for so long, counted from now.
pub(crate) fn lock(
    retain: Option<std::time::Duration>,
    mode: Option<RetainMode>,
) -> Result<Option<Lock>, Failure> {
    let Some(age) = retain else { return Ok(None) };
    let mode = match mode {
        Some(RetainMode::Compliance) => LockMode::Compliance,
        Some(RetainMode::Governance) | None => LockMode::Governance,
    };
    let until = xb_backup::Timestamp::now()
        .checked_add(age)
        .map_err(|_| Failure::usage("--retain reaches beyond all dates"))?;
    Ok(Some(Lock { mode, until }))
}

#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME, or @REPOSITORY/NAME
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

const PRUNE_EXAMPLES: &str = "\
Each rule keeps on its own; days, weeks and months are UTC, and only those with a backup count. Always
kept are the newest, the newest verified, the one verified furthest, pinned ones, those found damaged,
runs in progress, and whatever a kept one goes on from. All of it for each server by itself.

Examples:
  xbcloud-rs prune s3://bucket/shop --keep-daily=7 --keep-weekly=5 --keep-monthly=12
  xbcloud-rs prune s3://bucket/shop --keep-last=3 --keep-within=30d --yes";

#[derive(Debug, Args)]
#[command(after_help = PRUNE_EXAMPLES)]
pub(crate) struct PruneArgs {
    /// file:///DIR, s3:// gs:// or azure://BUCKET/PREFIX, or @REPOSITORY
    #[arg(value_name = "ROOT")]
    pub(crate) place: Option<String>,
    /// Remove it; without this it is only shown
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
    /// Keep the newest N
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) keep_last: usize,
    /// Keep the newest of each of the last N days
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) keep_daily: usize,
    /// Keep the newest of each of the last N weeks
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) keep_weekly: usize,
    /// Keep the newest of each of the last N months
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) keep_monthly: usize,
    /// Keep all that are younger, as 12h, 30d or 8w
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) keep_within: Option<std::time::Duration>,
}

impl KeepOptions {
    pub(crate) fn keep(&self) -> Keep {
        Keep {
            last: self.keep_last,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
            monthly: self.keep_monthly,
            within: self.keep_within,
        }
    }
}

const COPY_EXAMPLES: &str = "\
Store options hold for both places; with to- before its name an option holds for the new place alone, as
--to-s3-endpoint. Who names a key, token or profile of the new place takes none of the other's.

Examples:
  xbcloud-rs verify s3://staging/shop/monday
  xbcloud-rs copy s3://staging/shop/monday s3://vault/shop/ --to-aws-profile=vault --retain=35d
  xbcloud-rs copy file:///backup/monday gs://vault/shop/ --google-storage-class=NEARLINE";

#[derive(Debug, Args)]
#[command(after_help = COPY_EXAMPLES)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Its new place, NAME included; with a slash at its end, or as @REPOSITORY, the name stays
    pub(crate) to: String,
    /// Copy it even if nobody has verified it
    #[arg(long)]
    pub(crate) unverified: bool,
    /// Copy an incremental one even if what it goes on from is not at the new place
    #[arg(long)]
    pub(crate) alone: bool,
    /// Take the new name from a run that looks alive, if you know that it is dead (classic)
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
    let wrong = || format!("`{text}` is not an age such as 12h, 30d or 8w");
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
