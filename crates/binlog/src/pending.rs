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

/// Bytes of an event that stay in memory for the next one: as many as a statement needs.
const MAX_HELD: usize = 68 << 10;

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

    fn clear(&mut self) {
        self.len = 0;
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

/// The event that is arriving. All events of a log arrive in the same memory: most of them are shorter than a digest, which
/// would be moved with each of them.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) begin: u64,
    head: Partial<HEADER_LEN>,
    pub(crate) header: EventHeader,
    /// Bytes of the body that have not arrived, without checksum.
    left: u32,
    /// Beginning of the body, as far as it is needed.
    kept: Vec<u8>,
    digest: Digest,
    has_sum: bool,
    sum: Partial<4>,
}

impl Pending {
    /// Returns one before the first byte of an event.
    pub(crate) fn new() -> Self {
        Self {
            begin: 0,
            head: Partial::new(),
            header: EventHeader::parse(&[0; HEADER_LEN]),
            left: 0,
            kept: Vec::new(),
            digest: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
            has_sum: false,
            sum: Partial::new(),
        }
    }

    /// Whether no byte of an event has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Takes what is missing of a header; returns it when it is whole. [`Pending::start`] takes it then.
    pub(crate) fn take_header(&mut self, input: &mut &[u8]) -> Option<[u8; HEADER_LEN]> {
        self.head.take(input)
    }

    /// Begins an event by its header. `checksums` is what the format description states, if there was one.
    pub(crate) fn start(
        &mut self,
        begin: u64,
        bytes: &[u8; HEADER_LEN],
        checksums: Option<ChecksumKind>,
    ) -> Result<(), Error> {
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
        self.digest.reset();
        if has_sum {
            let mut counted = *bytes;
            if let Some(flags) = counted.get_mut(FLAGS).filter(|_| is_format) {
                *flags &= !Flags::IN_USE;
            }
            self.digest.update(&counted);
        }
        self.kept.clear();
        // A list of GTIDs may have 4 MiB, everything else less.
        self.kept.shrink_to(MAX_HELD);
        self.sum.clear();
        (self.begin, self.header, self.left, self.has_sum) = (begin, header, length, has_sum);
        Ok(())
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
        let here = input.len().min(self.left as usize);
        let (body, rest) = input.split_at(here);
        if self.has_sum {
            self.digest.update(body);
        }
        self.keep(body);
        self.left -= u32::try_from(here).unwrap_or(self.left);
        *input = rest;
        self.left == 0 && (!self.has_sum || self.sum.take(input).is_some())
    }

    /// Keeps as much of the body as is needed, which is known once the beginning is kept.
    fn keep(&mut self, mut body: &[u8]) {
        loop {
            let needed = event::needed(self.header.event_type, &self.kept);
            let missing = needed.saturating_sub(self.kept.len()).min(body.len());
            if missing == 0 {
                return;
            }
            let (kept, rest) = body.split_at(missing);
            self.kept.extend_from_slice(kept);
            body = rest;
        }
    }

    /// Checks and decodes the event, which is whole and ends at `end`. The next one may begin.
    pub(crate) fn end(
        &mut self,
        end: u64,
        format: Option<&FormatDescription>,
    ) -> Result<Entry, Error> {
        self.head.clear();
        let Self { begin, header, ref kept, ref digest, .. } = *self;
        let checksum = self.has_sum.then(|| u32::from_le_bytes(self.sum.bytes));
        let expected = u32::try_from(digest.finalize()).unwrap_or_default();
        if let Some(found) = checksum
            && found != expected
        {
            return Err(Error::Checksum { at: begin, expected, found });
        }
        let fork = format.map_or(Fork::MySql, |format| format.fork);
        let decoded = event::decode(&header, begin, kept, fork);
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
