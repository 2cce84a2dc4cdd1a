//! The program: its command lines, files and formats.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod commands;
mod line;
mod native;
mod signing_key;
mod stock;
mod support;
