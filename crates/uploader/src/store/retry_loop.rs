//! The only retry loop: every request runs in it.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use xb_process::CancelToken;

use crate::error::StoreError;
use crate::failed_try::{RetryContext, judge, notice};
use crate::operation::Operation;
use crate::policy::Policy;
use crate::request::answer::{ATTEMPT, AttemptNotes};
use crate::request::clock;
use crate::store::fence::Change;
use crate::store::{Store, faults};

impl Store {
    /// Runs one try of an operation.
    pub(crate) async fn attempted<T>(
        &self,
        operation: Operation,
        attempt: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        faults::attempted(self.faults.as_ref(), operation, attempt).await
    }

    /// Asks the fence, if there is one, whether a request may change the store.
    pub(crate) async fn check_fence(&self, change: Change) -> Result<(), StoreError> {
        match &self.fence {
            Some(fence) => fence.check(change).await,
            None => Ok(()),
        }
    }

    /// Returns the same store with a token to give up: once it is cancelled, nothing is retried, and
    /// pauses between tries end. Requests in flight are not interrupted.
    pub(crate) fn until(&self, give_up: CancelToken<()>) -> Self {
        Self { give_up, ..self.clone() }
    }

    /// Returns the same store for a cleanup after a failure: only a few quick tries.
    pub(crate) fn for_cleanup(&self) -> Self {
        let policy = Policy {
            max_retries: self.policy.max_retries.min(3),
            retry_timeout: Duration::ZERO,
            max_backoff: self.policy.max_backoff.min(Duration::from_secs(1)),
            ..self.policy.clone()
        };
        Self { policy, give_up: CancelToken::new(), ..self.clone() }
    }

    /// Waits before a repeated request, as long as before try `retry` (from 1) of a failed one.
    pub async fn pause(&self, retry: u32) {
        tokio::time::sleep(self.policy.pause(retry, None, jitter())).await;
    }

    /// Waits for another command, after reporting the reason as that of a retry. The pauses double with
    /// `looks` (from 1), from 1/4 s to 8 s plus up to a quarter of jitter, whatever the policy: nothing has
    /// failed, and each look costs requests.
    pub async fn pause_after(&self, why: &StoreError, looks: u32) {
        let doubled = Duration::from_millis(250 << looks.saturating_sub(1).min(5));
        let pause = doubled.mul_f64(1.0 + jitter() / 4.0);
        notice::retry(why, pause);
        tokio::time::sleep(pause).await;
    }

    /// Runs `attempt` until it succeeds, fails for good, or reaches the retry limits. All
    /// operations may be repeated: data keys belong to one run, and [`Store::create`] reads back.
    pub(crate) async fn retrying<T, F, Fut>(
        &self,
        operation: Operation,
        key: &str,
        attempt: F,
    ) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        self.trying(operation, key, AttemptNotes::default, attempt).await
    }

    /// Like [`Store::retrying`], for a request whose response has at most `most` bytes of an
    /// object.
    pub(crate) async fn reading<T, F, Fut>(
        &self,
        operation: Operation,
        key: &str,
        most: u64,
        attempt: F,
    ) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        self.trying(operation, key, || AttemptNotes::reading(most), attempt).await
    }

    async fn trying<T, F, Fut>(
        &self,
        operation: Operation,
        key: &str,
        answer: impl Fn() -> AttemptNotes,
        attempt: F,
    ) -> Result<T, StoreError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        let mut tries = 0;
        let mut failing_since = None;
        let (mut checked, mut asked_once_more) = (false, false);
        loop {
            self.refuse_other_folder(operation, key).await?;
            if let Some(change) = change(operation) {
                self.refuse_link(operation, key)?;
                self.check_fence(change).await?;
            }
            tries += 1;
            let (outcome, asked) = ATTEMPT
                .scope(answer(), async {
                    let outcome = self.attempted(operation, attempt()).await;
                    let about = self.context(operation);
                    ATTEMPT.with(|answer| {
                        let judged =
                            outcome.map_err(|error| judge(&error, answer, &self.policy, about));
                        (judged, answer.retry_after.get())
                    })
                })
                .await;
            let verdict = match outcome {
                Ok(value) => return Ok(value),
                Err(verdict) => verdict,
            };
            // A bucket with a default retention demands a checksum with each object.
            if !checked && demands_checksum(&verdict.message) {
                checked = true;
                self.traffic.send_checksums();
                self.traffic.count_retry();
                continue;
            }
            let failed = StoreError::new(operation, key, verdict.kind, verdict.message)
                .with_attempts(tries)
                .with_hint(verdict.hint);
            let since = failing_since.get_or_insert_with(Instant::now).elapsed();
            let left = self.policy.patience(tries, since, self.traffic.has_responded());
            let once_more = verdict.once_more && !asked_once_more;
            if !(verdict.again || once_more) || left.is_some_and(|left| left.is_zero()) {
                return Err(failed);
            }
            asked_once_more |= !verdict.again;
            let pause = self.policy.pause(tries, asked, jitter());
            // The last try starts when the time limit is reached, not after it.
            let pause = left.map_or(pause, |left| pause.min(left));
            notice::retry(&failed, pause);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.give_up.cancelled() => return Err(failed),
            }
            self.traffic.count_retry();
        }
    }

    fn context(&self, operation: Operation) -> RetryContext {
        let local = clock::seconds(SystemTime::now());
        let store_clock = self.traffic.store_clock();
        RetryContext {
            service: self.service(),
            refreshable: self.traits.refreshable,
            authenticated: self.traffic.authenticated(),
            has_responded: self.traffic.has_responded(),
            clock_ahead: store_clock.map(|store_clock| local.saturating_sub(store_clock.now())),
            operation,
        }
    }
}

/// Returns whether a store has refused a request because it has no checksum of its body.
fn demands_checksum(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("status 400")
        && (message.contains("content-md5") || message.contains("contentmd5"))
        && ["required", "missing"].iter().any(|word| message.contains(word))
}

/// Returns what a request of this operation changes; `None` if the fence is not asked. Names
/// every operation, so that a new one that removes something cannot pass as a read.
fn change(operation: Operation) -> Option<Change> {
    match operation {
        Operation::Get | Operation::Head | Operation::List | Operation::ListUploads => None,
        // Aborting one's own upload is always safe.
        Operation::Abort => None,
        Operation::Delete => Some(Change::Remove),
        Operation::Open
        | Operation::Put
        | Operation::Create
        | Operation::Copy
        | Operation::StartMultipart
        | Operation::PutPart
        | Operation::Complete
        | Operation::Lock
        | Operation::ObjectLock
        | Operation::LifecycleRule
        | Operation::Claim => Some(Change::Write),
    }
}

/// Returns a number from 0 to 1 that differs between processes, or 0.5 without randomness.
pub(crate) fn jitter() -> f64 {
    let mut bytes = [0; 2];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX),
        Err(_) => 0.5,
    }
}
