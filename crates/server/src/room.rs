//! Room on the disk of a server.

use std::path::Path;

/// Bytes that are free where `path` is, if the file system tells.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    // Some file systems in user space tell nothing. Root may write where only its reserve is left.
    let blocks = if rustix::process::geteuid().is_root() { stat.f_bfree } else { stat.f_bavail };
    (stat.f_blocks > 0).then(|| blocks.saturating_mul(stat.f_frsize))
}
