//! Watchdog of a request: it checks that bytes move, not how long the whole request takes.
//!
//! Bodies are sent in slices. Each slice that the connection accepts is progress, and so is each
//! piece of the response body. A connection that accepts nothing for a while is dead; one that
//! accepts little is slow.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpRequestBody, HttpResponseBody};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::policy::Policy;
use crate::request::answer::ATTEMPT;
use crate::request::bounds::{BodyBounds, BoundExceeded, SLOWEST};
use crate::request::rate::{RateLimit, SLICE};

/// Reason why the watchdog ended a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stalled {
    #[error("stalled: the store accepted no data for {} s", .0.as_secs())]
    Sending(Duration),
    #[error("stalled: no response for {} s", .0.as_secs())]
    Answer(Duration),
    #[error("stalled: the response stopped for {} s", .0.as_secs())]
    Receiving(Duration),
    #[error("stalled: the response arrived at less than {SLOWEST} bytes per second")]
    Dripping,
    #[error("stalled: the response was not complete after {} s", .0.as_secs())]
    Unfinished(Duration),
}

/// Time limit without progress; `None` means no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    stall: Option<Duration>,
    answer: Option<Duration>,
    /// Limit for both until the store has responded for the first time.
    reach: Option<Duration>,
}

impl Limits {
    pub(crate) fn of(policy: &Policy) -> Self {
        let limit = |duration: Duration| (!duration.is_zero()).then_some(duration);
        Self {
            stall: limit(policy.stall),
            answer: limit(policy.answer()),
            reach: limit(policy.reach),
        }
    }

    /// The limits that hold once the store has responded, or before.
    pub(crate) fn once(self, has_responded: bool) -> Self {
        match self.reach.filter(|_| !has_responded && self.stall.is_some()) {
            Some(reach) => Self {
                stall: self.stall.map(|limit| limit.min(reach)),
                answer: self.answer.map(|limit| limit.min(reach)),
                ..self
            },
            None => self,
        }
    }
}

/// Time of the last progress of a request.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<(Instant, bool)>);

impl Progress {
    /// Starts to watch a request; `sent` is set if it has no body.
    pub(crate) fn start(sent: bool) -> Self {
        Self(Mutex::new((Instant::now(), sent)))
    }

    /// Records progress at `at`, which may be in the future if the rate limit delays it.
    fn moved(&self, at: Instant, sent: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (at, sent);
    }

    /// Returns once nothing has moved for as long as `limits` allows.
    pub(crate) async fn stalled(&self, limits: Limits, has_body: bool) -> Stalled {
        loop {
            let (last, sent) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let limit = if sent && has_body { limits.answer } else { limits.stall };
            let Some(limit) = limit else { return std::future::pending().await };
            sleep_until(last + limit).await;
            if *self.0.lock().unwrap_or_else(PoisonError::into_inner) == (last, sent) {
                return if sent { Stalled::Answer(limit) } else { Stalled::Sending(limit) };
            }
        }
    }
}

/// Request body that is sent in slices, each visible to the watchdog.
pub(crate) struct ThrottledBody {
    inner: HttpRequestBody,
    /// Rest of the current piece of `inner`.
    piece: Bytes,
    left: u64,
    progress: Arc<Progress>,
    rate: Option<Arc<RateLimit>>,
    sent: Arc<AtomicU64>,
    /// Wait until the rate limit permits the next slice.
    held: Option<Pin<Box<Sleep>>>,
}

impl ThrottledBody {
    /// Creates a body that adds the bytes it has passed on to `sent`.
    pub(crate) fn new(
        inner: HttpRequestBody,
        progress: Arc<Progress>,
        rate: Option<Arc<RateLimit>>,
        sent: Arc<AtomicU64>,
    ) -> Self {
        let left = inner.content_length() as u64;
        Self { inner, piece: Bytes::new(), left, progress, rate, sent, held: None }
    }
}

impl Body for ThrottledBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        while this.piece.is_empty() {
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => this.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let slice = this.rate.as_ref().map_or(SLICE, |rate| rate.slice()).min(this.piece.len());
        if let Some(rate) = &this.rate {
            let held = this.held.get_or_insert_with(|| {
                let at = rate.reserve(slice);
                this.progress.moved(at, false);
                Box::pin(sleep_until(at))
            });
            ready!(held.as_mut().poll(cx));
            this.held = None;
        }
        this.left -= slice as u64;
        this.sent.fetch_add(slice as u64, Ordering::Relaxed);
        this.progress.moved(Instant::now(), this.left == 0);
        Poll::Ready(Some(Ok(Frame::data(this.piece.split_to(slice)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Response body that ends in an error if it is too long, or if its pieces arrive too slowly.
///
/// Waiting for the store uses up a credit of one stall limit; each byte that arrives pays some of it
/// back. So a stop of one stall limit is an error at once, and a drip after a while.
#[derive(Debug)]
pub(crate) struct WatchedBody {
    inner: HttpResponseBody,
    limit: Option<Duration>,
    bounds: BodyBounds,
    /// Bytes that may still come.
    left: u64,
    /// Unused part of the credit.
    credit: Duration,
    /// Start and end of the present wait. It runs only while we wait for the store, not while the
    /// reader of the body is slow.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    /// End of the whole body.
    end: Option<Pin<Box<Sleep>>>,
    rate: Option<Arc<RateLimit>>,
    held: Option<Pin<Box<Sleep>>>,
}

impl WatchedBody {
    pub(crate) fn new(
        inner: HttpResponseBody,
        limits: Limits,
        bounds: BodyBounds,
        rate: Option<Arc<RateLimit>>,
    ) -> Self {
        let limit = limits.stall;
        // Without a stall limit, the operator wants to wait forever.
        let end = bounds.time.filter(|_| limit.is_some());
        Self {
            inner,
            limit,
            bounds,
            left: bounds.most,
            credit: limit.unwrap_or_default(),
            waiting: None,
            end: end.map(|time| Box::pin(sleep_until(Instant::now() + time))),
            rate,
            held: None,
        }
    }

    /// Takes a frame that has arrived, as far as it is within the bounds.
    fn arrived(&mut self, mut frame: Frame<Bytes>) -> Option<Result<Frame<Bytes>, HttpError>> {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let _ = ATTEMPT.try_with(|answer| answer.received.set(answer.received.get() + bytes));
        let used = self.waiting.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        let earned = Duration::from_nanos(bytes.saturating_mul(1_000_000_000 / SLOWEST));
        let credit = self.credit.saturating_sub(used).saturating_add(earned);
        self.credit = credit.min(self.limit.unwrap_or_default());
        if bytes > self.left {
            if !self.bounds.cut {
                let excess = BoundExceeded::Bytes(self.bounds.most);
                return Some(Err(HttpError::new(HttpErrorKind::Decode, excess)));
            }
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            frame = frame.map_data(|data| data.slice(..left.min(data.len())));
        }
        self.left = self.left.saturating_sub(bytes);
        if let Some(rate) = &self.rate {
            // This piece has arrived; the next one waits until the time of this one is used up.
            rate.reserve(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.held = Some(Box::pin(sleep_until(rate.reserve(0))));
        }
        Some(Ok(frame))
    }

    /// The reason why this wait was the last one.
    fn stalled(&self, since: Instant) -> Stalled {
        match self.limit {
            Some(limit) if since.elapsed() >= limit => Stalled::Receiving(limit),
            _ => Stalled::Dripping,
        }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Some(held) = &mut this.held {
            ready!(held.as_mut().poll(cx));
            this.held = None;
        }
        if this.bounds.cut && this.left == 0 {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            return Poll::Ready(match frame {
                Some(Ok(frame)) => this.arrived(frame),
                ended => ended,
            });
        }
        if let (Some(end), Some(time)) = (&mut this.end, this.bounds.time)
            && end.as_mut().poll(cx).is_ready()
        {
            return stalled(Stalled::Unfinished(time));
        }
        if this.limit.is_none() {
            return Poll::Pending;
        }
        let credit = this.credit;
        let (since, waiting) = this.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + credit)))
        });
        ready!(waiting.as_mut().poll(cx));
        let since = *since;
        stalled(this.stalled(since))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    /// The size that the store states, as far as it is allowed: readers reserve memory for it.
    fn size_hint(&self) -> SizeHint {
        let stated = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(stated.lower().min(self.left));
        if let Some(upper) = stated.upper() {
            hint.set_upper(upper.min(self.left));
        }
        hint
    }
}

fn stalled(why: Stalled) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
    Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, why))))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use object_store::PutPayload;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(seconds: u32) -> Limits {
        let policy = Policy { stall: SECOND * seconds, ..Policy::default() };
        Limits::of(&policy)
    }

    /// Reads a body with a pause of `pause` after each slice, as a slow connection does. Returns
    /// the number of bytes and the time.
    async fn drain(
        mut body: impl Body<Data = Bytes, Error = HttpError> + Unpin,
        pause: Duration,
    ) -> (usize, Duration) {
        let start = Instant::now();
        let mut bytes = 0;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
        {
            let slice = frame.unwrap().into_data().unwrap();
            assert!(slice.len() <= SLICE);
            bytes += slice.len();
            tokio::time::sleep(pause).await;
        }
        (bytes, start.elapsed())
    }

    fn payload(pieces: &[usize]) -> HttpRequestBody {
        pieces.iter().map(|n| Bytes::from(vec![7; *n])).collect::<PutPayload>().into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_upload_is_no_stall_and_a_dead_one_is() {
        let progress = Arc::new(Progress::start(false));
        let body = ThrottledBody::new(
            payload(&[8 << 20, 0, 5]),
            Arc::clone(&progress),
            None,
            Arc::default(),
        );
        assert_eq!(body.size_hint().exact(), Some((8 << 20) + 5));
        // 129 slices at 2 s: many times the limit of 3 s in total, but never more than it for one
        // slice.
        let (bytes, took) = tokio::select! {
            drained = drain(body, 2 * SECOND) => drained,
            stalled = progress.stalled(limits(3), true) => panic!("{stalled}"),
        };
        assert_eq!((bytes, took), ((8 << 20) + 5, 258 * SECOND));
        // All is sent, but no response arrives: the limit is twice as long.
        let start = Instant::now();
        let stalled = progress.stalled(limits(3), true).await;
        assert_eq!(stalled, Stalled::Answer(6 * SECOND));
        assert!(start.elapsed() <= 6 * SECOND);

        let progress = Arc::new(Progress::start(false));
        let body =
            ThrottledBody::new(payload(&[1 << 20]), Arc::clone(&progress), None, Arc::default());
        tokio::select! {
            _ = drain(body, 4 * SECOND) => panic!("a stall of 4 s went unnoticed"),
            stalled = progress.stalled(limits(3), true) => assert_eq!(stalled, Stalled::Sending(3 * SECOND)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_rate_is_no_stall() {
        let rate = Arc::new(RateLimit::new(NonZeroU64::new(100).unwrap()));
        let progress = Arc::new(Progress::start(false));
        let body = ThrottledBody::new(
            payload(&[10_240]),
            Arc::clone(&progress),
            Some(rate),
            Arc::default(),
        );
        let (bytes, took) = tokio::select! {
            drained = drain(body, Duration::ZERO) => drained,
            stalled = progress.stalled(limits(1), true) => panic!("{stalled}"),
        };
        // The last of ten slices is sent when the nine before it have used up their time.
        assert_eq!(bytes, 10_240);
        assert!(took >= 92 * SECOND && took < 93 * SECOND, "{took:?}");
    }

    /// Body that returns pieces of `size` bytes, 2 s apart, and then nothing more.
    struct Dripping {
        pieces: u32,
        size: usize,
        due: Option<Pin<Box<Sleep>>>,
    }

    impl Body for Dripping {
        type Data = Bytes;
        type Error = HttpError;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            if self.pieces == 0 {
                return Poll::Pending;
            }
            let due =
                self.due.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + 2 * SECOND)));
            ready!(due.as_mut().poll(cx));
            self.due = None;
            self.pieces -= 1;
            Poll::Ready(Some(Ok(Frame::data(vec![1; self.size].into()))))
        }
    }

    fn dripping(pieces: u32, size: usize, bounds: BodyBounds) -> WatchedBody {
        let body = HttpResponseBody::new(Dripping { pieces, size, due: None });
        WatchedBody::new(body, limits(3), bounds, None)
    }

    async fn next(body: &mut WatchedBody) -> Option<Result<Frame<Bytes>, HttpError>> {
        std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    /// Reads to the end or to an error.
    async fn read(mut body: WatchedBody) -> (usize, Option<String>) {
        let mut bytes = 0;
        while let Some(frame) = next(&mut body).await {
            match frame {
                Ok(frame) => bytes += frame.data_ref().unwrap().len(),
                Err(error) => return (bytes, Some(error.to_string())),
            }
        }
        (bytes, None)
    }

    const ANY: BodyBounds = BodyBounds::content(u64::MAX);

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_be_slow_but_not_stop() {
        let mut body = dripping(500, 3 << 10, ANY);
        for _ in 0..500 {
            assert!(next(&mut body).await.unwrap().is_ok());
            // A slow reader is not the store's fault.
            tokio::time::sleep(10 * SECOND).await;
        }
        let start = Instant::now();
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert_eq!(start.elapsed(), 3 * SECOND);
        assert!(error.to_string().contains("the response stopped for 3 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_drips_is_a_stall() {
        let start = Instant::now();
        let (bytes, error) = read(dripping(u32::MAX, 1, ANY)).await;
        assert!(error.unwrap().contains("at less than 1024 bytes per second"));
        assert!(bytes < 10 && start.elapsed() < 10 * SECOND, "{bytes}");
        // Fast enough, but without an end.
        let (_, error) = read(dripping(u32::MAX, 3 << 10, BodyBounds::SHORT)).await;
        assert!(error.unwrap().contains("not complete after 600 s"));
        assert!(start.elapsed() < 620 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_not_be_longer_than_a_right_one() {
        let long = |size: usize, bounds| {
            let inner = HttpResponseBody::from(Bytes::from(vec![1; size]));
            WatchedBody::new(inner, limits(3), bounds, None)
        };
        assert_eq!(read(long(10, BodyBounds::content(10))).await, (10, None));
        let (bytes, error) = read(long(11, BodyBounds::content(10))).await;
        assert_eq!(
            (bytes, error.as_deref()),
            (0, Some("HTTP error: the response has more than 10 bytes"))
        );
        let stated = long(1 << 20, BodyBounds::content(10)).size_hint();
        assert_eq!((stated.lower(), stated.upper()), (10, Some(10)));
        assert_eq!(read(long(1 << 20, BodyBounds::ERROR)).await, (64 << 10, None));
        assert_eq!(read(dripping(u32::MAX, 9 << 10, BodyBounds::ERROR)).await, (64 << 10, None));
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_keep_to_the_rate() {
        let rate = Arc::new(RateLimit::new(NonZeroU64::new(1000).unwrap()));
        let inner = HttpResponseBody::from(Bytes::from(vec![1; 5000]));
        let mut body = WatchedBody::new(inner, limits(3), ANY, Some(rate));
        let start = Instant::now();
        assert!(next(&mut body).await.unwrap().is_ok());
        assert!(next(&mut body).await.is_none());
        assert_eq!(start.elapsed(), 5 * SECOND);
    }
}
