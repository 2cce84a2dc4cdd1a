//! The joiner's half of the handshake: it listens first.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Established, LineError, WaitContext, nonce, read_line, read_message, within};
use crate::link::{Link, LinkError};
use crate::printable::printable;
use crate::protocol::banner::{self, Banner, BannerKind};
use crate::protocol::error::ProtocolError;
use crate::protocol::message::{Hello, Message};
use crate::protocol::message_reader::Inbound;
use crate::security::proof::Binding;
use crate::security::tls::JoinerTls;
/// Facts about a donor that the joiner has from its hello, before the donor is authenticated.
pub(crate) struct DonorHello {
    pub(crate) hello: Hello,
    pub(crate) version: u16,
    pub(crate) at: Binding,
}

/// Reason why a peer is not a donor, as text for the log.
pub(crate) enum RejectedPeer {
    /// It does not behave as a donor. It is logged.
    Invalid(String),
    /// It is a donor that cannot connect. It is logged.
    Declines(String),
    /// This side is ending.
    Cancelled,
}

/// Runs the joiner's half. `spoke` is called once the donor's first line is valid.
pub(crate) fn receive(
    socket: TcpStream,
    tls: Option<&JoinerTls>,
    waiting: WaitContext<'_>,
    spoke: impl FnOnce(),
) -> Result<Established<DonorHello>, RejectedPeer> {
    let limits = waiting.limits;
    let until = Instant::now() + limits.handshake;
    // Without TLS, blocks are read directly into their buffers: only their heads are read ahead.
    let ahead = if tls.is_some() { 128 << 10 } else { 8 << 10 };
    let mut link = Link::new(socket, ahead, limits.stall)
        .map_err(|error| RejectedPeer::Invalid(error.to_string()))?;
    let explain = |error: LinkError| explain(error, tls, waiting);

    let their_nonce = match their_nonce(&mut link, tls, waiting, until)? {
        Ok(nonce) => nonce,
        Err(text) => return Err(say_no(link, text, waiting)),
    };
    spoke();
    let nonce = nonce().map_err(|error| RejectedPeer::Invalid(error.error.to_string()))?;
    let (min_version, max_version) = limits.versions();
    let line =
        Banner { min_version, max_version, kind: BannerKind::Go { tls: tls.is_some(), nonce } };
    link.queue(line.write().into()).map_err(explain)?;
    if let Some(tls) = tls {
        link.start_tls(tls.connection().map_err(|error| explain(error.into()))?);
        if let Err(error) = link.handshake(waiting.wake, until, waiting.cancelled) {
            if !matches!(error, LinkError::Cancelled) {
                // So that the peer can read the TLS alert.
                link.close(waiting.wake, Instant::now() + limits.farewell);
            }
            return Err(explain(error));
        }
    }
    let exported = link.exported().map_err(|error| explain(error.into()))?;
    let at = Binding::new(&exported, &their_nonce, &nonce);
    let mut inbound = Inbound::default();
    let hello = match read_message(&mut link, &mut inbound, waiting, until).map_err(explain)? {
        Message::Hello(hello) => *hello,
        other => {
            let what = ProtocolError::Unexpected { what: other.name() };
            return Err(RejectedPeer::Invalid(what.to_string()));
        }
    };
    let theirs = (hello.min_version, hello.max_version);
    let Some(version) = banner::common_version(theirs, limits.versions()) else {
        return Err(RejectedPeer::Invalid(
            "its protocol versions changed during the handshake".to_owned(),
        ));
    };
    let what = DonorHello { hello, version, at };
    Ok(Established { link, inbound, what, round_trip: Duration::ZERO })
}

/// Returns the nonce in the donor's first line. The inner error is the reply for the donor.
fn their_nonce(
    link: &mut Link,
    tls: Option<&JoinerTls>,
    waiting: WaitContext<'_>,
    until: Instant,
) -> Result<Result<[u8; 16], String>, RejectedPeer> {
    let theirs = match read_line(link, waiting, until) {
        Ok(line) => line,
        Err(LineError::Link(error)) => return Err(explain(error, tls, waiting)),
        Err(LineError::Banner(error)) => return Ok(Err(error.to_string())),
    };
    let range = (theirs.min_version, theirs.max_version);
    let ours = waiting.limits.versions();
    if banner::common_version(range, ours).is_none() {
        return Ok(Err(format!(
            "the donor supports protocol versions {}-{}, the joiner {}-{}: install the same version on both nodes",
            range.0, range.1, ours.0, ours.1
        )));
    }
    match theirs.kind {
        BannerKind::Go { tls: theirs, nonce } if theirs == tls.is_some() => Ok(Ok(nonce)),
        BannerKind::Go { tls: true, .. } => {
            Ok(Err("the donor requires TLS, but the joiner is set to plain".to_owned()))
        }
        BannerKind::Go { .. } => {
            Ok(Err("the donor is set to plain, but the joiner requires TLS".to_owned()))
        }
        BannerKind::No(reason) => {
            let reason = printable(&reason, 300);
            Err(RejectedPeer::Declines(format!("the donor gave up: {reason}")))
        }
    }
}

/// Tells a donor why it is refused.
fn say_no(mut link: Link, text: String, waiting: WaitContext<'_>) -> RejectedPeer {
    let (min_version, max_version) = waiting.limits.versions();
    let line = Banner { min_version, max_version, kind: BannerKind::No(text.clone()) };
    if link.queue(line.write().into()).is_ok() {
        link.close(waiting.wake, Instant::now() + waiting.limits.farewell);
    }
    RejectedPeer::Invalid(text)
}

fn explain(error: LinkError, tls: Option<&JoinerTls>, waiting: WaitContext<'_>) -> RejectedPeer {
    RejectedPeer::Invalid(match error {
        LinkError::Cancelled => return RejectedPeer::Cancelled,
        LinkError::Tls(error) => tls.map_or_else(|| error.to_string(), |tls| tls.explain(&error)),
        LinkError::Io(error) => match (within(&error), tls) {
            (Some(error), Some(tls)) => tls.explain(error),
            _ => error.to_string(),
        },
        LinkError::Timeout => {
            let limit = waiting.limits.handshake.as_secs();
            format!("it did not identify itself within {limit} s")
        }
        error @ LinkError::Closed => error.to_string(),
    })
}
