//! Accepts connections, and decides which of them are the donor's.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::pending_peers::PendingPeer;
use super::state::{Current, LinkEntry, Shared, State};
use crate::endpoint::FailOnPanic;
use crate::error::TransferError;
use crate::event::Event;
use crate::handshake::joiner::{DonorHello, RejectedPeer, receive};
use crate::handshake::{Established, WaitContext};
use crate::limits::{MAX_CONNECTIONS, MAX_PEER_THREADS};
use crate::link::Link;
use crate::link::wake::{self, Interest, Wake};
use crate::protocol::message::{Message, StopCode, StopMessage, Welcome};
use crate::security::proof::{Side, Transfer};
use crate::transfer_end::TransferEnd;

/// Time until connections are accepted again after the system could not.
const RETRY: Duration = Duration::from_millis(100);
/// Maximum number of refused connections that are logged.
const MAX_REPORTED: u32 = 100;

/// Returns whether connections cannot be accepted for a while: as long as there is no descriptor, the connection stays in
/// the queue, and the socket readable.
fn lasts(failure: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    !matches!(failure, WouldBlock | Interrupted | ConnectionAborted)
}

/// One thread accepts connections, and each connection has its own thread.
impl Shared {
    pub(super) fn accept_peers(self: &Arc<Self>) {
        loop {
            let until = {
                let mut state = self.monitor.lock();
                if self.check(&mut state).is_err() {
                    break;
                }
                self.too_long_alone(&mut state)
            };
            let has_room = || self.monitor.lock().thread_count < MAX_PEER_THREADS;
            let socket = has_room().then(|| (self.listener.as_fd(), Interest::Read));
            if wake::wait(socket, &self.acceptor_wake, until).is_err() {
                break;
            }
            let mut failure = None;
            while has_room() && failure.is_none() {
                match self.listener.accept() {
                    Ok((socket, peer)) => self.accept_peer(socket, peer),
                    Err(error) => failure = Some(error.kind()),
                }
            }
            let pause = Some(Instant::now() + RETRY);
            if failure.is_some_and(lasts) && wake::wait(None, &self.acceptor_wake, pause).is_err() {
                break;
            }
        }
        self.report_failure();
        let peer_threads = std::mem::take(&mut self.monitor.lock().peer_threads);
        for accepted in peer_threads {
            let _ = accepted.join();
        }
    }

    /// Reports a failure without the lock: the observer may call back.
    fn report_failure(&self) {
        let state = self.monitor.lock();
        if let (Some(TransferEnd::Failed { error, .. }), Some(_)) = (&state.over, &state.transfer) {
            let why = error.to_string();
            drop(state);
            self.observer.tell(&Event::Failed { why });
        }
    }

    /// Fails a transfer whose donor does not return. Returns the time of the next check.
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

    fn accept_peer(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        // If there is no descriptor or thread, the socket is closed, and the donor tries again.
        let Ok(pending) = Wake::new().map(PendingPeer::new).map(Arc::new) else { return };
        let mut state = self.monitor.lock();
        state.peer_threads.retain(|accepted| !accepted.is_finished());
        state.pending_peers.insert(Arc::clone(&pending));
        state.thread_count += 1;
        let accepted = AcceptedPeer { shared: Arc::clone(self), pending };
        let thread = std::thread::Builder::new().name("wire-in".to_owned());
        let welcome = move || {
            let fuse = FailOnPanic(&accepted.shared);
            accepted.shared.welcome(socket, peer, &accepted.pending);
            drop(fuse);
        };
        // If the thread cannot be spawned, dropping the closure takes the lock.
        drop(state);
        if let Ok(accepted) = thread.spawn(welcome) {
            self.monitor.lock().peer_threads.push(accepted);
        }
    }

    fn welcome(&self, socket: TcpStream, peer: SocketAddr, pending: &Arc<PendingPeer>) {
        let cancelled = || self.has_ended() || pending.is_evicted();
        let wake = &pending.wake;
        let waiting = WaitContext { wake, cancelled: &cancelled, limits: &self.limits };
        let spoke = || pending.has_spoken();
        let opened = match receive(socket, self.tls.as_ref(), waiting, || pending.spoke()) {
            Ok(opened) => opened,
            Err(RejectedPeer::Cancelled) => {
                if pending.is_evicted() && !self.has_ended() {
                    let what = "it did not identify itself before newer connections arrived";
                    self.tell_of_stranger(peer, what.to_owned(), spoke());
                }
                return;
            }
            Err(RejectedPeer::Invalid(what)) => {
                self.tell_of_stranger(peer, what, spoke());
                return;
            }
            Err(RejectedPeer::Declines(what)) => {
                self.tell_of_stranger(peer, what, true);
                return;
            }
        };
        let Established { mut link, inbound, what: introduced, .. } = opened;
        let connection = introduced.hello.connection;
        match self.admit(&introduced, &link, peer, wake) {
            Ok((id, welcome, again)) => {
                self.monitor.lock().pending_peers.remove(pending);
                drop(introduced);
                self.observer.tell(&Event::Connected { connection, peer, again });
                let queued = link.queue(Message::Welcome(welcome).write().into());
                let why = match queued {
                    Ok(()) => self.serve(link, inbound, peer, wake),
                    Err(error) => Some(error.to_string()),
                };
                self.leave(id, connection, why);
            }
            Err(None) => {}
            Err(Some(stop)) => {
                let what = stop.reason.clone();
                if link.queue(Message::Stop(stop).write().into()).is_ok() {
                    link.close(wake, Instant::now() + self.limits.farewell);
                }
                self.tell_of_stranger(peer, what, true);
            }
        }
    }

    /// Logs a refused connection; limited, so that repeated attempts cannot fill the log.
    fn tell_of_stranger(&self, peer: SocketAddr, mut what: String, spoke: bool) {
        let told = self.rejections_logged.fetch_add(1, Relaxed);
        if told == MAX_REPORTED {
            what.push_str("; further refusals are not logged");
        }
        if told <= MAX_REPORTED {
            self.observer.tell(&Event::RejectedPeer { peer, what, spoke });
        }
    }

    /// Decides whether a donor is the right one, and adds its connection.
    fn admit(
        &self,
        introduced: &DonorHello,
        link: &Link,
        peer: SocketAddr,
        wake: &Arc<Wake>,
    ) -> Result<(u64, Welcome, bool), Option<StopMessage>> {
        let DonorHello { hello, version, at } = introduced;
        let (secret, connection) = (self.secret.as_ref(), hello.connection);
        if connection >= MAX_CONNECTIONS.into() {
            return no(StopCode::Protocol, "more connections than are allowed");
        }
        let socket = link.socket().try_clone().map_err(|_| None)?;

        let mut state = self.monitor.lock();
        self.recognize(&mut state, introduced, peer)?;
        let mut state = self.end_predecessor(state, connection)?;
        state.version = *version;
        let id = state.next_link;
        state.next_link += 1;
        let again = std::mem::replace(&mut state.seen[usize::from(connection)], true);
        if again {
            self.counters.update(|now| now.reconnects += 1);
        }
        state.links.push(LinkEntry { id, connection, wake: Arc::clone(wake), socket });
        self.count(&state);
        let have = state.ledger.ack();
        let transfer = state.transfer.as_ref().map(|current| &current.transfer);
        let proof = transfer
            .map(|transfer| transfer.prove(secret, Side::Joiner, connection, at))
            .unwrap_or_default();
        let connections = MAX_CONNECTIONS.into();
        let welcome = Welcome { version: *version, connections, capabilities: 0, proof, have };
        Ok((id, welcome, again))
    }

    /// Checks whether this is the donor that is being served, or the first one with the secret,
    /// which is served from now on.
    fn recognize(
        &self,
        state: &mut State,
        introduced: &DonorHello,
        peer: SocketAddr,
    ) -> Result<(), Option<StopMessage>> {
        let DonorHello { hello, at, .. } = introduced;
        let (secret, connection) = (self.secret.as_ref(), hello.connection);
        let holds =
            |transfer: &Transfer| transfer.holds(&hello.proof, secret, Side::Donor, connection, at);
        let wrong = "the donor does not know the one-time secret of this joiner";
        if let Some(TransferEnd::Failed { tell: Some(stop), .. }) = &state.over {
            return Err(Some(stop.clone()));
        }
        if state.over.is_some() {
            return no(StopCode::Unknown, "the transfer is over");
        }
        let first = hello.key.clone().map(|key| Transfer { id: hello.transfer, key });
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
                if secret.is_some() {
                    // The group chooses one donor. Which of the two it is cannot be determined.
                    let stop = self.fail(state, TransferError::SecondDonor { peer });
                    let reason = stop.to_string();
                    return no(StopCode::Busy, &reason);
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
                    "this joiner was restarted and does not know the transfer",
                );
            };
            if !holds(&first) {
                return no(StopCode::Proof, wrong);
            }
            state.transfer = Some(Current { transfer: first, offer: hello.offer.clone(), peer });
            self.monitor.notify();
        }
        Ok(())
    }

    /// Reads the earlier connection to its end, so that the data that arrived on it is not sent
    /// again.
    fn end_predecessor<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        connection: u16,
    ) -> Result<MutexGuard<'a, State>, Option<StopMessage>> {
        let until = Instant::now() + self.limits.handshake;
        loop {
            let mut before = false;
            for entry in state.links.iter().filter(|entry| entry.connection == connection) {
                let _ = entry.socket.shutdown(Shutdown::Both);
                entry.wake.wake();
                before = true;
            }
            if !before {
                return Ok(state);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.over.is_some() {
                // Without a reply the donor tries again.
                return Err(None);
            }
            state = self.monitor.wait(state, Some(left));
        }
    }

    fn count(&self, state: &State) {
        let up = u32::try_from(state.links.len()).unwrap_or(u32::MAX);
        self.counters.update(|now| now.connections = up);
    }

    /// Handles the end of a connection.
    fn leave(&self, id: u64, connection: u16, why: Option<String>) {
        let mut state = self.monitor.lock();
        state.links.retain(|entry| entry.id != id);
        self.count(&state);
        if state.links.is_empty() {
            state.alone_since = Instant::now();
        }
        if let Some(why) = &why {
            state.last_cause.clone_from(why);
        }
        self.monitor.notify();
        self.acceptor_wake.wake();
        let over = state.over.is_some();
        drop(state);
        if let (Some(why), false) = (why, over) {
            self.observer.tell(&Event::Lost { connection, why });
        }
    }
}

/// Returns a refusal with its reason for the peer.
fn no<T>(code: StopCode, reason: &str) -> Result<T, Option<StopMessage>> {
    Err(Some(StopMessage { code, reason: reason.to_owned() }))
}

/// An accepted connection's share in the counts; given back when dropped.
struct AcceptedPeer {
    shared: Arc<Shared>,
    pending: Arc<PendingPeer>,
}

impl Drop for AcceptedPeer {
    fn drop(&mut self) {
        let mut state = self.shared.monitor.lock();
        state.pending_peers.remove(&self.pending);
        state.thread_count -= 1;
        drop(state);
        self.shared.acceptor_wake.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_waited_out() {
        let kind = |errno| std::io::Error::from_raw_os_error(errno).kind();
        // EAGAIN, EINTR, ECONNABORTED: the next try may succeed, or there is none to accept.
        assert_eq!([11, 4, 103].map(kind).map(lasts), [false; 3]);
        // EMFILE, ENFILE, ENOBUFS, ENOMEM: the socket stays readable.
        assert_eq!([24, 23, 105, 12].map(kind).map(lasts), [true; 4]);
    }
}
