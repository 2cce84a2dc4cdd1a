//! `prepare`: makes a restored backup usable for a server, with the program that took it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cancel::CancelToken;
use crate::child::{self, OnLine};
use crate::error::BackupError;
use crate::small_file::read_small;

/// Option for a new master key. Preparing makes none: see [`crate::restore::new_master_key`].
pub(super) const NEW_MASTER_KEY: &str = "--generate-new-master-key";

/// Options for preparing a restored backup.
#[derive(Debug, Clone, Default)]
pub struct PrepareOptions {
    /// The program; if not given, it is searched for on PATH by its usual names.
    pub program: Option<PathBuf>,
    /// Memory for the recovery in bytes; if not given, the program's own default.
    pub use_memory: Option<u64>,
    /// Also writes the files needed to import single tables elsewhere.
    pub export: bool,
    /// Further arguments of every call, such as those of a keyring. `--generate-new-master-key` makes
    /// one more call at the end, which moves the files.
    pub options: Vec<String>,
}

impl PrepareOptions {
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

    /// Names under which the tool is installed, the preferred one first.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::MariaDbBackup => &["mariadb-backup", "mariabackup"],
            Self::XtraBackup => &["xtrabackup"],
        }
    }
}

/// Prepares the full backup in `dir`, then applies each backup of `increments` to it, in order. The
/// output of the program goes to `talk`, line by line.
///
/// # Errors
/// [`BackupError::NotStarted`] if the program is not installed, [`BackupError::Program`] if it
/// fails, [`BackupError::Interrupted`] on cancellation, [`BackupError::Restore`] if the directory
/// does not show which program is needed.
pub async fn prepare(
    dir: &Path,
    increments: &[PathBuf],
    options: &PrepareOptions,
    talk: &OnLine,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    let tool = tool_of(dir, options)?;
    for step in steps(tool, dir, increments, options) {
        run_first(tool, options, &step, talk, cancel).await?;
    }
    Ok(())
}

/// The tool that took the backup in `dir`.
pub(super) fn tool_of(dir: &Path, options: &PrepareOptions) -> Result<PrepareTool, BackupError> {
    let named = options
        .program
        .as_deref()
        .and_then(|program| PrepareTool::of_name(&child::file_name(program)));
    PrepareTool::of_folder(dir).or(named).ok_or_else(|| {
        let what = "cannot tell which program took the backup: xtrabackup_info or mariadb_backup_info is missing, or names an unknown program; name it with --prepare-program".to_owned();
        BackupError::Restore { target: dir.display().to_string(), what }
    })
}

/// Arguments of each call, in order.
fn steps(
    tool: PrepareTool,
    dir: &Path,
    increments: &[PathBuf],
    options: &PrepareOptions,
) -> Vec<Vec<OsString>> {
    let mut steps = Vec::new();
    for number in 0..=increments.len() {
        let last = number == increments.len();
        let (mut args, rest) = first_and_rest(options);
        args.extend([OsString::from("--prepare"), with_path("--target-dir=", dir)]);
        if let Some(increment) = number.checked_sub(1).and_then(|n| increments.get(n)) {
            args.push(with_path("--incremental-dir=", increment));
        }
        if let Some(memory) = options.use_memory {
            args.push(format!("--use-memory={memory}").into());
        }
        // Without this option, xtrabackup rolls back transactions that the next increment
        // continues. mariadb-backup (10.2 and later) never does that, and has no such option.
        if tool == PrepareTool::XtraBackup && !last {
            args.push("--apply-log-only".into());
        }
        if options.export && last {
            args.push("--export".into());
        }
        args.extend(rest);
        steps.push(args);
    }
    steps
}

/// Divides the options that go through to the program into those that name option files, which count
/// only if they come first, and the others. A new master key is asked for in a step of its own.
pub(super) fn first_and_rest(options: &PrepareOptions) -> (Vec<OsString>, Vec<OsString>) {
    let passed = options.options.iter().filter(|option| !is_option(option, &[NEW_MASTER_KEY]));
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

/// Whether an option is one of these; the programs take `_` for `-`.
pub(super) fn is_option(option: &str, names: &[&str]) -> bool {
    let name = option.split('=').next().unwrap_or_default().replace('_', "-");
    names.contains(&name.as_str())
}

/// Whether an option names an option file of the program.
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
    options: &PrepareOptions,
    args: &[OsString],
    talk: &OnLine,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    if let Some(program) = &options.program {
        return child::run(program, args, talk, cancel).await;
    }
    let mut missing = None;
    for program in tool.programs() {
        match child::run(Path::new(program), args, talk, cancel).await {
            Err(error @ BackupError::NotStarted { .. }) => missing = missing.or(Some(error)),
            done => return done,
        }
    }
    Err(missing.unwrap_or(BackupError::Bug("found no program to prepare with")))
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
    fn further_options_reach_every_call_and_option_files_come_first() {
        let given = ["--keyring-file-data=/k", "--defaults-extra-file=/etc/keys.cnf"];
        let options = PrepareOptions {
            options: given.map(str::to_owned).to_vec(),
            ..PrepareOptions::default()
        };
        let steps = steps(PrepareTool::XtraBackup, Path::new("/t"), &["/i/1".into()], &options);
        assert_eq!(steps.len(), 2);
        for step in steps.iter().map(|step| words(step)) {
            assert_eq!(step[..2], ["--defaults-extra-file=/etc/keys.cnf", "--prepare"]);
            assert_eq!(step.last().unwrap(), "--keyring-file-data=/k");
        }
    }

    #[test]
    fn only_xtrabackup_is_told_to_keep_transactions_open_and_not_at_the_end() {
        let options = PrepareOptions {
            export: true,
            use_memory: Some(64 << 20),
            ..PrepareOptions::default()
        };
        let increments = [PathBuf::from("/i/1"), PathBuf::from("/i/2")];
        for tool in [PrepareTool::MariaDbBackup, PrepareTool::XtraBackup] {
            let steps: Vec<_> = steps(tool, Path::new("/t"), &increments, &options)
                .iter()
                .map(|s| words(s))
                .collect();
            assert_eq!(steps.len(), 3);
            for (n, step) in steps.iter().enumerate() {
                assert_eq!(step[..2], ["--prepare", "--target-dir=/t"]);
                assert_eq!(step.contains(&"--export".to_owned()), n == 2);
                let keep = step.contains(&"--apply-log-only".to_owned());
                assert_eq!(keep, tool == PrepareTool::XtraBackup && n < 2);
                let dir = format!("--incremental-dir=/i/{n}");
                assert_eq!(step.contains(&dir), n > 0, "{step:?}");
                assert!(step.contains(&"--use-memory=67108864".to_owned()));
            }
        }
    }
}
