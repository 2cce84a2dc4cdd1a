//! The joiner's side: [`Listener`], [`Offered`] and [`Incoming`].

mod acceptor;
mod api;
mod pending_peers;
mod session;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use self::pending_peers::PendingPeers;
use crate::announce::address::HostPort;
use crate::announce::secret::{Fingerprint, Secret};
use crate::announce::{Announcement, Protection};
use crate::cancel::Cancel;
use crate::counters::Counters;
use crate::error::{BindError, SecurityError, TransferError};
use crate::event::Observer;
use crate::ledger::receive::ReceiveLedger;
use crate::limits::{Limits, MAX_OFFER};
use crate::limits::{MAX_CONNECTIONS, bounded};
use crate::link::wake::Wake;
use crate::monitor::Monitor;
use crate::protocol::buffer_pool::Pool;
use crate::protocol::message::{Stop, StopCode};
use crate::security::Security;
use crate::security::proof::Transfer;
use crate::security::tls::JoinerTls;

/// How the joiner's side is set up.
#[derive(Debug, Clone)]
pub struct Joiner {
    /// Certificates, or not.
    pub security: Security,
    /// Whether the server's channel carries a secret (`NAME:secret@`). Where it does not and the
    /// donor has no certificate to show, **the donor is not authenticated**: whoever connects first
    /// may send data. That must be the operator's own wish, and belongs into the log.
    pub secret: bool,
    /// Where the donor is to connect to, if that is not the address that is listened on.
    pub announce_as: Option<HostPort>,
    /// Times and sizes.
    pub limits: Limits,
    /// Ends everything.
    pub cancel: Cancel,
    /// Who is told what happens.
    pub observer: Observer,
}

impl Default for Joiner {
    fn default() -> Self {
        Self {
            security: Security::default(),
            secret: true,
            announce_as: None,
            limits: Limits::default(),
            cancel: Cancel::default(),
            observer: Observer::default(),
        }
    }
}

/// Listens for a donor. The port is open from [`Listener::bind`] until the transfer's end.
#[derive(Debug)]
pub struct Listener {
    core: Core,
    announcement: Announcement,
    local: SocketAddr,
}

impl Listener {
    /// Listens on `address`, and on nothing else; port 0 is any free one.
    ///
    /// # Errors
    /// [`BindError`]: the address, the certificates, or a line too long for the server.
    pub fn bind(address: &HostPort, joiner: Joiner) -> Result<Self, BindError> {
        let Joiner { security, secret, announce_as, limits, cancel, observer } = joiner;
        let limits = limits.bounded();
        let tls = JoinerTls::new(&security)?;
        let failed = |source| BindError::Listen { address: address.clone(), source };
        let targets: Vec<SocketAddr> = (address.host(), address.port())
            .to_socket_addrs()
            .map_err(|source| BindError::Resolve { address: address.clone(), source })?
            .collect();
        let listener = TcpListener::bind(&targets[..]).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;

        let protection = match (&tls, &security) {
            (None, _) => Protection::Plain,
            (Some(JoinerTls { fingerprint, .. }), Security::Certificates(_)) => {
                Protection::Certificate(*fingerprint)
            }
            (Some(JoinerTls { fingerprint, .. }), _) => Protection::OneTime(*fingerprint),
        };
        let secret = if secret { Some(Secret::new().map_err(SecurityError::from)?) } else { None };
        let shown = announce_as.unwrap_or_else(|| address.clone().with_port(local.port()));
        let announcement = Announcement::new(shown, protection, secret.clone())?;

        let window = limits.window_size();
        let block = limits.block_size();
        let state = State {
            transfer: None,
            ledger: ReceiveLedger::new(window as u64, limits.window_blocks()),
            answer: None,
            confirm: false,
            over: None,
            links: Vec::new(),
            next_link: 0,
            seen: [false; MAX_CONNECTIONS as usize],
            pending_peers: PendingPeers::default(),
            thread_count: 0,
            woken_at: (0, 0),
            alone_since: Instant::now(),
            last_cause: "the donor has not come back".to_owned(),
            peer_threads: Vec::new(),
        };
        let shared = Arc::new(Shared {
            monitor: Monitor::new(state),
            counters: Arc::new(Counters::default()),
            pool: Pool::new(block, window / block + usize::from(MAX_CONNECTIONS)),
            acceptor_wake: Wake::new()?,
            strangers_told: AtomicU32::new(0),
            listener,
            tls,
            secret,
            limits,
            cancel,
            observer,
        });
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        shared.cancel.register(weak);
        let acceptor = {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("wire-accept".to_owned());
            thread.spawn(move || {
                let fuse = Fuse(&shared);
                shared.accept_peers();
                drop(fuse);
            })?
        };
        let core = Core { shared, acceptor: Some(acceptor) };
        Ok(Self { core, announcement, local })
    }

    /// What the donor must be told, through the server.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// The address and port that are listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The fingerprint of this side's certificate; `None` when plain.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.core.shared.tls.as_ref().map(|tls| tls.fingerprint)
    }

    /// Waits for a donor that proves who it is. Whoever else connects is sent away, and an
    /// [`Event::Stranger`] tells of it.
    ///
    /// # Errors
    /// When none has come within `limit`, or at a cancel.
    pub fn accept(self, limit: Duration) -> Result<Offered, TransferError> {
        let shared = &self.core.shared;
        let limit = bounded(limit);
        let until = Instant::now() + limit;
        let mut state = shared.monitor.lock();
        loop {
            shared.check(&mut state)?;
            if let Some(current) = &state.transfer {
                let (offer, peer) = (current.offer.clone(), current.peer);
                drop(state);
                return Ok(Offered { core: self.core, offer, peer });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let error = TransferError::NoDonor { waited: limit };
                return Err(shared.fail(&mut state, error));
            }
            state = shared.monitor.wait(state, Some(left));
        }
    }
}

/// A donor that has proved who it is waits for an answer to its offer. Dropped, it is refused.
#[derive(Debug)]
pub struct Offered {
    core: Core,
    offer: Vec<u8>,
    peer: SocketAddr,
}

impl Offered {
    /// What the donor's layer above says.
    pub fn offer(&self) -> &[u8] {
        &self.offer
    }

    /// The donor's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes the offer; the donor's [`connect`](crate::connect) returns with `answer`, at most
    /// [`MAX_OFFER`] bytes.
    ///
    /// # Errors
    /// When the transfer has failed meanwhile.
    pub fn accept(self, answer: &[u8]) -> Result<Incoming, TransferError> {
        if answer.len() > MAX_OFFER {
            return Err(TransferError::TooLong {
                what: "answer",
                len: answer.len(),
                max: MAX_OFFER,
            });
        }
        let shared = &self.core.shared;
        let mut state = shared.monitor.lock();
        shared.check(&mut state)?;
        state.answer = Some(answer.to_vec());
        state.wake_links();
        drop(state);
        Ok(Incoming { core: self.core, current: Bytes::new() })
    }

    /// Says no; the reason reaches the donor.
    pub fn refuse(self, reason: &str) {
        self.core.shared.refuse(reason);
    }
}

/// The receiving end of a transfer. Dropped without [`Incoming::confirm`] the transfer fails on
/// both sides.
#[derive(Debug)]
pub struct Incoming {
    core: Core,
    current: Bytes,
}

/// Whether the donor knows that it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// It has said so.
    Heard,
    /// The connection was lost while it was told, and it did not come back. It may have heard.
    Unheard,
}

impl Incoming {
    /// The next bytes of the stream, in order, as they are in memory; `None` at its end, when every
    /// byte that the donor counted has been handed over.
    ///
    /// # Errors
    /// The first cause, when the transfer has failed.
    pub fn next_block(&mut self) -> Result<Option<Bytes>, TransferError> {
        if self.current.has_remaining() {
            return Ok(Some(std::mem::take(&mut self.current)));
        }
        self.core.shared.next_block()
    }

    /// Live numbers; they can be kept beyond the transfer.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.core.shared.counters)
    }

    /// Whether the transfer has failed meanwhile; for a caller that is busy with what it has.
    ///
    /// # Errors
    /// The first cause.
    pub fn check(&self) -> Result<(), TransferError> {
        self.core.shared.check(&mut self.core.shared.monitor.lock())
    }

    /// Tells the donor that everything was received, verified and kept, so that its
    /// [`finish`](crate::Outgoing::finish) returns. To be called after [`Incoming::next_block`] has
    /// given `None`.
    ///
    /// # Errors
    /// When the stream is not at its end, or the donor has given up meanwhile.
    pub fn confirm(self) -> Result<Receipt, TransferError> {
        self.core.shared.confirm()
    }

    /// Ends the transfer; the reason reaches the donor.
    pub fn refuse(self, reason: &str) {
        self.core.shared.refuse(reason);
    }

    /// A way to do so from elsewhere, while somebody waits for the donor.
    pub fn refusal(&self) -> Refusal {
        Refusal(Arc::downgrade(&self.core.shared))
    }
}

/// Ends a transfer of which the joiner wants no more. Clones end the same.
#[derive(Debug, Clone)]
pub struct Refusal(Weak<Shared>);

impl Refusal {
    /// Ends the transfer, if it is not over; the reason reaches the donor, and
    /// [`Incoming::next_block`] gives [`TransferError::Cancelled`].
    pub fn refuse(&self, reason: &str) {
        if let Some(shared) = self.0.upgrade() {
            shared.refuse(reason);
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.current.has_remaining() {
            match self.core.shared.next_block() {
                Ok(Some(block)) => self.current = block,
                Ok(None) => return Ok(0),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let n = out.len().min(self.current.len());
        if let Some(out) = out.get_mut(..n) {
            self.current.copy_to_slice(out);
        }
        Ok(n)
    }
}

/// Ends the transfer when its thread panics: nobody else would wake who waits.
struct Fuse<'a>(&'a Shared);

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&mut self.0.monitor.lock(), TransferError::Panicked);
        }
    }
}

/// Ends the threads when it is dropped.
#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Drop for Core {
    fn drop(&mut self) {
        {
            let mut state = self.shared.monitor.lock();
            if state.over.is_none() {
                let reason = "the joiner has ended the transfer".to_owned();
                let stop = Stop { code: StopCode::Aborted, reason };
                self.shared.end(&mut state, TransferError::Cancelled, Some(stop));
            }
        }
        if let Some(acceptor) = self.acceptor.take() {
            // A panic has spoken for itself.
            let _ = acceptor.join();
        }
    }
}

/// The donor that is being served.
struct Current {
    transfer: Transfer,
    offer: Vec<u8>,
    peer: SocketAddr,
}

struct LinkEntry {
    id: u64,
    connection: u16,
    wake: Arc<Wake>,
    socket: TcpStream,
}

enum Over {
    Done,
    Failed { error: TransferError, tell: Option<Stop> },
}

struct State {
    transfer: Option<Current>,
    ledger: ReceiveLedger,
    answer: Option<Vec<u8>>,
    confirm: bool,
    over: Option<Over>,
    links: Vec<LinkEntry>,
    next_link: u64,
    /// Connections that were there once.
    seen: [bool; MAX_CONNECTIONS as usize],
    /// Connections that have not shown yet who they are.
    pending_peers: PendingPeers,
    /// Threads of connections.
    thread_count: usize,
    /// The credit at which connections were last woken to tell of it.
    woken_at: (u64, u64),
    /// Since when there is no connection.
    alone_since: Instant,
    last_cause: String,
    peer_threads: Vec<JoinHandle<()>>,
}

impl State {
    fn wake_links(&self) {
        self.links.iter().for_each(|link| link.wake.wake());
    }

    /// When all is over.
    fn wake_everybody(&self) {
        self.wake_links();
        self.pending_peers.wake();
    }
}

struct Shared {
    monitor: Monitor<State>,
    counters: Arc<Counters>,
    pool: Pool,
    acceptor_wake: Wake,
    strangers_told: AtomicU32,
    listener: TcpListener,
    tls: Option<JoinerTls>,
    secret: Option<Secret>,
    limits: Limits,
    cancel: Cancel,
    observer: Observer,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("listener", &self.listener).finish_non_exhaustive()
    }
}
