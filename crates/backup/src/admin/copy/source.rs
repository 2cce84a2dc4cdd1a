//! The backup to copy: its manifest, as read and as written at the destination.

use bytes::Bytes;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Manifest, StoredManifest};
use xb_repo::names::{BackupName, RunId, manifest_key};
use xb_repo::records::{self, Proof};
use xb_repo::root::Root;
use xb_repo::verification::Level;

use crate::admin::copy::request::CopyRequest;
use crate::error::BackupError;
use crate::read::unlock::unlock;

/// The backup to copy.
pub(super) struct Source {
    pub(super) manifest: Manifest,
    /// The same, as it was read.
    pub(super) stored: StoredManifest,
    /// Digest of the manifest at the source.
    pub(super) original: String,
    pub(super) run: RunId,
    /// The manifest for the destination.
    pub(super) copied: Manifest,
    pub(super) bytes: Bytes,
    /// Digest of those bytes.
    pub(super) digest: String,
    pub(super) same_name: bool,
    /// What is doubtful about it, although its bytes are those that were stored.
    pub(super) doubt: Option<String>,
}

impl Source {
    /// Reads the manifest of a backup to copy.
    pub(super) async fn read(
        from: &Root,
        name: &BackupName,
    ) -> Result<StoredManifest, BackupError> {
        if let Some(stored) = from.stored_manifest(name).await? {
            return Ok(stored);
        }
        let state = match xb_repo::list::state_without_manifest(from, name).await? {
            "" if !from.list_below(name.as_str()).await?.is_empty() => {
                ": it is a stock backup without a manifest, so its completeness cannot be verified"
            }
            state => state,
        };
        Err(RepoError::NotThere { name: name.to_string(), state }.into())
    }

    /// Opens the backup with this manifest, if it may be copied.
    pub(super) async fn open(
        from: &Root,
        to: &Root,
        request: &CopyRequest,
        stored: StoredManifest,
        memory: u64,
    ) -> Result<Self, BackupError> {
        let name = &request.name;
        let (manifest, original) = (stored.manifest.clone(), stored.digest());
        let Some(run) = manifest.run_id() else {
            return Err(BackupError::Bug("a checked manifest has no run"));
        };
        let (mut mac, mut doubt) = (None, None);
        if !request.keys.is_empty() {
            let key = unlock(from, name, Some(&stored), request.given(memory)).await?.key;
            let id = manifest.stream_id().filter(|_| !manifest.is_carried());
            mac = key.zip(id).map(|(key, id)| key.manifest_key(&id));
        }
        if !request.options.unverified {
            let results = records::results(from, name, &stored.digest(), mac.as_ref()).await?;
            let proof = Proof::of(&results.results);
            if mac.is_some() && !proof.reaches(Level::Checksum) && proof.failed.is_none() {
                let all = records::results(from, name, &stored.digest(), None).await?;
                refuse_proof_without_key(name, &Proof::of(&all.results))?;
            }
            let of_bytes =
                results.results.iter().filter(|found| found.ok || found.restore.is_none());
            let of_bytes: Vec<_> = of_bytes.cloned().collect();
            // Refusing it would leave each later night without a copy.
            match proof.failed.is_some() && Proof::of(&of_bytes).reaches(Level::Checksum) {
                true => doubt = Some(failed_trial(name, "at the source")),
                false => demand_proof(name, proof)?,
            }
        }
        let same_name = *name == request.to;
        let trusted = |stored: &StoredManifest| {
            let key = manifest_key(&request.to);
            let trusted = to.signing().refuse_untrusted(stored);
            trusted.map_err(|source| RepoError::Manifest { key, source })
        };
        if same_name {
            trusted(&stored)?;
            let (bytes, digest) = (Bytes::copy_from_slice(stored.bytes()), original.clone());
            let copied = manifest.clone();
            return Ok(Self {
                manifest,
                stored,
                original,
                run,
                copied,
                bytes,
                digest,
                same_name,
                doubt,
            });
        }
        if manifest.is_sealed() && !manifest.is_carried() && mac.is_none() {
            return Err(BackupError::Keys(format!(
                "{name} is sealed: copying it under another name needs its key, because the manifest contains the name"
            )));
        }
        let copied = Manifest { name: request.to.to_string(), ..manifest.clone() };
        let bytes = to.encoded(&request.to, &copied, mac.as_ref())?;
        let encoded = Manifest::decode(&bytes).map_err(|source| {
            BackupError::Repo(RepoError::Manifest { key: manifest_key(&request.to), source })
        })?;
        // A signature covers the name, so the copy has that of this host, or none.
        trusted(&encoded)?;
        let digest = encoded.digest();
        Ok(Self { manifest, stored, original, run, copied, bytes, digest, same_name, doubt })
    }
}

/// The doubt about a backup of which only a trial restore has failed: the host of the trial may be the cause.
pub(super) fn failed_trial(name: &BackupName, place: &str) -> String {
    format!(
        "a trial restore of {name} {place} has found faults, although its bytes are as they were stored: verify it here with --level=restore, and take a full backup if that fails, too"
    )
}

/// Explains why a proof made without a key does not count: write access to the store is enough to forge
/// one.
fn refuse_proof_without_key(name: &BackupName, proof: &Proof) -> Result<(), BackupError> {
    if !proof.reaches(Level::Checksum) {
        return Ok(());
    }
    let why = "it was verified only without a key, and a copy with a key accepts only a record that the key authenticates; verify it with the key, or copy it under its own name without a key";
    Err(BackupError::Unverified { name: name.to_string(), why: why.to_owned() })
}

fn demand_proof(name: &BackupName, proof: Proof) -> Result<(), BackupError> {
    if proof.reaches(Level::Checksum) {
        return Ok(());
    }
    let why = match (proof.failed, proof.level) {
        (Some(level), _) => format!("the last verification found damage at level {level}"),
        (None, Some(level)) => format!("it was verified only up to level {level}"),
        (None, None) => "there is no verification record for its present content".to_owned(),
    };
    Err(BackupError::Unverified { name: name.to_string(), why })
}
