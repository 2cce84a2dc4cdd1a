//! The joiner's side of a transfer: [`Listener`], [`Offered`] and [`Incoming`].

mod acceptor;
mod answers;
mod api;
mod pending_peers;
mod session;
mod state;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use xb_process::{CancelHook, CancelToken};

pub use self::answers::Answers;
pub use self::api::Receipt;
use self::pending_peers::PendingPeers;
use self::state::{Own, Shared, State};
use crate::announce::address::HostPort;
use crate::announce::secret::{Fingerprint, Secret};
use crate::announce::{Announcement, Protection};
use crate::counters::Counters;
use crate::endpoint::{Endpoint, FailOnPanic};
use crate::error::{BindError, SecurityError, TransferError};
use crate::event::Observer;
use crate::ledger::questions::PendingReplies;
use crate::ledger::receive::ReceiveLedger;
use crate::limits::{Limits, MAX_OFFER};
use crate::limits::{MAX_CONNECTIONS, bounded};
use crate::link::wake::Wake;
use crate::monitor::Monitor;
use crate::protocol::buffer_pool::Pool;
use crate::protocol::message::{StopCode, StopMessage};
use crate::security::Security;
use crate::security::tls::JoinerTls;
use crate::transfer_end::TransferEnd;

/// Configuration of the joiner's side.
#[derive(Debug, Clone)]
pub struct Joiner {
    /// Protection of the connections.
    pub security: Security,
    /// Whether the server's channel carries a secret (`NAME:secret@`). If it does not and the donor
    /// has no certificate, **the donor is not authenticated**: anyone who connects first may send
    /// data. The operator must have requested that, and it must be logged.
    pub secret: bool,
    /// Address to which the donor connects, if it differs from the address to listen on.
    pub announce_as: Option<HostPort>,
    /// Time limits and sizes.
    pub limits: Limits,
    /// Cancels the transfer.
    pub cancel: CancelToken<String>,
    /// Receives the events.
    pub observer: Observer,
}

impl Default for Joiner {
    fn default() -> Self {
        Self {
            security: Security::default(),
            secret: true,
            announce_as: None,
            limits: Limits::default(),
            cancel: CancelToken::new(),
            observer: Observer::default(),
        }
    }
}

/// Listens for a donor. The port stays open from [`Listener::bind`] to the end of the transfer.
#[derive(Debug)]
pub struct Listener {
    core: Core,
    announcement: Announcement,
    local: SocketAddr,
}

impl Listener {
    /// Listens on `address` only; port 0 means any free port.
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
        let acceptor_wake = Arc::new(Wake::new()?);
        let state = State {
            transfer: None,
            version: 0,
            ledger: ReceiveLedger::new(window as u64, limits.window_blocks()),
            questions: PendingReplies::default(),
            answer: None,
            confirm: false,
            over: None,
            links: Vec::new(),
            acceptor_wake: Arc::clone(&acceptor_wake),
            next_link: 0,
            seen: [false; MAX_CONNECTIONS as usize],
            pending_peers: PendingPeers::default(),
            thread_count: 0,
            woken_at: (0, 0),
            alone_since: Instant::now(),
            last_cause: "the donor did not reconnect".to_owned(),
            peer_threads: Vec::new(),
        };
        let own = Own {
            pool: Pool::new(block, window / block + usize::from(MAX_CONNECTIONS)),
            acceptor_wake,
            rejections_logged: AtomicU32::new(0),
            listener,
            tls,
        };
        let shared = Arc::new(Endpoint {
            monitor: Monitor::new(state),
            counters: Arc::new(Counters::default()),
            secret,
            limits,
            cancel,
            observer,
            own,
        });
        let hook = Endpoint::on_cancel(&shared);
        let acceptor = {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("wire-accept".to_owned());
            thread.spawn(move || {
                let fuse = FailOnPanic(&shared);
                shared.accept_peers();
                drop(fuse);
            })?
        };
        let core = Core { shared, acceptor: Some(acceptor), _hook: hook };
        Ok(Self { core, announcement, local })
    }

    /// The announcement, which the server passes to the donor.
    pub fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// The address and port of the listening socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The fingerprint of this side's certificate; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.core.shared.tls.as_ref().map(|tls| tls.fingerprint)
    }

    /// Waits for a donor that authenticates itself. Any other peer is refused and reported as
    /// [`Event::RejectedPeer`](crate::Event::RejectedPeer).
    ///
    /// # Errors
    /// If no donor has authenticated itself within `limit`, or on cancellation.
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

/// An authenticated donor that waits for an answer to its offer. Dropping it refuses the offer.
#[derive(Debug)]
pub struct Offered {
    core: Core,
    offer: Vec<u8>,
    peer: SocketAddr,
}

impl Offered {
    /// The offer, as the donor's layer above has created it.
    pub fn offer(&self) -> &[u8] {
        &self.offer
    }

    /// The donor's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Accepts the offer; the donor's [`connect`](crate::connect) returns with `answer`, which has
    /// at most [`MAX_OFFER`] bytes.
    ///
    /// # Errors
    /// If the transfer has failed.
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

    /// Refuses the offer; the donor receives the reason.
    pub fn refuse(self, reason: &str) {
        self.core.shared.refuse(reason);
    }
}

/// The receiving end of a transfer. Dropping it without [`Incoming::confirm`] fails the transfer on
/// both sides.
#[derive(Debug)]
pub struct Incoming {
    core: Core,
    current: Bytes,
}

impl Incoming {
    /// Returns the next bytes of the stream, in order, in the buffer that received them; `None` at
    /// the end, once every byte that the donor counted has been returned.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed; [`TransferError::BeganAgain`] if the donor begins
    /// again, after which the next call returns the new beginning.
    pub fn next_block(&mut self) -> Result<Option<Bytes>, TransferError> {
        if self.current.has_remaining() {
            return Ok(Some(std::mem::take(&mut self.current)));
        }
        match self.core.shared.next_block()? {
            Some((block, true)) => {
                self.current = block;
                Err(TransferError::BeganAgain)
            }
            Some((block, false)) => Ok(Some(block)),
            None => Ok(None),
        }
    }

    /// Returns a handle that answers the questions of the donor's layer above. It has to be dropped before the transfer
    /// counts as ended.
    pub fn answers(&self) -> Answers {
        Answers::new(Arc::clone(&self.core.shared))
    }

    /// Live counters, which remain usable after the transfer.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.core.shared.counters)
    }

    /// Checks whether the transfer has failed, for a caller that is busy with earlier data.
    ///
    /// # Errors
    /// The first cause.
    pub fn check(&self) -> Result<(), TransferError> {
        self.core.shared.check(&mut self.core.shared.monitor.lock())
    }

    /// Confirms to the donor that everything was received, verified and stored, so that its
    /// [`finish`](crate::Outgoing::finish) returns. Call this after [`Incoming::next_block`] has
    /// returned `None`.
    ///
    /// # Errors
    /// If the stream is not at its end, or the donor has aborted.
    pub fn confirm(self) -> Result<Receipt, TransferError> {
        self.core.shared.confirm()
    }

    /// Aborts the transfer; the donor receives the reason.
    pub fn refuse(self, reason: &str) {
        self.core.shared.refuse(reason);
    }

    /// Returns a handle that aborts the transfer from another thread, while this one waits for the
    /// donor.
    pub fn refusal(&self) -> Refusal {
        Refusal(Arc::downgrade(&self.core.shared))
    }
}

/// Handle with which the joiner aborts a transfer. Clones abort the same transfer.
#[derive(Debug, Clone)]
pub struct Refusal(Weak<Shared>);

impl Refusal {
    /// Aborts the transfer, if it is not over. The donor receives the reason, and
    /// [`Incoming::next_block`] returns [`TransferError::Cancelled`].
    pub fn refuse(&self, reason: &str) {
        if let Some(shared) = self.0.upgrade() {
            shared.refuse(reason);
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.current.has_remaining() {
            match self.next_block() {
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

/// Ends the threads when it is dropped.
#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    _hook: CancelHook<String>,
}

impl Drop for Core {
    fn drop(&mut self) {
        {
            let mut state = self.shared.monitor.lock();
            if state.over.is_none() {
                let reason = "the joiner ended the transfer".to_owned();
                let stop = StopMessage { code: StopCode::Aborted, reason };
                self.shared.end(&mut state, TransferEnd::cancelled(stop));
            }
        }
        if let Some(acceptor) = self.acceptor.take() {
            // A panic has already printed its message.
            let _ = acceptor.join();
        }
    }
}
