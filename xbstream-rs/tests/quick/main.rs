//! The program: its command lines, and streams good and bad.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod commands;
mod decoding;
mod faults;
mod input_file;
mod line;
mod mbstream;
mod open_files;
mod support;
mod vectors;
