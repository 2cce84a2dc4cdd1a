//! MySQL: its files, clones of it, and the archive of its binary log. `scripts/on-release sid mysql`
//! runs them; where MySQL is not installed, each says that it is skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod support;

mod clone_restore;
mod clone_rounds;
mod failover;
mod files;
mod from;
mod until;
