//! A lock of a folder of a directory as a store, in place of a condition of writes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use crate::operation::Operation;
use crate::request::raw_request::RawApi;
use crate::store::Store;
use crate::store::retry_loop::jitter;

/// Time limit for the lock of a folder. Another program has it for two small reads and a write.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// Pause before the lock is tried again; doubled at most.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
impl Store {
    /// Keeps other programs that change objects beside `key` away until the result is dropped; `None` for other
    /// stores, and where the folder cannot be locked within [`LOCK_LIMIT`]. A missing one is made if `makes_folder`.
    pub(crate) async fn lock_beside(&self, key: &str, makes_folder: bool) -> Option<fs::File> {
        let RawApi::Folder(root) = &self.traits.raw_api else { return None };
        // In the place of a disk that is away, no folder is made.
        self.refuse_other_folder(Operation::Put, key).await.ok()?;
        if self.link_in(key).is_some() {
            return None;
        }
        let folder = root.join(key).parent()?.to_owned();
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < LOCK_LIMIT {
            if makes_folder {
                fs::create_dir_all(&folder).ok()?;
            }
            let open = fs::File::open(&folder).ok()?;
            let is_there = || {
                let (open, there) = (open.metadata().ok()?, fs::metadata(&folder).ok()?);
                Some((open.dev(), open.ino()) == (there.dev(), there.ino()))
            };
            match open.try_lock() {
                // Otherwise it was removed since, and another one is locked by others.
                Ok(()) if is_there() == Some(true) => return Some(open),
                Ok(()) | Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(_)) => return None,
            }
            tokio::time::sleep(LOCK_PAUSE.mul_f64(1.0 + jitter())).await;
        }
        None
    }
}
