//! Reading and writing on one connection of the donor.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::connection::ConnectionEnd;
use super::state::{Shared, State};
use crate::error::TransferError;
use crate::handshake::{self, Established};
use crate::ledger::send::{Outbound, Take};
use crate::link::wake::Wake;
use crate::link::{Link, in_words};
use crate::protocol::buffer_pool::Pool;
use crate::protocol::error::ProtocolError;
use crate::protocol::head::write_data_head;
use crate::protocol::message::{Message, Welcome};
use crate::protocol::message_reader::{Inbound, InboundError, Item};
use crate::transfer_end::TransferEnd;

/// State of one connection.
#[derive(Debug, Default)]
struct ConnectionState {
    fin_sent: bool,
    /// A block that may be sent from this time on.
    held: Option<(Instant, Outbound)>,
    /// The token of the last unanswered ping: a peer that reads no answers gets only one.
    pong: Option<u64>,
}

enum Job {
    Message(Message),
    Block(Outbound),
    Wait(Instant),
    Close(Option<Message>),
}

impl Shared {
    pub(super) fn run(
        &self,
        opened: Established<Welcome>,
        index: usize,
        id: u64,
        wake: &Wake,
    ) -> ConnectionEnd {
        let Established { mut link, mut inbound, .. } = opened;
        let (pool, mut own) = (Pool::new(0, 0), ConnectionState::default());
        loop {
            if let Err(why) = self.read(&mut link, &mut inbound, &pool, &mut own) {
                return ConnectionEnd::Lost(why);
            }
            let now = Instant::now();
            let mut until = link.last_in() + self.limits.stall;
            if now >= until {
                let limit = self.limits.stall.as_secs();
                return ConnectionEnd::Lost(format!("no data from the joiner for {limit} s"));
            }
            let step = match link.flush() {
                Ok(true) => self.next_job(index, id, &mut own, link.last_out()),
                // A write in progress is finished first, unless the transfer is over.
                Ok(false) if self.has_ended() => Job::Close(self.last_words()),
                Ok(false) => Job::Wait(until),
                Err(error) => {
                    // The peer's final message may have arrived before.
                    let _ = self.read(&mut link, &mut inbound, &pool, &mut own);
                    return ConnectionEnd::Lost(in_words(&error));
                }
            };
            let queued = match step {
                Job::Message(message) => link.queue(message.write().into()),
                Job::Block(block) => {
                    let block = self.dress(block, link.is_tls());
                    link.queue_all(block)
                }
                Job::Close(message) => {
                    self.report_failure();
                    let last = message.map(|message| message.write().into());
                    if link.queue_all(last.into_iter().collect()).is_ok() {
                        link.close(wake, Instant::now() + self.limits.farewell);
                    }
                    return ConnectionEnd::Over;
                }
                Job::Wait(at) => {
                    until = until.min(at);
                    if let Err(error) = link.wait(wake, Some(until)) {
                        return ConnectionEnd::Lost(in_words(&error));
                    }
                    Ok(())
                }
            };
            if let Err(error) = queued {
                return ConnectionEnd::Lost(error.to_string());
            }
        }
    }

    /// Reads what has arrived. The error is the reason why the connection is no longer usable.
    fn read(
        &self,
        link: &mut Link,
        inbound: &mut Inbound,
        pool: &Pool,
        own: &mut ConnectionState,
    ) -> Result<(), String> {
        let peer = link.peer();
        loop {
            let data = |_: &_| Err(ProtocolError::Unexpected { what: "block" });
            match inbound.next(link, pool, data) {
                Ok(Some(Item::Message(message))) => {
                    if self.handle(message, peer, own).is_err() {
                        // The transfer is over; the next job handles that.
                        return Ok(());
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(InboundError::Io(error)) => return Err(in_words(&error)),
                Err(InboundError::Protocol(error)) if link.is_tls() => {
                    let what = error.to_string();
                    self.fail(&mut self.monitor.lock(), TransferError::Protocol { peer, what });
                    return Ok(());
                }
                // Without TLS the cause may be corruption in the network.
                Err(InboundError::Protocol(error)) => return Err(error.to_string()),
            }
        }
    }

    fn handle(
        &self,
        message: Message,
        peer: SocketAddr,
        own: &mut ConnectionState,
    ) -> Result<(), TransferError> {
        let mut state = self.monitor.lock();
        let now = Instant::now();
        match message {
            Message::Ack(ack) => {
                let (freed, more) = match state.ledger.acknowledge(&ack) {
                    Ok(result) => result,
                    Err(error) => {
                        let what = error.to_string();
                        return Err(self.fail(&mut state, TransferError::Protocol { peer, what }));
                    }
                };
                if freed > 0 || more {
                    state.joiner_worked = now;
                }
                if freed > 0 {
                    self.counters.update(|now| now.acknowledged += freed as u64);
                    state.last_progress = now;
                    self.monitor.notify();
                }
                if more {
                    if let Some(since) = state.no_credit.take() {
                        self.counters.update(|now| now.waited_for_reader += since.elapsed());
                    }
                    if state.ledger.has_ready() {
                        state.wake_idle(usize::MAX);
                    }
                }
            }
            Message::Answer(answer) => {
                state.answer.get_or_insert(answer);
                self.monitor.notify();
            }
            Message::Confirm if state.end.is_some() => {
                if state.over.is_none() {
                    let freed = state.ledger.acknowledge_all();
                    self.counters.update(|now| now.acknowledged += freed as u64);
                    self.set_ended(&mut state, TransferEnd::Done);
                }
            }
            Message::Stop(stop) => {
                let error = handshake::stopped(stop, "joiner", peer);
                return Err(self.end(&mut state, TransferEnd::Failed { error, tell: None }));
            }
            Message::Reply { number, reply } => {
                if let Err(error) = state.questions.insert(number, reply) {
                    let what = error.to_string();
                    return Err(self.fail(&mut state, TransferError::Protocol { peer, what }));
                }
                state.joiner_worked = now;
                self.monitor.notify();
            }
            Message::Ping(token) => own.pong = Some(token),
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

    /// Returns the next step of a connection that has nothing left to write.
    fn next_job(&self, index: usize, id: u64, own: &mut ConnectionState, last_out: Instant) -> Job {
        let mut state = self.monitor.lock();
        let now = Instant::now();
        if self.check(&mut state).is_err() {
            drop(state);
            return Job::Close(self.last_words());
        }
        if state.ledger.is_under_way() {
            if self.no_progress(&mut state, now) {
                drop(state);
                return Job::Close(self.last_words());
            }
        } else {
            state.last_progress = now;
        }
        if let Some(token) = own.pong.take() {
            return Job::Message(Message::Pong(token));
        }
        if let Some((number, question)) = state.questions.send() {
            return Job::Message(Message::Ask { number, question });
        }
        let ping_at = last_out + self.limits.heartbeat;
        if now >= ping_at {
            let token = u64::try_from((now - self.begun).as_nanos()).unwrap_or(u64::MAX);
            return Job::Message(Message::Ping(token));
        }
        let mut until = ping_at;
        if state.ledger.is_under_way() {
            until = until.min(state.last_progress + self.limits.resume);
        }
        if let Some((at, block)) = own.held.take() {
            if now >= at {
                return Job::Block(block);
            }
            own.held = Some((at, block));
            return Job::Wait(until.min(at));
        }
        let State { ledger, in_doubt, .. } = &mut *state;
        in_doubt.retain(|(link, at)| {
            let still = now < *at;
            if still {
                until = until.min(*at);
            } else {
                ledger.release(*link);
            }
            still
        });
        match state.ledger.take(id) {
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
        let mut state = self.monitor.lock();
        // A cancellation that no thread has noticed yet is noticed here.
        let _ = self.check(&mut state);
        match &state.over {
            Some(TransferEnd::Done) => Some(Message::Bye),
            Some(TransferEnd::Failed { tell, .. }) => tell.clone().map(Message::Stop),
            None => None,
        }
    }

    /// Encodes head and payload of a block; adds a checksum if TLS does not protect it.
    fn dress(&self, mut block: Outbound, tls: bool) -> Vec<Bytes> {
        let len = block.head.len as usize;
        self.counters.update(|now| now.sent += len as u64);
        if block.repeated {
            self.counters.update(|now| now.resent += len as u64);
        }
        block.head.summed = !tls;
        let payload = block.payload.iter().map(|bytes| &bytes[..]);
        let head = write_data_head(&block.head, payload);
        let mut out = Vec::with_capacity(1 + block.payload.len());
        out.push(Bytes::copy_from_slice(&head));
        out.append(&mut block.payload);
        out
    }
}
