//! The files of a backup, from its index or the keys of its objects.

use std::collections::BTreeMap;

use serde::Serialize;
use xb_encryptor::DataKey;
use xb_frame::Record;
use xb_repo::manifest::{End, Layout, Manifest};
use xb_repo::names::BackupName;
use xb_repo::root::Root;

use crate::error::BackupError;
use crate::objects::classic::{ClassicFiles, list_classic};
use crate::read::packed_index::{Index, PackedBody};

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileEntry {
    /// Path in the stream; in a classic backup, path from its objects' keys.
    pub path: String,
    /// Size in bytes, holes included; unknown for a classic backup without reading it.
    pub size: Option<u64>,
    /// Total size of its objects in bytes. Classic only.
    pub stored_bytes: Option<u64>,
    /// Number of its objects. Classic only.
    pub objects: Option<u64>,
}

/// The files of a backup that may be read: with its key, if it is sealed.
///
/// # Errors
/// [`BackupError::Selection`] if its files cannot be determined; those of reading its index.
pub(crate) async fn files_of(
    root: &Root,
    name: &BackupName,
    manifest: Option<&Manifest>,
    key: Option<&DataKey>,
) -> Result<Vec<FileEntry>, BackupError> {
    let (content, why_not) = match manifest.filter(|stated| stated.layout == Layout::Packed) {
        Some(manifest) => packed(root, name, manifest, key).await?,
        None => (Some(classic(root, name, manifest).await?.0), None),
    };
    content.ok_or_else(|| {
        let why = why_not.unwrap_or("its files are not known");
        BackupError::Selection(format!("{name} has no list of files: {why}"))
    })
}

/// The files, or why they are not known.
pub(crate) type Content = (Option<Vec<FileEntry>>, Option<&'static str>);

pub(crate) async fn packed(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    key: Option<&DataKey>,
) -> Result<Content, BackupError> {
    let (Some(packed), Some(run)) = (&manifest.packed, manifest.run_id()) else {
        return Err(BackupError::Bug("a checked manifest is incomplete"));
    };
    if manifest.end == End::Raw {
        return Ok((None, Some("stored with --raw; content not inspected")));
    }
    if packed.sealed.is_some() && key.is_none() {
        return Ok((None, Some("sealed; give the key to list the files")));
    }
    let body = PackedBody::open(root, name, manifest, packed, run, key).await?;
    let index = Index::load(&body).await?;
    let mut files = Files::default();
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            files.record(&record.map_err(|error| index.bad_record(error))?);
        }
    }
    Ok((Some(files.finish()), None))
}

/// Collects the files from an index.
#[derive(Default)]
struct Files {
    names: BTreeMap<u64, Vec<u8>>,
    sizes: BTreeMap<Vec<u8>, (u64, u64)>,
}

impl Files {
    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::File { file, path, .. } => {
                // It replaces a file of that name, even if it is removed itself.
                self.sizes.remove(*path);
                self.names.insert(*file, path.to_vec());
            }
            Record::End { file, size } => {
                if let Some(path) = self.names.get(file) {
                    self.sizes.insert(path.clone(), (*file, *size));
                }
            }
            Record::Rename { file, path } => {
                let Some(old) = self.names.insert(*file, path.to_vec()) else { return };
                self.sizes.remove(*path);
                if let Some(of_old) = self.sizes.get(&old).copied().filter(|(id, _)| id == file) {
                    self.sizes.remove(&old);
                    self.sizes.insert(path.to_vec(), of_old);
                }
            }
            Record::Remove { file } => {
                if let Some(old) = self.names.remove(file)
                    && self.sizes.get(&old).is_some_and(|(id, _)| id == file)
                {
                    self.sizes.remove(&old);
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Vec<FileEntry> {
        let entry = |(path, (_, size)): (Vec<u8>, (u64, u64))| FileEntry {
            path: path.escape_ascii().to_string(),
            size: Some(size),
            stored_bytes: None,
            objects: None,
        };
        self.sizes.into_iter().map(entry).collect()
    }
}

/// The files that the store lists, and whether they are those of the manifest.
pub(crate) async fn classic(
    root: &Root,
    name: &BackupName,
    manifest: Option<&Manifest>,
) -> Result<(Vec<FileEntry>, bool), BackupError> {
    let agree = |files: &ClassicFiles| {
        manifest.is_none_or(|manifest| files.agree_with(name, manifest).is_ok())
    };
    let mut files = list_classic(root, name).await?;
    if !agree(&files) {
        // One listing that is short is no damage.
        files = list_classic(root, name).await?;
    }
    let entry = |(path, objects, bytes): (&str, u64, u64)| FileEntry {
        path: path.to_owned(),
        size: None,
        stored_bytes: Some(bytes),
        objects: Some(objects),
    };
    Ok((files.sizes().map(entry).collect(), agree(&files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_renames_and_removals() {
        let mut files = Files::default();
        let file =
            |file, path: &'static str| Record::File { file, source: 0, path: path.as_bytes() };
        for record in [
            file(0, "a"),
            file(1, "b"),
            Record::End { file: 0, size: 10 },
            Record::Rename { file: 0, path: b"c" },
            Record::Rename { file: 1, path: b"a" },
            Record::End { file: 1, size: 20 },
            file(2, "gone"),
            Record::End { file: 2, size: 30 },
            Record::Remove { file: 2 },
            file(3, "c"),
            Record::End { file: 3, size: 40 },
            // The older file of that name, before it was replaced.
            Record::Remove { file: 0 },
            // A replaced file does not come back.
            file(4, "again"),
            Record::End { file: 4, size: 50 },
            file(5, "again"),
            Record::Remove { file: 5 },
        ] {
            files.record(&record);
        }
        let found: Vec<_> = files.finish().into_iter().map(|f| (f.path, f.size)).collect();
        assert_eq!(found, [("a".to_owned(), Some(20)), ("c".to_owned(), Some(40))]);
    }
}
