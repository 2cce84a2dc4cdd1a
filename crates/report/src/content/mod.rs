//! The stored data: bytes by table, and sizes of objects, both in bounded memory.

pub(crate) mod file_shares;
pub(crate) mod object_sizes;
pub(crate) mod table_totals;

use std::sync::{Mutex, MutexGuard, PoisonError};

use xb_pipeline::Watcher;

use crate::content::file_shares::FileShares;
use crate::content::object_sizes::ObjectSizes;
use crate::content::table_totals::TableTotals;

/// Bytes by table and sizes of objects.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tables: TableTotals,
    pub(crate) objects: ObjectSizes,
    shares: FileShares,
}

/// Receives the content from the threads of the pipeline.
#[derive(Debug, Default)]
pub(crate) struct ContentWatcher(Mutex<Content>);

impl ContentWatcher {
    pub(crate) fn take(&self) -> Content {
        std::mem::take(&mut *self.content())
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // The counters are only added to, so a panic elsewhere leaves them usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for ContentWatcher {
    fn file_bytes(&self, path: &[u8], len: u64) {
        self.content().shares.add(path, len);
    }

    fn packed(&self, stored: Option<u64>) {
        let Content { tables, shares, .. } = &mut *self.content();
        shares.divide(stored, |path, plain, stored| tables.add(path, plain, stored));
    }

    fn transformed(&self, path: &[u8], stored: u64) {
        self.content().tables.add(path, 0, stored);
    }

    fn object(&self, size: u64) {
        self.content().objects.add(size);
    }
}
