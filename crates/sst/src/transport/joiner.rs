//! The joiner's side: [`Listener`], [`Offered`] and [`Incoming`].

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use crc_fast::CrcAlgorithm;

use super::cancel::Wakes;
use super::counters::{add, add_time};
use super::donor::in_words;
use super::inbound::{Inbound, InboundError, Item};
use super::limits::{MAX_CONNECTIONS, MAX_STRANGERS};
use super::link::Link;
use super::message::{Message, ProtocolError, Stop, StopCode, Welcome};
use super::open::{self, Introduced, Opened, Stranger, Waiting};
use super::pool::{Pool, low_half};
use super::proof::{Side, Transfer};
use super::receiving::Receiving;
use super::tls::JoinerTls;
use super::wake::{self, Wake, Want};
use super::{
    Announcement, BindError, Cancel, Counters, Event, Fingerprint, HostPort, Limits, MAX_OFFER,
    Observer, Protection, Secret, Security, SecurityError, TransferError,
};

/// Bytes after which an acknowledgement goes out even if more is there to be read.
const ACK_EVERY: usize = 1 << 20;

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
            receiving: Receiving::new(window as u64, limits.window_blocks()),
            answer: None,
            confirm: false,
            over: None,
            links: Vec::new(),
            next_link: 0,
            seen: [false; MAX_CONNECTIONS as usize],
            strangers: 0,
            told_credit: 0,
            alone_since: Instant::now(),
            last_cause: "the donor has not come back".to_owned(),
            guests: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            counters: Arc::new(Counters::default()),
            pool: Pool::new(block, window / block + usize::from(MAX_CONNECTIONS)),
            door: Wake::new()?,
            listener,
            tls,
            secret,
            limits,
            cancel,
            observer,
        });
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        shared.cancel.register(weak);
        let doorkeeper = {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("wire-door".to_owned());
            thread.spawn(move || shared.keep_door())?
        };
        let core = Core { shared, doorkeeper: Some(doorkeeper) };
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
        let until = Instant::now() + limit;
        let mut state = shared.state();
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
            state = shared.wait(state, Some(left));
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

    /// Takes the offer; the donor's [`connect`](super::connect) returns with `answer`, at most
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
        let mut state = shared.state();
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
        self.core.shared.check(&mut self.core.shared.state())
    }

    /// Tells the donor that everything was received, verified and kept, so that its
    /// [`finish`](super::Outgoing::finish) returns. To be called after [`Incoming::next_block`] has
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

/// Ends the threads when it is dropped.
#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    doorkeeper: Option<JoinHandle<()>>,
}

impl Drop for Core {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            if state.over.is_none() {
                let reason = "the joiner has ended the transfer".to_owned();
                let stop = Stop { code: StopCode::Aborted, reason };
                self.shared.end(&mut state, TransferError::Cancelled, Some(stop));
            }
        }
        if let Some(doorkeeper) = self.doorkeeper.take() {
            // A panic has spoken for itself.
            let _ = doorkeeper.join();
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
    receiving: Receiving,
    answer: Option<Vec<u8>>,
    confirm: bool,
    over: Option<Over>,
    links: Vec<LinkEntry>,
    next_link: u64,
    /// Connections that were there once.
    seen: [bool; MAX_CONNECTIONS as usize],
    /// Connections that have not shown yet who they are.
    strangers: usize,
    /// The credit that the donor was last told.
    told_credit: u64,
    /// Since when there is no connection.
    alone_since: Instant,
    last_cause: String,
    guests: Vec<JoinHandle<()>>,
}

impl State {
    fn wake_links(&self) {
        self.links.iter().for_each(|link| link.wake.wake());
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    counters: Arc<Counters>,
    pool: Pool,
    door: Wake,
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

impl Wakes for Shared {
    fn wake_all(&self) {
        let state = self.state();
        self.changed.notify_all();
        state.wake_links();
        self.door.wake();
    }
}

/// The calls of [`Listener`], [`Offered`] and [`Incoming`].
impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match limit {
            Some(limit) => {
                let result = self.changed.wait_timeout(state, limit);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn check(&self, state: &mut State) -> Result<(), TransferError> {
        match &state.over {
            Some(Over::Failed { error, .. }) => Err(error.clone()),
            Some(Over::Done) => Err(TransferError::Ended),
            None if self.cancel.is_cancelled() => Err(self.fail(state, TransferError::Cancelled)),
            None => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.state().over.is_some()
    }

    fn fail(&self, state: &mut State, error: TransferError) -> TransferError {
        let code = match &error {
            TransferError::Aborted { .. } => None,
            TransferError::Protocol { .. } => Some(StopCode::Protocol),
            _ => Some(StopCode::Aborted),
        };
        let reason = error.to_string();
        self.end(state, error, code.map(|code| Stop { code, reason }))
    }

    fn end(&self, state: &mut State, error: TransferError, tell: Option<Stop>) -> TransferError {
        match &state.over {
            Some(Over::Failed { error, .. }) => return error.clone(),
            Some(Over::Done) => return TransferError::Ended,
            None => {}
        }
        if state.transfer.is_some() {
            self.observer.tell(&Event::Failed { why: error.to_string() });
        }
        self.set_over(state, Over::Failed { error: error.clone(), tell });
        error
    }

    fn set_over(&self, state: &mut State, over: Over) {
        state.over = Some(over);
        self.changed.notify_all();
        state.wake_links();
        self.door.wake();
    }

    fn refuse(&self, reason: &str) {
        let stop = Stop { code: StopCode::Refused, reason: reason.to_owned() };
        self.end(&mut self.state(), TransferError::Cancelled, Some(stop));
    }

    fn next_block(&self) -> Result<Option<Bytes>, TransferError> {
        let mut state = self.state();
        let mut since = None;
        loop {
            self.check(&mut state)?;
            let next = state.receiving.deliver();
            let next = match next {
                Ok(None) => state.receiving.is_whole().map(|whole| (None, whole)),
                Ok(Some(block)) => Ok((Some(block), true)),
                Err(error) => Err(error),
            };
            let (block, there) = match next {
                Ok(next) => next,
                Err(error) => return Err(self.violation(&mut state, &error)),
            };
            if there {
                if let Some(since) = since {
                    add_time(&self.counters.network, Instant::elapsed(&since));
                }
                if let Some(block) = &block {
                    add(&self.counters.delivered, block.len());
                    self.give_credit(&state);
                }
                return Ok(block);
            }
            since.get_or_insert_with(Instant::now);
            state = self.wait(state, None);
        }
    }

    fn violation(&self, state: &mut State, error: &ProtocolError) -> TransferError {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let peer = state.transfer.as_ref().map_or(unknown, |current| current.peer);
        self.fail(state, TransferError::Protocol { peer, what: error.to_string() })
    }

    /// Has the donor told of more room, once it is worth a message.
    fn give_credit(&self, state: &State) {
        if self.credit_is_due(state)
            && let Some(link) = state.links.first()
        {
            link.wake.wake();
        }
    }

    fn credit_is_due(&self, state: &State) -> bool {
        let more = state.receiving.credit_bytes().saturating_sub(state.told_credit);
        more >= self.limits.window_size() as u64 / 8
    }

    fn confirm(&self) -> Result<Receipt, TransferError> {
        let mut state = self.state();
        self.check(&mut state)?;
        match state.receiving.is_whole() {
            Ok(true) => {}
            _ => {
                let what = ProtocolError::Unexpected { what: "confirmation before the end" };
                return Err(self.violation(&mut state, &what));
            }
        }
        state.confirm = true;
        state.alone_since = state.alone_since.max(Instant::now());
        state.wake_links();
        loop {
            if matches!(state.over, Some(Over::Done)) {
                return Ok(Receipt::Heard);
            }
            self.check(&mut state)?;
            let mut left = None;
            if state.links.is_empty() {
                let limit = state.alone_since + self.limits.receipt;
                let time = limit.saturating_duration_since(Instant::now());
                if time.is_zero() {
                    self.set_over(&mut state, Over::Done);
                    return Ok(Receipt::Unheard);
                }
                left = Some(time);
            }
            state = self.wait(state, left);
        }
    }
}

/// The door: a thread that lets connections in, and one for each.
impl Shared {
    fn keep_door(self: &Arc<Self>) {
        loop {
            let until = {
                let mut state = self.state();
                if self.check(&mut state).is_err() {
                    break;
                }
                self.too_long_alone(&mut state)
            };
            let crowded = self.state().strangers >= MAX_STRANGERS;
            // While too many strangers stand here, others wait outside.
            let socket = (!crowded).then(|| (self.listener.as_fd(), Want::Read));
            if wake::wait(socket, &self.door, until).is_err() {
                break;
            }
            if crowded {
                continue;
            }
            while let Ok((socket, peer)) = self.listener.accept() {
                self.let_in(socket, peer);
            }
        }
        let guests = std::mem::take(&mut self.state().guests);
        for guest in guests {
            let _ = guest.join();
        }
    }

    /// Fails a transfer whose donor does not come back. The moment at which to look again.
    fn too_long_alone(&self, state: &mut State) -> Option<Instant> {
        if state.transfer.is_none() || !state.links.is_empty() || state.confirm {
            return None;
        }
        let waited = state.alone_since.elapsed();
        if waited >= self.limits.resume {
            let cause = state.last_cause.clone();
            self.fail(state, TransferError::Lost { waited, cause });
        }
        Some(state.alone_since + self.limits.resume)
    }

    fn let_in(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        let mut state = self.state();
        state.guests.retain(|guest| !guest.is_finished());
        state.strangers += 1;
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("wire-in".to_owned());
        match thread.spawn(move || shared.welcome(socket, peer)) {
            Ok(guest) => state.guests.push(guest),
            // Without a thread the socket is closed; the donor tries again.
            Err(_) => state.strangers -= 1,
        }
    }

    fn welcome(&self, socket: TcpStream, peer: SocketAddr) {
        let seat = Seat(self);
        let Ok(wake) = Wake::new().map(Arc::new) else { return };
        let cancelled = || self.is_over();
        let waiting = Waiting { wake: &wake, cancelled: &cancelled, limits: &self.limits };
        let opened = match open::receive(socket, self.tls.as_ref(), waiting) {
            Ok(opened) => opened,
            Err(Stranger::Cancelled) => return,
            Err(Stranger::Odd(what)) => {
                self.observer.tell(&Event::Stranger { peer, what });
                return;
            }
        };
        let Opened { mut link, inbound, what: introduced, .. } = opened;
        let connection = introduced.hello.connection;
        match self.admit(&introduced, &link, peer, &wake) {
            Ok((id, welcome, again)) => {
                drop(seat);
                drop(introduced);
                self.observer.tell(&Event::Connected { connection, peer, again });
                let queued = link.queue(Message::Welcome(welcome).write().into());
                let why = match queued {
                    Ok(()) => self.serve(link, inbound, id, peer, &wake),
                    Err(error) => Some(error.to_string()),
                };
                self.leave(id, connection, why);
            }
            Err(stop) => {
                let what = stop.reason.clone();
                if link.queue(Message::Stop(stop).write().into()).is_ok() {
                    link.close(&wake, Instant::now() + self.limits.farewell);
                }
                self.observer.tell(&Event::Stranger { peer, what });
            }
        }
    }

    /// Decides whether a donor is the right one, and takes its connection into the books.
    fn admit(
        &self,
        introduced: &Introduced,
        link: &Link,
        peer: SocketAddr,
        wake: &Arc<Wake>,
    ) -> Result<(u64, Welcome, bool), Stop> {
        let Introduced { hello, version, at } = introduced;
        let no = |code, reason: &str| Err(Stop { code, reason: reason.to_owned() });
        let (secret, connection) = (self.secret.as_ref(), hello.connection);
        if connection >= MAX_CONNECTIONS.into() {
            return no(StopCode::Protocol, "more connections than are allowed");
        }
        let holds =
            |transfer: &Transfer| transfer.holds(&hello.proof, secret, Side::Donor, connection, at);
        let wrong = "the donor does not know the one-time secret of this joiner";
        let socket = link
            .socket()
            .try_clone()
            .map_err(|error| Stop { code: StopCode::Aborted, reason: error.to_string() })?;

        let mut state = self.state();
        if let Some(Over::Failed { tell: Some(stop), .. }) = &state.over {
            return Err(stop.clone());
        }
        if state.over.is_some() {
            return no(StopCode::Unknown, "the transfer is over");
        }
        let first = hello.key.map(|key| Transfer { id: hello.transfer, key: key.into() });
        if let Some(current) = &state.transfer {
            let known = &current.transfer;
            let same = match &first {
                Some(first) => first.same(known),
                None => hello.transfer == known.id,
            };
            if !same {
                if !first.as_ref().is_some_and(holds) {
                    return no(StopCode::Proof, wrong);
                }
                return no(StopCode::Busy, "another donor's transfer to this joiner is running");
            }
            if !holds(known) {
                return no(StopCode::Proof, wrong);
            }
        } else {
            let Some(first) = first else {
                return no(
                    StopCode::Unknown,
                    "this joiner knows of no such transfer: it was started anew",
                );
            };
            if !holds(&first) {
                return no(StopCode::Proof, wrong);
            }
            state.transfer = Some(Current { transfer: first, offer: hello.offer.clone(), peer });
            self.changed.notify_all();
        }

        // The one before it is read to its end, so that what it brought is not sent again.
        for entry in state.links.iter().filter(|entry| entry.connection == connection) {
            let _ = entry.socket.shutdown(Shutdown::Both);
            entry.wake.wake();
        }
        let until = Instant::now() + self.limits.handshake;
        while state.links.iter().any(|entry| entry.connection == connection) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.over.is_some() {
                return no(StopCode::Aborted, "the connection before this one does not end");
            }
            state = self.wait(state, Some(left));
        }
        let id = state.next_link;
        state.next_link += 1;
        let again = std::mem::replace(&mut state.seen[usize::from(connection)], true);
        if again {
            self.counters.reconnects.fetch_add(1, Relaxed);
        }
        state.links.push(LinkEntry { id, connection, wake: Arc::clone(wake), socket });
        self.count(&state);
        let have = state.receiving.ack();
        state.told_credit = have.credit_bytes;
        let transfer = state.transfer.as_ref().map(|current| &current.transfer);
        let proof = transfer
            .map(|transfer| transfer.prove(secret, Side::Joiner, connection, at))
            .unwrap_or_default();
        let connections = MAX_CONNECTIONS.into();
        let welcome = Welcome { version: *version, connections, capabilities: 0, proof, have };
        Ok((id, welcome, again))
    }

    fn count(&self, state: &State) {
        let up = u32::try_from(state.links.len()).unwrap_or(u32::MAX);
        self.counters.connections.store(up, Relaxed);
    }

    /// A connection has ended.
    fn leave(&self, id: u64, connection: u16, why: Option<String>) {
        let mut state = self.state();
        state.links.retain(|entry| entry.id != id);
        self.count(&state);
        if state.links.is_empty() {
            state.alone_since = Instant::now();
        }
        if let Some(why) = &why {
            state.last_cause.clone_from(why);
        }
        self.changed.notify_all();
        self.door.wake();
        let over = state.over.is_some();
        drop(state);
        if let (Some(why), false) = (why, over) {
            self.observer.tell(&Event::Lost { connection, why });
        }
    }
}

/// A place among the strangers.
struct Seat<'a>(&'a Shared);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.state().strangers -= 1;
        self.0.door.wake();
    }
}

/// What one connection remembers.
#[derive(Debug, Default)]
struct Own {
    answer_sent: bool,
    confirm_sent: bool,
    /// Bytes that arrived here and are not acknowledged.
    unacknowledged: usize,
    pongs: Vec<u64>,
}

enum Job {
    Message(Message),
    Wait(Instant),
    Close(Option<Message>),
}

/// Why reading stops.
enum Reading {
    Dry,
    Lost(String),
    Over,
}

/// The connections.
impl Shared {
    /// Serves a connection to its end. Why it was lost, unless the transfer is over.
    fn serve(
        &self,
        mut link: Link,
        mut inbound: Inbound,
        id: u64,
        peer: SocketAddr,
        wake: &Wake,
    ) -> Option<String> {
        let mut own = Own::default();
        loop {
            let dry = match self.read(&mut link, &mut inbound, peer, &mut own) {
                None => false,
                Some(Reading::Dry) => true,
                Some(Reading::Over) => {
                    link.close(wake, Instant::now() + self.limits.farewell);
                    return None;
                }
                Some(Reading::Lost(why)) => return Some(why),
            };
            let now = Instant::now();
            let mut until = link.last_in() + self.limits.stall;
            if now >= until {
                let limit = self.limits.stall.as_secs();
                return Some(format!("nothing came from the donor for {limit} s"));
            }
            let mut written = match link.flush() {
                Ok(written) => written,
                Err(error) => return Some(in_words(&error)),
            };
            while written {
                match self.next_job(&mut own, dry, id, link.last_out()) {
                    Job::Message(message) => {
                        if let Err(error) = link.queue(message.write().into()) {
                            return Some(error.to_string());
                        }
                    }
                    Job::Wait(at) => {
                        until = until.min(at);
                        break;
                    }
                    Job::Close(message) => {
                        let last = message.map(|message| message.write().into());
                        if link.queue_all(last.into_iter().collect()).is_ok() {
                            link.close(wake, Instant::now() + self.limits.farewell);
                        }
                        return None;
                    }
                }
                written = match link.flush() {
                    Ok(written) => written,
                    Err(error) => return Some(in_words(&error)),
                };
            }
            if !dry {
                continue;
            }
            if !written && self.is_over() {
                return None;
            }
            if let Err(error) = link.wait(wake, Some(until)) {
                return Some(in_words(&error));
            }
        }
    }

    /// Reads what is there, but not more than is to be acknowledged at once.
    fn read(
        &self,
        link: &mut Link,
        inbound: &mut Inbound,
        peer: SocketAddr,
        own: &mut Own,
    ) -> Option<Reading> {
        let plain = !link.is_tls();
        while own.unacknowledged < ACK_EVERY {
            let place = |head: &_| self.state().receiving.place(head);
            let violation = match inbound.next(link, &self.pool, place) {
                Ok(None) => return Some(Reading::Dry),
                Ok(Some(Item::Block(head, payload))) => {
                    match head.checksum {
                        Some(sum) => {
                            let is = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &payload);
                            if low_half(is) != sum {
                                let number = head.number;
                                let why = format!("block {number} arrived damaged");
                                return Some(Reading::Lost(why));
                            }
                        }
                        None if plain => {
                            return Some(Reading::Lost("a block without a checksum".to_owned()));
                        }
                        None => {}
                    }
                    let len = payload.len();
                    own.unacknowledged += len;
                    let mut state = self.state();
                    match state.receiving.insert(&head, payload) {
                        Ok(new) => {
                            let counters = &self.counters;
                            add(if new { &counters.received } else { &counters.duplicate }, len);
                            self.changed.notify_all();
                            None
                        }
                        Err(error) => Some(error),
                    }
                }
                Ok(Some(Item::Skipped(head))) => {
                    own.unacknowledged += head.len as usize;
                    add(&self.counters.duplicate, head.len as usize);
                    None
                }
                Ok(Some(Item::Message(message))) => match self.handle(message, peer, own) {
                    Ok(false) => None,
                    Ok(true) => return Some(Reading::Over),
                    Err(error) => Some(error),
                },
                Err(InboundError::Io(error)) => return Some(Reading::Lost(in_words(&error))),
                // Without TLS it may be a broken wire.
                Err(InboundError::Protocol(error)) if plain => {
                    return Some(Reading::Lost(error.to_string()));
                }
                Err(InboundError::Protocol(error)) => Some(error),
            };
            if let Some(error) = violation {
                let what = error.to_string();
                self.fail(&mut self.state(), TransferError::Protocol { peer, what });
                // The next job is to say so.
                return Some(Reading::Dry);
            }
        }
        None
    }

    /// `Ok(true)`: the donor has said goodbye.
    fn handle(
        &self,
        message: Message,
        peer: SocketAddr,
        own: &mut Own,
    ) -> Result<bool, ProtocolError> {
        let mut state = self.state();
        match message {
            Message::Fin { blocks, bytes } => {
                state.receiving.end_at(blocks, bytes)?;
                self.changed.notify_all();
            }
            Message::Bye if state.confirm => {
                if state.over.is_none() {
                    self.set_over(&mut state, Over::Done);
                }
                return Ok(true);
            }
            Message::Stop(stop) => {
                let error = open::stopped(stop, "donor", peer);
                self.end(&mut state, error, None);
                return Ok(true);
            }
            Message::Ping(token) => own.pongs.push(token),
            Message::Pong(_) => {}
            other => return Err(ProtocolError::Unexpected { what: other.name() }),
        }
        Ok(false)
    }

    fn next_job(&self, own: &mut Own, dry: bool, id: u64, last_out: Instant) -> Job {
        let mut state = self.state();
        if self.check(&mut state).is_err() {
            return match &state.over {
                Some(Over::Failed { tell: Some(stop), .. }) => {
                    Job::Close(Some(Message::Stop(stop.clone())))
                }
                _ => Job::Close(None),
            };
        }
        if let Some(token) = own.pongs.pop() {
            return Job::Message(Message::Pong(token));
        }
        if let (Some(answer), false) = (&state.answer, own.answer_sent) {
            own.answer_sent = true;
            return Job::Message(Message::Answer(answer.clone()));
        }
        let first = state.links.first().is_some_and(|entry| entry.id == id);
        let due = own.unacknowledged > 0 && (dry || own.unacknowledged >= ACK_EVERY);
        if due || (first && self.credit_is_due(&state)) {
            own.unacknowledged = 0;
            let ack = state.receiving.ack();
            state.told_credit = ack.credit_bytes;
            return Job::Message(Message::Ack(ack));
        }
        if state.confirm && !own.confirm_sent {
            own.confirm_sent = true;
            return Job::Message(Message::Confirm);
        }
        let now = Instant::now();
        let ping_at = last_out + self.limits.heartbeat;
        if now >= ping_at {
            return Job::Message(Message::Ping(0));
        }
        Job::Wait(ping_at)
    }
}
