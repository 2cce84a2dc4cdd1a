//! What can go wrong, in words that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::announce::AnnouncementError;
use crate::announce::address::HostPort;

/// Why certificates or secrets cannot be used; found before anything is sent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// A file cannot be read.
    #[error("cannot read the {what} {path}: {cause}", path = path.display())]
    Read {
        /// What it should hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system says.
        cause: String,
    },
    /// A file holds nothing of the kind.
    #[error("no {what} in {path}: see `{hint}`", path = path.display())]
    Missing {
        /// What it should hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// The command that shows it.
        hint: String,
    },
    /// Certificate and key are not usable together.
    #[error("the certificate {certificate} and the key {key} cannot be used: {cause}: compare `openssl x509 -noout -pubkey -in {certificate}` with `openssl pkey -pubout -in {key}`", certificate = certificate.display(), key = key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// Checking needs an authority.
    #[error(
        "ssl-mode asks to check the peer's certificate, but no certificate authority is set: set ssl-ca (or tca)"
    )]
    NoAuthority,
    /// This node's certificate would be refused by the other side.
    #[error("this node's own certificate {path} does not pass the check that the other node will make: {cause}", path = path.display())]
    OwnCertificate {
        /// Which file.
        path: PathBuf,
        /// Why, with the command that shows it.
        cause: String,
    },
    /// The certificate of this transfer cannot be made.
    #[error("cannot make a one-time certificate: {cause}")]
    OneTime {
        /// What the library says.
        cause: String,
    },
    /// No random numbers.
    #[error("the system gives no random numbers: {cause}")]
    Random {
        /// What it says.
        cause: String,
    },
    /// The two sides are set up differently.
    #[error("{what}")]
    Mismatch {
        /// How, and what to set.
        what: String,
    },
}

/// Why the joiner cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The address means nothing here.
    #[error("cannot resolve {address}: {source}")]
    Resolve {
        /// The address.
        address: HostPort,
        /// What the system says.
        source: io::Error,
    },
    /// The port is taken, or the address is not this machine's.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// The address.
        address: HostPort,
        /// What the system says.
        source: io::Error,
    },
    /// Certificates or secrets.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The line for the server cannot be made.
    #[error(transparent)]
    Announcement(#[from] AnnouncementError),
    /// No thread or event descriptor.
    #[error("the system gives no thread: {source}")]
    System {
        /// What it says.
        #[from]
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": does another transfer still run?",
        io::ErrorKind::AddrNotAvailable => ": is it this machine's own address?",
        _ => "",
    }
}

/// Why a transfer ended without success. The same first cause is given to every call that comes
/// after it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// Donor: no connection came about.
    #[error("cannot reach {address}: {cause}{}", closed_port(*firewall))]
    Unreachable {
        /// The joiner's address.
        address: HostPort,
        /// What the system says.
        cause: String,
        /// Whether a closed port is likely.
        firewall: bool,
    },
    /// Joiner: nobody came.
    #[error("no donor has connected within {} s: can the donor reach this address and port, and is this program installed on it?", waited.as_secs())]
    NoDonor {
        /// How long was waited.
        waited: Duration,
    },
    /// The other end is not this program.
    #[error("the peer {peer} is no {role} of this program: {what}")]
    Foreign {
        /// The other end.
        peer: SocketAddr,
        /// What it was taken for.
        role: &'static str,
        /// What it did.
        what: String,
    },
    /// The other end has another version.
    #[error(
        "{peer} speaks versions {theirs} of the protocol, this program {ours}: install the same version on both nodes"
    )]
    Version {
        /// The other end.
        peer: SocketAddr,
        /// From–to.
        theirs: String,
        /// From–to.
        ours: String,
    },
    /// The connection, or TLS on it, did not come about.
    #[error("no connection with {peer}: {what}")]
    Tls {
        /// The other end.
        peer: SocketAddr,
        /// What is wrong, with the command that shows it.
        what: String,
    },
    /// The two sides do not have the same one-time secret.
    #[error(
        "{peer} does not know the one-time secret of this transfer: it is another transfer's, or an impostor"
    )]
    Proof {
        /// The other end.
        peer: SocketAddr,
    },
    /// Certificates, or how the sides are set up.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Donor: the joiner said no.
    #[error("the joiner has refused: {reason}")]
    Refused {
        /// Its words, fit for a log.
        reason: String,
    },
    /// The other side gave up.
    #[error("the {who} has given up: {reason}")]
    Aborted {
        /// `donor` or `joiner`.
        who: &'static str,
        /// Its words, fit for a log.
        reason: String,
    },
    /// Donor: the joiner did not say yes or no to the offer.
    #[error("the joiner has not answered within {} s", waited.as_secs())]
    NoAnswer {
        /// How long was waited.
        waited: Duration,
    },
    /// No connection came about again, or none made progress.
    #[error("no progress for {} s (the limit for taking up a broken connection): {cause}", waited.as_secs())]
    Lost {
        /// How long it was waited.
        waited: Duration,
        /// What happened last.
        cause: String,
    },
    /// Donor: the joiner's address has refused every connection for a while.
    #[error("nobody listens on {address} any more: the joiner has ended")]
    Gone {
        /// The joiner's address.
        address: HostPort,
    },
    /// The peer broke the protocol.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// The other end.
        peer: SocketAddr,
        /// How.
        what: String,
    },
    /// A limit of ours on what the caller gave.
    #[error("the {what} has {len} bytes, at most {max} fit")]
    TooLong {
        /// `offer` or `answer`.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// [`Cancel`](crate::Cancel), or this side's own abort.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// A thread of this side panicked, which is a bug; its message is on standard error.
    #[error("a thread of the transfer has failed: this is a bug")]
    Panicked,
    /// The transfer is over already.
    #[error("the transfer has ended")]
    Ended,
    /// No thread or descriptor.
    #[error("the system gives no thread or socket: {source}")]
    System {
        /// What it says.
        source: Arc<io::Error>,
    },
}

fn closed_port(likely: bool) -> &'static str {
    if likely { ": is the port open in the firewall?" } else { "" }
}

impl From<io::Error> for TransferError {
    fn from(source: io::Error) -> Self {
        Self::System { source: Arc::new(source) }
    }
}

impl From<getrandom::Error> for SecurityError {
    fn from(error: getrandom::Error) -> Self {
        Self::Random { cause: error.to_string() }
    }
}
