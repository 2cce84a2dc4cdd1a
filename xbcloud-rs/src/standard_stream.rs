//! Standard input and output for bulk data.

use std::fs::File;
use std::os::fd::AsFd;

/// Pipe size to request, in bytes: the maximum for an unprivileged process.
const PIPE: usize = 1 << 20;

/// A standard stream without the library's buffer; if it is a pipe, the pipe is enlarged.
pub(crate) fn enlarged(stream: &impl AsFd) -> std::io::Result<File> {
    let fd = stream.as_fd().try_clone_to_owned()?;
    // Errors are ignored: the stream may be a file, and a small pipe works too.
    let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE);
    Ok(File::from(fd))
}
