//! `wsrep_sst_xbrs-rs`: the program that `scripts/wsrep_sst_xbrs` starts for a Galera server with
//! `wsrep_sst_method=xbrs` when it needs a state transfer.

mod operator_commands;
mod process_setup;
mod reporting;
mod server_log;
mod setup;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use xb_sst::{Args, CancelToken, Context, ErrorLog, Product, Role, ServerCredentials};

/// Time limit for the shutdown after a cancellation.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    if let Some(status) = xb_process::serve_as_guardian() {
        return status;
    }
    // Before any file is opened, and before any thread exists.
    process_setup::close_what_leaked();
    process_setup::unblock_signals();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = operator_commands::run(&words) {
        return code;
    }
    process_setup::own_group();
    ExitCode::from(serve(&words))
}

/// Serves the server's request; returns the exit status.
fn serve(words: &[OsString]) -> u8 {
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(error) => {
            server_log::error_log(None).error(format_args!("{error}; see wsrep_sst_xbrs --help"));
            return 22;
        }
    };
    let error_log = server_log::error_log(Some(args.product));
    let role = args.role;
    let cancel = CancelToken::new();
    let _signals = watch::signals(&cancel, &error_log);
    watch::parent(&args, &cancel, &error_log);
    watch::exit_after_grace(&cancel, &error_log, SHUTDOWN_LIMIT);
    error_log.info(format_args!("xbrs SST started on {}", role.word()));
    let context = match context(args.clone(), &error_log, &cancel) {
        Ok(context) => context,
        Err(text) => {
            error_log.error(&text);
            if role == Role::Donor {
                xb_sst::decline(&args, &text);
            }
            return 22;
        }
    };
    let outcome = match role {
        Role::Donor => xb_sst::donate(&context),
        Role::Joiner => xb_sst::join(&context),
    };
    reporting::end(&context, outcome.as_ref().err());
    match outcome {
        Ok(()) => {
            error_log.info(format_args!("xbrs SST completed on {}", role.word()));
            0
        }
        Err(error) => {
            error_log.error(format_args!("{}: {error}", role.word()));
            if let Some(hint) = error.hint() {
                error_log.info(format_args!("hint: {hint}"));
            }
            error.status()
        }
    }
}

/// Reads the option files and the server's credentials, and begins the report.
fn context(args: Args, error_log: &ErrorLog, cancel: &CancelToken) -> Result<Context, String> {
    let files = setup::option_files(&args, error_log, cancel)?;
    let credentials = credentials(&args, error_log, cancel);
    let context = setup::context(args, &files, credentials, error_log, cancel)?;
    Ok(Context { report: reporting::begin(&context), ..context })
}

/// Reads the server's credentials. Only a donor gets any, and a Percona server's donor needs none
/// if it sends no snapshot.
fn credentials(args: &Args, error_log: &ErrorLog, cancel: &CancelToken) -> ServerCredentials {
    match (args.role, args.product) {
        (Role::Joiner, _) => ServerCredentials::default(),
        (Role::Donor, Product::Percona) if args.bypass => ServerCredentials::default(),
        (Role::Donor, _) => ServerCredentials::take(error_log, cancel),
    }
}
