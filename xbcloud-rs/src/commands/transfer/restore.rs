//! `restore`: writes a backup into files, makes them ready, and with `--until` replays the binary log after it.

use std::io::Write as _;
use std::path::Path;

use xb_backup::{
    AfterRestore, GetRequest, OrInterrupted as _, Owner, ReplayOptions, UntilPlan, UntilReport,
    UntilRequest,
};
use xb_cli::{Failure, Log, ProgressEnd, format_count, format_size, printable};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::chain::Link;
use xb_repo::names::BackupName;
use xb_repo::resolve::BackupSelector;
use xb_repo::root::Root;

use crate::args::shared::CommonOptions;
use crate::args::{RestoreArgs, Source};
use crate::commands::context::{Context, resources};
use crate::commands::program_output::ProgramOutput;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::get::selection;
use crate::location::wanted_place;
use crate::report;

impl Context {
    pub(crate) fn restore(&self, args: &RestoreArgs) -> Result<(), Failure> {
        match (&args.until.until, args.until.dry_run) {
            (Some(stop), _) => self.restore_until(args, stop),
            (None, true) => self.restore_plan(args),
            (None, false) => self.restore_backup(args),
        }
    }

    /// Restores a backup with its chain.
    fn restore_backup(&self, args: &RestoreArgs) -> Result<(), Failure> {
        let target = target(args)?;
        let (root, name) = self.resolve(&args.source, &args.common)?;
        let keys = crate::keys::opening(true, &args.opening, &self.log)?;
        let keyed = !keys.is_empty();
        self.reporting.name(&name);
        let ready = ready(args, target);
        let request = GetRequest {
            files: selection(&[], &args.files)?.with_what_prepare_needs(ready.prepare().is_some()),
            accept: args.opening.accept,
            ..GetRequest::new(name, keys)
        };
        let run = &args.common.run;
        let output = ProgramOutput::new(&self.log, run, "restore", request.name.as_str());
        let (on_line, how) = (output.on_line(), args.how);
        let outcome =
            self.with_session("restore", run, root, resources(run), |session| async move {
                xb_backup::restore_chain(&session, request, target, how, &ready, &on_line).await
            });
        let (report, end) =
            outcome.map_err(|failure| output.explain(resumable(failure, target)))?;
        self.reporting.restore(&report);
        report::restore_done(&self.log, args, target, &report, &end, keyed);
        if let Some(path) = output.path() {
            self.log.info(format!("output of the programs: {}", path.display()));
        }
        report::next_step(&self.log, args, target, &report);
        Ok(())
    }

    /// Shows what a restore would read, and writes nothing.
    fn restore_plan(&self, args: &RestoreArgs) -> Result<(), Failure> {
        report::can_print()?;
        let (root, name) = self.resolve(&args.source, &args.common)?;
        let run = &args.common.run;
        let (chain, _) = self.with_progress("plan", run, None, |_, cancel| async move {
            cancel.or(xb_repo::chain::chain(&root, &name)).await
        })?;
        report::printed(print_chain(&chain))?;
        self.log.info("nothing was restored: leave out --dry-run to restore");
        Ok(())
    }

    /// Restores a backup, and replays the binary log after it up to a stop.
    fn restore_until(&self, args: &RestoreArgs, stop: &RestoreStop) -> Result<(), Failure> {
        let options = &args.until;
        let Origins { root, name, server } = self.from(&args.source, &args.common)?;
        let keys = crate::keys::opening(true, &args.opening, &self.log)?;
        let keyed = !keys.is_empty();
        let request = UntilRequest {
            name,
            server,
            stop: stop.clone(),
            leave_out: options.exclude_gtid.iter().cloned().collect(),
            may_leave_out_ddl: options.exclude_ddl,
            state: state_dir(&args.common.run),
            accept_lost_end: options.accept_lost_end,
        };
        let any = BackupName::new("any").map_err(|error| Failure::new(error.to_string()))?;
        let mut get = GetRequest::new(any, keys);
        get.accept = args.opening.accept;
        let memory = args.ready.preparing.use_memory;
        let begins_cluster = args.ready.galera;
        let replay = ReplayOptions { memory, begins_cluster, ..options.replay.clone() };
        let into = match options.dry_run {
            true => None,
            false => Some((target(args)?, ready(args, target(args)?))),
        };
        let (run, log) = (&args.common.run, &self.log);
        let output = ProgramOutput::new(log, run, "restore", "until");
        let on_line = output.on_line();
        let place = into.as_ref().map(|(target, ready)| (*target, ready));
        let outcome =
            self.with_session("restore", run, root, resources(run), |session| async move {
                session.observer.expect_phases(if place.is_some() { 4 } else { 1 });
                let plan = xb_backup::plan_until(&session, &request, &mut get).await?;
                xb_backup::replaying_program(&session, &plan, &replay).await?;
                let Some((target, ready)) = place else { return Ok((plan, None)) };
                told(log, &plan);
                let into = (target, args.how);
                let done =
                    xb_backup::restore_until(&session, &plan, get, into, ready, &replay, &on_line)
                        .await?;
                Ok((plan, Some(done)))
            });
        let outcome = outcome.map_err(|failure| match &place {
            Some((target, _)) => resumable(failure, target),
            None => failure,
        });
        let ((plan, done), end) = outcome.map_err(|failure| output.explain(failure))?;
        let (Some(done), Some((target, _))) = (done, place) else {
            report::printed(print_until(&plan))?;
            return match args.target_dir.as_deref() {
                Some(target) => continued(&plan, target),
                None => Ok(()),
            };
        };
        if let Some(restored) = &done.restored {
            self.reporting.restore(restored);
            report::restore_done(&self.log, args, target, restored, &end, keyed);
        }
        finished(&self.log, args, target, (&plan, &done), &end);
        Ok(())
    }

    /// The backup that is meant for a stop.
    pub(super) fn from(&self, source: &Source, common: &CommonOptions) -> Result<Origins, Failure> {
        let source = named(source);
        let (root, wanted) = wanted_place(&source.name, common)?;
        let (root, name) = match wanted {
            BackupSelector::Latest => (root, None),
            BackupSelector::Name(name) => (root, Some(name)),
            BackupSelector::By(_) => {
                let (root, name) = self.resolve(&source, common)?;
                (root, Some(name))
            }
        };
        Ok(Origins { root, name, server: source.server })
    }
}

/// Says that a restore can be resumed, if it can.
fn resumable(failure: Failure, target: &Path) -> Failure {
    match xb_backup::is_resumable(target) {
        true => failure.fact("the restored data is kept; to resume, run the same command again"),
        false => failure,
    }
}

/// The directory to restore into.
fn target(args: &RestoreArgs) -> Result<&Path, Failure> {
    args.target_dir.as_deref().ok_or_else(|| Failure::usage("--target-dir is missing"))
}

/// Steps after the files are restored.
fn ready(args: &RestoreArgs, target: &Path) -> AfterRestore {
    let mut ready = args.ready.clone();
    // A replay leaves the position that the backup has in its cluster.
    ready.galera &= args.until.until.is_none();
    ready.prepare |= args.until.until.is_some();
    ready.server = args.until.replay.server.clone();
    ready.preparing.by.writable.clone_from(&ready.server.writable);
    // Only root may change owners.
    if ready.owner.is_none() && rustix::process::geteuid().is_root() {
        ready.owner = Owner::of_target(target);
    }
    ready
}

/// Prints the backups in the order of their restore.
fn print_chain(chain: &[Link]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut files = 0;
    let (mut stored, mut stream) = (0, 0);
    for link in chain {
        let manifest = &link.stored.manifest;
        let kind = if manifest.is_incremental() { "incremental" } else { "full" };
        let finished = manifest.finished.strftime("%Y-%m-%d %H:%M:%S UTC");
        let size = format_size(manifest.stream_bytes);
        writeln!(out, "{}  {finished}  {kind}, {size}", printable(&manifest.name))?;
        // The manifests of unsealed backups may state anything.
        files = manifest.files.saturating_add(files);
        stored = manifest.stored_bytes.saturating_add(stored);
        stream = manifest.stream_bytes.saturating_add(stream);
    }
    writeln!(
        out,
        "would read {} of {}, and write {} of {}",
        format_size(stored),
        format_count(chain.len() as u64, "backup"),
        format_size(stream),
        format_count(files, "file")
    )?;
    out.flush()
}

/// Place of the backup for a stop.
pub(super) struct Origins {
    pub(super) root: Root,
    /// `None` for the newest from which the stop can be reached, which may not be the newest of all.
    pub(super) name: Option<BackupName>,
    pub(super) server: Option<String>,
}

/// A repository without NAME, `@shop`, means its newest backup that fits. So does a URL that ends with a slash: as at the
/// destination of a copy, it is that of a place.
fn named(source: &Source) -> Source {
    let is_place = source.name.is_empty() || source.name.ends_with('/');
    let name = format!("{}{}", source.name, if is_place { "latest" } else { "" });
    Source { name, server: source.server.clone() }
}

fn lines(plan: &UntilPlan) -> Vec<String> {
    let mut lines = vec![
        format!("backup {} at {}, server {}", plan.backup, plan.from, plan.server),
        format!(
            "stop at {}, with GTIDs {}: {} in {} of log ({})",
            plan.to,
            plan.gtids,
            format_count(plan.transactions, "transaction"),
            format_size(plan.log_bytes),
            format_count(plan.segments as u64, "segment")
        ),
    ];
    match &plan.last {
        Some(last) => lines.push(format!("last transaction: {last}")),
        None => lines.push("no transaction lies between the backup and the stop".to_owned()),
    }
    match &plan.next {
        Some(next) => lines.push(format!("first one after the stop: {next}")),
        None => {
            lines.push("the archive ends at the stop, or its next segment begins there".to_owned())
        }
    }
    if plan.left_out > 0 {
        lines.push(format!(
            "left out: {}; applied after the first of them: {}",
            format_count(plan.left_out, "transaction"),
            format_count(plan.later, "transaction")
        ));
    }
    lines
}

pub(super) fn told(log: &Log, plan: &UntilPlan) {
    lines(plan).iter().for_each(|line| log.info(line));
    plan.remarks.iter().for_each(|remark| log.warn(remark));
}

fn print_until(plan: &UntilPlan) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines(plan).iter().chain(&plan.remarks) {
        writeln!(out, "{}", printable(line))?;
    }
    out.flush()
}

/// Prints what a restore makes of what an earlier one has left in its target.
fn continued(plan: &UntilPlan, target: &Path) -> Result<(), Failure> {
    match xb_backup::continuation(plan, target).map_err(report::failure)? {
        Some(how) => report::printed(writeln!(std::io::stdout(), "{}: {how}", target.display())),
        None => Ok(()),
    }
}

fn finished(
    log: &Log,
    args: &RestoreArgs,
    target: &Path,
    (plan, done): (&UntilPlan, &UntilReport),
    end: &ProgressEnd,
) {
    if let Some(replayed) = &done.replayed {
        log.event(
            "replayed",
            &serde_json::json!({
                "backup": plan.backup, "server": plan.server, "from": plan.from, "to": plan.to,
                "gtids": replayed.gtids.to_string(), "transactions": replayed.transactions,
                "left_out": replayed.left_out, "log_bytes": plan.log_bytes,
                "seconds": replayed.seconds.as_secs_f64(),
            }),
        );
        log.info(format!(
            "replayed {} in {:.1} s",
            format_count(replayed.transactions, "transaction"),
            replayed.seconds.as_secs_f64()
        ));
    }
    done.remarks.iter().for_each(|remark| log.warn(remark));
    log.info(format!(
        "{} is at {} ({}) after {:.1} s",
        target.display(),
        plan.to,
        plan.gtids,
        end.elapsed.as_secs_f64()
    ));
    if done.restored.as_ref().is_some_and(report::has_a_part) {
        return log.info(format!("next: {}", report::NEXT_OF_PARTIAL));
    }
    let next = match args.ready.galera {
        true => report::new_cluster(target),
        false => format!("{} with a server_id that its origin never had", report::swap(target)),
    };
    log.info(format!("next: {next}; to archive its log, start the receiver, and take a backup"));
}
