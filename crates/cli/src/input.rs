//! Input as fast as it comes, without being deaf for signals.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::signals::interrupted;

/// Pipes are enlarged to this many bytes, the most an ordinary user may ask for.
const PIPE: usize = 1 << 20;

/// How long to wait for input before looking at other things.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Standard input or a file, without the standard library's buffer.
#[derive(Debug)]
pub struct Input {
    file: File,
}

impl Input {
    /// Standard input, its pipe enlarged.
    ///
    /// # Errors
    /// When it is closed.
    pub fn stdin() -> io::Result<Self> {
        Ok(Self::of(File::from(io::stdin().as_fd().try_clone_to_owned()?)))
    }

    /// The file at `path`, which may be a FIFO.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?))
    }

    fn of(file: File) -> Self {
        // No pipe, or a system with less to give: then it stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE);
        Self { file }
    }

    /// Waits for input, or for its end, some tenths of a second. False: there is none yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&self) -> io::Result<bool> {
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&PATIENCE)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes from here to the end, if the input is a file.
    #[allow(clippy::len_without_is_empty, reason = "only a file has a length")]
    pub fn len(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let position = rustix::fs::tell(&self.file).ok()?;
        metadata.len().checked_sub(position)
    }
}

impl Input {
    /// The same, but reading fails when a signal has asked the process to end
    /// ([`interrupted`]), also while nothing comes.
    pub fn until_interrupted(self) -> UntilInterrupted {
        UntilInterrupted(self)
    }
}

/// See [`Input::until_interrupted`].
#[derive(Debug)]
pub struct UntilInterrupted(Input);

impl Read for UntilInterrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(signal) = interrupted() {
                // Not the kind `Interrupted`, after which readers try again.
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
