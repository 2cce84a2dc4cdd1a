//! Store seen from outside, a folder or a bucket, so that one test can be written for both.

use std::fs;
use std::path::PathBuf;

use crate::process::daemon::Scratch;
use crate::stores::s3::{self, Bucket};

/// Path in a bucket that contains the backups of a test.
const PREFIX: &str = "backups/nightly";

/// Fresh store for backups. Keys are relative to ROOT, the parent of the backups' names.
#[derive(Debug)]
pub enum Store {
    /// Local folder.
    Folder {
        /// Path of ROOT.
        root: PathBuf,
        /// Scratch folder, removed with the store.
        scratch: Scratch,
    },
    /// Bucket on the S3 server of this process.
    Bucket(Bucket),
}

impl Store {
    /// Creates an empty folder.
    #[must_use]
    pub fn folder() -> Self {
        let scratch = Scratch::new();
        Self::Folder { root: scratch.dir("store"), scratch }
    }

    /// Creates an empty bucket.
    #[must_use]
    pub fn bucket() -> Self {
        Self::Bucket(s3::bucket())
    }

    /// Returns the URL of ROOT.
    #[must_use]
    pub fn root_url(&self) -> String {
        match self {
            Self::Folder { root, .. } => format!("file://{}", root.display()),
            Self::Bucket(bucket) => bucket.url(PREFIX),
        }
    }

    /// Returns the URL of a backup.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.root_url())
    }

    /// Returns the options that direct our programs to this store.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        match self {
            Self::Folder { .. } => Vec::new(),
            Self::Bucket(bucket) => bucket.options(),
        }
    }

    /// Returns the keys that begin with `prefix` and the sizes of their objects, in byte order.
    ///
    /// # Panics
    /// The store cannot be read. The other functions panic in this case, too.
    #[must_use]
    pub fn list(&self, prefix: &str) -> Vec<(String, u64)> {
        match self {
            Self::Folder { root, .. } => {
                let mut found = Vec::new();
                let mut todo = vec![root.clone()];
                while let Some(dir) = todo.pop() {
                    // Programs under test create and remove folders during the listing.
                    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                        let Ok(facts) = entry.metadata() else { continue };
                        if facts.is_dir() {
                            todo.push(entry.path());
                        } else {
                            let path = entry.path();
                            let key = path.strip_prefix(root).expect("below the root");
                            found.push((key.display().to_string(), facts.len()));
                        }
                    }
                }
                found.retain(|(key, _)| key.starts_with(prefix));
                found.sort();
                found
            }
            Self::Bucket(bucket) => {
                let keys = bucket.list(&format!("{PREFIX}/{prefix}"));
                let cut = |key: String| key[PREFIX.len() + 1..].to_owned();
                keys.into_iter().map(|(key, size)| (cut(key), size)).collect()
            }
        }
    }

    /// Returns the content of an object, if it exists.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        match self {
            Self::Folder { root, .. } => fs::read(root.join(key)).ok(),
            Self::Bucket(bucket) => bucket.get(&format!("{PREFIX}/{key}")),
        }
    }

    /// Stores an object.
    ///
    /// # Panics
    /// The store rejects the object.
    pub fn put(&self, key: &str, body: &[u8]) {
        match self {
            Self::Folder { root, .. } => {
                let path = root.join(key);
                fs::create_dir_all(path.parent().expect("parent")).expect("parent folders");
                fs::write(path, body).expect("object");
            }
            Self::Bucket(bucket) => bucket.put(&format!("{PREFIX}/{key}"), body),
        }
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// The object cannot be deleted.
    pub fn delete(&self, key: &str) {
        match self {
            Self::Folder { root, .. } => fs::remove_file(root.join(key)).expect("object"),
            Self::Bucket(bucket) => bucket.delete(&format!("{PREFIX}/{key}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_store() {
        let store = Store::folder();
        store.put("a/1", b"one");
        store.put("a.b", b"");
        store.put("b", b"x");
        assert_eq!(store.list("a"), [("a.b".to_owned(), 0), ("a/1".to_owned(), 3)]);
        store.delete("a/1");
        assert_eq!((store.get("a/1"), store.get("b")), (None, Some(b"x".to_vec())));
    }
}
