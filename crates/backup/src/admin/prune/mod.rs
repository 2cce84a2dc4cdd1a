//! `prune`: decides by retention rules which backups to remove, and never removes one too many.

pub(crate) mod candidate;
pub(crate) mod retention;
mod same_data;
pub(crate) mod verdict;

use std::time::Duration;

use futures::future::join_all;
use xb_repo::chain::refuse_needed;
use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use crate::admin::delete;
use crate::admin::delete::removal::{RemainingBackup, Removal, WithoutManifest, remove_manifests};
use crate::admin::prune::verdict::{KeepReason, Verdict};
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::session::Session;

/// Backups removed between two listings of the catalogue. More would save little, and leave more
/// objects for `gc` if the command is cancelled.
const BATCH: usize = 32;
/// Objects of these backups, beyond which the batch ends: their keys are held in memory.
const BATCH_OBJECTS: usize = 100_000;
/// Time limit for freeing the names of a cancelled batch. After it, their claims count for an hour.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Result for one backup.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// It was removed, with all its objects.
    Removed,
    /// It was removed, but some of its objects are left, which `gc` removes.
    ObjectsLeft,
    /// It stays because of a run, of other objects below it, or of a manifest that cannot be read.
    Kept(&'a BackupError),
}

/// Removes the backups to be removed, in order, and returns their names. Each is checked again
/// first: one that was pinned, replaced or removed since, or is needed now, is skipped. None goes once a backup
/// that the rules keep is gone, or is about to be removed by another command.
///
/// `done` is called with the name of each backup as soon as that is settled. So the caller knows what is
/// gone even if a later removal fails.
///
/// # Errors
/// The first error of a batch of removals, and [`BackupError::Interrupted`]. What `done` got is gone;
/// objects may be left without a manifest, which `gc` removes.
pub async fn prune(
    session: &Session,
    plan: &[Verdict],
    done: impl FnMut(&str, Step<'_>),
) -> Result<Vec<String>, BackupError> {
    prune_known(session, plan, KnownManifests::default(), done).await
}

/// Like [`prune`], for a plan that was made from the `known` manifests: of these it reads again only those
/// that have changed since.
///
/// # Errors
/// As [`prune`].
pub async fn prune_known(
    session: &Session,
    plan: &[Verdict],
    mut known: KnownManifests,
    mut done: impl FnMut(&str, Step<'_>),
) -> Result<Vec<String>, BackupError> {
    let Session { root, cancel, .. } = session;
    let mut gone = Vec::new();
    let instead: Vec<RemainingBackup> = plan.iter().filter_map(kept_in_place_of_others).collect();
    let mut going = plan.iter().filter(|verdict| verdict.is_removed()).peekable();
    if going.peek().is_some() {
        cancel.or(known.refresh(root)).await?;
    }
    while going.peek().is_some() {
        let (begun, began) = begin(session, &mut going, &mut known, &mut done).await;
        if let Err(error) = began.as_ref()
            && ends_all(error)
        {
            let all = join_all(begun.into_iter().map(Removal::give_up));
            let _ = tokio::time::timeout(GIVE_UP, all).await;
            return began.map(|()| gone);
        }
        let removed = remove_manifests(root, begun, &mut known, &instead).await;
        for (name, why) in removed.kept.iter().filter(|(_, why)| keeps(why)) {
            done(name.as_str(), Step::Kept(why));
        }
        let mut failed = began.err().or(removed.failed);
        let (mut ended, mut left) = (false, Vec::new());
        for removed in removed.gone {
            // Without its manifest, it is no backup any more, even if objects are left.
            let name = removed.name().to_string();
            gone.push(name.clone());
            let cleared = match (ended, cancel.reason()) {
                (false, None) => cancel.or(removed.remove_objects()).await.map(|_| true),
                (ended, signal) => {
                    left.push(removed);
                    signal
                        .filter(|_| !ended)
                        .map_or(Ok(false), |s| Err(BackupError::Interrupted(s)))
                }
            };
            let all = matches!(cleared, Ok(true));
            done(&name, if all { Step::Removed } else { Step::ObjectsLeft });
            if let Err(error) = cleared {
                ended = ends_all(&error);
                failed.get_or_insert(error);
            }
        }
        let freeing = join_all(left.into_iter().map(WithoutManifest::leave_objects));
        let _ = tokio::time::timeout(GIVE_UP, freeing).await;
        if let Some(failed) = failed {
            return Err(failed);
        }
        if going.peek().is_some() {
            cancel.or(known.refresh(root)).await?;
        }
    }
    Ok(gone)
}

/// Begins the removals of a batch. Stops at the first error that does not concern a single backup.
async fn begin<'a>(
    session: &Session,
    going: &mut impl Iterator<Item = &'a Verdict>,
    known: &mut KnownManifests,
    done: &mut impl FnMut(&str, Step<'_>),
) -> (Vec<Removal>, Result<(), BackupError>) {
    let (mut begun, mut objects) = (Vec::new(), 0);
    while begun.len() < BATCH && objects < BATCH_OBJECTS {
        let Some(verdict) = going.next() else { break };
        match session.cancel.or(begin_one(&session.root, verdict, known)).await {
            Ok(Some(removal)) => {
                objects += removal.objects();
                begun.push(removal);
            }
            Ok(None) => {}
            // Another `prune` may be removing it.
            Err(
                BackupError::Pinned { .. }
                | BackupError::Repo(
                    RepoError::Needed { .. }
                    | RepoError::NotThere { .. }
                    | RepoError::Unrecognised { .. }
                    | RepoError::Changed { .. },
                ),
            ) => {}
            Err(error) if keeps(&error) => done(&verdict.name, Step::Kept(&error)),
            Err(error) => return (begun, Err(error)),
        }
    }
    (begun, Ok(()))
}

/// Begins a removal; `None` if the backup was replaced or removed.
async fn begin_one(
    root: &Root,
    verdict: &Verdict,
    known: &mut KnownManifests,
) -> Result<Option<Removal>, BackupError> {
    let name = BackupName::new(&verdict.name)?;
    let root = &known.seen_in(root);
    match refuse_needed(root, &name, known).await? {
        Some(manifest) if manifest.run == verdict.run => {}
        _ => return Ok(None),
    }
    let begun = delete::begin(root, &name).await?;
    if begun.run() != Some(&verdict.run) {
        begun.give_up().await;
        return Ok(None);
    }
    if let Err(old) = begun.refuse_old(known) {
        begun.give_up().await;
        return Err(old.into());
    }
    // Its bases may go with it.
    known.leave_out(&name);
    Ok(Some(begun))
}

/// Returns whether an error concerns one backup only, which therefore stays.
fn keeps(error: &BackupError) -> bool {
    matches!(
        error,
        BackupError::Repo(
            RepoError::Running { .. }
                | RepoError::Foreign { .. }
                | RepoError::Linked { .. }
                | RepoError::Folder { .. }
                | RepoError::Unclear { .. }
                | RepoError::OtherRun { .. }
                | RepoError::MayBeNeeded { .. }
                | RepoError::Overtaken { .. }
        )
    )
}

/// A backup that the rules keep, so that others go.
fn kept_in_place_of_others(verdict: &Verdict) -> Option<RemainingBackup> {
    verdict.kept.iter().any(KeepReason::is_rule).then_some(())?;
    Some((BackupName::new(&verdict.name).ok()?, verdict.run.clone()))
}

/// Returns whether an error makes further requests useless.
fn ends_all(error: &BackupError) -> bool {
    match error {
        BackupError::Interrupted(_) => true,
        BackupError::Repo(RepoError::Store(store)) => {
            store.kind != StoreErrorKind::Fenced && !error.is_of_one_object()
        }
        _ => false,
    }
}
