//! The client with a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod dump;
mod mariadb;
