//! Ledger of a run whose keys other runs may write, too: the objects it sent, and the store's
//! responses.
//!
//! At the end the ledger is compared with the store's listing, so that the commit proves that the
//! objects are this run's. The digest of all objects is computed from it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use xb_pipeline::sums as crc;
use xb_repo::keys::RunKeys;
use xb_repo::root::Root;
use xb_uploader::{ListedObject, StoreError, StoreErrorKind, StoredObject};

use crate::error::BackupError;
use crate::hints::REMOVERS;

/// Facts about one object.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    len: u64,
    /// CRC-64/NVME of the sent bytes; may be unknown if the store copied the object itself.
    crc: Option<u64>,
    /// Digest of the entity tag in the store's response.
    tag: Option<u64>,
    /// Whether the store has acknowledged it.
    acknowledged: bool,
}

/// The run that stored an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    ThisRun,
    /// This run has sent it, and got no response.
    Unknown,
    Other,
}

/// Objects, keyed by the digest of their keys, because keys are long and numerous.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: HashMap<u128, Entry>,
    /// Objects of which some pieces have arrived, but not the last.
    open: HashMap<Arc<str>, (u64, u64)>,
}

impl Ledger {
    /// Adds the next piece of any object; keys are relative to the backup's folder.
    pub(crate) fn piece(&mut self, key: &Arc<str>, piece: &[Bytes], end: bool) {
        let (mut len, mut sum) = self.open.remove(key).unwrap_or_default();
        for bytes in piece {
            let more = bytes.len() as u64;
            sum = crc::crc64_combine(sum, crc::crc64(bytes), more);
            len += more;
        }
        match end {
            true => self.entry(key, |entry| (entry.len, entry.crc) = (len, Some(sum))),
            false => drop(self.open.insert(Arc::clone(key), (len, sum))),
        }
    }

    /// Adds the store's responses.
    pub(crate) fn stored(&mut self, keys: &RunKeys, stored: Vec<StoredObject>) {
        for StoredObject { key, tag, .. } in stored {
            if let Some(below) = keys.below(&key) {
                self.entry(below, |entry| {
                    (entry.tag, entry.acknowledged) = (tag.as_deref().map(mark), true);
                });
            }
        }
    }

    /// Adds an object that the store copied itself.
    pub(crate) fn copied(&mut self, key: &str, len: u64, crc: Option<u64>) {
        self.entry(key, |entry| (entry.len, entry.crc) = (len, crc));
    }

    fn entry(&mut self, key: &str, change: impl FnOnce(&mut Entry)) {
        change(self.entries.entry(id(key)).or_default());
    }

    /// Length and checksum of an object.
    pub(crate) fn sum(&self, key: &str) -> Option<(u64, u64)> {
        let entry = self.entries.get(&id(key))?;
        Some((entry.len, entry.crc?))
    }

    /// Whose a listed object is: that of this run only if its size and its entity tag, or else its content, are what was
    /// stored.
    pub(crate) async fn owner(
        &self,
        root: &Root,
        keys: &RunKeys,
        listed: &ListedObject,
    ) -> Result<Owner, BackupError> {
        let Some(entry) = self.entries.get(&id(&listed.key)) else { return Ok(Owner::Other) };
        let Some(crc) = entry.crc.filter(|_| entry.len == listed.size) else {
            return Ok(Owner::Other);
        };
        let tag = listed.tag.as_deref().map(mark);
        let is_same = (tag.is_some() && tag == entry.tag) || {
            has_content(root, &keys.at(&listed.key), (entry.len, crc)).await?
        };
        Ok(match (is_same, entry.acknowledged) {
            (true, true) => Owner::ThisRun,
            // Another program may have stored the same bytes.
            (true, false) => Owner::Unknown,
            (false, _) => Owner::Other,
        })
    }

    /// Checks that the objects listed in the backup's folder are those that were sent. Reads an
    /// object back if its listed entity tag differs from the one in the response.
    pub(crate) async fn agrees_with(
        &self,
        root: &Root,
        keys: &RunKeys,
        name: &str,
        listed: &[ListedObject],
    ) -> Result<(), BackupError> {
        let damaged = |key: &str, what: &str| BackupError::Damaged {
            name: name.to_owned(),
            what: format!("object {key} {what}: another program wrote under this prefix"),
        };
        for object in listed {
            let Some(entry) = self.entries.get(&id(&object.key)) else {
                return Err(damaged(&object.key, "was not stored by this run"));
            };
            if entry.len != object.size {
                return Err(damaged(&object.key, "has a different size than this run stored"));
            }
            let Some(crc) = entry.crc else { continue };
            match object.tag.as_deref().map(mark) {
                found if found == entry.tag => continue,
                None => continue,
                Some(_) => {}
            }
            // The response was lost, or the store reports different tags for one object.
            let key = keys.at(&object.key);
            if !has_content(root, &key, (entry.len, crc)).await? {
                return Err(damaged(&object.key, "has different content than this run stored"));
            }
        }
        match listed.len() == self.entries.len() {
            true => Ok(()),
            false => Err(BackupError::Damaged {
                name: name.to_owned(),
                what: format!(
                    "this run stored {} objects, but only {} exist: the store lost some, or {REMOVERS} removed them",
                    self.entries.len(),
                    listed.len()
                ),
            }),
        }
    }
}

/// Returns whether an object has this length and checksum. What one answer contradicts is asked for again.
async fn has_content(root: &Root, key: &str, sent: (u64, u64)) -> Result<bool, StoreError> {
    let read = async || {
        let there = root.store().read_back(key).await?;
        Ok::<_, StoreError>((there.len, there.crc64) == sent)
    };
    match read().await {
        Ok(false) => {}
        Err(error) if error.kind == StoreErrorKind::NotFound => root.store().pause(1).await,
        read => return read,
    }
    read().await
}

fn id(key: &str) -> u128 {
    let digest: [u8; 32] = Sha256::digest(key).into();
    digest.iter().take(16).fold(0, |id, byte| id << 8 | u128::from(*byte))
}

/// Digest of a store's entity tag, without the parts that some listings omit.
fn mark(tag: &str) -> u64 {
    let bare = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    let mut hasher = DefaultHasher::new();
    bare.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_mixed_objects_are_summed_up_by_key() {
        let mut ledger = Ledger::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        ledger.piece(&a, &[bytes("123")], false);
        ledger.piece(&b, &[bytes("x")], true);
        ledger.piece(&a, &[bytes("45"), bytes("6789")], true);
        assert_eq!(ledger.sum("a"), Some((9, 0xae8b_1486_0a79_9888)));
        assert_eq!(ledger.sum("b"), Some((1, crc::crc64(b"x"))));
        assert_eq!(ledger.sum("c"), None);
    }

    #[test]
    fn marks_are_the_same_with_and_without_quotes() {
        assert_eq!(mark("\"abc\""), mark("abc"));
        assert_eq!(mark("W/\"abc\""), mark("abc"));
        assert_ne!(mark("abc"), mark("abd"));
    }
}
