//! Models of protocols: every order of steps and deaths that a search reaches.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod chain;
mod claim;
mod copy;
mod removal;
