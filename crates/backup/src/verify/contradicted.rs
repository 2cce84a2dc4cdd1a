//! A listing that the objects themselves contradict shows no damage.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_uploader::{Operation, Store, StoreError, StoreErrorKind};

/// Objects asked for concurrently.
const AT_ONCE: usize = 16;

/// Asks for objects by their keys. `listed`: full keys, each with the size that a listing showed, or `None` if
/// the listing did not show the object.
///
/// # Errors
/// [`StoreErrorKind::Rejected`] if an object is not as it was listed; any other error, after all retries.
pub(super) async fn refuse_contradicted(
    store: &Store,
    listed: impl Iterator<Item = (String, Option<u64>)>,
) -> Result<(), StoreError> {
    let sizes = stream::iter(listed).map(|(key, listed)| async move {
        let size = store.size(&key).await?;
        Ok::<_, StoreError>((key, size == listed))
    });
    let mut sizes = sizes.buffered(AT_ONCE);
    while let Some((key, is_as_listed)) = sizes.try_next().await? {
        if !is_as_listed {
            let what = "the store has this object, but does not list it as it is";
            return Err(StoreError::new(Operation::List, key, StoreErrorKind::Rejected, what));
        }
    }
    Ok(())
}
