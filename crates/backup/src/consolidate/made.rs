//! Looks for a full backup that an earlier run has made of a chain.

use xb_repo::chain::Link;
use xb_repo::error::RepoError;
use xb_repo::list::fault_of;
use xb_repo::manifest::{Manifest, MergedLink};
use xb_repo::names::BackupName;
use xb_repo::resolve::{is_proven, manifests};
use xb_repo::root::Root;

/// The backup that was consolidated from `chain`, the full backup first, if there is one that is not known to be
/// damaged, and whether a trial restore has proven it. A proven one is preferred. One that states other links, or other
/// facts than the last of them, was not made of this chain; nor was an unsealed one, if the chain is sealed. One that may lack
/// imported tablespaces is left alone.
pub(super) async fn made_before(
    root: &Root,
    chain: &[Link],
) -> Result<Option<(BackupName, bool)>, RepoError> {
    let links: Vec<MergedLink> = chain.iter().map(|link| link.stored.merged_link()).collect();
    let Some(last) = chain.last().map(|link| &link.stored.manifest) else { return Ok(None) };
    let is_sealed = chain.iter().any(|link| link.stored.manifest.is_sealed());
    let mut unproven = None;
    for (name, stored) in manifests(root).await?.sound {
        let made = &stored.manifest;
        let is_of_chain = made.consolidated_from == links && has_facts(made, last);
        // Earlier versions made some without a word, and proved them.
        let is_of_chain = is_of_chain && !made.may_lack_imports();
        if !is_of_chain || (is_sealed && !made.is_sealed()) {
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

/// Returns whether a merged backup states what the last link does. Earlier versions did not note where a redo log begins, which
/// the merged one does.
fn has_facts(made: &Manifest, last: &Manifest) -> bool {
    let mut last = last.clone();
    last.source.redo_start_lsn = last.source.redo_start_lsn.or(made.source.redo_start_lsn);
    made.has_the_facts_of(&last)
}
