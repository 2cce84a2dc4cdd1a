//! Small files: text that a backup program writes.

use std::path::Path;

/// Longest info file that is read, in bytes.
const MAX_INFO: u64 = 1 << 20;

/// Content of a small text file, or `None` if it is too long or not text.
pub(crate) fn read_small(path: &Path) -> Option<String> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    (meta.is_file() && meta.len() <= MAX_INFO).then(|| std::fs::read_to_string(path).ok())?
}
