//! Standard input and output for bulk data.

use std::fs::File;
use std::os::fd::AsFd;

/// Size we ask for a pipe, in bytes: what an unprivileged process may have.
const PIPE: usize = 1 << 20;

/// A standard stream without the library's buffer, its pipe enlarged where it is one.
pub(crate) fn enlarged(stream: &impl AsFd) -> std::io::Result<File> {
    let fd = stream.as_fd().try_clone_to_owned()?;
    // A file is no pipe, and a small pipe works too.
    let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE);
    Ok(File::from(fd))
}
