//! State transfers between the nodes of real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../harness/disk.rs"]
mod disk;

mod acceptance;
mod bad_days;
mod bucket;
mod check;
mod delta;
mod encrypted;
mod floods;
mod join;
mod refusals;
mod room;
mod units;
