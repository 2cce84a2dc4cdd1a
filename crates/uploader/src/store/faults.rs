//! Failures on purpose: a test makes any operation of a store fail, before or after it takes effect.

use std::fmt::Debug;
use std::sync::Arc;

use crate::operation::Operation;
use crate::request::answer::ATTEMPT;

/// Way in which an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The store does nothing.
    Refused,
    /// The store acts, and its response is lost.
    AnswerLost,
}

/// Decides which operations of a store fail.
pub trait Faults: Debug + Send + Sync {
    /// Returns how the next operation of this kind fails, if it does.
    /// Each try is an operation.
    fn next(&self, operation: Operation) -> Option<Fault>;
}

#[derive(Debug, thiserror::Error)]
#[error("made to fail")]
struct MadeToFail;

fn failure() -> object_store::Error {
    // The retry loop treats it as the response of a failing server.
    let _ = ATTEMPT.try_with(|answer| {
        answer.asked.set(true);
        answer.status.set(Some(503));
    });
    object_store::Error::Generic { store: "fault", source: Box::new(MadeToFail) }
}

/// Runs one try of an operation, unless it is made to fail.
pub(crate) async fn attempted<T>(
    faults: Option<&Arc<dyn Faults>>,
    operation: Operation,
    attempt: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    match faults.and_then(|faults| faults.next(operation)) {
        None => attempt.await,
        Some(Fault::Refused) => Err(failure()),
        Some(Fault::AnswerLost) => attempt.await.and_then(|_| Err(failure())),
    }
}
