//! Messages from the other end of a connection.

pub(crate) mod certificates;
pub(crate) mod clone;
pub(crate) mod mysql;
pub(crate) mod sst_delta;
pub(crate) mod wire;
