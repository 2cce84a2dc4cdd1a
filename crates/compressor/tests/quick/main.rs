//! Codecs: round trips, other programs, damage.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod blocks;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod interop;
mod properties;
#[path = "../common/qpress.rs"]
mod qpress;
mod sizes;
mod vectors;
