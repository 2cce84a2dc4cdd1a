//! The report of a run, for `--report`: begun before the work, written after it, whatever happened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::job::StageStatus;
use jiff::Timestamp;
use serde_json::Value;
use xb_backup::{GetReport, PutLayout, PutReport, PutRequest, Resources, RestoreChainReport};
use xb_cli::{
    Exit, Failure, Log, Personality, Readers, check_writable, format_size, host_name, write_whole,
};
use xb_pipeline::{Observer, PackPlan};
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_report::{
    Cause, Direction, End, Head, Report, SectionOptions, StageEnd, Totals, Traffic, Watch,
};
use xb_uploader::StoreError;

use crate::args::{Command, PutOptions};
use crate::commands::whole_files::unwritable;
use crate::page::page;

/// The report of this run, if one is wanted. Otherwise all calls do nothing. Clones refer to the same report.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reporting(Option<OpenReport>);

/// A report and its file.
#[derive(Debug, Clone)]
struct OpenReport {
    report: Report,
    path: PathBuf,
    /// Work of the workers on the way up, as a verb.
    encode: &'static str,
}

/// Facts for a report from the command line.
struct ReportContext<'a> {
    what: &'static str,
    place: &'a str,
    root: Option<&'a str>,
    path: &'a Path,
    put: Option<&'a PutOptions>,
}

impl<'a> ReportContext<'a> {
    fn of(command: &'a Command) -> Option<Self> {
        let (what, place, common, report, put) = match command {
            Command::Put(a) => {
                ("Backup", a.new.name.as_deref(), &a.common, &a.report, Some(&a.put))
            }
            Command::Backup(a) => {
                ("Backup", a.new.name.as_deref(), &a.common, &a.report, Some(&a.backup.put))
            }
            Command::Run(a) => {
                ("Run", a.name.as_deref(), &a.common, &a.job.report, Some(&a.backup.put))
            }
            Command::Get(a) => ("Download", Some(&*a.source.name), &a.common, &a.report, None),
            Command::Restore(a) => ("Restore", Some(&*a.source.name), &a.common, &a.report, None),
            _ => return None,
        };
        let (place, root) = (place.unwrap_or_default(), common.store.root.as_deref());
        report.report.as_deref().map(|path| Self { what, place, root, path, put })
    }

    /// The place as it was written, after ROOT if that is written elsewhere.
    fn place(&self) -> String {
        masked(&match self.root {
            Some(root) if !self.place.contains("://") => {
                format!("{}/{}", root.trim_end_matches('/'), self.place.trim_start_matches('/'))
            }
            _ => self.place.to_owned(),
        })
    }

    fn encode(&self) -> &'static str {
        let Some(put) = self.put else { return "compress" };
        let is_packed = put.layout != Some(Layout::Classic);
        let compresses = put.compress.as_deref().map_or(is_packed, |codec| codec != "none");
        match (compresses, put.encrypt.as_deref()) {
            (true, Some("AES128" | "AES192" | "AES256")) => "compress and encrypt",
            (false, Some("AES128" | "AES192" | "AES256")) => "encrypt",
            (true, _) => "compress",
            (false, _) => "checksum",
        }
    }
}

/// A place without the keys that some write in front of the bucket. No store accepts them there, but
/// a report of the refusal must not show them either.
pub(crate) fn masked(place: &str) -> String {
    let parts = place.split_once("://").and_then(|(scheme, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        // No bucket has a colon in its name, and a key may have a slash.
        let with_slash =
            || authority.contains(':').then(|| rest.find('@').unwrap_or(authority.len()));
        let keys = authority.rfind('@').or_else(with_slash)?;
        Some(format!("{scheme}://***{}", &rest[keys..]))
    });
    parts.unwrap_or_else(|| place.to_owned())
}

impl Reporting {
    /// Begins the report that the command line asks for.
    ///
    /// # Errors
    /// The file could not be written: that is found before any work.
    pub(crate) fn begin(command: &Command, tool: &str) -> Result<Self, Failure> {
        let Some(wanted) = ReportContext::of(command) else { return Ok(Self::default()) };
        check_writable(wanted.path).map_err(|error| unwritable(wanted.path, error))?;
        let report = Report::begin(Head {
            what: wanted.what.to_owned(),
            tool: tool.to_owned(),
            place: wanted.place(),
            host: host_name().unwrap_or_default(),
            started: Timestamp::now(),
        });
        if let Some(rate) = command.run_options().limit_rate {
            report.setting("rate limit", format!("{}/s", format_size(rate.bytes())));
        }
        let (path, encode) = (wanted.path.to_owned(), wanted.encode());
        Ok(Self(Some(OpenReport { report, path, encode })))
    }

    fn report(&self) -> Option<&Report> {
        self.0.as_ref().map(|begun| &begun.report)
    }

    /// Notes a retry and the error before it.
    pub(crate) fn retry(&self, error: &StoreError) {
        if let Some(report) = self.report() {
            report.retry(&error.to_string());
        }
    }

    /// Samples the counters of a step of the run, which has this many workers, until the result is
    /// dropped. What moves no data, and so has no traffic, is no step of a report.
    pub(crate) fn watch(
        &self,
        step: &str,
        threads: usize,
        observer: &Observer,
        traffic: Option<&xb_uploader::Traffic>,
    ) -> Option<Watch> {
        let (begun, traffic) = (self.0.as_ref()?, traffic?.clone());
        let direction = match step {
            "put" | "backup" => Direction::Up,
            "verify" => Direction::Verify,
            "copy" => Direction::Copy,
            _ => Direction::Restore,
        };
        let options = SectionOptions { direction, encode: Some(begun.encode), threads };
        let read = move || Traffic {
            sent: traffic.sent(),
            requests: traffic.requests(),
            retries: traffic.retries(),
        };
        let name = match step {
            "put" => "upload",
            "get" => "download",
            step => step,
        };
        Some(begun.report.watch(name, options, observer, read))
    }

    /// Ends the report. A page that cannot be written is a warning, because the run itself is over.
    pub(crate) fn end(&self, log: &Log, personality: Personality, failure: Option<&Failure>) {
        let Some(OpenReport { report, path, .. }) = &self.0 else { return };
        let exit = xb_cli::exit_of(failure);
        let end = End {
            finished: Timestamp::now(),
            exit: exit.code(personality),
            meaning: meaning(exit),
            error: failure.map(|failure| Cause {
                message: match failure.stage_name() {
                    Some(stage) => format!("{stage}: {}", failure.line()),
                    None => failure.line(),
                },
                hint: failure.hint_text().map(str::to_owned),
            }),
        };
        if let Err(error) = write_whole(path, &page(&report.end(end)), Readers::Owner) {
            log.warn(format!(
                "cannot write the report {}: {error}; make room there, or name another file with --report next time",
                path.display()
            ));
        }
    }

    /// Notes what was unusual, but no failure.
    pub(crate) fn warning(&self, text: &str) {
        if let Some(report) = self.report() {
            report.warning(text);
        }
    }

    /// Notes that a stage of a run has ended.
    pub(crate) fn stage(&self, name: &str, status: StageStatus, seconds: f64) {
        let Some(report) = self.report() else { return };
        let end = match status {
            StageStatus::Ok => StageEnd::Ok,
            StageStatus::Failed => StageEnd::Failed,
            StageStatus::Skipped => StageEnd::Skipped,
        };
        report.stage(name, end, Duration::try_from_secs_f64(seconds).unwrap_or_default());
    }

    /// Notes what a stage of a run has reached: the level of a proof, the place of a copy, the names that a
    /// prune has removed.
    pub(crate) fn outcome(&self, stage: &str, details: &Value) {
        let Some(report) = self.report() else { return };
        match (stage, &details["reached"], &details["to"], &details["names"]) {
            ("verify", Value::String(level), _, _) => report.setting("verified up to", level),
            ("copy", _, Value::String(to), _) => report.setting("copied to", to),
            ("prune", _, _, Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                let none = names.is_empty().then(|| "nothing".to_owned());
                report.setting("pruned", none.unwrap_or_else(|| names.join(", ")));
            }
            _ => {}
        }
    }

    /// Notes the name of the backup.
    pub(crate) fn name(&self, name: &BackupName) {
        if let Some(report) = self.report() {
            report.name(name.as_str());
        }
    }

    /// Notes what a put will work with. If it fails, this is all that is known of it.
    pub(crate) fn putting(&self, root: &Root, resources: Resources, request: &PutRequest) {
        let Some(report) = self.report() else { return };
        match &request.layout {
            PutLayout::Classic { .. } => report.setting("layout", "classic"),
            PutLayout::Packed { compress, key_slots } => {
                report.setting("layout", "packed");
                report.setting("compress", compress.to_string());
                report.setting("object size", format_size(request.object_size.get()));
                if !key_slots.is_empty() {
                    report.setting("sealed", "yes");
                }
            }
        }
        // A run that cannot be planned fails with the same error soon.
        if let Ok(plan) = xb_backup::plan(root, resources, request) {
            planned(report, &plan);
        }
    }

    /// Notes what was stored.
    pub(crate) fn put(&self, put: &PutReport) {
        let Some(report) = self.report() else { return };
        let (manifest, plan) = (&put.manifest, &put.plan);
        report.name(&manifest.name);
        report.totals(Totals {
            stream_bytes: Some(manifest.stream_bytes),
            stored_bytes: Some(manifest.stored_bytes),
            files: Some(manifest.files),
            objects: Some(manifest.objects),
            requests: Some(put.requests),
            retries: Some(put.retries),
        });
        match &manifest.packed {
            None => report.setting("layout", "classic"),
            Some(packed) => {
                report.setting("layout", "packed");
                report.setting("codecs", packed.codecs.join(", "));
                report.setting("object size", format_size(plan.object_size.get()));
            }
        }
        if let Some(clone) = &manifest.mysql_clone {
            report.setting("source", clone.to_string());
        }
        report.setting("sealed", if manifest.is_sealed() { "yes" } else { "no" });
        planned(report, plan);
        report.setting("protection in transit", put.protection);
    }

    /// Notes what was read.
    pub(crate) fn get(&self, got: &GetReport) {
        if let Some(report) = self.report() {
            report.totals(read([got]));
            report.objects(object_sizes(got));
        }
    }

    /// Notes what was restored.
    pub(crate) fn restore(&self, ready: &RestoreChainReport) {
        let Some(report) = self.report() else { return };
        let restored = ready.restored.iter().map(|(_, restored)| restored);
        let files = restored.clone().map(|restored| restored.files).sum();
        let totals = read(restored.map(|restored| &restored.get));
        report.totals(Totals { files: Some(files), ..totals });
        let read = ready.restored.iter().map(|(_, restored)| &restored.get);
        report.objects(read.flat_map(object_sizes));
    }
}

/// Notes the sizes of a plan.
fn planned(report: &Report, plan: &PackPlan) {
    report.setting("part size", format_size(plan.part_size));
    report.setting("requests at a time", plan.parallel.to_string());
    report.setting("worker threads", plan.threads.to_string());
    report.setting("memory for buffers", format_size(plan.memory));
}

/// Sizes of the objects that were read, with the number of each. They are known if all objects of a
/// packed backup were.
fn object_sizes(got: &GetReport) -> Vec<(u64, u64)> {
    let whole = |manifest: &&Manifest| {
        (manifest.objects, manifest.stored_bytes) == (got.objects, got.stored_bytes)
    };
    let Some(manifest) = got.manifest.as_ref().filter(whole) else { return Vec::new() };
    let Some(packed) = &manifest.packed else { return Vec::new() };
    packed_sizes(manifest.objects, manifest.stored_bytes, packed.chunk_size)
}

/// Sizes of `objects` of which all have one size, except that the last may be shorter.
fn packed_sizes(objects: u64, bytes: u64, size: u64) -> Vec<(u64, u64)> {
    let Some(full) = objects.checked_sub(1) else { return Vec::new() };
    match full.checked_mul(size).and_then(|whole| bytes.checked_sub(whole)) {
        Some(last) if last <= size => vec![(size, full), (last, 1)],
        // No such objects.
        _ => Vec::new(),
    }
}

/// Sums over the backups of a chain. The requests are those of the whole run in each of them.
fn read<'a>(all: impl IntoIterator<Item = &'a GetReport>) -> Totals {
    let mut totals = Totals::default();
    let add = |sum: &mut Option<u64>, more: u64| *sum = Some(sum.unwrap_or_default() + more);
    for got in all {
        add(&mut totals.stream_bytes, got.stream_bytes);
        add(&mut totals.stored_bytes, got.stored_bytes);
        add(&mut totals.objects, got.objects);
        totals.requests = totals.requests.max(Some(got.requests));
        totals.retries = totals.retries.max(Some(got.retries));
    }
    totals
}

/// Meaning of an exit code: the words of `--help`, and which of several things they stand for.
fn meaning(exit: Exit) -> String {
    match exit {
        Exit::Done => "done and proven",
        Exit::Usage => "usage: wrong option or setting",
        Exit::NotFound => "not found: backup, object or bucket",
        Exit::NotPermitted => {
            "not permitted: credentials or keys are missing, wrong, or not sufficient"
        }
        Exit::Unreachable => "store unreachable, or it kept failing",
        Exit::Input => "input incomplete or producer failed",
        Exit::Damaged => "damaged or not verified",
        Exit::Interrupted(signal) => return format!("ended by signal {signal}"),
        _ => "failed",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_has_its_root() {
        let path = Path::new("x");
        let place =
            |place, root| ReportContext { what: "Run", place, root, path, put: None }.place();
        assert_eq!(place("s3://b/shop/n", Some("s3://b")), "s3://b/shop/n");
        assert_eq!(place("n", Some("s3://b/shop/")), "s3://b/shop/n");
        assert_eq!(place("shop/n", None), "shop/n");
        assert_eq!(place("s3://key:secret@b/shop/n@1", None), "s3://***@b/shop/n@1");
        assert_eq!(place("@2026-11-20", Some("s3://key@b/shop")), "s3://***@b/shop/@2026-11-20");
        assert_eq!(place("s3://key:sec/ret@b/shop/n@1", None), "s3://***@b/shop/n@1");
        assert_eq!(place("s3://key:secret/shop", None), "s3://***/shop");
        assert_eq!(place("file:///a:b/c@d", None), "file:///a:b/c@d");
    }

    #[test]
    fn the_meaning_of_an_exit_status_is_that_of_the_help() {
        let help = <crate::args::CommandLine as clap::CommandFactory>::command();
        let help = help.get_after_help().unwrap().to_string();
        let (_, list) = help.split_once("Exit status: ").unwrap();
        for exit in [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::NotPermitted,
            Exit::Unreachable,
            Exit::Input,
            Exit::Damaged,
        ] {
            let code = format!("{} ", exit.code(Personality::Ours));
            let words = list.split(", ").find_map(|status| status.strip_prefix(&code)).unwrap();
            assert!(meaning(exit).starts_with(words), "{words}: {}", meaning(exit));
        }
        assert_eq!(meaning(Exit::Interrupted(15)), "ended by signal 15");
    }

    #[test]
    fn packed_objects_have_one_size_but_the_last() {
        assert_eq!(packed_sizes(3, 25, 10), [(10, 2), (5, 1)]);
        assert_eq!(packed_sizes(1, 4, 10), [(10, 0), (4, 1)]);
        for (objects, bytes) in [(0, 0), (3, 31), (3, 19), (u64::MAX, 5)] {
            assert_eq!(packed_sizes(objects, bytes, 10), [], "{objects} {bytes}");
        }
    }
}
