//! `prune`: decides by retention rules which backups to remove, and never removes one too many.

pub(crate) mod candidate;
pub(crate) mod plan;
pub(crate) mod verdict;

use crate::admin::delete::begin_unless_needed;
use crate::admin::delete::removal::{Removal, remove_unless_needed};
use crate::admin::prune::verdict::Verdict;
use crate::catalog::names::BackupName;
use crate::catalog::resolve::Known;
use crate::catalog::root::Root;
use crate::error::BackupError;

/// Backups removed between two listings of the catalogue. More would save little, and leave more
/// half-deleted ones if the command is killed.
const BATCH: usize = 32;

/// Removes the backups to be removed, in order, and returns their names. Each is checked again
/// first: one that was pinned, replaced or removed since, or is needed now, is skipped.
///
/// `done` is called with each name at once, and with the reason if a backup is kept because other
/// objects exist below it. So the caller knows what is gone even if a later removal fails.
///
/// # Errors
/// The error of the first removal that failed; earlier ones remain in effect.
pub async fn prune(
    root: &Root,
    plan: &[Verdict],
    mut done: impl FnMut(&str, Option<&BackupError>),
) -> Result<Vec<String>, BackupError> {
    let mut gone = Vec::new();
    let mut known = Known::of(root).await?;
    let going: Vec<&Verdict> = plan.iter().filter(|verdict| verdict.goes()).collect();
    for (number, batch) in going.chunks(BATCH).enumerate() {
        if number > 0 {
            known.refresh(root).await?;
        }
        let mut begun = Vec::new();
        let mut failed = None;
        for verdict in batch {
            match begin(root, verdict, &mut known).await {
                Ok(removal) => begun.extend(removal),
                Err(error) if keeps(&error) => done(&verdict.name, Some(&error)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        remove_unless_needed(root, begun, &mut known, |name, outcome| {
            if outcome.is_ok() {
                done(name.as_str(), None);
                gone.push(name.to_string());
            }
        })
        .await?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(gone)
}

/// Begins a removal; `None` if the backup was replaced, removed or pinned, or is needed by now.
async fn begin(
    root: &Root,
    verdict: &Verdict,
    known: &mut Known,
) -> Result<Option<Removal>, BackupError> {
    let name = BackupName::new(&verdict.name)?;
    match root.manifest(&name).await {
        Ok(Some(manifest)) if manifest.run == verdict.run => {}
        Ok(_) => return Ok(None),
        Err(error) if error.is_of_one_object() => {
            return Err(BackupError::Unclear { name: name.to_string(), source: Box::new(error) });
        }
        Err(error) => return Err(error),
    }
    match begin_unless_needed(root, &name, known).await {
        Ok(removal) => {
            // What it depends on may go with it.
            known.forget(&name);
            Ok(Some(removal))
        }
        Err(BackupError::Pinned { .. } | BackupError::Needed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error concerns one backup only, which therefore stays.
fn keeps(error: &BackupError) -> bool {
    matches!(
        error,
        BackupError::Foreign { .. }
            | BackupError::Linked { .. }
            | BackupError::Folder { .. }
            | BackupError::Unclear { .. }
            | BackupError::MayBeNeeded { .. }
    )
}
