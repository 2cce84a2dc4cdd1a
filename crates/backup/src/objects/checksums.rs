//! Checksum list of a packed backup. The manifest's root digest shows only that some object is
//! damaged; this list shows which one.

use std::collections::BTreeMap;

use bytes::Bytes;
use xb_pipeline::{RootDigest, sums as crc};
use xb_repo::hex::hex;
use xb_repo::manifest::{Manifest, PackedFacts};
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use crate::error::BackupError;
use crate::objects::range::Range;

/// Length of one checksum in bytes: CRC-64/NVME, little-endian.
pub(crate) const LEN: usize = 8;

/// The known checksums of a classic backup's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum KnownChecksums {
    /// None: an earlier version or the stock tool wrote the backup.
    #[default]
    Nothing,
    /// Only the digest of all objects.
    Whole(String),
    /// For each file, the checksums of its objects by number.
    Each(BTreeMap<String, Vec<u64>>),
}

/// Encodes the list for the store.
pub(crate) fn encode(sums: &[u64]) -> Bytes {
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

/// Decodes a stored list.
pub(crate) fn decode(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(LEN)
        .filter_map(|sum| Some(u64::from_le_bytes(sum.try_into().ok()?)))
        .collect()
}

/// Size of object `number`.
pub(crate) fn object_len(manifest: &Manifest, packed: &PackedFacts, number: u64) -> u64 {
    let start = number.saturating_mul(packed.chunk_size);
    packed.chunk_size.min(manifest.stored_bytes.saturating_sub(start))
}

/// Reads the list and checks it against the manifest; `Ok(Err(_))` is why it is unusable.
pub(crate) async fn read(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    packed: &PackedFacts,
    run: RunId,
) -> Result<Result<Vec<u64>, String>, BackupError> {
    let key = root.run_keys(name, run).sums();
    let len = manifest.objects.saturating_mul(LEN as u64);
    if manifest.objects > xb_pipeline::MAX_SUMS as u64 {
        return Ok(Err("there are too many objects for a checksum list".to_owned()));
    }
    // A single altered answer is no damage.
    for _ in 0..2 {
        let bytes = match root.store().get_range(&key, 0..len, len).await {
            Ok(bytes) => bytes,
            Err(error)
                if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged) =>
            {
                return Ok(Err(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let sums = decode(&bytes);
        let mut digest = RootDigest::default();
        for (number, sum) in (0..).zip(&sums) {
            digest.object(object_len(manifest, packed, number), *sum);
        }
        if hex(&digest.finish()) == packed.root {
            return Ok(Ok(sums));
        }
    }
    Ok(Err(format!("{key}: the checksum list does not match the root digest in the manifest")))
}

/// What is wrong if the header or the end of a stream is not the manifest's.
pub(crate) const OTHER_STREAM: &str = "the objects hold a different stream than the manifest names";

/// Root digest of objects that arrive in ranges.
#[derive(Debug, Default)]
pub(crate) struct ObjectsRoot {
    root: RootDigest,
    summing: Summing,
}

impl ObjectsRoot {
    /// Adds the CRC-64/NVME of a range; returns the checksum of the object that the range completes.
    pub(crate) fn range(&mut self, range: &Range, sum: u64) -> Option<u64> {
        let (len, crc) = self.summing.range(range, sum)?;
        self.root.object(len, crc);
        Some(crc)
    }

    /// Compares it with the one in the manifest; the error tells the difference.
    pub(crate) fn compare(self, expected: &str) -> Result<(), String> {
        let got = hex(&self.root.finish());
        if got == expected {
            return Ok(());
        }
        Err(format!("wrong root digest of the objects: {got}, the manifest has {expected}"))
    }
}

/// Combines the checksums of consecutive ranges into those of objects.
#[derive(Debug, Default)]
pub(crate) struct Summing {
    len: u64,
    crc: u64,
}

impl Summing {
    /// Adds the CRC-64/NVME of a range; returns length and checksum of the object that the range
    /// completes.
    pub(crate) fn range(&mut self, range: &Range, sum: u64) -> Option<(u64, u64)> {
        self.crc = crc::crc64_combine(self.crc, sum, range.len);
        self.len += range.len;
        range.end.then(|| {
            let Self { len, crc } = std::mem::take(self);
            (len, crc)
        })
    }
}
