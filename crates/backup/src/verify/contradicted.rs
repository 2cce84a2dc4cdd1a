//! A listing that the objects themselves contradict shows no damage, and neither does an answer that an object does not
//! exist, which a listing or its headers contradict.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_uploader::{Operation, Store, StoreError, StoreErrorKind};

/// Objects asked for concurrently.
const AT_ONCE: usize = 16;

/// Asks for objects by their keys. `doubtful`: full keys, each with whether an object of a size contradicts the
/// listing. An object that does not exist contradicts none: what the listing shows of it, or does not, is damage.
///
/// # Errors
/// [`StoreErrorKind::Rejected`] if an object contradicts the listing; any other error, after all retries.
pub(super) async fn refuse_contradicted<F: Fn(u64) -> bool>(
    store: &Store,
    doubtful: impl Iterator<Item = (String, F)>,
) -> Result<(), StoreError> {
    let asked = stream::iter(doubtful).map(|(key, contradicts)| async move {
        let contradicted = store.size(&key).await?.is_some_and(contradicts);
        Ok::<_, StoreError>((key, contradicted))
    });
    let mut asked = asked.buffered(AT_ONCE);
    while let Some((key, contradicted)) = asked.try_next().await? {
        if contradicted {
            let what = "the store has this object, but does not list it as it is";
            return Err(StoreError::new(Operation::List, key, StoreErrorKind::Rejected, what));
        }
    }
    Ok(())
}

/// Fails if an object of which reads say that it does not exist is there: its headers are, or a listing still shows it.
///
/// # Errors
/// [`StoreErrorKind::Rejected`] if it is; any other error, after all retries.
pub(super) async fn refuse_denied(store: &Store, key: &str) -> Result<(), StoreError> {
    let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_there = store.size(key).await?.is_some()
        || store.list(folder).await?.iter().any(|listed| listed.key == key);
    match is_there {
        true => {
            let what = "the store has this object, but answers reads as if it did not exist";
            Err(StoreError::new(Operation::Get, key, StoreErrorKind::Rejected, what))
        }
        false => Ok(()),
    }
}
