//! The messages, as bytes and back (`docs/wire.md`, "Messages"). Pure: no I/O, no clock.
//!
//! A message is a head of 12 bytes (kind, flags, two zero bytes, length of the rest, checksum) and a
//! body. Numbers are little endian. Every length is compared with the limit of its kind before it is
//! used. The checksum is what guards a connection without TLS: a wrong number in an acknowledgement
//! would else lose a block for good.

use zeroize::Zeroizing;

use crate::limits::{MAX_BLOCK, MAX_OFFER, MAX_REASON};
use crate::printable::cut;
use crate::protocol::checksum::Sum;

/// The only version of the protocol so far.
pub(crate) const VERSION: u16 = 1;
/// Bytes before every body.
pub(crate) const HEAD_LEN: usize = 12;
/// As many of them are summed up; the checksum itself is the rest.
const HEAD_SUMMED: usize = 8;
/// Bytes of a data message before its payload, without the head.
pub(crate) const DATA_HEAD_LEN: usize = 16;
/// The most ranges in one acknowledgement; those beyond it are told by a later one.
pub(crate) const MAX_RANGES: usize = 64;
/// Flag of a data message whose checksum covers the payload, too.
const SUMMED: u8 = 1;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const ANSWER: u8 = 3;
const DATA: u8 = 4;
const ACK: u8 = 5;
const FIN: u8 = 6;
const CONFIRM: u8 = 7;
const BYE: u8 = 8;
const STOP: u8 = 9;
const PING: u8 = 10;
const PONG: u8 = 11;

const HELLO_FIXED: usize = 2 + 2 + 8 + 16 + 2 + 2 + 32 + 32;
const ACK_FIXED: usize = 8 + 8 + 8 + 2;
const WELCOME_FIXED: usize = 2 + 2 + 8 + 32;

/// Why bytes are no message of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// No message has this number.
    #[error("message of unknown kind {kind}")]
    Kind {
        /// The number.
        kind: u8,
    },
    /// A body longer or shorter than its kind allows.
    #[error("message of kind {kind} with {len} bytes")]
    Length {
        /// The kind.
        kind: u8,
        /// The length that was announced.
        len: u32,
    },
    /// The checksum is not that of the bytes.
    #[error("message of kind {kind} arrived damaged")]
    Damaged {
        /// The kind.
        kind: u8,
    },
    /// A field that cannot be.
    #[error("message of kind {kind}: {what}")]
    Field {
        /// The kind.
        kind: u8,
        /// Which field.
        what: &'static str,
    },
    /// A block that does not belong where it says.
    #[error("block {number} at {offset}: {what}")]
    Block {
        /// Its number.
        number: u64,
        /// Its place in the stream.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A message that this side never gets, or not now.
    #[error("unexpected message {what}")]
    Unexpected {
        /// Which.
        what: &'static str,
    },
}

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

/// What stands before the payload of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHead {
    /// Blocks are numbered from 0.
    pub number: u64,
    /// Where in the stream its payload begins.
    pub offset: u64,
    /// Bytes of its payload, 1 to 1 MiB.
    pub len: u32,
    /// Whether its checksum covers the payload: always on plain connections.
    pub summed: bool,
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

/// What a head announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// A body of so many bytes.
    Body { kind: u8, len: usize },
    /// A data message with so many payload bytes.
    Data { len: u32, summed: bool },
}

/// Reads a head. Its checksum is looked at when the body is there, by [`check`].
pub(crate) fn head(bytes: [u8; HEAD_LEN]) -> Result<Head, ProtocolError> {
    let [kind, flags, zero @ .., a, b, c, d, _, _, _, _] = bytes;
    let len = u32::from_le_bytes([a, b, c, d]);
    let allowed = if kind == DATA { SUMMED } else { 0 };
    if zero != [0; 2] || flags & !allowed != 0 {
        return Err(ProtocolError::Field { kind, what: "bits that must be zero are not" });
    }
    let size = usize::try_from(len).unwrap_or(usize::MAX);
    let fits = match kind {
        HELLO => (HELLO_FIXED..=HELLO_FIXED + MAX_OFFER).contains(&size),
        WELCOME => size
            .checked_sub(WELCOME_FIXED + ACK_FIXED)
            .is_some_and(|ranges| ranges <= MAX_RANGES * 16),
        ACK => size.checked_sub(ACK_FIXED).is_some_and(|ranges| ranges <= MAX_RANGES * 16),
        ANSWER => size <= MAX_OFFER,
        DATA => {
            let payload = size.checked_sub(DATA_HEAD_LEN).and_then(|n| u32::try_from(n).ok());
            match payload {
                Some(len) if (1..=MAX_BLOCK).contains(&len) => {
                    return Ok(Head::Data { len, summed: flags == SUMMED });
                }
                _ => false,
            }
        }
        FIN => size == 16,
        CONFIRM | BYE => size == 0,
        STOP => (2..=2 + MAX_REASON).contains(&size),
        PING | PONG => size == 8,
        kind => return Err(ProtocolError::Kind { kind }),
    };
    if fits { Ok(Head::Body { kind, len: size }) } else { Err(ProtocolError::Length { kind, len }) }
}

/// The checksum of a message that begins with `head`; its body is to follow.
pub(crate) fn sum(head: &[u8; HEAD_LEN]) -> Sum {
    Sum::over(head.first_chunk::<HEAD_SUMMED>().map_or(&[], |summed| summed))
}

/// Compares it with the one in `head`.
pub(crate) fn check(head: &[u8; HEAD_LEN], sum: &Sum) -> Result<(), ProtocolError> {
    let [kind, .., a, b, c, d] = *head;
    if sum.value() == u32::from_le_bytes([a, b, c, d]) {
        Ok(())
    } else {
        Err(ProtocolError::Damaged { kind })
    }
}

/// Reads the fields that stand before a block's payload of `len` bytes.
pub(crate) fn data_head(
    bytes: [u8; DATA_HEAD_LEN],
    len: u32,
    summed: bool,
) -> Result<DataHead, ProtocolError> {
    let mut fields = Fields { kind: DATA, rest: &bytes };
    Ok(DataHead { number: fields.u64()?, offset: fields.u64()?, len, summed })
}

/// The head and the fields before the payload of a block; `payload` is what is summed up if the
/// block says so.
pub(crate) fn write_data_head<'a>(
    block: &DataHead,
    payload: impl IntoIterator<Item = &'a [u8]>,
) -> [u8; HEAD_LEN + DATA_HEAD_LEN] {
    let mut out = [0; HEAD_LEN + DATA_HEAD_LEN];
    // At most 1 MiB and a few bytes.
    let len = block.len.saturating_add(16);
    out[0] = DATA;
    out[1] = if block.summed { SUMMED } else { 0 };
    out[4..8].copy_from_slice(&len.to_le_bytes());
    out[12..20].copy_from_slice(&block.number.to_le_bytes());
    out[20..28].copy_from_slice(&block.offset.to_le_bytes());
    let mut sum = Sum::over(&out[..HEAD_SUMMED]);
    sum.update(&out[HEAD_LEN..]);
    if block.summed {
        payload.into_iter().for_each(|bytes| sum.update(bytes));
    }
    out[HEAD_SUMMED..HEAD_LEN].copy_from_slice(&sum.value().to_le_bytes());
    out
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

/// Takes fields off the front of a body.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (field, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(ProtocolError::Field { kind: self.kind, what: "it ends within a field" })?;
        self.rest = rest;
        Ok(*field)
    }

    fn u16(&mut self) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, ProtocolError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

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
