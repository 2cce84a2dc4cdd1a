//! `run`: backup, verification, copy and retention in one run, with one result.

use std::ffi::OsString;
use std::fs::File;
use std::time::{Duration, Instant};

use crate::job::{FirstCause, RunResult, StageStatus, beside_run, metrics, run_hook};
use jiff::Timestamp;
use serde_json::{Value, json};
use xb_backup::{
    Accept, BackupError, CopyOptions, CopyRequest, Coverage, Keep, OrInterrupted as _, Producer,
    VerifyRequest, unfit_by_import,
};
use xb_cli::{
    Exit, Failure, FailureContext as _, Personality, Secret, Signals, check_writable, exit_of,
    host_name,
};
use xb_repo::chain::{Link, UnknownImport};
use xb_repo::list::Listing;
use xb_repo::names::BackupName;
use xb_repo::verification::Level;

use crate::args::RunArgs;
use crate::args::catalogue::lock;
use crate::cache;
use crate::commands::admin::consolidate::Consolidation;
use crate::commands::admin::copy::CopiedBackup;
use crate::commands::admin::prune::rules;
use crate::commands::context::{Context, TOOL};
use crate::commands::inspect::verify::{check_trial, judged, not_reached, remarks};
use crate::commands::metrics_file::{check_metrics_file, replace};
use crate::commands::one_at_a_time::one_at_a_time;
use crate::commands::reporting::masked;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::backup::{StoredBackup, stuck, unarchived};
use crate::commands::transfer::origin::{Origin, server_name};
use crate::commands::whole_files::{is_collected, unwritable, write};
use crate::commands::words::words;
use crate::location::{
    NewPlace, backup_place, check_backup_place, copy_place, new_name, root_identity, root_place,
};
use crate::report::lost_tables;

/// Time limit for the list of backups after a failure.
const LISTING_LIMIT: Duration = Duration::from_secs(10);

/// A run in progress.
struct Job<'a> {
    context: &'a Context,
    args: &'a RunArgs,
    /// Place of the new backup, NAME included.
    place: String,
    /// Whether its name is generated, so that the run may take another one.
    generated: bool,
    hooks: Hooks,
    result: RunResult,
    /// Warnings about files that could not be written.
    unwritten: Vec<String>,
}

/// The programs of the hooks, as arguments.
#[derive(Default)]
struct Hooks {
    before: Vec<Vec<OsString>>,
    after: Vec<Vec<OsString>>,
    on_failure: Vec<Vec<OsString>>,
}

impl Context {
    /// `unreported`: the report of this run cannot be written, which fails the run.
    pub(crate) fn run(&self, args: &RunArgs, unreported: Option<Failure>) -> Result<(), Failure> {
        let options = &args.job;
        let place = args.name.as_deref().unwrap_or_default();
        let root = args.common.store.root.as_deref();
        let repository = options.repository.as_deref().or(folder(place).0).or(root);
        let host = host_name().unwrap_or_default();
        let mut result =
            RunResult::begin(TOOL, &masked(repository.unwrap_or(place)), &host, Timestamp::now());
        result.server = server_name(&args.backup);
        let hooks = Hooks::default();
        let mut job = Job {
            context: self,
            args,
            place: String::new(),
            generated: false,
            hooks,
            result,
            unwritten: Vec::new(),
        };
        let outcome = job.check(unreported).and_then(|()| job.stages());
        job.finish(outcome)
    }
}

impl Job<'_> {
    /// Finds mistakes in the options before the producer starts. A failure is reported like any
    /// other of the run: an option file that was broken yesterday must not go unnoticed.
    fn check(&mut self, unreported: Option<Failure>) -> Result<(), Failure> {
        let (context, args) = (self.context, self.args);
        let options = &args.job;
        // First, because they report what else is wrong.
        self.hooks.on_failure = commands("--on-failure", &options.on_failure)?;
        self.hooks.before = commands("--before", &options.before)?;
        self.hooks.after = commands("--after", &options.after)?;
        if let Some(failure) = unreported {
            return Err(failure);
        }
        options.metrics_file.as_deref().map(check_metrics_file).transpose()?;
        if let Some(file) = &options.result {
            check_writable(file).map_err(|error| unwritable(file, error))?;
        }
        (self.place, self.generated) =
            new_name(args.name.as_deref(), &args.name_template, &args.common)?;
        args.copy_to.as_deref().map_or(Ok(()), |to| keeps_name(to, self.generated))?;
        rules(&args.keep)?;
        args.verify.0.map_or(Ok(()), |level| check_trial(level, &args.trial))?;
        Origin::installed(&args.backup)?;
        lock(args.to_retain, args.to_retain_mode)?;
        crate::keys::keys(true, &args.identities, &args.backup.keys, &context.log).map(drop)
    }

    fn stages(&mut self) -> Result<(), Failure> {
        let (context, args) = (self.context, self.args);
        let (mut place, generated) = (self.place.clone(), self.generated);
        let common = &args.common;
        let mut name = check_backup_place(&place, common)?;
        self.result.name = Some(name.to_string());
        if let Some(to) = &args.copy_to {
            let (store, run) = (&common.store, &common.run);
            let copy = copy_place(&place, to, &name, store, &args.destination)?;
            copy.check(&args.destination, run)?;
            not_itself(copy.same)?;
        }
        // While the backup is taken: what follows may take longer than the time between two runs.
        let alone = self.alone(&place)?;
        let hooks = std::mem::take(&mut self.hooks.before);
        self.hooks("before", &hooks)?;
        // Of a repository that was begun anew, the older backups may come back with its disk.
        let (mut unusual, mut may_come_back) = (Vec::new(), false);
        self.stage("backup", || {
            let origin = Origin::installed(&args.backup)?;
            let (root, asked) = backup_place(&place, common, true)?;
            let new = NewPlace { root, name: asked, generated };
            let StoredBackup { report, checkpoint, archived, missed } =
                context.back_up(new, origin, &args.backup, common)?;
            unusual.extend(missed.any().cloned());
            may_come_back = missed.forbids_removals();
            unusual.extend(stuck(&report, checkpoint.as_ref()));
            let unarchived = unarchived(&report, &archived);
            unusual.extend(unarchived.inspect(|text| context.unusual(text)));
            let manifest = &report.manifest;
            unusual.extend(lost_tables(manifest));
            name =
                BackupName::new(&manifest.name).map_err(|error| Failure::new(error.to_string()))?;
            Ok(json!({
                "name": manifest.name, "layout": manifest.layout, "files": manifest.files,
                "stream_bytes": manifest.stream_bytes, "stored_bytes": manifest.stored_bytes,
                "base": manifest.base.as_ref().map(|base| &base.name),
                "mysql_clone": manifest.mysql_clone, "tables": manifest.tables, "without_tablespace": manifest.without_tablespace, "without_files": manifest.without_files,
                "begun_anew": missed.begun_anew, "set_back": missed.set_back, "shrunk": null, "encrypted": manifest.is_encrypted(), "stuck_lsn": manifest.source.stuck_lsn(),
                "archived": archived.map(|archived| archived == Coverage::Covered),
                "objects": manifest.objects, "requests": report.requests, "retries": report.retries,
            }))
        })?;
        drop(alone);
        self.result.warnings.extend(unusual);
        if self.generated {
            place = match folder(&place).0 {
                Some(folder) => format!("{folder}/{name}"),
                None => name.to_string(),
            };
            self.result.name = Some(name.to_string());
        }
        let backup = self.result.succeeded("backup").map(|stage| stage.details.clone());
        let base = backup.as_ref().map(|details| &details["base"]);
        if args.backup.incremental_from.is_some() && base.is_some_and(Value::is_null) {
            let text = "a full backup was taken instead of an increment, because no base fits";
            self.result.warnings.push(text.to_owned());
        }
        self.compare(&place);
        if let Some(level) = args.verify.0 {
            self.stage("verify", || self_verify(context, args, &place, level))?;
        }
        if let Some(to) = &args.copy_to {
            let mut unusual = Vec::new();
            self.stage("copy", || {
                let (details, doubts) = self_copy(context, args, &place, to, &name)?;
                unusual = doubts;
                Ok(details)
            })?;
            self.result.warnings.extend(unusual);
        }
        if let Some(after) = args.consolidate_after {
            self.consolidate(&place, after as usize)?;
        }
        let keep = args.keep;
        match keep.is_empty() {
            true => {}
            false if may_come_back => self.leave_out("prune"),
            false => self.stage("prune", || prune(context, args, &place, &keep))?,
        }
        let hooks = std::mem::take(&mut self.hooks.after);
        self.hooks("after", &hooks)
    }

    /// Refuses a second run on this host that would take the same backup.
    fn alone(&self, place: &str) -> Result<Option<File>, Failure> {
        let args = &self.args.backup;
        let server = server_name(args).unwrap_or_default();
        // One host may have several servers, all under its own name, and only the whole command tells which one
        // a producer reads.
        let origin = match Origin::of(args)? {
            Origin::Program(words) => {
                words.iter().map(|word| word.to_string_lossy() + "\n").collect()
            }
            Origin::Server(_) => args.from.clone().unwrap_or_default(),
        };
        let root = root_identity(folder(place).0, &self.args.common)?;
        let state = state_dir(&self.args.common.run);
        let what = format!("a run of server {server}");
        let identity = format!("run {root}\n{server}\n{origin}");
        one_at_a_time(&self.context.log, state, &what, &identity)
    }

    /// Warns if the new backup is much smaller than those before it. `prune` looks for itself.
    fn compare(&mut self, place: &str) {
        let (context, common) = (self.context, &self.args.common);
        let (folder, name) = folder(place);
        let made = name;
        let listed = cache::of_backup(place, common).and_then(|cache| {
            let root = root_place(folder, common)?;
            context.with_progress("compare", &common.run, None, |_, cancel| async move {
                let listings = cancel.or(xb_repo::list::list_with(&root, cache.as_ref())).await?;
                let line = listings.into_iter().find(|line| line.name == made);
                // It stays what it is when those that it was compared with are gone.
                let noted = match line.as_ref().filter(|line| line.unaccepted().is_some()) {
                    Some(line) => cancel.or(xb_repo::sizes::note(&root, line)).await,
                    None => Ok(()),
                };
                Ok((line, noted))
            })
        });
        let (line, noted) = match listed {
            Ok((found, _)) => found,
            Err(failure) => {
                let why = failure.line();
                return self.warn(format!("{name} was not compared with earlier backups: {why}"));
            }
        };
        let Some(what) = line.as_ref().and_then(Listing::unaccepted) else { return };
        if let Some(stage) = self.result.stages.last_mut() {
            stage.details["shrunk"] = json!(what);
        }
        self.warn(format!(
            "{name} is much smaller than usual: {what}; nothing of its server is pruned until you run `xbcloud-rs accept`"
        ));
        if let Err(error) = noted {
            self.warn(format!(
                "that {name} is much smaller than usual was not recorded: {error}; `prune` looks again"
            ));
        }
    }

    /// Runs a stage and notes its end. After a signal, none begins but the hooks of the failure: what the signal came too
    /// late to end, or to be seen by, has not ended the run.
    fn stage(
        &mut self,
        name: &str,
        run: impl FnOnce() -> Result<Value, Failure>,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let outcome = match xb_cli::interrupted().filter(|_| name != "on-failure") {
            Some(signal) => Err(Failure::interrupted(signal)),
            None => run(),
        };
        let seconds = begin.elapsed().as_secs_f64();
        let status = if outcome.is_ok() { StageStatus::Ok } else { StageStatus::Failed };
        self.context.reporting.stage(name, status, seconds);
        match outcome {
            Ok(details) => {
                self.context.reporting.outcome(name, &details);
                self.result.stage(name, StageStatus::Ok, seconds, details);
                Ok(())
            }
            Err(failure) => {
                self.result.stage(name, StageStatus::Failed, seconds, json!({}));
                Err(failure.stage(name))
            }
        }
    }

    fn hooks(&mut self, name: &str, hooks: &[Vec<OsString>]) -> Result<(), Failure> {
        for argv in hooks {
            let input = self.result.to_json();
            let limit = Duration::from_secs(self.args.job.hook_timeout);
            let log = self.context.log.clone();
            // A signal that came before does not end the hooks of the failure that it caused.
            let (caught, seen) = std::sync::mpsc::channel();
            let _signals = Signals::catch(move |signal| {
                let _ = caught.send(signal);
            })
            .stage("run")?;
            self.stage(name, || {
                // Its guardian would start, and tell only by a number that the program did not.
                if let Err(error) = Producer::look_for(argv) {
                    return Err(Failure::new(format!("hook --{name}: {error}"))
                        .hint(format!("install the program, or correct its path in --{name}")));
                }
                run_hook(
                    argv,
                    &input,
                    limit,
                    move |line| log.pass_on(line),
                    || seen.try_recv().ok(),
                )
                .map_err(|error| {
                    Failure::new(format!("hook --{name}: {error}")).hint(
                        "its own messages are above; to try it by hand, give it the result of a run (`result`) on its standard input",
                    )
                })?;
                Ok(json!({ "program": argv.first().map(|word| word.to_string_lossy()) }))
            })?;
        }
        Ok(())
    }

    /// Writes the result wherever it is wanted. The first cause stays the error of the run.
    fn finish(mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let last = self.result.stages.last();
        let failed = last.filter(|stage| stage.status == StageStatus::Failed);
        let stage = failed.map_or("settings".to_owned(), |stage| stage.stage.clone());
        let error = outcome.as_ref().err().map(|failure| FirstCause {
            stage,
            message: failure.line(),
            hint: failure.hint_text().map(str::to_owned),
        });
        let exit = exit_of(outcome.as_ref().err());
        self.result.end(Timestamp::now(), exit.code(Personality::Ours), error);
        // Before the hooks and the heartbeat: a file that cannot be written is a failure, too.
        let mut outcome = self.write_files(outcome);
        let is_ok = outcome.is_ok();
        // Below the cause of a failure: its mail begins with that.
        let mut beside = Vec::new();
        if !is_ok {
            self.skip();
            let hooks = std::mem::take(&mut self.hooks.on_failure);
            if let Err(failure) = self.hooks("on-failure", &hooks) {
                self.context.reporting.warning(&failure.line());
                self.result.warnings.push(failure.line());
                beside.push(failure.line());
            }
            outcome = self.write_files(outcome);
        }
        // Last: nothing may fail after a heartbeat that tells of success.
        let options = &self.args.job;
        let url = if is_ok { &options.heartbeat_url } else { &options.heartbeat_failure_url };
        if let Some(why) = url.as_ref().and_then(|url| self.heartbeat(url)) {
            let text = format!("heartbeat not sent: {why}");
            match is_ok {
                true => self.warn(text),
                false => {
                    self.result.warnings.push(text.clone());
                    beside.push(text);
                }
            }
            outcome = self.write_files(outcome);
        }
        let outcome = outcome.map_err(|failure| {
            let facts = self.facts(&failure);
            beside.into_iter().fold(failure.facts_first(facts), Failure::fact)
        });
        self.context.log.event("run", &serde_json::to_value(&self.result).unwrap_or_default());
        outcome?;
        self.context.log.info(format!("run of {}: {}", self.result.repository, self.summary()));
        Ok(())
    }

    /// Facts that matter next to someone who reads of the failure: how far the run came, whether there is a new backup,
    /// and which one could be restored now.
    fn facts(&self, failure: &Failure) -> Vec<String> {
        let result = &self.result;
        let with = |status| {
            let stages = result.stages.iter().filter(move |stage| stage.status == status);
            stages.map(|stage| stage.stage.as_str()).collect::<Vec<_>>()
        };
        let mut stages = format!("run of {}: ", result.repository);
        stages += &match with(StageStatus::Failed).first() {
            Some(stage) => format!("{stage} failed after {:.0} s", result.seconds),
            None => "failed before its first stage".to_owned(),
        };
        let skipped = with(StageStatus::Skipped);
        if !skipped.is_empty() {
            stages += &format!("; not begun: {}", skipped.join(", "));
        }
        let mut facts = vec![stages];
        if let (Some(_), Some(name)) = (result.succeeded("backup"), &result.name) {
            let level = result.succeeded("verify").map(|stage| &stage.details["reached"]);
            let level = level.and_then(Value::as_str);
            let proof = level.map(|level| format!(", and verified up to {level}"));
            facts.push(format!("backup {name} is complete{}", proof.unwrap_or_default()));
        }
        facts.extend(self.newest(failure));
        facts
    }

    /// The newest backup of the server that could be restored now, if the store answers.
    fn newest(&self, failure: &Failure) -> Option<String> {
        if matches!(failure.exit(), Exit::Unreachable | Exit::Usage | Exit::Interrupted(_)) {
            return None;
        }
        let common = &self.args.common;
        let root = root_place(folder(&self.place).0, common).ok()?;
        let listed =
            self.context.with_progress("list", &common.run, None, |_, cancel| async move {
                let listed = cancel.or(xb_repo::list::list_with(&root, None));
                Ok(tokio::time::timeout(LISTING_LIMIT, listed).await.ok())
            });
        let listings = listed.ok()?.0?.ok()?;
        let own =
            listings.iter().filter(|line| line.restorable && line.server == self.result.server);
        Some(match own.max_by_key(|line| (!line.is_partial, line.finished)) {
            Some(line) => {
                let finished = line.finished?.strftime("%Y-%m-%d %H:%M UTC");
                let level = line.verified.and_then(|proof| proof.level);
                let proof =
                    level.map_or("not verified".to_owned(), |l| format!("verified up to {l}"));
                format!("newest backup that can be restored: {} of {finished}, {proof}", line.name)
            }
            None => "no backup of this server can be restored".to_owned(),
        })
    }

    /// Consolidates the chain of the new backup if it has at least `after` increments. One that may lack the pages of an
    /// imported tablespace is left as it is: it can be restored, and only a person knows whether there was an import.
    fn consolidate(&mut self, place: &str, after: usize) -> Result<(), Failure> {
        let (context, args) = (self.context, self.args);
        let chain = chain_of(context, args, place)?;
        if chain.len().saturating_sub(1) < after {
            return Ok(());
        }
        let why = match unfit_by_import(&chain) {
            None => return self.stage("consolidate", || consolidate(context, args, place)),
            Some(UnknownImport::OfFull(full)) => format!(
                "{full} may lack imported tablespaces (ALTER TABLE ... IMPORT TABLESPACE), because an earlier version made it of a chain without looking for them; take a full backup"
            ),
            Some(UnknownImport::Between { base, name }) => format!(
                "it is unknown whether a tablespace was imported between {base} and {name} (ALTER TABLE ... IMPORT TABLESPACE), whose pages no increment would have; take a full backup, or, if you know that there was no import, run `xbcloud-rs consolidate --accept-imports` once"
            ),
        };
        self.leave_out("consolidate");
        self.warn(format!("the chain was not consolidated: {why}"));
        Ok(())
    }

    fn leave_out(&mut self, stage: &str) {
        self.result.stage(stage, StageStatus::Skipped, 0.0, json!({}));
        self.context.reporting.stage(stage, StageStatus::Skipped, 0.0);
    }

    /// Notes the stages that were wanted and did not begin.
    fn skip(&mut self) {
        let args = self.args;
        let wanted = [
            ("backup", true),
            ("verify", args.verify.0.is_some()),
            ("copy", args.copy_to.is_some()),
            ("consolidate", args.consolidate_after.is_some()),
            ("prune", !args.keep.is_empty()),
        ];
        for (stage, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
            if !self.result.stages.iter().any(|own| own.stage == stage) {
                self.leave_out(stage);
            }
        }
    }

    fn warn(&mut self, text: String) {
        self.context.log.warn(&text);
        self.context.reporting.warning(&text);
        self.result.warnings.push(text);
    }

    /// Posts the result; returns why that failed.
    fn heartbeat(&self, url: &Secret) -> Option<String> {
        let document = self.result.to_json();
        let run = &self.args.common.run;
        let send = |_, cancel: xb_backup::CancelToken| async move {
            let sending = crate::job::send_heartbeat(url.expose(), &document);
            let sending = async { Ok::<_, BackupError>(sending.await) };
            cancel.or(sending).await
        };
        match self.context.with_progress("heartbeat", run, None, send) {
            Ok((Ok(()), _)) => None,
            Ok((Err(error), _)) => Some(error.to_string()),
            Err(failure) => Some(failure.line()),
        }
    }

    fn write_files(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let outcome = self.write_result(outcome);
        self.write_metrics(outcome)
    }

    fn write_result(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let Some(path) = &self.args.job.result else { return outcome };
        let written = write(path, &self.result.to_json());
        self.fail(outcome, written)
    }

    fn write_metrics(&mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        // A name that the collector does not read is wrong in itself.
        let path = self.args.job.metrics_file.as_deref().filter(|path| is_collected(path));
        let Some(path) = path else { return outcome };
        let written = replace(path, |old| beside_run(old) + &metrics(&self.result, old));
        let failed = written.is_err() && outcome.is_ok();
        let outcome = self.fail(outcome, written);
        if failed { self.write_result(outcome) } else { outcome }
    }

    /// Joins the outcome of the run with that of writing about it. The first cause stays the error.
    fn fail(
        &mut self,
        outcome: Result<(), Failure>,
        written: Result<(), Failure>,
    ) -> Result<(), Failure> {
        match (outcome, written) {
            (Ok(()), Err(failure)) => {
                let error = FirstCause {
                    stage: "settings".to_owned(),
                    message: failure.line(),
                    hint: failure.hint_text().map(str::to_owned),
                };
                let exit = exit_of(Some(&failure)).code(Personality::Ours);
                self.result.end(Timestamp::now(), exit, Some(error));
                Err(failure)
            }
            (Err(first), Err(failure)) => {
                // A failed write was the cause, or not. Each file is written more than once.
                let line = failure.line();
                if !line.starts_with(&first.line()) && !self.unwritten.contains(&line) {
                    self.context.log.warn(&line);
                    self.unwritten.push(line);
                }
                Err(first)
            }
            (outcome, Ok(())) => outcome,
        }
    }

    fn summary(&self) -> String {
        let done = self.result.stages.iter().filter(|stage| stage.status == StageStatus::Ok);
        let done: Vec<&str> = done.map(|stage| stage.stage.as_str()).collect();
        format!("{} done in {:.0} s", done.join(", "), self.result.seconds)
    }
}

fn self_verify(
    context: &Context,
    args: &RunArgs,
    place: &str,
    level: Level,
) -> Result<Value, Failure> {
    let run = &args.common.run;
    let (root, name) = backup_place(place, &args.common, false)?;
    let request = VerifyRequest {
        name,
        level,
        keys: crate::keys::keys(true, &args.identities, &args.backup.keys, &context.log)?,
        accept: accepted(args),
        record: Some(TOOL.to_owned()),
    };
    let (found, end) = context.verify_backup(root, request, &args.trial, run)?;
    remarks(&context.log, &found);
    let reached = found.reached.map(|level| level.to_string());
    context.log.info(format!(
        "{}: verified up to {}",
        found.name,
        reached.as_deref().unwrap_or("nothing")
    ));
    judged(&found).map_err(|failure| {
        let problems = found.problems.iter().map(|it| format!("{}: {}", it.level, it.what));
        with_problems(failure, problems.chain(found.failed_checks.iter().cloned()))
    })?;
    // Level `pages` is reached as far as its backup allows: an increment never has all pages of a table.
    if level == Level::Restore && found.reached < Some(level) {
        let left = found.levels.iter().find(|of| of.level == level);
        let failure = not_reached(&found).better_hint(
            "no problem was found: see the warnings above for what this host lacks, or set a lower level with --verify",
        );
        return Err(failure.because(left.map_or_else(String::new, |of| of.what.clone())));
    }
    let phases = crate::report::phases(&end);
    Ok(json!({
        "level": found.level, "reached": reached, "objects": found.objects, "phases": phases,
        "proven_until": found.proven_until(),
    }))
}

/// The details of the copy, and warnings.
fn self_copy(
    context: &Context,
    args: &RunArgs,
    place: &str,
    to: &str,
    name: &BackupName,
) -> Result<(Value, Vec<String>), Failure> {
    let run = &args.common.run;
    let shown = masked(to);
    let to = copy_place(place, to, name, &args.common.store, &args.destination)?;
    let root = to.open(&args.destination, run)?;
    not_itself(to.same)?;
    let (from, name) = backup_place(place, &args.common, false)?;
    let request = CopyRequest {
        verify_bases: args.verify.0.map(|_| TOOL.to_owned()),
        name,
        to: to.name,
        options: CopyOptions { unverified: args.verify.0.is_none(), alone: false },
        keys: crate::keys::keys(false, &args.identities, &args.backup.keys, &context.log)?,
        accept: accepted(args),
        within_store: to.within_store.then_some(xb_uploader::Store::MAX_COPY),
        lock: lock(args.to_retain, args.to_retain_mode)?,
    };
    let CopiedBackup { done, archive, missed } =
        context.copy_backup(from, root, request, args.with_binlog, run)?;
    let missed_there = missed.any().map(|text| format!("destination of the copy: {text}"));
    let same_place = done.was_there.then(|| SAME_PLACE.to_owned());
    let unusual = same_place.into_iter().chain(missed_there).chain(done.doubts).collect();
    let details = json!({ "to": shown, "begun_anew": missed.begun_anew, "set_back": missed.set_back, "bases": done.bases, "stored_bytes": done.manifest.stored_bytes, "objects": done.manifest.objects, "binlog": archive.as_ref().map(crate::report::archive_copy) });
    Ok((details, unusual))
}

/// What `--accept-unsealed` accepts holds for all stages.
fn accepted(args: &RunArgs) -> Accept {
    Accept { unsealed: args.backup.accept_unsealed, ..Accept::default() }
}

/// The chain of the new backup.
fn chain_of(context: &Context, args: &RunArgs, place: &str) -> Result<Vec<Link>, Failure> {
    let (root, name) = backup_place(place, &args.common, false)?;
    let read = |_, cancel: xb_backup::CancelToken| async move {
        cancel.or(xb_repo::chain::chain(&root, &name)).await
    };
    Ok(context.with_progress("compare", &args.common.run, None, read)?.0)
}

fn consolidate(context: &Context, args: &RunArgs, place: &str) -> Result<Value, Failure> {
    let (root, name) = backup_place(place, &args.common, false)?;
    let put = &args.backup.put;
    let asked = Consolidation {
        name,
        new_name: None,
        chunk_size: put.chunk_size.map(|size| size.bytes()),
        compress: put.compress.as_deref(),
        key_slots: crate::keys::key_slots(put, &args.backup.keys, &context.log)?,
        keys: crate::keys::keys(true, &args.identities, &args.backup.keys, &context.log)?,
        accept: accepted(args),
        accept_imports: false,
        trial: &args.trial,
        lock: args.backup.retain.lock()?,
    };
    let (full, from) = context.consolidate_backup(root, asked, &args.common.run)?.unzip();
    Ok(json!({ "name": full, "from": from }))
}

/// Adds what a verification has found: the first problem is the cause, a few more are facts.
fn with_problems(failure: Failure, mut problems: impl Iterator<Item = String>) -> Failure {
    const MORE: usize = 3;
    let failure = match problems.next() {
        Some(first) => failure.because(first),
        None => failure,
    };
    problems.take(MORE).fold(failure, |failure, problem| failure.fact(format!("  {problem}")))
}

/// Refuses a copy under one name of backups that all have another one: only the first night would succeed.
fn keeps_name(to: &str, generated: bool) -> Result<(), Failure> {
    if !generated || to.is_empty() || to.ends_with('/') {
        return Ok(());
    }
    let name = to.rsplit('/').next().unwrap_or_default();
    Err(Failure::usage(format!(
        "--copy-to names a single backup, {name}, and each run makes a new one"
    ))
    .hint("end it with a slash, so that each copy keeps the name of its backup"))
}

/// A remark on a copy that was there before it was made: of a backup that this run has just made.
const SAME_PLACE: &str = "the backup was at the destination of the copy already: either the store replicates it there, or --copy-to leads to the same place by another name, and there is no second copy";

/// Refuses a copy to the place of the backup itself.
fn not_itself(same: bool) -> Result<(), Failure> {
    match same {
        true => Err(Failure::usage("--copy-to names the place of the backup itself")
            .hint("name another repository, or a URL with another path")),
        false => Ok(()),
    }
}

fn prune(context: &Context, args: &RunArgs, place: &str, keep: &Keep) -> Result<Value, Failure> {
    let (folder, name) = folder(place);
    let pruned = context.prune_root(folder, keep, true, Some(name), &args.common)?;
    let removed = pruned.gone.unwrap_or_default();
    Ok(
        json!({ "removed": removed.len(), "kept": pruned.plan.len() - removed.len(), "names": removed }),
    )
}

/// ROOT in a place, if it is written there, and NAME.
fn folder(place: &str) -> (Option<&str>, &str) {
    match place.rsplit_once('/') {
        Some((folder, name)) => (Some(folder), name),
        None => (None, place),
    }
}

/// Splits the texts of hooks into words.
pub(crate) fn commands(option: &str, texts: &[String]) -> Result<Vec<Vec<OsString>>, Failure> {
    let of_each = texts.iter().map(|text| {
        let words = words(option, text)?;
        if words.is_empty() {
            return Err(Failure::usage(format!("{option}: it contains no program"))
                .hint("name a program, and its arguments"));
        }
        Ok(words.into_iter().map(Into::into).collect())
    });
    of_each.collect()
}
