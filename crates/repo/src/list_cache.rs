//! Local cache of what listings read from the catalogue, and of the names that they showed: a backup that vanishes from
//! the listings is asked for by its key.
//!
//! It serves only people who look at the same backups every day: no decision about a backup relies
//! on it. An entry is identified by what the store's listing reports about the object, so a
//! replaced object is read again. An invalid entry is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use xb_uploader::ListedObject;

use crate::hex::hex;
use crate::names::BackupName;

/// Size limit of a cached object in bytes; manifests and records are never larger.
const MAX_LEN: usize = 1 << 20;
/// Length of the checksum before an entry, in bytes.
const SUM: usize = 32;

/// Entry with the names of the backups that the last listing has shown.
const NAMES: &str = "names";

/// Directory in which listings of one ROOT cache what they read.
#[derive(Debug, Clone)]
pub struct ListCache {
    folder: PathBuf,
}

impl ListCache {
    /// Opens the cache below `folder` of the ROOT with this [`identity`](crate::root::identity). Returns `None` if the directory cannot be created or others can write to
    /// it.
    #[must_use]
    pub fn open(folder: &Path, identity: &str) -> Option<Self> {
        let folder = folder.join(identity);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
        let facts = fs::symlink_metadata(&folder).ok()?;
        let ours = facts.is_dir()
            && facts.uid() == rustix::process::geteuid().as_raw()
            && facts.mode() & 0o022 == 0;
        ours.then_some(Self { folder })
    }

    fn get(&self, entry: &str) -> Option<Bytes> {
        let file = self.folder.join(entry);
        if fs::symlink_metadata(&file).ok()?.len() > (MAX_LEN + SUM) as u64 {
            return None;
        }
        let bytes = Bytes::from(fs::read(file).ok()?);
        let (sum, content) = bytes.split_at_checked(SUM)?;
        (Sha256::digest(content)[..] == *sum).then(|| bytes.slice(SUM..))
    }

    /// Stores an entry. Content that is too long is skipped and read again next time.
    fn put(&self, entry: &str, content: &Bytes) -> std::io::Result<()> {
        if content.len() > MAX_LEN {
            return Ok(());
        }
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&Sha256::digest(content))?;
        file.write_all(content)?;
        file.persist(self.folder.join(entry)).map_err(|error| error.error)?;
        Ok(())
    }

    /// The names of the backups that the last listing has shown.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let names = self.get(NAMES).unwrap_or_default();
        String::from_utf8_lossy(&names).lines().map(str::to_owned).collect()
    }

    /// Remembers the names of the backups that a listing has shown, unless they are too many.
    pub(crate) fn remember<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.collect();
        let text = Bytes::from(names.into_iter().flat_map(|name| [name, "\n"]).collect::<String>());
        if self.get(NAMES).as_ref() == Some(&text) {
            return;
        }
        if text.len() > MAX_LEN || self.put(NAMES, &text).is_err() {
            let _ = fs::remove_file(self.folder.join(NAMES));
        }
    }

    /// Removes all entries except these.
    fn keep_only(&self, entries: &BTreeSet<&String>) {
        let is_entry = |name: &str| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if is_entry(&name) && !entries.contains(&name) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// Key of the entry that remembers that the backup `name`, with the manifest that is listed now, has
/// objects. No object has such a key.
pub(crate) fn seen_key(name: &BackupName) -> String {
    format!("{name}\nobjects")
}

/// The cache during one listing of the catalogue.
#[derive(Debug, Clone)]
pub struct Cached {
    cache: ListCache,
    /// Cache entry for each key below the catalogue.
    entries: Arc<BTreeMap<String, String>>,
}

impl Cached {
    /// Starts from the current objects, and removes the entries of all others.
    pub fn new(cache: &ListCache, there: &[ListedObject]) -> Self {
        let entry = |listed: &ListedObject| {
            let ListedObject { key, size, modified, tag } = listed;
            let tag = tag.as_deref().unwrap_or_default();
            hex(&Sha256::digest(format!("{key}\n{size}\n{modified}\n{tag}")))
        };
        let seen = |listed: &ListedObject| {
            let name = BackupName::new(&listed.key).ok()?;
            let key = seen_key(&name);
            Some((key.clone(), hex(&Sha256::digest(format!("{key}{}", entry(listed))))))
        };
        let mut entries: BTreeMap<_, _> =
            there.iter().map(|listed| (listed.key.clone(), entry(listed))).collect();
        entries.extend(there.iter().filter_map(seen));
        cache.keep_only(&entries.values().collect());
        Self { cache: cache.clone(), entries: Arc::new(entries) }
    }

    /// Returns whether the listing shows the object.
    pub fn lists(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns the cached content of the object.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.cache.get(self.entries.get(key)?)
    }

    /// Caches the content of the object.
    pub fn put(&self, key: &str, content: &Bytes) {
        if let Some(entry) = self.entries.get(key) {
            let _ = self.cache.put(entry, content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(key: &str, tag: &str) -> ListedObject {
        ListedObject { key: key.into(), size: 3, modified: 7, tag: Some(tag.into()) }
    }

    #[test]
    fn an_entry_is_given_back_only_for_the_object_that_it_is_of() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ListCache::open(folder.path(), "s3 here").unwrap();
        let there = [listed("a", "1"), listed("b", "1")];
        let cached = Cached::new(&cache, &there);
        for key in ["a", "b", "c"] {
            assert_eq!(cached.get(key), None);
            cached.put(key, &Bytes::from_static(b"abc"));
        }
        let again = Cached::new(&cache, &there);
        assert_eq!(again.get("a").as_deref(), Some(&b"abc"[..]));
        assert_eq!(again.get("c"), None, "no listing has shown it");
        let elsewhere = ListCache::open(folder.path(), "s3 there").unwrap();
        assert_eq!(Cached::new(&elsewhere, &there).get("a"), None);
        // One was replaced, the other deleted.
        let changed = Cached::new(&cache, &[listed("a", "2")]);
        assert_eq!(changed.get("a"), None);
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 0);
    }

    #[test]
    fn the_names_of_the_last_listing_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ListCache::open(folder.path(), "p").unwrap();
        assert!(cache.names().is_empty());
        cache.remember(["b", "a b"].into_iter());
        let _ = Cached::new(&cache, &[]);
        assert_eq!(cache.names(), ["a b", "b"].map(str::to_owned).into());
        cache.remember(std::iter::empty());
        assert!(cache.names().is_empty());
        let long = "n".repeat(MAX_LEN);
        cache.remember(["b"].into_iter());
        cache.remember([&*long].into_iter());
        assert!(cache.names().is_empty(), "those of an earlier listing");
    }

    #[test]
    fn a_damaged_cache_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ListCache::open(folder.path(), "p").unwrap();
        let cached = Cached::new(&cache, &[listed("a", "1")]);
        cached.put("a", &Bytes::from_static(b"abc"));
        let file = fs::read_dir(&cache.folder).unwrap().next().unwrap().unwrap().path();
        let good = fs::read(&file).unwrap();
        for n in 0..good.len() {
            let mut bad = good.clone();
            bad[n] ^= 1;
            fs::write(&file, &bad).unwrap();
            assert_eq!(cached.get("a"), None);
            fs::write(&file, &good[..n]).unwrap();
            assert_eq!(cached.get("a"), None);
        }
        fs::write(&file, vec![0; MAX_LEN + SUM + 1]).unwrap();
        assert_eq!(cached.get("a"), None);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(cached.get("a"), None);
        cached.put("a", &Bytes::from_static(b"abc"));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_none() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let cache = ListCache::open(folder.path(), "p").unwrap();
        fs::set_permissions(&cache.folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ListCache::open(folder.path(), "p").is_none());
        fs::remove_dir(&cache.folder).unwrap();
        symlink(folder.path(), &cache.folder).unwrap();
        assert!(ListCache::open(folder.path(), "p").is_none());
    }
}
