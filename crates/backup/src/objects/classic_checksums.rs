//! The checksums of a classic backup's objects, one by one, and the digest of all of them.
//!
//! The manifest has the digest: SHA-256 over, for each object by path and number, the length of its
//! key below the backup's folder, the key, the object's length and its CRC-64/NVME. The sums, 8 bytes
//! each in that order, lie in the catalogue under the run, so that no other run can replace them.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};
use xb_uploader::{StoreError, StoreErrorKind};

use crate::catalog::manifest::Manifest;
use crate::catalog::names::{BackupName, sums_key};
use crate::catalog::root::Root;
use crate::error::BackupError;
use crate::hex::hex;
use crate::objects::checksums::{LEN, Summing, decode, encode};
use crate::objects::classic::ClassicFiles;
use crate::objects::ledger::Ledger;
use crate::read::ranges::Range;

/// Adds up the digest of all objects.
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

/// The digest of the objects that a run has stored, and their sums; `None` where some are not known.
pub(crate) fn of_ledger(files: &ClassicFiles, ledger: &Ledger) -> Option<(String, Vec<u64>)> {
    let (mut digest, mut sums) = (ObjectsDigest::default(), Vec::new());
    for (key, _) in files.by_key() {
        let (len, sum) = ledger.sum(&key)?;
        digest.object(&key, len, sum);
        sums.push(sum);
    }
    Some((digest.finish(), sums))
}

/// Writes the list of sums, unless it would become too long.
pub(crate) async fn write(
    root: &Root,
    name: &BackupName,
    run: &str,
    sums: &[u64],
) -> Result<(), BackupError> {
    if sums.len() <= xb_pipeline::MAX_SUMS {
        let key = root.key(&sums_key(name, run));
        root.store().put(&key, encode(sums).into()).await?;
    }
    Ok(())
}

/// The sums of a classic backup's objects, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was made by an earlier version, or by the stock tool.
    #[default]
    Nothing,
    /// The digest of all of them.
    Whole(String),
    /// Of each file, those of its objects by number.
    Each(BTreeMap<String, Vec<u64>>),
}

/// Reads the sums of all of `files`, which are those of `manifest`. A list that is lost or damaged
/// leaves the digest.
pub(crate) async fn read(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    files: &ClassicFiles,
) -> Result<Known, BackupError> {
    let Some(expected) = &manifest.object_digest else { return Ok(Known::Nothing) };
    let whole = Ok(Known::Whole(expected.clone()));
    let count = files.objects();
    if count > xb_pipeline::MAX_SUMS as u64 {
        return whole;
    }
    let (key, len) = (root.key(&sums_key(name, &manifest.run)), count.saturating_mul(LEN as u64));
    let bytes = match root.store().get_range(&key, 0..len, len).await {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged) => {
            return whole;
        }
        Err(error) => return Err(error.into()),
    };
    let sums = decode(&bytes);
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
    Ok(Known::Each(each.collect()))
}

/// Compares objects, which come in ranges, with their sums.
#[derive(Debug)]
pub(crate) struct Check {
    known: Known,
    summing: Summing,
    /// Length of the folder of the backup in whole keys, with its slash.
    skip: usize,
    /// What was read, for the digest.
    read: BTreeSet<(String, u64, u64, u64)>,
}

impl Check {
    /// `folder`: whole key of the backup's folder.
    pub(crate) fn new(files: &ClassicFiles, folder: &str) -> Self {
        let (skip, read) = (folder.len() + 1, BTreeSet::new());
        Self { known: files.known().clone(), summing: Summing::default(), skip, read }
    }

    /// Takes the CRC-64/NVME of the next range.
    ///
    /// # Errors
    /// When it ends an object that is not the one that was stored.
    pub(crate) fn range(&mut self, range: &Range, sum: u64) -> Result<(), StoreError> {
        let Some((len, got)) = self.summing.range(range, sum) else { return Ok(()) };
        // Of the rest of an object that was read before there is no sum.
        if len != range.of {
            return Ok(());
        }
        let key = range.key.get(self.skip..).unwrap_or_default();
        let Some((path, number)) = crate::catalog::names::parse_classic_key(key) else {
            return Ok(());
        };
        match &self.known {
            Known::Nothing => Ok(()),
            Known::Whole(_) => {
                self.read.insert((path.to_owned(), number, len, got));
                Ok(())
            }
            Known::Each(sums) => {
                let sums = sums.get(path);
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                match sums.and_then(|sums| sums.get(number)) {
                    Some(expected) if *expected == got => Ok(()),
                    Some(expected) => {
                        let what = format!(
                            "the object is not the one that was stored: its CRC-64 is {got:016x}, not {expected:016x}"
                        );
                        Err(StoreError::new("get", &*range.key, StoreErrorKind::Damaged, what))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// Compares the whole with the digest; the error says what differs. `all`: every object was read
    /// from its beginning.
    pub(crate) fn finish(self, all: bool) -> Result<(), String> {
        let Known::Whole(expected) = self.known else { return Ok(()) };
        if !all {
            return Ok(());
        }
        let mut digest = ObjectsDigest::default();
        for (path, number, len, sum) in &self.read {
            digest.object(&crate::catalog::names::classic_key(path, *number), *len, *sum);
        }
        let got = digest.finish();
        if got == expected {
            return Ok(());
        }
        Err(format!("the objects have the digest {got}, the manifest says {expected}"))
    }
}
