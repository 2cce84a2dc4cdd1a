//! The donor of a clone, and the connections to it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use xb_mysql::{Account, Client, CloneLink, ConnectionCloser, Target, Timeouts};
use xb_process::CancelHook;

use crate::error::Error;
use crate::guards::{self, Incarnation};
use crate::settings::Settings;

/// Longest time for which the end of a clone waits for the answer to another message, and the pause between two looks.
const END_WAIT: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_millis(10);

/// Returns whether a connection broke or nothing came in time, and nothing else is known to be wrong.
pub(crate) fn is_break(error: &Error) -> bool {
    use xb_mysql::Error::{Closed, Io, Timeout};
    matches!(error, Error::Server { source: Closed { .. } | Io { .. } | Timeout { .. } })
}

/// Whether the server takes no further connection at the moment: it has too many of all or of this account, or shuts down.
pub(crate) fn is_busy(error: &Error) -> bool {
    const BUSY: [u16; 4] = [1040, 1053, 1203, 1226];
    matches!(error, Error::Server { source: xb_mysql::Error::Server(said) } if BUSY.contains(&said.code))
}

/// Address of the donor, and the account.
#[derive(Clone, Copy)]
pub(crate) struct DonorAddress<'a> {
    pub(crate) target: &'a Target,
    pub(crate) account: &'a Account,
    pub(crate) settings: &'a Settings,
    pub(crate) auxiliary: &'a Auxiliary,
    /// The server that the first connection has reached. All others have to reach it, too: a name, an address or a proxy
    /// may lead to several.
    pub(crate) server: &'a OnceLock<Incarnation>,
}

/// The connection for data.
pub(crate) struct Link {
    pub(crate) data: CloneLink,
    _hooks: [CancelHook<()>; 2],
}

/// The auxiliary connection, and the end of that for data, for the thread that receives and for the one that ends a clone.
#[derive(Default)]
pub(crate) struct Auxiliary {
    link: Mutex<Option<CloneLink>>,
    /// Ends the connection for data.
    data: Mutex<Option<ConnectionCloser>>,
    /// The message that ends the clone early, once the donor has begun one.
    end: OnceLock<Vec<u8>>,
}

impl Auxiliary {
    /// Sends a message, and waits for the answer.
    pub(crate) fn exchange(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut link = self.link();
        let link = link.as_mut().ok_or(Error::Stopped)?;
        link.send(message)?;
        Ok(link.receive()?)
    }

    /// Notes the message that ends the clone early. It is the same for all of a clone.
    pub(crate) fn begun(&self, end: impl FnOnce() -> Vec<u8>) {
        let _ = self.end.get_or_init(end);
    }

    /// Tells the donor that the clone has failed, if there is a connection. A donor that is not told keeps the clone
    /// for a recipient that might come back: DDL waits, its redo log grows, and no other clone begins. The connection for
    /// data is ended after that: a donor for whose data there is no room reads no message.
    pub(crate) fn end(&self) {
        self.tell_end();
        if let Some(data) = &*self.data() {
            data.abort();
        }
    }

    fn tell_end(&self) {
        let begin = Instant::now();
        while begin.elapsed() < END_WAIT {
            match self.link.try_lock() {
                Ok(mut link) => {
                    if let (Some(link), Some(end)) = (link.as_mut(), self.end.get()) {
                        let _ = link.send(end);
                    }
                    return;
                }
                // An answer is awaited, for as long as the donor needs for it.
                Err(_) => std::thread::sleep(END_PAUSE),
            }
        }
    }

    fn link(&self) -> MutexGuard<'_, Option<CloneLink>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> MutexGuard<'_, Option<ConnectionCloser>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DonorAddress<'_> {
    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        let Self { target, account, settings, .. } = self;
        let timeouts = Timeouts { login: Duration::from_secs(30), reply: Some(settings.silence) };
        let check = || settings.cancel.check().map_err(|()| Error::Stopped);
        check()?;
        let mut client = Client::connect(target, account, timeouts)?;
        let hang_up = client.hang_up()?;
        let hook = settings.cancel.on_cancel(move || hang_up.now());
        check()?;
        // One that cannot be cloned need not be able to say which it is.
        guards::version(&client)?;
        let found = Incarnation::of(&mut client)?;
        match self.server.get_or_init(|| found.clone()).is_still(&found) {
            true => Ok(Connection { client, hook }),
            // By its number, another one could give us the clone of another recipient.
            false => Err(Error::Refused(
                "the server was started again, or another one answers at its address: the clone cannot be continued; give an address that leads to one server".to_owned(),
            )),
        }
    }

    /// Makes both connections of a clone.
    pub(crate) fn link(&self) -> Result<Link, Error> {
        let (data, first) = self.connect()?.into_clone(self.settings)?;
        let (auxiliary, second) = self.connect()?.into_clone(self.settings)?;
        *self.auxiliary.link() = Some(auxiliary);
        *self.auxiliary.data() = Some(data.hang_up()?);
        Ok(Link { data, _hooks: [first, second] })
    }

    /// Connects again, until the donor would give the clone up. `error` is why the connections broke.
    pub(crate) fn link_again(&self, until: Instant, error: Error) -> Result<Link, Error> {
        *self.auxiliary.link() = None;
        *self.auxiliary.data() = None;
        loop {
            if self.settings.cancel.wait(self.settings.retry).is_some() {
                return Err(Error::Stopped);
            }
            if Instant::now() >= until {
                return Err(error);
            }
            match self.link() {
                Err(failed) if is_break(&failed) || is_busy(&failed) => {}
                other => return other,
            }
        }
    }
}

/// A connection that ends when the clone is to end.
pub(crate) struct Connection {
    pub(crate) client: Client,
    hook: CancelHook<()>,
}

impl Connection {
    fn into_clone(self, settings: &Settings) -> Result<(CloneLink, CancelHook<()>), Error> {
        Ok((self.client.into_clone(settings.silence, settings.absence)?, self.hook))
    }
}
