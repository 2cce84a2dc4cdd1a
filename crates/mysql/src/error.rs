//! Errors, from the codec to the connection.

use std::io;

use crate::clone::CloneError;

/// An error of the codec or of the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A packet does not have the form that the protocol gives it.
    #[error(
        "the server sent a malformed packet ({packet}): check that the address is that of a MySQL or MariaDB server"
    )]
    Malformed {
        /// Kind of the packet.
        packet: &'static str,
    },
    /// A packet is larger than the limit of [`Packets`](crate::Packets).
    #[error(
        "the server sent a packet of more than {limit} bytes, which none of its kind has: check that the address is that of a MySQL or MariaDB server"
    )]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// A packet has another sequence number than the next one.
    #[error("the server sent packet {found} instead of packet {expected}")]
    OutOfOrder {
        /// The next number.
        expected: u8,
        /// The number that was received.
        found: u8,
    },
    /// The server is too old, or speaks another protocol.
    #[error("the server does not speak the protocol of MySQL 5.5 or later, or of MariaDB")]
    TooOld,
    /// The answer to a statement takes more memory than any honest one.
    #[error(
        "the server's answer to a statement takes more than {} MiB of memory, which none should: check that the address is that of the server itself",
        limit >> 20
    )]
    LongAnswer {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The name of the account or of its database has a NUL.
    #[error("the name of an account or a database must not contain a NUL byte")]
    Nul,
    /// The server has no TLS, and the connection requires it.
    #[error(
        "the server does not offer TLS: set ssl-cert and ssl-key on the server, or connect to its socket"
    )]
    NoTls,
    /// The server requires an authentication plugin that this client does not have.
    #[error(
        "the account requires the authentication plugin {0}, which is not supported: use an account with mysql_native_password, caching_sha2_password, ed25519 or unix_socket"
    )]
    Plugin(String),
    /// The server requires the password itself, over a connection that others can read.
    #[error(
        "the server requires the password itself, which is sent only over a Unix socket, or over TLS to a server whose certificate is verified: use its socket, or give --ssl-ca"
    )]
    NotPrivate,
    /// A statement asks for a file of the client's host.
    #[error("the server requested a local file (LOAD DATA LOCAL INFILE), which is refused")]
    LocalFile,
    /// A result has other columns than the statement asks for.
    #[error("the server's answer has other columns or values than the statement asks for")]
    Unexpected,
    /// An option about the login has a value that cannot be used.
    #[error("the option {option} has a value that cannot be used here: {what}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The fault, and a hint.
        what: String,
    },
    /// The server refused a login or a statement. After a statement, the connection can still be used.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A clone cannot be received, or is not what the donor announced.
    #[error(transparent)]
    Clone(#[from] CloneError),
    /// The certificate was refused, or TLS failed otherwise.
    #[error("no TLS connection to the server: {0}")]
    Tls(String),
    /// The server closed the connection before its answer was complete.
    #[error("the server closed the connection while {doing}: see its error log")]
    Closed {
        /// The activity that failed, as a verb in -ing.
        doing: &'static str,
    },
    /// The server sent nothing, or accepted nothing, for the time limit.
    #[error("the server did not respond in time while {doing}")]
    Timeout {
        /// The activity that failed, as a verb in -ing.
        doing: &'static str,
    },
    /// The operating system reported an error.
    #[error("the connection to the server failed while {doing}: {source}")]
    Io {
        /// The activity that failed, as a verb in -ing.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier error, or a result that was not read to its end, left the connection unusable.
    #[error("the connection to the server cannot be used after an error or an unfinished result")]
    Unusable,
}

/// An error that the server reports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error {code} ({state}): {message}")]
#[non_exhaustive]
pub struct ServerError {
    /// Number of the error, such as 1045.
    pub code: u16,
    /// SQLSTATE of five characters; `HY000` if the server sent none.
    pub state: String,
    /// The server's message. Bytes that are not UTF-8 are replaced.
    pub message: String,
}

impl Error {
    /// The error of a system call on the connection.
    pub(crate) fn io(doing: &'static str, source: io::Error) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
        };
        match source.kind() {
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => {
                Self::Closed { doing }
            }
            // The system found that the other host does not answer.
            TimedOut if source.raw_os_error().is_some() => Self::Io { doing, source },
            WouldBlock | TimedOut => Self::Timeout { doing },
            _ => match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(rustls::Error::General(cause)) => Self::Tls(cause.clone()),
                Some(cause) => Self::Tls(crate::tls_words::explain(cause)),
                None => Self::Io { doing, source },
            },
        }
    }
}
