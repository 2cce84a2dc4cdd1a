//! Evidence of `verify`: written at its end, and checked by `evidence`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use xb_backup::{fill_in, is_name_template};
use xb_cli::{Exit, Failure, Personality, check_writable, host_name, printable};
use xb_encryptor::SigningKey;
use xb_repo::verification::{Level, VerifyReport};
use xb_uploader::Location;

use crate::args::catalogue::{EvidenceArgs, VerifyArgs};
use crate::commands::context::{Context, TOOL};
use crate::commands::whole_files::unwritable;
use crate::evidence::{
    Evidence, EvidenceError, FORMAT, ReadReport, VerificationEnd, read, signature_of, write,
};
use crate::job::span;
use crate::location::{own_key, split, url};
use crate::report;

/// Evidence to write when a verification has ended.
pub(super) struct ToWrite {
    file: PathBuf,
    key: SigningKey,
    started: Timestamp,
}

/// Findings of a verification so far.
#[derive(Default)]
pub(super) struct PartialEvidence {
    /// Name of the backup.
    pub(super) name: Option<String>,
    pub(super) report: Option<VerifyReport>,
}

impl PartialEvidence {
    /// The operator's statements that have succeeded on the trial server.
    fn statements(&self) -> Vec<String> {
        let trial = self.report.iter().flat_map(|report| &report.restore);
        trial.flat_map(|trial| &trial.answers).map(|answer| answer.statement.clone()).collect()
    }
}

/// Checks, before any work, that the evidence that is asked for can be written.
///
/// # Errors
/// There is no key, or a file of its name, or the directory cannot be written to.
pub(super) fn begin(args: &VerifyArgs) -> Result<Option<ToWrite>, Failure> {
    let Some(file) = &args.evidence else { return Ok(None) };
    let Some(key) = own_key(&args.common.store.signing)? else {
        return Err(Failure::usage("--evidence is signed, but this host has no key to sign with").hint(
            "make one with `xbcrypt-rs keygen --signing -o FILE`, and give it with --signing-key-file=FILE",
        ));
    };
    let started = Timestamp::now();
    let file = named(file, started)?;
    let hint = match file.symlink_metadata().is_ok() {
        true => "name another file: {utc} in its name is filled in".to_owned(),
        // The signature comes first.
        false => format!(
            "{} does not exist, so a verification that was killed has left its signature: remove that",
            file.display()
        ),
    };
    for file in [&signature_of(&file), &file] {
        check_writable(file).map_err(|error| unwritable(file, error))?;
        if file.symlink_metadata().is_ok() {
            return Err(Failure::usage(format!(
                "{} exists, and evidence is never replaced",
                file.display()
            ))
            .hint(hint));
        }
    }
    Ok(Some(ToWrite { file, key, started }))
}

/// The file, with the fields of its name filled in.
fn named(file: &Path, now: Timestamp) -> Result<PathBuf, Failure> {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    let Some(name) = name.filter(|name| is_name_template(name)) else {
        return Ok(file.to_owned());
    };
    let host = host_name().unwrap_or_else(|| "host".to_owned());
    let name = fill_in(&name, &host, now)
        .map_err(|error| Failure::usage(format!("--evidence: {error}")))?;
    Ok(file.with_file_name(name.as_str()))
}

impl ToWrite {
    /// Writes what was found, and how the verification ended. Without the evidence that was asked for, it has not
    /// succeeded.
    pub(super) fn finish(
        self,
        context: &Context,
        args: &VerifyArgs,
        told: &PartialEvidence,
        outcome: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let failure = outcome.as_ref().err();
        let result = match (failure, &told.report) {
            (None, Some(_)) => VerificationEnd::Ok,
            (Some(failure), Some(_)) if failure.exit() == Exit::Damaged => VerificationEnd::Failed,
            _ => VerificationEnd::Error,
        };
        let place = split(&args.source.name, &args.common.store).ok();
        let evidence = Evidence {
            format: FORMAT,
            result,
            exit: xb_cli::exit_of(failure).code(Personality::Ours),
            error: failure.map(|failure| failure.line().trim_end().to_owned()),
            tool: TOOL.to_owned(),
            host: host_name().unwrap_or_default(),
            signer: self.key.verifying_key().to_string(),
            trusted: args.common.store.signing.signer.iter().map(ToString::to_string).collect(),
            root: place.map(|(root, _)| url(&root)),
            name: told.name.clone(),
            level: args.level.map(|level| level.to_string()),
            until: args.trial.until.as_ref().map(ToString::to_string),
            statements: told.statements(),
            started: self.started,
            finished: Timestamp::now(),
            verification: told.report.as_ref(),
        };
        let file = self.file.display();
        match write(&self.file, &evidence, &self.key) {
            Ok(()) => {
                context.log.info(format!("evidence of this verification: {file}, {file}.sig"));
                outcome
            }
            Err(error) => {
                let failed = Failure::new(format!("cannot write the evidence {file}"))
                    .stage("evidence")
                    .because(error)
                    .hint("the verification itself is recorded beside the manifest; run it again for its evidence");
                match outcome {
                    Ok(()) => Err(failed),
                    Err(first) => {
                        context.log.warn(failed.line());
                        Err(first)
                    }
                }
            }
        }
    }
}

impl Context {
    pub(crate) fn evidence(&self, args: &EvidenceArgs) -> Result<(), Failure> {
        report::can_print()?;
        let file = &args.file;
        let signature = args.signature.clone().unwrap_or_else(|| signature_of(file));
        let (found, text, signer) = read(file, &signature, &args.signer).map_err(|error| {
            let failure = Failure::new(format!("{}: {error}", file.display())).stage("evidence");
            match error {
                EvidenceError::Unread { ref source, .. }
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    failure.ending(Exit::NotFound)
                }
                EvidenceError::Unread { .. } | EvidenceError::TooNew(_) => failure,
                _ => failure
                    .ending(Exit::Damaged)
                    .hint("it was changed, or another host has signed it: do not rely on it"),
            }
        })?;
        let mut out = std::io::stdout().lock();
        let printed = match args.run.json {
            true => out.write_all(&text),
            false => shown(&mut out, &found),
        };
        report::printed(printed.and_then(|()| out.flush()))?;
        self.log.info(format!("signed by {signer}"));
        match found.result {
            VerificationEnd::Ok => demanded(args, &found),
            VerificationEnd::Failed | VerificationEnd::Error => Err(Failure::new(format!(
                "this is evidence of a verification that failed: {}",
                printable(found.error.as_deref().unwrap_or("no reason is known"))
            ))
            .stage("evidence")
            .ending(Exit::Damaged)),
        }
    }
}

/// Checks what the command line demands of evidence of a success.
fn demanded(args: &EvidenceArgs, found: &Evidence<ReadReport>) -> Result<(), Failure> {
    let refused = |what: String| Err(Failure::new(what).stage("evidence").ending(Exit::Damaged));
    let of_name = (args.name == found.name, "backup", &args.name, &found.name);
    let is_place = args.root.as_deref().is_some_and(|asked| {
        found.root.as_deref().is_some_and(|found| are_same_place(found, asked))
    });
    let of_root = (is_place, "repository", &args.root, &found.root);
    for (holds, what, asked, found) in [of_name, of_root] {
        if let Some(asked) = asked
            && !holds
        {
            let found = found.as_deref().map_or_else(|| "unknown".to_owned(), printable);
            return refused(format!(
                "it is for {what} {found}, but {} is required",
                printable(asked)
            ));
        }
    }
    let reached = found.reached();
    if let Some(level) = args.level
        && reached_level(reached) < Some(level)
    {
        let reached = reached.map_or_else(|| "nothing".to_owned(), printable);
        return refused(format!("verified only up to {reached}, but {level} is required"));
    }
    let Some(limit) = args.max_age else { return Ok(()) };
    match age(found) {
        None => refused("it is dated in the future: check the clocks".to_owned()),
        Some(age) if age > limit => {
            refused(format!("this evidence is {} old, the limit is {}", span(age), span(limit)))
        }
        Some(_) => Ok(()),
    }
}

/// Returns whether two texts name the same place. URLs are compared as places: `s3://b/shop/` is `s3://b/shop`, and
/// `file://localhost/a%20b` is `file:///a b`. Of others, only a slash at the end does not count.
fn are_same_place(found: &str, asked: &str) -> bool {
    match (Location::parse(found), Location::parse(asked)) {
        (Some(Ok(found)), Some(Ok(asked))) => found == asked,
        _ => found.trim_end_matches('/') == asked.trim_end_matches('/'),
    }
}

/// The level of this name.
fn reached_level(name: Option<&str>) -> Option<Level> {
    Level::ALL.into_iter().find(|level| Some(level.as_str()) == name)
}

/// Time since the end of the verification; `None` if that lies in the future by more than clocks differ.
fn age(found: &Evidence<ReadReport>) -> Option<Duration> {
    const SKEW: i64 = 3600;
    let seconds = Timestamp::now().as_second() - found.finished.as_second();
    (seconds >= -SKEW).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Shows what the evidence states, and no more.
fn shown(out: &mut impl std::io::Write, found: &Evidence<ReadReport>) -> std::io::Result<()> {
    let unknown = || "unknown".to_owned();
    let name = found.name.as_deref().map_or_else(unknown, printable);
    let root = found.root.as_deref().map_or_else(unknown, printable);
    writeln!(out, "{name} in {root}")?;
    let when = found.finished.strftime("%Y-%m-%d %H:%M:%S UTC");
    let old =
        age(found).map_or_else(|| "in the future".to_owned(), |age| format!("{} ago", span(age)));
    let asked = found.level.as_deref();
    writeln!(
        out,
        "verified up to {} (requested: {}) by {}, {when}, {old}",
        found.reached().map_or_else(|| "nothing".to_owned(), printable),
        asked.map_or_else(|| "what can be checked".to_owned(), printable),
        printable(&found.host)
    )?;
    let Some(report) = &found.verification else { return Ok(()) };
    writeln!(out, "authenticity: {}", printable(&report.authenticity))?;
    for link in &report.chain {
        let restored = if link.restored { "restored" } else { "not restored" };
        let (name, run) = (printable(&link.name), printable(&link.run));
        let signed = match &link.signer {
            None => "not signed".to_owned(),
            Some(signer) => {
                let is_trusted = found.trusted.contains(signer);
                let trusted = if is_trusted { "trusted" } else { "not checked" };
                format!("signed by {} ({trusted})", printable(signer))
            }
        };
        writeln!(
            out,
            "backup {name}: run {run}, manifest {}, {restored}, {signed}",
            printable(&link.manifest)
        )?;
    }
    for level in &report.levels {
        let mark = match (level.ok, level.checked) {
            (false, _) => "FAILED",
            (true, false) => "partial",
            (true, true) => "ok",
        };
        writeln!(out, "{:9} {mark:7} {}", printable(&level.level), printable(&level.what))?;
    }
    for remark in report.notes.iter().chain(&report.warnings) {
        writeln!(out, "note: {}", printable(remark))?;
    }
    Ok(())
}
