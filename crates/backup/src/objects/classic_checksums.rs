//! Checksum list of a classic backup, and the digest of all its objects.
//!
//! The manifest has the digest: SHA-256 over, for each object by path and number, the length of its
//! key below the backup's folder, the key, the object's length and its CRC-64/NVME. The checksums,
//! 8 bytes each in that order, are stored in the catalogue under the run, so that no other run can
//! replace them. The [names](crate::objects::classic_names) of the files follow them.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use xb_repo::hex::hex;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_uploader::{Operation, StoreError, StoreErrorKind};

use crate::error::BackupError;
use crate::objects::checksums::{KnownChecksums, LEN, Summing, decode, encode};
use crate::objects::classic::{ClassicFiles, list_classic, list_stock};
use crate::objects::classic_names::{self, FileNames};
use crate::objects::ledger::Ledger;
use crate::objects::range::Range;

/// Computes the digest of all objects.
#[derive(Debug, Default)]
struct ObjectsDigest(Sha256);

impl ObjectsDigest {
    fn object(&mut self, key: &str, len: u64, sum: u64) {
        self.0.update((key.len() as u64).to_le_bytes());
        self.0.update(key);
        self.0.update(len.to_le_bytes());
        self.0.update(sum.to_le_bytes());
    }

    fn finish(self) -> String {
        hex(&<[u8; 32]>::from(self.0.finalize()))
    }
}

/// Digest and checksums of the objects that a run stored; `None` if any checksum is unknown.
pub(crate) fn of_ledger(files: &ClassicFiles, ledger: &Ledger) -> Option<(String, Vec<u64>)> {
    let (mut digest, mut sums) = (ObjectsDigest::default(), Vec::new());
    for (key, _) in files.by_key() {
        let (len, sum) = ledger.sum(&key)?;
        digest.object(&key, len, sum);
        sums.push(sum);
    }
    Some((digest.finish(), sums))
}

/// Writes the checksums of all `files` and their names, unless there are too many, and checks that the store keeps them.
pub(crate) async fn write(
    root: &Root,
    name: &BackupName,
    run: &str,
    files: &ClassicFiles,
    sums: &[u64],
) -> Result<(), BackupError> {
    if sums.len() <= xb_pipeline::MAX_SUMS {
        let key = root.classic_sums(name).at(run);
        let list = [&*encode(sums), &files.encoded_names()].concat();
        let size = list.len() as u64;
        root.store().put(&key, list.into()).await?;
        root.store().confirm_size(&key, size).await?;
    }
    Ok(())
}

/// Like [`list_classic`], for the objects of `manifest`, with their checksums; without a manifest
/// like [`list_stock`]. The caller must still compare the listing with the manifest.
pub(crate) async fn list_with_sums(
    root: &Root,
    name: &BackupName,
    manifest: Option<&Manifest>,
) -> Result<ClassicFiles, BackupError> {
    let Some(manifest) = manifest else { return list_stock(root, name).await };
    let agrees = |files: &ClassicFiles| files.agree_with(name, manifest).is_ok();
    let mut files = list_classic(root, name).await?;
    if !agrees(&files) || files.check_runs(name).is_err() {
        // One listing that is short, or that shows other lengths, is no damage.
        files = list_classic(root, name).await?;
    }
    if agrees(&files) {
        let known = read(root, name, manifest, &files).await?;
        files.set_known(known);
    }
    Ok(files)
}

/// Reads the names of the files of `manifest`; `None` if they are not there. They are not authenticated: they only tell what
/// to ask for.
pub(crate) async fn names(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
) -> Result<Option<FileNames>, StoreError> {
    let key = root.classic_sums(name).at(&manifest.run);
    let Some(size) = root.store().size(&key).await? else { return Ok(None) };
    let sums = manifest.objects.saturating_mul(LEN as u64);
    if !(1..=classic_names::MAX_LEN).contains(&size.saturating_sub(sums)) {
        return Ok(None);
    }
    match root.store().get_range(&key, sums..size, size).await {
        Ok(list) => Ok(classic_names::decode(&list)),
        Err(error) if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads the checksums of all `files`, which belong to `manifest`. If the list is lost or damaged,
/// returns only the digest.
async fn read(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    files: &ClassicFiles,
) -> Result<KnownChecksums, BackupError> {
    let Some(expected) = &manifest.object_digest else { return Ok(KnownChecksums::Nothing) };
    let whole = Ok(KnownChecksums::Whole(expected.clone()));
    let count = files.objects();
    if count > xb_pipeline::MAX_SUMS as u64 {
        return whole;
    }
    let (key, names) = (root.classic_sums(name).at(&manifest.run), files.encoded_names());
    let mut found = None;
    // The list of an earlier version ends with the checksums.
    for names in [&*names, &[]] {
        let len = count.saturating_mul(LEN as u64).saturating_add(names.len() as u64);
        match root.store().get_range(&key, 0..len, len).await {
            Ok(list) => found = list.strip_suffix(names).map(decode),
            Err(error) if error.kind == StoreErrorKind::NotFound => break,
            Err(error) if error.kind == StoreErrorKind::Damaged => continue,
            Err(error) => return Err(error.into()),
        }
        break;
    }
    let Some(sums) = found else { return whole };
    let mut digest = ObjectsDigest::default();
    for ((key, len), sum) in files.by_key().zip(&sums) {
        digest.object(&key, len, *sum);
    }
    if digest.finish() != *expected {
        return whole;
    }
    let mut sums = sums.into_iter();
    let each = files.sizes().map(|(path, objects, _)| {
        let objects = usize::try_from(objects).unwrap_or(usize::MAX);
        (path.to_owned(), sums.by_ref().take(objects).collect())
    });
    Ok(KnownChecksums::Each(each.collect()))
}

/// Compares objects, which arrive in ranges, with their checksums.
#[derive(Debug)]
pub(crate) struct Check {
    known: KnownChecksums,
    summing: Summing,
    keys: RunKeys,
    /// Path, number, length and checksum of each object read, for the digest.
    read: BTreeSet<(String, u64, u64, u64)>,
}

impl Check {
    pub(crate) fn new(files: &ClassicFiles, keys: &RunKeys) -> Self {
        let (summing, read) = (Summing::default(), BTreeSet::new());
        Self { known: files.known().clone(), summing, keys: keys.clone(), read }
    }

    /// Adds the CRC-64/NVME of the next range.
    ///
    /// # Errors
    /// If the range completes an object that differs from the stored one.
    pub(crate) fn range(&mut self, range: &Range, sum: u64) -> Result<(), StoreError> {
        let Some((len, got)) = self.summing.range(range, sum) else { return Ok(()) };
        // If the front of an object was read earlier, the checksum of its rest cannot be compared.
        if len != range.of {
            return Ok(());
        }
        let key = self.keys.below(&range.key).unwrap_or_default();
        let Some((path, number)) = xb_repo::names::parse_classic_key(key) else {
            return Ok(());
        };
        match &self.known {
            KnownChecksums::Nothing => Ok(()),
            KnownChecksums::Whole(_) => {
                self.read.insert((path.to_owned(), number, len, got));
                Ok(())
            }
            KnownChecksums::Each(sums) => {
                let sums = sums.get(path);
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                match sums.and_then(|sums| sums.get(number)) {
                    Some(expected) if *expected == got => Ok(()),
                    Some(expected) => {
                        let what = format!(
                            "the object is damaged or was replaced: its CRC-64 is {got:016x}, expected {expected:016x}"
                        );
                        Err(StoreError::new(
                            Operation::Get,
                            &*range.key,
                            StoreErrorKind::Damaged,
                            what,
                        ))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// Compares all objects with the digest; the error tells the difference. `all`: every object
    /// was read from its beginning.
    pub(crate) fn finish(self, all: bool) -> Result<(), String> {
        let KnownChecksums::Whole(expected) = self.known else { return Ok(()) };
        if !all {
            return Ok(());
        }
        let mut digest = ObjectsDigest::default();
        for (path, number, len, sum) in &self.read {
            digest.object(&xb_repo::names::classic_key(path, *number), *len, *sum);
        }
        let got = digest.finish();
        if got == expected {
            return Ok(());
        }
        Err(format!("wrong digest of the objects: {got}, the manifest has {expected}"))
    }
}
