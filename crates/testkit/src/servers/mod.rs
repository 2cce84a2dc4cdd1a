//! Database servers: real ones, and one that a test scripts.

pub mod cut;
pub mod donor;
pub mod galera;
pub mod mariadb;
pub mod mysql;
mod new_data;
pub mod scripted;

/// Returns whether something listens on a Unix socket. It is asked before a client is started: one that waits
/// for a server starts ten of them a second otherwise.
fn listens(socket: &std::path::Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}
