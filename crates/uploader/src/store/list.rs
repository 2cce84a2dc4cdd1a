//! Listings of objects and folders.

use futures::{StreamExt as _, TryStreamExt as _};

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::bounds::timely;
use crate::request::raw_request::{RawApi, failed};
use crate::store::folder::folders_in;
use crate::store::{Store, path_of};

/// Object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedObject {
    /// Full key.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last write, in seconds since 1970.
    pub modified: i64,
    /// Entity tag of the content (`ETag`), if the store returns one.
    pub tag: Option<String>,
}

impl Store {
    /// Lists all objects below the folder `prefix` (empty: all objects), in byte order of the keys.
    ///
    /// Stores return listings in different orders, so the result is sorted here. An entry that a
    /// listing repeats counts once.
    ///
    /// # Errors
    /// Any error, after all retries. A listing that fails partway, or that has two different
    /// entries of one key, is restarted.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, StoreError> {
        let listing = self.list_objects(prefix, usize::MAX).await;
        let mut found: Vec<ListedObject> = match (listing, &self.traits.raw_api) {
            // A directory itself is never unavailable.
            (Err(error), RawApi::Folder(root)) if error.kind != StoreErrorKind::Unavailable => {
                let unusable = |key| ListedObject { key, size: 0, modified: 0, tag: None };
                let found = self.list_by_walking(root, prefix).await?.into_iter();
                found.map(|(key, meta)| meta.map_or_else(|| unusable(key), listed)).collect()
            }
            (listing, _) => listing?,
        };
        // The listing of a directory is not sorted yet.
        found.sort_unstable();
        check_sizes(prefix, &found)?;
        Ok(found)
    }

    /// Like [`Store::list`], only the objects behind `prefix/after` in byte order of the keys. Costs one
    /// request for each 1000 of them where the store can begin a listing there.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn list_after(
        &self,
        prefix: &str,
        after: &str,
    ) -> Result<Vec<ListedObject>, StoreError> {
        let path = path_of(Operation::List, prefix)?;
        let offset = path_of(Operation::List, &format!("{prefix}/{after}"))?;
        let found = self.retrying(Operation::List, prefix, || async {
            let found = self.objects.list_with_offset(Some(&path), &offset);
            without_doubles(timely(found.map_ok(listed).try_collect()).await?)
        });
        let mut found = found.await.or_else(none_if_missing)?;
        // A store may pass over the offset.
        found.retain(|listed| listed.key.as_str() > offset.as_ref());
        check_sizes(prefix, &found)?;
        Ok(found)
    }

    /// Like [`Store::list`], for a bucket with at most `most` objects below `prefix`; `None` if there are
    /// more. It reads one page more than the objects need at most.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub async fn list_at_most(
        &self,
        prefix: &str,
        most: usize,
    ) -> Result<Option<Vec<ListedObject>>, StoreError> {
        let found = self.list_objects(prefix.trim_end_matches('/'), most).await?;
        check_sizes(prefix, &found)?;
        Ok(Some(found).filter(|found| found.len() <= most))
    }

    /// Reads a listing, sorted, up to the first object beyond `most`.
    async fn list_objects(
        &self,
        prefix: &str,
        most: usize,
    ) -> Result<Vec<ListedObject>, StoreError> {
        let path = path_of(Operation::List, prefix)?;
        self.retrying(Operation::List, prefix, || async {
            let found = self.objects.list(Some(&path)).take(most.saturating_add(1));
            without_doubles(timely(found.map_ok(listed).try_collect()).await?)
        })
        .await
        .or_else(none_if_missing)
    }

    /// Lists the folders directly below `prefix`, by their last component, in byte order. They hold
    /// objects, unless the store [may list others](Store::may_list_empty_folders).
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        if let RawApi::Folder(root) = &self.traits.raw_api {
            let folder = root.join(prefix);
            let list = || async { folders_in(&folder) };
            let mut found = self.retrying(Operation::List, prefix, list).await?;
            found.sort_unstable();
            return Ok(found);
        }
        let path = path_of(Operation::List, prefix)?;
        let mut found: Vec<String> = self
            .retrying(Operation::List, prefix, || async {
                let listing = timely(self.objects.list_with_delimiter(Some(&path))).await?;
                Ok(listing
                    .common_prefixes
                    .iter()
                    .filter_map(|p| p.filename().map(str::to_owned))
                    .collect())
            })
            .await
            .or_else(none_if_missing)?;
        found.sort_unstable();
        Ok(found)
    }

    /// Returns whether [`Store::folders`] may return folders without objects.
    #[must_use]
    pub fn may_list_empty_folders(&self) -> bool {
        self.traits.empty_folders
    }

    /// Returns whether an object lies below the folder `prefix` whose key, relative to it, is such a one. Reads a listing up to
    /// that object.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn has_object(
        &self,
        prefix: &str,
        is_it: fn(&str) -> bool,
    ) -> Result<bool, StoreError> {
        if let RawApi::Folder(root) = &self.traits.raw_api {
            self.refuse_other_folder(Operation::List, prefix).await?;
            return self.has_file_like(root, prefix, is_it);
        }
        let path = path_of(Operation::List, prefix)?;
        let folder = format!("{prefix}/");
        self.retrying(Operation::List, prefix, || async {
            let mut listed = self.objects.list(Some(&path));
            while let Some(object) = listed.try_next().await? {
                if object.location.as_ref().strip_prefix(&*folder).is_some_and(is_it) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }
}

fn none_if_missing<T>(error: StoreError) -> Result<Vec<T>, StoreError> {
    // A missing folder lists as empty, as a missing prefix does.
    if error.kind == StoreErrorKind::NotFound && error.operation == Operation::List {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}

fn listed(meta: object_store::ObjectMeta) -> ListedObject {
    ListedObject {
        key: meta.location.to_string(),
        size: meta.size,
        modified: meta.last_modified.timestamp(),
        tag: meta.e_tag,
    }
}

/// Two entries of a listing that have the same key and differ.
#[derive(Debug, thiserror::Error)]
#[error("the listing has two different entries of {0}")]
struct Contradiction(String);

/// Sorts a listing and removes entries that it repeats.
///
/// # Errors
/// [`Contradiction`]; another try may be answered with one entry.
fn without_doubles(mut found: Vec<ListedObject>) -> object_store::Result<Vec<ListedObject>> {
    found.sort_unstable();
    found.dedup();
    match found.array_windows().find(|[a, b]| a.key == b.key) {
        Some([double, _]) => Err(failed(Contradiction(double.key.clone()))),
        None => Ok(found),
    }
}

/// Checks that the sizes of a listing can be added: callers do, and a store may state any size.
fn check_sizes(prefix: &str, listing: &[ListedObject]) -> Result<(), StoreError> {
    let mut total = 0_u64;
    for listed in listing {
        total = total.checked_add(listed.size).ok_or_else(|| {
            let what = format!("impossible size of {}: {} bytes", listed.key, listed.size);
            StoreError::new(Operation::List, prefix, StoreErrorKind::Damaged, what)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_once_and_two_different_ones_are_refused() {
        let listed =
            |key: &str, size| ListedObject { key: key.into(), size, modified: 0, tag: None };
        let (a, b) = (listed("a", 1), listed("b", 1));
        let found = without_doubles(vec![b.clone(), a.clone(), b.clone(), a.clone()]).unwrap();
        assert_eq!(found, [a.clone(), b.clone()]);
        let tagged = ListedObject { tag: Some("t".into()), ..a.clone() };
        for other in [listed("a", 2), ListedObject { modified: 1, ..a.clone() }, tagged] {
            let error = without_doubles(vec![a.clone(), b.clone(), other]).unwrap_err();
            assert!(error.to_string().contains("two different entries of a"), "{error}");
        }
    }

    #[test]
    fn sizes_that_no_sum_can_hold_are_refused() {
        let listed =
            |key: &str, size| ListedObject { key: key.into(), size, modified: 0, tag: None };
        assert!(check_sizes("p", &[listed("a", u64::MAX - 1), listed("b", 1)]).is_ok());
        let error = check_sizes("p", &[listed("a", u64::MAX), listed("b", 1)]).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.to_string().contains("impossible size of b"), "{error}");
    }
}
