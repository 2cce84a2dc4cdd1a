//! The command line. Stock options have their stock names and meaning.

pub(crate) mod backup;
pub(crate) mod binlog;
pub(crate) mod catalogue;
pub(crate) mod consolidate;
pub(crate) mod copy_destination;
mod examples;
pub(crate) mod fleet;
pub(crate) mod plan;
pub(crate) mod rescue;
pub(crate) mod run;
pub(crate) mod shared;
pub(crate) mod store;
pub(crate) mod until;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};
use xb_backup::{AfterRestore, Keep, RestoreOptions, Trial};
use xb_cli::{IdentityOptions, KeyOptions, RecipientOptions};
use xb_uploader::LockMode;

pub(crate) use self::backup::{
    BackupOptions, CheckpointArg, ProducerOptions, PutOptions, StreamOptions,
};
pub(crate) use self::catalogue::{DeleteArgs, GcArgs, ListArgs, RewrapArgs};
pub(crate) use self::plan::{PlanArgs, PriceOptions, TuneArgs};
pub(crate) use self::shared::{CommonOptions, OpeningOptions, ReportOption, RunOptions, Source};
pub(crate) use self::store::{
    AzureOptions, ChecksumArg, ConnectionOptions, GoogleOptions, S3Options, SigningOptions,
    StoreOptions,
};
use crate::args::binlog::{BinlogArgs, SourceServer};
use crate::args::catalogue::{
    AcceptArgs, CopyArgs, EvidenceArgs, PinArgs, PruneArgs, RetainOptions, ShowArgs, UnpinArgs,
    VerifyArgs,
};
use crate::args::consolidate::ConsolidateArgs;
use crate::args::copy_destination::Destination;
use crate::args::fleet::FleetArgs;
use crate::args::rescue::RescueArgs;
use crate::args::run::{JobOptions, MonitorArgs, VerifyArg};
use crate::args::shared::RootArg;
use crate::args::until::UntilOptions;

/// Store MySQL and MariaDB backups in an object store, and restore them
#[derive(Debug, Parser)]
#[command(name = "xbcloud-rs", version, after_help = examples::ALL)]
#[command(long_version = xb_cli::seal_version(env!("CARGO_PKG_VERSION")))]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// Deferred: a start would make the options of all commands otherwise, which takes longer than all the rest of a `list`.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Store the xbstream on stdin as backup NAME
    #[command(after_long_help = examples::PUT)]
    Put(PutArgs),
    /// Run a backup program, and store its output if it succeeds
    #[command(after_long_help = examples::BACKUP)]
    Backup(BackupArgs),
    /// Back up, verify, copy and prune, as set in the option file
    Run(Box<RunArgs>),
    /// Write the stream of backup NAME to stdout
    #[command(after_long_help = examples::GET)]
    Get(GetArgs),
    /// Restore backup NAME into a directory
    #[command(after_long_help = examples::RESTORE)]
    Restore(RestoreArgs),
    /// Rescue single tables of backup NAME, as a dump or into a server
    #[command(after_long_help = examples::RESCUE)]
    Rescue(Box<RescueArgs>),
    /// List the backups in a store and their verification state
    #[command(after_help = examples::LIST)]
    List(ListArgs),
    /// Show backup NAME and its files
    #[command(after_help = examples::SHOW)]
    Show(ShowArgs),
    /// Verify backup NAME, up to a trial restore
    #[command(after_long_help = examples::VERIFY)]
    Verify(Box<VerifyArgs>),
    /// Check the signature of evidence from verify, and show its result
    #[command(after_help = examples::EVIDENCE)]
    Evidence(EvidenceArgs),
    /// Make a full backup of a chain without the server, and prove it
    #[command(after_long_help = examples::CONSOLIDATE)]
    Consolidate(Box<ConsolidateArgs>),
    /// Copy backup NAME elsewhere, if it is verified
    #[command(visible_alias = "promote")]
    #[command(after_long_help = examples::COPY)]
    Copy(CopyArgs),
    /// Protect backup NAME from prune and delete
    #[command(after_help = examples::PIN)]
    Pin(PinArgs),
    /// Remove the pin from backup NAME
    #[command(after_help = examples::UNPIN)]
    Unpin(UnpinArgs),
    /// Accept backup NAME as it is: unusually small, or without its base
    #[command(after_help = examples::ACCEPT)]
    Accept(AcceptArgs),
    /// Show what the retention rules would remove; --yes removes it
    #[command(after_help = examples::PRUNE)]
    Prune(PruneArgs),
    /// Remove backup NAME
    #[command(after_help = examples::DELETE)]
    Delete(DeleteArgs),
    /// Change who can open backup NAME; its data does not change
    #[command(after_long_help = examples::REWRAP)]
    Rewrap(RewrapArgs),
    /// Estimate objects, requests, memory and cost of a backup
    #[command(after_help = examples::PLAN)]
    Plan(PlanArgs),
    /// Measure this machine and its link to a store; recommend options
    #[command(after_help = examples::TUNE)]
    Tune(Box<TuneArgs>),
    /// Test what a backup needs: store, keys, program, login, free space
    Check(Box<CheckArgs>),
    /// Create a local directory, or print the rules that a bucket needs
    Init(InitArgs),
    /// Check the age of the newest backup and proof, as a Nagios plugin
    Monitor(MonitorArgs),
    /// Show the state of all servers below a place, the worst first
    Fleet(Box<FleetArgs>),
    /// Archive a server's binary log, to restore to any later moment
    Binlog(Box<BinlogArgs>),
    /// Draw the page of a state transfer from the JSON in its report-dir
    #[command(after_help = examples::REPORT)]
    Report(ReportArgs),
    /// Show what failed runs left in a store; --yes removes it
    #[command(after_help = examples::GC)]
    Gc(GcArgs),
}

/// Where the new backup goes.
#[derive(Debug, Args)]
pub(crate) struct NewName {
    /// file:///DIR/NAME; s3://, gs:// or azure://BUCKET/PREFIX/NAME; or @REPOSITORY[/NAME]; without
    /// NAME, or with {host}, {utc} or {date} in it, the name is generated
    pub(crate) name: Option<String>,
    /// Name of the new backup, if none is given
    #[arg(long, value_name = "TEMPLATE", default_value = xb_backup::DEFAULT_NAME_TEMPLATE)]
    #[arg(hide_short_help = true)]
    pub(crate) name_template: String,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) new: NewName,
    #[command(flatten)]
    pub(crate) report: ReportOption,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    #[command(flatten)]
    pub(crate) put: PutOptions,
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) new: NewName,
    #[command(flatten)]
    pub(crate) report: ReportOption,
    #[command(flatten)]
    pub(crate) backup: BackupOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

const RUN_EXAMPLES: &str = "\
Stages: the hooks --before, backup, verify, copy (--copy-to), consolidate (if due), prune (with a
--keep rule), the hooks --after. A stage that fails ends the run; then the hooks --on-failure run.

Examples:
  xbcloud-rs run @shop --quiet
  xbcloud-rs run @shop --verify=pages --copy-to=@vault --keep-daily=7";

#[derive(Debug, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// @REPOSITORY[/NAME], or file:///DIR/NAME, s3:// gs:// or azure://BUCKET/PREFIX/NAME; without
    /// NAME, or with {host}, {utc} or {date} in it, the name is generated
    pub(crate) name: Option<String>,
    /// Name of the new backup, if none is given
    #[arg(long, value_name = "TEMPLATE", default_value = xb_backup::DEFAULT_NAME_TEMPLATE)]
    #[arg(hide_short_help = true)]
    pub(crate) name_template: String,
    /// Verify the new backup up to this level, or `none`
    #[arg(long, value_name = "LEVEL", default_value = "checksum")]
    pub(crate) verify: VerifyArg,
    /// Copy the backup to @REPOSITORY or URL/ (--with-binlog: the archived log, too)
    #[arg(long, value_name = "PLACE")]
    pub(crate) copy_to: Option<String>,
    /// With --copy-to: also copy the archived binary log, as `copy --with-binlog`
    #[arg(long, requires = "copy_to", hide = true)]
    pub(crate) with_binlog: bool,
    /// Lock the copy against deletion for this long, such as 30d
    #[arg(long, value_name = "AGE", value_parser = xb_cli::parse_age, hide_short_help = true)]
    pub(crate) to_retain: Option<std::time::Duration>,
    /// Lock mode of the copy
    #[arg(long, value_enum, value_name = "MODE", hide_possible_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) to_retain_mode: Option<LockMode>,
    /// Consolidate the chain of the new backup from N increments on
    #[arg(long, value_name = "N", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) consolidate_after: Option<u32>,
    #[command(flatten)]
    pub(crate) keep: Keep,
    #[command(flatten)]
    pub(crate) job: JobOptions,
    #[command(flatten)]
    pub(crate) trial: Trial,
    #[command(flatten, next_help_heading = "Backup")]
    pub(crate) backup: BackupOptions,
    #[command(flatten, next_help_heading = "Keys of the run")]
    pub(crate) identities: IdentityOptions,
    #[command(flatten)]
    pub(crate) destination: Destination,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    #[command(flatten, next_help_heading = "Backup")]
    pub(crate) backup: BackupOptions,
    #[command(flatten, next_help_heading = "Keys of the run")]
    pub(crate) identities: IdentityOptions,
    /// Also check what `binlog receive` needs [default: if ROOT has an archive of this server]
    #[arg(long, help_heading = "Binary log")]
    pub(crate) binlog: bool,
    #[command(flatten, next_help_heading = "Binary log")]
    pub(crate) source: SourceServer,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) root: RootArg,
    /// Name of the repository in the output [default: the name of @REPOSITORY]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) repository: Option<String>,
    /// Change the S3 bucket: add the lifecycle rule, and switch on object lock with --retain
    #[arg(long)]
    pub(crate) apply: bool,
    #[command(flatten)]
    pub(crate) retain: RetainOptions,
    /// Keys from the option file; without any, `init` shows how to make one.
    #[command(flatten)]
    pub(crate) keys: KeyOptions,
    #[command(flatten)]
    pub(crate) recipients: RecipientOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// JSON file, such as xbrs-donor.json
    pub(crate) file: PathBuf,
    /// Write the page to this file [default: standard output]
    #[arg(short, long, value_name = "PAGE.html")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Write only these files; exact names, including suffixes
    pub(crate) files: Vec<String>,
    /// Accepted because stock xbcloud accepts it with every command; only `put` uses it
    #[arg(long, hide = true)]
    pub(crate) md5: bool,
    /// Write only files whose names match, such as `shop/*`; suffixes are ignored; repeatable
    #[arg(long = "files", value_name = "GLOB", conflicts_with = "files")]
    pub(crate) globs: Vec<String>,
    /// Write the native stream as stored, still compressed and sealed; `xbcrypt-rs -d` opens it
    #[arg(long, conflicts_with_all = ["files", "globs"])]
    pub(crate) as_stored: bool,
    #[command(flatten)]
    pub(crate) report: ReportOption,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
// What `--galera` requires one of.
#[command(group(ArgGroup::new("prepared").args(["prepare", "until"]).multiple(true)))]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Directory: empty, or left by this restore, interrupted
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub(crate) target_dir: Option<PathBuf>,
    /// Restore only files that match, such as `shop/*`; repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    pub(crate) report: ReportOption,
    #[command(flatten)]
    pub(crate) ready: AfterRestore,
    #[command(flatten)]
    pub(crate) how: RestoreOptions,
    #[command(flatten)]
    pub(crate) until: UntilOptions,
    #[command(flatten)]
    pub(crate) opening: OpeningOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl Command {
    /// Refuses options of the stock tool that have no effect here, where they could be meant.
    pub(crate) fn check(&self, stock: bool) -> Result<(), xb_cli::Failure> {
        if let Self::Get(GetArgs { md5: true, .. }) | Self::Delete(DeleteArgs { md5: true, .. }) =
            self
            && !stock
        {
            return Err(xb_cli::Failure::usage("--md5 works only with `put` and `backup`"));
        }
        // Stock xbcloud accepts them with every command.
        let streams = matches!(self, Self::Put(_) | Self::Backup(_) | Self::Run(_) | Self::Get(_));
        if !streams && !stock && self.run_options().fifo.is_given() {
            return Err(xb_cli::Failure::usage(
                "--fifo-streams and --fifo-dir work only with put, backup, run and get",
            )
            .hint("remove them; the other commands neither read nor write a stream"));
        }
        Ok(())
    }

    pub(crate) fn run_options(&self) -> &RunOptions {
        match self {
            Self::Put(a) => &a.common.run,
            Self::Backup(a) => &a.common.run,
            Self::Run(a) => &a.common.run,
            Self::Check(a) => &a.common.run,
            Self::Init(a) => &a.common.run,
            Self::Monitor(a) => &a.common.run,
            Self::Fleet(a) => &a.common.run,
            Self::Binlog(a) => a.command.run_options(),
            Self::Report(a) => &a.run,
            Self::Get(a) => &a.common.run,
            Self::Restore(a) => &a.common.run,
            Self::Rescue(a) => &a.common.run,
            Self::List(a) => &a.common.run,
            Self::Show(a) => &a.common.run,
            Self::Verify(a) => &a.common.run,
            Self::Evidence(a) => &a.run,
            Self::Consolidate(a) => &a.common.run,
            Self::Copy(a) => &a.common.run,
            Self::Pin(a) => &a.common.run,
            Self::Unpin(a) => &a.common.run,
            Self::Accept(a) => &a.common.run,
            Self::Prune(a) => &a.common.run,
            Self::Delete(a) => &a.common.run,
            Self::Gc(a) => &a.common.run,
            Self::Rewrap(a) => &a.common.run,
            Self::Plan(a) => &a.common.run,
            Self::Tune(a) => &a.common.run,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::CommandFactory as _;
    use clap::error::{ContextKind, ContextValue, ErrorKind};

    use super::*;

    /// Values of which one suits each option.
    const VALUES: [&str; 8] = ["1", "1s", "1d", "checksum", "auto", "packed", "a:b", "latest"];

    /// Options that clap requires if a command has this option alone. The line is made once: that takes longer than to
    /// parse it.
    fn missing(line: &mut clap::Command, command: &str, option: Option<&str>) -> Vec<String> {
        let with = |value: Option<&str>| {
            let word = option.map(|option| match value {
                None => format!("--{option}"),
                Some(value) => format!("--{option}={value}"),
            });
            let words = ["x".to_owned(), command.to_owned()].into_iter().chain(word);
            line.try_get_matches_from_mut(words).err()
        };
        let values = std::iter::once(None).chain(VALUES.map(Some));
        let missing = values.filter_map(with).find_map(|error| {
            let is_missing = error.kind() == ErrorKind::MissingRequiredArgument;
            match error.get(ContextKind::InvalidArg).filter(|_| is_missing)? {
                ContextValue::Strings(names) => Some(names.clone()),
                _ => None,
            }
        });
        missing.unwrap_or_default()
    }

    /// Whether each option takes a value, and whether it may lack it.
    fn note_kinds(command: &clap::Command, kinds: &mut BTreeMap<String, (bool, usize)>) {
        for arg in command.get_arguments() {
            let least = arg.get_num_args().map_or(0, |range| range.min_values());
            let kind = (arg.get_action().takes_values(), least);
            for long in
                arg.get_long().into_iter().chain(arg.get_all_aliases().into_iter().flatten())
            {
                let first = *kinds.entry(long.to_owned()).or_insert(kind);
                assert_eq!(first, kind, "{} --{long}", command.get_name());
            }
        }
        command.get_subcommands().for_each(|inner| note_kinds(inner, kinds));
    }

    /// An option file is read for the command that runs; what it says is not to depend on which one does.
    #[test]
    fn an_option_is_of_one_kind_in_all_commands() {
        let mut all = CommandLine::command();
        all.build();
        let mut kinds = BTreeMap::new();
        note_kinds(&all, &mut kinds);
        assert!(kinds.contains_key("parallel") && kinds.contains_key("login-file"), "{kinds:?}");
    }

    /// An option file sets options for backups, which other commands may have, too.
    #[test]
    fn backup_options_in_an_option_file_break_no_other_command() {
        let longs = |command: &clap::Command| -> BTreeSet<String> {
            let longs = command.get_arguments().filter_map(clap::Arg::get_long);
            longs.map(str::to_owned).collect()
        };
        let (mut all, mut line) = (CommandLine::command(), CommandLine::command());
        all.build();
        let mut missing = |command: &str, option: Option<&str>| -> BTreeSet<String> {
            missing(&mut line, command, option).into_iter().collect()
        };
        let of_run = longs(all.find_subcommand("run").unwrap());
        for command in all.get_subcommands() {
            let name = command.get_name();
            let alone = missing(name, None);
            for option in longs(command).intersection(&of_run) {
                // Where `run` needs more itself, the option file has that, too.
                let more = missing(name, Some(option));
                let more: Vec<_> = more.difference(&alone).collect();
                assert!(
                    more.is_empty() || !missing("run", Some(option)).is_empty(),
                    "{name} --{option} needs {more:?}"
                );
            }
        }
    }
}
