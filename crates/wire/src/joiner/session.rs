//! Reading and writing on one connection of the joiner.

use std::net::SocketAddr;
use std::time::Instant;

use super::state::Shared;
use crate::error::TransferError;
use crate::handshake;
use crate::limits::{AGAIN_SINCE, QUESTIONS_SINCE};
use crate::link::wake::Wake;
use crate::link::{Link, in_words};
use crate::protocol::error::ProtocolError;
use crate::protocol::message::Message;
use crate::protocol::message_reader::{Inbound, InboundError, Item};
use crate::transfer_end::TransferEnd;

/// Bytes after which an acknowledgement is sent even if there is more to read.
const ACK_EVERY: usize = 1 << 20;

/// State of one connection.
#[derive(Debug, Default)]
struct ConnectionState {
    answer_sent: bool,
    confirm_sent: bool,
    /// Bytes that arrived on this connection and are not acknowledged.
    unacknowledged: usize,
    /// The credit last reported on this connection.
    told: (u64, u64),
    /// The token of the last unanswered ping: a peer that reads no answers gets only one.
    pong: Option<u64>,
}

enum Job {
    Message(Message),
    Wait(Instant),
    Close(Option<Message>),
}

/// Reason why reading has stopped.
enum Reading {
    Dry,
    Lost(String),
    Over,
}

/// The connections.
impl Shared {
    /// Serves a connection to its end. Returns why it was lost, unless the transfer is over.
    pub(super) fn serve(
        &self,
        mut link: Link,
        mut inbound: Inbound,
        peer: SocketAddr,
        wake: &Wake,
    ) -> Option<String> {
        let mut own = ConnectionState::default();
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
                return Some(format!("no data from the donor for {limit} s"));
            }
            let mut written = match link.flush() {
                Ok(written) => written,
                Err(error) => return Some(in_words(&error)),
            };
            while written {
                match self.next_job(&mut own, dry, link.last_out()) {
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
            if !written && self.has_ended() {
                return None;
            }
            if let Err(error) = link.wait(wake, Some(until)) {
                return Some(in_words(&error));
            }
        }
    }

    /// Reads the data that has arrived, up to the next acknowledgement.
    fn read(
        &self,
        link: &mut Link,
        inbound: &mut Inbound,
        peer: SocketAddr,
        own: &mut ConnectionState,
    ) -> Option<Reading> {
        let plain = !link.is_tls();
        while own.unacknowledged < ACK_EVERY {
            let disposition = |head: &_| self.monitor.lock().ledger.disposition(head);
            let violation = match inbound.next(link, &self.pool, disposition) {
                Ok(None) => return Some(Reading::Dry),
                Ok(Some(Item::Block(head, payload))) => {
                    if plain && !head.summed {
                        return Some(Reading::Lost("a block has no checksum".to_owned()));
                    }
                    let len = payload.len();
                    own.unacknowledged += len;
                    let mut state = self.monitor.lock();
                    let inserted = if head.again && state.version < AGAIN_SINCE {
                        let what = "in version 1, no stream begins again";
                        Err(ProtocolError::Block { number: head.number, offset: head.offset, what })
                    } else {
                        state.ledger.insert(&head, payload)
                    };
                    match inserted {
                        Ok(new) => {
                            self.counters.update(|now| {
                                *(if new { &mut now.received } else { &mut now.duplicate }) +=
                                    len as u64;
                            });
                            self.monitor.notify();
                            None
                        }
                        Err(error) => Some(error),
                    }
                }
                Ok(Some(Item::Skipped(head))) => {
                    own.unacknowledged += head.len as usize;
                    self.counters.update(|now| now.duplicate += u64::from(head.len));
                    None
                }
                Ok(Some(Item::Message(message))) => match self.handle(message, peer, own) {
                    Ok(false) => None,
                    Ok(true) => return Some(Reading::Over),
                    Err(error) => Some(error),
                },
                Err(InboundError::Io(error)) => return Some(Reading::Lost(in_words(&error))),
                // Without TLS the cause may be corruption in the network.
                Err(InboundError::Protocol(error)) if plain => {
                    return Some(Reading::Lost(error.to_string()));
                }
                Err(InboundError::Protocol(error)) => Some(error),
            };
            if let Some(error) = violation {
                let what = error.to_string();
                self.fail(&mut self.monitor.lock(), TransferError::Protocol { peer, what });
                // The next job sends the final message.
                return Some(Reading::Dry);
            }
        }
        None
    }

    /// Handles a message. Returns `Ok(true)` after the donor's goodbye.
    fn handle(
        &self,
        message: Message,
        peer: SocketAddr,
        own: &mut ConnectionState,
    ) -> Result<bool, ProtocolError> {
        let mut state = self.monitor.lock();
        match message {
            Message::Fin { blocks, bytes } => {
                state.ledger.end_at(blocks, bytes)?;
                self.monitor.notify();
            }
            Message::Bye if state.confirm => {
                if state.over.is_none() {
                    self.set_ended(&mut state, TransferEnd::Done);
                }
                return Ok(true);
            }
            Message::Stop(stop) => {
                let error = handshake::stopped(stop, "donor", peer);
                self.end(&mut state, TransferEnd::Failed { error, tell: None });
                return Ok(true);
            }
            Message::Ask { number, question }
                if state.version >= QUESTIONS_SINCE && state.answer.is_some() =>
            {
                if state.questions.insert(number, question)? {
                    self.monitor.notify();
                }
            }
            Message::Ping(token) => own.pong = Some(token),
            Message::Pong(_) => {}
            other => return Err(ProtocolError::Unexpected { what: other.name() }),
        }
        Ok(false)
    }

    fn next_job(&self, own: &mut ConnectionState, dry: bool, last_out: Instant) -> Job {
        let mut state = self.monitor.lock();
        if self.check(&mut state).is_err() {
            return match &state.over {
                Some(TransferEnd::Failed { tell: Some(stop), .. }) => {
                    Job::Close(Some(Message::Stop(stop.clone())))
                }
                _ => Job::Close(None),
            };
        }
        if let Some(token) = own.pong.take() {
            return Job::Message(Message::Pong(token));
        }
        if let (Some(answer), false) = (&state.answer, own.answer_sent) {
            own.answer_sent = true;
            return Job::Message(Message::Answer(answer.clone()));
        }
        if let Some((number, reply)) = state.questions.send() {
            return Job::Message(Message::Reply { number, reply });
        }
        let due = own.unacknowledged > 0 && (dry || own.unacknowledged >= ACK_EVERY);
        if due || self.credit_is_due(&state, own.told.0, own.told.1) {
            own.unacknowledged = 0;
            own.told = state.ledger.credit();
            let ack = state.ledger.ack();
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
