//! `prune`: applies a retention rule.

use std::collections::BTreeSet;
use std::io::Write as _;

use xb_backup::{
    Candidate, Keep, LogVerdict, Missed, OrInterrupted as _, PruneStep, Session, Verdict,
    kept_backups, plan_log_prune, plan_prune, prune_logs,
};
use xb_cli::{Failure, Log, format_count, format_size, printable};
use xb_repo::list::{Listing, State};
use xb_repo::resolve::KnownManifests;
use xb_repo::sizes::note_before_removal;

use crate::args::CommonOptions;
use crate::args::catalogue::PruneArgs;
use crate::commands::begun_anew::not_pruned;
use crate::commands::context::{Context, resources};
use crate::commands::metrics_file::{CommandMetrics, Facts};
use crate::commands::one_at_a_time::one_at_a_time;
use crate::commands::state_dir::{remembering, state_dir};
use crate::job::Family;
use crate::location::root_place;
use crate::report;

impl Context {
    pub(crate) fn prune(&self, args: &PruneArgs) -> Result<(), Failure> {
        let name = args.metrics.repository.as_deref().or(args.root.place.as_deref());
        let name = name.filter(|name| !name.is_empty()).or(args.common.store.root.as_deref());
        let file = args.metrics.metrics_file.as_deref();
        let metrics = CommandMetrics::begin(file, Family::Retention, name)?;
        let mut facts = Facts::new();
        let outcome = self.prune_measured(args, &mut facts);
        // A plan removes nothing, and does not list the backups that are kept.
        let removes = args.yes && !args.dry_run;
        self.measured(metrics.filter(|_| removes), facts, outcome)
    }

    fn prune_measured(&self, args: &PruneArgs, facts: &mut Facts) -> Result<(), Failure> {
        let Some(keep) = rules(&args.keep)? else {
            return Err(Failure::usage("no retention rule is given")
                .hint("give at least one of --keep-last, --keep-daily, --keep-weekly, --keep-monthly and --keep-within"));
        };
        let yes = args.yes && !args.dry_run;
        let place = args.root.place.as_deref();
        let pruned = self.prune_root(place, keep, yes, None, &args.common)?;
        let removed = pruned.gone.as_ref().map_or(0, Vec::len);
        let kept = pruned.plan.len() - removed;
        facts.push(("kept_backups", "Backups that it kept.", kept.to_string()));
        facts.push(("removed_backups", "Backups that it removed.", removed.to_string()));
        report::printed(show(&self.log, &pruned, args.common.run.json))
    }

    /// Applies the rules to all backups of a ROOT; without `yes`, only plans. Keeps the backup that was
    /// `just_made`.
    pub(crate) fn prune_root(
        &self,
        place: Option<&str>,
        keep: &Keep,
        yes: bool,
        just_made: Option<&str>,
        common: &CommonOptions,
    ) -> Result<Pruned, Failure> {
        let root = remembering(&self.log, &root_place(place, common)?, &common.run);
        let shown = place.filter(|place| !place.is_empty()).or(common.store.root.as_deref());
        let shown = shown.unwrap_or_default();
        let _alone = match yes {
            true => {
                let what = format!("a prune of {shown}");
                let identity = format!("prune {}", root.identity());
                match one_at_a_time(&self.log, state_dir(&common.run), &what, &identity) {
                    // No night is lost over it: two of them do each other no harm, only the same work.
                    Err(_) if just_made.is_some() => {
                        self.log
                            .warn(format!("{what} is under way already; this one works beside it"));
                        None
                    }
                    locked => locked?,
                }
            }
            false => None,
        };
        // A run has looked before its backup.
        let begun_anew = match yes && just_made.is_none() {
            true => self.noted_begun_anew(&root, &common.run)?,
            false => None,
        };
        let resources = resources(&common.run);
        let run = |observer, cancel| async move {
            let session = Session { root, resources, observer, cancel };
            let Session { root, cancel, .. } = &session;
            // Those that are gone may come back with its disk, and the rules were made for them.
            if let Some((notes, noted)) = begun_anew
                && let Missed::All(missing) = cancel.or(notes.missing(root, noted)).await?
            {
                return Ok(Err(missing));
            }
            let listed = cancel.or(xb_repo::list::list_by_key(root)).await?;
            let backups = kept_backups(&listed);
            let known = KnownManifests::read_before(&listed.catalogue, listed.sound);
            let mut candidates = Candidate::all(&listed.lines);
            for candidate in &mut candidates {
                candidate.just_made = just_made.is_some_and(|made| made == candidate.name);
            }
            let plan = plan_prune(&candidates, keep, jiff::Timestamp::now());
            let going: BTreeSet<&str> =
                plan.iter().filter(|of| of.is_removed()).map(|of| &*of.name).collect();
            if yes && !going.is_empty() {
                let noted = note_before_removal(root, &listed.lines, &going);
                cancel.or(noted).await?;
            }
            let left: Vec<Listing> =
                listed.lines.into_iter().filter(|line| line.state != State::Complete).collect();
            let gone = match yes {
                true => {
                    // Reported at once: these backups are gone even if a later step fails.
                    let done = |name: &str, step: PruneStep<'_>| {
                        match step {
                        PruneStep::Removed => self.log.info(format!("removed {name}")),
                        PruneStep::ObjectsLeft => self.log.warn(format!(
                            "removed {name}, but objects of it are left: `xbcloud-rs gc` removes them"
                        )),
                        PruneStep::Kept(why) => self.log.warn(format!("kept {name}: {why}")),
                    }
                    };
                    Some(xb_backup::prune_known(&session, &plan, known, done).await?)
                }
                false => None,
            };
            let goes = |name: &str| plan.iter().any(|of| of.name == name && of.is_removed());
            let logs = match &gone {
                None => {
                    let kept: Vec<_> = backups.into_iter().filter(|of| !goes(&of.name)).collect();
                    plan_log_prune(&session, &kept, keep.binlog_within).await?
                }
                Some(gone) => prune_logs(&session, backups, gone, keep.binlog_within).await?,
            };
            for (log, why) in logs.iter().filter_map(|log| Some((log, log.left.as_ref()?))) {
                self.log.warn(format!(
                    "binary log of {}: segments that an earlier prune has left cannot be removed: {why}",
                    log.server
                ));
            }
            Ok(Ok(Pruned { plan, left, gone, logs }))
        };
        let (pruned, _) = self.with_progress("prune", &common.run, None, run)?;
        pruned.map_err(|missing| not_pruned(&missing))
    }
}

/// The rules; `None` if none is given.
///
/// # Errors
/// All given rules keep nothing, or are for logs only.
pub(crate) fn rules(keep: &Keep) -> Result<Option<&Keep>, Failure> {
    match (keep.is_empty(), keep.keeps_nothing()) {
        (true, _) if keep.binlog_within.is_some() => {
            Err(Failure::usage("--keep-binlog-within is a rule for logs only")
                .hint("add a rule for the backups, such as --keep-within"))
        }
        (true, _) => Ok(None),
        (false, false) => Ok(Some(keep)),
        (false, true) => Err(Failure::usage("the retention rules keep nothing: each number is 0")
            .hint("give at least one rule above 0, or no rule")),
    }
}

/// Result of applying the retention rules to a ROOT.
pub(crate) struct Pruned {
    pub(crate) plan: Vec<Verdict>,
    /// Names that are not complete backups.
    pub(crate) left: Vec<Listing>,
    /// Names of the removed backups, if it was not only planned.
    pub(crate) gone: Option<Vec<String>>,
    /// Archived logs of each server that are removed.
    pub(crate) logs: Vec<LogVerdict>,
}

fn show(tell: &Log, pruned: &Pruned, json: bool) -> std::io::Result<()> {
    let Pruned { plan, left, gone, logs } = pruned;
    let mut out = std::io::stdout().lock();
    if json {
        let value = serde_json::json!({ "plan": plan, "left_alone": left, "removed": gone, "binlog": logs });
        serde_json::to_writer_pretty(&mut out, &value)?;
        return writeln!(out);
    }
    let width = plan.iter().map(|v| v.name.len()).chain(left.iter().map(|l| l.name.len()));
    let width = width.max().unwrap_or(0);
    for verdict in plan {
        let finished = verdict.finished.strftime("%Y-%m-%d %H:%M:%S UTC");
        let why: Vec<String> = verdict.kept.iter().map(ToString::to_string).collect();
        let what = if verdict.is_removed() { "remove" } else { "keep" };
        let why = printable(&why.join(", "));
        writeln!(out, "{:width$}  {finished}  {what:6}  {why}", verdict.name)?;
    }
    for line in left {
        let name = printable(&line.name);
        writeln!(out, "{name:width$}  {:23}  keep    {}", "-", report::state(line))?;
    }
    for log in logs {
        let what = match (&log.kept, gone) {
            (Some(why), _) => format!("all of it stays: {why}"),
            (None, _) if log.segments == 0 => continue,
            (None, Some(_)) => format!("removed {}", of_log(log)),
            (None, None) => format!("would remove {}", of_log(log)),
        };
        tell.info(format!("binary log of {}: {what}", log.server));
    }
    for (log, name) in logs.iter().filter_map(|log| Some((log, log.doubted.as_ref()?))) {
        tell.info(format!(
            "binary log of {}: the log of an older backup is kept, too, because it is not known whether the log of {name} is the archived one: `xbcloud-rs verify` with --level=restore --until=latest shows it",
            log.server
        ));
    }
    let backups = |number: usize| format_count(number as u64, "backup");
    let go = plan.iter().filter(|verdict| verdict.is_removed()).count();
    tell.info(match gone {
        Some(gone) => format!("removed {}, kept {}", backups(gone.len()), plan.len() - gone.len()),
        None if go == 0 => format!("nothing to remove, {} kept", backups(plan.len())),
        None => format!(
            "would remove {} and keep {}; run again with --yes to remove",
            backups(go),
            plan.len() - go
        ),
    });
    Ok(())
}

fn of_log(log: &LogVerdict) -> String {
    format!("{} ({})", format_count(log.segments, "segment"), format_size(log.bytes))
}
