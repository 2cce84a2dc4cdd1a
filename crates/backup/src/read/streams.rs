//! Streams of a backup's objects, fetched in parallel and taken apart in a thread of their own.
//! `get`, `restore` and `verify` all read through these.

use std::sync::Arc;

use bytes::Bytes;
use xb_encryptor::DataKey;
use xb_frame::{FrameHeader, Summary};
use xb_pipeline::{PassthroughError, Scanned, UnpackError, UnpackPlan, relay, unpack_watched};
use xb_reader::ChunkHead;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::{Manifest, PackedFacts};
use xb_uploader::StoreError;

use crate::error::BackupError;
use crate::objects::checksums::object_len;
use crate::objects::classic::ClassicFiles;
use crate::objects::range::Range;
use crate::read::ranges::recent::Recent;
use crate::read::ranges::{fetch_into, ranges};
use crate::session::Session;

/// Results of both sides of a transfer; the caller decides which of the two is the cause.
pub(crate) struct TransferResults<T> {
    /// Result of fetching the objects.
    pub(crate) fetched: Result<(), StoreError>,
    /// Result of the side that takes the stream.
    pub(crate) taken: T,
    /// The last ranges, to tell damage from an altered response.
    pub(crate) recent: Recent,
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
        let (fetched, taken, recent) = fetch_into(
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
        .await?;
        Ok(TransferResults { fetched, taken, recent })
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
    let (fetched, taken, recent) = fetch_into(
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
    .await?;
    Ok(TransferResults { fetched, taken, recent })
}
