//! `verify`: checks a backup level by level and reports.

use std::io::Write as _;

use xb_backup::{Trial, VerifyRequest};
use xb_cli::{Exit, Failure, Log, ProgressEnd, format_count, format_size, printable};
use xb_repo::root::Root;
use xb_repo::verification::{Level, VerifyReport};

use crate::args::RunOptions;
use crate::args::catalogue::VerifyArgs;
use crate::commands::context::{Context, TOOL, resources};
use crate::commands::inspect::evidence::{self, PartialEvidence};
use crate::commands::metrics_file::{CommandMetrics, Facts};
use crate::commands::program_output::ProgramOutput;
use crate::commands::state_dir::state_dir;
use crate::job::{ASKED_LEVEL, Family};
use crate::report;

/// Maximum number of problems shown on a terminal; `--json` shows more.
const SHOWN: usize = 50;

impl Context {
    pub(crate) fn verify(&self, args: &VerifyArgs) -> Result<(), Failure> {
        let place = args.source.name.rsplit_once('/').map(|(root, _)| root);
        let name = args.metrics.repository.as_deref().or(place);
        let name = name.or(args.common.store.root.as_deref());
        let file = args.metrics.metrics_file.as_deref();
        let metrics = CommandMetrics::begin(file, Family::Proof, name)?;
        let asked = args.level.unwrap_or(Level::Pages) as u64 + 1;
        let mut facts = vec![(ASKED_LEVEL, "Requested level.", asked.to_string())];
        let outcome = evidence::begin(args).and_then(|evidence| {
            let mut told = PartialEvidence::default();
            let outcome = self.verify_measured(args, &mut facts, &mut told);
            match evidence {
                Some(evidence) => evidence.finish(self, args, &told, outcome),
                None => outcome,
            }
        });
        self.measured(metrics, facts, outcome)
    }

    fn verify_measured(
        &self,
        args: &VerifyArgs,
        facts: &mut Facts,
        told: &mut PartialEvidence,
    ) -> Result<(), Failure> {
        let (root, name) = self.resolve(&args.source, &args.common)?;
        told.name = Some(name.to_string());
        let request = VerifyRequest {
            name,
            level: args.level.unwrap_or(Level::Pages),
            keys: crate::keys::opening(true, &args.opening, &self.log)?,
            accept: args.opening.accept,
            record: (!args.no_record).then(|| TOOL.to_owned()),
        };
        let trial = Trial { compare: args.compare.clone(), ..args.trial.clone() };
        let (found, end) = self.verify_backup(root, request, &trial, &args.common.run)?;
        facts.extend(measured(&found));
        let found = told.report.insert(found);
        let printed = report::printed(verified(&self.log, found, &end, args.common.run.json));
        // Damage decides the exit code, even if it could not be printed.
        judged(found)?;
        printed?;
        match args.level {
            asked @ Some(_) if found.reached < asked => Err(not_reached(found)),
            _ => Ok(()),
        }
    }

    /// Verifies one backup. A report with problems is no error.
    pub(crate) fn verify_backup(
        &self,
        root: Root,
        request: VerifyRequest,
        trial: &Trial,
        run: &RunOptions,
    ) -> Result<(VerifyReport, ProgressEnd), Failure> {
        check_trial(request.level, trial)?;
        let trial = &Trial { state: state_dir(run), ..trial.clone() };
        let output = ProgramOutput::new(&self.log, run, "verify", request.name.as_str());
        let lines = output.on_line();
        let verified =
            self.with_session("verify", run, root, resources(run), |session| async move {
                if request.level < Level::Restore {
                    return xb_backup::verify(&session, &request).await;
                }
                xb_backup::verify_by_restore(&session, request, trial, &lines).await
            });
        if let Some(path) = output.path() {
            self.log.verbose(format!("output of the programs: {}", path.display()));
        }
        verified.map_err(|failure| output.explain(failure))
    }
}

/// Refuses options of a trial restore where there is none.
pub(crate) fn check_trial(level: Level, trial: &Trial) -> Result<(), Failure> {
    if level >= Level::Restore {
        return Ok(());
    }
    if trial.until.is_some() {
        return Err(Failure::usage("--until replays the log in a trial restore")
            .hint("add --level=restore, or leave --until out"));
    }
    if !trial.statements.is_empty() {
        return Err(Failure::usage("--check-sql runs on the server of a trial restore")
            .hint("add --level=restore, or leave --check-sql out"));
    }
    Ok(())
}

/// The numbers of a report for its metrics.
fn measured(found: &VerifyReport) -> Facts {
    let problems = found.problems.len() as u64 + found.more_problems;
    let level = found.reached.map_or(0, |level| level as u64 + 1);
    let mut facts = vec![
        ("problems", "Problems of the backup that it found.", problems.to_string()),
        (
            "level",
            "Level that holds: 0 none, 1 manifest, 2 list, 3 checksum, 4 decrypt, 5 pages, 6 restore.",
            level.to_string(),
        ),
    ];
    if let Some(until) = found.proven_until() {
        facts.push((
            "proven_until_timestamp_seconds",
            "Time up to which it has replayed the archived binary log.",
            until.as_second().to_string(),
        ));
    }
    facts
}

/// The failure that a report means, if it means one.
pub(crate) fn judged(found: &VerifyReport) -> Result<(), Failure> {
    if found.is_ok() {
        return Ok(());
    }
    if let (Some(why), true) = (&found.broken_chain, found.is_undamaged()) {
        return Err(Failure::new(format!("{} cannot be restored: {why}", found.name))
            .stage("check")
            .ending(Exit::Damaged)
            .hint("its own data is intact: restore its base from a copy, if there is one, or take a full backup"));
    }
    let compared = found.restore.as_ref().and_then(|restore| restore.compared_with.as_ref());
    if let (Some(compared), true) = (compared.filter(|it| it.differing > 0), found.is_undamaged()) {
        return Err(Failure::new(format!(
            "{}: {} from {} at {}",
            found.name,
            format_count(compared.differing, "difference"),
            compared.server,
            compared.gtids
        ))
        .stage("compare")
        .ending(Exit::Damaged)
        .hint("the backup itself is undamaged; compare both with the source to see which one is wrong (docs/guide/point-in-time.md)"));
    }
    if found.is_undamaged() {
        let checks = found.failed_checks.len();
        return Err(Failure::new(format!(
            "{}: {} of --check-sql failed",
            found.name,
            format_count(checks as u64, "statement")
        ))
        .stage("check")
        .ending(Exit::Damaged)
        .hint("the backup itself is undamaged: correct the statement, or check whether its data is as expected"));
    }
    let problems = found.problems.len() as u64 + found.more_problems;
    let reached = found.reached.map_or("even the manifest is damaged".to_owned(), |level| {
        format!("intact up to level {level}")
    });
    Err(Failure::new(format!("{}: {}; {reached}", found.name, format_count(problems, "problem")))
        .stage("check")
        .ending(Exit::Damaged)
        .hint("do not rely on this backup; take a new one"))
}

/// The requested level could not be checked completely.
pub(crate) fn not_reached(found: &VerifyReport) -> Failure {
    let reached = found.reached.map_or("nothing", |level| level.as_str());
    let (name, level) = (&found.name, found.level);
    let last = found.levels.iter().find(|of| of.level == level && !of.what.is_empty());
    let why = last.map(|of| format!(": {}", of.what)).unwrap_or_default();
    Failure::new(format!("{name}: verified only up to {reached}, but {level} was requested{why}"))
        .stage("check")
        .ending(Exit::Damaged)
        .hint("no problem was found, but some parts could not be checked at this level: see the report; without --level this is not a failure")
}

/// Shows the remarks of a report. Notes are the same every night, so they are no warnings.
pub(crate) fn remarks(log: &Log, found: &VerifyReport) {
    found.notes.iter().for_each(|note| log.info(format!("note: {note}")));
    found.warnings.iter().for_each(|warning| log.warn(warning));
}

fn verified(log: &Log, found: &VerifyReport, end: &ProgressEnd, json: bool) -> std::io::Result<()> {
    log.event("verified", &serde_json::json!({
        "name": found.name, "level": found.level, "reached": found.reached, "ok": found.is_ok(),
        "authenticity": found.authenticity, "problems": found.problems.len() as u64 + found.more_problems,
        "stored_bytes": found.stored_bytes, "objects": found.objects, "requests": found.requests, "retries": found.retries,
        "seconds": end.elapsed.as_secs_f64(),
    }));
    for answer in found.restore.iter().flat_map(|restore| &restore.answers) {
        log.event("answer", &serde_json::json!(answer));
    }
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, found)?;
        return writeln!(out);
    }
    for level in &found.levels {
        let mark = match (level.ok, level.checked) {
            (false, _) => "FAILED",
            (true, false) => "partial",
            (true, true) => "ok",
        };
        writeln!(out, "{:9} {mark:7} {}", level.level, printable(&level.what))?;
    }
    if let Some(restore) = &found.restore {
        writeln!(
            out,
            "          {} intact on {}, {} run",
            format_count(restore.tables, "table"),
            restore.server_version,
            format_count(restore.statements, "statement")
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
        if !place.is_empty() {
            place.push(':');
        }
        let what = format!("{}:{place} {}", problem.level, problem.what);
        writeln!(out, "{}", printable(&what))?;
    }
    let more = found.problems.len().saturating_sub(SHOWN) as u64 + found.more_problems;
    if more > 0 {
        writeln!(out, "and {more} more")?;
    }
    for answer in found.restore.iter().flat_map(|restore| &restore.answers) {
        writeln!(out, "{}", printable(&answer.statement))?;
        for row in &answer.rows {
            let values = row.iter().map(|value| value.as_deref().unwrap_or("NULL"));
            writeln!(out, "    {}", printable(&values.collect::<Vec<_>>().join("  ")))?;
        }
        match (answer.rows.is_empty(), answer.more) {
            (true, _) => writeln!(out, "    no rows")?,
            (false, true) => writeln!(out, "    and more")?,
            (false, false) => {}
        }
    }
    for check in &found.failed_checks {
        writeln!(out, "{}: {}", found.level, printable(check))?;
    }
    remarks(log, found);
    log.info(format!(
        "{}: verified up to {}, {} in {}",
        found.name,
        found.reached.map_or("nothing", |level| level.as_str()),
        format_size(found.stored_bytes),
        report::objects(found.objects)
    ));
    Ok(())
}
