//! The archive of a binary log, with real MariaDB servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod support;

mod ack;
mod binlog;
mod compare;
mod copied_log;
mod failover;
mod lost_key;
mod lost_segments;
mod many_segments;
mod new_cluster;
mod receivers;
mod two_histories;
mod unreliable_stores;
mod until;
