//! The classic layout: objects that hold chunks of one file each, as the stock tools store them.

pub(crate) mod chunk_cursor;
pub(crate) mod fixed_size;
pub(crate) mod object;
pub(crate) mod one_object_per_chunk;
pub(crate) mod transform;
