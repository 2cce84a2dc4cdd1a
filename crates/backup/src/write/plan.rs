//! Sizes and concurrency for a request.

use xb_pipeline::{ClassicLayout, ClassicObjects, ObjectSize, PackPlan, PackSizing, PartLimits};
use xb_uploader::StoreLimits;

use crate::catalog::manifest::Layout;
use crate::catalog::root::Root;
use crate::error::BackupError;

use super::PutRequest;

/// Plans sizes and concurrency for a request, within the limits of the store of `root`.
///
/// # Errors
/// [`BackupError::Plan`] if the settings cannot work.
pub fn plan(root: &Root, request: &PutRequest) -> Result<PackPlan, BackupError> {
    let limits = part_limits(root.store().limits());
    let PutRequest { memory, chunk_size, threads, parallel, .. } = *request;
    let mut plan = PackPlan::new(PackSizing {
        memory,
        object_size: ObjectSize::new(chunk_size),
        threads,
        parallel,
        limits,
    })?;
    if request.layout == Layout::Classic {
        classic_layout(request).check(&plan)?;
        if request.recut {
            // Parts are smaller when many files are open; their leases limit the number of
            // requests.
            plan.parallel = parallel.max(1);
        }
    } else if request.transform.is_some() || request.recut {
        return Err(BackupError::Selection(
            "only the classic layout compresses, encrypts and cuts files individually".into(),
        ));
    }
    Ok(plan)
}

/// Like [`plan`], without a request, for a store with the limits of S3; `recut` selects fixed-size
/// classic objects.
///
/// # Errors
/// [`BackupError::Plan`] if the settings cannot work.
pub fn put_plan(
    memory: u64,
    chunk_size: u64,
    threads: usize,
    parallel: usize,
    recut: bool,
) -> Result<PackPlan, BackupError> {
    let plan = PackPlan::new(PackSizing {
        memory,
        object_size: ObjectSize::new(chunk_size),
        threads,
        parallel,
        limits: limits(),
    })?;
    if recut {
        FIXED_SIZE.check(&plan)?;
    }
    Ok(plan)
}

/// Limits that most stores set for the parts of an object.
pub(crate) fn limits() -> PartLimits {
    part_limits(StoreLimits::S3)
}

pub(crate) fn part_limits(store: StoreLimits) -> PartLimits {
    PartLimits {
        min: store.min_part,
        max: store.max_part,
        count: store.max_parts,
        equal: store.equal_parts,
    }
}

/// Fixed-size classic objects of untransformed files.
pub(crate) const FIXED_SIZE: ClassicLayout =
    ClassicLayout { objects: ClassicObjects::FixedSize, transform: None };

pub(super) fn classic_layout(request: &PutRequest) -> ClassicLayout {
    let objects =
        if request.recut { ClassicObjects::FixedSize } else { ClassicObjects::OnePerChunk };
    ClassicLayout { objects, transform: request.transform.clone() }
}
