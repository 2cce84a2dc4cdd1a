//! Builds the manifest of a run.

use jiff::Timestamp;
use xb_compressor::Algorithm;
use xb_pipeline::{AutoReport, EndProof, PackOutput};
use xb_repo::error::RepoError;
use xb_repo::hex::hex;
use xb_repo::history::{Verdict, judge};
use xb_repo::lineage::{find_base, same_server};
use xb_repo::manifest::clone_facts::CloneFacts;
use xb_repo::manifest::source_info::{SourceInfo, made_at, why_undated};
use xb_repo::manifest::tables::Tables;
use xb_repo::manifest::{
    ClassicFacts, End, FORMAT, Manifest, MemberFacts, PackedFacts, Producer as ProducerFacts,
    Sealed,
};
use xb_repo::names::BackupName;
use xb_repo::resolve::manifests;
use xb_repo::root::Root;

use super::claim::RunFolder;
use super::incremental::accepted;
use super::upload::UploadOutcome;
use super::{MergedChain, PutLayout, PutRequest};
use crate::error::BackupError;

impl RunFolder {
    /// The manifest of the objects that were sent, without base and history.
    pub(super) fn manifest(
        &self,
        request: &PutRequest,
        UploadOutcome { put, uploaded, keys_object, .. }: &UploadOutcome,
        producer: Option<ProducerFacts>,
        started: Timestamp,
        compressed: Option<&AutoReport>,
        mysql_clone: Option<CloneFacts>,
    ) -> Manifest {
        let (packed, last_index, stream, codecs) = match &put.output {
            PackOutput::Classic(_) => (None, None, None, Vec::new()),
            PackOutput::Packed { summary, packed } => {
                let codecs = match (compressed, &request.layout) {
                    (Some(report), _) => report.codecs.iter().map(|c| c.0.to_string()).collect(),
                    (None, PutLayout::Packed { compress, .. }) => vec![compress.to_string()],
                    (None, PutLayout::Classic { .. }) => Vec::new(),
                };
                (Some(packed), summary.end.last_index, None, codecs)
            }
            PackOutput::Native { header, trailer, packed } => {
                (Some(packed), trailer.last_index, Some(hex(&header.id().0)), Vec::new())
            }
        };
        let chunk_size = request.object_size.get();
        let classic = match (&put.output, &request.layout) {
            (PackOutput::Classic(cut), PutLayout::Classic { fixed_size: true, .. }) => {
                Some(ClassicFacts { chunk_size, short_objects: cut.short })
            }
            _ => None,
        };
        let transform = match &request.layout {
            PutLayout::Classic { transform, .. } => transform.as_ref(),
            PutLayout::Packed { .. } => None,
        };
        let packed = packed.map(|packed| PackedFacts {
            chunk_size,
            root: hex(&packed.root),
            index_position: last_index.map_or(0, |place| place.position),
            index_len: last_index.map_or(0, |place| place.len.into()),
            codecs,
            stream,
            sealed: keys_object.as_ref().map(|keys_object| Sealed {
                key_slots: keys_object.slots().map(|slot| slot.to_string()).collect(),
            }),
        });
        let now = Timestamp::now();
        // A stream that was made before this run began is an import.
        let described = &put.scanned.described;
        let made = made_at(described).filter(|made| producer.is_none() && *made < started);
        let (started, finished) = made.map_or((started, now), |made| (made, made));
        let undated = why_undated(described, put.scanned.has_unread_info, now);
        let mut source = match &mysql_clone {
            Some(clone) => clone.source(),
            None => SourceInfo::from_files(described),
        };
        // xtrabackup 2.4 encrypts the file that states the kind, too.
        if source.backup_type.is_none() && put.scanned.has_changed_pages {
            source.backup_type = Some("incremental".to_owned());
        }
        let inspected = !matches!(put.scanned.proof, EndProof::InputEnd | EndProof::Trailer);
        Manifest {
            format: FORMAT,
            layout: request.layout.kind(),
            name: self.name.to_string(),
            run: self.run.to_string(),
            tool: request.tool.clone(),
            started,
            finished,
            undated: undated.filter(|_| producer.is_none()).map(str::to_owned),
            objects: uploaded.objects,
            stored_bytes: uploaded.bytes,
            stream_bytes: put.scanned.bytes,
            files: put.scanned.files,
            tables: inspected.then_some(put.scanned.tables),
            compressed_files: Some(put.scanned.compressed_files).filter(|files| *files > 0),
            without_tablespace: Tables::found(&put.scanned.without_tablespace),
            without_files: Tables::found(&put.scanned.without_files),
            packed,
            classic,
            object_digest: None,
            members: transform.map(|transform| MemberFacts {
                codec: transform.compress.map(|codec| Algorithm::from(codec).to_string()),
                cipher: transform.encrypt.as_ref().map(|e| e.cipher.algorithm().to_string()),
            }),
            end: match &put.scanned.proof {
                EndProof::LastFile(name) => End::LastFile { name: name.clone() },
                // An incomplete stream gets no manifest.
                EndProof::Unproven | EndProof::Missing(_) => End::Any,
                EndProof::InputEnd => End::Raw,
                EndProof::Trailer => End::NativeTrailer,
            },
            server: request.server.clone(),
            base: None,
            producer,
            source,
            mysql_clone,
            history: None,
            consolidated_from: Vec::new(),
        }
    }
}

/// Sets the base of an incremental backup, and checks that it fits; records the evidence of the
/// server's history. A merged chain has that of its last backup.
pub(super) async fn find_its_base(
    root: &Root,
    request: &PutRequest,
    manifest: &mut Manifest,
) -> Result<(), BackupError> {
    if let Some(MergedChain { last, links, accepted_imports }) = &request.merged {
        let taken = manifest.take_over(last, links.clone(), *accepted_imports);
        return taken.map_err(|what| BackupError::Consolidate { name: last.name.clone(), what });
    }
    let Some(since) = &request.since else {
        let mut found = None;
        if manifest.is_incremental() {
            let all = manifests(root).await?.sound;
            manifest.base =
                find_base(all.iter().map(|(name, found)| (name, &found.manifest)), manifest);
            found = manifest.base.as_ref().and_then(|base| {
                all.into_values().map(|found| found.manifest).find(|found| found.run == base.run)
            });
        }
        if let Some(lsn) = manifest.source.from_lsn
            && manifest.is_incremental()
            && found.is_none()
            && !request.base_elsewhere
        {
            return Err(BackupError::NoBase { name: manifest.name.clone(), lsn });
        }
        if let Some(found) = &found {
            refuse_mixed(manifest, found)?;
        }
        // The user has chosen the base by the producer's own options, so only proof counts against it.
        return record_history(request, manifest, found.as_ref(), true).await;
    };
    let refused = |what: String| {
        Err(BackupError::Repo(RepoError::Chain { name: manifest.name.clone(), what }))
    };
    let (base, facts) = (&since.base.name, &manifest.source);
    match (facts.from_lsn, facts.to_lsn) {
        (Some(from), _) if from != since.lsn => {
            return refused(format!(
                "it must start at LSN {}, as its base {base} demands, but starts at {from}",
                since.lsn
            ));
        }
        (_, Some(to)) if to < since.base_ends => {
            return refused(format!(
                "its base {base} ends at LSN {}, but the server is only at {to}: this is a different server, or it was set up again",
                since.base_ends
            ));
        }
        _ => {}
    }
    // The base was found hours ago; this backup cannot be restored if it is gone.
    let found = match root.manifest(&BackupName::new(base)?).await? {
        Some(found) if found.run == since.base.run => found,
        Some(_) => {
            return refused(format!("its base {base} was replaced by another backup"));
        }
        None => return refused(format!("its base {base} is missing")),
    };
    refuse_mixed(manifest, &found)?;
    manifest.base = Some(since.base.clone());
    record_history(request, manifest, Some(&found), since.accept_history).await
}

/// Refuses an increment of which only one is partial, it or its base: the options of its producer may not have shown it.
fn refuse_mixed(manifest: &Manifest, base: &Manifest) -> Result<(), BackupError> {
    const NEXT: &str = "take a full backup, or give the backup program and its options as words of their own, so that this is known before it starts";
    match manifest.source.mixes_with(&base.source) {
        None => Ok(()),
        Some(what) => {
            let what = format!("its base {} is {what}: {NEXT}", base.name);
            Err(BackupError::Repo(RepoError::Chain { name: manifest.name.clone(), what }))
        }
    }
}

/// Fails if no backup here can be the base of an increment that is to begin at `lsn`.
///
/// # Errors
/// [`BackupError::NoBase`]; [`RepoError::Store`].
pub async fn refuse_without_base(
    root: &Root,
    request: &PutRequest,
    lsn: u64,
) -> Result<(), BackupError> {
    let all = manifests(root).await?.sound;
    let ends_there = |found: &Manifest| {
        found.source.to_lsn == Some(lsn)
            && same_server(found.server.as_deref(), request.server.as_deref())
    };
    match all.values().any(|found| ends_there(&found.manifest)) {
        true => Ok(()),
        false => Err(BackupError::NoBase { name: request.name.to_string(), lsn }),
    }
}

/// Records the evidence of the server's history, and judges it against that of the base.
///
/// # Errors
/// [`BackupError::History`] if the server does not continue the history of the base, or if that is
/// unknown and not accepted.
async fn record_history(
    request: &PutRequest,
    manifest: &mut Manifest,
    base: Option<&Manifest>,
    accept: bool,
) -> Result<(), BackupError> {
    let watch = request.watch.as_ref();
    manifest.history = match watch {
        Some(watch) => watch.after(&manifest.source, base).await,
        None => None,
    };
    let Some(base) = base else { return Ok(()) };
    let verdict = judge(base, manifest.history.as_ref());
    let by_word = accept && matches!(verdict, Verdict::Unknown(_));
    accepted(&base.name, verdict, accept)?;
    if by_word && request.since.is_some() {
        manifest.history.get_or_insert_default().accepted = true;
    }
    Ok(())
}
