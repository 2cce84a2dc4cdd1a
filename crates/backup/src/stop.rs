//! How a run is asked to stop.

use tokio::sync::watch;

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
        match self.0.wait_for(Option::is_some).await {
            Ok(signal) => signal.unwrap_or(0),
            Err(_nobody_left) => std::future::pending().await,
        }
    }
}
