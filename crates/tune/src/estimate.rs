//! `plan`: estimates the objects and requests of a backup of a given size.

use serde::Serialize;
use xb_pipeline::{MAX_SUMS, PackPlan, PackSizing, PlanError, UnpackPlan};
use xb_repo::manifest::Layout;

use crate::prices::{Cost, Prices};
use crate::requests::Requests;
use xb_backup::{FIXED_SIZE, limits};

/// Payload of a chunk as the stock producers write it, in bytes; a classic object without a fixed
/// size holds one chunk.
const STOCK_CHUNK: u64 = 10 << 20;
/// Requests of a run beside those for data: look up the name twice, list its folder and the catalogue, write claim and
/// manifest and read them back, try whether a claim can be created twice, look for removals of the name
/// before and after the commit.
const AROUND_PUT: Requests = Requests { put: 3, list: 4, get: 4 };
/// Extra requests of a classic run, which claims its name, confirms the claim three times, looks for
/// objects that a dead run left, and asks for the size of its checksum list. Counted as the dearest kind.
const AROUND_CLASSIC_PUT: Requests = Requests { put: 16, list: 0, get: 0 };
/// Extra requests of a packed run, which writes its claim again and reads it back before it lists its objects.
const AROUND_PACKED_PUT: Requests = Requests { put: 1, list: 0, get: 1 };
/// Objects in one page of a listing; all objects are listed before the manifest is written, and those of a packed run
/// also after it.
const LISTED: u64 = 1000;
/// Extra requests of a sealed run: it also writes its keys object.
const FOR_KEYS: u64 = 1;
/// Requests to write or read the checksum list.
const FOR_SUMS: u64 = 1;
/// Requests to look up the manifest.
const AROUND_GET: u64 = 1;
/// Extra requests of a copy: it reads and writes manifest, checksum list and records, claims its
/// folder, and lists it and the catalogue. Counted as the dearest kind.
const AROUND_COPY: u64 = 20;
/// Size limit of one copy request within a store, in bytes.
const MAX_COPY: u64 = 5 << 30;

/// Input of an estimate.
#[derive(Debug, Clone)]
pub struct EstimateRequest {
    /// Size of the backup in the store, in bytes.
    pub stored: u64,
    /// Layout in the store.
    pub layout: Layout,
    /// Classic objects have the plan's object size.
    pub fixed_size: bool,
    /// Number of files; each has classic objects of its own.
    pub files: u64,
    /// The backup is sealed.
    pub sealed: bool,
    /// Plan of the upload.
    pub put: PackPlan,
    /// Plan of the download.
    pub get: UnpackPlan,
}

/// Estimate of a backup, without retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Bytes in the store.
    pub stored: u64,
    /// Data objects.
    pub objects: u64,
    /// Size of a full object in bytes.
    pub object_bytes: u64,
    /// Parts of a full object; 1 means a single put.
    pub parts: u64,
    /// Requests of the backup.
    pub backup_requests: u64,
    /// Requests of a verification that reads every byte, or of a restore.
    pub verify_requests: u64,
    /// Requests of a copy within the store.
    pub copy_requests: u64,
    /// Requests of the backup, by kind.
    pub backup_kinds: Requests,
    /// Requests of a verification or a restore, by kind.
    pub verify_kinds: Requests,
    /// Requests of a copy within the store, by kind.
    pub copy_kinds: Requests,
    /// Number of objects that the stock tool would create.
    pub stock_objects: u64,
    /// Memory budget of the buffers, in bytes.
    pub memory: u64,
    /// Smallest memory budget that these settings allow, in bytes.
    pub least_memory: u64,
}

impl Estimate {
    /// Cost of the backup at `prices`, without retries.
    #[must_use]
    pub fn cost(&self, prices: &Prices) -> Cost {
        Cost {
            backup: prices.of_requests(self.backup_kinds),
            verify: prices.of_requests(self.verify_kinds),
            verify_egress: prices.of_egress(self.stored),
            copy: prices.of_requests(self.copy_kinds),
            storage_month: prices.of_storage(self.stored),
        }
    }
}

/// Estimates the objects and requests of a backup.
#[must_use]
pub fn estimate(request: &EstimateRequest) -> Estimate {
    let EstimateRequest { stored, layout, fixed_size, files, sealed, put, get } = request;
    let (stored, files) = (*stored, (*files).max(1));
    // Assumes files of equal size, each of which ends with a partly filled chunk.
    let stock_objects = files * (stored / files).div_ceil(STOCK_CHUNK) + files;
    // Number of full objects, number of other objects, and the size of those.
    let (full, others, other) = match (layout, fixed_size) {
        (Layout::Packed, _) => {
            let rest = stored % put.object_size.get();
            (stored / put.object_size.get(), u64::from(rest > 0), rest)
        }
        (Layout::Classic, true) => {
            let each = stored / files;
            (files * (each / put.object_size.get()), files, (each % put.object_size.get()).max(1))
        }
        // Treats all objects as of about equal size.
        (Layout::Classic, false) => (stock_objects, 0, 0),
    };
    let object_bytes =
        if *layout == Layout::Packed || *fixed_size { put.object_size.get() } else { STOCK_CHUNK };
    let objects = full + others;
    let per_object = |bytes: u64| match bytes.div_ceil(put.part_size) {
        0 | 1 => 1,
        // One request each to begin and to complete the upload.
        parts => parts + 2,
    };
    let reads = |bytes: u64| bytes.div_ceil(get.range);
    // The store cannot copy a larger object, so it passes through us.
    let copies = |bytes: u64| match bytes <= MAX_COPY {
        true => Requests::puts(1),
        false => Requests::gets(reads(bytes)) + Requests::puts(per_object(bytes)),
    };
    let sum = |of: &dyn Fn(u64) -> u64| full * of(object_bytes) + others * of(other);
    let keys = if *sealed { FOR_KEYS } else { 0 };
    let sums = if (1..=MAX_SUMS as u64).contains(&objects) { FOR_SUMS } else { 0 };
    let pages = objects.div_ceil(LISTED).max(1);
    let (of_layout, listings) = match layout {
        Layout::Packed => (AROUND_PACKED_PUT, 2 * pages),
        Layout::Classic => (AROUND_CLASSIC_PUT, pages),
    };
    let backup_kinds = AROUND_PUT
        + of_layout
        + Requests::puts(keys + sums + sum(&per_object))
        + Requests::gets(keys)
        + Requests::lists(listings);
    let verify_kinds = Requests::gets(AROUND_GET + keys + sums + sum(&reads));
    let copy_kinds = Requests::puts(AROUND_COPY + keys)
        + Requests::gets(2 * keys)
        + of_layout
        + copies(object_bytes) * full
        + copies(other) * others;
    Estimate {
        stored,
        objects,
        object_bytes,
        parts: object_bytes.div_ceil(put.part_size).max(1),
        backup_requests: backup_kinds.total(),
        verify_requests: verify_kinds.total(),
        copy_requests: copy_kinds.total(),
        backup_kinds,
        verify_kinds,
        copy_kinds,
        stock_objects,
        memory: put.memory,
        least_memory: least_memory(put, *fixed_size && *layout == Layout::Classic),
    }
}

/// The smallest budget for a plan with these threads and this object size.
fn least_memory(plan: &PackPlan, fixed_size: bool) -> u64 {
    let needs = |memory| {
        let plan = PackPlan::new(PackSizing {
            memory,
            // Codecs get what is left.
            codec_memory: 0,
            object_size: plan.object_size,
            threads: plan.threads,
            parallel: 1,
            limits: limits(),
        })?;
        if fixed_size { FIXED_SIZE.check(&plan) } else { Ok(()) }
    };
    let mut least = 1;
    while let Err(PlanError::Memory { needed, .. } | PlanError::Part { needed, .. }) = needs(least)
    {
        if needed <= least {
            return plan.memory;
        }
        least = needed;
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xb_pipeline::ObjectSize;

    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;

    fn request(stored: u64, chunk: u64, layout: Layout) -> EstimateRequest {
        EstimateRequest {
            stored,
            layout,
            fixed_size: false,
            files: 1000,
            sealed: false,
            put: PackPlan::new(PackSizing {
                memory: 512 * MIB,
                codec_memory: 0,
                object_size: ObjectSize::new(chunk),
                threads: 2,
                parallel: 8,
                limits: limits(),
            })
            .unwrap(),
            get: UnpackPlan::new(512 * MIB, 2, 8).unwrap(),
        }
    }

    #[test]
    fn larger_objects_are_fewer_requests() {
        let small = estimate(&request(TIB, 10 * MIB, Layout::Packed));
        let large = estimate(&request(TIB, 1024 * MIB, Layout::Packed));
        assert_eq!((small.objects, large.objects), (104_858, 1024));
        assert_eq!(small.backup_requests, 104_858 + 14 + 2 * 105);
        assert!(large.backup_requests < small.backup_requests / 5);
        assert!(large.copy_requests < small.copy_requests / 100);
        // Users of the stock tool report about 100,000 objects per TB.
        assert!((100_000..110_000).contains(&small.stock_objects));
        let classic = estimate(&request(TIB, 64 * MIB, Layout::Classic));
        assert_eq!(classic.objects, classic.stock_objects);
        // Each of 1000 files, in objects of 64 MiB.
        let fixed_size =
            EstimateRequest { fixed_size: true, ..request(TIB, 64 * MIB, Layout::Classic) };
        let fixed_size = estimate(&fixed_size);
        assert_eq!((fixed_size.objects, fixed_size.object_bytes), (17_000, 64 * MIB));
        assert_eq!(fixed_size.backup_requests, 17_000 + 28 + 17);
        assert!(fixed_size.least_memory > 0 && fixed_size.least_memory < 64 * MIB);
    }

    proptest! {
        #[test]
        fn every_byte_has_its_object(stored in 0_u64..(64 << 40), chunk in 1_u64..(8 << 30)) {
            let plan = PackPlan::new(PackSizing { memory: 1 << 30, codec_memory: 0, object_size: ObjectSize::new(chunk), threads: 2, parallel: 8, limits: limits() });
            if let Ok(put) = plan {
                let request = EstimateRequest { put, ..request(stored, MIB, Layout::Packed) };
                let numbers = estimate(&request);
                prop_assert!(u128::from(numbers.objects) * u128::from(chunk) >= u128::from(stored));
                prop_assert!(numbers.backup_requests >= numbers.objects);
                prop_assert!(numbers.verify_requests >= numbers.objects);
            }
        }
    }
}
