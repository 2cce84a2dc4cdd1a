//! Moves files to names that are free.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

/// Moves a file within one file system; [`Errno::EXIST`] if the new name is taken.
pub(crate) fn move_into_place(
    old: impl AsFd,
    from: &[u8],
    new: impl AsFd,
    to: &[u8],
) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(&old, from, &new, to, RenameFlags::NOREPLACE) {
        // Not every file system supports the flag.
        Err(Errno::INVAL | Errno::NOSYS) => link_into_place(old, from, new, to),
        moved => moved,
    }
}

/// Moves a file where the flag is not supported. A hard link never replaces anything either.
pub(crate) fn link_into_place(
    old: impl AsFd,
    from: &[u8],
    new: impl AsFd,
    to: &[u8],
) -> rustix::io::Result<()> {
    rustix::fs::linkat(&old, from, new, to, AtFlags::empty())?;
    rustix::fs::unlinkat(old, from, AtFlags::empty())
}
