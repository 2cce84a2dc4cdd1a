//! The server itself as the source of a backup: its clone, received by a thread of this process. From the first changed
//! page on, what arrives goes through a spool while the store is slow, so that the server need not keep its redo log for
//! longer.

use std::io::PipeReader;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use xb_clone::{Error, Notice, Settings, receive};
use xb_mysql::Access;
use xb_process::{LockGuard, SpoolReader, SpoolSettings, spooled};

use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::write::producer::spool_of;

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
    /// Receives why the server was let go, because it would have to keep too much of its redo log.
    let_go: Option<oneshot::Receiver<String>>,
}

impl CloneSource {
    /// Begins to receive a clone; the result has its stream. A clone that fails ends the stream early, and
    /// only [`ended`](Self::ended) says why. Changed pages and redo log go through the spool of `guard`; if that is full,
    /// the clone waits. `tell` gets what the user should know.
    ///
    /// # Errors
    /// [`BackupError::Spool`]; [`BackupError::System`] if there is no pipe or no thread.
    pub fn start(
        request: CloneRequest,
        guard: &LockGuard,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<(Self, SpoolReader<PipeReader>), BackupError> {
        let failed = |what| move |source| BackupError::System { what, source };
        let spool = spool_of(guard)?;
        let (output, mut input) = std::io::pipe().map_err(failed("cannot create a pipe"))?;
        xb_files::enlarge_pipe(&input);
        let how = SpoolSettings {
            file: spool.map(|file| (file, guard.spool_size)),
            patience: Duration::ZERO,
            stall: None,
        };
        let (output, switch) =
            spooled(output, how, |_| ()).map_err(failed("cannot start a thread"))?;
        let mut settings = Settings::default();
        settings.is_sealed = request.is_sealed;
        settings.allow_ddl = request.allow_ddl;
        settings.allow_empty_tables = request.allow_empty_tables;
        settings.max_donor_redo = request.max_donor_redo;
        let cancel = settings.cancel.clone();
        let (done, outcome) = oneshot::channel();
        let (say, let_go) = oneshot::channel();
        let say = Mutex::new(Some(say));
        let work = move || {
            let notify = |notice: Notice<'_>| match notice {
                Notice::Text(text) => tell(text),
                Notice::Changes => switch.spool(),
                Notice::LetGo(why) => {
                    let say = say.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // The receiver is gone once the run is over.
                    let _ = say.map(|say| say.send(why.to_owned()));
                }
                _ => {}
            };
            let received = once_free(&request, &settings, &tell, || {
                let Access { target, account } = &request.access;
                receive(target, account, &settings, &notify, &mut input).map(drop)
            });
            drop(input);
            // The receiver is gone once the run is over.
            let _ = done.send(received);
        };
        let thread = std::thread::Builder::new().name("clone".to_owned()).spawn(work);
        drop(thread.map_err(failed("cannot start a thread"))?);
        Ok((Self { cancel, outcome: Some(outcome), let_go: Some(let_go) }, output))
    }

    /// Waits until the server is let go; never returns if it is not. What was received may still wait for the store.
    pub(crate) async fn let_go(&mut self) -> BackupError {
        let why = match &mut self.let_go {
            Some(let_go) => let_go.await.ok(),
            None => None,
        };
        // The channel delivers only one message and must not be polled again.
        self.let_go = None;
        let Some(why) = why else { return std::future::pending().await };
        Error::Refused(why).into()
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use xb_clone::INFO;
    use xb_mysql::{Account, Target};
    use xb_testkit::daemon::Scratch;
    use xb_testkit::donor::{Donor, recorded};
    use xb_testkit::scripted::Rows;

    use super::*;

    struct Recorded {
        scratch: Scratch,
        _donor: Donor,
    }

    impl Recorded {
        fn start(script: impl Fn(&str) -> Option<Rows> + Send + Sync + 'static) -> Self {
            let scratch = Scratch::new();
            let _donor = Donor::start(&scratch.join("sock"), vec![recorded()], script);
            Self { scratch, _donor }
        }
    }

    fn has(bytes: &[u8], name: &str) -> bool {
        bytes.windows(name.len()).any(|part| part == name.as_bytes())
    }

    /// Begins a clone of `donor`, and reads it until its patches begin.
    async fn up_to_changes(
        donor: &Recorded,
        spool_size: u64,
        limit: u64,
    ) -> (CloneSource, SpoolReader<PipeReader>) {
        let target = Target::Socket(donor.scratch.join("sock"));
        let guard = LockGuard {
            spool_dir: Some(donor.scratch.path().to_owned()),
            spool_size,
            lock_stall: None,
        };
        let mut request = CloneRequest::new(Access { target, account: Account::default() }, false);
        request.max_donor_redo = limit;
        let (mut clone, mut stream) = CloneSource::start(request, &guard, |_| ()).unwrap();
        let (mut piece, mut searched) = (vec![0; 256 << 10], Vec::new());
        while !has(&searched, "XBCLPT01") {
            // The word may begin in the piece before.
            searched.drain(..searched.len().saturating_sub(8));
            let len = stream.read(&mut piece).unwrap();
            if len == 0 {
                panic!("the clone ended before its changes: {:?}", clone.ended().await);
            }
            searched.extend_from_slice(&piece[..len]);
        }
        (clone, stream)
    }

    /// Pages and redo log of the recorded clone are longer than the pipe.
    #[tokio::test]
    async fn a_store_that_takes_no_changes_does_not_hold_up_the_server() {
        let donor = Recorded::start(|_| None);
        let (mut clone, mut stream) = up_to_changes(&donor, 64 << 20, u64::MAX).await;
        // Nothing is read, and the donor has sent everything. Without an end, it would wait for ever.
        let ended = tokio::time::timeout(Duration::from_secs(60), clone.ended()).await;
        ended.expect("the server is held up").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > 3 << 20 && has(&rest, INFO), "{}", rest.len());
    }

    #[tokio::test]
    async fn a_store_that_takes_nothing_does_not_fill_the_disk_of_the_server() {
        let asked = AtomicUsize::new(0);
        let donor = Recorded::start(move |sql| {
            let position = (1000 * asked.fetch_add(1, Ordering::Relaxed)).to_string();
            let row = || vec!["Innodb_redo_log_current_lsn".to_owned(), position];
            sql.contains("redo_log_current_lsn").then(|| vec![row()])
        });
        let (mut clone, stream) = up_to_changes(&donor, 1 << 20, 500).await;
        let let_go = tokio::time::timeout(Duration::from_secs(60), clone.let_go()).await;
        let error = let_go.expect("the redo log grows for ever").to_string();
        assert!(error.contains("of its redo log"), "{error}");
        // Nothing was read meanwhile.
        drop(stream);
        let ended = clone.ended().await.unwrap_err().to_string();
        assert_eq!(ended, error);
    }
}
