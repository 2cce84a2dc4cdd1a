//! The stages of packing that all layouts share, and the packed layout. [`start_pack`](crate::start_pack)
//! connects them.

pub(crate) mod body;
pub(crate) mod chunk_sink;
pub(crate) mod coalesce;
pub(crate) mod encode;
pub(crate) mod error;
pub(crate) mod frame_sink;
pub(crate) mod input;
pub(crate) mod native_input;
pub(crate) mod packer;
pub(crate) mod pass_on;
pub(crate) mod result;
pub(crate) mod slab_reader;
