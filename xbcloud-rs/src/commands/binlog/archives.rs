//! `binlog list` and `binlog verify`.

use std::io::Write as _;

use serde_json::json;
use xb_backup::{
    ArchiveFacts, ArchiveReport, BackupError, Keys, OrInterrupted as _, Session, StreamReport,
    list_archive, verify_archive,
};
use xb_cli::{Exit, Failure, format_count};
use xb_repo::archive::listing::servers;
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;

use crate::args::CommonOptions;
use crate::args::binlog::{ArchiveListArgs, ArchiveVerifyArgs};
use crate::commands::binlog::table::table;
use crate::commands::context::{Context, resources};
use crate::commands::state_dir::state_dir;
use crate::location::root_place;
use crate::report;

/// Version of the format of `--json`.
const FORMAT: u32 = 1;

impl Context {
    pub(super) fn list_archives(&self, args: &ArchiveListArgs) -> Result<(), Failure> {
        report::can_print()?;
        let root = root_place(args.root.place.as_deref(), &args.common)?;
        let server = args.server.clone();
        let list = |session: Session| async move {
            let (mut found, mut known) = (Vec::new(), KnownManifests::default());
            for server in named(&session.root, server).await? {
                let listing = list_archive(&session, &server, &mut known);
                found.push(session.cancel.or(listing).await?);
            }
            Ok(found)
        };
        let found = self.archives("list", root, &args.common, list)?;
        report::printed(print(&found, args.long, args.common.run.json))
    }

    pub(super) fn verify_archives(&self, args: &ArchiveVerifyArgs) -> Result<(), Failure> {
        let root = root_place(args.root.place.as_deref(), &args.common)?;
        let keys: Keys = crate::keys::keys(false, &args.identities, &args.keys, &self.log)?;
        let state = state_dir(&args.common.run);
        let (server, kept_within) = (args.server.clone(), args.keep_binlog_within);
        let verify = |session: Session| async move {
            let facts = ArchiveFacts { keys: &keys, state: state.as_deref(), kept_within };
            let (mut found, mut known) = (Vec::new(), KnownManifests::default());
            for server in named(&session.root, server).await? {
                let verifying = verify_archive(&session, &server, facts, &mut known);
                found.push(session.cancel.or(verifying).await?);
            }
            Ok(found)
        };
        let found = self.archives("verify", root, &args.common, verify)?;
        let printed = report::printed(print(&found, false, args.common.run.json));
        judged(&found)?;
        self.log.info(verified(&found));
        printed
    }

    fn archives<F, Fut>(
        &self,
        what: &str,
        root: Root,
        common: &CommonOptions,
        work: F,
    ) -> Result<Vec<ArchiveReport>, Failure>
    where
        F: FnOnce(Session) -> Fut,
        Fut: Future<Output = Result<Vec<ArchiveReport>, BackupError>>,
    {
        let run = &common.run;
        let (found, _) = self.with_session(what, run, root, resources(run), work)?;
        if found.is_empty() {
            return Err(Failure::new("no archive of a binary log was found")
                .stage("list")
                .ending(Exit::NotFound)
                .hint("start one with `binlog receive`, or archive the server's own log files with `binlog push --new-archive`; check ROOT and --server"));
        }
        Ok(found)
    }
}

/// The servers to look at, without those that have no archive.
async fn named(root: &Root, wanted: Option<String>) -> Result<Vec<String>, BackupError> {
    let mut all = servers(root).await?;
    all.retain(|server| wanted.as_ref().is_none_or(|wanted| wanted == server));
    Ok(all)
}

fn print(found: &[ArchiveReport], long: bool, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match json {
        true => {
            serde_json::to_writer_pretty(&mut out, &json!({ "format": FORMAT, "servers": found }))?;
            writeln!(out)
        }
        false => out.write_all(table(found, long, jiff::Timestamp::now()).as_bytes()),
    }
}

/// Says what was found to be whole.
fn verified(found: &[ArchiveReport]) -> String {
    let streams = || found.iter().flat_map(|report| &report.streams);
    let sum = |of: fn(&StreamReport) -> u64| streams().map(of).sum::<u64>();
    format!(
        "verified: {} in {} of {}, checked event by event; nothing is missing, damaged or altered",
        format_count(sum(|stream| stream.transactions), "transaction"),
        format_count(sum(|stream| stream.segments), "segment"),
        format_count(streams().count() as u64, "stream"),
    )
}

/// Failure to report for these archives, if any.
fn judged(found: &[ArchiveReport]) -> Result<(), Failure> {
    let damaged = |report: &&ArchiveReport| !report.is_undamaged();
    if let Some(report) = found.iter().find(damaged) {
        let of_streams = report.streams.iter().map(|stream| stream.problems.len()).sum::<usize>();
        let problems = format_count((of_streams + report.problems.len()) as u64, "problem");
        return Err(Failure::new(format!("the archive of {}: {problems}", report.server))
            .stage("check")
            .ending(Exit::Damaged)
            .hint(
                "take a backup now: older ones cannot be restored to any moment after the damage",
            ));
    }
    if let Some(report) = found.iter().find(|report| report.has_gap()) {
        return Err(Failure::new(format!("the archive of {} has a gap", report.server))
            .stage("check")
            .ending(Exit::Damaged)
            .hint("if no backup is newer than the gap, take one now; moments in the gap cannot be restored"));
    }
    if let Some(unreadable) = found.iter().find_map(|report| report.unreadable.first()) {
        return Err(Failure::new(format!(
            "it is unknown whether every backup can be replayed to the end of the archive: a manifest cannot be read: {unreadable}"
        ))
        .stage("check")
        .ending(Exit::Damaged)
        .hint("run `verify` on this backup, which reports whether it is damaged"));
    }
    let mut streams = found.iter().flat_map(|report| &report.streams);
    if let Some(locked) = streams.find(|stream| stream.is_locked) {
        let what = locked.problems.first().map(String::as_str).unwrap_or_default();
        return Err(Failure::new(format!("stream {} was not read: {what}", locked.stream))
            .stage("check")
            .ending(Exit::NotPermitted)
            .hint("all else is whole; give the keys of all streams: an identity file may hold several identities"));
    }
    Ok(())
}
