//! The report of a transfer as JSON, for `report-dir=DIR` in `[sst]`: begun before the work, written after
//! it, whatever happened.

use std::path::PathBuf;

use jiff::Timestamp;
use xb_cli::{Readers, check_writable, host_name, write_whole};
use xb_report::{Cause, End, Head, Report};
use xb_sst::{Context, Role, SstError};

/// Begins the report, if one is wanted and can be written: no transfer fails for lack of a report.
pub(crate) fn begin(context: &Context) -> Option<Report> {
    let Context { args, settings, layout, error_log, .. } = context;
    let path = path(context)?;
    if let Err(error) = check_writable(&path) {
        error_log.warn(format_args!(
            "no report will be written, because {} is not writable: {error}; create its directory, and let the server's user write to it",
            path.display()
        ));
        return None;
    }
    let place = match args.role {
        Role::Donor => format!("from this node to {}", args.peer()),
        Role::Joiner => format!("into {}", layout.datadir.display()),
    };
    let report = Report::begin(Head {
        what: format!("State transfer, {}", args.role.word()),
        tool: context.program.clone(),
        place,
        host: host_name().unwrap_or_default(),
        started: Timestamp::now(),
    });
    report.setting("delta", settings.delta.to_string());
    match args.role {
        Role::Donor => {
            let kind = if args.bypass { "write sets only" } else { "full backup" };
            report.setting("kind", kind);
            report.setting("compress", settings.compress.to_string());
            report.setting("compress-threads", settings.compress_threads.to_string());
            report.setting("backup-threads", settings.backup_threads.to_string());
            if let Some(rate) = settings.rlimit {
                report.setting("rlimit", format!("{rate} bytes/s"));
            }
        }
        Role::Joiner => report.setting("write-threads", settings.write_threads.to_string()),
    }
    Some(report)
}

/// Writes the report.
pub(crate) fn end(context: &Context, error: Option<&SstError>) {
    let (Some(report), Some(path)) = (&context.report, path(context)) else { return };
    let status = error.map_or(0, SstError::status);
    let end = End {
        finished: Timestamp::now(),
        exit: status,
        meaning: meaning(status).to_owned(),
        error: error.map(|error| Cause { message: error.to_string(), hint: error.hint() }),
    };
    if let Err(error) = write_whole(&path, &report.end(end).to_json(), Readers::Owner) {
        context.error_log.warn(format_args!("cannot write the report {}: {error}", path.display()));
    }
}

/// A node that was a joiner may be a donor later: each role has a file of its own.
fn path(context: &Context) -> Option<PathBuf> {
    let name = format!("xbrs-{}.json", context.args.role.word());
    context.settings.report_dir.as_ref().map(|dir| dir.join(name))
}

/// Meaning of an exit status, as `--help` has it.
fn meaning(status: u8) -> &'static str {
    match status {
        0 => "done",
        2 => "a program is missing",
        3 => "ended by a signal, or no data arrived",
        28 => "no room",
        32 => "network or peer",
        93 => "unfit donor",
        114 => "busy",
        _ => "a step failed",
    }
}
