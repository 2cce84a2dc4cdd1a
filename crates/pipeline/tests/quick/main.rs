//! The pipeline without a store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod common;
mod cut_streams;
mod fifos;
mod filter;
mod fixed_size;
mod inspect;
mod sizes;
mod up_and_down;
