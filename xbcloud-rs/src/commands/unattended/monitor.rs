//! `monitor`: checks the age of the newest backup and of the newest proof.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use xb_backup::ArchiveState;
use xb_cli::Failure;
use xb_repo::list::{Listing, State};
use xb_repo::names::BackupName;
use xb_repo::verification::Level;

use crate::args::run::MonitorArgs;
use crate::cache;
use crate::commands::context::Context;
use crate::job::{ArchiveLimits, Found, FoundArchive, Limits, Verdict, judge, monitor_json};
use crate::location::root_place;
use crate::report;

impl Context {
    pub(crate) fn monitor(&self, args: &mut MonitorArgs) -> Result<(), Failure> {
        answer_in_time(args);
        let args = &*args;
        let place = args.place.as_deref().filter(|place| !place.is_empty());
        let name = args.repository.as_deref().or(place).or(args.common.store.root.as_deref());
        let name = name.unwrap_or("repository");
        let is_answered = Arc::new(AtomicBool::new(false));
        end_in_time(args, name, is_answered.clone());
        let listed = root_place(args.place.as_deref(), &args.common).and_then(|root| {
            let cache = cache::of_root(args.place.as_deref(), &args.common)?;
            self.with_progress("monitor", &args.common.run, None, |_, cancel| async move {
                let listings = cancel.or(xb_repo::list::list_with(&root, cache.as_ref())).await?;
                let newest = |server: &str| newest_of(&listings, server);
                let archives = cancel.or(xb_backup::archive_states(&root, newest)).await?;
                Ok((listings, archives))
            })
        });
        let (mut found, mut archives) = (Vec::new(), Vec::new());
        let verdict = match &listed {
            // A wrong command line is no state of the repository.
            Err(failure) if failure.exit() == xb_cli::Exit::Usage => return listed.map(drop),
            Err(failure) => Verdict::unknown(&failure.line()),
            Ok(((listings, states), _)) => {
                let limits = Limits {
                    age: args.max_age,
                    proof_age: args.max_proof_age,
                    archive: ArchiveLimits {
                        age: Some(args.max_binlog_age),
                        proof_age: args.max_binlog_proof_age,
                    },
                };
                found = by_server(listings, args);
                archives = states
                    .iter()
                    .filter(|archive| is_wanted(args, Some(&archive.server)))
                    .map(|archive| found_archive(archive, listings, Timestamp::now()))
                    .collect();
                judge(name, &found, &archives, limits)
            }
        };
        // A verdict without its line is none for whoever reads both.
        let text = text(&verdict, args.common.run.json, name, (&found, &archives));
        if is_answered.swap(true, Ordering::SeqCst) {
            // The other thread ends the process.
            std::thread::park();
        }
        let code = match report::can_print().is_ok() && is_printed(&text) {
            true => verdict.code,
            false => Verdict::unknown("").code,
        };
        Err(Failure::verdict("", code))
    }
}

/// Has a store that refuses or is away named as the cause before the limit, instead of tries until then.
fn answer_in_time(args: &mut MonitorArgs) {
    let half = (args.answer_within.as_secs() / 2).max(1);
    let run = &mut args.common.run;
    run.reach_timeout = run.reach_timeout.min(half);
    run.retry_timeout = Some(run.retry_timeout.map_or(half, |limit| limit.min(half)));
    run.max_retries = Some(run.max_retries.map_or(RETRIES, |retries| retries.min(RETRIES)));
    run.max_backoff = run.max_backoff.min(BACKOFF);
}

fn text(
    verdict: &Verdict,
    json: bool,
    repository: &str,
    (found, archives): (&[Found], &[FoundArchive]),
) -> String {
    match json {
        true => format!("{:#}\n", monitor_json(repository, verdict, found, archives)),
        false => verdict.line.clone(),
    }
}

/// Ends the process with UNKNOWN after `--answer-within`, whatever it waits for then: a mount that hangs, a name
/// server, a store.
fn end_in_time(args: &MonitorArgs, repository: &str, is_answered: Arc<AtomicBool>) {
    let (limit, json) = (args.answer_within, args.common.run.json);
    let repository = repository.to_owned();
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        if !is_answered.swap(true, Ordering::SeqCst) {
            let verdict = Verdict::unknown(&format!(
                "{repository}: the store has not answered within {} s; run `xbcloud-rs list` to see what it waits for, or raise --answer-within",
                limit.as_secs()
            ));
            is_printed(&text(&verdict, json, &repository, (&[], &[])));
            std::process::exit(verdict.code.into());
        }
    });
}

fn is_printed(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Retries of a request at most, and the longest pause between them in milliseconds.
const RETRIES: u32 = 3;
const BACKOFF: u64 = 1000;

/// Maximum difference between clocks.
const SKEW: i64 = 3600;

/// The findings about each server that is asked for.
fn by_server(listings: &[Listing], args: &MonitorArgs) -> Vec<Found> {
    let wanted = |server: &Option<String>| is_wanted(args, server.as_ref());
    let complete = listings.iter().filter(|line| is_backup(line));
    let servers: BTreeSet<&Option<String>> =
        complete.map(|line| &line.server).filter(|server| wanted(server)).collect();
    let level = args.proof_level;
    match servers.is_empty() {
        // There may be damage all the same.
        true => vec![found(listings, &args.server, level)],
        false => servers.into_iter().map(|server| found(listings, server, level)).collect(),
    }
}

fn is_wanted(args: &MonitorArgs, server: Option<&String>) -> bool {
    match (&args.server, server) {
        (Some(wanted), server) => server == Some(wanted),
        (None, Some(server)) => !args.ignore_server.contains(server),
        (None, None) => true,
    }
}

/// The findings about an archive of a binary log.
fn found_archive(archive: &ArchiveState, listings: &[Listing], now: Timestamp) -> FoundArchive {
    let age = |at: Timestamp| {
        Duration::from_secs(u64::try_from(now.as_second() - at.as_second()).unwrap_or_default())
    };
    let own = |line: &&Listing| {
        is_backup(line) && line.server.as_ref().is_none_or(|server| *server == archive.server)
    };
    let newest = listings.iter().filter(own).filter_map(|line| line.finished).max();
    let gap = archive.gaps.iter().rev().find(|(at, _)| newest.is_none_or(|newest| newest < *at));
    let restorable = listings.iter().filter(own).filter(|line| line.restorable);
    let proven = restorable.filter_map(|line| line.verified?.proven_until);
    FoundArchive {
        server: archive.server.clone(),
        behind: archive.stored_until.map(age),
        silent: archive.alive.map(age),
        gap: gap.map(|(_, reason)| reason.clone()),
        uncovered: archive.uncovered.clone(),
        proven: proven.max().map(age),
    }
}

/// The newest backup of a server that can be restored.
fn newest_of(listings: &[Listing], server: &str) -> Option<BackupName> {
    let own = listings.iter().filter(|line| {
        is_backup(line) && line.restorable && line.server.as_deref().is_none_or(|of| of == server)
    });
    let (_, name) = own.filter_map(|line| Some((line.finished?, &line.name))).max()?;
    BackupName::new(name).ok()
}

/// A complete backup. What was stored with `--raw` is none of a server.
fn is_backup(line: &Listing) -> bool {
    line.state == State::Complete && !line.raw
}

fn found(listings: &[Listing], server: &Option<String>, level: Level) -> Found {
    // A time in the future would look young for as long as it takes.
    let is_future = |age: Option<i64>| age.is_some_and(|seconds| seconds < -SKEW);
    let seconds = |age: Option<i64>| {
        let seconds = age.filter(|_| !is_future(age))?;
        Some(Duration::from_secs(u64::try_from(seconds.max(0)).unwrap_or_default()))
    };
    let future =
        |line: &&Listing| is_future(line.age_seconds) || is_future(line.verified_age_seconds);
    let complete = || listings.iter().filter(|line| is_backup(line) && line.server == *server);
    // A manifest that cannot be read names no server, so it may be of each.
    let nameless = || listings.iter().filter(|line| line.state == State::Damaged);
    let failed = |line: &&Listing| line.verified.is_some_and(|proof| proof.failed.is_some());
    // Only what can be restored now counts as a backup, or an accepted increment whose base is elsewhere.
    let meant = || complete().filter(|line| line.restorable || line.is_accepted_without_base());
    let aged = meant().filter_map(|line| Some((line, seconds(line.age_seconds)?)));
    // A later try that failed at the requested level, or below it, leaves the proof in doubt.
    let doubted = |line: &Listing| line.failed_try.as_ref().is_some_and(|t| t.level <= level);
    let proves = |line: &&Listing| line.is_verified(level) && !doubted(line);
    let proven = meant().filter(proves).filter_map(|line| {
        // A new proof of an old backup makes it no younger.
        let age = seconds(line.verified_age_seconds)?.max(seconds(line.age_seconds)?);
        Some((line, age))
    });
    let last = complete().filter(|line| !is_future(line.age_seconds));
    let last = last.filter_map(|line| Some((line.finished?.as_second(), &line.name)));
    let last = last.chain(nameless().map(|line| (line.written, &line.name))).max();
    let unproven = complete().filter_map(|line| Some((line.name.clone(), line.open_question()?)));
    let broken = complete().filter(|line| !line.is_accepted_without_base());
    let broken = broken.filter_map(|line| Some((line.name.clone(), line.broken.clone()?)));
    let damaged = complete().filter(failed).chain(nameless());
    Found {
        server: server.clone(),
        last: last.map(|(_, name)| name.clone()),
        broken: broken.collect(),
        newest: aged.min_by_key(|(_, age)| *age).map(|(line, age)| (line.name.clone(), age)),
        proven: proven.min_by_key(|(_, age)| *age).map(|(line, age)| {
            let level = line.verified.and_then(|proof| proof.level);
            let level = level.map_or(String::new(), |level| level.to_string());
            (line.name.clone(), level, age)
        }),
        damaged: damaged.map(|line| line.name.clone()).collect(),
        unproven: unproven.collect(),
        shrunk: complete()
            .filter(|line| line.in_doubt)
            .filter_map(|line| Some((line.name.clone(), line.shrunk.clone()?)))
            .collect(),
        // It may say of itself that it is of any server.
        untrusted: listings.iter().filter(|l| l.untrusted).map(|l| l.name.clone()).collect(),
        future: complete().filter(future).map(|line| line.name.clone()).collect(),
        backups: complete().count(),
    }
}
