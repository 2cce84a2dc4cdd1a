//! Requests to real stores, and to some that fail or do harm.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod common;
mod faults;
mod hostile;
mod stores;
