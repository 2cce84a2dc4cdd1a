//! Small files: text that a backup program writes, and files that are written whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Longest info file that is read, in bytes.
const MAX_INFO: u64 = 1 << 20;

/// Content of a small text file, or `None` if it is too long or not text.
pub(crate) fn read_small(path: &Path) -> Option<String> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    (meta.is_file() && meta.len() <= MAX_INFO).then(|| std::fs::read_to_string(path).ok())?
}

/// Replaces a file, durably; a reader finds the old content or the new one. It gets the permissions of the old
/// one, or those of a new file that its owner and group may read.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mode = path.metadata().map_or(0o640, |meta| meta.permissions().mode() & 0o777);
    let mut file = tempfile::Builder::new().prefix(".xb-").tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}
