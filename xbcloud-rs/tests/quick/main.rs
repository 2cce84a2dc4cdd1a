//! The program without a server: its command lines, streams, local backups and what it prints.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod support;

mod archive_report;
mod bad_nights;
mod check;
mod clone;
mod clone_restore;
mod commands;
mod completion;
mod defaults;
mod delete;
mod evidence;
mod exit_codes;
mod fifos;
mod fixed_size;
mod fleet;
mod forged_options;
mod killed;
mod line;
mod members;
mod open_files;
mod peers;
mod pipe;
mod proof;
mod random_catalogues;
mod report;
mod repositories;
mod restored;
mod run;
mod sealed;
mod signing;
mod what_counts;
mod xtrabackup;
