//! How a run is asked to stop.

use tokio::sync::watch;

use crate::error::BackupError;

/// The asking side; kept by whoever hears signals.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<Option<i32>>);

/// The hearing side. Clones hear the same.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<Option<i32>>);

/// A pair of the two.
#[must_use]
pub fn stopper() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(None);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Asks to stop because of `signal`.
    pub fn stop(&self, signal: i32) {
        self.0.send_replace(Some(signal));
    }
}

impl Stop {
    /// Waits until asked; gives the signal. Never returns when nobody can ask any more.
    pub async fn asked(&mut self) -> i32 {
        // What `wait_for` gives holds a lock, which must not live until the next await.
        let closed = self.0.wait_for(Option::is_some).await.is_err();
        match closed {
            false => self.signal().unwrap_or(0),
            true => std::future::pending().await,
        }
    }

    /// The signal, if it was asked already.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        *self.0.borrow()
    }

    /// Does `work`, unless asked to stop before it is done: then it is broken off where it stands.
    ///
    /// # Errors
    /// Those of `work`, or [`BackupError::Interrupted`].
    pub async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        tokio::select! {
            done = work => done,
            signal = self.asked() => Err(BackupError::Interrupted(signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_never_ends_is_broken_off() {
        let (stopper, mut stop) = stopper();
        assert_eq!(stop.or(async { Ok(7) }).await.unwrap(), 7);
        stopper.stop(15);
        let never = std::future::pending::<Result<(), BackupError>>();
        assert!(matches!(stop.or(never).await, Err(BackupError::Interrupted(15))));
        assert_eq!(stop.signal(), Some(15));
    }
}
