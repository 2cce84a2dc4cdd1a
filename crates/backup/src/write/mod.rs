//! `put` and `backup`: store a stream, and write the manifest once all of the stream is proven
//! complete.

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
pub(crate) mod run_folder;
mod run_manifest;
mod upload;
pub(crate) mod writer;

use std::io::Read;
use std::time::Duration;

use jiff::Timestamp;
use xb_compressor::Compression;
use xb_pipeline::{Closed, Content, EndRule, FifoError, PackError, PackPlan};
use xb_repo::error::RepoError;
use xb_repo::manifest::Layout;
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

pub(crate) use self::lost_objects::{free_if_vacant, is_vacant};
pub(crate) use self::plan::part_limits;
pub use self::plan::{FIXED_SIZE, PutSizing, limits, plan, put_plan};
pub use self::request::{IncrementalBase, MergedChain, PutLayout, PutReport, PutRequest};
pub(crate) use self::run_folder::{Beside, Foreign, all_are_there, claim_emptied, prove_classic};
pub use self::run_manifest::refuse_without_base;

use self::run_folder::RunFolder;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;
use crate::write::detect_input::{Input, Kind, recognise};
use crate::write::writer::Writer;

/// Number of names that are tried before the last one, if the name is generated.
const GENERATED_NAMES: u32 = 5;

/// Time limit of the cleanup after a failure, which may itself be caused by the store.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// Time that a claim on its way has to arrive after a request to cancel.
const CLAIM_ARRIVAL: Duration = Duration::from_secs(5);

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
    let folder = claim_unless_cancelled(session, request, taken).await?;
    let outcome = store(session, request, &folder, plan, input, None, started).await;
    if let Err(error) = &outcome {
        give_up(&folder, request, error).await;
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
    let folder = claim_unless_cancelled(session, request, taken).await?;
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
            give_up(&folder, request, &error).await;
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

/// Refuses a name that has a backup, before the input is read; not one that was generated, because
/// the run can take another one. Returns whether the name has a manifest of a backup that has lost
/// all its objects.
pub(crate) async fn refuse_taken(root: &Root, request: &PutRequest) -> Result<bool, BackupError> {
    let name = &request.name;
    if request.generated {
        return Ok(false);
    }
    let Some(manifest) = root.manifest(name).await? else { return Ok(false) };
    if !is_vacant(root, name, &manifest).await? {
        let state = if manifest.layout == Layout::Packed { "" } else { " (classic layout)" };
        return Err(RepoError::Exists { name: name.to_string(), state }.into());
    }
    Ok(true)
}

/// Claims a folder for the run. After a request to cancel, the claim that is on its way is given back.
async fn claim_unless_cancelled(
    session: &Session,
    request: &PutRequest,
    taken: bool,
) -> Result<RunFolder, BackupError> {
    let mut claiming = Box::pin(claim(&session.root, request, taken));
    let signal = tokio::select! {
        claimed = &mut claiming => return claimed,
        signal = session.cancel.cancelled() => signal,
    };
    let interrupted = BackupError::Interrupted(signal);
    // Dropped, the request may arrive after the run, and leave its claim.
    if let Ok(Ok(folder)) = tokio::time::timeout(CLAIM_ARRIVAL, claiming).await {
        give_up(&folder, request, &interrupted).await;
    }
    Err(interrupted)
}

/// Claims a folder for the run. If the future is dropped, the remaining claim delays other runs
/// only for a short time.
async fn claim(root: &Root, request: &PutRequest, taken: bool) -> Result<RunFolder, BackupError> {
    if taken && !free_if_vacant(root, &request.name).await? {
        return Err(RepoError::Exists { name: request.name.to_string(), state: "" }.into());
    }
    let mut name = request.name.clone();
    for _ in 0..GENERATED_NAMES {
        match RunFolder::claim(root, request, name, RunId::random()?).await {
            Err(BackupError::Repo(RepoError::Exists { .. } | RepoError::Running { .. }))
                if request.generated => {}
            outcome => return outcome,
        }
        // Random: runs that begin together would count up together.
        let digits: String = RunId::random()?.to_string().chars().take(4).collect();
        name = BackupName::new(&format!("{}-{digits}", request.name))?;
    }
    RunFolder::claim(root, request, name, RunId::random()?).await
}

/// Removes what a failed run wrote. The result does not matter: the first cause is known, and
/// remaining objects belong to an abandoned run, not to a backup. But if a manifest may have been
/// written, its objects must stay.
async fn give_up(folder: &RunFolder, request: &PutRequest, error: &BackupError) {
    let cleaning = async {
        match error {
            BackupError::Repo(RepoError::InDoubt { .. }) => {}
            // Its objects stay, as the stock tool leaves them.
            BackupError::Incomplete { .. } if request.layout.kind() == Layout::Classic => {}
            BackupError::Repo(RepoError::Store(source)) => {
                let met = source.kind == StoreErrorKind::AlreadyExists;
                drop(folder.clean_up(request, met).await);
            }
            _ => drop(folder.clean_up(request, false).await),
        }
    };
    let _ = tokio::time::timeout(CLEAN_UP, cleaning).await;
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
        PutLayout::Packed { compress, key_slots } => {
            // `auto` takes what is best for the input, here its own codec.
            let is_asked = ![Compression::default(), Compression::Auto].contains(compress);
            !is_asked && key_slots.is_empty()
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

impl From<Closed> for BackupError {
    fn from(closed: Closed) -> Self {
        Self::Put(PackError::Closed(closed))
    }
}
