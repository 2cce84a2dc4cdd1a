//! The head before every message, with its checksum, and the fields before a block's payload.

use super::checksum::Sum;
use super::error::ProtocolError;
use super::fields::Fields;
use crate::limits::{MAX_BLOCK, MAX_OFFER, MAX_QUESTION, MAX_REASON, MAX_REPLY};

/// Length of the head of every message, in bytes.
pub(crate) const HEAD_LEN: usize = 12;
/// Number of head bytes that the checksum covers; the rest is the checksum itself.
pub(super) const HEAD_SUMMED: usize = 8;
/// Length of a data message's fields before its payload, without the head.
pub(crate) const DATA_HEAD_LEN: usize = 16;
/// Maximum number of ranges in one acknowledgement; later acknowledgements report the others.
pub(crate) const MAX_RANGES: usize = 64;
/// Flag of a data message whose checksum covers the payload, too.
const SUMMED: u8 = 1;
/// Flag of a data message with which the stream begins again. Version 2.
const AGAIN: u8 = 2;

pub(super) const HELLO: u8 = 1;
pub(super) const WELCOME: u8 = 2;
pub(super) const ANSWER: u8 = 3;
pub(super) const DATA: u8 = 4;
pub(super) const ACK: u8 = 5;
pub(super) const FIN: u8 = 6;
pub(super) const CONFIRM: u8 = 7;
pub(super) const BYE: u8 = 8;
pub(super) const STOP: u8 = 9;
pub(super) const PING: u8 = 10;
pub(super) const PONG: u8 = 11;
pub(super) const ASK: u8 = 12;
pub(super) const REPLY: u8 = 13;

const HELLO_FIXED: usize = 2 + 2 + 8 + 16 + 2 + 2 + 32 + 32;
const ACK_FIXED: usize = 8 + 8 + 8 + 2;
const WELCOME_FIXED: usize = 2 + 2 + 8 + 32;
/// Length of the number before a question and before a reply.
const NUMBER: usize = 8;

/// The fields before a block's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHead {
    /// Number of the block, from 0.
    pub number: u64,
    /// Offset of its payload in the stream.
    pub offset: u64,
    /// Length of its payload, 1 byte to 1 MiB.
    pub len: u32,
    /// Whether its checksum covers the payload: always without TLS.
    pub summed: bool,
    /// Whether the stream begins again with this block.
    pub again: bool,
}

/// Kind of data that follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// A body of `len` bytes.
    Body { kind: u8, len: usize },
    /// A data message with `len` payload bytes.
    Data { len: u32, summed: bool, again: bool },
}

/// Decodes a head. Its checksum is verified once the body has arrived, by [`check`].
pub(crate) fn head(bytes: [u8; HEAD_LEN]) -> Result<Head, ProtocolError> {
    let [kind, flags, zero @ .., a, b, c, d, _, _, _, _] = bytes;
    let len = u32::from_le_bytes([a, b, c, d]);
    let allowed = if kind == DATA { SUMMED | AGAIN } else { 0 };
    if zero != [0; 2] || flags & !allowed != 0 {
        return Err(ProtocolError::Field { kind, what: "reserved bits are not zero" });
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
                    let (summed, again) = (flags & SUMMED != 0, flags & AGAIN != 0);
                    return Ok(Head::Data { len, summed, again });
                }
                _ => false,
            }
        }
        FIN => size == 16,
        CONFIRM | BYE => size == 0,
        STOP => (2..=2 + MAX_REASON).contains(&size),
        PING | PONG => size == 8,
        ASK => (NUMBER + 1..=NUMBER + MAX_QUESTION).contains(&size),
        REPLY => (NUMBER..=NUMBER + MAX_REPLY).contains(&size),
        kind => return Err(ProtocolError::Kind { kind }),
    };
    if fits { Ok(Head::Body { kind, len: size }) } else { Err(ProtocolError::Length { kind, len }) }
}

/// Starts the checksum of a message with this head; the caller adds the body.
pub(crate) fn sum(head: &[u8; HEAD_LEN]) -> Sum {
    Sum::over(head.first_chunk::<HEAD_SUMMED>().map_or(&[], |summed| summed))
}

/// Compares the checksum with the one in `head`.
pub(crate) fn check(head: &[u8; HEAD_LEN], sum: &Sum) -> Result<(), ProtocolError> {
    let [kind, .., a, b, c, d] = *head;
    if sum.value() == u32::from_le_bytes([a, b, c, d]) {
        Ok(())
    } else {
        Err(ProtocolError::Damaged { kind })
    }
}

/// Decodes the fields before a block's payload of `len` bytes.
pub(crate) fn data_head(
    bytes: [u8; DATA_HEAD_LEN],
    len: u32,
    summed: bool,
    again: bool,
) -> Result<DataHead, ProtocolError> {
    let mut fields = Fields { kind: DATA, rest: &bytes };
    Ok(DataHead { number: fields.u64()?, offset: fields.u64()?, len, summed, again })
}

/// Encodes the head and the fields before a block's payload; `payload` enters the checksum if the
/// block's flag is set.
pub(crate) fn write_data_head<'a>(
    block: &DataHead,
    payload: impl IntoIterator<Item = &'a [u8]>,
) -> [u8; HEAD_LEN + DATA_HEAD_LEN] {
    let mut out = [0; HEAD_LEN + DATA_HEAD_LEN];
    // At most 1 MiB and a few bytes.
    let len = block.len.saturating_add(16);
    out[0] = DATA;
    out[1] = if block.summed { SUMMED } else { 0 } | if block.again { AGAIN } else { 0 };
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
