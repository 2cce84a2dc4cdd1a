//! Decides, before any data is read, whether a backup may be read with the given keys.
//!
//! Anyone who can write to the store can replace a sealed backup by an unsealed one. A given key
//! therefore requires a seal, and a manifest that this key authenticates. [`Accept`] relaxes this.

use std::sync::Arc;

use xb_encryptor::{DataKey, Keys, KeysObject};
use xb_repo::error::RepoError;
use xb_repo::manifest::{Manifest, StoredManifest};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;

use crate::error::BackupError;

/// Backups that are read although the given key does not authenticate them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Accept {
    /// With a key: accept a backup that is not sealed, so nothing proves who wrote it; the key
    /// decrypts its .xbcrypt files
    #[cfg_attr(feature = "clap", arg(id = "accept-unsealed", long, help_heading = "Keys"))]
    pub unsealed: bool,
    /// Accept a sealed backup that was stored as a native stream, with a manifest that is not
    /// authenticated
    // Or a backup that appears to be one: its data may belong to another backup.
    #[cfg_attr(feature = "clap", arg(id = "accept-unvouched", long, help_heading = "Keys"))]
    pub unvouched: bool,
}

/// Keys for reading, and the unauthenticated backups that are accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadKeys<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) accept: Accept,
    /// Memory limit for deriving a key from a passphrase, in bytes.
    pub(crate) memory: u64,
}

impl ReadKeys<'_> {
    /// Refuses an unsealed backup if a key is given.
    pub(crate) fn allows_unsealed(
        &self,
        name: &BackupName,
        manifest: Option<&Manifest>,
    ) -> Result<(), BackupError> {
        if self.keys.is_empty() || self.accept.unsealed {
            return Ok(());
        }
        Err(unsealed(name, manifest))
    }
}

/// Error for a backup that is not sealed but should be.
pub(crate) fn unsealed(name: &BackupName, manifest: Option<&Manifest>) -> BackupError {
    let single = manifest.is_some_and(|manifest| {
        manifest.members.as_ref().is_some_and(|members| members.cipher.is_some())
    });
    BackupError::Unsealed {
        name: name.to_string(),
        but: if single {
            "; its files are encrypted individually, but neither the files nor the manifest are authenticated"
        } else {
            ""
        },
    }
}

/// A backup that may be read.
#[derive(Debug)]
pub(crate) struct UnlockedBackup {
    /// SHA-256 of the manifest that was checked, if there is one.
    pub(crate) digest: Option<String>,
    /// Data key of a sealed backup.
    pub(crate) key: Option<Arc<DataKey>>,
}

/// Checks a backup against the given keys. `stored` is its manifest, if it has one.
///
/// # Errors
/// [`BackupError::Unsealed`], [`BackupError::Unvouched`], [`BackupError::Keys`] if none of the keys
/// opens the backup, [`RepoError::Manifest`] if the key does not authenticate its manifest.
pub(crate) async fn unlock(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
    given: ReadKeys<'_>,
) -> Result<UnlockedBackup, BackupError> {
    let digest = stored.map(StoredManifest::digest);
    let Some(stored) = stored.filter(|stored| stored.manifest.is_sealed()) else {
        given.allows_unsealed(name, stored.map(|stored| &stored.manifest))?;
        return Ok(UnlockedBackup { digest, key: None });
    };
    let Some(run) = stored.manifest.run_id() else {
        return Err(BackupError::Bug("a checked manifest has no run"));
    };
    let keys_object = keys_object(root, name, &stored.manifest, run).await?;
    let key = open_sealed(root, name, stored, &keys_object, given)?;
    Ok(UnlockedBackup { digest, key: Some(Arc::new(key)) })
}

/// Opens a keys object and authenticates the manifest with the data key in it.
pub(crate) fn open_sealed(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
    keys_object: &KeysObject,
    given: ReadKeys<'_>,
) -> Result<DataKey, BackupError> {
    let key = match given.keys.open(keys_object, given.memory) {
        None => {
            let ways: Vec<_> = keys_object.slots().map(|slot| slot.to_string()).collect();
            let ways = ways.join(", ");
            return Err(BackupError::Keys(format!(
                "{name} is sealed, and no key was given; it opens with: {ways}"
            )));
        }
        Some(Err(error)) => return Err(BackupError::Keys(format!("{name}: {error}"))),
        Some(Ok(key)) => key,
    };
    if stored.manifest.is_carried() {
        // A stream that was sealed elsewhere was stored without a key, so its manifest could not be
        // authenticated.
        return match given.accept.unvouched {
            true => Ok(key),
            false => Err(BackupError::Unvouched { name: name.to_string() }),
        };
    }
    stored.authenticate(&key.manifest_key(keys_object.stream_id())).map_err(|source| {
        BackupError::Repo(RepoError::Manifest { key: root.manifest_key(name), source })
    })?;
    Ok(key)
}

/// Reads the keys object of a run.
pub(crate) async fn keys_object(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    run: RunId,
) -> Result<KeysObject, BackupError> {
    let object = root.run_keys(name, run).keys();
    let read = async || {
        let bytes = root.store().get(&object).await;
        let bytes = bytes.map_err(|error| not_found_as_damage(error, name))?;
        parse_keys_object(&bytes, &object, name, manifest)
    };
    once_more(read).await
}

/// Reads again what seems to be damaged: a single answer may have been altered in transit.
pub(crate) async fn once_more<T>(
    read: impl AsyncFn() -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    match read().await {
        Err(BackupError::Damaged { .. }) => read().await,
        outcome => outcome,
    }
}

/// Checks the bytes of a keys object, as far as that is possible without a key.
pub(crate) fn parse_keys_object(
    bytes: &[u8],
    object: &str,
    name: &BackupName,
    manifest: &Manifest,
) -> Result<KeysObject, BackupError> {
    let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
    let keys_object =
        KeysObject::parse(bytes).map_err(|error| damaged(format!("{object}: {error}")))?;
    if manifest.stream_id() != Some(*keys_object.stream_id()) {
        return Err(damaged(format!("{object}: the keys object belongs to another backup")));
    }
    Ok(keys_object)
}

/// Reports a missing object of a complete backup as damage, not as a wrong name.
pub(crate) fn not_found_as_damage(
    error: xb_uploader::StoreError,
    name: &BackupName,
) -> BackupError {
    use xb_uploader::StoreErrorKind::{Damaged, NotFound};
    match error.kind {
        NotFound | Damaged => {
            BackupError::Damaged { name: name.to_string(), what: error.to_string() }
        }
        _ => error.into(),
    }
}
