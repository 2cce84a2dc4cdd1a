//! Database servers: real ones, and one that a test scripts.

pub mod cut;
pub mod donor;
pub mod galera;
pub mod mariadb;
pub mod mysql;
pub mod scripted;
