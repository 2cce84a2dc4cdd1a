//! Payload that the decoder never sees.

use super::{Decoder, Stage};

impl Decoder {
    /// Number of payload bytes of the current chunk that have not been taken yet.
    #[must_use]
    pub fn payload_left(&self) -> u64 {
        match &self.stage {
            Stage::Payload { left, .. } => *left,
            _ => 0,
        }
    }

    /// Skips up to `len` bytes of the current chunk's payload, as if they had been taken from an
    /// input. Returns the number of bytes skipped. For callers that can read the payload without
    /// the decoder, such as from a file.
    ///
    /// ```
    /// use xb_reader::{ChunkWriter, Decoder, Dialect, Event, Limits};
    ///
    /// let mut stream = ChunkWriter::new(Vec::new());
    /// stream.payload("f", 0, b"0123456789")?;
    /// let stream = stream.finish()?;
    /// let mut decoder = Decoder::new(Dialect::Auto, Limits::default());
    /// let mut head = &stream[..stream.len() - 10];
    /// assert!(matches!(decoder.next(&mut head)?, Some(Event::Head(_))));
    /// assert_eq!((decoder.payload_left(), decoder.skip_payload(99)), (10, 10));
    /// assert_eq!(decoder.next(&mut &[][..])?, Some(Event::ChunkEnd));
    /// assert_eq!(decoder.position(), stream.len() as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip_payload(&mut self, len: u64) -> u64 {
        let Stage::Payload { left, .. } = &mut self.stage else { return 0 };
        let skipped = len.min(*left);
        *left -= skipped;
        self.taken += skipped;
        skipped
    }
}
