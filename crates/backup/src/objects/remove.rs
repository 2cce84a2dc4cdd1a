//! Removes objects, and checks that they no longer exist. A store may say that an object is removed, or that there is none, and keep it.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_repo::error::RepoError;
use xb_repo::root::Root;
use xb_uploader::{Operation, StoreError, StoreErrorKind};

/// Maximum number of repeated removals of what stayed.
const REMOVE_AGAIN: u32 = 3;
/// Objects asked for concurrently.
const AT_ONCE: usize = 16;

/// Removes objects in the folder `below` ROOT, by their full keys.
///
/// # Errors
/// [`RepoError::Store`], also if the store says that an object is removed, and still has it.
pub(crate) async fn remove_objects(
    root: &Root,
    below: &str,
    keys: Vec<String>,
) -> Result<(), RepoError> {
    if keys.is_empty() {
        return Ok(());
    }
    root.store().delete_all(keys.clone()).await?;
    if root.store().is_folder() {
        return Ok(());
    }
    let keys: BTreeSet<String> = keys.into_iter().collect();
    for retry in 1..=REMOVE_AGAIN {
        let left = still_there(root, below, &keys).await?;
        if left.is_empty() {
            return Ok(());
        }
        root.store().pause(retry).await;
        root.store().delete_all(left).await?;
    }
    match still_there(root, below, &keys).await?.first() {
        None => Ok(()),
        Some(key) => {
            let what = "the store reported this object as removed, but still lists it";
            Err(StoreError::new(Operation::Delete, key, StoreErrorKind::Altered, what).into())
        }
    }
}

/// Those of `keys` that are listed and exist. A listing alone shows no object to be there: it may lag behind.
async fn still_there(
    root: &Root,
    below: &str,
    keys: &BTreeSet<String>,
) -> Result<Vec<String>, RepoError> {
    let listed = root.list_below(below).await?.into_iter();
    let listed = listed.map(|object| root.key(&format!("{below}/{}", object.key)));
    let listed: Vec<String> = listed.filter(|key| keys.contains(key)).collect();
    let asked = stream::iter(listed).map(|key| async move {
        let exists = root.store().size(&key).await?.is_some();
        Ok::<_, RepoError>(exists.then_some(key))
    });
    let there: Vec<Option<String>> = asked.buffered(AT_ONCE).try_collect().await?;
    Ok(there.into_iter().flatten().collect())
}
