//! Measures the link to a store with small objects below `ROOT/.xb-catalog/@tune`, which no listing
//! of backups shows, and removes them afterwards, also after a failure or a signal.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use xb_backup::{BackupError, CancelToken, OrInterrupted as _};
use xb_repo::names::{CATALOG, RunId};
use xb_repo::probes::{PROBES, dead_probes, folder};
use xb_repo::root::Root;
use xb_uploader::{Operation, Store, StoreError, StoreErrorKind};

use crate::model::{Link, LinkPoint, counts};

/// Size of the objects that show the latency.
const SMALL: usize = 1 << 10;
/// Number of these objects, after a first one that opens the connection.
const SMALL_ONES: usize = 5;
/// Limits of the size of an object that shows the throughput.
const OBJECT: (u64, u64) = (64 << 10, 8 << 20);
/// Objects that each connection should send while one number of connections is measured.
const EACH: f64 = 6.0;
/// Time that requests in flight have to end after a signal. An upload that was cut off here could
/// still become an object after the removal.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Time that a slow store gets beyond three times the time it was asked to take.
const SLOW: Duration = Duration::from_secs(30);
/// Time limit of the removal.
const REMOVAL: Duration = Duration::from_secs(60);
/// Objects older than this belong to a measurement that was killed, in seconds.
const DEAD: i64 = 3600;

/// Limits of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkBounds {
    /// Maximum number of bytes to upload.
    pub bytes: u64,
    /// About how long to upload; requests in flight may end later.
    pub time: Duration,
    /// Maximum number of parallel requests.
    pub parallel: usize,
}

/// Measures the link to the store of `root`. Leaves nothing in the store.
///
/// # Errors
/// [`RepoError::Store`](xb_repo::error::RepoError::Store) if the store fails, or if an object of the measurement could not be removed;
/// [`BackupError::Interrupted`].
pub async fn measure_link(
    root: &Root,
    bounds: LinkBounds,
    cancel: CancelToken,
) -> Result<Link, BackupError> {
    let no_random = |error: getrandom::Error| BackupError::System {
        what: "no random numbers",
        source: error.into(),
    };
    let folder = format!("{}/{}", folder(root), RunId::random().map_err(no_random)?);
    let mut block = vec![0; 1 << 20];
    // Random, so that nothing between here and the disk can compress it.
    getrandom::fill(&mut block).map_err(no_random)?;
    let store = root.store().clone();
    cancel.or(remove_dead(root)).await?;
    let limit = bounds.time.saturating_mul(3).saturating_add(SLOW);
    let mut probe = Probe { store, folder, block: block.into(), limit, begun: 0, uploaded: 0 };
    let measured = probe.run(bounds, &cancel).await;
    probe.remove().await?;
    measured
}

/// Removes the objects of measurements that were killed.
async fn remove_dead(root: &Root) -> Result<(), BackupError> {
    let store = root.store();
    let listed = root.list_below(&format!("{CATALOG}/{PROBES}")).await?;
    Ok(store.delete_all(dead_probes(root, &listed, store.now().saturating_sub(DEAD))).await?)
}

struct Probe {
    store: Store,
    folder: String,
    block: Bytes,
    /// Time limit of each round.
    limit: Duration,
    /// Objects whose upload was begun; their number is their name.
    begun: u64,
    uploaded: u64,
}

impl Probe {
    async fn run(&mut self, bounds: LinkBounds, cancel: &CancelToken) -> Result<Link, BackupError> {
        let mut times = Vec::new();
        for _ in 0..=SMALL_ONES {
            times.push(self.round(1, SMALL as u64, 1, None, cancel).await?.as_secs_f64());
        }
        // The first one also opened the connection.
        times.remove(0);
        times.sort_by(f64::total_cmp);
        let latency = times.get(times.len() / 2).copied().unwrap_or_default();
        let first = OBJECT.0.min(bounds.bytes.max(1));
        let span = self.round(1, first, 1, None, cancel).await?.as_secs_f64();
        // Bytes per second of one connection, as far as they are known.
        let mut each = throughput(first, 1, 1, span, latency);
        let counts = counts(bounds.parallel);
        let mut points = Vec::new();
        for (n, parallel) in counts.iter().copied().enumerate() {
            let left = counts.len().saturating_sub(n).max(1);
            let bytes = bounds.bytes.saturating_sub(self.uploaded) / left as u64;
            let slice = bounds.time / u32::try_from(counts.len()).unwrap_or(1);
            let size = object_size(each, slice, bytes / parallel as u64);
            let objects = bytes / size;
            if objects < parallel as u64 && !points.is_empty() {
                break;
            }
            let before = self.begun;
            let objects = objects.max(1);
            let span =
                self.round(parallel, size, objects, Some(slice), cancel).await?.as_secs_f64();
            let sent = self.begun - before;
            let rate = throughput(size, sent, parallel, span, latency);
            each = rate / parallel as f64;
            let measured = size as f64 * sent as f64 / span.max(1e-6);
            points.push(LinkPoint { parallel, rate, measured });
        }
        Ok(Link { latency, points, uploaded: self.uploaded, requests: self.begun })
    }

    /// Uploads up to `objects` objects of `size` bytes, `parallel` at a time; begins none after
    /// `slice`. Returns the time it took. After an error or a signal, waits for what is in flight.
    async fn round(
        &mut self,
        parallel: usize,
        size: u64,
        objects: u64,
        slice: Option<Duration>,
        cancel: &CancelToken,
    ) -> Result<Duration, BackupError> {
        let begin = Instant::now();
        let mut running = JoinSet::new();
        let mut left = objects;
        let failed = loop {
            // One object for each connection, however slow the link is.
            let late = left < objects && slice.is_some_and(|slice| begin.elapsed() >= slice);
            while left > 0 && running.len() < parallel && !late {
                running.spawn(self.upload(size));
                left -= 1;
            }
            tokio::select! {
                ended = running.join_next() => match ended {
                    None => break None,
                    Some(Ok(Ok(()))) => self.uploaded += size,
                    Some(Ok(Err(error))) => break Some(BackupError::from(error)),
                    Some(Err(_)) => break Some(BackupError::Bug("an upload task panicked")),
                },
                signal = cancel.cancelled() => break Some(BackupError::Interrupted(signal)),
                () = tokio::time::sleep_until((begin + self.limit).into()) => {
                    break Some(self.too_slow().into());
                }
            }
        };
        let span = begin.elapsed();
        let Some(failed) = failed else { return Ok(span) };
        let drained = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_LIMIT, drained).await;
        Err(failed)
    }

    fn upload(&mut self, size: u64) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let (store, key) = (self.store.clone(), self.key(self.begun));
        self.begun += 1;
        let mut pieces = Vec::new();
        let mut left = usize::try_from(size).unwrap_or(usize::MAX);
        while left > 0 {
            let len = left.min(self.block.len());
            pieces.push(self.block.slice(..len));
            left -= len;
        }
        async move { store.put(&key, pieces.into_iter().collect()).await }
    }

    fn too_slow(&self) -> StoreError {
        let message = format!("the store took longer than {} s", self.limit.as_secs());
        StoreError::new(Operation::Put, &self.folder, StoreErrorKind::Unavailable, message)
    }

    fn key(&self, number: u64) -> String {
        format!("{}/{number}", self.folder)
    }

    /// Removes all objects and proves by a listing that none is left.
    async fn remove(&self) -> Result<(), BackupError> {
        let removal = async {
            let mut keys: Vec<String> = (0..self.begun).map(|number| self.key(number)).collect();
            for retry in 1..=3 {
                self.store.delete_all(std::mem::take(&mut keys)).await?;
                keys = self.store.list(&self.folder).await?.into_iter().map(|o| o.key).collect();
                if keys.is_empty() {
                    return Ok(());
                }
                self.store.pause(retry).await;
            }
            let message = "objects reappear after they were deleted";
            Err(StoreError::new(Operation::Delete, &self.folder, StoreErrorKind::Rejected, message))
        };
        let left = match tokio::time::timeout(REMOVAL, removal).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => {
                let message = format!("no response within {} s", REMOVAL.as_secs());
                StoreError::new(
                    Operation::Delete,
                    &self.folder,
                    StoreErrorKind::Unavailable,
                    message,
                )
            }
        };
        let message = format!("objects of the measurement may remain below this key: {left}");
        Err(StoreError::new(Operation::Delete, &self.folder, left.kind, message).into())
    }
}

/// Size of the objects: so small that each connection sends several in time, within `most`.
fn object_size(each: f64, slice: Duration, most: u64) -> u64 {
    // `as` saturates.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let in_time = (each * slice.as_secs_f64() / EACH) as u64;
    in_time.clamp(OBJECT.0, OBJECT.1).min(most).max(1)
}

/// Bytes per second of all connections, without the latency of requests, which the model adds. At
/// most nine tenths of the time can be latency: beyond that, the small objects show nothing.
fn throughput(size: u64, objects: u64, parallel: usize, span: f64, latency: f64) -> f64 {
    let waiting = latency * objects as f64 / parallel.max(1) as f64;
    let moving = (span - waiting).max(span / 10.0).max(1e-6);
    (size as f64 * objects as f64 / moving).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn latency_is_not_counted_twice() {
        // 8 MiB in 8 objects, one at a time: 8 s, of which 4 s are latency.
        let rate = throughput(1 << 20, 8, 1, 8.0, 0.5);
        assert!((rate - 2.0 * 1_048_576.0).abs() < 1.0, "{rate}");
        // Two at a time share the latency.
        let rate = throughput(1 << 20, 8, 2, 6.0, 0.5);
        assert!((rate - 2.0 * 1_048_576.0).abs() < 1.0, "{rate}");
    }

    proptest! {
        #[test]
        fn objects_keep_the_bounds(each in 0.0..1e12_f64, ms in 0_u64..100_000, most in 0_u64..1 << 40) {
            let size = object_size(each, Duration::from_millis(ms), most);
            prop_assert!(size >= 1 && size <= OBJECT.1 && size <= most.max(1));
        }

        #[test]
        fn throughput_is_finite(
            size in 1_u64..1 << 24, objects in 0_u64..10_000, parallel in 0_usize..64,
            span in 0.0..1e4_f64, latency in 0.0..100.0_f64,
        ) {
            let rate = throughput(size, objects, parallel, span, latency);
            prop_assert!(rate.is_finite() && rate >= 1.0);
        }
    }
}
