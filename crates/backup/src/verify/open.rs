//! The first level of a verification: manifest, keys object and listing.

use std::sync::Arc;

use xb_encryptor::{KeysObject, SlotKind};
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, Manifest, StoredManifest};
use xb_repo::names::{CATALOG, KEYS};
use xb_repo::verification::{Authenticity, Level};
use xb_uploader::StoreErrorKind;

use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::checksums::KnownChecksums;
use crate::objects::classic_checksums::list_with_sums;
use crate::read::find::stock_files;
use crate::read::unlock::{keys_object, open_sealed};
use crate::verify::contradicted::refuse_denied;
use crate::verify::run::{ReadableBackup, Run};

impl Run<'_> {
    /// Checks the first level of a packed backup. Returns `None` if no further check is possible.
    pub(super) async fn open_packed(
        &mut self,
        stored: StoredManifest,
    ) -> Result<Option<ReadableBackup>, BackupError> {
        let (name, keys) = (&self.request.name, &self.request.keys);
        let manifest = stored.manifest.clone();
        let (Some(facts), Some(run)) = (manifest.packed.clone(), manifest.run_id()) else {
            return Err(BackupError::Bug("a checked manifest is incomplete"));
        };
        self.report.manifest = Some(stored.digest());
        self.report.layout = Some(Layout::Packed);
        (self.report.objects, self.report.stored_bytes) = (manifest.objects, manifest.stored_bytes);
        self.report.authenticity = match &facts.sealed {
            None => Authenticity::NotSealed,
            Some(_) => Authenticity::NoKey,
        };
        if facts.sealed.is_none() {
            self.request
                .given(self.session.resources.memory)
                .allows_unsealed(name, Some(&manifest))?;
        }
        let mut key = None;
        // One that is read at all is by a trusted host, if there are any.
        let is_trusted = !self.session.root.signing().trusted.is_empty();
        if let Some(signer) = stored.signer() {
            let unknown = "; no host is trusted here, so this does not prove who wrote it";
            self.note(&format!("signed by {signer}{}", if is_trusted { "" } else { unknown }));
        }
        if facts.sealed.is_some() {
            let object = format!("{}/{KEYS}", self.session.root.run_keys(name, run).folder());
            match self
                .session
                .cancel
                .or(keys_object(&self.session.root, name, &manifest, run))
                .await
            {
                Ok(keys_object) if keys.is_empty() && self.request.level < Level::Decrypt => {
                    drop(keys_object);
                    self.note(match is_trusted {
                        false => "without a key, the writer of this backup is unknown, and manifest and keys object are not authenticated",
                        true => "without a key, the keys object is not authenticated",
                    });
                }
                Ok(keys_object) => {
                    let given = self.request.given(self.session.resources.memory);
                    match open_sealed(&self.session.root, name, &stored, &keys_object, given) {
                        Ok(opened) => {
                            self.mac = Some(opened.manifest_key(keys_object.stream_id()));
                            key = Some(Arc::new(opened));
                            if only_recipients(&keys_object) && !is_trusted {
                                self.note("the backup has only recipients as key slots: this proves that nothing was changed, but not who wrote it");
                            }
                        }
                        Err(error @ BackupError::Repo(RepoError::Manifest { .. })) => {
                            let object = format!("{CATALOG}/{name}");
                            self.found(Level::Manifest, Some(object), error.to_string());
                        }
                        Err(BackupError::Keys(what)) if keys.is_empty() => {
                            let less = "levels up to checksum need no key";
                            return Err(BackupError::Keys(format!("{what}; {less}")));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(BackupError::Damaged { what, .. }) => {
                    let (store, key) =
                        (self.session.root.store(), self.session.root.run_keys(name, run).keys());
                    let missing = StoreErrorKind::NotFound;
                    if store.get(&key).await.is_err_and(|error| error.kind == missing) {
                        self.session.cancel.or(refuse_denied(store, &key, Level::Manifest)).await?;
                    }
                    self.found(Level::Manifest, Some(object), what);
                }
                Err(error) => return Err(error),
            }
        }
        if key.is_some() {
            self.report.authenticity = match manifest.is_carried() {
                true => Authenticity::Unvouched,
                false => Authenticity::Authenticated,
            };
        }
        let what = format!("intact, {}", self.report.authenticity.as_str());
        self.report.close(Level::Manifest, what);
        // Without a sound keys object, the levels that need no key can still be checked.
        Ok(Some(ReadableBackup { manifest, facts, run, key }))
    }

    pub(super) async fn open_classic(
        &mut self,
        manifest: Option<Manifest>,
    ) -> Result<(), BackupError> {
        let name = &self.request.name;
        self.report.layout = Some(Layout::Classic);
        if self.wants(Level::List) {
            self.session.observer.begin_phase("list");
        }
        let Some(manifest) = manifest else {
            self.session.root.refuse_without_manifest(name)?;
            let (look, files) =
                self.session.cancel.or(stock_files(&self.session.root, name)).await?;
            self.request.given(self.session.resources.memory).allows_unsealed(name, None)?;
            self.note("a stock backup has no manifest, so missing files cannot be detected");
            self.report.close(Level::Manifest, "no manifest".to_owned());
            self.classic(None, files).await?;
            return self.session.cancel.or(look.still_holds(&self.session.root, name)).await;
        };
        let files = self
            .session
            .cancel
            .or(list_with_sums(&self.session.root, name, Some(&manifest)))
            .await?;
        self.request.given(self.session.resources.memory).allows_unsealed(name, Some(&manifest))?;
        self.report.authenticity = Authenticity::NotSealed;
        let what = format!("intact, {}", self.report.authenticity.as_str());
        self.report.close(Level::Manifest, what);
        if matches!(files.known(), KnownChecksums::Whole(_)) {
            self.warn(
                "a damaged object cannot be named, because the checksum list is missing or damaged",
            );
        }
        self.classic(Some(manifest), files).await
    }
}

/// Returns whether all key slots of the backup are for recipients.
fn only_recipients(keys_object: &KeysObject) -> bool {
    keys_object.slots().all(|slot| slot.kind == SlotKind::Recipient)
}
