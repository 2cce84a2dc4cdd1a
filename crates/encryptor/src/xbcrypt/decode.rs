//! Finding chunks in input of any cut, and decrypting them one after the other.

use std::fmt;

use super::head::{MAX_HEAD, could_begin};
use super::version::MAGIC_LEN;
use super::{Cipher, Head, Limits, Parsed, Place, XbcryptError, open_chunk, parse_head};

/// What the decoder found next. Every chunk gives `Head`, then `Data` until its payload is
/// complete, then `ChunkEnd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A chunk begins.
    Head(Head),
    /// The next piece of its payload, still encrypted, never empty.
    Data(&'a [u8]),
    /// The payload is complete: ready for [`open_chunk`].
    ChunkEnd(Head),
}

/// Takes an xbcrypt file apart. It keeps nothing but the head it is reading, and decrypts nothing.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    place: Place,
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
    /// A decoder at the start of a file.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, place: Place::default(), stage: START }
    }

    /// Takes bytes from the front of `input`. `None` wants more input; all of it has been taken
    /// then.
    ///
    /// # Errors
    /// As [`parse_head`]; the same again for every call that follows.
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
                        // Not beyond the magic before it is known to be one.
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

    /// The input is over. A file may end only between two chunks; whether chunks are missing there
    /// nobody can tell.
    ///
    /// # Errors
    /// [`XbcryptError::Cut`], or what went wrong before.
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
            // A payload that is complete but whose end was not asked for is not cut.
            Stage::Payload { left: 0, .. } => Ok(()),
            Stage::Payload { left, .. } => Err(XbcryptError::Cut { place, missing: *left }),
        }
    }

    /// Where the chunk at work begins, or the next one.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }
}

/// Up to `most` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (front, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    front
}

/// Decrypts a file that comes in pieces. Holds one chunk, and grows with what has come, not with
/// what a head promises.
pub struct Decrypter {
    cipher: Cipher,
    decoder: Decoder,
    payload: Vec<u8>,
    failed: Option<XbcryptError>,
}

impl Decrypter {
    /// A decrypter at the start of a file.
    #[must_use]
    pub fn new(cipher: Cipher, limits: Limits) -> Self {
        Self { cipher, decoder: Decoder::new(limits), payload: Vec::new(), failed: None }
    }

    /// Takes bytes of the file and appends the plain bytes of complete chunks to `out`.
    ///
    /// # Errors
    /// As [`parse_head`] and [`open_chunk`]; nothing more comes out then.
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

    /// The input is over.
    ///
    /// # Errors
    /// [`XbcryptError::Cut`], or what went wrong before.
    pub fn finish(self) -> Result<(), XbcryptError> {
        self.failed.map_or_else(|| self.decoder.finish(), Err)
    }
}

impl fmt::Debug for Decrypter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decrypter").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}
