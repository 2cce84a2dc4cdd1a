//! `fleet`: one view of all repositories below a place.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use tokio::runtime::Handle;
use xb_backup::{BackupError, OrInterrupted as _};
use xb_cli::{Exit, Failure, host_name, output_columns};
use xb_repo::list::{BackupKind, ListedRoot, Listing, list_found};
use xb_repo::list_cache::ListCache;
use xb_repo::names::BackupName;
use xb_repo::restorable::links;
use xb_repo::root::{Root, identity};
use xb_repo::roots::{FoundRoot, FoundRoots, MAX_SILENT, SearchLimits, roots};
use xb_repo::verification::Level;
use xb_uploader::{Location, StorePlace, StoreSettings};

use crate::args::RunOptions;
use crate::args::fleet::FleetArgs;
use crate::cache;
use crate::commands::context::{Context, TOOL, parallel};
use crate::commands::metrics_file::{check_metrics_file, earlier_metrics, replace};
use crate::commands::unattended::findings::{
    ALL_IGNORED, JudgedBackups, all_are_ignored, archives, by_server, is_backup, newest_of,
};
use crate::commands::whole_files::{unwritable, write};
use crate::fleet::{
    Fleet, FleetRow, NewestBackup, TableOptions, holds_others, json, metrics_beside, summary, table,
};
use crate::job::{ArchiveFacts, BackupFacts, Limits, Remarks, Verdict, judge};
use crate::location::{locate, root_place, url};
use crate::page::fleet_page;
use crate::report;
use crate::settings::settings;

/// Retries of a request, unless the command line asks for more: a table that comes late is of no use.
const RETRIES: u32 = 3;
/// Seconds of retries, likewise.
const RETRY_TIMEOUT: u64 = 10;
/// Longest pause between them, in milliseconds.
const BACKOFF: u64 = 2000;

impl Context {
    pub(crate) fn fleet(&self, args: &mut FleetArgs) -> Result<(), Failure> {
        report::can_print()?;
        if let Some(file) = &args.metrics_file {
            check_own_metrics(file)?;
        }
        if let Some(file) = &args.html {
            xb_cli::check_writable(file).map_err(|error| unwritable(file, error))?;
        }
        hurry(&mut args.common.run, args.answer_within);
        let args = &*args;
        let began = Timestamp::now();
        let location = locate(args.place.as_deref().unwrap_or_default(), &args.common.store)?;
        let place = url(&location);
        let looked = self.look(args, location);
        let mut fleet = match looked {
            Err(failure) if matches!(failure.exit(), Exit::Usage | Exit::Interrupted(_)) => {
                return Err(failure);
            }
            // A page and metrics of yesterday must not look like those of today.
            Err(failure) => Fleet {
                place: place.clone(),
                began,
                ended: Timestamp::now(),
                lines: vec![unknown("", place, &described(&failure))],
                repositories: 0,
                searched: 0,
                depth: args.depth,
                too_deep: Vec::new(),
                too_many: Vec::new(),
                requests: 0,
            },
            Ok(fleet) => fleet,
        };
        fleet.sort();
        let wrote = self.write(args, &fleet);
        let (code, _) = fleet.worst();
        match wrote {
            Ok(()) if code == 0 => Ok(()),
            Ok(()) => Err(Failure::verdict("", code)),
            Err(failure) => {
                self.log.warn(failure.line());
                Err(Failure::verdict("", Verdict::unknown("").code))
            }
        }
    }

    fn look(&self, args: &FleetArgs, location: Location) -> Result<Fleet, Failure> {
        let settings = settings(&location.place, &args.common.store, &args.common.run)?;
        answers(&location, args.answer_within)?;
        let place = root_place(args.place.as_deref(), &args.common)?;
        let limits = &args.limits;
        let looking = JudgeContext {
            place,
            url: url(&location),
            location,
            settings,
            limits: limits.limits(),
            ignored: limits.ignore_server.clone(),
            accepted: limits.accept_left.clone(),
            level: limits.proof_level,
            long: args.long,
            no_cache: args.no_cache,
            within: args.answer_within,
        };
        let (looking, at_once) = (Arc::new(looking), parallel(&args.common.run).max(1));
        let reach = SearchLimits {
            depth: args.depth,
            folders: args.max_folders,
            within: args.answer_within,
        };
        let expected = args.expect.clone();
        let (fleet, _) =
            self.with_progress("fleet", &args.common.run, None, |_, cancel| async move {
                cancel.or(all(&looking, reach, at_once, &expected)).await
            })?;
        Ok(fleet)
    }

    /// Writes the files and prints the table: each of them, whatever becomes of the others.
    fn write(&self, args: &FleetArgs, fleet: &Fleet) -> Result<(), Failure> {
        let page = args.html.as_ref().map_or(Ok(()), |file| {
            let host = host_name().unwrap_or_default();
            write(file, &fleet_page(fleet, TOOL, &host))
        });
        let measured = args.metrics_file.as_ref().map_or(Ok(()), |file| {
            replace(file, |old| metrics_beside(fleet, TOOL, old.unwrap_or_default()))
        });
        let printed = print(args, fleet);
        let mut failures = [page, measured, printed].into_iter().filter_map(Result::err);
        let first = failures.next();
        failures.for_each(|more| self.log.warn(more.line()));
        first.map_or(Ok(()), Err)
    }
}

/// Prints the table, or the JSON document.
fn print(args: &FleetArgs, fleet: &Fleet) -> Result<(), Failure> {
    let run = &args.common.run;
    let shown =
        TableOptions { columns: output_columns(), long: args.long, only_problems: run.quiet };
    let text = match run.json {
        true => format!("{:#}\n", json(fleet)),
        false => table(fleet, shown),
    };
    let mut out = std::io::stdout().lock();
    let mut printed = out.write_all(text.as_bytes());
    let is_silent = run.quiet && text.is_empty();
    if !run.json && !is_silent {
        printed = printed.and_then(|()| writeln!(out, "{}", summary(fleet)));
    }
    report::printed(printed.and_then(|()| out.flush()))
}

/// Has a store that fails named soon.
fn hurry(run: &mut RunOptions, within: Duration) {
    run.timeout = match run.timeout {
        0 => within.as_secs(),
        stall => stall.min(within.as_secs()),
    };
    run.max_retries.get_or_insert(RETRIES);
    run.retry_timeout.get_or_insert(RETRY_TIMEOUT);
    run.reach_timeout = run.reach_timeout.min(RETRY_TIMEOUT);
    run.max_backoff = run.max_backoff.min(BACKOFF);
}

/// Refuses a file that another command writes: its metrics would be lost.
fn check_own_metrics(file: &Path) -> Result<(), Failure> {
    check_metrics_file(file)?;
    match earlier_metrics(file)? {
        Some(old) if holds_others(&old) => Err(Failure::usage(format!(
            "{} holds the metrics of another command, which would be lost",
            file.display()
        ))
        .hint("give fleet a file of its own with --metrics-file")),
        _ => Ok(()),
    }
}

/// The cause and the next step, as one text.
fn described(failure: &Failure) -> String {
    match failure.hint_text() {
        Some(hint) => format!("{}; {hint}", failure.line()),
        None => failure.line(),
    }
}

/// The place `path` below another.
fn joined(outer: &str, path: &str) -> String {
    match (outer.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (_, true) => outer.to_owned(),
        _ => format!("{}/{path}", outer.trim_end_matches('/')),
    }
}

/// Context in which repositories are judged.
struct JudgeContext {
    place: Root,
    location: Location,
    url: String,
    settings: StoreSettings,
    limits: Limits,
    ignored: Vec<String>,
    accepted: Vec<String>,
    level: Level,
    long: bool,
    no_cache: bool,
    within: Duration,
}

/// Finds and judges everything. A repository that cannot be judged is a line.
async fn all(
    looking: &Arc<JudgeContext>,
    reach: SearchLimits,
    at_once: usize,
    expected: &[String],
) -> Result<Fleet, BackupError> {
    let began = Timestamp::now();
    let FoundRoots { roots: found, unread, searched, too_deep, too_many, silent, untried } =
        roots(&looking.place, reach).await?;
    let silent_ones = AtomicUsize::new(silent.len());
    let unread = unread.into_iter().map(|(path, error)| {
        let why = described(&report::failure(error.into()));
        unknown(&path, joined(&looking.url, &path), &why)
    });
    let silent = silent.iter().map(|path| {
        let place = joined(&looking.url, path);
        let why = silence("`xbcloud-rs list`", looking.within);
        unknown(path, place, &why)
    });
    let untried = untried.iter().map(|(path, number)| {
        let why =
            format!("{number} folders in it were not searched: {}", too_silent(looking.within));
        unknown(path, joined(&looking.url, path), &why)
    });
    let mut lines: Vec<FleetRow> = unread.chain(silent).chain(untried).collect();
    let repositories = found.len() as u64;
    let skipped = Skipped { below: reach.depth, too_many: &too_many };
    lines.extend(missing(looking, &found, &lines, skipped, expected));
    if found.is_empty() && lines.is_empty() {
        let option = if too_many.is_empty() { "--depth" } else { "--max-folders" };
        let text = format!(
            "there is no repository: no folder .xb-catalog in {}, nor in the folders down to {} below it ({} searched); check the place, or raise {option}",
            looking.url,
            reach.depth,
            searched - 1,
        );
        lines.push(critical("", looking.url.clone(), &text));
    }
    let judged: Vec<Vec<FleetRow>> = stream::iter(found)
        .map(|root| judge_in_time(looking, root, &silent_ones))
        .buffer_unordered(at_once)
        .collect()
        .await;
    lines.extend(judged.into_iter().flatten());
    if lines.is_empty() {
        lines.push(unknown("", looking.url.clone(), ALL_IGNORED));
    }
    Ok(Fleet {
        place: looking.url.clone(),
        began,
        ended: Timestamp::now(),
        lines,
        repositories,
        searched,
        depth: reach.depth,
        too_deep,
        too_many,
        requests: looking.place.store().traffic().requests(),
    })
}

fn unknown(path: &str, root: String, why: &str) -> FleetRow {
    bare(path, root, Verdict::unknown(why))
}

fn critical(path: &str, root: String, why: &str) -> FleetRow {
    bare(path, root, Verdict::critical(why))
}

fn bare(path: &str, root: String, verdict: Verdict) -> FleetRow {
    let path = path.to_owned();
    FleetRow { path, root, verdict, found: None, stored_bytes: 0, newest: None, archive: None }
}

/// Places in which no repository was looked for.
#[derive(Clone, Copy)]
struct Skipped<'a> {
    /// Deeper than this below the place.
    below: u32,
    /// In folders with more folders than may be looked into: their paths, and how many they hold.
    too_many: &'a [(String, u64)],
}

impl Skipped<'_> {
    /// Returns why a path was not searched; `None` if it was.
    fn why(&self, path: &str) -> Option<String> {
        let mut outer = self.too_many.iter();
        if let Some((parent, number)) =
            outer.find(|(parent, _)| parent != path && is_within(path, parent))
        {
            let parent = if parent.is_empty() { "the place" } else { parent };
            return Some(format!("{parent} holds {number} folders; raise --max-folders"));
        }
        let depth = path.split('/').count();
        (depth > self.below as usize).then(|| {
            format!(
                "it is {depth} folders below the place, and --depth is {}: raise that",
                self.below
            )
        })
    }
}

/// A line for each repository that has to be there, and neither is nor could be looked for.
fn missing(
    looking: &JudgeContext,
    found: &[FoundRoot],
    unread: &[FleetRow],
    skipped: Skipped<'_>,
    expected: &[String],
) -> Vec<FleetRow> {
    let there: BTreeSet<&str> = found.iter().map(|root| root.path.as_str()).collect();
    let wanted: BTreeSet<&str> = expected.iter().map(|path| path.trim_matches('/')).collect();
    let missing = wanted
        .difference(&there)
        .filter(|path| !unread.iter().any(|line| is_within(path, &line.path)));
    let line = |path: &&str| -> FleetRow {
        let place = joined(&looking.url, path);
        match skipped.why(path) {
            None => critical(path, place, "there is no repository here, but --expect names it"),
            Some(why) => unknown(path, place, &format!("not looked for, because {why}")),
        }
    };
    missing.map(line).collect()
}

/// Returns whether `path` is the folder `outer`, or lies in it.
fn is_within(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    outer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Checks that a local place answers before anything else waits for it.
fn answers(location: &Location, within: Duration) -> Result<(), Failure> {
    if location.place != StorePlace::Local {
        return Ok(());
    }
    let folder = Path::new("/").join(&location.path);
    let listed = format!("`ls {}`", folder.display());
    let (answer, answered) = mpsc::channel();
    // If it never ends, it ends with the process. What the folder answers is the matter of others.
    std::thread::spawn(move || answer.send(std::fs::read_dir(folder).is_ok()));
    match answered.recv_timeout(within) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::new(silence(&listed, within)).stage("list")),
    }
}

/// The message about a place that has not answered in time. `command` waits for the same place.
fn silence(command: &str, within: Duration) -> String {
    format!(
        "not read within {} s; run {command} to see what it waits for, or raise --answer-within",
        within.as_secs()
    )
}

/// Reason why the wait ends.
fn too_silent(within: Duration) -> String {
    format!(
        "{MAX_SILENT} others were not read within {} s, and `fleet` waits for no more; fix those first",
        within.as_secs()
    )
}

/// Judges one repository, not in the runtime's own threads: a mount that hangs blocks the thread that reads it, and no
/// other repository. `silent` counts those.
async fn judge_in_time(
    looking: &Arc<JudgeContext>,
    found: FoundRoot,
    silent: &AtomicUsize,
) -> Vec<FleetRow> {
    let path = found.path.clone();
    let place = joined(&looking.url, &path);
    if silent.load(Ordering::Relaxed) >= MAX_SILENT {
        return vec![unknown(&path, place, &format!("not read: {}", too_silent(looking.within)))];
    }
    let (shared, runtime) = (Arc::clone(looking), Handle::current());
    let judging = tokio::task::spawn_blocking(move || runtime.block_on(judge_root(&shared, found)));
    let why = match tokio::time::timeout(looking.within, judging).await {
        Ok(Ok(lines)) => return lines,
        Ok(Err(_)) => {
            described(&report::failure(BackupError::Bug("reading a repository panicked")))
        }
        Err(_) => {
            silent.fetch_add(1, Ordering::Relaxed);
            silence("`xbcloud-rs list`", looking.within)
        }
    };
    vec![unknown(&path, place, &why)]
}

/// Judges one repository, server by server.
async fn judge_root(looking: &JudgeContext, found: FoundRoot) -> Vec<FleetRow> {
    let path = found.path.clone();
    let location = Location {
        place: looking.location.place.clone(),
        path: joined(&looking.location.path, &path),
    };
    let name = identity(&location, &looking.settings);
    let cache = match looking.no_cache {
        true => None,
        false => cache::of_identity(&location, &name),
    };
    let root = looking.place.below(&path, name);
    let place = joined(&looking.url, &path);
    let judged = lines_of(looking, &root, cache.as_ref(), &path, &place, found);
    match judged.await {
        Ok(lines) => lines,
        Err(error) => vec![unknown(&path, place, &described(&report::failure(error)))],
    }
}

async fn lines_of(
    looking: &JudgeContext,
    root: &Root,
    cache: Option<&ListCache>,
    path: &str,
    place: &str,
    shown: FoundRoot,
) -> Result<Vec<FleetRow>, BackupError> {
    let has_archives = shown.has_archives();
    let listed = list_found(root, cache, shown).await?;
    let states = match has_archives {
        true => xb_backup::archive_states(root, |of| newest_of(&listed.lines, of)).await?,
        false => Vec::new(),
    };
    let asked = JudgedBackups {
        server: None,
        ignored: &looking.ignored,
        accepted: &looking.accepted,
        level: looking.level,
    };
    let servers = match all_are_ignored(&listed.lines, asked) {
        true => Vec::new(),
        false => by_server(&listed.lines, asked),
    };
    let mut archives = archives(&states, &listed.lines, asked);
    let mut lines = Vec::new();
    let is_one_of_any = servers.len() == 1 && archives.len() == 1 && servers[0].server.is_none();
    for found in servers {
        let own = archives
            .iter()
            .position(|archive| is_one_of_any || found.server.as_ref() == Some(&archive.server));
        let archive = own.map(|at| archives.swap_remove(at));
        let mut line = judged(looking, &listed.lines, path, place, found, archive);
        if let Some((name, _)) = line.found.as_ref().and_then(|found| found.newest.as_ref()) {
            line.newest = newest(looking, root, &listed, &name.clone()).await?;
        }
        lines.push(line);
    }
    // Logs without a backup that they could be replayed onto.
    for archive in archives {
        let found = BackupFacts { server: Some(archive.server.clone()), ..BackupFacts::default() };
        lines.push(judged(looking, &listed.lines, path, place, found, Some(archive)));
    }
    Ok(lines)
}

fn judged(
    looking: &JudgeContext,
    listings: &[Listing],
    path: &str,
    place: &str,
    found: BackupFacts,
    archive: Option<ArchiveFacts>,
) -> FleetRow {
    let one = std::slice::from_ref(&found);
    let verdict = judge(place, Remarks::default(), one, archive.as_slice(), looking.limits);
    let own = listings.iter().filter(|line| is_backup(line) && line.server == found.server);
    let bytes = own.filter_map(|line| line.stored_bytes);
    FleetRow {
        path: path.to_owned(),
        root: place.to_owned(),
        verdict,
        stored_bytes: bytes.fold(0, u64::saturating_add),
        newest: None,
        archive,
        found: Some(found),
    }
}

/// Facts about the newest backup of a server that can be restored, and about its chain.
async fn newest(
    looking: &JudgeContext,
    root: &Root,
    listed: &ListedRoot,
    name: &str,
) -> Result<Option<NewestBackup>, BackupError> {
    let of = |name: &str| listed.lines.iter().find(|line| line.name == name);
    let Some(line) = of(name) else { return Ok(None) };
    let Some(finished) = line.finished else { return Ok(None) };
    let own = BackupName::new(name)?;
    // One whose base is elsewhere, which the operator has accepted, has no chain here.
    let chain: Vec<BackupName> = links(&listed.sound, &own)
        .map(|links| links.into_iter().rev().cloned().collect())
        .unwrap_or_else(|_| vec![own.clone()]);
    let mut lines: Vec<Listing> =
        chain.iter().filter_map(|name| of(name.as_str())).cloned().collect();
    let mut lock = None;
    if looking.long {
        xb_backup::show_slots(root, &mut lines).await?;
        lock = Some(xb_backup::chain_lock(root, &chain).await?);
    }
    let mut keys = line.key_slots.clone();
    if let Some(first) = lines.first() {
        keys.clone_from(&first.key_slots);
        keys.retain(|key| lines.iter().all(|line| line.key_slots.contains(key)));
    }
    let verified = line.verified.and_then(|proof| proof.level.zip(proof.at));
    Ok(Some(NewestBackup {
        name: name.to_owned(),
        finished,
        kind: line.kind,
        chain: chain.iter().map(ToString::to_string).collect(),
        stored_bytes: line.stored_bytes,
        stream_bytes: line.stream_bytes,
        objects: line.objects,
        files: line.files,
        tables: line.tables,
        encrypted: line.encrypted,
        is_shrunk: line.in_doubt,
        verified,
        trend: trend(&listed.lines, line.server.as_ref()),
        keys,
        lock,
    }))
}

/// Bytes of the newest full backup of a server, and what is usual.
fn trend(listings: &[Listing], server: Option<&String>) -> Option<(u64, u64)> {
    let full = listings.iter().filter(|line| {
        is_backup(line)
            && line.server.as_ref() == server
            && line.kind != Some(BackupKind::Incremental)
    });
    let newest = full.max_by_key(|line| (!line.is_partial, line.finished, &line.name))?;
    newest.stream_bytes.zip(newest.usual_bytes)
}
