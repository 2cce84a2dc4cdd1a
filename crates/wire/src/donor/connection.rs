//! The thread of one connection: opens and reopens it until the transfer is over.

use std::io;
use std::time::{Duration, Instant};

use super::state::{Shared, State};
use crate::error::TransferError;
use crate::event::Event;
use crate::handshake::donor::{Donor, connect_socket};
use crate::handshake::{Established, OpenError, WaitContext};
use crate::link::LinkError;
use crate::link::wake::{self, Wake};
use crate::protocol::message::Welcome;

/// Shortest and longest pause between attempts to connect.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Longest duration of one attempt to reconnect. The system's own retries within an attempt become
/// ever rarer, so that a restored network path would be noticed late.
const TRY: Duration = Duration::from_secs(4);

/// Outcome of the work on one connection.
pub(super) enum ConnectionEnd {
    Over,
    Lost(String),
}

/// The threads, one per connection.
impl Shared {
    pub(super) fn work(&self, connection: u16, wake: &Wake) {
        let index = usize::from(connection);
        let (mut pause, mut before) = (PAUSE.0, None);
        loop {
            if self.has_ended() {
                // If no other thread has noticed a cancellation yet, it is noticed here.
                let _ = self.check(&mut self.monitor.lock());
                break;
            }
            match self.open(connection, wake) {
                Ok(opened) => {
                    let id = match self.begin(&opened, connection, before) {
                        Ok(id) => id,
                        Err(error) => {
                            self.fail(&mut self.monitor.lock(), error);
                            break;
                        }
                    };
                    before = Some(id);
                    let ended = self.run(opened, index, id, wake);
                    self.connection_ended(id, index);
                    match ended {
                        ConnectionEnd::Over => break,
                        // At the end the joiner may close first.
                        ConnectionEnd::Lost(_) if self.has_ended() => {}
                        ConnectionEnd::Lost(why) => {
                            pause = PAUSE.0;
                            self.monitor.lock().last_cause.clone_from(&why);
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
            while Instant::now() < until && !self.has_ended() {
                if wake::wait(None, wake, Some(until)).is_err() {
                    break;
                }
            }
        }
        {
            let mut state = self.monitor.lock();
            if let Some(worker) = state.workers.get_mut(index) {
                (worker.live, worker.idle) = (false, false);
            }
        }
        self.report_failure();
    }

    fn open(&self, connection: u16, wake: &Wake) -> Result<Established<Welcome>, OpenError> {
        let cancelled = || self.has_ended();
        let waiting = WaitContext { wake, cancelled: &cancelled, limits: &self.limits };
        let first = connection == 0 && self.monitor.lock().first_welcome.is_none();
        let limit = if first { self.limits.connect } else { self.limits.connect.min(TRY) };
        let mut last = None;
        for target in &self.targets {
            let until = Instant::now() + limit;
            match connect_socket(*target, waiting, until) {
                Ok(socket) => {
                    let donor = Donor {
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
        let error = last.unwrap_or(LinkError::Closed);
        let kind = match &error {
            LinkError::Io(error) => Some(error.kind()),
            _ => None,
        };
        let cause = match (&error, kind) {
            (LinkError::Timeout, _) | (_, Some(io::ErrorKind::TimedOut)) => {
                format!("timed out after {} s", limit.as_secs())
            }
            (_, Some(io::ErrorKind::ConnectionRefused)) => "connection refused".to_owned(),
            (LinkError::Closed, _) => "the host name has no address".to_owned(),
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

    /// Returns whether to stop trying; the transfer may fail because of that.
    fn give_up(&self, connection: u16, failed: OpenError) -> bool {
        let mut state = self.monitor.lock();
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
            // The other connections continue, if there are any.
            if let Some(worker) = state.workers.get_mut(usize::from(connection)) {
                // Set now, under the lock: if two threads leave at once, the second must see it.
                worker.live = false;
            }
            if !state.workers.iter().any(|worker| worker.live) {
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

    /// Fails the transfer if there was no progress for too long.
    pub(super) fn no_progress(&self, state: &mut State, now: Instant) -> bool {
        let waited = now.saturating_duration_since(state.last_progress);
        let too_long = waited >= self.limits.resume;
        if too_long {
            let cause = state.last_cause.clone();
            self.fail(state, TransferError::Lost { waited, cause });
        }
        too_long
    }

    /// Registers a new connection in the place of an earlier one.
    fn begin(
        &self,
        opened: &Established<Welcome>,
        connection: u16,
        before: Option<u64>,
    ) -> Result<u64, TransferError> {
        let (peer, welcome) = (opened.link.peer(), &opened.what);
        let mut state = self.monitor.lock();
        let id = state.next_link;
        state.next_link += 1;
        let (freed, _) = state
            .ledger
            .acknowledge(&welcome.have)
            .map_err(|error| TransferError::Protocol { peer, what: error.to_string() })?;
        self.counters.update(|now| now.acknowledged += freed as u64);
        if let Some(before) = before {
            // The joiner closed the old connection before it reported which blocks it has.
            state.ledger.release(before);
            state.in_doubt.retain(|(link, _)| *link != before);
            self.counters.update(|now| now.reconnects += 1);
        }
        state.up += 1;
        state.refusing_since = None;
        if freed > 0 {
            state.last_progress = Instant::now();
        }
        state.first_welcome.get_or_insert_with(Instant::now);
        state.version = welcome.version;
        state.most_connections = u8::try_from(welcome.connections).unwrap_or(u8::MAX);
        self.round_trip(opened.round_trip);
        let up = u32::try_from(state.up).unwrap_or(u32::MAX);
        self.counters.update(|now| now.connections = up);
        state.wake_idle(usize::MAX);
        self.monitor.notify();
        drop(state);
        self.observer.tell(&Event::Connected { connection, peer, again: before.is_some() });
        Ok(id)
    }

    fn connection_ended(&self, id: u64, index: usize) {
        let mut state = self.monitor.lock();
        state.ledger.lost(id);
        state.questions.repeat();
        state.in_doubt.push((id, Instant::now() + self.limits.doubt));
        state.up -= 1;
        let up = u32::try_from(state.up).unwrap_or(u32::MAX);
        self.counters.update(|now| now.connections = up);
        if let Some(worker) = state.workers.get_mut(index) {
            worker.idle = false;
        }
        // Idle threads check when the doubt ends.
        state.wake_idle(usize::MAX);
    }

    pub(super) fn round_trip(&self, measured: Duration) {
        self.counters.update(|now| now.round_trip = measured);
    }
}
