//! One listing of the catalogue.
//!
//! A store may leave an object out of a listing, or answer that a listed object does not exist. So an
//! object counts as absent only where a listing and a read by key agree: a read of a listed object
//! that finds nothing is repeated ([`Root::knowing`](crate::root::Root::knowing)), and what
//! a listing does not show is read by key before anything is removed because of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use xb_uploader::ListedObject;

use crate::names::{BackupName, CATALOG, claims_folder};

/// Time of the last write, in seconds since 1970, and size of an object.
pub type ObjectStat = (i64, u64);

/// The objects of a catalogue, by their keys below it. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct Catalogue(Arc<BTreeMap<String, ObjectStat>>);

impl Catalogue {
    /// Keeps what a listing shows, whose keys are relative to the catalogue.
    pub fn of(listed: &[ListedObject]) -> Self {
        let entry = |listed: &ListedObject| (listed.key.clone(), (listed.modified, listed.size));
        Self(Arc::new(listed.iter().map(entry).collect()))
    }

    /// Returns whether the listing shows this object.
    pub fn shows(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns whether the listing shows a claim of `name` that was written at `since` or later, in seconds since 1970.
    pub(crate) fn is_claimed_since(&self, name: &BackupName, since: i64) -> bool {
        let folder = format!("{}/", claims_folder(name));
        let folder = folder.trim_start_matches(CATALOG).trim_start_matches('/');
        let mut claims =
            self.0.range(folder.to_owned()..).take_while(|(key, _)| key.starts_with(folder));
        claims.any(|(_, (modified, _))| *modified >= since)
    }

    /// The names that have a manifest.
    pub fn names(&self) -> impl Iterator<Item = (BackupName, ObjectStat)> {
        // Deeper keys are records and claims, not manifests.
        let manifests = self.0.iter().filter(|(key, _)| !key.contains('/'));
        manifests.filter_map(|(key, written)| Some((BackupName::new(key).ok()?, *written)))
    }
}
