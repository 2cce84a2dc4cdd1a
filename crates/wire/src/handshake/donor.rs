//! The donor's half of the handshake: it connects and speaks first.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{
    Established, LineError, OpenError, WaitContext, nonce, read_line, read_message, stopped, within,
};
use crate::announce::secret::Secret;
use crate::error::TransferError;
use crate::limits::Limits;
use crate::link::wake::{self, Interest};
use crate::link::{Link, LinkError};
use crate::printable::printable;
use crate::protocol::banner::{self, Banner, BannerKind};
use crate::protocol::error::ProtocolError;
use crate::protocol::message::{Hello, Message, Welcome};
use crate::protocol::message_reader::Inbound;
use crate::security::proof::{Binding, Side, Transfer};
use crate::security::tls::DonorTls;
/// Connects; gives up at `until` or on cancellation.
pub(crate) fn connect_socket(
    to: SocketAddr,
    waiting: WaitContext<'_>,
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
        let ready =
            wake::wait(Some((socket.as_fd(), Interest::ReadWrite)), waiting.wake, Some(until))?;
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

/// Identity of the donor on a connection.
pub(crate) struct Donor<'a> {
    pub(crate) tls: Option<&'a DonorTls>,
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) transfer: &'a Transfer,
    pub(crate) connection: u16,
    /// Set on the first contact only.
    pub(crate) offer: Option<&'a [u8]>,
}

impl Donor<'_> {
    /// Opens the connection; the donor speaks first.
    pub(crate) fn open(
        &self,
        socket: TcpStream,
        waiting: WaitContext<'_>,
    ) -> Result<Established<Welcome>, OpenError> {
        let until = Instant::now() + waiting.limits.handshake;
        let mut link = Link::new(socket, 32 << 10, waiting.limits.stall)
            .map_err(|error| OpenError::passing(error.into()))?;
        let peer = link.peer();
        let failed = |error: LinkError| self.failed(peer, error, waiting.limits);

        let nonce = nonce()?;
        let (their_nonce, first_round_trip) =
            self.exchange_banners(&mut link, nonce, waiting, until)?;
        link.handshake(waiting.wake, until, waiting.cancelled).map_err(failed)?;
        let exported = link.exported().map_err(|error| failed(error.into()))?;
        let at = Binding::new(&exported, &nonce, &their_nonce);

        let hello = self.hello(&at, waiting.limits);
        let asked = Instant::now();
        link.queue(Message::Hello(Box::new(hello)).write().into()).map_err(failed)?;
        let mut inbound = Inbound::default();
        let message = read_message(&mut link, &mut inbound, waiting, until).map_err(failed)?;
        // The shorter of the two: a busy joiner can delay one of them.
        let round_trip = asked.elapsed().min(first_round_trip);
        let ours = waiting.limits.versions();
        let what = self.welcomed(message, peer, &at, ours).map_err(OpenError::for_good)?;
        Ok(Established { link, inbound, what, round_trip })
    }

    /// Sends the first line and reads the joiner's. Returns the joiner's nonce and the duration. If
    /// both sides require TLS, it has begun.
    fn exchange_banners(
        &self,
        link: &mut Link,
        nonce: [u8; 16],
        waiting: WaitContext<'_>,
        until: Instant,
    ) -> Result<([u8; 16], Duration), OpenError> {
        let peer = link.peer();
        let failed = |error: LinkError| self.failed(peer, error, waiting.limits);
        let ours = waiting.limits.versions();
        let line = Banner {
            min_version: ours.0,
            max_version: ours.1,
            kind: BannerKind::Go { tls: self.tls.is_some(), nonce },
        };
        link.queue(line.write().into()).map_err(failed)?;
        if let Some(tls) = self.tls {
            link.start_tls(tls.connection().map_err(|error| failed(error.into()))?);
        }
        let asked = Instant::now();
        let theirs = read_line(link, waiting, until)
            .map_err(|error| self.no_line(peer, error, waiting.limits))?;
        let round_trip = asked.elapsed();
        let range = (theirs.min_version, theirs.max_version);
        if banner::common_version(range, ours).is_none() {
            return Err(OpenError::for_good(versions(peer, range, ours)));
        }
        match theirs.kind {
            BannerKind::Go { tls, nonce } if tls == self.tls.is_some() => Ok((nonce, round_trip)),
            BannerKind::Go { .. } => {
                let what = "its encryption settings changed during the handshake".to_owned();
                Err(OpenError::for_good(TransferError::Protocol { peer, what }))
            }
            BannerKind::No(reason) => {
                let reason = printable(&reason, 300);
                Err(OpenError::for_good(TransferError::Refused { reason }))
            }
        }
    }

    /// Returns the error for a missing first line of the joiner.
    fn no_line(&self, peer: SocketAddr, error: LineError, limits: &Limits) -> OpenError {
        let foreign = |what: String| TransferError::Foreign { peer, role: "joiner", what };
        match error {
            // A joiner whose slots are all taken by strangers closes the connection, too.
            LineError::Link(error) if went_away(&error) => OpenError::passing(foreign(
                "it closed the connection without an answer: check that wsrep_sst_method=xbrs is set there"
                    .to_owned(),
            )),
            LineError::Link(LinkError::Timeout) => OpenError::passing(foreign(format!(
                "it did not answer for {} s",
                limits.handshake.as_secs()
            ))),
            LineError::Link(error) => self.failed(peer, error, limits),
            LineError::Banner(error) => OpenError::for_good(foreign(error.to_string())),
        }
    }

    fn hello(&self, at: &Binding, limits: &Limits) -> Hello {
        let (min_version, max_version) = limits.versions();
        Hello {
            min_version,
            max_version,
            capabilities: 0,
            transfer: self.transfer.id,
            connection: self.connection,
            key: self.offer.map(|_| self.transfer.key.clone()),
            proof: self.transfer.prove(self.secret, Side::Donor, self.connection, at),
            offer: self.offer.unwrap_or_default().to_vec(),
        }
    }

    /// Returns the joiner's reply to the hello, if that is a welcome with a valid proof.
    fn welcomed(
        &self,
        message: Message,
        peer: SocketAddr,
        at: &Binding,
        ours: (u16, u16),
    ) -> Result<Welcome, TransferError> {
        match message {
            Message::Welcome(welcome) => {
                let version = welcome.version;
                if !(ours.0..=ours.1).contains(&version) {
                    return Err(versions(peer, (version, version), ours));
                }
                let proof = &welcome.proof;
                if !self.transfer.holds(proof, self.secret, Side::Joiner, self.connection, at) {
                    return Err(TransferError::Proof { peer });
                }
                Ok(welcome)
            }
            Message::Stop(stop) => Err(stopped(stop, "joiner", peer)),
            other => Err(TransferError::Protocol {
                peer,
                what: ProtocolError::Unexpected { what: other.name() }.to_string(),
            }),
        }
    }

    fn failed(&self, peer: SocketAddr, error: LinkError, limits: &Limits) -> OpenError {
        let lost = |what: String| OpenError::passing(TransferError::Tls { peer, what });
        let tls = |error: &rustls::Error| {
            let what = self.tls.map_or_else(|| error.to_string(), |tls| tls.explain(error));
            // A handshake that succeeded once can succeed again: a later error is a network fault,
            // unless the certificate has changed.
            let certificate = matches!(error, rustls::Error::InvalidCertificate(_));
            let passing = self.offer.is_none() && !certificate;
            OpenError { error: TransferError::Tls { peer, what }, passing, refused: false }
        };
        match error {
            LinkError::Cancelled => OpenError::for_good(TransferError::Cancelled),
            LinkError::Timeout => {
                lost(format!("the handshake took longer than {} s", limits.handshake.as_secs()))
            }
            LinkError::Closed => {
                lost("the joiner closed the connection during the handshake".to_owned())
            }
            LinkError::Tls(error) => tls(&error),
            LinkError::Io(error) => match within(&error) {
                Some(error) => tls(error),
                None => lost(error.to_string()),
            },
        }
    }
}

fn went_away(error: &LinkError) -> bool {
    match error {
        LinkError::Closed => true,
        LinkError::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
        _ => false,
    }
}

fn versions(peer: SocketAddr, theirs: (u16, u16), ours: (u16, u16)) -> TransferError {
    TransferError::Version {
        peer,
        theirs: format!("{}-{}", theirs.0, theirs.1),
        ours: format!("{}-{}", ours.0, ours.1),
    }
}
