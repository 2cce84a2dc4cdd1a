//! The first words on a connection, of both sides: line, TLS, hello, welcome.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::announce::secret::Secret;
use crate::error::{SecurityError, TransferError};
use crate::limits::{Limits, MAX_REASON};
use crate::link::wake::{self, Wake, Want};
use crate::link::{Link, LinkError};
use crate::printable::printable;
use crate::protocol::banner::{self, Banner, BannerError, Say};
use crate::protocol::buffer_pool::Pool;
use crate::protocol::message::{Hello, Message, ProtocolError, Stop, StopCode, VERSION, Welcome};
use crate::protocol::message_reader::{Inbound, InboundError, Item};
use crate::security::proof::{Binding, Side, Transfer};
use crate::security::tls::{DonorTls, JoinerTls};

/// Versions of the protocol that this program speaks.
pub(crate) const VERSIONS: (u16, u16) = (VERSION, VERSION);

/// A connection on which both sides know each other.
pub(crate) struct Opened<T> {
    pub(crate) link: Link,
    pub(crate) inbound: Inbound,
    pub(crate) what: T,
    pub(crate) round_trip: Duration,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) struct OpenError {
    pub(crate) error: TransferError,
    /// Whether another try may go better.
    pub(crate) passing: bool,
    /// Whether nobody listened.
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

/// What a thread needs to wait.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) wake: &'a Wake,
    pub(crate) cancelled: &'a dyn Fn() -> bool,
    pub(crate) limits: &'a Limits,
}

/// Connects without blocking beyond `until` or a cancel.
pub(crate) fn connect_socket(
    to: SocketAddr,
    waiting: Waiting<'_>,
    until: Instant,
) -> Result<TcpStream, LinkError> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&to.into()) {
        Ok(()) => return Ok(socket.into()),
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error.into()),
    }
    loop {
        if (waiting.cancelled)() {
            return Err(LinkError::Cancelled);
        }
        let ready = wake::wait(Some((socket.as_fd(), Want::ReadWrite)), waiting.wake, Some(until))?;
        if ready.write {
            return match socket.take_error()? {
                Some(error) => Err(error.into()),
                None => Ok(socket.into()),
            };
        }
        if Instant::now() >= until {
            return Err(LinkError::Timeout);
        }
    }
}

/// Who the donor is on a connection.
pub(crate) struct Donor<'a> {
    pub(crate) tls: Option<&'a DonorTls>,
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) transfer: &'a Transfer,
    pub(crate) connection: u16,
    /// On a first contact.
    pub(crate) offer: Option<&'a [u8]>,
}

impl Donor<'_> {
    /// Speaks first.
    pub(crate) fn open(
        &self,
        socket: TcpStream,
        waiting: Waiting<'_>,
    ) -> Result<Opened<Welcome>, OpenError> {
        let until = Instant::now() + waiting.limits.handshake;
        let mut link = Link::new(socket, 32 << 10, waiting.limits.stall)
            .map_err(|error| OpenError::passing(error.into()))?;
        let peer = link.peer();
        let failed = |error: LinkError| self.failed(peer, error, waiting.limits);

        let nonce = nonce()?;
        let line = Banner {
            min_version: VERSIONS.0,
            max_version: VERSIONS.1,
            say: Say::Go { tls: self.tls.is_some(), nonce },
        };
        link.queue(line.write().into()).map_err(failed)?;
        if let Some(tls) = self.tls {
            link.start_tls(tls.connection().map_err(|error| failed(error.into()))?);
        }
        let asked = Instant::now();
        let theirs = match read_line(&mut link, waiting, until) {
            Ok(line) => line,
            Err(LineError::Link(error)) if went_away(&error) => {
                return Err(OpenError {
                    error: TransferError::Foreign {
                        peer,
                        role: "joiner",
                        what: "it closed the connection without a word: does another transfer method listen there?"
                            .to_owned(),
                    },
                    // Later it may be a broken way.
                    passing: self.offer.is_none(),
                    refused: false,
                });
            }
            Err(LineError::Link(LinkError::Timeout)) => {
                return Err(OpenError::passing(TransferError::Foreign {
                    peer,
                    role: "joiner",
                    what: format!("it said nothing for {} s", waiting.limits.handshake.as_secs()),
                }));
            }
            Err(LineError::Link(error)) => return Err(failed(error)),
            Err(LineError::Banner(error)) => {
                return Err(OpenError::for_good(TransferError::Foreign {
                    peer,
                    role: "joiner",
                    what: error.to_string(),
                }));
            }
        };
        // The shorter of two: a busy joiner lets one seem longer than the way is.
        let first_round_trip = asked.elapsed();
        if banner::common_version((theirs.min_version, theirs.max_version), VERSIONS).is_none() {
            return Err(OpenError::for_good(versions(
                peer,
                theirs.min_version,
                theirs.max_version,
            )));
        }
        let their_nonce = match theirs.say {
            Say::Go { tls, nonce } if tls == self.tls.is_some() => nonce,
            Say::Go { .. } => {
                let what = "it answered for another kind of protection".to_owned();
                return Err(OpenError::for_good(TransferError::Protocol { peer, what }));
            }
            Say::No(reason) => {
                let reason = printable(&reason, 300);
                return Err(OpenError::for_good(TransferError::Refused { reason }));
            }
        };
        link.handshake(waiting.wake, until, waiting.cancelled).map_err(failed)?;
        let exported = link.exported().map_err(|error| failed(error.into()))?;
        let at = Binding::new(&exported, &nonce, &their_nonce);

        let hello = Hello {
            min_version: VERSIONS.0,
            max_version: VERSIONS.1,
            capabilities: 0,
            transfer: self.transfer.id,
            connection: self.connection,
            key: self.offer.map(|_| self.transfer.key.clone()),
            proof: self.transfer.prove(self.secret, Side::Donor, self.connection, &at),
            offer: self.offer.unwrap_or_default().to_vec(),
        };
        let asked = Instant::now();
        link.queue(Message::Hello(Box::new(hello)).write().into()).map_err(failed)?;
        let mut inbound = Inbound::default();
        let message = read_message(&mut link, &mut inbound, waiting, until);
        let round_trip = asked.elapsed().min(first_round_trip);
        match message {
            Ok(Message::Welcome(welcome)) => {
                if !(VERSIONS.0..=VERSIONS.1).contains(&welcome.version) {
                    let (peer, version) = (peer, welcome.version);
                    return Err(OpenError::for_good(versions(peer, version, version)));
                }
                let proof = &welcome.proof;
                if !self.transfer.holds(proof, self.secret, Side::Joiner, self.connection, &at) {
                    return Err(OpenError::for_good(TransferError::Proof { peer }));
                }
                Ok(Opened { link, inbound, what: welcome, round_trip })
            }
            Ok(Message::Stop(stop)) => Err(OpenError::for_good(stopped(stop, "joiner", peer))),
            Ok(other) => Err(OpenError::for_good(TransferError::Protocol {
                peer,
                what: ProtocolError::Unexpected { what: other.name() }.to_string(),
            })),
            Err(error) => Err(failed(error)),
        }
    }

    fn failed(&self, peer: SocketAddr, error: LinkError, limits: &Limits) -> OpenError {
        let lost = |what: String| OpenError::passing(TransferError::Tls { peer, what });
        let tls = |error: &rustls::Error| {
            let what = self.tls.map_or_else(|| error.to_string(), |tls| tls.explain(error));
            // What came through once may come through again: later it is a bad wire, unless the
            // certificate is another one.
            let certificate = matches!(error, rustls::Error::InvalidCertificate(_));
            let passing = self.offer.is_none() && !certificate;
            OpenError { error: TransferError::Tls { peer, what }, passing, refused: false }
        };
        match error {
            LinkError::Cancelled => OpenError::for_good(TransferError::Cancelled),
            LinkError::Timeout => {
                lost(format!("it did not come about within {} s", limits.handshake.as_secs()))
            }
            LinkError::Closed => lost("the joiner closed it before it was set up".to_owned()),
            LinkError::Tls(error) => tls(&error),
            LinkError::Io(error) => match within(&error) {
                Some(error) => tls(error),
                None => lost(error.to_string()),
            },
        }
    }
}

/// What the joiner knows about a donor that has said hello, before it is known to be the right one.
pub(crate) struct Introduced {
    pub(crate) hello: Hello,
    pub(crate) version: u16,
    pub(crate) at: Binding,
}

/// Why somebody is no donor; in words for the log.
pub(crate) enum Stranger {
    /// Worth a line.
    Odd(String),
    /// This side is ending.
    Cancelled,
}

/// The joiner's half: listens first. `spoke` is called when the donor's line was right.
pub(crate) fn receive(
    socket: TcpStream,
    tls: Option<&JoinerTls>,
    waiting: Waiting<'_>,
    spoke: impl FnOnce(),
) -> Result<Opened<Introduced>, Stranger> {
    let limits = waiting.limits;
    let until = Instant::now() + limits.handshake;
    // Blocks go straight to their place without TLS: only their heads are read ahead.
    let ahead = if tls.is_some() { 128 << 10 } else { 8 << 10 };
    let mut link =
        Link::new(socket, ahead, limits.stall).map_err(|error| Stranger::Odd(error.to_string()))?;
    let explain = |error: LinkError| match error {
        LinkError::Cancelled => Stranger::Cancelled,
        LinkError::Tls(error) => {
            Stranger::Odd(tls.map_or_else(|| error.to_string(), |tls| tls.explain(&error)))
        }
        LinkError::Io(error) => Stranger::Odd(match (within(&error), tls) {
            (Some(error), Some(tls)) => tls.explain(error),
            _ => error.to_string(),
        }),
        LinkError::Timeout => Stranger::Odd(format!(
            "it did not say who it is within {} s",
            limits.handshake.as_secs()
        )),
        error @ LinkError::Closed => Stranger::Odd(error.to_string()),
    };
    let no = |mut link: Link, text: String| {
        let (min_version, max_version) = VERSIONS;
        let line = Banner { min_version, max_version, say: Say::No(text.clone()) };
        if link.queue(line.write().into()).is_ok() {
            link.close(waiting.wake, Instant::now() + limits.farewell);
        }
        Stranger::Odd(text)
    };

    let theirs = match read_line(&mut link, waiting, until) {
        Ok(line) => line,
        Err(LineError::Link(error)) => return Err(explain(error)),
        Err(LineError::Banner(error)) => return Err(no(link, error.to_string())),
    };
    let range = (theirs.min_version, theirs.max_version);
    if banner::common_version(range, VERSIONS).is_none() {
        let text = format!(
            "the donor speaks versions {}-{} of the protocol, the joiner {}-{}: install the same version on both nodes",
            range.0, range.1, VERSIONS.0, VERSIONS.1
        );
        return Err(no(link, text));
    }
    let their_nonce = match theirs.say {
        Say::Go { tls: wanted, nonce } if wanted == tls.is_some() => nonce,
        Say::Go { tls: true, .. } => {
            return Err(no(link, "the donor wants TLS, the joiner is set to plain".to_owned()));
        }
        Say::Go { .. } => {
            return Err(no(link, "the donor is set to plain, the joiner wants TLS".to_owned()));
        }
        Say::No(_) => return Err(Stranger::Odd("it said no".to_owned())),
    };
    spoke();
    let nonce = nonce().map_err(|error| Stranger::Odd(error.error.to_string()))?;
    let line = Banner {
        min_version: VERSIONS.0,
        max_version: VERSIONS.1,
        say: Say::Go { tls: tls.is_some(), nonce },
    };
    link.queue(line.write().into()).map_err(explain)?;
    if let Some(tls) = tls {
        link.start_tls(tls.connection().map_err(|error| explain(error.into()))?);
        if let Err(error) = link.handshake(waiting.wake, until, waiting.cancelled) {
            if !matches!(error, LinkError::Cancelled) {
                // So that the peer reads what TLS has told it.
                link.close(waiting.wake, Instant::now() + limits.farewell);
            }
            return Err(explain(error));
        }
    }
    let exported = link.exported().map_err(|error| explain(error.into()))?;
    let at = Binding::new(&exported, &their_nonce, &nonce);
    let mut inbound = Inbound::default();
    let hello = match read_message(&mut link, &mut inbound, waiting, until) {
        Ok(Message::Hello(hello)) => *hello,
        Ok(other) => {
            let what = ProtocolError::Unexpected { what: other.name() };
            return Err(Stranger::Odd(what.to_string()));
        }
        Err(error) => return Err(explain(error)),
    };
    let Some(version) = banner::common_version((hello.min_version, hello.max_version), VERSIONS)
    else {
        return Err(Stranger::Odd("its versions changed in between".to_owned()));
    };
    let what = Introduced { hello, version, at };
    Ok(Opened { link, inbound, what, round_trip: Duration::ZERO })
}

/// What a stop means for the side that gets it.
pub(crate) fn stopped(stop: Stop, who: &'static str, peer: SocketAddr) -> TransferError {
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

fn versions(peer: SocketAddr, min: u16, max: u16) -> TransferError {
    TransferError::Version {
        peer,
        theirs: format!("{min}-{max}"),
        ours: format!("{}-{}", VERSIONS.0, VERSIONS.1),
    }
}

fn nonce() -> Result<[u8; 16], OpenError> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce)
        .map_err(|error| OpenError::for_good(SecurityError::from(error).into()))?;
    Ok(nonce)
}

/// The TLS error inside one of reading.
fn within(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<LinkError>() {
        Some(LinkError::Tls(error)) => Some(error),
        _ => inner.downcast_ref::<rustls::Error>(),
    }
}

fn went_away(error: &LinkError) -> bool {
    match error {
        LinkError::Closed => true,
        LinkError::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
        _ => false,
    }
}

enum LineError {
    Link(LinkError),
    Banner(BannerError),
}

fn read_line(link: &mut Link, waiting: Waiting<'_>, until: Instant) -> Result<Banner, LineError> {
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
    waiting: Waiting<'_>,
    until: Instant,
) -> Result<Message, LinkError> {
    let pool = Pool::new(0, 0);
    loop {
        if (waiting.cancelled)() {
            return Err(LinkError::Cancelled);
        }
        // The peer's last words are read even if it takes none any more.
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
