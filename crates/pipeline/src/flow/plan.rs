//! Derives part sizes and degrees of parallelism from a memory budget and an object size, never the
//! other way round.

/// Size of a slab, and of the frames made from it; see `xb_frame::DEFAULT_FRAME_PLAIN`.
pub const SLAB: usize = 1 << 20;

/// Lease of a frame: its slab. A codec works in a scratch buffer of its own and copies its output
/// back into that slab.
const FRAME_LEASE: u64 = SLAB as u64;

/// Slabs that a worker thread occupies: two frames wait or are in work, one is the codec's scratch
/// buffer.
const SLABS_PER_THREAD: u64 = 3;

/// Default number of worker threads on a machine of `cores`: at least 1, and so few that the frames
/// in work take at most a quarter of `memory` bytes, together with `codec_memory` for each thread at
/// most half. The rest is for the bytes on their way.
#[must_use]
pub fn worker_threads(memory: u64, codec_memory: u64, cores: usize) -> usize {
    let frames = SLABS_PER_THREAD * FRAME_LEASE;
    let most = (memory / 4 / frames).min(memory / 2 / frames.saturating_add(codec_memory));
    cores.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1)
}

/// Settings that cannot work, with the numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The budget is too small.
    #[error("{} of memory is not enough: {threads} thread{} at least {}", mib(*memory), if *threads == 1 { " needs" } else { "s need" }, mib(*needed))]
    Memory {
        /// Budget requested, in bytes.
        memory: u64,
        /// Worker threads.
        threads: usize,
        /// Smallest budget that works, in bytes.
        needed: u64,
    },
    /// Objects of this size are too small for the chunks that each must hold.
    #[error(
        "objects of {} are too small for the classic layout: at least {}", mib(*object_size), mib(*least)
    )]
    Object {
        /// Object size requested, in bytes.
        object_size: u64,
        /// Smallest object size that works, in bytes.
        least: u64,
    },
    /// Objects of this size are larger than the store takes.
    #[error("objects of {} are larger than this store takes: at most {}", mib(*object_size), mib(*most))]
    TooLarge {
        /// Object size requested, in bytes.
        object_size: u64,
        /// Largest object size that works, in bytes.
        most: u64,
    },
    /// Objects of this size need parts that do not fit into the budget.
    #[error(
        "objects of {} need two parts of at least {} in memory: at least {}, but only {} is allowed",
        mib(*object_size), mib(*part), mib(*needed), mib(*memory)
    )]
    Part {
        /// Object size requested, in bytes.
        object_size: u64,
        /// Smallest part size within the store's limits, in bytes.
        part: u64,
        /// Smallest budget that works, in bytes.
        needed: u64,
        /// Budget requested, in bytes.
        memory: u64,
    },
}

/// An amount for people, in MiB with at most one decimal, rounded up; below 1 MiB in bytes.
fn mib(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes < MIB {
        return format!("{bytes} bytes");
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(MIB));
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        decimal => format!("{}.{decimal} MiB", tenths / 10),
    }
}

/// Limits of a store on the parts of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLimits {
    /// Minimum size of every part except the last, in bytes.
    pub min: u64,
    /// Maximum size of a part, and of an object sent in one request, in bytes.
    pub max: u64,
    /// Maximum number of parts per object.
    pub count: u64,
    /// Maximum size of an object, in bytes.
    pub object: u64,
    /// Whether all parts of an object except the last must have the same size.
    pub equal: bool,
}

/// Size of the objects in the store, in bytes; at least 1. The user sets it.
///
/// It is unrelated to the size of xbstream chunks or xbcrypt chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectSize(u64);

impl ObjectSize {
    /// Creates a size of `bytes`, at least 1.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(if bytes == 0 { 1 } else { bytes })
    }

    /// Size in bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Inputs for a [`PackPlan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackSizing {
    /// The whole budget in bytes.
    pub memory: u64,
    /// Memory in bytes that the codec of each worker needs for itself; see
    /// [`codec_memory`](crate::codec_memory).
    pub codec_memory: u64,
    /// Size of the objects.
    pub object_size: ObjectSize,
    /// Worker threads.
    pub threads: usize,
    /// Parallel requests; the budget may allow fewer.
    pub parallel: usize,
    /// Limits of the store.
    pub limits: PartLimits,
}

/// Sizes and degrees of parallelism for packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackPlan {
    /// Worker threads.
    pub threads: usize,
    /// Frames that wait for a worker, are in work, or wait for their turn.
    pub depth: usize,
    /// Size of the objects.
    pub object_size: ObjectSize,
    /// Size of equal parts in bytes; the object size if an object is sent in a single request.
    pub part_size: u64,
    /// Maximum number of parts in flight at one time: as many as the budget holds. While all are in
    /// flight, the next one fills as far as the budget allows.
    pub parallel: usize,
    /// Budget of the buffers in bytes.
    pub memory: u64,
    /// Limits of the store.
    pub limits: PartLimits,
}

impl PackPlan {
    /// Derives a plan.
    ///
    /// The budget of the buffers is what the codecs leave of the whole, and at least half of it. If no
    /// plan fits into that, it is all of it: what works with one codec works with each.
    ///
    /// It holds the frames in work and at least two parts, so that one can fill while another is in
    /// flight. Stores bill each part, so an object of which the budget holds two is sent in one
    /// request. A larger object is sent in parts of which the budget holds four.
    ///
    /// # Errors
    /// [`PlanError`] with the numbers if the settings do not fit.
    pub fn new(sizing: PackSizing) -> Result<Self, PlanError> {
        let codecs = sizing.codec_memory.saturating_mul(sizing.threads.max(1) as u64);
        let left = sizing.memory - codecs.min(sizing.memory / 2);
        Self::of_buffers(left, sizing).or_else(|_| Self::of_buffers(sizing.memory, sizing))
    }

    /// Derives a plan for buffers of `memory` bytes.
    fn of_buffers(memory: u64, sizing: PackSizing) -> Result<Self, PlanError> {
        let PackSizing { object_size, parallel, limits, .. } = sizing;
        let threads = sizing.threads.max(1);
        let object = object_size.get();
        let most = limits.object.min(limits.max.saturating_mul(limits.count));
        if object > most {
            return Err(PlanError::TooLarge { object_size: object, most });
        }
        let depth = threads * 2;
        let in_work = in_work(threads);
        let needed = in_work + 2 * (limits.min.min(object) + FRAME_LEASE);
        if memory < needed {
            return Err(PlanError::Memory { memory, threads, needed });
        }
        let for_parts = memory - in_work;
        let of_budget = |share: u64| (for_parts / share).saturating_sub(FRAME_LEASE);
        // At most `limits.max`, as the object is at most that many times the number of parts.
        let part = if object <= of_budget(2).max(limits.min).min(limits.max) {
            object
        } else {
            // Two parts would leave the connection idle too often; four cost few additional
            // requests.
            let largest = of_budget(4).max(limits.min).min(limits.max);
            let parts = object.div_ceil(largest);
            object.div_ceil(parts.min(limits.count)).max(limits.min)
        };
        // A part keeps whole slabs alive at both of its ends.
        let held = part + FRAME_LEASE;
        if for_parts < 2 * held {
            return Err(PlanError::Part {
                object_size: object,
                part,
                needed: in_work + 2 * held,
                memory,
            });
        }
        let plan = Self { threads, depth, object_size, part_size: part, parallel, memory, limits };
        Ok(Self { parallel: parallel.clamp(1, plan.parts()), ..plan })
    }

    /// Returns the number of parts that the budget holds beside the frames in work, at least 2.
    #[must_use]
    pub fn parts(&self) -> usize {
        let for_parts = self.memory.saturating_sub(in_work(self.threads));
        let held = self.part_size.saturating_add(FRAME_LEASE);
        usize::try_from(for_parts / held).unwrap_or(usize::MAX).max(2)
    }

    /// Returns the budget in bytes that keeps so many objects in flight, while three quarters of the
    /// next one fill: filling the rest takes little time compared with a request. A budget for fewer
    /// than two would divide the objects into parts.
    #[must_use]
    pub fn memory_for(in_flight: u64, object_size: ObjectSize, threads: usize) -> u64 {
        let held = object_size.get().saturating_add(FRAME_LEASE);
        let objects = held.saturating_mul(in_flight).saturating_add(held - held / 4);
        in_work(threads.max(1)).saturating_add(objects)
    }
}

/// Bytes of the slabs with the workers, of one being read, and of one scratch buffer per codec.
fn in_work(threads: usize) -> u64 {
    (SLABS_PER_THREAD * threads as u64 + 1) * FRAME_LEASE
}

/// Sizes and degrees of parallelism for unpacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackPlan {
    /// Worker threads.
    pub threads: usize,
    /// Frames that wait for a worker, are in work, or wait for their turn.
    pub depth: usize,
    /// Bytes per request.
    pub range: u64,
    /// Parallel requests.
    pub parallel: usize,
    /// Budget for fetched bytes, in bytes.
    pub memory: u64,
}

/// Maximum range: a larger one makes a request no cheaper and delays the first byte.
const MAX_RANGE: u64 = 16 << 20;
/// Minimum range of one request, of which a plan chooses a multiple.
const MIN_RANGE: u64 = 1 << 20;
/// Ranges beside those that are fetched: one on its way to the consumer, and two with it, as frames
/// straddle ranges.
const CONSUMED: usize = 3;

impl UnpackPlan {
    /// Derives a plan within `memory` bytes. Frames straddle ranges, so at least four ranges are
    /// held at a time.
    ///
    /// # Errors
    /// [`PlanError::Memory`] if four ranges do not fit.
    pub fn new(memory: u64, threads: usize, parallel: usize) -> Result<Self, PlanError> {
        let threads = threads.max(1);
        let depth = threads * 2;
        let parallel = parallel.max(1);
        let in_work = in_work(threads);
        let needed = in_work + 4 * MIN_RANGE;
        if memory < needed {
            return Err(PlanError::Memory { memory, threads, needed });
        }
        let for_ranges = memory - in_work;
        let held = (parallel as u64).saturating_add(CONSUMED as u64);
        let range = (for_ranges / held / MIN_RANGE * MIN_RANGE).clamp(MIN_RANGE, MAX_RANGE);
        let fit = usize::try_from(for_ranges / range).unwrap_or(usize::MAX);
        Ok(Self {
            threads,
            depth,
            range,
            parallel: parallel.min(fit.saturating_sub(CONSUMED)),
            memory: for_ranges,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S3: PartLimits =
        PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, object: u64::MAX, equal: false };
    const MIB: u64 = 1 << 20;

    fn pack(
        memory: u64,
        object: u64,
        threads: usize,
        parallel: usize,
        limits: PartLimits,
    ) -> Result<PackPlan, PlanError> {
        let object_size = ObjectSize::new(object);
        let codec_memory = 0;
        PackPlan::new(PackSizing { memory, codec_memory, object_size, threads, parallel, limits })
    }

    #[test]
    fn buffers_leave_the_codecs_their_memory() {
        let sizing = PackSizing {
            memory: 128 * MIB,
            codec_memory: 5 * MIB,
            object_size: ObjectSize::new(64 * MIB),
            threads: 4,
            parallel: 4,
            limits: S3,
        };
        let alone = |sizing| PackPlan::new(PackSizing { codec_memory: 0, ..sizing });
        let left = PackSizing { memory: 108 * MIB, ..sizing };
        assert_eq!(PackPlan::new(sizing), alone(left));
        let huge = PackPlan::new(PackSizing { codec_memory: 1 << 40, ..sizing }).unwrap();
        assert_eq!(huge.memory, 64 * MIB);
        let few = PackSizing { memory: 30 * MIB, ..sizing };
        assert_eq!(PackPlan::new(few), alone(few));
    }

    #[test]
    fn small_chunks_are_one_put_and_large_ones_equal_parts() {
        let plan = |chunk| pack(512 * MIB, chunk, 2, 8, S3).unwrap();
        assert_eq!(plan(MIB).part_size, MIB);
        assert_eq!(plan(64 * MIB).part_size, 64 * MIB);
        // Two in flight; while they are, half of the next one fills.
        let twice = plan(200 * MIB);
        assert_eq!((twice.part_size, twice.parallel), (200 * MIB, 2));
        assert!(plan(256 * MIB).part_size < 128 * MIB);
        let large = plan(1 << 30);
        assert!(large.part_size < 128 * MIB && large.part_size * 2 < 512 * MIB);
        // Equal parts: the last one is not much shorter.
        assert!((1 << 30) - large.part_size * ((1 << 30) / large.part_size) < large.part_size);
    }

    #[test]
    fn memory_for_objects_keeps_them_in_flight() {
        for (in_flight, size, threads) in [(2, 48, 2), (3, 200, 1), (4, 32, 2), (4, 64, 8)] {
            let size = ObjectSize::new(size * MIB);
            let memory = PackPlan::memory_for(in_flight, size, threads);
            let plan = pack(memory, size.get(), threads, 16, S3).unwrap();
            assert_eq!((plan.part_size, plan.parallel as u64), (size.get(), in_flight));
        }
    }

    #[test]
    fn errors_name_amounts_that_people_read() {
        let error = pack(8 * MIB, 64 * MIB, 1, 4, S3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "8 MiB of memory is not enough: 1 thread needs at least 16 MiB"
        );
        assert_eq!([mib(0), mib(MIB + 1), mib(u64::MAX)].map(|text| text.len()), [7, 7, 18]);
    }

    #[test]
    fn an_impossible_plan_is_refused_with_numbers() {
        let error = pack(8 * MIB, 64 * MIB, 2, 4, S3).unwrap_err();
        let PlanError::Memory { needed, .. } = error else { panic!("{error:?}") };
        assert!(pack(needed, 64 * MIB, 2, 4, S3).is_ok(), "the number given must do");
        let few = PartLimits { count: 4, ..S3 };
        let error = pack(512 * MIB, 4 << 30, 2, 4, few).unwrap_err();
        let PlanError::Part { needed, .. } = error else { panic!("{error:?}") };
        assert!(pack(needed, 4 << 30, 2, 4, few).is_ok(), "the number given must do");
    }

    #[test]
    fn no_memory_makes_an_object_fit_that_the_store_refuses() {
        const TIB: u64 = 1 << 40;
        let large = |object, limits| pack(64 << 30, object, 2, 4, limits);
        let most = 10_000 * (5 << 30);
        assert_eq!(large(most, S3).unwrap().part_size, 5 << 30);
        let error = large(most + 1, S3).unwrap_err();
        assert_eq!(error, PlanError::TooLarge { object_size: most + 1, most });
        let small = PartLimits { object: 5 * TIB, ..S3 };
        assert!(large(5 * TIB, small).is_ok());
        let error = pack(8 * MIB, 6 * TIB, 2, 4, small).unwrap_err();
        assert_eq!(
            error.to_string(),
            "objects of 6291456 MiB are larger than this store takes: at most 5242880 MiB"
        );
    }

    /// The number of cores alone never makes a budget too small.
    #[test]
    fn a_budget_that_one_core_can_use_works_on_any_machine() {
        for memory in (12 * MIB..1 << 30).step_by(1 << 20) {
            for (codec_memory, cores) in [0, 5 * MIB, 17 * MIB]
                .into_iter()
                .flat_map(|codec| [1, 2, 4, 16, 64, 256].map(|cores| (codec, cores)))
            {
                let threads = worker_threads(memory, codec_memory, cores);
                assert!((1..=cores).contains(&threads));
                let object_size = ObjectSize::new(64 * MIB);
                let plan = |threads| {
                    PackPlan::new(PackSizing {
                        memory,
                        codec_memory,
                        object_size,
                        threads,
                        parallel: 4,
                        limits: S3,
                    })
                };
                if plan(1).is_ok() {
                    assert!(plan(threads).is_ok(), "{memory}, {codec_memory}, {cores}");
                }
                assert!(UnpackPlan::new(memory, threads, 4).is_ok(), "{memory}, {cores}");
            }
        }
        assert_eq!(worker_threads(512 * MIB, 0, 8), 8);
        assert_eq!(worker_threads(128 * MIB, 0, 64), 10);
        assert_eq!(worker_threads(128 * MIB, 5 * MIB, 64), 8);
        assert_eq!(worker_threads(0, 0, 8), 1);
    }

    #[test]
    fn ranges_are_as_long_as_the_memory_allows() {
        let range = |memory, parallel| {
            let plan = UnpackPlan::new(memory * MIB, 2, parallel).unwrap();
            (plan.range / MIB, plan.parallel)
        };
        assert_eq!(range(192, 8), (16, 8));
        assert_eq!(range(96, 8), (8, 8));
        assert_eq!(range(64, 8), (5, 8));
        assert_eq!(range(24, 8), (1, 8));
        assert_eq!(range(16, 8), (1, 6));
    }

    proptest! {
        #[test]
        fn plans_keep_to_the_budget_and_the_limits(
            memory in 1_u64..(4 << 30), chunk in 1_u64..(64 << 30), threads in 1_usize..64, parallel in 1_usize..64,
        ) {
            if let Ok(plan) = pack(memory, chunk, threads, parallel, S3) {
                let in_work = (plan.depth as u64 + 1) * FRAME_LEASE;
                // All frames are in work, and `parallel` parts are in flight, or one of them still
                // fills: this must fit.
                let held = plan.part_size + FRAME_LEASE;
                prop_assert!(in_work + held * plan.parallel.max(2) as u64 <= memory);
                prop_assert!(in_work + held * plan.parts() as u64 <= memory);
                prop_assert!(plan.part_size == chunk || plan.part_size >= S3.min);
                prop_assert!(chunk.div_ceil(plan.part_size) <= S3.count);
                // Every object that fits twice is sent in a single request.
                let fits = in_work + (plan.threads as u64) * FRAME_LEASE + 2 * (chunk + FRAME_LEASE) <= memory;
                prop_assert!(!fits || chunk > S3.max || plan.part_size == chunk);
            }
            if let Ok(plan) = UnpackPlan::new(memory, threads, parallel) {
                prop_assert!((1..=parallel).contains(&plan.parallel));
                // All fetched bytes, and those that the consumer holds.
                prop_assert!(plan.range * (plan.parallel + CONSUMED) as u64 <= plan.memory);
                prop_assert_eq!(plan.range % MIN_RANGE, 0);
                prop_assert!(plan.memory <= memory);
            }
        }
    }
}
