//! The handshake of both sides on a connection: first line, TLS, hello, welcome.

pub(crate) mod donor;
pub(crate) mod joiner;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::{SecurityError, TransferError};
use crate::limits::{Limits, MAX_REASON};
use crate::link::wake::Wake;
use crate::link::{Link, LinkError};
use crate::printable::printable;
use crate::protocol::banner::{self, Banner, BannerError};
use crate::protocol::buffer_pool::Pool;
use crate::protocol::error::ProtocolError;
use crate::protocol::message::{Message, StopCode, StopMessage};
use crate::protocol::message_reader::{Inbound, InboundError, Item};

/// A connection on which the handshake has succeeded.
pub(crate) struct Established<T> {
    pub(crate) link: Link,
    pub(crate) inbound: Inbound,
    pub(crate) what: T,
    pub(crate) round_trip: Duration,
}

/// Reason why a connection could not be opened.
#[derive(Debug)]
pub(crate) struct OpenError {
    pub(crate) error: TransferError,
    /// Whether another attempt may succeed.
    pub(crate) passing: bool,
    /// Whether the port was closed.
    pub(crate) refused: bool,
}

impl OpenError {
    fn for_good(error: TransferError) -> Self {
        Self { error, passing: false, refused: false }
    }

    fn passing(error: TransferError) -> Self {
        Self { error, passing: true, refused: false }
    }
}

/// Everything that a thread needs to wait.
#[derive(Clone, Copy)]
pub(crate) struct WaitContext<'a> {
    pub(crate) wake: &'a Wake,
    pub(crate) cancelled: &'a dyn Fn() -> bool,
    pub(crate) limits: &'a Limits,
}

/// Returns the error for a stop message received from the peer.
pub(crate) fn stopped(stop: StopMessage, who: &'static str, peer: SocketAddr) -> TransferError {
    let reason = printable(&stop.reason, MAX_REASON);
    match stop.code {
        StopCode::Refused | StopCode::Busy | StopCode::Unknown | StopCode::Version
            if who == "joiner" =>
        {
            TransferError::Refused { reason }
        }
        StopCode::Proof => TransferError::Proof { peer },
        _ => TransferError::Aborted { who, reason },
    }
}

fn nonce() -> Result<[u8; 16], OpenError> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce)
        .map_err(|error| OpenError::for_good(SecurityError::from(error).into()))?;
    Ok(nonce)
}

/// Returns the TLS error inside a read error.
fn within(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<LinkError>() {
        Some(LinkError::Tls(error)) => Some(error),
        _ => inner.downcast_ref::<rustls::Error>(),
    }
}

enum LineError {
    Link(LinkError),
    Banner(BannerError),
}

fn read_line(
    link: &mut Link,
    waiting: WaitContext<'_>,
    until: Instant,
) -> Result<Banner, LineError> {
    loop {
        if !link.more(waiting.wake, until, waiting.cancelled).map_err(LineError::Link)? {
            return Err(LineError::Link(LinkError::Closed));
        }
        if let Some((line, len)) = banner::parse(link.buffered()).map_err(LineError::Banner)? {
            link.skip(len);
            return Ok(line);
        }
    }
}

fn read_message(
    link: &mut Link,
    inbound: &mut Inbound,
    waiting: WaitContext<'_>,
    until: Instant,
) -> Result<Message, LinkError> {
    let pool = Pool::new(0, 0);
    loop {
        if (waiting.cancelled)() {
            return Err(LinkError::Cancelled);
        }
        // The peer's final message is read even if the peer no longer reads.
        let flushed = link.flush();
        let early = |_: &_| Err(ProtocolError::Unexpected { what: "block" });
        match inbound.next(link, &pool, early) {
            Ok(Some(Item::Message(message))) => return Ok(message),
            Ok(Some(_)) => {}
            Ok(None) => {
                flushed?;
                if Instant::now() >= until {
                    return Err(LinkError::Timeout);
                }
                link.wait(waiting.wake, Some(until))?;
            }
            Err(InboundError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(LinkError::Closed);
            }
            Err(InboundError::Io(error)) => return Err(error.into()),
            Err(InboundError::Protocol(error)) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, error).into());
            }
        }
    }
}
