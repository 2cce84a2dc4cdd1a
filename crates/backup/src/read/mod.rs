//! Reading a backup: opening it, selecting files, and fetching its objects in order.

pub(crate) mod decoding;
pub(crate) mod file_list;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod packed_index;
pub(crate) mod partial;
pub(crate) mod ranges;
pub(crate) mod removed_meanwhile;
pub(crate) mod request;
pub(crate) mod stream_sink;
pub(crate) mod unlock;
