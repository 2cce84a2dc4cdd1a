//! The messages and their encoding (`docs/spec/wire.md`, "Messages"). Pure: no I/O, no clock.
//!
//! A message is a head of 12 bytes (kind, flags, two zero bytes, length of the rest, checksum) and
//! a body. Numbers are little endian. Every length is compared with the limit of its kind before it
//! is used. The checksum protects a connection without TLS: a wrong number in an acknowledgement
//! would otherwise lose a block permanently.

use zeroize::Zeroizing;

use super::checksum::Sum;
use super::error::ProtocolError;
use super::fields::Fields;
use super::head::{
    ACK, ANSWER, ASK, BYE, CONFIRM, FIN, HEAD_LEN, HEAD_SUMMED, HELLO, MAX_RANGES, PING, PONG,
    REPLY, STOP, WELCOME,
};
use crate::limits::{MAX_OFFER, MAX_QUESTION, MAX_REASON, MAX_REPLY};
use crate::printable::cut;

/// The donor's first message on each connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest version that the donor supports.
    pub min_version: u16,
    /// Newest version that the donor supports.
    pub max_version: u16,
    /// Reserved bits; unknown ones are ignored.
    pub capabilities: u64,
    /// Random ID, the same on every connection of a transfer.
    pub transfer: [u8; 16],
    /// Number of this connection in the transfer.
    pub connection: u16,
    /// On the first contact: the transfer's key. Later connections prove that they know it.
    pub key: Option<Zeroizing<[u8; 32]>>,
    /// Proof of the one-time secret and the key, bound to this connection.
    pub proof: [u8; 32],
    /// Data of the layer above; empty except on the first contact.
    pub offer: Vec<u8>,
}

// Hides the key, and leaves out the proof, which is of no use in a log.
impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("versions", &(self.min_version..=self.max_version))
            .field("connection", &self.connection)
            .field("first", &self.key.is_some())
            .field("offer", &self.offer.len())
            .finish_non_exhaustive()
    }
}

/// The joiner's reply to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The version used from here on.
    pub version: u16,
    /// Maximum number of connections that the joiner accepts.
    pub connections: u16,
    /// Reserved bits; unknown ones are ignored.
    pub capabilities: u64,
    /// The joiner's proof.
    pub proof: [u8; 32],
    /// Blocks that the joiner has, and its credit.
    pub have: Ack,
}

/// Blocks that the joiner has, and its credit. Neither ever decreases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ack {
    /// All blocks before this one have arrived.
    pub next: u64,
    /// The stream offset up to which blocks may be sent.
    pub credit_bytes: u64,
    /// The block number up to which blocks may be sent.
    pub credit_blocks: u64,
    /// Blocks received beyond `next`: first and one after the last, ascending, with gaps between.
    pub ranges: Vec<(u64, u64)>,
}

/// Reason why one side ends the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopCode {
    /// The layer above refuses.
    Refused,
    /// Another transfer is running.
    Busy,
    /// The transfer is unknown here.
    Unknown,
    /// No common version.
    Version,
    /// A proof is invalid.
    Proof,
    /// The peer violated the protocol.
    Protocol,
    /// The sender of this message failed or was cancelled.
    Aborted,
}

/// Final message of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopMessage {
    /// Kind of the end.
    pub code: StopCode,
    /// Reason as text. If it comes from a peer, it is not yet safe for a log.
    pub reason: String,
}

/// Every message except data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Donor: introduces itself.
    Hello(Box<Hello>),
    /// Joiner: accepts the connection and reports what it has.
    Welcome(Welcome),
    /// Joiner: the layer above accepts the offer; its answer.
    Answer(Vec<u8>),
    /// Joiner: acknowledges blocks.
    Ack(Ack),
    /// Donor: the stream ends with these totals.
    Fin {
        /// Number of blocks.
        blocks: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Joiner: everything is received, verified and stored.
    Confirm,
    /// Donor: has received the confirmation.
    Bye,
    /// Either side: ends the transfer.
    Stop(StopMessage),
    /// Either side: asks for a sign of life.
    Ping(u64),
    /// Either side: answers a ping.
    Pong(u64),
    /// Donor: a question of the layer above.
    Ask {
        /// Number of the question, from 0.
        number: u64,
        /// The question, never empty.
        question: Vec<u8>,
    },
    /// Joiner: the answer of the layer above to a question.
    Reply {
        /// Number of the question.
        number: u64,
        /// The answer.
        reply: Vec<u8>,
    },
}

impl Message {
    /// Decodes a body of a kind that [`head`] has accepted.
    pub(crate) fn read(kind: u8, body: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields { kind, rest: body };
        let message = match kind {
            HELLO => Self::Hello(Box::new(fields.hello()?)),
            WELCOME => Self::Welcome(Welcome {
                version: fields.u16()?,
                connections: fields.u16()?,
                capabilities: fields.u64()?,
                proof: fields.array()?,
                have: fields.ack()?,
            }),
            ANSWER => Self::Answer(fields.rest().to_vec()),
            ACK => Self::Ack(fields.ack()?),
            FIN => Self::Fin { blocks: fields.u64()?, bytes: fields.u64()? },
            CONFIRM => Self::Confirm,
            BYE => Self::Bye,
            STOP => Self::Stop(StopMessage {
                code: StopCode::from_number(fields.u16()?),
                reason: String::from_utf8_lossy(fields.rest()).into_owned(),
            }),
            PING => Self::Ping(fields.u64()?),
            PONG => Self::Pong(fields.u64()?),
            ASK => Self::Ask { number: fields.u64()?, question: fields.rest().to_vec() },
            REPLY => Self::Reply { number: fields.u64()?, reply: fields.rest().to_vec() },
            kind => return Err(ProtocolError::Kind { kind }),
        };
        if fields.rest.is_empty() {
            Ok(message)
        } else {
            Err(ProtocolError::Field { kind, what: "extra bytes after the last field" })
        }
    }

    /// Encodes head and body. An offer, answer, question, reply or reason beyond its limit is truncated; callers
    /// check the limit first.
    pub fn write(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_LEN];
        let kind = match self {
            Self::Hello(hello) => {
                out.extend(hello.min_version.to_le_bytes());
                out.extend(hello.max_version.to_le_bytes());
                out.extend(hello.capabilities.to_le_bytes());
                out.extend(hello.transfer);
                out.extend(hello.connection.to_le_bytes());
                out.extend(u16::from(hello.key.is_some()).to_le_bytes());
                out.extend(hello.key.as_ref().map_or([0; 32], |key| **key));
                out.extend(hello.proof);
                out.extend(hello.offer.iter().take(MAX_OFFER));
                HELLO
            }
            Self::Welcome(welcome) => {
                out.extend(welcome.version.to_le_bytes());
                out.extend(welcome.connections.to_le_bytes());
                out.extend(welcome.capabilities.to_le_bytes());
                out.extend(welcome.proof);
                welcome.have.write(&mut out);
                WELCOME
            }
            Self::Answer(answer) => {
                out.extend(answer.iter().take(MAX_OFFER));
                ANSWER
            }
            Self::Ack(ack) => {
                ack.write(&mut out);
                ACK
            }
            Self::Fin { blocks, bytes } => {
                out.extend(blocks.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                FIN
            }
            Self::Confirm => CONFIRM,
            Self::Bye => BYE,
            Self::Stop(stop) => {
                out.extend(stop.code.number().to_le_bytes());
                out.extend(cut(&stop.reason, MAX_REASON).as_bytes());
                STOP
            }
            Self::Ping(token) => {
                out.extend(token.to_le_bytes());
                PING
            }
            Self::Pong(token) => {
                out.extend(token.to_le_bytes());
                PONG
            }
            Self::Ask { number, question } => {
                out.extend(number.to_le_bytes());
                out.extend(question.iter().take(MAX_QUESTION));
                ASK
            }
            Self::Reply { number, reply } => {
                out.extend(number.to_le_bytes());
                out.extend(reply.iter().take(MAX_REPLY));
                REPLY
            }
        };
        let len = u32::try_from(out.len() - HEAD_LEN).unwrap_or(u32::MAX);
        out[0] = kind;
        out[4..HEAD_SUMMED].copy_from_slice(&len.to_le_bytes());
        let mut sum = Sum::over(&out[..HEAD_SUMMED]);
        sum.update(&out[HEAD_LEN..]);
        out[HEAD_SUMMED..HEAD_LEN].copy_from_slice(&sum.value().to_le_bytes());
        out
    }

    /// Name of the message, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Welcome(_) => "welcome",
            Self::Answer(_) => "answer",
            Self::Ack(_) => "ack",
            Self::Fin { .. } => "fin",
            Self::Confirm => "confirm",
            Self::Bye => "bye",
            Self::Stop(_) => "stop",
            Self::Ping(_) => "ping",
            Self::Pong(_) => "pong",
            Self::Ask { .. } => "ask",
            Self::Reply { .. } => "reply",
        }
    }
}

impl Ack {
    fn write(&self, out: &mut Vec<u8>) {
        let count = self.ranges.len().min(MAX_RANGES);
        out.extend(self.next.to_le_bytes());
        out.extend(self.credit_bytes.to_le_bytes());
        out.extend(self.credit_blocks.to_le_bytes());
        out.extend(u16::try_from(count).unwrap_or(0).to_le_bytes());
        for (first, end) in self.ranges.iter().take(count) {
            out.extend(first.to_le_bytes());
            out.extend(end.to_le_bytes());
        }
    }
}

impl StopCode {
    fn number(self) -> u16 {
        match self {
            Self::Refused => 1,
            Self::Busy => 2,
            Self::Unknown => 3,
            Self::Version => 4,
            Self::Proof => 5,
            Self::Protocol => 6,
            Self::Aborted => 7,
        }
    }

    /// An unknown code counts as an abort: it ends the transfer, too.
    fn from_number(number: u16) -> Self {
        match number {
            1 => Self::Refused,
            2 => Self::Busy,
            3 => Self::Unknown,
            4 => Self::Version,
            5 => Self::Proof,
            6 => Self::Protocol,
            _ => Self::Aborted,
        }
    }
}

/// Decoding of the messages with more than one field.
impl Fields<'_> {
    fn hello(&mut self) -> Result<Hello, ProtocolError> {
        let (min_version, max_version) = (self.u16()?, self.u16()?);
        let capabilities = self.u64()?;
        let transfer = self.array()?;
        let connection = self.u16()?;
        let first = self.u16()?;
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(self.array()?);
        let proof = self.array()?;
        let what = if min_version > max_version {
            Some("the lowest version is higher than the highest")
        } else if first > 1 || (first == 0 && *key != [0; 32]) {
            Some("it fits neither a first connection nor a later one")
        } else if first == 0 && !self.rest.is_empty() {
            Some("an offer on a later connection")
        } else {
            None
        };
        if let Some(what) = what {
            return Err(ProtocolError::Field { kind: HELLO, what });
        }
        let key = (first == 1).then_some(key);
        let offer = self.rest().to_vec();
        Ok(Hello {
            min_version,
            max_version,
            capabilities,
            transfer,
            connection,
            key,
            proof,
            offer,
        })
    }

    fn ack(&mut self) -> Result<Ack, ProtocolError> {
        let bad = |what| ProtocolError::Field { kind: ACK, what };
        let next = self.u64()?;
        let (credit_bytes, credit_blocks) = (self.u64()?, self.u64()?);
        let count = usize::from(self.u16()?);
        if count > MAX_RANGES {
            return Err(bad("too many ranges"));
        }
        let mut ranges = Vec::with_capacity(count);
        let mut after = next;
        for _ in 0..count {
            let (first, end) = (self.u64()?, self.u64()?);
            if first <= after || end <= first {
                return Err(bad("ranges touch or are out of order"));
            }
            ranges.push((first, end));
            after = end;
        }
        Ok(Ack { next, credit_bytes, credit_blocks, ranges })
    }
}

#[cfg(test)]
mod tests;
