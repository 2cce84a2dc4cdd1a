//! `check`: tries everything that a backup needs, before the first night.

use std::io::Write as _;
use std::path::Path;

use xb_backup::{
    Access, CancelToken, CheckLine, CheckState, OrInterrupted as _, UnprovenServer, check_binlog,
    check_clone, check_keys, check_producer, check_store, create_state_folder, source_servers,
};
use xb_cli::{Exit, Failure, format_size, printable};

use crate::args::{BackupOptions, CheckArgs, CheckpointArg, ProducerOptions, RunOptions};
use crate::commands::context::Context;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::backup::lock_guard;
use crate::commands::transfer::origin::{Origin, clone_request, server_name, unproven};
use crate::location::root_place;
use crate::report;

/// Retries of a request: a store that is not there should be reported soon.
const RETRIES: u32 = 2;

impl Context {
    pub(crate) fn check(&self, args: &mut CheckArgs) -> Result<(), Failure> {
        let run = &mut args.common.run;
        if run.max_retries.is_none() && run.retry_timeout.is_none() {
            run.max_retries = Some(RETRIES);
        }
        let args = &*args;
        let run = &args.common.run;
        let mut lines = self.check_the_store(args)?;
        let slots = crate::keys::key_slots(&args.backup.put, &args.backup.keys, &self.log);
        let is_sealed =
            args.backup.put.encrypt.is_some() || slots.as_ref().is_ok_and(|s| !s.is_empty());
        let keys = crate::keys::keys(true, &args.identities, &args.backup.keys, &self.log);
        match (slots, keys) {
            (Ok(slots), Ok(keys)) => {
                lines.extend(check_keys(&slots, &keys).map_err(report::failure)?)
            }
            (slots, keys) => {
                let failures = [slots.err(), keys.err()];
                lines.extend(failures.into_iter().flatten().map(|failure| {
                    line_of("keys", &failure, "correct the option that names this key")
                }));
            }
        }
        lines.extend(self.check_the_origin(&args.backup, is_sealed, run)?);
        lines.extend(folders(&args.backup, &args.common.run));
        lines.extend(self.check_the_binlog(args)?);
        report::printed(print(&lines, run.json))?;
        let failed = lines.iter().filter(|line| line.state == CheckState::Failed).count();
        match failed {
            0 => Ok(()),
            n => Err(Failure::new(format!("{n} of {} checks failed", lines.len()))
                .stage("check")
                .hint("follow the hints in the table, then run `check` again")),
        }
    }

    fn check_the_store(&self, args: &CheckArgs) -> Result<Vec<CheckLine>, Failure> {
        let lock = args.backup.retain.lock()?.is_some();
        let root = match root_place(args.root.place.as_deref(), &args.common) {
            Ok(root) => root,
            Err(failure) if failure.exit() == Exit::Usage => return Err(failure),
            Err(failure) => {
                let fix =
                    "check location, credentials and directory; `init` creates a local directory";
                return Ok(vec![line_of("list", &failure, fix)]);
            }
        };
        let check =
            |_, cancel: CancelToken| async move { cancel.or(check_store(&root, lock)).await };
        Ok(self.with_progress("check", &args.common.run, None, check)?.0)
    }

    /// Only who archives the log is told of its settings.
    fn check_the_binlog(&self, args: &CheckArgs) -> Result<Vec<CheckLine>, Failure> {
        let server = server_name(&args.backup);
        let source = args.source.source.as_deref();
        let login_file = args.backup.clone.login.login_file.as_deref();
        // Both a clone and a receiver have their login in this file.
        let has_login = login_file.is_some() && args.backup.from.is_none();
        let is_asked = args.binlog || source.is_some() || has_login;
        // A store that cannot be read has its own line.
        let root = root_place(args.root.place.as_deref(), &args.common).ok();
        let find = |_, cancel: CancelToken| async move {
            let Some(root) = root else { return Ok(Vec::new()) };
            cancel.or(xb_repo::archive::listing::servers(&root)).await
        };
        if !is_asked {
            let found = self.with_progress("check", &args.common.run, None, find);
            let servers = found.map(|(servers, _)| servers).unwrap_or_default();
            if !server.is_some_and(|server| servers.contains(&server)) {
                return Ok(Vec::new());
            }
        }
        let servers = source_servers(source, login_file).map_err(report::failure)?;
        let check = |_, cancel: CancelToken| async move { cancel.or(check_binlog(servers)).await };
        Ok(self.with_progress("check", &args.common.run, None, check)?.0)
    }

    fn check_the_origin(
        &self,
        args: &BackupOptions,
        is_sealed: bool,
        run: &RunOptions,
    ) -> Result<Vec<CheckLine>, Failure> {
        let argv = match Origin::of(args) {
            Ok(Origin::Program(argv)) => argv,
            Ok(Origin::Server(access)) => {
                return self.check_the_server(args, access, is_sealed, run);
            }
            Err(failure) if args.from.is_some() => {
                return Ok(vec![line_of("server", &failure, "correct --from")]);
            }
            Err(failure) => {
                let fix = "set `producer` in the option file, or add it after --; to clone a MySQL server, set `from`";
                return Ok(vec![CheckLine::warning("program", failure.line(), fix)]);
            }
        };
        let checkpoint = args.producer_options.checkpoint == CheckpointArg::Auto;
        let check = |_, cancel: CancelToken| async move {
            Ok(check_producer(&argv, checkpoint, &cancel).await)
        };
        Ok(self.with_progress("check", run, None, check)?.0)
    }
}

impl Context {
    fn check_the_server(
        &self,
        args: &BackupOptions,
        access: Access,
        is_sealed: bool,
        run: &RunOptions,
    ) -> Result<Vec<CheckLine>, Failure> {
        if let Some(server) = UnprovenServer::of(&access) {
            let failure = match server.fingerprint() {
                Ok(found) => unproven(&server, &found),
                Err(error) => report::failure(error),
            };
            return Ok(vec![line_of("tls", &failure, "give --ssl-fp or --ssl-ca")]);
        }
        let request = clone_request(args, access, is_sealed);
        let check = |_, cancel: CancelToken| async move { cancel.or(check_clone(request)).await };
        Ok(self.with_progress("check", run, None, check)?.0)
    }
}

fn line_of(what: &'static str, failure: &Failure, fix: &str) -> CheckLine {
    CheckLine::failed(what, failure.line(), failure.hint_text().unwrap_or(fix))
}

/// Room for the spool, and a place for notes and the producer's messages.
fn folders(args: &BackupOptions, run: &RunOptions) -> Vec<CheckLine> {
    let mut lines = vec![spool(&args.producer_options, args.from.is_some())];
    if let Some(dir) = state_dir(run) {
        lines.push(match create_state_folder(&dir, 0o777).and_then(|()| tempfile::tempfile_in(&dir)) {
            Ok(_) => CheckLine::ok("state", format!("{} is writable", dir.display())),
            Err(error) => {
                let found = format!("cannot write to {}: {error}", dir.display());
                let fix = "set --state-dir to another directory; without one, the producer's messages are not kept";
                CheckLine::warning("state", found, fix)
            }
        });
    }
    lines
}

fn spool(args: &ProducerOptions, is_clone: bool) -> CheckLine {
    let guard = lock_guard(args);
    match &guard.spool_dir {
        None => CheckLine::warning(
            "spool",
            match is_clone {
                true => {
                    "there is no spool: with a slow store, the server keeps its redo log for longer"
                }
                false => "there is no spool: a slow store holds up a locked server",
            },
            "choose a directory with --spool-dir",
        ),
        Some(dir) => match (tempfile::tempfile_in(dir), rustix::fs::statvfs(dir)) {
            (Ok(_), Ok(stat)) => {
                let free = stat.f_bavail.saturating_mul(stat.f_frsize);
                let (room, wanted) = (format_size(free), format_size(guard.spool_size));
                let found = format!("{room} free in {}, the spool needs {wanted}", dir.display());
                match free >= guard.spool_size {
                    true => CheckLine::ok("spool", found),
                    false => {
                        let fix = "set --spool-dir to a directory with more room";
                        CheckLine::warning("spool", found, fix)
                    }
                }
            }
            (Err(error), _) => unwritable("spool", dir, &error, "--spool-dir"),
            (_, Err(error)) => unwritable("spool", dir, &error.into(), "--spool-dir"),
        },
    }
}

fn unwritable(what: &'static str, dir: &Path, error: &std::io::Error, option: &str) -> CheckLine {
    let found = format!("cannot write to {}: {error}", dir.display());
    CheckLine::failed(what, found, format!("set {option} to another directory"))
}

fn print(lines: &[CheckLine], json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, lines)?;
        return writeln!(out);
    }
    let width = lines.iter().map(|line| line.what.len()).max().unwrap_or(0);
    for line in lines {
        let state = match line.state {
            CheckState::Ok => "ok",
            CheckState::Warning => "warning",
            CheckState::Failed => "FAILED",
        };
        // Names of tables and accounts come from the server.
        writeln!(out, "{:width$}  {state:7}  {}", line.what, printable(&line.found))?;
        if let Some(fix) = &line.fix {
            writeln!(out, "{:width$}           fix: {}", "", printable(fix))?;
        }
    }
    Ok(())
}
