//! Reports for users and programs at the end of a run.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use xb_backup::{
    ArchiveCopy, BackupError, CloneReport, CopyReport, DeletionPlan, GcFindings, GetReport,
    PutReport, RestoreChainReport, Resumed,
};
use xb_cli::{
    Failure, FailureContext as _, Log, ProgressEnd, format_count, format_duration, format_rate,
    format_size, printable,
};
use xb_repo::consolidated::{UNKNOWN_IMPORTS, UNKNOWN_IMPORTS_OF_BASE};
use xb_repo::list::{BackupKind, Listing, State};
use xb_repo::manifest::{End, Manifest};
use xb_repo::records::{OperatorWord, Proof};
use xb_uploader::Lock;

use crate::args::RestoreArgs;
use crate::exit::exit;

/// Turns an error of the library into the one error of this run.
pub(crate) fn failure(error: BackupError) -> Failure {
    if let BackupError::Interrupted(signal) = error {
        return Failure::interrupted(signal);
    }
    let failure = Failure::new(error.to_string()).stage(error.stage()).ending(exit(&error));
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

pub(crate) fn put_done(log: &Log, report: &PutReport, end: &ProgressEnd, stock: bool) {
    let manifest = &report.manifest;
    let short = manifest.classic.as_ref().map(|classic| classic.short_objects);
    log.event("done", &serde_json::json!({
        "name": manifest.name, "layout": manifest.layout, "files": manifest.files, "stream_bytes": manifest.stream_bytes,
        "stored_bytes": manifest.stored_bytes, "objects": manifest.objects, "without_tablespace": manifest.without_tablespace, "without_files": manifest.without_files, "mysql_clone": manifest.mysql_clone, "encrypted": manifest.is_encrypted(), "short_objects": short, "requests": report.requests, "retries": report.retries,
        "protection": report.protection, "seconds": end.elapsed.as_secs_f64(), "peak_memory": peak_memory(),
    }));
    if let Some(short) = short.filter(|short| *short > 0) {
        log.warn(format!(
            "{short} of {} objects are shorter than --chunk-size: too many files were open at the same time for --memory; raise --memory, or let the producer copy fewer files in parallel",
            manifest.objects
        ));
    }
    log.verbose(format!("protection in transit: {}", report.protection));
    let content = match manifest.end {
        End::Raw => "raw bytes".to_owned(),
        End::NativeTrailer => "a native stream".to_owned(),
        _ => format_count(manifest.files, "file"),
    };
    log.info(format!(
        "{}: complete. {content}, {} in {}, {}{}",
        manifest.name,
        format_size(manifest.stored_bytes),
        objects(manifest.objects),
        pace(manifest.stream_bytes, end),
        extras(report.requests, report.retries),
    ));
    if manifest.source.is_partial {
        log.info(format!("note: {} is partial: {PARTIAL}", manifest.name));
    }
    if let Some(empty) = manifest.mysql_clone.as_ref().and_then(|clone| clone.empty_tables.as_ref())
    {
        log.warn(format!(
            "tables without rows, because a clone holds only those of InnoDB: {empty}"
        ));
    }
    if let Some(lone) = &manifest.without_tablespace {
        log.info(format!(
            "note: InnoDB has no .ibd file in the stream for {lone}, or not for each partition. Such a table is in the system tablespace, was discarded, or was lost by the producer: `verify --level=restore` decides"
        ));
    }
    if let Some(compression) = &report.compression {
        log.info(format!("compress=auto: {compression}"));
    }
    if stock {
        // Scripts for the stock tool look for this line.
        log.info("Upload completed.");
    } else if !manifest.is_encrypted() {
        log.info(unencrypted(&format!("{} is", manifest.name)));
    }
}

/// Warns about tables whose definition is stored, and not all of their files.
pub(crate) fn lost_tables(manifest: &Manifest) -> Option<String> {
    let lost = manifest.without_files.as_ref()?;
    Some(format!(
        "{}: files are missing of {lost}: these tables cannot be opened after a restore, because the producer left the files out, or the server lacks them; see the producer's messages, and `CHECK TABLE` on the server",
        manifest.name
    ))
}

/// A note about what is not encrypted. It is no alarm: the store or the producer may encrypt it.
pub(crate) fn unencrypted(what: &str) -> String {
    format!(
        "note: {what} not sealed: anyone who can read the store can read what is in it; `xbcloud-rs init` shows how to make a key"
    )
}

pub(crate) fn get_done(log: &Log, what: &str, report: &GetReport, end: &ProgressEnd) {
    log.event("done", &serde_json::json!({
        "stream_bytes": report.stream_bytes, "stored_bytes": report.stored_bytes, "objects": report.objects,
        "requests": report.requests, "retries": report.retries, "proven": report.manifest.is_some(),
        "chosen": report.chosen.map(|c| serde_json::json!({
            "files": c.files, "bytes": c.bytes, "needed_files": c.needed_files, "needed_bytes": c.needed_bytes,
        })),
        "seconds": end.elapsed.as_secs_f64(), "phases": phases(end), "peak_memory": peak_memory(),
    }));
    if let Some(chosen) = report.chosen {
        let needed = match chosen.needed_files {
            0 => String::new(),
            n => format!("; prepare needs {n} more with {}", format_size(chosen.needed_bytes)),
        };
        log.info(format!(
            "selected: {} with {}{needed}; read {} from the store",
            format_count(chosen.files, "file"),
            format_size(chosen.bytes),
            format_size(report.stored_bytes),
        ));
    }
    let doubt = if report.manifest.is_some() {
        ""
    } else {
        "; there is no manifest, so missing files cannot be detected"
    };
    if report.manifest.as_ref().is_some_and(|manifest| manifest.is_carried()) {
        log.warn("the backup was stored as a native stream, so its manifest is not authenticated: anyone with write access to the store could have replaced the backup");
    }
    log.info(format!(
        "{what}, {}{}{doubt}",
        pace(report.stream_bytes, end),
        extras(report.requests, report.retries)
    ));
}

/// Warns that a key was given but authenticates nothing. Without `--accept-unsealed`, the backup
/// was refused.
pub(crate) fn unsealed(log: &Log, keyed: bool, name: &str, report: &GetReport) {
    if keyed && !report.manifest.as_ref().is_some_and(Manifest::is_sealed) {
        log.warn(format!(
            "{name} is not sealed, so the key does not prove who wrote it: anyone with write access to the store could have"
        ));
    }
}

pub(crate) fn restore_done(
    log: &Log,
    args: &RestoreArgs,
    target: &Path,
    report: &RestoreChainReport,
    end: &ProgressEnd,
    keyed: bool,
) {
    let target = target.display();
    for (name, restored) in &report.restored {
        if let Some(Resumed { distrusted: files @ 1.., .. }) = restored.resumed {
            log.warn(format!(
                "restored {} again: the content written by an earlier run had changed; check the disk and the system log",
                format_count(files, "file")
            ));
        }
        if let Some(Resumed { files, bytes: bytes @ 1.., .. }) = restored.resumed {
            let bytes = format_size(bytes);
            log.info(format!(
                "resumed: {} and {bytes} were already there from an earlier run",
                format_count(files, "file")
            ));
        }
        let of = if report.restored.len() > 1 { format!(" of {name}") } else { String::new() };
        get_done(
            log,
            &format!("{}{of} in {target}", format_count(restored.files, "file")),
            &restored.get,
            end,
        );
        unsealed(log, keyed, name, &restored.get);
    }
    if args.ready.prepare().is_some() {
        let is_partial = has_a_part(report);
        let what = match (args.files.is_empty(), args.ready.preparing.export) {
            (true, false) if is_partial => {
                "prepared, but partial: these files have only the tables that the producer was asked for"
            }
            (true, false) => "prepared: a server can start on these files",
            (_, true) => {
                "prepared for import, table by table: no server should start on these files"
            }
            (false, false) => {
                "prepared, but only the selected files: no server should start on them"
            }
        };
        log.info(format!("{what}{}", phases_text(end)));
    }
    if let Some(clone) = &report.clone {
        clone_done(log, clone);
    }
    // A replay leaves the position of the backup.
    let joins = args.ready.galera && args.until.until.is_none();
    if let (Some(position), true) = (&report.position, joins) {
        log.info(format!("wrote grastate.dat with position {position}"));
    }
    if let Some(behind) = report.behind {
        log.info(format!(
            "the donor still has the {} after the backup: the node will catch up with IST",
            format_count(behind, "write set")
        ));
    }
}

/// Reports what is known of a clone: where its data is, and what its server had elsewhere or not in InnoDB.
fn clone_done(log: &Log, clone: &CloneReport) {
    let position = clone.position.as_ref();
    let binlog = position.and_then(|position| position.binlog.as_ref());
    log.event(
        "clone",
        &serde_json::json!({
            "version": clone.version, "empty_tables": clone.empty_tables,
            "moved": clone.moved.iter().map(|(from, to)| serde_json::json!({"from": from, "to": to})).collect::<Vec<_>>(),
            "binlog": binlog.map(|(file, offset)| serde_json::json!({"file": file, "position": offset})),
            "gtids": position.map(|position| &position.gtids),
        }),
    );
    if let Some(position) = position {
        let at = binlog.map_or(String::new(), |(file, offset)| format!("{file}:{offset}, "));
        log.info(format!("the data is at {at}GTIDs {:?}", position.gtids));
    } else {
        log.info(format!(
            "a server of MySQL {} or a later release of its series can start on these files, and recovers them then",
            clone.version
        ));
    }
    if let Some(value) = &clone.lower_case_table_names {
        log.info(format!(
            "a server starts on these files only with lower_case_table_names={value}, which is in backup-my.cnf"
        ));
    }
    for (from, to) in &clone.moved {
        log.warn(format!(
            "{from} was outside of the server's data directory, and is {to} in it now"
        ));
    }
    if !clone.empty_tables.is_empty() {
        log.warn(format!(
            "these tables are empty, because a clone has only the rows of InnoDB: {}",
            clone.empty_tables.join(", ")
        ));
    }
    if !clone.prepared_xa.is_empty() {
        log.warn(format!(
            "XA transactions are prepared, and hold their locks until XA COMMIT or XA ROLLBACK: {}",
            clone.prepared_xa.join(", ")
        ));
    }
    if let Some(why) = clone.unconfined {
        log.warn(format!("the server that prepared the files could write anywhere: {why}"));
    }
}

/// What a partial backup is.
pub(crate) const PARTIAL: &str = "it has only the databases and tables that its producer was asked for, and counts for no whole backup";

/// How a restored partial backup comes into use.
pub(crate) const NEXT_OF_PARTIAL: &str = "take single tables out of the backup with `rescue`; put these files in place of no server's data: the tables that they lack would be gone, and without the schema mysql no server starts on them";

/// Whether the backup that was restored is partial. So is each of its chain.
pub(crate) fn has_a_part(report: &RestoreChainReport) -> bool {
    let last = report.restored.last().and_then(|(_, restored)| restored.get.manifest.as_ref());
    last.is_some_and(|manifest| manifest.source.is_partial)
}

/// Says at which position restored data is, and what to do next.
pub(crate) fn next_step(log: &Log, args: &RestoreArgs, target: &Path, report: &RestoreChainReport) {
    let last = report.restored.last().and_then(|(_, restored)| restored.get.manifest.as_ref());
    // The text of the producer has position and GTID.
    if let Some(position) = last.and_then(|manifest| manifest.source.binlog_pos.clone()) {
        log.info(format!("position of the data in the binary log: {}", String::from(position)));
    }
    if let Some(position) = last.and_then(|manifest| manifest.source.galera.as_ref()) {
        log.info(format!("position of the data in the cluster: {position}"));
    }
    let is_prepared = args.ready.prepare().is_some();
    let next = match (args.files.is_empty(), is_prepared, args.ready.preparing.export) {
        (_, _, true) => {
            "copy the files of each table beside an empty one of the same definition, after ALTER TABLE ... DISCARD TABLESPACE, then run ALTER TABLE ... IMPORT TABLESPACE".to_owned()
        }
        (true, true, _) if has_a_part(report) => NEXT_OF_PARTIAL.to_owned(),
        (true, true, _) => swap(target),
        (true, false, _) if last.is_some_and(|manifest| manifest.source.to_lsn.is_some()) => {
            "prepare the files before a server starts on them: mariadb-backup --prepare, or xtrabackup --prepare, with this directory as --target-dir".to_owned()
        }
        _ => return,
    };
    report.remarks.iter().for_each(|remark| log.warn(remark));
    log.info(format!("next: {next}"));
}

/// How restored data comes into use.
pub(crate) fn swap(target: &Path) -> String {
    let give = to_servers_user(target);
    let target = target.display();
    format!(
        "{give}stop the server, move its data directory away, move {target} to its place, and start the server"
    )
}

/// How restored data becomes that of a cluster. As long as a node of the old one runs, there would be two.
pub(crate) fn new_cluster(target: &Path) -> String {
    let give = to_servers_user(target);
    let target = target.display();
    format!(
        "{give}stop the servers of all nodes, move the data directory of this one away, move {target} to its place, run galera_new_cluster here, check that wsrep_cluster_state_uuid has changed, then start the other nodes: each receives all data"
    )
}

/// No server starts on files of root.
fn to_servers_user(target: &Path) -> String {
    match std::fs::metadata(target).is_ok_and(|target| target.uid() == 0) {
        true => {
            let target = target.display();
            format!("give the files to the server's user (chown -R mysql:mysql {target}), ")
        }
        false => String::new(),
    }
}

/// Seconds of each phase, by name. A phase that came several times has one sum.
pub(crate) fn phases(end: &ProgressEnd) -> serde_json::Value {
    let mut sums = serde_json::Map::new();
    for (name, time) in &end.phases {
        let before = sums.get(*name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        sums.insert((*name).to_owned(), (before + time.as_secs_f64()).into());
    }
    sums.into()
}

/// The phases for people, as the end of a line.
fn phases_text(end: &ProgressEnd) -> String {
    let phase = |(name, time): &(&str, Duration)| format!("{name} {}", format_duration(*time));
    let phases: Vec<String> = end.phases.iter().map(phase).collect();
    if phases.is_empty() { String::new() } else { format!(" ({})", phases.join(", ")) }
}

fn pace(bytes: u64, end: &ProgressEnd) -> String {
    let seconds = end.elapsed.as_secs_f64().max(0.001);
    #[allow(clippy::cast_precision_loss)]
    let rate = bytes as f64 / seconds;
    format!("{} in {} ({})", format_size(bytes), format_duration(end.elapsed), format_rate(rate))
}

fn extras(requests: u64, retries: u64) -> String {
    let mut text = String::new();
    if requests > 0 {
        text += &format!(", {}", format_count(requests, "request"));
    }
    if retries > 0 {
        text += &format!(", {retries} of them retries");
    }
    if let Some(peak) = peak_memory() {
        text += &format!(", peak memory {}", format_size(peak));
    }
    text
}

/// Largest resident set of this process so far, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the report of a copied archive, as JSON.
pub(crate) fn archive_copy(archive: &ArchiveCopy) -> serde_json::Value {
    serde_json::json!({
        "server": archive.server, "segments": archive.segments, "bytes": archive.bytes, "kept": archive.kept,
        "ends_at": archive.ends_at, "problem": archive.problem, "notes": archive.notes,
    })
}

pub(crate) fn copied(
    log: &Log,
    report: &CopyReport,
    archive: Option<&ArchiveCopy>,
    end: &ProgressEnd,
) {
    let manifest = &report.manifest;
    report.doubts.iter().for_each(|doubt| log.warn(doubt));
    if !report.bases.is_empty() {
        log.info(format!("copied what {} needs first: {}", manifest.name, report.bases.join(", ")));
    }
    log.event("done", &serde_json::json!({
        "name": manifest.name, "bases": report.bases, "stored_bytes": manifest.stored_bytes, "objects": manifest.objects, "by_store": report.by_store,
        "kept": report.kept, "was_there": report.was_there, "locked": report.locked, "requests": report.requests, "retries": report.retries,
        "seconds": end.elapsed.as_secs_f64(), "peak_memory": peak_memory(), "binlog": archive.map(archive_copy),
    }));
    if let Some(archive) = archive {
        for note in &archive.notes {
            log.warn(format!("the log of {}: {note}", archive.server));
        }
        let end = archive.ends_at.as_ref().map(|end| format!(", up to {end}"));
        log.info(format!(
            "the log of {}: copied, {} in {}{}",
            archive.server,
            format_size(archive.bytes),
            xb_cli::format_count(archive.segments, "segment"),
            end.unwrap_or_default(),
        ));
    }
    if report.was_there {
        return log
            .info(format!("{} already exists at the destination and is complete", manifest.name));
    }
    if report.kept > 0 {
        log.info(format!("{} from an earlier copy reused, checksums match", objects(report.kept)));
    }
    log.info(format!(
        "{}: copied, {} in {}{}, {}{}",
        manifest.name,
        format_size(manifest.stored_bytes),
        objects(manifest.objects),
        if report.by_store > 0 { " by the store itself, not compared" } else { "" },
        pace(manifest.stored_bytes, end),
        extras(report.requests, report.retries),
    ));
}

/// Reports until when the backup is locked, if it is, and why what it needs is not.
pub(crate) fn locked(log: &Log, lock: Option<&Lock>, not_locked: Option<&str>) {
    if let Some(why) = not_locked {
        log.warn(format!("the backups that it needs are not all locked: {why}"));
    }
    if let Some(Lock { mode, until }) = lock {
        let until = until.strftime("%Y-%m-%d %H:%M:%S UTC");
        log.info(format!("locked until {until}, mode {mode}"));
    }
}

/// Fails if standard output is closed: for commands whose only result goes there.
pub(crate) fn can_print() -> Result<(), Failure> {
    xb_cli::refuse_closed_output("leave standard output open, or redirect it: > FILE")
}

/// The end of a command whose report went to standard output. Fails if that was closed. If the reader has seen
/// enough, as `head` has, the program ends silently, as if the signal SIGPIPE had ended it.
pub(crate) fn printed(result: std::io::Result<()>) -> Result<(), Failure> {
    const BY_SIGPIPE: u8 = 128 + 13;
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(Failure::verdict("", BY_SIGPIPE))
        }
        Err(error) => Err(error).stage("output"),
        Ok(()) => can_print(),
    }
}

/// Prints the plan of a delete.
pub(crate) fn doomed(log: &Log, doomed: &DeletionPlan, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, doomed)?;
        return writeln!(out);
    }
    for key in doomed.manifest.iter().chain(doomed.objects.iter().map(|object| &object.key)) {
        writeln!(out, "{}", printable(key))?;
    }
    log.info(format!("would remove {}; --yes removes it", going(doomed)));
    Ok(())
}

/// Describes in one line the objects that a delete removes.
pub(crate) fn going(doomed: &DeletionPlan) -> String {
    let manifest = doomed.manifest.as_ref().map(|key| format!("the manifest {key} and "));
    let objects = objects(doomed.objects.len() as u64);
    format!("{}{objects}, {}", manifest.unwrap_or_default(), format_size(doomed.bytes()))
}

/// Formats a number of objects.
pub(crate) fn objects(number: u64) -> String {
    format_count(number, "object")
}

/// Prints on stdout what dead runs have left.
pub(crate) fn orphaned(
    log: &Log,
    findings: &GcFindings,
    removed: bool,
    json: bool,
) -> std::io::Result<()> {
    for (name, problem) in &findings.unclear {
        log.warn(format!("{name} is skipped: {problem}"));
    }
    if let Some(why) = &findings.unlisted {
        log.warn(format!("cannot list unfinished uploads: {why}"));
    }
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, findings)?;
        return writeln!(out);
    }
    let (mut number, mut bytes) = (0, 0);
    for dead in &findings.dead {
        number += dead.objects;
        bytes += dead.bytes;
        writeln!(
            out,
            "{}  {}  {}, {}, last seen {}",
            dead.name,
            dead.run.as_deref().unwrap_or("classic"),
            objects(dead.objects),
            format_size(dead.bytes),
            dead.last_seen.strftime("%Y-%m-%d %H:%M:%S UTC"),
        )?;
    }
    let (runs, uploads) = (findings.dead.len(), findings.uploads);
    if uploads > 0 {
        writeln!(out, "{}", format_count(uploads, "unfinished upload"))?;
    }
    let measurements = findings.measurements;
    if measurements > 0 {
        writeln!(out, "{} of a measurement by tune", objects(measurements))?;
    }
    let total = format!(
        "{}, {}, and {}",
        objects(number + measurements),
        format_size(bytes),
        format_count(uploads, "unfinished upload")
    );
    let dead = format_count(runs as u64, "dead run");
    log.info(match (runs as u64 + uploads + measurements, removed) {
        (0, _) => "nothing to remove".to_owned(),
        (_, true) => format!("removed what {dead} left: {total}"),
        (_, false) => format!("{dead} left {total}; --yes removes it"),
    });
    Ok(())
}

/// State of a name; for a directory of backups, with their number.
pub(crate) fn state(listing: &Listing) -> String {
    let state = match listing.state {
        State::Complete if listing.is_accepted_without_base() => "base elsewhere",
        State::Complete if listing.broken.is_some() => "chain broken",
        State::Complete => "complete",
        State::Damaged => "damaged",
        State::Unreadable => "unreadable",
        State::Missing => "objects missing",
        State::Running => "running",
        State::Abandoned => "abandoned",
        State::StockUnproven => "stock, unproven",
        State::Foreign => "not a backup",
        State::Folder => {
            let backups = format_count(listing.backups.unwrap_or_default(), "backup");
            return format!("folder of {backups}");
        }
    };
    state.to_owned()
}

/// State of verification, in one or two words.
pub(crate) fn proof(proof: Option<&Proof>) -> String {
    let day = |at: Option<jiff::Timestamp>| {
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

/// Additional lines of `list --long`.
pub(crate) fn details(l: &Listing) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let mut add = |what, value: Option<String>| {
        if let Some(value) = value {
            lines.push((what, value));
        }
    };
    add(
        "kind",
        l.kind.map(|kind| match (kind, &l.base, &l.mysql_clone) {
            (BackupKind::Full, _, Some(clone)) => format!("full, {clone}"),
            (BackupKind::Full, ..) => "full".to_owned(),
            (BackupKind::Incremental, Some(base), _) => format!("incremental, on {}", base.name),
            (BackupKind::Incremental, None, _) => "incremental".to_owned(),
        }),
    );
    add("partial", l.is_partial.then(|| PARTIAL.to_owned()));
    let merged: Vec<&str> = l.consolidated_from.iter().map(|link| &*link.name).collect();
    add("merged from", (!merged.is_empty()).then(|| merged.join(", ")));
    let unknown = match l.kind {
        Some(BackupKind::Incremental) => UNKNOWN_IMPORTS_OF_BASE,
        _ => UNKNOWN_IMPORTS,
    };
    add("imports", l.may_lack_imports.then(|| unknown.to_owned()));
    if let Some(clone) = &l.mysql_clone {
        // The data is of one moment between both, which only a server that starts on it knows.
        add("gtids, at least", clone.gtids_from.clone());
        add("gtids, at most", clone.gtids_to.clone());
        add("come back empty", clone.empty_tables.as_ref().map(ToString::to_string));
    }
    add("started", l.started.map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()));
    add("stream", l.stream_bytes.map(format_size));
    add("no .ibd file", l.without_tablespace.as_ref().map(ToString::to_string));
    add("files missing of", l.without_files.as_ref().map(ToString::to_string));
    add("server", l.server.clone());
    add("lsn", l.to_lsn.map(|to| format!("{} to {to}", l.from_lsn.unwrap_or(0))));
    add("binlog", l.binlog_pos.clone().map(String::from));
    add("galera", l.galera.clone());
    add("sealed", (l.encrypted == Some(false)).then(|| "no: it opens without a key".to_owned()));
    add("opens with", (!l.key_slots.is_empty()).then(|| l.key_slots.join(", ")));
    add("signed by", l.signer.clone());
    add("verified", l.verified.as_ref().map(|found| proof(Some(found))));
    let word = |word: &OperatorWord| {
        let since = word.since.map(|since| since.strftime("%Y-%m-%d").to_string());
        let since = since.unwrap_or_else(|| "at an unknown time".to_owned());
        word.reason.as_ref().map_or(since.clone(), |reason| format!("{since}: {reason}"))
    };
    add("pinned", l.pinned.as_ref().map(word));
    add("accepted", l.accepted.as_ref().map(word));
    lines
}
