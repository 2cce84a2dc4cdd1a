//! `rewrap`: other ways in for a sealed backup. Only its keys object changes; no data moves.

use xb_encryptor::{Keys, SlotInfo, WaysIn};

use crate::catalog::manifest::Layout;
use crate::catalog::names::{BackupName, KEYS, run_folder};
use crate::catalog::root::Root;
use crate::error::BackupError;
use crate::read::unlock::{Accept, Given, envelope, open_sealed};

/// Which ways in change.
#[derive(Debug)]
pub struct RewrapRequest {
    /// The backup.
    pub name: BackupName,
    /// What it opens with now.
    pub keys: Keys,
    /// Take one whose manifest no key vouches for, see [`Accept::unvouched`].
    pub accept_unvouched: bool,
    /// Ways in that it shall have as well.
    pub add: WaysIn,
    /// Which of the old ones go, by their numbers as [`rewrap`] gives them; `None`: all.
    pub remove: Option<Vec<usize>>,
    /// Memory that a passphrase's derivation may take, in bytes.
    pub memory: u64,
}

/// Changes the ways in of a sealed backup and gives those that it has then.
///
/// The data key stays: whoever could open the backup before and kept that key still can. To shut
/// somebody out for good, take a new backup and delete this one.
///
/// # Errors
/// [`BackupError`]; unless it is one of the store while the new keys object was on its way, the old
/// ways in still hold.
pub async fn rewrap(root: &Root, request: &RewrapRequest) -> Result<Vec<SlotInfo>, BackupError> {
    let name = &request.name;
    let not_sealed = || BackupError::Keys(format!("{name} is not sealed: it has no ways in"));
    let Some(stored) = root.stored_manifest(name).await? else {
        let state = crate::catalog::list::state_without_manifest(root, name).await?;
        return Err(BackupError::NotThere { name: name.to_string(), state });
    };
    let manifest = &stored.manifest;
    let (Layout::Packed, Some(run)) = (manifest.layout, manifest.run_id()) else {
        return Err(not_sealed());
    };
    if manifest.packed.as_ref().is_none_or(|packed| packed.sealed.is_none()) {
        return Err(not_sealed());
    }
    let old = envelope(root, name, manifest, run).await?;
    // One that is not sealed was refused above, whatever is accepted.
    let accept = Accept { unvouched: request.accept_unvouched, ..Accept::default() };
    let given = Given { keys: &request.keys, accept, memory: request.memory };
    let key = open_sealed(root, name, &stored, &old, given)?;
    if let Some(number) = request.remove.iter().flatten().find(|n| **n >= old.slots().count()) {
        return Err(BackupError::Keys(format!("{name} has no way in number {number}")));
    }
    let keep = |slot: &SlotInfo| {
        request.remove.as_ref().is_some_and(|numbers| !numbers.contains(&slot.slot))
    };
    let new = old
        .rewrap(&key, keep, &request.add.list())
        .map_err(|error| BackupError::Keys(format!("{name}: {error}")))?;
    let object = root.key(&format!("{}/{KEYS}", run_folder(name, run)));
    root.store().put(&object, new.encode().to_vec().into()).await?;
    // What stands there now decides who can open it.
    if root.store().get(&object).await? != new.encode() {
        return Err(BackupError::Damaged {
            name: name.to_string(),
            what: format!("{object}: it does not read back as it was written"),
        });
    }
    Ok(new.slots().collect())
}
