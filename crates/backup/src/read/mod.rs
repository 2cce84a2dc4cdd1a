//! Reading a backup: unlock it, choose what to fetch, fetch it in order.

pub(crate) mod file_filter;
pub(crate) mod get;
pub(crate) mod packed_index;
pub(crate) mod partial;
pub(crate) mod ranges;
pub(crate) mod unlock;
