//! Connections of bytes: over a Unix socket, over TCP, and over TLS.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;

/// Bytes that are dropped at once, and how often at most: more than a system keeps for a connection.
const DROPPED: usize = 256 << 10;
const MAX_DROPPED: u32 = 1024;

/// What a connection lies upon.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Returns whether bytes have arrived that nothing has read.
    pub(crate) fn has_more(&self) -> bool {
        let socket = match self {
            Self::Unix(stream) => SockRef::from(stream),
            Self::Tcp(stream) => SockRef::from(stream),
        };
        let mut byte = [MaybeUninit::uninit()];
        let found = socket.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
        found.is_ok_and(|bytes| bytes > 0)
    }

    /// Drops the bytes that have arrived and that nothing has read.
    pub(crate) fn drop_unread(&self) {
        let socket = match self {
            Self::Unix(stream) => SockRef::from(stream),
            Self::Tcp(stream) => SockRef::from(stream),
        };
        let (mut buffer, mut left) = (vec![MaybeUninit::uninit(); DROPPED], MAX_DROPPED);
        while let Some(rest) = left.checked_sub(1) {
            left = rest;
            let found = socket.recv_with_flags(&mut buffer, libc::MSG_DONTWAIT);
            if !found.is_ok_and(|bytes| bytes > 0) {
                return;
            }
        }
    }
}

/// A connection of bytes.
pub(crate) trait Stream: Read + Write + Send {
    fn set_timeouts(&self, limit: Option<Duration>) -> io::Result<()>;
    fn socket(&self) -> io::Result<Socket>;
    fn fd(&self) -> BorrowedFd<'_>;

    /// Returns whether bytes were read from the socket, and are still to be read from this.
    fn holds_bytes(&self) -> bool {
        false
    }
}

impl Stream for UnixStream {
    fn socket(&self) -> io::Result<Socket> {
        self.try_clone().map(Socket::Unix)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn set_timeouts(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl Stream for TcpStream {
    fn socket(&self) -> io::Result<Socket> {
        self.try_clone().map(Socket::Tcp)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn set_timeouts(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> io::Result<Socket> {
        self.sock.socket()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.sock.as_fd()
    }

    fn set_timeouts(&self, limit: Option<Duration>) -> io::Result<()> {
        self.sock.set_timeouts(limit)
    }

    fn holds_bytes(&self) -> bool {
        !self.conn.wants_read()
    }
}
