//! `get` and the first half of `restore`: reads a backup from the store as the stream that was put.

use bytes::Bytes;
use xb_pipeline::UnpackPlan;

use crate::cancel::OrInterrupted as _;
use crate::error::BackupError;
use crate::read::fetch::{Fetch, Fetched};
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
