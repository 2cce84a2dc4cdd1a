//! Records beside the manifests (verification, pins), copies, retention and deletion.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../common/mod.rs"]
mod common;
mod copy;
mod listing;
mod prune;
mod rewrap;
mod support;
