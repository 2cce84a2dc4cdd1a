//! What the other end of a connection sends.

pub(crate) mod clone;
pub(crate) mod mysql;
pub(crate) mod sst_delta;
pub(crate) mod wire;
