//! verify, show, pin, prune, copy: from the command line to the library, and what it says.

use std::io::Write as _;
use std::sync::Arc;

use xb_backup::{
    BackupError, BackupKind, Candidate, CopyRequest, Keep, Level, Listing, PrepareOptions, Proof,
    ServerOptions, ShowRequest, Shown, Stop, Talk, Trial, Verdict, VerifyReport, VerifyRequest,
    plan_prune,
};
use xb_cli::{Failure, Log, OrFail as _, ProgressEnd, format_size};

use crate::catalogue_args::{CopyArgs, PinArgs, PruneArgs, ShowArgs, UnpinArgs, VerifyArgs};
use crate::commands::{Context, TOOL, memory, parallel, threads};
use crate::place::{backup_place, copy_place, root_place};
use crate::report;

/// Problems shown one by one on a terminal; `--json` has more.
const SHOWN: usize = 50;

impl Context {
    pub(crate) fn verify(&self, args: &VerifyArgs) -> Result<(), Failure> {
        let level = args.level.level();
        let (root, name) = self.which(&args.source, &args.common)?;
        let keys = crate::keys::opening(true, &args.opening, &self.log)?;
        let request = VerifyRequest {
            name,
            level,
            keys,
            accept: args.unsealed.accept(&args.opening),
            memory: memory(&args.common.run),
            threads: threads(&args.common.run),
            parallel: parallel(&args.common.run),
            record: (!args.no_record).then(|| TOOL.to_owned()),
        };
        let server = &args.server;
        let trial = Trial {
            scratch_dir: server.scratch_dir.clone(),
            prepare: PrepareOptions::default(),
            server: ServerOptions {
                program: server.mysqld.clone(),
                options: server.mysqld_opts.clone(),
            },
            statements: server.check_sql.clone(),
        };
        let log = self.log.clone();
        let talk: Talk = Arc::new(move |line| log.verbose(String::from_utf8_lossy(line)));
        let traffic = root.store().traffic().clone();
        let (found, end) = self.with_progress(
            "verify",
            &args.common.run,
            Some(traffic),
            |observer, mut stop| async move {
                if level < Level::Restore {
                    return xb_backup::verify(&root, &request, &observer, &mut stop).await;
                }
                xb_backup::verify_by_restore(&root, request, &trial, &talk, &observer, &mut stop)
                    .await
            },
        )?;
        verified(&self.log, &found, &end, args.common.run.json).stage("output")?;
        if found.is_ok() {
            return Ok(());
        }
        if found.is_undamaged() {
            let checks = found.failed_checks.len();
            return Err(Failure::new(format!("{}: {checks} checks of yours failed", found.name))
                .stage("check")
                .hint(
                    "nothing was found wrong with the backup itself: look at what the server says",
                ));
        }
        let problems = found.problems.len() as u64 + found.more_problems;
        let reached = found.reached.map_or("not even the manifest holds".to_owned(), |level| {
            format!("it holds up to the level {level}")
        });
        Err(Failure::new(format!("{}: {problems} problems; {reached}", found.name))
            .stage("check")
            .hint("do not rely on it; take another backup"))
    }

    pub(crate) fn show(&self, args: &ShowArgs) -> Result<(), Failure> {
        let (root, name) = self.which(&args.source, &args.common)?;
        let request = ShowRequest {
            name,
            keys: crate::keys::opening(false, &args.opening, &self.log)?,
            accept: args.unsealed.accept(&args.opening),
            memory: memory(&args.common.run),
        };
        let (shown, _) =
            self.with_progress("show", &args.common.run, None, |_, mut stop| async move {
                stop.or(xb_backup::show(&root, &request)).await
            })?;
        print_shown(&shown, args.common.run.json).stage("output")
    }

    pub(crate) fn pin(&self, args: &PinArgs) -> Result<(), Failure> {
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let reason = args.reason.clone();
        let (lock, parallel) = (args.retain.lock()?, parallel(&args.common.run));
        let (_, _) =
            self.with_progress("pin", &args.common.run, None, |_, mut stop| async move {
                if let Some(lock) = &lock {
                    stop.or(xb_backup::lock(&root, &name, lock, parallel)).await?;
                }
                stop.or(xb_backup::pin(&root, &name, reason.as_deref())).await
            })?;
        report::locked(&self.log, lock.as_ref());
        self.log.info("pinned: prune and delete leave it alone until it is unpinned");
        Ok(())
    }

    pub(crate) fn unpin(&self, args: &UnpinArgs) -> Result<(), Failure> {
        let (root, name) = backup_place(&args.name, &args.common, false)?;
        let (was, _) =
            self.with_progress("unpin", &args.common.run, None, |_, mut stop| async move {
                stop.or(xb_backup::unpin(&root, &name)).await
            })?;
        self.log.info(if was.is_some() { "unpinned" } else { "it was not pinned" });
        Ok(())
    }

    pub(crate) fn prune(&self, args: &PruneArgs) -> Result<(), Failure> {
        let keep = Keep {
            last: args.keep_last,
            daily: args.keep_daily,
            weekly: args.keep_weekly,
            monthly: args.keep_monthly,
            within: args.keep_within,
        };
        if keep.is_empty() {
            return Err(Failure::usage("nothing is said about what to keep")
                .hint("give at least one of --keep-last, --keep-daily, --keep-weekly, --keep-monthly and --keep-within"));
        }
        let root = root_place(args.root.as_deref(), &args.common)?;
        let yes = args.yes;
        let ((plan, left, gone), _) =
            self.with_progress("prune", &args.common.run, None, |_, mut stop: Stop| async move {
                let listed = stop.or(xb_backup::list(&root)).await?;
                let candidates: Vec<Candidate> = listed.iter().filter_map(Candidate::of).collect();
                let left: Vec<Listing> =
                    listed.into_iter().filter(|line| Candidate::of(line).is_none()).collect();
                let plan = plan_prune(&candidates, &keep, xb_backup::Timestamp::now());
                let gone = match yes {
                    true => {
                        // At once: whatever comes after, these are gone.
                        let done = |name: &str, kept: Option<&BackupError>| match kept {
                            None => self.log.info(format!("removed {name}")),
                            Some(why) => self.log.warn(format!("kept {name}: {why}")),
                        };
                        stop.or(xb_backup::prune(&root, &plan, done)).await?
                    }
                    false => Vec::new(),
                };
                Ok((plan, left, gone))
            })?;
        pruned(&self.log, &plan, &left, yes.then_some(&gone[..]), args.common.run.json)
            .stage("output")
    }

    pub(crate) fn copy(&self, args: &CopyArgs) -> Result<(), Failure> {
        let (from, name) = self.which(&args.source, &args.common)?;
        let keys = crate::keys::opening(false, &args.opening, &self.log)?;
        let stores = (&args.common.store, &args.destination);
        let place = copy_place((&args.source.name, &args.to), &name, stores, &args.common.run)?;
        if place.same {
            return Err(Failure::usage("the backup is there already: both places are the same"));
        }
        let lock = args.retain.lock()?;
        let request = CopyRequest {
            name,
            to: place.name,
            unverified: args.unverified,
            alone: args.alone,
            keys,
            accept: args.unsealed.accept(&args.opening),
            within_store: place.within_store.then_some(xb_uploader::Store::MAX_COPY),
            lock,
            memory: memory(&args.common.run),
            threads: threads(&args.common.run),
            parallel: parallel(&args.common.run),
        };
        let traffic = from.store().traffic().clone();
        let to = self.taking_over(place.root, args.take_over);
        let (done, end) = self.with_progress(
            "copy",
            &args.common.run,
            Some(traffic),
            |observer, mut stop| async move {
                xb_backup::copy(&from, &to, &request, &observer, &mut stop).await
            },
        )?;
        report::copied(&self.log, &done, &end);
        report::locked(&self.log, lock.as_ref());
        Ok(())
    }
}

fn verified(log: &Log, found: &VerifyReport, end: &ProgressEnd, json: bool) -> std::io::Result<()> {
    log.event("verified", &serde_json::json!({
        "name": found.name, "level": found.level, "reached": found.reached, "ok": found.is_ok(),
        "authenticity": found.authenticity, "problems": found.problems.len() as u64 + found.more_problems,
        "stored_bytes": found.stored_bytes, "objects": found.objects, "requests": found.requests, "retries": found.retries,
        "seconds": end.elapsed.as_secs_f64(),
    }));
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, found)?;
        return writeln!(out);
    }
    for level in &found.levels {
        let mark = match (level.ok, level.checked) {
            (false, _) => "FAILED",
            (true, false) => "not all",
            (true, true) => "ok",
        };
        writeln!(out, "{:9} {mark:7} {}", level.level, level.what)?;
    }
    if let Some(restore) = &found.restore {
        writeln!(
            out,
            "          {} tables in order on {}, {} statements of yours",
            restore.tables, restore.server_version, restore.statements
        )?;
    }
    for problem in found.problems.iter().take(SHOWN) {
        let mut place = String::new();
        if let Some(object) = &problem.object {
            place += &format!(" object {object}");
        }
        if let Some(file) = &problem.file {
            place += &format!(" file {file}");
        }
        if let Some(offset) = problem.offset {
            place += &format!(" at {offset}");
        }
        writeln!(out, "{}:{place}: {}", problem.level, problem.what)?;
    }
    let more = found.problems.len().saturating_sub(SHOWN) as u64 + found.more_problems;
    if more > 0 {
        writeln!(out, "and {more} more")?;
    }
    for check in &found.failed_checks {
        writeln!(out, "{}: {check}", found.level)?;
    }
    for note in &found.notes {
        log.warn(note);
    }
    log.info(format!(
        "{}: verified up to {}, {} in {} objects",
        found.name,
        found.reached.map_or("nothing", |level| level.as_str()),
        format_size(found.stored_bytes),
        found.objects
    ));
    Ok(())
}

/// What is known of a verification, in a word or two.
pub(crate) fn proof(proof: Option<&Proof>) -> String {
    let day = |at: Option<xb_backup::Timestamp>| {
        at.map_or(String::new(), |at| format!(" {}", at.strftime("%Y-%m-%d")))
    };
    match proof {
        None => "-".to_owned(),
        Some(Proof { failed: Some(level), failed_at, .. }) => {
            format!("DAMAGED {level}{}", day(*failed_at))
        }
        Some(Proof { level: Some(level), at, .. }) => format!("{level}{}", day(*at)),
        Some(_) => "-".to_owned(),
    }
}

/// The further lines of `list --long`.
pub(crate) fn details(l: &Listing) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let mut add = |what, value: Option<String>| {
        if let Some(value) = value {
            lines.push((what, value));
        }
    };
    add(
        "kind",
        l.kind.map(|kind| match (kind, &l.base) {
            (BackupKind::Full, _) => "full".to_owned(),
            (BackupKind::Incremental, Some(base)) => format!("incremental, on {}", base.name),
            (BackupKind::Incremental, None) => "incremental".to_owned(),
        }),
    );
    add("started", l.started.map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string()));
    add("stream", l.stream_bytes.map(format_size));
    add("server", l.server.clone());
    add("lsn", l.to_lsn.map(|to| format!("{} to {to}", l.from_lsn.unwrap_or(0))));
    add("binlog", l.binlog_pos.clone());
    add("galera", l.galera.clone());
    add("opens with", (!l.ways_in.is_empty()).then(|| l.ways_in.join(", ")));
    add("verified", l.verified.as_ref().map(|found| proof(Some(found))));
    add(
        "pinned",
        l.pinned.as_ref().map(|pin| {
            let since = pin.since.map(|since| since.strftime("%Y-%m-%d").to_string());
            let since = since.unwrap_or_else(|| "at some time".to_owned());
            pin.reason.as_ref().map_or(since.clone(), |reason| format!("{since}: {reason}"))
        }),
    );
    lines
}

fn print_shown(shown: &Shown, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, shown)?;
        return writeln!(out);
    }
    let l = &shown.listing;
    writeln!(out, "{:12} {}", "name", l.name)?;
    writeln!(out, "{:12} {}", "state", report::state(l))?;
    if let Some(finished) = l.finished {
        writeln!(out, "{:12} {}", "finished", finished.strftime("%Y-%m-%d %H:%M:%S"))?;
    }
    if let (Some(bytes), Some(objects)) = (l.stored_bytes, l.objects) {
        writeln!(out, "{:12} {} in {objects} objects", "stored", format_size(bytes))?;
    }
    for (what, value) in details(l) {
        writeln!(out, "{what:12} {value}")?;
    }
    for why in l.problem.as_deref().into_iter().chain(shown.why_not) {
        writeln!(out, "{:12} {why}", "note")?;
    }
    for file in shown.content.iter().flatten() {
        match (file.size, file.stored_bytes, file.objects) {
            (Some(size), ..) => writeln!(out, "{size:>15}  {}", file.path)?,
            (None, bytes, objects) => writeln!(
                out,
                "{:>15}  {}  ({} objects)",
                bytes.unwrap_or(0),
                file.path,
                objects.unwrap_or(0)
            )?,
        }
    }
    Ok(())
}

fn pruned(
    log: &Log,
    plan: &[Verdict],
    left: &[Listing],
    gone: Option<&[String]>,
    json: bool,
) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let value = serde_json::json!({ "plan": plan, "left_alone": left, "removed": gone });
        serde_json::to_writer_pretty(&mut out, &value)?;
        return writeln!(out);
    }
    let width = plan.iter().map(|v| v.name.len()).chain(left.iter().map(|l| l.name.len()));
    let width = width.max().unwrap_or(0);
    for verdict in plan {
        let finished = verdict.finished.strftime("%Y-%m-%d %H:%M:%S");
        let why: Vec<String> = verdict.kept.iter().map(ToString::to_string).collect();
        let what = if verdict.goes() { "remove" } else { "keep" };
        writeln!(out, "{:width$}  {finished}  {what:6}  {}", verdict.name, why.join(", "))?;
    }
    for line in left {
        writeln!(out, "{:width$}  {:19}  keep    {}", line.name, "-", report::state(line))?;
    }
    let go = plan.iter().filter(|verdict| verdict.goes()).count();
    log.info(match gone {
        Some(gone) => format!("removed {} backups, {} stay", gone.len(), plan.len() - gone.len()),
        None if go == 0 => format!("nothing to remove, {} backups stay", plan.len()),
        None => format!("{go} backups would go and {} stay; --yes removes them", plan.len() - go),
    });
    Ok(())
}

/// Tells of the newest backup that is proven, for whoever watches.
pub(crate) fn proven(log: &Log, listings: &[Listing]) {
    let proven = listings.iter().filter(|line| line.is_verified(xb_backup::Level::Checksum));
    let Some(newest) = proven.max_by_key(|line| line.finished) else { return };
    log.event("proven", &serde_json::json!({
        "name": newest.name, "level": newest.verified.and_then(|proof| proof.level), "age_seconds": newest.age_seconds,
        "verified_age_seconds": newest.verified_age_seconds,
    }));
}
