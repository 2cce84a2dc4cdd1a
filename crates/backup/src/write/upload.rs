//! Sends the stream through the pipeline into the store.

use std::io::Read;

use tokio::sync::mpsc;
use xb_compressor::Compression;
use xb_encryptor::{Backend, FreshKey, KeySlots, KeysObject, MacKey, SealContext, Sealer};
use xb_frame::{Seal, StreamHeader, StreamId};
use xb_pipeline::{
    AutoCodec, Budget, Closed, Content, FifoError, FrameCompression, NativeStream, ObjectLayout,
    Observer, PackError, PackHandle, PackOutput, PackPlan, PackResult, PackSettings, Part, Wait,
    start_pack, start_pack_native,
};
use xb_repo::keys::RunKeys;
use xb_repo::names::RunId;
use xb_uploader::{PartData, PartSender, Uploaded};

use super::claim::RunFolder;
use super::plan::classic_layout;
use super::request::{PutLayout, PutRequest};
use crate::error::BackupError;
use crate::objects::ledger::Ledger;
use crate::session::Session;
use crate::write::detect_input::{Input, Kind};
use crate::write::md5_list::Md5List;
use crate::write::writer::{Writer, stalled};

impl RunFolder {
    /// Seals, packs and sends the stream. Returns what is known once all objects are stored.
    pub(super) async fn upload(
        &self,
        session: &Session,
        request: &PutRequest,
        plan: PackPlan,
        input: Input<impl Read + Send + 'static>,
        mut producer: Option<&mut Writer>,
    ) -> Result<UploadOutcome, BackupError> {
        let Session { observer, cancel, .. } = session;
        let Input { kind, source } = input;
        let Packing { layout, keys_object, mac, auto } = self.packing(request, kind, observer)?;
        if let Some(keys_object) = &keys_object {
            let (key, bytes) = (self.keys.keys(), keys_object.encode().to_vec());
            tokio::select! {
                // A request that arrives late must not replace the key slots of a rewrap.
                put = self.root.store().create(&key, bytes.into()) => put?,
                signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
                stalled = stalled(producer.as_deref_mut()) => return Err(stalled),
            }
        }
        let (parts, arriving) = mpsc::channel(1);
        let sink = move |part: Part| parts.blocking_send(part).map_err(|_| Closed);
        let budget = Budget::new(plan.memory);
        let packing = match layout {
            Some(layout) => {
                start_pack(source, PackSettings { plan, layout }, &budget, observer, sink)?
            }
            None => start_pack_native(source, plan, &budget, observer, sink)?,
        };
        let mut records = SentRecords::new(request);
        let mut sender = PartSender::new(self.root.store().clone(), plan.parallel);
        if records.ledger.is_some() {
            sender = sender.shared();
        }
        if observer.watcher().is_some() {
            sender = sender.sized();
        }
        observer.expect_phases(2);
        observer.begin_phase("upload");
        let sending = self.send_all(arriving, &mut sender, &mut records, packing, observer);
        let sent = tokio::select! {
            sent = sending => sent,
            signal = cancel.cancelled() => Err(BackupError::Interrupted(signal)),
            lost = self.claim.lost() => Err(lost.into()),
            stalled = stalled(producer.as_deref_mut()) => Err(stalled),
        };
        let (put, uploaded) = match sent {
            Ok(sent) => sent,
            Err(cause) => {
                // Do this before any request that a dead store could delay: the producer may hold
                // locks.
                let mut cause = cause;
                if let Some(producer) = producer {
                    if (matches!(cause, BackupError::Put(PackError::Stream(_)))
                        || cause.fifo().is_some_and(FifoError::may_be_of_the_writer))
                        && let Some(failed) = producer.failure_behind_its_output().await
                    {
                        cause = failed;
                    }
                    tokio::task::block_in_place(|| producer.end(&cause));
                }
                sender.abort().await;
                records.stored(&self.keys, &mut sender);
                self.has_sent(records.ledger);
                return Err(cause);
            }
        };
        Ok(UploadOutcome { plan, put, uploaded, records, keys_object, mac, auto })
    }

    /// Chooses how the input becomes objects, and makes the keys for it.
    fn packing(
        &self,
        request: &PutRequest,
        kind: Kind,
        observer: &Observer,
    ) -> Result<Packing, BackupError> {
        let content = match kind {
            Kind::Content(content) => content,
            Kind::Native(keys_object) => {
                let keys_object = keys_object.map(|keys_object| *keys_object);
                return Ok(Packing { layout: None, keys_object, mac: None, auto: None });
            }
        };
        let (compress, key_slots) = match (&request.layout, &content) {
            (PutLayout::Packed { compress, key_slots }, _) => (*compress, key_slots),
            (PutLayout::Classic { fixed_size, transform, .. }, Content::Xbstream(input)) => {
                let (input, files) =
                    (input.clone(), classic_layout(*fixed_size, transform.clone()));
                let layout = Some(ObjectLayout::Classic { input, files });
                return Ok(Packing { layout, keys_object: None, mac: None, auto: None });
            }
            (PutLayout::Classic { .. }, Content::Raw) => {
                return Err(BackupError::Bug("raw input reached the classic layout"));
            }
        };
        let (compress, auto) = match compress {
            Compression::Fixed(algorithm) => (FrameCompression::Fixed(algorithm), None),
            Compression::Auto => {
                let (traffic, observer) = (self.root.store().traffic().clone(), observer.clone());
                let auto = AutoCodec::new(move || traffic.sent().max(observer.stored()));
                (FrameCompression::Auto(auto.clone()), Some(auto))
            }
        };
        let StreamSeal { header, sealer, keys_object, mac } = StreamSeal::new(self.run, key_slots)?;
        let stream = NativeStream { header, compress, sealer };
        let layout = Some(ObjectLayout::Packed { content, stream });
        Ok(Packing { layout, keys_object, mac, auto })
    }

    /// Sends the parts until the packing side has ended and all of them are stored.
    async fn send_all(
        &self,
        mut arriving: mpsc::Receiver<Part>,
        sender: &mut PartSender,
        records: &mut SentRecords,
        packing: PackHandle,
        observer: &Observer,
    ) -> Result<(PackResult, Uploaded), BackupError> {
        let mut counted = Uploaded::default();
        loop {
            let part = tokio::select! {
                part = arriving.recv() => part,
                ended = sender.next_ended() => {
                    sender.take_in(ended).await?;
                    records.stored(&self.keys, sender);
                    counted = observe(observer, sender, counted);
                    continue;
                }
            };
            let Some(part) = part else { break };
            records.part(&part);
            let key = self.keys.at(&part.object).into();
            // Blocks while as many parts as allowed are on their way.
            let full = observer.wait(Wait::Sink);
            sender
                .send(PartData { key, index: part.index, payload: part.payload, end: part.end })
                .await?;
            drop(full);
            records.stored(&self.keys, sender);
            counted = observe(observer, sender, counted);
        }
        // The packing side has ended; its result tells whether it succeeded.
        let put = tokio::task::spawn_blocking(move || packing.join())
            .await
            .map_err(|_| BackupError::Bug("the pipeline thread panicked"))??;
        // Only the store has work left.
        let rest = observer.wait(Wait::Sink);
        let uploaded = sender.finish().await?;
        drop(rest);
        records.stored(&self.keys, sender);
        observe(observer, sender, counted);
        let (objects, bytes) = match &put.output {
            PackOutput::Packed { packed, .. } | PackOutput::Native { packed, .. } => {
                (packed.objects, packed.bytes)
            }
            PackOutput::Classic(cut) => (cut.objects, cut.bytes),
        };
        // Two independent counts, one before and one after the store's responses.
        if (uploaded.objects, uploaded.bytes) != (objects, bytes) {
            return Err(BackupError::Bug("the numbers of objects cut and acknowledged differ"));
        }
        Ok((put, uploaded))
    }
}

/// Tells the observer the bytes that the store has acknowledged beyond `counted`; returns all of them.
fn observe(observer: &Observer, sender: &mut PartSender, counted: Uploaded) -> Uploaded {
    let uploaded = sender.uploaded();
    observer.add_stored(uploaded.bytes - counted.bytes);
    observer.add_parts(uploaded.parts - counted.parts);
    if let Some(watcher) = observer.watcher() {
        sender.sizes().into_iter().for_each(|size| watcher.object(size));
    }
    uploaded
}

/// How the input of a run becomes objects.
struct Packing {
    /// `None` for a native stream, which keeps its frames and codecs.
    layout: Option<ObjectLayout>,
    /// Key slots of a sealed backup.
    keys_object: Option<KeysObject>,
    /// Manifest key of a backup that this run seals.
    mac: Option<MacKey>,
    /// Chooser of the codec, if there is one.
    auto: Option<AutoCodec>,
}

/// Everything that is known once all objects are stored.
pub(super) struct UploadOutcome {
    pub(super) plan: PackPlan,
    pub(super) put: PackResult,
    pub(super) uploaded: Uploaded,
    pub(super) records: SentRecords,
    pub(super) keys_object: Option<KeysObject>,
    /// Manifest key of a sealed backup.
    pub(super) mac: Option<MacKey>,
    /// Chooser of the codec, if there was one.
    pub(super) auto: Option<AutoCodec>,
}

/// Data recorded about the objects as they are sent.
pub(super) struct SentRecords {
    pub(super) md5: Option<Md5List>,
    /// Classic only: other runs may write the same keys.
    pub(super) ledger: Option<Ledger>,
}

impl SentRecords {
    fn new(request: &PutRequest) -> Self {
        match request.layout {
            PutLayout::Packed { .. } => Self { md5: None, ledger: None },
            PutLayout::Classic { md5, .. } => {
                Self { md5: md5.then(Md5List::new), ledger: Some(Ledger::default()) }
            }
        }
    }

    fn part(&mut self, part: &Part) {
        if let Some(list) = &mut self.md5 {
            list.part(part);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.piece(&part.object, &part.payload, part.end);
        }
    }

    fn stored(&mut self, keys: &RunKeys, sender: &mut PartSender) {
        if let Some(ledger) = &mut self.ledger {
            ledger.stored(keys, sender.stored());
        }
    }
}

/// The header of a run's stream, and everything that seals it, if there are key slots. A data key seals only one
/// stream, so every run generates a new one.
struct StreamSeal {
    header: StreamHeader,
    sealer: Option<Sealer>,
    keys_object: Option<KeysObject>,
    mac: Option<MacKey>,
}

impl StreamSeal {
    fn new(run: RunId, key_slots: &KeySlots) -> Result<Self, BackupError> {
        let header = StreamHeader::new(StreamId(run.0));
        if key_slots.is_empty() {
            return Ok(Self { header, sealer: None, keys_object: None, mac: None });
        }
        let fresh = FreshKey::generate().map_err(|error| BackupError::Keys(error.to_string()))?;
        let commitment = fresh.key().commitment(&run.0);
        let header = header.with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
        let keys_object = KeysObject::seal(fresh.key(), run.0, &key_slots.list())
            .map_err(|error| BackupError::Keys(error.to_string()))?;
        let mac = fresh.key().manifest_key(&run.0);
        let bytes = header.encode();
        let context = SealContext { stream_id: run.0, commitment, header: &bytes };
        let (sealer, _key) = fresh.sealer(&context, Backend::default()).map_err(PackError::from)?;
        Ok(Self { header, sealer: Some(sealer), keys_object: Some(keys_object), mac: Some(mac) })
    }
}
