//! Makes a backup of stored objects: compares them with what was sent, and commits the manifest.

use jiff::Timestamp;
use xb_pipeline::{AutoCodec, EndProof, PackOutput};
use xb_repo::chain::bases;
use xb_repo::claim::commit::Commit;
use xb_repo::error::RepoError;
use xb_repo::manifest::Manifest;
use xb_repo::manifest::clone_facts::CloneFacts;
use xb_repo::names::manifest_key;

use super::claim::RunFolder;
use super::clone_keys::refuse_unsealed;
use super::request::{PutReport, PutRequest};
use super::run_manifest::find_its_base;
use super::stored_objects::{CompanionObjects, list_stored, prove_classic};
use super::upload::UploadOutcome;
use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::checksums;
use crate::objects::ledger::Ledger;
use crate::session::Session;
use crate::write::md5_list::Md5List;
use crate::write::writer::Writer;

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
        mut sent: UploadOutcome,
        ledger: Option<&Ledger>,
        producer: Option<&mut Writer>,
        started: Timestamp,
    ) -> Result<PutReport, BackupError> {
        let Session { observer, cancel, .. } = session;
        observer.begin_phase("commit");
        let root = &self.root;
        let sums = cancel.or(self.put_lists(&sent.put.output, sent.records.md5.take())).await?;
        let keys =
            sent.keys_object.as_ref().map(|keys_object| keys_object.encode().to_vec().into());
        let beside = CompanionObjects { keys, sums };
        if let EndProof::Missing(why) = &sent.put.scanned.proof {
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
        let mysql_clone = CloneFacts::of(&sent.put.scanned).map_err(BackupError::Input)?;
        let writer = match producer {
            None => None,
            Some(producer) => {
                // The producer's output has ended; only its exit status is missing.
                tokio::select! {
                    ended = producer.exits(xb_uploader::warn) => ended?,
                    signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
                }
                Some(producer)
            }
        };
        let producer = writer.as_ref().and_then(|writer| writer.facts());
        let compression = sent.auto.as_ref().map(AutoCodec::report);
        let mut manifest =
            self.manifest(request, &sent, producer, started, compression.as_ref(), mysql_clone);
        if let Some(writer) = &writer {
            let (scanned, start) = (&sent.put.scanned, manifest.source.redo_start_lsn);
            cancel.or(writer.refuse_imported(scanned, start, request.watch.as_ref())).await?;
        }
        cancel.or(find_its_base(root, request, &mut manifest)).await?;
        // A base that was asked for was found with its whole chain.
        let bases = cancel.or(bases(root, &manifest, request.since.is_some())).await?;
        let run = manifest.run.clone();
        let commit =
            Commit { root, name: &self.name, run: &run, claim: &self.claim, bases: &bases };
        cancel.or(commit.await_removals()).await?;
        // Right before the manifest: a late request of a run that lost the name may still arrive.
        cancel.or(self.prove(&mut manifest, &beside, ledger)).await?;
        let bytes = root.encoded(&self.name, &manifest, sent.mac.as_ref())?;
        let encoded = Manifest::decode(&bytes)
            .map_err(|source| RepoError::Manifest { key: manifest_key(&self.name), source })?;
        cancel.or(refuse_unsealed(session, &self.name, &encoded, false)).await?;
        let look = list_stored(root, &self.keys, &manifest, &beside);
        commit.write(bytes, look, BackupError::outage).await?;
        let store = root.store();
        let (requests, retries) = (store.traffic().requests(), store.traffic().retries());
        let protection = store.protection();
        Ok(PutReport { manifest, requests, retries, protection, plan: sent.plan, compression })
    }

    /// Checks that the objects in the store are those that this run sent, and writes the checksums
    /// of a classic run.
    async fn prove(
        &self,
        manifest: &mut Manifest,
        beside: &CompanionObjects,
        ledger: Option<&Ledger>,
    ) -> Result<(), BackupError> {
        // The claim of a packed run has no lease that may have ended while a removal was waited for.
        if self.claim.holds_name() {
            self.claim.confirm().await?;
        }
        let listed = list_stored(&self.root, &self.keys, manifest, beside).await?;
        beside.prove_keys(&self.root, &self.keys).await?;
        let Some(ledger) = ledger else { return Ok(()) };
        prove_classic(&self.root, &self.keys, manifest, ledger, listed).await
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
