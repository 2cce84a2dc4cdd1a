//! Finds chunks in input of any cut, and decrypts them sequentially.

use std::fmt;

use super::head::{MAX_HEAD, could_begin};
use super::version::MAGIC_LEN;
use super::{Cipher, ErrorLocation, Head, Limits, Parsed, XbcryptError, open_chunk, parse_head};

/// Next item of the stream. Every chunk results in `Head`, then `Data` until its payload is
/// complete, then `ChunkEnd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A chunk begins.
    Head(Head),
    /// The next piece of the chunk's payload, still encrypted, never empty.
    Data(&'a [u8]),
    /// The payload is complete and can be passed to [`open_chunk`].
    ChunkEnd(Head),
}

/// Splits an xbcrypt file into chunks. It buffers only the current head, and decrypts nothing.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    place: ErrorLocation,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Head { bytes: [u8; MAX_HEAD], have: usize },
    Payload { head: Head, left: u64 },
    Failed(XbcryptError),
}

const START: Stage = Stage::Head { bytes: [0; MAX_HEAD], have: 0 };

impl Decoder {
    /// Creates a decoder at the start of a file.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, place: ErrorLocation::default(), stage: START }
    }

    /// Takes bytes from the front of `input`. `None` means that all of it was taken and more is
    /// needed.
    ///
    /// # Errors
    /// Any error of [`parse_head`]; every later call returns the same error.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, XbcryptError> {
        self.step(input).inspect_err(|error| self.stage = Stage::Failed(error.clone()))
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, XbcryptError> {
        match &mut self.stage {
            Stage::Failed(error) => Err(error.clone()),
            Stage::Head { bytes, have } => loop {
                let known = bytes.get(..*have).unwrap_or_default();
                match parse_head(known, self.place, &self.limits)? {
                    Parsed::Head(head) => {
                        self.stage = Stage::Payload { head, left: head.payload_len };
                        return Ok(Some(Event::Head(head)));
                    }
                    Parsed::Needs(want) => {
                        // Read only the magic until it is known to be valid.
                        let want = if *have < MAGIC_LEN { MAGIC_LEN } else { want };
                        let Some(place) = bytes.get_mut(*have..want) else { return Ok(None) };
                        let taken = take(input, place.len());
                        if taken.is_empty() {
                            return Ok(None);
                        }
                        place.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
                        *have += taken.len();
                    }
                }
            },
            Stage::Payload { head, left: 0 } => {
                let head = *head;
                self.place.chunk += 1;
                self.place.offset += head.len() as u64 + head.payload_len;
                self.stage = START;
                Ok(Some(Event::ChunkEnd(head)))
            }
            Stage::Payload { left, .. } => {
                let piece = take(input, usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
                Ok((!piece.is_empty()).then_some(Event::Data(piece)))
            }
        }
    }

    /// Signals the end of the input. A file may end only between two chunks; chunks missing there
    /// cannot be detected.
    ///
    /// # Errors
    /// [`XbcryptError::Cut`], or an earlier error.
    pub fn finish(&self) -> Result<(), XbcryptError> {
        let place = self.place;
        match &self.stage {
            Stage::Failed(error) => Err(error.clone()),
            Stage::Head { have: 0, .. } => Ok(()),
            Stage::Head { bytes, have } => {
                let known = bytes.get(..*have).unwrap_or_default();
                if *have < MAGIC_LEN && !could_begin(known) {
                    return Err(XbcryptError::Magic { place, got: known.to_vec() });
                }
                let missing = match parse_head(known, place, &self.limits)? {
                    Parsed::Needs(want) => want.saturating_sub(*have) as u64,
                    Parsed::Head(head) => head.payload_len,
                };
                Err(XbcryptError::Cut { place, missing })
            }
            // A payload that is complete is not cut, even if its end was not fetched.
            Stage::Payload { left: 0, .. } => Ok(()),
            Stage::Payload { left, .. } => Err(XbcryptError::Cut { place, missing: *left }),
        }
    }

    /// Position of the current chunk, or of the next one.
    #[must_use]
    pub fn place(&self) -> ErrorLocation {
        self.place
    }
}

/// Takes up to `most` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (front, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    front
}

/// Decrypts a file that arrives in pieces. It holds one chunk, and its memory grows with the bytes
/// that arrive, not with the length in a head.
pub struct Decrypter {
    cipher: Cipher,
    decoder: Decoder,
    payload: Vec<u8>,
    failed: Option<XbcryptError>,
}

impl Decrypter {
    /// Creates a decrypter at the start of a file.
    #[must_use]
    pub fn new(cipher: Cipher, limits: Limits) -> Self {
        Self { cipher, decoder: Decoder::new(limits), payload: Vec::new(), failed: None }
    }

    /// Takes bytes of the file and appends the plain bytes of complete chunks to `out`.
    ///
    /// # Errors
    /// Any error of [`parse_head`] and [`open_chunk`]; after an error nothing more is output.
    pub fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), XbcryptError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.try_push(&mut input, out).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn try_push(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), XbcryptError> {
        while let Some(event) = self.decoder.next(input)? {
            match event {
                Event::Head(_) => self.payload.clear(),
                Event::Data(piece) => self.payload.extend_from_slice(piece),
                Event::ChunkEnd(head) => {
                    let plain = open_chunk(&self.cipher, &head, &mut self.payload)?;
                    out.extend_from_slice(self.payload.get(..plain).unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    /// Signals the end of the input.
    ///
    /// # Errors
    /// [`XbcryptError::Cut`], or an earlier error.
    pub fn finish(self) -> Result<(), XbcryptError> {
        self.failed.map_or_else(|| self.decoder.finish(), Err)
    }
}

impl fmt::Debug for Decrypter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decrypter").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}
