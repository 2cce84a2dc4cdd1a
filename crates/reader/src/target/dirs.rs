//! Creates and opens directories, one component at a time.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Mode of directories, reduced by the umask.
pub(crate) const DIR_MODE: Mode = Mode::from_raw_mode(0o750);

/// Flags for opening one component of a path: no symbolic link is followed.
pub(crate) const STEP: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn make_dir(
    at: &OwnedFd,
    name: impl rustix::path::Arg,
    mode: Mode,
) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(at, name, mode) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}
