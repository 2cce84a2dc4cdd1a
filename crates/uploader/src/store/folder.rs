//! Entries that only a directory as a store can hold: symbolic links, and names that are no keys.
//!
//! Objects behind a symbolic link can be read: a backup may have been moved to another disk. But
//! nothing is written or removed through a link below the store's folder, because the same objects
//! may belong to another name: `current -> monday` is a habit of many scripts.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object_store::{ObjectMeta, ObjectStoreExt as _};
use xb_files::or_none;

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::raw_request::RawApi;
use crate::service::NO_ACCESS;
use crate::store::{Store, path_of};

/// Appended to a name that cannot be a key, so that it never looks like an object of ours.
const UNUSABLE: &str = " (unusable name)";
const NOT_MOUNTED: &str =
    "mount its disk, or put the directory back; if this one is right, start the command again";
const NO_LINKS: &str =
    "a local store needs a file system with hard links: use a directory on another one";

/// Returns whether a folder as a store takes the file `name` for an unfinished one: no listing shows it, and it cannot be
/// the name of an object. This is the rule of the `object_store` crate.
#[must_use]
pub fn is_unfinished_file(name: &str) -> bool {
    name.split_once('#').is_some_and(|(_, number)| is_number(number))
}

/// Returns whether a text is a number as unfinished files have it.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

impl Store {
    /// Fails if this is a folder that is not the one that was opened.
    pub(crate) async fn refuse_other_folder(
        &self,
        operation: Operation,
        key: &str,
    ) -> Result<(), StoreError> {
        let Some(opened) = self.traits.opened.clone() else { return Ok(()) };
        // A mount may hang.
        let lost = tokio::task::spawn_blocking(move || opened.lost()).await;
        match lost.ok().flatten() {
            None => Ok(()),
            Some(what) => Err(StoreError::new(operation, key, StoreErrorKind::Unavailable, what)
                .with_hint(Some(NOT_MOUNTED.into()))),
        }
    }

    /// Returns the first symbolic link in the path of `key`, or in the folder `key`, as a path below
    /// the store's folder; `None` without links, and for other stores.
    #[must_use]
    pub fn link_below(&self, key: &str) -> Option<String> {
        let RawApi::Folder(root) = &self.traits.raw_api else { return None };
        self.link_in(key).or_else(|| {
            let mut todo = vec![root.join(key)];
            while let Some(folder) = todo.pop() {
                for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                    match entry.file_type() {
                        Ok(kind) if kind.is_symlink() => return Some(below(root, &entry.path())),
                        Ok(kind) if kind.is_dir() => todo.push(entry.path()),
                        _ => {}
                    }
                }
            }
            None
        })
    }

    /// Returns whether the folder `key` exists and holds no file, as a mount point does whose disk is not mounted; `false`
    /// for other stores. A removal takes the folder along.
    #[must_use]
    pub fn may_be_mount_point(&self, key: &str) -> bool {
        let RawApi::Folder(root) = &self.traits.raw_api else { return false };
        let folder = root.join(key);
        folder.is_dir() && !has_file(&folder)
    }

    /// Returns the first symbolic link in the path of the folder `key` if no file is behind it, as if its target is on a disk that
    /// is not mounted; `None` for other stores.
    #[must_use]
    pub fn link_to_nothing(&self, key: &str) -> Option<String> {
        let RawApi::Folder(root) = &self.traits.raw_api else { return None };
        self.link_in(key).filter(|_| !has_file(&root.join(key)))
    }

    /// Adds the likely cause if a file cannot be created under its name.
    pub(crate) fn with_link_hint(&self, error: StoreError) -> StoreError {
        let folder = matches!(self.traits.raw_api, RawApi::Folder(_));
        let refused = ["Operation not permitted", "not supported", "Function not implemented"];
        let text = error.to_string();
        match folder && refused.iter().any(|refused| text.contains(refused)) {
            true => error.with_hint(Some(NO_LINKS.into())),
            false => error,
        }
    }

    /// Returns the first symbolic link in the path of `key` below the store's folder.
    #[must_use]
    pub fn link_in(&self, key: &str) -> Option<String> {
        let RawApi::Folder(root) = &self.traits.raw_api else { return None };
        let mut path = root.clone();
        for part in key.split('/').filter(|part| !part.is_empty()) {
            path.push(part);
            match path.symlink_metadata() {
                Ok(facts) if facts.is_symlink() => return Some(below(root, &path)),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Fails if a folder holds a FIFO, socket or device of this name: opening one may wait without end.
    pub(crate) fn refuse_special(
        &self,
        path: &object_store::path::Path,
    ) -> object_store::Result<()> {
        let RawApi::Folder(root) = &self.traits.raw_api else { return Ok(()) };
        match fs::metadata(root.join(path.as_ref())) {
            Ok(facts) if !facts.is_file() && !facts.is_dir() => Err(object_store::Error::Generic {
                store: "LocalFileSystem",
                source: "it is a FIFO, a socket or a device, and no file: move it away".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Fails if `key` leads through a symbolic link.
    pub(crate) fn refuse_link(&self, operation: Operation, key: &str) -> Result<(), StoreError> {
        let Some(link) = self.link_in(key) else { return Ok(()) };
        let what =
            format!("{link} is a symbolic link, and nothing is written or removed through links");
        Err(StoreError::new(operation, key, StoreErrorKind::Rejected, what)
            .with_hint(Some("remove the link, or name what it points to".into())))
    }

    /// Returns whether a folder holds a finished file whose path below it is such a one.
    pub(crate) fn has_file_like(
        &self,
        root: &Path,
        prefix: &str,
        is_it: fn(&str) -> bool,
    ) -> Result<bool, StoreError> {
        let folder = root.join(prefix);
        let mut is_like = |file: &Path| {
            let key = below(&folder, file);
            !is_unfinished_file(key.rsplit('/').next().unwrap_or(&key)) && is_it(&key)
        };
        let found =
            files(root, prefix, &mut is_like).map_err(|(folder, error)| unread(&folder, &error))?;
        Ok(found.last().is_some_and(|last| is_like(last)))
    }

    /// Lists a folder that the store crate cannot list, because it holds a link that leads in a
    /// circle, or names that are no keys. Such links are left out; such names cannot be used, but
    /// are listed, without metadata, so that nothing takes the folder for empty.
    pub(crate) async fn list_by_walking(
        &self,
        root: &Path,
        prefix: &str,
    ) -> Result<Vec<(String, Option<ObjectMeta>)>, StoreError> {
        let mut found = Vec::new();
        for file in files(root, prefix, &mut |_| false)
            .map_err(|(folder, error)| unread(&folder, &error))?
        {
            let key = below(root, &file);
            if is_unfinished_file(key.rsplit('/').next().unwrap_or(&key)) {
                continue;
            }
            match file.to_str().and(path_of(Operation::List, &key).ok()) {
                None => found.push((key + UNUSABLE, None)),
                Some(path) => {
                    let meta = unless_gone(self.objects.head(&path).await)
                        .map_err(|error| unread(&file, &io::Error::other(error)))?;
                    found.extend(meta.map(|meta| (key, Some(meta))));
                }
            }
        }
        Ok(found)
    }
}

/// The facts about a file that may have been removed since its name was read. Any other error must not leave it out of
/// a listing.
fn unless_gone(head: object_store::Result<ObjectMeta>) -> object_store::Result<Option<ObjectMeta>> {
    match head {
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// The path of an entry below `root`, with replacements for bytes that are not UTF-8.
fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn unread(folder: &Path, error: &io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => StoreErrorKind::Denied,
        _ => StoreErrorKind::Rejected,
    };
    let hint = (kind == StoreErrorKind::Denied).then(|| NO_ACCESS.into());
    StoreError::new(Operation::List, folder.display().to_string(), kind, error.to_string())
        .with_hint(hint)
}

/// All files below a folder, or those up to the one that is wanted. Links are followed, except where they lead in a circle.
fn files(
    root: &Path,
    prefix: &str,
    is_wanted: &mut dyn FnMut(&Path) -> bool,
) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut found = Vec::new();
    let mut todo = vec![(root.join(prefix), BTreeSet::new())];
    while let Some((folder, mut above)) = todo.pop() {
        let failed = |error| (folder.clone(), error);
        let Some(facts) = or_none(fs::metadata(&folder)).map_err(failed)? else { continue };
        if !above.insert((facts.dev(), facts.ino())) {
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // A link that leads nowhere, or in a circle, is no object.
            match fs::metadata(&path) {
                Ok(facts) if facts.is_dir() => todo.push((path, above.clone())),
                Ok(facts) if facts.is_file() => {
                    found.push(path);
                    if found.last().is_some_and(|path| is_wanted(path)) {
                        return Ok(found);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Names of the folders directly in `folder`, also behind links, that hold a file.
pub(crate) fn folders_in(folder: &Path) -> object_store::Result<Vec<String>> {
    // As the store crate names it, so that its errors get the hints for local directories.
    let failed = |error: io::Error| object_store::Error::Generic {
        store: "LocalFileSystem",
        source: Box::new(error),
    };
    let entries = or_none(fs::read_dir(folder)).map_err(failed)?;
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        let path = entry.map_err(failed)?.path();
        // Another program may have removed the files and left their folders.
        if path.is_dir() && has_file(&path) {
            // A name that is not UTF-8 is no name of ours.
            found.extend(path.file_name().and_then(|name| name.to_str()).map(str::to_owned));
        }
    }
    Ok(found)
}

/// Returns whether a folder or one of its folders holds a file. A folder that cannot be read counts as if
/// it does.
pub(crate) fn has_file(folder: &Path) -> bool {
    let Ok(entries) = or_none(fs::read_dir(folder)) else { return true };
    for entry in entries.into_iter().flatten() {
        let Ok(entry) = entry else { return true };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !has_file(&entry.path()) => {}
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_gone_is_left_out() {
        let failed = || Box::new(io::Error::other("Input/output error"));
        let gone = object_store::Error::NotFound { path: "a".to_owned(), source: failed() };
        assert_eq!(unless_gone(Err(gone)).unwrap(), None);
        let broken = object_store::Error::Generic { store: "LocalFileSystem", source: failed() };
        assert!(unless_gone(Err(broken)).is_err());
    }
}
