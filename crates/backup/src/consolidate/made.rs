//! Looks for a full backup that an earlier run has made of a chain.

use xb_repo::error::RepoError;
use xb_repo::list::fault_of;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::resolve::{is_proven, manifests};
use xb_repo::root::Root;

/// The backup that was consolidated from the chain that ends with `last`, if there is one that is not known to be
/// damaged, and whether a trial restore has proven it. A proven one is preferred.
pub(super) async fn made_before(
    root: &Root,
    last: &Manifest,
) -> Result<Option<(BackupName, bool)>, RepoError> {
    let mut unproven = None;
    for (name, stored) in manifests(root).await?.sound {
        let stands_for = stored.manifest.stands_for();
        if stands_for.is_none_or(|link| link.run != last.run) {
            continue;
        }
        if fault_of(root, &name, &stored).await?.is_some() {
            continue;
        }
        if is_proven(root, &name, &stored).await? {
            return Ok(Some((name, true)));
        }
        unproven.get_or_insert((name, false));
    }
    Ok(unproven)
}
