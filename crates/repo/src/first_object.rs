//! Whether a backup has objects, as far as one or two requests show.

use crate::error::RepoError;
use crate::manifest::{Layout, Manifest};
use crate::names::BackupName;
use crate::root::Root;

/// Returns whether the backup with this manifest has objects.
pub(crate) async fn has_objects(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
) -> Result<bool, RepoError> {
    let run = Some(&*manifest.run).filter(|_| manifest.layout == Layout::Packed);
    has_any(root, name, run).await
}

/// Returns whether objects of a backup are shown, those of its run if it is packed. One listing without any decides nothing.
pub(crate) async fn has_any(
    root: &Root,
    name: &BackupName,
    run: Option<&str>,
) -> Result<bool, RepoError> {
    let folder = match run {
        Some(run) if has_first(root, name, run).await? => return Ok(true),
        Some(run) => format!("{name}/{run}"),
        None => name.to_string(),
    };
    Ok(root.has_objects(&folder).await? || root.has_objects(&folder).await?)
}

/// Returns whether the first object of a packed run exists. Costs less than a listing.
async fn has_first(root: &Root, name: &BackupName, run: &str) -> Result<bool, RepoError> {
    let key = root.run_keys(name, run).data(0);
    match root.store().size(&key).await.map_err(RepoError::from) {
        Ok(size) => Ok(size.is_some()),
        Err(error) if error.is_of_one_object() => Ok(true),
        Err(error) => Err(error),
    }
}
