//! `put` and `backup`: store a stream, and write the manifest once all of the stream is proven
//! complete.

pub(crate) mod detect_input;
pub(crate) mod incremental;
pub(crate) mod md5_list;
pub(crate) mod name_template;
pub(crate) mod plan;
pub(crate) mod producer;
pub(crate) mod producer_log;
mod request;
pub(crate) mod run_folder;
mod run_manifest;
mod upload;
mod vacant;

use std::io::Read;
use std::time::Duration;

use jiff::Timestamp;
use xb_compressor::Compression;
use xb_pipeline::{Closed, Content, EndRule, FifoError, Observer, PackError};

use crate::cancel::CancelToken;
use crate::catalog::manifest::Layout;
use crate::catalog::names::RunId;
use crate::catalog::root::Root;
use crate::error::BackupError;
use crate::write::detect_input::{Input, Kind, recognise};
use crate::write::producer::{Producer, ProducerOutput};

pub(crate) use self::plan::{FIXED_SIZE, limits, part_limits};
pub use self::plan::{PutSizing, plan, put_plan};
pub use self::request::{IncrementalBase, PutLayout, PutReport, PutRequest};
use self::run_folder::RunFolder;
pub(crate) use self::run_folder::{
    Foreign, all_are_there, claim_emptied, prove_shared, settle_commit,
};
pub(crate) use self::vacant::free_if_vacant;
use self::vacant::is_vacant;

/// Time limit of the cleanup after a failure, which may itself be caused by the store.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// Stores the stream from `source`. The backup exists if and only if this returns `Ok`.
///
/// After a failure the run removes everything it wrote, as far as the store allows.
///
/// # Errors
/// The first cause. If `source` stalled, one of our threads may still be blocked in it.
pub async fn put(
    root: &Root,
    request: &PutRequest,
    source: impl Read + Send + 'static,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<PutReport, BackupError> {
    run(root, request, source, None, observer, stop).await
}

/// Stores the output of `producer`, which must exit with status 0.
///
/// # Errors
/// As [`put`]; the producer has ended in any case.
pub async fn backup(
    root: &Root,
    request: &PutRequest,
    (mut producer, output): (Producer, ProducerOutput),
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<PutReport, BackupError> {
    let outcome = run(root, request, output, Some(&mut producer), observer, stop).await;
    match outcome {
        Err(error) => {
            // A producer that failed does not write to its FIFOs.
            let error = match error.fifo().is_some_and(FifoError::may_be_of_the_writer) {
                true => producer.failure_behind_its_output().await.unwrap_or(error),
                false => error,
            };
            end(&mut producer, &error);
            Err(error)
        }
        stored => stored,
    }
}

/// Ends a producer after a failure.
fn end(producer: &mut Producer, error: &BackupError) {
    producer.end(match error {
        BackupError::Interrupted(signal) => *signal,
        _ => rustix::process::Signal::TERM.as_raw(),
    });
}

async fn run(
    root: &Root,
    request: &PutRequest,
    source: impl Read + Send + 'static,
    mut producer: Option<&mut Producer>,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<PutReport, BackupError> {
    let started = Timestamp::now();
    let plan = plan(root, request)?;
    // The producer already runs and may hold locks, so its lock stall must end the wait for a slow
    // store.
    let (input, place) = tokio::select! {
        begun = begin(root, request, source) => begun?,
        signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
        stalled = stalled(producer.as_deref_mut()) => return Err(stalled),
    };
    let filling =
        place.fill(request, plan, input, producer.as_deref_mut(), observer, stop, started);
    let outcome = filling.await;
    if let Err(error) = &outcome {
        if let Some(producer) = producer {
            tokio::task::block_in_place(|| end(producer, error));
        }
        // The result of the cleanup does not matter: the first cause is known, and remaining
        // objects belong to an abandoned run, not to a backup. But if a manifest may have been
        // written, its objects must stay.
        let cleaning = async {
            match error {
                BackupError::InDoubt { .. } => {}
                // As the stock tool leaves them; nothing of this run is left to be removed.
                BackupError::Incomplete { .. } if request.layout.kind() == Layout::Classic => {
                    place.claim.end().await;
                }
                _ => drop(place.clean_up(request).await),
            }
        };
        let _ = tokio::time::timeout(CLEAN_UP, cleaning).await;
    }
    outcome
}

/// Waits for the first bytes of the input, and claims a folder for the run. If the future is
/// dropped, the remaining claim delays other runs only for a short time.
async fn begin<R: Read + Send + 'static>(
    root: &Root,
    request: &PutRequest,
    source: R,
) -> Result<(Input<R>, RunFolder), BackupError> {
    let name = &request.name;
    let taken = root.manifest(name).await?;
    if let Some(manifest) = &taken
        && !is_vacant(root, name, manifest).await?
    {
        let state = if manifest.layout == Layout::Packed { "" } else { " (classic layout)" };
        return Err(BackupError::Exists { name: name.to_string(), state });
    }
    let input = recognise_for(request, source).await?;
    if taken.is_some() && !free_if_vacant(root, name).await? {
        return Err(BackupError::Exists { name: name.to_string(), state: "" });
    }
    let run = RunId::random()?;
    Ok((input, RunFolder::claim(root, request, run).await?))
}

fn demands_last_file(content: &Content) -> bool {
    matches!(content, Content::Xbstream(input) if matches!(input.rule, EndRule::LastFile(_)))
}

/// Reads the beginning of the input, and rejects an input that does not fit the request.
async fn recognise_for<R: Read + Send + 'static>(
    request: &PutRequest,
    source: R,
) -> Result<Input<R>, BackupError> {
    let wanted = request.content.clone();
    let reading = tokio::task::spawn_blocking(move || recognise(source, wanted));
    let input = reading
        .await
        .map_err(|_| BackupError::Bug("the thread that reads the start of the input panicked"))??;
    let untouched = match &request.layout {
        PutLayout::Packed { compress, ways_in } => {
            *compress == Compression::default() && ways_in.is_empty()
        }
        PutLayout::Classic { .. } => true,
    };
    match (&input.kind, request.layout.kind()) {
        (Kind::Content(Content::Raw) | Kind::Native(_), Layout::Classic) => {
            Err(BackupError::Input("the classic layout stores only xbstreams".into()))
        }
        (Kind::Native(_), _) if !untouched => Err(BackupError::Input(
            "the input is a native stream, which is stored unchanged: compress and seal it where it is made"
                .into(),
        )),
        (Kind::Native(_), _) if demands_last_file(&request.content) => Err(BackupError::Input(
            "the input is a native stream, so its last file cannot be checked: remove --last-file, and check the input where the stream is made"
                .into(),
        )),
        _ => Ok(input),
    }
}

/// Waits until the producer, if there is one, reports a lock stall.
async fn stalled(producer: Option<&mut Producer>) -> BackupError {
    match producer {
        Some(producer) => producer.stalled().await,
        None => std::future::pending().await,
    }
}

impl From<Closed> for BackupError {
    fn from(closed: Closed) -> Self {
        Self::Put(PackError::Closed(closed))
    }
}
