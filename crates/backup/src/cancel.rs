//! Cancellation of a run.

pub use xb_process::CancelToken;

use crate::error::BackupError;

/// Work that a signal interrupts.
pub trait OrInterrupted {
    /// Runs `work` to its end, or drops it at its current await point when the token is cancelled.
    ///
    /// # Errors
    /// Any error of `work`, or [`BackupError::Interrupted`].
    fn or<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, BackupError>>
    where
        BackupError: From<E>;
}

impl OrInterrupted for CancelToken {
    async fn or<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, BackupError>
    where
        BackupError: From<E>,
    {
        tokio::select! {
            done = work => Ok(done?),
            signal = self.cancelled() => Err(BackupError::Interrupted(signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_never_ends_is_broken_off() {
        let cancel = CancelToken::new();
        assert_eq!(cancel.or(std::future::ready(Ok::<_, BackupError>(7))).await.unwrap(), 7);
        cancel.cancel(15);
        let never = std::future::pending::<Result<(), BackupError>>();
        assert!(matches!(cancel.or(never).await, Err(BackupError::Interrupted(15))));
        assert_eq!(cancel.reason(), Some(15));
    }
}
