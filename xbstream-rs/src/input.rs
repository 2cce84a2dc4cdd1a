//! Standard input as fast as it comes, without being deaf for signals.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Pipes are enlarged to this many bytes, the most an ordinary user may ask for.
const PIPE: usize = 1 << 20;

/// How long to wait for input before looking at other things.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Standard input without the standard library's buffer.
pub(crate) struct Input {
    file: File,
}

impl Input {
    pub(crate) fn stdin() -> io::Result<Self> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        // No pipe, or a system with less to give: then it stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE);
        Ok(Self { file })
    }

    /// Waits for input, or for its end. False: there is none yet.
    pub(crate) fn wait(&self) -> io::Result<bool> {
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&PATIENCE)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes from here to the end, if the input is a file.
    pub(crate) fn len(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let position = rustix::fs::tell(&self.file).ok()?;
        metadata.len().checked_sub(position)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}
