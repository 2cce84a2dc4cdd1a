//! Backups of real servers and what is made of them: chains, restored servers, proofs and rescued tables.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod support;

mod chain;
mod consolidate;
mod history;
mod imported;
mod one_pass;
mod pages;
mod prepare;
mod renamed;
mod rescue;
mod rescue_cut;
mod rescue_values;
mod trial;
mod verify;
