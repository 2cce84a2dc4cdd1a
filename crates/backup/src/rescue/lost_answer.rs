//! Statements whose answer is lost: a connection breaks, a signal closes it, or the server restarts. The server is asked on
//! a new connection what it did.

use std::thread::sleep;
use std::time::{Duration, Instant};

use xb_mysql::{Client, Error, Row, Timeouts};

use super::rows::{READ_WRITE, SESSION, literal, sql};
use super::sink::{LOGIN, LiveServer, Sink, SinkError, is_lost};
use crate::cancel::CancelToken;

/// How often a statement is run again that others hold up, or whose answer is lost.
pub(super) const TRIES: usize = 9;
/// How long a server may be away, such as for a restart, and how often it is looked for.
const ABSENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Codes with which a server refuses a login that it takes later: 1040, 1203 and 1226 too many connections, 9001 a proxy
/// waits for a server.
const BUSY: [u16; 4] = [1040, 1203, 1226, 9001];
/// Seconds for the statement of a lost connection to end: by itself, and after that was asked for.
const END: [u32; 2] = [5, 60];

/// Returns whether a login that failed for this reason may succeed within a minute.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Server(refused) => BUSY.contains(&refused.code) || is_lost(error),
        _ => true,
    }
}

impl Sink {
    /// Runs a statement, and again while others hold it up, at most `tries` times. If its answer is lost, `is_done` tells
    /// whether it took effect, and it is run again if not.
    pub(super) fn surely(
        &mut self,
        tries: usize,
        cancel: &CancelToken,
        run: impl Fn(&mut Self) -> Result<(), SinkError>,
        is_done: impl Fn(&mut LiveServer) -> Result<bool, Error>,
    ) -> Result<(), SinkError> {
        let (mut held_up, mut losses) = (0, 0);
        loop {
            let Err(error) = run(self) else { return Ok(()) };
            let Self::Server(live) = self else { return Err(error) };
            match error {
                SinkError::Server(lost) if is_lost(&lost) => {
                    // A proxy may keep the connection, and have lost what was set in it.
                    match live.renew().and_then(|()| live.asked(&is_done)) {
                        Ok(true) => return Ok(()),
                        Ok(false) if losses + 1 < TRIES => losses += 1,
                        Ok(false) => return Err(SinkError::Server(lost)),
                        Err(why) => return Err(SinkError::Unknown { lost, why }),
                    }
                }
                // Without a lock, the server may have run the statement whose answer was lost after it was asked.
                _ if losses > 0 && live.asked(&is_done).is_ok_and(|is_done| is_done) => {
                    return Ok(());
                }
                // What a server refuses has not been done.
                error if error.is_held_up() && held_up + 1 < tries && cancel.reason().is_none() => {
                    held_up += 1;
                }
                error => return Err(error),
            }
        }
    }

    /// Asks the server, on a new connection if that is lost. A dump has nothing to say.
    pub(super) fn asked<T: Default>(
        &mut self,
        ask: impl Fn(&mut LiveServer) -> Result<T, Error>,
    ) -> Result<T, SinkError> {
        match self {
            Self::Dump(_) => Ok(T::default()),
            Self::Server(live) => Ok(live.asked(ask)?),
        }
    }
}

impl LiveServer {
    fn asked<T>(&mut self, ask: impl Fn(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let mut tries = 1;
        loop {
            match ask(self) {
                Err(error) if is_lost(&error) && tries < TRIES => {
                    tries += 1;
                    self.renew()?;
                }
                answer => return answer,
            }
        }
    }

    /// Logs in again. What the lost connection ran has ended when this returns.
    fn renew(&mut self) -> Result<(), Error> {
        if self.is_away {
            return Err(Error::Unusable);
        }
        // A statement may take hours.
        let timeouts = Timeouts { login: LOGIN, reply: None };
        let begun = Instant::now();
        self.client = loop {
            match Client::connect(&self.access.target, &self.access.account, timeouts) {
                Ok(client) => break client,
                Err(error) if !is_away(&error) || begun.elapsed() > ABSENCE => {
                    self.is_away = true;
                    return Err(error);
                }
                Err(_) => sleep(PAUSE),
            }
        };
        if !self.lock.is_empty() {
            self.end_lost_connection()?;
        }
        self.client.run(SESSION)?;
        self.client.run(READ_WRITE)?;
        match &self.schema {
            Some(schema) => self.client.run(format!("USE {}", sql(schema))),
            None => Ok(()),
        }
    }

    fn end_lost_connection(&mut self) -> Result<(), Error> {
        let [by_itself, by_force] = END;
        if self.take_lock(by_itself)? {
            return Ok(());
        }
        let holder = format!("SELECT CAST(IS_USED_LOCK({}) AS CHAR)", literal(&self.lock));
        let holder = self.client.rows(holder)?;
        if let Some(Ok([id])) = holder.first().map(Row::texts::<1>) {
            // It may have ended meanwhile.
            let _ = self.client.run(format!("KILL {id}"));
        }
        match self.take_lock(by_force)? {
            true => Ok(()),
            false => Err(Error::Timeout { doing: "ending a statement whose answer was lost" }),
        }
    }
}
