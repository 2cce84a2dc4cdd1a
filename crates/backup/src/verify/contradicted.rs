//! A listing that the objects themselves contradict shows no damage, and neither does an answer that an object does not
//! exist, which a listing or its headers contradict.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_repo::verification::Level;
use xb_uploader::{Operation, Store, StoreError, StoreErrorKind};

use crate::error::BackupError;

/// Objects asked for concurrently.
const AT_ONCE: usize = 16;

/// Asks for objects by their keys. `doubtful`: full keys, each with whether an object of a size contradicts the
/// listing. An object that does not exist contradicts none: what the listing shows of it, or does not, is damage.
///
/// # Errors
/// [`BackupError::Contradicted`] if an object contradicts the listing; any other error, after all retries.
pub(super) async fn refuse_contradicted<F: Fn(u64) -> bool>(
    store: &Store,
    doubtful: impl Iterator<Item = (String, F)>,
) -> Result<(), BackupError> {
    let asked = stream::iter(doubtful).map(|(key, contradicts)| async move {
        let contradicted = store.size(&key).await?.is_some_and(contradicts);
        Ok::<_, StoreError>((key, contradicted))
    });
    let mut asked = asked.buffered(AT_ONCE);
    while let Some((key, contradicted)) = asked.try_next().await? {
        if contradicted {
            let what = "the store has this object, but does not list it as it is";
            let source = StoreError::new(Operation::List, key, StoreErrorKind::Rejected, what);
            return Err(BackupError::Contradicted { level: Level::List, source });
        }
    }
    Ok(())
}

/// Fails if an object of which reads say that it does not exist is there: its headers are, or a listing still shows it.
///
/// # Errors
/// [`BackupError::Contradicted`] if it is; any other error, after all retries.
pub(super) async fn refuse_denied(
    store: &Store,
    key: &str,
    level: Level,
) -> Result<(), BackupError> {
    let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_there = store.size(key).await?.is_some()
        || store.list(folder).await?.iter().any(|listed| listed.key == key);
    match is_there {
        true => {
            let what = "the store has this object, but answers reads as if it did not exist";
            let source = StoreError::new(Operation::Get, key, StoreErrorKind::Rejected, what);
            Err(BackupError::Contradicted { level, source })
        }
        false => Ok(()),
    }
}
