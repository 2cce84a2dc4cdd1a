//! Sends the stream through the pipeline into the store, and writes the manifest at the end.

use std::io::Read;

use jiff::Timestamp;
use tokio::sync::mpsc;
use xb_compressor::Compression;
use xb_encryptor::{Backend, Envelope, FreshKey, MacKey, SealContext, Sealer};
use xb_frame::{Seal, StreamHeader, StreamId};
use xb_pipeline::{
    AutoCodec, Budget, Closed, Content, EndProof, FrameCompression, NativeStream, ObjectLayout,
    Observer, PackError, PackHandle, PackOutput, PackPlan, PackResult, PackSettings, Part,
    start_pack, start_pack_native,
};
use xb_uploader::{PartData, PartSender, Uploaded};

use crate::cancel::CancelToken;
use crate::catalog::manifest::{Layout, Producer as ProducerFacts};
use crate::catalog::names::{KEYS, RunId, SUMS};
use crate::error::BackupError;
use crate::objects::checksums;
use crate::objects::ledger::Ledger;
use crate::write::detect_input::{Input, Kind};
use crate::write::md5_list::Md5List;
use crate::write::producer::Producer;

use super::plan::classic_layout;
use super::run_folder::RunFolder;
use super::run_manifest::find_its_base;
use super::{PutReport, PutRequest, end, stalled};

impl RunFolder {
    #[allow(clippy::too_many_arguments)]
    pub(super) async fn fill(
        &self,
        request: &PutRequest,
        plan: PackPlan,
        input: Input<impl Read + Send + 'static>,
        mut producer: Option<&mut Producer>,
        observer: &Observer,
        stop: &mut CancelToken,
        started: Timestamp,
    ) -> Result<PutReport, BackupError> {
        let root = &self.root;
        let Input { kind, source } = input;
        let lock = if request.ways_in.is_empty() {
            None
        } else {
            Some(SealSetup::new(self.run, request)?)
        };
        let carried = match &kind {
            Kind::Native(envelope) => envelope.as_deref(),
            Kind::Content(_) => None,
        };
        let envelope = lock.as_ref().map(|lock| lock.envelope.clone()).or(carried.cloned());
        if let Some(envelope) = &envelope {
            let key = root.key(&format!("{}/{KEYS}", self.folder));
            tokio::select! {
                put = root.store().put(&key, envelope.encode().to_vec().into()) => put?,
                signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
                stalled = stalled(producer.as_deref_mut()) => return Err(stalled),
            }
        }
        let budget = Budget::new(plan.memory);
        let (parts, arriving) = mpsc::channel(1);
        let sink = move |part: Part| parts.blocking_send(part).map_err(|_| Closed);
        let auto = (request.compress == Compression::Auto).then(|| {
            let (traffic, observer) = (root.store().traffic().clone(), observer.clone());
            AutoCodec::new(move || traffic.sent().max(observer.snapshot().stored))
        });
        let (putting, mac) = match kind {
            Kind::Native(_) => (start_pack_native(source, plan, &budget, observer, sink)?, None),
            Kind::Content(content) => {
                let (layout, mac) = self.layout(request, content, lock, auto.as_ref())?;
                let settings = PackSettings { plan, layout };
                (start_pack(source, settings, &budget, observer, sink)?, mac)
            }
        };
        let mut books = Books::new(request);
        let mut sender = PartSender::new(root.store().clone(), plan.parallel);
        if books.ledger.is_some() {
            sender = sender.shared();
        }
        let sending = self.send_all(arriving, &mut sender, &mut books, putting, observer, stop);
        let sent = tokio::select! {
            sent = sending => sent,
            lost = self.claim.lost() => Err(lost),
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
                        || cause.fifo().is_some())
                        && let Some(failed) = producer.failure_behind_its_output().await
                    {
                        cause = failed;
                    }
                    tokio::task::block_in_place(|| end(producer, &cause));
                }
                sender.abort().await;
                return Err(cause);
            }
        };
        stop.or(self.put_lists(request, &put.output, books.md5)).await?;
        if let EndProof::Missing(why) = &put.scanned.proof {
            return Err(BackupError::Incomplete { why: why.to_string() });
        }
        let producer = match producer {
            None => None,
            Some(producer) => {
                // The producer's output has ended; only its exit status is missing.
                tokio::select! {
                    ended = producer.ended() => ended?,
                    signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
                }
                Some(ProducerFacts { program: producer.program().to_owned(), exit: 0 })
            }
        };
        let compression = auto.map(|codec| codec.report());
        let mut manifest = self.manifest(
            request,
            &put,
            uploaded,
            producer,
            started,
            envelope.as_ref(),
            compression.as_ref(),
        );
        stop.or(async {
            find_its_base(root, request, &mut manifest).await?;
            self.prove(&mut manifest, books.ledger.as_ref()).await
        })
        .await?;
        root.commit(&request.name, &manifest, mac.as_ref()).await?;
        self.settle(&request.name).await?;
        let store = root.store();
        let (requests, retries) = (store.traffic().requests(), store.traffic().retries());
        let protection = store.protection();
        Ok(PutReport { manifest, requests, retries, protection, plan, compression })
    }

    /// Writes the lists that accompany the objects.
    async fn put_lists(
        &self,
        request: &PutRequest,
        output: &PackOutput,
        md5: Option<Md5List>,
    ) -> Result<(), BackupError> {
        let root = &self.root;
        if let Some(list) = md5 {
            let key = root.key(&format!("{}.md5", request.name));
            root.store().put(&key, list.finish().into()).await?;
        }
        if let PackOutput::Packed { packed, .. } | PackOutput::Native { packed, .. } = output
            && !packed.sums.is_empty()
        {
            let key = root.key(&format!("{}/{SUMS}", self.folder));
            root.store().put(&key, checksums::encode(&packed.sums).into()).await?;
        }
        Ok(())
    }

    /// The layout of the objects, and the manifest key of a sealed backup.
    fn layout(
        &self,
        request: &PutRequest,
        content: Content,
        lock: Option<SealSetup>,
        auto: Option<&AutoCodec>,
    ) -> Result<(ObjectLayout, Option<MacKey>), BackupError> {
        let content = match (request.layout, content) {
            (Layout::Packed, content) => content,
            (Layout::Classic, Content::Xbstream(input)) => {
                let files = classic_layout(request);
                return Ok((ObjectLayout::Classic { input, files }, None));
            }
            (Layout::Classic, Content::Raw) => {
                return Err(BackupError::Bug("raw input reached the classic layout"));
            }
        };
        let compress = match (request.compress, auto) {
            (Compression::Fixed(algorithm), _) => FrameCompression::Fixed(algorithm),
            (Compression::Auto, Some(auto)) => FrameCompression::Auto(auto.clone()),
            (Compression::Auto, None) => return Err(BackupError::Bug("nothing chooses the codec")),
        };
        let (stream, mac) = match lock {
            Some(SealSetup { header, sealer, mac, .. }) => {
                (NativeStream { header, compress, sealer: Some(sealer) }, Some(mac))
            }
            None => {
                let header = StreamHeader::new(StreamId(self.run.0));
                (NativeStream { header, compress, sealer: None }, None)
            }
        };
        Ok((ObjectLayout::Packed { content, stream }, mac))
    }

    async fn send_all(
        &self,
        mut arriving: mpsc::Receiver<Part>,
        sender: &mut PartSender,
        books: &mut Books,
        putting: PackHandle,
        observer: &Observer,
        stop: &mut CancelToken,
    ) -> Result<(PackResult, Uploaded), BackupError> {
        let folder = self.root.key(&self.folder);
        let mut counted = 0;
        let upload = async {
            while let Some(part) = arriving.recv().await {
                books.part(&part);
                let key = format!("{folder}/{}", part.object).into();
                sender
                    .send(PartData { key, index: part.index, payload: part.payload, end: part.end })
                    .await?;
                books.stored(&folder, sender);
                let bytes = sender.uploaded().bytes;
                observer.add_stored(bytes - counted);
                counted = bytes;
            }
            // The packing side has ended; its result tells whether it succeeded.
            let put = tokio::task::spawn_blocking(move || putting.join())
                .await
                .map_err(|_| BackupError::Bug("the pipeline thread panicked"))??;
            let uploaded = sender.finish().await?;
            books.stored(&folder, sender);
            observer.add_stored(uploaded.bytes - counted);
            Ok::<_, BackupError>((put, uploaded))
        };
        let (put, uploaded) = tokio::select! {
            done = upload => done?,
            signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
        };
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

/// Data recorded about the objects as they are sent.
struct Books {
    md5: Option<Md5List>,
    /// Classic only: other runs may write the same keys.
    ledger: Option<Ledger>,
}

impl Books {
    fn new(request: &PutRequest) -> Self {
        let ledger = (request.layout == Layout::Classic).then(Ledger::default);
        Self { md5: request.md5.then(Md5List::new), ledger }
    }

    fn part(&mut self, part: &Part) {
        if let Some(list) = &mut self.md5 {
            list.part(part);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.piece(&part.object, &part.payload, part.end);
        }
    }

    fn stored(&mut self, folder: &str, sender: &mut PartSender) {
        if let Some(ledger) = &mut self.ledger {
            ledger.stored(&format!("{folder}/"), sender.stored());
        }
    }
}

/// Everything that seals one run. A data key seals only one stream, so every run generates a new
/// one.
struct SealSetup {
    header: StreamHeader,
    sealer: Sealer,
    envelope: Envelope,
    mac: MacKey,
}

impl SealSetup {
    fn new(run: RunId, request: &PutRequest) -> Result<Self, BackupError> {
        let wrapped = |error: String| BackupError::Keys(error);
        let fresh = FreshKey::generate().map_err(|error| wrapped(error.to_string()))?;
        let commitment = fresh.key().commitment(&run.0);
        let header =
            StreamHeader::new(StreamId(run.0)).with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
        let envelope = Envelope::seal(fresh.key(), run.0, &request.ways_in.list())
            .map_err(|error| wrapped(error.to_string()))?;
        let mac = fresh.key().manifest_key(&run.0);
        let bytes = header.encode();
        let context = SealContext { stream_id: run.0, commitment, header: &bytes };
        let (sealer, _key) = fresh.sealer(&context, Backend::default()).map_err(PackError::from)?;
        Ok(Self { header, sealer, envelope, mac })
    }
}
