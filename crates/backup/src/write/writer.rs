//! Writer of the stream of a backup that we begin ourselves.

use std::time::Duration;

use xb_pipeline::Scanned;
use xb_process::StreamedTables;
use xb_repo::manifest::Producer as ProducerFacts;

use crate::error::BackupError;
use crate::server::watch::ServerWatch;
use crate::write::clone_source::CloneSource;
use crate::write::producer::{Producer, SLOW_END};

/// How long a program may take to exit after the end of its output.
const EXIT: Duration = Duration::from_secs(3600);
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
    /// Waits until it holds up its server for too long, or has ended and its output has not; never returns if neither
    /// occurs.
    pub(super) async fn stalled(&mut self) -> BackupError {
        match self {
            Self::Program(producer) => producer.stalled(xb_uploader::warn).await,
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

    /// Waits for its end as [`Writer::ended`], for an hour, and says so if that takes long: nothing but its exit status is
    /// missing.
    ///
    /// # Errors
    /// As [`Writer::ended`]; [`BackupError::Producer`] if it does not end in time.
    pub(super) async fn exits(&mut self, tell: impl FnOnce(&str)) -> Result<(), BackupError> {
        if let Ok(ended) = tokio::time::timeout(SLOW_END, self.ended()).await {
            return ended;
        }
        if let Self::Program(producer) = self {
            let (program, pid) = (producer.program(), producer.pid());
            tell(&format!(
                "{program} (process {pid}) has closed its output, but does not exit; the backup waits for its exit status"
            ));
        }
        match (tokio::time::timeout(EXIT, self.ended()).await, self) {
            (Ok(ended), _) => ended,
            (Err(_), Self::Program(producer)) => Err(BackupError::Producer {
                program: producer.program().to_owned(),
                what: format!(
                    "closed its output, and has not exited within {} min",
                    EXIT.as_secs() / 60
                ),
            }),
            (Err(_), Self::Clone(clone)) => clone.ended().await,
        }
    }

    /// Checks that a program that has ended well did not leave out what was imported, by its messages, and by the server if
    /// that can be asked.
    ///
    /// # Errors
    /// [`BackupError::ImportedNotDropped`].
    pub(super) async fn refuse_imported(
        &self,
        stream: &Scanned,
        redo_start_lsn: Option<u64>,
        watch: Option<&ServerWatch>,
    ) -> Result<(), BackupError> {
        let Self::Program(producer) = self else { return Ok(()) };
        let dropped = producer.dropped();
        let stream = StreamedTables {
            has_definition: &|table| stream.defined.has(table),
            without_tablespace: &stream.without_tablespace.first,
        };
        let answer = match watch {
            Some(watch) => watch.imported(&dropped, stream, redo_start_lsn).await,
            None => None,
        };
        Ok(dropped.judge(producer.program(), answer.as_deref(), stream)?)
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use xb_process::LockGuard;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_that_closes_its_output_and_does_not_exit_is_named() {
        let argv = ["sh", "-c", "exec >&-; exec sleep 600"].map(OsString::from);
        let (program, _output) =
            Producer::start(&argv, None, &LockGuard::default(), |_| {}).unwrap();
        let pid = program.pid();
        let (mut writer, mut told) = (Writer::from(program), None);
        let waiting = writer.exits(|what| told = Some(what.to_owned()));
        let given_up = waiting.await.unwrap_err().to_string();
        assert!(given_up.contains("has not exited within 60 min"), "{given_up}");
        let told = told.unwrap();
        assert!(told.starts_with(&format!("sh (process {pid}) has closed")), "{told}");
    }
}
