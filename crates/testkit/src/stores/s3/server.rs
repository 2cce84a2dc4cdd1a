//! A running S3 server.

use std::net::TcpListener;

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

/// Returns ports that were free a moment ago; all are held until the last is found.
pub(super) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|l| l.local_addr().expect("port").port())
}
