//! Finds the objects of a backup, and what opens them.

use std::sync::Arc;

use bytes::Bytes;
use xb_encryptor::DataKey;
use xb_repo::claim::{ClaimSnapshot, snapshot_claim};
use xb_repo::error::RepoError;
use xb_repo::list::state_without_manifest;
use xb_repo::manifest::{End, Layout, Manifest, PackedFacts, StoredManifest};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::objects::classic::ClassicFiles;
use crate::objects::classic_checksums::list_with_sums;
use crate::read::packed_index::{Index, PackedBody};
use crate::read::partial::{Parts, parts};
use crate::read::request::GetRequest;
use crate::read::unlock::{UnlockedBackup, keys_object, unlock};
use crate::selection::{Checkpoint, Chosen, Resumable};
use crate::session::Session;

/// Data objects of a backup, in stream order.
pub(crate) enum Objects {
    Packed(PackedBackup, ReadMode),
    Classic(Origin, ClassicFiles, Option<Chosen>),
}

/// A packed backup.
pub(crate) struct PackedBackup {
    pub(super) manifest: Manifest,
    /// SHA-256 of its bytes, hexadecimal.
    pub(super) digest: String,
    pub(super) facts: PackedFacts,
    pub(super) run: RunId,
}

/// Evidence that the objects in the stock layout belong together.
#[expect(clippy::large_enum_variant, reason = "there is one for each read")]
pub(crate) enum Origin {
    /// A manifest, and the SHA-256 of its bytes, hexadecimal.
    Manifest(Manifest, String),
    /// A stock backup has no manifest: its objects must not change while they are read.
    Stock(ClaimSnapshot),
}

/// How the objects of a packed backup are unpacked.
pub(crate) enum ReadMode {
    /// All frames are unpacked; with a key, the seal is opened first.
    Unpack(Option<Arc<DataKey>>),
    /// Only the frames of these parts of the body are unpacked.
    Parts { body: Box<PackedBody>, parts: Box<Parts> },
    /// The objects are returned as stored, after these bytes.
    AsStored(Bytes),
}

impl Objects {
    /// The manifest, if there is one.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        match self {
            Self::Packed(packed, _) => Some(&packed.manifest),
            Self::Classic(Origin::Manifest(manifest, _), ..) => Some(manifest),
            Self::Classic(Origin::Stock(_), ..) => None,
        }
    }

    /// SHA-256 of the manifest, hexadecimal, if there is one.
    pub(crate) fn digest(&self) -> Option<&str> {
        match self {
            Self::Packed(packed, _) => Some(&packed.digest),
            Self::Classic(Origin::Manifest(_, digest), ..) => Some(digest),
            Self::Classic(Origin::Stock(_), ..) => None,
        }
    }

    /// Returns whether the backup holds raw bytes of unknown content.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self, Self::Packed(packed, _) if packed.manifest.end == End::Raw)
    }

    /// Files of an earlier restore that count; `None` if nothing was given to [`find`].
    pub(crate) fn resumable(&self) -> Option<&Resumable> {
        match self {
            Self::Packed(_, ReadMode::Parts { parts, .. }) => Some(&parts.resumable),
            Self::Packed(..) => None,
            Self::Classic(_, files, _) => Some(files.resumable()),
        }
    }

    /// Bytes of the stream that will be fetched, if known: with a backup that is returned as
    /// stored, its stored bytes.
    pub(crate) fn bytes_to_fetch(&self) -> Option<u64> {
        match self {
            Self::Packed(packed, ReadMode::AsStored(front)) => {
                Some(packed.manifest.stored_bytes.saturating_add(front.len() as u64))
            }
            Self::Classic(_, files, _) => Some(files.bytes()),
            Self::Packed(..) => self.stream_bytes(),
        }
    }

    /// Length of the stream in bytes, if the manifest states it.
    pub(crate) fn stream_bytes(&self) -> Option<u64> {
        match self {
            Self::Packed(_, ReadMode::Parts { parts, .. }) => Some(parts.stream_bytes()),
            Self::Classic(_, files, Some(_)) => Some(files.bytes()),
            Self::Packed(packed, _) => Some(packed.manifest.stream_bytes),
            Self::Classic(Origin::Manifest(manifest, _), ..) => Some(manifest.stream_bytes),
            Self::Classic(Origin::Stock(_), ..) => None,
        }
    }
}

/// Finds the objects of a backup and checks that the given keys may read it. Reads no data object.
/// `unlocked` is the result of an earlier check.
pub(crate) async fn find(
    session: &Session,
    request: &GetRequest,
    unlocked: Option<&UnlockedBackup>,
    proven: Option<&Checkpoint>,
) -> Result<Objects, BackupError> {
    let (root, name) = (&session.root, &request.name);
    match root.stored_manifest(name).await? {
        Some(stored) if stored.manifest.layout == Layout::Packed => {
            let manifest = stored.manifest.clone();
            let (Some(facts), Some(run)) = (manifest.packed.clone(), manifest.run_id()) else {
                return Err(BackupError::Bug("a checked manifest is incomplete"));
            };
            let mode = if request.as_stored {
                if !request.files.is_all() {
                    return Err(BackupError::Selection(
                        "--as-stored cannot select single files".into(),
                    ));
                }
                ReadMode::AsStored(keys_in_front(root, request, &manifest, &facts, run).await?)
            } else {
                let key = open(session, request, Some(&stored), unlocked).await?;
                if request.files.is_all() && proven.is_none() {
                    ReadMode::Unpack(key)
                } else {
                    if manifest.end == End::Raw {
                        return Err(BackupError::Selection(format!(
                            "{name} was stored with --raw, so single files cannot be selected"
                        )));
                    }
                    let key = key.as_deref();
                    let body = PackedBody::open(root, name, &manifest, &facts, run, key).await?;
                    some_files(body, request, proven).await?
                }
            };
            let digest = stored.digest();
            Ok(Objects::Packed(PackedBackup { manifest, digest, facts, run }, mode))
        }
        stored => {
            if request.as_stored {
                return Err(BackupError::Selection(format!(
                    "{name} is not a packed backup; leave out --as-stored, because `get` always returns it as stored"
                )));
            }
            let (origin, mut files) = match stored {
                Some(stored) => {
                    let files = list_with_sums(root, name, Some(&stored.manifest)).await?;
                    open(session, request, Some(&stored), unlocked).await?;
                    files.agree_with(name, &stored.manifest)?;
                    let digest = stored.digest();
                    (Origin::Manifest(stored.manifest, digest), files)
                }
                None => {
                    root.refuse_without_manifest(name)?;
                    let (snapshot, files) = stock_files(root, name).await?;
                    open(session, request, None, unlocked).await?;
                    (Origin::Stock(snapshot), files)
                }
            };
            let chosen = match request.files.is_all() {
                true => None,
                false => Some(files.select(&request.files)?),
            };
            files.check_runs(name)?;
            if let Some(proven) = proven {
                files.leave_out(proven);
            }
            Ok(Objects::Classic(origin, files, chosen))
        }
    }
}

/// Finds those of the selected files in the objects of a packed backup that is not sealed, whose manifest need not be in the
/// store yet.
pub(crate) async fn find_unsealed(
    session: &Session,
    request: &GetRequest,
    stored: &StoredManifest,
) -> Result<Objects, BackupError> {
    let (root, manifest) = (&session.root, stored.manifest.clone());
    let (Some(facts), Some(run)) = (manifest.packed.clone(), manifest.run_id()) else {
        return Err(BackupError::Bug("a checked manifest is incomplete"));
    };
    let body = PackedBody::open(root, &request.name, &manifest, &facts, run, None).await?;
    let mode = some_files(body, request, None).await?;
    let digest = stored.digest();
    Ok(Objects::Packed(PackedBackup { manifest, digest, facts, run }, mode))
}

async fn some_files(
    body: PackedBody,
    request: &GetRequest,
    proven: Option<&Checkpoint>,
) -> Result<ReadMode, BackupError> {
    let index = Index::load(&body).await?;
    let none = Checkpoint::default();
    let parts = parts(&index, &request.files, proven.unwrap_or(&none)).await?;
    Ok(ReadMode::Parts { body: Box::new(body), parts: Box::new(parts) })
}

/// Finds the objects of a stock backup, and the facts that must still hold once they were read.
///
/// # Errors
/// [`RepoError::NotThere`] if there are none, or if they are what an unfinished run left; [`RepoError::Store`] if the store
/// lists a manifest that it does not return.
pub(crate) async fn stock_files(
    root: &Root,
    name: &BackupName,
) -> Result<(ClaimSnapshot, ClassicFiles), BackupError> {
    root.refuse_denied_manifest(name).await?;
    // Before the listing whose objects are read.
    let snapshot = snapshot_claim(root, name).await?;
    let files = list_with_sums(root, name, None).await?;
    if files.is_empty() || snapshot.is_unfinished() {
        let state = state_without_manifest(root, name).await?;
        return Err(RepoError::NotThere { name: name.to_string(), state }.into());
    }
    Ok((snapshot, files))
}

/// Opens the backup: returns the data key if it is sealed, or an error if it may not be read.
async fn open(
    session: &Session,
    request: &GetRequest,
    stored: Option<&StoredManifest>,
    unlocked: Option<&UnlockedBackup>,
) -> Result<Option<Arc<DataKey>>, BackupError> {
    let name = &request.name;
    match unlocked {
        None => {
            let given = request.given(session.resources.memory);
            Ok(unlock(&session.root, name, stored, given).await?.key)
        }
        Some(known) if known.digest == stored.map(StoredManifest::digest) => Ok(known.key.clone()),
        Some(_) => Err(RepoError::Chain {
            name: name.to_string(),
            what: "it was replaced while its chain was being restored".to_owned(),
        }
        .into()),
    }
}

/// Builds the keys block that turns a sealed native stream into a native file.
async fn keys_in_front(
    root: &Root,
    request: &GetRequest,
    manifest: &Manifest,
    packed: &PackedFacts,
    run: RunId,
) -> Result<Bytes, BackupError> {
    let name = &request.name;
    if !request.keys.is_empty() {
        return Err(BackupError::Keys(format!("--as-stored needs no key to read {name}")));
    }
    if packed.sealed.is_none() {
        return Ok(Bytes::new());
    }
    let block = keys_object(root, name, manifest, run).await?.encode_block();
    block.map(Bytes::from).map_err(|error| BackupError::Keys(error.to_string()))
}
