//! Chooses the backups to restore: the named one with its chain, all of them checked against the given keys.

use xb_encryptor::DataKey;
use xb_pipeline::CLONE_INFO;
use xb_repo::chain::{Link, chain_of};
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;

use crate::error::BackupError;
use crate::read::file_list::packed;
use crate::read::request::GetRequest;
use crate::read::unlock::{UnlockedBackup, unlock};
use crate::restore::prepare::{PrepareChain, PrepareTool};
use crate::restore::request::AfterRestore;
use crate::session::Session;

/// One backup of the chain to restore.
pub(crate) struct ChosenBackup {
    pub(crate) name: BackupName,
    manifest: Option<Box<Manifest>>,
    /// `None` for a stock backup, which is checked once its objects are listed.
    unlocked: Option<UnlockedBackup>,
    is_clone: bool,
}

impl ChosenBackup {
    /// Bytes of the stream; 0 if there is no manifest.
    pub(super) fn stream_bytes(&self) -> u64 {
        self.manifest.as_ref().map_or(0, |manifest| manifest.stream_bytes)
    }

    /// The program that took the backup, if the manifest names it.
    pub(crate) fn tool(&self) -> Option<&str> {
        self.manifest.as_ref()?.source.tool_name.as_deref()
    }

    /// Returns whether it is a clone of MySQL.
    pub(crate) fn is_clone(&self) -> bool {
        self.is_clone
    }

    /// The manifest, if there is one.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_deref()
    }

    /// The result of the check of its keys; `None` for a stock backup.
    pub(super) fn unlocked(&self) -> Option<&UnlockedBackup> {
        self.unlocked.as_ref()
    }

    /// The key that opens it; `None` if it is not sealed, or no key was needed.
    pub(crate) fn key(&self) -> Option<&DataKey> {
        self.unlocked.as_ref()?.key.as_deref()
    }

    /// Checks whether a backup of the chain may be read.
    async fn of(
        session: &Session,
        request: &GetRequest,
        Link { name, stored }: Link,
    ) -> Result<Self, BackupError> {
        let root = &session.root;
        let unlocked =
            unlock(root, &name, Some(&stored), request.given(session.resources.memory)).await?;
        let manifest = Box::new(stored.manifest);
        // The manifest of a native stream from elsewhere does not state its content.
        let is_clone = match manifest.is_carried() {
            false => manifest.is_clone(),
            true => {
                let (files, _) = packed(root, &name, &manifest, unlocked.key.as_deref()).await?;
                files.unwrap_or_default().iter().any(|file| file.path == CLONE_INFO)
            }
        };
        Ok(Self { name, manifest: Some(manifest), unlocked: Some(unlocked), is_clone })
    }
}

/// Backups to restore, the full one first. All of them are checked against the given keys before a
/// file of the first one is created.
pub(crate) async fn links(
    session: &Session,
    request: &GetRequest,
    ready: &AfterRestore,
) -> Result<Vec<ChosenBackup>, BackupError> {
    let root = &session.root;
    let links = match root.stored_manifest(&request.name).await? {
        Some(stored) if stored.manifest.is_incremental() && !ready.alone => {
            chain_of(root, &request.name, stored).await?
        }
        Some(stored) => vec![Link { name: request.name.clone(), stored }],
        // Unknown for stock backups.
        None => {
            let name = request.name.clone();
            return Ok(vec![ChosenBackup {
                name,
                manifest: None,
                unlocked: None,
                is_clone: false,
            }]);
        }
    };
    if links.len() > 1 && ready.prepare().is_none() {
        return Err(BackupError::Selection(format!(
            "{} is incremental and must be prepared on top of its base: add --prepare, or --alone to restore only its own files",
            request.name
        )));
    }
    let mut wanted = Vec::with_capacity(links.len());
    for link in links {
        wanted.push(ChosenBackup::of(session, request, link).await?);
    }
    Ok(wanted)
}

/// Returns whether increments may be merged in one pass, as far as the manifests tell: not those of xtrabackup.
pub(crate) fn may_merge(ready: &AfterRestore, links: &[ChosenBackup]) -> bool {
    let tool = links.iter().find_map(ChosenBackup::tool).and_then(PrepareTool::of_name);
    let is_wanted = ready.prepare().is_some_and(|options| options.chain == PrepareChain::Auto);
    is_wanted && links.len() > 1 && tool != Some(PrepareTool::XtraBackup)
}
