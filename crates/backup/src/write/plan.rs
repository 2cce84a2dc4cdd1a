//! Sizes and numbers of things at a time for a request.

use xb_pipeline::{ClassicLayout, ClassicObjects, ObjectSize, PackPlan, PackSizing, PartLimits};
use xb_uploader::StoreLimits;

use crate::catalog::manifest::Layout;
use crate::catalog::root::Root;
use crate::error::BackupError;

use super::PutRequest;

/// Sizes and numbers of things at a time for a request, within what the store of `root` takes.
///
/// # Errors
/// [`BackupError::Plan`] when the settings cannot work.
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
            // Parts are smaller where many files are open; their leases bound the requests.
            plan.parallel = parallel.max(1);
        }
    } else if request.transform.is_some() || request.recut {
        return Err(BackupError::Selection(
            "files are compressed, encrypted and cut one by one in the classic layout only".into(),
        ));
    }
    Ok(plan)
}

/// As [`plan`], for a run that nobody has asked for yet, into a store that takes what S3 takes;
/// `recut` says that classic objects are to be of one size.
///
/// # Errors
/// [`BackupError::Plan`] when the settings cannot work.
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

/// What most stores ask of the parts of an object.
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

/// Classic objects of one size, of files that stay as they are.
pub(crate) const FIXED_SIZE: ClassicLayout =
    ClassicLayout { objects: ClassicObjects::FixedSize, transform: None };

pub(super) fn classic_layout(request: &PutRequest) -> ClassicLayout {
    let objects =
        if request.recut { ClassicObjects::FixedSize } else { ClassicObjects::OnePerChunk };
    ClassicLayout { objects, transform: request.transform.clone() }
}
