//! `prune`: applies a retention rule.

use std::io::Write as _;

use xb_backup::{BackupError, CancelToken, Candidate, Keep, Listing, State, Verdict, plan_prune};
use xb_cli::{Failure, Log, OrFail as _};

use crate::args::catalogue::PruneArgs;
use crate::commands::context::Context;
use crate::place::root_place;
use crate::report;

impl Context {
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
        let ((plan, left, gone), _) = self.with_progress(
            "prune",
            &args.common.run,
            None,
            |_, mut stop: CancelToken| async move {
                let listed = stop.or(xb_backup::list(&root)).await?;
                let candidates = Candidate::all(&listed);
                let left: Vec<Listing> =
                    listed.into_iter().filter(|line| line.state != State::Complete).collect();
                let plan = plan_prune(&candidates, &keep, xb_backup::Timestamp::now());
                let gone = match yes {
                    true => {
                        // Reported at once: these backups are gone even if a later step fails.
                        let done = |name: &str, kept: Option<&BackupError>| match kept {
                            None => self.log.info(format!("removed {name}")),
                            Some(why) => self.log.warn(format!("kept {name}: {why}")),
                        };
                        stop.or(xb_backup::prune(&root, &plan, done)).await?
                    }
                    false => Vec::new(),
                };
                Ok((plan, left, gone))
            },
        )?;
        pruned(&self.log, &plan, &left, yes.then_some(&gone[..]), args.common.run.json)
            .stage("output")
    }
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
