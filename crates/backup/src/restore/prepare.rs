//! `prepare`: makes a restored backup usable for a server, with the program that took it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xb_option_files::{LoadedOptions, OptionFilePaths, load};
use xb_pipeline::{BeforePrepare, Observer};
use xb_server::{recovery_memory, recovery_tmpdir};

use crate::cancel::CancelToken;
use crate::child::{self, OWN_NOTE, OnLine};
use crate::error::BackupError;
use crate::full_disk::{ANEW, listen};
use crate::restore::chain::{ApplyMethod, Chain, apply_from_end, empty, merge_chain};
use crate::restore::confinement::{HINT, clean_options, hear_denials, places};
use crate::restore::program_option::is_option;
use crate::restore::write_back::WriteBack;
use crate::server::login::{GROUPS, about_files};
use crate::session::Session;
use crate::small_file::read_small;

/// Option for a new master key. Preparing makes none: see [`crate::restore::new_master_key`].
pub(super) const NEW_MASTER_KEY: &str = "--generate-new-master-key";
/// Options for the memory of the recovery.
const MEMORY: [&str; 2] = ["--use-memory", "--use-free-memory-pct"];
/// Option for how the recovery syncs its files, and its value for not at all (MariaDB).
const FLUSH_METHOD: &str = "--innodb-flush-method";
const NO_SYNC: &str = "nosync";
/// What to do about lost tables.
const LOST: &str = ". All other files are prepared: a server can start on them. The backup has the lost ones: restore the backup before or after it into another directory, without --prepare-chain=stock if that was given";
const EMPTYING: &str = "the thread that removes merged increments panicked";
/// Beginning of the names of Aria's log, and the shortest one that has a page of records behind its head, in
/// bytes.
const ARIA_LOG: (&str, u64) = ("aria_log.", 2 * 8192);

/// How the files are synced while a backup is prepared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum PrepareSync {
    /// All at once when it is prepared, if the program and the file systems allow for that: an error
    /// of a disk in between is an error of the sync. Otherwise, as the program does it.
    #[default]
    End,
    /// As the program does it, file by file.
    Program,
}

/// How the increments of a chain are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum PrepareChain {
    /// In one pass over their pages, which are prepared once; link by link if that is not known to be right.
    #[default]
    Auto,
    /// Link by link, each by the program.
    Stock,
}

/// The program that prepares a restored backup.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct PrepareProgram {
    /// Program to prepare with [default: the one that took the backup, found on PATH]
    #[cfg_attr(
        feature = "clap",
        arg(id = "prepare-program", long, value_name = "PROGRAM", hide_short_help = true)
    )]
    pub program: Option<PathBuf>,
    /// Extra option of the program that prepares, such as --keyring-file-data=FILE; repeatable
    // `--generate-new-master-key` makes one more call at the end, which moves the files.
    #[cfg_attr(
        feature = "clap",
        arg(id = "prepare-opts", long, value_name = "OPTION", allow_hyphen_values = true)
    )]
    pub options: Vec<String>,
    /// Places that the program can write to besides the files that it prepares.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub writable: Vec<PathBuf>,
}

/// Options for preparing a restored backup.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct PrepareOptions {
    /// Prepare the files for importing single tables into another server
    #[cfg_attr(feature = "clap", arg(long))]
    pub export: bool,
    /// The program.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub by: PrepareProgram,
    /// Memory for --prepare [default: by the size of the redo log, at most half of what is available]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", value_parser = xb_option_files::parse_size))]
    pub use_memory: Option<u64>,
    /// When --prepare syncs: end, once, where that is safe (MariaDB); program, when the program does
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "prepare-sync",
            long,
            value_enum,
            default_value = "end",
            value_name = "WHEN",
            hide_short_help = true,
            hide_possible_values = true
        )
    )]
    pub sync: PrepareSync,
    /// Apply increments in one pass (auto), or one by one (stock)
    // One pass only where that is proven: see `xb_delta::plan`.
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "prepare-chain",
            long,
            value_enum,
            default_value = "auto",
            value_name = "HOW",
            hide_short_help = true,
            hide_possible_values = true
        )
    )]
    pub chain: PrepareChain,
}

impl PrepareProgram {
    /// The program, which can write below `dirs` and where the operator lets it, if it can be confined.
    pub(super) fn confined<'d>(
        &self,
        dirs: impl IntoIterator<Item = &'d Path>,
        on_line: &OnLine,
    ) -> Self {
        Self { writable: places(dirs, &self.options, &self.writable, on_line), ..self.clone() }
    }

    /// Checks that the program that prepares backups of this tool is installed, if the tool is
    /// known.
    pub(crate) fn look(&self, tool: Option<&str>) -> Result<(), BackupError> {
        match (&self.program, tool.and_then(PrepareTool::of_name)) {
            (Some(program), _) => child::find(&[program]),
            (None, Some(tool)) => {
                let programs: Vec<&Path> = tool.programs().iter().map(Path::new).collect();
                child::find(&programs)
            }
            (None, None) => Ok(()),
        }
    }
}

/// Family of programs that took a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareTool {
    /// `mariadb-backup`, before 10.4 `mariabackup`.
    MariaDbBackup,
    /// Percona's `xtrabackup`.
    XtraBackup,
}

impl PrepareTool {
    /// Reads the tool from the info file in a restored directory.
    #[must_use]
    pub fn of_folder(dir: &Path) -> Option<Self> {
        ["xtrabackup_info", "mariadb_backup_info"].iter().find_map(|name| {
            let text = read_small(&dir.join(name))?;
            let tool = text.lines().find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == "tool_name").then(|| value.trim().to_owned())
            })?;
            Self::of_name(&tool)
        })
    }

    /// Parses the name of the tool from an info file or a manifest.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.rsplit('/').next().unwrap_or(name);
        match name {
            _ if name.starts_with("mariadb-backup") || name.starts_with("mariabackup") => {
                Some(Self::MariaDbBackup)
            }
            _ if name.starts_with("xtrabackup") || name.starts_with("innobackupex") => {
                Some(Self::XtraBackup)
            }
            _ => None,
        }
    }

    /// The program that prepares: the named one, or the first that is installed, if there is one.
    fn program(self, by: &PrepareProgram) -> PathBuf {
        let named = by.program.as_deref();
        let mut programs = self.programs().iter().map(Path::new);
        let program = named.or_else(|| programs.find(|name| child::find(&[name]).is_ok()));
        program.or(self.programs().first().map(Path::new)).unwrap_or(Path::new("")).to_owned()
    }

    /// Names under which the tool is installed, the preferred one first.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::MariaDbBackup => &["mariadb-backup", "mariabackup"],
            Self::XtraBackup => &["xtrabackup"],
        }
    }
}

/// Prepares a restored chain: applies each of its increments to the full backup, in order. The output of
/// the program goes to `on_line`, line by line. With `durable`, the prepared files are on their disks when
/// this returns. The journals of its restore go.
///
/// Returns the file of a tablespace that no backup of the chain has, or not all of, if one is known.
///
/// # Errors
/// [`BackupError::NotStarted`] if the program is not installed, [`BackupError::Program`] if it
/// fails, [`BackupError::Interrupted`] on cancellation, [`BackupError::Restore`] if the directory
/// does not show which program is needed, or a disk did not take what was written.
pub(crate) async fn prepare(
    session: &Session,
    chain: Chain<'_>,
    options: &PrepareOptions,
    durable: bool,
    on_line: &OnLine,
) -> Result<Option<PathBuf>, BackupError> {
    let Session { observer, cancel, .. } = session;
    let (by, Chain { dir, increments, .. }) = (&options.by, chain);
    // A merge that was interrupted has taken the info file from the one, and not yet brought that of the other.
    let folders = [Some(dir), increments.last().map(PathBuf::as_path)];
    let of_info = folders.into_iter().flatten().find_map(PrepareTool::of_folder);
    let tool = of_info.map_or_else(|| tool_of(dir, by), Ok)?;
    if tool == PrepareTool::MariaDbBackup {
        increments.iter().map(PathBuf::as_path).chain([dir]).try_for_each(refuse_endless)?;
    }
    let syncs_itself = !durable || options.sync == PrepareSync::Program;
    let at_end = match syncs_itself || is_set(by, &[FLUSH_METHOD]) {
        true => None,
        false => sync_at_end(tool, dir, by, cancel).await,
    };
    let is_fit = tool == PrepareTool::MariaDbBackup && options.chain == PrepareChain::Auto;
    let to_sync = durable && at_end.is_none();
    if is_fit && !increments.is_empty() {
        // Nothing is changed for a program that cannot be started.
        by.look(tool.programs().first().copied())?;
    }
    let way = match is_fit && !increments.is_empty() {
        true => Some(merge_chain(session, chain, to_sync, on_line)?),
        false => None,
    };
    let mut lost = None;
    let (merged, increments): (&[PathBuf], &[PathBuf]) = match way {
        Some(ApplyMethod::Merged) => (increments, &[]),
        Some(ApplyMethod::OneByOne(unfit)) => {
            on_line(format!("{OWN_NOTE}increments are applied one by one: {unfit}").as_bytes());
            lost = unfit.lost;
            (&[], increments)
        }
        None => (&[], increments),
    };
    chain.forget()?;
    // Not before: a restore that goes on compares the files with those of the backup. Increments that are merged go
    // while the program runs.
    let dirs = || [dir].into_iter().chain(increments.iter().map(PathBuf::as_path));
    clean_options(dirs(), &tool.program(by), on_line)?;
    let by = &by.confined(dirs(), on_line);
    let before = look_at(dir, || BeforePrepare::look(dir, increments))?;
    let has_memory = options.use_memory.is_some() || is_set(by, &MEMORY);
    for number in 0..=increments.len() {
        let increment = number.checked_sub(1).and_then(|n| increments.get(n)).map(PathBuf::as_path);
        increment.map_or(Ok(()), |increment| apply_from_end(dir, increment))?;
        let step = Step {
            dir,
            increment,
            last: number == increments.len(),
            memory: match has_memory {
                true => options.use_memory,
                // Looked at for each step: its log, and the memory that is available now, differ.
                false => Some(recovery_memory(dir, increment.unwrap_or(dir))),
            },
            syncs: at_end.is_none(),
        };
        let is_export = options.export && step.last && tool == PrepareTool::MariaDbBackup;
        let small = if is_export { SmallLog::set(dir)? } else { None };
        observer.hear_program();
        let (lines, is_denied) = hear_denials(&heard_by(observer, on_line));
        let (lines, is_full) = listen(&lines);
        // Beside the program, and before the sync.
        let of_merged = merged.to_vec();
        let emptying = tokio::task::spawn_blocking(move || empty(&of_merged));
        let ran = run_first(tool, by, &step.arguments(tool, options), &lines, cancel).await;
        // Also if the program failed: the caller may remove the files, too.
        let emptied = emptying.await.unwrap_or(Err(BackupError::Bug(EMPTYING)));
        if ran.is_err() && !by.writable.is_empty() && is_denied.load(Ordering::Relaxed) {
            on_line(format!("{OWN_NOTE}{HINT}").as_bytes());
        }
        ran.map_err(|error| match error {
            BackupError::Program { .. } if is_full.load(Ordering::Relaxed) => {
                let (dir, what) = (dir.display().to_string(), error.to_string());
                BackupError::FullDisk { dir, what, next: ANEW }
            }
            error => error,
        })?;
        emptied?;
        small.map_or(Ok(()), SmallLog::undo)?;
    }
    if let Some(at_end) = at_end {
        observer.begin_phase("sync");
        tokio::task::block_in_place(|| at_end.sync())?;
    }
    // Who can do without these tables has all others.
    if let Some(lost) = look_at(dir, || before.lost(dir))? {
        return Err(BackupError::of_target(dir, format!("the program that prepares {lost}{LOST}")));
    }
    Ok(lost.or_else(|| before.without_beginning().map(Path::to_owned)))
}

/// What is to be said of the file of a tablespace that no backup of a chain has, or not all of.
pub(crate) fn lost_pages(lost: &Path, is_partial: bool) -> String {
    let cause = match is_partial {
        true => {
            "the backups are partial, and the producer of one of them was probably asked to leave it out"
        }
        false => "its tablespace was probably imported",
    };
    format!(
        "{}: the chain lacks pages of it, so its rows are lost, unless it was discarded on the server: {cause}; take a full backup, and bring the table back from another one",
        lost.display()
    )
}

/// Passes lines on, and notes each for displays: a program that works on a large backup reports its progress, and one
/// that has been silent for long may never end.
fn heard_by(observer: &Observer, on_line: &OnLine) -> OnLine {
    let (observer, on_line) = (observer.clone(), Arc::clone(on_line));
    Arc::new(move |line| {
        observer.hear_program();
        on_line(line);
    })
}

/// Refuses files with which mariadb-backup (10.11, observed) never ends, and says nothing.
fn refuse_endless(dir: &Path) -> Result<(), BackupError> {
    let (prefix, least) = ARIA_LOG;
    // The program reports directories that cannot be listed.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(len) = entry.metadata().ok().map(|facts| facts.len()) else { continue };
        if name.starts_with(prefix) && len < least {
            let what = format!(
                "{name} is cut: it has {len} bytes, and every Aria log at least {least}; mariadb-backup would never end. Restore another backup; `verify` checks for this one"
            );
            return Err(BackupError::of_target(dir, what));
        }
    }
    Ok(())
}

/// Looks at the files of tables, of which there may be many.
fn look_at<T>(dir: &Path, look: impl FnOnce() -> std::io::Result<T>) -> Result<T, BackupError> {
    let failed = |error| BackupError::of_target(dir, format!("cannot look at the tables: {error}"));
    tokio::task::block_in_place(look).map_err(failed)
}

/// Watches the file systems, so that the program need not sync: only if it can do without, and no
/// error would be lost.
async fn sync_at_end(
    tool: PrepareTool,
    dir: &Path,
    by: &PrepareProgram,
    cancel: &CancelToken,
) -> Option<WriteBack> {
    if tool != PrepareTool::MariaDbBackup {
        return None;
    }
    let program = tool.program(by);
    let quiet: OnLine = Arc::new(|_| {});
    let words = ["--no-defaults", "--help"].map(OsString::from);
    let help = child::ask(&program, &words, &quiet, cancel).await.ok()?;
    help.contains(NO_SYNC).then(|| WriteBack::watch(dir))?
}

/// The tool that took the backup in `dir`.
pub(super) fn tool_of(dir: &Path, by: &PrepareProgram) -> Result<PrepareTool, BackupError> {
    let named =
        by.program.as_deref().and_then(|program| PrepareTool::of_name(&child::file_name(program)));
    PrepareTool::of_folder(dir).or(named).ok_or_else(|| {
        let what = "cannot tell which program took the backup: xtrabackup_info or mariadb_backup_info is missing, or names an unknown program; name it with --prepare-program".to_owned();
        BackupError::of_target(dir, what)
    })
}

/// One call of the program.
struct Step<'a> {
    dir: &'a Path,
    /// The increment to apply; `None` for the full backup.
    increment: Option<&'a Path>,
    /// Whether no increment follows.
    last: bool,
    /// Memory in bytes; `None` if the operator's options say it.
    memory: Option<u64>,
    /// Whether the program syncs its files.
    syncs: bool,
}

impl Step<'_> {
    fn arguments(&self, tool: PrepareTool, options: &PrepareOptions) -> Vec<OsString> {
        let (mut args, rest) = first_and_rest(&options.by);
        args.extend([OsString::from("--prepare"), with_path("--target-dir=", self.dir)]);
        if let Some(increment) = self.increment {
            args.push(with_path("--incremental-dir=", increment));
        }
        if let Some(memory) = self.memory {
            args.push(format!("--use-memory={memory}").into());
        }
        if let Some(tmpdir) = recovery_tmpdir(self.dir) {
            args.push(with_path("--tmpdir=", tmpdir));
        }
        if !self.syncs {
            args.push(format!("{FLUSH_METHOD}={NO_SYNC}").into());
        }
        // Without this option, xtrabackup rolls back transactions that the next increment
        // continues. mariadb-backup (10.2 and later) never does that, and has no such option.
        if tool == PrepareTool::XtraBackup && !self.last {
            args.push("--apply-log-only".into());
        }
        if options.export && self.last {
            args.push("--export".into());
        }
        args.extend(rest);
        args
    }
}

/// Returns whether the operator sets one of these options: among those of the program, or in an option file
/// that they name. One that cannot be read may: the program will report it.
fn is_set(by: &PrepareProgram, names: &[&str]) -> bool {
    if by.options.iter().any(|option| is_option(option, names)) {
        return true;
    }
    let (first, _) = first_and_rest(by);
    let is_among = |loaded: LoadedOptions| {
        loaded.options.iter().any(|option| is_option(&format!("--{}", option.key), names))
    };
    !first.is_empty()
        && load(&OptionFilePaths::usual(), &about_files(&first), &GROUPS).map_or(true, is_among)
}

/// Divides the options that go through to the program into those that name option files, which count
/// only if they come first, and the others. A new master key is asked for in a step of its own.
pub(super) fn first_and_rest(by: &PrepareProgram) -> (Vec<OsString>, Vec<OsString>) {
    let passed = by.options.iter().filter(|option| !is_option(option, &[NEW_MASTER_KEY]));
    let (first, rest): (Vec<&String>, Vec<&String>) =
        passed.partition(|option| names_option_file(option));
    let owned = |options: Vec<&String>| options.into_iter().map(OsString::from).collect();
    (owned(first), owned(rest))
}

/// An option with a path as its value.
pub(super) fn with_path(option: &str, path: &Path) -> OsString {
    let mut text = OsString::from(option);
    text.push(path);
    text
}

/// Returns whether an option names an option file of the program.
fn names_option_file(option: &str) -> bool {
    is_option(
        option,
        &[
            "--defaults-file",
            "--defaults-extra-file",
            "--defaults-group-suffix",
            "--no-defaults",
            "--login-path",
        ],
    )
}

/// Runs the first of the tool's programs that is installed.
pub(super) async fn run_first(
    tool: PrepareTool,
    by: &PrepareProgram,
    args: &[OsString],
    on_line: &OnLine,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    if let Some(program) = &by.program {
        return child::run(program, args, &by.writable, on_line, cancel).await;
    }
    let mut missing = None;
    for program in tool.programs() {
        match child::run(Path::new(program), args, &by.writable, on_line, cancel).await {
            Err(error @ BackupError::NotStarted { .. }) => missing = missing.or(Some(error)),
            done => return done,
        }
    }
    Err(missing.unwrap_or(BackupError::Bug("found no program to prepare with")))
}

/// Size in bytes of the redo log that an export leaves, at the most.
pub(super) const EXPORT_LOG: u64 = 32 << 20;
/// Settings of the origin in a backup, and the one that is lowered.
const SETTINGS: &str = "backup-my.cnf";
const LOG_SIZE: &str = "innodb_log_file_size";

/// Settings with a smaller redo log, and what they were.
///
/// For `--export`, mariadb-backup starts a server on the files, with the settings that the backup
/// brought. Its redo log stays when it has ended, and would be as large as that of the origin:
/// gigabytes for one table.
#[derive(Debug)]
struct SmallLog {
    path: PathBuf,
    original: String,
}

impl SmallLog {
    /// Lowers the size of the log in the settings of the backup in `dir`. `None` if they state none
    /// that is larger.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if the file cannot be written.
    fn set(dir: &Path) -> Result<Option<Self>, BackupError> {
        let path = dir.join(SETTINGS);
        let Ok(original) = std::fs::read_to_string(&path) else { return Ok(None) };
        let Some(lowered) = lowered(&original) else { return Ok(None) };
        write_settings(&path, &lowered)?;
        Ok(Some(Self { path, original }))
    }

    /// Restores the settings of the origin.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if the file cannot be written.
    fn undo(self) -> Result<(), BackupError> {
        write_settings(&self.path, &self.original)
    }
}

fn write_settings(path: &Path, text: &str) -> Result<(), BackupError> {
    std::fs::write(path, text).map_err(|error| BackupError::Restore {
        target: path.display().to_string(),
        what: format!("the size of the redo log cannot be set: {error}"),
    })
}

/// The settings with a smaller log, if theirs is larger.
fn lowered(settings: &str) -> Option<String> {
    let size = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim().replace('-', "_") == LOG_SIZE).then(|| value.trim().parse::<u64>().ok())?
    };
    let is_large = |line: &str| size(line).is_some_and(|size| size > EXPORT_LOG);
    if !settings.lines().any(is_large) {
        return None;
    }
    let lines = settings.lines().map(|line| match is_large(line) {
        true => format!("{LOG_SIZE}={EXPORT_LOG}\n"),
        false => format!("{line}\n"),
    });
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(step: &[OsString]) -> Vec<String> {
        step.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_tool_is_known_by_its_info_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(PrepareTool::of_folder(dir.path()), None);
        for (file, name, tool) in [
            ("xtrabackup_info", "mariadb-backup", PrepareTool::MariaDbBackup),
            ("xtrabackup_info", "/usr/bin/xtrabackup", PrepareTool::XtraBackup),
            ("mariadb_backup_info", "mariabackup", PrepareTool::MariaDbBackup),
        ] {
            std::fs::write(dir.path().join(file), format!("uuid = 1\ntool_name = {name}\n"))
                .unwrap();
            assert_eq!(PrepareTool::of_folder(dir.path()), Some(tool), "{name}");
            std::fs::remove_file(dir.path().join(file)).unwrap();
        }
    }

    #[test]
    fn a_log_of_aria_with_which_the_program_never_ends_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, len| std::fs::write(dir.path().join(name), vec![0; len]).unwrap();
        write("aria_log_control", 52);
        write("aria_log.00000001", 16384);
        assert!(refuse_endless(dir.path()).is_ok());
        for len in [0, 16383] {
            write("aria_log.00000002", len);
            let error = refuse_endless(dir.path()).unwrap_err().to_string();
            assert!(
                error.contains(&format!("aria_log.00000002 is cut: it has {len} bytes")),
                "{error}"
            );
        }
    }

    #[test]
    fn further_options_reach_every_call_and_option_files_come_first() {
        let given = ["--keyring-file-data=/k", "--defaults-extra-file=/etc/keys.cnf"];
        let by = PrepareProgram {
            options: given.map(str::to_owned).to_vec(),
            ..PrepareProgram::default()
        };
        let options = PrepareOptions { by, ..PrepareOptions::default() };
        for increment in [None, Some(Path::new("/i/1"))] {
            let step = Step { increment, ..step(increment.is_some()) };
            let step = words(&step.arguments(PrepareTool::XtraBackup, &options));
            assert_eq!(step[..2], ["--defaults-extra-file=/etc/keys.cnf", "--prepare"]);
            assert_eq!(step.last().unwrap(), "--keyring-file-data=/k");
        }
    }

    #[test]
    fn the_operators_own_memory_wins_wherever_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.cnf");
        std::fs::write(&file, "[mysqld]\nuse_memory=1G\n[mariadb-backup]\nuse_memory=2G\n")
            .unwrap();
        let named = format!("--defaults-file={}", file.display());
        let is_set = |words: &[&str], names: &[&str]| {
            let options = words.iter().map(|word| (*word).to_owned()).collect();
            is_set(&PrepareProgram { options, ..PrepareProgram::default() }, names)
        };
        for words in [
            &["--use_memory=1G"][..],
            &["--use-free-memory-pct=50"],
            &[&named],
            &["--defaults-file=/no/such"],
        ] {
            assert!(is_set(words, &MEMORY), "{words:?}");
        }
        for words in [&[][..], &["--innodb-flush-method=fsync"], &["--no-defaults"]] {
            assert!(!is_set(words, &MEMORY), "{words:?}");
        }
        assert!(is_set(&["--innodb_flush_method=fsync"], &[FLUSH_METHOD]));
        assert!(!is_set(&[&named], &[FLUSH_METHOD]));
    }

    fn step(last: bool) -> Step<'static> {
        Step { dir: Path::new("/t"), increment: None, last, memory: Some(64 << 20), syncs: true }
    }

    #[test]
    fn only_xtrabackup_is_told_to_keep_transactions_open_and_not_at_the_end() {
        let options = PrepareOptions { export: true, ..PrepareOptions::default() };
        for tool in [PrepareTool::MariaDbBackup, PrepareTool::XtraBackup] {
            for last in [false, true] {
                let given = words(&step(last).arguments(tool, &options));
                assert_eq!(given[..3], ["--prepare", "--target-dir=/t", "--use-memory=67108864"]);
                assert_eq!(given.contains(&"--export".to_owned()), last);
                let keep = given.contains(&"--apply-log-only".to_owned());
                assert_eq!(keep, tool == PrepareTool::XtraBackup && !last);
            }
        }
        let increment = Some(Path::new("/i/1"));
        let step = Step { increment, syncs: false, memory: None, ..step(true) };
        let given = words(&step.arguments(PrepareTool::MariaDbBackup, &PrepareOptions::default()));
        assert_eq!(given[2..], ["--incremental-dir=/i/1", "--innodb-flush-method=nosync"]);
    }

    #[test]
    fn a_large_log_is_lowered_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(SmallLog::set(dir.path()).unwrap().is_none());
        let path = dir.path().join(SETTINGS);
        let origin = "# x\n[mysqld]\ninnodb_log_file_size=4294967296\ninnodb_page_size=16384\n";
        std::fs::write(&path, origin).unwrap();
        let small = SmallLog::set(dir.path()).unwrap().unwrap();
        let now = std::fs::read_to_string(&path).unwrap();
        assert_eq!(now, origin.replace("4294967296", "33554432"));
        // Another run after this one was killed.
        assert!(SmallLog::set(dir.path()).unwrap().is_none());
        small.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), origin);
    }
}
