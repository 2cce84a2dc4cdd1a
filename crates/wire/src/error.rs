//! Errors of a transfer, with messages that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::announce::AnnouncementError;
use crate::announce::address::HostPort;

/// Reason why certificates or secrets cannot be used. Detected before anything is sent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// A file cannot be read.
    #[error("cannot read the {what} {path}: {cause}", path = path.display())]
    Read {
        /// Expected content of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's message.
        cause: String,
    },
    /// A file does not contain the expected data.
    #[error("no {what} in {path}: check with `{hint}`", path = path.display())]
    Missing {
        /// Expected content of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The command that shows it.
        hint: String,
    },
    /// Certificate and key cannot be used together.
    #[error("cannot use certificate {certificate} with key {key}: {cause}: compare `openssl x509 -noout -pubkey -in {certificate}` with `openssl pkey -pubout -in {key}`", certificate = certificate.display(), key = key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The defect.
        cause: String,
    },
    /// An RSA key is too short for TLS.
    #[error("the RSA key of the certificate {path} has {bits} bits, but TLS needs at least 2048: create a new key and certificate, as with `openssl req -newkey rsa:3072`", path = path.display())]
    ShortKey {
        /// The certificate's file.
        path: PathBuf,
        /// The number of bits of its key.
        bits: usize,
    },
    /// Verification is required, but no authority is set.
    #[error(
        "ssl-mode requires a check of the peer's certificate, but there is no certificate authority: set ssl-ca (or tca)"
    )]
    NoAuthority,
    /// The other side would reject this node's certificate.
    #[error("the other node will reject this node's certificate {path}: {cause}", path = path.display())]
    OwnCertificate {
        /// The file.
        path: PathBuf,
        /// Why, with the command that shows it.
        cause: String,
    },
    /// The certificate of this transfer cannot be created.
    #[error("cannot create a one-time certificate: {cause}")]
    OneTime {
        /// The library's message.
        cause: String,
    },
    /// The system provides no random numbers.
    #[error("cannot get random bytes from the system: {cause}")]
    Random {
        /// The system's message.
        cause: String,
    },
    /// The two sides have incompatible settings.
    #[error("{what}")]
    Mismatch {
        /// The difference, and what to set.
        what: String,
    },
}

/// Reason why the joiner cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The address cannot be resolved.
    #[error("cannot resolve {address}: {source}")]
    Resolve {
        /// The address.
        address: HostPort,
        /// The system's error.
        source: io::Error,
    },
    /// The port is in use, or the address is not this machine's.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// The address.
        address: HostPort,
        /// The system's error.
        source: io::Error,
    },
    /// Certificates or secrets cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The line for the server cannot be created.
    #[error(transparent)]
    Announcement(#[from] AnnouncementError),
    /// The system has no thread or event descriptor.
    #[error("cannot start a thread: {source}")]
    System {
        /// The system's error.
        #[from]
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": check whether another transfer is still running",
        io::ErrorKind::AddrNotAvailable => ": check that the address belongs to this machine",
        _ => "",
    }
}

/// Reason why a transfer failed. Every later call returns the same first cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// Donor: no connection could be established.
    #[error("cannot reach {address}: {cause}{}", closed_port(*firewall))]
    Unreachable {
        /// The joiner's address.
        address: HostPort,
        /// The system's message.
        cause: String,
        /// Whether a closed port is the likely cause.
        firewall: bool,
    },
    /// Joiner: no donor connected.
    #[error("no donor connected within {} s: check that the donor can reach this address and port, and that this program is installed on it", waited.as_secs())]
    NoDonor {
        /// Duration of the wait.
        waited: Duration,
    },
    /// The peer is another program.
    #[error("peer {peer} is not a {role} of this program: {what}")]
    Foreign {
        /// The peer's address.
        peer: SocketAddr,
        /// The expected role of the peer.
        role: &'static str,
        /// Action of the peer.
        what: String,
    },
    /// The peer has another version.
    #[error(
        "{peer} supports protocol versions {theirs}, this program {ours}: install the same version on both nodes"
    )]
    Version {
        /// The peer's address.
        peer: SocketAddr,
        /// The peer's range, from–to.
        theirs: String,
        /// This program's range, from–to.
        ours: String,
    },
    /// The connection, or TLS on it, could not be established.
    #[error("{what} (no connection to {peer})")]
    Tls {
        /// The peer's address.
        peer: SocketAddr,
        /// The defect, with the command that shows it.
        what: String,
    },
    /// The two sides do not have the same one-time secret.
    #[error(
        "{peer} does not know the one-time secret of this transfer: it belongs to another transfer, or is an impostor"
    )]
    Proof {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// Joiner: two donors have proven that they know the one-time secret. One of them has read it.
    #[error(
        "a second donor, {peer}, knows the one-time secret of this transfer: someone reads the servers' messages"
    )]
    SecondDonor {
        /// The address of the donor that came later.
        peer: SocketAddr,
    },
    /// Certificates or settings cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Donor: the joiner refused.
    #[error("the joiner refused: {reason}")]
    Refused {
        /// The joiner's reason, safe for a log.
        reason: String,
    },
    /// The peer aborted the transfer.
    #[error("the {who} gave up: {reason}")]
    Aborted {
        /// `donor` or `joiner`.
        who: &'static str,
        /// The peer's reason, safe for a log.
        reason: String,
    },
    /// Donor: the joiner neither accepted nor refused the offer.
    #[error("the joiner did not answer within {} s", waited.as_secs())]
    NoAnswer {
        /// Duration of the wait.
        waited: Duration,
    },
    /// The connection could not be restored, or made no progress.
    #[error("no progress for {} s (sst-resume-limit): {cause}", waited.as_secs())]
    Lost {
        /// Duration of the wait.
        waited: Duration,
        /// The last error.
        cause: String,
    },
    /// Donor: the joiner's address has refused every connection for some time.
    #[error("the joiner no longer listens on {address}: it has ended")]
    Gone {
        /// The joiner's address.
        address: HostPort,
    },
    /// The peer broke the protocol.
    #[error("{peer} violated the protocol: {what}")]
    Protocol {
        /// The peer's address.
        peer: SocketAddr,
        /// The violation.
        what: String,
    },
    /// The caller's data exceeds a limit.
    #[error("the {what} has {len} bytes, more than the limit of {max}")]
    TooLong {
        /// `offer` or `answer`.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The donor begins its stream again: what arrived before is discarded, and the next read returns
    /// the new beginning. The transfer has not failed.
    #[error("the donor began its stream again")]
    BeganAgain,
    /// Cancelled by the token of this side, or by this side's own abort.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// A thread of this side panicked, which is a bug; its message is on standard error.
    #[error("a thread of the transfer panicked; this is a bug")]
    Panicked,
    /// The transfer is already over.
    #[error("the transfer has ended")]
    Ended,
    /// The system has no thread or descriptor.
    #[error("cannot get a thread or socket from the system: {source}")]
    System {
        /// The system's error.
        source: Arc<io::Error>,
    },
}

fn closed_port(likely: bool) -> &'static str {
    if likely { ": check that the firewall allows this port" } else { "" }
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
