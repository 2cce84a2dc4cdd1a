//! Sequential sealing and opening, in pieces of any size.

use std::fmt;

use super::{Opener, SEAL_HEAD_LEN, SealContext, SealError, Sealer};
use crate::aead::TAG_LEN;
use crate::{Backend, DataKey};

/// Seals a body that arrives in pieces. Call [`finish`](Self::finish) at the end: readers refuse a
/// sealed body without its last segment.
#[derive(Debug)]
pub struct SealStream {
    sealer: Sealer,
    text: Text,
    head_given: bool,
}

/// The bytes of the current segment; they may be plain, so `Debug` must not print them.
#[derive(Default)]
struct Text(Vec<u8>);

impl SealStream {
    /// Uses this sealer, which must be new.
    ///
    /// # Errors
    /// [`SealError::AfterLast`] when segments were already taken from it.
    pub fn new(sealer: Sealer) -> Result<Self, SealError> {
        if sealer.is_finished() {
            return Err(SealError::AfterLast);
        }
        Ok(Self { sealer, text: Text::default(), head_given: false })
    }

    /// Takes plain bytes and appends finished parts of the sealed body to `out`.
    ///
    /// # Errors
    /// [`SealError::TooLong`] after 4 PiB.
    pub fn push(&mut self, mut plain: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        while !plain.is_empty() {
            // Only when more bytes arrive it is clear that a full segment is not the last one.
            if self.text.0.len() == self.sealer.capacity() {
                self.seal(false, out)?;
            }
            let room = self.sealer.capacity() - self.text.0.len();
            let (now, later) = plain.split_at(room.min(plain.len()));
            self.text.0.extend_from_slice(now);
            plain = later;
        }
        Ok(())
    }

    /// Seals the remaining bytes as the last segment.
    ///
    /// # Errors
    /// Any error of [`push`](Self::push).
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), SealError> {
        self.seal(true, out)
    }

    fn seal(&mut self, last: bool, out: &mut Vec<u8>) -> Result<(), SealError> {
        if !self.head_given {
            out.extend(self.sealer.head());
            self.head_given = true;
        }
        let len = self.text.0.len() + TAG_LEN;
        self.text.0.resize(len, 0);
        self.sealer.next_segment(last)?.seal(&mut self.text.0)?;
        out.extend_from_slice(&self.text.0);
        self.text.0.clear();
        Ok(())
    }
}

/// Opens a sealed body that arrives in pieces. Only [`finish`](Self::finish) proves it complete.
#[derive(Debug)]
pub struct OpenStream {
    stage: Stage,
    text: Text,
    next: u64,
    failed: Option<SealError>,
}

enum Stage {
    /// Waiting for the head; the key is already checked.
    Head {
        key: DataKey,
        stream_id: [u8; 16],
        commitment: [u8; 32],
        header: Vec<u8>,
        backend: Backend,
    },
    Segments(Opener),
}

impl OpenStream {
    /// Checks the key against the commitment, before any byte of the sealed body is used.
    ///
    /// # Errors
    /// [`SealError::WrongKey`]
    pub fn new(
        key: &DataKey,
        context: &SealContext<'_>,
        backend: Backend,
    ) -> Result<Self, SealError> {
        let SealContext { stream_id, commitment, header } = *context;
        if !key.fits(&stream_id, &commitment) {
            return Err(SealError::WrongKey);
        }
        let key = DataKey::new(key.bytes());
        let stage = Stage::Head { key, stream_id, commitment, header: header.to_vec(), backend };
        Ok(Self { stage, text: Text::default(), next: 0, failed: None })
    }

    /// Takes bytes of the sealed body and appends authentic plain bytes to `out`. The sealed body
    /// must end where the input ends: the caller must not pass any bytes after it.
    ///
    /// # Errors
    /// [`SealError::Head`], [`SealError::Segment`]; every later call returns the same error.
    pub fn push(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        self.guarded(|stream| stream.try_push(sealed, out))
    }

    /// Signals the end of the input and opens the rest as the last segment. Returns the length of
    /// the body.
    ///
    /// # Errors
    /// [`SealError::Cut`] if the input ends early, and those of [`push`](Self::push).
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<u64, SealError> {
        self.guarded(|stream| stream.try_finish(out))
    }

    /// Remembers an error, after which nothing more is output.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, SealError>,
    ) -> Result<T, SealError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        work(self).inspect_err(|error| {
            self.text.0.clear();
            self.failed = Some(error.clone());
        })
    }

    fn try_push(&mut self, mut sealed: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        while !sealed.is_empty() {
            let want = match &self.stage {
                Stage::Head { .. } => SEAL_HEAD_LEN,
                Stage::Segments(opener) => opener.layout().capacity(self.next) + TAG_LEN,
            };
            if self.text.0.len() == want {
                self.advance(out)?;
                continue;
            }
            let (now, later) = sealed.split_at((want - self.text.0.len()).min(sealed.len()));
            self.text.0.extend_from_slice(now);
            sealed = later;
        }
        Ok(())
    }

    /// Creates the opener from a full head, or opens a full segment that is followed by more bytes.
    fn advance(&mut self, out: &mut Vec<u8>) -> Result<(), SealError> {
        match &self.stage {
            Stage::Head { key, stream_id, commitment, header, backend } => {
                let head = self.text.0.first_chunk().ok_or(SealError::Cut { offset: 0 })?;
                let (stream_id, commitment) = (*stream_id, *commitment);
                let context = SealContext { stream_id, commitment, header };
                self.stage = Stage::Segments(Opener::new(key, &context, head, *backend)?);
            }
            Stage::Segments(opener) => {
                let plain = opener.open_segment(self.next, false, &mut self.text.0)?;
                out.extend_from_slice(self.text.0.get(..plain).unwrap_or_default());
                self.next += 1;
            }
        }
        self.text.0.clear();
        Ok(())
    }

    fn try_finish(&mut self, out: &mut Vec<u8>) -> Result<u64, SealError> {
        let Stage::Segments(opener) = &self.stage else {
            return Err(self.no_head());
        };
        let layout = opener.layout();
        let offset = layout.sealed_start(self.next) + self.text.0.len() as u64;
        if self.text.0.len() < TAG_LEN {
            return Err(SealError::Cut { offset });
        }
        // Remembered, to distinguish a stream that was cut between two segments from a damaged one.
        let full = self.text.0.len() == layout.capacity(self.next) + TAG_LEN;
        let mut again = Text(if full { self.text.0.clone() } else { Vec::new() });
        let plain = match opener.open_segment(self.next, true, &mut self.text.0) {
            Ok(plain) => plain,
            Err(_) if full && opener.open_segment(self.next, false, &mut again.0).is_ok() => {
                return Err(SealError::Cut { offset });
            }
            Err(error) => return Err(error),
        };
        out.extend_from_slice(self.text.0.get(..plain).unwrap_or_default());
        let before = layout.plain_range(self.next, u64::MAX).start;
        Ok(before + plain as u64)
    }

    fn no_head(&self) -> SealError {
        match self.text.0.first() {
            Some(&got) if got != super::HEAD_BYTE => SealError::Head { got },
            _ => SealError::Cut { offset: self.text.0.len() as u64 },
        }
    }

    #[cfg(test)]
    pub(super) fn with_opener(opener: Opener) -> Self {
        let stage = Stage::Segments(opener);
        Self { stage, text: Text::default(), next: 0, failed: None }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Head { .. } => "Head",
            Stage::Segments(_) => "Segments",
        })
    }
}
