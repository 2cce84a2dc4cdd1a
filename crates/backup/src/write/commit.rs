//! Makes a backup of the stored objects: compares them with what was sent, and commits the manifest.

use jiff::Timestamp;
use xb_pipeline::{EndProof, PackOutput};
use xb_repo::chain::bases;
use xb_repo::claim::commit::{commit, confirm_commit, recheck_bases, refuse_committed};
use xb_repo::claim::mark::{await_removals, take_back};
use xb_repo::error::RepoError;
use xb_repo::manifest::clone_facts::CloneFacts;
use xb_repo::manifest::{Base, Manifest};
use xb_repo::names::{BackupName, manifest_key};
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use super::clone_keys::refuse_unsealed;
use super::request::{PutReport, PutRequest};
use super::run_folder::{CompanionObjects, RunFolder};
use super::run_manifest::find_its_base;
use super::upload::UploadOutcome;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::checksums;
use crate::objects::ledger::Ledger;
use crate::session::Session;
use crate::write::md5_list::Md5List;
use crate::write::writer::Writer;

/// Waits until no removal of `bases` is under way. [`recheck_bases`] waits for those that begin later; but no signal
/// ends that wait, because the manifest exists then, and a mark of a dead command counts for an hour.
///
/// # Errors
/// [`RepoError::Store`].
pub(crate) async fn await_removals_of_bases(root: &Root, bases: &[Base]) -> Result<(), RepoError> {
    for base in bases {
        await_removals(root, &BackupName::new(&base.name)?, &base.run).await?;
    }
    Ok(())
}

impl RunFolder {
    /// Makes a backup of the stored objects: lists, proofs, and the manifest at the end.
    pub(super) async fn commit(
        &self,
        session: &Session,
        request: &PutRequest,
        mut sent: UploadOutcome,
        producer: Option<&mut Writer>,
        started: Timestamp,
    ) -> Result<PutReport, BackupError> {
        let ledger = sent.records.ledger.take();
        let committed =
            self.commit_sent(session, request, sent, ledger.as_ref(), producer, started).await;
        if committed.is_err() {
            self.has_sent(ledger);
        }
        committed
    }

    async fn commit_sent(
        &self,
        session: &Session,
        request: &PutRequest,
        sent: UploadOutcome,
        ledger: Option<&Ledger>,
        producer: Option<&mut Writer>,
        started: Timestamp,
    ) -> Result<PutReport, BackupError> {
        let Session { observer, cancel, .. } = session;
        observer.begin_phase("commit");
        let (root, put, records) = (&self.root, sent.put, sent.records);
        let sums = cancel.or(self.put_lists(&put.output, records.md5)).await?;
        let keys =
            sent.keys_object.as_ref().map(|keys_object| keys_object.encode().to_vec().into());
        let beside = CompanionObjects { keys, sums };
        if let EndProof::Missing(why) = &put.scanned.proof {
            if let Some(ledger) = ledger {
                // If this fails, the objects count as those of a failed run.
                cancel
                    .or(async {
                        self.leave(ledger).await.ok();
                        Ok::<_, BackupError>(())
                    })
                    .await?;
            }
            return Err(BackupError::Incomplete { why: why.to_string() });
        }
        let mysql_clone = CloneFacts::of(&put.scanned).map_err(BackupError::Input)?;
        let producer = match producer {
            None => None,
            Some(producer) => {
                // The producer's output has ended; only its exit status is missing.
                tokio::select! {
                    ended = producer.exits(xb_uploader::warn) => ended?,
                    signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
                }
                producer.facts()
            }
        };
        let compression = sent.auto.map(|codec| codec.report());
        let mut manifest = self.manifest(
            request,
            &put,
            sent.uploaded,
            producer,
            started,
            sent.keys_object.as_ref(),
            compression.as_ref(),
            mysql_clone,
        );
        cancel.or(find_its_base(root, request, &mut manifest)).await?;
        // A base that was asked for was found with its whole chain.
        let bases = cancel.or(bases(root, &manifest, request.since.is_some())).await?;
        cancel.or(refuse_committed(root, &self.name, &manifest.run)).await?;
        // Before the look for removals: whoever takes this run for dead, because it slept, sees the claim, or is seen.
        cancel.or(self.claim.confirm()).await?;
        cancel.or(await_removals(root, &self.name, &manifest.run)).await?;
        cancel.or(await_removals_of_bases(root, &bases)).await?;
        // Right before the manifest: a late request of a run that lost the name may still arrive.
        cancel.or(self.prove(&mut manifest, &beside, ledger)).await?;
        let bytes = root.encoded(&self.name, &manifest, sent.mac.as_ref())?;
        let encoded = Manifest::decode(&bytes)
            .map_err(|source| RepoError::Manifest { key: manifest_key(&self.name), source })?;
        cancel.or(refuse_unsealed(session, &self.name, &encoded, false)).await?;
        commit(root, &self.name, &manifest.run, bytes).await?;
        self.recheck(&manifest, &beside).await?;
        recheck_bases(root, &self.name, &manifest.run, &bases, &self.claim).await?;
        confirm_commit(root, &self.name, &self.claim, &manifest.run).await?;
        let store = root.store();
        let (requests, retries) = (store.traffic().requests(), store.traffic().retries());
        let protection = store.protection();
        Ok(PutReport { manifest, requests, retries, protection, plan: sent.plan, compression })
    }

    /// Checks after the commit that the objects of a packed run still exist. The run may have slept at any moment before
    /// it; a process that took it for dead then saw no manifest. That its mark is over may be the end of the objects.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] if some are gone: the manifest is removed again. [`RepoError::InDoubt`] if that cannot be
    /// determined.
    async fn recheck(
        &self,
        manifest: &Manifest,
        beside: &CompanionObjects,
    ) -> Result<(), BackupError> {
        // The name of a classic run is its own: see `confirm_commit`.
        if self.claim.holds_name() {
            return Ok(());
        }
        match self.list(manifest, beside).await {
            Ok(_) => Ok(()),
            Err(BackupError::Repo(RepoError::Store(source)))
                if source.kind != StoreErrorKind::Rejected =>
            {
                let name = self.name.to_string();
                Err(RepoError::InDoubt { name, source }.into())
            }
            Err(gone) => {
                take_back(&self.root, &self.name, &manifest.run, &self.claim).await?;
                Err(gone)
            }
        }
    }

    /// Writes the lists that accompany the objects. Returns the size of the checksum list of a
    /// packed run.
    async fn put_lists(
        &self,
        output: &PackOutput,
        md5: Option<Md5List>,
    ) -> Result<Option<u64>, BackupError> {
        let root = &self.root;
        if let Some(list) = md5 {
            let key = root.md5_key(&self.name);
            let list = list.finish();
            let size = list.len() as u64;
            root.store().put(&key, list.into()).await?;
            root.store().confirm_size(&key, size).await?;
        }
        if let PackOutput::Packed { packed, .. } | PackOutput::Native { packed, .. } = output
            && !packed.sums.is_empty()
        {
            let key = self.keys.sums();
            let list = checksums::encode(&packed.sums);
            let size = list.len() as u64;
            root.store().put(&key, list.into()).await?;
            return Ok(Some(size));
        }
        Ok(None)
    }
}
