//! Commands for people and service units rather than servers.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use xb_sst::{DatadirLock, ErrorLog, Layout, SstError, drop_old, finish_interrupted, swap, tidy};

use crate::voice::voice;

const HELP: &str = include_str!("help.txt");

/// Runs the command, unless the arguments are a server's.
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
        Some("recover") => Some(on_datadir(words, |layout, lock, talk| {
            if !finish_interrupted(&layout.datadir, lock, talk)? {
                talk.info("nothing to do: no swap was interrupted");
            }
            Ok(())
        })),
        Some("clean-old") => Some(on_datadir(words, |layout, lock, talk| {
            // The old data may still be needed, and a server may be running on the present data.
            if swap::journal_path(&layout.datadir).exists() {
                return Err(SstError::Interrupted { datadir: layout.datadir.clone() });
            }
            drop_old(layout, lock)?;
            talk.info("the old data is removed");
            Ok(())
        })),
        _ => None,
    }
}

fn on_datadir(
    words: &[OsString],
    work: impl FnOnce(&Layout, &DatadirLock, &ErrorLog) -> Result<(), SstError>,
) -> ExitCode {
    let talk = voice(None);
    let Some(datadir) = words.get(1).map(Path::new).filter(|path| path.is_dir()) else {
        talk.error("no data directory is given; see --help");
        return ExitCode::from(2);
    };
    let outcome = Layout::of(datadir)
        .map_err(|source| SstError::Io { what: "find", path: datadir.to_owned(), source })
        .and_then(|layout| {
            let lock = DatadirLock::take(&layout.datadir)?;
            let done = work(&layout, &lock, &talk);
            tidy(&layout, &lock);
            done
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            talk.error(&error);
            if let Some(hint) = error.hint() {
                talk.info(format_args!("hint: {hint}"));
            }
            ExitCode::from(error.status())
        }
    }
}
