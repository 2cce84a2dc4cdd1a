//! The server itself as the source of a backup: its clone, received by a thread of this process.

use std::io::PipeReader;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use xb_clone::{Error, Settings, receive};
use xb_mysql::Access;

use crate::cancel::CancelToken;
use crate::error::BackupError;

/// Requested size of the pipe to the pipeline in bytes: the most that an unprivileged process may have.
const PIPE: usize = 1 << 20;
/// How long to wait for the end of another clone of the server.
const BUSY_LIMIT: Duration = Duration::from_secs(600);
/// Time between two tries to begin.
const PAUSE: Duration = Duration::from_secs(2);
/// Time between two messages about that.
const REMINDER: Duration = Duration::from_secs(60);

/// A server to clone.
#[derive(Debug, Clone)]
pub struct CloneRequest {
    /// Where it is, and who logs in.
    pub access: Access,
    /// Whether DDL runs while the clone is taken.
    pub allow_ddl: bool,
    /// Whether tables of other engines than InnoDB may come back empty.
    pub allow_empty_tables: bool,
    /// Bytes of its redo log that the server may have to keep until the clone has ended.
    pub max_donor_redo: u64,
    /// Whether the backup is sealed or encrypted: a clone has keys of tables in clear.
    pub is_sealed: bool,
    /// How long to wait for the end of another clone of the server.
    pub patience: Duration,
}

impl CloneRequest {
    /// A clone of this server that waits ten minutes for another one, loses nothing, and has no limit.
    #[must_use]
    pub fn new(access: Access, is_sealed: bool) -> Self {
        Self {
            access,
            allow_ddl: false,
            allow_empty_tables: false,
            max_donor_redo: u64::MAX,
            is_sealed,
            patience: BUSY_LIMIT,
        }
    }
}

/// A clone that arrives. Dropping it ends the clone.
#[derive(Debug)]
pub struct CloneSource {
    cancel: CancelToken<()>,
    /// Receives the outcome once; `None` after that.
    outcome: Option<oneshot::Receiver<Result<(), Error>>>,
}

impl CloneSource {
    /// Begins to receive a clone; the result has its stream. A clone that fails ends the stream early, and
    /// only [`ended`](Self::ended) says why. `tell` gets what the user should know.
    ///
    /// # Errors
    /// [`BackupError::System`] if there is no pipe or no thread.
    pub fn start(
        request: CloneRequest,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<(Self, PipeReader), BackupError> {
        let failed = |what| move |source| BackupError::System { what, source };
        let (output, mut input) = std::io::pipe().map_err(failed("cannot create a pipe"))?;
        // A small pipe works too.
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE);
        let mut settings = Settings::default();
        settings.is_sealed = request.is_sealed;
        settings.allow_ddl = request.allow_ddl;
        settings.allow_empty_tables = request.allow_empty_tables;
        settings.max_donor_redo = request.max_donor_redo;
        let cancel = settings.cancel.clone();
        let (done, outcome) = oneshot::channel();
        let work = move || {
            let received = once_free(&request, &settings, &tell, || {
                let Access { target, account } = &request.access;
                receive(target, account, &settings, &tell, &mut input).map(drop)
            });
            drop(input);
            // The receiver is gone once the run is over.
            let _ = done.send(received);
        };
        let thread = std::thread::Builder::new().name("clone".to_owned()).spawn(work);
        drop(thread.map_err(failed("cannot start a thread"))?);
        Ok((Self { cancel, outcome: Some(outcome) }, output))
    }

    /// Waits for the end of the clone. Can be cancelled.
    ///
    /// # Errors
    /// [`BackupError::Clone`] unless everything came.
    pub(crate) async fn ended(&mut self) -> Result<(), BackupError> {
        let Some(outcome) = &mut self.outcome else {
            return Err(BackupError::Bug("the end of the clone is asked for twice"));
        };
        let received = outcome.await;
        self.outcome = None;
        received.map_err(|_| BackupError::Bug("the thread that receives the clone panicked"))??;
        Ok(())
    }

    /// Ends the clone, wherever it is.
    pub(crate) fn end(&self) {
        self.cancel.cancel(());
    }
}

impl Drop for CloneSource {
    fn drop(&mut self) {
        self.end();
    }
}

/// Tries to receive until no other clone of the server runs. Nothing is written before that.
fn once_free<T>(
    request: &CloneRequest,
    settings: &Settings,
    tell: &impl Fn(&str),
    mut receive: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let (begin, mut told) = (Instant::now(), None);
    loop {
        match receive() {
            Err(Error::Busy) if begin.elapsed() < request.patience => {}
            outcome => return outcome,
        }
        if told.is_none_or(|told: Instant| told.elapsed() >= REMINDER) {
            let limit = request.patience.as_secs();
            tell(&format!(
                "another clone of this server is running, or has just failed: waiting for its end for up to {limit} s"
            ));
            told = Some(Instant::now());
        }
        if settings.cancel.wait(PAUSE).is_some() {
            return Err(Error::Stopped);
        }
    }
}
