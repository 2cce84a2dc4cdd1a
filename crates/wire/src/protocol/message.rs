//! The messages, as bytes and back (`docs/wire.md`, "Messages"). Pure: no I/O, no clock.
//!
//! A message is a head of 12 bytes (kind, flags, two zero bytes, length of the rest, checksum) and a
//! body. Numbers are little endian. Every length is compared with the limit of its kind before it is
//! used. The checksum is what guards a connection without TLS: a wrong number in an acknowledgement
//! would else lose a block for good.

use zeroize::Zeroizing;

use super::checksum::Sum;
use super::error::ProtocolError;
use super::fields::Fields;
use super::head::{
    ACK, ANSWER, BYE, CONFIRM, FIN, HEAD_LEN, HEAD_SUMMED, HELLO, MAX_RANGES, PING, PONG, STOP,
    WELCOME,
};
use crate::limits::{MAX_OFFER, MAX_REASON};
use crate::printable::cut;

/// The only version of the protocol so far.
pub(crate) const VERSION: u16 = 1;
/// The donor's first message on each connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest version it speaks.
    pub min_version: u16,
    /// Newest version it speaks.
    pub max_version: u16,
    /// Bits without a meaning yet; unknown ones are ignored.
    pub capabilities: u64,
    /// Random, the same on each connection of a transfer.
    pub transfer: [u8; 16],
    /// Which of the transfer's connections this is.
    pub connection: u16,
    /// On a first contact: the transfer's key. Later ones prove to know it.
    pub key: Option<Zeroizing<[u8; 32]>>,
    /// Proof of the one-time secret and the key, bound to this connection.
    pub proof: [u8; 32],
    /// For the layer above; empty but on a first contact.
    pub offer: Vec<u8>,
}

// The key must not be seen, and the proof is of no use to anybody.
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
    /// The version that counts from here.
    pub version: u16,
    /// The most connections that the joiner takes.
    pub connections: u16,
    /// Bits without a meaning yet; unknown ones are ignored.
    pub capabilities: u64,
    /// The joiner's proof.
    pub proof: [u8; 32],
    /// What it has, and how much it takes.
    pub have: Ack,
}

/// What the joiner has, and how much more it takes. Never goes back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ack {
    /// All blocks before this one are there.
    pub next: u64,
    /// The stream offset up to which blocks may be sent.
    pub credit_bytes: u64,
    /// The block number up to which blocks may be sent.
    pub credit_blocks: u64,
    /// Blocks there beyond `next`: first and one after the last, ascending, with gaps between.
    pub ranges: Vec<(u64, u64)>,
}

/// Why one side ends the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopCode {
    /// The layer above has said no.
    Refused,
    /// Another transfer is running.
    Busy,
    /// The transfer is not known here.
    Unknown,
    /// No common version.
    Version,
    /// A proof was wrong.
    Proof,
    /// The other side broke the protocol.
    Protocol,
    /// The sender of this message failed, or was told to end.
    Aborted,
}

/// The transfer is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Which kind of end.
    pub code: StopCode,
    /// In words. From a peer: not yet fit for a log.
    pub reason: String,
}

/// Every message but data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Donor: here I am.
    Hello(Box<Hello>),
    /// Joiner: you are known, this is what I have.
    Welcome(Welcome),
    /// Joiner: the layer above takes the offer; its answer.
    Answer(Vec<u8>),
    /// Joiner: what is there.
    Ack(Ack),
    /// Donor: the stream has so many blocks and bytes, and no more.
    Fin {
        /// Number of blocks.
        blocks: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Joiner: everything is received, verified and kept.
    Confirm,
    /// Donor: I have heard that.
    Bye,
    /// Either: it is over.
    Stop(Stop),
    /// Either: still there?
    Ping(u64),
    /// Either: yes.
    Pong(u64),
}

impl Message {
    /// Reads a body of a kind that [`head`] has let pass.
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
            STOP => Self::Stop(Stop {
                code: StopCode::from_number(fields.u16()?),
                reason: String::from_utf8_lossy(fields.rest()).into_owned(),
            }),
            PING => Self::Ping(fields.u64()?),
            PONG => Self::Pong(fields.u64()?),
            kind => return Err(ProtocolError::Kind { kind }),
        };
        if fields.rest.is_empty() {
            Ok(message)
        } else {
            Err(ProtocolError::Field { kind, what: "bytes after the last field" })
        }
    }

    /// Head and body. An offer, answer or reason beyond its limit is cut; callers check before.
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
        };
        let len = u32::try_from(out.len() - HEAD_LEN).unwrap_or(u32::MAX);
        out[0] = kind;
        out[4..HEAD_SUMMED].copy_from_slice(&len.to_le_bytes());
        let mut sum = Sum::over(&out[..HEAD_SUMMED]);
        sum.update(&out[HEAD_LEN..]);
        out[HEAD_SUMMED..HEAD_LEN].copy_from_slice(&sum.value().to_le_bytes());
        out
    }

    /// For messages about messages.
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

    /// What is not known is an abort: it ends the transfer all the same.
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

/// The messages with more than one field.
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
            Some("versions the wrong way round")
        } else if first > 1 || (first == 0 && *key != [0; 32]) {
            Some("neither a first contact nor a later one")
        } else if first == 0 && !self.rest.is_empty() {
            Some("an offer on a later contact")
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
                return Err(bad("ranges that touch or run backwards"));
            }
            ranges.push((first, end));
            after = end;
        }
        Ok(Ack { next, credit_bytes, credit_blocks, ranges })
    }
}

#[cfg(test)]
mod tests;
