//! `put` and `backup`: store a stream, and write the manifest once all of the stream is proven
//! complete. A run goes through `plan`, `detect_input`, `claim`, `upload` and `commit`, in this order.

pub(crate) mod chooses_tables;
mod claim;
pub(crate) mod clone_keys;
pub(crate) mod clone_source;
mod commit;
pub(crate) mod detect_input;
pub(crate) mod incremental;
mod lost_objects;
pub(crate) mod md5_list;
pub(crate) mod name_template;
pub(crate) mod plan;
pub(crate) mod producer;
pub(crate) mod producer_log;
mod request;
mod run_manifest;
mod stored_objects;
mod upload;
pub(crate) mod writer;

use std::io::Read;

use jiff::Timestamp;
use xb_pipeline::{Closed, FifoError, PackError, PackPlan};

pub(crate) use self::claim::{ForeignObjects, claim_emptied, refuse_taken};
pub(crate) use self::lost_objects::{free_if_vacant, is_vacant};
pub(crate) use self::plan::part_limits;
pub use self::plan::{FIXED_SIZE, limits, plan, put_plan};
pub use self::request::{IncrementalBase, MergedChain, PutLayout, PutReport, PutRequest};
pub use self::run_manifest::refuse_without_base;
pub(crate) use self::stored_objects::{
    CompanionObjects, all_are_there, list_stored, lost_objects, prove_classic,
};

use self::claim::RunFolder;
use self::detect_input::{Input, recognise_for};
use self::writer::Writer;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;

/// Stores the stream from `source`. The backup exists if and only if this returns `Ok`.
///
/// After a failure the run removes everything it wrote, as far as the store allows.
///
/// # Errors
/// The first cause. If `source` stalled, one of our threads may still be blocked in it.
pub async fn put(
    session: &Session,
    request: &PutRequest,
    source: impl Read + Send + 'static,
) -> Result<PutReport, BackupError> {
    let started = Timestamp::now();
    let Session { root, resources, cancel, .. } = session;
    let plan = plan(root, *resources, request)?;
    // The name is claimed only for an input that can be stored.
    let (input, taken) = cancel
        .or(async {
            let taken = refuse_taken(root, request).await?;
            Ok::<_, BackupError>((recognise_for(request, source).await?, taken))
        })
        .await?;
    let folder = RunFolder::claim(session, request, taken).await?;
    let outcome = store(session, request, &folder, plan, input, None, started).await;
    if let Err(error) = &outcome {
        folder.give_up(request, error).await;
    }
    outcome
}

/// Stores what the writer that `start` starts writes, and which must end well: a program with status 0, a
/// clone whole. It is started once the name is claimed: a server is not put under load for a store that
/// does not work.
///
/// # Errors
/// As [`put`]; the writer has ended in any case, but the thread of a clone may still notice it.
pub async fn backup<W: Into<Writer>, R: Read + Send + 'static>(
    session: &Session,
    request: &PutRequest,
    start: impl FnOnce() -> Result<(W, R), BackupError>,
) -> Result<PutReport, BackupError> {
    let started = Timestamp::now();
    let Session { root, resources, cancel, .. } = session;
    let plan = plan(root, *resources, request)?;
    let taken = cancel.or(refuse_taken(root, request)).await?;
    let folder = RunFolder::claim(session, request, taken).await?;
    let mut running = None;
    let outcome = async {
        let (writer, output) = start()?;
        let producer: &mut Writer = running.insert(writer.into());
        // From here on the producer may hold locks.
        let input = tokio::select! {
            input = recognise_for(request, output) => input?,
            signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
            lost = folder.claim.lost() => return Err(lost.into()),
            stalled = producer.stalled() => return Err(stalled),
        };
        store(session, request, &folder, plan, input, Some(producer), started).await
    };
    match outcome.await {
        Err(mut error) => {
            if let Some(producer) = &mut running {
                // A producer that failed does not write to its FIFOs.
                if error.fifo().is_some_and(FifoError::may_be_of_the_writer) {
                    error = producer.failure_behind_its_output().await.unwrap_or(error);
                }
                tokio::task::block_in_place(|| producer.end(&error));
            }
            folder.give_up(request, &error).await;
            Err(error)
        }
        stored => stored,
    }
}

/// Stores the input in the claimed folder, and makes a backup of it.
async fn store(
    session: &Session,
    request: &PutRequest,
    folder: &RunFolder,
    plan: PackPlan,
    input: Input<impl Read + Send + 'static>,
    mut producer: Option<&mut Writer>,
    started: Timestamp,
) -> Result<PutReport, BackupError> {
    let sent = folder.upload(session, request, plan, input, producer.as_deref_mut()).await?;
    folder.commit(session, request, sent, producer, started).await
}

impl From<Closed> for BackupError {
    fn from(closed: Closed) -> Self {
        Self::Put(PackError::Closed(closed))
    }
}
