//! Free space on a file system.

use std::path::Path;

use crate::error::SstError;

/// Usual size of the temporary tablespace, in bytes, which a server creates beside its system tablespace.
pub(super) const TEMPORARY: u64 = 12 << 20;

/// Returns the space that this user may still take.
///
/// # Errors
/// [`SstError::NoStat`].
pub(super) fn free_bytes(path: &Path) -> Result<u64, SstError> {
    let stat = rustix::fs::statvfs(path)
        .map_err(|error| SstError::NoStat { path: path.to_owned(), source: error.into() })?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_does_not_answer_has_no_endless_room() {
        let error = free_bytes(Path::new("/no/such/directory")).unwrap_err();
        assert!(matches!(error, SstError::NoStat { .. }), "{error}");
        assert_eq!(error.status(), 28);
    }
}
