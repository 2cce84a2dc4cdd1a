//! Standard streams for bulk data.

use std::fs::File;
use std::os::fd::AsFd;

/// Returns a standard stream without the library's buffer, for bulk data; if it is a pipe, it is enlarged.
///
/// # Errors
/// The stream is closed.
pub fn standard_stream(stream: &impl AsFd) -> std::io::Result<File> {
    let file = File::from(stream.as_fd().try_clone_to_owned()?);
    xb_files::enlarge_pipe(&file);
    Ok(file)
}
