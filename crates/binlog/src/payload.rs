//! Events in a compressed transaction of MySQL.

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

use crate::change::Change;
use crate::fields::Fields;
use crate::header::{EventHeader, HEADER_LEN};

/// Length limit of the fields before the content, in bytes: there are three numbers.
const MAX_FIELDS: usize = 64;
/// Numbers of the fields, and the kinds of compression. ("Transaction_payload_event", MySQL Source Code
/// Documentation)
const END: u64 = 0;
const COMPRESSION: u64 = 2;
const UNCOMPRESSED: u64 = 3;
const ZSTD: u64 = 0;
const NONE: u64 = 255;
/// Binary logarithm of the largest window of zstd: 8 MiB. Servers need 2 MiB for their highest level.
const WINDOW: u32 = 23;
/// Bytes that are decompressed at once.
const PIECE: usize = 16 << 10;

/// A reader of the body of a `Transaction_payload` event, in pieces of any size. What follows its content, such as a
/// checksum, is passed over. Memory is that of zstd's window, at most 8 MiB.
pub struct Payload {
    plain: PlainPayload,
    events: Events,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").finish_non_exhaustive()
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::new()
    }
}

impl Payload {
    /// Returns a reader that has read nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { plain: PlainPayload::new(u64::MAX), events: Events::default() }
    }

    /// Takes the next bytes, and passes on each change. `None` if they are malformed.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8], mut found: impl FnMut(&Change)) -> Option<()> {
        let Self { plain, events } = self;
        plain.push(bytes, &mut |plain| events.take(plain, &mut found))
    }
}

/// The body of a `Transaction_payload` event as plain bytes.
pub(crate) struct PlainPayload {
    state: State,
    /// Limit on the length that the event may state.
    limit: u64,
    has_more: bool,
}

enum State {
    Fields(Vec<u8>),
    Zstd { decoder: Decoder<'static>, left: u64 },
    Plain { left: u64 },
    Over { is_whole: bool },
}

impl std::fmt::Debug for PlainPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainPayload").finish_non_exhaustive()
    }
}

impl PlainPayload {
    /// Begins. An event that states more than `limit` bytes is malformed.
    pub(crate) fn new(limit: u64) -> Self {
        Self { state: State::Fields(Vec::new()), limit, has_more: false }
    }

    /// Takes the next bytes, and passes on what they hold, until that is refused. `None` if it is, or they are malformed.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        found: &mut dyn FnMut(&[u8]) -> Option<()>,
    ) -> Option<()> {
        let done = self.take(bytes, found);
        if done.is_none() {
            self.state = State::Over { is_whole: false };
        }
        done
    }

    /// Returns whether everything that the event states has arrived, and nothing else.
    pub(crate) fn is_whole(&self) -> bool {
        let is_whole =
            matches!(self.state, State::Plain { left: 0 } | State::Over { is_whole: true });
        is_whole && !self.has_more
    }

    fn take(&mut self, bytes: &[u8], found: &mut dyn FnMut(&[u8]) -> Option<()>) -> Option<()> {
        match &mut self.state {
            State::Fields(head) => {
                head.extend_from_slice(bytes);
                let head = std::mem::take(head);
                match Content::read(&head) {
                    // The same limit, however the bytes arrive.
                    Some((_, rest)) if head.len() - rest.len() > MAX_FIELDS => None,
                    Some((content, _)) if content.uncompressed > self.limit => None,
                    Some((content, rest)) => {
                        self.state = content.begin()?;
                        self.take(rest, found)
                    }
                    None => {
                        let may_grow = head.len() < MAX_FIELDS;
                        self.state = State::Fields(head);
                        may_grow.then_some(())
                    }
                }
            }
            State::Plain { left } => {
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                self.has_more |= length < bytes.len();
                found(bytes.get(..length)?)
            }
            State::Zstd { decoder, left } => {
                let (mut input, mut piece) = (InBuffer::around(bytes), vec![0; PIECE]);
                loop {
                    let mut output = OutBuffer::around(&mut piece[..]);
                    let hint = decoder.run(&mut input, &mut output).ok()?;
                    let plain = output.as_slice();
                    let is_full = plain.len() == PIECE;
                    // No more than the event states.
                    *left = left.checked_sub(plain.len() as u64)?;
                    found(plain)?;
                    if hint == 0 {
                        self.has_more = input.pos() < bytes.len();
                        self.state = State::Over { is_whole: *left == 0 };
                        return Some(());
                    }
                    if input.pos() == bytes.len() && !is_full {
                        return Some(());
                    }
                }
            }
            State::Over { .. } => {
                self.has_more |= !bytes.is_empty();
                Some(())
            }
        }
    }
}

/// How the content is stored.
struct Content {
    compression: u64,
    uncompressed: u64,
}

impl Content {
    /// Reads the fields at the beginning: number, length and value of each. `None` if they have not all arrived.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields::new(bytes);
        let mut content = Self { compression: NONE, uncompressed: 0 };
        loop {
            let number = fields.lenenc()?;
            if number == END {
                return Some((content, fields.rest()));
            }
            let length = usize::try_from(fields.lenenc()?).ok()?;
            let value = Fields::new(fields.bytes(length)?).lenenc()?;
            match number {
                COMPRESSION => content.compression = value,
                UNCOMPRESSED => content.uncompressed = value,
                _ => {}
            }
        }
    }

    fn begin(self) -> Option<State> {
        let left = self.uncompressed;
        match self.compression {
            ZSTD => {
                let mut decoder = Decoder::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(WINDOW)).ok()?;
                Some(State::Zstd { decoder, left })
            }
            NONE => Some(State::Plain { left }),
            _ => None,
        }
    }
}

/// Events without checksums, one after the other.
#[derive(Default)]
struct Events {
    /// Beginning of the event that arrives.
    kept: Vec<u8>,
    /// Bytes of it that are passed over.
    left: usize,
}

impl Events {
    fn take(&mut self, mut bytes: &[u8], found: &mut dyn FnMut(&Change)) -> Option<()> {
        while !bytes.is_empty() {
            let passed = self.left.min(bytes.len());
            self.left -= passed;
            bytes = bytes.get(passed..)?;
            let (length, needed) = match self.kept.first_chunk::<HEADER_LEN>() {
                None => (HEADER_LEN, HEADER_LEN),
                Some(header) => {
                    let length = usize::try_from(EventHeader::parse(header).length).ok()?;
                    (length, length.min(HEADER_LEN + Change::NEEDED))
                }
            };
            let missing = needed.checked_sub(self.kept.len())?.min(bytes.len());
            self.kept.extend_from_slice(bytes.get(..missing)?);
            bytes = bytes.get(missing..)?;
            if self.kept.len() < needed || needed == HEADER_LEN && !self.is_whole() {
                continue;
            }
            let header = EventHeader::parse(self.kept.first_chunk()?);
            if let Some(change) = Change::read(header.event_type, self.kept.get(HEADER_LEN..)?) {
                found(&change);
            }
            self.left = length - needed;
            self.kept.clear();
        }
        Some(())
    }

    /// Returns whether an event of a header alone has arrived.
    fn is_whole(&self) -> bool {
        let header = self.kept.first_chunk::<HEADER_LEN>().map(EventHeader::parse);
        header.is_some_and(|header| header.length as usize == HEADER_LEN)
    }
}
