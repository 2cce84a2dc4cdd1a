//! Errors in arguments, found before clap parses them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thiserror::Error;
use xb_option_files::OptionFileError;

/// Errors in arguments found before clap parses them. Values are never quoted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsageError {
    /// An option about option files after other arguments, where MySQL's tools do not accept it.
    #[error("--{option} must come before all other options")]
    DefaultsNotFirst {
        /// Option name without dashes.
        option: String,
    },
    /// Such an option behind a word too many: the program to run, without `--` before it.
    #[error(
        "--{option} comes after `{program}`: if that is the program to run, write `--` before it: `-- {program} --{option}`"
    )]
    ProgramWithoutDashes {
        /// The word.
        program: String,
        /// Option name without dashes.
        option: String,
    },
    /// MySQL's file of encrypted passwords was requested.
    #[error("--login-path is not supported: .mylogin.cnf is not read")]
    LoginPath,
    /// An option file could not be used.
    #[error(transparent)]
    OptionFile(#[from] OptionFileError),
    /// An option file has an option that no command knows.
    #[error("unknown option {key} in {} line {line}: correct it, or write loose-{key} to have it ignored", file.display())]
    UnknownOption {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A line of an option file has several words and no `=`. What is behind the first may be a secret.
    #[error("no `=` behind {key} in {} line {line}: write {key} = VALUE", file.display())]
    NoEquals {
        /// First word of the line.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// An option in an option file has no value, but needs one.
    #[error("option {key} in {} line {line} needs a value", file.display())]
    NoValue {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A switch in an option file has an invalid switch value.
    #[error("option {key} in {} line {line} must be 0, 1, on, off, true or false", file.display())]
    BadSwitch {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// An environment variable for a switch has an invalid switch value.
    #[error("environment variable {name} takes only 0, 1, on, off, true or false")]
    BadVariable {
        /// Name of the variable.
        name: String,
    },
    /// The command line names a repository that no option file has.
    #[error(
        "no option file has a group [{group}.{name}] for the repository @{name}{}{}",
        known_repositories(known, file),
        ignored_files(ignored)
    )]
    NoRepository {
        /// Group of the program.
        group: String,
        /// Name of the repository.
        name: String,
        /// Its own file, where there is no such group either.
        file: PathBuf,
        /// Names of the repositories that the option files have.
        known: Vec<String>,
        /// Warnings about option files that were not read.
        ignored: Vec<String>,
    },
    /// An abbreviated name in an option file matches several options.
    #[error(
        "option {key} in {} line {line} is ambiguous: it may be {}",
        file.display(),
        candidates.join(" or ")
    )]
    Ambiguous {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Options with this prefix.
        candidates: Vec<String>,
    },
}

impl UsageError {
    /// The next step, where the message does not have it.
    pub(crate) fn next_step(&self) -> Option<&'static str> {
        let Self::OptionFile(error) = self else { return None };
        match error {
            OptionFileError::Read { source, .. } | OptionFileError::List { source, .. } => {
                Some(match source.kind() {
                    ErrorKind::PermissionDenied => {
                        "run the command as a user that may read it, such as root, or name the files to read with --defaults-file"
                    }
                    _ => "check the path",
                })
            }
            OptionFileError::NoGroup { .. } => {
                Some("write the group above it, such as [xbcloud.shop] for the repository @shop")
            }
            OptionFileError::BadGroup { .. } => Some("write it as [NAME]"),
            OptionFileError::Utf16 { .. } => Some("save it as UTF-8"),
            OptionFileError::BadDirective { .. } => {
                Some("write it as !include FILE or !includedir DIR")
            }
            OptionFileError::TooDeep { .. } => Some("remove the line"),
            _ => None,
        }
    }
}

fn ignored_files(ignored: &[String]) -> String {
    ignored.iter().map(|warning| format!("; {warning}")).collect()
}

fn known_repositories(known: &[String], file: &Path) -> String {
    if known.is_empty() {
        let file = file.display();
        return format!(
            "; write it into {file}, or name the file that has it with --defaults-extra-file"
        );
    }
    let names: Vec<String> = known.iter().map(|name| format!("@{name}")).collect();
    format!("; known: {}", names.join(", "))
}
