//! Decides whether a backup may be read with the keys that were given, before any of its data is read.
//!
//! Whoever can write to the store can replace a sealed backup by one that is not sealed. So a key that
//! is given demands a seal, and a manifest that this key authenticates; [`Accept`] takes less.

use std::sync::Arc;

use xb_encryptor::{DataKey, Envelope, Keys};

use crate::catalog::manifest::{Manifest, StoredManifest};
use crate::catalog::names::{BackupName, KEYS, RunId, manifest_key, run_folder};
use crate::catalog::root::Root;
use crate::error::BackupError;

/// What is read although a key is given that does not vouch for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accept {
    /// A backup that is not sealed. A key may still decrypt its `.xbcrypt` files, which proves nothing
    /// about who wrote them.
    pub unsealed: bool,
    /// A backup that is sealed and was stored as a native stream, or is made to look so: its manifest
    /// has no key's word, and its data may be that of another backup.
    pub unvouched: bool,
}

/// The keys that were given for reading, and what is read without their word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) accept: Accept,
    /// Memory that a passphrase's derivation may take, in bytes.
    pub(crate) memory: u64,
}

impl Given<'_> {
    /// Refuses a backup that is not sealed when a key is given.
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

/// That a backup is not sealed though it should be.
pub(crate) fn unsealed(name: &BackupName, manifest: Option<&Manifest>) -> BackupError {
    let single = manifest.is_some_and(|manifest| {
        manifest.members.as_ref().is_some_and(|members| members.cipher.is_some())
    });
    BackupError::Unsealed {
        name: name.to_string(),
        but: if single {
            "; its manifest says that its files are encrypted one by one, but neither that manifest nor such files are authenticated"
        } else {
            ""
        },
    }
}

/// A backup that was found to be fit for reading.
#[derive(Debug)]
pub(crate) struct Unlocked {
    /// SHA-256 of the manifest that was looked at, where there is one.
    pub(crate) digest: Option<String>,
    /// The data key of a sealed backup.
    pub(crate) key: Option<Arc<DataKey>>,
}

/// Checks a backup against the keys that were given. `stored`: its manifest, if it has one.
///
/// # Errors
/// [`BackupError::Unsealed`], [`BackupError::Unvouched`], [`BackupError::Keys`] when none of the keys
/// opens it, [`BackupError::Manifest`] when the key does not authenticate its manifest.
pub(crate) async fn unlock(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
    given: Given<'_>,
) -> Result<Unlocked, BackupError> {
    let digest = stored.map(StoredManifest::digest);
    let Some(stored) = stored.filter(|stored| stored.manifest.is_sealed()) else {
        given.allows_unsealed(name, stored.map(|stored| &stored.manifest))?;
        return Ok(Unlocked { digest, key: None });
    };
    let Some(run) = stored.manifest.run_id() else {
        return Err(BackupError::Bug("a manifest that was checked lacks its run"));
    };
    let envelope = envelope(root, name, &stored.manifest, run).await?;
    let key = open_sealed(root, name, stored, &envelope, given)?;
    Ok(Unlocked { digest, key: Some(Arc::new(key)) })
}

/// Opens an envelope and has the manifest authenticated by what is in it.
pub(crate) fn open_sealed(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
    envelope: &Envelope,
    given: Given<'_>,
) -> Result<DataKey, BackupError> {
    let key = match given.keys.open(envelope, given.memory) {
        None => {
            let ways: Vec<_> = envelope.slots().map(|slot| slot.to_string()).collect();
            let ways = ways.join(", ");
            return Err(BackupError::Keys(format!("{name} is sealed; it opens with: {ways}")));
        }
        Some(Err(error)) => return Err(BackupError::Keys(format!("{name}: {error}"))),
        Some(Ok(key)) => key,
    };
    if stored.manifest.is_carried() {
        // Whoever stored a stream that was sealed elsewhere had no key to vouch with.
        return match given.accept.unvouched {
            true => Ok(key),
            false => Err(BackupError::Unvouched { name: name.to_string() }),
        };
    }
    stored
        .authenticate(&key.manifest_key(envelope.stream_id()))
        .map_err(|source| BackupError::Manifest { key: root.key(&manifest_key(name)), source })?;
    Ok(key)
}

/// Reads the keys object of a run.
pub(crate) async fn envelope(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    run: RunId,
) -> Result<Envelope, BackupError> {
    let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
    let object = root.key(&format!("{}/{KEYS}", run_folder(name, run)));
    let bytes = root.store().get(&object).await;
    let bytes = bytes.map_err(|error| crate::read::get::missing_is_damage(error, name))?;
    let envelope =
        Envelope::parse(&bytes).map_err(|error| damaged(format!("{object}: {error}")))?;
    if manifest.stream_id() != Some(*envelope.stream_id()) {
        return Err(damaged(format!("{object}: the keys object belongs to another backup")));
    }
    Ok(envelope)
}
