//! Benchmarks only; this crate exports nothing.
