//! The commit of a backup: its manifest, and the checks after it that nothing was removed meanwhile.

use bytes::Bytes;
use xb_uploader::{Operation, StoreError, StoreErrorKind};

use super::Claim;
use super::mark::{await_removals, removing, take_back, take_back_unmarked};
use crate::error::RepoError;
use crate::first_object::lost;
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

/// The commit of a backup whose objects are stored, by the run that stored or copied them.
#[derive(Debug)]
pub struct Commit<'a> {
    /// The repository, for changes under the claim.
    pub root: &'a Root,
    /// Name of the backup.
    pub name: &'a BackupName,
    /// The run.
    pub run: &'a str,
    /// Its claim.
    pub claim: &'a Claim,
    /// The backups that a restore needs before this one.
    pub bases: &'a [Base],
}

impl Commit<'_> {
    /// Refuses a name that another run has committed, confirms the claim, and waits until no removal is under way
    /// that could harm the backup or its bases. [`Commit::write`] waits for those that begin later; but no signal ends
    /// that wait, because the manifest exists then, and a mark of a dead command counts for an hour.
    ///
    /// # Errors
    /// [`RepoError::Exists`], [`RepoError::Store`].
    pub async fn await_removals(&self) -> Result<(), RepoError> {
        let Self { root, name, run, .. } = self;
        refuse_committed(root, name, run).await?;
        // Before the look for removals: whoever takes this run for dead, because it slept, sees the claim, or is seen.
        self.claim.confirm().await?;
        await_removals(root, name, run).await?;
        for base in self.bases {
            await_removals(root, &BackupName::new(&base.name)?, &base.run).await?;
        }
        Ok(())
    }

    /// Writes the manifest, and checks that nothing that the backup needs was removed meanwhile: the objects of a
    /// packed run by `look`, which lists them, unless its error is an `outage` of the store. Not to be cancelled: it
    /// would be unknown whether the backup exists.
    ///
    /// # Errors
    /// That of `look` if objects are gone, [`RepoError::Chain`] if a base is: the manifest is removed again.
    /// [`RepoError::InDoubt`] if that cannot be determined.
    pub async fn write<T, E: From<RepoError>>(
        &self,
        manifest: Bytes,
        look: impl Future<Output = Result<T, E>>,
        outage: impl FnOnce(E) -> Result<StoreError, E>,
    ) -> Result<(), E> {
        let Self { root, name, run, claim, bases } = self;
        commit(root, name, run, manifest).await?;
        // The run may have slept at any moment before the commit; a process that took it for dead then saw no manifest.
        // That its mark is over may be the end of the objects. The name of a classic run is its own: see
        // `confirm_commit`.
        if !claim.holds_name()
            && let Err(error) = look.await
        {
            match outage(error) {
                Ok(source) => return Err(in_doubt(name, RepoError::Store(source)).into()),
                Err(gone) => {
                    take_back(root, name, run, claim).await?;
                    return Err(gone);
                }
            }
        }
        recheck_bases(root, name, run, bases, claim).await?;
        Ok(confirm_commit(root, name, claim, run).await?)
    }
}

/// Checks that no other run has committed: a store that ignores the condition of a write may also deny that it has a
/// manifest, so the catalogue must not list one either. Its requests take time, in which the objects are not watched: so
/// this comes before they are proven.
///
/// # Errors
/// [`RepoError::Exists`] if another run has committed; [`RepoError::Store`] also if the name is listed and cannot be read.
async fn refuse_committed(root: &Root, name: &BackupName, run: &str) -> Result<(), RepoError> {
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
pub(crate) async fn commit(
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
async fn confirm_commit(
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
pub(crate) async fn recheck_bases(
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
            Ok(Some(found)) if found.run == base.run => {
                lost(root, &of_base, &found).await.map(|lost| lost.is_none())
            }
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
