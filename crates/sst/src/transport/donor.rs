//! The donor's side: [`connect`] and [`Outgoing`].

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use super::cancel::Wakes;
use super::counters::{add, add_time};
use super::inbound::{InboundError, Item};
use super::limits::{MAX_CONNECTIONS, MIN_BLOCK};
use super::link::LinkError;
use super::message::{self, Message, ProtocolError, Stop, StopCode, Welcome};
use super::open::{self, OpenError, Opened, Waiting};
use super::pool::Pool;
use super::proof::Transfer;
use super::rate::Rate;
use super::sending::{Outbound, Sending, Take};
use super::tls::DonorTls;
use super::wake::{self, Wake};
use super::{
    Announcement, Cancel, Counters, Event, HostPort, Limits, MAX_OFFER, Observer, Secret, Security,
    SecurityError, TransferError,
};

/// How long blocks of a lost connection wait for word of the joiner, which knows what it has, before
/// another connection sends them again.
const DOUBT: Duration = Duration::from_secs(2);
/// Pauses between tries to connect.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How the donor's side is set up.
#[derive(Debug, Clone, Default)]
pub struct Donor {
    /// Certificates, or not.
    pub security: Security,
    /// Times and sizes.
    pub limits: Limits,
    /// Ends everything.
    pub cancel: Cancel,
    /// Who is told what happens.
    pub observer: Observer,
}

/// Connects to the joiner that has announced itself, and waits for its answer to `offer`, which the
/// layer above makes and reads; at most [`MAX_OFFER`] bytes.
///
/// # Errors
/// [`TransferError`]: unreachable, foreign, another version, certificates, refused.
pub fn connect(
    announcement: &Announcement,
    offer: &[u8],
    donor: Donor,
) -> Result<Outgoing, TransferError> {
    if offer.len() > MAX_OFFER {
        return Err(TransferError::TooLong { what: "offer", len: offer.len(), max: MAX_OFFER });
    }
    let Donor { security, limits, cancel, observer } = donor;
    let address = announcement.address().clone();
    let tls = DonorTls::new(&security, announcement.protection(), &address)?;
    let resolved = (address.host(), address.port()).to_socket_addrs();
    let targets: Vec<SocketAddr> = resolved
        .map_err(|error| TransferError::Unreachable {
            address: address.clone(),
            cause: error.to_string(),
            firewall: false,
        })?
        .collect();
    let now = Instant::now();
    let state = State {
        sending: Sending::new(limits.window_size()),
        rate: limits.rate.map(Rate::new),
        over: None,
        answer: None,
        first_welcome: None,
        most_connections: 1,
        end: None,
        workers: Vec::new(),
        next_link: 0,
        up: 0,
        in_doubt: Vec::new(),
        last_progress: now,
        refusing_since: None,
        last_cause: "no connection yet".to_owned(),
        no_work: None,
        no_credit: None,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        changed: Condvar::new(),
        counters: Arc::new(Counters::default()),
        transfer: Transfer::new().map_err(SecurityError::from)?,
        secret: announcement.secret().cloned(),
        offer: offer.to_vec(),
        begun: now,
        address,
        targets,
        tls,
        limits,
        cancel,
        observer,
    });
    let weak: Weak<Shared> = Arc::downgrade(&shared);
    shared.cancel.register(weak);
    let block = shared.limits.block_size();
    let mut outgoing = Outgoing {
        shared,
        threads: Vec::new(),
        answer: Vec::new(),
        pending: Pending::default(),
        block,
    };
    // From here on dropping it ends the threads.
    outgoing.spawn(0)?;
    outgoing.await_answer()?;
    outgoing.spawn_rest()?;
    Ok(outgoing)
}

/// The sending end of a transfer. Dropped without [`Outgoing::finish`] it aborts the transfer.
#[derive(Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    answer: Vec<u8>,
    pending: Pending,
    block: usize,
}

impl Outgoing {
    /// The joiner's answer to the offer.
    pub fn answer(&self) -> &[u8] {
        &self.answer
    }

    /// Live numbers; they can be kept beyond the transfer.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Takes the next bytes of the stream. Waits while the window is full.
    ///
    /// # Errors
    /// The first cause, when the transfer has failed.
    pub fn send(&mut self, bytes: Bytes) -> Result<(), TransferError> {
        self.send_all([bytes])
    }

    /// The same for several slices that follow each other.
    ///
    /// # Errors
    /// As [`Outgoing::send`].
    pub fn send_all(
        &mut self,
        bytes: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), TransferError> {
        for bytes in bytes {
            self.pending.push(bytes);
            while self.pending.len >= self.block {
                let block = self.pending.take(self.block);
                self.shared.push(block)?;
            }
        }
        if self.pending.len >= MIN_BLOCK {
            let block = self.pending.take(self.block);
            self.shared.push(block)?;
        }
        Ok(())
    }

    /// Whether the transfer has failed meanwhile; for a caller whose source is silent.
    ///
    /// # Errors
    /// The first cause.
    pub fn check(&self) -> Result<(), TransferError> {
        self.shared.check(&mut self.shared.state())
    }

    /// Ends the stream and waits until the joiner has confirmed that it received, verified and kept
    /// everything.
    ///
    /// # Errors
    /// The first cause; then the joiner has not confirmed.
    pub fn finish(mut self) -> Result<(), TransferError> {
        if self.pending.len > 0 {
            let block = self.pending.take(self.block);
            self.shared.push(block)?;
        }
        let result = self.shared.finish();
        self.join();
        result
    }

    /// Ends the transfer; the joiner is told why.
    pub fn abort(mut self, reason: &str) {
        self.shared.abort(reason);
        self.join();
    }

    fn spawn(&mut self, connection: u16) -> Result<(), TransferError> {
        let wake = Arc::new(Wake::new()?);
        self.shared.state().workers.push(Worker {
            wake: Arc::clone(&wake),
            idle: false,
            live: true,
        });
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(format!("wire-{connection}"));
        self.threads.push(thread.spawn(move || shared.work(connection, &wake))?);
        Ok(())
    }

    fn await_answer(&mut self) -> Result<(), TransferError> {
        let limit = self.shared.limits.answer;
        let mut state = self.shared.state();
        loop {
            self.shared.check(&mut state)?;
            if let Some(answer) = &state.answer {
                self.answer.clone_from(answer);
                return Ok(());
            }
            let left = match state.first_welcome {
                Some(at) => (at + limit).saturating_duration_since(Instant::now()),
                // The connecting thread has its own limits.
                None => limit,
            };
            if left.is_zero() {
                return Err(self
                    .shared
                    .fail(&mut state, TransferError::NoAnswer { waited: limit }));
            }
            state = self.shared.wait(state, Some(left));
        }
    }

    fn spawn_rest(&mut self) -> Result<(), TransferError> {
        let round_trip = self.shared.counters.snapshot().round_trip;
        let connections = match self.shared.limits.connections {
            Some(number) => number.get(),
            None => by_round_trip(
                round_trip,
                std::thread::available_parallelism().map_or(1, Into::into),
            ),
        };
        let most = self.shared.state().most_connections;
        let connections = connections.min(MAX_CONNECTIONS).min(most).max(1);
        self.shared.observer.tell(&Event::Chosen { connections, round_trip });
        for connection in 1..connections {
            self.spawn(connection.into())?;
        }
        Ok(())
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has spoken for itself, and left the transfer without a confirmation.
            let _ = thread.join();
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.abort("the donor has ended the transfer");
        self.join();
    }
}

/// One TCP window a round trip is what one connection can carry; on a short way one or two saturate
/// the cores, on a long one only their number helps.
fn by_round_trip(round_trip: Duration, cores: usize) -> u8 {
    match round_trip.as_micros() {
        0..2_000 if cores < 4 => 1,
        0..5_000 => 2,
        5_000..20_000 => 4,
        20_000..60_000 => 6,
        _ => 8,
    }
}

/// Bytes that do not fill a block yet.
#[derive(Debug, Default)]
struct Pending {
    slices: VecDeque<Bytes>,
    len: usize,
}

impl Pending {
    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.slices.push_back(bytes);
        }
    }

    /// The first `most` bytes, or all.
    fn take(&mut self, most: usize) -> Vec<Bytes> {
        let mut taken = Vec::new();
        let mut left = most;
        while left > 0
            && let Some(mut first) = self.slices.pop_front()
        {
            if first.len() > left {
                let now = first.split_to(left);
                self.slices.push_front(first);
                first = now;
            }
            left -= first.len();
            self.len -= first.len();
            taken.push(first);
        }
        taken
    }
}

#[derive(Debug)]
struct Worker {
    wake: Arc<Wake>,
    /// It waits for a block.
    idle: bool,
    /// It has not given up its connection for good.
    live: bool,
}

/// How it ended.
#[derive(Debug, Clone)]
enum Over {
    Confirmed,
    Failed { error: TransferError, tell: Option<Stop> },
}

#[derive(Debug)]
struct State {
    sending: Sending,
    rate: Option<Rate>,
    over: Option<Over>,
    answer: Option<Vec<u8>>,
    /// When the joiner first said welcome.
    first_welcome: Option<Instant>,
    /// How many connections it takes.
    most_connections: u8,
    /// Totals, once the stream has ended.
    end: Option<(u64, u64)>,
    workers: Vec<Worker>,
    next_link: u64,
    up: usize,
    /// Lost links whose blocks are in doubt, and until when.
    in_doubt: Vec<(u64, Instant)>,
    last_progress: Instant,
    refusing_since: Option<Instant>,
    last_cause: String,
    no_work: Option<Instant>,
    no_credit: Option<Instant>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    counters: Arc<Counters>,
    transfer: Transfer,
    secret: Option<Secret>,
    offer: Vec<u8>,
    begun: Instant,
    address: HostPort,
    targets: Vec<SocketAddr>,
    tls: Option<DonorTls>,
    limits: Limits,
    cancel: Cancel,
    observer: Observer,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Wakes for Shared {
    fn wake_all(&self) {
        let state = self.state();
        self.changed.notify_all();
        state.workers.iter().for_each(|worker| worker.wake.wake());
    }
}

impl State {
    /// Has up to `blocks` idle connections look for work.
    fn wake_idle(&mut self, blocks: usize) {
        for worker in self.workers.iter_mut().filter(|worker| worker.idle).take(blocks) {
            worker.idle = false;
            worker.wake.wake();
        }
    }

    fn all_idle(&self) -> bool {
        self.up > 0 && self.workers.iter().all(|worker| worker.idle || !worker.live)
    }
}

/// The calls of [`Outgoing`].
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
            Some(Over::Confirmed) => Err(TransferError::Ended),
            None if self.cancel.is_cancelled() => Err(self.fail(state, TransferError::Cancelled)),
            None => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.state().over.is_some()
    }

    /// Ends the transfer with its first cause, which is given back.
    fn fail(&self, state: &mut State, error: TransferError) -> TransferError {
        let code = match &error {
            TransferError::Refused { .. } | TransferError::Aborted { .. } => None,
            TransferError::Protocol { .. } => Some(StopCode::Protocol),
            _ => Some(StopCode::Aborted),
        };
        let reason = error.to_string();
        self.end(state, error, code.map(|code| Stop { code, reason }))
    }

    fn end(&self, state: &mut State, error: TransferError, tell: Option<Stop>) -> TransferError {
        match &state.over {
            Some(Over::Failed { error, .. }) => return error.clone(),
            Some(Over::Confirmed) => return TransferError::Ended,
            None => {}
        }
        self.observer.tell(&Event::Failed { why: error.to_string() });
        state.over = Some(Over::Failed { error: error.clone(), tell });
        self.changed.notify_all();
        state.workers.iter().for_each(|worker| worker.wake.wake());
        error
    }

    fn abort(&self, reason: &str) {
        let stop = Stop { code: StopCode::Aborted, reason: reason.to_owned() };
        let mut state = self.state();
        if state.over.is_none() {
            self.end(&mut state, TransferError::Cancelled, Some(stop));
        }
    }

    fn push(&self, payload: Vec<Bytes>) -> Result<(), TransferError> {
        let len: usize = payload.iter().map(Bytes::len).sum();
        // A block is at most 1 MiB.
        let wire_len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut state = self.state();
        let mut since = None;
        loop {
            self.check(&mut state)?;
            if state.sending.has_room(len) {
                break;
            }
            since.get_or_insert_with(Instant::now);
            state = self.wait(state, None);
        }
        if let Some(since) = since {
            add_time(&self.counters.network, since.elapsed());
        }
        if let Some(since) = state.no_work.take() {
            add_time(&self.counters.source, since.elapsed());
        }
        state.sending.push(payload, wire_len);
        state.wake_idle(1);
        Ok(())
    }

    fn finish(&self) -> Result<(), TransferError> {
        let since = Instant::now();
        let mut state = self.state();
        state.end = Some(state.sending.totals());
        state.no_work = None;
        state.wake_idle(usize::MAX);
        loop {
            if matches!(state.over, Some(Over::Confirmed)) {
                add_time(&self.counters.network, since.elapsed());
                return Ok(());
            }
            self.check(&mut state)?;
            state = self.wait(state, None);
        }
    }
}

/// What one connection remembers.
#[derive(Debug, Default)]
struct Own {
    fin_sent: bool,
    /// A block that may go at this moment.
    held: Option<(Instant, Outbound)>,
    pongs: Vec<u64>,
}

enum Job {
    Message(Message),
    Block(Outbound),
    Wait(Instant),
    Close(Option<Message>),
}

/// How the work on one connection ended.
enum Ended {
    Over,
    Lost(String),
}

/// The threads, one a connection.
impl Shared {
    fn work(&self, connection: u16, wake: &Wake) {
        let index = usize::from(connection);
        let (mut pause, mut before) = (PAUSE.0, None);
        loop {
            if self.is_over() {
                // Where nobody has noticed yet, a cancel is noticed here.
                let _ = self.check(&mut self.state());
                break;
            }
            match self.open(connection, before.is_some(), wake) {
                Ok(opened) => {
                    let id = match self.begin(&opened, connection, before) {
                        Ok(id) => id,
                        Err(error) => {
                            self.fail(&mut self.state(), error);
                            break;
                        }
                    };
                    before = Some(id);
                    let ended = self.run(opened, index, id, wake);
                    self.connection_ended(id, index);
                    match ended {
                        Ended::Over => break,
                        Ended::Lost(why) => {
                            pause = PAUSE.0;
                            self.state().last_cause.clone_from(&why);
                            self.observer.tell(&Event::Lost { connection, why });
                        }
                    }
                }
                Err(error) => {
                    if self.give_up(connection, error) {
                        break;
                    }
                }
            }
            let until = Instant::now() + pause;
            pause = (pause * 2).min(PAUSE.1);
            while Instant::now() < until && !self.is_over() {
                if wake::wait(None, wake, Some(until)).is_err() {
                    break;
                }
            }
        }
        let mut state = self.state();
        if let Some(worker) = state.workers.get_mut(index) {
            (worker.live, worker.idle) = (false, false);
        }
    }

    fn open(
        &self,
        connection: u16,
        again: bool,
        wake: &Wake,
    ) -> Result<Opened<Welcome>, OpenError> {
        let cancelled = || self.is_over();
        let waiting = Waiting { wake, cancelled: &cancelled, limits: &self.limits };
        let first = connection == 0 && self.state().first_welcome.is_none();
        let mut last = None;
        for target in &self.targets {
            let until = Instant::now() + self.limits.connect;
            match open::connect_socket(*target, waiting, until) {
                Ok(socket) => {
                    let donor = open::Donor {
                        tls: self.tls.as_ref(),
                        secret: self.secret.as_ref(),
                        transfer: &self.transfer,
                        connection,
                        offer: first.then_some(&self.offer),
                    };
                    return donor.open(socket, waiting);
                }
                Err(error) => last = Some(error),
            }
        }
        let _ = again;
        let error = last.unwrap_or(LinkError::Closed);
        let kind = match &error {
            LinkError::Io(error) => Some(error.kind()),
            _ => None,
        };
        let cause = match (&error, kind) {
            (LinkError::Timeout, _) | (_, Some(io::ErrorKind::TimedOut)) => {
                format!("timed out after {} s", self.limits.connect.as_secs())
            }
            (_, Some(io::ErrorKind::ConnectionRefused)) => "connection refused".to_owned(),
            (LinkError::Closed, _) => "the name has no address".to_owned(),
            (error, _) => error.to_string(),
        };
        let refused = kind == Some(io::ErrorKind::ConnectionRefused);
        let address = self.address.clone();
        Err(OpenError {
            error: TransferError::Unreachable { address, cause, firewall: true },
            passing: !matches!(error, LinkError::Cancelled),
            refused,
        })
    }

    /// Whether to stop trying; the transfer may have failed with it.
    fn give_up(&self, connection: u16, failed: OpenError) -> bool {
        let mut state = self.state();
        if state.over.is_some() || self.cancel.is_cancelled() {
            return false;
        }
        let now = Instant::now();
        state.last_cause = failed.error.to_string();
        if state.first_welcome.is_none() {
            if failed.passing && now < self.begun + self.limits.connect {
                return false;
            }
            self.fail(&mut state, failed.error);
            return true;
        }
        if !failed.passing {
            // The others go on, if there are any.
            let index = usize::from(connection);
            let others = state.workers.iter().enumerate().any(|(n, w)| n != index && w.live);
            if !others {
                self.fail(&mut state, failed.error);
            }
            return true;
        }
        if failed.refused && state.up == 0 {
            let since = *state.refusing_since.get_or_insert(now);
            if now - since >= self.limits.refused.min(self.limits.resume) {
                let address = self.address.clone();
                self.fail(&mut state, TransferError::Gone { address });
                return true;
            }
        } else {
            state.refusing_since = None;
        }
        self.no_progress(&mut state, now)
    }

    /// Fails the transfer when there was no progress for too long.
    fn no_progress(&self, state: &mut State, now: Instant) -> bool {
        let waited = now.saturating_duration_since(state.last_progress);
        let too_long = waited >= self.limits.resume;
        if too_long {
            let cause = state.last_cause.clone();
            self.fail(state, TransferError::Lost { waited, cause });
        }
        too_long
    }

    /// Books a new connection in the place of one before it.
    fn begin(
        &self,
        opened: &Opened<Welcome>,
        connection: u16,
        before: Option<u64>,
    ) -> Result<u64, TransferError> {
        let (peer, welcome) = (opened.link.peer(), &opened.what);
        let mut state = self.state();
        let id = state.next_link;
        state.next_link += 1;
        let (freed, _) = state
            .sending
            .acknowledge(&welcome.have)
            .map_err(|error| TransferError::Protocol { peer, what: error.to_string() })?;
        add(&self.counters.acknowledged, freed);
        if let Some(before) = before {
            // The joiner has closed the old connection before it said what it has.
            state.sending.release(before);
            state.in_doubt.retain(|(link, _)| *link != before);
            self.counters.reconnects.fetch_add(1, Relaxed);
        }
        state.up += 1;
        state.refusing_since = None;
        if freed > 0 {
            state.last_progress = Instant::now();
        }
        state.first_welcome.get_or_insert_with(Instant::now);
        state.most_connections = u8::try_from(welcome.connections).unwrap_or(u8::MAX);
        self.round_trip(opened.round_trip);
        self.counters.connections.store(u32::try_from(state.up).unwrap_or(u32::MAX), Relaxed);
        state.wake_idle(usize::MAX);
        self.changed.notify_all();
        drop(state);
        self.observer.tell(&Event::Connected { connection, peer, again: before.is_some() });
        Ok(id)
    }

    fn connection_ended(&self, id: u64, index: usize) {
        let mut state = self.state();
        state.sending.lost(id);
        state.in_doubt.push((id, Instant::now() + DOUBT));
        state.up -= 1;
        self.counters.connections.store(u32::try_from(state.up).unwrap_or(u32::MAX), Relaxed);
        if let Some(worker) = state.workers.get_mut(index) {
            worker.idle = false;
        }
        // They see when the doubt ends.
        state.wake_idle(usize::MAX);
    }

    fn round_trip(&self, measured: Duration) {
        let nanos = u64::try_from(measured.as_nanos()).unwrap_or(u64::MAX);
        self.counters.round_trip.store(nanos, Relaxed);
    }

    fn run(&self, opened: Opened<Welcome>, index: usize, id: u64, wake: &Wake) -> Ended {
        let Opened { mut link, mut inbound, .. } = opened;
        let (pool, mut own) = (Pool::new(0, 0), Own::default());
        let tls = link.is_tls();
        let peer = link.peer();
        loop {
            loop {
                let data = |_: &_| Err(ProtocolError::Unexpected { what: "block" });
                match inbound.next(&mut link, &pool, data) {
                    Ok(Some(Item::Message(message))) => {
                        if let Err(error) = self.handle(message, peer, &mut own) {
                            // Its last words are in the state.
                            let _ = error;
                            break;
                        }
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(InboundError::Io(error)) => return Ended::Lost(in_words(&error)),
                    Err(InboundError::Protocol(error)) if tls => {
                        let what = error.to_string();
                        self.fail(&mut self.state(), TransferError::Protocol { peer, what });
                        break;
                    }
                    // Without TLS it may be a broken wire.
                    Err(InboundError::Protocol(error)) => return Ended::Lost(error.to_string()),
                }
            }
            let now = Instant::now();
            if now >= link.last_in() + self.limits.stall {
                let limit = self.limits.stall.as_secs();
                return Ended::Lost(format!("nothing came from the joiner for {limit} s"));
            }
            let flushed = match link.flush() {
                Ok(flushed) => flushed,
                Err(error) => return Ended::Lost(in_words(&error)),
            };
            let mut until = link.last_in() + self.limits.stall;
            if flushed {
                let mut worked = true;
                let queued = match self.next_job(index, id, &mut own, link.last_out()) {
                    Job::Message(message) => link.queue_all(vec![message.write().into()]),
                    Job::Block(block) => link.queue_all(self.dress(block, tls)),
                    Job::Close(message) => {
                        let last = message.map(|message| message.write().into());
                        if link.queue_all(last.into_iter().collect()).is_ok() {
                            link.close(wake, Instant::now() + self.limits.farewell);
                        }
                        return Ended::Over;
                    }
                    Job::Wait(at) => {
                        until = until.min(at);
                        worked = false;
                        Ok(())
                    }
                };
                if let Err(error) = queued {
                    return Ended::Lost(error.to_string());
                }
                match link.flush() {
                    // Something was written whole: look for more at once.
                    Ok(true) if worked => continue,
                    Ok(_) => {}
                    Err(error) => return Ended::Lost(in_words(&error)),
                }
            } else if self.is_over() {
                // It is told what it still takes within the limit.
                let last = self.last_words().map(|message| message.write().into());
                if link.queue_all(last.into_iter().collect()).is_ok() {
                    link.close(wake, Instant::now() + self.limits.farewell);
                }
                return Ended::Over;
            }
            if let Err(error) = link.wait(wake, Some(until)) {
                return Ended::Lost(in_words(&error));
            }
        }
    }

    fn handle(
        &self,
        message: Message,
        peer: SocketAddr,
        own: &mut Own,
    ) -> Result<(), TransferError> {
        let mut state = self.state();
        let now = Instant::now();
        match message {
            Message::Ack(ack) => {
                let (freed, more) = match state.sending.acknowledge(&ack) {
                    Ok(result) => result,
                    Err(error) => {
                        let what = error.to_string();
                        return Err(self.fail(&mut state, TransferError::Protocol { peer, what }));
                    }
                };
                if freed > 0 {
                    add(&self.counters.acknowledged, freed);
                    state.last_progress = now;
                    self.changed.notify_all();
                }
                if more {
                    if let Some(since) = state.no_credit.take() {
                        add_time(&self.counters.reader, since.elapsed());
                    }
                    if state.sending.has_ready() {
                        state.wake_idle(usize::MAX);
                    }
                }
            }
            Message::Answer(answer) => {
                state.answer.get_or_insert(answer);
                self.changed.notify_all();
            }
            Message::Confirm if state.end.is_some() => {
                if state.over.is_none() {
                    let (_, bytes) = state.sending.totals();
                    self.counters.acknowledged.store(bytes, Relaxed);
                    state.over = Some(Over::Confirmed);
                }
                self.changed.notify_all();
                state.workers.iter().for_each(|worker| worker.wake.wake());
            }
            Message::Stop(stop) => {
                let error = open::stopped(stop, "joiner", peer);
                return Err(self.end(&mut state, error, None));
            }
            Message::Ping(token) => own.pongs.push(token),
            Message::Pong(token) => {
                let sent = Duration::from_nanos(token);
                if let Some(took) = (now - self.begun).checked_sub(sent) {
                    self.round_trip(took);
                }
            }
            other => {
                let what = ProtocolError::Unexpected { what: other.name() }.to_string();
                return Err(self.fail(&mut state, TransferError::Protocol { peer, what }));
            }
        }
        Ok(())
    }

    /// What a connection with nothing left to write does next.
    fn next_job(&self, index: usize, id: u64, own: &mut Own, last_out: Instant) -> Job {
        let mut state = self.state();
        let now = Instant::now();
        if self.check(&mut state).is_err() {
            drop(state);
            return Job::Close(self.last_words());
        }
        if state.sending.is_under_way() {
            if self.no_progress(&mut state, now) {
                drop(state);
                return Job::Close(self.last_words());
            }
        } else {
            state.last_progress = now;
        }
        if let Some(token) = own.pongs.pop() {
            return Job::Message(Message::Pong(token));
        }
        let ping_at = last_out + self.limits.heartbeat;
        if now >= ping_at {
            let token = u64::try_from((now - self.begun).as_nanos()).unwrap_or(u64::MAX);
            return Job::Message(Message::Ping(token));
        }
        let mut until = ping_at;
        if state.sending.is_under_way() {
            until = until.min(state.last_progress + self.limits.resume);
        }
        if let Some((at, block)) = own.held.take() {
            if now >= at {
                return Job::Block(block);
            }
            own.held = Some((at, block));
            return Job::Wait(until.min(at));
        }
        let State { sending, in_doubt, .. } = &mut *state;
        in_doubt.retain(|(link, at)| {
            let still = now < *at;
            if still {
                until = until.min(*at);
            } else {
                sending.release(*link);
            }
            still
        });
        match state.sending.take(id) {
            Take::Block(block) => {
                let len = block.head.len as usize;
                let at = state.rate.as_mut().map_or(now, |rate| rate.reserve(len, now));
                if at > now {
                    own.held = Some((at, block));
                    return Job::Wait(until.min(at));
                }
                return Job::Block(block);
            }
            Take::Empty => {
                if let (Some((blocks, bytes)), false) = (state.end, own.fin_sent) {
                    own.fin_sent = true;
                    return Job::Message(Message::Fin { blocks, bytes });
                }
                self.set_idle(&mut state, index);
                if state.all_idle() && state.end.is_none() {
                    state.no_work.get_or_insert(now);
                }
            }
            Take::NoCredit => {
                self.set_idle(&mut state, index);
                if state.all_idle() {
                    state.no_credit.get_or_insert(now);
                }
            }
        }
        Job::Wait(until)
    }

    fn set_idle(&self, state: &mut State, index: usize) {
        if let Some(worker) = state.workers.get_mut(index) {
            worker.idle = true;
        }
    }

    fn last_words(&self) -> Option<Message> {
        match &self.state().over {
            Some(Over::Confirmed) => Some(Message::Bye),
            Some(Over::Failed { tell, .. }) => tell.clone().map(Message::Stop),
            None => None,
        }
    }

    /// Head and payload of a block; with a checksum where TLS does not guard it.
    fn dress(&self, mut block: Outbound, tls: bool) -> Vec<Bytes> {
        let len = block.head.len as usize;
        add(&self.counters.sent, len);
        if block.again {
            add(&self.counters.resent, len);
        }
        if !tls {
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            block.payload.iter().for_each(|bytes| digest.update(bytes));
            block.head.checksum = Some(super::pool::low_half(digest.finalize()));
        }
        let mut out = Vec::with_capacity(1 + block.payload.len());
        out.push(Bytes::copy_from_slice(&message::write_data_head(&block.head)));
        out.append(&mut block.payload);
        out
    }
}

/// An end is the most likely thing to go wrong, and its own words say nothing.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the peer closed it".to_owned(),
        io::ErrorKind::ConnectionReset => "it was reset".to_owned(),
        io::ErrorKind::TimedOut => "the peer did not acknowledge anything".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_cut_without_losing_a_byte(lens in proptest::collection::vec(0_usize..50, 0..20), most in 1_usize..30) {
            let mut pending = Pending::default();
            let mut whole: Vec<u8> = Vec::new();
            for (n, len) in lens.iter().enumerate() {
                let bytes = vec![n as u8; *len];
                whole.extend(&bytes);
                pending.push(bytes.into());
            }
            let mut out = Vec::new();
            while pending.len > 0 {
                let block = pending.take(most).concat();
                prop_assert!(block.len() == most || pending.len == 0);
                out.extend(block);
            }
            prop_assert_eq!(out, whole);
        }
    }

    #[test]
    fn more_connections_on_a_longer_way() {
        let number = |millis, cores| by_round_trip(Duration::from_millis(millis), cores);
        assert_eq!((number(0, 2), number(0, 8), number(1, 2)), (1, 2, 1));
        assert_eq!((number(10, 2), number(30, 2), number(100, 2)), (4, 6, 8));
    }
}
