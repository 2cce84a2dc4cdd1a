//! `delete`: removes the manifest first, so that a half-deleted backup never looks complete.
//!
//! The objects are listed once, and exactly the listed ones are removed. The delete is refused if
//! objects of other programs or other backups exist below the name.
//!
//! The objects of a classic backup have no RUN: without their manifest they would look like a stock
//! backup. So the delete holds the name, like a run, until all objects are gone.

mod plan;
pub(crate) mod removal;

use xb_repo::chain::refuse_needed;
use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;

pub(super) use self::plan::refuse_pinned;
pub use self::plan::{DeletionPlan, ObjectToDelete};
pub use self::removal::Deleted;

use self::plan::plan;
use self::removal::{Removal, remove_manifests};
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;

/// Lists what [`delete`] would remove, or with `unless_needed` [`delete_unless_needed`], without
/// removing it.
///
/// # Errors
/// As for that function.
pub async fn doomed(
    root: &Root,
    name: &BackupName,
    unless_needed: bool,
) -> Result<DeletionPlan, BackupError> {
    Ok(doomed_with(root, name, unless_needed).await?.0)
}

/// Also returns the manifests in ROOT, if dependants are checked.
async fn doomed_with(
    root: &Root,
    name: &BackupName,
    unless_needed: bool,
) -> Result<(DeletionPlan, Option<KnownManifests>), BackupError> {
    let mut known = None;
    // Without a manifest, a backup is no base, and reading all others would be pointless.
    let root = match unless_needed && !matches!(root.manifest(name).await, Ok(None)) {
        true => {
            let known = known.insert(KnownManifests::of(root).await?);
            known.look_for(root, name).await?;
            known.seen_in(root)
        }
        false => root.knowing(&root.catalogue().await?),
    };
    let root = &root;
    if let Some(known) = &known {
        refuse_needed(root, name, known).await?;
    }
    let mut doomed = plan(root, name).await?;
    doomed.how.unless_needed = unless_needed;
    if let Some(known) = &known {
        doomed.how.refuse_old(name, known)?;
    }
    if unless_needed && known.is_none() && doomed.manifest.is_some() {
        return Err(RepoError::Changed { name: doomed.name }.into());
    }
    Ok((doomed, known))
}

/// Removes the backup `name`, unless others depend on it.
///
/// # Errors
/// [`RepoError::Needed`]; [`RepoError::MayBeNeeded`] if the manifest of a later backup cannot
/// be read; [`RepoError::Unclear`] if its own manifest cannot be read;
/// [`BackupError::Interrupted`]; otherwise as [`delete`].
pub async fn delete_unless_needed(
    session: &Session,
    name: &BackupName,
) -> Result<Deleted, BackupError> {
    let (doomed, known) = session.cancel.or(doomed_with(&session.root, name, true)).await?;
    remove(session, doomed, known).await
}

/// Removes the objects that [`doomed`] returned, if a delete would still remove the same.
///
/// # Errors
/// [`RepoError::Changed`]; otherwise as [`delete`], or [`delete_unless_needed`].
pub async fn delete_shown(session: &Session, shown: &DeletionPlan) -> Result<Deleted, BackupError> {
    let name = BackupName::new(&shown.name)?;
    let unless_needed = shown.how.unless_needed;
    let find = doomed_with(&session.root, &name, unless_needed);
    let (doomed, known) = session.cancel.or(find).await?;
    if doomed != *shown {
        return Err(RepoError::Changed { name: shown.name.clone() }.into());
    }
    remove(session, doomed, known).await
}

/// Removes the planned objects. `known`: the manifests in ROOT, if the backup stays while others depend
/// on it.
async fn remove(
    session: &Session,
    doomed: DeletionPlan,
    known: Option<KnownManifests>,
) -> Result<Deleted, BackupError> {
    let Session { root, cancel, .. } = session;
    let name = doomed.name.clone();
    let begun = cancel.or(Removal::begin(root, doomed)).await?;
    let Some(mut known) = known else {
        let begun = cancel.or(begun.unless_pinned()).await?;
        let gone = cancel.or(begun.remove_manifest()).await?;
        return cancel.or(gone.remove_objects()).await;
    };
    let mut removed = remove_manifests(root, vec![begun], &mut known, &[]).await;
    if let Some(error) = removed.failed {
        return Err(error);
    }
    match (removed.kept.pop(), removed.gone.pop()) {
        (Some((_, why)), _) => Err(why),
        (None, Some(gone)) => cancel.or(gone.remove_objects()).await,
        (None, None) => Err(RepoError::Changed { name }.into()),
    }
}

/// Begins the removal of the backup `name`, whether others depend on it or not.
///
/// # Errors
/// As [`delete`].
pub(super) async fn begin(root: &Root, name: &BackupName) -> Result<Removal, BackupError> {
    Removal::begin(root, plan(root, name).await?).await
}

/// Removes the backup `name`, including a stock one without a manifest. Leaves packed runs of that
/// name in progress alone. Does not check whether other backups depend on this one.
///
/// # Errors
/// [`RepoError::NotThere`] if there is none; [`BackupError::Pinned`]; [`RepoError::Folder`],
/// [`RepoError::Foreign`], [`RepoError::Linked`] or [`RepoError::Unrecognised`] if anything
/// else may exist below the name; [`RepoError::Manifest`] if the manifest requires a newer version;
/// [`RepoError::Running`] while a classic run of that name is in progress; [`RepoError::Store`]
/// if an object could not be removed: the name no longer counts as a backup then, and can be
/// deleted again.
pub async fn delete(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let root = root.knowing(&root.catalogue().await?);
    let begun = begin(&root, name).await?.unless_pinned().await?;
    begun.remove_manifest().await?.remove_objects().await
}
