//! `rewrap`: replaces the key slots of a sealed backup. Only its keys object changes; no data
//! moves.

use std::sync::atomic::{AtomicBool, Ordering};

use xb_encryptor::{KeySlots, Keys, SlotInfo};
use xb_repo::error::RepoError;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_uploader::{GuardedOutcome, PresentState, StoreErrorKind};

use crate::admin::key_slots::KeySlotsClaim;
use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::error::BackupError;
use crate::read::unlock::{Accept, ReadKeys, keys_object, open_sealed, parse_keys_object};

/// Which key slots to change.
#[derive(Debug)]
pub struct RewrapRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Keys that open the backup now.
    pub keys: Keys,
    /// Accept a backup whose manifest no key authenticates, see [`Accept::unvouched`].
    pub accept_unvouched: bool,
    /// Key slots to add.
    pub add: KeySlots,
    /// Numbers of the old key slots to remove, as [`rewrap`] returns them; `None`: all.
    pub remove: Option<Vec<usize>>,
    /// Memory limit for deriving a key from a passphrase, in bytes.
    pub memory: u64,
}

/// Changes the key slots of a sealed backup and returns the new ones.
///
/// The data key stays the same: anyone who could open the backup before and kept the data key still
/// can. To exclude them for good, take a new backup and delete this one.
///
/// # Errors
/// [`BackupError::Rewrapped`] if another rewrap replaced the key slots in the meantime: its slots are
/// valid then. [`BackupError::MaybeRewrapped`] if the new keys object may have been written, also if `cancel` has ended this
/// since. After any other [`BackupError`] the old key slots remain valid.
pub async fn rewrap(
    root: &Root,
    request: &RewrapRequest,
    cancel: &CancelToken,
) -> Result<Vec<SlotInfo>, BackupError> {
    let sent = AtomicBool::new(false);
    cancel.or(replace(root, request, &sent)).await.map_err(|error| {
        match sent.load(Ordering::Relaxed) && may_be_written(&error) {
            true => BackupError::MaybeRewrapped {
                name: request.name.to_string(),
                source: Box::new(error),
            },
            false => error,
        }
    })
}

/// Replaces the key slots. `sent` tells whether the request that does it may have been sent.
async fn replace(
    root: &Root,
    request: &RewrapRequest,
    sent: &AtomicBool,
) -> Result<Vec<SlotInfo>, BackupError> {
    let name = &request.name;
    let not_sealed = || BackupError::Keys(format!("{name} is not sealed, so it has no key slots"));
    let Some(stored) = root.stored_manifest(name).await? else {
        let state = xb_repo::list::state_without_manifest(root, name).await?;
        return Err(RepoError::NotThere { name: name.to_string(), state }.into());
    };
    let manifest = &stored.manifest;
    let (Layout::Packed, Some(run)) = (manifest.layout, manifest.run_id()) else {
        return Err(not_sealed());
    };
    if manifest.packed.as_ref().is_none_or(|packed| packed.sealed.is_none()) {
        return Err(not_sealed());
    }
    let old = keys_object(root, name, manifest, run).await?;
    // A backup that is not sealed was rejected above, whatever is accepted.
    let accept = Accept { unvouched: request.accept_unvouched, ..Accept::default() };
    let given = ReadKeys { keys: &request.keys, accept, memory: request.memory };
    let key = open_sealed(root, name, &stored, &old, given)?;
    if let Some(number) = request.remove.iter().flatten().find(|n| **n >= old.slots().count()) {
        return Err(BackupError::Keys(format!("{name} has no key slot {number}")));
    }
    let keep = |slot: &SlotInfo| {
        request.remove.as_ref().is_some_and(|numbers| !numbers.contains(&slot.slot))
    };
    let new = old
        .rewrap(&key, keep, &request.add.list())
        .map_err(|error| BackupError::Keys(format!("{name}: {error}")))?;
    let key = root.run_keys(name, run).keys();
    let is_old = |there: PresentState<'_>| {
        let is_old = match there {
            // Opening the old slots may have taken a while.
            PresentState::Content(bytes) => parse_keys_object(bytes, &key, name, manifest)
                .is_ok_and(|stored| stored.encode() == old.encode()),
            _ => false,
        };
        sent.fetch_or(is_old, Ordering::Relaxed);
        is_old
    };
    let slots = KeySlotsClaim::new(root, name, run).await?;
    let name = name.to_string();
    match slots.put(new.encode().to_vec().into(), is_old).await {
        Ok(GuardedOutcome::Done { .. }) => Ok(new.slots().collect()),
        Ok(_) => Err(BackupError::Rewrapped { name }),
        Err(error) => Err(error),
    }
}

/// Returns whether a write that was sent and has ended so may have been carried out, now or later. A store that refuses the
/// only try has done nothing.
fn may_be_written(error: &BackupError) -> bool {
    use StoreErrorKind::{Denied, Fenced, Full, NoBucket, NotAStore, Settings};
    match error {
        BackupError::Rewrapped { .. } => false,
        BackupError::Repo(RepoError::Store(error)) => {
            error.attempts > 1
                || !matches!(error.kind, Denied | Fenced | Full | NoBucket | NotAStore | Settings)
        }
        _ => true,
    }
}
