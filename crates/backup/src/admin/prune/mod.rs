//! `prune`: decides by retention rules which backups to remove, and never removes one too many.

pub(crate) mod candidate;
pub(crate) mod plan;
pub(crate) mod verdict;

use crate::admin::delete::delete_unless_needed_by;
use crate::admin::prune::verdict::Verdict;
use crate::catalog::names::BackupName;
use crate::catalog::resolve::Known;
use crate::catalog::root::Root;
use crate::error::BackupError;

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
    let mut known = Known::default();
    for verdict in plan.iter().filter(|verdict| verdict.goes()) {
        let name = BackupName::new(&verdict.name)?;
        match root.manifest(&name).await {
            Ok(Some(manifest)) if manifest.run == verdict.run => {}
            Ok(_) => continue,
            Err(error) if error.is_of_one_object() => {
                done(&verdict.name, Some(&error));
                continue;
            }
            Err(error) => return Err(error),
        }
        match delete_unless_needed_by(root, &name, &mut known).await {
            Ok(_) => {
                done(&verdict.name, None);
                gone.push(verdict.name.clone());
            }
            // A new incremental backup may depend on this one by now.
            Err(BackupError::Pinned { .. } | BackupError::Needed { .. }) => {}
            Err(
                kept @ (BackupError::Foreign { .. }
                | BackupError::Linked { .. }
                | BackupError::Folder { .. }
                | BackupError::Unclear { .. }
                | BackupError::MayBeNeeded { .. }),
            ) => done(&verdict.name, Some(&kept)),
            Err(error) => return Err(error),
        }
    }
    Ok(gone)
}
