//! Fast input that reacts to signals.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::program::signals::interrupted;
use crate::stdio::bulk::standard_stream;

/// Maximum wait for input before a check for signals.
const SIGNAL_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Standard input or a file, without the standard library's buffer.
#[derive(Debug)]
pub struct Input {
    file: File,
}

impl Input {
    /// Opens standard input and enlarges its pipe.
    ///
    /// # Errors
    /// Standard input is closed.
    pub fn stdin() -> io::Result<Self> {
        Ok(Self { file: standard_stream(&io::stdin())? })
    }

    /// Opens the file at `path`, which may be a FIFO.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        xb_files::enlarge_pipe(&file);
        Ok(Self { file })
    }

    /// Waits for input, or for its end, up to a fifth of a second. Returns false if there is none
    /// yet.
    ///
    /// # Errors
    /// The error of the system.
    pub fn wait(&self) -> io::Result<bool> {
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&SIGNAL_CHECK)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns another descriptor of the input, which shares its position.
    ///
    /// # Errors
    /// The error of the system.
    pub fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Returns the number of bytes from here to the end, if the input is a file.
    #[allow(clippy::len_without_is_empty, reason = "the input is not a file and has no length")]
    pub fn len(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let position = rustix::fs::tell(&self.file).ok()?;
        metadata.len().checked_sub(position)
    }
}

impl Input {
    /// Returns a reader of this input that fails once a signal has asked the process to end
    /// ([`interrupted`]), even while no input arrives.
    pub fn until_interrupted(self) -> UntilInterrupted {
        UntilInterrupted(self)
    }
}

/// Reader returned by [`Input::until_interrupted`].
#[derive(Debug)]
pub struct UntilInterrupted(Input);

impl Read for UntilInterrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(signal) = interrupted() {
                // The kind `Interrupted` would make readers try again.
                return Err(io::Error::other(format!("interrupted by signal {signal}")));
            }
            if self.0.wait()? {
                return self.0.read(buffer);
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}
