//! Object locks on all objects of a backup and of those that it needs, so that none can be removed before
//! the lock expires.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use xb_repo::chain::chain;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::names::{BackupName, CLAIM, KEYS, SUMS, in_packed_run, of_classic};
use xb_repo::root::Root;
use xb_uploader::{Lock, Service, StoreError, StoreErrorKind};

use crate::error::BackupError;
use crate::write::all_are_there;

/// Result of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockReport {
    /// Number of locked objects, those of its chain included.
    pub objects: u64,
    /// Why not all backups that a restore needs are locked.
    pub incomplete: Option<String>,
}

/// Locks all objects of a complete backup, its manifest last, with up to `parallel` concurrent
/// requests. Does not lock claims and records, because they change.
///
/// The backups that an incremental one needs are locked before it, at least as long: a longer or
/// stricter lock stays.
///
/// # Errors
/// [`BackupError::Unlocked`] if the store refuses; some objects may be locked then. [`RepoError::Store`] and
/// [`RepoError::Manifest`] if the manifest of a base cannot be read, although it is there.
pub async fn lock(
    root: &Root,
    name: &BackupName,
    lock: &Lock,
    parallel: usize,
) -> Result<LockReport, BackupError> {
    let manifest = xb_repo::list::describe(root, name).await?.manifest;
    root.store().can_lock().await.map_err(|source| unlocked(name, source))?;
    let mut locked = LockReport { objects: 0, incomplete: None };
    let mut unread = None;
    if manifest.is_incremental() {
        match chain(root, name).await {
            Ok(links) => {
                for link in links.iter().filter(|link| link.name != *name) {
                    let locking =
                        lock_one(root, &link.name, &link.stored.manifest, lock, true, parallel);
                    locked.objects += locking.await?;
                }
            }
            // Such as an archive of increments alone.
            Err(error @ RepoError::Chain { .. }) => locked.incomplete = Some(error.to_string()),
            // The backup itself is locked nevertheless.
            Err(error) if error.is_of_one_object() => unread = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    locked.objects += lock_one(root, name, &manifest, lock, false, parallel).await?;
    unread.map_or(Ok(locked), |error| Err(error.into()))
}

/// Lock of the backups of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainLock {
    /// All are locked, at least until then.
    Until(Timestamp),
    /// At least one is not locked.
    Open,
    /// The store does not tell, and why.
    Unknown(&'static str),
}

impl ChainLock {
    /// Reads the store's answer about one backup.
    fn of(asked: Result<Option<Lock>, StoreError>, now: Timestamp) -> Result<Self, StoreError> {
        match asked {
            // A store keeps the time of a lock that has expired.
            Ok(Some(lock)) if lock.until > now => Ok(Self::Until(lock.until)),
            Ok(_) => Ok(Self::Open),
            Err(error) if error.kind == StoreErrorKind::Denied => {
                Ok(Self::Unknown("not permitted, grant s3:GetObjectRetention"))
            }
            Err(error) => Err(error),
        }
    }

    /// The lock of two together: one that is open makes the chain open, whatever is unknown.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            (Self::Unknown(why), _) | (_, Self::Unknown(why)) => Self::Unknown(why),
            (Self::Until(one), Self::Until(other)) => Self::Until(one.min(other)),
        }
    }
}

/// The lock of these backups. The manifest, which [`lock`] locks last, stands for all objects of a backup.
///
/// # Errors
/// Any error of the store, unless it only does not permit the question.
pub async fn chain_lock(root: &Root, names: &[BackupName]) -> Result<ChainLock, BackupError> {
    let store = root.store();
    if store.is_folder() {
        return Ok(ChainLock::Open);
    }
    if store.service() != Service::S3 {
        return Ok(ChainLock::Unknown("only S3 stores can be asked"));
    }
    let mut all: Option<ChainLock> = None;
    for name in names {
        let asked = store.lock_of(&root.manifest_key(name)).await;
        let own = ChainLock::of(asked, Timestamp::now()).map_err(RepoError::from)?;
        all = Some(all.map_or(own, |all| all.and(own)));
    }
    Ok(all.unwrap_or(ChainLock::Open))
}

/// Locks the objects of one backup; `at_least`: a longer or stricter lock stays.
async fn lock_one(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    lock: &Lock,
    at_least: bool,
    parallel: usize,
) -> Result<u64, BackupError> {
    let set = async |key: &str| match at_least {
        true => root.store().lock_at_least(key, lock).await,
        false => root.store().lock(key, lock).await,
    };
    let packed = manifest.layout == Layout::Packed;
    let run_keys = match manifest.run_id() {
        Some(run) if packed => root.run_keys(name, run),
        _ => root.classic_keys(name),
    };
    let list = async || {
        root.list_below(run_keys.folder()).await.map_err(|error| match error {
            RepoError::Store(source) => unlocked(name, source),
            other => other.into(),
        })
    };
    let mut objects = list().await?;
    if all_are_there(manifest, &objects).is_err() {
        // One listing that is short is no damage.
        objects = list().await?;
    }
    all_are_there(manifest, &objects)?;
    objects.retain(|listed| match packed {
        true => in_packed_run(&listed.key) && listed.key != CLAIM,
        false => of_classic(&listed.key),
    });
    let mut keys: Vec<String> = objects.iter().map(|listed| run_keys.at(&listed.key)).collect();
    // Objects that no number in the manifest counts: a listing that is short at its end lacks just these.
    if packed && manifest.is_sealed() {
        keys.push(run_keys.at(KEYS));
    }
    let sums = match packed {
        true => run_keys.at(SUMS),
        false => root.classic_sums(name).at(&manifest.run),
    };
    if root.store().size(&sums).await.map_err(|e| unlocked(name, e))?.is_some() {
        keys.push(sums);
    }
    keys.sort_unstable();
    keys.dedup();
    stream::iter(&keys)
        .map(|key| set(key))
        .buffer_unordered(parallel.max(1))
        .try_collect::<()>()
        .await
        .map_err(|source| unlocked(name, source))?;
    let manifest = root.manifest_key(name);
    set(&manifest).await.map_err(|source| unlocked(name, source))?;
    Ok(keys.len() as u64 + 1)
}

fn unlocked(name: &BackupName, source: StoreError) -> BackupError {
    BackupError::Unlocked { name: name.to_string(), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use xb_uploader::{LockMode, Operation};

    use super::*;

    #[test]
    fn an_expired_lock_is_none_and_an_untold_one_is_unknown() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let now = at(1000);
        let lock = |until| Ok(Some(Lock { mode: LockMode::Compliance, until: at(until) }));
        let of = |asked| ChainLock::of(asked, now);
        assert_eq!(of(lock(1001)).unwrap(), ChainLock::Until(at(1001)));
        assert_eq!(of(lock(1000)).unwrap(), ChainLock::Open);
        assert_eq!(of(Ok(None)).unwrap(), ChainLock::Open);
        let failed = |kind| Err(StoreError::new(Operation::Get, "n", kind, "no"));
        let unknown = of(failed(StoreErrorKind::Denied)).unwrap();
        assert!(matches!(unknown, ChainLock::Unknown(why) if why.contains("GetObjectRetention")));
        assert!(of(failed(StoreErrorKind::Rejected)).is_err());
        let (early, late) = (ChainLock::Until(at(1)), ChainLock::Until(at(2)));
        assert_eq!((late.and(early), early.and(unknown)), (early, unknown));
        assert_eq!(
            (unknown.and(ChainLock::Open), ChainLock::Open.and(late)),
            (ChainLock::Open, ChainLock::Open)
        );
    }
}
