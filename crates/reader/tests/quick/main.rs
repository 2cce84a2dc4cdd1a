//! Streams: vectors, cuts, any bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod common;
mod cuts;
mod properties;
mod vectors;
