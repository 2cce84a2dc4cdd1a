//! An event whose content arrives in pieces of any size: its fields, and a digest of the rest of it.

use sha2::{Digest as _, Sha256};

use crate::event_type::EventType;
use crate::fields::Fields;
use crate::format::Fork;
use crate::header::{EventHeader, HEADER_LEN};
use crate::inflate::Inflate;

/// Number (6) and flags (2) of a table, which each server chooses.
pub(crate) const TABLE: usize = 8;
/// Number of a file that `LOAD DATA` reads.
pub(crate) const FILE: usize = 4;
/// Fields of a statement before its variables, and those that `LOAD DATA` has behind them.
pub(crate) const STATEMENT: usize = 13;
const LOAD: usize = STATEMENT + 13;
/// Limit on the text of `LOAD DATA`.
const MAX_LOAD: usize = 64 << 10;
/// Bytes of another statement that are kept: they tell whether it begins or ends a transaction.
const VERB: usize = 16;

/// The event that is arriving.
#[derive(Debug, Default)]
pub(crate) struct PartialEvent {
    head: Vec<u8>,
    pub(crate) header: Option<EventHeader>,
    /// Beginning of the body, in parts that count each by themselves.
    pub(crate) fields: Vec<u8>,
    /// Bytes of the body that have not arrived.
    pub(crate) left: usize,
    /// The rest of the body.
    pub(crate) digest: Sha256,
    pub(crate) inflate: Option<Inflate>,
    /// Text of `LOAD DATA`, and the beginning of that of another statement.
    pub(crate) text: Vec<u8>,
    pub(crate) is_broken: bool,
}

/// The part of an event that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    /// The body behind this many bytes.
    Behind(usize),
    Table,
    Statement,
    Load,
    Rows,
    /// Whether it is the only phase (1), then the name of an XA transaction. (MySQL)
    Prepare,
    /// A whole transaction, compressed. (MySQL)
    Payload,
}

impl Kind {
    pub(crate) fn of(event_type: EventType, fork: Fork) -> Self {
        match event_type.0 {
            38 if fork == Fork::MySql => Self::Prepare,
            39 if fork == Fork::MySql => Self::Rows,
            40 if fork == Fork::MySql => Self::Payload,
            2 | 165 => Self::Statement,
            // A value, a random number and a variable that a statement needs.
            5 | 13 | 14 => Self::Behind(0),
            // Data of LOAD DATA.
            9 | 17 => Self::Behind(FILE),
            18 => Self::Load,
            19 => Self::Table,
            23..=25 | 30..=32 | 166..=171 => Self::Rows,
            _ => Self::Nothing,
        }
    }

    /// Length of the fields at the beginning of a body, as far as `body` shows.
    pub(crate) fn fields(self, event_type: EventType, body: &[u8]) -> Option<usize> {
        Some(match self {
            Self::Nothing | Self::Payload => 0,
            Self::Prepare => 1,
            Self::Behind(number) => number,
            Self::Table => TABLE,
            Self::Statement | Self::Load => {
                let fixed = if self == Self::Load { LOAD } else { STATEMENT };
                match (body.get(8), body.get(11..STATEMENT).and_then(|b| b.first_chunk())) {
                    (Some(schema), Some(variables)) => {
                        fixed
                            + usize::from(u16::from_le_bytes(*variables))
                            + usize::from(*schema)
                            + 1
                    }
                    _ => STATEMENT,
                }
            }
            Self::Rows => return row_fields(event_type, body),
        })
    }
}

/// Length of what comes before rows: table, extra data of version 2, number of columns, and the columns that they have,
/// twice for an update. ("Rows Event", documentation of MariaDB Server)
fn row_fields(event_type: EventType, body: &[u8]) -> Option<usize> {
    let mut at = TABLE;
    if matches!(event_type.0, 30..=32 | 39 | 169..=171) {
        let Some(extra) = body.get(at..at + 2).and_then(|b| b.first_chunk()) else {
            return Some(at + 2);
        };
        let extra = usize::from(u16::from_le_bytes(*extra));
        at += extra.max(2);
    }
    let columns = match body.get(at) {
        None => return Some(at + 1),
        Some(small @ ..=250) => {
            at += 1;
            usize::from(*small)
        }
        Some(252) => {
            let Some(number) = body.get(at + 1..at + 3).and_then(|b| b.first_chunk()) else {
                return Some(at + 3);
            };
            at += 3;
            usize::from(u16::from_le_bytes(*number))
        }
        Some(_) => return None,
    };
    let images = if is_update(event_type) { 2 } else { 1 };
    Some(at + columns.div_ceil(8) * images)
}

fn is_update(event_type: EventType) -> bool {
    matches!(event_type.0, 24 | 31 | 39 | 167 | 170)
}

/// Type of the same event without compression.
pub(crate) fn plain(event_type: EventType) -> u8 {
    match event_type.0 {
        165 => 2,
        compressed @ 166..=168 => compressed - 166 + 23,
        compressed @ 169..=171 => compressed - 169 + 30,
        other => other,
    }
}

/// Returns whether rows have all columns of their table. The bits behind the last column may have any value.
pub(crate) fn has_all_columns(columns: &[u8], event_type: EventType) -> Option<bool> {
    let mut fields = Fields::new(columns);
    if matches!(event_type.0, 30..=32 | 39 | 169..=171) {
        let extra = usize::from(fields.u16()?);
        fields.bytes(extra.saturating_sub(2))?;
    }
    let number = usize::try_from(fields.lenenc()?).ok()?;
    let bitmaps = fields.rest();
    let all = bitmaps.chunks(number.div_ceil(8).max(1)).all(|bitmap| {
        (0..number).all(|n| bitmap.get(n / 8).is_some_and(|byte| byte >> (n % 8) & 1 == 1))
    });
    Some(all)
}

impl PartialEvent {
    /// Begins with the next event, in the same memory.
    pub(crate) fn clear(&mut self) {
        for bytes in [&mut self.head, &mut self.fields, &mut self.text] {
            bytes.clear();
        }
        (self.header, self.left, self.inflate, self.is_broken) = (None, 0, None, false);
        self.digest.reset();
    }

    /// Number of bytes that are missing, as far as is known: of an event without a checksum.
    pub(crate) fn missing(&self) -> usize {
        match self.header {
            None => HEADER_LEN - self.head.len(),
            Some(_) => self.left,
        }
    }

    /// Takes bytes of an event with a checksum of `sum` bytes. Returns those of a compressed transaction.
    pub(crate) fn take<'a>(&mut self, mut bytes: &'a [u8], fork: Fork, sum: usize) -> &'a [u8] {
        let header = match self.header {
            Some(header) => header,
            None => {
                keep(&mut self.head, &mut bytes, HEADER_LEN);
                let Some(header) = self.head.first_chunk().map(EventHeader::parse) else {
                    return &[];
                };
                let length = usize::try_from(header.length).unwrap_or(usize::MAX);
                self.left = length.saturating_sub(HEADER_LEN + sum);
                *self.header.insert(header)
            }
        };
        // Without the checksum.
        bytes = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= bytes.len();
        match Kind::of(header.event_type, fork) {
            Kind::Nothing => {}
            Kind::Payload => return bytes,
            kind => self.body(bytes, kind, header.event_type),
        }
        &[]
    }

    fn body(&mut self, mut bytes: &[u8], kind: Kind, event_type: EventType) {
        while !bytes.is_empty() {
            let Some(len) = kind.fields(event_type, &self.fields) else {
                self.is_broken = true;
                return;
            };
            if self.fields.len() < len {
                keep(&mut self.fields, &mut bytes, len);
                continue;
            }
            let is_done = match (plain(event_type) == event_type.0, kind) {
                (true, Kind::Load) => {
                    keep(&mut self.text, &mut bytes, MAX_LOAD);
                    bytes.is_empty()
                }
                (true, _) => {
                    self.digest.update(bytes);
                    if kind == Kind::Statement {
                        keep(&mut self.text, &mut bytes, VERB);
                    }
                    true
                }
                (false, _) => {
                    let inflate = self.inflate.get_or_insert_default();
                    inflate.push(bytes, |plain| self.digest.update(plain)).is_some()
                }
            };
            self.is_broken |= !is_done;
            return;
        }
    }

    /// Returns whether it has arrived as a whole, and is none that is malformed.
    pub(crate) fn is_sound(&self, kind: Kind, event_type: EventType) -> bool {
        let is_plain = plain(event_type) == event_type.0;
        let is_inflated = self.inflate.as_ref().map_or(is_plain, Inflate::is_whole);
        !self.is_broken
            && self.left == 0
            && is_inflated
            && kind.fields(event_type, &self.fields) == Some(self.fields.len())
    }
}

/// Moves bytes until `len` are kept.
fn keep(kept: &mut Vec<u8>, bytes: &mut &[u8], len: usize) {
    let missing = len.saturating_sub(kept.len()).min(bytes.len());
    let (taken, rest) = bytes.split_at(missing);
    kept.extend_from_slice(taken);
    *bytes = rest;
}
