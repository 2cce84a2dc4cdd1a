//! Sizes and concurrency for a request.

use xb_pipeline::{
    ClassicLayout, ClassicObjects, ObjectSize, PackPlan, PackSizing, PartLimits, Transform,
};
use xb_repo::root::Root;
use xb_uploader::StoreLimits;

use super::request::{PutLayout, PutRequest};
use crate::error::BackupError;
use crate::session::Resources;

/// Plans sizes and concurrency for a request, within the limits of the store of `root`.
///
/// # Errors
/// [`BackupError::Plan`] if the settings cannot work, [`BackupError::Keys`] if the program of a key
/// command is missing.
pub fn plan(
    root: &Root,
    resources: Resources,
    request: &PutRequest,
) -> Result<PackPlan, BackupError> {
    if let PutLayout::Packed { key_slots, .. } = &request.layout
        && let Some(command) = &key_slots.command
    {
        let program = command.program();
        crate::child::find(&[program]).map_err(|_| {
            BackupError::Keys(format!("key command {}: no such program", program.display()))
        })?;
    }
    let limits = part_limits(root.store().limits());
    let codec_memory = request.layout.codec_memory();
    let mut plan = sized(resources, request.object_size, codec_memory, limits)?;
    if let PutLayout::Classic { fixed_size, transform, .. } = &request.layout {
        classic_layout(*fixed_size, transform.clone()).check(&plan)?;
        if *fixed_size {
            // Parts are smaller when many files are open; their leases limit the number of
            // requests.
            plan.parallel = resources.parallel.max(1);
        }
    }
    Ok(plan)
}

/// Like [`plan`], without a request, for a store with the limits of S3 and a codec that needs little
/// memory. `fixed_size`: for fixed-size classic objects.
///
/// # Errors
/// [`BackupError::Plan`] if the settings cannot work.
pub fn put_plan(
    resources: Resources,
    object_size: ObjectSize,
    fixed_size: bool,
) -> Result<PackPlan, BackupError> {
    let plan = sized(resources, object_size, 0, limits())?;
    if fixed_size {
        FIXED_SIZE.check(&plan)?;
    }
    Ok(plan)
}

fn sized(
    resources: Resources,
    object_size: ObjectSize,
    codec_memory: u64,
    limits: PartLimits,
) -> Result<PackPlan, BackupError> {
    let Resources { memory, threads, parallel } = resources;
    let sizing = PackSizing { memory, codec_memory, object_size, threads, parallel, limits };
    Ok(PackPlan::new(sizing)?)
}

/// Limits that most stores set for the parts of an object.
#[must_use]
pub fn limits() -> PartLimits {
    part_limits(StoreLimits::S3)
}

pub(crate) fn part_limits(store: StoreLimits) -> PartLimits {
    PartLimits {
        min: store.min_part,
        max: store.max_part,
        count: store.max_parts,
        object: store.max_object,
        equal: store.equal_parts,
    }
}

/// Fixed-size classic objects of untransformed files.
pub const FIXED_SIZE: ClassicLayout =
    ClassicLayout { objects: ClassicObjects::FixedSize, transform: None };

pub(super) fn classic_layout(fixed_size: bool, transform: Option<Transform>) -> ClassicLayout {
    let objects = if fixed_size { ClassicObjects::FixedSize } else { ClassicObjects::OnePerChunk };
    ClassicLayout { objects, transform }
}
