//! Commands for people and service units rather than servers.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;

use xb_sst::{
    Args, CancelToken, Context, DatadirLock, EngineLocks, ErrorLog, Finished, Keep, Layout, Level,
    Login, ServerCredentials, SstError, check_donor, check_joiner, drop_new, drop_old,
    finish_interrupted, has_made_way, is_untried, swap, take_back, tidy,
};

use crate::server_log::error_log;
use crate::setup;

const HELP: &str = include_str!("help.txt");

/// Runs the command, unless a server passed the arguments.
pub(crate) fn run(words: &[OsString]) -> Option<ExitCode> {
    let first = words.first().map(|word| word.to_string_lossy().into_owned());
    match first.as_deref() {
        None | Some("--help" | "-h" | "help") => {
            print!("{HELP}");
            Some(ExitCode::SUCCESS)
        }
        Some("--version" | "-V") => {
            // The wire uses the TLS of this library in every build.
            let text = xb_cli::long_version(env!("CARGO_PKG_VERSION"), "none", "aws-lc-rs");
            println!("wsrep_sst_xbrs-rs {text}");
            Some(ExitCode::SUCCESS)
        }
        Some("recover") => Some(on_datadir(words, |layout, lock, error_log| {
            if finish_interrupted(layout, lock, error_log)? == Finished::Nothing {
                error_log.info("nothing to do: no swap was interrupted");
            }
            Ok(())
        })),
        Some("check") => Some(check(&words[1..])),
        Some("clean-old") => Some(on_datadir(words, |layout, lock, error_log| {
            // The old data may still be needed, and a server may be running on the present data.
            if swap::may_be_interrupted(&layout.datadir) {
                return Err(SstError::Interrupted { datadir: layout.datadir.clone() });
            }
            if is_untried(layout)? {
                return Err(SstError::Untried { datadir: layout.datadir.clone() });
            }
            drop_old(layout, lock)?;
            error_log.info("the old data is removed");
            // A unit runs this at each start of the server: only an operator knows that this data is not needed.
            if !has_made_way(layout)? {
                return Ok(());
            }
            if words.get(2).is_some_and(|word| word == "--all") {
                drop_new(layout, lock)?;
                error_log.info("the data that a roll-back put aside is removed");
            } else {
                error_log.info(format_args!(
                    "the data that a roll-back put aside stays in #sql-xb/.new; remove it with: wsrep_sst_xbrs-rs clean-old {} --all",
                    layout.datadir.display()
                ));
            }
            Ok(())
        })),
        Some("roll-back") => Some(on_datadir(words, |layout, lock, error_log| {
            if let Some(journal) = swap::interrupted(&layout.datadir)? {
                if !journal.goes_back {
                    return Err(SstError::Interrupted { datadir: layout.datadir.clone() });
                }
                // One that a server has overtaken is begun again, with what that server has written.
                if finish_interrupted(layout, lock, error_log)? != Finished::GivenUp {
                    return Ok(());
                }
            }
            // Who may not move a directory may not list it either, which says less.
            swap::may_take_back(&layout.datadir)?;
            let _locks = EngineLocks::take(layout)?.as_far_as_possible(layout, error_log)?;
            // The settings of the node are not known here: what any server keeps by default stays.
            let usual = Keep::usual(true).map_err(|error| SstError::Content(error.to_string()));
            let mut keep = usual?;
            keep.within(&layout.datadir);
            let is_data = |name: &OsStr, facts: &Metadata| {
                let is_dir = facts.is_dir();
                (is_dir || facts.is_file()) && !keep.keeps(name.as_bytes(), is_dir)
            };
            if !take_back(layout, lock, is_data)? {
                return Err(SstError::NoOld { datadir: layout.datadir.clone() });
            }
            error_log.info("the data from before the last transfer is in place again; the data of that transfer is in #sql-xb/.new until the next one brings a donor's backup");
            Ok(())
        })),
        _ => None,
    }
}

/// Checks everything that this node needs as a joiner and as a donor. The arguments are those of a server, such
/// as --address, --datadir, --socket and --defaults-file.
fn check(words: &[OsString]) -> ExitCode {
    const JOINER: [&str; 2] = ["--role=joiner", "--progress=0"];
    const DONOR: [&str; 3] =
        ["--role=donor", "--progress=0", "--gtid=00000000-0000-0000-0000-000000000000:0"];
    let error_log = ErrorLog::new(|level, text| match level {
        Level::Info => eprintln!("ok: {text}"),
        Level::Warning => eprintln!("warning: {text}"),
        Level::Error => eprintln!("FAILED: {text}"),
    });
    let quiet = ErrorLog::new(|_, _| {});
    let joiner = check_as(&JOINER, words, &error_log, &error_log, check_joiner);
    // The option files are the same: their warnings need no second line.
    let donor = check_as(&DONOR, words, &quiet, &error_log, check_donor);
    joiner.max(donor).into()
}

/// Runs one check; returns the exit status. Messages about the settings go to the first log.
fn check_as(
    role: &[&str],
    words: &[OsString],
    about_settings: &ErrorLog,
    error_log: &ErrorLog,
    work: fn(&Context) -> Result<(), SstError>,
) -> u8 {
    let mut all: Vec<OsString> = role.iter().map(OsString::from).collect();
    all.extend(words.iter().cloned());
    let args = match Args::parse(&all) {
        Ok(args) => args,
        Err(error) => {
            about_settings.error(format_args!("{error}; see --help"));
            return 2;
        }
    };
    let cancel = CancelToken::new();
    let context = setup::option_files(&args, about_settings, &cancel).and_then(|files| {
        // The server hands its wsrep_sst_auth over; here it is read where the server reads it.
        let login = files.server("wsrep-sst-auth").and_then(Login::parse);
        let credentials = ServerCredentials { login, ..ServerCredentials::default() };
        setup::context(args, &files, credentials, about_settings, &cancel)
    });
    let context = match context {
        Ok(context) => Context { error_log: error_log.clone(), ..context },
        Err(text) => {
            error_log.error(text);
            return 22;
        }
    };
    match work(&context) {
        Ok(()) => 0,
        Err(error) => {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            error_log.error(format_args!("{error}{hint}"));
            error.status()
        }
    }
}

fn on_datadir(
    words: &[OsString],
    work: impl FnOnce(&Layout, &DatadirLock, &ErrorLog) -> Result<(), SstError>,
) -> ExitCode {
    let error_log = error_log(None);
    let Some(datadir) = words.get(1).map(Path::new) else {
        error_log.error("no data directory is given; see --help");
        return ExitCode::from(2);
    };
    if !datadir.is_dir() {
        error_log.error(format_args!("there is no directory {}", datadir.display()));
        return ExitCode::from(2);
    }
    let outcome = Layout::of(datadir)
        .map_err(|source| SstError::Io { what: "find", path: datadir.to_owned(), source })
        .and_then(|layout| {
            let lock = DatadirLock::take(&layout.datadir)?;
            let done = work(&layout, &lock, &error_log);
            tidy(&layout, &lock);
            done
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error_log.error(&error);
            if let Some(hint) = error.hint() {
                error_log.info(format_args!("hint: {hint}"));
            }
            ExitCode::from(error.status())
        }
    }
}
