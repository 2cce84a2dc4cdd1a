//! `monitor`: checks the age of the newest backup and of the newest proof.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xb_backup::OrInterrupted as _;
use xb_cli::Failure;
use xb_repo::list::{Listing, list_found};
use xb_repo::names::CATALOG;
use xb_repo::roots::FoundRoot;

use crate::args::run::{LimitOptions, MonitorArgs};
use crate::cache;
use crate::commands::begun_anew::MissedText;
use crate::commands::context::Context;
use crate::commands::reporting::masked;
use crate::commands::unattended::findings::{
    self, ALL_IGNORED, JudgedBackups, all_are_ignored, by_server, newest_of,
};
use crate::job::{ArchiveFacts, BackupFacts, Remarks, Verdict, judge, monitor_json};
use crate::location::{root_identity, root_place};
use crate::report;

impl Context {
    pub(crate) fn monitor(&self, args: &mut MonitorArgs) -> Result<(), Failure> {
        answer_in_time(args);
        let args = &*args;
        let place = args.root.place.as_deref().filter(|place| !place.is_empty());
        let name = args.repository.as_deref().or(place).or(args.common.store.root.as_deref());
        let name = masked(name.unwrap_or("repository"));
        let name = name.as_str();
        let is_answered = Arc::new(AtomicBool::new(false));
        end_in_time(args, name, is_answered.clone());
        let missed = |listings: &[Listing]| {
            let identity = root_identity(args.root.place.as_deref(), &args.common);
            let ignored = &args.limits.ignore_server;
            let missed =
                |identity: String| self.missed_in(&identity, listings, ignored, &args.common.run);
            identity.map_or_else(|_| MissedText::default(), missed)
        };
        let gone = |failure: &Failure| {
            let is_gone = failure.exit() == xb_cli::Exit::NotFound;
            if is_gone { missed(&[]).begun_anew } else { None }
        };
        let listed = root_place(args.root.place.as_deref(), &args.common).and_then(|root| {
            let cache = cache::of_root(args.root.place.as_deref(), &args.common)?;
            self.with_progress("monitor", &args.common.run, None, |_, cancel| async move {
                // Two listings: the folders also show whether there are archives.
                let shown = FoundRoot {
                    catalogue: cancel.or(root.list_below(CATALOG)).await?,
                    folders: cancel.or(root.folders_below("")).await?,
                    ..FoundRoot::default()
                };
                let has_archives = shown.has_archives();
                let found = list_found(&root, cache.as_ref(), shown);
                let listings = cancel.or(found).await?.lines;
                let newest = |server: &str| newest_of(&listings, server);
                let archives = match has_archives {
                    true => cancel.or(xb_backup::archive_states(&root, newest)).await?,
                    false => Vec::new(),
                };
                Ok((listings, archives))
            })
        });
        let (mut found, mut archives) = (Vec::new(), Vec::new());
        let verdict = match &listed {
            // A wrong command line is no state of the repository.
            Err(failure) if failure.exit() == xb_cli::Exit::Usage => {
                if args.common.run.json {
                    print_usage(failure, name);
                }
                return listed.map(drop);
            }
            Err(failure) => match gone(failure) {
                Some(what) => Verdict::critical(&format!("{name}: {}; {what}", failure.line())),
                None => Verdict::unknown(&failure.line()),
            },
            Ok(((listings, states), _)) => {
                let LimitOptions { ignore_server, accept_left, proof_level, .. } = &args.limits;
                let server = args.server.as_ref();
                let asked = JudgedBackups {
                    server,
                    ignored: ignore_server,
                    accepted: accept_left,
                    level: *proof_level,
                };
                archives = findings::archives(states, listings, asked);
                match archives.is_empty() && all_are_ignored(listings, asked) {
                    true => Verdict::unknown(&format!("{name}: {ALL_IGNORED}")),
                    false => {
                        found = by_server(listings, asked);
                        if args.limits.expects_archive() {
                            archives.extend(findings::without_archive(&found, &archives));
                            if archives.is_empty() {
                                let server = server.cloned().unwrap_or_else(|| name.to_owned());
                                archives.push(ArchiveFacts { server, ..ArchiveFacts::default() });
                            }
                        }
                        let MissedText { begun_anew, set_back, .. } = missed(listings);
                        let missed = Remarks {
                            critical: begun_anew.into_iter().collect(),
                            warnings: set_back.into_iter().collect(),
                            ..Remarks::default()
                        };
                        judge(name, missed, &found, &archives, args.limits.limits())
                    }
                }
            }
        };
        // A verdict without its line is none for whoever reads both.
        let text = text(&verdict, args.common.run.json, name, &found, &archives);
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

/// Prints the verdict about a command line `words` that cannot be parsed, if they are those of `monitor --json`: who reads
/// standard output as JSON finds the cause there.
pub(crate) fn refused(words: &[OsString], failure: &Failure) {
    let command = words.iter().skip(1).find(|word| !word.as_bytes().starts_with(b"-"));
    let is_monitor = command.is_some_and(|word| word == "monitor");
    if is_monitor && words.iter().any(|word| word == "--json") {
        print_usage(failure, "repository");
    }
}

/// A wrong command line has the exit status of CRITICAL.
fn print_usage(failure: &Failure, repository: &str) {
    let verdict = Verdict::critical(&failure.line());
    is_printed(&text(&verdict, true, repository, &[], &[]));
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
    found: &[BackupFacts],
    archives: &[ArchiveFacts],
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
            is_printed(&text(&verdict, json, &repository, &[], &[]));
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
