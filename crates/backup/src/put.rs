//! `put` and `backup`: a stream into the store, and the manifest when all of it is proven.

use std::io::Read;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use xb_compressor::Algorithm;
use xb_encryptor::{Backend, Envelope, FreshKey, MacKey, SealContext, Sealer, WaysIn};
use xb_frame::{Seal, StreamHeader, StreamId};
use xb_pipeline::{
    Budget, Closed, Content, Cutting, EndProof, EndRule, Laid, Native, Observer, Part, PartLimits,
    Put, PutError, PutPlan, PutSettings, Putting, Transform, start_carry, start_put,
};
use xb_uploader::{PartData, PartSender, StoreLimits, Uploaded};

use crate::chain::find_base;
use crate::claim::{CLAIM, Claim, may_be_its_own};
use crate::error::BackupError;
use crate::facts::Facts;
use crate::input::{Input, Kind, recognise};
use crate::manifest::{
    Base, ClassicFacts, End, FORMAT, Layout, Manifest, MemberFacts, PackedFacts,
    Producer as ProducerFacts, Sealed, hex,
};
use crate::md5::Md5List;
use crate::names::{BackupName, KEYS, RunId, SUMS, claims_folder, run_folder};
use crate::producer::{Producer, ProducerOutput};
use crate::resolve::manifests;
use crate::root::Root;
use crate::stop::Stop;
use crate::sums;

/// How long clearing away after a failure may take: the store may be the cause.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// What is to be put, and how.
#[derive(Debug)]
pub struct PutRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Layout in the store.
    pub layout: Layout,
    /// Size of the objects in bytes (packed, and classic where it is re-cut).
    pub chunk_size: u64,
    /// Classic only: objects of `chunk_size`, instead of one for each chunk as the stock tool has it.
    pub recut: bool,
    /// Codec of the frames (packed).
    pub compress: Algorithm,
    /// Who can open it; with nobody named it is not sealed (packed).
    pub ways_in: WaysIn,
    /// What is done to the files one by one, if anything (classic).
    pub transform: Option<Transform>,
    /// Budget for buffers in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Requests at a time; the budget may allow fewer.
    pub parallel: usize,
    /// What comes in. An xbstream may also come as a native stream, which is stored as it is
    /// (packed).
    pub content: Content,
    /// Also write the stock list of MD5 sums (classic only).
    pub md5: bool,
    /// Program and version for the manifest.
    pub tool: String,
    /// What the server is called that it is taken of, for the manifest.
    pub server: Option<String>,
    /// The backup that this one is told to go on from.
    pub since: Option<Since>,
}

/// Where an incremental backup goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// The backup before it.
    pub base: Base,
    /// The log sequence number that it reaches.
    pub lsn: u64,
}

/// What a successful run did.
#[derive(Debug, Clone)]
pub struct PutReport {
    /// The manifest as committed.
    pub manifest: Manifest,
    /// Requests sent to the store, retries included; 0 for a folder.
    pub requests: u64,
    /// Tries that followed a failed one.
    pub retries: u64,
    /// What protected the objects on their way, in words.
    pub protection: &'static str,
    /// Sizes and numbers of things at a time.
    pub plan: PutPlan,
}

/// Puts what `source` gives. The backup exists if and only if this returns `Ok`.
///
/// On any failure nothing of the run is left behind, as far as the store lets us.
///
/// # Errors
/// The first cause. A stalled `source` may still be blocked in a thread of ours then.
pub async fn put(
    root: &Root,
    request: &PutRequest,
    source: impl Read + Send + 'static,
    observer: &Observer,
    stop: &mut Stop,
) -> Result<PutReport, BackupError> {
    run(root, request, source, None, observer, stop).await
}

/// Puts what `producer` writes, and demands that it exits with status 0.
///
/// # Errors
/// As [`put`]; the producer has ended in any case.
pub async fn backup(
    root: &Root,
    request: &PutRequest,
    (mut producer, output): (Producer, ProducerOutput),
    observer: &Observer,
    stop: &mut Stop,
) -> Result<PutReport, BackupError> {
    let outcome = run(root, request, output, Some(&mut producer), observer, stop).await;
    if let Err(error) = &outcome {
        end(&mut producer, error);
    }
    outcome
}

/// Ends a producer after a failure.
fn end(producer: &mut Producer, error: &BackupError) {
    producer.end(match error {
        BackupError::Interrupted(signal) => *signal,
        _ => rustix::process::Signal::TERM.as_raw(),
    });
}

async fn run(
    root: &Root,
    request: &PutRequest,
    source: impl Read + Send + 'static,
    mut producer: Option<&mut Producer>,
    observer: &Observer,
    stop: &mut Stop,
) -> Result<PutReport, BackupError> {
    let started = Timestamp::now();
    let plan = plan(root, request)?;
    // The producer runs already: if the store stands still, it must not wait with it.
    let (input, place) = tokio::select! {
        begun = begin(root, request, source) => begun?,
        signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
        stalled = stalled(producer.as_deref_mut()) => return Err(stalled),
    };
    let filling =
        place.fill(root, request, plan, input, producer.as_deref_mut(), observer, stop, started);
    let outcome = filling.await;
    if let Err(error) = &outcome {
        if let Some(producer) = producer {
            tokio::task::block_in_place(|| end(producer, error));
        }
        // Whatever comes of it, the cause is known already; what stays is abandoned, not a backup.
        // But where a manifest may have been written, what it names must stay.
        if !matches!(error, BackupError::InDoubt { .. }) {
            let _ = tokio::time::timeout(CLEAN_UP, place.clean_up(root, request)).await;
        }
    }
    outcome
}

/// Waits for the first bytes of the input, and claims a place for it. A claim that is left when this
/// is broken off holds up nobody for long.
async fn begin<R: Read + Send + 'static>(
    root: &Root,
    request: &PutRequest,
    source: R,
) -> Result<(Input<R>, Place), BackupError> {
    if let Some(manifest) = root.manifest(&request.name).await? {
        let state = if manifest.layout == Layout::Packed { "" } else { " (classic layout)" };
        return Err(BackupError::Exists { name: request.name.to_string(), state });
    }
    let input = recognise_for(request, source).await?;
    let run = RunId::random().map_err(|error| BackupError::System {
        what: "randomness for the run",
        source: std::io::Error::other(error),
    })?;
    Ok((input, Place::claim(root, request, run).await?))
}

fn demands_last_file(content: &Content) -> bool {
    matches!(content, Content::Xbstream { rule: EndRule::LastFile(_), .. })
}

/// Reads the beginning of the input, and refuses what does not go with the request.
async fn recognise_for<R: Read + Send + 'static>(
    request: &PutRequest,
    source: R,
) -> Result<Input<R>, BackupError> {
    let wanted = request.content.clone();
    let reading = tokio::task::spawn_blocking(move || recognise(source, wanted));
    let input =
        reading.await.map_err(|_| BackupError::Bug("the input's beginning was not read"))??;
    let untouched = request.compress == Algorithm::None && request.ways_in.is_empty();
    match (&input.kind, request.layout) {
        (Kind::Content(Content::Raw) | Kind::Native(_), Layout::Classic) => {
            Err(BackupError::Input("only an xbstream can be cut the classic way".into()))
        }
        (Kind::Native(_), _) if !untouched => Err(BackupError::Input(
            "the input is a native stream, which is stored as it is: compress and seal it where it is made"
                .into(),
        )),
        (Kind::Native(_), _) if demands_last_file(&request.content) => Err(BackupError::Input(
            "the input is a native stream, in which nobody looks for a last file: leave --last-file away, and let the program that makes it watch its input"
                .into(),
        )),
        _ => Ok(input),
    }
}

/// Sizes and numbers of things at a time for a request, within what the store of `root` takes.
///
/// # Errors
/// [`BackupError::Plan`] when the settings cannot work.
pub fn plan(root: &Root, request: &PutRequest) -> Result<PutPlan, BackupError> {
    let limits = part_limits(root.store().limits());
    let PutRequest { memory, chunk_size, threads, parallel, .. } = *request;
    let mut plan = PutPlan::new(memory, chunk_size, threads, parallel, limits)?;
    if request.layout == Layout::Classic {
        classic_cutting(request).check(&plan)?;
        if request.recut {
            // Parts are smaller where many files are open; their leases bound the requests.
            plan.parallel = parallel.max(1);
        }
    } else if request.transform.is_some() || request.recut {
        return Err(BackupError::Selection(
            "files are compressed, encrypted and cut one by one in the classic layout only".into(),
        ));
    }
    Ok(plan)
}

/// As [`plan`], for a run that nobody has asked for yet, into a store that takes what S3 takes;
/// `recut` says that classic objects are to be of one size.
///
/// # Errors
/// [`BackupError::Plan`] when the settings cannot work.
pub fn put_plan(
    memory: u64,
    chunk_size: u64,
    threads: usize,
    parallel: usize,
    recut: bool,
) -> Result<PutPlan, BackupError> {
    let plan = PutPlan::new(memory, chunk_size, threads, parallel, limits())?;
    if recut {
        Cutting::Recut(None).check(&plan)?;
    }
    Ok(plan)
}

/// What most stores ask of the parts of an object.
pub(crate) fn limits() -> PartLimits {
    part_limits(StoreLimits::S3)
}

pub(crate) fn part_limits(store: StoreLimits) -> PartLimits {
    PartLimits {
        min: store.min_part,
        max: store.max_part,
        count: store.max_parts,
        equal: store.equal_parts,
    }
}

fn classic_cutting(request: &PutRequest) -> Cutting {
    match (request.transform.clone(), request.recut) {
        (transform, true) => Cutting::Recut(transform),
        (Some(transform), false) => Cutting::Members(transform),
        (None, false) => Cutting::Classic,
    }
}

/// Where the objects of a run go, claimed for it.
struct Place {
    run: RunId,
    /// Folder of the objects, below ROOT.
    folder: String,
    claim: Claim,
}

impl Place {
    async fn claim(root: &Root, request: &PutRequest, run: RunId) -> Result<Self, BackupError> {
        let name = &request.name;
        match request.layout {
            Layout::Packed => {
                let folder = run_folder(name, run);
                let claim = Claim::packed(root, name, run).await?;
                let place = Self { run, folder, claim };
                // A stock backup of this name would be hidden by our manifest.
                if stock_objects(root, name).await? {
                    let _ = place.clean_up(root, request).await;
                    return Err(BackupError::Exists {
                        name: name.to_string(),
                        state: " (stock, unproven)",
                    });
                }
                Ok(place)
            }
            Layout::Classic => {
                let (claim, dead) = Claim::classic(root, name, run).await?;
                let place = Self { run, folder: name.to_string(), claim };
                let refused = |state| BackupError::Exists { name: name.to_string(), state };
                // Only now: a run that has finished meanwhile wrote its manifest before it gave up its claim.
                if root.manifest(name).await?.is_some() {
                    place.give_up_claim(root).await;
                    return Err(refused(""));
                }
                let objects = root.list_below(name.as_str()).await?;
                let mut objects = objects.iter().filter(|listed| !of_packed_run(&listed.key));
                let newest = objects.by_ref().map(|listed| listed.modified).max();
                match (newest, dead) {
                    (None, _) => {}
                    // The dead run began in an empty folder and ended soon after its last sign of
                    // life: what is newer is somebody else's, and then all of it may be.
                    (Some(newest), Some(seen)) if may_be_its_own(newest, seen) => {
                        remove_classic_objects(root, name).await?;
                    }
                    _ => {
                        place.give_up_claim(root).await;
                        return Err(refused(" (stock, unproven)"));
                    }
                }
                Ok(place)
            }
        }
    }

    async fn give_up_claim(&self, root: &Root) {
        let _ = root.store().delete(self.claim.key()).await;
    }

    #[allow(clippy::too_many_arguments)]
    async fn fill(
        &self,
        root: &Root,
        request: &PutRequest,
        plan: PutPlan,
        input: Input<impl Read + Send + 'static>,
        mut producer: Option<&mut Producer>,
        observer: &Observer,
        stop: &mut Stop,
        started: Timestamp,
    ) -> Result<PutReport, BackupError> {
        let Input { kind, source } = input;
        let lock =
            if request.ways_in.is_empty() { None } else { Some(Lock::new(self.run, request)?) };
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
        let (putting, mac) = match kind {
            Kind::Native(_) => (start_carry(source, plan, &budget, observer, sink)?, None),
            Kind::Content(content) => {
                let (cutting, mac) = self.cutting(request, lock);
                let settings = PutSettings { plan, cutting, content };
                (start_put(source, settings, &budget, observer, sink)?, mac)
            }
        };
        let mut md5 = request.md5.then(Md5List::new);
        let mut sender = PartSender::new(root.store().clone(), plan.parallel);
        let sending =
            self.send_all(root, arriving, &mut sender, md5.as_mut(), putting, observer, stop);
        let sent = tokio::select! {
            sent = sending => sent,
            stalled = stalled(producer.as_deref_mut()) => Err(stalled),
        };
        let (put, uploaded) = match sent {
            Ok(sent) => sent,
            Err(cause) => {
                // Before anything that a dead store could hold up: it may hold locks.
                if let Some(producer) = producer {
                    tokio::task::block_in_place(|| end(producer, &cause));
                }
                sender.abort().await;
                return Err(cause);
            }
        };
        if let Some(list) = md5 {
            let key = root.key(&format!("{}.md5", request.name));
            root.store().put(&key, list.finish().into()).await?;
        }
        if let Laid::Packed { packed, .. } | Laid::Carried { packed, .. } = &put.laid
            && !packed.sums.is_empty()
        {
            let key = root.key(&format!("{}/{SUMS}", self.folder));
            root.store().put(&key, sums::encode(&packed.sums).into()).await?;
        }
        let producer = match producer {
            None => None,
            Some(producer) => {
                // Its output has ended; what is left is its verdict.
                tokio::select! {
                    ended = producer.ended() => ended?,
                    signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
                }
                Some(ProducerFacts { program: producer.program().to_owned(), exit: 0 })
            }
        };
        let mut manifest =
            self.manifest(request, &put, uploaded, producer, started, envelope.as_ref());
        find_its_base(root, request, &mut manifest).await?;
        if request.layout == Layout::Classic && !self.claim.still_ours(root, &request.name).await? {
            return Err(BackupError::Exists {
                name: request.name.to_string(),
                state: ": another run took over",
            });
        }
        self.all_is_there(root, &manifest).await?;
        if let Some(signal) = stop.signal() {
            return Err(BackupError::Interrupted(signal));
        }
        root.commit(&request.name, &manifest, mac.as_ref()).await?;
        if request.layout == Layout::Classic {
            self.give_up_claim(root).await;
        }
        let store = root.store();
        let (requests, retries) = (store.traffic().requests(), store.traffic().retries());
        let protection = store.protection();
        Ok(PutReport { manifest, requests, retries, protection, plan })
    }

    /// A run that stood still for long may have been taken for dead, and its objects removed.
    async fn all_is_there(&self, root: &Root, manifest: &Manifest) -> Result<(), BackupError> {
        let mut listed = root.list_below(&self.folder).await?;
        listed.retain(|object| match manifest.layout {
            Layout::Packed => object.key.len() == 9,
            Layout::Classic => !of_packed_run(&object.key),
        });
        let bytes: u64 = listed.iter().map(|object| object.size).sum();
        if (listed.len() as u64, bytes) == (manifest.objects, manifest.stored_bytes) {
            return Ok(());
        }
        let what = format!(
            "{} objects with {} bytes were stored, {} with {bytes} are there: somebody has removed or replaced some",
            manifest.objects,
            manifest.stored_bytes,
            listed.len()
        );
        Err(BackupError::Damaged { name: manifest.name.clone(), what })
    }

    /// How the objects are laid out, and the key of the manifest of a sealed one.
    fn cutting(&self, request: &PutRequest, lock: Option<Lock>) -> (Cutting, Option<MacKey>) {
        if request.layout == Layout::Classic {
            return (classic_cutting(request), None);
        }
        let compress = request.compress;
        match lock {
            Some(Lock { header, sealer, mac, .. }) => {
                let native = Native { header, compress, sealer: Some(sealer) };
                (Cutting::Packed(native), Some(mac))
            }
            None => {
                let header = StreamHeader::new(StreamId(self.run.0));
                (Cutting::Packed(Native { header, compress, sealer: None }), None)
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    async fn send_all(
        &self,
        root: &Root,
        mut arriving: mpsc::Receiver<Part>,
        sender: &mut PartSender,
        mut md5: Option<&mut Md5List>,
        putting: Putting,
        observer: &Observer,
        stop: &mut Stop,
    ) -> Result<(Put, Uploaded), BackupError> {
        let folder = root.key(&self.folder);
        let mut counted = 0;
        let upload = async {
            while let Some(part) = arriving.recv().await {
                if let Some(list) = md5.as_deref_mut() {
                    list.part(&part);
                }
                let key = format!("{folder}/{}", part.object).into();
                sender
                    .send(PartData { key, index: part.index, payload: part.payload, end: part.end })
                    .await?;
                let bytes = sender.uploaded().bytes;
                observer.add_stored(bytes - counted);
                counted = bytes;
            }
            // The cutting side has ended; whether well or not, it says itself.
            let put = tokio::task::spawn_blocking(move || putting.join())
                .await
                .map_err(|_| BackupError::Bug("the pipeline's end was not seen"))??;
            let uploaded = sender.finish().await?;
            observer.add_stored(uploaded.bytes - counted);
            Ok::<_, BackupError>((put, uploaded))
        };
        let (put, uploaded) = tokio::select! {
            done = upload => done?,
            signal = stop.asked() => return Err(BackupError::Interrupted(signal)),
        };
        let (objects, bytes) = match &put.laid {
            Laid::Packed { packed, .. } | Laid::Carried { packed, .. } => {
                (packed.objects, packed.bytes)
            }
            Laid::Classic(cut) => (cut.objects, cut.bytes),
        };
        // Two independent counts, one on each side of the store's answers.
        if (uploaded.objects, uploaded.bytes) != (objects, bytes) {
            return Err(BackupError::Bug("objects acknowledged and objects cut differ"));
        }
        Ok((put, uploaded))
    }

    fn manifest(
        &self,
        request: &PutRequest,
        put: &Put,
        uploaded: Uploaded,
        producer: Option<ProducerFacts>,
        started: Timestamp,
        envelope: Option<&Envelope>,
    ) -> Manifest {
        let (packed, last_index, stream, codecs) = match &put.laid {
            Laid::Classic(_) => (None, None, None, Vec::new()),
            Laid::Packed { summary, packed } => {
                let codecs = vec![request.compress.to_string()];
                (Some(packed), summary.end.last_index, None, codecs)
            }
            Laid::Carried { header, trailer, packed } => {
                (Some(packed), trailer.last_index, Some(hex(&header.id().0)), Vec::new())
            }
        };
        let classic = match &put.laid {
            Laid::Classic(cut) if request.recut => {
                Some(ClassicFacts { chunk_size: request.chunk_size, short_objects: cut.short })
            }
            _ => None,
        };
        let packed = packed.map(|packed| PackedFacts {
            chunk_size: request.chunk_size,
            root: hex(&packed.root),
            index_position: last_index.map_or(0, |place| place.position),
            index_len: last_index.map_or(0, |place| place.len.into()),
            codecs,
            stream,
            sealed: envelope.map(|envelope| Sealed {
                ways_in: envelope.slots().map(|slot| slot.to_string()).collect(),
            }),
        });
        Manifest {
            format: FORMAT,
            layout: request.layout,
            name: request.name.to_string(),
            run: self.run.to_string(),
            tool: request.tool.clone(),
            started,
            finished: Timestamp::now(),
            objects: uploaded.objects,
            stored_bytes: uploaded.bytes,
            stream_bytes: put.scanned.bytes,
            files: put.scanned.files,
            packed,
            classic,
            members: request.transform.as_ref().map(|transform| MemberFacts {
                codec: transform.compress.map(|codec| Algorithm::from(codec).to_string()),
                cipher: transform.encrypt.as_ref().map(|e| e.cipher.algorithm().to_string()),
            }),
            end: match &put.scanned.proof {
                EndProof::LastFile(name) => End::LastFile { name: name.clone() },
                EndProof::Unproven => End::Any,
                EndProof::InputEnd => End::Raw,
                EndProof::Trailer => End::NativeTrailer,
            },
            server: request.server.clone(),
            base: None,
            producer,
            source: Facts::from_files(&put.scanned.described),
        }
    }

    /// Removes what the failed run has written.
    async fn clean_up(&self, root: &Root, request: &PutRequest) -> Result<(), BackupError> {
        match request.layout {
            // The claim lies in the same folder.
            Layout::Packed => drop(root.remove_below(&self.folder).await?),
            Layout::Classic => {
                // Another run that took over has made the folder its own.
                if !self.claim.still_ours(root, &request.name).await? {
                    return Ok(());
                }
                remove_classic_objects(root, &request.name).await?;
                root.store().delete(&root.key(&format!("{}.md5", request.name))).await?;
                // Claims of dead runs before us went with their objects.
                root.remove_below(&claims_folder(&request.name)).await?;
            }
        }
        Ok(())
    }
}

/// Names the backup that an incremental one goes on from, and checks that it does.
async fn find_its_base(
    root: &Root,
    request: &PutRequest,
    manifest: &mut Manifest,
) -> Result<(), BackupError> {
    let Some(since) = &request.since else {
        if manifest.is_incremental() {
            let all = manifests(root).await?.sound;
            let all = all.iter().map(|(name, manifest)| (name, manifest));
            // None is no error: it may lie elsewhere.
            manifest.base = find_base(all, manifest);
        }
        return Ok(());
    };
    let refused = |what: String| Err(BackupError::Chain { name: manifest.name.clone(), what });
    let (base, facts) = (&since.base.name, &manifest.source);
    match (facts.from_lsn, facts.to_lsn) {
        (Some(from), _) if from != since.lsn => {
            return refused(format!(
                "it was to go on from LSN {}, where {base} ends, and goes on from {from}",
                since.lsn
            ));
        }
        (_, Some(to)) if to < since.lsn => {
            return refused(format!(
                "{base} is ahead of the server: it reaches LSN {}, the server is at {to}; it is another server, or was made anew",
                since.lsn
            ));
        }
        _ => {}
    }
    // Hours have passed since it was found; without it this one cannot be restored.
    match root.manifest(&BackupName::new(base)?).await? {
        Some(found) if found.run == since.base.run => {}
        Some(_) => {
            return refused(format!("{base}, from which it goes on, is another backup by now"));
        }
        None => return refused(format!("{base}, from which it goes on, is gone")),
    }
    manifest.base = Some(since.base.clone());
    Ok(())
}

/// Waits until the producer, if there is one, has held up its server for too long.
async fn stalled(producer: Option<&mut Producer>) -> BackupError {
    match producer {
        Some(producer) => producer.stalled().await,
        None => std::future::pending().await,
    }
}

/// Everything that seals one run. A data key seals one stream, once: every run takes a new one.
struct Lock {
    header: StreamHeader,
    sealer: Sealer,
    envelope: Envelope,
    mac: MacKey,
}

impl Lock {
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
        let (sealer, _key) = fresh.sealer(&context, Backend::default()).map_err(PutError::from)?;
        Ok(Self { header, sealer, envelope, mac })
    }
}

/// Whether a key below a backup's folder belongs to a packed run.
pub(crate) fn of_packed_run(key: &str) -> bool {
    key.split_once('/').is_some_and(|(run, rest)| {
        RunId::parse(run).is_some()
            && (rest == CLAIM
                || rest == KEYS
                || rest == SUMS
                || (rest.len() == 9 && rest.bytes().all(|b| b.is_ascii_digit())))
    })
}

async fn stock_objects(root: &Root, name: &BackupName) -> Result<bool, BackupError> {
    Ok(root.list_below(name.as_str()).await?.iter().any(|listed| !of_packed_run(&listed.key)))
}

/// Removes the classic objects of `name`, and leaves packed runs alone.
pub(crate) async fn remove_classic_objects(
    root: &Root,
    name: &BackupName,
) -> Result<u64, BackupError> {
    let found = root.list_below(name.as_str()).await?;
    let keys: Vec<String> = found
        .into_iter()
        .filter(|l| !of_packed_run(&l.key))
        .map(|l| root.key(&format!("{name}/{}", l.key)))
        .collect();
    let count = keys.len() as u64;
    root.store().delete_all(keys).await?;
    Ok(count)
}

impl From<Closed> for BackupError {
    fn from(closed: Closed) -> Self {
        Self::Put(PutError::Closed(closed))
    }
}
