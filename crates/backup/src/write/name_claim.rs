//! The name of a backup: refused if it has a backup, claimed for a run, and given up after a failure.

use std::time::Duration;

use xb_repo::error::RepoError;
use xb_repo::manifest::Layout;
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use super::lost_objects::{free_if_vacant, is_vacant};
use super::request::PutRequest;
use super::run_folder::RunFolder;
use crate::error::BackupError;
use crate::session::Session;

/// Number of names that are tried before the last one, if the name is generated.
const GENERATED_NAMES: u32 = 5;

/// Time limit of the cleanup after a failure, which may itself be caused by the store.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// Time that a claim on its way has to arrive after a request to cancel.
const CLAIM_ARRIVAL: Duration = Duration::from_secs(5);

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
pub(super) async fn claim_unless_cancelled(
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
pub(super) async fn give_up(folder: &RunFolder, request: &PutRequest, error: &BackupError) {
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
