//! Writer of the stream of a backup that we begin ourselves.

use std::time::Duration;

use xb_repo::manifest::Producer as ProducerFacts;

use crate::error::BackupError;
use crate::write::clone_source::CloneSource;
use crate::write::producer::Producer;

/// How long an end of the stream waits for its cause.
const CAUSE: Duration = Duration::from_secs(1);

/// Writer of the stream of a backup. There is a backup only once it has ended well.
#[derive(Debug)]
pub enum Writer {
    /// A backup program.
    Program(Producer),
    /// The server, over a connection of ours.
    Clone(CloneSource),
}

impl Writer {
    /// Waits until it holds up its server for too long; never returns if it does not.
    pub(super) async fn stalled(&mut self) -> BackupError {
        match self {
            Self::Program(producer) => producer.stalled().await,
            // It blocks no commits, but may fill the server's disk.
            Self::Clone(clone) => clone.let_go().await,
        }
    }

    /// Waits for its end. Can be cancelled.
    ///
    /// # Errors
    /// Any end without success.
    pub(super) async fn ended(&mut self) -> Result<(), BackupError> {
        match self {
            Self::Program(producer) => producer.ended().await,
            Self::Clone(clone) => clone.ended().await,
        }
    }

    /// Returns its failure if it has failed by itself: then an incomplete stream is only the
    /// consequence.
    pub(super) async fn failure_behind_its_output(&mut self) -> Option<BackupError> {
        tokio::time::timeout(CAUSE, self.ended()).await.ok()?.err()
    }

    /// Ends it because of `error`.
    pub(super) fn end(&mut self, error: &BackupError) {
        match self {
            Self::Program(producer) => producer.end(match error {
                BackupError::Interrupted(signal) => *signal,
                _ => rustix::process::Signal::TERM.as_raw(),
            }),
            Self::Clone(clone) => clone.end(),
        }
    }

    /// The facts for the manifest about a program that has ended well.
    pub(super) fn facts(&self) -> Option<ProducerFacts> {
        match self {
            Self::Program(producer) => {
                Some(ProducerFacts { program: producer.program().to_owned(), exit: 0 })
            }
            Self::Clone(_) => None,
        }
    }
}

impl From<Producer> for Writer {
    fn from(producer: Producer) -> Self {
        Self::Program(producer)
    }
}

impl From<CloneSource> for Writer {
    fn from(clone: CloneSource) -> Self {
        Self::Clone(clone)
    }
}

/// Waits until the producer, if there is one, reports a lock stall.
pub(crate) async fn stalled(producer: Option<&mut Writer>) -> BackupError {
    match producer {
        Some(producer) => producer.stalled().await,
        None => std::future::pending().await,
    }
}
