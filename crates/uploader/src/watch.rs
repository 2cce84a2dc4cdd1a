//! Watchdog of a request: it checks that bytes move, not how long the whole request takes.
//!
//! Bodies are sent in slices. Each slice that the connection accepts is progress, and so is each
//! piece of the response body. A connection that accepts nothing for a while is dead; one that
//! accepts little is slow.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpRequestBody, HttpResponseBody};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::policy::Policy;
use crate::rate::{RateLimit, SLICE};

/// Reason why the watchdog ended a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stalled {
    #[error("stalled: the store accepted no data for {} s", .0.as_secs())]
    Sending(Duration),
    #[error("stalled: no answer for {} s", .0.as_secs())]
    Answer(Duration),
    #[error("stalled: the answer stopped for {} s", .0.as_secs())]
    Receiving(Duration),
}

/// Time limit without progress; `None` means no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    stall: Option<Duration>,
    answer: Option<Duration>,
}

impl Limits {
    pub(crate) fn of(policy: &Policy) -> Self {
        let limit = |duration: Duration| (!duration.is_zero()).then_some(duration);
        Self { stall: limit(policy.stall), answer: limit(policy.answer()) }
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
    /// Wait until the rate limit permits the next slice.
    held: Option<Pin<Box<Sleep>>>,
}

impl ThrottledBody {
    pub(crate) fn new(
        inner: HttpRequestBody,
        progress: Arc<Progress>,
        rate: Option<Arc<RateLimit>>,
    ) -> Self {
        let left = inner.content_length() as u64;
        Self { inner, piece: Bytes::new(), left, progress, rate, held: None }
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

/// Response body that ends in an error if no piece of it arrives for too long.
#[derive(Debug)]
pub(crate) struct WatchedBody {
    inner: HttpResponseBody,
    limit: Option<Duration>,
    /// Runs only while we wait for the store, not while the reader of the body is slow.
    waiting: Option<Pin<Box<Sleep>>>,
    rate: Option<Arc<RateLimit>>,
    held: Option<Pin<Box<Sleep>>>,
}

impl WatchedBody {
    pub(crate) fn new(
        inner: HttpResponseBody,
        limits: Limits,
        rate: Option<Arc<RateLimit>>,
    ) -> Self {
        Self { inner, limit: limits.stall, waiting: None, rate, held: None }
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
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.waiting = None;
            if let (Some(Ok(frame)), Some(rate)) = (&frame, &this.rate) {
                // This piece has arrived; the next one waits until the time of this one is used up.
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                rate.reserve(bytes);
                this.held = Some(Box::pin(sleep_until(rate.reserve(0))));
            }
            return Poll::Ready(frame);
        }
        let Some(limit) = this.limit else { return Poll::Pending };
        let waiting =
            this.waiting.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(waiting.as_mut().poll(cx));
        let stalled = HttpError::new(HttpErrorKind::Timeout, Stalled::Receiving(limit));
        Poll::Ready(Some(Err(stalled)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
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
        let body = ThrottledBody::new(payload(&[8 << 20, 0, 5]), Arc::clone(&progress), None);
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
        let body = ThrottledBody::new(payload(&[1 << 20]), Arc::clone(&progress), None);
        tokio::select! {
            _ = drain(body, 4 * SECOND) => panic!("a stall of 4 s went unnoticed"),
            stalled = progress.stalled(limits(3), true) => assert_eq!(stalled, Stalled::Sending(3 * SECOND)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_rate_is_no_stall() {
        let rate = Arc::new(RateLimit::new(NonZeroU64::new(100).unwrap()));
        let progress = Arc::new(Progress::start(false));
        let body = ThrottledBody::new(payload(&[10_240]), Arc::clone(&progress), Some(rate));
        let (bytes, took) = tokio::select! {
            drained = drain(body, Duration::ZERO) => drained,
            stalled = progress.stalled(limits(1), true) => panic!("{stalled}"),
        };
        // The last of ten slices is sent when the nine before it have used up their time.
        assert_eq!(bytes, 10_240);
        assert!(took >= 92 * SECOND && took < 93 * SECOND, "{took:?}");
    }

    /// Body that returns a piece at intervals, and then nothing more.
    struct Dripping(u32, Option<Pin<Box<Sleep>>>);

    impl Body for Dripping {
        type Data = Bytes;
        type Error = HttpError;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            if self.0 == 0 {
                return Poll::Pending;
            }
            let due =
                self.1.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + 2 * SECOND)));
            ready!(due.as_mut().poll(cx));
            self.1 = None;
            self.0 -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"drop")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_drip_but_not_stop() {
        let mut body = WatchedBody::new(HttpResponseBody::new(Dripping(5, None)), limits(3), None);
        let mut next = async || std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        for _ in 0..5 {
            assert!(next().await.unwrap().is_ok());
            // A slow reader is not the store's fault.
            tokio::time::sleep(10 * SECOND).await;
        }
        let start = Instant::now();
        let error = next().await.unwrap().unwrap_err();
        assert_eq!(start.elapsed(), 3 * SECOND);
        assert!(error.to_string().contains("the answer stopped for 3 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_keep_to_the_rate() {
        let rate = Arc::new(RateLimit::new(NonZeroU64::new(1000).unwrap()));
        let inner = HttpResponseBody::from(Bytes::from(vec![1; 5000]));
        let mut body = WatchedBody::new(inner, limits(3), Some(rate));
        let mut next = async || std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let start = Instant::now();
        assert!(next().await.unwrap().is_ok());
        assert!(next().await.is_none());
        assert_eq!(start.elapsed(), 5 * SECOND);
    }
}
