//! Building blocks of all stages: memory leases, pooled buffers, ordered workers, sizes derived
//! from the budget, checksums and counters.

pub(crate) mod budget;
pub mod checksum;
pub(crate) mod globs;
pub(crate) mod hold_ups;
pub(crate) mod observer;
pub(crate) mod ordered_pool;
pub(crate) mod plan;
pub(crate) mod received;
pub(crate) mod slab;
pub(crate) mod work;
