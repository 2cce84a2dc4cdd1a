//! Contents of tests: data, streams, golden files, comparison.

pub mod clone;
pub mod data;
pub mod files;
pub mod stream;
pub mod vectors;
