//! Fetches ranges of objects in parallel and delivers them in order.

mod buffers;
mod window;

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;
use xb_pipeline::{Budget, Permit, Received, UnpackPlan, sums};
use xb_uploader::{Operation, Store, StoreError, StoreErrorKind};

use crate::error::BackupError;
use crate::objects::range::Range;
use crate::read::ranges::buffers::{RangeBuffers, ReceivedRange};
use crate::read::ranges::window::Window;
use crate::session::Session;

/// Splits objects, given as key, first byte and size, into ranges of at most `range` bytes.
pub(crate) fn ranges(
    objects: impl Iterator<Item = (String, u64, u64)>,
    range: u64,
) -> impl Iterator<Item = Range> {
    objects.flat_map(move |(key, from, size)| {
        let count = size.saturating_sub(from).div_ceil(range);
        (0..count).map(move |n| {
            let start = from + n * range;
            let len = range.min(size - start);
            Range {
                key: key.clone(),
                start,
                len,
                of: size,
                end: n + 1 == count,
                sum: None,
                blocks: false,
            }
        })
    })
}

/// Results of both sides of a transfer; the caller decides which of the two is the cause.
pub(crate) struct TransferResults<T> {
    /// Result of fetching the objects.
    pub(crate) fetched: Result<(), StoreError>,
    /// Result of the side that takes the stream.
    pub(crate) taken: T,
    /// The last ranges, to tell damage from an altered response.
    pub(crate) recent: Recent,
}

/// Contents of a fetched range; `None` if the fetch failed.
pub(crate) type RangeContent = Option<Received>;

/// Fetched ranges in order, for a synchronous thread.
pub(crate) struct RangeReader(mpsc::Receiver<RangeContent>);

impl RangeReader {
    /// The ranges with the checksums that were computed on arrival.
    pub(crate) fn with_sums(mut self) -> impl Iterator<Item = RangeContent> + Send + 'static {
        std::iter::from_fn(move || self.0.blocking_recv())
    }
}

impl Iterator for RangeReader {
    type Item = Option<Bytes>;
    fn next(&mut self) -> Option<Option<Bytes>> {
        self.0.blocking_recv().map(|range| range.map(Bytes::from))
    }
}

/// Time limit for a consumer to clean up after a cancellation. A consumer blocked on a stalled
/// output would never end.
const CLEANUP_LIMIT: Duration = Duration::from_secs(10);

/// Fetches all ranges and lets `consume` take them in its own thread.
///
/// # Errors
/// [`BackupError::Interrupted`] on cancellation. The consumer has then seen the end of the ranges
/// and has had time to clean up.
pub(crate) async fn fetch_into<T: Send + 'static>(
    Session { root, cancel, .. }: &Session,
    plan: &UnpackPlan,
    ranges: impl Iterator<Item = Range>,
    mut seen: impl FnMut(&Range, u64) -> Result<(), StoreError>,
    consume: impl FnOnce(RangeReader) -> T + Send + 'static,
) -> Result<TransferResults<T>, BackupError> {
    let (to, from) = mpsc::channel(1);
    let mut consumer = tokio::task::spawn_blocking(move || consume(RangeReader(from)));
    let mut recent = Recent::new(plan.memory);
    let note = |range: &Range, crc: u64| {
        recent.add(range, crc);
        seen(range, crc)
    };
    let both = async {
        let fetched = fetch_all(root.store(), plan, ranges, to, note).await;
        (fetched, (&mut consumer).await)
    };
    let (fetched, consumed) = tokio::select! {
        both = both => both,
        signal = cancel.cancelled() => {
            let _ = tokio::time::timeout(CLEANUP_LIMIT, consumer).await;
            return Err(BackupError::Interrupted(signal));
        }
    };
    let taken = consumed.map_err(|_| BackupError::Bug("the pipeline thread panicked"))?;
    Ok(TransferResults { fetched, taken, recent })
}

/// Fetches all ranges and sends them in order. `seen` gets each range with its CRC-64/NVME, in
/// order, before the range is sent, and may refuse it. Stops early without an error when the
/// receiver is gone.
///
/// Memory is leased in output order, one lease at a time, so the next range never waits for a later
/// one.
///
/// # Errors
/// The first failure, after which `None` was sent.
pub(crate) async fn fetch_all(
    store: &Store,
    plan: &UnpackPlan,
    ranges: impl Iterator<Item = Range>,
    to: mpsc::Sender<RangeContent>,
    seen: impl FnMut(&Range, u64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut ranges = ranges.peekable();
    let first = ranges.peek().map_or(0, |first| first.len);
    let buffers = RangeBuffers::new(first, plan.memory);
    let one = |range: Range| {
        let (store, buffers) = (store.clone(), buffers.clone());
        async move { Ok((fetch(&store, &range, &buffers).await?, range)) }
    };
    deliver(plan, ranges, to, seen, one).await
}

/// Fetches ranges with `fetch`, as [`fetch_all`] does.
async fn deliver<F>(
    plan: &UnpackPlan,
    mut waiting: Peekable<impl Iterator<Item = Range>>,
    to: mpsc::Sender<RangeContent>,
    mut seen: impl FnMut(&Range, u64) -> Result<(), StoreError>,
    fetch: impl Fn(Range) -> F,
) -> Result<(), StoreError>
where
    F: Future<Output = Result<(ReceivedRange, Range), StoreError>> + Send + 'static,
{
    let budget = Budget::new(plan.memory);
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    let mut window = Window::new(plan.parallel, threads);
    let mut running = FuturesOrdered::new();
    loop {
        let wanted =
            waiting.peek().filter(|_| running.len() < window.size()).map(|range| range.len);
        tokio::select! {
            biased;
            permit = lease(&budget, wanted), if wanted.is_some() => {
                if let Some(range) = waiting.next() {
                    let fetching = window.arrival(range.len).of(fetch(range));
                    // A separate task, so that the fetch continues while this one waits for room
                    // downstream.
                    running.push_back(tokio::spawn(async move {
                        let (fetched, arrived) = fetching.await;
                        let (received, range) = fetched?;
                        let (bytes, crc) = received.freeze(permit);
                        Ok::<_, StoreError>((range, bytes, crc, arrived))
                    }));
                }
            }
            Some(done) = running.next(), if !running.is_empty() => {
                let fetched = match done {
                    Ok(fetched) => fetched,
                    Err(_) => Err(StoreError::new(Operation::Get, "", StoreErrorKind::Rejected, "a download task panicked; this is a bug")),
                };
                let fetched = fetched.and_then(|(range, bytes, crc, arrived)| {
                    window.arrived(arrived);
                    seen(&range, crc)?;
                    Ok(bytes)
                });
                match fetched {
                    Ok(bytes) => {
                        if to.send(Some(bytes)).await.is_err() {
                            return Ok(());
                        }
                    }
                    Err(cause) => {
                        let _ = to.send(None).await;
                        return Err(cause);
                    }
                }
            }
            () = window.late(), if window.can_widen() && !running.is_empty() => {}
            else => return Ok(()),
        }
    }
}

/// The delivered ranges without a known checksum, as far back as a consumer can be late. Only the consumer can check their
/// content: when it finds damage, they are fetched again, because a response may have been altered in transit.
#[derive(Debug)]
pub(crate) struct Recent {
    ranges: VecDeque<(Range, u64)>,
    bytes: u64,
    /// Bytes that can be on their way to the consumer.
    most: u64,
}

impl Recent {
    fn new(most: u64) -> Self {
        Self { ranges: VecDeque::new(), bytes: 0, most }
    }

    /// Adds a range with its CRC-64/NVME.
    fn add(&mut self, range: &Range, crc: u64) {
        // A range with a known checksum was compared with it.
        if range.sum.is_some() {
            return;
        }
        self.bytes += range.len;
        self.ranges.push_back((range.clone(), crc));
        while self.bytes > self.most
            && self.ranges.len() > 1
            && let Some((old, _)) = self.ranges.pop_front()
        {
            self.bytes -= old.len;
        }
    }

    /// Fetches the ranges again; returns the error for the first one whose second answer differs
    /// from the first. If there is none, what the consumer found is in the store.
    pub(crate) async fn altered(&self, store: &Store) -> Option<StoreError> {
        for (range, crc) in self.ranges.iter().rev() {
            let end = range.start + range.len;
            let again = store.get_range(&range.key, range.start..end, range.of).await.ok()?;
            if sums::crc64(&again) != *crc {
                let what = format!(
                    "bytes {} to {end} were altered in transit: a second response differs from the first",
                    range.start
                );
                return Some(StoreError::new(
                    Operation::Get,
                    &range.key,
                    StoreErrorKind::Altered,
                    what,
                ));
            }
        }
        None
    }
}

/// Fetches a range and its checksum. An answer with another checksum than the known one is asked
/// for once more: it may have been altered in transit.
async fn fetch(
    store: &Store,
    range: &Range,
    buffers: &RangeBuffers,
) -> Result<ReceivedRange, StoreError> {
    let get = || {
        let wanted = range.start..range.start + range.len;
        let new = || buffers.take(range.len, range.blocks);
        store.get_range_into(&range.key, wanted, range.of, new)
    };
    let received = get().await?;
    if range.sum.is_none_or(|sum| sum == received.sum()) {
        return Ok(received);
    }
    drop(received);
    get().await
}

async fn lease(budget: &Budget, wanted: Option<u64>) -> Permit {
    match wanted {
        Some(bytes) => budget.lease_async(bytes).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Delivers 20 ranges with at most 8 requests at a time, and returns how many were requested and
    /// not delivered at the same time. The first one arrives when `first_waits_for` were requested.
    async fn most_in_flight(first_waits_for: usize) -> usize {
        let plan = UnpackPlan::new(1 << 30, 2, 8).unwrap();
        let requested = Arc::new(AtomicUsize::new(0));
        let buffers = RangeBuffers::new(4, plan.memory);
        let fetch = |range: Range| {
            let (requested, received) = (Arc::clone(&requested), buffers.take(0, false));
            requested.fetch_add(1, Ordering::SeqCst);
            async move {
                while range.start == 0 && requested.load(Ordering::SeqCst) < first_waits_for {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok((received, range))
            }
        };
        let (mut starts, mut most) = (Vec::new(), 0);
        let seen = |range: &Range, _| {
            most = most.max(requested.load(Ordering::SeqCst) - starts.len());
            starts.push(range.start);
            Ok(())
        };
        let (to, mut from) = mpsc::channel(1);
        let all = ranges(std::iter::once(("a".to_owned(), 0, 80)), 4).peekable();
        let take = async { while from.recv().await.is_some() {} };
        let both = async { tokio::join!(deliver(&plan, all, to, seen, fetch), take).0 };
        tokio::time::timeout(Duration::from_secs(9), both).await.unwrap().unwrap();
        assert_eq!(starts, (0..20).map(|n| n * 4).collect::<Vec<u64>>());
        most
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_store_gets_one_request_more_than_threads_receive() {
        assert_eq!(most_in_flight(1).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_are_in_flight_while_the_first_range_is_late() {
        assert_eq!(most_in_flight(8).await, 8);
    }

    #[test]
    fn objects_are_covered_without_gap_or_overlap() {
        let objects = [("a", 0, 10_u64), ("empty", 0, 0), ("done", 7, 7), ("b", 0, 6), ("c", 3, 8)]
            .map(|(key, from, size)| (key.to_owned(), from, size));
        let cut: Vec<_> =
            ranges(objects.into_iter(), 4).map(|r| (r.key, r.start, r.len, r.end)).collect();
        let expected = [
            ("a", 0, 4, false),
            ("a", 4, 4, false),
            ("a", 8, 2, true),
            ("b", 0, 4, false),
            ("b", 4, 2, true),
            ("c", 3, 4, false),
            ("c", 7, 1, true),
        ];
        assert_eq!(cut, expected.map(|(k, s, l, e)| (k.to_owned(), s, l, e)));
    }
}
