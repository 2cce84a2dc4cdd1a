//! `show`: displays one backup with its files.

use futures::stream::{self, TryStreamExt as _};
use serde::Serialize;
use xb_encryptor::Keys;
use xb_repo::chain::{UnknownImport, unknown_import, why_broken};
use xb_repo::error::RepoError;
use xb_repo::list::{Listing, State, line};
use xb_repo::manifest::{Layout, Manifest, StoredManifest};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::read::file_list::{FileEntry, classic, packed};
use crate::read::unlock::{Accept, ReadKeys, keys_object, unlock};

/// Number of key slots read concurrently.
const AT_ONCE: usize = 16;

/// Which backup to show.
#[derive(Debug)]
pub struct ShowRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Keys of a sealed backup. Without keys only its manifest is shown; with keys the backup must
    /// be sealed, and its manifest authenticated.
    pub keys: Keys,
    /// Unauthenticated backups that may be shown.
    pub accept: Accept,
    /// Memory limit for deriving a key from a passphrase, in bytes.
    pub memory: u64,
}

/// Full description of a backup.
#[derive(Debug, Clone, Serialize)]
pub struct BackupDescription {
    /// Its listing, as from `list`.
    #[serde(flatten)]
    pub listing: Listing,
    /// How it is stored.
    #[serde(flatten)]
    pub storage: Storage,
    /// Its files by name; `None` if they cannot be determined.
    pub content: Option<Vec<FileEntry>>,
    /// Reason why the files cannot be determined, or may not be all.
    pub why_not: Option<&'static str>,
}

/// How the data of a backup is stored, by its manifest. Nothing is known of a backup without one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// Size of every object except the last one, of a file in the classic layout, in bytes.
    pub object_size: Option<u64>,
    /// Codecs of our own, as `--compress` names them.
    pub codecs: Vec<String>,
    /// Cipher of our own.
    pub cipher: Option<String>,
    /// Digest of the lengths and checksums of all objects, and of the keys in the classic layout, hexadecimal.
    pub object_digest: Option<String>,
}

impl Storage {
    fn of(manifest: &Manifest) -> Self {
        if let Some(packed) = &manifest.packed {
            return Self {
                object_size: Some(packed.chunk_size),
                codecs: packed.codecs.clone(),
                cipher: packed.sealed.as_ref().map(|_| "AES-256-GCM".to_owned()),
                object_digest: Some(packed.root.clone()),
            };
        }
        let members = manifest.members.clone();
        Self {
            object_size: manifest.classic.as_ref().map(|classic| classic.chunk_size),
            codecs: members.iter().flat_map(|facts| facts.codec.clone()).collect(),
            cipher: members.and_then(|facts| facts.cipher),
            object_digest: manifest.object_digest.clone(),
        }
    }
}

/// Reads the description of a backup. Of the data it reads only the index.
///
/// # Errors
/// [`RepoError::NotThere`], [`BackupError::Keys`], [`BackupError::Damaged`] and
/// [`RepoError::Store`].
pub async fn show(root: &Root, request: &ShowRequest) -> Result<BackupDescription, BackupError> {
    let name = &request.name;
    let Some((mut listing, stored)) = line(root, name).await? else {
        return Err(RepoError::NotThere { name: name.to_string(), state: "" }.into());
    };
    if let Some(stored) = &stored
        && stored.manifest.is_incremental()
    {
        let (chain, broken) = why_broken(root, name, stored.clone()).await?;
        listing.broken = broken;
        if matches!(unknown_import(&chain), Some(UnknownImport::OfFull(_))) {
            listing.doubt_imports();
        }
    }
    listing.restorable = listing.fault().is_none() && listing.broken.is_none();
    let stored = match (stored, listing.state) {
        // The error says why.
        (None, State::Damaged | State::Unreadable) => root.stored_manifest(name).await,
        (stored, _) => Ok(stored),
    };
    let mut key = None;
    let is_backup = !matches!(listing.state, State::Running | State::Abandoned);
    if let (Ok(stored), false, true) = (&stored, request.keys.is_empty(), is_backup) {
        let given =
            ReadKeys { keys: &request.keys, accept: request.accept, memory: request.memory };
        key = unlock(root, name, stored.as_ref(), given).await?.key;
    }
    if let Ok(Some(StoredManifest { manifest, .. })) = &stored
        && let (true, Some(run)) = (manifest.is_sealed(), manifest.run_id())
    {
        slots_of_today(root, name, manifest, run, &mut listing).await;
    }
    let storage = match &stored {
        Ok(Some(stored)) => Storage::of(&stored.manifest),
        _ => Storage::default(),
    };
    let (content, why_not) = match stored {
        Ok(Some(stored)) if stored.manifest.layout == Layout::Packed => {
            packed(root, name, &stored.manifest, key.as_deref()).await?
        }
        Err(RepoError::Manifest { .. }) => (None, Some("the manifest cannot be read")),
        Err(error) => return Err(error.into()),
        Ok(stored) if listing.layout == Some(Layout::Classic) => {
            let manifest = stored.as_ref().map(|stored| &stored.manifest);
            let (files, agree) = classic(root, name, manifest).await?;
            (Some(files), (!agree).then_some("the files that the store lists are not those of the manifest: `verify` says what differs"))
        }
        Ok(_) => (None, Some("this is not a backup")),
    };
    Ok(BackupDescription { listing, storage, content, why_not })
}

/// The manifest names the key slots as they were at first; `rewrap` changes only the keys object.
async fn slots_of_today(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    run: RunId,
    listing: &mut Listing,
) {
    match keys_object(root, name, manifest, run).await {
        Ok(keys) => listing.key_slots = keys.slots().map(|slot| slot.to_string()).collect(),
        Err(error) => listing.problem = Some(format!("no key opens it: {error}")),
    }
}

/// Replaces the key slots in a listing, which are those that the backups began with, by those of today.
/// Reads two small objects of each sealed backup.
///
/// # Errors
/// [`RepoError::Store`] if the store cannot be read. What concerns one backup is a problem in its line.
pub async fn show_slots(root: &Root, listings: &mut [Listing]) -> Result<(), BackupError> {
    let sealed = listings.iter_mut().filter(|line| !line.key_slots.is_empty());
    stream::iter(sealed.map(Ok))
        .try_for_each_concurrent(AT_ONCE, |line| async move {
            let name = BackupName::new(&line.name)?;
            match root.manifest(&name).await {
                Ok(Some(manifest)) => {
                    if let Some(run) = manifest.run_id() {
                        slots_of_today(root, &name, &manifest, run, line).await;
                    }
                    Ok(())
                }
                // Deleted or changed after the listing.
                Ok(None) => Ok(()),
                Err(error) if error.is_of_one_object() => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
        .await
}
