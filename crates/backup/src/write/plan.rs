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
    let Resources { memory, threads, parallel } = resources;
    let object_size = request.object_size;
    let codec_memory = request.layout.codec_memory();
    let mut plan =
        PackPlan::new(PackSizing { memory, codec_memory, object_size, threads, parallel, limits })?;
    if let PutLayout::Classic { fixed_size, transform, .. } = &request.layout {
        classic_layout(*fixed_size, transform.clone()).check(&plan)?;
        if *fixed_size {
            // Parts are smaller when many files are open; their leases limit the number of
            // requests.
            plan.parallel = parallel.max(1);
        }
    }
    Ok(plan)
}

/// Input of [`put_plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutSizing {
    /// Limits of the run.
    pub resources: Resources,
    /// Size of the objects.
    pub object_size: ObjectSize,
    /// Plans for fixed-size classic objects.
    pub fixed_size: bool,
}

/// Like [`plan`], without a request, for a store with the limits of S3 and a codec that needs little
/// memory.
///
/// # Errors
/// [`BackupError::Plan`] if the settings cannot work.
pub fn put_plan(sizing: PutSizing) -> Result<PackPlan, BackupError> {
    let PutSizing { resources, object_size, fixed_size } = sizing;
    let Resources { memory, threads, parallel } = resources;
    let limits = limits();
    let plan = PackPlan::new(PackSizing {
        memory,
        codec_memory: 0,
        object_size,
        threads,
        parallel,
        limits,
    })?;
    if fixed_size {
        FIXED_SIZE.check(&plan)?;
    }
    Ok(plan)
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
