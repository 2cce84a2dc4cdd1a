//! Reads the backup program's output in a thread of its own: the donor then sees whether there is more, and can do
//! something else while there is not.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes that are read at once.
const READ: usize = 256 << 10;
/// Number of buffers that wait to be taken.
const AHEAD: usize = 2;

/// A source that tells whether reading from it would wait.
pub(crate) trait Source: Read {
    /// Returns whether there are bytes, the end or an error.
    fn is_ready(&mut self) -> bool;
}

/// The output, some buffers ahead. The thread ends with the output; or with its next bytes, once this has been dropped.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    arriving: Receiver<io::Result<Vec<u8>>>,
    /// Buffers to use again: the first use of memory is slow.
    used: SyncSender<Vec<u8>>,
    /// What was taken from the thread, and how much of it was returned.
    current: io::Result<Vec<u8>>,
    at: usize,
    has_ended: bool,
}

impl ReadAhead {
    /// Begins to read. `arrived` is called whenever there is something new.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(
        source: impl Read + Send + 'static,
        arrived: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (arrives, arriving) = sync_channel(AHEAD);
        let (used, free) = sync_channel(AHEAD);
        let read = move || read_all(source, &arrives, &free, arrived);
        std::thread::Builder::new().name("read-ahead".into()).spawn(read)?;
        Ok(Self { arriving, used, current: Ok(Vec::new()), at: 0, has_ended: false })
    }

    fn has_current(&self) -> bool {
        self.has_ended || self.current.as_ref().map_or(true, |bytes| self.at < bytes.len())
    }

    fn set(&mut self, arrived: io::Result<Vec<u8>>) {
        self.has_ended = arrived.as_ref().is_ok_and(Vec::is_empty);
        self.at = 0;
        if let Ok(used) = std::mem::replace(&mut self.current, arrived) {
            // If there are enough, it is dropped.
            let _ = self.used.try_send(used);
        }
    }
}

fn read_all(
    mut source: impl Read,
    arrives: &SyncSender<io::Result<Vec<u8>>>,
    free: &Receiver<Vec<u8>>,
    arrived: impl Fn(),
) {
    loop {
        let mut buffer = free.try_recv().unwrap_or_default();
        buffer.resize(READ, 0);
        let read = match source.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read,
        };
        let is_last = !matches!(read, Ok(1..));
        let read = read.map(|len| {
            buffer.truncate(len);
            buffer
        });
        if arrives.send(read).is_err() {
            return;
        }
        arrived();
        if is_last {
            return;
        }
    }
}

impl Source for ReadAhead {
    fn is_ready(&mut self) -> bool {
        if !self.has_current()
            && let Ok(arrived) = self.arriving.try_recv()
        {
            self.set(arrived);
        }
        self.has_current()
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_current() {
            // It ends with the end or an error: without either, it has panicked.
            let gone = |_| Err(io::Error::other("the thread that reads it is gone"));
            let arrived = self.arriving.recv().unwrap_or_else(gone);
            self.set(arrived);
        }
        match &mut self.current {
            Ok(bytes) => {
                let rest = bytes.get(self.at..).unwrap_or_default();
                let len = rest.len().min(buffer.len());
                if let (Some(room), Some(now)) = (buffer.get_mut(..len), rest.get(..len)) {
                    room.copy_from_slice(now);
                }
                self.at += len;
                Ok(len)
            }
            // Nothing follows an error, not even the end.
            Err(error) => {
                let again = io::Error::new(error.kind(), error.to_string());
                Err(std::mem::replace(error, again))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that has failed must not look like one that has ended.
    #[test]
    fn an_error_stays_and_an_end_stays() {
        struct Fails(bool);
        impl Read for Fails {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                match std::mem::replace(&mut self.0, true) {
                    true => Err(ErrorKind::TimedOut.into()),
                    false => {
                        buffer[..3].copy_from_slice(b"abc");
                        Ok(3)
                    }
                }
            }
        }
        let mut failing = ReadAhead::start(Fails(false), || {}).unwrap();
        let mut two = [0; 2];
        assert_eq!((failing.read(&mut two).unwrap(), two), (2, *b"ab"));
        assert_eq!(failing.read(&mut two).unwrap(), 1);
        for _ in 0..2 {
            assert_eq!(failing.read(&mut two).unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(failing.is_ready());
        }
        let mut ending = ReadAhead::start(&b"abc"[..], || {}).unwrap();
        let mut all = Vec::new();
        ending.read_to_end(&mut all).unwrap();
        assert_eq!(
            (&all[..], ending.read(&mut two).unwrap(), ending.is_ready()),
            (&b"abc"[..], 0, true)
        );
    }

    #[test]
    fn a_thread_that_panics_is_no_end() {
        struct Panics;
        impl Read for Panics {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("on purpose")
            }
        }
        let mut reading = ReadAhead::start(Panics, || {}).unwrap();
        assert!(reading.read(&mut [0]).is_err());
    }
}
