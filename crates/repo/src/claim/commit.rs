//! The commit of a backup: its manifest, and the checks after it that nothing was removed meanwhile.

use bytes::Bytes;
use xb_uploader::{Operation, StoreError, StoreErrorKind};

use super::Claim;
use super::mark::{await_removals, removing, take_back, take_back_unmarked};
use crate::error::RepoError;
use crate::first_object::has_objects;
use crate::manifest::Base;
use crate::names::BackupName;
use crate::root::Root;

/// Once a manifest may be written, an error of the store leaves open whether the backup exists.
fn in_doubt(name: &BackupName, error: RepoError) -> RepoError {
    match error {
        RepoError::Store(source) => RepoError::InDoubt { name: name.to_string(), source },
        other => other,
    }
}

/// Checks that no other run has committed: a store that ignores the condition of a write may also deny that it has a
/// manifest, so the catalogue must not list one either. Its requests take time, in which the objects are not watched: so
/// this comes before they are proven.
///
/// # Errors
/// [`RepoError::Exists`] if another run has committed; [`RepoError::Store`] also if the name is listed and cannot be read.
pub async fn refuse_committed(root: &Root, name: &BackupName, run: &str) -> Result<(), RepoError> {
    let catalogue = root.catalogue().await?;
    if !catalogue.shows(name.as_str()) {
        return Ok(());
    }
    match root.knowing(&catalogue).manifest(name).await? {
        Some(there) if there.run != run => {
            let state = ": another run committed it first";
            Err(RepoError::Exists { name: name.to_string(), state })
        }
        _ => Ok(()),
    }
}

/// Writes the manifest, after which the backup exists.
///
/// An earlier backup of this name may be in the middle of its removal: the name is free, and a late
/// request of the removal could hit the new manifest. So the caller has waited for it ([`await_removals`]),
/// and one that has begun since is waited for here. Such a removal may have been one of the objects of this very
/// run, if that looked dead; so may one that is over. The caller looks for the objects once more: see
/// [`take_back`].
///
/// # Errors
/// As [`Root::commit_bytes`]; [`RepoError::NotThere`] if the new backup was removed at once.
pub async fn commit(
    root: &Root,
    name: &BackupName,
    run: &str,
    bytes: Bytes,
) -> Result<(), RepoError> {
    let in_doubt = |error| in_doubt(name, error);
    loop {
        root.commit_bytes(name, bytes.clone()).await?;
        let Some(of) = removing(root, name, run).await.map_err(in_doubt)? else { return Ok(()) };
        await_removals(root, name, run).await.map_err(in_doubt)?;
        let known = root.knowing(&root.catalogue().await.map_err(in_doubt)?);
        match known.manifest(name).await.map_err(in_doubt)? {
            Some(there) if there.run == run => return Ok(()),
            // The request was meant for the backup before this one.
            None if of.run != run => {}
            _ => {
                let state = ": it was complete, and another command removed it";
                return Err(RepoError::NotThere { name: name.to_string(), state });
            }
        }
    }
}

/// Ends `run`, whose manifest is written. A run that claimed the name before the manifest was
/// written may be removing the objects: then there is no backup.
///
/// # Errors
/// [`RepoError::InDoubt`] if that cannot be determined.
pub async fn confirm_commit(
    root: &Root,
    name: &BackupName,
    claim: &Claim,
    run: &str,
) -> Result<(), RepoError> {
    let in_doubt = |error| in_doubt(name, error);
    if claim.is_newest().await.map_err(in_doubt)? {
        claim.end().await;
        return Ok(());
    }
    let key = root.manifest_key(name);
    take_back_unmarked(root, name, run).await.map_err(in_doubt)?;
    let what = "another run took over while the manifest was being written";
    Err(StoreError::new(Operation::Claim, key, StoreErrorKind::Fenced, what).into())
}

/// Checks after the commit that the `bases` of an incremental backup still exist. Whoever removes one
/// marks it, and then looks for dependants; so either they see this backup, or it sees their mark here
/// and waits for what becomes of the base. Below its own base, they may have looked before the backups in
/// between were committed, whose runs may have died since. A late request may have written the manifest of a base again
/// that is gone, so its objects count, too. `own` is the claim of the run.
///
/// # Errors
/// [`RepoError::Chain`] if one is gone: the manifest of `name` is removed again.
/// [`RepoError::InDoubt`] if that cannot be determined.
pub async fn recheck_bases(
    root: &Root,
    name: &BackupName,
    run: &str,
    bases: &[Base],
    own: &Claim,
) -> Result<(), RepoError> {
    let in_doubt = |error| in_doubt(name, error);
    let mut names = Vec::with_capacity(bases.len());
    for base in bases {
        let of_base = BackupName::new(&base.name)?;
        await_removals(root, &of_base, &base.run).await.map_err(in_doubt)?;
        names.push((of_base, base));
    }
    if names.is_empty() {
        return Ok(());
    }
    // One false answer must not cost a backup.
    let known = root.knowing(&root.catalogue().await.map_err(in_doubt)?);
    for (of_base, base) in names {
        let is_there = match known.manifest(&of_base).await {
            Ok(Some(found)) if found.run == base.run => has_objects(root, &of_base, &found).await,
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        match is_there {
            Ok(true) => {}
            Ok(false) => {
                take_back(root, name, run, own).await?;
                let what = format!(
                    "{of_base}, which its chain needs, was removed while it was being committed"
                );
                return Err(RepoError::Chain { name: name.to_string(), what });
            }
            // It exists, although it cannot be read now.
            Err(error) if error.is_of_one_object() => {}
            Err(error) => return Err(in_doubt(error)),
        }
    }
    Ok(())
}
