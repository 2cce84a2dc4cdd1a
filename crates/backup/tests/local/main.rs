//! Backups in a local directory. One program: each further one would compile the whole pipeline
//! once more.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod catalogue;
mod claims;
mod common;
mod delete;
mod faults;
mod folders;
mod gc;
mod native;
mod parts;
mod resume;
mod resume_streams;
mod round_trip;
mod verify;
