//! Cancellation of a run.

use tokio::sync::watch;

use crate::error::BackupError;

/// Sender of the request to cancel, for example from a signal handler.
#[derive(Debug, Clone)]
pub struct Canceller(watch::Sender<Option<i32>>);

/// Receiver of the request to cancel. Clones receive the same request.
#[derive(Debug, Clone)]
pub struct CancelToken(watch::Receiver<Option<i32>>);

/// Creates a connected sender and receiver.
#[must_use]
pub fn cancellation() -> (Canceller, CancelToken) {
    let (sender, receiver) = watch::channel(None);
    (Canceller(sender), CancelToken(receiver))
}

impl Canceller {
    /// Requests cancellation because of `signal`.
    pub fn cancel(&self, signal: i32) {
        self.0.send_replace(Some(signal));
    }
}

impl CancelToken {
    /// Waits for a request to cancel and returns its signal. Never returns once all senders are
    /// dropped.
    pub async fn asked(&self) -> i32 {
        // The value that `wait_for` returns holds a lock, which must not live until the next await.
        let closed = self.0.clone().wait_for(Option::is_some).await.is_err();
        match closed {
            false => self.signal().unwrap_or(0),
            true => std::future::pending().await,
        }
    }

    /// Returns the signal if cancellation was already requested.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        *self.0.borrow()
    }

    /// Runs `work` to its end, or drops it at its current await point when cancellation is
    /// requested.
    ///
    /// # Errors
    /// Those of `work`, or [`BackupError::Interrupted`].
    pub async fn or<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, BackupError>
    where
        BackupError: From<E>,
    {
        tokio::select! {
            done = work => Ok(done?),
            signal = self.asked() => Err(BackupError::Interrupted(signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_never_ends_is_broken_off() {
        let (canceller, cancel) = cancellation();
        assert_eq!(cancel.or(std::future::ready(Ok::<_, BackupError>(7))).await.unwrap(), 7);
        canceller.cancel(15);
        let never = std::future::pending::<Result<(), BackupError>>();
        assert!(matches!(cancel.or(never).await, Err(BackupError::Interrupted(15))));
        assert_eq!(cancel.signal(), Some(15));
    }
}
