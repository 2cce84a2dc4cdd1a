//! Packets over anything that reads and writes.

use std::io::{BufRead, BufReader, Read, Write};

use crate::dump::{DumpItem, DumpReply};
use crate::error::Error;
use crate::packet::Packets;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// A connection that carries packets.
#[derive(Debug)]
pub(crate) struct Link<S> {
    stream: BufReader<S>,
    pub(crate) packets: Packets,
}

impl<S: Read + Write> Link<S> {
    pub(crate) fn new(stream: S, packets: Packets) -> Self {
        Self { stream: BufReader::with_capacity(BUFFER, stream), packets }
    }

    pub(crate) fn stream(&self) -> &S {
        self.stream.get_ref()
    }

    /// The stream alone, for TLS to begin on it. Bytes that the server sent before are refused: they
    /// would be taken for bytes that came over TLS.
    pub(crate) fn into_parts(self) -> Result<(S, Packets), Error> {
        if !self.stream.buffer().is_empty() {
            return Err(Error::Malformed { packet: "before TLS" });
        }
        Ok((self.stream.into_inner(), self.packets))
    }

    pub(crate) fn send(&mut self, payload: &[u8], doing: &'static str) -> Result<(), Error> {
        let bytes = self.packets.frame(payload);
        let stream = self.stream.get_mut();
        stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(|e| Error::io(doing, e))
    }

    /// Sends a packet of one piece beside those that are numbered.
    pub(crate) fn send_apart(&mut self, payload: &[u8], doing: &'static str) -> Result<(), Error> {
        let bytes = Packets::new(0).frame(payload);
        let stream = self.stream.get_mut();
        stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(|e| Error::io(doing, e))
    }

    /// Returns whether bytes have arrived that nothing has taken.
    pub(crate) fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    pub(crate) fn receive(&mut self, doing: &'static str) -> Result<Vec<u8>, Error> {
        self.take(doing, Packets::take)
    }

    /// Waits for the next bytes of a dump, and passes them on.
    pub(crate) fn dumped<R>(
        &mut self,
        reply: &mut DumpReply,
        doing: &'static str,
        mut pass: impl FnMut(DumpItem<'_>) -> R,
    ) -> Result<R, Error> {
        self.take(doing, |packets, input| Ok(reply.take(packets, input)?.map(&mut pass)))
    }

    /// The same, of all bytes that were read at once, until `pass` returns something or the server asks for an acknowledgement.
    pub(crate) fn dumped_together<R>(
        &mut self,
        reply: &mut DumpReply,
        doing: &'static str,
        mut pass: impl FnMut(DumpItem<'_>) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        self.take(doing, |packets, input| {
            let mut has_passed = false;
            while let Some(item) = reply.take(packets, input)? {
                let found = pass(item);
                if found.is_some() || reply.has_request() {
                    return Ok(Some(found));
                }
                has_passed = true;
            }
            Ok(has_passed.then_some(None))
        })
    }

    /// Passes bytes to `step` as they arrive, until it returns something.
    fn take<R>(
        &mut self,
        doing: &'static str,
        mut step: impl FnMut(&mut Packets, &mut &[u8]) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        loop {
            let mut input = match self.stream.fill_buf() {
                Ok([]) => return Err(Error::Closed { doing }),
                Ok(input) => input,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io(doing, e)),
            };
            let before = input.len();
            let found = step(&mut self.packets, &mut input)?;
            let taken = before - input.len();
            self.stream.consume(taken);
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}
