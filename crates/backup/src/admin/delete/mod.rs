//! `delete`: removes the manifest first, so that a half-deleted backup never looks complete.
//!
//! The objects are listed once, and exactly the listed ones are removed. The delete is refused if
//! objects of other programs or other backups exist below the name.
//!
//! The objects of a classic backup have no RUN: without their manifest they would look like a stock
//! backup. So the delete claims the name first, like a run, and holds it until all objects are
//! gone.

mod plan;
pub(crate) mod removal;

use self::plan::plan;
pub use self::plan::{DeletionPlan, DoomedObject};
pub use self::removal::Deleted;
use self::removal::{Removal, settle};
use crate::catalog::chain::refuse_needed;
use crate::catalog::names::BackupName;
use crate::catalog::resolve::Known;
use crate::catalog::root::Root;
use crate::error::BackupError;

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
    let known = known(root, unless_needed).await?;
    doomed_unless(root, name, known.as_ref()).await
}

async fn known(root: &Root, unless_needed: bool) -> Result<Option<Known>, BackupError> {
    Ok(if unless_needed { Some(Known::of(root).await?) } else { None })
}

async fn doomed_unless(
    root: &Root,
    name: &BackupName,
    known: Option<&Known>,
) -> Result<DeletionPlan, BackupError> {
    if let Some(known) = known {
        refuse_needed(root, name, known).await?;
    }
    let mut doomed = plan(root, name).await?;
    doomed.how.unless_needed = known.is_some();
    Ok(doomed)
}

/// Removes the backup `name`, unless others depend on it.
///
/// # Errors
/// [`BackupError::Needed`]; [`BackupError::MayBeNeeded`] if the manifest of a later backup cannot
/// be read; [`BackupError::Unclear`] if its own manifest cannot be read; otherwise as [`delete`].
pub async fn delete_unless_needed(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let mut known = Known::of(root).await?;
    let begun = begin_unless_needed(root, name, &known).await?;
    remove_unless_needed(root, begun, &mut known).await
}

/// Begins the removal of the backup `name`, unless a `known` one depends on it.
///
/// # Errors
/// As [`delete_unless_needed`].
pub(super) async fn begin_unless_needed(
    root: &Root,
    name: &BackupName,
    known: &Known,
) -> Result<Removal, BackupError> {
    Removal::begin(root, doomed_unless(root, name, Some(known)).await?).await
}

async fn remove_unless_needed(
    root: &Root,
    begun: Removal,
    known: &mut Known,
) -> Result<Deleted, BackupError> {
    let name = begun.name().to_string();
    let mut settled = settle(root, vec![begun], known).await;
    match (settled.failed, settled.kept.pop(), settled.unneeded.pop()) {
        (Some(error), ..) | (None, Some((_, error)), _) => Err(error),
        (None, None, Some(unneeded)) => unneeded.remove_objects().await,
        (None, None, None) => Err(BackupError::Changed { name }),
    }
}

/// Removes what [`doomed`] returned, if a delete would still remove the same.
///
/// # Errors
/// [`BackupError::Changed`]; otherwise as [`delete`], or [`delete_unless_needed`].
pub async fn delete_shown(root: &Root, shown: &DeletionPlan) -> Result<Deleted, BackupError> {
    let name = BackupName::new(&shown.name)?;
    let mut known = known(root, shown.how.unless_needed).await?;
    let doomed = doomed_unless(root, &name, known.as_ref()).await?;
    if doomed != *shown {
        return Err(BackupError::Changed { name: shown.name.clone() });
    }
    let begun = Removal::begin(root, doomed).await?;
    match &mut known {
        Some(known) => remove_unless_needed(root, begun, known).await,
        None => begun.remove().await,
    }
}

/// Removes the backup `name`, including a stock one without a manifest. Leaves packed runs of that
/// name in progress alone. Does not check whether other backups depend on this one.
///
/// # Errors
/// [`BackupError::NotThere`] if there is none; [`BackupError::Pinned`]; [`BackupError::Folder`],
/// [`BackupError::Foreign`], [`BackupError::Linked`] or [`BackupError::Unrecognised`] if anything
/// else may exist below the name; [`BackupError::Manifest`] if the manifest requires a newer version;
/// [`BackupError::Running`] while a classic run of that name is in progress; [`BackupError::Store`]
/// if an object could not be removed: the name no longer counts as a backup then, and can be
/// deleted again.
pub async fn delete(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    Removal::begin(root, plan(root, name).await?).await?.remove().await
}
