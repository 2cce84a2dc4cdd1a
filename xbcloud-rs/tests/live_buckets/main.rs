//! Backups in real stores, good ones and those that fail, lag and lie.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod support;

mod catalogue;
mod clouds;
mod copy;
mod false_stores;
mod full_disk;
mod init;
mod kill;
mod listings;
mod locks;
mod marks;
mod parts;
mod permissions;
mod race;
mod refused_removals;
mod requests;
mod resume;
mod s3;
mod stall;
mod tags;
mod whole;
