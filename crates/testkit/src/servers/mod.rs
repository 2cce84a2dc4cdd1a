//! Real database servers.

pub mod galera;
pub mod mariadb;
pub mod mysql;
