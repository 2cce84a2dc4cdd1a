//! Real servers, and the days and nights of those who run them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod support;

mod bad_nights;
mod documents;
mod fleet;
mod galera;
mod mariadb;
mod mistakes;
mod monitoring;
mod operators;
mod power;
mod report;
mod stock;
mod tune;
