//! The donor's side of a transfer: [`connect`] and [`Outgoing`].

mod api;
mod block_builder;
mod connection;
mod questions;
mod rate_limit;
mod session;
mod state;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use xb_process::{CancelHook, CancelToken};

use self::block_builder::Pending;
pub use self::questions::{Questions, QuestionsWaker, ReplyWait};
use self::rate_limit::Rate;
use self::state::{Own, Shared, State, Worker};
use crate::announce::Announcement;
use crate::counters::Counters;
use crate::endpoint::{Endpoint, FailOnPanic};
use crate::error::{SecurityError, TransferError};
use crate::event::{Event, Observer};
use crate::ledger::questions::PendingQuestions;
use crate::ledger::send::SendLedger;
use crate::limits::{AGAIN_SINCE, MAX_CONNECTIONS, MIN_BLOCK, QUESTIONS_SINCE};
use crate::limits::{Limits, MAX_OFFER};
use crate::link::wake::Wake;
use crate::monitor::Monitor;
use crate::protocol::banner::{Banner, BannerKind};
use crate::security::Security;
use crate::security::proof::Transfer;
use crate::security::tls::DonorTls;

/// Time limit of each step of [`decline`].
const DECLINE: Duration = Duration::from_secs(5);

/// Configuration of the donor's side.
#[derive(Debug, Clone, Default)]
pub struct Donor {
    /// Protection of the connections.
    pub security: Security,
    /// Time limits and sizes.
    pub limits: Limits,
    /// Cancels the transfer.
    pub cancel: CancelToken<String>,
    /// Receives the events.
    pub observer: Observer,
}

/// Connects to the joiner that sent the announcement, and waits for its answer to `offer`. The
/// layer above creates and parses the offer, which has at most [`MAX_OFFER`] bytes.
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
    let limits = limits.bounded();
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
        ledger: SendLedger::new(limits.window_size()),
        questions: PendingQuestions::default(),
        is_woken: false,
        rate: limits.rate.map(Rate::new),
        over: None,
        failure_reported: false,
        answer: None,
        version: 0,
        first_welcome: None,
        most_connections: 1,
        end: None,
        workers: Vec::new(),
        next_link: 0,
        up: 0,
        in_doubt: Vec::new(),
        last_progress: now,
        joiner_worked: now,
        refusing_since: None,
        last_cause: "no connection yet".to_owned(),
        no_work: None,
        no_credit: None,
    };
    let own = Own {
        transfer: Transfer::new().map_err(SecurityError::from)?,
        offer: offer.to_vec(),
        begun: now,
        address,
        targets,
        tls,
    };
    let shared = Arc::new(Endpoint {
        monitor: Monitor::new(state),
        counters: Arc::new(Counters::default()),
        secret: announcement.secret().cloned(),
        limits,
        cancel,
        observer,
        own,
    });
    let hook = Endpoint::on_cancel(&shared);
    let block = shared.limits.block_size();
    let mut outgoing = Outgoing {
        shared,
        threads: Vec::new(),
        answer: Vec::new(),
        pending: Pending::default(),
        block,
        _hook: hook,
    };
    // From here on, dropping it ends the threads.
    outgoing.spawn(0)?;
    outgoing.await_answer()?;
    outgoing.spawn_rest()?;
    Ok(outgoing)
}

/// Tells the joiner that sent the announcement that this donor cannot connect to it, and why: it does not know its own side
/// of what differs. An attempt, without a result.
pub fn decline(announcement: &Announcement, reason: &str) {
    let (min_version, max_version) = Limits::default().versions();
    let kind = BannerKind::No(reason.to_owned());
    let line = Banner { min_version, max_version, kind }.write();
    let address = announcement.address();
    let targets = (address.host(), address.port()).to_socket_addrs();
    for target in targets.into_iter().flatten() {
        if let Ok(mut socket) = TcpStream::connect_timeout(&target, DECLINE) {
            let _ = socket.set_write_timeout(Some(DECLINE)).and_then(|()| socket.write_all(&line));
            return;
        }
    }
}

/// The sending end of a transfer. Dropping it without [`Outgoing::finish`] aborts the transfer.
#[derive(Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    answer: Vec<u8>,
    pending: Pending,
    block: usize,
    _hook: CancelHook<String>,
}

impl Outgoing {
    /// The joiner's answer to the offer.
    pub fn answer(&self) -> &[u8] {
        &self.answer
    }

    /// Returns whether the joiner understands a stream that begins again.
    pub fn can_begin_again(&self) -> bool {
        self.shared.monitor.lock().version >= AGAIN_SINCE
    }

    /// Begins the stream again: the joiner discards what was sent before. Only for a joiner that
    /// [understands](Outgoing::can_begin_again) this, once, and the new stream must not be empty.
    pub fn begin_again(&mut self) {
        self.pending = Pending::default();
        self.shared.monitor.lock().ledger.begin_again();
    }

    /// Returns a handle that asks the joiner's layer above. Only for a joiner that is known to answer: the layers
    /// above agree on that in offer and answer. `None` if the joiner's version of the protocol has no questions.
    pub fn questions(&self) -> Option<Questions> {
        let has_questions = self.shared.monitor.lock().version >= QUESTIONS_SINCE;
        has_questions.then(|| Questions::new(Arc::clone(&self.shared)))
    }

    /// Live counters, which remain usable after the transfer.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Sends the next bytes of the stream. Waits while the credit is used up.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed.
    pub fn send(&mut self, bytes: Bytes) -> Result<(), TransferError> {
        self.send_all([bytes])
    }

    /// Like [`Outgoing::send`], for several consecutive slices.
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

    /// Sends what [`Outgoing::send`] has collected, however short: for a caller that waits for something that depends on
    /// it.
    ///
    /// # Errors
    /// As [`Outgoing::send`].
    pub fn pass_on(&mut self) -> Result<(), TransferError> {
        if self.pending.len > 0 {
            let block = self.pending.take(self.block);
            self.shared.push(block)?;
        }
        Ok(())
    }

    /// Checks whether the transfer has failed, for a caller whose source produces no data.
    ///
    /// # Errors
    /// The first cause.
    pub fn check(&self) -> Result<(), TransferError> {
        self.shared.check(&mut self.shared.monitor.lock())
    }

    /// Ends the stream and waits until the joiner has confirmed that it received, verified and
    /// stored everything.
    ///
    /// # Errors
    /// The first cause; in that case the joiner has not confirmed.
    pub fn finish(mut self) -> Result<(), TransferError> {
        self.pass_on()?;
        if self.shared.monitor.lock().ledger.is_beginning() {
            // Nothing has told the joiner to discard what it has.
            self.shared.abort("the donor's stream began again and has no bytes");
            return Err(TransferError::Cancelled);
        }
        let result = self.shared.finish();
        self.join();
        result
    }

    /// Aborts the transfer, and sends `reason` to the joiner.
    pub fn abort(mut self, reason: &str) {
        self.shared.abort(reason);
        self.join();
    }

    fn spawn(&mut self, connection: u16) -> Result<(), TransferError> {
        let wake = Arc::new(Wake::new()?);
        self.shared.monitor.lock().workers.push(Worker {
            wake: Arc::clone(&wake),
            idle: false,
            live: true,
        });
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(format!("wire-{connection}"));
        let work = move || {
            let fuse = FailOnPanic(&shared);
            shared.work(connection, &wake);
            drop(fuse);
        };
        self.threads.push(thread.spawn(work)?);
        Ok(())
    }

    fn await_answer(&mut self) -> Result<(), TransferError> {
        let limit = self.shared.limits.answer;
        let mut state = self.shared.monitor.lock();
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
            state = self.shared.monitor.wait(state, Some(left));
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
        let most = self.shared.monitor.lock().most_connections;
        let connections = connections.min(MAX_CONNECTIONS).min(most).max(1);
        self.shared.observer.tell(&Event::Chosen { connections, round_trip });
        for connection in 1..connections {
            self.spawn(connection.into())?;
        }
        Ok(())
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has printed its message, and left the transfer without a confirmation.
            let _ = thread.join();
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.abort("the donor ended the transfer");
        self.join();
    }
}

/// Chooses the number of connections. One connection carries one TCP window per round trip. With
/// short round trips one or two connections saturate the cores; with long ones only more
/// connections help.
fn by_round_trip(round_trip: Duration, cores: usize) -> u8 {
    match round_trip.as_micros() {
        0..2_000 if cores < 4 => 1,
        0..5_000 => 2,
        5_000..20_000 => 4,
        20_000..60_000 => 6,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_on_a_longer_way() {
        let number = |millis, cores| by_round_trip(Duration::from_millis(millis), cores);
        assert_eq!((number(0, 2), number(0, 8), number(1, 2)), (1, 2, 1));
        assert_eq!((number(10, 2), number(30, 2), number(100, 2)), (4, 6, 8));
    }
}
