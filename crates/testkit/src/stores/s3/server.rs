//! A running S3 server.

use crate::process::daemon::{Daemon, Scratch};

#[derive(Debug)]
pub(super) struct Server {
    address: String,
    _daemon: Daemon,
    _scratch: Scratch,
}

impl Server {
    pub(super) fn new(address: String, daemon: Daemon, scratch: Scratch) -> Self {
        Self { address, _daemon: daemon, _scratch: scratch }
    }

    /// Returns its host and port.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}
