//! Real object stores, and one that discards everything.

pub mod azure;
pub mod s3;
pub mod sink;
pub mod store;
