//! Cipher and memory for undoing the encryption and compression of single files. The memory comes on top
//! of that for fetching.

use std::sync::Arc;

use xb_encryptor::xbcrypt::{Algorithm, Cipher};
use xb_encryptor::{Backend, KeyBytes};
use xb_pipeline::{Decrypt, FileDecoding, PlanError, UnpackPlan};

use crate::error::BackupError;
use crate::session::Resources;

/// Returns the cipher of single files, if there is a key.
///
/// # Errors
/// [`BackupError::Keys`]
pub(crate) fn file_cipher(key: Option<&KeyBytes>) -> Result<Option<Arc<Cipher>>, BackupError> {
    if key.is_none() {
        return Ok(None);
    }
    // The length of the key determines the AES variant.
    let cipher = Cipher::new(Algorithm::Aes256, key, Backend::default());
    Ok(Some(Arc::new(cipher.map_err(|error| BackupError::Keys(error.to_string()))?)))
}

/// Divides the memory between fetching and the work on single files, which takes half of it.
///
/// # Errors
/// [`BackupError::Plan`] if it is too little; [`BackupError::Keys`].
pub(crate) fn plan_with_files(
    resources: Resources,
    key: Option<&KeyBytes>,
    decompress: bool,
) -> Result<(UnpackPlan, FileDecoding), BackupError> {
    let fetch = |share| plan_beside(share, resources);
    let half = resources.memory / 2;
    let (memory, plan) = match fetch(half) {
        Ok(plan) => (half, plan),
        Err(_) => (FileDecoding::MIN_MEMORY, fetch(FileDecoding::MIN_MEMORY)?),
    };
    let decrypt = file_cipher(key)?.map_or(Decrypt::Refuse, Decrypt::With);
    let threads = resources.threads;
    Ok((plan, FileDecoding { decompress, decrypt, threads, memory }))
}

/// Plans fetching within the memory, of which `share` are for files.
///
/// # Errors
/// [`PlanError`]; what it needs includes the share.
pub(crate) fn plan_beside(
    share: u64,
    Resources { memory, threads, parallel }: Resources,
) -> Result<UnpackPlan, PlanError> {
    let fetching = memory.saturating_sub(share);
    UnpackPlan::new(fetching, threads, parallel).map_err(|error| match error {
        PlanError::Memory { threads, needed, .. } => {
            PlanError::Memory { memory, threads, needed: needed + share }
        }
        error => error,
    })
}
