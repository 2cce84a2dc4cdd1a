//! `get` and the first half of `restore`: reads a backup from the store as the stream that was put.

use std::sync::Arc;

use bytes::Bytes;
use xb_encryptor::{DataKey, Keys};
use xb_frame::STREAM_HEADER_LEN;
use xb_pipeline::{
    Observer, PassthroughError, RootDigest, UnpackError, UnpackPlan, object_key, relay, sums,
    unpack, unpack_parts,
};

use crate::cancel::CancelToken;
use crate::catalog::manifest::{End, Layout, Manifest, PackedFacts, StoredManifest};
use crate::catalog::names::{BackupName, RunId, run_folder};
use crate::catalog::root::Root;
use crate::claim::is_unfinished;
use crate::error::BackupError;
use crate::hex::hex;
use crate::objects::checksums;
use crate::objects::classic::ClassicFiles;
use crate::objects::classic_checksums::Check;
use crate::objects::classic_checksums::list_with_sums;
use crate::read::file_filter::Selection;
use crate::read::packed_index::{Index, PackedBody};
use crate::read::partial::{Checkpoint, Chosen, Parts, Picker, parts};
use crate::read::ranges::{Range, pump, ranges};
use crate::read::recent::Recent;
use crate::read::stream_sink::StreamSink;
use crate::read::unlock::{Accept, Given, Unlocked, envelope, missing_is_damage, unlock};

/// Request to read a backup.
#[derive(Debug)]
pub struct GetRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Files to read.
    pub files: Selection,
    /// Returns the native stream as it is stored, preceded by its keys block if it is sealed.
    /// Packed layout only; needs no key.
    pub as_stored: bool,
    /// Keys to open a sealed backup. If there are any, the backup must be sealed, and one of them
    /// must authenticate its manifest.
    pub keys: Keys,
    /// Unauthenticated backups that are read nevertheless.
    pub accept: Accept,
    /// Memory budget for buffers, in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Maximum number of concurrent requests; the budget may allow fewer.
    pub parallel: usize,
}

/// Result of a successful read.
#[derive(Debug, Clone)]
pub struct GetReport {
    /// Length of the stream in bytes.
    pub stream_bytes: u64,
    /// Data objects read.
    pub objects: u64,
    /// Total size of these objects in bytes.
    pub stored_bytes: u64,
    /// Requests sent to the store, retries included; 0 for a local directory.
    pub requests: u64,
    /// Requests that were retries.
    pub retries: u64,
    /// The manifest, if there is one: a stock backup has none.
    pub manifest: Option<Manifest>,
    /// The selected files, if not all were read.
    pub chosen: Option<Chosen>,
}

/// Data objects of a backup, in stream order.
pub(crate) enum Objects {
    Packed(Manifest, PackedFacts, RunId, ReadMode),
    Classic(Option<Manifest>, ClassicFiles, Option<Chosen>),
}

/// How the objects of a packed backup are unpacked.
pub(crate) enum ReadMode {
    /// All frames are unpacked; with a key, the seal is opened first.
    Undo(Option<Arc<DataKey>>),
    /// Only the frames of these parts are unpacked.
    Parts(Box<(PackedBody, Parts)>),
    /// The objects are returned as stored, after these bytes.
    AsStored(Bytes),
}

/// Reads a backup and passes its stream to `sink`, which is returned at the end.
///
/// # Errors
/// The first cause. The sink may already have received bytes.
pub async fn get<S: StreamSink>(
    root: &Root,
    request: &GetRequest,
    sink: S,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<(GetReport, S), BackupError> {
    let plan = UnpackPlan::new(request.memory, request.threads, request.parallel)?;
    let objects = stop.or(find(root, request, None, None)).await?;
    transfer(root, request, plan, objects, sink, observer, stop).await
}

impl GetRequest {
    /// The keys of this request.
    pub(crate) fn given(&self) -> Given<'_> {
        Given { keys: &self.keys, accept: self.accept, memory: self.memory }
    }
}

/// Transfers the objects that [`find`] has found.
pub(crate) async fn transfer<S: StreamSink>(
    root: &Root,
    request: &GetRequest,
    plan: UnpackPlan,
    objects: Objects,
    sink: S,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<(GetReport, S), BackupError> {
    let run = Run { root, request, plan, observer };
    let (stream_bytes, (count, stored_bytes), chosen, manifest, sink) = match objects {
        Objects::Packed(manifest, packed, id, opening) => {
            let all = (manifest.objects, manifest.stored_bytes);
            match opening {
                ReadMode::Undo(key) => {
                    let (bytes, sink) =
                        run.packed(&manifest, &packed, (id, key), sink, stop).await?;
                    (bytes, all, None, Some(manifest), sink)
                }
                ReadMode::Parts(parts) => {
                    let chosen = parts.1.chosen;
                    let (bytes, read, sink) = run.parts(*parts, sink, stop).await?;
                    (bytes, read, Some(chosen), Some(manifest), sink)
                }
                ReadMode::AsStored(front) => {
                    let (bytes, sink) =
                        run.as_stored(&manifest, &packed, (id, front), sink, stop).await?;
                    (bytes, all, None, Some(manifest), sink)
                }
            }
        }
        Objects::Classic(manifest, files, chosen) => {
            let (bytes, sink) = run.classic(&files, chosen.is_none(), sink, stop).await?;
            (bytes, (files.objects(), files.bytes()), chosen, manifest, sink)
        }
    };
    let traffic = root.store().traffic();
    let report = GetReport {
        stream_bytes,
        objects: count,
        stored_bytes,
        requests: traffic.requests(),
        retries: traffic.retries(),
        manifest,
        chosen,
    };
    Ok((report, sink))
}

impl Objects {
    /// The manifest, if there is one.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        match self {
            Self::Packed(manifest, ..) => Some(manifest),
            Self::Classic(manifest, ..) => manifest.as_ref(),
        }
    }

    /// Whether the backup holds raw bytes of unknown content.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self, Self::Packed(manifest, ..) if manifest.end == End::Raw)
    }

    /// Length of the stream in bytes, if the manifest states it.
    pub(crate) fn stream_bytes(&self) -> Option<u64> {
        match self {
            Self::Packed(_, _, _, ReadMode::Parts(parts)) => Some(parts.1.stream_bytes()),
            Self::Classic(_, files, Some(_)) => Some(files.bytes()),
            Self::Packed(manifest, ..) | Self::Classic(Some(manifest), ..) => {
                Some(manifest.stream_bytes)
            }
            Self::Classic(None, ..) => None,
        }
    }
}

/// Finds the objects of a backup and checks that the given keys may read it. Reads no data object.
/// `unlocked` is the result of an earlier check.
pub(crate) async fn find(
    root: &Root,
    request: &GetRequest,
    unlocked: Option<&Unlocked>,
    proven: Option<&Checkpoint>,
) -> Result<Objects, BackupError> {
    let name = &request.name;
    match root.stored_manifest(name).await? {
        Some(stored) if stored.manifest.layout == Layout::Packed => {
            let manifest = stored.manifest.clone();
            let (Some(packed), Some(run)) = (manifest.packed.clone(), manifest.run_id()) else {
                return Err(BackupError::Bug("a checked manifest is incomplete"));
            };
            let opening = if request.as_stored {
                if !request.files.is_all() {
                    return Err(BackupError::Selection(
                        "--as-stored cannot select single files".into(),
                    ));
                }
                ReadMode::AsStored(keys_in_front(root, request, &manifest, &packed, run).await?)
            } else {
                let key = open(root, request, Some(&stored), unlocked).await?;
                if request.files.is_all() && proven.is_none() {
                    ReadMode::Undo(key)
                } else {
                    if manifest.end == End::Raw {
                        return Err(BackupError::Selection(format!(
                            "{name} was stored with --raw, so single files cannot be selected"
                        )));
                    }
                    let key = key.as_deref();
                    let body = PackedBody::open(root, name, &manifest, &packed, run, key).await?;
                    let index = Index::load(&body).await?;
                    let none = Checkpoint::default();
                    let parts = parts(&index, &request.files, proven.unwrap_or(&none)).await?;
                    ReadMode::Parts(Box::new((body, parts)))
                }
            };
            Ok(Objects::Packed(manifest, packed, run, opening))
        }
        stored => {
            if request.as_stored {
                return Err(BackupError::Selection(format!(
                    "{name} is not a packed backup; leave out --as-stored, because `get` always returns it as stored"
                )));
            }
            let of = stored.as_ref().map(|stored| &stored.manifest);
            let mut files = list_with_sums(root, name, of).await?;
            if stored.is_none() && (files.is_empty() || is_unfinished(root, name).await?) {
                return Err(BackupError::NotThere {
                    name: name.to_string(),
                    state: crate::catalog::list::state_without_manifest(root, name).await?,
                });
            }
            open(root, request, stored.as_ref(), unlocked).await?;
            let manifest = stored.map(|stored| stored.manifest);
            if let Some(manifest) = &manifest {
                files.agree_with(name, manifest)?;
            }
            let chosen = match request.files.is_all() {
                true => None,
                false => Some(files.select(&request.files)?),
            };
            files.check_runs(name)?;
            if let Some(proven) = proven {
                files.leave_out(proven);
            }
            Ok(Objects::Classic(manifest, files, chosen))
        }
    }
}

/// Opens the backup: returns the data key if it is sealed, or an error if it may not be read.
async fn open(
    root: &Root,
    request: &GetRequest,
    stored: Option<&StoredManifest>,
    unlocked: Option<&Unlocked>,
) -> Result<Option<Arc<DataKey>>, BackupError> {
    let name = &request.name;
    match unlocked {
        None => Ok(unlock(root, name, stored, request.given()).await?.key),
        Some(known) if known.digest == stored.map(StoredManifest::digest) => Ok(known.key.clone()),
        Some(_) => Err(BackupError::Chain {
            name: name.to_string(),
            what: "it was replaced while its chain was being restored".to_owned(),
        }),
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
    let block = envelope(root, name, manifest, run).await?.encode_block();
    block.map(Bytes::from).map_err(|error| BackupError::Keys(error.to_string()))
}

/// One read, after its objects are known.
struct Run<'a> {
    root: &'a Root,
    request: &'a GetRequest,
    plan: UnpackPlan,
    observer: &'a Observer,
}

impl Run<'_> {
    async fn packed<S: StreamSink>(
        &self,
        manifest: &Manifest,
        packed: &PackedFacts,
        (run, key): (RunId, Option<Arc<DataKey>>),
        mut sink: S,
        stop: &mut CancelToken,
    ) -> Result<(u64, S), BackupError> {
        let name = &self.request.name;
        let objects = self.objects(manifest, packed, run);
        let (chunk, total) = (packed.chunk_size, manifest.stored_bytes);
        let mut digest = ObjectDigest::default();
        let (plan, observer) = (self.plan, self.observer.clone());
        // Objects that are read in several ranges reach the stream before their checksum is known.
        let known = match chunk.min(total) <= self.plan.range {
            true => checksums::read(self.root, name, (manifest, packed, run)).await?.ok(),
            false => None,
        };
        let sum_of = |key: &str| {
            let number: usize = key.rsplit_once('/')?.1.parse().ok()?;
            known.as_ref()?.get(number).copied()
        };
        let (fetched, (summary, sink), recent) = pump(
            self.root.store(),
            &self.plan,
            ranges(objects, self.plan.range).map(|range| range.with_object_sum(sum_of)),
            |range, crc| {
                digest.range(range, crc);
                Ok(())
            },
            move |arriving| {
                (unpack(arriving, key, &plan, &observer, |bytes| sink.take(bytes)), sink)
            },
            stop,
        )
        .await?;
        let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
        let summary = match (fetched, summary) {
            (_, Err(UnpackError::Sink(error))) => return Err(error),
            (
                _,
                Err(
                    error @ (UnpackError::Frame(_)
                    | UnpackError::Seal(_)
                    | UnpackError::Codec { .. }),
                ),
            ) => {
                // Positions refer to the unsealed stream, so they identify an object only in an
                // unsealed backup.
                let place = error.place().filter(|_| packed.sealed.is_none());
                let object = place
                    .and_then(|place| object_of(place, chunk))
                    .map_or_else(String::new, |n| format!("object {}: ", object_key(n)));
                let found = damaged(format!("{object}{error}"));
                return Err(self.cause(&recent, found).await);
            }
            (Err(error), _) => return Err(missing_is_damage(error, name)),
            (_, Err(error)) => {
                let source = std::io::Error::other(error.to_string());
                return Err(BackupError::System { what: "get", source });
            }
            (Ok(()), Ok(summary)) => summary,
        };
        if Some(summary.id.0) != manifest.stream_id() || summary.stream_len != total {
            return Err(damaged(
                "the objects hold a different stream than the manifest names".into(),
            ));
        }
        digest.check(packed).map_err(damaged)?;
        let bytes = summary.end.plain_bytes;
        if bytes != manifest.stream_bytes && !manifest.is_carried() {
            let stated = manifest.stream_bytes;
            return Err(damaged(format!(
                "the stream has {bytes} bytes, the manifest has {stated}"
            )));
        }
        Ok((bytes, sink))
    }

    /// Passes the stream of the selected files to the sink; returns how many objects and bytes it
    /// read.
    async fn parts<S: StreamSink>(
        &self,
        (body, parts): (PackedBody, Parts),
        sink: S,
        stop: &mut CancelToken,
    ) -> Result<(u64, (u64, u64), S), BackupError> {
        let name = &self.request.name;
        let runs = parts.runs.clone();
        let mut picker = Picker::new(parts, sink);
        let (plan, observer) = (self.plan, self.observer.clone());
        let (mut objects, mut bytes, mut last) = (0, 0, String::new());
        let native = body.body().clone();
        let ranges = body.ranges(native.stored(&runs), self.plan.range);
        let (fetched, (unpacked, picker), recent) = pump(
            self.root.store(),
            &self.plan,
            ranges,
            |range, _| {
                bytes += range.len;
                if last != range.key {
                    last.clone_from(&range.key);
                    objects += 1;
                }
                Ok(())
            },
            move |arriving| {
                let counting = observer.clone();
                let take = |offset, piece: Bytes| {
                    counting.add_bytes(piece.len() as u64);
                    picker.take(offset, &piece)
                };
                (unpack_parts(arriving, &native, runs, &plan, &observer, take), picker)
            },
            stop,
        )
        .await?;
        let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
        match (fetched, unpacked) {
            (_, Err(UnpackError::Sink(error))) => return Err(error),
            (
                _,
                Err(
                    error @ (UnpackError::Frame(_)
                    | UnpackError::Seal(_)
                    | UnpackError::Codec { .. }),
                ),
            ) => {
                return Err(self.cause(&recent, damaged(error.to_string())).await);
            }
            (Err(error), _) => return Err(missing_is_damage(error, name)),
            (_, Err(error)) => {
                let source = std::io::Error::other(error.to_string());
                return Err(BackupError::System { what: "get", source });
            }
            (Ok(()), Ok(())) => {}
        }
        let (given, sink) = tokio::task::spawn_blocking(move || picker.finish())
            .await
            .map_err(|_| BackupError::Bug("the thread that selects chunks panicked"))??;
        Ok((given, (objects, bytes), sink))
    }

    /// What to report instead of damage: an answer that was altered on its way, if there was one.
    async fn cause(&self, recent: &Recent, damage: BackupError) -> BackupError {
        match recent.altered(self.root.store()).await {
            Some(error) => error.into(),
            None => damage,
        }
    }

    /// Keys and sizes of the objects of a packed run.
    fn objects(
        &self,
        manifest: &Manifest,
        packed: &PackedFacts,
        run: RunId,
    ) -> impl Iterator<Item = (String, u64, u64)> + use<> {
        let folder = self.root.key(&run_folder(&self.request.name, run));
        let (count, chunk, total) = (manifest.objects, packed.chunk_size, manifest.stored_bytes);
        (0..count)
            .map(move |n| (format!("{folder}/{}", object_key(n)), 0, chunk.min(total - n * chunk)))
    }

    async fn as_stored<S: StreamSink>(
        &self,
        manifest: &Manifest,
        packed: &PackedFacts,
        (run, front): (RunId, Bytes),
        mut sink: S,
        stop: &mut CancelToken,
    ) -> Result<(u64, S), BackupError> {
        let name = &self.request.name;
        let objects = self.objects(manifest, packed, run);
        let mut digest = ObjectDigest::default();
        let observer = self.observer.clone();
        let (fetched, (written, sink), _) = pump(
            self.root.store(),
            &self.plan,
            ranges(objects, self.plan.range),
            |range, crc| {
                digest.range(range, crc);
                Ok(())
            },
            move |arriving| {
                let mut pieces = std::iter::once(front).chain(arriving.map_while(|piece| piece));
                let written = pieces.try_fold(0, |written, piece| {
                    let len = piece.len() as u64;
                    observer.add_stored(len);
                    observer.add_bytes(len);
                    sink.take(piece).map(|()| written + len)
                });
                (written, sink)
            },
            stop,
        )
        .await?;
        let written = written?;
        fetched.map_err(|error| missing_is_damage(error, name))?;
        digest
            .check(packed)
            .map_err(|what| BackupError::Damaged { name: name.to_string(), what })?;
        Ok((written, sink))
    }

    async fn classic<S: StreamSink>(
        &self,
        files: &ClassicFiles,
        all: bool,
        mut sink: S,
        stop: &mut CancelToken,
    ) -> Result<(u64, S), BackupError> {
        let name = &self.request.name;
        let all = all && files.begun().is_none();
        let folder = self.root.key(name.as_str());
        let objects =
            files.in_order().map(|(key, from, size)| (format!("{folder}/{key}"), from, size));
        let observer = self.observer.clone();
        let (mut borders, begun) = (files.borders(), files.begun());
        let mut sums = Check::new(files, &folder);
        let sum_of = |key: &str| files.sum_of(key.get(folder.len() + 1..)?);
        let (fetched, (scanned, sink), recent) = pump(
            self.root.store(),
            &self.plan,
            ranges(objects, self.plan.range).map(|range| range.with_object_sum(sum_of)),
            |range, sum| sums.range(range, sum),
            move |arriving| {
                let check = |head: &_| borders.check(head);
                (
                    relay(arriving, begun.as_deref(), &observer, check, |bytes| sink.take(bytes)),
                    sink,
                )
            },
            stop,
        )
        .await?;
        let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
        match (fetched, scanned) {
            // The checksums of chunks are compared where the files are written.
            (_, Err(PassthroughError::Sink(error @ BackupError::Restore { .. }))) => {
                Err(self.cause(&recent, error).await)
            }
            (_, Err(PassthroughError::Sink(error))) => Err(error),
            (_, Err(PassthroughError::Stream(error))) => {
                Err(self.cause(&recent, damaged(error.to_string())).await)
            }
            (_, Err(PassthroughError::Refused(what))) => {
                Err(self.cause(&recent, damaged(what)).await)
            }
            (Err(error), _) => Err(self.cause(&recent, missing_is_damage(error, name)).await),
            (Ok(()), Ok(scanned)) => match sums.finish(all) {
                Ok(()) => Ok((scanned.bytes, sink)),
                Err(what) => Err(damaged(what)),
            },
            (Ok(()), Err(_)) => Err(BackupError::Bug("the download stopped without a cause")),
        }
    }
}

/// Number of the object that contains a position.
pub(crate) fn object_of(place: xb_frame::ErrorLocation, chunk: u64) -> Option<u64> {
    let position = match place.part {
        xb_frame::Part::StreamHeader => place.position,
        xb_frame::Part::Record => return None,
        _ => place.position + STREAM_HEADER_LEN as u64,
    };
    position.checked_div(chunk)
}

/// Combines the checksums of ranges into the checksums of objects and the root digest.
#[derive(Debug, Default)]
struct ObjectDigest {
    root: RootDigest,
    len: u64,
    crc: u64,
}

impl ObjectDigest {
    fn range(&mut self, range: &Range, crc: u64) {
        self.crc = sums::crc64_combine(self.crc, crc, range.len);
        self.len += range.len;
        if range.end {
            self.root.object(self.len, self.crc);
            self.len = 0;
            self.crc = 0;
        }
    }

    /// Compares the totals with the manifest; the error describes the difference.
    fn check(self, packed: &PackedFacts) -> Result<(), String> {
        let digest = hex(&self.root.finish());
        if digest == packed.root {
            return Ok(());
        }
        Err(format!("wrong root digest of the objects: {digest}, the manifest has {}", packed.root))
    }
}

/// Sink that writes to a file or pipe.
#[derive(Debug)]
pub struct Output<W> {
    to: W,
    what: String,
}

impl<W: std::io::Write + Send + 'static> Output<W> {
    /// Creates a sink that writes to `to`; errors refer to it as `what`.
    pub fn new(to: W, what: &str) -> Self {
        Self { to, what: what.to_owned() }
    }

    /// Flushes the bytes written so far.
    ///
    /// # Errors
    /// [`BackupError::Output`].
    pub fn finish(mut self) -> Result<(), BackupError> {
        self.to.flush().map_err(|source| BackupError::Output { what: self.what, source })
    }
}

impl<W: std::io::Write + Send + 'static> StreamSink for Output<W> {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        self.to
            .write_all(&bytes)
            .map_err(|source| BackupError::Output { what: self.what.clone(), source })
    }
}
