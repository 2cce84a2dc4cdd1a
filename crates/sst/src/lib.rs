//! State transfer between Galera nodes: donor, joiner, and what crosses the wire between them.

pub mod transport;
