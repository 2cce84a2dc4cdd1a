//! An event whose bytes arrive in pieces.

use crc_fast::{CrcAlgorithm, Digest};

use crate::error::Error;
use crate::event::{self, Entry};
use crate::event_type::EventType;
use crate::format::{ChecksumKind, Fork, FormatDescription, MAX_FORMAT};
use crate::header::{EventHeader, Flags, HEADER_LEN};

/// Lengths of a header and of a checksum, as an event counts them.
const HEADER: u32 = 19;
const SUM: u32 = 4;
/// Where the lower byte of the flags is in a header.
const FLAGS: usize = 17;

/// A part of fixed length that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Partial<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Partial<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes what is missing; returns the part when it is whole.
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let free = self.bytes.get_mut(self.len..)?;
        let (taken, rest) = input.split_at(free.len().min(input.len()));
        free.get_mut(..taken.len())?.copy_from_slice(taken);
        self.len += taken.len();
        *input = rest;
        (self.len == N).then_some(self.bytes)
    }
}

/// An event whose header has arrived.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) begin: u64,
    pub(crate) header: EventHeader,
    /// Bytes of the body that have not arrived, without checksum.
    left: u32,
    /// Beginning of the body, as far as it is needed.
    kept: Vec<u8>,
    digest: Digest,
    sum: Option<Partial<4>>,
}

impl Pending {
    /// Begins an event by its header. `checksums` is what the format description states, if there was one.
    pub(crate) fn begin(
        begin: u64,
        bytes: &[u8; HEADER_LEN],
        checksums: Option<ChecksumKind>,
    ) -> Result<Self, Error> {
        let header = EventHeader::parse(bytes);
        let is_format = header.event_type == EventType::FORMAT_DESCRIPTION;
        // The format description has a checksum even if the events have none.
        let has_sum = match checksums {
            _ if is_format => true,
            Some(kind) => kind == ChecksumKind::Crc32,
            None => return Err(Error::NoFormat { event_type: header.event_type }),
        };
        let least = HEADER + if has_sum { SUM } else { 0 };
        let length = header.length.checked_sub(least);
        let length = length.ok_or(Error::Length { at: begin, length: header.length, least })?;
        if is_format && header.length > MAX_FORMAT {
            return Err(Error::Format);
        }
        event::check_length(header.event_type, begin, length)?;
        let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        let mut counted = *bytes;
        if let Some(flags) = counted.get_mut(FLAGS).filter(|_| is_format) {
            *flags &= !Flags::IN_USE;
        }
        digest.update(&counted);
        let sum = has_sum.then(Partial::new);
        Ok(Self { begin, header, left: length, kept: Vec::new(), digest, sum })
    }

    /// Checks that the header states where the event ends.
    pub(crate) fn check_end(&self, format: Option<&FormatDescription>) -> Result<(), Error> {
        let EventHeader { event_type, length, end: found, .. } = self.header;
        // The header has the lower half of the offset only.
        let low = u32::try_from(self.begin & u64::from(u32::MAX)).unwrap_or_default();
        let expected = low.wrapping_add(length);
        // MariaDB 11.8 states no end within a transaction; the event that ends it has one. (Seen in
        // `fixtures/binlog/mariadb-11.8.000001`.)
        let is_mariadb = format.is_some_and(|format| format.fork == Fork::MariaDb);
        let may_lack = is_mariadb && !event_type.has_end();
        match found == expected || (may_lack && found == 0) {
            true => Ok(()),
            false => Err(Error::Chain { at: self.begin, expected, found }),
        }
    }

    /// Takes what is missing; returns whether the event is whole.
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> bool {
        while self.left > 0 && !input.is_empty() {
            let needed = event::needed(self.header.event_type, &self.kept);
            // The needed length may change with the next byte that is kept, so no more than that is taken.
            let most = match needed.saturating_sub(self.kept.len()) {
                0 => self.left as usize,
                missing => missing.min(self.left as usize),
            };
            let (taken, rest) = input.split_at(most.min(input.len()));
            if self.kept.len() < needed {
                self.kept.extend_from_slice(taken);
            }
            if self.sum.is_some() {
                self.digest.update(taken);
            }
            self.left -= u32::try_from(taken.len()).unwrap_or(self.left);
            *input = rest;
        }
        let has_body = self.left == 0;
        match &mut self.sum {
            Some(sum) => has_body && sum.take(input).is_some(),
            None => has_body,
        }
    }

    /// Checks and decodes the event, which is whole and ends at `end`.
    pub(crate) fn end(self, end: u64, format: Option<&FormatDescription>) -> Result<Entry, Error> {
        let Self { begin, header, kept, digest, sum, .. } = self;
        let checksum = sum.map(|sum| u32::from_le_bytes(sum.bytes));
        let expected = u32::try_from(digest.finalize()).unwrap_or_default();
        if let Some(found) = checksum
            && found != expected
        {
            return Err(Error::Checksum { at: begin, expected, found });
        }
        let fork = format.map_or(Fork::MySql, |format| format.fork);
        let decoded = event::decode(&header, begin, &kept, fork);
        let event = decoded.map_err(|error| match header.event_type {
            EventType::FORMAT_DESCRIPTION => Error::Format,
            _ => error,
        })?;
        Ok(Entry { begin, end, header, checksum, event })
    }

    /// Bytes that it holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.kept.capacity()
    }
}
