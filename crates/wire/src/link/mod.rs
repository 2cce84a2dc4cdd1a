//! One connection: a nonblocking socket, with or without TLS.

pub(crate) mod wake;

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use rustls::Connection;
use socket2::{SockRef, TcpKeepalive};

use self::wake::{Interest, Readiness, Wake};
use crate::security::proof::EXPORTER;

/// Bytes that the socket may hold unsent: enough to keep the network busy while this thread waits
/// for the CPU, few enough that a slow connection does not hold many blocks.
const UNSENT: u32 = 2 << 20;
/// Maximum number of slices in one system call.
const SLICES: usize = 64;

/// Reason why a connection is no longer usable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("the peer closed the connection")]
    Closed,
    #[error("no data within the time limit")]
    Timeout,
    #[error("cancelled")]
    Cancelled,
}

/// One connection. Reading returns `WouldBlock` if no data is available, and 0 at the end.
#[derive(Debug)]
pub(crate) struct Link {
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<Box<Connection>>,
    /// Data read ahead from the socket; with TLS it is encrypted.
    ahead: Vec<u8>,
    from: usize,
    to: usize,
    /// Data to be written before any TLS output.
    out: VecDeque<Bytes>,
    ended: bool,
    last_in: Instant,
    last_out: Instant,
}

impl Link {
    /// Creates a connection; `ahead` is the size of the read buffer.
    pub(crate) fn new(socket: TcpStream, ahead: usize, stall: Duration) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let options = SockRef::from(&socket);
        // The system's own detection of a dead peer; the protocol's does not depend on it.
        let _ = options.set_tcp_user_timeout(Some(stall));
        let _ =
            options.set_tcp_keepalive(&TcpKeepalive::new().with_time(stall).with_interval(stall));
        let _ = options.set_tcp_notsent_lowat(UNSENT);
        let peer = socket.peer_addr()?;
        let now = Instant::now();
        Ok(Self {
            socket,
            peer,
            tls: None,
            ahead: vec![0; ahead],
            from: 0,
            to: 0,
            out: VecDeque::new(),
            ended: false,
            last_in: now,
            last_out: now,
        })
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// When data last arrived.
    pub(crate) fn last_in(&self) -> Instant {
        self.last_in
    }

    /// When data was last written.
    pub(crate) fn last_out(&self) -> Instant {
        self.last_out
    }

    /// Starts TLS for all data after what is already queued.
    pub(crate) fn start_tls(&mut self, connection: Connection) {
        let mut tls = Box::new(connection);
        tls.set_buffer_limit(None);
        self.tls = Some(tls);
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Bytes that only the two ends of this TLS connection know; zeros without TLS.
    pub(crate) fn exported(&self) -> Result<[u8; 32], rustls::Error> {
        match &self.tls {
            Some(tls) => tls.export_keying_material([0; 32], EXPORTER, None),
            None => Ok([0; 32]),
        }
    }

    /// Queues `bytes` to be written by [`Link::flush`].
    pub(crate) fn queue(&mut self, bytes: Bytes) -> Result<(), LinkError> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(&bytes)?,
            None => self.out.push_back(bytes),
        }
        Ok(())
    }

    /// Queues slices that belong together: TLS records may span them.
    pub(crate) fn queue_all(&mut self, bytes: Vec<Bytes>) -> Result<(), LinkError> {
        match &mut self.tls {
            Some(tls) => {
                let slices: Vec<IoSlice<'_>> = bytes.iter().map(|b| IoSlice::new(b)).collect();
                let len: usize = bytes.iter().map(Bytes::len).sum();
                // The writer has no buffer limit, so it accepts everything.
                if len > 0 && tls.writer().write_vectored(&slices)? != len {
                    return Err(io::Error::from(io::ErrorKind::WriteZero).into());
                }
            }
            None => self.out.extend(bytes),
        }
        Ok(())
    }

    /// Returns whether output is waiting.
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Writes what the socket accepts. Returns `Ok(true)` once everything is written.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while !self.out.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.out.iter().take(SLICES).map(|bytes| IoSlice::new(bytes)).collect();
            match (&self.socket).write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.last_out = Instant::now();
                    let mut left = written;
                    while let Some(first) = self.out.front_mut() {
                        let n = left.min(first.len());
                        first.advance(n);
                        left -= n;
                        if !first.is_empty() {
                            break;
                        }
                        self.out.pop_front();
                    }
                }
                Err(error) => return would_block(error),
            }
        }
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(_) => self.last_out = Instant::now(),
                    Err(error) => return would_block(error),
                }
            }
        }
        Ok(true)
    }

    /// Appends data from the socket to the read-ahead buffer. Returns `Ok(false)` if none is
    /// available.
    fn read_ahead(&mut self) -> io::Result<bool> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.from > 0 {
            self.ahead.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let space = self.ahead.get_mut(self.to..).unwrap_or_default();
        if space.is_empty() {
            return Ok(true);
        }
        match (&self.socket).read(space) {
            Ok(0) => {
                self.ended = true;
                Ok(true)
            }
            Ok(n) => {
                self.to += n;
                self.last_in = Instant::now();
                Ok(true)
            }
            Err(error) => would_block(error),
        }
    }

    /// The read-ahead bytes before TLS has consumed any: for the first line.
    pub(crate) fn buffered(&self) -> &[u8] {
        self.ahead.get(self.from..self.to).unwrap_or_default()
    }

    /// Drops the first `len` of these bytes.
    pub(crate) fn skip(&mut self, len: usize) {
        self.from = self.to.min(self.from.saturating_add(len));
    }

    /// Passes the read-ahead data to TLS. Returns `Ok(false)` if TLS needs more from the socket.
    fn feed_tls(&mut self) -> Result<bool, LinkError> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        let mut ahead = self.ahead.get(self.from..self.to).unwrap_or_default();
        if ahead.is_empty() {
            return Ok(false);
        }
        let before = ahead.len();
        tls.read_tls(&mut ahead)?;
        self.from += before - ahead.len();
        tls.process_new_packets()?;
        Ok(true)
    }

    /// Completes the TLS handshake within the limit.
    pub(crate) fn handshake(
        &mut self,
        wake: &Wake,
        until: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), LinkError> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.flush()?;
            let fed = self.feed_tls();
            if fed.is_err() {
                // The peer gets the TLS alert, too.
                let _ = self.flush();
            }
            if !fed? && !self.more(wake, until, cancelled)? {
                return Err(LinkError::Closed);
            }
        }
        Ok(())
    }

    /// Waits for data and reads it ahead. Returns `Ok(false)` at the end.
    pub(crate) fn more(
        &mut self,
        wake: &Wake,
        until: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, LinkError> {
        loop {
            if cancelled() {
                return Err(LinkError::Cancelled);
            }
            self.flush()?;
            if self.read_ahead()? {
                return Ok(!self.ended);
            }
            if Instant::now() >= until {
                return Err(LinkError::Timeout);
            }
            self.wait(wake, Some(until))?;
        }
    }

    /// Waits for the socket, for `wake` or until `until`.
    pub(crate) fn wait(&self, wake: &Wake, until: Option<Instant>) -> io::Result<Readiness> {
        let want = if self.has_output() { Interest::ReadWrite } else { Interest::Read };
        wake::wait(Some((self.socket.as_fd(), want)), wake, until)
    }

    /// Closes in order: writes what is queued, signals the end to the peer, and discards what the
    /// peer still sends. Otherwise the system would reset the connection, and the final message
    /// would be lost.
    pub(crate) fn close(mut self, wake: &Wake, until: Instant) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        let mut told = false;
        let mut scrap = vec![0; 64 << 10];
        loop {
            if !told {
                match self.flush() {
                    Ok(true) => told = self.socket.shutdown(Shutdown::Write).is_ok(),
                    Ok(false) => {}
                    Err(_) => return,
                }
                if !told && !self.has_output() {
                    return;
                }
            }
            loop {
                match (&self.socket).read(&mut scrap) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return,
                }
            }
            if Instant::now() >= until || self.wait(wake, Some(until)).is_err() {
                return;
            }
        }
    }
}

impl Read for Link {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        if self.tls.is_some() {
            return self.read_tls(out);
        }
        if self.from == self.to && !self.ended {
            (self.from, self.to) = (0, 0);
            // Directly into the caller's buffer, and what follows into the read-ahead buffer.
            let direct = out.len();
            let mut both = [IoSliceMut::new(out), IoSliceMut::new(&mut self.ahead)];
            let n = (&self.socket).read_vectored(&mut both)?;
            if n == 0 {
                self.ended = true;
                return Ok(0);
            }
            self.last_in = Instant::now();
            self.to = n.saturating_sub(direct);
            return Ok(n.min(direct));
        }
        let ahead = self.buffered();
        let n = ahead.len().min(out.len());
        if let (Some(out), Some(ahead)) = (out.get_mut(..n), ahead.get(..n)) {
            out.copy_from_slice(ahead);
        }
        self.from += n;
        Ok(n)
    }
}

impl Link {
    fn read_tls(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else { return Ok(0) };
            match tls.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let fed = self.feed_tls().map_err(|error| match error {
                LinkError::Io(error) => error,
                error => io::Error::new(io::ErrorKind::InvalidData, error),
            })?;
            if fed {
                continue;
            }
            if self.ended {
                // The connection ended without TLS's own close: a truncation, handled like any end
                // here.
                return Ok(0);
            }
            if !self.read_ahead()? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

/// Returns `Ok(false)` for errors that mean "not now".
fn would_block(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(false),
        // The caller tries again: the socket is still ready.
        io::ErrorKind::Interrupted => Ok(false),
        _ => Err(error),
    }
}

/// Describes an error. An unexpected end is the most likely one, and its own text is unhelpful.
pub(crate) fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the peer closed it".to_owned(),
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::TimedOut => "the peer acknowledged nothing".to_owned(),
        _ => error.to_string(),
    }
}
