//! Reads the stream of a backup, in one way for each layout and mode: its objects are fetched in parallel, and taken apart in
//! a thread of their own. `get` and `restore` pass it to a sink; `verify` reads through the same streams.

use std::sync::Arc;

use bytes::Bytes;
use xb_encryptor::DataKey;
use xb_frame::{FrameHeader, STREAM_HEADER_LEN, Summary};
use xb_pipeline::{
    PassthroughError, Scanned, UnpackError, UnpackPlan, object_key, relay, unpack_parts,
    unpack_watched,
};
use xb_reader::ChunkHead;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::{Manifest, PackedFacts};
use xb_uploader::StoreError;

use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::objects::checksums::{self, OTHER_STREAM, ObjectsRoot, object_len};
use crate::objects::classic::ClassicFiles;
use crate::objects::classic_checksums::Check;
use crate::objects::range::Range;
use crate::read::find::{Objects, Origin, PackedBackup, ReadMode, find};
use crate::read::packed_index::PackedBody;
use crate::read::partial::{Parts, Picker};
use crate::read::ranges::{Recent, TransferResults, fetch_into, ranges};
use crate::read::removed_meanwhile::unless_gone;
use crate::read::request::{GetReport, GetRequest};
use crate::read::stream_sink::StreamSink;
use crate::read::unlock::not_found_as_damage;
use crate::session::{Resources, Session};

/// Reads a backup and passes its stream to `sink`, which is returned at the end.
///
/// # Errors
/// The first cause. The sink may already have received bytes.
pub async fn get<S: StreamSink>(
    session: &Session,
    request: &GetRequest,
    sink: S,
) -> Result<(GetReport, S), BackupError> {
    let Resources { memory, threads, parallel } = session.resources;
    let plan = UnpackPlan::new(memory, threads, parallel)?;
    let objects = session.cancel.or(find(session, request, None, None)).await?;
    session.observer.expect_phases(1);
    session.observer.begin_phase("fetch");
    transfer(session, request, plan, objects, sink).await
}

/// Transfers the objects that [`find`] has found.
pub(crate) async fn transfer<S: StreamSink>(
    session: &Session,
    request: &GetRequest,
    plan: UnpackPlan,
    objects: Objects,
    sink: S,
) -> Result<(GetReport, S), BackupError> {
    let digest = objects.digest().map(str::to_owned);
    match (transfer_all(session, request, plan, objects, sink).await, digest) {
        (Err(error), Some(digest)) => {
            Err(unless_gone(&session.root, &request.name, &digest, error).await)
        }
        (outcome, _) => outcome,
    }
}

async fn transfer_all<S: StreamSink>(
    session: &Session,
    request: &GetRequest,
    plan: UnpackPlan,
    objects: Objects,
    sink: S,
) -> Result<(GetReport, S), BackupError> {
    let Session { root, observer, cancel, .. } = session;
    let fetch = Fetch { session, request, plan };
    if let Some(bytes) = objects.bytes_to_fetch() {
        observer.expect_bytes(bytes);
    }
    let (fetched, chosen, manifest) = match objects {
        Objects::Packed(packed, mode) => {
            let mut chosen = None;
            let fetched = match mode {
                ReadMode::Unpack(key) => fetch.packed(&packed, key, sink).await?,
                ReadMode::Parts { body, parts } => {
                    chosen = Some(parts.chosen);
                    fetch.parts(&body, *parts, sink).await?
                }
                ReadMode::AsStored(front) => fetch.as_stored(&packed, front, sink).await?,
            };
            (fetched, chosen, Some((packed.manifest, packed.digest)))
        }
        Objects::Classic(origin, files, chosen) => {
            let fetched = fetch.classic(&files, chosen.is_none(), sink).await?;
            let manifest = match origin {
                Origin::Manifest(manifest, digest) => Some((manifest, digest)),
                Origin::Stock(look) => {
                    cancel.or(look.still_holds(root, &request.name)).await?;
                    None
                }
            };
            (fetched, chosen, manifest)
        }
    };
    let traffic = root.store().traffic();
    let (manifest, digest) = manifest.unzip();
    let Fetched { stream_bytes, objects, stored_bytes, sink } = fetched;
    let report = GetReport {
        stream_bytes,
        objects,
        stored_bytes,
        requests: traffic.requests(),
        retries: traffic.retries(),
        manifest,
        digest,
        chosen,
    };
    Ok((report, sink))
}

/// One read, after its objects are known.
struct Fetch<'a> {
    session: &'a Session,
    request: &'a GetRequest,
    plan: UnpackPlan,
}

/// What was read: all of it, once this is returned.
struct Fetched<S> {
    /// Length of the stream in bytes.
    stream_bytes: u64,
    /// Data objects read.
    objects: u64,
    /// Their bytes.
    stored_bytes: u64,
    sink: S,
}

impl<S> Fetched<S> {
    fn whole(manifest: &Manifest, stream_bytes: u64, sink: S) -> Self {
        let (objects, stored_bytes) = (manifest.objects, manifest.stored_bytes);
        Self { stream_bytes, objects, stored_bytes, sink }
    }
}

impl Fetch<'_> {
    async fn packed<S: StreamSink>(
        &self,
        PackedBackup { manifest, facts, run, .. }: &PackedBackup,
        key: Option<Arc<DataKey>>,
        sink: S,
    ) -> Result<Fetched<S>, BackupError> {
        let name = &self.request.name;
        let (chunk, total) = (facts.chunk_size, manifest.stored_bytes);
        let mut digest = ObjectsRoot::default();
        // Objects that are read in several ranges reach the stream before their checksum is known.
        let known = match chunk.min(total) <= self.plan.range {
            true => checksums::read(&self.session.root, name, manifest, facts, *run).await?.ok(),
            false => None,
        };
        let keys = self.session.root.run_keys(name, *run);
        let stream = PackedStream { keys, manifest, facts, key, known: known.as_deref() };
        let TransferResults { fetched, taken: (summary, sink), recent } = stream
            .unpack(
                self.session,
                self.plan,
                |range, crc| {
                    digest.range(range, crc);
                },
                |_, _| {},
                sink,
                S::take,
            )
            .await?;
        let damaged = |what: String| BackupError::Damaged { name: name.to_string(), what };
        let object = |error: &UnpackError<BackupError>| {
            // Positions refer to the unsealed stream, so they identify an object only in an
            // unsealed backup.
            let place = error.place().filter(|_| facts.sealed.is_none())?;
            Some(format!("object {}: ", object_key(object_of(place, chunk)?)))
        };
        let summary = self.outcome(fetched, summary, &recent, object).await?;
        if Some(summary.id.0) != manifest.stream_id() || summary.stream_len != total {
            return Err(damaged(OTHER_STREAM.to_owned()));
        }
        digest.compare(&facts.root).map_err(damaged)?;
        let bytes = summary.end.plain_bytes;
        if bytes != manifest.stream_bytes && !manifest.is_carried() {
            let stated = manifest.stream_bytes;
            return Err(damaged(format!(
                "the stream has {bytes} bytes, the manifest has {stated}"
            )));
        }
        Ok(Fetched::whole(manifest, bytes, sink))
    }

    /// Passes the stream of the selected files to the sink.
    async fn parts<S: StreamSink>(
        &self,
        body: &PackedBody,
        parts: Parts,
        sink: S,
    ) -> Result<Fetched<S>, BackupError> {
        let runs = parts.runs.clone();
        let mut picker = Picker::new(parts, sink);
        let (plan, observer) = (self.plan, self.session.observer.clone());
        let (mut objects, mut stored_bytes, mut last) = (0, 0, String::new());
        let native = body.body().clone();
        let ranges = body.ranges(native.stored(&runs), self.plan.range);
        let TransferResults { fetched, taken: (unpacked, picker), recent } = fetch_into(
            self.session,
            &self.plan,
            ranges,
            |range, _| {
                stored_bytes += range.len;
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
        )
        .await?;
        self.outcome(fetched, unpacked, &recent, |_| None).await?;
        let (stream_bytes, sink) = tokio::task::spawn_blocking(move || picker.finish())
            .await
            .map_err(|_| BackupError::Bug("the thread that selects chunks panicked"))??;
        Ok(Fetched { stream_bytes, objects, stored_bytes, sink })
    }

    /// Returns what was unpacked, or the cause of a failure: fetching and unpacking both fail if one of them does. `place`
    /// names the place of damage.
    async fn outcome<T>(
        &self,
        fetched: Result<(), StoreError>,
        unpacked: Result<T, UnpackError<BackupError>>,
        recent: &Recent,
        place: impl Fn(&UnpackError<BackupError>) -> Option<String>,
    ) -> Result<T, BackupError> {
        let name = &self.request.name;
        match (fetched, unpacked) {
            (_, Err(UnpackError::Sink(error))) => Err(error),
            (_, Err(error)) if is_of_content(&error) => {
                let what = format!("{}{error}", place(&error).unwrap_or_default());
                let damage = BackupError::Damaged { name: name.to_string(), what };
                Err(self.cause(recent, damage).await)
            }
            (Err(error), _) => Err(not_found_as_damage(error, name)),
            (_, Err(error)) => {
                let source = std::io::Error::other(error.to_string());
                Err(BackupError::System { what: "get", source })
            }
            (Ok(()), Ok(unpacked)) => Ok(unpacked),
        }
    }

    /// Error to report instead of damage: a response that was altered in transit, if there was one.
    async fn cause(&self, recent: &Recent, damage: BackupError) -> BackupError {
        match recent.altered(self.session.root.store()).await {
            Some(error) => error.into(),
            None => damage,
        }
    }

    async fn as_stored<S: StreamSink>(
        &self,
        PackedBackup { manifest, facts, run, .. }: &PackedBackup,
        front: Bytes,
        mut sink: S,
    ) -> Result<Fetched<S>, BackupError> {
        let name = &self.request.name;
        let keys = self.session.root.run_keys(name, *run);
        let stream = PackedStream { keys, manifest, facts, key: None, known: None };
        let mut digest = ObjectsRoot::default();
        let observer = self.session.observer.clone();
        let TransferResults { fetched, taken: (written, sink), .. } = fetch_into(
            self.session,
            &self.plan,
            ranges(stream.objects(0..manifest.objects), self.plan.range),
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
        )
        .await?;
        let written = written?;
        fetched.map_err(|error| not_found_as_damage(error, name))?;
        digest
            .compare(&facts.root)
            .map_err(|what| BackupError::Damaged { name: name.to_string(), what })?;
        Ok(Fetched::whole(manifest, written, sink))
    }

    async fn classic<S: StreamSink>(
        &self,
        files: &ClassicFiles,
        all: bool,
        sink: S,
    ) -> Result<Fetched<S>, BackupError> {
        let name = &self.request.name;
        let all = all && files.begun().is_none();
        let keys = self.session.root.classic_keys(name);
        let mut sums = Check::new(files, &keys);
        let TransferResults { fetched, taken, recent } = relay_classic(
            self.session,
            self.plan,
            files,
            &keys,
            |range, sum| sums.range(range, sum),
            sink,
            S::take,
        )
        .await?;
        let RelayReport { scanned, sink, .. } = taken;
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
            (Err(error), _) => Err(self.cause(&recent, not_found_as_damage(error, name)).await),
            (Ok(()), Ok(scanned)) => match sums.finish(all) {
                Ok(()) => Ok(Fetched {
                    stream_bytes: scanned.bytes,
                    objects: files.objects(),
                    stored_bytes: files.bytes(),
                    sink,
                }),
                Err(what) => Err(damaged(what)),
            },
            (Ok(()), Err(_)) => Err(BackupError::Bug("the download stopped without a cause")),
        }
    }
}

/// Returns whether the stored bytes are the cause, not a request or the receiver of the files.
pub(crate) fn is_of_content<E>(error: &UnpackError<E>) -> bool {
    matches!(error, UnpackError::Frame(_) | UnpackError::Seal(_) | UnpackError::Codec { .. })
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

/// The stream of a packed run.
pub(crate) struct PackedStream<'a> {
    pub(crate) keys: RunKeys,
    pub(crate) manifest: &'a Manifest,
    pub(crate) facts: &'a PackedFacts,
    /// Opens the seal of a sealed run.
    pub(crate) key: Option<Arc<DataKey>>,
    /// Checksums of the objects, if they are known: an object that differs is fetched once more.
    pub(crate) known: Option<&'a [u64]>,
}

impl PackedStream<'_> {
    /// Key, first byte and size of data objects.
    pub(crate) fn objects(
        &self,
        numbers: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = (String, u64, u64)> {
        numbers.map(|n| (self.keys.data(n), 0, object_len(self.manifest, self.facts, n)))
    }

    /// Ranges of data objects. The checksums of blocks serve the frames of an unsealed stream.
    pub(crate) fn ranges(
        &self,
        numbers: impl Iterator<Item = u64>,
        most: u64,
    ) -> impl Iterator<Item = Range> {
        let number = |key: &str| usize::try_from(key.rsplit_once('/')?.1.parse::<u64>().ok()?).ok();
        let sum_of = move |key: &str| self.known?.get(number(key)?).copied();
        ranges(self.objects(numbers), most)
            .map(move |range| range.with_object_sum(sum_of))
            .map(|range| range.with_blocks(self.facts.sealed.is_none()))
    }

    /// Fetches all objects and passes their unpacked stream to `take`. `seen` gets each range with
    /// its CRC-64/NVME, `watch` each frame.
    ///
    /// # Errors
    /// [`BackupError::Interrupted`] on cancellation.
    pub(crate) async fn unpack<S: Send + 'static, E: Send + 'static>(
        &self,
        session: &Session,
        plan: UnpackPlan,
        mut seen: impl FnMut(&Range, u64),
        watch: impl FnMut(&FrameHeader, &[Bytes]) + Send + 'static,
        mut sink: S,
        mut take: impl FnMut(&mut S, Bytes) -> Result<(), E> + Send + 'static,
    ) -> Result<TransferResults<(Result<Summary, UnpackError<E>>, S)>, BackupError> {
        let (observer, key) = (session.observer.clone(), self.key.clone());
        fetch_into(
            session,
            &plan,
            self.ranges(0..self.manifest.objects, plan.range),
            |range, sum| {
                seen(range, sum);
                Ok(())
            },
            move |arriving| {
                let take = |bytes| take(&mut sink, bytes);
                let ranges = arriving.with_sums();
                (unpack_watched(ranges, key, &plan, &observer, watch, take), sink)
            },
        )
        .await
    }
}

/// Result of relaying the chunks of a classic backup.
pub(crate) struct RelayReport<S, E> {
    pub(crate) scanned: Result<Scanned, PassthroughError<E>>,
    /// Stream offset of the chunk that does not belong where it is.
    pub(crate) refused: Option<u64>,
    pub(crate) sink: S,
}

/// Fetches all objects of a classic backup and passes their chunks to `take`. `seen` gets each
/// range with its CRC-64/NVME, and may refuse it.
///
/// # Errors
/// [`BackupError::Interrupted`] on cancellation.
pub(crate) async fn relay_classic<S: Send + 'static, E: Send + 'static>(
    session: &Session,
    plan: UnpackPlan,
    files: &ClassicFiles,
    keys: &RunKeys,
    seen: impl FnMut(&Range, u64) -> Result<(), StoreError>,
    mut sink: S,
    mut take: impl FnMut(&mut S, Bytes) -> Result<(), E> + Send + 'static,
) -> Result<TransferResults<RelayReport<S, E>>, BackupError> {
    let objects = files.in_order().map(|(key, from, size)| (keys.at(key), from, size));
    let sum_of = |key: &str| files.sum_of(keys.below(key)?);
    let (mut borders, begun) = (files.borders(), files.begun());
    let observer = session.observer.clone();
    fetch_into(
        session,
        &plan,
        ranges(objects, plan.range).map(|range| range.with_object_sum(sum_of)),
        seen,
        move |arriving| {
            let mut refused = None;
            let check = |head: &ChunkHead| {
                borders.check(head).inspect_err(|_| refused = Some(head.position))
            };
            let take = |bytes| take(&mut sink, bytes);
            let scanned = relay(arriving, begun.as_deref(), &observer, check, take);
            RelayReport { scanned, refused, sink }
        },
    )
    .await
}
