//! Changes of a small object that depend on its content.
//!
//! A request whose response was lost may have been carried out, and another program may have written
//! the object since. So these requests are never repeated blindly: the object is read before each
//! try, and once more after a try that the store acknowledged.
//!
//! What was read is also the condition of the request (`If-Match`), so nothing is replaced or removed that was
//! written in between. A directory has no such condition: there, a lock keeps other programs of this kind away from
//! writes. A store that ignores the condition gets a plain request, as does one that does not support it, or that
//! compares the tag with something else than what it shows.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use object_store::{ObjectMeta, PutMode, UpdateVersion};
use tokio::time::Instant;

use crate::error::{StoreError, StoreErrorKind};
use crate::failed_try::notice;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::request::bounds::SMALL_OBJECT;
use crate::store::Store;
use crate::store::retry_loop::jitter;

/// Maximum number of times that a store may refuse a condition that it fulfils.
const REFUSED: usize = 5;
/// The same for one tag that it still shows after each refusal. The waits before it is asked without a condition are
/// some seconds then, and not two minutes.
const REFUSED_TAG: usize = 2;
/// Maximum number of acknowledged requests that change nothing.
const IGNORED: u32 = 5;

/// Content of an object before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresentState<'a> {
    /// The object does not exist.
    Nothing,
    /// The object exists, and cannot be read: it is too large, archived, or of another key.
    Unreadable,
    /// The object has this content.
    Content(&'a [u8]),
}

/// Result of a change that depends on the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardedOutcome {
    /// The object is as requested.
    Done {
        /// Whether a request without a usable response may still take effect.
        late: bool,
    },
    /// The object has another content, and was not changed.
    Other,
}

/// A change of an object.
enum NewState {
    Gone,
    Content(Bytes),
}

impl NewState {
    fn is_met(&self, there: PresentState<'_>) -> bool {
        match (self, there) {
            (Self::Gone, PresentState::Nothing) => true,
            (Self::Content(wanted), PresentState::Content(found)) => wanted == found,
            _ => false,
        }
    }
}

/// The condition that an object is as it was read. Without conditions, a store ignores it.
fn unchanged(read: &Result<(Bytes, ObjectMeta), StoreError>) -> PutMode {
    match read {
        Ok((_, ObjectMeta { e_tag, version, .. })) if e_tag.is_some() => {
            PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: version.clone() })
        }
        Err(error) if error.kind == StoreErrorKind::NotFound => PutMode::Create,
        _ => PutMode::Overwrite,
    }
}

/// Whether a store may have refused a request for its condition alone.
fn is_refused(error: &StoreError) -> bool {
    use StoreErrorKind::{AlreadyExists, NotFound, Rejected};
    matches!(error.kind, AlreadyExists | NotFound | Rejected)
}

impl Store {
    /// Deletes an object of at most [`SMALL_OBJECT`](crate::SMALL_OBJECT) bytes while `expected`
    /// accepts its content, and checks that it is gone.
    ///
    /// # Errors
    /// Any error, after all retries: the object may be gone, now or later. It is not, and no request is on
    /// its way, after a final error of the first attempt.
    pub async fn delete_expected(
        &self,
        key: &str,
        expected: impl Fn(PresentState<'_>) -> bool,
    ) -> Result<GuardedOutcome, StoreError> {
        self.change_expected(Operation::Delete, key, &NewState::Gone, expected).await
    }

    /// Writes an object of at most [`SMALL_OBJECT`](crate::SMALL_OBJECT) bytes while `expected`
    /// accepts what is there, and reads it back.
    ///
    /// # Errors
    /// Any error, after all retries: the object may be written, now or later.
    pub async fn put_expected(
        &self,
        key: &str,
        content: Bytes,
        expected: impl Fn(PresentState<'_>) -> bool,
    ) -> Result<GuardedOutcome, StoreError> {
        self.change_expected(Operation::Put, key, &NewState::Content(content), expected).await
    }

    async fn change_expected(
        &self,
        operation: Operation,
        key: &str,
        goal: &NewState,
        expected: impl Fn(PresentState<'_>) -> bool,
    ) -> Result<GuardedOutcome, StoreError> {
        let once = self.once();
        let (mut sent, mut late, mut ignored, mut tries) = (None, false, 0, 0);
        let mut conditional = self.has_conditions() && !self.is_folder();
        let mut refused = Vec::new();
        let _alone = self.lock_beside(key, matches!(goal, NewState::Content(_))).await;
        let begun = Instant::now();
        loop {
            let read = self.get_described(key, SMALL_OBJECT).await;
            let there = match &read {
                Ok((content, _)) => PresentState::Content(content),
                Err(error) if error.kind == StoreErrorKind::NotFound => PresentState::Nothing,
                Err(error)
                    if matches!(
                        error.kind,
                        StoreErrorKind::Damaged | StoreErrorKind::Rejected | StoreErrorKind::Denied
                    ) =>
                {
                    PresentState::Unreadable
                }
                Err(_) => return read.map(|_| GuardedOutcome::Other),
            };
            if let Some(sent) = sent
                && goal.is_met(there)
            {
                if let (Ok((_, meta)), false) = (&read, late) {
                    self.traffic().wrote(meta.last_modified.timestamp(), sent);
                }
                return Ok(GuardedOutcome::Done { late });
            }
            // Even an unreadable object can be seen to be gone.
            let unreadable = there == PresentState::Unreadable && matches!(goal, NewState::Gone);
            if sent.is_some() && unreadable && self.size(key).await?.is_none() {
                return Ok(GuardedOutcome::Done { late });
            }
            if !expected(there) {
                return Ok(GuardedOutcome::Other);
            }
            sent = Some(std::time::Instant::now());
            let mode = match unchanged(&read) {
                PutMode::Update(_) if self.refuses_tags.load(Ordering::Relaxed) => {
                    PutMode::Overwrite
                }
                mode if conditional => mode,
                _ => PutMode::Overwrite,
            };
            let outcome = match goal {
                NewState::Gone => once.delete_unchanged(key, &mode).await,
                NewState::Content(content) => {
                    let options = || self.traits.put_options(mode.clone());
                    once.put_with(key, content.clone().into(), options).await.map(drop)
                }
            };
            let outcome = match outcome {
                Err(error) if mode != PutMode::Overwrite && is_refused(&error) => {
                    // Either it was changed since, or the store does not mean the condition.
                    if matches!(mode, PutMode::Update(_))
                        && refused.iter().filter(|before| **before == mode).count() == REFUSED_TAG
                    {
                        self.refuses_tags.store(true, Ordering::Relaxed);
                        continue;
                    }
                    conditional = error.kind != StoreErrorKind::Rejected && refused.len() < REFUSED;
                    refused.push(mode);
                    self.pause(u32::try_from(refused.len()).unwrap_or(u32::MAX)).await;
                    continue;
                }
                outcome => outcome,
            };
            let failed = match outcome {
                Ok(()) if ignored < IGNORED => {
                    ignored += 1;
                    continue;
                }
                Ok(()) if matches!(goal, NewState::Content(_)) => {
                    return Err(StoreError::not_kept(key));
                }
                Ok(()) => {
                    let what = "the store acknowledged the request and did not carry it out";
                    return Err(StoreError::new(operation, key, StoreErrorKind::Altered, what));
                }
                Err(error) if error.kind == StoreErrorKind::Unavailable => error,
                Err(error) => return Err(error.with_attempts(tries + 1)),
            };
            late = true;
            tries += 1;
            let left = self.policy.patience(tries, begun.elapsed(), self.traffic().has_responded());
            if left.is_some_and(|left| left.is_zero()) {
                return Err(failed.with_attempts(tries));
            }
            let pause = self.policy.pause(tries, None, jitter());
            notice::retry(&failed, pause);
            tokio::time::sleep(left.map_or(pause, |left| pause.min(left))).await;
            self.traffic().count_retry();
        }
    }

    /// Returns the same store without retries.
    fn once(&self) -> Self {
        let policy =
            Policy { max_retries: 0, retry_timeout: Duration::ZERO, ..self.policy.clone() };
        Self { policy, ..self.clone() }
    }
}
