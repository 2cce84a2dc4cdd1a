//! Where the objects of a run go: claimed before, compared with what was sent after, and cleared after a failure.

use xb_uploader::Listed;

use crate::claim::{Claim, may_be_its_own};
use crate::classic::remove_classic_objects;
use crate::contents::Contents;
use crate::error::BackupError;
use crate::manifest::{Layout, Manifest};
use crate::names::{RunId, claims_folder, is_data_object, of_classic, of_packed_run, run_folder};
use crate::root::Root;

use super::{CLEAN_UP, PutRequest};

/// Where the objects of a run go, claimed for it.
pub(super) struct Place {
    pub(super) run: RunId,
    /// Folder of the objects, below ROOT.
    pub(super) folder: String,
    pub(super) claim: Claim,
}

impl Place {
    pub(super) async fn claim(
        root: &Root,
        request: &PutRequest,
        run: RunId,
    ) -> Result<Self, BackupError> {
        let name = &request.name;
        match request.layout {
            Layout::Packed => {
                let folder = run_folder(name, run);
                let claim = Claim::packed(root, name, run).await?;
                let place = Self { run, folder, claim };
                // Our manifest would hide a stock backup of this name.
                if let Err(taken) = Contents::of(root, name).await?.refuse_taken(name) {
                    let _ = place.clean_up(root, request).await;
                    return Err(taken);
                }
                Ok(place)
            }
            Layout::Classic => {
                let (claim, dead) = Claim::classic(root, name, run).await?;
                let place = Self { run, folder: name.to_string(), claim };
                let refused = |state| BackupError::Exists { name: name.to_string(), state };
                // Only now: a run that has finished meanwhile wrote its manifest before it gave up its claim.
                if root.manifest(name).await?.is_some() {
                    place.give_up_claim(root).await;
                    return Err(refused(""));
                }
                let objects = root.list_below(name.as_str()).await?;
                let mut objects = objects.iter().filter(|listed| !of_packed_run(&listed.key));
                let newest = objects.by_ref().map(|listed| listed.modified).max();
                match (newest, dead) {
                    (None, _) => {}
                    // The dead run began in an empty folder and ended soon after its last sign of
                    // life: what is newer is somebody else's, and then all of it may be.
                    (Some(newest), Some(seen)) if may_be_its_own(newest, seen) => {
                        remove_classic_objects(root, name).await?;
                    }
                    _ => {
                        place.give_up_claim(root).await;
                        return Err(refused(" (stock, unproven)"));
                    }
                }
                Ok(place)
            }
        }
    }

    /// A claim that stays holds nobody up for long, so a store in trouble must not hold up the end.
    pub(super) async fn give_up_claim(&self, root: &Root) {
        let _ = tokio::time::timeout(CLEAN_UP, root.store().delete(self.claim.key())).await;
    }

    /// Removes what the failed run has written.
    pub(super) async fn clean_up(
        &self,
        root: &Root,
        request: &PutRequest,
    ) -> Result<(), BackupError> {
        match request.layout {
            // The claim lies in the same folder.
            Layout::Packed => drop(root.remove_below(&self.folder).await?),
            Layout::Classic => {
                // Another run that took over has made the folder its own.
                if !self.claim.still_ours(root, &request.name).await? {
                    return Ok(());
                }
                remove_classic_objects(root, &request.name).await?;
                root.store().delete(&root.key(&format!("{}.md5", request.name))).await?;
                // Claims of dead runs before us went with their objects.
                root.remove_below(&claims_folder(&request.name)).await?;
            }
        }
        Ok(())
    }
}

/// Compares the objects in a run's folder with its manifest: a run that stood still for long may have been
/// taken for dead, and its objects removed.
pub(super) async fn all_is_there(
    root: &Root,
    folder: &str,
    manifest: &Manifest,
) -> Result<(), BackupError> {
    all_are_there(manifest, &root.list_below(folder).await?)
}

/// The same for a listing of the folder.
pub(crate) fn all_are_there(manifest: &Manifest, listed: &[Listed]) -> Result<(), BackupError> {
    let of_it = |object: &&Listed| match manifest.layout {
        Layout::Packed => is_data_object(&object.key),
        Layout::Classic => of_classic(&object.key),
    };
    let (objects, bytes) = listed
        .iter()
        .filter(of_it)
        .fold((0, 0), |(objects, bytes), object| (objects + 1, bytes + object.size));
    if (objects, bytes) == (manifest.objects, manifest.stored_bytes) {
        return Ok(());
    }
    let what = format!(
        "{} objects with {} bytes were stored, {objects} with {bytes} are there: somebody has removed or replaced some",
        manifest.objects, manifest.stored_bytes
    );
    Err(BackupError::Damaged { name: manifest.name.clone(), what })
}
