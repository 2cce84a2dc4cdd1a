//! Native streams: the worked example, round trips, damage.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod golden;
mod index;
mod roundtrip;
