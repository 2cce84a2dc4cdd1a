//! Reader with a limited rate.

use std::io::{self, BufRead, Read};
use std::thread;
use std::time::Duration;

/// Reader with at most `rate` bytes per second, in steps of a sixteenth of a second.
pub(super) struct Slow<'a, R> {
    pub(super) from: &'a mut R,
    pub(super) rate: u64,
}

impl<R: BufRead> Read for Slow<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.rate / 16).unwrap_or(usize::MAX).max(1).min(into.len());
        let read = self.from.read(&mut into[..most])?;
        let nanos = read as u64 * 1_000_000_000 / self.rate;
        thread::sleep(Duration::from_nanos(nanos));
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Slow<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let rate = self.rate;
        let most = usize::try_from(rate / 16).unwrap_or(usize::MAX).max(1);
        let buffer = self.from.fill_buf()?;
        let piece = &buffer[..most.min(buffer.len())];
        thread::sleep(Duration::from_nanos(piece.len() as u64 * 1_000_000_000 / rate));
        Ok(piece)
    }

    fn consume(&mut self, amount: usize) {
        self.from.consume(amount);
    }
}
