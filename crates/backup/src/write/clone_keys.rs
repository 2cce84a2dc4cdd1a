//! A clone that may have keys of tables in clear is stored only under a seal, whichever way its stream comes.

use std::io::Read;

use xb_clone::{CloneInfo, INFO, KEYS_TEXT, README};
use xb_encryptor::Keys;
use xb_pipeline::logical_name;
use xb_repo::manifest::clone_facts::CloneFacts;
use xb_repo::manifest::{Layout, StoredManifest};
use xb_repo::names::BackupName;

use crate::error::BackupError;
use crate::read::file_list::{classic, packed};
use crate::read::find::{find, find_unsealed};
use crate::read::request::GetRequest;
use crate::restore::clone::info::info_in;
use crate::selection::Selection;
use crate::session::Session;

/// Length of a chunk's head in front of its path.
const HEAD: usize = 14;
/// Length of what a payload chunk has between its path and its payload.
const PAYLOAD_HEAD: usize = 20;
/// Longest payload of the first chunk of a clone that is looked at.
const MAX_README: u64 = 4096;

/// Keys that the beginning of an xbstream announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It is no clone.
    Other,
    /// It is a clone that does not say at its beginning that it has keys.
    Clone,
    /// It is a clone with keys.
    CloneWithKeys,
}

/// Looks at the first chunk of an xbstream, which may be that of a clone. What is read is added to `start`, and it is not more
/// than that chunk: the source may have nothing else yet.
///
/// # Errors
/// Those of the source.
pub(super) fn beginning(source: &mut impl Read, start: &mut Vec<u8>) -> std::io::Result<Beginning> {
    let mut up_to = |start: &mut Vec<u8>, len: usize| {
        let missing = len.saturating_sub(start.len()) as u64;
        source.by_ref().take(missing).read_to_end(start).map(|_| start.len() >= len)
    };
    let number = |start: &[u8], at: usize| {
        let bytes = start.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(u64::MAX, |bytes| u64::from(u32::from_le_bytes(*bytes)))
    };
    if !xb_reader::MAGIC.starts_with(start.get(..8).unwrap_or(start))
        || !up_to(start, HEAD)?
        || number(start, 10) != README.len() as u64
    {
        return Ok(Beginning::Other);
    }
    let path = HEAD + README.len();
    if !up_to(start, path)? || start.get(HEAD..path) != Some(README.as_bytes()) {
        return Ok(Beginning::Other);
    }
    let payload = path + PAYLOAD_HEAD;
    if start.get(9) != Some(&b'P') || !up_to(start, payload)? {
        return Ok(Beginning::Clone);
    }
    let len = number(start, path).min(MAX_README);
    up_to(start, payload + usize::try_from(len).unwrap_or(0))?;
    let text = start.get(payload..).unwrap_or_default();
    match text.windows(KEYS_TEXT.len()).any(|part| part == KEYS_TEXT.as_bytes()) {
        true => Ok(Beginning::CloneWithKeys),
        false => Ok(Beginning::Clone),
    }
}

/// Refuses a clone that may have keys, if it is not to be sealed.
///
/// # Errors
/// [`BackupError::ClearKeys`].
fn refuse_clear(has_keys: Option<bool>) -> Result<(), BackupError> {
    match has_keys {
        Some(false) => Ok(()),
        Some(true) => {
            Err(BackupError::ClearKeys("the clone has keys of encrypted tables in clear"))
        }
        None => Err(BackupError::ClearKeys(
            "the clone does not record whether it contains keys of encrypted tables in clear text, as with clones of earlier versions",
        )),
    }
}

/// Refuses a backup whose objects can be read without a key, if it is a clone that may have keys. What the manifest does not say
/// is read from the objects. A clone of an earlier version does not say whether it has some: one that is new in the store is
/// refused, and a copy of one (`is_copy`) if one of its files is encrypted.
///
/// # Errors
/// [`BackupError::ClearKeys`]; those of reading a backup.
pub(crate) async fn refuse_unsealed(
    session: &Session,
    name: &BackupName,
    stored: &StoredManifest,
    is_copy: bool,
) -> Result<(), BackupError> {
    let manifest = &stored.manifest;
    if manifest.is_encrypted() {
        return Ok(());
    }
    match &manifest.mysql_clone {
        Some(CloneFacts { has_keys, .. }) if has_keys.is_some() || !is_copy => {
            return refuse_clear(*has_keys);
        }
        None if !manifest.is_carried() => return Ok(()),
        _ => {}
    }
    let Some(info) = own_info(session, name, stored).await? else { return Ok(()) };
    let is_encrypted = info.files.iter().any(|file| file.is_encrypted);
    refuse_clear(match info.has_keys {
        None if !is_copy => None,
        has_keys => Some(is_encrypted || has_keys == Some(true)),
    })
}

/// The facts of a clone that is not sealed; `None` if the backup is no clone.
async fn own_info(
    session: &Session,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<Option<CloneInfo>, BackupError> {
    let is_packed = stored.manifest.layout == Layout::Packed;
    let files = match is_packed {
        true => packed(&session.root, name, &stored.manifest, None).await?.0.unwrap_or_default(),
        false => classic(&session.root, name, Some(&stored.manifest)).await?.0,
    };
    let of_info = |path: &str| logical_name(path.as_bytes()) == INFO.as_bytes();
    let Some(file) = files.iter().find(|file| of_info(&file.path)) else { return Ok(None) };
    if file.path != INFO {
        // Compressed or encrypted by itself.
        return refuse_clear(None).map(|()| None);
    }
    let mut request = GetRequest::new(name.clone(), Keys::default());
    request.files = Selection::exact([INFO.to_owned()]);
    let objects = match is_packed {
        true => find_unsealed(session, &request, stored).await?,
        // Only that of a copy is read, whose manifest is in the store.
        false => find(session, &request, None, None).await?,
    };
    info_in(session, &request, objects).await.map(Some)
}
