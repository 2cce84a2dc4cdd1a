//! A connection to a server for async code: a request to cancel ends whatever it waits for.

use std::time::Duration;

use xb_mysql::{Access, Client, ConnectionCloser, Error, Row, Timeouts};

use crate::cancel::CancelToken;
use crate::error::BackupError;

/// A server's answer to an empty statement, such as a comment after the last semicolon.
const EMPTY_QUERY: u16 = 1065;

/// A connection that is logged in.
pub(crate) struct Session {
    /// Absent while a statement runs, and after one that was cancelled.
    client: Option<Client>,
    hang_up: ConnectionCloser,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The connection, the login or the statement failed.
    #[error(transparent)]
    Server(#[from] Error),
    /// Not the server's fault, such as a request to cancel.
    #[error(transparent)]
    Own(#[from] BackupError),
}

impl Session {
    /// Connects and logs in; each step of it may take as long as `patience`.
    pub(crate) async fn open(
        access: &Access,
        patience: Duration,
        cancel: &CancelToken,
    ) -> Result<Self, SessionError> {
        let access = access.clone();
        let timeouts = Timeouts { login: patience, reply: None };
        let connect = move || {
            let client = Client::connect(&access.target, &access.account, timeouts)?;
            Ok(Self::of(client)?)
        };
        // Its time limit ends a connect that is left behind.
        tokio::select! {
            done = tokio::task::spawn_blocking(connect) => done.map_err(|_| panicked())?,
            signal = cancel.cancelled() => Err(BackupError::Interrupted(signal).into()),
        }
    }

    /// Takes over a connection.
    pub(crate) fn of(client: Client) -> Result<Self, Error> {
        Ok(Self { hang_up: client.hang_up()?, client: Some(client) })
    }

    /// Runs statements, and returns the rows of all their results together.
    pub(crate) async fn rows(
        &mut self,
        sql: &str,
        cancel: &CancelToken,
    ) -> Result<Vec<Row>, SessionError> {
        let sql = sql.to_owned();
        self.with(cancel, move |client| client.rows(sql)).await
    }

    /// Like [`rows`](Self::rows), for lists of everything that a server has, such as its tables.
    pub(crate) async fn list(
        &mut self,
        sql: &str,
        cancel: &CancelToken,
    ) -> Result<Vec<Row>, SessionError> {
        let sql = sql.to_owned();
        self.with(cancel, move |client| client.list(sql)).await
    }

    /// Runs statements and drops their rows, however many they are.
    pub(crate) async fn run(
        &mut self,
        sql: &str,
        cancel: &CancelToken,
    ) -> Result<(), SessionError> {
        self.first_rows(sql, 0, cancel).await.map(drop)
    }

    /// Runs statements, and returns the first `limit` rows of their results.
    pub(crate) async fn first_rows(
        &mut self,
        sql: &str,
        limit: usize,
        cancel: &CancelToken,
    ) -> Result<Vec<Row>, SessionError> {
        let sql = sql.to_owned();
        match self.with(cancel, move |client| client.first_rows(sql, limit)).await {
            Err(SessionError::Server(Error::Server(said))) if said.code == EMPTY_QUERY => {
                Ok(Vec::new())
            }
            outcome => outcome,
        }
    }

    /// Like [`run`](Self::run), but hangs up after `limit`; returns whether the statement has ended.
    pub(crate) async fn run_within(
        &mut self,
        sql: &str,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Result<bool, SessionError> {
        let hang_up = self.client.as_ref().ok_or(Error::Unusable)?.hang_up()?;
        Ok(within(self.run(sql, cancel), limit, &hang_up).await?.is_some())
    }

    /// Like [`list`](Self::list), but hangs up after `limit`; `None` then.
    pub(crate) async fn list_within(
        &mut self,
        sql: &str,
        limit: Duration,
        cancel: &CancelToken,
    ) -> Result<Option<Vec<Row>>, SessionError> {
        let hang_up = self.client.as_ref().ok_or(Error::Unusable)?.hang_up()?;
        within(self.list(sql, cancel), limit, &hang_up).await
    }

    /// Does any work with the connection, such as reading rows one by one.
    pub(crate) async fn with<T: Send + 'static>(
        &mut self,
        cancel: &CancelToken,
        work: impl FnOnce(&mut Client) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, SessionError> {
        let mut client = self.client.take().ok_or(Error::Unusable)?;
        let mut task = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut client);
            (client, outcome)
        });
        tokio::select! {
            done = &mut task => {
                let (client, outcome) = done.map_err(|_| panicked())?;
                self.client = Some(client);
                Ok(outcome?)
            }
            signal = cancel.cancelled() => {
                self.hang_up.now();
                let _ = task.await;
                Err(BackupError::Interrupted(signal).into())
            }
        }
    }
}

/// Waits for an answer, and hangs up after `limit`; `None` then.
async fn within<T>(
    running: impl Future<Output = Result<T, SessionError>>,
    limit: Duration,
    hang_up: &ConnectionCloser,
) -> Result<Option<T>, SessionError> {
    let mut running = std::pin::pin!(running);
    tokio::select! {
        outcome = &mut running => return outcome.map(Some),
        () = tokio::time::sleep(limit) => hang_up.now(),
    }
    // The connection is gone, so the end of the statement can no longer be known.
    match running.await {
        Err(SessionError::Own(error)) => Err(error.into()),
        _ => Ok(None),
    }
}

fn panicked() -> BackupError {
    BackupError::Bug("the thread that asks the server panicked")
}
