//! `get` and the first half of `restore`: reads a backup from the store as the stream that was put.

use bytes::Bytes;
use xb_pipeline::UnpackPlan;

use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::read::fetch::Fetch;
use crate::read::find::{Objects, Origin, ReadMode, find};
use crate::read::request::{GetReport, GetRequest};
use crate::read::stream_sink::StreamSink;
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
    let Session { root, observer, cancel, .. } = session;
    let fetch = Fetch { root, request, plan, observer };
    if let Some(bytes) = objects.bytes_to_fetch() {
        observer.expect_bytes(bytes);
    }
    let (stream_bytes, (count, stored_bytes), chosen, manifest, sink) = match objects {
        Objects::Packed(packed, mode) => {
            let all = (packed.manifest.objects, packed.manifest.stored_bytes);
            match mode {
                ReadMode::Unpack(key) => {
                    let (bytes, sink) = fetch.packed(&packed, key, sink, cancel).await?;
                    (bytes, all, None, Some((packed.manifest, packed.digest)), sink)
                }
                ReadMode::Parts { body, parts } => {
                    let chosen = parts.chosen;
                    let (bytes, read, sink) = fetch.parts(&body, *parts, sink, cancel).await?;
                    (bytes, read, Some(chosen), Some((packed.manifest, packed.digest)), sink)
                }
                ReadMode::AsStored(front) => {
                    let (bytes, sink) = fetch.as_stored(&packed, front, sink, cancel).await?;
                    (bytes, all, None, Some((packed.manifest, packed.digest)), sink)
                }
            }
        }
        Objects::Classic(origin, files, chosen) => {
            let (bytes, sink) = fetch.classic(&files, chosen.is_none(), sink, cancel).await?;
            let manifest = match origin {
                Origin::Manifest(manifest, digest) => Some((manifest, digest)),
                Origin::Stock(look) => {
                    cancel.or(look.still_holds(root, &request.name)).await?;
                    None
                }
            };
            (bytes, (files.objects(), files.bytes()), chosen, manifest, sink)
        }
    };
    let traffic = root.store().traffic();
    let (manifest, digest) = manifest.unzip();
    let report = GetReport {
        stream_bytes,
        objects: count,
        stored_bytes,
        requests: traffic.requests(),
        retries: traffic.retries(),
        manifest,
        digest,
        chosen,
    };
    Ok((report, sink))
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

    /// Returns where the bytes went.
    pub fn into_inner(self) -> W {
        self.to
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
