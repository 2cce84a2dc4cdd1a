//! `restore`: a backup out of the store and straight into files, in one pass.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use xb_pipeline::{Durability, ExtractError, ExtractOptions, ExtractReport, Extractor, Observer};
use xb_reader::TargetDir;

use crate::error::BackupError;
use crate::get::{GetReport, GetRequest, StreamSink, find, transfer};
use crate::root::Root;
use crate::stop::Stop;

/// What a successful restore did.
#[derive(Debug)]
pub struct RestoreReport {
    /// How the backup was fetched.
    pub get: GetReport,
    /// Files that are whole and have their names.
    pub files: u64,
}

/// Makes the files of a backup below `target`, which is made if it is not there and must be empty.
///
/// A file gets its name when it is whole; on failure whole files stay and all others are gone.
///
/// # Errors
/// The first cause.
pub async fn restore(
    root: &Root,
    request: &GetRequest,
    target: &Path,
    durability: Durability,
    observer: &Observer,
    stop: &mut Stop,
) -> Result<RestoreReport, BackupError> {
    let failed = |what: String| BackupError::Restore { target: target.display().to_string(), what };
    // Before the folder is made: a wrong name leaves nothing behind.
    let objects = find(root, request).await?;
    if objects.is_raw() {
        return Err(failed(
            "the backup was stored with --raw and has no files; `get` gives what it is".into(),
        ));
    }
    if let Some(bytes) = objects.stream_bytes() {
        check_room(target, bytes).map_err(failed)?;
    }
    std::fs::create_dir_all(target).map_err(|error| failed(error.to_string()))?;
    if std::fs::read_dir(target).map_err(|error| failed(error.to_string()))?.next().is_some() {
        return Err(failed("the folder is not empty".into()));
    }
    let folder = TargetDir::open(target).map_err(|error| failed(error.to_string()))?;
    let options =
        ExtractOptions { threads: request.threads, durability, ..ExtractOptions::default() };
    let extractor = Extractor::new(folder, options).map_err(|error| failed(error.to_string()))?;
    let sink = Files { extractor: Some(extractor), target: target.to_owned() };
    let (report, sink) = transfer(root, request, objects, sink, observer, stop).await?;
    // Only now is the stream known to be whole.
    let extracted = tokio::task::spawn_blocking(move || sink.finish())
        .await
        .map_err(|_| BackupError::Bug("the extractor's end was not seen"))??;
    Ok(RestoreReport { get: report, files: extracted.files })
}

/// Refuses early what would end with a full disk.
fn check_room(target: &Path, needed: u64) -> Result<(), String> {
    let there = target.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let Ok(stat) = rustix::fs::statvfs(there) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < needed {
        return Err(format!("the files need about {needed} bytes, {free} are free"));
    }
    Ok(())
}

/// Hands the stream to the extractor.
struct Files {
    extractor: Option<Extractor>,
    target: PathBuf,
}

impl Files {
    fn finish(mut self) -> Result<ExtractReport, BackupError> {
        match self.extractor.take() {
            Some(extractor) => extractor.finish().map_err(|error| self.failed(&error)),
            None => Err(BackupError::Bug("the extractor was used after its end")),
        }
    }

    fn failed(&self, error: &ExtractError) -> BackupError {
        let kept = match error.report.files {
            0 => String::new(),
            files => format!(" ({files} files that were whole stay there)"),
        };
        BackupError::Restore {
            target: self.target.display().to_string(),
            what: format!("{error}{kept}"),
        }
    }
}

impl StreamSink for Files {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        let Some(extractor) = &mut self.extractor else {
            return Err(BackupError::Bug("the extractor was used after its end"));
        };
        if extractor.feed(bytes).is_ok() {
            return Ok(());
        }
        // It has stopped and says why at its end.
        match self.extractor.take().map(Extractor::finish) {
            Some(Err(error)) => Err(self.failed(&error)),
            _ => Err(BackupError::Bug("the extractor stopped without a cause")),
        }
    }
}
