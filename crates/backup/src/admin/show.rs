//! `show`: displays one backup with its files.

use std::collections::BTreeMap;

use futures::stream::{self, TryStreamExt as _};
use serde::Serialize;
use xb_encryptor::{DataKey, Keys};
use xb_frame::Record;
use xb_repo::chain::why_broken;
use xb_repo::error::RepoError;
use xb_repo::list::{Listing, State, line};
use xb_repo::manifest::{End, Layout, Manifest, StoredManifest};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::objects::classic::list_classic;
use crate::read::packed_index::{Index, PackedBody};
use crate::read::unlock::{Accept, Given, keys_object, unlock};

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

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileEntry {
    /// Path in the stream; in a classic backup, path from its objects' keys.
    pub path: String,
    /// Size in bytes, holes included; unknown for a classic backup without reading it.
    pub size: Option<u64>,
    /// Total size of its objects in bytes. Classic only.
    pub stored_bytes: Option<u64>,
    /// Number of its objects. Classic only.
    pub objects: Option<u64>,
}

/// Full description of a backup.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// Its listing, as from `list`.
    #[serde(flatten)]
    pub listing: Listing,
    /// Its files by name; `None` if they cannot be determined.
    pub content: Option<Vec<FileEntry>>,
    /// Reason why the files cannot be determined.
    pub why_not: Option<&'static str>,
}

/// Reads the description of a backup. Of the data it reads only the index.
///
/// # Errors
/// [`RepoError::NotThere`], [`BackupError::Keys`], [`BackupError::Damaged`] and
/// [`RepoError::Store`].
pub async fn show(root: &Root, request: &ShowRequest) -> Result<Shown, BackupError> {
    let name = &request.name;
    let Some((mut listing, stored)) = line(root, name).await? else {
        return Err(RepoError::NotThere { name: name.to_string(), state: "" }.into());
    };
    if let Some(stored) = &stored
        && stored.manifest.is_incremental()
    {
        listing.broken = why_broken(root, name, stored.clone()).await?.1;
    }
    listing.restorable = listing.fault().is_none() && listing.broken.is_none();
    let stored = match (stored, listing.state) {
        // The error says why.
        (None, State::Damaged | State::Unreadable) => root.stored_manifest(name).await,
        (stored, _) => Ok(stored),
    };
    let mut key = None;
    if let (Ok(stored), false) = (&stored, request.keys.is_empty()) {
        let given = Given { keys: &request.keys, accept: request.accept, memory: request.memory };
        key = unlock(root, name, stored.as_ref(), given).await?.key;
    }
    if let Ok(Some(StoredManifest { manifest, .. })) = &stored
        && let (true, Some(run)) = (manifest.is_sealed(), manifest.run_id())
    {
        slots_of_today(root, name, (manifest, run), &mut listing).await;
    }
    let (content, why_not) = match stored {
        Ok(Some(stored)) if stored.manifest.layout == Layout::Packed => {
            packed(root, name, &stored.manifest, key.as_deref()).await?
        }
        Err(RepoError::Manifest { .. }) => (None, Some("the manifest cannot be read")),
        Err(error) => return Err(error.into()),
        Ok(_) if listing.layout == Some(Layout::Classic) => {
            (Some(classic(root, name).await?), None)
        }
        Ok(_) => (None, Some("this is not a backup")),
    };
    Ok(Shown { listing, content, why_not })
}

/// The files of a backup that may be read: with its key, if it is sealed.
///
/// # Errors
/// [`BackupError::Selection`] if its files cannot be determined; those of reading its index.
pub(crate) async fn files_of(
    root: &Root,
    name: &BackupName,
    manifest: Option<&Manifest>,
    key: Option<&DataKey>,
) -> Result<Vec<FileEntry>, BackupError> {
    let (content, why_not) = match manifest.filter(|stated| stated.layout == Layout::Packed) {
        Some(manifest) => packed(root, name, manifest, key).await?,
        None => (Some(classic(root, name).await?), None),
    };
    content.ok_or_else(|| {
        let why = why_not.unwrap_or("its files are not known");
        BackupError::Selection(format!("{name} has no list of files: {why}"))
    })
}

/// The manifest names the key slots as they were at first; `rewrap` changes only the keys object.
async fn slots_of_today(
    root: &Root,
    name: &BackupName,
    (manifest, run): (&Manifest, RunId),
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
                        slots_of_today(root, &name, (&manifest, run), line).await;
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

type Content = (Option<Vec<FileEntry>>, Option<&'static str>);

async fn packed(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    key: Option<&DataKey>,
) -> Result<Content, BackupError> {
    let (Some(packed), Some(run)) = (&manifest.packed, manifest.run_id()) else {
        return Err(BackupError::Bug("a checked manifest is incomplete"));
    };
    if manifest.end == End::Raw {
        return Ok((None, Some("stored with --raw; content not inspected")));
    }
    if packed.sealed.is_some() && key.is_none() {
        return Ok((None, Some("sealed; give the key to list the files")));
    }
    let body = PackedBody::open(root, name, manifest, packed, run, key).await?;
    let index = Index::load(&body).await?;
    let mut files = Files::default();
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            files.record(&record.map_err(|error| index.bad_record(error))?);
        }
    }
    Ok((Some(files.finish()), None))
}

/// Collects the files from an index.
#[derive(Default)]
struct Files {
    names: BTreeMap<u64, Vec<u8>>,
    sizes: BTreeMap<Vec<u8>, (u64, u64)>,
}

impl Files {
    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::File { file, path, .. } => drop(self.names.insert(*file, path.to_vec())),
            Record::End { file, size } => {
                if let Some(path) = self.names.get(file) {
                    self.sizes.insert(path.clone(), (*file, *size));
                }
            }
            Record::Rename { file, path } => {
                let Some(old) = self.names.insert(*file, path.to_vec()) else { return };
                if let Some(of_old) = self.sizes.get(&old).copied().filter(|(id, _)| id == file) {
                    self.sizes.remove(&old);
                    self.sizes.insert(path.to_vec(), of_old);
                }
            }
            Record::Remove { file } => {
                if let Some(old) = self.names.remove(file)
                    && self.sizes.get(&old).is_some_and(|(id, _)| id == file)
                {
                    self.sizes.remove(&old);
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Vec<FileEntry> {
        let entry = |(path, (_, size)): (Vec<u8>, (u64, u64))| FileEntry {
            path: path.escape_ascii().to_string(),
            size: Some(size),
            stored_bytes: None,
            objects: None,
        };
        self.sizes.into_iter().map(entry).collect()
    }
}

async fn classic(root: &Root, name: &BackupName) -> Result<Vec<FileEntry>, BackupError> {
    let files = list_classic(root, name).await?;
    let entry = |(path, objects, bytes): (&str, u64, u64)| FileEntry {
        path: path.to_owned(),
        size: None,
        stored_bytes: Some(bytes),
        objects: Some(objects),
    };
    Ok(files.sizes().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_renames_and_removals() {
        let mut files = Files::default();
        let file =
            |file, path: &'static str| Record::File { file, source: 0, path: path.as_bytes() };
        for record in [
            file(0, "a"),
            file(1, "b"),
            Record::End { file: 0, size: 10 },
            Record::Rename { file: 0, path: b"c" },
            Record::Rename { file: 1, path: b"a" },
            Record::End { file: 1, size: 20 },
            file(2, "gone"),
            Record::End { file: 2, size: 30 },
            Record::Remove { file: 2 },
            file(3, "c"),
            Record::End { file: 3, size: 40 },
            // The older file of that name, before it was replaced.
            Record::Remove { file: 0 },
        ] {
            files.record(&record);
        }
        let found: Vec<_> = files.finish().into_iter().map(|f| (f.path, f.size)).collect();
        assert_eq!(found, [("a".to_owned(), Some(20)), ("c".to_owned(), Some(40))]);
    }
}
