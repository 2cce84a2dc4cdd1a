//! The stored objects of a run, as a listing shows them, compared with what was sent.

use bytes::Bytes;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::Manifest;
use xb_repo::names::{BackupName, KEYS, SUMS, of_classic};
use xb_repo::root::Root;
use xb_uploader::{ListedObject, StoreError};

use crate::error::BackupError;
use crate::hints::REMOVERS;
use crate::objects::classic::ClassicFiles;
use crate::objects::classic_checksums;
use crate::objects::ledger::Ledger;

/// Objects that a packed run stores beside its data, and that its manifest relies on.
#[derive(Debug, Default)]
pub(crate) struct CompanionObjects {
    /// Content of the keys object of a sealed backup: without it, no key opens the backup.
    pub(crate) keys: Option<Bytes>,
    /// Size of the checksum list, if there is one.
    pub(crate) sums: Option<u64>,
}

impl CompanionObjects {
    /// Reads the keys object of a run back.
    pub(crate) async fn prove_keys(&self, root: &Root, run: &RunKeys) -> Result<(), BackupError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        Ok(root.store().confirm_content(&run.keys(), keys).await?)
    }

    /// Returns whether a listing of the run's folder shows the whole checksum list.
    fn lists_sums(&self, listed: &[ListedObject]) -> bool {
        let shows = |size| listed.iter().any(|object| object.key == SUMS && object.size == size);
        self.sums.is_none_or(shows)
    }

    /// Fails unless a listing of the run's folder shows the whole checksum list.
    fn prove_sums(&self, run: &RunKeys, listed: &[ListedObject]) -> Result<(), BackupError> {
        match self.lists_sums(listed) {
            true => Ok(()),
            false => Err(StoreError::not_kept(run.sums()).into()),
        }
    }
}

/// Checks that the classic objects of a listing match the ledger, writes their checksums, and sets
/// their digest in the manifest.
pub(crate) async fn prove_classic(
    root: &Root,
    keys: &RunKeys,
    manifest: &mut Manifest,
    ledger: &Ledger,
    mut listed: Vec<ListedObject>,
) -> Result<(), BackupError> {
    listed.retain(|object| of_classic(&object.key));
    ledger.agrees_with(root, keys, &manifest.name, &listed).await?;
    let files = ClassicFiles::of(&listed);
    if let Some((digest, sums)) = classic_checksums::of_ledger(&files, ledger) {
        let name = BackupName::new(&manifest.name)?;
        classic_checksums::write(root, &name, &manifest.run, &files, &sums).await?;
        manifest.object_digest = Some(digest);
    }
    Ok(())
}

/// Maximum number of repeated listings if objects are missing. With the usual pauses this takes a
/// minute.
const LISTINGS: u32 = 5;

/// Lists a run's folder and compares it with the run's manifest. A run that was suspended for long
/// may have been considered dead, and its objects removed. A listing may also lag behind the
/// objects, or be altered, so one that does not agree is repeated, unless it shows more of them.
pub(crate) async fn list_stored(
    root: &Root,
    keys: &RunKeys,
    manifest: &Manifest,
    beside: &CompanionObjects,
) -> Result<Vec<ListedObject>, BackupError> {
    let mut listed = root.list_below(keys.folder()).await?;
    for retry in 1..=LISTINGS {
        let all = all_are_there(manifest, &listed).is_ok() && beside.lists_sums(&listed);
        if all || totals(manifest, &listed).0 > manifest.objects {
            break;
        }
        root.store().pause(retry).await;
        listed = root.list_below(keys.folder()).await?;
    }
    all_are_there(manifest, &listed)?;
    beside.prove_sums(keys, &listed)?;
    Ok(listed)
}

/// Describes what a stored backup has lost, as listings show: data objects, bytes of them, or its keys. A listing that shows a
/// loss is repeated, because it may lag behind; that of a directory never does.
pub(crate) async fn lost_objects(
    root: &Root,
    keys: &RunKeys,
    manifest: &Manifest,
) -> Result<Option<String>, BackupError> {
    let mut retry = 0;
    loop {
        let listed = root.list_below(keys.folder()).await?;
        let (objects, bytes) = totals(manifest, &listed);
        let has_keys = !manifest.is_sealed() || listed.iter().any(|object| object.key == KEYS);
        if objects >= manifest.objects && bytes >= manifest.stored_bytes && has_keys {
            return Ok(None);
        }
        retry += 1;
        if retry > LISTINGS || root.store().is_folder() {
            return Ok(Some(match has_keys {
                true => format!(
                    "objects or parts of them are missing: its manifest names {} with {} bytes, but {objects} with {bytes} exist",
                    manifest.objects, manifest.stored_bytes
                ),
                false => "its keys are missing".to_owned(),
            }));
        }
        root.store().pause(retry).await;
    }
}

/// Number and total size of the listed data objects.
fn totals(manifest: &Manifest, listed: &[ListedObject]) -> (u64, u64) {
    let of_it = |object: &&ListedObject| manifest.layout.has_data(&object.key);
    let add = |(objects, bytes), object: &ListedObject| (objects + 1, bytes + object.size);
    listed.iter().filter(of_it).fold((0, 0), add)
}

pub(crate) fn all_are_there(
    manifest: &Manifest,
    listed: &[ListedObject],
) -> Result<(), BackupError> {
    let (objects, bytes) = totals(manifest, listed);
    if (objects, bytes) == (manifest.objects, manifest.stored_bytes) {
        return Ok(());
    }
    let what = format!(
        "{} objects with {} bytes were stored, but {objects} with {bytes} exist: {REMOVERS} removed or replaced some",
        manifest.objects, manifest.stored_bytes
    );
    Err(BackupError::Damaged { name: manifest.name.clone(), what })
}
