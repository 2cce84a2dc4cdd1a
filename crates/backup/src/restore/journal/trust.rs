//! Compares the files on disk with the journal.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, openat, syncfs};
use xb_reader::{ContentSum, TargetDir, sum_of};

use super::resume_state::{ResumeState, as_path};
use crate::cancel::CancelToken;

/// Reads back all files that the journal describes, and distrusts those that differ from it.
///
/// # Errors
/// Only on cancellation.
pub(super) fn compare(
    folder: &TargetDir,
    target: &Path,
    left: &mut ResumeState,
    cancel: &CancelToken<()>,
) -> Result<(), String> {
    let go_on = || match cancel.is_cancelled() {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    };
    // The files are read back from the medium. If the sync fails, the checksums show it.
    let _ = syncfs(folder.unfinished());
    let is = |at: BorrowedFd<'_>, name: &Path, wanted: ContentSum, whole: bool| {
        let found = sum(at, name, wanted.len(), go_on);
        found.is_ok_and(|(found, len)| found == wanted && (!whole || len == wanted.len()))
    };
    let whole = left.whole.iter().filter(|(name, file)| {
        let wanted = ContentSum::new(file.size, file.crc);
        !is(CWD, &target.join(as_path(name)), wanted, true)
    });
    let whole: Vec<_> = whole.map(|(name, _)| name.clone()).collect();
    let begun = left.begun.iter().filter(|(number, file)| {
        let wanted = ContentSum::new(file.upto, file.crc);
        !is(folder.unfinished(), Path::new(&number.to_string()), wanted, false)
    });
    let begun: Vec<_> = begun.map(|(number, _)| *number).collect();
    if go_on().is_err() {
        return Err("resuming it was interrupted".into());
    }
    for name in whole {
        left.doubt(name);
        left.distrusted += 1;
    }
    for number in begun {
        left.begun.remove(&number);
        left.distrusted += 1;
    }
    Ok(())
}

/// CRC-32 of the first `len` bytes of a file, and the length of the file.
fn sum(
    at: impl AsFd,
    name: &Path,
    len: u64,
    go_on: impl Fn() -> io::Result<()>,
) -> io::Result<(ContentSum, u64)> {
    // Non-blocking, because opening a pipe without a writer would block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(at, name, flags, Mode::empty())?);
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The page cache may hold more than the medium: a failed write is reported only once.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok((sum_of(&file, len, go_on)?, there.len()))
}
