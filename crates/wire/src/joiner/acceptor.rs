//! The door: lets connections in, and decides who is the donor.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::pending_peers::Seat;
use super::{Current, Fuse, LinkEntry, Over, Shared, State};
use crate::error::TransferError;
use crate::event::Event;
use crate::handshake::{self, Introduced, Opened, Stranger, Waiting};
use crate::limits::{MAX_CONNECTIONS, MAX_INSIDE};
use crate::link::Link;
use crate::link::wake::{self, Wake, Want};
use crate::protocol::message::{Message, Stop, StopCode, Welcome};
use crate::security::proof::{Side, Transfer};

/// So many refused connections have a line in the log.
const MOST_TOLD: u32 = 100;

/// The door: a thread that lets connections in, and one for each.
impl Shared {
    pub(super) fn keep_door(self: &Arc<Self>) {
        loop {
            let until = {
                let mut state = self.books.lock();
                if self.check(&mut state).is_err() {
                    break;
                }
                self.too_long_alone(&mut state)
            };
            let has_room = || self.books.lock().inside < MAX_INSIDE;
            let socket = has_room().then(|| (self.listener.as_fd(), Want::Read));
            if wake::wait(socket, &self.door, until).is_err() {
                break;
            }
            while has_room()
                && let Ok((socket, peer)) = self.listener.accept()
            {
                self.let_in(socket, peer);
            }
        }
        self.tell_failure();
        let guests = std::mem::take(&mut self.books.lock().guests);
        for guest in guests {
            let _ = guest.join();
        }
    }

    /// Without the lock: it may call back.
    fn tell_failure(&self) {
        let state = self.books.lock();
        if let (Some(Over::Failed { error, .. }), Some(_)) = (&state.over, &state.transfer) {
            let why = error.to_string();
            drop(state);
            self.observer.tell(&Event::Failed { why });
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
        // Without a descriptor or a thread the socket is closed; the donor tries again.
        let Ok(seat) = Wake::new().map(Seat::new).map(Arc::new) else { return };
        let mut state = self.books.lock();
        state.guests.retain(|guest| !guest.is_finished());
        state.strangers.sit_down(Arc::clone(&seat));
        state.inside += 1;
        let guest = Guest { shared: Arc::clone(self), seat };
        let thread = std::thread::Builder::new().name("wire-in".to_owned());
        let welcome = move || {
            let fuse = Fuse(&guest.shared);
            guest.shared.welcome(socket, peer, &guest.seat);
            drop(fuse);
        };
        // Who is not spawned is dropped, which takes the lock.
        drop(state);
        if let Ok(guest) = thread.spawn(welcome) {
            self.books.lock().guests.push(guest);
        }
    }

    fn welcome(&self, socket: TcpStream, peer: SocketAddr, seat: &Arc<Seat>) {
        let cancelled = || self.is_over() || seat.is_sent_away();
        let wake = &seat.wake;
        let waiting = Waiting { wake, cancelled: &cancelled, limits: &self.limits };
        let opened = match handshake::receive(socket, self.tls.as_ref(), waiting, || seat.spoke()) {
            Ok(opened) => opened,
            Err(Stranger::Cancelled) => {
                if seat.is_sent_away() && !self.is_over() {
                    let what = "it did not say who it is, and others came";
                    self.tell_of_stranger(peer, what.to_owned());
                }
                return;
            }
            Err(Stranger::Odd(what)) => {
                self.tell_of_stranger(peer, what);
                return;
            }
        };
        let Opened { mut link, inbound, what: introduced, .. } = opened;
        let connection = introduced.hello.connection;
        match self.admit(&introduced, &link, peer, wake) {
            Ok((id, welcome, again)) => {
                self.books.lock().strangers.stand_up(seat);
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
                self.tell_of_stranger(peer, what);
            }
        }
    }

    /// Whoever knocks without end shall not fill the log.
    fn tell_of_stranger(&self, peer: SocketAddr, mut what: String) {
        let told = self.strangers_told.fetch_add(1, Relaxed);
        if told == MOST_TOLD {
            what.push_str("; it was one of many, the rest is refused without a word here");
        }
        if told <= MOST_TOLD {
            self.observer.tell(&Event::Stranger { peer, what });
        }
    }

    /// Decides whether a donor is the right one, and takes its connection into the books.
    fn admit(
        &self,
        introduced: &Introduced,
        link: &Link,
        peer: SocketAddr,
        wake: &Arc<Wake>,
    ) -> Result<(u64, Welcome, bool), Option<Stop>> {
        let Introduced { hello, version, at } = introduced;
        let no = |code, reason: &str| Err(Some(Stop { code, reason: reason.to_owned() }));
        let (secret, connection) = (self.secret.as_ref(), hello.connection);
        if connection >= MAX_CONNECTIONS.into() {
            return no(StopCode::Protocol, "more connections than are allowed");
        }
        let holds =
            |transfer: &Transfer| transfer.holds(&hello.proof, secret, Side::Donor, connection, at);
        let wrong = "the donor does not know the one-time secret of this joiner";
        let socket = link.socket().try_clone().map_err(|_| None)?;

        let mut state = self.books.lock();
        if let Some(Over::Failed { tell: Some(stop), .. }) = &state.over {
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
            self.books.notify();
        }

        // The one before it is read to its end, so that what it brought is not sent again.
        let until = Instant::now() + self.limits.handshake;
        loop {
            let mut before = false;
            for entry in state.links.iter().filter(|entry| entry.connection == connection) {
                let _ = entry.socket.shutdown(Shutdown::Both);
                entry.wake.wake();
                before = true;
            }
            if !before {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.over.is_some() {
                // Without a word the donor tries again.
                return Err(None);
            }
            state = self.books.wait(state, Some(left));
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
        let mut state = self.books.lock();
        state.links.retain(|entry| entry.id != id);
        self.count(&state);
        if state.links.is_empty() {
            state.alone_since = Instant::now();
        }
        if let Some(why) = &why {
            state.last_cause.clone_from(why);
        }
        self.books.notify();
        self.door.wake();
        let over = state.over.is_some();
        drop(state);
        if let (Some(why), false) = (why, over) {
            self.observer.tell(&Event::Lost { connection, why });
        }
    }
}

/// Somebody whom the door has let in; gone when dropped.
struct Guest {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut state = self.shared.books.lock();
        state.strangers.stand_up(&self.seat);
        state.inside -= 1;
        drop(state);
        self.shared.door.wake();
    }
}
